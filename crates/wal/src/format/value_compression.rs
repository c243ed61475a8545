//! Values of a file with value compression (`CompressionContext.ValueCompressor`).
//!
//! ```text
//! value = varint length | body
//! ```
//!
//! HBase treats the values of a file as one stream, which it flushes after each value; but its
//! streams *finish* at a flush and restart, so each body is independent: a gzip member, a Zstandard
//! frame, or super-blocks of Hadoop's framing, as in `evenkeel_compression`. A value longer than
//! the codec's buffer is followed by an empty super-block. The body of an empty value is ignored.
//!
//! HBase's reader fetches a gzip stream from the file in chunks of 64 KiB, and after it has all
//! bytes of a value it does not fetch another chunk for the rest of the member. A member whose last
//! bytes alone are in such a chunk would make the reader lose its position; such a member is
//! lengthened by an extra field ([`pad_member`]).

use evenkeel_common::length;
use evenkeel_common::{Result, varint::write_varint};
use evenkeel_compression::{Compression, Compressor, decompress, expansion_max};

/// Compresses the values of one file.
#[derive(Debug)]
pub(crate) struct ValueCompressor {
    compressor: Compressor,
    body: Vec<u8>,
}

impl ValueCompressor {
    pub(crate) fn new(kind: Compression, zstd_framed: bool) -> Result<Self> {
        Ok(Self { compressor: Compressor::new(kind, zstd_framed)?, body: Vec::new() })
    }

    /// Appends a value.
    pub(crate) fn write(&mut self, value: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.body.clear();
        self.compressor.compress(value, &mut self.body)?;
        if self.compressor.kind() == Compression::Gz {
            pad_member(&mut self.body);
        }
        write_varint(out, self.body.len() as u64);
        out.extend_from_slice(&self.body);
        Ok(())
    }
}

/// Decompresses the value of `wanted` bytes in a body; `None` if the body is corrupt.
pub(crate) fn read(kind: Compression, body: &[u8], wanted: usize) -> Option<Vec<u8>> {
    if wanted == 0 {
        return Some(Vec::new());
    }
    if kind == Compression::None {
        return (body.len() == wanted).then(|| body.to_vec());
    }
    if wanted / expansion_max(kind) > body.len() {
        return None;
    }
    decompress(kind, body, wanted)
}

/// The bytes that HBase's reader fetches at once.
const READER_CHUNK_BYTES: usize = 64 << 10;
/// The end of a member that HBase's reader may not fetch: the checksum, the length, and the last
/// bits of deflate.
const UNFETCHED_BYTES_MAX: usize = 16;
/// The offset of the flags in a member's header, the header's length, and the flag of an extra
/// field.
const FLAGS_AT: usize = 3;
const HEADER_BYTES: usize = 10;
const EXTRA: u8 = 4;

/// Lengthens a member by an extra field if its end would be alone in a chunk.
#[cfg_attr(
    not(test),
    expect(clippy::indexing_slicing, reason = "a member that is padded is longer than a chunk")
)]
fn pad_member(member: &mut Vec<u8>) {
    if member.len() <= READER_CHUNK_BYTES || member.len() % READER_CHUNK_BYTES > UNFETCHED_BYTES_MAX {
        return;
    }
    let mut extra = vec![0; 2 + UNFETCHED_BYTES_MAX];
    extra[..2].copy_from_slice(&length::must_u16(UNFETCHED_BYTES_MAX).to_le_bytes());
    member[FLAGS_AT] |= EXTRA;
    member.splice(HEADER_BYTES..HEADER_BYTES, extra);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 88_172_645_463_325_252u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn compressed_values_round_trip() {
        let kinds =
            [Compression::Gz, Compression::Snappy, Compression::Lz4, Compression::Zstd, Compression::None];
        for kind in kinds {
            let mut writer = ValueCompressor::new(kind, true).expect("known");
            for value in [noise(0), noise(1), vec![7; 1000], noise(300_000)] {
                let mut out = Vec::new();
                writer.write(&value, &mut out).expect("written");
                let (len, at) = evenkeel_common::varint::read_varint(&out).expect("a length");
                assert_eq!(out.len() - at, len as usize);
                assert_eq!(read(kind, &out[at..], value.len()).as_ref(), Some(&value), "{kind:?}");
                let other = read(kind, &out[at..], value.len() + 1);
                assert!(other.is_none() || value.is_empty(), "{kind:?}: of another length");
            }
        }
    }

    #[test]
    fn no_gzip_member_ends_just_after_a_chunk() {
        let mut writer = ValueCompressor::new(Compression::Gz, false).expect("known");
        let mut padded = 0;
        for len in READER_CHUNK_BYTES - 60..READER_CHUNK_BYTES + 20 {
            let (value, mut out) = (noise(len), Vec::new());
            writer.write(&value, &mut out).expect("written");
            let body = &out[3..];
            assert!(
                body.len() <= READER_CHUNK_BYTES || body.len() % READER_CHUNK_BYTES > UNFETCHED_BYTES_MAX
            );
            padded += u32::from(body[FLAGS_AT] & EXTRA != 0);
            assert_eq!(read(Compression::Gz, body, len), Some(value));
        }
        assert_eq!(padded as usize, UNFETCHED_BYTES_MAX);
    }
}
