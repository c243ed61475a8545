//! Decimal numbers of any length, compared exactly.
//!
//! ```text
//! decimal = i32 scale | unscaled value, two's complement, big-endian, at least 1 byte
//! value   = unscaled / 10^scale
//! ```
//!
//! With `d` decimal digits the magnitude is `0.DIGITS * 10^(d - scale)`. So two numbers of one sign
//! compare by that exponent and then digit by digit. No number is scaled up, regardless of the
//! scales.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use evenkeel_common::length;
use std::cmp::Ordering;

use evenkeel_common::Result;
use evenkeel_common::varint::read_u32;

use super::illegal;

/// The longest unscaled value that is converted to digits, which takes quadratic time.
const UNSCALED_BYTES_MAX: usize = 8 << 10;

/// Compares two encoded decimals.
///
/// # Errors
/// `IllegalArgumentException` for bytes that are not a decimal, and for a too long one if the
/// scales differ.
pub(super) fn compare(a: &[u8], b: &[u8]) -> Result<Ordering> {
    let (a, b) = (Decimal::parse(a)?, Decimal::parse(b)?);
    if a.scale == b.scale {
        return Ok(a.compare_unscaled(&b));
    }
    if a.sign() != b.sign() || a.sign() == 0 {
        return Ok(a.sign().cmp(&b.sign()));
    }
    let order = a.compare_magnitude(&b)?;
    Ok(if a.sign() < 0 { order.reverse() } else { order })
}

struct Decimal<'a> {
    scale: i32,
    /// Without redundant sign bytes; at least one byte.
    unscaled: &'a [u8],
}

impl<'a> Decimal<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self> {
        match (read_u32(bytes, 0), bytes.get(4..)) {
            (Some(scale), Some(unscaled @ [_, ..])) => {
                Ok(Self { scale: scale as i32, unscaled: shorten(unscaled) })
            }
            _ => Err(illegal(format!("{} bytes are not a BigDecimal", bytes.len()))),
        }
    }

    fn sign(&self) -> i32 {
        match self.unscaled {
            [0] => 0,
            [first, ..] if *first >= 0x80 => -1,
            _ => 1,
        }
    }

    /// Compares as integers of two's complement.
    fn compare_unscaled(&self, other: &Self) -> Ordering {
        let by_length = self.unscaled.len().cmp(&other.unscaled.len());
        self.sign().cmp(&other.sign()).then(match by_length {
            Ordering::Equal => self.unscaled.cmp(other.unscaled),
            longer if self.sign() < 0 => longer.reverse(),
            longer => longer,
        })
    }

    fn compare_magnitude(&self, other: &Self) -> Result<Ordering> {
        let (mut a_room, mut b_room) = ([0; 39], [0; 39]);
        let (mut a_heap, mut b_heap) = (Vec::new(), Vec::new());
        let a = self.digits(&mut a_room, &mut a_heap)?;
        let b = other.digits(&mut b_room, &mut b_heap)?;
        let exponent = |digits: &[u8], scale: i32| digits.len() as i64 - i64::from(scale);
        let by_exponent = exponent(a, self.scale).cmp(&exponent(b, other.scale));
        Ok(by_exponent.then_with(|| trim_zeros(a).cmp(trim_zeros(b))))
    }

    /// Returns the magnitude's decimal digits, as bytes 0 to 9, the first not 0. They are stored in
    /// `room` if they fit.
    fn digits<'r>(&self, room: &'r mut [u8; 39], heap: &'r mut Vec<u8>) -> Result<&'r [u8]> {
        if self.unscaled.len() > UNSCALED_BYTES_MAX {
            return Err(illegal(format!(
                "a BigDecimal of {} bytes is too long to compare",
                self.unscaled.len()
            )));
        }
        if self.unscaled.len() > 16 {
            *heap = long_digits(magnitude(self.unscaled));
            return Ok(heap);
        }
        let sign = if self.sign() < 0 { -1 } else { 0 };
        let value = self.unscaled.iter().fold(sign, |value: i128, byte| value << 8 | i128::from(*byte));
        Ok(short_digits(value.unsigned_abs(), room))
    }
}

/// Drops leading bytes that only repeat the sign.
fn shorten(mut bytes: &[u8]) -> &[u8] {
    while let Some((first, rest)) = bytes.split_first()
        && let Some(second) = rest.first()
    {
        let sign = if *second >= 0x80 { 0xff } else { 0 };
        if *first != sign {
            break;
        }
        bytes = rest;
    }
    bytes
}

fn trim_zeros(digits: &[u8]) -> &[u8] {
    let len = digits.iter().rposition(|d| *d != 0).map_or(0, |i| i + 1);
    digits.get(..len).unwrap_or(digits)
}

fn short_digits(mut value: u128, room: &mut [u8; 39]) -> &[u8] {
    let mut unused = room.len();
    for digit in room.iter_mut().rev() {
        if value == 0 {
            break;
        }
        (*digit, value) = ((value % 10) as u8, value / 10);
        unused -= 1;
    }
    room.get(unused..).unwrap_or_default()
}

/// Returns the absolute value as 32-bit limbs, the highest first.
fn magnitude(unscaled: &[u8]) -> Vec<u32> {
    let negative = unscaled.first().is_some_and(|b| *b >= 0x80);
    let flip = if negative { 0xff } else { 0 };
    let mut limbs: Vec<u32> = unscaled
        .rchunks(4)
        .rev()
        .map(|c| c.iter().fold(0, |limb, b| limb << 8 | u32::from(b ^ flip)))
        .collect();
    let mut carry = negative;
    for limb in limbs.iter_mut().rev() {
        (*limb, carry) = limb.overflowing_add(u32::from(carry));
    }
    if carry {
        limbs.insert(0, 1);
    }
    limbs
}

