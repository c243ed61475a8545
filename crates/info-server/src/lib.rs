//! HBase's InfoServer: the pages of a process for operators and monitoring, over HTTP. It does not
//! depend on regions or RPC; its owner adds the pages for those.
//!
//! | module | contents |
//! |---|---|
//! | [`pages`] | the pages that every process has: `/jmx`, `/prometheus`, `/conf` and others |
//! | [`platform`] | the beans of the Java platform that tools expect, from `/proc` |
//! | [`request`] | [`Request`] |
//! | [`response`] | [`Response`] |
//! | [`routes`] | [`Routes`] and [`Page`] |
//! | [`server`] | [`InfoServer`]: the port, its thread and its limits |
//!
//! ```text
//! socket -> hyper (a task each) -> Request -> Routes -> Page::respond -> Response
//! ```
//!
//! # Threads
//! Everything runs on one thread, `info`. A slow page delays other pages, but no request of HBase's
//! clients. So a page must not block, neither on a lock that is held long nor on a disk or a peer.
//!
//! # Bounds
//! [`Limits`] has the limits of a connection, and [`server`] describes how they are enforced:
//! regardless of what a peer sends or does not read, it holds one of a limited number of
//! connections for a limited time, and a limited part of the memory.
//!
//! # Security
//! Everyone who reaches the port can read the pages, as in HBase without authentication of its UI.
//! Values of `/conf` that look like secrets are masked.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]

pub mod pages;
pub mod platform;
pub mod request;
pub mod response;
pub mod routes;
pub mod server;

#[cfg(test)]
mod tests;

pub use self::pages::{LogLevels, Readiness, StandardPages};
pub use self::request::{Method, Request};
pub use self::response::{Body, Response};
pub use self::routes::{Page, Routes};
pub use self::server::{InfoServer, InfoServerHandle, Limits, UNSENT_BYTES_MAX};
