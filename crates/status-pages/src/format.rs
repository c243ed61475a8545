//! Formats numbers in readable form: a value, its unit, and the name of its metric.
//!
//! Every number on a page is formatted here, so that each has a unit and shows its name in `/jmx`.

use maud::{Markup, html};

/// A number and its unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// The digits: `1.25`.
    pub digits: String,
    /// What is counted or measured: `MiB`.
    pub unit: &'static str,
}

impl Quantity {
    fn new(digits: String, unit: &'static str) -> Self {
        Self { digits, unit }
    }

    /// Returns digits and unit as plain text, as for a tooltip or JSON.
    pub fn text(&self) -> String {
        format!("{} {}", self.digits, self.unit)
    }

    /// Renders the number as HTML, with the metric's name and its description in a tooltip.
    pub fn show(&self, metric: &str, what: &str) -> Markup {
        let tip = match (metric.is_empty(), what.is_empty()) {
            (true, _) => what.to_owned(),
            (false, true) => metric.to_owned(),
            (false, false) => format!("{metric}: {what}"),
        };
        html! { span.n title=(tip) { (self.digits) small { (self.unit) } } }
    }
}

/// Formats a number up to a few thousand with three digits.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        value_abs if value_abs < 0.01 => format!("{value:.3}"),
        value_abs if value_abs < 9.995 => format!("{value:.2}"),
        value_abs if value_abs < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Scales a value to the first unit in which it is below `base`. Each unit is `base` of the one
/// before.
fn scaled(value: f64, base: f64, units: &[&'static str]) -> Quantity {
    let (mut value, mut unit) = (value, units.first().copied().unwrap_or_default());
    for next in units.iter().skip(1) {
        if value.abs() < base {
            break;
        }
        (value, unit) = (value / base, next);
    }
    Quantity::new(short(value), unit)
}

/// Formats bytes, in powers of 1024.
pub fn bytes(bytes: u64) -> Quantity {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// Formats bytes per second.
pub fn byte_rate(bytes_per_second: f64) -> Quantity {
    scaled(bytes_per_second, 1024.0, &["B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s"])
}

/// Formats a whole number, with its digits in groups of three.
pub fn count(count: u64, unit: &'static str) -> Quantity {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    Quantity::new(grouped, unit)
}

/// Formats a number per second.
pub fn rate(per_second: f64, unit: &'static str) -> Quantity {
    match per_second {
        of if of >= 9_999_500.0 => Quantity::new(format!("{} M", short(of / 1e6)), unit),
        of if of >= 9_999.5 => Quantity::new(format!("{} k", short(of / 1e3)), unit),
        of => Quantity::new(short(of), unit),
    }
}

/// Formats a time in microseconds.
pub fn micros(us: f64) -> Quantity {
    match us {
        us if us < 1_000.0 => Quantity::new(short(us), "µs"),
        us if us < 1_000_000.0 => Quantity::new(short(us / 1e3), "ms"),
        us => Quantity::new(short(us / 1e6), "s"),
    }
}

/// Formats a fraction from 0 to 1 in percent.
pub fn percent(part: f64) -> Quantity {
    Quantity::new(short(100.0 * part), "%")
}

/// Formats the ratio of two counts in percent; 0 if `whole` is 0.
pub fn share(part: u64, whole: u64) -> Quantity {
    percent(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

/// Formats an age with at most two units: `3 h 20 min`.
pub fn age(ms: i64) -> Quantity {
    let seconds = ms.max(0) / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match () {
        () if seconds < 60 => Quantity::new(short(ms.max(0) as f64 / 1_000.0), "s"),
        () if hours < 1 => Quantity::new(format!("{minutes} min {}", seconds % 60), "s"),
        () if days < 1 => Quantity::new(format!("{hours} h {}", minutes % 60), "min"),
        () => Quantity::new(format!("{days} d {}", hours % 24), "h"),
    }
}

/// Formats a moment as `2026-01-04 10:20:30` in UTC.
pub fn moment(ms: i64) -> String {
    let (days, second) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000) / 1_000);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Formats the time of day of a moment, with milliseconds, in UTC.
pub fn time_of_day(ms: i64) -> String {
    let second = ms.rem_euclid(86_400_000) / 1_000;
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{hour:02}:{minute:02}:{:02}.{:03}", second % 60, ms.rem_euclid(1_000))
}

/// Converts days since 1970 to year, month and day in the Gregorian calendar: Howard Hinnant's
/// `civil_from_days`, whose years begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(bytes(0).text(), "0 B");
        assert_eq!(bytes(1023).text(), "1023 B");
        assert_eq!(bytes(1536).text(), "1.50 KiB");
        assert_eq!(bytes(u64::MAX).text(), "16384 PiB");
        assert_eq!(count(1_234_567, "rows").text(), "1,234,567 rows");
        assert_eq!(count(12, "rows").text(), "12 rows");
        assert_eq!(rate(0.0, "requests/s").text(), "0 requests/s");
        assert_eq!(rate(123_456.0, "requests/s").text(), "123 k requests/s");
        assert_eq!(micros(12.34).text(), "12.3 µs");
        assert_eq!(micros(123_400.0).text(), "123 ms");
        assert_eq!(micros(2_500_000.0).text(), "2.50 s");
        assert_eq!((share(1, 3).text(), share(0, 0).text()), ("33.3 %".into(), "0 %".into()));
        assert_eq!(age(90_000).text(), "1 min 30 s");
        assert_eq!(age(90_000_000).text(), "1 d 1 h");
    }

    #[test]
    fn moments_are_printed_as_calendar_dates() {
        assert_eq!(moment(0), "1970-01-01 00:00:00");
        assert_eq!(moment(1_709_210_096_789), "2024-02-29 12:34:56");
        assert_eq!(moment(4_102_444_799_000), "2099-12-31 23:59:59");
        assert_eq!(time_of_day(1_709_210_096_789), "12:34:56.789");
    }

    #[test]
    fn a_number_names_its_metric() {
        let shown = bytes(2048).show("memStoreSize", "Size of the \"memstore\"").into_string();
        assert_eq!(
            shown,
            "<span class=\"n\" title=\"memStoreSize: Size of the &quot;memstore&quot;\">2.00<small>KiB</small></span>"
        );
    }
}
