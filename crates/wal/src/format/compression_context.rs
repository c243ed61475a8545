//! Reading of dictionary-compressed keys and cells (`CompressedKvDecoder`); `entry_compressor`
//! writes them.
//!
//! ```text
//! item = 0xFF | varint len | bytes                 a new string; both sides add it
//!      | u16 index                                  a known one (an index is below 0x7FFF)
//! cell = varint key_len | varint value_len | varint tags_len
//!      | item row | item family | item qualifier | i64 timestamp | u8 type
//!      | value | tags
//! value = the bytes, or with value compression: varint len | body   (see `value_compression`)
//! tags  = empty; the bytes; or with tag compression, an item (type, value) per tag
//! ```

use bytes::Bytes;
use evenkeel_common::KeyValue;
use evenkeel_common::cell::{FAMILY_BYTES_MAX, KEY_FIXED_BYTES, ROW_BYTES_MAX};
use evenkeel_common::length;
use evenkeel_common::varint::read_varint;
use evenkeel_compression::{Compression, check_supported};
use evenkeel_protocol::pb;

use super::lru_dictionary::{Lookup, LruDictionary};
use super::value_compression;
use crate::config::VALUE_COMPRESSION_KEY;
use crate::reader::{ENTRY_BYTES_MAX, Input, ParseError, corrupt};

/// The strings that a dictionary holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DictionaryKind {
    Region,
    Table,
    Family,
    Qualifier,
    Row,
    Tag,
}

/// The capacity of dictionaries of rows, regions, tables and tags.
const LARGE: u16 = i16::MAX as u16;
/// The capacity of dictionaries of families and qualifiers.
const SMALL: u16 = i8::MAX as u16;
/// The first byte of an item that is not in the dictionary yet.
pub(crate) const NOT_IN_DICTIONARY: u8 = 0xff;

/// The dictionaries of one file.
#[derive(Clone)]
pub(crate) struct Dictionaries {
    region: LruDictionary,
    table: LruDictionary,
    family: LruDictionary,
    qualifier: LruDictionary,
    row: LruDictionary,
    tag: LruDictionary,
}

impl Dictionaries {
    /// Empty dictionaries. Files of recovered edits belong to one region, so their dictionaries of
    /// regions and tables have one entry.
    pub(crate) fn new(recovered_edits: bool) -> Self {
        let names = if recovered_edits { 1 } else { LARGE };
        Self {
            region: LruDictionary::new(names),
            table: LruDictionary::new(names),
            family: LruDictionary::new(SMALL),
            qualifier: LruDictionary::new(SMALL),
            row: LruDictionary::new(LARGE),
            tag: LruDictionary::new(LARGE),
        }
    }

    /// Freezes all dictionaries after `bytes` whose entries cannot be parsed. Each string that they
    /// added took some bytes for itself and some for the key or cell around it, which bounds the
    /// number of added strings.
    pub(crate) fn freeze(&mut self, bytes: u64) {
        for (dictionary, bytes_each) in [
            (&mut self.region, KEY_BYTES_MIN),
            (&mut self.table, ATTRIBUTE_BYTES_MIN),
            (&mut self.family, SCOPE_BYTES_MIN),
            (&mut self.qualifier, CELL_BYTES_MIN),
            (&mut self.row, CELL_BYTES_MIN),
            (&mut self.tag, NEW_ITEM_BYTES_MIN),
        ] {
            dictionary.freeze(bytes / bytes_each + 1);
        }
    }

    pub(crate) fn of(&mut self, kind: DictionaryKind) -> &mut LruDictionary {
        match kind {
            DictionaryKind::Region => &mut self.region,
            DictionaryKind::Table => &mut self.table,
            DictionaryKind::Family => &mut self.family,
            DictionaryKind::Qualifier => &mut self.qualifier,
            DictionaryKind::Row => &mut self.row,
            DictionaryKind::Tag => &mut self.tag,
        }
    }
}

/// `0xFF`, a length, and one byte.
const NEW_ITEM_BYTES_MIN: u64 = 3;
/// A key's length, and four fields, one of them with a new string.
const KEY_BYTES_MIN: u64 = 14;
/// Tag and length of the attribute, of its name and of its value, and a new string.
const ATTRIBUTE_BYTES_MIN: u64 = 6 + NEW_ITEM_BYTES_MIN;
/// Tag and length of the scope and of its family, a new string, and the type.
const SCOPE_BYTES_MIN: u64 = 4 + NEW_ITEM_BYTES_MIN + 2;
/// Three lengths, three items of which one is new, timestamp and type.
const CELL_BYTES_MIN: u64 = 3 + 2 + 2 + NEW_ITEM_BYTES_MIN + 9;

