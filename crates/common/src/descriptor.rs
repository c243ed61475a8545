//! Descriptors of tables and column families.
//!
//! A descriptor is a map from attribute name to text, as in HBase: attributes unknown to Evenkeel
//! are kept and returned unchanged. Typed getters return HBase's defaults
//! (`ColumnFamilyDescriptorBuilder`, `TableDescriptorBuilder`) for absent attributes.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::cell::FAMILY_BYTES_MAX;
use crate::error::{ErrorKind, HBaseError, Result};
use crate::mob::THRESHOLD_DEFAULT;
use crate::names::TableName;

mod setters;

pub use setters::{BlockEncoding, Bloom, Compression, InMemoryCompaction};

/// Attributes by name; both are bytes on the wire and text in practice.
pub type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// The TTL in seconds that means forever (`HConstants.FOREVER`).
pub const TTL_FOREVER: i32 = i32::MAX;
/// Default bytes of a data block before encoding and compression.
pub const BLOCK_BYTES_DEFAULT: usize = 64 * 1024;

/// The attributes that HBase writes for every family, with their defaults, in HBase's order
/// (`ColumnFamilyDescriptorBuilder`).
pub const FAMILY_DEFAULTS: &[(&str, &str)] = &[
    ("BLOOMFILTER", "ROW"),
    ("REPLICATION_SCOPE", "0"),
    ("VERSIONS", "1"),
    ("MIN_VERSIONS", "0"),
    ("COMPRESSION", "NONE"),
    ("TTL", "2147483647"),
    ("BLOCKSIZE", "65536"),
    ("IN_MEMORY", "false"),
    ("BLOCKCACHE", "true"),
    ("KEEP_DELETED_CELLS", "FALSE"),
    ("DATA_BLOCK_ENCODING", "NONE"),
    ("INDEX_BLOCK_ENCODING", "NONE"),
];

/// Whether deleted cells are kept (`KEEP_DELETED_CELLS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepDeletedCells {
    /// Compactions drop deleted cells.
    #[default]
    False,
    /// Deleted cells and delete markers are kept until versions or TTL remove them; reads of an
    /// earlier time range see them.
    True,
    /// Deleted cells and delete markers are kept until the TTL removes them.
    Ttl,
}

/// When a write is acknowledged (`Durability`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The table's durability; [`Durability::SyncWal`] if it has none.
    #[default]
    UseDefault,
    /// The write is not written to the WAL.
    SkipWal,
    /// The write is acknowledged before it is in the WAL.
    AsyncWal,
    /// The write is acknowledged once it is in the WAL and flushed to the file system.
    SyncWal,
    /// The write is acknowledged once it is in the WAL and synced to the disk.
    FsyncWal,
}

impl Durability {
    /// The durability of a number of the protobuf enum `MutationProto.Durability`.
    pub fn from_number(number: i32) -> Self {
        match number {
            1 => Self::SkipWal,
            2 => Self::AsyncWal,
            3 => Self::SyncWal,
            4 => Self::FsyncWal,
            _ => Self::UseDefault,
        }
    }
}

/// A column family: its name, attributes and configuration overrides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnFamilyDescriptor {
    name: Vec<u8>,
    attributes: Attributes,
    configuration: BTreeMap<String, String>,
}

impl ColumnFamilyDescriptor {
    /// A family without attributes: every getter returns its default.
    ///
    /// # Errors
    /// `IllegalArgumentException` for a name that HBase rejects.
    pub fn new(name: &[u8]) -> Result<Self> {
        Self::from_parts(name.to_vec(), Attributes::new(), BTreeMap::new())
    }

