//! A native client of HBase: its RPC, its location rules and its retries, on tokio.
//!
//! ```no_run
//! # async fn example() -> evenkeel_client::Result<()> {
//! use evenkeel_client::{ClientConfig, Connection, Get, Put};
//! let connection = Connection::connect(ClientConfig::new(["localhost:16000"])).await?;
//! let table = connection.table("t".parse()?);
//! table.put(Put::new("row").column("f", "q", "value")).await?;
//! let result = table.get(Get::new("row")).await?;
//! assert_eq!(result.value("f", "q"), Some(&b"value"[..]));
//! # Ok(()) }
//! ```
//!
//! | module | noun |
//! |---|---|
//! | [`connection`] | [`Connection`]: one per cluster and process, cheap to clone |
//! | [`table`] | [`Table`]: get, put, delete, increment, append, check and mutate, batch, scan |
//! | [`scan`] | [`Scanner`]: rows of a scan, batch by batch |
//! | [`admin`] | [`Admin`]: tables, namespaces, regions, servers, snapshots, the cluster's state |
//! | [`filter`] | [`Filter`] and [`Comparator`], and the filter language |
//! | [`mutator`] | [`BufferedMutator`]: many writes with few calls |
//! | [`operation`] | [`Get`], [`Scan`] and the mutations |
//! | [`result`] | [`RowResult`]: the cells of one row |
//! | [`config`] | [`ClientConfig`]: addresses, timeouts, retries |
//! | [`error`] | [`Error`], which says whether to try again |
//! | `rpc` | one multiplexed socket per server and service |
//! | `registry` | where a client begins: servers or ZooKeeper |
//! | `location` | which server holds a row, cached, from hbase:meta |
//! | `replica` | reads that any replica of a region may answer |
//! | `retry` | how often and how soon to try again |
//!
//! # What it promises
//!
//! - **Every wait ends.** A call has `rpc_timeout`, with connecting and waiting for another who connects; an operation with
//!   all its lookups and retries has `operation_timeout`. Who waited for another's connect or lookup shares its failure.
//! - **Retries are HBase's** (`hbase.client.pause`, `hbase.client.retries.number`): an exception class decides whether the
//!   cached location goes, whether to wait, and whether to give up. Increments and appends carry a nonce that stays the
//!   same over retries, so a server applies them once.
//! - **Bytes from a server are checked**: no length is believed before the bytes are there, and a frame has a limit.
//! - An operation whose future is dropped may or may not have been applied; the connection stays usable.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod batch;
mod cells;
mod coprocessor;
mod location;
mod registry;
mod replica;
mod retry;
mod rpc;
mod zookeeper;

pub mod admin;
pub mod config;
pub mod connection;
pub mod error;
pub mod filter;
pub mod mutator;
pub mod operation;
pub mod result;
pub mod scan;
pub mod table;

pub use admin::{
    Admin, ClusterMetrics, ClusterOption, CompactionState, NamespaceDescriptor, RegionMetrics, RegionState,
    ServerMetrics, SnapshotDescription, TableState,
};
pub use config::{ClientConfig, Registry};
pub use connection::Connection;
pub use error::{Error, RemoteException, Result};
pub use evenkeel_common::descriptor::{
    BlockEncoding, Bloom, Compression, Durability, InMemoryCompaction, KeepDeletedCells,
};
pub use evenkeel_common::{ColumnFamilyDescriptor, RegionInfo, ServerName, TableDescriptor, TableName};
pub use filter::{Comparator, Filter};
pub use futures_core::Stream;
pub use location::RegionLocation;
pub use mutator::{BufferedMutator, Failure};
pub use operation::{
    Action, Append, CheckAndMutate, CompareOp, Consistency, Delete, Get, Increment, Mutation, Put,
    RowMutations, Scan,
};
pub use result::{CheckAndMutateResult, RowResult};
pub use rpc::{Compressor, Opened, Opener, Opening, Transport};
pub use scan::{RowStream, Scanner};
pub use table::Table;