/// Returns the digits, by long division, nine at a time.
fn long_digits(mut limbs: Vec<u32>) -> Vec<u8> {
    const CHUNK: u64 = 1_000_000_000;
    let mut digits = Vec::with_capacity(limbs.len() * 10);
    while limbs.iter().any(|limb| *limb != 0) {
        let mut rest = 0;
        for limb in &mut limbs {
            let value = rest << 32 | u64::from(*limb);
            *limb = length::low_u32(value / CHUNK);
            rest = value % CHUNK;
        }
        digits.extend(
            (0..9)
                .scan(rest, |rest, _| Some(std::mem::replace(rest, *rest / 10) % 10))
                .map(|d| (d & 0xf) as u8),
        );
        let zeros = limbs.iter().take_while(|limb| **limb == 0).count();
        limbs.drain(..zeros);
    }
    let len = digits.iter().rposition(|d| *d != 0).map_or(0, |i| i + 1);
    digits.truncate(len);
    digits.reverse();
    digits
}

#[cfg(test)]
mod tests {
    use super::super::testing::next_random;
    use super::*;
    use Ordering::{Equal, Greater, Less};

    fn decimal(unscaled: i128, scale: i32) -> Vec<u8> {
        let mut bytes = scale.to_be_bytes().to_vec();
        bytes.extend_from_slice(shorten(&unscaled.to_be_bytes()));
        bytes
    }

    /// `10^zeros`, in bytes.
    fn power_of_ten(zeros: usize, negative: bool) -> Vec<u8> {
        let mut bytes = vec![0; zeros / 2 + 2];
        *bytes.last_mut().unwrap() = 1;
        for _ in 0..zeros {
            let mut carry = 0;
            for byte in bytes.iter_mut().rev() {
                carry += u32::from(*byte) * 10;
                *byte = carry as u8;
                carry >>= 8;
            }
        }
        if negative {
            let mut carry = true;
            for byte in bytes.iter_mut().rev() {
                (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
            }
        }
        bytes
    }

    #[test]
    fn known_orders() {
        for (a, b, order) in [
            ((1, 0), (10, 1), Equal),
            ((0, 5), (0, -7), Equal),
            ((-1, 0), (1, 3), Less),
            ((15, 1), (149, 2), Greater),
            ((-15, 1), (-149, 2), Less),
            ((1, i32::MIN), (1, i32::MAX), Greater),
            ((-1, i32::MIN), (-1, i32::MAX), Less),
            ((0, i32::MIN), (-1, i32::MAX), Greater),
            ((i128::MIN, 0), (i128::MAX, 1), Less),
            ((i128::MAX, 0), (i128::MAX, 0), Equal),
            ((255, 0), (256, 0), Less),
            ((-256, 0), (-255, 0), Less),
            ((-129, 0), (1, 0), Less),
        ] {
            let (a, b) = (decimal(a.0, a.1), decimal(b.0, b.1));
            assert_eq!(compare(&a, &b).unwrap(), order, "{a:?} {b:?}");
            assert_eq!(compare(&b, &a).unwrap(), order.reverse(), "{b:?} {a:?}");
        }
    }

    #[test]
    fn sign_bytes_do_not_matter() {
        assert_eq!(compare(&[0, 0, 0, 0, 0, 0, 5], &[0, 0, 0, 1, 50]).unwrap(), Equal);
        assert_eq!(compare(&[0, 0, 0, 0, 0xff, 0xff, 0xfb], &[0, 0, 0, 1, 0xce]).unwrap(), Equal);
    }

    #[test]
    fn long_numbers_compare_by_their_digits() {
        let with_scale = |scale: i32, unscaled: &[u8]| [&scale.to_be_bytes()[..], unscaled].concat();
        for zeros in [40, 100, 1000] {
            for negative in [false, true] {
                let one = if negative { [0xff] } else { [1] };
                let big = with_scale(zeros as i32, &power_of_ten(zeros, negative));
                assert_eq!(compare(&big, &with_scale(0, &one)).unwrap(), Equal, "{zeros}");
                let bigger = with_scale(zeros as i32 - 1, &power_of_ten(zeros, negative));
                assert_eq!(
                    compare(&bigger, &with_scale(0, &one)).unwrap(),
                    if negative { Less } else { Greater }
                );
            }
        }
    }

    #[test]
    fn agrees_with_plain_arithmetic() {
        let mut state = 3;
        let mut random = |n: u64| (next_random(&mut state) % n) as i64;
        for _ in 0..20_000 {
            let (a, b) = (i128::from(random(2001) - 1000), i128::from(random(2001) - 1000));
            let (a_scale, b_scale) = (random(5) as i32, random(5) as i32);
            let expected = (a * 10i128.pow(5 - a_scale as u32)).cmp(&(b * 10i128.pow(5 - b_scale as u32)));
            assert_eq!(compare(&decimal(a, a_scale), &decimal(b, b_scale)).unwrap(), expected);
        }
    }

    #[test]
    fn too_few_or_too_many_bytes_are_refused() {
        for bytes in [&[][..], &[0], &[0, 0, 0, 0]] {
            assert!(compare(bytes, &decimal(1, 0)).is_err());
        }
        let mut huge = vec![0x7f; UNSCALED_BYTES_MAX + 5];
        assert!(compare(&huge, &decimal(1, 0)).is_err());
        let other = huge.clone();
        huge[9] = 0x7e;
        assert_eq!(compare(&huge, &other).unwrap(), Less);
    }
}
