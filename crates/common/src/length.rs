//! Lengths in fields narrower than `usize`.
//!
//! A length is never truncated: with `as u16` a field could announce fewer bytes than follow, and a
//! reader would misread the rest. There are two conversions instead; a lint denies all others
//! (`clippy::cast_possible_truncation`):
//!
//! * [`u16_of`], [`u32_of`], [`i32_of`] return an error if the length does not fit: for lengths
//!   that derive from input.
//! * [`must_u8`], [`must_u16`], [`must_u32`], [`must_i32`] panic: for lengths that the caller
//!   bounds by its own constants, or a type's invariant does. A panic ends one task; a truncated
//!   length would corrupt a file.
//!
//! Code that wants the low bits, for example of a hash, uses [`low_u32`] or a mask before the cast.
//! [`index`] converts `u64` to `usize`, which is lossless: machines of 32 bits are not supported.

use crate::error::{HBaseError, Result};

#[cold]
fn too_long(len: usize, what: &str, max: usize) -> HBaseError {
    HBaseError::io(format!("{what} of {len} bytes is longer than {max}"))
}

macro_rules! lengths {
    ($int:ident, $checked:ident, $must:ident) => {
        #[doc = concat!("The length of `what` as `", stringify!($int), "`.\n\n# Errors\n`IOException` if it does not fit.")]
        #[inline]
        pub fn $checked(len: usize, what: &str) -> Result<$int> {
            $int::try_from(len).map_err(|_| too_long(len, what, $int::MAX as usize))
        }

        #[doc = concat!("A length that the caller bounds as `", stringify!($int), "`.\n\n# Panics\nIf it does not fit.")]
        #[inline]
        #[track_caller]
        pub fn $must(len: usize) -> $int {
            $int::try_from(len).unwrap_or_else(|_| panic!("a length of {len} does not fit"))
        }
    };
}

lengths!(u8, u8_of, must_u8);
lengths!(u16, u16_of, must_u16);
lengths!(u32, u32_of, must_u32);
lengths!(i32, i32_of, must_i32);

/// The low 32 bits.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub const fn low_u32(value: u64) -> u32 {
    value as u32
}

/// The low 64 bits.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub const fn low_u64(value: u128) -> u64 {
    value as u64
}

/// The integer part of a computed number of bytes or items; 0 for a negative one.
#[inline]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub const fn whole(value: f64) -> u64 {
    value as u64
}

/// The integer part of a number, as Java's `(long)` makes it: the end of the range for a number
/// beyond it, 0 for NaN.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub const fn integer_part(value: f64) -> i64 {
    value as i64
}

/// The whole milliseconds of a duration.
#[inline]
pub fn whole_ms(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

const _: () = assert!(size_of::<usize>() >= size_of::<u64>());

/// A `u64` as a length or an index.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub const fn index(value: u64) -> usize {
    value as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_do_not_fit_are_errors() {
        assert_eq!((u8_of(255, "x").ok(), u16_of(65_535, "x").ok()), (Some(255), Some(65_535)));
        assert_eq!((must_u32(70_000), must_u16(7), must_i32(5)), (70_000, 7, 5));
        let error = u16_of(65_536, "a name").expect_err("does not fit");
        assert_eq!(error.message(), "a name of 65536 bytes is longer than 65535");
        assert!(i32_of(1 << 31, "x").is_err() && u32_of(1 << 32, "x").is_err() && u8_of(256, "x").is_err());
        assert!(std::panic::catch_unwind(|| must_u16(65_536)).is_err());
    }

    #[test]
    fn integer_parts_end_where_the_range_ends() {
        assert_eq!((integer_part(2.9), integer_part(-2.9), integer_part(f64::NAN)), (2, -2, 0));
        assert_eq!((integer_part(1e300), integer_part(f64::NEG_INFINITY)), (i64::MAX, i64::MIN));
    }
}
