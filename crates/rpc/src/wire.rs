//! The protobuf primitives that the RPC layer encodes and decodes by hand.
//!
//! Every RPC has a RequestHeader and a ResponseHeader. Handling these two without a generated
//! message saves an allocation for the method name and one for every unused map and list. All reads
//! are bounds checked and advance a slice, so a truncated or wrong length is an error, never a
//! panic.

/// A length or tag that does not fit the received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The longest encoding of a 64-bit varint.
const VARINT_BYTES_MAX: usize = 10;

/// Takes a varint off the front of `input`.
#[inline]
pub fn take_varint(input: &mut &[u8]) -> Result<u64, Malformed> {
    match input.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *input = rest;
            Ok(u64::from(byte))
        }
        _ => take_long_varint(input),
    }
}

fn take_long_varint(input: &mut &[u8]) -> Result<u64, Malformed> {
    let (mut value, mut rest) = (0u64, *input);
    for i in 0..VARINT_BYTES_MAX {
        let (&byte, behind) = rest.split_first().ok_or(Malformed)?;
        rest = behind;
        value |= u64::from(byte & 0x7f) << (7 * i).min(63);
        if byte < 0x80 {
            *input = rest;
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// Takes `len` bytes off the front of `input`.
#[inline]
pub fn take_bytes<'a>(input: &mut &'a [u8], len: usize) -> Result<&'a [u8], Malformed> {
    let (head, rest) = input.split_at_checked(len).ok_or(Malformed)?;
    *input = rest;
    Ok(head)
}

/// Takes a varint length and that many bytes off the front of `input`.
#[inline]
pub fn take_delimited<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = usize::try_from(take_varint(input)?).map_err(|_| Malformed)?;
    take_bytes(input, len)
}

/// Takes a big-endian int32 off the front of `input`, as an unsigned number.
#[inline]
pub fn take_u32(input: &mut &[u8]) -> Result<u32, Malformed> {
    let (head, rest) = input.split_first_chunk::<4>().ok_or(Malformed)?;
    *input = rest;
    Ok(u32::from_be_bytes(*head))
}

/// Skips one field of wire type `wire_type`; groups, which no HBase message uses, are malformed.
pub fn skip_field(input: &mut &[u8], wire_type: u64) -> Result<(), Malformed> {
    match wire_type {
        0 => take_varint(input).map(drop),
        1 => take_bytes(input, 8).map(drop),
        2 => take_delimited(input).map(drop),
        5 => take_bytes(input, 4).map(drop),
        _ => Err(Malformed),
    }
}

/// Returns the encoded length of `value`.
#[inline]
pub fn varint_len(value: u64) -> usize {
    // One byte per started group of seven bits.
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends `value` as a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_the_edges() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(bytes.len(), varint_len(value), "{value}");
            let mut input = bytes.as_slice();
            assert_eq!(take_varint(&mut input), Ok(value));
            assert!(input.is_empty());
            let mut truncated = &bytes[..bytes.len() - 1];
            assert_eq!(take_varint(&mut truncated), Err(Malformed));
        }
    }

    #[test]
    fn a_varint_that_never_ends_is_malformed() {
        let mut input: &[u8] = &[0xff; 64];
        assert_eq!(take_varint(&mut input), Err(Malformed));
    }

    #[test]
    fn a_delimited_length_beyond_the_input_is_malformed() {
        let mut input: &[u8] = &[3, 1, 2];
        assert_eq!(take_delimited(&mut input), Err(Malformed));
        let mut input: &[u8] = &[2, 1, 2, 9];
        assert_eq!(take_delimited(&mut input), Ok(&[1u8, 2][..]));
        assert_eq!(input, &[9]);
    }
}
