//! The version that this server reports to clients and masters.

use evenkeel_protocol::pb;

/// The HBase version that this server reports, so that stock clients and masters treat it as an
/// HBase server.
pub const HBASE_VERSION: &str = "2.6.4-hadoop3";

/// The builder that Evenkeel reports, by which its servers know each other.
const BUILDER: &str = "evenkeel";

/// Returns true if the server with this version information is Evenkeel.
pub fn is_evenkeel(version: &pb::VersionInfo) -> bool {
    version.user == BUILDER
}

/// Returns the version information for clients and the master, with `version` as the version.
pub fn version_info(version: &str) -> pb::VersionInfo {
    pb::VersionInfo {
        version: version.into(),
        url: BUILDER.into(),
        revision: env!("CARGO_PKG_VERSION").into(),
        user: BUILDER.into(),
        date: String::new(),
        src_checksum: String::new(),
        version_major: Some(2),
        version_minor: Some(6),
    }
}
