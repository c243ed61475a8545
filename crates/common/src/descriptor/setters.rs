//! Typed setters. They write HBase's attribute names and value texts
//! (`ColumnFamilyDescriptorBuilder`, `TableDescriptorBuilder`), which a stock client can read.
//! `with` sets any other attribute.

use std::fmt;

use super::{ColumnFamilyDescriptor, Durability, KeepDeletedCells, TTL_FOREVER, TableDescriptor};

/// Defines enums whose variants have names in HBase's descriptors.
macro_rules! named {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum $name { $($(#[$variant_doc])* $variant,)* }

            impl fmt::Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(match self { $(Self::$variant => $text,)* })
                }
            }
        )*
    };
}

named! {
    /// Compression of blocks (`Compression.Algorithm`). A server need not support all of them.
    Compression {
        /// No compression.
        None = "NONE",
        /// Deflate with gzip's frame.
        Gz = "GZ",
        /// Snappy.
        Snappy = "SNAPPY",
        /// LZ4.
        Lz4 = "LZ4",
        /// Zstandard.
        Zstd = "ZSTD",
        /// BZip2.
        Bzip2 = "BZIP2",
        /// LZO.
        Lzo = "LZO",
        /// LZMA.
        Lzma = "LZMA",
        /// Brotli.
        Brotli = "BROTLI",
    }
    /// Encoding of the keys within a block (`DataBlockEncoding`).
    BlockEncoding {
        /// Whole.
        None = "NONE",
        /// Keys without the prefix shared with the previous key.
        Prefix = "PREFIX",
        /// Differences in every field.
        Diff = "DIFF",
        /// Differences, in a format that decodes faster.
        FastDiff = "FAST_DIFF",
        /// Whole keys, with an index of rows.
        RowIndexV1 = "ROW_INDEX_V1",
    }
    /// The keys of bloom filters (`BloomType`).
    Bloom {
        /// No bloom filters.
        None = "NONE",
        /// Rows.
        Row = "ROW",
        /// Rows with qualifiers.
        RowCol = "ROWCOL",
    }
    /// In-memory compaction of a MemStore (`MemoryCompactionPolicy`).
    InMemoryCompaction {
        /// No in-memory compaction.
        None = "NONE",
        /// Merges the indexes of flattened segments.
        Basic = "BASIC",
        /// As `Basic`, and drops cells that no read can return.
        Eager = "EAGER",
        /// Chooses between `Basic` and `Eager` by their benefit.
        Adaptive = "ADAPTIVE",
    }
}

impl ColumnFamilyDescriptor {
    /// Sets how many versions of a column are kept.
    pub fn with_max_versions(self, versions: u32) -> Self {
        self.with("VERSIONS", &versions.to_string())
    }

    /// Sets how many versions of a column are kept although they are older than the TTL.
    pub fn with_min_versions(self, versions: u32) -> Self {
        self.with("MIN_VERSIONS", &versions.to_string())
    }

    /// Sets the TTL of cells in seconds; `None` means forever.
    pub fn with_ttl_seconds(self, seconds: Option<u32>) -> Self {
        let forever = TTL_FOREVER.unsigned_abs();
        self.with("TTL", &seconds.unwrap_or(forever).min(forever).to_string())
    }

    /// Sets whether deleted cells are kept.
    pub fn with_keep_deleted_cells(self, keep: KeepDeletedCells) -> Self {
        self.with(
            "KEEP_DELETED_CELLS",
            match keep {
                KeepDeletedCells::False => "FALSE",
                KeepDeletedCells::True => "TRUE",
                KeepDeletedCells::Ttl => "TTL",
            },
        )
    }

    /// Sets whether a delete hides only versions written before it.
    pub fn with_new_version_behavior(self, on: bool) -> Self {
        self.with("NEW_VERSION_BEHAVIOR", &on.to_string())
    }

    /// Sets the compression of blocks.
    pub fn with_compression(self, compression: Compression) -> Self {
        self.with("COMPRESSION", &compression.to_string())
    }

    /// Sets the compression of compacted files, if it differs from that of flushed ones.
    pub fn with_compaction_compression(self, compression: Compression) -> Self {
        self.with("COMPRESSION_COMPACT", &compression.to_string())
    }

    /// Sets the encoding of keys within blocks.
    pub fn with_block_encoding(self, encoding: BlockEncoding) -> Self {
        self.with("DATA_BLOCK_ENCODING", &encoding.to_string())
    }

    /// Sets the bytes of a block before encoding and compression.
    pub fn with_block_bytes(self, bytes: u32) -> Self {
        self.with("BLOCKSIZE", &bytes.to_string())
    }

    /// Sets the type of bloom filters.
    pub fn with_bloom(self, bloom: Bloom) -> Self {
        self.with("BLOOMFILTER", &bloom.to_string())
    }

    /// Sets bloom filters on the first `bytes` bytes of rows.
    pub fn with_prefix_bloom(mut self, bytes: u32) -> Self {
        self.configuration.insert("RowPrefixBloomFilter.prefix_length".to_owned(), bytes.to_string());
        self.with("BLOOMFILTER", "ROWPREFIX_FIXED_LENGTH")
    }

    /// Sets whether reads cache data blocks.
    pub fn with_block_cache(self, on: bool) -> Self {
        self.with("BLOCKCACHE", &on.to_string())
    }

    /// Sets whether blocks are cached with the in-memory priority.
    pub fn with_in_memory(self, on: bool) -> Self {
        self.with("IN_MEMORY", &on.to_string())
    }

