//! The codecs of files: one body in, one stored body out.

use std::cell::RefCell;
use std::io::{Read, Write};

use evenkeel_common::{ErrorKind, HBaseError, Result};

use crate::algorithm::Compression;
use crate::{framing, gzip};

/// `io.compression.codec.zstd.level` and `hbase.io.compress.zstd.level`.
const ZSTD_LEVEL: i32 = 3;
/// The first bytes of a Zstandard frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Compresses bodies, and keeps the codec's state between them.
pub struct Compressor {
    kind: Compression,
    state: CodecState,
    /// The output buffer of a chunk. It grows, and is not cleared between chunks: clearing would
    /// cost more than the copy out of it.
    scratch: Vec<u8>,
}

enum CodecState {
    None,
    Gz(gzip::Deflater),
    Snappy(Box<snap::raw::Encoder>),
    Lz4(lz4_flex::block::CompressTable),
    Zstd { codec: zstd::bulk::Compressor<'static>, framed: bool },
    Bzip2,
}

impl Compressor {
    /// A compressor. `zstd_framed` selects the block framing for ZSTD.
    ///
    /// # Errors
    /// `UnsupportedOperationException` for a codec that is not implemented.
    pub fn new(kind: Compression, zstd_framed: bool) -> Result<Self> {
        let state = match kind {
            Compression::None => CodecState::None,
            Compression::Gz => CodecState::Gz(gzip::Deflater::new()),
            Compression::Snappy => CodecState::Snappy(Box::new(snap::raw::Encoder::new())),
            Compression::Lz4 => CodecState::Lz4(lz4_flex::block::CompressTable::large()),
            Compression::Zstd => {
                CodecState::Zstd { codec: zstd::bulk::Compressor::new(ZSTD_LEVEL)?, framed: zstd_framed }
            }
            Compression::Bzip2 => CodecState::Bzip2,
            Compression::Lzo | Compression::Lzma | Compression::Brotli => return Err(unsupported(kind)),
        };
        Ok(Self { kind, state, scratch: Vec::new() })
    }

    /// The codec.
    pub fn kind(&self) -> Compression {
        self.kind
    }

