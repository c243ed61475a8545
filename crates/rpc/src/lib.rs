//! HBase's RPC, the server's side: connections, calls, cell blocks and admission. Knows no region.
//!
//! # Path of a call
//!
//! ```text
//! socket -> read buffer -> frame -> admission -> header -> CallBatch -> BatchRunner::run
//!                                                                     |  answered at once
//! socket <- one vectored write a turn <- outbox <---- Responder ------+
//!                                          ^                          |  on another thread, later
//!                                        inbox <- DetachedResponder --+
//! ```
//!
//! A connection belongs to one thread with a `current_thread` runtime (see [`RpcServer`]). A call
//! whose data is in memory runs to completion there, with no queue and no hand-off; its answer is
//! encoded into the connection's outbox, and all answers of one turn leave in one write. A call
//! that must wait is detached and answered later, out of order.
//!
//! # Bounds
//!
//! Everything a client can make grow has a limit in [`RpcServerConfig`]: the length of a frame,
//! request bytes and calls in flight for each connection and for the server, answers not taken by
//! the client, connections, and the time until the header is there. Over a limit of the server a
//! call gets CallQueueTooBigException; over a limit of its own a connection is not read from. A
//! request is admitted before it is parsed, a long one while it arrives.
//!
//! What arrives is counted from the first byte on, before the connection header too
//! ([`InputBudget`]). A request that has begun must go on, and where connections are many those
//! that nobody uses are closed (`watch.rs`).
//!
//! Answers share one [`Budget`]. A connection that has answers waiting may hold an eighth of what
//! is free, so the more of it is taken the less each may have (the dynamic threshold of
//! shared-memory switches), and clients that never read cannot take the room of those that do.
//!
//! # Bytes from the socket
//!
//! Lengths are checked before use; no buffer is reserved by a length alone; a malformed request is
//! answered with an exception or, when its header cannot be read, ends its connection, as in HBase.
//!
//! The contract is HBase 2.6's wire protocol. Facts, not choices: the framing, the header fields,
//! the exception class of each refusal, Hadoop's compression framing.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod budget;
mod call;
pub mod cell_block;
mod config;
mod connection;
mod exception;
mod executor;
mod gather;
mod metrics;
mod reply;
mod report;
mod request;
mod responder;
mod server;
mod service;
mod watch;
mod wire;
mod worker;

pub use call::{COMPACT_BYTES_MAX, Call, ConnectionInfo, ConnectionLease};
pub use cell_block::{CellBlockReader, CellBlockWriter, CellCodec, Compressor};
pub use config::{ClusterId, IdleConfig, RpcServerConfig};
pub use connection::{CallBatch, InputBudget, Progress};
pub use exception::exception_response;
pub use executor::{CallClass, Executor, ExecutorConfig};
pub use metrics::{CallTimes, CallValue, RpcMetrics};
pub use report::ConnectionReport;
pub use responder::{DetachedResponder, Respond, Responder};
pub use server::{RpcMonitor, RpcServer, RpcServerHandle, RpcStats};
pub use service::{BatchRunner, Service, run_call};
