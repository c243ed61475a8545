//! Variable-length integers.
//!
//! * *varint*: protobuf's, seven bits a byte, lowest first, high bit set on all but the last byte.
//! * *vlong*: Hadoop's `WritableUtils`: one byte for -112..=127. Otherwise the first byte gives
//!   sign and byte count (-113..=-120 positive, -121..=-128 negative), and the magnitude follows
//!   big-endian (its complement if negative).

use crate::length;

/// Appends a protobuf varint.
pub fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// The number of bytes that [`write_varint`] appends.
pub fn varint_len(value: u64) -> usize {
    let bits = u64::BITS - (value | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Reads a protobuf varint. Returns the value and its length in bytes, or `None` if the bytes end
/// early or the value has more than 64 bits.
pub fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (i, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return (i < 9 || *byte <= 1).then_some((value, i + 1));
        }
    }
    None
}

/// Appends a Hadoop vlong.
#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "a magnitude has 1 to 8 bytes"))]
pub fn write_vlong(out: &mut Vec<u8>, value: i64) {
    if (-112..=127).contains(&value) {
        out.push((value & 0xff) as u8);
        return;
    }
    let (magnitude, base) = if value < 0 { (!value as u64, -120i8) } else { (value as u64, -112i8) };
    let count = 8 - magnitude.leading_zeros() as usize / 8;
    out.push((base - length::must_u8(count).cast_signed()) as u8);
    out.extend_from_slice(&magnitude.to_be_bytes()[8 - count..]);
}

/// Reads a Hadoop vlong. Returns the value and its length in bytes, or `None` if the bytes end
/// early.
#[inline]
pub fn read_vlong(bytes: &[u8]) -> Option<(i64, usize)> {
    let first = *bytes.first()? as i8;
    if first >= -112 { Some((i64::from(first), 1)) } else { read_long_vlong(first, bytes) }
}

/// Reads a vlong of more than one byte; `first` is its first byte.
fn read_long_vlong(first: i8, bytes: &[u8]) -> Option<(i64, usize)> {
    let (count, negative) =
        if first < -120 { (-120 - first as i32, true) } else { (-112 - first as i32, false) };
    let count = count as usize;
    let magnitude = bytes.get(1..1 + count)?.iter().fold(0u64, |v, b| v << 8 | u64::from(*b));
    Some((if negative { !magnitude as i64 } else { magnitude as i64 }, 1 + count))
}

/// The number of bytes that [`write_vlong`] appends.
pub fn vlong_len(value: i64) -> usize {
    if (-112..=127).contains(&value) {
        return 1;
    }
    let magnitude = if value < 0 { !value as u64 } else { value as u64 };
    9 - magnitude.leading_zeros() as usize / 8
}

/// Reads a big-endian `u32` at an offset.
pub fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
}

/// Reads a big-endian `u64` at an offset.
pub fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_be_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlongs_round_trip_at_their_edges() {
        let edges =
            [0, 127, 128, -112, -113, 255, 256, 65535, 65536, i64::MAX, i64::MIN, -256, -257, 1 << 40];
        for value in edges {
            let mut out = Vec::new();
            write_vlong(&mut out, value);
            assert_eq!(read_vlong(&out), Some((value, out.len())), "{value}");
            assert_eq!(vlong_len(value), out.len(), "{value}");
            assert_eq!(read_vlong(&out[..out.len() - 1]), None, "{value}");
        }
    }

    #[test]
    fn known_vlong_bytes() {
        let mut out = Vec::new();
        write_vlong(&mut out, 128);
        write_vlong(&mut out, -129);
        assert_eq!(out, [0x8f, 0x80, 0x87, 0x80]);
    }

    #[test]
    fn varints_round_trip_and_end() {
        for value in [0, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            write_varint(&mut out, value);
            assert_eq!(read_varint(&out), Some((value, out.len())));
            assert_eq!(varint_len(value), out.len(), "{value}");
        }
        assert_eq!(read_varint(&[[0x80; 9].as_slice(), &[2]].concat()), None);
        assert_eq!(read_varint(&[0x80; 11]), None);
        assert_eq!(read_varint(&[0x80]), None);
    }
}
