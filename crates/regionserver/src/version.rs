//! The version that this server reports to clients and masters.

use evenkeel_protocol::pb;

/// The HBase version that this server reports, so that stock clients and masters treat it as an
/// HBase server.
pub const HBASE_VERSION: &str = "2.6.4-hadoop3";

/// Returns the version information for clients and the master, with `version` as the version.
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
