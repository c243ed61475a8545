//! The trailer: the last bytes of a file, which a reader reads first.
//!
//! ```text
//! 'T' 'R' 'A' 'B' 'L' 'K' '"' '$' | varint length | FileTrailerProto | zeros
//! | u32 minor << 24 | major
//! ```
//!
//! It has 4096 bytes in version 3, and 212 in version 2. It has no checksum, so a reader checks
//! every number in it against the rest of the file.
//!
//! As HBase 2.6 (`HFileInfo.checkFileVersion`), a reader accepts version 3 of any minor, and
//! version 2 since minor 3, which HBase 0.98 and 1.x write. Version 2 with an earlier minor has
//! another trailer or other blocks, and is refused, as is version 1.

use evenkeel_common::CellComparator;
use evenkeel_protocol::pb::FileTrailerProto;
use prost::Message;

use crate::context::Compression;

const MAGIC: &[u8; 8] = b"TRABLK\"$";
/// Bytes of a version 3 trailer.
pub const TRAILER_BYTES: usize = 4096;
const V2_TRAILER_BYTES: usize = 212;
/// `HFileInfo.MIN_V2_MINOR_VERSION_WITH_PB`.
const V2_MINOR_MIN: u32 = 3;
const MAJOR: u32 = 3;
const MINOR: u32 = 3;
/// The maximum of levels of a data index. Writers stop at 16.
pub(crate) const INDEX_LEVELS_MAX: u32 = 17;
/// The maximum of a count of cells or bytes. Sums over all files of a server fit a `u64`.
const COUNT_MAX: u64 = 1 << 48;

/// The content of the trailer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// 2 or 3.
    pub major: u32,
    /// 3 in files of HBase 2.6.
    pub minor: u32,
    /// The offset of the FILE_INFO block.
    pub file_info_offset: u64,
    /// The offset of the load-on-open section: the end of all other blocks.
    pub load_on_open_offset: u64,
    /// Bytes of all data index blocks, uncompressed.
    pub uncompressed_data_index_bytes: u64,
    /// Bytes of the file, uncompressed.
    pub total_uncompressed_bytes: u64,
    /// Entries of the data index's root.
    pub data_index_count: u32,
    /// Entries of the meta index.
    pub meta_index_count: u32,
    /// The number of cells.
    pub entry_count: u64,
    /// Levels of the data index; 1 if its root refers to data blocks.
    pub data_index_levels: u32,
    /// The offset of the first data block; -1 if there is none.
    pub first_data_block_offset: i64,
    /// The offset of the last data block; -1 if there is none.
    pub last_data_block_offset: i64,
    /// The order of the cells.
    pub comparator: CellComparator,
    /// The compression of the blocks.
    pub compression: Compression,
}

impl Trailer {
    /// Bytes of the trailer.
    pub fn len(&self) -> usize {
        if self.major == 2 { V2_TRAILER_BYTES } else { TRAILER_BYTES }
    }

