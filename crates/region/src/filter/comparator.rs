//! Comparators: the values to which a part of a cell (row, family, qualifier or value) is compared.
//!
//! The result is the order of the *comparator's* value relative to the cell's part. Comparators
//! that can only match return `Equal` or `Greater`.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::borrow::Cow;
use std::cmp::Ordering;

use bytes::Bytes;
use evenkeel_common::{ErrorKind, HBaseError, Result};
use evenkeel_protocol::pb;
use pb::bit_comparator::BitwiseOp;

use super::parse::{class_not_found, decode, field, missing};
use super::{decimal, illegal, java_regex};

/// Compares its value to a part of a cell (`ByteArrayComparable`).
pub trait ByteArrayComparable: Send {
    /// Returns the order of the comparator's value relative to these bytes.
    ///
    /// # Errors
    /// `IllegalArgumentException` if the comparator cannot interpret them.
    fn compare_to(&self, bytes: &[u8]) -> Result<Ordering>;

    /// Returns the comparator's bytes. If they are empty, a CheckAndMutate tests that the cell is
    /// absent.
    fn value(&self) -> &[u8];
}

/// Parses a comparator's message.
///
/// # Errors
/// `IOException` for an unknown class and for an invalid message; `DoNotRetryIOException` for a
/// regular expression that cannot be run.
pub fn comparator_from_proto(comparator: &pb::Comparator) -> Result<Box<dyn ByteArrayComparable>> {
    parse(comparator, &mut RegexBudget::default())
}

/// The used part of a request's budget for compiled regular expressions, in bytes.
#[derive(Default)]
pub(super) struct RegexBudget {
    used: usize,
    regexes: u64,
}

impl RegexBudget {
    /// The budget of all compiled regular expressions of one filter.
    const BYTES_MAX: usize = 64 << 20;

    /// Returns the bytes of the compiled regular expressions, plus `each` for the memory of each
    /// during a search. Each is compiled forwards and backwards.
    pub(super) fn bytes(&self, each: u64) -> u64 {
        2 * self.used as u64 + self.regexes * each
    }

    /// Compiles within the remaining budget. Memory is charged in steps, because the compiler
    /// accepts only a limit.
    fn compile(&mut self, pattern: &str) -> Result<regex::Regex, regex::Error> {
        let mut limit = 4 << 10;
        loop {
            let left = Self::BYTES_MAX - self.used;
            let result = regex::RegexBuilder::new(pattern)
                .size_limit(limit.min(left))
                .dfa_size_limit(256 << 10)
                .nest_limit(200)
                .build();
            match result {
                Err(regex::Error::CompiledTooBig(_)) if limit < left.min(8 << 20) => limit *= 8,
                Err(e) => return Err(e),
                Ok(regex) => {
                    self.used += limit.min(left);
                    self.regexes += 1;
                    return Ok(regex);
                }
            }
        }
    }
}

const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";
const COMPARABLE: (u32, &str) = (1, "comparable");

/// Parses a comparator whose regular expression counts against a budget.
pub(super) fn parse(
    proto: &pb::Comparator,
    regexes: &mut RegexBudget,
) -> Result<Box<dyn ByteArrayComparable>> {
    let bytes = proto.serialized_comparator.clone().unwrap_or_default();
    of_class(&proto.name, &bytes, regexes).map_err(|e| match e.kind() {
        ErrorKind::DoNotRetry => e,
        _ => HBaseError::io(e.to_string()),
    })
}

fn of_class(name: &str, bytes: &Bytes, regexes: &mut RegexBudget) -> Result<Box<dyn ByteArrayComparable>> {
    Ok(match name.strip_prefix(PACKAGE).unwrap_or_default() {
        "BinaryComparator" => Box::new(BinaryComparator(value_of(
            decode::<pb::BinaryComparator>(bytes, &[COMPARABLE])?.comparable,
        ))),
        "BinaryPrefixComparator" => {
            let proto: pb::BinaryPrefixComparator = decode(bytes, &[COMPARABLE])?;
            Box::new(BinaryPrefixComparator(value_of(proto.comparable)))
        }
        "BinaryComponentComparator" => {
            let proto: pb::BinaryComponentComparator = decode(bytes, &[(1, "value"), (2, "offset")])?;
            Box::new(BinaryComponentComparator { value: proto.value.to_vec(), offset: proto.offset as usize })
        }
        "LongComparator" => Box::new(LongComparator::parse(bytes)?),
        "BigDecimalComparator" => Box::new(BigDecimalComparator::parse(bytes)?),
        "BitComparator" => Box::new(BitComparator::parse(bytes)?),
        "NullComparator" => {
            decode::<pb::NullComparator>(bytes, &[])?;
            Box::new(NullComparator)
        }
        "SubstringComparator" => {
            let proto: pb::SubstringComparator = decode(bytes, &[(1, "substr")])?;
            Box::new(SubstringComparator { lowered: proto.substr.to_lowercase() })
        }
        "RegexStringComparator" => Box::new(RegexStringComparator::parse(bytes, regexes)?),
        _ => return Err(class_not_found(name)),
    })
}

