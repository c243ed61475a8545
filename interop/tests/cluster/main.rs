//! RegionServers of both kinds under a stock master, on HDFS with three DataNodes: `evenkeel
//! regionserver` and HBase's RegionServer.
//!
//! - [`crashes`]: moves, splits, `kill -9` of servers and DataNodes, a server stopped past its
//!   session
//! - [`operations`]: every server is replaced and replaced back under load; the services below it
//!   are restarted
//! - [`refusals`]: servers that the master refuses
//! - [`suite`]: the checks of the client, and PerformanceEvaluation, on regions of both kinds of
//!   server
//! - [`histories`]: clients of shared rows, whose histories must be linearizable
//! - [`scene`]: the cluster and clients that they share
//!
//! With `EVENKEEL_INTEROP_TARGET=stock` the tested server is HBase's, too: the same checks with
//! Java servers only.
//!
//! After each step, a stock client reads every cell. A native client writes to another table during
//! all steps; at the end it reads every row that was acknowledged. Other native clients increment,
//! check and change, and read shared rows during [`crashes`] and [`operations`].

#![forbid(unsafe_code)]

mod crashes;
mod histories;
mod operations;
mod refusals;
mod scene;
mod suite;
