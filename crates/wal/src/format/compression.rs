//! Dictionary-compressed keys and cells (`CompressedKvDecoder`): reading; `compress` writes.
//!
//! ```text
//! item = 0xFF | varint len | bytes                 a string met for the first time; both sides add it
//!      | u16 index                                  one met before (an index is below 0x7FFF)
//! cell = varint key_len | varint value_len | varint tags_len
//!      | item row | item family | item qualifier | i64 timestamp | u8 type
//!      | value | tags
//! value = the bytes, or with value compression: varint len | body   (see `value_compression`)
//! tags  = nothing when tags_len is 0; the bytes; or with tag compression, an item (type and value) a tag
//! ```

use bytes::Bytes;
use evenkeel_common::KeyValue;
use evenkeel_common::cell::{FAMILY_BYTES_MAX, KEY_FIXED_BYTES, ROW_BYTES_MAX};
use evenkeel_common::codec::read_varint;
use evenkeel_compression::{Compression, check_supported};
use evenkeel_protocol::pb;

use super::dictionary::Dictionary;
use super::value_compression;
use crate::config::VALUE_COMPRESSION_KEY;
use crate::reader::{ENTRY_BYTES_MAX, Input, Stop, corrupt};

/// What a dictionary is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DictionaryKind {
    Region,
    Table,
    Family,
    Qualifier,
    Row,
    Tag,
}

/// Dictionaries of rows, regions, tables and tags.
const LARGE: u16 = i16::MAX as u16;
/// Dictionaries of families and qualifiers.
const SMALL: u16 = i8::MAX as u16;
/// The first byte of an item that is not in the dictionary yet.
pub(crate) const NOT_IN_DICTIONARY: u8 = 0xff;

/// The dictionaries of one file.
pub(crate) struct Dictionaries {
    region: Dictionary,
    table: Dictionary,
    family: Dictionary,
    qualifier: Dictionary,
    row: Dictionary,
    tag: Dictionary,
}

impl Dictionaries {
    /// Empty ones. Files of recovered edits are of one region, so their dictionaries of regions and tables hold one name.
    pub(crate) fn new(recovered_edits: bool) -> Self {
        let names = if recovered_edits { 1 } else { LARGE };
        Self {
            region: Dictionary::new(names),
            table: Dictionary::new(names),
            family: Dictionary::new(SMALL),
            qualifier: Dictionary::new(SMALL),
            row: Dictionary::new(LARGE),
            tag: Dictionary::new(LARGE),
        }
    }

