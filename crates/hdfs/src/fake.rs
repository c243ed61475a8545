//! Scripted peers for tests: servers of this process that answer as a test tells them.
//!
//! | module | contents |
//! |---|---|
//! | `cluster` | [`FakeCluster`]: a NameNode with one file, and DataNodes |
//! | `datanode` | [`FakeDataNode`]: stores packets, and acknowledges as it is told |
//! | `namenode` | [`FakeNameNode`]: a closure answers each call |

mod cluster;
mod datanode;
mod namenode;

pub(crate) use cluster::{FakeCluster, Written};
pub(crate) use datanode::{Ack, Behavior, FakeDataNode, Packet, status};
pub(crate) use namenode::{Answer, Call, FakeNameNode, quick};