    /// A family of all its parts.
    ///
    /// # Errors
    /// As [`ColumnFamilyDescriptor::new`].
    pub fn from_parts(
        name: Vec<u8>,
        attributes: Attributes,
        configuration: BTreeMap<String, String>,
    ) -> Result<Self> {
        check_family_name(&name)?;
        Ok(Self { name, attributes, configuration })
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The name as text.
    pub fn name_text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// The attributes as given.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The configuration overrides as given.
    pub fn configuration(&self) -> &BTreeMap<String, String> {
        &self.configuration
    }

    /// Sets an attribute.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// An attribute as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.attributes.get(name.as_bytes())?).ok()
    }

    fn parsed<T: FromStr>(&self, name: &str, default: T) -> T {
        self.text(name).and_then(|v| v.trim().parse().ok()).unwrap_or(default)
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        self.text(name).map_or(default, |v| v.eq_ignore_ascii_case("true"))
    }

    /// The number of versions of a column that are kept.
    pub fn max_versions(&self) -> u32 {
        self.parsed("VERSIONS", 1i32).max(0) as u32
    }

    /// The number of versions that are kept although they are older than the TTL.
    pub fn min_versions(&self) -> u32 {
        self.parsed("MIN_VERSIONS", 0i32).max(0) as u32
    }

    /// TTL in milliseconds; `i64::MAX` means forever.
    pub fn ttl_ms(&self) -> i64 {
        match self.text("TTL") {
            Some(text) if text.eq_ignore_ascii_case("FOREVER") => i64::MAX,
            _ => match self.parsed("TTL", TTL_FOREVER) {
                TTL_FOREVER => i64::MAX,
                seconds => i64::from(seconds) * 1000,
            },
        }
    }

    /// Whether deleted cells are kept.
    pub fn keep_deleted_cells(&self) -> KeepDeletedCells {
        match self.text("KEEP_DELETED_CELLS").map(str::to_ascii_uppercase).as_deref() {
            Some("TRUE") => KeepDeletedCells::True,
            Some("TTL") => KeepDeletedCells::Ttl,
            _ => KeepDeletedCells::False,
        }
    }

    /// Whether large values are written to MOB files ([`crate::mob`]).
    pub fn is_mob(&self) -> bool {
        self.flag("IS_MOB", false)
    }

    /// The longest value, in bytes, that a family with MOB files keeps in its store files.
    pub fn mob_threshold(&self) -> u64 {
        let threshold = self.parsed("MOB_THRESHOLD", i64::try_from(THRESHOLD_DEFAULT).unwrap_or(i64::MAX));
        u64::try_from(threshold).unwrap_or(0)
    }

    /// Whether versions and deletes are ordered by write order instead of timestamps.
    pub fn new_version_behavior(&self) -> bool {
        self.flag("NEW_VERSION_BEHAVIOR", false)
    }

    /// Bytes of a data block before encoding and compression.
    pub fn block_bytes(&self) -> usize {
        self.parsed("BLOCKSIZE", BLOCK_BYTES_DEFAULT)
    }

    /// Whether reads cache data blocks.
    pub fn block_cache_enabled(&self) -> bool {
        self.flag("BLOCKCACHE", true)
    }

    /// Whether blocks are cached with the highest priority.
    pub fn in_memory(&self) -> bool {
        self.flag("IN_MEMORY", false)
    }

    /// The name of the bloom filter type: NONE, ROW, ROWCOL, ROWPREFIX_FIXED_LENGTH.
    pub fn bloom_type(&self) -> &str {
        self.text("BLOOMFILTER").unwrap_or("ROW")
    }

    /// The length of row prefixes in the bloom filter ROWPREFIX_FIXED_LENGTH, as text
    /// (`RowPrefixBloomFilter.prefix_length`): an attribute, or else the configuration, as in
    /// HBase.
    pub fn row_prefix_bloom_length(&self) -> Option<&str> {
        const KEY: &str = "RowPrefixBloomFilter.prefix_length";
        self.text(KEY).or_else(|| self.configuration.get(KEY).map(String::as_str))
    }

    /// The name of the compression.
    pub fn compression(&self) -> &str {
        self.text("COMPRESSION").unwrap_or("NONE")
    }