    pub(crate) fn of(&mut self, kind: DictionaryKind) -> &mut Dictionary {
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

/// How a header says that values are compressed.
fn values_of_header(header: &pb::WalHeader) -> Result<Option<Compression>, String> {
    if !header.has_value_compression() {
        return Ok(None);
    }
    // A header without the number is of before there was a choice.
    let code = header.value_compression_algorithm.unwrap_or(Compression::Gz.code());
    let kind = Compression::from_code(code).ok_or_else(|| format!("values by unknown codec {code}"))?;
    check_supported(kind).map_err(|e| format!("values ({VALUE_COMPRESSION_KEY}): {}", e.message()))?;
    Ok(Some(kind))
}

/// What the reader of a compressed file remembers.
pub(crate) struct CompressionContext {
    dictionaries: Dictionaries,
    compressed_tags: bool,
    /// How values are compressed, if they are.
    values: Option<Compression>,
}

impl CompressionContext {
    /// The context that a header asks for; none for a plain file.
    pub(crate) fn of_header(header: &pb::WalHeader, recovered_edits: bool) -> Result<Option<Self>, String> {
        if !header.has_compression() {
            return Ok(None);
        }
        Ok(Some(Self {
            dictionaries: Dictionaries::new(recovered_edits),
            compressed_tags: header.has_tag_compression(),
            values: values_of_header(header)?,
        }))
    }

    fn dictionary(&mut self, kind: DictionaryKind) -> &mut Dictionary {
        self.dictionaries.of(kind)
    }

    /// The string of an item that fills a field of a key.
    pub(crate) fn expand(&mut self, item: &Bytes, kind: DictionaryKind) -> Result<Bytes, Stop> {
        match **item {
            [NOT_IN_DICTIONARY, ref rest @ ..] => {
                let (len, len_bytes) = read_varint(rest).ok_or_else(|| bad_item(kind))?;
                let bytes = item.slice(1 + len_bytes..);
                if bytes.len() as u64 != len {
                    return Err(bad_item(kind));
                }
                drop(self.dictionary(kind).add(bytes.clone()));
                Ok(bytes)
            }
            [high, low] => self.look_up(kind, high, low),
            _ => Err(bad_item(kind)),
        }
    }

    fn look_up(&mut self, kind: DictionaryKind, high: u8, low: u8) -> Result<Bytes, Stop> {
        let index = u16::from_be_bytes([high, low]);
        let found = self.dictionary(kind).get(index);
        found.ok_or_else(|| Stop::Corrupt(format!("no {index} in the dictionary of {kind:?}")))
    }

    /// An item among the cells.
    fn item(&mut self, input: &mut Input, kind: DictionaryKind, bytes_max: usize) -> Result<Bytes, Stop> {
        let bytes = match input.byte()? {
            NOT_IN_DICTIONARY => {
                let len = input.varint()?;
                if len > bytes_max as u64 {
                    return corrupt(format!("{kind:?} of {len} bytes"));
                }
                let bytes = Bytes::copy_from_slice(input.take(len as usize)?);
                drop(self.dictionary(kind).add(bytes.clone()));
                bytes
            }
            high => {
                let low = input.byte()?;
                self.look_up(kind, high, low)?
            }
        };
        if bytes.len() > bytes_max {
            return corrupt(format!("{kind:?} of {} bytes", bytes.len()));
        }
        Ok(bytes)
    }

    /// The cells of an entry.
    pub(crate) fn read_cells(
        &mut self,
        input: &mut Input,
        count: u32,
        seq_id: u64,
    ) -> Result<Vec<KeyValue>, Stop> {
        let mut cells = Vec::new();
        let mut room = ENTRY_BYTES_MAX;
        for _ in 0..count {
            let mut cell = self.read_cell(input, &mut room)?;
            cell.set_seq_id(seq_id);
            cells.push(cell);
        }
        Ok(cells)
    }

    fn read_cell(&mut self, input: &mut Input, room: &mut usize) -> Result<KeyValue, Stop> {
        let lengths = [input.varint()?, input.varint()?, input.varint()?];
        let total = lengths.iter().fold(10u64, |sum, len| sum.saturating_add(*len));
        if total > *room as u64 {
            return corrupt(format!("cell of {total} bytes"));
        }
        *room -= total as usize;
        let [key_len, value_len, tags_len] = lengths.map(|len| len as usize);
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&(key_len as u32).to_be_bytes());
        bytes.extend_from_slice(&(value_len as u32).to_be_bytes());
        self.read_key(input, key_len, &mut bytes)?;
        self.read_value(input, value_len, &mut bytes)?;
        if tags_len > 0 {
            self.read_tags(input, tags_len, &mut bytes)?;
        }
        KeyValue::parse(bytes.into()).or_else(|e| corrupt(e.to_string()))
    }

    fn read_key(&mut self, input: &mut Input, key_len: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        let row = self.item(input, DictionaryKind::Row, ROW_BYTES_MAX)?;
        let family = self.item(input, DictionaryKind::Family, FAMILY_BYTES_MAX)?;
        let fixed = KEY_FIXED_BYTES + row.len() + family.len();
        let qualifier_max =
            key_len.checked_sub(fixed).ok_or_else(|| Stop::Corrupt("key too short".into()))?;
        let qualifier = self.item(input, DictionaryKind::Qualifier, qualifier_max)?;
        if qualifier.len() != qualifier_max {
            return corrupt(format!("key of {} bytes, {key_len} announced", fixed + qualifier.len()));
        }
        out.extend_from_slice(&(row.len() as u16).to_be_bytes());
        out.extend_from_slice(&row);
        out.push(family.len() as u8);
        out.extend_from_slice(&family);
        out.extend_from_slice(&qualifier);
        out.extend_from_slice(input.take(9)?); // timestamp and type
        Ok(())
    }

    fn read_value(&mut self, input: &mut Input, value_len: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        let Some(kind) = self.values else {
            out.extend_from_slice(input.take(value_len)?);
            return Ok(());
        };
        let body_len = input.varint()?;
        if body_len > ENTRY_BYTES_MAX as u64 {
            return corrupt(format!("compressed value of {body_len} bytes"));
        }
        let body = input.take(body_len as usize)?;
        let value = value_compression::read(kind, body, value_len);
        out.extend_from_slice(&value.ok_or_else(|| bad_value(kind, value_len))?);
        Ok(())
    }

    fn read_tags(&mut self, input: &mut Input, tags_len: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
        let announced = u16::try_from(tags_len).or_else(|_| corrupt(format!("{tags_len} bytes of tags")))?;
        out.extend_from_slice(&announced.to_be_bytes());
        if !self.compressed_tags {
            out.extend_from_slice(input.take(tags_len)?);
            return Ok(());
        }
        let end = out.len() + tags_len;
        while out.len() < end {
            let room = end - out.len();
            let tag_max = room.checked_sub(2).ok_or_else(|| Stop::Corrupt("a tag of 1 byte".into()))?;
            let tag = self.item(input, DictionaryKind::Tag, tag_max)?;
            out.extend_from_slice(&(tag.len() as u16).to_be_bytes());
            out.extend_from_slice(&tag);
        }
        Ok(())
    }
}

fn bad_value(kind: Compression, value_len: usize) -> Stop {
    Stop::Corrupt(format!("a value that is not {value_len} bytes by {}", kind.name()))
}

fn bad_item(kind: DictionaryKind) -> Stop {
    Stop::Corrupt(format!("malformed {kind:?}"))
}