fn value_of(comparable: pb::ByteArrayComparable) -> Vec<u8> {
    comparable.value.unwrap_or_default().to_vec()
}

fn matched(yes: bool) -> Result<Ordering> {
    Ok(if yes { Ordering::Equal } else { Ordering::Greater })
}

struct BinaryComparator(Vec<u8>);

impl ByteArrayComparable for BinaryComparator {
    fn compare_to(&self, bytes: &[u8]) -> Result<Ordering> {
        Ok(self.0[..].cmp(bytes))
    }

    fn value(&self) -> &[u8] {
        &self.0
    }
}

/// Compares its bytes with the same number of first bytes.
struct BinaryPrefixComparator(Vec<u8>);

impl ByteArrayComparable for BinaryPrefixComparator {
    fn compare_to(&self, bytes: &[u8]) -> Result<Ordering> {
        Ok(self.0[..].cmp(bytes.get(..self.0.len()).unwrap_or(bytes)))
    }

    fn value(&self) -> &[u8] {
        &self.0
    }
}

/// Compares its bytes with the bytes at an offset, up to the end of the cell's part.
struct BinaryComponentComparator {
    value: Vec<u8>,
    offset: usize,
}

impl ByteArrayComparable for BinaryComponentComparator {
    fn compare_to(&self, bytes: &[u8]) -> Result<Ordering> {
        let there = bytes.get(self.offset..).unwrap_or_default();
        Ok(self.value[..].cmp(there.get(..self.value.len()).unwrap_or(there)))
    }

    fn value(&self) -> &[u8] {
        &self.value
    }
}

/// Compares as signed 64-bit integers, big-endian.
struct LongComparator {
    bytes: [u8; 8],
}

impl LongComparator {
    fn parse(bytes: &Bytes) -> Result<Self> {
        let value = value_of(decode::<pb::LongComparator>(bytes, &[COMPARABLE])?.comparable);
        let first = value.first_chunk().ok_or_else(|| {
            illegal(format!("offset (0) + length (8) exceed the capacity of the array: {}", value.len()))
        })?;
        Ok(Self { bytes: *first })
    }
}

impl ByteArrayComparable for LongComparator {
    fn compare_to(&self, bytes: &[u8]) -> Result<Ordering> {
        let there: [u8; 8] =
            bytes.try_into().map_err(|_| illegal(format!("Wrong length: {}, expected 8", bytes.len())))?;
        Ok(i64::from_be_bytes(self.bytes).cmp(&i64::from_be_bytes(there)))
    }

    fn value(&self) -> &[u8] {
        &self.bytes
    }
}

/// Compares as decimal numbers of any length.
struct BigDecimalComparator(Vec<u8>);

impl BigDecimalComparator {
    fn parse(bytes: &Bytes) -> Result<Self> {
        let value = value_of(decode::<pb::BigDecimalComparator>(bytes, &[COMPARABLE])?.comparable);
        decimal::compare(&value, &value)?;
        Ok(Self(value))
    }
}

impl ByteArrayComparable for BigDecimalComparator {
    fn compare_to(&self, bytes: &[u8]) -> Result<Ordering> {
        decimal::compare(&self.0, bytes)
    }

    fn value(&self) -> &[u8] {
        &self.0
    }
}

/// Matches if `value OP bytes` has any bit set. Both must be equally long.
struct BitComparator {
    value: Vec<u8>,
    op: BitwiseOp,
}

