//! [`RegionInfo`]: a region's table and key range, and the names derived from them.
//!
//! ```text
//! region name  = table , start key , region id [ _ replica as %04X ] . md5 .
//! md5          = lower-case hex of MD5 over the bytes before the first '.' after the region id
//! encoded name = that md5; the region's directory
//! ```
//! hbase:meta is older than that format: its name is `hbase:meta,,1`, that of a replica
//! `hbase:meta,,1_0001`, and its encoded name the absolute value of the Jenkins hash of the name.

use std::borrow::Cow;

use bytes::Bytes;
use md5::{Digest, Md5};

use crate::error::{HBaseError, Result};
use crate::jenkins::jenkins_hash;
use crate::names::TableName;

/// The name of hbase:meta's default replica.
const META_NAME: &[u8] = b"hbase:meta,,1";
/// The encoded name of hbase:meta's default replica: that of its directory.
pub const META_ENCODED_NAME: &str = "1588230740";

/// One region: the rows of a table from `start_key` (inclusive) to `end_key` (exclusive). An empty
/// key means no bound.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RegionInfo {
    table: TableName,
    start_key: Bytes,
    end_key: Bytes,
    region_id: i64,
    replica_id: i32,
    offline: bool,
    split: bool,
    name: Bytes,
    encoded_name: String,
}

impl RegionInfo {
    /// A region of a table; `region_id` is its creation time in milliseconds.
    pub fn new(table: TableName, start_key: Bytes, end_key: Bytes, region_id: i64) -> Self {
        Self::with_replica(table, start_key, end_key, region_id, 0)
    }

    /// A region's replica; replica 0 is the region itself.
    pub fn with_replica(
        table: TableName,
        start_key: Bytes,
        end_key: Bytes,
        region_id: i64,
        replica_id: i32,
    ) -> Self {
        let (name, encoded_name) = names_of(&table, &start_key, region_id, replica_id);
        Self {
            table,
            start_key,
            end_key,
            region_id,
            replica_id,
            offline: false,
            split: false,
            name,
            encoded_name,
        }
    }

    /// The default replica of hbase:meta's only region.
    pub fn meta() -> Self {
        Self::new(TableName::meta(), Bytes::new(), Bytes::new(), 1)
    }

    /// Another replica of the same region, with the same flags.
    pub fn replica(&self, replica_id: i32) -> Self {
        let (table, start, end) = (self.table.clone(), self.start_key.clone(), self.end_key.clone());
        let replica = Self::with_replica(table, start, end, self.region_id, replica_id);
        replica.with_flags(self.offline, self.split)
    }

    /// Sets the two flags that mark a parent after its split.
    pub fn with_flags(mut self, offline: bool, split: bool) -> Self {
        self.offline = offline;
        self.split = split;
        self
    }

    /// The table.
    pub fn table(&self) -> &TableName {
        &self.table
    }

    /// The first row.
    pub fn start_key(&self) -> &Bytes {
        &self.start_key
    }

    /// The exclusive end of the region's rows; empty means no end.
    pub fn end_key(&self) -> &Bytes {
        &self.end_key
    }

    /// Creation time in milliseconds.
    pub fn region_id(&self) -> i64 {
        self.region_id
    }

    /// 0 for the region itself.
    pub fn replica_id(&self) -> i32 {
        self.replica_id
    }

    /// Returns true if this is the default replica, which alone is written to.
    pub fn is_primary(&self) -> bool {
        self.replica_id == 0
    }

    /// Returns true if the region is offline permanently (a split parent).
    pub fn is_offline(&self) -> bool {
        self.offline
    }

    /// Returns true if the region was split.
    pub fn is_split(&self) -> bool {
        self.split
    }

    /// Returns true if this is a parent after its split.
    pub fn is_split_parent(&self) -> bool {
        self.offline && self.split
    }

    /// The full name. That of the default replica is also the region's row in hbase:meta.
    pub fn name(&self) -> &Bytes {
        &self.name
    }

    /// The full name for people and logs.
    pub fn name_text(&self) -> String {
        self.name.escape_ascii().to_string()
    }

    /// The encoded name. That of the default replica is also the name of the region's directory.
    pub fn encoded_name(&self) -> &str {
        &self.encoded_name
    }

    /// Returns true if this is hbase:meta's region, or a replica of it.
    pub fn is_meta(&self) -> bool {
        self.table.is_meta()
    }

    /// Returns true if a row belongs to the region (hbase:meta's region contains every row).
    pub fn contains_row(&self, row: &[u8]) -> bool {
        self.is_meta() || (row >= &self.start_key[..] && (self.end_key.is_empty() || row < &self.end_key[..]))
    }
}

impl std::fmt::Debug for RegionInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name_text())
    }
}

