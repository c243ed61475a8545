//! [`CallerState`]: whether a client still waits for the reply to a call that runs.
//!
//! Reads that take long look at it from time to time, and end if nobody waits for them. Without
//! that, the scans of a client that has gone would occupy handler threads until their end.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

use crate::{ErrorKind, HBaseError, Result, clock};

/// The connection that a call came on.
pub trait CallerConnection: Debug + Send + Sync {
    /// Returns true if the connection is closed, so that no reply can reach the client.
    fn is_closed(&self) -> bool;
}

/// The connection and the deadline of a call. The default is a caller that waits forever.
#[derive(Clone, Debug, Default)]
pub struct CallerState {
    connection: Option<Arc<dyn CallerConnection>>,
    deadline: Option<Instant>,
}

impl CallerState {
    /// Creates the state of a call. `connection` is `None` for a call that came on none, and
    /// `deadline` for a client that sent no timeout.
    pub fn new(connection: Option<Arc<dyn CallerConnection>>, deadline: Option<Instant>) -> Self {
        Self { connection, deadline }
    }

    /// Checks that the client still waits. Takes an atomic load, and reads the clock if there is a
    /// deadline. After the first error, all later checks return one, too.
    ///
    /// # Errors
    /// `CallerDisconnectedException` if the connection is closed, `TimeoutIOException` if the
    /// deadline has passed.
    pub fn check(&self) -> Result<()> {
        if self.connection.as_ref().is_some_and(|connection| connection.is_closed()) {
            let message = "Aborting the read, since caller disconnected";
            return Err(HBaseError::new(ErrorKind::CallerDisconnected, message));
        }
        if self.deadline.is_some_and(|deadline| clock::monotonic() > deadline) {
            let message = "Client deadline exceeded, cannot return results";
            return Err(HBaseError::new(ErrorKind::Timeout, message));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;

    #[derive(Debug, Default)]
    struct Connection(AtomicBool);

    impl CallerConnection for Connection {
        fn is_closed(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn a_caller_waits_until_it_disconnects_or_its_deadline_passes() {
        let kind = |state: &CallerState| state.check().map_err(|error| error.kind());
        assert_eq!(kind(&CallerState::default()), Ok(()));
        let connection = Arc::<Connection>::default();
        let on = |deadline| CallerState::new(Some(connection.clone()), Some(deadline));
        let now = Instant::now();
        let (late, early) = (on(now - Duration::from_millis(1)), on(now + Duration::from_secs(600)));
        assert_eq!((kind(&late), kind(&early)), (Err(ErrorKind::Timeout), Ok(())));
        connection.0.store(true, Ordering::Relaxed);
        let disconnected = Err(ErrorKind::CallerDisconnected);
        assert_eq!((kind(&late), kind(&early)), (disconnected, disconnected));
    }
}
