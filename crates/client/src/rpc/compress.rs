//! Compressed cell blocks: one stream of a Hadoop codec.
//!
//! Gzip is a gzip stream. Snappy and LZ4 are Hadoop's BlockCompressorStream; see
//! [`evenkeel_compression::StreamCodec`].

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::io::{Read, Write};

use evenkeel_compression::{StreamCodec, StreamError};

use crate::error::{Error, Result};

/// Raw bytes of a chunk: they fit the 256 KiB buffer of Hadoop's codecs even if they do not
/// compress.
const CHUNK_BYTES: usize = 128 << 10;
/// Bytes by which the output grows.
const STEP_BYTES: usize = 64 << 10;

/// The compression of cell blocks (`hbase.client.rpc.compressor`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellBlockCodec {
    /// `org.apache.hadoop.io.compress.GzipCodec`.
    Gzip,
    /// `org.apache.hadoop.io.compress.SnappyCodec`.
    Snappy,
    /// `org.apache.hadoop.io.compress.Lz4Codec`.
    Lz4,
}

impl CellBlockCodec {
    /// The Java class in the connection header.
    pub fn class_name(self) -> &'static str {
        match self {
            Self::Gzip => "org.apache.hadoop.io.compress.GzipCodec",
            Self::Snappy => "org.apache.hadoop.io.compress.SnappyCodec",
            Self::Lz4 => "org.apache.hadoop.io.compress.Lz4Codec",
        }
    }

    /// Returns the codec of a Java class, ignoring its package.
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
        let Some(codec) = self.stream_codec() else {
            let mut stream = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
            return stream.write_all(raw).and_then(|()| stream.finish().map(drop)).map_err(failed);
        };
        codec.compress(raw, CHUNK_BYTES, out).map_err(failed)
    }

    /// The raw bytes, at most `limit`.
    pub(super) fn decompress(self, bytes: &[u8], limit: usize) -> Result<Vec<u8>> {
        let Some(codec) = self.stream_codec() else { return gunzip(bytes, limit) };
        codec.decompress(bytes, limit, &mut |_| true).map_err(|error| match error {
            StreamError::Corrupt(what) => bad(&format!("a compressed cell block is corrupt: {what}")),
            StreamError::TooLarge | StreamError::ReservationRefused => {
                bad("a compressed cell block is too large")
            }
        })
    }

    /// The codec in Hadoop's block framing; `None` for gzip.
    fn stream_codec(self) -> Option<StreamCodec> {
        match self {
            Self::Gzip => None,
            Self::Snappy => Some(StreamCodec::Snappy),
            Self::Lz4 => Some(StreamCodec::Lz4),
        }
    }
}

fn gunzip(bytes: &[u8], limit: usize) -> Result<Vec<u8>> {
    let mut stream = flate2::read::MultiGzDecoder::new(bytes);
    let mut out = Vec::new();
    loop {
        let at = out.len();
        out.resize(at + STEP_BYTES, 0);
        let target = out.get_mut(at..).unwrap_or_default();
        let read = stream.read(target).map_err(|_| bad("a cell block is not a gzip stream"))?;
        out.truncate(at + read);
        match read {
            0 => return Ok(out),
            _ if out.len() > limit => return Err(bad("a compressed cell block is too large")),
            _ => {}
        }
    }
}

fn bad(what: &str) -> Error {
    Error::Protocol(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [CellBlockCodec; 3] = [CellBlockCodec::Gzip, CellBlockCodec::Snappy, CellBlockCodec::Lz4];

    #[test]
    fn blocks_come_back() {
        let raw: Vec<u8> = (0..CHUNK_BYTES * 2 + 7).map(|i| (i / 100) as u8).collect();
        for codec in ALL {
            for raw in [&raw[..], b"x", b""] {
                let mut out = Vec::new();
                codec.compress(raw, &mut out).expect("compresses");
                assert_eq!(codec.decompress(&out, raw.len()).expect("reads"), raw, "{codec:?}");
            }
            assert_eq!(CellBlockCodec::by_class_name(codec.class_name()), Some(codec));
        }
    }

    #[test]
    fn truncated_and_malformed_blocks_are_errors() {
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
        assert!(CellBlockCodec::Lz4.decompress(&lie, usize::MAX).is_err());
        assert!(CellBlockCodec::Snappy.decompress(&[0xff; 8], usize::MAX).is_err());
    }
}