impl BitComparator {
    fn parse(bytes: &Bytes) -> Result<Self> {
        let proto: pb::BitComparator = decode(bytes, &[COMPARABLE])?;
        let op = field(bytes, 2).and_then(|_| BitwiseOp::try_from(proto.bitwise_op).ok());
        Ok(Self { op: op.ok_or_else(|| missing("bitwise_op"))?, value: value_of(proto.comparable) })
    }
}

impl ByteArrayComparable for BitComparator {
    fn compare_to(&self, bytes: &[u8]) -> Result<Ordering> {
        let mut pairs = self.value.iter().zip(bytes);
        let any_bit = match self.op {
            BitwiseOp::And => pairs.any(|(a, b)| a & b != 0),
            BitwiseOp::Or => pairs.any(|(a, b)| a | b != 0),
            BitwiseOp::Xor => pairs.any(|(a, b)| a ^ b != 0),
        };
        matched(bytes.len() == self.value.len() && any_bit)
    }

    fn value(&self) -> &[u8] {
        &self.value
    }
}

/// Matches an absent value; a cell's part always exists.
struct NullComparator;

impl ByteArrayComparable for NullComparator {
    fn compare_to(&self, _bytes: &[u8]) -> Result<Ordering> {
        matched(false)
    }

    fn value(&self) -> &[u8] {
        &[]
    }
}

/// Matches UTF-8 text that contains another text, ignoring case.
struct SubstringComparator {
    lowered: String,
}

impl SubstringComparator {
    /// Beyond this many byte comparisons, a linear search over a lower-cased copy is cheaper.
    const PLAIN_SEARCH_MAX: usize = 1 << 16;

    fn is_in(&self, bytes: &[u8]) -> bool {
        let needle = self.lowered.as_bytes();
        if needle.is_empty() {
            return true;
        }
        if bytes.is_ascii() {
            if !needle.is_ascii() || needle.len() > bytes.len() {
                return false;
            }
            if needle.len().saturating_mul(bytes.len()) <= Self::PLAIN_SEARCH_MAX {
                return bytes.windows(needle.len()).any(|there| there.eq_ignore_ascii_case(needle));
            }
        }
        String::from_utf8_lossy(bytes).to_lowercase().contains(&self.lowered)
    }
}

impl ByteArrayComparable for SubstringComparator {
    fn compare_to(&self, bytes: &[u8]) -> Result<Ordering> {
        matched(self.is_in(bytes))
    }

    fn value(&self) -> &[u8] {
        self.lowered.as_bytes()
    }
}

/// How bytes are decoded for a regular expression. Bytes outside the charset become U+FFFD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charset {
    Utf8,
    Latin1,
    Ascii,
}

impl Charset {
    fn of_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_uppercase().as_str() {
            "" | "UTF-8" | "UTF8" => Self::Utf8,
            "ISO-8859-1" | "ISO8859_1" | "ISO8859-1" | "ISO_8859-1" | "LATIN1" | "L1" => Self::Latin1,
            "US-ASCII" | "ASCII" | "ISO646-US" => Self::Ascii,
            _ => return None,
        })
    }

    fn decode(self, bytes: &[u8]) -> Cow<'_, str> {
        match self {
            Self::Utf8 => String::from_utf8_lossy(bytes),
            _ if bytes.is_ascii() => String::from_utf8_lossy(bytes),
            Self::Latin1 => bytes.iter().map(|b| char::from(*b)).collect(),
            Self::Ascii => {
                bytes.iter().map(|b| if b.is_ascii() { char::from(*b) } else { '\u{fffd}' }).collect()
            }
        }
    }
}

/// Matches text in which a Java regular expression finds a match.
struct RegexStringComparator {
    pattern: String,
    regex: regex::Regex,
    charset: Charset,
    /// A character with which the text must not end.
    no_end: Option<char>,
}

/// The end of the patterns by which HBase's client selects quotas of users on tables
/// (`QuotaTableUtil`): the text does not end with a colon. Other look-behinds are not supported.
const NO_COLON_AT_END: &str = "(?<!\\Q:\\E)$";

/// Splits [`NO_COLON_AT_END`] off a pattern that has no alternatives, and so must match the end of
/// the text. Returns the character that the text must not end with.
fn without_look_behind(pattern: &str) -> (Cow<'_, str>, Option<char>) {
    match pattern.strip_suffix(NO_COLON_AT_END).filter(|rest| !rest.contains('|')) {
        Some(rest) => (format!("{rest}$").into(), Some(':')),
        None => (pattern.into(), None),
    }
}

