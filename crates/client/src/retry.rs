//! [`Retry`]: retry limits and backoff.

use std::time::Duration;

use rand::Rng;
use tokio::time::{Instant, sleep};

use crate::config::ClientConfig;
use crate::error::{Error, Result};

/// The multiples of the first pause, attempt by attempt (`HConstants.RETRY_BACKOFF`).
const BACKOFF: [u32; 13] = [1, 2, 3, 5, 10, 20, 40, 100, 100, 100, 100, 200, 200];

/// The attempts of one operation.
#[derive(Debug)]
pub(crate) struct Retry {
    deadline: Instant,
    attempts: u32,
    attempts_max: u32,
    pause: Duration,
    pause_overloaded: Duration,
}

impl Retry {
    pub(crate) fn new(config: &ClientConfig) -> Self {
        Self {
            deadline: Instant::now() + config.operation_timeout,
            attempts: 0,
            attempts_max: config.retries.saturating_add(1),
            pause: config.pause,
            pause_overloaded: config.pause_overloaded,
        }
    }

    /// The timeout of one call: `limit`, or the operation's remaining time if that is less.
    pub(crate) fn call_timeout(&self, limit: Duration) -> Duration {
        limit.min(self.deadline.saturating_duration_since(Instant::now())).max(Duration::from_millis(1))
    }

    /// Records a failure and waits until the next attempt.
    ///
    /// # Errors
    /// The failure itself if it is final; [`Error::RetriesExhausted`] if no attempt is left.
    pub(crate) async fn after(&mut self, error: Error) -> Result<()> {
        if error.is_final() {
            return Err(error);
        }
        self.pause_after(error).await
    }

    /// Counts an attempt that retries at once and made no progress: such attempts would otherwise
    /// follow each other without a pause until the deadline.
    pub(crate) fn count_attempt(&mut self) {
        self.attempts += 1;
    }

    /// As [`Retry::after`], also for final failures, which the caller can work around.
    pub(crate) async fn pause_after(&mut self, error: Error) -> Result<()> {
        let pause = self.next_pause(&error);
        // A server answers a large batch in parts, and each part is progress. HBase's client does
        // not count these attempts, either (`AsyncBatchRpcRetryingCaller.tryResubmit`).
        if !error.retries_at_once() {
            self.attempts += 1;
        }
        if self.attempts >= self.attempts_max || Instant::now() + pause >= self.deadline {
            return Err(Error::RetriesExhausted { attempts: self.attempts, last: Box::new(error) });
        }
        tracing::debug!(attempt = self.attempts, ?pause, %error, "trying again");
        sleep(pause).await;
        Ok(())
    }

    fn next_pause(&self, error: &Error) -> Duration {
        if error.retries_at_once() {
            return Duration::ZERO;
        }
        if let Some(wait) = error.throttled_for() {
            return wait;
        }
        let overloaded = error.remote().is_some_and(|e| e.server_overloaded);
        let first = if overloaded { self.pause_overloaded } else { self.pause };
        backoff(first, self.attempts)
    }
}

/// The pause after a number of failures, with up to 1 % of jitter.
pub(crate) fn backoff(first: Duration, failures: u32) -> Duration {
    let factor = BACKOFF.get(failures as usize).or(BACKOFF.last()).copied().unwrap_or(1);
    let pause = first.saturating_mul(factor);
    pause + pause.mul_f64(rand::rng().random_range(0.0..0.01))
}

#[cfg(test)]
mod tests {
    use evenkeel_common::ErrorKind;

    use super::*;
    use crate::error::RemoteException;

    #[test]
    fn pauses_grow_as_in_hbase() {
        let first = Duration::from_millis(100);
        for (failures, want_ms) in [(0, 100), (3, 500), (7, 10_000), (12, 20_000), (99, 20_000)] {
            let pause = backoff(first, failures).as_millis();
            assert!((want_ms..=want_ms + want_ms / 50).contains(&pause), "{failures}: {pause}");
        }
    }

    #[tokio::test]
    async fn final_errors_end_at_once_and_others_after_the_last_try() {
        let config = ClientConfig { retries: 2, pause: Duration::ZERO, ..ClientConfig::new(["x:1"]) };
        let mut retry = Retry::new(&config);
        assert!(matches!(retry.after(Error::Protocol("x".into())).await, Err(Error::Protocol(_))));
        assert!(retry.after(Error::Connection("x".into())).await.is_ok());
        assert!(retry.after(Error::Connection("x".into())).await.is_ok());
        let end = retry.after(Error::Connection("x".into())).await;
        assert!(matches!(end, Err(Error::RetriesExhausted { attempts: 3, .. })), "{end:?}");
    }

    #[tokio::test]
    async fn a_batch_that_is_answered_in_parts_is_limited_by_its_deadline_only() {
        let too_large = || {
            let class = ErrorKind::MultiActionResultTooLarge.class_name();
            Error::Remote(Box::new(RemoteException::new(class, "")))
        };
        let config = ClientConfig { retries: 0, ..ClientConfig::new(["x:1"]) };
        let mut retry = Retry::new(&config);
        for _ in 0..100 {
            assert!(retry.after(too_large()).await.is_ok());
        }
        retry.count_attempt();
        assert!(retry.after(too_large()).await.is_err(), "without progress it counts");
        let mut late = Retry { deadline: Instant::now(), ..Retry::new(&config) };
        assert!(matches!(late.after(too_large()).await, Err(Error::RetriesExhausted { .. })));
    }
}
