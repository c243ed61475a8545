//! Plausibility checks of keys and cells at arbitrary offsets.
//!
//! A reader that reaches an entry from the end of the previous one accepts more than these checks
//! do, because HBase may add fields. A search for entries after corruption ([`super::resync`])
//! applies them strictly: a key has its fields once and in order, as every protobuf writer emits
//! them; a region's encoded name has HBase's form (32 hexadecimal digits, or the digits of the
//! earliest names); a cell has a family and a known type, and its tags are well-formed. Random
//! bytes pass as a key with a probability far below 2^-100, and as a cell with one below 2^-50.

use evenkeel_common::length;
use evenkeel_common::varint::read_varint;
use evenkeel_common::{CellRef, CellType, TableName};

use crate::format::checksum;

/// The longest key that a search accepts: names, numbers, and some attributes.
pub(super) const KEY_BYTES_MAX: usize = 64 << 10;

const NOT_IN_DICTIONARY: u8 = crate::format::compression_context::NOT_IN_DICTIONARY;
/// Digits of an encoded name, and the maximum number of digits of one of the earliest format.
const REGION_DIGITS: usize = 32;
const OLD_REGION_DIGITS_MAX: usize = 10;
/// The required fields of a key, one bit each: region, table, sequence id, time.
const REQUIRED: u32 = 0b1_1110;
/// Bytes of a cell before its KeyValue, and of a KeyValue before its key.
pub(super) const CELL_HEAD_BYTES: usize = 12;
/// The shortest key of a KeyValue: lengths, timestamp and type.
const CELL_KEY_BYTES_MIN: usize = 12;
/// The longest key of a KeyValue that is accepted: row, family and qualifier of 64 KiB fit well.
const CELL_KEY_BYTES_MAX: usize = 1 << 20;
/// Length and bytes of the longest tags.
const TAGS_BYTES_MAX: usize = 2 + u16::MAX as usize;

/// Returns true if the bytes are a key (`whole`), or the beginning of one.
pub(super) fn is_key(bytes: &[u8], whole: bool, compressed: bool) -> bool {
    let Some(fields) = after_checksum(bytes) else { return !whole };
    let (mut rest, mut last, mut seen) = (fields, 0, 0);
    while !rest.is_empty() {
        match field(rest, compressed) {
            Field::Whole { number, len } => {
                let repeats = matches!(number, 6 | 8 | 12);
                if number < last || number == last && !repeats {
                    return false;
                }
                last = number;
                seen |= 1 << number;
                rest = rest.get(len..).unwrap_or_default();
            }
            Field::Partial => return !whole,
            Field::Invalid => return false,
        }
    }
    !whole || seen & REQUIRED == REQUIRED
}

/// The fields behind the checksum, which a key of HBase lacks; `None` if the bytes end within it.
fn after_checksum(key: &[u8]) -> Option<&[u8]> {
    match key {
        [first, second, ..] if [*first, *second] == checksum::TAG => key.get(checksum::FIELD_BYTES..),
        [only] if *only == checksum::TAG[0] => None,
        _ => Some(key),
    }
}

enum Field {
    Whole {
        number: u64,
        len: usize,
    },
    /// The bytes end within the field.
    Partial,
    Invalid,
}

fn field(bytes: &[u8], compressed: bool) -> Field {
    // The tags of the known fields have one byte.
    let Some((tag, rest)) = bytes.split_first() else { return Field::Partial };
    let (number, wire_type) = (u64::from(tag >> 3), tag & 7);
    let expected = match number {
        1 | 2 | 5 | 6 | 8 | 12 => 2,
        3 | 4 | 7 | 9 | 10 | 11 => 0,
        _ => return Field::Invalid,
    };
    if wire_type != expected {
        return Field::Invalid;
    }
    let Some((value, value_bytes)) = read_varint(rest) else {
        return if rest.len() < 10 && rest.iter().all(|byte| byte & 0x80 != 0) {
            Field::Partial
        } else {
            Field::Invalid
        };
    };
    if wire_type == 0 {
        let is_id = number != 3 || value > 0;
        return if is_id { Field::Whole { number, len: 1 + value_bytes } } else { Field::Invalid };
    }
    if value > KEY_BYTES_MAX as u64 {
        return Field::Invalid;
    }
    let content_end = value_bytes + length::index(value);
    match rest.get(value_bytes..content_end) {
        None => Field::Partial,
        Some(content) if is_content(number, content, compressed) => {
            Field::Whole { number, len: 1 + content_end }
        }
        Some(_) => Field::Invalid,
    }
}

