//! [`RateLimiter`]: units that are refilled with time, by HBase's arithmetic
//! (`AverageIntervalRateLimiter`, `FixedIntervalRateLimiter`), but for a deficit: in HBase one
//! refill adds no more than the limit however long the pause was, so a client that waits as it is
//! told is refused again and again. Here a deficit is refilled by all the time that has passed.
//!
//! A limit is a number of units per unit of time. At first, all units are available. A request
//! asks whether its units are available, and then consumes them; the two steps are separate, so
//! concurrent requests may consume more than there is. The deficit delays later requests.
//!
//! The units and the time of the refill change together, under a lock that is held for the
//! arithmetic alone.

use evenkeel_common::length;
use parking_lot::Mutex;

/// How units are refilled (`hbase.quota.rate.limiter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refill {
    /// Continuously: after a tenth of the unit of time, a tenth of the limit.
    Average,
    /// At fixed intervals of this number of milliseconds, from 1 to [`FIXED_INTERVAL_MS_MAX`].
    Fixed(i64),
}

/// HBase's longest interval of refills, which is also the default.
pub const FIXED_INTERVAL_MS_MAX: i64 = 1000;

/// No request has asked for units yet.
const NEVER: i64 = -1;

/// What is left of a limit.
#[derive(Clone, Copy, Debug)]
struct State {
    available: i64,
    /// The average limiter's last refill, the fixed limiter's next one.
    refill_ms: i64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct RateLimiter {
    limit: i64,
    unit_ms: i64,
    refill: Refill,
    state: Mutex<State>,
}

impl RateLimiter {
    /// Creates a limiter of `limit` units, at least 1, in each `unit_ms` milliseconds.
    pub fn new(limit: i64, unit_ms: i64, refill: Refill) -> Self {
        let limit = limit.max(1);
        let state = Mutex::new(State { available: limit, refill_ms: NEVER });
        Self { limit, unit_ms: unit_ms.max(1), refill, state }
    }

    /// Creates the successor of a limiter whose limit was changed. A larger limit makes the
    /// difference available at once; the units that were consumed stay consumed.
    pub fn succeeding(mut self, before: &Self) -> Self {
        let mut state = *before.state.lock();
        if before.limit < self.limit {
            state.available = state.available.saturating_add(self.limit - before.limit).min(self.limit);
        }
        *self.state.get_mut() = state;
        self
    }

    /// Returns true if both have the same limit.
    pub fn is_alike(&self, other: &Self) -> bool {
        (self.limit, self.unit_ms, self.refill) == (other.limit, other.unit_ms, other.refill)
    }

    /// Returns the limit.
    pub fn limit(&self) -> i64 {
        self.limit
    }

    /// Returns the units that are available; negative after more were consumed.
    pub fn available(&self) -> i64 {
        self.state.lock().available
    }

    /// Refills, and returns how many milliseconds a request for `amount` units must wait; 0 if
    /// they are available, or nearly.
    pub fn wait_ms(&self, amount: i64, now_ms: i64) -> i64 {
        let mut state = self.state.lock();
        self.refill_state(&mut state, now_ms);
        if amount <= state.available {
            return 0;
        }
        let lacking = amount.saturating_sub(state.available);
        match self.refill {
            Refill::Average => length::integer_part(lacking as f64 * self.unit_ms as f64 / self.limit as f64),
            Refill::Fixed(interval_ms) => {
                let next_ms = state.refill_ms.saturating_sub(now_ms);
                // One refill is due at `next_ms`; this is the number of those after it.
                let further = (lacking - 1) / self.units_per(interval_ms);
                next_ms.saturating_add(further.saturating_mul(interval_ms))
            }
        }
    }

    /// Adds the units of the time since the last refill.
    pub fn refill(&self, now_ms: i64) {
        self.refill_state(&mut self.state.lock(), now_ms);
    }

    fn refill_state(&self, state: &mut State, now_ms: i64) {
        match self.refill {
            Refill::Average => self.refill_average(state, now_ms),
            Refill::Fixed(interval_ms) => self.refill_fixed(state, interval_ms, now_ms),
        }
    }

    /// Consumes units; gives them back if `amount` is negative.
    pub fn consume(&self, amount: i64) {
        self.add(&mut self.state.lock(), amount.saturating_neg());
    }

