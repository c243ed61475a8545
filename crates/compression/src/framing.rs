//! Hadoop's block framing (`BlockCompressorStream`).
//!
//! ```text
//! super-block = u32 raw bytes | chunk ...        chunks that decompress to these raw bytes
//! chunk       = u32 compressed bytes | compressed bytes
//! ```
//!
//! A writer puts a whole body into one super-block. The raw bytes of a chunk fit the reader's
//! buffer.

use std::io;

/// The buffer size of Hadoop's codecs (`io.compression.codec.*.buffersize`).
pub(crate) const BUFFER_BYTES: usize = 256 << 10;
/// Raw bytes of a Snappy chunk: they fit the buffer even if they do not compress.
pub(crate) const SNAPPY_CHUNK_BYTES: usize = BUFFER_BYTES - (BUFFER_BYTES / 6 + 32);
/// As [`SNAPPY_CHUNK_BYTES`], for LZ4.
#[cfg(feature = "files")]
pub(crate) const LZ4_CHUNK_BYTES: usize = BUFFER_BYTES - (BUFFER_BYTES / 255 + 16);
/// As [`SNAPPY_CHUNK_BYTES`], for Zstandard. Smaller than the buffer of every writer.
#[cfg(feature = "files")]
pub(crate) const ZSTD_CHUNK_BYTES: usize = BUFFER_BYTES - (BUFFER_BYTES >> 8) - 64;

const LENGTH_BYTES: usize = 4;

/// Appends a body as one super-block. `compress` compresses a chunk and appends it.
///
/// # Errors
/// The error of `compress`; `Other` for a body of 2 GiB or more.
pub(crate) fn write<E: From<io::Error>>(
    body: &[u8],
    chunk_bytes: usize,
    out: &mut Vec<u8>,
    mut compress: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    out.extend_from_slice(&length(body.len())?);
    for raw in body.chunks(chunk_bytes) {
        let length_at = out.len();
        out.extend_from_slice(&[0; LENGTH_BYTES]);
        compress(raw, out)?;
        let written = length(out.len() - length_at - LENGTH_BYTES)?;
        if let Some(field) = out.get_mut(length_at..length_at + LENGTH_BYTES) {
            field.copy_from_slice(&written);
        }
    }
    Ok(())
}

/// A length as stored. Java reads it as a signed number.
fn length(bytes: usize) -> io::Result<[u8; LENGTH_BYTES]> {
    let length = i32::try_from(bytes).map_err(|_| io::Error::other("a body or chunk of 2 GiB or more"))?;
    Ok(length.to_be_bytes())
}

/// Reads super-blocks until they decompress to `wanted` bytes. `decompress` fills the start of a
/// buffer and returns the number of bytes.
#[cfg(feature = "files")]
pub(crate) fn read(
    body: &[u8],
    wanted: usize,
    mut decompress: impl FnMut(&[u8], &mut [u8]) -> Option<usize>,
) -> Option<Vec<u8>> {
    let mut super_blocks = SuperBlocks::new(body);
    let mut out = vec![0; wanted];
    let mut filled = 0;
    while filled < wanted {
        let end = filled.checked_add(super_blocks.next_raw_bytes()?).filter(|end| *end <= wanted)?;
        while filled < end {
            let chunk = super_blocks.next_chunk()?;
            filled += decompress(chunk, out.get_mut(filled..end)?).filter(|n| *n > 0)?;
        }
    }
    Some(out)
}

/// The super-blocks of a stream. The caller reads the raw size of one, then its chunks until they
/// decompress to that size.
pub(crate) struct SuperBlocks<'a>(&'a [u8]);

impl<'a> SuperBlocks<'a> {
    pub fn new(stream: &'a [u8]) -> Self {
        Self(stream)
    }

    /// Returns true at the end of the stream.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads the raw bytes of the next super-block. `None` if the number is negative or truncated.
    pub fn next_raw_bytes(&mut self) -> Option<usize> {
        self.next_length()
    }

    fn next_length(&mut self) -> Option<usize> {
        let (length, rest) = self.0.split_first_chunk::<LENGTH_BYTES>()?;
        self.0 = rest;
        usize::try_from(i32::from_be_bytes(*length)).ok()
    }

    /// Reads the next chunk. `None` if it is truncated.
    pub fn next_chunk(&mut self) -> Option<&'a [u8]> {
        let bytes = self.next_length()?;
        let (chunk, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(chunk)
    }
}

#[cfg(all(test, feature = "files"))]
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
            io::Result::Ok(())
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
    fn false_lengths_are_refused() {
        assert_eq!(read(b"\0\0\0\x02\0\0\0\x01a", 2, stored), None);
        assert_eq!(read(b"\0\0\0\x03\0\0\0\x03abc", 2, stored), None);
        assert_eq!(read(b"\0\0\0\x02\xff\xff\xff\xffab", 2, stored), None);
        assert_eq!(read(b"\0\0\0\x02\0\0\0\0", 2, stored), None);
    }
}
