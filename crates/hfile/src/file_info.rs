//! The file info block: a map of byte strings after the indexes.
//!
//! ```text
//! 'P' 'B' 'U' 'F' | varint length | FileInfoProto { 1 map_entry[] { 1 first, 2 second } }
//! ```
//!
//! The entries are ordered by key. Keys that begin with `hfile.` are reserved for the writer.
//!
//! Readers also accept the map as HBase wrote it before protobuf (`HFileInfo.parseWritable`):
//!
//! ```text
//! i32 entries | entry ...      entry = vint length, key | u8 class, ignored | vint length, value
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;
use evenkeel_common::varint::{read_u32, read_vlong};
use evenkeel_protocol::PB_MAGIC;
use evenkeel_protocol::pb::{BytesBytesPair, CompactionEventTracker, FileInfoProto, TimeRangeTracker};
use prost::Message;

/// Keys of entries, as HBase spells them.
pub mod keys {
    /// The key of the last cell. Absent without cells.
    pub const LAST_KEY: &[u8] = b"hfile.LASTKEY";
    /// Mean key length, i32.
    pub const AVG_KEY_LEN: &[u8] = b"hfile.AVG_KEY_LEN";
    /// Mean value length, i32.
    pub const AVG_VALUE_LEN: &[u8] = b"hfile.AVG_VALUE_LEN";
    /// The creation time, i64 milliseconds.
    pub const CREATE_TIME_TS: &[u8] = b"hfile.CREATE_TIME_TS";
    /// Bytes of the longest tags, i32. If it is present, cells carry tags.
    pub const MAX_TAGS_LEN: &[u8] = b"hfile.MAX_TAGS_LEN";
    /// 1 byte: tags are compressed.
    pub const TAGS_COMPRESSED: &[u8] = b"hfile.TAGS_COMPRESSED";
    /// The key of the largest cell.
    pub const KEY_OF_BIGGEST_CELL: &[u8] = b"hfile.KEY_OF_BIGGEST_CELL";
    /// The length of the largest cell, i64.
    pub const LEN_OF_BIGGEST_CELL: &[u8] = b"hfile.LEN_OF_BIGGEST_CELL";
    /// The largest sequence id of a cell, i64.
    pub const MAX_MEMSTORE_TS: &[u8] = b"MAX_MEMSTORE_TS_KEY";
    /// i32 1 if cells carry sequence ids.
    pub const KEY_VALUE_VERSION: &[u8] = b"KEY_VALUE_VERSION";
    /// The sequence id of the flush or compaction, i64.
    pub const MAX_SEQ_ID: &[u8] = b"MAX_SEQ_ID_KEY";
    /// 1 byte: a major compaction wrote the file.
    pub const MAJOR_COMPACTION: &[u8] = b"MAJOR_COMPACTION_KEY";
    /// 1 byte: minor compactions skip the file.
    pub const EXCLUDE_FROM_MINOR_COMPACTION: &[u8] = b"EXCLUDE_FROM_MINOR_COMPACTION";
    /// The names of the files that this one replaces.
    pub const COMPACTION_EVENT: &[u8] = b"COMPACTION_EVENT_KEY";
    /// The first row of the file's stripe. Empty means unbounded.
    pub const STRIPE_START: &[u8] = b"STRIPE_START_KEY";
    /// The end row of the stripe, exclusive. Empty means unbounded.
    pub const STRIPE_END: &[u8] = b"STRIPE_END_KEY";
    /// The smallest and the largest timestamp.
    pub const TIMERANGE: &[u8] = b"TIMERANGE";
    /// The smallest timestamp of a put, i64.
    pub const EARLIEST_PUT_TS: &[u8] = b"EARLIEST_PUT_TS";
    /// The name of the general bloom filter's type.
    pub const BLOOM_FILTER_TYPE: &[u8] = b"BLOOM_FILTER_TYPE";
    /// The prefix length of a row prefix bloom filter, i32.
    pub const BLOOM_FILTER_PARAM: &[u8] = b"BLOOM_FILTER_PARAM";
    /// The last key of the general bloom filter.
    pub const LAST_BLOOM_KEY: &[u8] = b"LAST_BLOOM_KEY";
    /// The number of cells that delete a family, i64.
    pub const DELETE_FAMILY_COUNT: &[u8] = b"DELETE_FAMILY_COUNT";
    /// The name of the data block encoding. Absent for NONE.
    pub const DATA_BLOCK_ENCODING: &[u8] = b"DATA_BLOCK_ENCODING";
    /// The name of the index block encoding. Absent for NONE.
    pub const INDEX_BLOCK_ENCODING: &[u8] = b"INDEX_BLOCK_ENCODING";
    /// The time of the bulk load's write, i64 milliseconds.
    pub const BULKLOAD_TIMESTAMP: &[u8] = b"BULKLOAD_TIMESTAMP";
    /// The task of the bulk load that wrote the file.
    pub const BULKLOAD_SOURCE_TASK: &[u8] = b"BULKLOAD_SOURCE_TASK";
    /// 1 byte: cells of a bulk loaded file keep their sequence ids.
    pub const SKIP_RESET_SEQ_ID: &[u8] = b"SKIP_RESET_SEQ_ID";
    /// 1 byte: the file holds only cells that live reads do not need.
    pub const HISTORICAL: &[u8] = b"HISTORICAL";
    /// The number of cells of a MOB file, i64.
    pub const MOB_CELLS_COUNT: &[u8] = b"MOB_CELLS_COUNT";
    /// The MOB files that cells refer to: see `evenkeel_common::mob`.
    pub const MOB_FILE_REFS: &[u8] = b"MOB_FILE_REFS";
    /// The prefix of keys that are reserved for the writer.
    pub const RESERVED_PREFIX: &[u8] = b"hfile.";
}

