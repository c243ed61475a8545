//! The server side of HBase's RPC: connections, calls, cell blocks and admission. It has no notion
//! of regions.
//!
//! # Path of a call
//!
//! ```text
//! socket -> read buffer -> frame -> admission -> header -> CallBatch -> BatchRunner::run
//!                                                                     |  answered at once
//! socket <- one vectored write a turn <- outbox <---- Responder ------+
//!                                          ^                          |  on another thread, later
//!                              detached replies <- DetachedResponder --+
//! ```
//!
//! A connection belongs to one thread with a `current_thread` runtime (see [`RpcServer`]). A call
//! whose data is in memory runs to completion there, without a queue or a hand-off. Its reply is
//! encoded into the connection's outbox, and one write sends all replies of a turn. A call that
//! must wait is detached and answered later, out of order.
//!
//! # Bounds
//!
//! Everything that a client can make grow has a limit in [`RpcServerConfig`]: the length of a
//! frame, request bytes and calls in flight per connection and per server, unsent replies,
//! connections, and the time until the header arrives. Above a limit of the server, a call is
//! answered with CallQueueTooBigException. The server does not read from a connection above a limit
//! of its own. A request is admitted before it is parsed, and a long one while it arrives.
//!
//! Received bytes are counted from the first one, including the connection header
//! ([`InputBudget`]). A request that has begun must make progress, and if there are many
//! connections, idle ones are closed (`connection_monitor.rs`).
//!
//! Replies share one [`Budget`]. A connection with unsent replies may hold an eighth of the free
//! part, so the limit per connection shrinks as the budget fills (the dynamic threshold of
//! shared-memory switches). Clients that never read cannot take the budget of those that do.
//!
//! # Bytes from the socket
//!
//! Lengths are checked before use, and no buffer is reserved by an announced length alone. A
//! malformed request is answered with an exception; if its header cannot be read, the connection is
//! closed, as in HBase.
//!
//! The contract is HBase 2.6's wire protocol. The framing, the header fields, the exception class
//! of each refusal and Hadoop's compression framing are given, not choices.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod budget;
mod call;
pub mod cell_block;
mod config;
mod connection;
mod connection_monitor;
mod connection_report;
mod connection_thread;
mod exception;
mod executor;
mod gather_buffer;
mod metrics;
mod reply;
mod request;
mod responder;
mod server;
mod service;
mod wire;

pub use call::{COMPACT_BYTES_MAX, Call, ConnectionInfo, ConnectionLease};
pub use cell_block::{CellBlockCodec, CellBlockReader, CellBlockWriter, CellCodec};
pub use config::{ClusterId, IdleConfig, RpcServerConfig};
pub use connection::{CallBatch, InputBudget, ReceiveDeadline};
pub use connection_report::{ConnectionReport, RunningCall};
pub use exception::exception_response;
pub use executor::{CallClass, Executor, ExecutorConfig};
pub use metrics::{CallTimes, CallValue, RpcMetrics};
pub use responder::{DetachedResponder, Respond, Responder};
pub use server::{RpcMonitor, RpcServer, RpcServerHandle, RpcStats};
pub use service::{BatchRunner, Service};
