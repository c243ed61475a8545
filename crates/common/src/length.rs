//! Lengths in fields narrower than `usize`.
//!
//! A length is never cut: `as u16` would write a field that says less than what follows, and a reader would take what is
//! behind it for something else. There are three ways instead, and the compiler refuses every other
//! (`clippy::cast_possible_truncation`):
//!
//! * [`u16_of`], [`u32_of`], [`i32_of`]: an error when it does not fit, for whatever comes from outside or was made of such.
//! * [`must_u8`], [`must_u16`], [`must_u32`], [`must_i32`]: a panic, for what the code around them bounds by its own
//!   constants. A panic ends one task; a cut length would spoil a file.
//! * [`bounded_u8`], [`bounded_u16`], [`bounded_u32`]: for what a type's invariant bounds, where each compare counts. They
//!   look in debug builds only.
//!
//! Where low bits are wanted, as of a hash, [`low_u32`] says so, or a mask before the cast. [`index`] is for what the compiler
//! would refuse on a machine of 32 bits, where nobody runs this.

use crate::error::{HBaseError, Result};

#[cold]
fn too_long(len: usize, what: &str, max: usize) -> HBaseError {
    HBaseError::io(format!("{what} of {len} bytes is longer than {max}"))
}

macro_rules! lengths {
    ($int:ident, $checked:ident, $must:ident, $bounded:ident) => {
        #[doc = concat!("The length of `what` as `", stringify!($int), "`.\n\n# Errors\n`IOException` when it does not fit.")]
        #[inline]
        pub fn $checked(len: usize, what: &str) -> Result<$int> {
            $int::try_from(len).map_err(|_| too_long(len, what, $int::MAX as usize))
        }

        #[doc = concat!("A length that the caller bounds as `", stringify!($int), "`.\n\n# Panics\nWhen it does not fit.")]
        #[inline]
        #[track_caller]
        pub fn $must(len: usize) -> $int {
            $int::try_from(len).unwrap_or_else(|_| panic!("a length of {len} does not fit"))
        }

        #[doc = concat!("A length that a type's invariant bounds as `", stringify!($int), "`; looked at in debug builds.")]
        #[inline]
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
        pub fn $bounded(len: usize) -> $int {
            debug_assert!($int::try_from(len).is_ok(), "a length of {len} does not fit");
            len as $int
        }
    };
}

lengths!(u8, u8_of, must_u8, bounded_u8);
lengths!(u16, u16_of, must_u16, bounded_u16);
lengths!(u32, u32_of, must_u32, bounded_u32);
lengths!(i32, i32_of, must_i32, bounded_i32);

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

/// The whole part of a number of bytes or things that was reckoned in fractions; a negative one is 0.
#[inline]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub const fn whole(value: f64) -> u64 {
    value as u64
}

/// The whole milliseconds of a time.
#[inline]
pub fn whole_ms(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

const _: () = assert!(size_of::<usize>() >= size_of::<u64>());

/// A number of 64 bits as a length or a place in memory.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub const fn index(value: u64) -> usize {
    value as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_the_same_and_what_does_not_is_an_error() {
        assert_eq!((u8_of(255, "x").ok(), u16_of(65_535, "x").ok()), (Some(255), Some(65_535)));
        assert_eq!((must_u32(70_000), bounded_u16(7), must_i32(5)), (70_000, 7, 5));
        let error = u16_of(65_536, "a name").expect_err("does not fit");
        assert_eq!(error.message(), "a name of 65536 bytes is longer than 65535");
        assert!(i32_of(1 << 31, "x").is_err() && u32_of(1 << 32, "x").is_err() && u8_of(256, "x").is_err());
        assert!(std::panic::catch_unwind(|| must_u16(65_536)).is_err());
    }
}