    /// Compresses `body` and appends it to `out`.
    ///
    /// # Errors
    /// `IOException` if the codec fails, which no body should cause.
    pub fn compress(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let scratch = &mut self.scratch;
        match &mut self.state {
            CodecState::None => out.extend_from_slice(body),
            CodecState::Gz(deflater) => deflater.compress(body, out)?,
            CodecState::Snappy(codec) => {
                framing::write::<HBaseError>(body, framing::SNAPPY_CHUNK_BYTES, out, |chunk, out| {
                    grow(scratch, snap::raw::max_compress_len(chunk.len()));
                    let bytes = codec.compress(chunk, scratch).map_err(|e| HBaseError::io(e.to_string()))?;
                    out.extend_from_slice(output(scratch, bytes)?);
                    Ok(())
                })?
            }
            CodecState::Lz4(table) => {
                framing::write::<HBaseError>(body, framing::LZ4_CHUNK_BYTES, out, |chunk, out| {
                    grow(scratch, lz4_flex::block::get_maximum_output_size(chunk.len()));
                    let bytes = lz4_flex::block::compress_into_with_table(chunk, scratch, table)
                        .map_err(|e| HBaseError::io(e.to_string()))?;
                    out.extend_from_slice(output(scratch, bytes)?);
                    Ok(())
                })?
            }
            CodecState::Zstd { codec, framed: true } => {
                framing::write::<HBaseError>(body, framing::ZSTD_CHUNK_BYTES, out, |chunk, out| {
                    zstd_compress(codec, chunk, scratch, out)
                })?;
            }
            CodecState::Zstd { codec, framed: false } => zstd_compress(codec, body, scratch, out)?,
            CodecState::Bzip2 => {
                let mut encoder = bzip2::write::BzEncoder::new(out, bzip2::Compression::best());
                encoder.write_all(body)?;
                encoder.finish()?;
            }
        }
        Ok(())
    }
}

/// Returns the bytes that a codec wrote to `scratch`.
fn output(scratch: &[u8], bytes: usize) -> Result<&[u8]> {
    scratch.get(..bytes).ok_or_else(|| HBaseError::io("a codec wrote more than its buffer holds"))
}

fn grow(scratch: &mut Vec<u8>, bytes: usize) {
    if scratch.len() < bytes {
        scratch.resize(bytes, 0);
    }
}

/// Compresses `raw` to one Zstandard frame and appends it. Overwrites `scratch`.
fn zstd_compress(
    codec: &mut zstd::bulk::Compressor<'_>,
    raw: &[u8],
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<()> {
    scratch.clear();
    scratch.reserve(zstd::zstd_safe::compress_bound(raw.len()));
    codec.compress_to_buffer(raw, scratch)?;
    out.extend_from_slice(scratch);
    Ok(())
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compressor({})", self.kind.name())
    }
}

/// Checks that a codec is implemented.
///
/// # Errors
/// `UnsupportedOperationException` with the codec's name.
pub fn check_supported(kind: Compression) -> Result<()> {
    match kind {
        Compression::Lzo | Compression::Lzma | Compression::Brotli => Err(unsupported(kind)),
        _ => Ok(()),
    }
}

fn unsupported(kind: Compression) -> HBaseError {
    HBaseError::new(ErrorKind::UnsupportedOperation, format!("compression {} is not supported", kind.name()))
}

/// Decompresses a body of `wanted` bytes. `None` if it has another size or is malformed. The caller
/// has checked `wanted` against [`expansion_max`].
pub fn decompress(kind: Compression, body: &[u8], wanted: usize) -> Option<Vec<u8>> {
    match kind {
        Compression::Gz => {
            let mut out = vec![0; wanted];
            gzip::decompress(body, &mut out).then_some(out)
        }
        Compression::Snappy => {
            framing::read(body, wanted, |chunk, out| snap::raw::Decoder::new().decompress(chunk, out).ok())
        }
        Compression::Lz4 => {
            framing::read(body, wanted, |chunk, out| lz4_flex::block::decompress_into(chunk, out).ok())
        }
        Compression::Zstd if body.starts_with(&ZSTD_MAGIC) => {
            let mut out = Vec::with_capacity(wanted);
            (zstd_decompress(body, &mut out)? == wanted).then_some(out)
        }
        Compression::Zstd => framing::read(body, wanted, zstd_decompress),
        Compression::Bzip2 => {
            let mut out = Vec::new();
            let limit = wanted as u64;
            bzip2::read::BzDecoder::new(body).take(limit).read_to_end(&mut out).ok()?;
            (out.len() == wanted).then_some(out)
        }
        Compression::None | Compression::Lzo | Compression::Lzma | Compression::Brotli => None,
    }
}

thread_local! {
    /// A context takes about 160 KB, too expensive to make for each block.
    static ZSTD_DECODER: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

fn zstd_decompress<B: zstd::zstd_safe::WriteBuf + ?Sized>(chunk: &[u8], out: &mut B) -> Option<usize> {
    ZSTD_DECODER.with_borrow_mut(|codec| {
        let codec = match codec {
            Some(codec) => codec,
            None => codec.insert(zstd::bulk::Decompressor::new().ok()?),
        };
        codec.decompress_to_buffer(chunk, out).ok()
    })
}

/// The maximum number of bytes that one stored byte may expand to, rounded up generously.
pub fn expansion_max(kind: Compression) -> usize {
    match kind {
        Compression::None => 1,
        // A deflate code of at least 2 bits copies at most 258 bytes.
        Compression::Gz => 1100,
        // A copy of 2 bytes makes at most 64 bytes.
        Compression::Snappy => 64,
        // Each byte of a match length adds at most 255 bytes.
        Compression::Lz4 => 300,
        // A block of 4 bytes repeats one byte 128 Ki times.
        Compression::Zstd => 40_000,
        // Runs of runs, so there is no bound. The block size limit applies, and memory grows with
        // the actual output.
        Compression::Bzip2 => usize::MAX,
        Compression::Lzo | Compression::Lzma | Compression::Brotli => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUPPORTED: [Compression; 5] =
        [Compression::Gz, Compression::Snappy, Compression::Lz4, Compression::Zstd, Compression::Bzip2];

    fn bodies() -> Vec<Vec<u8>> {
        let mixed =
            |len: usize| (0..len).map(|i| if i % 97 < 50 { b'.' } else { (i * i / 7) as u8 }).collect();
        vec![vec![], vec![7], mixed(1000), mixed(65_536), mixed(700_000), vec![0; 1_000_000]]
    }

    fn compressed(kind: Compression, framed: bool, body: &[u8]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        Compressor::new(kind, framed).unwrap().compress(body, &mut out).unwrap();
        out.split_off(6)
    }

    #[test]
    fn bodies_round_trip_and_stay_within_the_bounds() {
        for (kind, framed) in
            SUPPORTED.into_iter().map(|kind| (kind, false)).chain([(Compression::Zstd, true)])
        {
            let mut compressor = Compressor::new(kind, framed).unwrap();
            for body in bodies() {
                let mut stored = Vec::new();
                compressor.compress(&body, &mut stored).unwrap();
                assert_eq!(decompress(kind, &stored, body.len()).as_ref(), Some(&body), "{kind:?} {framed}");
                assert!(body.len() / expansion_max(kind) <= stored.len(), "{kind:?} {}", body.len());
            }
        }
    }

    #[test]
    fn bytes_after_the_body_are_ignored() {
        for kind in SUPPORTED {
            let body = bodies().remove(2);
            let again = [compressed(kind, false, &body), compressed(kind, false, &[])].concat();
            assert_eq!(decompress(kind, &again, body.len()), Some(body), "{kind:?}");
        }
    }

    #[test]
    fn wrong_lengths_and_cut_bodies_are_refused() {
        for (kind, framed) in
            SUPPORTED.into_iter().map(|kind| (kind, false)).chain([(Compression::Zstd, true)])
        {
            let body = bodies().remove(2);
            let stored = compressed(kind, framed, &body);
            assert_eq!(decompress(kind, &stored, body.len() + 1), None, "{kind:?} more");
            for end in [0, 1, stored.len() / 2] {
                assert_eq!(decompress(kind, &stored[..end], body.len()), None, "{kind:?} cut at {end}");
            }
        }
    }

    #[test]
    fn unknown_codecs_are_named() {
        let error = Compressor::new(Compression::Lzo, false).unwrap_err();
        assert_eq!(error.message(), "compression LZO is not supported");
    }
}
