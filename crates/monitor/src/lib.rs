//! A server in a terminal: `evenkeel status`, `evenkeel slow` and `evenkeel top`.
//!
//! All of them read the pages of a RegionServer's info port, `/ready`, `/jmx` and `/slow.json`, and
//! know nothing else of the server. So they work from any machine that reaches the port, and cost
//! the server what a scrape costs.
//!
//! | module | contents |
//! |---|---|
//! | [`address`] | where the server is |
//! | [`http`] | a page fetched, within limits |
//! | [`beans`] | the numbers of `/jmx` by bean and name |
//! | [`snapshot`] | what the server said at one moment |
//! | [`rates`] | what happened between two snapshots |
//! | [`text`] | numbers as people read them |
//! | [`status`] | `evenkeel status` |
//! | [`slow`] | `evenkeel slow` |
//! | [`top`] | `evenkeel top` |
//!
//! # Rates
//! Every rate is the difference of two counters that only grow, by the time between the two
//! snapshots. A counter that is smaller than before belongs to a server that was started again, or
//! to a region that was opened again; its rate is counted from 0. Percentiles are the server's own,
//! of its last whole interval of 10 s.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod address;
pub mod beans;
pub mod http;
pub mod rates;
pub mod slow;
pub mod snapshot;
pub mod status;
pub mod text;
pub mod top;

#[cfg(test)]
mod testing;

/// Why a command could not do its task, for standard error.
pub type Failure = String;
