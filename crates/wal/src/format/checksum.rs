//! The checksum of an entry, which HBase's format lacks.
//!
//! A power cut may leave the length of an unsynced entry on the disk with zeros or other bytes in
//! place of its contents. Where the lengths in it survive, only a checksum distinguishes it from an
//! entry that was written. So each entry has one, in a place that HBase's readers skip: field 1000
//! of its WALKey, a number that HBase does not use.
//!
//! ```text
//! entry = varint len | c5 3e | u32 checksum | other fields of WALKey | cells
//! ```
//!
//! * The checksum is a CRC32C of all bytes of the entry, the first length included, with zeros in
//!   place of the checksum. It is little-endian, as protobuf's `fixed32` is.
//! * A compressed entry's checksum covers the compressed bytes. If it is wrong, the dictionaries
//!   are restored to their state before the entry.
//! * It is the key's first field, so that its place is known before the key is parsed, and so that
//!   a key ends with a field that shows a missing byte. Protobuf's readers take fields in any
//!   order.
//! * `WALHeader.entry_checksums` states that every entry of the file has one. So an entry whose
//!   field was overwritten is not taken for one that HBase wrote.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};
use evenkeel_common::varint::{read_varint, write_varint};

/// The number of the field of WALKey.
#[cfg(test)]
const FIELD: u64 = 1000;
/// The field's tag: its number, and the wire type of a `fixed32`.
pub(crate) const TAG: [u8; 2] = [0xc5, 0x3e];
const CHECKSUM_BYTES: usize = 4;
/// The bytes of the field.
pub(crate) const FIELD_BYTES: usize = TAG.len() + CHECKSUM_BYTES;

/// An entry that is being written, from its length on.
#[derive(Debug)]
pub(crate) struct Unfinished {
    /// Offsets in the output of the entry and of its checksum.
    entry: usize,
    checksum: usize,
}

impl Unfinished {
    /// Begins an entry with the length of its key and the field, whose checksum is 0 for now.
    /// `key_len` includes [`FIELD_BYTES`].
    pub(crate) fn begin(out: &mut Vec<u8>, key_len: usize) -> Self {
        let entry = out.len();
        write_varint(out, key_len as u64);
        out.extend_from_slice(&TAG);
        let checksum = out.len();
        out.extend_from_slice(&[0; CHECKSUM_BYTES]);
        Self { entry, checksum }
    }

    /// Fills in the checksum of the entry, which ends where the output does.
    pub(crate) fn finish(self, out: &mut [u8]) {
        let checksum = crc32_iscsi(out.get(self.entry..).unwrap_or_default());
        if let Some(field) = out.get_mut(self.checksum..self.checksum + CHECKSUM_BYTES) {
            field.copy_from_slice(&checksum.to_le_bytes());
        }
    }
}

/// Returns true if the bytes are an entry with its checksum.
pub(crate) fn matches(entry: &[u8]) -> bool {
    let parts = || {
        let (_, key_at) = read_varint(entry)?;
        let (before, rest) = entry.split_at_checked(key_at + TAG.len())?;
        let (checksum, after) = rest.split_first_chunk::<CHECKSUM_BYTES>()?;
        before.ends_with(&TAG).then_some((before, checksum, after))
    };
    let Some((before, checksum, after)) = parts() else { return false };
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    [before, &[0; CHECKSUM_BYTES], after].iter().for_each(|bytes| digest.update(bytes));
    digest.finalize() == u64::from(u32::from_le_bytes(*checksum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Vec<u8> {
        let mut out = b"the entry before".to_vec();
        let before = out.len();
        let unfinished = Unfinished::begin(&mut out, FIELD_BYTES + 3);
        out.extend_from_slice(b"key and cells");
        unfinished.finish(&mut out);
        out.split_off(before)
    }

    #[test]
    fn the_field_is_a_fixed32_of_protobuf() {
        assert_eq!(read_varint(&TAG), Some((FIELD << 3 | 5, TAG.len())));
        assert_eq!(entry().len(), 1 + FIELD_BYTES + 13);
    }

    /// CRC32C as defined: reflected, polynomial 0x1edc6f41.
    #[test]
    fn the_checksum_is_a_crc32c_with_zeros_in_its_place() {
        let entry = entry();
        let mut zeroed = entry.clone();
        zeroed[3..7].fill(0);
        let mut crc = u32::MAX;
        for byte in zeroed {
            crc ^= u32::from(byte);
            (0..8).for_each(|_| crc = (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78));
        }
        assert_eq!(entry[3..7], (!crc).to_le_bytes());
    }

    #[test]
    fn the_checksum_detects_every_changed_bit() {
        let entry = entry();
        assert!(matches(&entry));
        for bit in 0..entry.len() * 8 {
            let mut changed = entry.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches(&changed), "{bit}");
        }
        assert!((0..entry.len()).all(|len| !matches(&entry[..len])));
        assert!(!matches(&[0xff; 20]) && !matches(&[0; 20]));
    }
}