fn names_of(table: &TableName, start_key: &[u8], region_id: i64, replica_id: i32) -> (Bytes, String) {
    let mut name = format!("{table},").into_bytes();
    name.extend_from_slice(start_key);
    name.extend_from_slice(format!(",{region_id}").as_bytes());
    if replica_id > 0 {
        name.extend_from_slice(format!("_{replica_id:04X}").as_bytes());
    }
    if table.is_meta() {
        let encoded = if replica_id > 0 { old_encoded_name(&name) } else { META_ENCODED_NAME.into() };
        return (name.into(), encoded);
    }
    let encoded: String = Md5::digest(&name).iter().map(|b| format!("{b:02x}")).collect();
    name.extend_from_slice(format!(".{encoded}.").as_bytes());
    (name.into(), encoded)
}

/// The encoded name of a region whose name does not contain it (`RegionInfo.encodeRegionName`).
fn old_encoded_name(name: &[u8]) -> String {
    jenkins_hash(name, 0).cast_signed().wrapping_abs().to_string()
}

/// The encoded name that a full region name contains, or that follows from it.
///
/// # Errors
/// `IOException` if the bytes are not a region name.
pub fn encoded_name_of(region_name: &[u8]) -> Result<Cow<'_, str>> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    if let Some(rest) = region_name.strip_prefix(META_NAME) {
        return Ok(match meta_replica_id(rest) {
            0 => META_ENCODED_NAME.into(),
            id => RegionInfo::meta().replica(id).encoded_name.into(),
        });
    }
    region_name
        .strip_suffix(b".")
        .and_then(|rest| rest.len().checked_sub(32).map(|at| rest.split_at(at)))
        .filter(|(head, _)| head.ends_with(b"."))
        .and_then(|(_, md5)| text(md5).map(Cow::Borrowed))
        .ok_or_else(|| HBaseError::io(format!("not a region name: {}", region_name.escape_ascii())))
}

/// The replica id in the rest of a name of hbase:meta: `_` and four hexadecimal digits; 0 without
/// them.
fn meta_replica_id(rest: &[u8]) -> i32 {
    let digits = rest.strip_prefix(b"_").and_then(|digits| digits.get(..4));
    let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let id = digits.and_then(|digits| i32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
    id.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_hbases_form() {
        let table: TableName = "ns:t".parse().expect("legal");
        let region = RegionInfo::new(table, Bytes::from_static(b"a,b"), Bytes::new(), 1_700_000_000_000);
        let prefix = b"ns:t,a,b,1700000000000.";
        assert!(region.name().starts_with(prefix));
        assert_eq!(region.encoded_name().len(), 32);
        assert_eq!(encoded_name_of(region.name()).expect("valid"), region.encoded_name());
        let digest: String =
            Md5::digest(&prefix[..prefix.len() - 1]).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(region.encoded_name(), digest);
    }

    #[test]
    fn meta_has_its_own_names() {
        let meta = RegionInfo::meta();
        assert_eq!(&meta.name()[..], b"hbase:meta,,1");
        assert_eq!(meta.encoded_name(), "1588230740");
        assert!(meta.contains_row(b"anything"));
    }

    #[test]
    fn replicas_of_meta_have_names_of_their_own() {
        // Encoded names as HBase computes them.
        for (id, name, encoded) in
            [(1, "hbase:meta,,1_0001", "534574363"), (2, "hbase:meta,,1_0002", "1657623790")]
        {
            let replica = RegionInfo::meta().replica(id);
            assert_eq!((replica.name_text().as_str(), replica.encoded_name()), (name, encoded));
            assert!(replica.is_meta() && !replica.is_primary() && replica.contains_row(b"anything"));
            assert_eq!(encoded_name_of(name.as_bytes()).expect("valid"), encoded);
            assert_eq!(replica.replica(0), RegionInfo::meta());
        }
        for name in ["hbase:meta,,1", "hbase:meta,,1_", "hbase:meta,,1_000x", "hbase:meta,,1.1588230740"] {
            assert_eq!(encoded_name_of(name.as_bytes()).expect("valid"), "1588230740", "{name}");
        }
    }

    #[test]
    fn rows_fall_into_half_open_ranges() {
        let table: TableName = "t".parse().expect("legal");
        let region = RegionInfo::new(table, Bytes::from_static(b"b"), Bytes::from_static(b"d"), 1);
        assert!(!region.contains_row(b"a") && region.contains_row(b"b") && region.contains_row(b"czz"));
        assert!(!region.contains_row(b"d"));
    }

    #[test]
    fn garbage_is_not_a_region_name() {
        for bad in [&b""[..], b".", b"t,,1", b"t,,1.abc.", &[0xff; 40]] {
            assert!(encoded_name_of(bad).is_err());
        }
    }
}
