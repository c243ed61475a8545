//! [`StreamCodec`]: Snappy and LZ4 streams in Hadoop's block framing whose decompressed size is not
//! known in advance, such as the cell blocks of RPC.
//!
//! Decompression is bounded. It fails once the output exceeds the caller's limit or reservation,
//! and no buffer exceeds what the compressed bytes can expand to.

use std::io;

use crate::framing::{self, BUFFER_BYTES, SuperBlocks};

/// The maximum expansion: one byte of LZ4 makes at most 255, three bytes of Snappy at most 64.
const EXPANSION_MAX: usize = 256;

/// A codec of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamCodec {
    /// Hadoop's `SnappyCodec`.
    Snappy,
    /// Hadoop's `Lz4Codec`.
    Lz4,
}

/// The reason why a stream could not be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The bytes are not a stream of this codec.
    Corrupt(&'static str),
    /// The output exceeds the limit.
    TooLarge,
    /// The caller refused the reservation.
    ReservationRefused,
}

const BAD_CHUNK: StreamError = StreamError::Corrupt("a chunk does not decompress");

impl StreamCodec {
    /// Raw bytes of a chunk that every reader's buffer holds.
    pub const CHUNK_BYTES: usize = framing::SNAPPY_CHUNK_BYTES;

    /// Compresses `raw` to one super-block of chunks of `chunk_bytes`, and appends it.
    ///
    /// # Errors
    /// `Other` for 2 GiB or more; the codec's error.
    pub fn compress(self, raw: &[u8], chunk_bytes: usize, out: &mut Vec<u8>) -> io::Result<()> {
        framing::write(raw, chunk_bytes, out, |chunk, out| self.compress_chunk(chunk, out))
    }

    /// Compresses one chunk without its length, and appends it.
    ///
    /// # Errors
    /// The codec's error.
    pub fn compress_chunk(self, chunk: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let at = out.len();
        out.resize(at + self.compressed_bytes_max(chunk.len()), 0);
        let room = out.get_mut(at..).unwrap_or_default();
        let bytes = match self {
            Self::Snappy => snap::raw::Encoder::new().compress(chunk, room)?,
            Self::Lz4 => lz4_flex::block::compress_into(chunk, room).map_err(io::Error::other)?,
        };
        out.truncate(at + bytes);
        Ok(())
    }

    fn compressed_bytes_max(self, raw_bytes: usize) -> usize {
        match self {
            Self::Snappy => snap::raw::max_compress_len(raw_bytes),
            Self::Lz4 => lz4_flex::block::get_maximum_output_size(raw_bytes),
        }
    }

    /// Decompresses a stream of at most `limit` raw bytes. Calls `reserve` with the raw bytes of
    /// each super-block before decompressing it.
    ///
    /// # Errors
    /// [`StreamError::TooLarge`] beyond `limit`; [`StreamError::ReservationRefused`] if `reserve`
    /// returns false; [`StreamError::Corrupt`].
    pub fn decompress(
        self,
        stream: &[u8],
        limit: usize,
        reserve: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Vec<u8>, StreamError> {
        let mut super_blocks = SuperBlocks::new(stream);
        let mut out = Vec::new();
        while !super_blocks.is_empty() {
            let raw_bytes = super_blocks
                .next_raw_bytes()
                .ok_or(StreamError::Corrupt("a length is negative or truncated"))?;
            if raw_bytes > limit - out.len() {
                return Err(StreamError::TooLarge);
            }
            if !reserve(raw_bytes) {
                return Err(StreamError::ReservationRefused);
            }
            let end = out.len() + raw_bytes;
            while out.len() < end {
                let chunk = super_blocks.next_chunk().ok_or(StreamError::Corrupt("a chunk is truncated"))?;
                self.decompress_chunk(chunk, end - out.len(), &mut out)?;
            }
        }
        Ok(out)
    }

    /// Appends the raw bytes of a chunk: at least one, and at most `room`.
    fn decompress_chunk(self, chunk: &[u8], room: usize, out: &mut Vec<u8>) -> Result<(), StreamError> {
        let possible = room.min(chunk.len().saturating_mul(EXPANSION_MAX));
        let produced = match self {
            Self::Snappy => snappy_chunk(chunk, possible, out)?,
            Self::Lz4 => lz4_chunk(chunk, possible, out)?,
        };
        if produced == 0 { Err(StreamError::Corrupt("an empty chunk")) } else { Ok(()) }
    }
}

fn snappy_chunk(chunk: &[u8], possible: usize, out: &mut Vec<u8>) -> Result<usize, StreamError> {
    let claimed = snap::raw::decompress_len(chunk).map_err(|_| BAD_CHUNK)?;
    if claimed > possible {
        return Err(StreamError::Corrupt("a chunk is longer than its super-block"));
    }
    let at = out.len();
    out.resize(at + claimed, 0);
    let room = out.get_mut(at..).unwrap_or_default();
    snap::raw::Decoder::new().decompress(chunk, room).map_err(|_| BAD_CHUNK)
}

/// Decompresses an LZ4 chunk, which does not state its raw size. Hadoop's chunks fit one buffer.
/// For a larger chunk, a second attempt gets the maximum expansion as its buffer.
fn lz4_chunk(chunk: &[u8], possible: usize, out: &mut Vec<u8>) -> Result<usize, StreamError> {
    let at = out.len();
    for bytes in [possible.min(BUFFER_BYTES), possible] {
        out.resize(at + bytes, 0);
        match lz4_flex::block::decompress_into(chunk, out.get_mut(at..).unwrap_or_default()) {
            Ok(produced) => {
                out.truncate(at + produced);
                return Ok(produced);
            }
            Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if bytes < possible => {}
            Err(_) => break,
        }
    }
    Err(BAD_CHUNK)
}
