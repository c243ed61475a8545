//! The version that this server tells clients and masters.

use evenkeel_protocol::pb;

/// The version this server claims to be, so that stock clients and masters treat it as their own
/// kind.
pub const HBASE_VERSION: &str = "2.6.4-hadoop3";

/// What clients and the master are told about this server's version, `version`.
pub fn version_info(version: &str) -> pb::VersionInfo {
    pb::VersionInfo {
        version: version.into(),
        url: "evenkeel".into(),
        revision: env!("CARGO_PKG_VERSION").into(),
        user: "evenkeel".into(),
        date: String::new(),
        src_checksum: String::new(),
        version_major: Some(2),
        version_minor: Some(6),
    }
}