    /// Always false: a trailer has a fixed length.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Encodes the trailer in the newest version.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.to_proto().encode_length_delimited_to_vec());
        bytes.resize(TRAILER_BYTES - 4, 0);
        bytes.extend_from_slice(&(MINOR << 24 | MAJOR).to_be_bytes());
        bytes
    }

    /// Parses the trailer at the end of `tail`, which needs at most [`TRAILER_BYTES`]. The error
    /// describes the damage.
    pub(crate) fn parse(tail: &[u8]) -> Result<Self, String> {
        let version =
            tail.last_chunk::<4>().map(|b| u32::from_be_bytes(*b)).ok_or("too short for a trailer")?;
        let (major, minor) = (version & 0x00ff_ffff, version >> 24);
        let len = match major {
            3 => TRAILER_BYTES,
            2 if minor >= V2_MINOR_MIN => V2_TRAILER_BYTES,
            2 => return Err(refused_minor(minor)),
            _ => return Err(refused_major(major)),
        };
        let start = tail.len().checked_sub(len).ok_or("too short for a trailer")?;
        let body = tail.get(start..tail.len() - 4).and_then(|body| body.strip_prefix(MAGIC));
        let body = body.ok_or("no trailer magic")?;
        let proto = FileTrailerProto::decode_length_delimited(body).map_err(|e| e.to_string())?;
        Self::from_proto(&proto, major, minor)
    }

    fn to_proto(&self) -> FileTrailerProto {
        FileTrailerProto {
            file_info_offset: Some(self.file_info_offset),
            load_on_open_data_offset: Some(self.load_on_open_offset),
            uncompressed_data_index_size: Some(self.uncompressed_data_index_bytes),
            total_uncompressed_bytes: Some(self.total_uncompressed_bytes),
            data_index_count: Some(self.data_index_count),
            meta_index_count: Some(self.meta_index_count),
            entry_count: Some(self.entry_count),
            num_data_index_levels: Some(self.data_index_levels),
            first_data_block_offset: Some(self.first_data_block_offset as u64),
            last_data_block_offset: Some(self.last_data_block_offset as u64),
            comparator_class_name: Some(comparator_name(self.comparator).to_owned()),
            compression_codec: Some(self.compression.code()),
            encryption_key: None,
        }
    }

    fn from_proto(proto: &FileTrailerProto, major: u32, minor: u32) -> Result<Self, String> {
        if proto.encryption_key.is_some() {
            return Err("encrypted files are not supported".into());
        }
        let comparator = proto.comparator_class_name.as_deref().unwrap_or(DEFAULT_COMPARATOR);
        let codec = proto.compression_codec.unwrap_or(Compression::None.code());
        let trailer = Self {
            major,
            minor,
            file_info_offset: proto.file_info_offset(),
            load_on_open_offset: proto.load_on_open_data_offset(),
            uncompressed_data_index_bytes: proto.uncompressed_data_index_size(),
            total_uncompressed_bytes: proto.total_uncompressed_bytes(),
            data_index_count: proto.data_index_count(),
            meta_index_count: proto.meta_index_count(),
            entry_count: proto.entry_count(),
            data_index_levels: proto.num_data_index_levels(),
            first_data_block_offset: proto.first_data_block_offset() as i64,
            last_data_block_offset: proto.last_data_block_offset() as i64,
            comparator: parse_comparator(comparator)
                .ok_or_else(|| format!("unknown comparator {comparator:?}"))?,
            compression: Compression::from_code(codec)
                .ok_or_else(|| format!("unknown compression {codec}"))?,
        };
        let counts =
            [trailer.entry_count, trailer.total_uncompressed_bytes, trailer.uncompressed_data_index_bytes];
        if counts.iter().any(|count| *count > COUNT_MAX) {
            return Err(format!("impossible counts {counts:?}"));
        }
        let levels = 1..=INDEX_LEVELS_MAX;
        levels
            .contains(&trailer.data_index_levels)
            .then_some(trailer)
            .ok_or("impossible count of index levels".into())
    }
}

/// `HFile.checkFormatVersion`'s message.
fn refused_major(major: u32) -> String {
    format!("Invalid HFile version: {major} (expected to be between 2 and {MAJOR})")
}

/// `HFileInfo.checkFileVersion`'s message, without the path.
fn refused_minor(minor: u32) -> String {
    format!(
        "Invalid HFile version: major=2, minor={minor}: expected at least major=2 and minor={V2_MINOR_MIN}"
    )
}

const DEFAULT_COMPARATOR: &str = "org.apache.hadoop.hbase.KeyValue$KVComparator";

/// HBase 1's names, which HBase 2 writes too.
fn comparator_name(comparator: CellComparator) -> &'static str {
    match comparator {
        CellComparator::Default => DEFAULT_COMPARATOR,
        CellComparator::Meta => "org.apache.hadoop.hbase.KeyValue$MetaComparator",
    }
}

