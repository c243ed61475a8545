//! Names of store files, and the small files that refer to others.
//!
//! | name | file |
//! |---|---|
//! | `<hex>` | a store file |
//! | `<hex>_SeqId_<n>_` | a bulk loaded store file, with its sequence id |
//! | `<hfile or link>.<encoded region>` | a reference: half of a file of that region |
//! | `[<ns>=]<table>=<encoded region>-<hfile>` | a link: a file of another table; empty |
//! | see [`evenkeel_common::mob`] | a MOB file; links may name one |
//!
//! Splits and merges leave references. Links come from snapshots. A reference contains `PBUF` and
//! the message `Reference { 1 splitkey, 2 range }`. The split key is the first flat key of the
//! split row. Readers also accept the format before protobuf: one byte, 0 for cells before the
//! split key, then `vint length | split key` (`Reference.readFields`).

use evenkeel_common::mob::MobFileName;
use evenkeel_common::varint::read_vlong;
use evenkeel_common::{CellRef, ErrorKind, HBaseError, KeyBuf, Result};
use evenkeel_protocol::pb;
use prost::Message;

/// Which half of a file a reference names (`Reference.Range`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceRange {
    /// Cells at or after the split key.
    Top,
    /// Cells before the split key.
    Bottom,
}

/// Half of a file: the content of a reference file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Half {
    /// Sorts before all cells of the split row.
    pub split_key: KeyBuf,
    /// The side of the split key.
    pub range: ReferenceRange,
}

impl Half {
    /// The half on one side of a row.
    pub fn at_row(row: &[u8], range: ReferenceRange) -> Self {
        Self { split_key: KeyBuf::first_on_row(row), range }
    }

    /// Parses a reference file.
    ///
    /// # Errors
    /// `CorruptHFileException` if it is malformed.
    pub fn parse(content: &[u8]) -> Result<Self> {
        let bad = || HBaseError::new(ErrorKind::CorruptHFile, "not the content of a reference file");
        let Some(message) = content.strip_prefix(evenkeel_protocol::PB_MAGIC) else {
            return Self::parse_writable(content).ok_or_else(bad);
        };
        let proto = pb::Reference::decode(message).map_err(|_| bad())?;
        // Decoding accepts a missing required field, which encoding always writes.
        if proto.encoded_len() > message.len() {
            return Err(bad());
        }
        let range = match pb::reference::Range::try_from(proto.range).map_err(|_| bad())? {
            pb::reference::Range::Top => ReferenceRange::Top,
            pb::reference::Range::Bottom => ReferenceRange::Bottom,
        };
        let split_key = CellRef::new(&proto.splitkey, &[], &[], 0).map_err(|_| bad())?;
        Ok(Self { split_key: KeyBuf::of(&split_key), range })
    }

    /// Parses the format before protobuf. Bytes after the key are ignored, as in HBase.
    fn parse_writable(content: &[u8]) -> Option<Self> {
        let (top, rest) = content.split_first()?;
        let (len, len_bytes) = read_vlong(rest)?;
        let key = rest.get(len_bytes..)?.get(..usize::try_from(len).ok()?)?;
        let range = if *top == 0 { ReferenceRange::Bottom } else { ReferenceRange::Top };
        Some(Self { split_key: KeyBuf::of(&CellRef::new(key, &[], &[], 0).ok()?), range })
    }

    /// Encodes a reference file.
    pub fn encode(&self) -> Vec<u8> {
        let range = match self.range {
            ReferenceRange::Top => pb::reference::Range::Top,
            ReferenceRange::Bottom => pb::reference::Range::Bottom,
        };
        let splitkey = self.split_key.bytes().to_vec().into();
        evenkeel_protocol::with_magic(&pb::Reference { splitkey, range: range as i32 })
    }
}

/// The parsed name of a file in a store's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreFileName {
    /// A store file.
    HFile {
        /// The sequence id in the name of a bulk loaded file.
        seq_id: Option<u64>,
    },
    /// Half of a file (or of a link) of another region of the same table.
    Reference {
        /// The name of the file or link it refers to.
        target: String,
        /// The encoded name of the region of that file.
        region: String,
    },
    /// A file of another table.
    Link(HFileLink),
}

/// The parts of a link's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HFileLink {
    /// `default` if the name has none.
    pub namespace: String,
    /// The table, without its namespace.
    pub table: String,
    /// The encoded name of the region.
    pub region: String,
    /// The name of the file.
    pub hfile: String,
}

