//! `evenkeel pe`: load for any HBase cluster by the names of HBase's PerformanceEvaluation, and honest figures of it.
//!
//! | module | noun |
//! |---|---|
//! | [`command`] | [`Command`]: what a client does for a row |
//! | [`options`] | [`Options`]: HBase's options, and those that it lacks |
//! | [`data`] | row keys, values, distributions |
//! | [`table`] | the table of a test |
//! | [`workload`] | one client, row by row |
//! | [`pacer`] | the times of an open loop |
//! | [`run`] | threads, phases, the reporter |
//! | [`stats`] | sums and histograms |
//! | [`server`] | the server's CPU, memory and collections |
//! | [`compare`] | two clusters in turns |
//! | [`report`] | text, JSON, page, HdrHistogram files |
//!
//! # What it promises
//!
//! - **The same options do the same** as HBase's tool: rows, keys, cells, sizes, splits, which requests are measured.
//!   Where they differ, [`options::usage`] and `docs/operating/pe.md` say so.
//! - **No request is left out.** At a fixed rate a latency counts from when the request was due, so that one slow answer
//!   shows in all requests that waited behind it; requests that never went out are counted with the time they waited.
//! - **Warm-up is apart**: a request belongs to the phase it began in.
//! - **Bounded**: memory is that of the clients' requests, one histogram pair an interval and thread, and the intervals.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod command;
pub mod compare;
pub mod data;
pub mod failure;
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
pub use failure::Failure;
pub use options::Options;
pub use report::Report;
pub use run::{Target, run, run_together};
