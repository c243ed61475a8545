//! Bytes, cells and dates as HBase prints them.

use std::fmt::{self, Write as _};

use evenkeel_common::cell::{LATEST_TIMESTAMP, OLDEST_TIMESTAMP};
use evenkeel_common::length;
use evenkeel_common::{Binary, CellRef};

/// Parses a text in the form of [`Binary`] (`Bytes.toBytesBinary`).
pub fn parse_binary(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = tail.strip_prefix(b"x").and_then(|digits| digits.first_chunk::<2>());
        let digits = escaped.filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

/// A cell's key as HBase prints it: `row/family:qualifier/timestamp/type`.
pub struct Key<'a>(pub &'a CellRef<'a>);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cell = self.0;
        write!(f, "{}/{}:{}/", Binary(cell.row()), Binary(cell.family()), Binary(cell.qualifier()))?;
        write!(f, "{}/{}", Timestamp(cell.timestamp()), type_name(cell))
    }
}

/// A cell as HBase prints it: its key, the length of its value, its sequence id.
pub struct Cell<'a>(pub &'a CellRef<'a>);

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/vlen={}/seqid={}", Key(self.0), self.0.value().len(), self.0.seq_id())
    }
}

struct Timestamp(i64);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            LATEST_TIMESTAMP => f.write_str("LATEST_TIMESTAMP"),
            OLDEST_TIMESTAMP => f.write_str("OLDEST_TIMESTAMP"),
            timestamp => write!(f, "{timestamp}"),
        }
    }
}

/// The name of a cell's type.
pub fn type_name(cell: &CellRef<'_>) -> String {
    cell.cell_type().map_or_else(|| cell.type_code().to_string(), |kind| format!("{kind:?}"))
}

/// Formats a text as a JSON string.
pub struct Json<'a>(pub &'a str);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Milliseconds since 1970 as Java prints a date, in UTC.
pub fn date(ms: i64) -> String {
    let (days, in_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS) / 1000);
    let (year, month, day) = civil(days);
    let week_day = DAYS.get(length::index(days.rem_euclid(7).unsigned_abs())).unwrap_or(&"");
    let (h, m, s) = (in_day / 3600, in_day / 60 % 60, in_day % 60);
    format!(
        "{week_day} {} {day:02} {h:02}:{m:02}:{s:02} UTC {year}",
        MONTHS.get(length::index(month.unsigned_abs())).unwrap_or(&"")
    )
}

/// The year, month (from 0) and day of a day since 1970, in the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Years start in March, so that the leap day is the last day; the year 0 is 719,468 days before
    // 1970.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = (month + 2) % 12;
    (era * 400 + year + i64::from(month < 2), month, day)
}

#[cfg(test)]
mod tests {
    use evenkeel_common::{CellType, KeyValue};

    use super::*;

    #[test]
    fn bytes_go_to_text_and_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(parse_binary(&Binary(&all).to_string()), all);
        assert_eq!(Binary(b"a\\b\xff").to_string(), "a\\x5Cb\\xFF");
        for (text, bytes) in
            [("\\x", &b"\\x"[..]), ("\\x4", b"\\x4"), ("\\xzz", b"\\xzz"), ("a\\x00", b"a\0")]
        {
            assert_eq!(parse_binary(text), bytes);
        }
    }

    #[test]
    fn cells_are_printed_as_hbase_prints_them() {
        let mut cell = KeyValue::new(b"r", b"f", b"q", 7, CellType::DeleteColumn, b"abc");
        cell.set_seq_id(5);
        assert_eq!(Cell(&cell.as_cell()).to_string(), "r/f:q/7/DeleteColumn/vlen=3/seqid=5");
        let latest = KeyValue::put(b"r", b"f", b"", i64::MAX, b"");
        assert_eq!(Key(&latest.as_cell()).to_string(), "r/f:/LATEST_TIMESTAMP/Put");
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "Thu Jan 01 00:00:00 UTC 1970");
        assert_eq!(date(1_709_164_800_000), "Thu Feb 29 00:00:00 UTC 2024");
        assert_eq!(date(1_700_000_000_123), "Tue Nov 14 22:13:20 UTC 2023");
        assert_eq!(date(-1), "Wed Dec 31 23:59:59 UTC 1969");
        assert_eq!(date(4_107_542_399_000), "Sun Feb 28 23:59:59 UTC 2100");
    }

    #[test]
    fn json_strings_are_escaped() {
        assert_eq!(Json("a\"\\\n").to_string(), "\"a\\\"\\\\\\u000a\"");
    }
}
