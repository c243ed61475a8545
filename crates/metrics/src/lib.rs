//! Counters, histograms and the records that monitoring reads. Independent of all other parts of
//! the server, and usable by all of them.
//!
//! | module | contents |
//! |---|---|
//! | [`activity`] | the server's background work |
//! | [`conditions`] | stolen processor time, page faults and evictions during a slow request |
//! | [`sparse`] | distributions of rare values |
//! | [`striped`] | a value per group of threads, so that cores do not contend to count |
//! | [`counter`] | counters since the start |
//! | [`histogram`] | distributions of times and sizes |
//! | [`meter`] | the rate of a counter over the last minutes |
//! | [`trace`] | traced calls, for a sink that creates spans |
//! | [`waits`] | the causes of a request's time |
//! | [`ledger`] | the recent slow requests |
//! | [`slow_log`] | HBase's log of slow and large responses |
//! | [`record`] | the metrics of a source, by HBase's names |
//! | [`registry`] | the sources of a process |
//! | [`sink`] | `/jmx`, `/prometheus`, and sinks that write periodically |
//!
//! A component counts on its own threads. A sink reads the sums on demand. The two share only
//! memory that the one writes and the other reads, so a scrape delays no request.
//!
//! With the feature `metrics-off` nothing is recorded, and every value is 0 ([`is_on`]). The
//! feature is only for measuring the cost of recording.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod activity;
pub mod conditions;
pub mod counter;
pub mod histogram;
pub mod ledger;
pub mod meter;
pub mod record;
pub mod registry;
pub mod sink;
pub mod slow_log;
pub mod sparse;
pub mod striped;
pub mod trace;
pub mod waits;

pub use self::counter::{Counter, Counters};
pub use self::histogram::{Histogram, HistogramSnapshot, Histograms, Interval};
pub use self::ledger::{Ledger, LedgerConfig, RequestDetail, SlowRequest};
pub use self::meter::{Meter, MeterRates};
pub use self::record::{Aggregate, Metric, NamedValue, Origin, Ranges, Record, Value};
pub use self::registry::{Registry, Source};
pub use self::slow_log::{SlowLog, SlowLogConfig};
pub use self::sparse::SparseHistogram;
pub use self::waits::{Cause, Waits};

/// Returns true if metrics are recorded: false with the feature `metrics-off`.
///
/// With that feature, the value is opaque to the compiler, so it inlines as in a build without the
/// feature. A build without the metrics code would be inlined differently in places that have no
/// metrics, which changes more than the metrics themselves. Each call costs three or four
/// instructions with the feature, and none without it.
#[inline(always)]
pub fn is_on() -> bool {
    !cfg!(feature = "metrics-off") || std::hint::black_box(false)
}
