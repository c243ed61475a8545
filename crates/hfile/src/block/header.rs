//! The 33 bytes before a block's body.
//!
//! ```text
//! offset size field
//!  0      8   magic
//!  8      4   on-disk size without header: body as stored, and checksums
//! 12      4   uncompressed size without header
//! 16      8   offset of the previous block of the same kind, -1 for the first
//! 24      1   checksum type
//! 25      4   bytes per checksum
//! 29      4   on-disk size of header and body, without checksums
//! ```

use evenkeel_block_cache::BlockType;
use evenkeel_common::length;

use crate::block::checksum::checksums_len;
use crate::context::ChecksumType;

/// Bytes of a block header.
pub(crate) const HEADER_BYTES: usize = HEADER_BYTES_U32 as usize;
/// As [`HEADER_BYTES`], for sizes as they are stored.
pub(crate) const HEADER_BYTES_U32: u32 = 33;

/// A parsed block header whose sizes agree with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub kind: BlockType,
    /// Header, body and checksums.
    pub on_disk_bytes: u32,
    /// The decompressed body.
    pub uncompressed_bytes: u32,
    pub prev_offset: i64,
    pub checksum: ChecksumType,
    pub bytes_per_checksum: u32,
    /// Header and stored body.
    pub on_disk_data_bytes: u32,
}

impl BlockHeader {
    /// Parses a header. The error describes the damage.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, String> {
        let kind = BlockType::from_magic(&bytes[..8])
            .ok_or_else(|| format!("unknown block magic {}", bytes[..8].escape_ascii()))?;
        let checksum = ChecksumType::from_code(u32::from(bytes[24]))
            .ok_or_else(|| format!("unknown checksum type {}", bytes[24]))?;
        let header = Self {
            kind,
            on_disk_bytes: int(bytes, 8).saturating_add(HEADER_BYTES_U32),
            uncompressed_bytes: int(bytes, 12),
            prev_offset: i64::from_be_bytes(field(bytes, 16)),
            checksum,
            bytes_per_checksum: int(bytes, 25),
            on_disk_data_bytes: int(bytes, 29),
        };
        header.agrees().then_some(header).ok_or_else(|| format!("sizes disagree: {header:?}"))
    }

    /// Writes the header over the first [`HEADER_BYTES`] bytes of `block`.
    #[expect(clippy::indexing_slicing, reason = "every block is made by `reset` with room for a header")]
    pub fn put(&self, block: &mut [u8]) {
        block[..8].copy_from_slice(self.kind.magic());
        block[8..12].copy_from_slice(&(self.on_disk_bytes - HEADER_BYTES_U32).to_be_bytes());
        block[12..16].copy_from_slice(&self.uncompressed_bytes.to_be_bytes());
        block[16..24].copy_from_slice(&self.prev_offset.to_be_bytes());
        block[24] = length::must_u8(self.checksum.code() as usize);
        block[25..29].copy_from_slice(&self.bytes_per_checksum.to_be_bytes());
        block[29..33].copy_from_slice(&self.on_disk_data_bytes.to_be_bytes());
    }

    /// Returns true if all sizes fit Java's int, and the checksums of all chunks fill the rest
    /// after the data.
    fn agrees(&self) -> bool {
        let fits = self.on_disk_bytes <= i32::MAX as u32 && self.uncompressed_bytes <= i32::MAX as u32;
        fits && self.bytes_per_checksum as usize >= HEADER_BYTES
            && self.on_disk_data_bytes as usize >= HEADER_BYTES
            && self.on_disk_data_bytes as usize
                + checksums_len(self.on_disk_data_bytes as usize, self.bytes_per_checksum)
                == self.on_disk_bytes as usize
    }
}

fn int(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_be_bytes(field(bytes, at))
}

#[expect(clippy::indexing_slicing, reason = "every field is at a constant offset and ends within the header")]
fn field<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> BlockHeader {
        BlockHeader {
            kind: BlockType::LeafIndex,
            on_disk_bytes: 33 + 100 + 8,
            uncompressed_bytes: 300,
            prev_offset: -1,
            checksum: ChecksumType::Crc32,
            bytes_per_checksum: 70,
            on_disk_data_bytes: 133,
        }
    }

    #[test]
    fn headers_round_trip() {
        let mut bytes = [0; HEADER_BYTES];
        header().put(&mut bytes);
        assert_eq!(BlockHeader::parse(&bytes), Ok(header()));
    }

    #[test]
    fn malformed_headers_are_refused() {
        let mut good = [0; HEADER_BYTES];
        header().put(&mut good);
        for (at, value) in
            [(0, b'X'), (8, 0xff), (11, 0), (12, 0x80), (24, 9), (25, 0xff), (29, 0x7f), (32, 0)]
        {
            let mut bytes = good;
            bytes[at] = value;
            assert!(BlockHeader::parse(&bytes).is_err(), "{at}");
        }
    }
}
