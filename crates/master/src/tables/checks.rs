//! Rejects table descriptors that HBase rejects (`TableDescriptorChecker`), and adds HBase's
//! defaults.

use bytes::Bytes;
use evenkeel_common::cell::ROW_BYTES_MAX;
use evenkeel_common::config::Configuration;
use evenkeel_common::descriptor::Attributes;
use evenkeel_common::{
    ColumnFamilyDescriptor, ErrorKind, HBaseError, RegionInfo, Result, TableDescriptor, TableName, quoted,
};

use evenkeel_region::store_file_tracker::{TRACKER_IMPL, TrackerImpl, check_for_create_table};
use evenkeel_regionserver::coprocessor;

use crate::replicas::REPLICAS_MAX;

/// The default of `hbase.hregion.max.filesize.limit`, the smallest `MAX_FILESIZE`.
const MAX_FILE_BYTES_MIN: i64 = 2 << 20;
/// The default of `hbase.hregion.memstore.flush.size.limit`, the smallest `MEMSTORE_FLUSHSIZE`.
const FLUSH_BYTES_MIN: i64 = 1 << 20;
/// The longest name of a directory, in bytes: `NAME_MAX` of Linux, and the default of HDFS
/// (`dfs.namenode.fs-limits.max-component-length`).
const NAME_BYTES_MAX: usize = 255;
/// The largest descriptor of a table, in bytes as [`descriptor_bytes`] counts them. HBase limits it
/// only by the size of a request.
const DESCRIPTOR_BYTES_MAX: usize = 1 << 20;
/// Bytes that an attribute or a family counts besides its name and its value.
const ATTRIBUTE_BYTES: usize = 16;
/// The largest number of split keys of a new table.
const SPLITS_MAX: usize = 65_536;
/// The limit on their bytes. Every key is in the info of two regions.
const SPLIT_BYTES_MAX: usize = 16 << 20;
/// Bytes that a split key counts besides its own.
const SPLIT_BYTES: usize = 64;
const CHECKS: &str = "hbase.table.sanity.checks";

/// Adds what HBase's master adds to every new table: its store file tracker, which is that of the
/// server's setting (`StoreFileTrackerFactory.updateWithTrackerConfigs`).
///
/// # Errors
/// `IOException` if the setting is not the name of a tracker.
pub fn with_master_defaults(table: TableDescriptor, conf: &Configuration) -> Result<TableDescriptor> {
    if table.text(TRACKER_IMPL).is_some_and(|tracker| !tracker.is_empty()) {
        return Ok(table);
    }
    let setting = conf.get_trimmed(TRACKER_IMPL).map_err(|error| HBaseError::io(error.to_string()))?;
    let tracker = setting.as_deref().map_or(Ok(TrackerImpl::Default), TrackerImpl::parse)?;
    Ok(table.with(TRACKER_IMPL, tracker.name()))
}

/// Checks the descriptor of a new table, and its name.
///
/// # Errors
/// Returns `DoNotRetryIOException` with HBase's message; `IOException` for an unknown store file
/// tracker.
pub fn check_new_table(table: &TableDescriptor, conf: &Configuration) -> Result<()> {
    check_table_name(table.name())?;
    check_for_create_table(table)?;
    table.families().try_for_each(check_family_name)?;
    check_table(table, conf)
}

/// Checks a changed descriptor. Families that the table has already keep their names.
///
/// # Errors
/// Returns `DoNotRetryIOException` with HBase's message.
pub fn check_altered_table(
    table: &TableDescriptor,
    before: &TableDescriptor,
    conf: &Configuration,
) -> Result<()> {
    let is_new = |family: &&ColumnFamilyDescriptor| before.family(family.name()).is_none();
    table.families().filter(is_new).try_for_each(check_family_name)?;
    check_but_formats(table, conf)?;
    if is_off(table, conf) {
        return Ok(());
    }
    // Families of an older HBase may have formats that do not exist any more. They are altered one
    // by one.
    let formats = |family: &ColumnFamilyDescriptor| {
        let compressions = [family.compression()].into_iter().chain(compaction_compressions(family));
        let others = [family.data_block_encoding(), family.bloom_type()];
        compressions.chain(others).map(str::to_owned).collect::<Vec<_>>()
    };
    let is_changed = |family: &&ColumnFamilyDescriptor| {
        before.family(family.name()).is_none_or(|before| formats(before) != formats(family))
    };
    table.families().filter(is_changed).try_for_each(check_formats)
}

