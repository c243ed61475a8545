//! Compression of whole cell blocks, in the framings of Hadoop's codecs.
//!
//! `GzipCodec` and `DefaultCodec` are plain gzip and zlib streams. `SnappyCodec` and `Lz4Codec`
//! write Hadoop's BlockCompressorStream; see [`evenkeel_compression::StreamCodec`].
//!
//! Decompression is bounded. It fails once the output exceeds the caller's limit or reservation,
//! and no buffer exceeds what the compressed bytes can expand to.

use std::io::{Read, Write};

use flate2::Compression;

use evenkeel_compression::{StreamCodec, StreamError};

/// Step by which the output grows when a deflate stream is decompressed.
const STREAM_STEP_BYTES: usize = 64 * 1024;

/// A Hadoop compression codec of cell blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CellBlockCodec {
    /// `GzipCodec`: a gzip stream.
    Gzip,
    /// `DefaultCodec`: a zlib stream.
    Zlib,
    /// `SnappyCodec`: block framing around snappy.
    Snappy,
    /// `Lz4Codec`: block framing around LZ4.
    Lz4,
}

/// Why a cell block could not be decompressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecompressError {
    /// The bytes are not a stream of this codec.
    Corrupt(&'static str),
    /// The output would exceed the limit.
    TooLarge {
        /// The caller's limit, in bytes.
        limit: usize,
    },
    /// The caller's reservation failed.
    OverBudget,
}

impl std::fmt::Display for DecompressError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DecompressError::Corrupt(what) => write!(f, "corrupt compressed cell block: {what}"),
            DecompressError::TooLarge { limit } => {
                write!(f, "compressed cell block expands beyond {limit} bytes")
            }
            DecompressError::OverBudget => {
                f.write_str("compressed cell block expands beyond the available memory")
            }
        }
    }
}

impl std::error::Error for DecompressError {}

impl CellBlockCodec {
    /// Returns the codec of a Java class name; `None` if this server does not have it.
    pub fn by_class_name(class: &str) -> Option<CellBlockCodec> {
        match class {
            "org.apache.hadoop.io.compress.GzipCodec"
            | "org.apache.hadoop.hbase.io.compress.ReusableStreamGzipCodec" => Some(CellBlockCodec::Gzip),
            "org.apache.hadoop.io.compress.DefaultCodec" | "org.apache.hadoop.io.compress.DeflateCodec" => {
                Some(CellBlockCodec::Zlib)
            }
            "org.apache.hadoop.io.compress.SnappyCodec"
            | "org.apache.hadoop.hbase.io.compress.xerial.SnappyCodec"
            | "org.apache.hadoop.hbase.io.compress.aircompressor.SnappyCodec" => Some(CellBlockCodec::Snappy),
            "org.apache.hadoop.io.compress.Lz4Codec"
            | "org.apache.hadoop.hbase.io.compress.lz4.Lz4Codec"
            | "org.apache.hadoop.hbase.io.compress.aircompressor.Lz4Codec" => Some(CellBlockCodec::Lz4),
            _ => None,
        }
    }

    /// Appends the compressed form of `raw` to `out`.
    pub fn compress(self, raw: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
        match self {
            CellBlockCodec::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(out, Compression::fast());
                encoder.write_all(raw)?;
                encoder.finish().map(drop)
            }
            CellBlockCodec::Zlib => {
                let mut encoder = flate2::write::ZlibEncoder::new(out, Compression::fast());
                encoder.write_all(raw)?;
                encoder.finish().map(drop)
            }
            CellBlockCodec::Snappy => StreamCodec::Snappy.compress(raw, StreamCodec::CHUNK_BYTES, out),
            CellBlockCodec::Lz4 => StreamCodec::Lz4.compress(raw, StreamCodec::CHUNK_BYTES, out),
        }
    }

    /// Decompresses `compressed` into at most `limit` bytes.
    pub fn decompress(self, compressed: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
        self.decompress_within(compressed, limit, &mut |_| true)
    }

    /// As [`CellBlockCodec::decompress`], but calls `take` to reserve a number of bytes before it
    /// produces them.
    pub fn decompress_within(
        self,
        compressed: &[u8],
        limit: usize,
        take: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Vec<u8>, DecompressError> {
        match self {
            CellBlockCodec::Gzip => read_bounded(flate2::read::MultiGzDecoder::new(compressed), limit, take),
            CellBlockCodec::Zlib => read_bounded(flate2::read::ZlibDecoder::new(compressed), limit, take),
            CellBlockCodec::Snappy => decompress_stream(StreamCodec::Snappy, compressed, limit, take),
            CellBlockCodec::Lz4 => decompress_stream(StreamCodec::Lz4, compressed, limit, take),
        }
    }
}

