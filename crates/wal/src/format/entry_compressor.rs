//! Writing of dictionary-compressed entries; `compression_context` reads them and draws them.
//!
//! The queue holds plain entries, because the file of an entry is known only when it is written: a
//! roll or a failure may happen before. So the committing thread compresses entries, with separate
//! dictionaries for each file.

use std::io;

use bytes::Bytes;
use evenkeel_common::varint::{read_varint, write_varint};
use evenkeel_common::{CellRef, Result};
use evenkeel_protocol::pb;
use prost::Message;

use super::checksum::{FIELD_BYTES, Unfinished};
use super::compression_context::{Dictionaries, DictionaryKind, NOT_IN_DICTIONARY};
use super::value_compression::ValueCompressor;
use crate::config::WalCompression;

/// The state of the writer of a compressed file.
pub(crate) struct EntryCompressor {
    dictionaries: Dictionaries,
    tags: bool,
    values: Option<ValueCompressor>,
}

impl EntryCompressor {
    pub(crate) fn new(settings: &WalCompression) -> Result<Self> {
        let values =
            settings.values.map(|kind| ValueCompressor::new(kind, settings.zstd_framed)).transpose()?;
        Ok(Self { dictionaries: Dictionaries::new(false), tags: settings.tags, values })
    }

    /// Compresses plain entries and appends them to `out`.
    ///
    /// # Errors
    /// `InvalidData` if `plain` does not consist of entries. The contents of `out`, and the file
    /// they are for, are then unusable.
    pub(crate) fn compress(&mut self, mut plain: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        while !plain.is_empty() {
            let rest = self.entry(plain, out)?;
            plain = rest.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a WAL entry"))?;
        }
        Ok(())
    }

    /// Compresses the first entry. Returns the bytes after it.
    fn entry<'a>(&mut self, plain: &'a [u8], out: &mut Vec<u8>) -> io::Result<Option<&'a [u8]>> {
        let Some((key, mut rest)) = split_key(plain) else { return Ok(None) };
        let Ok(mut key) = pb::WalKey::decode(key) else { return Ok(None) };
        self.compress_key(&mut key);
        let entry = Unfinished::begin(out, FIELD_BYTES + key.encoded_len());
        key.encode_raw(out);
        for _ in 0..key.following_kv_count.unwrap_or(0) {
            let Some((cell, after)) = split_cell(rest) else { return Ok(None) };
            self.cell(&cell, out)?;
            rest = after;
        }
        entry.finish(out);
        Ok(Some(rest))
    }

    fn compress_key(&mut self, key: &mut pb::WalKey) {
        let mut item = |bytes: &mut Bytes, kind| {
            let mut out = Vec::with_capacity(bytes.len() + 3);
            self.dictionaries.write_item(kind, bytes, &mut out);
            *bytes = out.into();
        };
        item(&mut key.encoded_region_name, DictionaryKind::Region);
        item(&mut key.table_name, DictionaryKind::Table);
        key.scopes.iter_mut().for_each(|scope| item(&mut scope.family, DictionaryKind::Family));
        key.extended_attributes.iter_mut().for_each(|one| item(&mut one.value, DictionaryKind::Table));
    }

    fn cell(&mut self, cell: &CellRef<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        for len in [cell.key().len(), cell.value().len(), cell.tags().len()] {
            write_varint(out, len as u64);
        }
        self.dictionaries.write_item(DictionaryKind::Row, cell.row(), out);
        self.dictionaries.write_item(DictionaryKind::Family, cell.family(), out);
        self.dictionaries.write_item(DictionaryKind::Qualifier, cell.qualifier(), out);
        out.extend_from_slice(&cell.timestamp().to_be_bytes());
        out.push(cell.type_code());
        match &mut self.values {
            None => out.extend_from_slice(cell.value()),
            Some(values) => values.write(cell.value(), out).map_err(|e| io::Error::other(e.to_string()))?,
        }
        self.tags(cell, out)
    }

    /// Compresses the tags, whose appender has checked that they are well-formed.
    fn tags(&mut self, cell: &CellRef<'_>, out: &mut Vec<u8>) -> io::Result<()> {
        if !self.tags {
            out.extend_from_slice(cell.tags());
            return Ok(());
        }
        let mut tags = cell.tags();
        while !tags.is_empty() {
            let split = tags.split_first_chunk::<2>();
            let split = split.and_then(|(len, rest)| rest.split_at_checked(u16::from_be_bytes(*len).into()));
            let (tag, rest) = split.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not a tag"))?;
            self.dictionaries.write_item(DictionaryKind::Tag, tag, out);
            tags = rest;
        }
        Ok(())
    }
}

impl Dictionaries {
    fn write_item(&mut self, kind: DictionaryKind, bytes: &[u8], out: &mut Vec<u8>) {
        match self.of(kind).find_or_add(bytes) {
            Some(index) => out.extend_from_slice(&index.to_be_bytes()),
            None => {
                out.push(NOT_IN_DICTIONARY);
                write_varint(out, bytes.len() as u64);
                out.extend_from_slice(bytes);
            }
        }
    }
}

fn split_key(plain: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, at) = read_varint(plain)?;
    plain.get(at..)?.split_at_checked(usize::try_from(len).ok()?)
}

fn split_cell(plain: &[u8]) -> Option<(CellRef<'_>, &[u8])> {
    let (len, rest) = plain.split_first_chunk::<4>()?;
    let (cell, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
    Some((CellRef::parse(cell, 0).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_entries_are_refused() {
        let mut compressor = EntryCompressor::new(&WalCompression::default()).expect("known");
        for bytes in [&b"\x05"[..], b"\x02\xff\xff", b"\x02\x38\x01", b"\x02\x38\x01\0\0\0\x01a"] {
            let error = compressor.compress(bytes, &mut Vec::new()).expect_err("not an entry");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
