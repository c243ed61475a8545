//! Packets: the format is the same in both directions.
//!
//! ```text
//! int32 plen | int16 hlen | PacketHeaderProto | checksums | data
//! ```
//!
//! `plen` counts itself, the checksums and the data, not the header. There is one big-endian CRC32C
//! for each chunk of [`CHUNK_BYTES`] of the packet's data, the last one possibly shorter. Chunks
//! are counted from the start of the data, so the data must begin on a chunk boundary of the block.

use std::io;

use crc_fast::{crc32_iscsi, crc32_iso_hdlc};
use prost::Message;

use crate::hadoop::hdfs::{ChecksumProto, PacketHeaderProto};

/// Bytes per checksum in blocks that this client writes: the default of `dfs.bytes-per-checksum`.
pub(crate) const CHUNK_BYTES: usize = 512;

/// The maximum of data bytes in one packet of this client, a multiple of [`CHUNK_BYTES`]. DataNodes
/// accept packets of up to 16 MiB.
pub(crate) const DATA_BYTES_MAX: usize = 12 << 20;

/// The sequence number of a heartbeat packet.
pub(crate) const HEARTBEAT: i64 = -1;

/// `plen` and `hlen`.
pub(crate) const PREFIX_BYTES: usize = 6;

/// The largest packet accepted from a DataNode, in bytes, header included: Hadoop's limit.
pub(crate) const PACKET_BYTES_MAX: usize = 16 << 20;

/// CRC32C, as `requestedChecksum` names it.
pub(crate) const CRC32C: ChecksumProto = ChecksumProto { r#type: 2, bytes_per_checksum: 512 };

fn header(offset: u64, seqno: i64, data_len: usize, is_last: bool, sync: bool) -> PacketHeaderProto {
    PacketHeaderProto {
        offset_in_block: offset.cast_signed(),
        seqno,
        last_packet_in_block: is_last,
        data_len: evenkeel_common::length::must_i32(data_len),
        sync_block: sync.then_some(true),
    }
}

/// Appends a packet. `data` begins on a chunk boundary and has at most [`DATA_BYTES_MAX`] bytes.
pub(crate) fn put_packet(out: &mut Vec<u8>, offset: u64, seqno: i64, data: &[u8], is_last: bool, sync: bool) {
    let sums = data.len().div_ceil(CHUNK_BYTES) * 4;
    let header = header(offset, seqno, data.len(), is_last, sync);
    out.reserve(PREFIX_BYTES + header.encoded_len() + sums + data.len());
    out.extend_from_slice(&evenkeel_common::length::must_i32(4 + sums + data.len()).to_be_bytes());
    out.extend_from_slice(&evenkeel_common::length::must_u16(header.encoded_len()).to_be_bytes());
    // Encoding into a `Vec` cannot fail: it grows.
    let _ = header.encode(out);
    for chunk in data.chunks(CHUNK_BYTES) {
        out.extend_from_slice(&crc32_iscsi(chunk).to_be_bytes());
    }
    out.extend_from_slice(data);
}

/// How the bytes of a block are checksummed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// No checksums.
    Null,
    /// CRC32 over chunks of this many bytes.
    Crc32(usize),
    /// CRC32C over chunks of this many bytes.
    Crc32c(usize),
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Checksum {
    /// # Errors
    /// `InvalidData` for an unknown checksum type or an invalid chunk size.
    pub(crate) fn of(proto: &ChecksumProto) -> io::Result<Self> {
        let chunk = usize::try_from(proto.bytes_per_checksum).unwrap_or(0);
        match proto.r#type {
            0 => Ok(Self::Null),
            1 | 2 if chunk == 0 || chunk > 1 << 20 => {
                Err(invalid(format!("checksums of {chunk} bytes each")))
            }
            1 => Ok(Self::Crc32(chunk)),
            2 => Ok(Self::Crc32c(chunk)),
            other => Err(invalid(format!("checksum type {other}"))),
        }
    }

    /// Returns the number of checksum bytes for `data_len` bytes of data.
    pub(crate) fn sums_len(self, data_len: usize) -> usize {
        match self {
            Self::Null => 0,
            Self::Crc32(chunk) | Self::Crc32c(chunk) => data_len.div_ceil(chunk) * 4,
        }
    }

    /// Returns true if the data matches its checksums, which have [`Checksum::sums_len`] bytes.
    pub(crate) fn matches(self, data: &[u8], sums: &[u8]) -> bool {
        let (chunk, crc): (usize, fn(&[u8]) -> u32) = match self {
            Self::Null => return true,
            Self::Crc32(chunk) => (chunk, crc32_iso_hdlc),
            Self::Crc32c(chunk) => (chunk, crc32_iscsi),
        };
        data.chunks(chunk).zip(sums.chunks(4)).all(|(data, sum)| crc(data).to_be_bytes() == sum)
    }
}