/// Returns the bytes of a table's descriptor: names, values, and a constant for each of them.
pub fn descriptor_bytes(table: &TableDescriptor) -> usize {
    let name = table.name().namespace().len() + table.name().qualifier().len();
    let families: usize = table.families().map(family_bytes).sum();
    name + attribute_bytes(table.attributes()) + families
}

/// Returns the bytes of a family's descriptor, as [`descriptor_bytes`] does.
pub fn family_bytes(family: &ColumnFamilyDescriptor) -> usize {
    let settings = family.configuration().iter();
    let settings: usize = settings.map(|(name, value)| ATTRIBUTE_BYTES + name.len() + value.len()).sum();
    ATTRIBUTE_BYTES + family.name().len() + attribute_bytes(family.attributes()) + settings
}

fn attribute_bytes(attributes: &Attributes) -> usize {
    attributes.iter().map(|(name, value)| ATTRIBUTE_BYTES + name.len() + value.len()).sum()
}

/// Checks the size of a table's descriptor. `hbase.table.sanity.checks` does not switch this off.
///
/// # Errors
/// Returns `DoNotRetryIOException` if the descriptor is too large.
pub fn check_size(table: &TableDescriptor) -> Result<()> {
    let bytes = descriptor_bytes(table);
    if bytes <= DESCRIPTOR_BYTES_MAX {
        return Ok(());
    }
    let name = table.name();
    Err(HBaseError::do_not_retry(format!(
        "the descriptor of table {name} takes {bytes} bytes, more than {DESCRIPTOR_BYTES_MAX}"
    )))
}

/// Returns the bytes of split keys, with a constant for each of them.
pub fn split_bytes(splits: &[Bytes]) -> usize {
    splits.iter().map(|key| SPLIT_BYTES + key.len()).sum()
}

/// Checks the names of a new table or namespace, which are names of directories.
///
/// # Errors
/// Returns `DoNotRetryIOException` for a name that no file system takes.
pub fn check_directory_name(name: &str) -> Result<()> {
    if name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let shown = quoted(name.as_bytes());
    Err(HBaseError::do_not_retry(format!(
        "File name too long: {} bytes of at most {NAME_BYTES_MAX}: {shown}",
        name.len()
    )))
}

/// Checks the name of a new table, whose parts are names of directories.
///
/// # Errors
/// Returns `DoNotRetryIOException` for a name that no file system takes.
pub fn check_table_name(name: &TableName) -> Result<()> {
    check_directory_name(name.namespace())?;
    check_directory_name(name.qualifier())
}

/// Checks that regions can have rows in hbase:meta: a region's name is longer than its start key,
/// which may be as long as any row.
///
/// # Errors
/// Returns `DoNotRetryIOException` with HBase's message.
pub fn check_region_names<'a>(regions: impl IntoIterator<Item = &'a RegionInfo>) -> Result<()> {
    // A secondary replica has the row of its region.
    let regions = regions.into_iter().filter(|region| region.is_primary());
    match regions.map(|region| region.name().len()).find(|len| *len > ROW_BYTES_MAX) {
        Some(len) => reject(format!("Row length {len} is > {ROW_BYTES_MAX}")),
        None => Ok(()),
    }
}

/// Checks a table's descriptor.
///
/// # Errors
/// Returns `DoNotRetryIOException` with HBase's message.
pub fn check_table(table: &TableDescriptor, conf: &Configuration) -> Result<()> {
    check_but_formats(table, conf)?;
    if is_off(table, conf) { Ok(()) } else { table.families().try_for_each(check_formats) }
}

