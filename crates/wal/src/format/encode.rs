//! Encoding of headers, and of entries directly into the buffer that is written to disk.

use evenkeel_common::length;
use evenkeel_common::varint::write_varint;
use evenkeel_common::{CellRef, TableName};
use evenkeel_compression::Compression;
use evenkeel_protocol::pb;
use prost::Message;

use super::{CELL_CODEC_CLASS, MAGIC, WRITER_CLASS, checksum};
use crate::config::WalCompression;
use crate::entry::{Scope, WalKey};

/// The bytes before the first entry: magic and header.
pub(crate) fn header(compression: Option<&WalCompression>) -> Vec<u8> {
    let values = compression.and_then(|settings| settings.values);
    let header = pb::WalHeader {
        has_compression: Some(compression.is_some()),
        has_tag_compression: Some(compression.is_some_and(|settings| settings.tags)),
        has_value_compression: Some(values.is_some()),
        value_compression_algorithm: values.map(Compression::code),
        writer_cls_name: Some(WRITER_CLASS.to_owned()),
        cell_codec_cls_name: Some(CELL_CODEC_CLASS.to_owned()),
        entry_checksums: Some(true),
        ..Default::default()
    };
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&header.encode_length_delimited_to_vec());
    bytes
}

/// Lengths of an entry, measured once and used to write it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntrySize {
    key_bytes: usize,
    cells: usize,
    /// Bytes of the whole entry.
    pub(crate) total: usize,
}

/// Measures an entry.
pub(crate) fn measure<'a>(key: &WalKey<'_>, cells: impl Iterator<Item = CellRef<'a>>) -> EntrySize {
    let (count, cell_bytes) =
        cells.fold((0, 0), |(n, bytes), cell| (n + 1, bytes + 4 + cell.key_value_len()));
    let key_bytes = key_len(key, count);
    EntrySize { key_bytes, cells: count, total: varint_len(key_bytes as u64) + key_bytes + cell_bytes }
}

/// Appends an entry whose size was measured.
pub(crate) fn write<'a>(
    out: &mut Vec<u8>,
    size: EntrySize,
    key: &WalKey<'_>,
    cells: impl Iterator<Item = CellRef<'a>>,
) {
    out.reserve(size.total);
    let end = out.len() + size.total;
    let entry = checksum::Unfinished::begin(out, size.key_bytes);
    write_key(out, key, size.cells);
    for cell in cells {
        out.extend_from_slice(&length::must_u32(cell.key_value_len()).to_be_bytes());
        cell.write_key_value(out, true);
    }
    debug_assert_eq!(out.len(), end);
    entry.finish(out);
}

/// Field numbers of WALKey.
mod field {
    pub(super) const REGION: u64 = 1;
    pub(super) const TABLE: u64 = 2;
    pub(super) const SEQ_ID: u64 = 3;
    pub(super) const WRITE_TIME: u64 = 4;
    pub(super) const SCOPE: u64 = 6;
    pub(super) const CELLS: u64 = 7;
    pub(super) const CLUSTER_ID: u64 = 8;
    pub(super) const NONCE_GROUP: u64 = 9;
    pub(super) const NONCE: u64 = 10;
    pub(super) const ORIG_SEQ_ID: u64 = 11;
    pub(super) const ATTRIBUTE: u64 = 12;
}