fn is_content(number: u64, content: &[u8], compressed: bool) -> bool {
    let is_name: fn(&[u8]) -> bool = match number {
        1 => is_region,
        2 => |name| TableName::from_bytes(name).is_ok(),
        _ => return true,
    };
    if !compressed {
        return is_name(content);
    }
    match content {
        [NOT_IN_DICTIONARY, rest @ ..] => read_varint(rest)
            .is_some_and(|(len, at)| len == (rest.len() - at) as u64 && rest.get(at..).is_some_and(is_name)),
        [high, _] => *high < 0x80,
        _ => false,
    }
}

fn is_region(name: &[u8]) -> bool {
    match name.len() {
        REGION_DIGITS => name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
        len => (1..=OLD_REGION_DIGITS_MAX).contains(&len) && name.iter().all(u8::is_ascii_digit),
    }
}

/// Returns true if an entry may begin at these bytes: a length, and the tag of the key's first
/// field, or of the first two.
pub(super) fn may_be_entry(bytes: &[u8]) -> bool {
    const REGION_TAG: u8 = 1 << 3 | 2;
    // Four fields, two of them names or two-byte dictionary indexes.
    const LEN_MIN: u8 = 12;
    let key = match bytes {
        [len, key @ ..] if *len < 0x80 => Some(key).filter(|_| *len >= LEN_MIN),
        [_, len, key @ ..] | [_, _, len, key @ ..] if (1..0x80).contains(len) => Some(key),
        _ => None,
    };
    key.and_then(after_checksum).is_some_and(|fields| fields.first() == Some(&REGION_TAG))
}

/// The length of the plain cell that may begin at these bytes, judged by its lengths.
pub(super) fn may_be_cell(bytes: &[u8]) -> Option<usize> {
    let lengths = lengths(bytes.first_chunk::<CELL_HEAD_BYTES>()?);
    lengths.are_possible().then_some(4 + lengths.key_value)
}

/// The three lengths at the beginning of a plain cell.
struct Lengths {
    key_value: usize,
    key: usize,
    value: usize,
}

fn lengths(head: &[u8; CELL_HEAD_BYTES]) -> Lengths {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *head;
    let number = |bytes| u32::from_be_bytes(bytes) as usize;
    Lengths { key_value: number([a, b, c, d]), key: number([e, f, g, h]), value: number([i, j, k, l]) }
}

impl Lengths {
    /// Bytes after the value: none, or tags and their length.
    fn of_tags(&self) -> Option<usize> {
        self.key_value.checked_sub(8)?.checked_sub(self.key)?.checked_sub(self.value)
    }

    fn are_possible(&self) -> bool {
        (CELL_KEY_BYTES_MIN..=CELL_KEY_BYTES_MAX).contains(&self.key)
            && self.of_tags().is_some_and(|bytes| bytes == 0 || (3..=TAGS_BYTES_MAX).contains(&bytes))
    }
}

/// Returns true if the bytes are the complete KeyValue of a cell.
pub(super) fn is_cell(key_value: &[u8]) -> bool {
    let Ok(cell) = CellRef::parse(key_value, 0) else { return false };
    let is_known = cell.cell_type().is_some() && !cell.family().is_empty() && is_family(cell.family());
    let tags: usize = cell.tag_iter().map(|(_, value)| 3 + value.len()).sum();
    is_known && tags == cell.tags().len()
}

/// Returns true if the bytes are the beginning of a longer cell. They start with the cell's length.
pub(super) fn is_cell_beginning(bytes: &[u8]) -> bool {
    let Some(head) = bytes.first_chunk::<CELL_HEAD_BYTES>() else { return true };
    let lengths = lengths(head);
    if !lengths.are_possible() {
        return false;
    }
    let body = bytes.get(CELL_HEAD_BYTES..).unwrap_or_default();
    let key = body.get(..lengths.key).unwrap_or(body);
    let is_key = is_cell_key_beginning(key, lengths.key);
    let tags = body.get(lengths.key + lengths.value..).and_then(|tags| tags.first_chunk::<2>());
    let tags_agree = tags.is_none_or(|len| {
        lengths.of_tags().is_some_and(|bytes| bytes == 2 + usize::from(u16::from_be_bytes(*len)))
    });
    is_key && tags_agree
}

