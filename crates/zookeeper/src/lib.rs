//! A read-only endpoint of ZooKeeper's client protocol, so that a stock HBase client with default
//! settings finds a standalone Evenkeel: it asks `hbase.zookeeper.quorum` for the cluster id, the
//! master and the server of hbase:meta.
//!
//! It is no ZooKeeper. There is one server, a tree in memory that only this process writes
//! ([`ZnodeTree`]), sessions that own nothing but their watches, and `NotReadOnly` (-119) for
//! everything that would write. It says it is read-write all the same (in the connect reply and to
//! `isro`): clients that hear "read-only" announce `ConnectedReadOnly` rather than `SyncConnected`,
//! for which HBase waits. `create` of a node that exists answers `NodeExists`, which is what the
//! clients that make sure of `/hbase` at start expect.
//!
//! ```text
//! serve -> Connection (a task each) -> ops::answer -> ZnodeTree (one lock) <- set, remove (Znodes)
//!              |                                          |
//!              +-- Sessions (one lock)                    +-- queues events for each connection
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `server.rs` | [`serve`], [`ZkConfig`]: accepting, limits, expiry of sessions |
//! | `quota.rs` | what a connection keeps of the endpoint's part of the memory |
//! | `connection.rs` | one connection: handshake, frames, replies, events |
//! | `ops.rs` | what each request answers |
//! | `protocol.rs` | operation and error numbers, records, decoding of requests |
//! | `jute.rs` | primitive types of the wire |
//! | `budgets.rs` | [`ConnectionBudgets`]: where bytes of connections are counted |
//! | `session.rs` | session ids, passwords, re-attachment |
//! | `tree.rs`, `watch.rs` | [`ZnodeTree`]: nodes, versions; watches and their events |
//! | `four_letter_words.rs` | the commands `ruok`, `stat` and others |
//! | `znodes.rs` | [`znodes::Znodes`]: HBase's paths and payloads |
//!
//! # Invariants
//! - Transaction ids only grow, also over a restart: they start at the wall clock. So a client that
//!   comes back with watches (`setWatches`) hears of every node that has changed since.
//! - An event reaches a client before any reply that shows its cause, and after the reply that set
//!   its watch. Both hold because reading the tree, taking the events due and setting a watch are
//!   one step under the tree's lock.
//! - A session of an earlier run of this process is restored by its password, so a restart expires
//!   no session.
//!
//! # Bounds
//! Connections in all and per address, bytes per packet (a length is checked before a byte of it is
//! kept), bytes of all packets that are not whole and of replies not taken (with those of the RPC
//! ports), time for the handshake, for a packet that has begun and for each write, sessions, and
//! bytes of the watches that a connection holds and of the events that it has not taken: per
//! connection, and of all connections together (`quota.rs`). Past a bound the connection is closed,
//! or the watch refused; the client reconnects and sets its watches again. All of it is given back
//! with the connection; a session, which keeps its number alone, with its time-out. Two locks,
//! never held together.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::disallowed_methods,
        clippy::print_stdout,
        clippy::print_stderr
    )
)]

mod budgets;
mod connection;
mod four_letter_words;
mod jute;
mod ops;
mod protocol;
mod quota;
mod server;
mod session;
mod tree;
mod watch;
pub mod znodes;

#[cfg(test)]
mod tests;

pub use budgets::ConnectionBudgets;
pub use protocol::Stat;
pub use server::{ZkConfig, serve};
pub use tree::{InvalidPath, ZnodeTree};
