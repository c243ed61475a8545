//! Compressed cell blocks: one stream of a Hadoop codec.
//!
//! Gzip is a gzip stream. Snappy and LZ4 are Hadoop's blocks: `u32 raw length | chunks`, a chunk being `u32 length |
//! bytes`, until the chunks make up the raw length; big-endian, any number of blocks. Raw lengths are believed only as
//! far as the chunks can expand, and all of them together are bounded.

use std::io::{Read, Write};

use crate::error::{Error, Result};

/// Raw bytes of a chunk: what fits Hadoop's codecs' buffer of 256 KiB however badly it compresses.
const CHUNK_BYTES: usize = 128 << 10;
/// The most that a byte of Snappy or LZ4 expands to.
const EXPANSION_MAX: usize = 255;
/// Room for what is read of a stream at a time.
const STEP_BYTES: usize = 64 << 10;

/// How cell blocks are compressed (`hbase.client.rpc.compressor`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// `org.apache.hadoop.io.compress.GzipCodec`.
    Gzip,
    /// `org.apache.hadoop.io.compress.SnappyCodec`.
    Snappy,
    /// `org.apache.hadoop.io.compress.Lz4Codec`.
    Lz4,
}

impl Compressor {
    /// The Java class that servers are asked for.
    pub fn class_name(self) -> &'static str {
        match self {
            Self::Gzip => "org.apache.hadoop.io.compress.GzipCodec",
            Self::Snappy => "org.apache.hadoop.io.compress.SnappyCodec",
            Self::Lz4 => "org.apache.hadoop.io.compress.Lz4Codec",
        }
    }

    /// The codec of a Java class, by the class's own name whatever its package.
    pub fn by_class_name(class: &str) -> Option<Self> {
        match class.rsplit('.').next().unwrap_or_default() {
            "GzipCodec" | "ReusableStreamGzipCodec" => Some(Self::Gzip),
            "SnappyCodec" => Some(Self::Snappy),
            "Lz4Codec" => Some(Self::Lz4),
            _ => None,
        }
    }

    pub(super) fn compress(self, raw: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let failed =
            |e: std::io::Error| Error::InvalidArgument(format!("a cell block does not compress: {e}"));
        if self == Self::Gzip {
            let mut stream = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
            return stream.write_all(raw).and_then(|()| stream.finish().map(drop)).map_err(failed);
        }
        let len = |n: usize| i32::try_from(n).map_err(std::io::Error::other).map_err(failed);
        out.extend_from_slice(&len(raw.len())?.to_be_bytes());
        for chunk in raw.chunks(CHUNK_BYTES) {
            let compressed = match self {
                Self::Snappy => snap::raw::Encoder::new()
                    .compress_vec(chunk)
                    .map_err(std::io::Error::other)
                    .map_err(failed)?,
                _ => lz4_flex::block::compress(chunk),
            };
            out.extend_from_slice(&len(compressed.len())?.to_be_bytes());
            out.extend_from_slice(&compressed);
        }
        Ok(())
    }

    /// The raw bytes, at most `limit`.
    pub(super) fn decompress(self, bytes: &[u8], limit: usize) -> Result<Vec<u8>> {
        match self {
            Self::Gzip => gunzip(bytes, limit),
            _ => self.blocks(bytes, limit),
        }
    }

    fn blocks(self, mut bytes: &[u8], limit: usize) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        while !bytes.is_empty() {
            let raw_len = take_len(&mut bytes)?;
            if raw_len > limit - out.len() {
                return Err(bad("a compressed cell block is too large"));
            }
            let end = out.len() + raw_len;
            while out.len() < end {
                let len = take_len(&mut bytes)?;
                let (chunk, rest) = bytes.split_at_checked(len).ok_or_else(torn)?;
                bytes = rest;
                let room = (end - out.len()).min(chunk.len().saturating_mul(EXPANSION_MAX));
                self.chunk(chunk, room, &mut out)?;
            }
        }
        Ok(out)
    }

    fn chunk(self, chunk: &[u8], room: usize, out: &mut Vec<u8>) -> Result<()> {
        let at = out.len();
        out.resize(at + room, 0);
        let len = match self {
            Self::Snappy => match snap::raw::decompress_len(chunk) {
                Ok(len) if len <= room => snap::raw::Decoder::new().decompress(chunk, &mut out[at..]).ok(),
                _ => None,
            },
            _ => lz4_flex::block::decompress_into(chunk, &mut out[at..]).ok(),
        };
        let len =
            len.filter(|len| *len > 0).ok_or_else(|| bad("a chunk of a cell block does not decompress"))?;
        out.truncate(at + len);
        Ok(())
    }
}

fn gunzip(bytes: &[u8], limit: usize) -> Result<Vec<u8>> {
    let mut stream = flate2::read::MultiGzDecoder::new(bytes);
    let mut out = Vec::new();
    loop {
        let at = out.len();
        out.resize(at + STEP_BYTES, 0);
        let read = stream.read(&mut out[at..]).map_err(|_| bad("a cell block is no gzip stream"))?;
        out.truncate(at + read);
        match read {
            0 => return Ok(out),
            _ if out.len() > limit => return Err(bad("a compressed cell block is too large")),
            _ => {}
        }
    }
}

fn take_len(bytes: &mut &[u8]) -> Result<usize> {
    let (len, rest) = bytes.split_first_chunk::<4>().ok_or_else(torn)?;
    *bytes = rest;
    usize::try_from(i32::from_be_bytes(*len)).map_err(|_| torn())
}

fn torn() -> Error {
    bad("a compressed cell block ends too early")
}

fn bad(what: &str) -> Error {
    Error::Protocol(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compressor; 3] = [Compressor::Gzip, Compressor::Snappy, Compressor::Lz4];

    #[test]
    fn blocks_come_back() {
        let raw: Vec<u8> = (0..CHUNK_BYTES * 2 + 7).map(|i| (i / 100) as u8).collect();
        for codec in ALL {
            for raw in [&raw[..], b"x", b""] {
                let mut out = Vec::new();
                codec.compress(raw, &mut out).expect("compresses");
                assert_eq!(codec.decompress(&out, raw.len()).expect("reads"), raw, "{codec:?}");
            }
            assert_eq!(Compressor::by_class_name(codec.class_name()), Some(codec));
        }
    }

    #[test]
    fn torn_and_lying_blocks_are_errors() {
        let raw = [7u8; 1000];
        for codec in ALL {
            let mut out = Vec::new();
            codec.compress(&raw, &mut out).expect("compresses");
            assert!(codec.decompress(&out, 999).is_err(), "{codec:?} over the limit");
            for cut in 1..out.len() {
                assert!(codec.decompress(&out[..cut], 1000).is_err(), "{codec:?} cut at {cut}");
            }
        }
        let lie = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0];
        assert!(Compressor::Lz4.decompress(&lie, usize::MAX).is_err());
        assert!(Compressor::Snappy.decompress(&[0xff; 8], usize::MAX).is_err());
    }
}