/// The file info map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileInfo(BTreeMap<Vec<u8>, Bytes>);

impl FileInfo {
    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.0.get(key)
    }

    /// Sets a key.
    pub fn set(&mut self, key: &[u8], value: impl Into<Bytes>) {
        self.0.insert(key.to_vec(), value.into());
    }

    /// Sets a bool as HBase writes it: 0xFF or 0.
    pub fn set_bool(&mut self, key: &[u8], value: bool) {
        self.set(key, vec![if value { 0xff } else { 0 }]);
    }

    /// Returns a value of eight bytes as i64.
    pub fn get_i64(&self, key: &[u8]) -> Option<i64> {
        self.get(key)?.as_ref().try_into().ok().map(i64::from_be_bytes)
    }

    /// Returns a value of four bytes as i32.
    pub fn get_i32(&self, key: &[u8]) -> Option<i32> {
        self.get(key)?.as_ref().try_into().ok().map(i32::from_be_bytes)
    }

    /// Returns a value of one byte as bool: false only for 0.
    pub fn get_bool(&self, key: &[u8]) -> Option<bool> {
        self.get(key)?.first().map(|b| *b != 0)
    }

    /// All entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Bytes)> {
        self.0.iter().map(|(k, v)| (k.as_slice(), v))
    }

    /// Returns true if it has the entries without which HBase opens no file: the mean lengths, and
    /// the largest sequence id if cells have one. Damage may make an info empty.
    pub(crate) fn has_what_readers_need(&self) -> bool {
        let has = |key, bytes| self.get(key).is_some_and(|value| value.len() == bytes);
        let has_seq_ids = self.get_i32(keys::KEY_VALUE_VERSION) == Some(1);
        has(keys::AVG_KEY_LEN, 4)
            && has(keys::AVG_VALUE_LEN, 4)
            && (!has_seq_ids || has(keys::MAX_MEMSTORE_TS, 8))
    }

    /// Encodes the block's body.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let map_entry = self
            .0
            .iter()
            .map(|(k, v)| BytesBytesPair { first: Bytes::copy_from_slice(k), second: v.clone() })
            .collect();
        let mut body = PB_MAGIC.to_vec();
        body.extend_from_slice(&FileInfoProto { map_entry }.encode_length_delimited_to_vec());
        body
    }

    /// Decodes a block's body. `None` if it is malformed.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let Some(message) = body.strip_prefix(PB_MAGIC) else { return Self::decode_writable(body) };
        let proto = FileInfoProto::decode_length_delimited(Bytes::copy_from_slice(message)).ok()?;
        Some(Self(proto.map_entry.into_iter().map(|pair| (pair.first.to_vec(), pair.second)).collect()))
    }

    /// Decodes the format before protobuf. As in HBase, a count that is not positive is an empty
    /// map, with which no file opens, and bytes after the last entry are ignored.
    fn decode_writable(body: &[u8]) -> Option<Self> {
        let entries = read_u32(body, 0)?.cast_signed();
        let mut rest = body.get(4..)?;
        let mut map = BTreeMap::new();
        for _ in 0..entries {
            let key = take_byte_array(&mut rest)?;
            rest = rest.get(1..)?;
            map.insert(key.to_vec(), Bytes::copy_from_slice(take_byte_array(&mut rest)?));
        }
        Some(Self(map))
    }
}

/// Takes a byte array with its length (`Bytes.readByteArray`) off the front of `rest`.
fn take_byte_array<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, len_bytes) = read_vlong(rest)?;
    let (array, after) = rest.get(len_bytes..)?.split_at_checked(usize::try_from(len).ok()?)?;
    *rest = after;
    Some(array)
}

/// Encodes [`keys::COMPACTION_EVENT`]: the names of the files that a compaction replaced.
pub(crate) fn compaction_event(files: &[String]) -> Vec<u8> {
    let compacted_store_file = files.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
    evenkeel_protocol::with_magic(&CompactionEventTracker { compacted_store_file })
}

/// Decodes [`keys::COMPACTION_EVENT`]. Names that are not UTF-8 are skipped: no store file has one.
pub(crate) fn parse_compaction_event(value: &[u8]) -> Option<Vec<String>> {
    let tracker: CompactionEventTracker = evenkeel_protocol::from_magic(value).ok()?;
    Some(
        tracker
            .compacted_store_file
            .iter()
            .filter_map(|name| String::from_utf8(name.to_vec()).ok())
            .collect(),
    )
}