    /// Adds units up to the limit.
    fn add(&self, state: &mut State, units: i64) {
        state.available = state.available.saturating_add(units).min(self.limit);
    }

    fn refill_average(&self, state: &mut State, now_ms: i64) {
        let passed_ms = now_ms.saturating_sub(state.refill_ms);
        let units = match passed_ms {
            _ if state.refill_ms == NEVER => self.limit,
            // The clock was set back.
            ..0 => {
                state.refill_ms = now_ms;
                0
            }
            _ => length::integer_part(passed_ms as f64 / self.unit_ms as f64 * self.limit as f64),
        };
        if units > 0 {
            state.refill_ms = now_ms;
        }
        self.add(state, units);
    }

    fn refill_fixed(&self, state: &mut State, interval_ms: i64, now_ms: i64) {
        let next_ms = state.refill_ms;
        let after_ms = now_ms.saturating_add(interval_ms);
        let units = match () {
            () if next_ms == NEVER => self.limit,
            // The clock was set back.
            () if next_ms > after_ms => 0,
            () if now_ms < next_ms => return self.add(state, 0),
            () => {
                let refills = (interval_ms + (now_ms - next_ms)) / interval_ms;
                refills.saturating_mul(self.units_per(interval_ms))
            }
        };
        state.refill_ms = after_ms;
        self.add(state, units);
    }