/// Writes the fields of a key that follow its checksum, without prost: this avoids the message
/// struct, its owned strings and a second pass over its lengths.
fn write_key(out: &mut Vec<u8>, key: &WalKey<'_>, cells: usize) {
    write_bytes(out, field::REGION, key.region);
    write_table(out, key.table);
    write_number(out, field::SEQ_ID, key.seq_id);
    write_number(out, field::WRITE_TIME, key.write_time_ms as u64);
    for scope in key.scopes.iter().filter(|s| s.scope != Scope::Local) {
        write_tag(out, field::SCOPE, LENGTH_DELIMITED);
        write_varint(out, scope_len(&scope.family) as u64);
        write_bytes(out, 1, &scope.family);
        write_number(out, 2, scope.scope as u64);
    }
    write_number(out, field::CELLS, cells as u64);
    for id in key.cluster_ids {
        write_tag(out, field::CLUSTER_ID, LENGTH_DELIMITED);
        write_varint(out, (number_len(1, id.least) + number_len(2, id.most)) as u64);
        write_number(out, 1, id.least);
        write_number(out, 2, id.most);
    }
    write_unless_zero(out, field::NONCE_GROUP, key.nonce_group);
    write_unless_zero(out, field::NONCE, key.nonce);
    write_unless_zero(out, field::ORIG_SEQ_ID, key.orig_seq_id);
    for (name, value) in key.attributes {
        write_tag(out, field::ATTRIBUTE, LENGTH_DELIMITED);
        write_varint(out, (bytes_len(1, name.len()) + bytes_len(2, value.len())) as u64);
        write_bytes(out, 1, name.as_bytes());
        write_bytes(out, 2, value);
    }
}

fn key_len(key: &WalKey<'_>, cells: usize) -> usize {
    let nested = |number, len: usize| bytes_len(number, len);
    let scopes = key.scopes.iter().filter(|s| s.scope != Scope::Local);
    let attribute = |name: &str, value: &[u8]| bytes_len(1, name.len()) + bytes_len(2, value.len());
    bytes_len(field::REGION, key.region.len())
        + bytes_len(field::TABLE, table_len(key.table))
        + number_len(field::SEQ_ID, key.seq_id)
        + number_len(field::WRITE_TIME, key.write_time_ms as u64)
        + scopes.map(|s| nested(field::SCOPE, scope_len(&s.family))).sum::<usize>()
        + number_len(field::CELLS, cells as u64)
        + key
            .cluster_ids
            .iter()
            .map(|id| nested(field::CLUSTER_ID, number_len(1, id.least) + number_len(2, id.most)))
            .sum::<usize>()
        + unless_zero_len(field::NONCE_GROUP, key.nonce_group)
        + unless_zero_len(field::NONCE, key.nonce)
        + unless_zero_len(field::ORIG_SEQ_ID, key.orig_seq_id)
        + key.attributes.iter().map(|(n, v)| nested(field::ATTRIBUTE, attribute(n, v))).sum::<usize>()
        + checksum::FIELD_BYTES
}

const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;

fn write_tag(out: &mut Vec<u8>, number: u64, wire_type: u64) {
    write_varint(out, number << 3 | wire_type);
}

fn write_number(out: &mut Vec<u8>, number: u64, value: u64) {
    write_tag(out, number, VARINT);
    write_varint(out, value);
}

fn write_unless_zero(out: &mut Vec<u8>, number: u64, value: u64) {
    if value != 0 {
        write_number(out, number, value);
    }
}