/// Accepts every name that some version wrote for one of the two orders
/// (`FixedFileTrailer.getComparatorClass`). HBase reads files with a comparator of bytes, which are
/// not store files, in the default order.
fn parse_comparator(name: &str) -> Option<CellComparator> {
    Some(match name.strip_prefix("org.apache.hadoop.hbase.")? {
        "KeyValue$KVComparator"
        | "KeyValue$KeyComparator"
        | "CellComparator"
        | "CellComparatorImpl"
        | "InnerStoreCellComparator"
        | "KeyValue$RawBytesComparator"
        | "util.Bytes$ByteArrayComparator" => CellComparator::Default,
        "KeyValue$MetaComparator"
        | "KeyValue$MetaKeyComparator"
        | "CellComparator$MetaCellComparator"
        | "CellComparatorImpl$MetaCellComparator"
        | "MetaCellComparator" => CellComparator::Meta,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trailer() -> Trailer {
        Trailer {
            major: 3,
            minor: 3,
            file_info_offset: 1000,
            load_on_open_offset: 900,
            uncompressed_data_index_bytes: 50,
            total_uncompressed_bytes: 5000,
            data_index_count: 2,
            meta_index_count: 0,
            entry_count: 70,
            data_index_levels: 1,
            first_data_block_offset: 0,
            last_data_block_offset: -1,
            comparator: CellComparator::Meta,
            compression: Compression::Gz,
        }
    }

    #[test]
    fn a_trailer_round_trips() {
        let bytes = trailer().encode();
        assert_eq!(bytes.len(), TRAILER_BYTES);
        assert_eq!(bytes[TRAILER_BYTES - 4..], [3, 0, 0, 3]);
        assert_eq!(Trailer::parse(&bytes), Ok(trailer()));
    }

    fn version_two(minor: u32) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&trailer().to_proto().encode_length_delimited_to_vec());
        bytes.resize(V2_TRAILER_BYTES - 4, 0);
        bytes.extend_from_slice(&(minor << 24 | 2).to_be_bytes());
        [vec![7; 5000], bytes].concat()
    }

    #[test]
    fn version_two_is_shorter() {
        let parsed = Trailer::parse(&version_two(3)).unwrap();
        assert_eq!((parsed.major, parsed.minor, parsed.len()), (2, 3, V2_TRAILER_BYTES));
        assert_eq!(Trailer { major: 3, ..parsed }, trailer());
    }

    #[test]
    fn versions_before_protobuf_are_refused_with_the_messages_of_hbase() {
        for minor in 0..V2_MINOR_MIN {
            let wanted = format!(
                "Invalid HFile version: major=2, minor={minor}: expected at least major=2 and minor=3"
            );
            assert_eq!(Trailer::parse(&version_two(minor)), Err(wanted));
        }
        assert!(Trailer::parse(&version_two(4)).is_ok());
        for major in [0, 1, 4] {
            let mut bytes = version_two(3);
            let end = bytes.len();
            bytes[end - 1] = major;
            let wanted = format!("Invalid HFile version: {major} (expected to be between 2 and 3)");
            assert_eq!(Trailer::parse(&bytes), Err(wanted));
        }
    }

    #[test]
    fn comparators_of_all_ages() {
        let named = |name: Option<&str>| {
            let comparator_class_name = name.map(|name| format!("org.apache.hadoop.hbase.{name}"));
            let proto = FileTrailerProto { comparator_class_name, ..trailer().to_proto() };
            Trailer::from_proto(&proto, 2, 3).map(|trailer| trailer.comparator)
        };
        for name in
            ["KeyValue$KeyComparator", "KeyValue$RawBytesComparator", "util.Bytes$ByteArrayComparator"]
        {
            assert_eq!(named(Some(name)), Ok(CellComparator::Default), "{name}");
        }
        assert_eq!(named(None), Ok(CellComparator::Default));
        assert_eq!(named(Some("KeyValue$MetaKeyComparator")), Ok(CellComparator::Meta));
        assert!(named(Some("KeyValue$RootComparator")).is_err());
    }

    #[test]
    fn foreign_and_cut_trailers_are_refused() {
        let good = trailer().encode();
        assert!(Trailer::parse(&[]).is_err());
        assert!(Trailer::parse(&good[1..]).is_err());
        for (at, value) in [(0, b'X'), (8, 0xff), (TRAILER_BYTES - 1, 4), (TRAILER_BYTES - 1, 1)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert!(Trailer::parse(&bytes).is_err(), "{at}");
        }
    }

    #[test]
    fn impossible_counts_are_refused() {
        let parse = |change: fn(&mut Trailer, u64), count: u64| {
            let mut trailer = trailer();
            change(&mut trailer, count);
            Trailer::parse(&trailer.encode()).is_ok()
        };
        let changes: [fn(&mut Trailer, u64); 3] = [
            |trailer, count| trailer.entry_count = count,
            |trailer, count| trailer.total_uncompressed_bytes = count,
            |trailer, count| trailer.uncompressed_data_index_bytes = count,
        ];
        for change in changes {
            assert!(parse(change, COUNT_MAX));
            assert!(!parse(change, COUNT_MAX + 1) && !parse(change, u64::MAX));
        }
    }
}
