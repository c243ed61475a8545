//! [`Comparator`]: the operand of a filter or a check.

use bytes::Bytes;
use evenkeel_protocol::pb;
use prost::Message;

use super::PACKAGE;
use crate::error::{Error, Result};

/// `java.util.regex.Pattern.CASE_INSENSITIVE`.
pub const CASE_INSENSITIVE: i32 = 2;
/// `java.util.regex.Pattern.MULTILINE`.
pub const MULTILINE: i32 = 8;
/// `java.util.regex.Pattern.DOTALL`.
pub const DOTALL: i32 = 32;

/// The operation on bits ([`Comparator::Bit`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitwiseOp {
    /// Both.
    And,
    /// Either.
    Or,
    /// One of them.
    Xor,
}

/// The operand that a cell's row, family, qualifier or value is compared with. Comparators without
/// an order work only with [`crate::CompareOp::Equal`] and [`crate::CompareOp::NotEqual`].
#[derive(Clone, Debug, PartialEq)]
pub enum Comparator {
    /// The same bytes, in the order of bytes (`BinaryComparator`).
    Binary(Bytes),
    /// Bytes with a prefix (`BinaryPrefixComparator`).
    BinaryPrefix(Bytes),
    /// These bytes from an offset on (`BinaryComponentComparator`).
    BinaryComponent {
        /// The bytes.
        value: Bytes,
        /// Their offset.
        offset: u32,
    },
    /// A number of 8 bytes (`LongComparator`).
    Long(i64),
    /// A number as `Bytes.toBytes(BigDecimal)` writes it (`BigDecimalComparator`): `unscaled *
    /// 10^-scale`.
    BigDecimal {
        /// Digits after the decimal point.
        scale: i32,
        /// The digits as a number, two's complement, big-endian.
        unscaled: Bytes,
    },
    /// Matches when a bit is set in the value combined with bytes of the same length
    /// (`BitComparator`).
    Bit {
        /// The bytes.
        value: Bytes,
        /// How they are combined.
        op: BitwiseOp,
    },
    /// Matches no cell (`NullComparator`).
    Null,
    /// Matches bytes in which a Java regular expression is found (`RegexStringComparator`).
    Regex {
        /// The expression.
        pattern: String,
        /// Flags of `java.util.regex.Pattern`.
        flags: i32,
        /// The character set of the bytes.
        charset: String,
    },
    /// Matches bytes that contain a text, in upper or lower case (`SubstringComparator`).
    Substring(String),
    /// A custom one: its Java class and its serialized message.
    Custom {
        /// The class.
        class: String,
        /// The message.
        serialized: Bytes,
    },
}

impl Comparator {
    /// The same bytes.
    pub fn binary(value: impl AsRef<[u8]>) -> Self {
        Self::Binary(Bytes::copy_from_slice(value.as_ref()))
    }

    /// Bytes with a prefix.
    pub fn prefix(value: impl AsRef<[u8]>) -> Self {
        Self::BinaryPrefix(Bytes::copy_from_slice(value.as_ref()))
    }

    /// Bytes in which a Java regular expression is found; its dot matches line ends too.
    pub fn regex(pattern: &str) -> Self {
        Self::Regex { pattern: pattern.to_owned(), flags: DOTALL, charset: "UTF-8".to_owned() }
    }

    /// Bytes that contain a text, in upper or lower case.
    pub fn substring(text: &str) -> Self {
        Self::Substring(text.to_owned())
    }

    /// A decimal number such as `-12.50`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it is not a number, or exceeds 128 bits.
    pub fn decimal(text: &str) -> Result<Self> {
        let bad = || Error::InvalidArgument(format!("not a decimal number: {text}"));
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        if !part.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let number: i128 = [whole, part].concat().parse().map_err(|_| bad())?;
        let scale = i32::try_from(part.len()).map_err(|_| bad())?;
        Ok(Self::BigDecimal { scale, unscaled: shortest(&number.to_be_bytes()) })
    }

    /// Returns true if the comparator has no order: it matches or does not.
    pub(crate) fn only_matches(&self) -> bool {
        matches!(self, Self::Regex { .. } | Self::Substring(_))
    }