impl RegexStringComparator {
    fn parse(bytes: &Bytes, regexes: &mut RegexBudget) -> Result<Self> {
        let required = [(1, "pattern"), (2, "pattern_flags"), (3, "charset")];
        let proto: pb::RegexStringComparator = decode(bytes, &required)?;
        if let Some(engine) = proto.engine.as_deref().filter(|engine| !["JAVA", "JONI"].contains(engine)) {
            let class = "org.apache.hadoop.hbase.filter.RegexStringComparator.EngineType";
            return Err(illegal(format!("No enum constant {class}.{engine}")));
        }
        let charset = Charset::of_name(&proto.charset).ok_or_else(|| {
            HBaseError::do_not_retry(format!(
                "RegexStringComparator: charset {} is not supported",
                proto.charset
            ))
        })?;
        let (pattern, no_end) = match proto.pattern_flags {
            0 => without_look_behind(&proto.pattern),
            _ => (Cow::Borrowed(&*proto.pattern), None),
        };
        let translated = java_regex::translate(&pattern, proto.pattern_flags)
            .and_then(|pattern| regexes.compile(&pattern).map_err(|e| e.to_string()));
        let regex = translated.map_err(|why| {
            let pattern = proto.pattern.escape_debug();
            HBaseError::do_not_retry(format!(
                "RegexStringComparator: pattern \"{pattern}\" cannot be used: {why}"
            ))
        })?;
        Ok(Self { pattern: proto.pattern, regex, charset, no_end })
    }
}

impl ByteArrayComparable for RegexStringComparator {
    fn compare_to(&self, bytes: &[u8]) -> Result<Ordering> {
        let text = self.charset.decode(bytes);
        let may_end_so = self.no_end.is_none_or(|end| !text.ends_with(end));
        matched(may_end_so && self.regex.is_match(&text))
    }

    fn value(&self) -> &[u8] {
        self.pattern.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use Ordering::{Equal, Greater, Less};

    fn compare(proto: &pb::Comparator, bytes: &[u8]) -> Ordering {
        comparator_from_proto(proto).unwrap().compare_to(bytes).unwrap()
    }

    #[test]
    fn binary_prefix_and_component() {
        for (value, bytes, whole, prefix) in [
            (&b"b"[..], &b"b"[..], Equal, Equal),
            (b"b", b"bc", Less, Equal),
            (b"bc", b"b", Greater, Greater),
            (b"\xff", b"\x7f", Greater, Greater),
            (b"", b"", Equal, Equal),
            (b"", b"x", Less, Equal),
        ] {
            assert_eq!(compare(&binary(value), bytes), whole);
            assert_eq!(compare(&binary_prefix(value), bytes), prefix);
        }
        let component = |offset| pb::BinaryComponentComparator { value: (&b"cd"[..]).into(), offset };
        for (offset, order) in [(2, Equal), (0, Greater), (3, Less), (5, Greater), (u32::MAX, Greater)] {
            assert_eq!(
                compare(&comparator("BinaryComponentComparator", &component(offset)), b"abcde"),
                order,
                "{offset}"
            );
        }
    }

    #[test]
    fn longs_are_signed_and_eight_bytes() {
        let long = |v: i64| {
            comparator("LongComparator", &pb::LongComparator { comparable: comparable(&v.to_be_bytes()) })
        };
        assert_eq!(compare(&long(-1), &1i64.to_be_bytes()), Less);
        assert_eq!(compare(&long(7), &7i64.to_be_bytes()), Equal);
        let error = comparator_from_proto(&long(7)).unwrap().compare_to(b"123").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IllegalArgument);
        let short = comparator("LongComparator", &pb::LongComparator { comparable: comparable(b"abc") });
        assert_eq!(comparator_from_proto(&short).err().map(|e| e.kind()), Some(ErrorKind::Io));
    }

