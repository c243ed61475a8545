//! Typed setters: an attribute's name and the text of its value are HBase's (`ColumnFamilyDescriptorBuilder`,
//! `TableDescriptorBuilder`), so that a stock client reads what they set. For any other attribute there is `with`.

use std::fmt;

use super::{ColumnFamilyDescriptor, Durability, KeepDeletedCells, TTL_FOREVER, TableDescriptor};

/// Enums whose variants have names in HBase's descriptors.
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
    /// How blocks of files are compressed (`Compression.Algorithm`); a server need not have all of them.
    Compression {
        /// Not.
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
    /// How keys within a block are written (`DataBlockEncoding`).
    BlockEncoding {
        /// Whole.
        None = "NONE",
        /// Without the prefix that a key shares with the one before.
        Prefix = "PREFIX",
        /// As differences in every field.
        Diff = "DIFF",
        /// As differences, for faster reading.
        FastDiff = "FAST_DIFF",
        /// Whole, with an index of rows.
        RowIndexV1 = "ROW_INDEX_V1",
    }
    /// What bloom filters hold (`BloomType`).
    Bloom {
        /// There are none.
        None = "NONE",
        /// Rows.
        Row = "ROW",
        /// Rows with qualifiers.
        RowCol = "ROWCOL",
    }
    /// How a MemStore compacts itself in memory (`MemoryCompactionPolicy`).
    InMemoryCompaction {
        /// Not.
        None = "NONE",
        /// Indexes of flattened segments are merged.
        Basic = "BASIC",
        /// Cells that will never be read are dropped, too.
        Eager = "EAGER",
        /// As it pays.
        Adaptive = "ADAPTIVE",
    }
}

impl ColumnFamilyDescriptor {
    /// Versions of a column that are kept.
    pub fn with_max_versions(self, versions: u32) -> Self {
        self.with("VERSIONS", &versions.to_string())
    }

    /// Versions of a column that are kept though they are older than the time to live.
    pub fn with_min_versions(self, versions: u32) -> Self {
        self.with("MIN_VERSIONS", &versions.to_string())
    }

    /// Seconds that cells live; `None`: for ever.
    pub fn with_ttl_seconds(self, seconds: Option<u32>) -> Self {
        let forever = TTL_FOREVER.unsigned_abs();
        self.with("TTL", &seconds.unwrap_or(forever).min(forever).to_string())
    }

    /// What becomes of deleted cells until a major compaction.
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

    /// Whether a delete hides only versions that were written before it.
    pub fn with_new_version_behavior(self, on: bool) -> Self {
        self.with("NEW_VERSION_BEHAVIOR", &on.to_string())
    }

    /// How blocks are compressed.
    pub fn with_compression(self, compression: Compression) -> Self {
        self.with("COMPRESSION", &compression.to_string())
    }

    /// How compactions compress blocks, when otherwise than flushes do.
    pub fn with_compaction_compression(self, compression: Compression) -> Self {
        self.with("COMPRESSION_COMPACT", &compression.to_string())
    }

    /// How keys within blocks are written.
    pub fn with_block_encoding(self, encoding: BlockEncoding) -> Self {
        self.with("DATA_BLOCK_ENCODING", &encoding.to_string())
    }

    /// Bytes of a block before encoding and compression.
    pub fn with_block_bytes(self, bytes: u32) -> Self {
        self.with("BLOCKSIZE", &bytes.to_string())
    }

    /// What bloom filters hold.
    pub fn with_bloom(self, bloom: Bloom) -> Self {
        self.with("BLOOMFILTER", &bloom.to_string())
    }

    /// Bloom filters of the first so many bytes of rows.
    pub fn with_prefix_bloom(mut self, bytes: u32) -> Self {
        self.configuration.insert("RowPrefixBloomFilter.prefix_length".to_owned(), bytes.to_string());
        self.with("BLOOMFILTER", "ROWPREFIX_FIXED_LENGTH")
    }

    /// Whether blocks are kept in the block cache.
    pub fn with_block_cache(self, on: bool) -> Self {
        self.with("BLOCKCACHE", &on.to_string())
    }

    /// Whether its blocks are preferred in the block cache.
    pub fn with_in_memory(self, on: bool) -> Self {
        self.with("IN_MEMORY", &on.to_string())
    }

    /// How its MemStores compact themselves.
    pub fn with_in_memory_compaction(self, policy: InMemoryCompaction) -> Self {
        self.with("IN_MEMORY_COMPACTION", &policy.to_string())
    }

    /// Whether data blocks go into the block cache as they are written.
    pub fn with_cache_data_on_write(self, on: bool) -> Self {
        self.with("CACHE_DATA_ON_WRITE", &on.to_string())
    }

    /// Whether blocks leave the block cache when their file is closed.
    pub fn with_evict_blocks_on_close(self, on: bool) -> Self {
        self.with("EVICT_BLOCKS_ON_CLOSE", &on.to_string())
    }

    /// Whether blocks are read into the block cache when their file is opened.
    pub fn with_prefetch_on_open(self, on: bool) -> Self {
        self.with("PREFETCH_BLOCKS_ON_OPEN", &on.to_string())
    }

    /// 1: edits go to other clusters; 0: they do not.
    pub fn with_replication_scope(self, scope: u32) -> Self {
        self.with("REPLICATION_SCOPE", &scope.to_string())
    }

    /// A setting of `hbase-site.xml`, for this family.
    pub fn with_setting(mut self, key: &str, value: &str) -> Self {
        self.configuration.insert(key.to_owned(), value.to_owned());
        self
    }
}

impl TableDescriptor {
    /// Bytes of a region's largest store that make it split.
    pub fn with_max_file_bytes(self, bytes: u64) -> Self {
        self.with("MAX_FILESIZE", &bytes.to_string())
    }

    /// Bytes of a MemStore that make its region flush.
    pub fn with_memstore_flush_bytes(self, bytes: u64) -> Self {
        self.with("MEMSTORE_FLUSHSIZE", &bytes.to_string())
    }

    /// When writes that ask for the table's durability are acknowledged.
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

    /// Whether files may be compacted.
    pub fn with_compaction_enabled(self, on: bool) -> Self {
        self.with("COMPACTION_ENABLED", &on.to_string())
    }

    /// Whether regions may be split.
    pub fn with_split_enabled(self, on: bool) -> Self {
        self.with("SPLIT_ENABLED", &on.to_string())
    }

    /// Whether regions may be merged.
    pub fn with_merge_enabled(self, on: bool) -> Self {
        self.with("MERGE_ENABLED", &on.to_string())
    }

    /// Whether the normalizer may split and merge regions.
    pub fn with_normalization_enabled(self, on: bool) -> Self {
        self.with("NORMALIZATION_ENABLED", &on.to_string())
    }

    /// Whether writes are refused.
    pub fn with_read_only(self, on: bool) -> Self {
        self.with("READONLY", &on.to_string())
    }

    /// Replicas of each region.
    pub fn with_region_replication(self, replicas: u32) -> Self {
        self.with("REGION_REPLICATION", &replicas.to_string())
    }

    /// The Java class that says when a region is split.
    pub fn with_split_policy(self, class: &str) -> Self {
        self.with("SPLIT_POLICY", class)
    }

    /// The Java class that says which families a flush writes.
    pub fn with_flush_policy(self, class: &str) -> Self {
        self.with("FLUSH_POLICY", class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_what_is_got() {
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
    fn tables_have_theirs() {
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
