//! A native HBase client on tokio, with HBase's RPC, region location and retry rules.
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
//! | module | contents |
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
//! | [`error`] | [`Error`], which distinguishes retryable failures |
//! | `batch` | batches of operations: grouped by server, retried by region |
//! | `cells` | the cells of requests and replies |
//! | `coprocessor` | calls of coprocessor endpoints |
//! | `rpc` | one multiplexed socket per server and service; [`StatusCaller`], [`AdminCaller`] |
//! | `registry` | looks up the cluster: servers, or a minimal ZooKeeper client |
//! | `location` | the cache of region locations, from hbase:meta |
//! | `replica` | timeline-consistent reads, from any replica |
//! | `retry` | retry limits and backoff |
//!
//! # Guarantees
//!
//! - **Every wait ends.** `rpc_timeout` bounds a call, including the connect. `operation_timeout`
//!   bounds an operation with all its lookups and retries. Connects and lookups are single flights;
//!   callers that wait for one share its failure.
//! - **Retries are HBase's** (`hbase.client.pause`, `hbase.client.retries.number`): the exception's
//!   class decides whether the cached location is dropped, whether to pause, and whether to stop.
//!   Increments and appends carry the same nonce in every retry, so a server applies them once.
//! - **Bytes from a server are checked**: no memory is reserved by a length alone, and the length
//!   of a frame is limited.
//! - An operation whose future is dropped may or may not have been applied; the connection stays
//!   usable.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]

mod batch;
mod cells;
mod coprocessor;
mod location;
mod registry;
mod replica;
mod retry;
mod rpc;

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
pub use mutator::{BufferedMutator, FailedMutation};
pub use operation::{
    Action, Append, CheckAndMutate, CompareOp, Consistency, Delete, Get, Increment, Mutation, Put,
    RowMutations, Scan,
};
pub use result::{CheckAndMutateResult, RowResult};
pub use rpc::{AdminCaller, CellBlockCodec, Opened, Opener, Opening, StatusCaller, Transport};
pub use scan::{RowStream, Scanner};
pub use table::Table;
