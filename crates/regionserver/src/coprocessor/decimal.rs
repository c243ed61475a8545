//! Decimal numbers as HBase's BigDecimalColumnInterpreter computes with them: two digits after the
//! point.
//!
//! `Bytes.toBytes(BigDecimal)` is a 4-byte scale followed by the unscaled number in big-endian
//! two's complement, in as few bytes as possible. Here the unscaled number is an `i128`, which has
//! 38 digits; larger numbers are rejected.

use evenkeel_common::{HBaseError, Result};

/// Digits after the point of every number that the interpreter returns.
pub const SCALE: i32 = 2;

/// A number of hundredths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hundredths(pub i128);

impl Hundredths {
    /// Parses a number and rounds it to hundredths, half to even; `None` if the bytes are no
    /// number.
    ///
    /// # Errors
    /// `DoNotRetryIOException` for a number that is too large.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>> {
        let Some((scale, unscaled)) =
            bytes.split_first_chunk::<4>().filter(|(_, unscaled)| !unscaled.is_empty())
        else {
            return Ok(None);
        };
        let unscaled = integer(unscaled).ok_or_else(too_large)?;
        rescale(unscaled, i32::from_be_bytes(*scale)).map(|number| Some(Self(number)))
    }

    /// Returns the number as HBase stores it.
    pub fn write(self) -> Vec<u8> {
        let bytes = self.0.to_be_bytes();
        let sign = if self.0 < 0 { 0xff } else { 0 };
        // A leading byte is redundant if the next one has the same sign.
        let is_spare = |(byte, next): &(&u8, &u8)| **byte == sign && (**next ^ sign) & 0x80 == 0;
        let spare = bytes.iter().zip(bytes.iter().skip(1)).take_while(is_spare).count();
        SCALE.to_be_bytes().into_iter().chain(bytes.into_iter().skip(spare)).collect()
    }

    /// Returns the sum.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if it is too large.
    pub fn plus(self, other: Self) -> Result<Self> {
        self.0.checked_add(other.0).map(Self).ok_or_else(too_large)
    }

    /// Returns the product, rounded to hundredths.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if it is too large.
    pub fn times(self, other: Self) -> Result<Self> {
        let product = self.0.checked_mul(other.0).ok_or_else(too_large)?;
        rescale(product, 2 * SCALE).map(Self)
    }
}

fn too_large() -> HBaseError {
    HBaseError::do_not_retry("a decimal number has more than 38 digits")
}

fn integer(bytes: &[u8]) -> Option<i128> {
    let sign = if bytes.first()? & 0x80 == 0 { 0 } else { 0xff };
    let (extra, low) = bytes.split_at(bytes.len().saturating_sub(16));
    let mut whole = [sign; 16];
    whole.iter_mut().rev().zip(low.iter().rev()).for_each(|(to, from)| *to = *from);
    let first = whole.first()?;
    let fits = extra.iter().all(|byte| *byte == sign) && (extra.is_empty() || (first ^ sign) & 0x80 == 0);
    fits.then(|| i128::from_be_bytes(whole))
}

fn rescale(unscaled: i128, scale: i32) -> Result<i128> {
    let shift = i64::from(SCALE) - i64::from(scale);
    let power = u32::try_from(shift.unsigned_abs()).ok().and_then(|digits| 10i128.checked_pow(digits));
    match (shift >= 0, power) {
        _ if unscaled == 0 => Ok(0),
        (true, power) => power.and_then(|power| unscaled.checked_mul(power)).ok_or_else(too_large),
        (false, Some(power)) => Ok(divide_half_even(unscaled, power)),
        // Far smaller than half of the last digit.
        (false, None) => Ok(0),
    }
}

fn divide_half_even(number: i128, by: i128) -> i128 {
    let (quotient, rest) = (number.div_euclid(by), number.rem_euclid(by));
    let above = rest > by - rest || (rest == by - rest && quotient % 2 != 0);
    quotient + i128::from(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(scale: i32, unscaled: &[u8]) -> i128 {
        let bytes = [&scale.to_be_bytes(), unscaled].concat();
        Hundredths::read(&bytes).expect("small").expect("a number").0
    }

    #[test]
    fn numbers_are_rounded_half_to_even() {
        for (scale, unscaled, hundredths) in [
            (0, 5i16, 500),
            (3, 125, 12),
            (3, 135, 14),
            (3, 126, 13),
            (3, -125, -12),
            (3, -135, -14),
            (-1, 3, 3000),
        ] {
            assert_eq!(read(scale, &unscaled.to_be_bytes()), hundredths, "{unscaled}e-{scale}");
        }
        assert_eq!(read(i32::MAX, &[1]), 0);
    }

    #[test]
    fn numbers_are_written_in_as_few_bytes_as_java_does() {
        for (number, unscaled) in [
            (0i128, vec![0u8]),
            (127, vec![127]),
            (128, vec![0, 128]),
            (-1, vec![255]),
            (-128, vec![128]),
            (-129, vec![255, 127]),
        ] {
            let bytes = Hundredths(number).write();
            assert_eq!(bytes, [vec![0, 0, 0, 2], unscaled].concat(), "{number}");
            assert_eq!(Hundredths::read(&bytes).expect("small"), Some(Hundredths(number)));
        }
    }

    #[test]
    fn non_numbers_are_skipped_and_oversized_ones_refused() {
        assert_eq!(Hundredths::read(b"").expect("none"), None);
        assert_eq!(Hundredths::read(&[0, 0, 0, 2]).expect("none"), None);
        assert!(Hundredths::read(&[&[0, 0, 0, 2][..], &[0x7f; 17]].concat()).is_err());
        assert!(Hundredths::read(&[&i32::MIN.to_be_bytes()[..], &[1]].concat()).is_err());
        assert_eq!(read(2, &[0; 40]), 0, "leading zeros are no digits");
        assert!(Hundredths(i128::MAX).plus(Hundredths(1)).is_err());
        assert!(Hundredths(i128::MAX).times(Hundredths(2)).is_err());
        assert_eq!(Hundredths(150).times(Hundredths(250)).expect("small"), Hundredths(375));
    }
}
