//! `evenkeel pe`: HBase's PerformanceEvaluation in native code, for any HBase cluster.
//!
//! | module | contents |
//! |---|---|
//! | `cli` | the command line |
//! | [`command`] | [`Command`]: the operation for each row |
//! | [`error`] | errors and exit statuses |
//! | [`host`] | the use of this machine's cores |
//! | [`options`] | [`Options`]: HBase's options and further ones |
//! | [`data`] | row keys, values, distributions |
//! | [`table`] | the table of a test |
//! | [`workload`] | one client, row by row |
//! | [`pacer`] | the arrival times of an open loop |
//! | [`run`] | threads, phases, the reporter |
//! | [`stats`] | sums and histograms |
//! | [`server`] | the server's CPU, memory and collections |
//! | [`compare`] | alternating runs on two clusters |
//! | [`report`] | text, JSON, page, HdrHistogram files |
//!
//! # Guarantees
//!
//! - **Options mean the same** as in HBase's tool: rows, keys, cells, sizes, splits, and the
//!   selection of measured requests. [`options::usage`] and `docs/operating/pe.md` list the
//!   differences.
//! - **No coordinated omission.** At a fixed rate, a latency counts from the time at which the
//!   request was due, so one slow response shows in all requests that waited behind it. Requests
//!   that were never sent count with the time they waited.
//! - **Warm-up is separate**: a request belongs to the phase in which it started.
//! - **Bounded memory**: the clients' requests, a pair of histograms for each interval and thread,
//!   and the intervals.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod command;
pub mod compare;
pub mod data;
pub mod error;
pub mod host;
pub mod options;
pub mod pacer;
pub mod report;
pub mod run;
pub mod server;
pub mod stats;
pub mod table;
pub mod workload;

mod cli;

pub use cli::main;
pub use command::Command;
pub use compare::{Comparison, compare};
pub use error::PeError;
pub use options::Options;
pub use report::Report;
pub use run::{Target, run, run_together};