fn write_bytes(out: &mut Vec<u8>, number: u64, value: &[u8]) {
    write_tag(out, number, LENGTH_DELIMITED);
    write_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn write_table(out: &mut Vec<u8>, table: &TableName) {
    write_tag(out, field::TABLE, LENGTH_DELIMITED);
    write_varint(out, table_len(table) as u64);
    if table.namespace() != evenkeel_common::names::DEFAULT_NAMESPACE {
        out.extend_from_slice(table.namespace().as_bytes());
        out.push(b':');
    }
    out.extend_from_slice(table.qualifier().as_bytes());
}

fn table_len(table: &TableName) -> usize {
    let namespace = table.namespace();
    let prefix = if namespace == evenkeel_common::names::DEFAULT_NAMESPACE { 0 } else { namespace.len() + 1 };
    prefix + table.qualifier().len()
}

fn scope_len(family: &[u8]) -> usize {
    bytes_len(1, family.len()) + 2
}

/// The length of a bytes field.
fn bytes_len(number: u64, len: usize) -> usize {
    varint_len(number << 3) + varint_len(len as u64) + len
}

fn number_len(number: u64, value: u64) -> usize {
    varint_len(number << 3) + varint_len(value)
}

fn unless_zero_len(number: u64, value: u64) -> usize {
    if value == 0 { 0 } else { number_len(number, value) }
}

fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{ClusterUuid, FamilyScope, WalEntry};
    use bytes::Bytes;
    use evenkeel_common::KeyValue;

    fn full_entry() -> WalEntry {
        let mut entry = WalEntry::new(
            Bytes::from_static(b"0123456789abcdef0123456789abcdef"),
            "ns:table".parse().expect("legal"),
            1 << 40,
            1_700_000_000_000,
            vec![KeyValue::put(b"r", b"f", b"q", 5, b"v"), KeyValue::put(b"r", b"f", b"q2", 5, &[7; 300])],
        );
        entry.nonce = u64::MAX;
        entry.nonce_group = 3;
        entry.orig_seq_id = 128;
        entry.scopes = vec![
            FamilyScope { family: Bytes::from_static(b"f"), scope: Scope::Global },
            FamilyScope { family: Bytes::from_static(b"g"), scope: Scope::Local },
        ];
        entry.cluster_ids = vec![ClusterUuid { most: 1, least: u64::MAX }];
        entry.attributes = vec![("a".to_owned(), Bytes::from_static(b"b"))];
        entry
    }

    fn encode(entry: &WalEntry) -> Vec<u8> {
        let mut out = Vec::new();
        let cells = || entry.cells.iter().map(KeyValue::as_cell);
        let size = measure(&entry.key(), cells());
        write(&mut out, size, &entry.key(), cells());
        assert_eq!(out.len(), size.total);
        out
    }

    #[test]
    fn keys_are_what_prost_reads() {
        let entry = full_entry();
        let encoded = encode(&entry);
        let key = pb::WalKey::decode_length_delimited(&encoded[..]).expect("a message");
        assert_eq!(key.encoded_region_name, entry.region);
        assert_eq!(key.table_name, "ns:table");
        assert_eq!((key.log_sequence_number, key.write_time), (1 << 40, 1_700_000_000_000));
        assert_eq!((key.nonce(), key.nonce_group(), key.orig_sequence_number()), (u64::MAX, 3, 128));
        assert_eq!(key.following_kv_count, Some(2));
        assert_eq!(key.scopes.len(), 1, "local is not written");
        assert_eq!((&key.scopes[0].family[..], key.scopes[0].scope_type), (&b"f"[..], 1));
        assert_eq!((key.cluster_ids[0].most_sig_bits, key.cluster_ids[0].least_sig_bits), (1, u64::MAX));
        assert_eq!(
            (key.extended_attributes[0].key.as_str(), &key.extended_attributes[0].value[..]),
            ("a", &b"b"[..])
        );
    }

    #[test]
    fn plain_keys_are_byte_for_byte_what_prost_writes_after_a_checksum() {
        let mut entry = full_entry();
        entry.table = "t".parse().expect("legal");
        entry.scopes.truncate(1);
        let encoded = encode(&entry);
        let key = pb::WalKey::decode_length_delimited(&encoded[..]).expect("a message");
        let (len, at) = evenkeel_common::varint::read_varint(&encoded).expect("a length");
        assert_eq!(encoded[at + checksum::FIELD_BYTES..at + len as usize], key.encode_to_vec());
        assert!(checksum::matches(&encoded));
    }

    #[test]
    fn cells_follow_with_their_lengths() {
        let entry = full_entry();
        let encoded = encode(&entry);
        let last = entry.cells[1].to_bytes();
        let at = encoded.len() - last.len();
        assert_eq!(&encoded[at..], &last[..]);
        assert_eq!(encoded[at - 4..at], (last.len() as u32).to_be_bytes());
    }

    #[test]
    fn the_header_names_classes_that_java_knows() {
        let bytes = header(None);
        let header = pb::WalHeader::decode_length_delimited(&bytes[4..]).expect("a message");
        assert_eq!(&bytes[..4], MAGIC);
        assert_eq!(header.writer_cls_name(), "ProtobufLogWriter");
        assert!(header.cell_codec_cls_name().ends_with(".WALCellCodec"));
        assert!(!header.has_compression());
        assert!(header.entry_checksums());
    }
}