/// The compression of values that a header announces.
fn values_of_header(header: &pb::WalHeader) -> Result<Option<Compression>, String> {
    if !header.has_value_compression() {
        return Ok(None);
    }
    // A header without the number was written before there was a choice.
    let code = header.value_compression_algorithm.unwrap_or(Compression::Gz.code());
    let kind = Compression::from_code(code).ok_or_else(|| format!("values by unknown codec {code}"))?;
    check_supported(kind).map_err(|e| format!("values ({VALUE_COMPRESSION_KEY}): {}", e.message()))?;
    Ok(Some(kind))
}

/// The state of the reader of a compressed file.
#[derive(Clone)]
pub(crate) struct CompressionContext {
    pub(crate) dictionaries: Dictionaries,
    /// Whether a corrupt entry is being skipped. It is parsed only to find where its parts end: its
    /// new strings count as unknown, and no cell is returned.
    pub(crate) is_skipping: bool,
    compressed_tags: bool,
    /// The compression of values; `None` for none.
    values: Option<Compression>,
}

impl CompressionContext {
    /// The context that a header requires; `None` for a plain file.
    pub(crate) fn of_header(header: &pb::WalHeader, recovered_edits: bool) -> Result<Option<Self>, String> {
        if !header.has_compression() {
            return Ok(None);
        }
        Ok(Some(Self {
            dictionaries: Dictionaries::new(recovered_edits),
            is_skipping: false,
            compressed_tags: header.has_tag_compression(),
            values: values_of_header(header)?,
        }))
    }

    fn dictionary(&mut self, kind: DictionaryKind) -> &mut LruDictionary {
        self.dictionaries.of(kind)
    }

    /// The string of an item in a field of a key; `None` if it was lost.
    pub(crate) fn expand(&mut self, item: &Bytes, kind: DictionaryKind) -> Result<Option<Bytes>, ParseError> {
        match **item {
            [NOT_IN_DICTIONARY, ref rest @ ..] => {
                let (len, len_bytes) = read_varint(rest).ok_or_else(|| bad_item(kind))?;
                let bytes = item.slice(1 + len_bytes..);
                if bytes.len() as u64 != len {
                    return Err(bad_item(kind));
                }
                self.add(kind, &bytes);
                Ok(Some(bytes))
            }
            [high, low] => self.look_up(kind, high, low),
            _ => Err(bad_item(kind)),
        }
    }

    fn add(&mut self, kind: DictionaryKind, bytes: &Bytes) {
        let is_skipping = self.is_skipping;
        let dictionary = self.dictionary(kind);
        match is_skipping {
            false => drop(dictionary.add(bytes.clone())),
            true if bytes.is_empty() => {}
            true => dictionary.add_unknown(),
        }
    }

    fn look_up(&mut self, kind: DictionaryKind, high: u8, low: u8) -> Result<Option<Bytes>, ParseError> {
        let index = u16::from_be_bytes([high, low]);
        match self.dictionary(kind).get(index) {
            Lookup::Known(bytes) => Ok(Some(bytes)),
            Lookup::Unknown => Ok(None),
            Lookup::Absent => corrupt(format!("no {index} in the dictionary of {kind:?}")),
        }
    }

    /// Reads an item within a cell; `None` if its string was lost.
    fn item(
        &mut self,
        input: &mut Input,
        kind: DictionaryKind,
        bytes_max: usize,
    ) -> Result<Option<Bytes>, ParseError> {
        let bytes = match input.byte()? {
            NOT_IN_DICTIONARY => {
                let len = input.varint()?;
                if len > bytes_max as u64 {
                    return corrupt(format!("{kind:?} of {len} bytes"));
                }
                let bytes = Bytes::copy_from_slice(input.take(length::index(len))?);
                self.add(kind, &bytes);
                Some(bytes)
            }
            high => {
                let low = input.byte()?;
                self.look_up(kind, high, low)?
            }
        };
        match bytes {
            Some(bytes) if bytes.len() > bytes_max => corrupt(format!("{kind:?} of {} bytes", bytes.len())),
            bytes => Ok(bytes),
        }
    }

    /// Reads the cells of an entry; `None` if a string of one was lost. All cells are consumed in
    /// either case.
    pub(crate) fn read_cells(
        &mut self,
        input: &mut Input,
        count: u32,
        seq_id: u64,
    ) -> Result<Option<Vec<KeyValue>>, ParseError> {
        let (mut cells, mut is_whole) = (Vec::new(), !self.is_skipping);
        let mut bytes_left = ENTRY_BYTES_MAX;
        for _ in 0..count {
            match self.read_cell(input, &mut bytes_left)? {
                Some(mut cell) => {
                    cell.set_seq_id(seq_id);
                    cells.push(cell);
                }
                None => is_whole = false,
            }
        }
        Ok(is_whole.then_some(cells))
    }

