//! Clients that make calls without end, without reading, or while a disk stalls. `attacks` is a
//! program of its own, since it measures other clients' latency.

mod admin_calls;
#[path = "../common/mod.rs"]
mod common;
mod requests;
mod store_files;
mod unread_replies;
