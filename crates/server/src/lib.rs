//! The server: a RegionServer, an embedded master and a ZooKeeper endpoint, and the process that holds them together.
//!
//! This is the one room where regions and RPC meet.
//!
//! | module | noun |
//! |---|---|
//! | [`standalone`] | the whole of it in one process: start and stop |
//! | [`regionserver`] | ClientService, AdminService and the registry over the regions served here |
//! | [`master`] | tables, namespaces, hbase:meta, MasterService |
//! | [`zookeeper`] | the read-only endpoint at which clients begin |
//! | [`convert`] | protobuf messages to what regions understand, and back |

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod convert;
pub mod master;
pub mod regionserver;
pub mod standalone;
pub mod zookeeper;

use evenkeel_protocol::pb;

/// The version this server claims to be, so that stock clients and masters treat it as their own kind.
pub const HBASE_VERSION: &str = "2.6.4-hadoop3";

/// What clients and the master are told about this server's version.
pub fn version_info() -> pb::VersionInfo {
    pb::VersionInfo {
        version: HBASE_VERSION.into(),
        url: "evenkeel".into(),
        revision: env!("CARGO_PKG_VERSION").into(),
        user: "evenkeel".into(),
        date: String::new(),
        src_checksum: String::new(),
        version_major: Some(2),
        version_minor: Some(6),
    }
}
