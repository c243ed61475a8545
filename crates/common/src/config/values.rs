//! Parsers of values. Each function takes a trimmed string and follows the parser that HBase uses:
//! `Integer.parseInt` and `Float.parseFloat` of Java, `getLongBytes` and `getTimeDuration` of
//! Hadoop. `None` means that the string is malformed.

use std::str::FromStr;

/// A unit of time, with Hadoop's suffixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// `ns`
    Nanoseconds,
    /// `us`
    Microseconds,
    /// `ms`
    Milliseconds,
    /// `s`
    Seconds,
    /// `m`
    Minutes,
    /// `h`
    Hours,
    /// `d`
    Days,
}

impl TimeUnit {
    /// Two-letter suffixes are listed before the letters they end with.
    const SUFFIXES: [(&'static str, TimeUnit); 7] = [
        ("ns", TimeUnit::Nanoseconds),
        ("us", TimeUnit::Microseconds),
        ("ms", TimeUnit::Milliseconds),
        ("s", TimeUnit::Seconds),
        ("m", TimeUnit::Minutes),
        ("h", TimeUnit::Hours),
        ("d", TimeUnit::Days),
    ];

    const fn nanos(self) -> i64 {
        match self {
            Self::Nanoseconds => 1,
            Self::Microseconds => 1_000,
            Self::Milliseconds => 1_000_000,
            Self::Seconds => 1_000_000_000,
            Self::Minutes => 60 * 1_000_000_000,
            Self::Hours => 3_600 * 1_000_000_000,
            Self::Days => 86_400 * 1_000_000_000,
        }
    }

    /// Converts `amount` from `self` to `to`: rounded toward zero, saturating, as
    /// `java.util.concurrent.TimeUnit.convert`.
    pub fn convert(self, amount: i64, to: TimeUnit) -> i64 {
        let scaled = i128::from(amount) * i128::from(self.nanos()) / i128::from(to.nanos());
        i64::try_from(scaled).unwrap_or(if scaled < 0 { i64::MIN } else { i64::MAX })
    }
}

/// Hadoop's `getBoolean`: `true` or `false` in any case, no other text.
pub fn boolean(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") {
        return Some(true);
    }
    text.eq_ignore_ascii_case("false").then_some(false)
}

/// A decimal integer, or a hexadecimal one with the prefix `0x`.
pub fn integer<T: FromStr + TryFrom<i128>>(text: &str) -> Option<T> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => {
            let magnitude = i128::from(u64::from_str_radix(hex, 16).ok()?);
            T::try_from(if negative { -magnitude } else { magnitude }).ok()
        }
        Some(_) => None,
        None => text.parse().ok(),
    }
}

/// A floating point number. As in Java it may end with `f` or `d`.
pub fn float<T: FromStr>(text: &str) -> Option<T> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, "NaN" | "Infinity") {
        return text.parse().ok();
    }
    let starts_as_number = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let number = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    if starts_as_number { number.parse().ok() } else { None }
}

/// Hadoop's `getLongBytes`: an integer with at most one binary prefix (`k m g t p e`, any case), in
/// bytes.
pub(super) fn size(text: &str) -> Option<i64> {
    let last = text.chars().last()?;
    if last.is_ascii_digit() {
        return text.parse().ok();
    }
    let shift = 10 * (1 + "kmgtpe".find(last.to_ascii_lowercase())?);
    let number: i64 = text.get(..text.len() - last.len_utf8())?.parse().ok()?;
    number.checked_mul(1_i64 << shift)
}

/// Hadoop's `getTimeDuration`: an integer with a unit's suffix, or without one, in `default_unit`.
/// The result is in `to`.
pub(super) fn time(text: &str, default_unit: TimeUnit, to: TimeUnit) -> Option<i64> {
    let text = text.to_ascii_lowercase();
    let with_suffix =
        TimeUnit::SUFFIXES.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)));
    let (number, unit) = with_suffix.unwrap_or((&text, default_unit));
    Some(unit.convert(number.parse().ok()?, to))
}

/// Hadoop's `getTrimmedStrings`: separated by commas or line ends, trimmed, without empty items.
pub(super) fn list(text: &str) -> Vec<String> {
    text.split([',', '\n']).map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Parses a umask: octal digits, or clauses `WHO=PERMISSIONS` of what is not masked.
pub(super) fn umask(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| (b'0'..=b'7').contains(&byte)) {
        return u32::from_str_radix(text, 8).ok().filter(|mask| *mask <= 0o1777).map(|mask| mask & 0o777);
    }
    let mut allowed = 0;
    for clause in text.split(',') {
        let (whom, permissions) = clause.split_once('=')?;
        let mut bits = 0;
        for letter in permissions.chars() {
            bits |= match letter {
                'r' => 0o4,
                'w' => 0o2,
                'x' => 0o1,
                '-' => 0,
                _ => return None,
            };
        }
        for letter in if whom.is_empty() { "a" } else { whom }.chars() {
            allowed |= match letter {
                'u' => bits << 6,
                'g' => bits << 3,
                'o' => bits,
                'a' => bits << 6 | bits << 3 | bits,
                _ => return None,
            };
        }
    }
    Some(0o777 & !allowed)
}
