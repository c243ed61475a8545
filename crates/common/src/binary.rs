//! [`Binary`]: bytes as HBase's tools and logs print them.

use std::fmt::{self, Write as _};

/// Bytes as `Bytes.toStringBinary` prints them: ASCII unchanged, other bytes and the backslash as
/// `\x` and two digits.
#[derive(Clone, Copy, Debug)]
pub struct Binary<'a>(pub &'a [u8]);

impl fmt::Display for Binary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            match byte {
                b' '..=b'~' if *byte != b'\\' => f.write_char(char::from(*byte))?,
                _ => write!(f, "\\x{byte:02X}")?,
            }
        }
        Ok(())
    }
}
