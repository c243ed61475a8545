//! The pauses between plans, so that they rewrite at most some MB per second.
//!
//! As in HBase, a plan does not wait for its own size: it starts once the sizes of the plans before
//! it are paid for. A second without a plan saves at most a second's worth.

use std::time::{Duration, Instant};

/// A token bucket that goes into debt.
pub(super) struct RateLimiter {
    per_s: f64,
    saved: f64,
    /// When the debt is paid.
    free_at: Instant,
}

impl RateLimiter {
    /// Creates a limiter; the first plan does not wait.
    pub(super) fn new(per_s: u64, now: Instant) -> Self {
        Self { per_s: per_s.max(1) as f64, saved: 0.0, free_at: now }
    }

    /// Takes `amount`; returns how long the caller waits before it uses it.
    pub(super) fn acquire(&mut self, amount: u64, now: Instant) -> Duration {
        if now > self.free_at {
            let idle_s = now.duration_since(self.free_at).as_secs_f64();
            self.saved = (self.saved + idle_s * self.per_s).min(self.per_s);
            self.free_at = now;
        }
        let wait = self.free_at.saturating_duration_since(now);
        let from_saved = self.saved.min(amount as f64);
        self.saved -= from_saved;
        self.free_at += Duration::from_secs_f64((amount as f64 - from_saved) / self.per_s);
        wait
    }
}