    /// Sets the in-memory compaction of MemStores.
    pub fn with_in_memory_compaction(self, policy: InMemoryCompaction) -> Self {
        self.with("IN_MEMORY_COMPACTION", &policy.to_string())
    }

    /// Sets whether data blocks are cached when they are written.
    pub fn with_cache_data_on_write(self, on: bool) -> Self {
        self.with("CACHE_DATA_ON_WRITE", &on.to_string())
    }

    /// Sets whether blocks are evicted from the block cache when their file is closed.
    pub fn with_evict_blocks_on_close(self, on: bool) -> Self {
        self.with("EVICT_BLOCKS_ON_CLOSE", &on.to_string())
    }

    /// Sets whether blocks are prefetched into the block cache when their file is opened.
    pub fn with_prefetch_on_open(self, on: bool) -> Self {
        self.with("PREFETCH_BLOCKS_ON_OPEN", &on.to_string())
    }

    /// Sets the replication scope: 1 replicates edits to other clusters, 0 does not.
    pub fn with_replication_scope(self, scope: u32) -> Self {
        self.with("REPLICATION_SCOPE", &scope.to_string())
    }

    /// Sets a key of `hbase-site.xml` for this family.
    pub fn with_setting(mut self, key: &str, value: &str) -> Self {
        self.configuration.insert(key.to_owned(), value.to_owned());
        self
    }
}

impl TableDescriptor {
    /// Sets the bytes of a store at which its region splits.
    pub fn with_max_file_bytes(self, bytes: u64) -> Self {
        self.with("MAX_FILESIZE", &bytes.to_string())
    }

    /// Sets the MemStore bytes at which a region flushes.
    pub fn with_memstore_flush_bytes(self, bytes: u64) -> Self {
        self.with("MEMSTORE_FLUSHSIZE", &bytes.to_string())
    }

    /// Sets the durability of writes with [`Durability::UseDefault`].
    pub fn with_durability(self, durability: Durability) -> Self {
        self.with(
            "DURABILITY",
            match durability {
                Durability::UseDefault => "USE_DEFAULT",
                Durability::SkipWal => "SKIP_WAL",
                Durability::AsyncWal => "ASYNC_WAL",
                Durability::SyncWal => "SYNC_WAL",
                Durability::FsyncWal => "FSYNC_WAL",
            },
        )
    }

    /// Sets whether files may be compacted.
    pub fn with_compaction_enabled(self, on: bool) -> Self {
        self.with("COMPACTION_ENABLED", &on.to_string())
    }

    /// Sets whether regions may be split.
    pub fn with_split_enabled(self, on: bool) -> Self {
        self.with("SPLIT_ENABLED", &on.to_string())
    }

    /// Sets whether regions may be merged.
    pub fn with_merge_enabled(self, on: bool) -> Self {
        self.with("MERGE_ENABLED", &on.to_string())
    }

    /// Sets whether the normalizer may split and merge regions.
    pub fn with_normalization_enabled(self, on: bool) -> Self {
        self.with("NORMALIZATION_ENABLED", &on.to_string())
    }

    /// Sets whether writes are rejected.
    pub fn with_read_only(self, on: bool) -> Self {
        self.with("READONLY", &on.to_string())
    }

    /// Sets the number of replicas of each region.
    pub fn with_region_replication(self, replicas: u32) -> Self {
        self.with("REGION_REPLICATION", &replicas.to_string())
    }

    /// Sets the Java class of the split policy.
    pub fn with_split_policy(self, class: &str) -> Self {
        self.with("SPLIT_POLICY", class)
    }

    /// Sets the Java class of the flush policy.
    pub fn with_flush_policy(self, class: &str) -> Self {
        self.with("FLUSH_POLICY", class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_setters_round_trip() {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let family = family.with_max_versions(3).with_min_versions(1).with_ttl_seconds(Some(60));
        let family = family.with_compression(Compression::Zstd).with_block_encoding(BlockEncoding::FastDiff);
        let family = family.with_bloom(Bloom::RowCol).with_block_bytes(8192).with_in_memory(true);
        let family = family.with_keep_deleted_cells(KeepDeletedCells::Ttl).with_block_cache(false);
        assert_eq!((family.max_versions(), family.min_versions(), family.ttl_ms()), (3, 1, 60_000));
        assert_eq!((family.compression(), family.data_block_encoding()), ("ZSTD", "FAST_DIFF"));
        assert_eq!((family.bloom_type(), family.block_bytes()), ("ROWCOL", 8192));
        assert!(family.in_memory() && !family.block_cache_enabled());
        assert_eq!(family.keep_deleted_cells(), KeepDeletedCells::Ttl);
        let forever = family.with_ttl_seconds(None).with_prefix_bloom(4);
        assert_eq!(forever.text("TTL"), Some("2147483647"));
        assert_eq!(forever.configuration()["RowPrefixBloomFilter.prefix_length"], "4");
    }

    #[test]
    fn table_setters_round_trip() {
        let table = TableDescriptor::new("t".parse().expect("legal"));
        let table = table.with_durability(Durability::AsyncWal).with_compaction_enabled(false);
        let table =
            table.with_read_only(true).with_memstore_flush_bytes(1 << 20).with_max_file_bytes(1 << 30);
        assert_eq!((table.durability(), table.is_compaction_enabled()), (Durability::AsyncWal, false));
        assert!(table.is_read_only());
        assert_eq!(table.memstore_flush_bytes(), Some(1 << 20));
        assert_eq!(table.text("MAX_FILESIZE"), Some("1073741824"));
    }
}