/// Checks everything but the formats of families' files.
fn check_but_formats(table: &TableDescriptor, conf: &Configuration) -> Result<()> {
    check_size(table)?;
    table.families().try_for_each(check_always)?;
    if is_off(table, conf) {
        return Ok(());
    }
    check_file_size(table, conf)?;
    check_flush_size(table, conf)?;
    evenkeel_region::region::split_policy::check_policy(table)?;
    if table.families().len() == 0 {
        return reject("Table should have at least one column family.".into());
    }
    let replication = number(table.text("REGION_REPLICATION"), "REGION_REPLICATION")?;
    if replication.is_some_and(|count| count < 1) {
        return reject("Table region replication should be at least one.".into());
    }
    if replication.is_some_and(|count| count > i64::from(REPLICAS_MAX)) {
        return reject(format!("Region Replication cannot exceed {REPLICAS_MAX}."));
    }
    if let Some(class) = coprocessor::unknown_class(table) {
        return reject(coprocessor::cannot_be_loaded(class));
    }
    evenkeel_region::store::check_classes(table).map_err(HBaseError::do_not_retry)?;
    table.families().try_for_each(check_family)
}

/// Returns a flag of a table, as `Boolean.parseBoolean` reads it; true if it is not set.
pub fn is_on(table: &TableDescriptor, flag: &str) -> bool {
    table.text(flag).is_none_or(|value| value.eq_ignore_ascii_case("true"))
}

fn is_off(table: &TableDescriptor, conf: &Configuration) -> bool {
    let of_table = table.text(CHECKS).map(|v| v.eq_ignore_ascii_case("false"));
    of_table.unwrap_or_else(|| conf.get_bool_or(CHECKS, true).is_ok_and(|on| !on))
}

/// Returns a size: the table's attribute `own`, or else the setting `key` of the table, or else of
/// the server. HBase reads its settings with those of the table over them.
fn size_of(
    table: &TableDescriptor,
    conf: &Configuration,
    own: Option<&str>,
    key: &str,
    default: i64,
) -> Result<i64> {
    for key in own.into_iter().chain([key]) {
        if let Some(bytes) = number(table.text(key), key)? {
            return Ok(bytes);
        }
    }
    conf.get_size_or(key, default).map_err(|e| HBaseError::do_not_retry(e.to_string()))
}

fn check_file_size(table: &TableDescriptor, conf: &Configuration) -> Result<()> {
    let size = |own, key| size_of(table, conf, own, key, MAX_FILE_BYTES_MIN);
    let bytes = size(Some("MAX_FILESIZE"), "hbase.hregion.max.filesize")?;
    if bytes < size(None, "hbase.hregion.max.filesize.limit")? {
        return reject(format!(
            "MAX_FILESIZE for table descriptor or \"hbase.hregion.max.filesize\" ({bytes}) is too small, which \
             might cause over splitting into unmanageable number of regions."
        ));
    }
    Ok(())
}

/// Checks the table's flush size, or the server's if the table has none.
fn check_flush_size(table: &TableDescriptor, conf: &Configuration) -> Result<()> {
    let size = |own, key| size_of(table, conf, own, key, FLUSH_BYTES_MIN);
    let bytes = size(Some("MEMSTORE_FLUSHSIZE"), "hbase.hregion.memstore.flush.size")?;
    if bytes < size(None, "hbase.hregion.memstore.flush.size.limit")? {
        return reject(format!(
            "MEMSTORE_FLUSHSIZE for table descriptor or \"hbase.hregion.memstore.flush.size\" ({bytes}) is too small, \
             which might cause very frequent flushing."
        ));
    }
    Ok(())
}

fn check_family(family: &ColumnFamilyDescriptor) -> Result<()> {
    let name = family.name_text();
    let attribute =
        |key: &str, default: i64| Ok::<_, HBaseError>(number(family.text(key), key)?.unwrap_or(default));
    if family.text("TTL").is_none_or(|t| !t.eq_ignore_ascii_case("FOREVER")) && attribute("TTL", 1)? <= 0 {
        return reject(format!("TTL for column family {name} must be positive."));
    }
    if !(1024..=16 << 20).contains(&attribute("BLOCKSIZE", 65536)?) {
        return reject(format!("Block size for column family {name}  must be between 1K and 16MB."));
    }
    let (min, max) = (attribute("MIN_VERSIONS", 0)?, attribute("VERSIONS", 1)?);
    if min < 0 {
        return reject(format!("Min versions for column family {name}  must be positive."));
    }
    if max < 1 {
        return reject(format!("Max versions for column family {name} must be positive."));
    }
    if min > max {
        return reject(format!("Min versions for column family {name} must be less than the Max versions."));
    }
    if !(0..=2).contains(&attribute("REPLICATION_SCOPE", 0)?) {
        let scope = family.scope();
        return reject(format!("Replication scope for column family {name} is {scope} which is invalid."));
    }
    if attribute("DFS_REPLICATION", 0)? < 0 {
        return reject(format!("HFile Replication for column family {name}  must be greater than zero."));
    }
    Ok(())
}

