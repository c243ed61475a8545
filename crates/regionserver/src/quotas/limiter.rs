//! [`Limiter`]: the limits of one user, table, namespace or RegionServer, up to one of each
//! [kind](pb::ThrottleType) (HBase's `TimeBasedLimiter`).

use evenkeel_common::quota;
use evenkeel_common::{ErrorKind, HBaseError};
use evenkeel_protocol::pb;
use pb::ThrottleType as Kind;

use super::rate_limiter::{RateLimiter, Refill};

/// The number of kinds.
const KINDS: usize = 13;

/// What a request takes from limits. Negative numbers are given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Requests that write.
    pub writes: i64,
    /// Requests that read.
    pub reads: i64,
    /// Bytes written.
    pub write_bytes: i64,
    /// Bytes read.
    pub read_bytes: i64,
    /// Capacity units written.
    pub write_units: i64,
    /// Capacity units read.
    pub read_units: i64,
    /// Whether any of it reads before it writes.
    pub is_atomic: bool,
    /// Milliseconds of a handler.
    pub handler_ms: i64,
}

impl Cost {
    /// Returns the cost that gives this one back.
    pub fn negated(&self) -> Self {
        Self {
            writes: -self.writes,
            reads: -self.reads,
            write_bytes: -self.write_bytes,
            read_bytes: -self.read_bytes,
            write_units: -self.write_units,
            read_units: -self.read_units,
            is_atomic: self.is_atomic,
            handler_ms: -self.handler_ms,
        }
    }
}

/// A limit that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The limit's kind.
    pub kind: Kind,
    /// How many milliseconds the client must wait.
    pub wait_ms: i64,
}

impl Exceeded {
    /// Returns the name of the limit's kind in HBase's `RpcThrottlingException.Type`.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::RequestNumber => "NumRequestsExceeded",
            Kind::RequestSize => "RequestSizeExceeded",
            Kind::ReadNumber => "NumReadRequestsExceeded",
            Kind::WriteNumber => "NumWriteRequestsExceeded",
            Kind::WriteSize => "WriteSizeExceeded",
            Kind::ReadSize => "ReadSizeExceeded",
            Kind::RequestCapacityUnit => "RequestCapacityUnitExceeded",
            Kind::ReadCapacityUnit => "ReadCapacityUnitExceeded",
            Kind::WriteCapacityUnit => "WriteCapacityUnitExceeded",
            Kind::AtomicRequestNumber => "AtomicRequestNumberExceeded",
            Kind::AtomicReadSize => "AtomicReadSizeExceeded",
            Kind::AtomicWriteSize => "AtomicWriteSizeExceeded",
            Kind::RequestHandlerUsageMs => "RequestHandlerUsageTimeExceeded",
        }
    }

    fn text(&self) -> &'static str {
        match self.kind {
            Kind::RequestNumber => "number of requests exceeded",
            Kind::RequestSize => "request size limit exceeded",
            Kind::ReadNumber => "number of read requests exceeded",
            Kind::WriteNumber => "number of write requests exceeded",
            Kind::WriteSize => "write size limit exceeded",
            Kind::ReadSize => "read size limit exceeded",
            Kind::RequestCapacityUnit => "request capacity unit exceeded",
            Kind::ReadCapacityUnit => "read capacity unit exceeded",
            Kind::WriteCapacityUnit => "write capacity unit exceeded",
            Kind::AtomicRequestNumber => "atomic request number exceeded",
            Kind::AtomicReadSize => "atomic read size exceeded",
            Kind::AtomicWriteSize => "atomic write size exceeded",
            Kind::RequestHandlerUsageMs => "request handler usage time exceeded",
        }
    }

    /// Returns the exception for the client, which reads the kind and the wait from its message.
    pub fn error(&self) -> HBaseError {
        let message = format!("{} - wait {}", self.text(), wait_text(self.wait_ms));
        HBaseError::new(ErrorKind::RpcThrottling, message)
    }
}