/// Bytes that do not match their checksum.
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// The offset in the block at which the bytes begin that were compared.
    pub(crate) offset: u64,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the bytes from {} of the block on do not match their checksums", self.offset)
    }
}

impl std::error::Error for Mismatch {}

/// Returns true if an error is a [`Mismatch`].
pub(crate) fn is_mismatch(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Mismatch>())
}

/// Decodes a packet's prefix into two lengths: of the header, and of checksums plus data.
///
/// # Errors
/// `InvalidData` if they are out of range.
pub(crate) fn lengths(prefix: [u8; PREFIX_BYTES]) -> io::Result<(usize, usize)> {
    let [a, b, c, d, e, f] = prefix;
    let payload = usize::try_from(i32::from_be_bytes([a, b, c, d])).ok().and_then(|len| len.checked_sub(4));
    let header = usize::from(u16::from_be_bytes([e, f]));
    match payload {
        Some(payload) if payload + header <= PACKET_BYTES_MAX => Ok((header, payload)),
        _ => Err(invalid(format!("a packet of lengths {prefix:02x?}"))),
    }
}

/// A packet's header, validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) offset: u64,
    pub(crate) seqno: i64,
    pub(crate) is_last: bool,
    pub(crate) data_len: usize,
    pub(crate) sync: bool,
}

impl Header {
    /// # Errors
    /// `InvalidData` if it is malformed or has a negative offset or length.
    pub(crate) fn decode(bytes: &[u8]) -> io::Result<Self> {
        let header = PacketHeaderProto::decode(bytes).map_err(|e| invalid(e.to_string()))?;
        Ok(Self {
            offset: u64::try_from(header.offset_in_block).map_err(|_| invalid("a negative offset"))?,
            seqno: header.seqno,
            is_last: header.last_packet_in_block,
            data_len: usize::try_from(header.data_len).map_err(|_| invalid("a negative length"))?,
            sync: header.sync_block(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(offset: u64, seqno: i64, data: &[u8], is_last: bool, sync: bool) -> String {
        let mut out = Vec::new();
        put_packet(&mut out, offset, seqno, data, is_last, sync);
        out.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Recorded from Hadoop's client.
    #[test]
    fn packets_are_hadoops_to_the_byte() {
        let heartbeat = "0000000400190900000000000000 0011ffffffffffffffff18002500000000".replace(' ', "");
        assert_eq!(packet(0, HEARTBEAT, b"", false, false), heartbeat);
        let data =
            "0000000b0019090002000000000000110700000000000000180025030000 00364b3fb7616263".replace(' ', "");
        assert_eq!(packet(512, 7, b"abc", false, false), data);
        let sync = "00000004001b09030200000000000011080000000000000018002500000000 2801".replace(' ', "");
        assert_eq!(packet(515, 8, b"", false, true), sync);
        let last = "0000000400190903020000000000001109000000000000001801250000 0000".replace(' ', "");
        assert_eq!(packet(515, 9, b"", true, false), last);
    }

    #[test]
    fn a_header_is_read_back() {
        let mut out = Vec::new();
        put_packet(&mut out, 1024, 3, &[7; 700], false, true);
        let (header_len, payload) = lengths(out[..6].try_into().expect("6")).expect("possible");
        assert_eq!(payload, 700 + 8);
        let header = Header::decode(&out[6..6 + header_len]).expect("decoded");
        assert_eq!(header, Header { offset: 1024, seqno: 3, is_last: false, data_len: 700, sync: true });
        let rest = &out[6 + header_len..];
        assert!(Checksum::Crc32c(512).matches(&rest[8..], &rest[..8]));
        let mut damaged = rest.to_vec();
        damaged[600] ^= 1;
        assert!(!Checksum::Crc32c(512).matches(&damaged[8..], &damaged[..8]));
    }

    #[test]
    fn impossible_lengths_are_refused() {
        assert!(lengths([0, 0, 0, 3, 0, 25]).is_err());
        assert!(lengths([0xff; 6]).is_err());
        assert!(lengths([0x7f, 0xff, 0xff, 0xff, 0, 25]).is_err());
        assert!(Header::decode(&[1, 2, 3]).is_err());
    }
}
