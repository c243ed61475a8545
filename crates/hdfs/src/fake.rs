//! Scripted peers for tests: servers in this process that answer as a test specifies.
//!
//! | module | contents |
//! |---|---|
//! | `cluster` | [`FakeCluster`]: a NameNode with one file, and DataNodes |
//! | `datanode` | [`FakeDataNode`]: stores packets, and acknowledges as scripted |
//! | `descriptors` | [`DescriptorServer`]: passes the files of a DataNode over a domain socket |
//! | `namenode` | [`FakeNameNode`]: a closure answers each call |

mod cluster;
mod datanode;
mod descriptors;
mod namenode;

pub(crate) use cluster::{FakeCluster, Written};
pub(crate) use datanode::{Ack, Behavior, FakeDataNode, Packet, status};
pub(crate) use descriptors::{DescriptorAnswer, DescriptorServer};
pub(crate) use namenode::{Call, FakeNameNode, ScriptedReply, quick};