impl StoreFileName {
    /// Parses a name. `None` for files that are not store files, which listings skip.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some((target, region)) = name.rsplit_once('.') {
            let target_is_file = matches!(Self::parse(target)?, Self::HFile { .. } | Self::Link(_));
            let reference = Self::Reference { target: target.to_owned(), region: region.to_owned() };
            return (target_is_file && is_region(region)).then_some(reference);
        }
        match HFileLink::parse(name) {
            Some(link) => Some(Self::Link(link)),
            None => parse_hfile(name).map(|seq_id| Self::HFile { seq_id }),
        }
    }
}

impl HFileLink {
    /// Parses a link's name.
    pub fn parse(name: &str) -> Option<Self> {
        let (table, rest) = name.rsplit_once('=')?;
        let (region, hfile) = rest.split_once('-')?;
        parse_hfile(hfile)?;
        let (namespace, table) = table.split_once('=').unwrap_or(("default", table));
        let words = !namespace.is_empty() && !table.is_empty() && !table.contains('=');
        (words && is_region(region)).then(|| Self {
            namespace: namespace.to_owned(),
            table: table.to_owned(),
            region: region.to_owned(),
            hfile: hfile.to_owned(),
        })
    }

    /// The link's name.
    pub fn name(&self) -> String {
        let Self { namespace, table, region, hfile } = self;
        match namespace.as_str() {
            "default" => format!("{table}={region}-{hfile}"),
            _ => format!("{namespace}={table}={region}-{hfile}"),
        }
    }
}

/// Parses lower-case hexadecimal digits, then optionally `_SeqId_<n>_` and `_del`. Returns the
/// sequence id, if there is one.
fn parse_hfile(name: &str) -> Option<Option<u64>> {
    if MobFileName::parse(name).is_some() {
        return Some(None);
    }
    let plain = name.strip_suffix("_del").unwrap_or(name);
    let (digits, seq_id) = match plain.split_once("_SeqId_") {
        Some((digits, rest)) => (digits, Some(rest.strip_suffix('_')?.parse().ok()?)),
        None => (plain, None),
    };
    is_hex(digits).then_some(seq_id)
}

fn is_region(encoded: &str) -> bool {
    !encoded.is_empty() && encoded.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_file_names_are_distinguished() {
        let hfile = |seq_id| Some(StoreFileName::HFile { seq_id });
        assert_eq!(StoreFileName::parse("0a1b"), hfile(None));
        assert_eq!(StoreFileName::parse("0a1b_SeqId_12_"), hfile(Some(12)));
        let reference =
            |target: &str| Some(StoreFileName::Reference { target: target.into(), region: "5e6f".into() });
        assert_eq!(StoreFileName::parse("0a1b.5e6f"), reference("0a1b"));
        assert_eq!(StoreFileName::parse("t=77aa-0a1b.5e6f"), reference("t=77aa-0a1b"));
        for name in [
            "",
            ".links-0a1b",
            "0A1B",
            "xyz",
            "0a1b.",
            ".5e6f",
            "0a1b_SeqId__",
            "t=77aa-",
            "=77aa-0a1b",
            "0a.1b.2c",
        ] {
            assert_eq!(StoreFileName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn link_names_round_trip() {
        let mob = format!("t=77aa-{:032x}20261127{:032x}_5e6f", 7, 9);
        for name in ["t=77aa-0a1b", "ns=t=77aa-0a1b", "my-table=77aa-0a1b_SeqId_3_", &mob] {
            let link = HFileLink::parse(name).unwrap();
            assert_eq!(link.name(), name);
            assert_eq!(StoreFileName::parse(name), Some(StoreFileName::Link(link)));
        }
    }

    #[test]
    fn references_round_trip() {
        for range in [ReferenceRange::Top, ReferenceRange::Bottom] {
            let half = Half::at_row(b"middle", range);
            let content = half.encode();
            assert_eq!(Half::parse(&content), Ok(half));
            for end in 0..content.len() {
                assert!(Half::parse(&content[..end]).is_err(), "{end}");
            }
        }
    }

    #[test]
    fn the_format_before_protobuf_is_read() {
        for (top, range) in [(0, ReferenceRange::Bottom), (1, ReferenceRange::Top)] {
            let half = Half::at_row(b"middle", range);
            let key = half.split_key.bytes();
            let content = [&[top, key.len() as u8], key].concat();
            assert_eq!(Half::parse(&content), Ok(half.clone()));
            for end in 0..content.len() {
                assert!(Half::parse(&content[..end]).is_err(), "{end}");
            }
        }
        for false_len in [&[1, 0xff][..], &[1, 0x8c, 0x7f, 0xff, 0xff, 0xff]] {
            assert!(Half::parse(false_len).is_err(), "{false_len:?}");
        }
    }
}
