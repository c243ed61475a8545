//! Counters, histograms and the records that monitoring reads. Knows no room of HBase; every room
//! may use it.
//!
//! | module | contents |
//! |---|---|
//! | [`activity`] | what the server does besides requests |
//! | [`conditions`] | processors taken away, page faults and evictions around a slow request |
//! | [`sparse`] | distributions of what is rare |
//! | [`striped`] | a value for each of some threads: no core waits for another to count |
//! | [`counter`] | counts since the start |
//! | [`histogram`] | distributions of times and sizes |
//! | [`meter`] | the rate of a count over the last minutes |
//! | [`waits`] | what a request's time went to |
//! | [`ledger`] | the slow requests of the last while |
//! | [`slow_log`] | HBase's log of slow and large responses |
//! | [`record`] | what a source tells, by HBase's names |
//! | [`registry`] | the sources of a process |
//! | [`sink`] | records as `/jmx` and `/prometheus` show them, and sinks that write at a period |
//!
//! A room counts on its own threads. A sink reads the sums when an operator asks. The two share
//! nothing but memory that the one writes and the other reads, so a scrape holds up no request.
//!
//! With the feature `metrics-off` nothing is recorded, and every figure is 0 ([`is_on`]). It is for
//! measuring what recording costs, and for nothing else.

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
pub mod waits;

pub use self::counter::{Counter, Counters};
pub use self::histogram::{Histogram, HistogramSnapshot, Histograms, Interval};
pub use self::ledger::{Ledger, LedgerConfig, RequestDetail, SlowRequest};
pub use self::meter::{Meter, MeterRates};
pub use self::record::{Metric, Origin, Ranges, Record, Value};
pub use self::registry::{Registry, Source};
pub use self::slow_log::{SlowLog, SlowLogConfig};
pub use self::sparse::SparseHistogram;
pub use self::waits::{Cause, Waits};

/// Whether anything is recorded: false with the feature `metrics-off`.
///
/// The compiler does not know the answer with that feature. So it inlines as it does without it: a
/// build in which the code of metrics is absent is inlined differently in places that have no
/// metrics, and that changes more than the metrics themselves. Each question costs three or four
/// instructions with the feature, and none without it.
#[inline(always)]
pub fn is_on() -> bool {
    !cfg!(feature = "metrics-off") || std::hint::black_box(false)
}
