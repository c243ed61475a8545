//! [`Meter`]: the rate of a count, as mean and over the last minutes (HBase's `MeterImpl`, which is
//! Dropwizard's).
//!
//! A rate over minutes is a moving average: each [`TICK`] it moves towards the rate of that tick by
//! `1 - e^(-tick / minutes)`. The meter is updated when it is read, not by every event: a read
//! makes up for the ticks since the previous one, with the events spread evenly over them.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::record::Record;

/// The step of the averages.
const TICK: Duration = Duration::from_secs(5);
/// The minutes of the averages.
const MINUTES: [f64; 3] = [1.0, 5.0, 15.0];
/// Limit of ticks that a read makes up for: after 4 hours without events every average is 0.
const TICKS_MAX: u64 = 2880;

/// A meter; see the module's documentation.
#[derive(Debug)]
pub struct Meter(Mutex<State>);

#[derive(Debug)]
struct State {
    began_at: Instant,
    ticked_at: Instant,
    /// The count at the last tick.
    counted: u64,
    /// Events per second; `None` before the first tick.
    rates: Option<[f64; 3]>,
    /// Events per second between the last two ticks.
    last: f64,
}

/// The rates of a meter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeterRates {
    /// Events since the start.
    pub count: u64,
    /// Events per second since the start.
    pub mean: f64,
    /// Events per second over the last 1, 5 and 15 minutes.
    pub minutes: [f64; 3],
    /// Events per second over the last period, which is at least a few seconds.
    pub last: f64,
}

impl Meter {
    /// A meter of a count that is currently 0.
    pub fn new(now: Instant) -> Self {
        Self(Mutex::new(State { began_at: now, ticked_at: now, counted: 0, rates: None, last: 0.0 }))
    }

    /// Returns the rates for the current `count`. A count that has decreased starts again.
    pub fn rates(&self, count: u64, now: Instant) -> MeterRates {
        let mut state = self.0.lock();
        state.tick(count, now);
        let age = now.saturating_duration_since(state.began_at).as_secs_f64();
        let mean = if age > 0.0 { count as f64 / age } else { 0.0 };
        MeterRates { count, mean, minutes: state.rates.unwrap_or_default(), last: state.last }
    }
}

impl State {
    fn tick(&mut self, count: u64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.ticked_at);
        let ticks = elapsed.as_secs() / TICK.as_secs();
        if ticks == 0 {
            return;
        }
        let seconds = (ticks * TICK.as_secs()) as f64;
        let rate = count.saturating_sub(self.counted) as f64 / seconds;
        for _ in 0..ticks.min(TICKS_MAX) {
            self.rates = Some(match self.rates {
                None => [rate; 3],
                Some(rates) => moved(rates, rate),
            });
        }
        self.ticked_at += Duration::from_secs(ticks * TICK.as_secs());
        (self.counted, self.last) = (count, rate);
    }
}

/// Returns the averages after one more tick.
fn moved(mut rates: [f64; 3], towards: f64) -> [f64; 3] {
    for (average, minutes) in rates.iter_mut().zip(MINUTES) {
        *average += (1.0 - (-TICK.as_secs_f64() / 60.0 / minutes).exp()) * (towards - *average);
    }
    rates
}

impl Record {
    /// Adds the metrics that HBase makes of a meter.
    pub fn meter(&mut self, name: &str, description: &'static str, rates: &MeterRates) -> &mut Self {
        let [one, five, fifteen] = rates.minutes;
        self.gauge(format!("{name}_count"), description, rates.count);
        for (part, rate) in [("mean", rates.mean), ("1min", one), ("5min", five), ("15min", fifteen)] {
            self.real(format!("{name}_{part}_rate"), description, rate);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::clock;

    use super::*;

    #[test]
    fn averages_move_towards_the_rate() {
        let start = clock::monotonic();
        let meter = Meter::new(start);
        assert_eq!(meter.rates(10, start), MeterRates { count: 10, ..MeterRates::default() });
        let rates = meter.rates(50, start + TICK);
        assert_eq!((rates.mean, rates.minutes), (10.0, [10.0; 3]), "the first tick sets them");
        assert_eq!(rates.last, 10.0);
        let rates = meter.rates(50, start + Duration::from_secs(65));
        // e^-1 of it remains after a minute without events.
        assert!((rates.minutes[0] - 10.0 / std::f64::consts::E).abs() < 1e-9, "{rates:?}");
        assert!(rates.minutes[0] < rates.minutes[1] && rates.minutes[1] < rates.minutes[2], "{rates:?}");
        let rates = meter.rates(50, start + Duration::from_secs(1 << 40));
        assert!(rates.minutes[2] < 1e-3, "{rates:?}");
    }

    #[test]
    fn a_counter_reset_is_not_a_rate() {
        let start = clock::monotonic();
        let meter = Meter::new(start);
        meter.rates(100, start + TICK);
        let rates = meter.rates(0, start + 2 * TICK);
        assert!(rates.minutes[0] < 20.0 && rates.minutes[0] > 0.0, "{rates:?}");
    }
}