fn decompress_stream(
    codec: StreamCodec,
    compressed: &[u8],
    limit: usize,
    take: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<u8>, DecompressError> {
    codec.decompress(compressed, limit, take).map_err(|error| match error {
        StreamError::Corrupt(what) => DecompressError::Corrupt(what),
        StreamError::TooLarge => DecompressError::TooLarge { limit },
        StreamError::ReservationRefused => DecompressError::OverBudget,
    })
}

fn read_bounded(
    mut stream: impl Read,
    limit: usize,
    take: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<u8>, DecompressError> {
    let (mut out, mut taken) = (Vec::new(), 0);
    loop {
        let at = out.len();
        if at == taken {
            if !take(STREAM_STEP_BYTES) {
                return Err(DecompressError::OverBudget);
            }
            taken += STREAM_STEP_BYTES;
        }
        out.resize(taken.min(limit.saturating_add(1)), 0);
        let space = out.get_mut(at..).unwrap_or_default();
        let read = stream.read(space).map_err(|_| DecompressError::Corrupt("not a deflate stream"))?;
        out.truncate(at + read);
        if read == 0 {
            return Ok(out);
        }
        if out.len() > limit {
            return Err(DecompressError::TooLarge { limit });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [CellBlockCodec; 4] =
        [CellBlockCodec::Gzip, CellBlockCodec::Zlib, CellBlockCodec::Snappy, CellBlockCodec::Lz4];

    /// Bytes that are neither repetitive nor random.
    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|i| ((i * i / 7) % 61) as u8 + b' ').collect()
    }

    fn compressed(compressor: CellBlockCodec, raw: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        compressor.compress(raw, &mut out).unwrap();
        out
    }

    #[test]
    fn every_compressor_round_trips_over_several_chunks() {
        for compressor in ALL {
            for len in [
                0,
                1,
                1000,
                StreamCodec::CHUNK_BYTES,
                StreamCodec::CHUNK_BYTES + 1,
                3 * StreamCodec::CHUNK_BYTES + 5,
            ] {
                let raw = text(len);
                let packed = compressed(compressor, &raw);
                assert_eq!(compressor.decompress(&packed, len).unwrap(), raw, "{compressor:?} {len}");
            }
        }
    }

    #[test]
    fn one_block_of_several_chunks_is_what_hadoop_writes() {
        let raw = text(StreamCodec::CHUNK_BYTES + 10);
        let packed = compressed(CellBlockCodec::Snappy, &raw);
        assert_eq!(packed[..4], (raw.len() as u32).to_be_bytes());
        let first = u32::from_be_bytes(packed[4..8].try_into().unwrap()) as usize;
        let chunk = snap::raw::Decoder::new().decompress_vec(&packed[8..8 + first]).unwrap();
        assert_eq!(chunk, raw[..StreamCodec::CHUNK_BYTES]);
    }

    /// Blocks, chunks and empty blocks in any arrangement, as several Hadoop versions write them.
    #[test]
    fn hand_made_framings_are_read() {
        for (compressor, codec) in
            [(CellBlockCodec::Snappy, StreamCodec::Snappy), (CellBlockCodec::Lz4, StreamCodec::Lz4)]
        {
            let chunk = |raw: &[u8]| {
                let mut packed = Vec::new();
                codec.compress_chunk(raw, &mut packed).unwrap();
                [&(packed.len() as u32).to_be_bytes()[..], &packed].concat()
            };
            let stream = [
                &5u32.to_be_bytes()[..],
                &chunk(b"he"),
                &chunk(b"llo"),
                &0u32.to_be_bytes()[..],
                &6u32.to_be_bytes()[..],
                &chunk(b" world"),
                &0u32.to_be_bytes()[..],
            ]
            .concat();
            assert_eq!(compressor.decompress(&stream, 11).unwrap(), b"hello world");
            assert_eq!(compressor.decompress(&stream, 10), Err(DecompressError::TooLarge { limit: 10 }));
            for cut in [1, 3, 5, 7, 9, 12] {
                let result = compressor.decompress(&stream[..cut], 100);
                assert!(matches!(result, Err(DecompressError::Corrupt(_))), "{compressor:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn a_decompression_bomb_over_the_limit_is_refused() {
        let raw = vec![0u8; 8 << 20];
        for compressor in ALL {
            let packed = compressed(compressor, &raw);
            let result = compressor.decompress(&packed, 1 << 20);
            assert_eq!(result, Err(DecompressError::TooLarge { limit: 1 << 20 }), "{compressor:?}");
        }
    }

    #[test]
    fn a_decompression_bomb_over_the_budget_is_refused() {
        let raw = vec![0u8; 8 << 20];
        for compressor in ALL {
            let packed = compressed(compressor, &raw);
            let mut left = 1 << 20;
            let mut take = |bytes: usize| {
                left = usize::checked_sub(left, bytes).unwrap_or(0);
                left > 0
            };
            let result = compressor.decompress_within(&packed, usize::MAX / 2, &mut take);
            assert_eq!(result, Err(DecompressError::OverBudget), "{compressor:?}");
        }
    }

    #[test]
    fn a_false_length_does_not_reserve_memory() {
        let stream = [&i32::MAX.to_be_bytes()[..], &1u32.to_be_bytes(), &[0]].concat();
        for compressor in [CellBlockCodec::Snappy, CellBlockCodec::Lz4] {
            let result = compressor.decompress(&stream, usize::MAX);
            assert!(matches!(result, Err(DecompressError::Corrupt(_))), "{compressor:?} {result:?}");
        }
    }

    #[test]
    fn class_names_are_hadoops() {
        let gzip = CellBlockCodec::by_class_name("org.apache.hadoop.io.compress.GzipCodec");
        assert_eq!(gzip, Some(CellBlockCodec::Gzip));
        assert_eq!(CellBlockCodec::by_class_name("org.apache.hadoop.io.compress.Bogus"), None);
    }
}
