//! Compressed tags: a dictionary of the last 127 distinct tags, empty at the start of each block.
//!
//! ```text
//! tags = varint bytes of all tags, uncompressed | item ...
//! item = 0xFF | varint len | type and value        a new tag, which takes an entry
//!      | u16 entry                                  a tag in the dictionary
//! ```
//!
//! A new tag replaces the least recently used entry of a full dictionary.

use evenkeel_common::length;
use evenkeel_common::varint::{read_varint, write_varint};

use super::Malformed;
use super::byte_reader::ByteReader;

const ENTRIES_MAX: usize = 127;
const NEW: u8 = 0xff;

/// A dictionary of tags (type and value, without length).
#[derive(Debug, Default)]
pub(crate) struct TagDictionary {
    entries: Vec<DictionaryEntry>,
    clock: u64,
}

#[derive(Debug)]
struct DictionaryEntry {
    tag: Box<[u8]>,
    used: u64,
}

impl TagDictionary {
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Compresses raw tags (`u16 len | type | value`, repeated) and appends them.
    pub fn compress(&mut self, mut tags: &[u8], out: &mut Vec<u8>) {
        while let Some((len, rest)) = tags.split_first_chunk::<2>() {
            let (tag, rest) = rest.split_at(rest.len().min(u16::from_be_bytes(*len) as usize));
            self.write(tag, out);
            tags = rest;
        }
    }

    /// Reads items until they decode to `tags_bytes` of raw tags, and appends these to `out`.
    pub fn decompress(
        &mut self,
        input: &mut ByteReader<'_>,
        tags_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        let end = out.len() + tags_bytes;
        while out.len() < end {
            let first = input.byte()?;
            if first == NEW {
                let len = input.varint()?;
                let tag = input.bytes(len)?;
                append_tag(tag, out)?;
                self.add(tag);
            } else {
                let index = usize::from(u16::from_be_bytes([first, input.byte()?]));
                append_tag(self.touch(index)?, out)?;
            }
        }
        if out.len() == end { Ok(()) } else { Err(Malformed) }
    }

    fn write(&mut self, tag: &[u8], out: &mut Vec<u8>) {
        if let Some(index) = self.entries.iter().position(|entry| *entry.tag == *tag) {
            let _ = self.touch(index);
            out.extend_from_slice(&length::must_u16(index).to_be_bytes());
            return;
        }
        out.push(NEW);
        write_varint(out, tag.len() as u64);
        out.extend_from_slice(tag);
        self.add(tag);
    }

    fn add(&mut self, tag: &[u8]) {
        if tag.is_empty() {
            return;
        }
        self.clock += 1;
        let entry = DictionaryEntry { tag: tag.into(), used: self.clock };
        if self.entries.len() < ENTRIES_MAX {
            self.entries.push(entry);
        } else if let Some(oldest) = self.entries.iter_mut().min_by_key(|entry| entry.used) {
            *oldest = entry;
        }
    }

    fn touch(&mut self, index: usize) -> Result<&[u8], Malformed> {
        self.clock += 1;
        let entry = self.entries.get_mut(index).ok_or(Malformed)?;
        entry.used = self.clock;
        Ok(&entry.tag)
    }
}

fn append_tag(tag: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    let len = u16::try_from(tag.len()).map_err(|_| Malformed)?;
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(tag);
    Ok(())
}

/// Reads a varint that must fit a Java int.
pub(super) fn varint(bytes: &[u8]) -> Option<(usize, usize)> {
    let (value, len) = read_varint(bytes)?;
    (value <= i32::MAX as u64).then_some((length::index(value), len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(i: usize) -> Vec<u8> {
        let value = format!("value{i}");
        [&(value.len() as u16 + 1).to_be_bytes()[..], &[1], value.as_bytes()].concat()
    }

    #[test]
    fn tags_round_trip_through_a_dictionary_that_overflows() {
        let runs: Vec<Vec<u8>> = (0..900).map(|i| [tag(i % 7), tag(i * i % 300)].concat()).collect();
        let (mut writer, mut bytes) = (TagDictionary::default(), Vec::new());
        runs.iter().for_each(|tags| writer.compress(tags, &mut bytes));
        let (mut reader, mut input) = (TagDictionary::default(), ByteReader::new(&bytes, 0));
        for tags in &runs {
            let mut out = Vec::new();
            reader.decompress(&mut input, tags.len(), &mut out).unwrap();
            assert_eq!(&out, tags);
        }
        assert!(bytes.len() < runs.concat().len());
    }

    #[test]
    fn malformed_tags_are_refused() {
        for (bytes, len) in [(&[0, 0][..], 4), (&[0xff, 5, 1], 7), (&[0xff, 2, 1, 2], 3), (&[], 1)] {
            let mut out = Vec::new();
            let read = TagDictionary::default().decompress(&mut ByteReader::new(bytes, 0), len, &mut out);
            assert_eq!(read, Err(Malformed), "{bytes:?}");
        }
    }
}
