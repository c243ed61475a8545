//! A client of HDFS 3: the operations that a store's data path and its log need.
//!
//! The crate is independent of HBase. It speaks Hadoop RPC to NameNodes and the data transfer
//! protocol to DataNodes, over blocking sockets with timeouts: reads and NameNode calls run on
//! threads that may block, and the log has a separate thread.
//!
//! # Guarantees
//! * **Bytes reported durable are on every DataNode of the block.** A log is sent to all DataNodes
//!   in parallel (fan-out), and a flush ends when each of them has acknowledged it. After the first
//!   failure of any DataNode the file is broken: every later call on it fails, and lease recovery
//!   closes it in the background. The writer never continues with fewer DataNodes, because recovery
//!   truncates a block to its shortest replica.
//! * **A namespace change is applied once.** A call that is retried, on another connection or on
//!   the other NameNode of a pair, carries the same client id and call id, so the NameNode's retry
//!   cache returns the first outcome.
//! * **Every byte that is read is verified against its checksum**, unless the caller verifies it by
//!   a checksum of its own, or the block was written without checksums (`dfs.checksum.type` NULL).
//!   After a mismatch the reader tries another replica.
//! * **Every wait for another machine ends.** Connects, calls, reads from DataNodes and
//!   acknowledgements have deadlines. A short-circuit read waits for the local disk, without one.
//!
//! # Not supported
//! Kerberos, delegation tokens, encryption on the wire or at rest, erasure coding, append,
//! truncate, and pipeline recovery while a block is written. A cluster that requires one of these
//! rejects the connection or the call, and the error names the reason.
//!
//! | module | contents |
//! |---|---|
//! | `block` | the data transfer protocol: packets, outputs, reads |
//! | [`bulk`] | [`BulkWriter`]: files of any length |
//! | [`client`] | [`HdfsClient`]: the file operations, and its background threads |
//! | [`error`] | [`HdfsError`], and the meaning of each exception class of Hadoop |
//! | `excluded` | DataNodes that new blocks avoid |
//! | `lease` | renewals, heartbeats, recovery of broken files |
//! | [`log_writer`] | [`LogWriter`]: a log written to all DataNodes in parallel |
//! | [`namenode`] | the typed calls of ClientProtocol |
//! | [`recovery`] | lease recovery |
//! | [`rpc`] | connections, call ids, retries, failover |
//! | [`settings`] | [`Settings`]: `core-site.xml` and `hdfs-site.xml` |
//! | `stall` | when a log leaves a DataNode that stalls |
//! | [`statistics`] | [`ReadStatistics`]: bytes read, and hedged reads |
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
pub mod log_writer;
pub mod namenode;
pub mod recovery;
pub mod rpc;
pub mod settings;
mod stall;
pub mod statistics;
mod wire;

#[cfg(test)]
mod fake;

pub use block::reader::{ChecksumResult, FileReader};
pub use block::short_circuit::ShortCircuitSettings;
pub use bulk::BulkWriter;
pub use client::HdfsClient;
pub use error::{HdfsError, RemoteException, Result};
pub use log_writer::{FlushId, FlushLevel, LogWriter};
pub use namenode::{NameNode, NewFile};
pub use settings::Settings;
pub use statistics::ReadStatistics;

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
