//! A client of HDFS 3: what a store's data path and its log need, and nothing else.
//!
//! The crate knows no HBase. It speaks Hadoop RPC to NameNodes and the data transfer protocol to
//! DataNodes, over blocking sockets with timeouts: reads and NameNode calls happen on threads that
//! may wait, and the log has a thread of its own.
//!
//! # What it promises
//! * **Bytes told durable are on every DataNode of the block.** A log goes to all DataNodes at
//!   once, and a flush ends when each of them has acknowledged it. After the first failure of any
//!   of them the file is broken: every later call on it fails, and lease recovery ends it in the
//!   background. It never goes on with fewer DataNodes, because recovery cuts a block to its
//!   shortest replica.
//! * **A change of names happens once.** A call that is repeated, on another connection or on the
//!   other NameNode of a pair, carries the same client id and call id, so that the NameNode's retry
//!   cache gives the first outcome.
//! * **Every byte that is read was compared with its checksum.** A replica that differs is left for
//!   another one.
//! * **Every wait ends.** Connects, calls, reads and acknowledgements have deadlines.
//!
//! # What is not there
//! Kerberos, delegation tokens, encryption of the wire or at rest, erasure coding, append, truncate
//! and the repair of a pipeline while a block is written. A cluster that demands one of these
//! refuses the connection or the call, and the error says so.
//!
//! | module | contents |
//! |---|---|
//! | `block` | the data transfer protocol: packets, outputs, reads |
//! | [`bulk`] | [`BulkWriter`]: files of any length |
//! | [`client`] | [`HdfsClient`]: the file operations, and the threads behind them |
//! | [`error`] | [`HdfsError`], and what each exception class of Hadoop means |
//! | `excluded` | DataNodes that new blocks avoid |
//! | `lease` | renewals, heartbeats, recovery of files that broke |
//! | [`log`] | [`LogWriter`]: a log on all DataNodes at once |
//! | [`namenode`] | the typed calls of ClientProtocol |
//! | [`recovery`] | lease recovery |
//! | [`rpc`] | connections, call ids, retries, failover |
//! | [`settings`] | [`Settings`]: `core-site.xml` and `hdfs-site.xml` |
//! | `wire` | delimited messages on a socket |
//!
//! Protocol buffers are generated from `proto/`, with Hadoop's names and numbers, into [`hadoop`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]

mod block;
pub mod bulk;
pub mod client;
pub mod error;
mod excluded;
mod lease;
pub mod log;
pub mod namenode;
pub mod recovery;
pub mod rpc;
pub mod settings;
mod wire;

#[cfg(test)]
mod fake;

pub use block::reader::{FileReader, Verified};
pub use bulk::BulkWriter;
pub use client::HdfsClient;
pub use error::{HdfsError, RemoteException, Result};
pub use log::{Durability, FlushId, LogWriter};
pub use namenode::{NameNode, NewFile};
pub use settings::Settings;

/// Hadoop's messages, generated from `proto/`.
#[allow(missing_docs, clippy::all, reason = "generated")]
pub mod hadoop {
    /// Messages of Hadoop RPC.
    pub mod common {
        include!(concat!(env!("OUT_DIR"), "/hadoop.common.rs"));
    }
    /// Messages of HDFS.
    pub mod hdfs {
        include!(concat!(env!("OUT_DIR"), "/hadoop.hdfs.rs"));
    }
}