    /// The name of the compression of files that compactions write
    /// (`getMajorCompactionCompressionType`).
    pub fn compaction_compression(&self, is_major: bool) -> &str {
        let of_kind = if is_major { "COMPRESSION_COMPACT_MAJOR" } else { "COMPRESSION_COMPACT_MINOR" };
        let of_compactions = self.text(of_kind).or(self.text("COMPRESSION_COMPACT"));
        of_compactions.unwrap_or_else(|| self.compression())
    }

    /// The name of the data block encoding.
    pub fn data_block_encoding(&self) -> &str {
        self.text("DATA_BLOCK_ENCODING").unwrap_or("NONE")
    }

    /// Replication scope: 0 local, 1 global.
    pub fn scope(&self) -> i32 {
        self.parsed("REPLICATION_SCOPE", 0)
    }
}

/// A table: its name, attributes and families, ordered by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDescriptor {
    name: TableName,
    attributes: Attributes,
    families: BTreeMap<Vec<u8>, ColumnFamilyDescriptor>,
}

impl TableDescriptor {
    /// A table with no attributes and no families.
    pub fn new(name: TableName) -> Self {
        Self { name, attributes: Attributes::new(), families: BTreeMap::new() }
    }

    /// Adds or replaces a family.
    pub fn with_family(mut self, family: ColumnFamilyDescriptor) -> Self {
        self.families.insert(family.name.clone(), family);
        self
    }

    /// Removes a family. Returns true if it existed.
    pub fn remove_family(&mut self, name: &[u8]) -> bool {
        self.families.remove(name).is_some()
    }

    /// Sets an attribute.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// Replaces all attributes.
    pub fn with_attributes(mut self, attributes: Attributes) -> Self {
        self.attributes = attributes;
        self
    }

    /// The name.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// The attributes as given.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The families, ordered by name.
    pub fn families(&self) -> impl ExactSizeIterator<Item = &ColumnFamilyDescriptor> {
        self.families.values()
    }

    /// A family by name.
    pub fn family(&self, name: &[u8]) -> Option<&ColumnFamilyDescriptor> {
        self.families.get(name)
    }

    /// An attribute as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.attributes.get(name.as_bytes())?).ok()
    }

    /// Whether writes are refused.
    pub fn is_read_only(&self) -> bool {
        self.text("READONLY").is_some_and(|v| v.eq_ignore_ascii_case("true"))
    }

    /// The number of replicas of each region (`REGION_REPLICATION`), 1 by default.
    pub fn region_replication(&self) -> u32 {
        let count = self.text("REGION_REPLICATION").and_then(|text| text.trim().parse().ok());
        count.unwrap_or(1).max(1)
    }

    /// Whether edits in the MemStore of the default replica are for the others
    /// (`REGION_MEMSTORE_REPLICATION`), true by default.
    pub fn is_memstore_replicated(&self) -> bool {
        self.text("REGION_MEMSTORE_REPLICATION").is_none_or(|v| v.eq_ignore_ascii_case("true"))
    }

    /// Whether Gets of the table use the row cache (`ROW_CACHE_ENABLED`, HBASE-29585); `None` if
    /// the server's setting decides.
    pub fn row_cache_enabled(&self) -> Option<bool> {
        self.text("ROW_CACHE_ENABLED").map(|v| v.trim().eq_ignore_ascii_case("true"))
    }

    /// Whether the table's files may be compacted.
    pub fn is_compaction_enabled(&self) -> bool {
        !self.text("COMPACTION_ENABLED").is_some_and(|v| v.eq_ignore_ascii_case("false"))
    }

    /// The durability of writes with [`Durability::UseDefault`].
    pub fn durability(&self) -> Durability {
        match self.text("DURABILITY") {
            Some("SKIP_WAL") => Durability::SkipWal,
            Some("ASYNC_WAL") => Durability::AsyncWal,
            Some("FSYNC_WAL") => Durability::FsyncWal,
            Some("SYNC_WAL") => Durability::SyncWal,
            _ => Durability::UseDefault,
        }
    }

    /// MemStore bytes at which a region flushes, if the table sets them.
    pub fn memstore_flush_bytes(&self) -> Option<u64> {
        self.text("MEMSTORE_FLUSHSIZE")?.parse().ok().filter(|n| *n > 0)
    }

    /// The Java classes of the coprocessor attributes, in the order of the attributes' names. An
    /// attribute `coprocessor$N` has the form `path|class|priority|arguments`, where path, priority
    /// and arguments may be empty. An attribute of another form is ignored
    /// (`TableDescriptorBuilder.toCoprocessorDescriptor`).
    pub fn coprocessors(&self) -> impl Iterator<Item = &str> {
        self.attributes.iter().filter_map(|(key, value)| {
            let number = key.get(..12).filter(|start| start.eq_ignore_ascii_case(b"coprocessor$"))?;
            let number = key.get(number.len()..)?;
            let is_numbered = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
            let mut parts = std::str::from_utf8(value).ok().filter(|_| is_numbered)?.split('|').skip(1);
            let (class, priority) = (parts.next()?.trim(), parts.next()?.trim());
            (!class.is_empty() && priority.bytes().all(|b| b.is_ascii_digit())).then_some(class)
        })
    }
}

