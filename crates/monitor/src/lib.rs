//! Terminal views of a server: `evenkeel status`, `evenkeel slow` and `evenkeel top`.
//!
//! All of them only read pages of a RegionServer's info port: `/ready`, `/jmx` and `/slow.json`. So
//! they work from any machine that reaches the port, and cost the server as much as a scrape.
//!
//! | module | contents |
//! |---|---|
//! | [`address`] | the server's address |
//! | [`http`] | fetches pages, within limits |
//! | [`beans`] | the numbers of `/jmx` by bean and name |
//! | [`snapshot`] | the state of the server at one moment |
//! | [`rates`] | the rates between two snapshots |
//! | [`text`] | numbers in readable form |
//! | [`status`] | `evenkeel status` |
//! | [`slow`] | `evenkeel slow` |
//! | [`top`] | `evenkeel top` |
//!
//! # Rates
//! Every rate is the difference of two counters that only grow, divided by the time between the two
//! snapshots. A counter that has become smaller belongs to a server that was restarted, or to a
//! region that was reopened; its rate is counted from 0. Percentiles are computed by the server,
//! for its last complete interval of 10 s.

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

/// Why a command failed, for standard error.
pub type ErrorText = String;
