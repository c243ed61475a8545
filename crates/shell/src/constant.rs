//! The shell's constants: capitalised words that evaluate to their name, so that keys of hashes
//! need no quotes.

/// Constants with a value other than their name.
const OTHERS: &[(&str, &str)] =
    &[("ENDKEY", "STOPROW"), ("ENDROW", "STOPROW"), ("STARTKEY", "STARTROW"), ("MAX_VERSIONS", "VERSIONS")];

/// All constants but [`OTHERS`]: those of `hbase_constants.rb`, and those that it takes from
/// HBase's descriptor classes.
pub const NAMES: &[&str] = &[
    "ALLOW_PARTIAL_RESULTS",
    "ALL_METRICS",
    "ATTRIBUTES",
    "AUTHORIZATIONS",
    "BATCH",
    "BLOCKCACHE",
    "BLOCKSIZE",
    "BLOOMFILTER",
    "CACHE",
    "CACHE_BLOCKS",
    "CACHE_BLOOMS_ON_WRITE",
    "CACHE_DATA_IN_L1",
    "CACHE_DATA_ON_WRITE",
    "CACHE_INDEX_ON_WRITE",
    "CLONE_SFT",
    "CLUSTER_KEY",
    "COLUMN",
    "COLUMNS",
    "COMPACTION_ENABLED",
    "COMPRESSION",
    "COMPRESSION_COMPACT",
    "COMPRESSION_COMPACT_MAJOR",
    "COMPRESSION_COMPACT_MINOR",
    "COMPRESS_TAGS",
    "CONFIG",
    "CONFIGURATION",
    "CONSISTENCY",
    "DATA",
    "DATA_BLOCK_ENCODING",
    "DFS_REPLICATION",
    "DURABILITY",
    "ENCODE_ON_DISK",
    "ENCRYPTION",
    "ENCRYPTION_KEY",
    "ENDPOINT_CLASSNAME",
    "ERASURE_CODING_POLICY",
    "EVICT_BLOCKS_ON_CLOSE",
    "FILTER",
    "FLUSH_POLICY",
    "FOREVER",
    "FORMATTER",
    "FORMATTER_CLASS",
    "INDEX_BLOCK_ENCODING",
    "INTERVAL",
    "IN_MEMORY",
    "IN_MEMORY_COMPACTION",
    "ISOLATION_LEVEL",
    "IS_META",
    "IS_MOB",
    "IS_ROOT",
    "KEEP_DELETED_CELLS",
    "LENGTH",
    "LIMIT",
    "LOCALITY_THRESHOLD",
    "MAXLENGTH",
    "MAX_FILESIZE",
    "MAX_RESULT_SIZE",
    "MEMSTORE_FLUSHSIZE",
    "MERGE_ENABLED",
    "METADATA",
    "METHOD",
    "METRICS",
    "MIN_VERSIONS",
    "MOB_COMPACT_PARTITION_POLICY",
    "MOB_THRESHOLD",
    "NAME",
    "NAMESPACE",
    "NAMESPACES",
    "NEW_VERSION_BEHAVIOR",
    "NONE",
    "NORMALIZATION_ENABLED",
    "NORMALIZER_TARGET_REGION_COUNT",
    "NORMALIZER_TARGET_REGION_SIZE",
    "NUMREGIONS",
    "OWNER",
    "POLICY",
    "PREFETCH_BLOCKS_ON_OPEN",
    "PRIORITY",
    "RAW",
    "READONLY",
    "READ_TYPE",
    "REGEX",
    "REGIONSERVER",
    "REGION_MEMSTORE_REPLICATION",
    "REGION_REPLICATION",
    "REGION_REPLICA_ID",
    "REPLICATION_SCOPE",
    "RESTORE_ACL",
    "REVERSED",
    "ROWPREFIXFILTER",
    "SERIAL",
    "SERVER_NAME",
    "SKIP_FLUSH",
    "SPLITALGO",
    "SPLITS",
    "SPLITS_FILE",
    "SPLIT_ENABLED",
    "SPLIT_POLICY",
    "STARTROW",
    "STATE",
    "STOPROW",
    "STORAGE_POLICY",
    "TABLE",
    "TABLE_CFS",
    "TABLE_NAME",
    "TABLE_NAMES",
    "TIMERANGE",
    "TIMESTAMP",
    "TTL",
    "TYPE",
    "USER",
    "VALUE",
    "VERSIONS",
    "VISIBILITY",
];

/// The value of a constant; `None` if there is none of that name.
pub fn value_of(name: &str) -> Option<&'static str> {
    let other = OTHERS.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
    other.or_else(|| NAMES.binary_search(&name).ok().map(|at| NAMES[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        assert!(NAMES.is_sorted());
        assert!(NAMES.iter().all(|name| value_of(name) == Some(name)));
        assert_eq!((value_of("ENDROW"), value_of("BOGUS")), (Some("STOPROW"), None));
    }
}
