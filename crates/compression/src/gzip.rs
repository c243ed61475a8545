//! Gzip members around raw deflate. The deflate state is kept and reset.

use evenkeel_common::length;
use std::cell::RefCell;

use evenkeel_common::{HBaseError, Result};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Magic, deflate, no flags, no time, no extra flags, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0];

mod flag {
    pub const HEADER_CRC: u8 = 2;
    pub const EXTRA: u8 = 4;
    pub const NAME: u8 = 8;
    pub const COMMENT: u8 = 16;
}

/// Writes gzip members.
pub(super) struct Deflater(Compress);

impl Deflater {
    pub fn new() -> Self {
        Self(Compress::new(Compression::default(), false))
    }

    /// Compresses `body` to one member and appends it.
    pub fn compress(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.0.reset();
        out.extend_from_slice(&HEADER);
        loop {
            out.reserve(body.len() / 2 + 128);
            let rest = body.get(length::index(self.0.total_in())..).unwrap_or_default();
            let status = self.0.compress_vec(rest, out, FlushCompress::Finish);
            if status.map_err(|e| HBaseError::io(e.to_string()))? == Status::StreamEnd {
                break;
            }
        }
        out.extend_from_slice(&crc_fast::crc32_iso_hdlc(body).to_le_bytes());
        out.extend_from_slice(&length::low_u32(body.len() as u64).to_le_bytes());
        Ok(())
    }
}

thread_local! {
    static INFLATER: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

/// Decompresses the first member of `body` into `out`. Returns false if the member does not fill
/// `out` exactly.
pub(super) fn decompress(body: &[u8], out: &mut [u8]) -> bool {
    INFLATER.with_borrow_mut(|inflater| inflate(inflater, body, out)).is_some()
}

fn inflate(inflater: &mut Decompress, body: &[u8], out: &mut [u8]) -> Option<()> {
    let deflated = body.get(header_len(body)?..)?;
    inflater.reset(false);
    let status = inflater.decompress(deflated, out, FlushDecompress::Finish).ok()?;
    let ended = status == Status::StreamEnd && inflater.total_out() == out.len() as u64;
    let check = deflated.get(length::index(inflater.total_in())..)?.first_chunk::<4>()?;
    (ended && u32::from_le_bytes(*check) == crc_fast::crc32_iso_hdlc(out)).then_some(())
}

fn header_len(body: &[u8]) -> Option<usize> {
    let header = body.first_chunk::<10>()?;
    if header[..3] != HEADER[..3] {
        return None;
    }
    let (flags, mut len) = (header[3], HEADER.len());
    if flags & flag::EXTRA != 0 {
        let extra = body.get(len..)?.first_chunk::<2>()?;
        len += 2 + usize::from(u16::from_le_bytes(*extra));
    }
    for text in [flag::NAME, flag::COMMENT] {
        if flags & text != 0 {
            len += body.get(len..)?.iter().position(|b| *b == 0)? + 1;
        }
    }
    Some(if flags & flag::HEADER_CRC != 0 { len + 2 } else { len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_with_every_optional_field_is_read() {
        let mut member = Vec::new();
        Deflater::new().compress(b"hello", &mut member).unwrap();
        let rest = member.split_off(10);
        member[3] = flag::EXTRA | flag::NAME | flag::COMMENT | flag::HEADER_CRC;
        member.extend_from_slice(b"\x03\0xyzname\0comment\0\x12\x34");
        member.extend_from_slice(&rest);
        let mut out = [0; 5];
        assert!(decompress(&member, &mut out));
        assert_eq!(&out, b"hello");
    }

    #[test]
    fn every_flipped_bit_of_the_data_is_found() {
        let (body, mut member) = (vec![b'a'; 300], Vec::new());
        Deflater::new().compress(&body, &mut member).unwrap();
        let mut out = vec![0; 300];
        for bit in 10 * 8..(member.len() - 4) * 8 {
            let mut changed = member.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!decompress(&changed, &mut out) || out == body, "{bit}");
        }
    }
}