fn compaction_compressions(family: &ColumnFamilyDescriptor) -> [&str; 2] {
    [false, true].map(|is_major| family.compaction_compression(is_major))
}

/// Rejects a format that this server cannot write here rather than at the first flush.
fn check_formats(family: &ColumnFamilyDescriptor) -> Result<()> {
    const COMPRESSIONS: [&str; 6] = ["NONE", "GZ", "SNAPPY", "LZ4", "ZSTD", "BZIP2"];
    const ENCODINGS: [&str; 5] = ["NONE", "PREFIX", "DIFF", "FAST_DIFF", "ROW_INDEX_V1"];
    const BLOOMS: [&str; 4] = ["NONE", "ROW", "ROWCOL", "ROWPREFIX_FIXED_LENGTH"];
    let one_of = |what: &str, value: &str, all: &[&str]| {
        let known = all.iter().any(|known| known.eq_ignore_ascii_case(value));
        if known { Ok(()) } else { reject(format!("{what} {value} is not supported")) }
    };
    let compressions = [family.compression()].into_iter().chain(compaction_compressions(family));
    for name in compressions {
        one_of("Compression algorithm", name, &COMPRESSIONS)?;
    }
    one_of("Data block encoding", family.data_block_encoding(), &ENCODINGS)?;
    one_of("Bloom filter type", family.bloom_type(), &BLOOMS)?;
    if family.bloom_type().eq_ignore_ascii_case("ROWPREFIX_FIXED_LENGTH") {
        let key = "RowPrefixBloomFilter.prefix_length";
        if number(family.row_prefix_bloom_length(), key)?.is_none_or(|n| n <= 0) {
            return reject("Failed to get bloom filter param".into());
        }
    }
    Ok(())
}

/// Checks the name of a new family, regardless of `hbase.table.sanity.checks`. It is that of a
/// directory. In HBase, families whose names are not UTF-8 may share one.
fn check_family_name(family: &ColumnFamilyDescriptor) -> Result<()> {
    if std::str::from_utf8(family.name()).is_err() {
        let name = family.name().escape_ascii();
        return Err(HBaseError::do_not_retry(format!("Column Family names must be UTF-8: {name}")));
    }
    Ok(())
}

/// Checks of a family that `hbase.table.sanity.checks` does not switch off.
fn check_always(family: &ColumnFamilyDescriptor) -> Result<()> {
    if family.text("ENCRYPTION").is_some_and(|v| !v.is_empty()) {
        let message = format!("Encryption of column family {} is not supported", family.name_text());
        return Err(HBaseError::do_not_retry(message));
    }
    Ok(())
}

fn number(text: Option<&str>, key: &str) -> Result<Option<i64>> {
    let parsed = text.map(|t| t.trim().parse());
    parsed
        .transpose()
        .map_err(|_| HBaseError::do_not_retry(format!("{key} is not a number: {}", text.unwrap_or_default())))
}

fn reject<T>(message: String) -> Result<T> {
    Err(HBaseError::do_not_retry(format!(
        "{message} Set {CHECKS} to false at conf or table descriptor if you want to bypass sanity checks"
    )))
}

