//! Hadoop's block framing (`BlockCompressorStream`).
//!
//! ```text
//! super-block = u32 raw bytes | chunk ...        chunks until they make the raw bytes
//! chunk       = u32 compressed bytes | compressed bytes
//! ```
//!
//! A writer puts a whole body into one super-block. The raw bytes of a chunk fit the reader's
//! buffer.

use evenkeel_common::Result;
use evenkeel_common::length;

/// The buffer size of Hadoop's codecs (`io.compression.codec.*.buffersize`).
const BUFFER_BYTES: usize = 256 << 10;
/// Raw bytes of a Snappy chunk: they fit the buffer even if they do not compress.
pub(super) const SNAPPY_CHUNK_BYTES: usize = BUFFER_BYTES - (BUFFER_BYTES / 6 + 32);
/// As [`SNAPPY_CHUNK_BYTES`], for LZ4.
pub(super) const LZ4_CHUNK_BYTES: usize = BUFFER_BYTES - (BUFFER_BYTES / 255 + 16);
/// As [`SNAPPY_CHUNK_BYTES`], for Zstandard. Smaller than the buffer of every writer.
pub(super) const ZSTD_CHUNK_BYTES: usize = BUFFER_BYTES - (BUFFER_BYTES >> 8) - 64;

/// Appends a body as one super-block. `compress` compresses a chunk and appends it.
pub(super) fn write(
    body: &[u8],
    chunk_bytes: usize,
    out: &mut Vec<u8>,
    mut compress: impl FnMut(&[u8], &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    out.extend_from_slice(&length::u32_of(body.len(), "a body")?.to_be_bytes());
    for raw in body.chunks(chunk_bytes) {
        let length_at = out.len();
        out.extend_from_slice(&[0; 4]);
        compress(raw, out)?;
        let length = length::u32_of(out.len() - length_at - 4, "a chunk")?;
        out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

/// Reads super-blocks until they make `wanted` bytes. `decompress` fills the start of a buffer and
/// returns the number of bytes.
pub(super) fn read(
    mut body: &[u8],
    wanted: usize,
    mut decompress: impl FnMut(&[u8], &mut [u8]) -> Option<usize>,
) -> Option<Vec<u8>> {
    let mut out = vec![0; wanted];
    let mut filled = 0;
    while filled < wanted {
        let end = filled.checked_add(take_length(&mut body)?).filter(|end| *end <= wanted)?;
        while filled < end {
            let chunk_bytes = take_length(&mut body)?;
            let (chunk, rest) = body.split_at_checked(chunk_bytes)?;
            body = rest;
            filled += decompress(chunk, &mut out[filled..end]).filter(|n| *n > 0)?;
        }
    }
    Some(out)
}

fn take_length(body: &mut &[u8]) -> Option<usize> {
    let (length, rest) = body.split_first_chunk::<4>()?;
    *body = rest;
    Some(u32::from_be_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(chunk: &[u8], out: &mut [u8]) -> Option<usize> {
        out.get_mut(..chunk.len())?.copy_from_slice(chunk);
        Some(chunk.len())
    }

    #[test]
    fn a_body_is_one_super_block_of_chunks() {
        let mut out = Vec::new();
        write(b"abcde", 2, &mut out, |chunk, out| {
            out.extend_from_slice(chunk);
            Ok(())
        })
        .unwrap();
        assert_eq!(out, b"\0\0\0\x05\0\0\0\x02ab\0\0\0\x02cd\0\0\0\x01e");
        assert_eq!(read(&out, 5, stored), Some(b"abcde".to_vec()));
    }

    #[test]
    fn several_super_blocks_and_empty_ones() {
        let body = b"\0\0\0\0\0\0\0\x01\0\0\0\x01a\0\0\0\x02\0\0\0\x02bc\0\0\0\0";
        assert_eq!(read(body, 3, stored), Some(b"abc".to_vec()));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        assert_eq!(read(b"\0\0\0\x02\0\0\0\x01a", 2, stored), None);
        assert_eq!(read(b"\0\0\0\x03\0\0\0\x03abc", 2, stored), None);
        assert_eq!(read(b"\0\0\0\x02\xff\xff\xff\xffab", 2, stored), None);
        assert_eq!(read(b"\0\0\0\x02\0\0\0\0", 2, stored), None);
    }
}
