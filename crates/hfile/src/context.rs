//! [`HFileContext`]: the settings of a file being written, and HBase's names for them.

use evenkeel_common::CellComparator;
pub use evenkeel_compression::Compression;

use crate::bloom::BloomHash;

macro_rules! named {
    ($(#[$doc:meta])* $type:ident { $($(#[$vdoc:meta])* $variant:ident = $name:literal, $code:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $type { $($(#[$vdoc])* $variant,)* }

        impl $type {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// HBase's name, as in a column family's attributes.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The number in files.
            pub const fn code(self) -> u32 {
                match self { $(Self::$variant => $code,)* }
            }

            /// The value with this name, ignoring case.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name().eq_ignore_ascii_case(name))
            }

            /// The value with this number.
            pub fn from_code(code: u32) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.code() == code)
            }
        }
    };
}

named! {
    /// The encoding of cells in a data block (`DATA_BLOCK_ENCODING`). The code is the id in an
    /// encoded block.
    DataBlockEncoding {
        /// Whole cells.
        None = "NONE", 0;
        /// Only the difference from the previous key.
        Prefix = "PREFIX", 2;
        /// As PREFIX, with differences of lengths, timestamps and types.
        Diff = "DIFF", 3;
        /// As DIFF, without repeated values, and with simpler flags.
        FastDiff = "FAST_DIFF", 4;
        /// Whole cells, with an index of the rows.
        RowIndexV1 = "ROW_INDEX_V1", 7;
    }
}

named! {
    /// The checksum after each block (`hbase.hstore.checksum.algorithm`).
    ChecksumType {
        /// Zeros, which are not verified.
        Null = "NULL", 0;
        /// CRC-32 (IEEE).
        Crc32 = "CRC32", 1;
        /// CRC-32C (Castagnoli).
        Crc32C = "CRC32C", 2;
    }
}

/// The content of a file's general bloom filter (`BLOOMFILTER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BloomType {
    /// There is no filter.
    None,
    /// Rows.
    Row,
    /// Rows with columns.
    RowCol,
    /// Row prefixes of this number of bytes, at least 1.
    RowPrefix(u32),
}

impl BloomType {
    /// HBase's name, without the prefix length, which HBase stores separately.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Row => "ROW",
            Self::RowCol => "ROWCOL",
            Self::RowPrefix(_) => "ROWPREFIX_FIXED_LENGTH",
        }
    }

    /// The type with this name, of any case. Row prefixes need the prefix length
    /// (`RowPrefixBloomFilter.prefix_length`).
    pub fn from_name(name: &str, prefix_bytes: Option<u32>) -> Option<Self> {
        match &*name.to_ascii_uppercase() {
            "NONE" => Some(Self::None),
            "ROW" => Some(Self::Row),
            "ROWCOL" => Some(Self::RowCol),
            "ROWPREFIX_FIXED_LENGTH" => prefix_bytes.filter(|n| *n > 0).map(Self::RowPrefix),
            _ => None,
        }
    }
}

/// The settings of a file being written. `Default` has HBase's defaults.
#[derive(Clone, Debug)]
pub struct HFileContext {
    /// `DATA_BLOCK_ENCODING`.
    pub encoding: DataBlockEncoding,
    /// `COMPRESSION`.
    pub compression: Compression,
    /// Write ZSTD in the block framing of hbase-compression-zstd's codec
    /// (`hbase.io.compress.zstd.codec`) instead of Hadoop's format. Readers accept both.
    pub zstd_framed: bool,
    /// `BLOCKSIZE`: a data block that has reached this size ends before the next cell.
    pub block_bytes: usize,
    /// `hbase.hstore.checksum.algorithm`.
    pub checksum: ChecksumType,
    /// `hbase.hstore.bytes.per.checksum`, at least the 33 bytes of a block header.
    pub bytes_per_checksum: u32,
    /// Write each cell's sequence id.
    pub includes_mvcc: bool,
    /// Write each cell's tags.
    pub includes_tags: bool,
    /// `COMPRESS_TAGS`: compress tags with a dictionary, in PREFIX, DIFF and FAST_DIFF.
    pub compress_tags: bool,
    /// The order of the cells.
    pub comparator: CellComparator,
    /// `BLOOMFILTER`.
    pub bloom: BloomType,
    /// `io.storefile.delete.family.bloom.enabled`.
    pub delete_family_bloom: bool,
    /// `io.storefile.bloom.block.size`: bytes of a full chunk.
    pub bloom_block_bytes: usize,
    /// `io.storefile.bloom.error.rate`.
    pub bloom_error_rate: f32,
    /// `io.storefile.bloom.max.fold`: a chunk's size is a multiple of 2 to this power, so it can be
    /// folded.
    pub bloom_fold_max: u32,
    /// `hbase.hash.type`.
    pub bloom_hash: BloomHash,
    /// `hfile.index.block.max.size`.
    pub index_block_bytes_max: usize,
    /// `hfile.index.block.min.entries`.
    pub index_block_entries_min: usize,
    /// The creation time in milliseconds since 1970, from the caller's clock.
    pub create_time_ms: i64,
    /// `DFS_REPLICATION`: the number of DataNodes that store the file; 0 for the default of HDFS.
    pub dfs_replication: u16,
}

impl Default for HFileContext {
    fn default() -> Self {
        Self {
            encoding: DataBlockEncoding::None,
            compression: Compression::None,
            zstd_framed: false,
            block_bytes: 64 << 10,
            checksum: ChecksumType::Crc32C,
            bytes_per_checksum: 16 << 10,
            includes_mvcc: true,
            includes_tags: false,
            compress_tags: false,
            comparator: CellComparator::Default,
            bloom: BloomType::Row,
            delete_family_bloom: true,
            bloom_block_bytes: 128 << 10,
            bloom_error_rate: 0.01,
            bloom_fold_max: 7,
            bloom_hash: BloomHash::Murmur,
            index_block_bytes_max: 128 << 10,
            index_block_entries_min: 16,
            create_time_ms: 0,
            dfs_replication: 0,
        }
    }
}

impl HFileContext {
    /// The layout of cells in this file's data blocks.
    pub(crate) fn layout(&self) -> CellLayout {
        let delta = matches!(
            self.encoding,
            DataBlockEncoding::Prefix | DataBlockEncoding::Diff | DataBlockEncoding::FastDiff
        );
        CellLayout {
            encoding: self.encoding,
            includes_tags: self.includes_tags,
            includes_mvcc: self.includes_mvcc,
            compressed_tags: self.includes_tags && self.compress_tags && delta,
        }
    }
}

/// The layout of cells in the data blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellLayout {
    pub encoding: DataBlockEncoding,
    pub includes_tags: bool,
    pub includes_mvcc: bool,
    pub compressed_tags: bool,
}