/// Decodes [`keys::TIMERANGE`]: two i64, or in some files a protobuf message after its magic.
pub(crate) fn parse_time_range(value: &[u8]) -> Option<(i64, i64)> {
    if value.starts_with(PB_MAGIC) {
        let tracker: TimeRangeTracker = evenkeel_protocol::from_magic(value).ok()?;
        return Some((tracker.from.unwrap_or(0) as i64, tracker.to.unwrap_or(0) as i64));
    }
    let (min, max) = value.split_first_chunk::<8>()?;
    Some((i64::from_be_bytes(*min), i64::from_be_bytes(max.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use evenkeel_common::varint::write_vlong;

    use super::*;

    #[test]
    fn a_map_round_trips_in_key_order() {
        let mut info = FileInfo::default();
        info.set(b"b", vec![1]);
        info.set(b"a", vec![]);
        info.set_bool(b"c", true);
        let body = info.encode();
        assert!(body.starts_with(b"PBUF"));
        let back = FileInfo::decode(&body).unwrap();
        assert_eq!(back, info);
        assert_eq!(back.iter().map(|(k, _)| k).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
        assert_eq!(back.get_bool(b"c"), Some(true));
        assert_eq!(back.get_i64(b"b"), None);
    }

    #[test]
    fn cut_and_foreign_bodies_are_refused() {
        let mut info = FileInfo::default();
        info.set(b"key", b"value".to_vec());
        let body = info.encode();
        for end in 0..body.len() {
            assert_eq!(FileInfo::decode(&body[..end]), None, "{end}");
        }
        assert_eq!(FileInfo::decode(b"\xff\xff\xff"), None);
    }

    fn writable(entries: i32, pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut body = entries.to_be_bytes().to_vec();
        for (key, value) in pairs {
            write_vlong(&mut body, key.len() as i64);
            body.extend_from_slice(key);
            body.push(1);
            write_vlong(&mut body, value.len() as i64);
            body.extend_from_slice(value);
        }
        body
    }

    #[test]
    fn the_format_before_protobuf_is_read() {
        let long = [7; 300];
        let body = writable(3, &[(b"b", &[1]), (b"a", &long), (b"c", b"")]);
        let mut info = FileInfo::default();
        info.set(b"a", long.to_vec());
        info.set(b"b", vec![1]);
        info.set(b"c", vec![]);
        assert_eq!(FileInfo::decode(&body), Some(info.clone()));
        assert_eq!(FileInfo::decode(&[&body[..], b"more"].concat()), Some(info));
        assert_eq!(FileInfo::decode(&writable(-1, &[(b"a", b"b")])), Some(FileInfo::default()));
        for end in 0..body.len() {
            assert_eq!(FileInfo::decode(&body[..end]), None, "{end}");
        }
    }

    #[test]
    fn an_info_without_the_entries_of_every_file_is_refused() {
        let mut info = FileInfo::default();
        assert!(!info.has_what_readers_need());
        info.set(keys::AVG_KEY_LEN, vec![0; 4]);
        assert!(!info.has_what_readers_need());
        info.set(keys::AVG_VALUE_LEN, vec![0; 4]);
        assert!(info.has_what_readers_need());
        info.set(keys::KEY_VALUE_VERSION, vec![0, 0, 0, 1]);
        assert!(!info.has_what_readers_need());
        info.set(keys::MAX_MEMSTORE_TS, vec![0; 7]);
        assert!(!info.has_what_readers_need());
        info.set(keys::MAX_MEMSTORE_TS, vec![0; 8]);
        assert!(info.has_what_readers_need());
    }

    #[test]
    fn false_lengths_before_protobuf_are_refused() {
        assert_eq!(FileInfo::decode(&writable(i32::MAX, &[(b"a", b"b")])), None);
        for len in [-1, 3, i64::from(i32::MAX), i64::MAX, i64::MIN] {
            let mut body = 1i32.to_be_bytes().to_vec();
            write_vlong(&mut body, len);
            body.extend_from_slice(b"k\x01\x01");
            assert_eq!(FileInfo::decode(&body), None, "{len}");
        }
    }

    #[test]
    fn both_forms_of_a_time_range() {
        let plain = [5i64.to_be_bytes(), 9i64.to_be_bytes()].concat();
        assert_eq!(parse_time_range(&plain), Some((5, 9)));
        assert_eq!(parse_time_range(&plain[..15]), None);
        let message = evenkeel_protocol::with_magic(&TimeRangeTracker { from: Some(5), to: Some(9) });
        assert_eq!(parse_time_range(&message), Some((5, 9)));
    }

    #[test]
    fn compaction_events_round_trip() {
        assert_eq!(compaction_event(&[]), b"PBUF");
        let names = vec!["ab".to_owned(), "cd".to_owned()];
        assert_eq!(parse_compaction_event(&compaction_event(&names)), Some(names));
        assert_eq!(parse_compaction_event(b"nonsense"), None);
    }
}