fn is_cell_key_beginning(key: &[u8], len: usize) -> bool {
    let Some(row) = key.first_chunk::<2>().map(|row| usize::from(u16::from_be_bytes(*row))) else {
        return true;
    };
    let family_len = key.get(2 + row).map(|family| usize::from(*family));
    let family = key.get(3 + row..).map(|rest| rest.get(..family_len.unwrap_or(0)).unwrap_or(rest));
    let is_type_known =
        key.len() < len || key.last().is_some_and(|code| CellType::from_code(*code).is_some());
    CELL_KEY_BYTES_MIN + row + family_len.unwrap_or(1) <= len
        && family_len != Some(0)
        && family.is_none_or(is_family)
        && is_type_known
}

/// Returns true if the bytes may be, or begin, the name of a family.
fn is_family(name: &[u8]) -> bool {
    name.iter().all(|byte| !byte.is_ascii_control() && !matches!(byte, b':' | b'/' | b'\\'))
}

#[cfg(test)]
mod tests {
    use evenkeel_common::KeyValue;
    use evenkeel_common::cell::KeyValueBuilder;

    use super::*;
    use crate::entry::{ClusterUuid, FamilyScope, Scope, WalEntry};
    use crate::format::encode;

    fn entry() -> WalEntry {
        let (row, family, qualifier) = (&b"row"[..], &b"f"[..], &b"q"[..]);
        let kind = evenkeel_common::CellType::Put;
        let tags = &[0, 3, 8, 1, 2];
        let cell =
            KeyValueBuilder { row, family, qualifier, timestamp: 1, kind, value: &[7; 50], tags }.build();
        let region = bytes::Bytes::from_static(b"0123456789abcdef0123456789abcdef");
        let mut entry =
            WalEntry::new(region, "ns:t".parse().expect("legal"), 300, 1_700_000_000_000, vec![cell]);
        entry.nonce = 7;
        entry.scopes = vec![FamilyScope { family: bytes::Bytes::from_static(b"f"), scope: Scope::Serial }];
        entry.cluster_ids = vec![ClusterUuid { most: 1, least: 2 }, ClusterUuid { most: 3, least: 4 }];
        entry.attributes = vec![("a".into(), bytes::Bytes::from_static(b"b"))];
        entry
    }

    fn encoded() -> (Vec<u8>, usize) {
        let (entry, mut out) = (entry(), Vec::new());
        let cells = || entry.cells.iter().map(KeyValue::as_cell);
        let size = encode::measure(&entry.key(), cells());
        encode::write(&mut out, size, &entry.key(), cells());
        let (len, at) = read_varint(&out).expect("a length");
        (out.split_off(at), len as usize)
    }

    #[test]
    fn entries_and_their_prefixes_are_plausible() {
        let (bytes, key_len) = encoded();
        let (key, cell) = bytes.split_at(key_len);
        assert!(is_key(key, true, false) && !is_key(key, true, true));
        assert!((0..key.len()).all(|len| is_key(&key[..len], false, false)));
        assert_eq!(may_be_cell(cell), Some(cell.len()));
        assert!(is_cell(&cell[4..]));
        assert!((0..cell.len()).all(|len| is_cell_beginning(&cell[..len])));
    }

    #[test]
    fn a_key_that_extends_into_cells_is_implausible() {
        let (bytes, key_len) = encoded();
        assert!((key_len + 1..bytes.len()).all(|len| !is_key(&bytes[..len], false, false)));
        let twice = [&bytes[..key_len], &bytes[..key_len]].concat();
        assert!(!is_key(&twice, false, false), "a field twice");
        assert!(!is_key(&bytes[..key_len - 20], true, false) || key_len < 60);
    }

    #[test]
    fn changed_lengths_are_not_the_beginning_of_a_cell() {
        let (bytes, key_len) = encoded();
        let cell = &bytes[key_len..];
        for at in 0..CELL_HEAD_BYTES + 2 {
            for bit in 0..8 {
                let mut changed = cell.to_vec();
                changed[at] ^= 1 << bit;
                let is_whole = may_be_cell(&changed) == Some(cell.len()) && is_cell(&changed[4..]);
                assert!(!is_whole, "{at}.{bit}");
            }
        }
    }
}