    /// Returns the units of a refill, rounded up: at least 1.
    fn units_per(&self, interval_ms: i64) -> i64 {
        length::integer_part((interval_ms as f64 / self.unit_ms as f64 * self.limit as f64).ceil()).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes units if they are available, as a request does; returns how long to wait otherwise.
    fn take(limiter: &RateLimiter, amount: i64, now_ms: i64) -> i64 {
        let wait_ms = limiter.wait_ms(amount, now_ms);
        if wait_ms == 0 {
            limiter.consume(amount);
        }
        wait_ms
    }

    #[test]
    fn the_average_limiter_refills_in_proportion_to_time() {
        let limiter = RateLimiter::new(10, 1000, Refill::Average);
        for _ in 0..10 {
            assert_eq!(take(&limiter, 1, 5000), 0);
        }
        assert_eq!(take(&limiter, 1, 5000), 100, "one unit takes a tenth of a second");
        assert_eq!(take(&limiter, 3, 5000), 300);
        // Less than a unit is refilled by parts: the time before counts.
        assert_eq!(take(&limiter, 1, 5099), 100);
        assert_eq!(take(&limiter, 1, 5100), 0);
        assert_eq!(take(&limiter, 1, 5100), 100);
        // 2.5 units are 2, and the half is lost.
        assert_eq!(take(&limiter, 3, 5350), 100);
        assert_eq!(limiter.available(), 2);
        assert_eq!(take(&limiter, 10, 9000), 0, "never more than the limit");
        assert_eq!(limiter.available(), 0);
    }

    #[test]
    fn a_deficit_delays_later_requests() {
        let limiter = RateLimiter::new(100, 60_000, Refill::Average);
        assert_eq!(limiter.wait_ms(100, 0), 0);
        limiter.consume(1100);
        assert_eq!(limiter.wait_ms(1, 0), 1001 * 600);
        limiter.consume(-1000);
        assert_eq!(limiter.wait_ms(1, 0), 600);
        limiter.consume(-5000);
        assert_eq!(limiter.available(), 100, "what is given back does not exceed the limit");
    }

    #[test]
    fn a_deficit_is_refilled_by_all_the_time_that_has_passed() {
        for (refill, wait_ms) in [(Refill::Average, 7250), (Refill::Fixed(1000), 8000)] {
            let limiter = RateLimiter::new(8, 1000, refill);
            assert_eq!(take(&limiter, 1, 0), 0);
            limiter.consume(64);
            assert_eq!(limiter.wait_ms(1, 0), wait_ms, "{refill:?}");
            assert_eq!(limiter.wait_ms(1, wait_ms), 0, "the client waits as it is told: {refill:?}");
        }
    }

    /// HBase passes a request that would have to wait for less than a millisecond.
    #[test]
    fn waits_below_a_millisecond_are_none() {
        let limiter = RateLimiter::new(10_000, 1000, Refill::Average);
        assert_eq!(take(&limiter, 10_000, 7), 0);
        assert_eq!(take(&limiter, 1, 7), 0);
        assert_eq!(limiter.available(), -1);
        assert_eq!(take(&limiter, 100, 7), 10);
    }

    #[test]
    fn the_fixed_limiter_refills_at_intervals() {
        let limiter = RateLimiter::new(10, 1000, Refill::Fixed(1000));
        assert_eq!(take(&limiter, 10, 5000), 0);
        assert_eq!(take(&limiter, 1, 5000), 1000, "until the next refill");
        assert_eq!(take(&limiter, 1, 5999), 1);
        assert_eq!(take(&limiter, 11, 5999), 1001, "two refills");
        assert_eq!(take(&limiter, 10, 6000), 0);
        assert_eq!(take(&limiter, 20, 6500), 1500, "an exact number of refills");
        assert_eq!(take(&limiter, 21, 6500), 2500);
    }

    #[test]
    fn short_intervals_refill_parts_of_the_limit() {
        let limiter = RateLimiter::new(100, 1000, Refill::Fixed(100));
        assert_eq!(take(&limiter, 100, 0), 0);
        assert_eq!(take(&limiter, 10, 0), 100, "ten units come with each refill");
        assert_eq!(take(&limiter, 11, 0), 200);
        // The refill that was due at 100 ms, and those until 250.
        assert_eq!(take(&limiter, 20, 250), 0);
        assert_eq!(limiter.available(), 0);
        assert_eq!(take(&limiter, 10, 349), 1);
        assert_eq!(take(&limiter, 10, 350), 0);
    }

    /// As in HBase, a refill of less than one unit is one unit.
    #[test]
    fn a_refill_has_at_least_one_unit() {
        let limiter = RateLimiter::new(10, 86_400_000, Refill::Fixed(1000));
        assert_eq!(take(&limiter, 10, 0), 0);
        assert_eq!(take(&limiter, 1, 1), 999);
        assert_eq!(take(&limiter, 1, 1000), 0);
        assert_eq!(RateLimiter::new(0, 0, Refill::Average).limit(), 1);
    }

    #[test]
    fn a_changed_limit_keeps_what_was_consumed() {
        let first = RateLimiter::new(10, 1000, Refill::Average);
        assert_eq!(take(&first, 8, 50), 0);
        let larger = RateLimiter::new(30, 1000, Refill::Average).succeeding(&first);
        assert_eq!((larger.available(), larger.limit()), (22, 30));
        assert_eq!(larger.wait_ms(23, 50), 33, "the last refill is that of the first one");
        let smaller = RateLimiter::new(5, 1000, Refill::Average).succeeding(&larger);
        assert_eq!(smaller.available(), 22, "until it is used");
        assert_eq!(smaller.wait_ms(5, 50), 0);
        assert_eq!(smaller.available(), 5);
        assert!(!smaller.is_alike(&larger) && larger.is_alike(&RateLimiter::new(30, 1000, Refill::Average)));
        assert!(!larger.is_alike(&RateLimiter::new(30, 1000, Refill::Fixed(1000))));
    }

    #[test]
    fn a_clock_that_is_set_back_delays_nothing_for_long() {
        let average = RateLimiter::new(10, 1000, Refill::Average);
        assert_eq!(take(&average, 10, 100_000), 0);
        assert_eq!(take(&average, 1, 50_000), 100);
        assert_eq!(take(&average, 1, 50_100), 0);
        let fixed = RateLimiter::new(10, 1000, Refill::Fixed(1000));
        assert_eq!(take(&fixed, 10, 100_000), 0);
        assert_eq!(take(&fixed, 1, 50_000), 1000);
        assert_eq!(take(&fixed, 1, 51_000), 0);
    }

    #[test]
    fn concurrent_requests_take_each_unit_once() {
        let limiter = RateLimiter::new(1000, 86_400_000, Refill::Average);
        let taken = std::thread::scope(|scope| {
            let take_all =
                || (0..1000).filter(|_| limiter.wait_ms(1, 7) == 0).inspect(|_| limiter.consume(1)).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take_all)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<usize>()
        });
        assert!((1000..=1003).contains(&taken), "{taken}: a check and a take are two steps");
        assert_eq!(limiter.available(), 1000 - i64::try_from(taken).expect("few"));
    }
}