/// Formats a wait as clients parse it: `1hr, 2mins, 3sec, 4ms`.
fn wait_text(wait_ms: i64) -> String {
    let (hours, minutes) = (wait_ms / 3_600_000, wait_ms / 60_000 % 60);
    let (seconds, ms) = (wait_ms / 1000 % 60, wait_ms % 1000);
    let plural = |count: i64| if count > 1 { "s" } else { "" };
    let mut text = String::new();
    if hours != 0 {
        text.push_str(&format!("{hours}hr{}, ", plural(hours)));
    }
    if minutes != 0 {
        text.push_str(&format!("{minutes}min{}, ", plural(minutes)));
    }
    if seconds != 0 {
        text.push_str(&format!("{seconds}sec, "));
    }
    text.push_str(&format!("{ms}ms"));
    text
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Limiter {
    rates: [Option<RateLimiter>; KINDS],
}

fn index(kind: Kind) -> usize {
    kind as usize - 1
}

impl Limiter {
    /// Creates the limiter of a throttle; `None` if no limit is set. Limits of more than one
    /// server are multiplied by `share`, the part of this server; as in HBase, those of atomic
    /// requests and of the time of handlers are not. `before` is the limiter that this one
    /// replaces.
    pub fn new(throttle: &pb::Throttle, share: f64, refill: Refill, before: Option<&Self>) -> Option<Self> {
        let mut limiter = Self::default();
        for (kind, limit) in quota::throttles(throttle) {
            let Some(unit_ms) = quota::unit_ms(limit.time_unit()) else { continue };
            let units = i64::try_from(limit.soft_limit()).unwrap_or(i64::MAX);
            let units = match limit.scope() {
                pb::QuotaScope::Cluster if is_shared(kind) => share_of(units, share),
                _ => units,
            };
            let rate = RateLimiter::new(units, unit_ms, refill);
            let rate = match before.and_then(|before| before.rate(kind)) {
                Some(before) => rate.succeeding(before),
                None => rate,
            };
            if let Some(place) = limiter.rates.get_mut(index(kind)) {
                *place = Some(rate);
            }
        }
        limiter.rates.iter().any(Option::is_some).then_some(limiter)
    }

    /// Returns true if both have the same limits.
    pub fn is_alike(&self, other: &Self) -> bool {
        let is_same = |pair: (&Option<RateLimiter>, &Option<RateLimiter>)| match pair {
            (Some(a), Some(b)) => a.is_alike(b),
            (None, None) => true,
            _ => false,
        };
        self.rates.iter().zip(&other.rates).all(is_same)
    }

    fn rate(&self, kind: Kind) -> Option<&RateLimiter> {
        self.rates.get(index(kind))?.as_ref()
    }

    /// Returns the limit of a kind; the largest number if there is none.
    fn limit(&self, kind: Kind) -> i64 {
        self.rate(kind).map_or(i64::MAX, RateLimiter::limit)
    }

    /// Returns true if the time of handlers is limited.
    pub fn limits_handler_time(&self) -> bool {
        self.rate(Kind::RequestHandlerUsageMs).is_some()
    }

    /// Returns the bytes that may be read now.
    pub fn read_bytes_available(&self) -> i64 {
        self.rate(Kind::ReadSize).map_or(i64::MAX, RateLimiter::available)
    }

    /// Returns the limit on the bytes of reads.
    pub fn read_bytes_limit(&self) -> i64 {
        self.limit(Kind::ReadSize).min(self.limit(Kind::RequestSize))
    }

    /// Checks that the cost of a request is available. A request that costs more than a whole
    /// limit passes when the limit is full. In HBase this holds for requests and bytes of one kind
    /// only: with a limit below the capacity units of one block, for example, it refuses all
    /// reads.
    ///
    /// # Errors
    /// The first limit that is used up, in HBase's order.
    pub fn check(&self, cost: &Cost, now_ms: i64) -> Result<(), Exceeded> {
        let cost = self.capped(cost);
        let wait_ms = |rate: &RateLimiter, amount: i64| rate.wait_ms(amount.min(rate.limit()), now_ms);
        let check = |kind, amount| match self.rate(kind).map_or(0, |rate| wait_ms(rate, amount)) {
            ..=0 => Ok(()),
            wait_ms => Err(Exceeded { kind, wait_ms }),
        };
        let requests = cost.writes.saturating_add(cost.reads);
        check(Kind::RequestNumber, requests)?;
        check(Kind::RequestSize, cost.write_bytes.saturating_add(cost.read_bytes))?;
        check(Kind::RequestCapacityUnit, cost.write_units.saturating_add(cost.read_units))?;
        if cost.is_atomic {
            check(Kind::AtomicRequestNumber, requests)?;
        }
        if cost.write_bytes > 0 {
            check(Kind::WriteNumber, cost.writes)?;
            check(Kind::WriteSize, cost.write_bytes)?;
            check(Kind::WriteCapacityUnit, cost.write_units)?;
            if cost.is_atomic {
                // HBase's check: some bytes must be left, not those of the estimate.
                check(Kind::AtomicWriteSize, cost.writes)?;
            }
        }
        if cost.read_bytes > 0 {
            check(Kind::ReadNumber, cost.reads)?;
            check(Kind::ReadSize, cost.read_bytes)?;
            check(Kind::ReadCapacityUnit, cost.read_units)?;
            if cost.is_atomic {
                check(Kind::AtomicReadSize, requests)?;
            }
        }
        check(Kind::RequestHandlerUsageMs, cost.handler_ms)
    }

    /// Returns the cost, but requests and bytes at most those that HBase asks for.
    fn capped(&self, cost: &Cost) -> Cost {
        let of_kinds = self.limit(Kind::ReadNumber).saturating_add(self.limit(Kind::WriteNumber));
        let requests = self.limit(Kind::RequestNumber).min(of_kinds);
        let write_bytes = self.limit(Kind::WriteSize).min(self.limit(Kind::RequestSize));
        Cost {
            writes: cost.writes.min(requests).min(self.limit(Kind::WriteNumber)),
            reads: cost.reads.min(requests).min(self.limit(Kind::ReadNumber)),
            write_bytes: cost.write_bytes.min(write_bytes),
            read_bytes: cost.read_bytes.min(self.read_bytes_limit()),
            ..*cost
        }
    }

    /// Adds the units of the time since the last refill to all limits.
    pub fn refill(&self, now_ms: i64) {
        self.rates.iter().flatten().for_each(|rate| rate.refill(now_ms));
    }

    fn consume(&self, kind: Kind, amount: i64) {
        if amount != 0
            && let Some(rate) = self.rate(kind)
        {
            rate.consume(amount);
        }
    }

    /// Consumes the estimated cost of a request that begins.
    pub fn grab(&self, cost: &Cost) {
        let requests = cost.writes.saturating_add(cost.reads);
        self.consume(Kind::RequestNumber, requests);
        if cost.is_atomic {
            self.consume(Kind::AtomicRequestNumber, requests);
        }
        if cost.write_bytes > 0 {
            self.consume(Kind::WriteNumber, cost.writes);
        }
        if cost.read_bytes > 0 {
            self.consume(Kind::ReadNumber, cost.reads);
        }
        self.adjust(cost);
    }

    /// Consumes bytes, units and time, but no requests. Negative numbers are given back.
    pub fn adjust(&self, cost: &Cost) {
        self.consume(Kind::RequestSize, cost.write_bytes.saturating_add(cost.read_bytes));
        self.consume(Kind::WriteSize, cost.write_bytes);
        self.consume(Kind::ReadSize, cost.read_bytes);
        self.consume(Kind::RequestCapacityUnit, cost.write_units.saturating_add(cost.read_units));
        self.consume(Kind::WriteCapacityUnit, cost.write_units);
        self.consume(Kind::ReadCapacityUnit, cost.read_units);
        if cost.is_atomic {
            self.consume(Kind::AtomicWriteSize, cost.write_bytes);
            self.consume(Kind::AtomicReadSize, cost.read_bytes);
        }
        self.consume(Kind::RequestHandlerUsageMs, cost.handler_ms);
    }

    /// Gives back the estimated cost of a request that is not made.
    pub fn give_back(&self, cost: &Cost) {
        let requests = cost.writes.saturating_add(cost.reads);
        self.consume(Kind::RequestNumber, -requests);
        if cost.is_atomic {
            self.consume(Kind::AtomicRequestNumber, -requests);
        }
        if cost.write_bytes > 0 {
            self.consume(Kind::WriteNumber, -cost.writes);
        }
        if cost.read_bytes > 0 {
            self.consume(Kind::ReadNumber, -cost.reads);
        }
        self.adjust(&cost.negated());
    }
}

/// Returns true if the limits of a kind are divided among servers.
fn is_shared(kind: Kind) -> bool {
    let own =
        [Kind::AtomicRequestNumber, Kind::AtomicReadSize, Kind::AtomicWriteSize, Kind::RequestHandlerUsageMs];
    !own.contains(&kind)
}

/// Returns this server's share of a limit of all servers, at least 1.
fn share_of(limit: i64, share: f64) -> i64 {
    evenkeel_common::length::integer_part(limit as f64 * share).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(limit: u64, unit: pb::TimeUnit) -> Option<pb::TimedQuota> {
        Some(pb::TimedQuota { time_unit: unit.into(), soft_limit: Some(limit), ..Default::default() })
    }

    fn per_second(set: impl FnOnce(&mut pb::Throttle)) -> Limiter {
        let mut throttle = pb::Throttle::default();
        set(&mut throttle);
        Limiter::new(&throttle, 1.0, Refill::Average, None).expect("it has a limit")
    }

    const SECOND: pb::TimeUnit = pb::TimeUnit::Seconds;

    fn put() -> Cost {
        Cost { writes: 1, write_bytes: 100, write_units: 1, ..Cost::default() }
    }

    fn get() -> Cost {
        Cost { reads: 1, read_bytes: 65_536, read_units: 64, ..Cost::default() }
    }

    #[test]
    fn exceptions_have_the_text_that_clients_parse() {
        let text = |kind, wait_ms| Exceeded { kind, wait_ms }.error().message().to_owned();
        assert_eq!(text(Kind::RequestNumber, 30), "number of requests exceeded - wait 30ms");
        assert_eq!(text(Kind::ReadSize, 1_000), "read size limit exceeded - wait 1sec, 0ms");
        let long = 3_600_000 + 60_000 + 2_003;
        assert_eq!(
            text(Kind::WriteNumber, long),
            "number of write requests exceeded - wait 1hr, 1min, 2sec, 3ms"
        );
        assert_eq!(
            text(Kind::AtomicReadSize, 2 * long),
            "atomic read size exceeded - wait 2hrs, 2mins, 4sec, 6ms"
        );
        let error = Exceeded { kind: Kind::RequestSize, wait_ms: 1 }.error();
        assert_eq!((error.kind(), error.is_do_not_retry()), (ErrorKind::RpcThrottling, false));
    }

    #[test]
    fn limits_of_requests_count_reads_and_writes() {
        let limiter = per_second(|throttle| throttle.req_num = timed(2, SECOND));
        for cost in [put(), get()] {
            assert_eq!(limiter.check(&cost, 0), Ok(()));
            limiter.grab(&cost);
        }
        let exceeded = Exceeded { kind: Kind::RequestNumber, wait_ms: 500 };
        assert_eq!(limiter.check(&get(), 0), Err(exceeded));
        assert_eq!(limiter.check(&put(), 500), Ok(()));
    }

    #[test]
    fn limits_of_reads_and_of_writes_are_independent() {
        let limiter = per_second(|throttle| {
            throttle.write_num = timed(1, SECOND);
            throttle.read_size = timed(65_536, SECOND);
        });
        assert_eq!([limiter.check(&put(), 0), limiter.check(&get(), 0)], [Ok(()), Ok(())]);
        limiter.grab(&put());
        assert_eq!(limiter.check(&put(), 0).map_err(|e| e.kind), Err(Kind::WriteNumber));
        assert_eq!(limiter.check(&get(), 0), Ok(()));
        limiter.grab(&get());
        assert_eq!(limiter.check(&get(), 0).map_err(|e| e.kind), Err(Kind::ReadSize));
    }

    #[test]
    fn a_request_above_the_whole_limit_passes_once_and_leaves_a_deficit() {
        let limiter = per_second(|throttle| {
            throttle.read_capacity_unit = timed(8, SECOND);
            throttle.write_num = timed(10, SECOND);
        });
        let batch = Cost { writes: 1000, write_bytes: 100_000, ..Cost::default() };
        for cost in [get(), batch] {
            assert_eq!(limiter.check(&cost, 0), Ok(()));
            limiter.grab(&cost);
        }
        let exceeded = Exceeded { kind: Kind::ReadCapacityUnit, wait_ms: (64 - 8 + 8) * 125 };
        assert_eq!(limiter.check(&get(), 0), Err(exceeded));
        let exceeded = Exceeded { kind: Kind::WriteNumber, wait_ms: 991 * 100 };
        assert_eq!(limiter.check(&put(), 0), Err(exceeded));
    }

    #[test]
    fn atomic_limits_apply_to_requests_that_read_before_they_write() {
        let limiter = per_second(|throttle| {
            throttle.atomic_req_num = timed(2, SECOND);
            throttle.atomic_write_size = timed(50, SECOND);
        });
        let increment = Cost { is_atomic: true, reads: 1, read_bytes: 65_536, ..put() };
        assert_eq!(limiter.check(&increment, 0), Ok(()));
        limiter.grab(&increment);
        assert_eq!(limiter.check(&put(), 0), Ok(()));
        assert_eq!(limiter.check(&increment, 0).map_err(|e| e.kind), Err(Kind::AtomicRequestNumber));
        assert_eq!(limiter.check(&increment, 1000).map_err(|e| e.kind), Err(Kind::AtomicWriteSize));
    }

    #[test]
    fn what_a_request_did_not_use_is_given_back() {
        let limiter = per_second(|throttle| {
            throttle.req_num = timed(1, SECOND);
            throttle.req_size = timed(100_000, SECOND);
            throttle.req_capacity_unit = timed(100, SECOND);
        });
        limiter.grab(&get());
        limiter.adjust(&Cost { read_bytes: 10 - 65_536, read_units: 1 - 64, ..Cost::default() });
        let available = |kind| limiter.rate(kind).expect("set").available();
        assert_eq!((available(Kind::RequestSize), available(Kind::RequestCapacityUnit)), (99_990, 99));
        assert_eq!(available(Kind::RequestNumber), 0);
        limiter.give_back(&get());
        limiter.grab(&get());
        limiter.give_back(&get());
        assert_eq!(available(Kind::RequestNumber), 1);
        assert_eq!((available(Kind::RequestSize), available(Kind::RequestCapacityUnit)), (100_000, 100));
    }

    #[test]
    fn a_limit_of_all_servers_is_shared() {
        let mut limit = timed(10, SECOND);
        limit.iter_mut().for_each(|limit| limit.scope = Some(pb::QuotaScope::Cluster.into()));
        let throttle = pb::Throttle {
            req_num: limit,
            atomic_req_num: limit,
            read_num: timed(10, SECOND),
            ..Default::default()
        };
        let of = |share| {
            let limiter = Limiter::new(&throttle, share, Refill::Average, None).expect("it has limits");
            [Kind::RequestNumber, Kind::ReadNumber, Kind::AtomicRequestNumber].map(|kind| limiter.limit(kind))
        };
        assert_eq!([of(1.0), of(0.25), of(0.0)], [[10, 10, 10], [2, 10, 10], [1, 10, 10]]);
    }

    /// HBase asks each limit for no more writes than may be made by the limit of writes.
    #[test]
    fn a_batch_is_asked_for_no_more_than_its_closest_limit() {
        let limiter = per_second(|throttle| {
            throttle.req_num = timed(100, SECOND);
            throttle.write_num = timed(5, SECOND);
        });
        let read = Cost { reads: 90, ..get() };
        assert_eq!(limiter.check(&read, 0), Ok(()));
        limiter.grab(&read);
        let batch = Cost { writes: 50, write_bytes: 5000, ..put() };
        assert_eq!(limiter.check(&batch, 0), Ok(()));
        limiter.grab(&batch);
        assert_eq!(limiter.check(&put(), 0).map_err(|e| e.kind), Err(Kind::RequestNumber));
    }

    #[test]
    fn limiters_without_limits_do_not_exist() {
        let odd = pb::Throttle { req_num: timed(1, pb::TimeUnit::Nanoseconds), ..Default::default() };
        for throttle in [pb::Throttle::default(), odd] {
            assert!(Limiter::new(&throttle, 1.0, Refill::Average, None).is_none());
        }
        let one = per_second(|throttle| throttle.req_num = timed(1, SECOND));
        let other = per_second(|throttle| throttle.read_num = timed(1, SECOND));
        assert!(!one.is_alike(&other) && one.is_alike(&one));
    }
}