    #[test]
    fn bit_comparators_need_equal_lengths() {
        let bits = |op: BitwiseOp, value: &[u8]| {
            comparator(
                "BitComparator",
                &pb::BitComparator { comparable: comparable(value), bitwise_op: op as i32 },
            )
        };
        for (op, value, bytes, order) in [
            (BitwiseOp::And, &[0x0f, 0][..], &[0xf0, 0xff][..], Greater),
            (BitwiseOp::And, &[0x0f, 0], &[0xf1, 0], Equal),
            (BitwiseOp::Or, &[0, 0], &[0, 0], Greater),
            (BitwiseOp::Or, &[0, 1], &[0, 0], Equal),
            (BitwiseOp::Xor, &[5, 5], &[5, 5], Greater),
            (BitwiseOp::Xor, &[5, 5], &[5, 4], Equal),
            (BitwiseOp::Or, &[1], &[1, 1], Greater),
            (BitwiseOp::Or, &[], &[], Greater),
        ] {
            assert_eq!(compare(&bits(op, value), bytes), order, "{op:?} {value:?} {bytes:?}");
        }
    }

    #[test]
    fn null_never_matches_and_has_no_value() {
        let null = comparator("NullComparator", &pb::NullComparator {});
        assert_eq!(compare(&null, b""), Greater);
        assert!(comparator_from_proto(&null).unwrap().value().is_empty());
    }

    #[test]
    fn substrings_ignore_case() {
        let long_needle = "xY".repeat(400);
        for (needle, bytes, found) in [
            ("bC", "aBcD".as_bytes(), true),
            ("bd", b"aBcD", false),
            ("", b"", true),
            ("ÄÖ", "xäÖx".as_bytes(), true),
            ("k", "\u{212a}".as_bytes(), true),
            ("é", b"e", false),
            ("\u{fffd}", b"a\xff", true),
            ("abc", b"ab", false),
            (&long_needle, "Xy".repeat(500).as_bytes(), true),
        ] {
            let proto = comparator("SubstringComparator", &pb::SubstringComparator { substr: needle.into() });
            assert_eq!(compare(&proto, bytes) == Equal, found, "{needle} in {}", bytes.escape_ascii());
        }
    }

    #[test]
    fn the_look_behind_of_quota_filters_is_supported() {
        let is_match = |pattern: &str, text: &[u8]| compare(&regex(pattern, 0, "UTF-8"), text) == Equal;
        let pattern = r"^\Qs.\Ens.*(?<!\Q:\E)$";
        let found = [&b"s.ns:t"[..], b"s.ns", b"s.ns:", b"s.t", b"s"].map(|text| is_match(pattern, text));
        assert_eq!(found, [true, true, false, false, false]);
        let alternatives = regex(r"^\Qs.\Ea|b(?<!\Q:\E)$", 0, "UTF-8");
        assert!(comparator_from_proto(&alternatives).is_err());
    }

    #[test]
    fn charsets_decide_how_bytes_are_read() {
        let find =
            |charset: &str, pattern: &str, bytes: &[u8]| compare(&regex(pattern, 0, charset), bytes) == Equal;
        assert!(find("UTF-8", "^é$", "é".as_bytes()));
        assert!(find("ISO-8859-1", "^é$", b"\xe9"));
        assert!(find("latin1", "^..$", "é".as_bytes()));
        assert!(find("US-ASCII", "^\u{fffd}$", b"\xe9"));
        assert!(find("UTF-8", "^a.b$", b"a\xffb"));
        let error = comparator_from_proto(&regex("a", 0, "UTF-16")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::DoNotRetry);
        assert!(error.message().contains("UTF-16"));
    }

    #[test]
    fn unsupported_patterns_are_refused() {
        for pattern in ["(?=a)b", "(?<!a)b", r"(a)\1", "a++", "(", "[", "a{2", "(?>a)"] {
            let error = comparator_from_proto(&regex(pattern, 32, "UTF-8")).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::DoNotRetry, "{pattern}");
            assert!(error.message().contains("RegexStringComparator"), "{error}");
        }
        let error = comparator_from_proto(&regex("((a{1000}){1000}){1000}", 0, "UTF-8")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::DoNotRetry);
    }

    #[test]
    fn regexes_share_a_budget() {
        let mut budget = RegexBudget::default();
        let big = "(?:[a-z]{50}){200}";
        let compiled = (0..1000).take_while(|_| budget.compile(big).is_ok()).count();
        assert!((1..1000).contains(&compiled), "{compiled}");
        assert!(budget.used <= RegexBudget::BYTES_MAX);
    }

    #[test]
    fn unknown_classes_are_io_errors() {
        let error = comparator_from_proto(&pb::Comparator { name: "x.Y".into(), ..Default::default() })
            .err()
            .unwrap();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.message().contains("x.Y"));
    }
}