    /// HBase's message.
    pub fn message(&self) -> pb::Comparator {
        let (class, bytes) = self.parts();
        let name = if class.contains('.') { class.to_owned() } else { format!("{PACKAGE}{class}") };
        pb::Comparator { name, serialized_comparator: Some(bytes) }
    }

    fn parts(&self) -> (&str, Bytes) {
        match self {
            Self::Binary(value) => (
                "BinaryComparator",
                pb::BinaryComparator { comparable: comparable(value) }.encode_to_vec().into(),
            ),
            Self::BinaryPrefix(value) => (
                "BinaryPrefixComparator",
                pb::BinaryPrefixComparator { comparable: comparable(value) }.encode_to_vec().into(),
            ),
            Self::BinaryComponent { value, offset } => (
                "BinaryComponentComparator",
                pb::BinaryComponentComparator { value: value.clone(), offset: *offset }
                    .encode_to_vec()
                    .into(),
            ),
            Self::Long(number) => {
                let value = Bytes::copy_from_slice(&number.to_be_bytes());
                (
                    "LongComparator",
                    pb::LongComparator { comparable: comparable(&value) }.encode_to_vec().into(),
                )
            }
            Self::BigDecimal { scale, unscaled } => {
                let value = [&scale.to_be_bytes()[..], unscaled].concat().into();
                let message = pb::BigDecimalComparator { comparable: comparable(&value) };
                ("BigDecimalComparator", message.encode_to_vec().into())
            }
            Self::Bit { value, op } => ("BitComparator", bit(value, *op).encode_to_vec().into()),
            Self::Null => ("NullComparator", Bytes::new()),
            Self::Regex { pattern, flags, charset } => {
                let message = pb::RegexStringComparator {
                    pattern: pattern.clone(),
                    pattern_flags: *flags,
                    charset: charset.clone(),
                    engine: Some("JAVA".to_owned()),
                };
                ("RegexStringComparator", message.encode_to_vec().into())
            }
            Self::Substring(text) => {
                let message = pb::SubstringComparator { substr: text.to_lowercase() };
                ("SubstringComparator", message.encode_to_vec().into())
            }
            Self::Custom { class, serialized } => (class, serialized.clone()),
        }
    }
}

fn comparable(value: &Bytes) -> pb::ByteArrayComparable {
    pb::ByteArrayComparable { value: Some(value.clone()) }
}

fn bit(value: &Bytes, op: BitwiseOp) -> pb::BitComparator {
    use pb::bit_comparator::BitwiseOp as Wire;
    let op = match op {
        BitwiseOp::And => Wire::And,
        BitwiseOp::Or => Wire::Or,
        BitwiseOp::Xor => Wire::Xor,
    };
    pb::BitComparator { comparable: comparable(value), bitwise_op: op as i32 }
}

/// Two's complement in the fewest bytes.
fn shortest(number: &[u8]) -> Bytes {
    let repeats = |pair: &[u8]| matches!(pair, [0, 0..0x80] | [0xff, 0x80..=0xff]);
    let from = number.windows(2).take_while(|pair| repeats(pair)).count();
    Bytes::copy_from_slice(number.get(from..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_written_as_java_writes_them() {
        let of = |text: &str| match Comparator::decimal(text) {
            Ok(Comparator::BigDecimal { scale, unscaled }) => Some((scale, unscaled.to_vec())),
            _ => None,
        };
        assert_eq!(of("12.50"), Some((2, vec![0x04, 0xe2])));
        assert_eq!(of("0"), Some((0, vec![0])));
        assert_eq!(of("128"), Some((0, vec![0, 0x80])));
        assert_eq!(of("-1"), Some((0, vec![0xff])));
        assert_eq!(of("-12.8"), Some((1, vec![0x80])));
        for bad in ["", "x", "1.2.3", "1.-2", "1e5"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn classes_are_named_in_full() {
        assert_eq!(Comparator::Null.message().name, "org.apache.hadoop.hbase.filter.NullComparator");
        let custom = Comparator::Custom { class: "com.example.C".into(), serialized: Bytes::new() };
        assert_eq!(custom.message().name, "com.example.C");
    }
}