/// Sorts split keys. The returned keys do not share the bytes of the request, which the infos of
/// regions would keep.
///
/// # Errors
/// Returns `DoNotRetryIOException` with the message of HBase's `IllegalArgumentException` for an
/// empty or repeated key; also for too many keys or too many bytes of them.
pub fn sorted_splits(splits: &[Bytes]) -> Result<Vec<Bytes>> {
    let illegal = |message: &str| Err(HBaseError::new(ErrorKind::DoNotRetry, message));
    let (count, bytes) = (splits.len(), splits.iter().map(Bytes::len).sum::<usize>());
    if count > SPLITS_MAX || bytes > SPLIT_BYTES_MAX {
        return illegal(&format!(
            "{count} split keys of {bytes} bytes are more than one request may have: {SPLITS_MAX}, of {SPLIT_BYTES_MAX} bytes"
        ));
    }
    let mut splits: Vec<_> = splits.iter().map(|key| Bytes::copy_from_slice(key)).collect();
    splits.sort();
    if splits.first().is_some_and(|key| key.is_empty()) {
        return illegal("Empty split key must not be passed in the split keys.");
    }
    match splits.iter().zip(splits.iter().skip(1)).find(|(key, next)| key == next) {
        Some((key, _)) => {
            illegal(&format!("All split keys must be unique, found duplicate: {}", key.escape_ascii()))
        }
        None => Ok(splits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_of(family: ColumnFamilyDescriptor) -> TableDescriptor {
        TableDescriptor::new("t".parse().expect("legal")).with_family(family)
    }

    fn family() -> ColumnFamilyDescriptor {
        ColumnFamilyDescriptor::new(b"f").expect("legal")
    }

    #[test]
    fn invalid_table_descriptors_are_refused() {
        let conf = Configuration::new();
        assert!(check_table(&table_of(family()), &conf).is_ok());
        let bad = [
            ("TTL", "0"),
            ("TTL", "x"),
            ("BLOCKSIZE", "10"),
            ("VERSIONS", "0"),
            ("MIN_VERSIONS", "2"),
            ("COMPRESSION", "RAR"),
            ("DATA_BLOCK_ENCODING", "PREFIX_TREE"),
            ("BLOOMFILTER", "ROWPREFIX_FIXED_LENGTH"),
        ];
        for (key, value) in bad {
            assert!(check_table(&table_of(family().with(key, value)), &conf).is_err(), "{key}={value}");
        }
        assert!(check_table(&TableDescriptor::new("t".parse().expect("legal")), &conf).is_err());
        let small = table_of(family()).with("MEMSTORE_FLUSHSIZE", "1000");
        assert!(check_table(&small, &conf).is_err());
        assert!(check_table(&small.with(CHECKS, "false"), &conf).is_ok());
    }

    #[test]
    fn families_with_removed_encodings_can_be_altered_one_by_one() {
        let family = |name: &[u8], encoding: &str| {
            let family = ColumnFamilyDescriptor::new(name).expect("legal");
            family.with("DATA_BLOCK_ENCODING", encoding)
        };
        let table = |of_a, of_b| {
            TableDescriptor::new("t".parse().expect("legal"))
                .with_family(family(b"a", of_a))
                .with_family(family(b"b", of_b))
        };
        let (before, conf) = (table("PREFIX_TREE", "PREFIX_TREE"), Configuration::new());
        assert!(check_table(&before, &conf).is_err());
        assert!(check_altered_table(&table("DIFF", "PREFIX_TREE"), &before, &conf).is_ok());
        assert!(check_altered_table(&table("NONE", "UNHEARD"), &before, &conf).is_err());
        assert!(check_altered_table(&before, &table("DIFF", "DIFF"), &conf).is_err());
    }

    #[test]
    fn the_flush_size_of_the_server_is_checked_for_tables_without_one() {
        let mut conf = Configuration::new();
        conf.set("hbase.hregion.memstore.flush.size", "512k");
        let table = || table_of(family());
        let error = check_table(&table(), &conf).expect_err("too small");
        assert!(error.message().contains("(524288) is too small"), "{error}");
        assert!(check_table(&table().with("MEMSTORE_FLUSHSIZE", "1048576"), &conf).is_ok());
        assert!(check_table(&table().with("MEMSTORE_FLUSHSIZE", "-1"), &conf).is_err());
        assert!(check_table(&table().with("hbase.hregion.memstore.flush.size.limit", "1024"), &conf).is_ok());
        assert!(check_table(&table().with("hbase.hregion.memstore.flush.size", "2097152"), &conf).is_ok());
        conf.set("hbase.hregion.memstore.flush.size.limit", "524288");
        assert!(check_table(&table(), &conf).is_ok());
    }

    #[test]
    fn names_without_a_directory_and_encryption_are_always_refused() {
        let illegal = || ColumnFamilyDescriptor::new(b"\xff").expect("legal in HBase");
        for checks in ["true", "false"] {
            let refused = |family: ColumnFamilyDescriptor| {
                check_new_table(&table_of(family).with(CHECKS, checks), &Configuration::new()).is_err()
            };
            assert!(
                !refused(family()) && !refused(ColumnFamilyDescriptor::new("ä".as_bytes()).expect("legal"))
            );
            assert!(refused(family().with("ENCRYPTION", "AES")), "{checks}");
            assert!(refused(illegal()), "{checks}");
        }
        // A root directory of HBase may have such a table: it can be altered.
        let (before, conf) = (table_of(illegal()), Configuration::new());
        let changed = before.clone().with("MAX_FILESIZE", "4194304");
        assert!(check_altered_table(&changed, &before, &conf).is_ok());
        let with_another =
            before.clone().with_family(ColumnFamilyDescriptor::new(b"\xfe").expect("legal in HBase"));
        assert!(check_altered_table(&with_another, &before, &conf).is_err());
    }

    #[test]
    fn coprocessors_that_cannot_be_loaded_are_refused() {
        let conf = Configuration::new();
        let table = |class: &str| table_of(family()).with("coprocessor$1", &format!("|{class}|1|"));
        assert!(
            check_table(&table("org.apache.hadoop.hbase.coprocessor.AggregateImplementation"), &conf).is_ok()
        );
        let foreign = table("com.example.Observer");
        let error = check_table(&foreign, &conf).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::DoNotRetry);
        assert!(error.message().starts_with("Class com.example.Observer cannot be loaded Set "), "{error}");
        assert!(check_table(&foreign.with(CHECKS, "false"), &conf).is_ok());
    }

    #[test]
    fn splits_are_sorted_and_distinct() {
        let keys =
            |keys: &[&'static str]| keys.iter().map(|k| Bytes::from_static(k.as_bytes())).collect::<Vec<_>>();
        assert_eq!(sorted_splits(&keys(&["b", "a"])), Ok(keys(&["a", "b"])));
        assert!(sorted_splits(&keys(&["a", "a"])).is_err());
        assert!(sorted_splits(&keys(&["", "a"])).is_err());
    }

    #[test]
    fn splits_are_limited_and_keep_nothing_of_the_request() {
        let frame = Bytes::from(vec![b'k'; SPLIT_BYTES_MAX + 1]);
        let key = |at: usize| Bytes::from(format!("{at:08}"));
        let many: Vec<_> = (0..=SPLITS_MAX).map(key).collect();
        assert!(sorted_splits(&many).is_err_and(|error| error.is_do_not_retry()));
        assert!(sorted_splits(&many[1..]).is_ok());
        assert!(sorted_splits(std::slice::from_ref(&frame)).is_err_and(|error| error.is_do_not_retry()));
        let sorted = sorted_splits(&[frame.slice(..10)]).expect("legal");
        assert!(!frame.as_ptr_range().contains(&sorted[0].as_ptr()));
    }

    #[test]
    fn table_descriptors_are_limited() {
        let conf = Configuration::new();
        let large = "v".repeat(DESCRIPTOR_BYTES_MAX / 2);
        let table = table_of(family().with("A", &large)).with(CHECKS, "false");
        assert!(check_table(&table, &conf).is_ok());
        let error = check_table(&table.clone().with("B", &large), &conf).expect_err("refused");
        assert!(error.is_do_not_retry() && error.message().contains("table t "), "{error}");
        let name = |at: usize| (format!("{at:x}").into_bytes(), Vec::new());
        let many = (0..DESCRIPTOR_BYTES_MAX / ATTRIBUTE_BYTES).map(name).collect();
        assert!(check_size(&table_of(family()).with_attributes(many)).is_err());
        let named = |len| TableDescriptor::new("t".repeat(len).parse().expect("legal")).with_family(family());
        assert!(check_new_table(&named(255), &conf).is_ok());
        assert!(check_new_table(&named(256), &conf).is_err_and(|error| error.is_do_not_retry()));
    }
}
