//! Quotas of space: the use of space of tables, and the sizes of snapshots, in the family `u` of
//! hbase:quota (HBase's `QuotaTableUtil` and `SpaceQuotaSnapshot`).
//!
//! | row | qualifier | value |
//! |---|---|---|
//! | `t.<table>` | `p` | the use and the limit of the table, and the policy if it is violated |
//! | `t.<table>` | `ss<snapshot>` | the use of a snapshot of the table |
//! | `n.<namespace>` | `ss` | the use of all snapshots of its tables |
//!
//! Values are `SpaceQuotaSnapshot` messages without the bytes `PBUF`.

use bytes::Bytes;
use evenkeel_protocol::pb;
use prost::Message;

use crate::error::{HBaseError, Result};
use crate::names::TableName;

/// The qualifier of the use of space of a table.
pub const POLICY: &[u8] = b"p";
/// What precedes the name of a snapshot in the qualifier of its size; alone, the qualifier of the
/// sizes of a namespace.
pub const SNAPSHOT_SIZE: &[u8] = b"ss";

/// What happens to a table that exceeds its quota (`SpaceViolationPolicy`).
pub type Policy = pb::SpaceViolationPolicy;

/// The use of space of a table or a namespace at a time (`SpaceQuotaSnapshot`). HBase calls it a
/// snapshot; it has nothing to do with the snapshots of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUse {
    /// The policy that is in force, if the quota is violated.
    pub violated: Option<Policy>,
    /// The bytes of the store files and of snapshots.
    pub used_bytes: u64,
    /// The limit on them.
    pub limit_bytes: u64,
}

impl SpaceUse {
    /// Compares the use with a quota: the limit itself may be used.
    pub fn of(quota: &pb::SpaceQuota, used_bytes: u64) -> Self {
        let limit_bytes = quota.soft_limit();
        let violated = (used_bytes > limit_bytes).then(|| quota.violation_policy());
        Self { violated, used_bytes, limit_bytes }
    }

    /// Returns the same use without a violation.
    pub fn in_observance(self) -> Self {
        Self { violated: None, ..self }
    }

    /// Converts it to a message.
    pub fn to_message(self) -> pb::SpaceQuotaSnapshot {
        pb::SpaceQuotaSnapshot {
            quota_status: Some(pb::SpaceQuotaStatus {
                violation_policy: self.violated.map(Into::into),
                in_violation: Some(self.violated.is_some()),
            }),
            quota_usage: Some(self.used_bytes),
            quota_limit: Some(self.limit_bytes),
        }
    }

    /// Converts it from a message. A policy that is not in violation counts as none.
    pub fn from_message(message: &pb::SpaceQuotaSnapshot) -> Self {
        let status = message.quota_status.unwrap_or_default();
        Self {
            violated: status.in_violation().then(|| status.violation_policy()),
            used_bytes: message.quota_usage(),
            limit_bytes: message.quota_limit(),
        }
    }

    /// Encodes the value of a cell.
    pub fn encode(self) -> Bytes {
        self.to_message().encode_to_vec().into()
    }

    /// Decodes the value of a cell.
    ///
    /// # Errors
    /// `IOException` if it is no `SpaceQuotaSnapshot`.
    pub fn decode(value: &[u8]) -> Result<Self> {
        decode(value).map(|message| Self::from_message(&message))
    }
}

fn decode(value: &[u8]) -> Result<pb::SpaceQuotaSnapshot> {
    pb::SpaceQuotaSnapshot::decode(value).map_err(|error| HBaseError::io(format!("no use of space: {error}")))
}

/// Encodes the value of the size of a snapshot, or of those of a namespace.
pub fn encode_size(bytes: u64) -> Bytes {
    pb::SpaceQuotaSnapshot { quota_usage: Some(bytes), ..Default::default() }.encode_to_vec().into()
}

/// Decodes the value of the size of a snapshot, or of those of a namespace.
///
/// # Errors
/// `IOException` if it is no `SpaceQuotaSnapshot`.
pub fn decode_size(value: &[u8]) -> Result<u64> {
    decode(value).map(|message| message.quota_usage())
}

/// Returns the qualifier of the size of a snapshot.
pub fn size_qualifier(snapshot: &str) -> Bytes {
    [SNAPSHOT_SIZE, snapshot.as_bytes()].concat().into()
}

/// A cell of the family `u`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageCell {
    /// The use of space of a table.
    Table(TableName),
    /// The size of a snapshot of a table, by the snapshot's name.
    Snapshot(TableName, String),
    /// The sizes of all snapshots of a namespace's tables.
    Namespace(String),
}

impl UsageCell {
    /// Returns what a cell of the family is; `None` if HBase writes no such cell.
    pub fn parse(row: &[u8], qualifier: &[u8]) -> Option<Self> {
        let (prefix, name) = row.split_at_checked(2)?;
        if prefix == b"n." {
            let name = (qualifier == SNAPSHOT_SIZE).then(|| String::from_utf8(name.to_vec()).ok());
            return name.flatten().map(Self::Namespace);
        }
        let table = (prefix == b"t.").then(|| std::str::from_utf8(name).ok()?.parse().ok()).flatten()?;
        if qualifier == POLICY {
            return Some(Self::Table(table));
        }
        let snapshot = qualifier.strip_prefix(SNAPSHOT_SIZE).filter(|name| !name.is_empty())?;
        Some(Self::Snapshot(table, String::from_utf8(snapshot.to_vec()).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_hbases() {
        let table = |name: &str| name.parse::<TableName>().expect("legal");
        let parse = |row: &str, qualifier: &str| UsageCell::parse(row.as_bytes(), qualifier.as_bytes());
        assert_eq!(parse("t.ns:t", "p"), Some(UsageCell::Table(table("ns:t"))));
        assert_eq!(parse("t.t", "sssnap"), Some(UsageCell::Snapshot(table("t"), "snap".into())));
        assert_eq!(size_qualifier("snap"), "sssnap");
        assert_eq!(parse("n.ns", "ss"), Some(UsageCell::Namespace("ns".into())));
        for (row, qualifier) in
            [("n.ns", "p"), ("t.t", "ss"), ("t.t", "q"), ("u.bob", "p"), ("t.a:b:c", "p"), ("", "p")]
        {
            assert_eq!(parse(row, qualifier), None, "{row} {qualifier}");
        }
    }

    #[test]
    fn values_are_the_messages_that_hbase_writes() {
        let quota = pb::SpaceQuota {
            soft_limit: Some(300),
            violation_policy: Some(Policy::NoWrites.into()),
            remove: None,
        };
        let observed = SpaceUse::of(&quota, 300);
        // quota_status (1) { in_violation (2): false }, quota_usage (2), quota_limit (3)
        assert_eq!(&observed.encode()[..], b"\x0a\x02\x10\x00\x10\xac\x02\x18\xac\x02");
        let violated = SpaceUse::of(&quota, 301);
        // quota_status (1) { violation_policy (1): NO_WRITES, in_violation (2): true } ...
        assert_eq!(&violated.encode()[..], b"\x0a\x04\x08\x03\x10\x01\x10\xad\x02\x18\xac\x02");
        for state in [observed, violated, violated.in_observance()] {
            assert_eq!(SpaceUse::decode(&state.encode()), Ok(state));
        }
        assert_eq!(&encode_size(5)[..], b"\x10\x05");
        assert_eq!(decode_size(&encode_size(5)), Ok(5));
        assert!(SpaceUse::decode(b"\xff").is_err() && decode_size(b"\xff").is_err());
    }
}
