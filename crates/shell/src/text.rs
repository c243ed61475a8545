//! Bytes and times in the stock shell's formats.

use chrono::{Local, Offset, TimeZone, Utc};
use evenkeel_common::{Binary, RegionInfo};

const MS_PER_DAY: i64 = 86_400_000;

/// `Bytes.toStringBinary`: printable ASCII unchanged, other bytes as `\xHH`.
pub fn binary(bytes: &[u8]) -> String {
    Binary(bytes).to_string()
}

/// `Bytes.toBytesBinary`: `\xHH` is a byte, other text is unchanged.
pub fn from_binary(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let escaped = match rest {
            [b'\\', b'x', high, low, ..] => hex_digit(*high).zip(hex_digit(*low)),
            _ => None,
        };
        match escaped {
            Some((high, low)) => {
                bytes.push(high << 4 | low);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|d| u8::try_from(d).ok())
}

/// Milliseconds since 1970 as `LocalDateTime` prints them in the local time zone:
/// `2024-02-29T12:00:00.001`, without seconds and their fraction if they are 0.
pub fn local_time(ms: i64) -> String {
    let local = ms.saturating_add(offset_ms(ms));
    let (days, of_day) = (local.div_euclid(MS_PER_DAY), local.rem_euclid(MS_PER_DAY));
    let (seconds, fraction) = (of_day / 1000 % 60, of_day % 1000);
    let mut text = format!("{}T{:02}:{:02}", date(days), of_day / 3_600_000, of_day / 60_000 % 60);
    if seconds > 0 || fraction > 0 {
        text.push_str(&format!(":{seconds:02}"));
    }
    if fraction > 0 {
        text.push_str(&format!(".{fraction:03}"));
    }
    text
}

/// Seconds since 1970 as Ruby's `Time` prints them: `2024-02-29 12:00:00 +0000`.
pub fn ruby_time(seconds: i64) -> String {
    let time = Local.timestamp_opt(seconds, 0).earliest();
    time.map_or_else(|| seconds.to_string(), |time| time.format("%Y-%m-%d %H:%M:%S %z").to_string())
}

/// Milliseconds since 1970 as `java.util.Date` prints them, but with the offset in place of the
/// name of a time zone other than UTC: `Thu Feb 29 12:00:00 UTC 2024`.
pub fn java_date(ms: i64) -> String {
    let Some(time) = Local.timestamp_millis_opt(ms).earliest() else { return ms.to_string() };
    let zone = match time.offset().fix().local_minus_utc() {
        0 => "UTC".to_owned(),
        _ => time.format("GMT%:z").to_string(),
    };
    time.format(&format!("%a %b %d %H:%M:%S {zone} %Y")).to_string()
}

/// The local offset from UTC at a time; 0 beyond the library's calendar (260,000 years).
fn offset_ms(ms: i64) -> i64 {
    let utc = Utc.timestamp_millis_opt(ms).earliest();
    let offset = utc.map(|utc| utc.with_timezone(&Local).offset().fix().local_minus_utc());
    i64::from(offset.unwrap_or(0)) * 1000
}

/// The date of a day since 1970 in the calendar of ISO 8601: a cycle of 400 years has 146,097 days,
/// and years begin in March so that the leap day is the last.
fn date(days: i64) -> String {
    let days = days + 719_468;
    let (cycle, of_cycle) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_cycle = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_cycle + cycle * 400 + i64::from(month <= 2);
    match year {
        0..=9999 => format!("{year:04}-{month:02}-{day:02}"),
        -9999..0 => format!("-{:04}-{month:02}-{day:02}", -year),
        _ => format!("{}{}-{month:02}-{day:02}", if year > 0 { "+" } else { "" }, year),
    }
}

/// A region in the format of `RegionInfo.toString`.
pub fn region(region: &RegionInfo) -> String {
    let mut text = format!(
        "{{ENCODED => {}, NAME => '{}', STARTKEY => '{}', ENDKEY => '{}'",
        region.encoded_name(),
        binary(region.name()),
        binary(region.start_key()),
        binary(region.end_key())
    );
    if region.is_offline() {
        text.push_str(", OFFLINE => true");
    }
    if region.is_split() {
        text.push_str(", SPLIT => true");
    }
    if region.replica_id() > 0 {
        text.push_str(&format!(", REPLICA_ID => {}", region.replica_id()));
    }
    text + "}"
}

/// A double as Java and Ruby print it.
pub fn double(number: f64) -> String {
    crate::value::Value::Float(number).inspect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_and_read_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_binary(binary(&all).as_bytes()), all);
        assert_eq!(binary(b"a\\\xff "), "a\\x5C\\xFF ");
        assert_eq!(from_binary(b"\\x4g\\x\\x41"), b"\\x4g\\xA");
    }

    #[test]
    fn dates_of_all_ages() {
        for (days, shown) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (2_932_897, "+10000-01-01"),
        ] {
            assert_eq!(date(days), shown);
        }
        // Long.MAX_VALUE, the timestamp of a marker that covers everything.
        assert_eq!(date(i64::MAX / MS_PER_DAY), "+292278994-08-17");
    }

    #[test]
    fn parts_of_a_time_that_are_zero_are_left_out() {
        let minute = local_time(60_000);
        assert!(minute.ends_with(":01"), "{minute}");
        assert!(local_time(61_000).ends_with(":01:01"));
        assert!(local_time(60_002).ends_with(":01:00.002"));
    }
}
