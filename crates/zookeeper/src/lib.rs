//! A read-only endpoint of ZooKeeper's client protocol, so that a stock HBase client with default
//! settings finds a standalone Evenkeel: the client reads the cluster id, the master and the server
//! of hbase:meta from `hbase.zookeeper.quorum`.
//!
//! It is not a ZooKeeper. There is one server, a tree in memory that only this process writes
//! ([`ZnodeTree`]), sessions that own nothing but their watches, and `NotReadOnly` (-119) for every
//! write. It reports itself as read-write all the same (in the connect reply and to `isro`): a
//! client of a read-only server announces `ConnectedReadOnly` rather than `SyncConnected`, for
//! which HBase waits. `create` of an existing node returns `NodeExists`, which clients that ensure
//! `/hbase` at start expect.
//!
//! ```text
//! serve -> Connection (a task each) -> requests::answer -> ZnodeTree (one lock) <- Znodes
//!              |                                               |
//!              +-- Sessions (one lock)                         +-- queues events per connection
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `server` | [`serve`], [`ZkConfig`]: accepts connections, limits, expiry of sessions |
//! | `connection_charge` | a connection's share of the endpoint's memory |
//! | `connection` | one connection: handshake, frames, replies, events |
//! | `requests` | the reply to each request |
//! | `protocol` | operation and error numbers, records, decoding of requests |
//! | `jute` | primitive types of the wire |
//! | `budgets` | [`ConnectionBudgets`]: the budgets to which bytes of connections are charged |
//! | `session` | session ids, passwords, re-attachment |
//! | `tree`, `watch` | [`ZnodeTree`]: nodes, versions; watches and their events |
//! | `four_letter_words` | the commands `ruok`, `stat` and others |
//! | `znodes` | [`znodes::Znodes`]: HBase's paths and payloads |
//!
//! # Invariants
//! - Transaction ids only grow, also across a restart: they start at the wall clock. So a client
//!   that reconnects with watches (`setWatches`) gets an event for every node that has changed
//!   since.
//! - An event reaches a client before any reply that shows its cause, and after the reply that set
//!   its watch. Both hold because reading the tree, taking the events due and setting a watch are
//!   one step under the tree's lock.
//! - A session of an earlier run of this process is restored by its password, so a restart expires
//!   no session.
//!
//! # Bounds
//! Connections in total and per address; bytes per packet (a length is checked before any of its
//! bytes are buffered); bytes of all incomplete packets and of unread replies (together with those
//! of the RPC ports); time for the handshake, for a packet that has begun and for each write;
//! sessions; bytes of the watches that a connection holds and of its unread events, per connection
//! and in total (`connection_charge`). Past a bound the connection is closed, or the watch
//! rejected; the client reconnects and sets its watches again. Everything is released with the
//! connection, except a session, which consists of its number alone and is released at its timeout.
//! There are two locks, which are never held together.

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
mod connection_charge;
mod four_letter_words;
mod jute;
mod protocol;
mod requests;
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