    fn read_cell(
        &mut self,
        input: &mut Input,
        bytes_left: &mut usize,
    ) -> Result<Option<KeyValue>, ParseError> {
        let lengths = [input.varint()?, input.varint()?, input.varint()?];
        let total = lengths.iter().fold(10u64, |sum, len| sum.saturating_add(*len));
        if total > *bytes_left as u64 {
            return corrupt(format!("cell of {total} bytes"));
        }
        *bytes_left -= length::index(total);
        let [key_len, value_len, tags_len] = lengths.map(length::index);
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&length::must_u32(key_len).to_be_bytes());
        bytes.extend_from_slice(&length::must_u32(value_len).to_be_bytes());
        let is_key_known = self.read_key(input, key_len, &mut bytes)?;
        self.read_value(input, value_len, &mut bytes)?;
        if tags_len > 0 {
            self.read_tags(input, tags_len, &mut bytes)?;
        }
        if self.is_skipping || !is_key_known {
            return Ok(None);
        }
        KeyValue::parse(bytes.into()).map(Some).or_else(|e| corrupt(e.to_string()))
    }

    /// Returns true if all strings of the key are known.
    fn read_key(&mut self, input: &mut Input, key_len: usize, out: &mut Vec<u8>) -> Result<bool, ParseError> {
        let row = self.item(input, DictionaryKind::Row, ROW_BYTES_MAX)?;
        let family = self.item(input, DictionaryKind::Family, FAMILY_BYTES_MAX)?;
        let len = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let fixed = KEY_FIXED_BYTES + len(&row) + len(&family);
        let qualifier_max = match self.is_skipping {
            true => ENTRY_BYTES_MAX,
            false => key_len.checked_sub(fixed).ok_or_else(|| ParseError::Corrupt("key too short".into()))?,
        };
        let qualifier = self.item(input, DictionaryKind::Qualifier, qualifier_max)?;
        let rest = input.take(9)?; // timestamp and type
        let (Some(row), Some(family), Some(qualifier)) = (row, family, qualifier) else { return Ok(false) };
        if self.is_skipping {
            return Ok(false);
        }
        if qualifier.len() != qualifier_max {
            return corrupt(format!("key of {} bytes, {key_len} announced", fixed + qualifier.len()));
        }
        out.extend_from_slice(&length::must_u16(row.len()).to_be_bytes());
        out.extend_from_slice(&row);
        out.push(length::must_u8(family.len()));
        out.extend_from_slice(&family);
        out.extend_from_slice(&qualifier);
        out.extend_from_slice(rest);
        Ok(true)
    }

    fn read_value(
        &mut self,
        input: &mut Input,
        value_len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), ParseError> {
        let Some(kind) = self.values else {
            let value = input.take(value_len)?;
            if !self.is_skipping {
                out.extend_from_slice(value);
            }
            return Ok(());
        };
        let body_len = input.varint()?;
        if body_len > ENTRY_BYTES_MAX as u64 {
            return corrupt(format!("compressed value of {body_len} bytes"));
        }
        let body = input.take(length::index(body_len))?;
        if self.is_skipping {
            return Ok(());
        }
        let value = value_compression::read(kind, body, value_len);
        out.extend_from_slice(&value.ok_or_else(|| bad_value(kind, value_len))?);
        Ok(())
    }

    fn read_tags(&mut self, input: &mut Input, tags_len: usize, out: &mut Vec<u8>) -> Result<(), ParseError> {
        let announced = u16::try_from(tags_len).or_else(|_| corrupt(format!("{tags_len} bytes of tags")))?;
        out.extend_from_slice(&announced.to_be_bytes());
        if !self.compressed_tags {
            out.extend_from_slice(input.take(tags_len)?);
            return Ok(());
        }
        let end = out.len() + tags_len;
        while out.len() < end {
            let space = end - out.len();
            if space < 2 && self.is_skipping {
                break; // a writer emits no item for it
            }
            let tag_max =
                space.checked_sub(2).ok_or_else(|| ParseError::Corrupt("a tag of 1 byte".into()))?;
            // The number of further tags depends on the length of this one.
            let tag = self.item(input, DictionaryKind::Tag, tag_max)?;
            let tag = tag.ok_or_else(|| ParseError::Corrupt("a tag string of a corrupt entry".into()))?;
            out.extend_from_slice(&length::must_u16(tag.len()).to_be_bytes());
            out.extend_from_slice(&tag);
        }
        Ok(())
    }
}

fn bad_value(kind: Compression, value_len: usize) -> ParseError {
    ParseError::Corrupt(format!("a value that is not {value_len} bytes by {}", kind.name()))
}

fn bad_item(kind: DictionaryKind) -> ParseError {
    ParseError::Corrupt(format!("malformed {kind:?}"))
}
