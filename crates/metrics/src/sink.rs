//! Sinks, which show the records of a [`Registry`](crate::Registry) to operators.
//!
//! | module | contents |
//! |---|---|
//! | [`file`] | FileSink and RollingFileSystemSink: lines in local files |
//! | [`ganglia`] | GangliaSink31: packets to gmond |
//! | [`graphite`] | GraphiteSink: lines to Carbon over TCP |
//! | [`jmx`] | the JSON of `/jmx` |
//! | [`json`] | JSON in the layout of Gson's pretty printer |
//! | [`number`] | numbers in Java's spelling |
//! | [`object_name`] | patterns of JMX names |
//! | [`periodic`] | sinks that write periodically, each on its own thread |
//! | [`prometheus`] | the text of `/prometheus` |
//! | [`properties`] | `hadoop-metrics2.properties` |
//! | [`slow_requests`] | the ledger as JSON, and as lines of the log |
//!
//! A sink reads records and never changes them. If two records of the same name contradict each
//! other, the first one decides.

pub mod file;
pub mod ganglia;
pub mod graphite;
pub mod jmx;
pub mod json;
pub mod number;
pub mod object_name;
pub mod periodic;
pub mod prometheus;
pub mod properties;
pub mod slow_requests;

/// The size of a piece of a document that is sent while it is written: it is in the processor's
/// cache until it is sent.
const PIECE_BYTES: usize = 64 << 10;

pub use self::jmx::JmxQuery;
pub use self::periodic::{PeriodicSinks, Sink};
pub use self::properties::{SinkSettings, SinkType};

#[cfg(test)]
mod tests;