/// Checks a family's name: not empty, no control characters or `:` `/` `\`, no leading dot, not
/// `recovered.edits` (`ColumnFamilyDescriptorBuilder.isLegalColumnFamilyName`).
///
/// # Errors
/// `IllegalArgumentException` that names the violated rule.
pub fn check_family_name(name: &[u8]) -> Result<()> {
    let shown = || name.escape_ascii().to_string();
    let illegal = |why: String| Err(HBaseError::new(ErrorKind::IllegalArgument, why));
    if name.is_empty() {
        return illegal("Column Family name can not be empty".into());
    }
    if name.len() > FAMILY_BYTES_MAX {
        return illegal(format!("Column Family name is longer than {FAMILY_BYTES_MAX} bytes: {}", shown()));
    }
    if name.starts_with(b".") {
        return illegal(format!("Column Family names cannot start with a period: {}", shown()));
    }
    if let Some(bad) = name.iter().find(|b| b.is_ascii_control() || matches!(b, b':' | b'\\' | b'/')) {
        return illegal(format!(
            "Illegal character <{bad}>. Column Family names cannot contain control characters or colons: {}",
            shown()
        ));
    }
    if name == b"recovered.edits" {
        return illegal("Column Family name cannot be: recovered.edits".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_attributes_have_hbases_defaults() {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        assert_eq!((family.max_versions(), family.min_versions(), family.ttl_ms()), (1, 0, i64::MAX));
        assert_eq!((family.block_bytes(), family.bloom_type(), family.compression()), (65536, "ROW", "NONE"));
        assert!(family.block_cache_enabled() && !family.in_memory());
        assert_eq!(family.keep_deleted_cells(), KeepDeletedCells::False);
    }

    #[test]
    fn set_attributes_are_read() {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let family = family.with("VERSIONS", "5").with("TTL", "10").with("KEEP_DELETED_CELLS", "ttl");
        assert_eq!((family.max_versions(), family.ttl_ms()), (5, 10_000));
        assert_eq!(family.keep_deleted_cells(), KeepDeletedCells::Ttl);
    }

    #[test]
    fn bad_family_names_are_refused() {
        for bad in [&b""[..], b".f", b"a:b", b"a/b", b"a\0", b"recovered.edits", &[b'x'; 128]] {
            assert!(check_family_name(bad).is_err(), "{}", bad.escape_ascii());
        }
        assert!(check_family_name(b"cf-1 x").is_ok());
    }
}
