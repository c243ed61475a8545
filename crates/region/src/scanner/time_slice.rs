//! [`TimeSlice`]: how long reads may compute on a thread that serves others.
//!
//! All connections of a thread wait for each other's calls, so a read there has a time slice. The
//! slice begins with the first clock check, and several reads may share one. If a read is not
//! finished when the slice is over, it ends with
//! [`TimeSliceOver`](evenkeel_common::TryError::TimeSliceOver), and a thread that may compute for
//! longer repeats it from its beginning. The alternative is a scanner that moves to another thread.
//! It would have to release what it has pinned and find its position again.
//!
//! A handler thread computes for as long as the client waits: there the slice is over when the
//! client has disconnected or its timeout has passed, and the read fails.
//!
//! A slice is not a scan's deadline. A deadline ends a call at a place where the next call can
//! continue, and the client gets what was read so far (see
//! [`ScannerContext`](super::ScannerContext)).

use std::time::{Duration, Instant};

use evenkeel_common::{CallerState, TryError, clock};

/// A length of time for some reads, or no limit. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct TimeSlice {
    limit: Limit,
    is_over: bool,
}

#[derive(Clone, Debug, Default)]
enum Limit {
    #[default]
    None,
    /// `end` is set by the first clock check.
    Time {
        length: Duration,
        end: Option<Instant>,
    },
    Caller(CallerState),
}

impl TimeSlice {
    /// No limit.
    pub const UNLIMITED: Self = Self { limit: Limit::None, is_over: false };

    /// A slice of this length.
    pub fn new(length: Duration) -> Self {
        Self { limit: Limit::Time { length, end: None }, ..Self::UNLIMITED }
    }

    /// A slice that lasts as long as a client waits for the reply.
    pub fn while_awaited(caller: CallerState) -> Self {
        Self { limit: Limit::Caller(caller), ..Self::UNLIMITED }
    }

    /// Returns true if the slice was over at the last check.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns true if the slice was over at the last check because no client waits for the reply:
    /// the request must not be read again.
    pub fn is_abandoned(&self) -> bool {
        self.is_over && matches!(self.limit, Limit::Caller(_))
    }

    /// Reads the clock, or checks the state of the caller. Returns true if the slice is over.
    pub fn check(&mut self) -> bool {
        match &mut self.limit {
            Limit::None => {}
            Limit::Time { length, end } => {
                let now = clock::monotonic();
                self.is_over |= now >= *end.get_or_insert(now + *length);
            }
            Limit::Caller(caller) => self.is_over |= caller.check().is_err(),
        }
        self.is_over
    }

    /// Returns the error of a read that has not finished within the slice: `TimeSliceOver`, or the
    /// error of [`CallerState::check`].
    pub fn error(&self) -> TryError {
        match &self.limit {
            Limit::Caller(caller) => caller.check().err().map_or(TryError::TimeSliceOver, TryError::Failed),
            Limit::None | Limit::Time { .. } => TryError::TimeSliceOver,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_starts_at_the_first_check() {
        let mut slice = TimeSlice::new(Duration::from_millis(20));
        std::thread::sleep(Duration::from_millis(40));
        assert!(!slice.check() && !slice.is_over(), "it has just begun");
        std::thread::sleep(Duration::from_millis(40));
        assert!(!slice.is_over(), "nobody has looked");
        assert!(slice.check() && slice.is_over() && slice.check());
        assert!(!slice.is_abandoned() && slice.error().is_unfinished());
        let mut unlimited = TimeSlice::UNLIMITED;
        assert!(!unlimited.check() && !unlimited.is_over());
    }

    #[test]
    fn a_slice_of_a_caller_ends_at_its_deadline() {
        let mut waiting = TimeSlice::while_awaited(CallerState::default());
        assert!(!waiting.check() && !waiting.is_abandoned());
        let past = Instant::now() - Duration::from_millis(1);
        let mut late = TimeSlice::while_awaited(CallerState::new(None, Some(past)));
        assert!(!late.is_over(), "nobody has looked");
        assert!(late.check() && late.is_abandoned() && !late.error().is_unfinished());
    }
}
