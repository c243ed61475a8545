//! Formats numbers in readable form.

/// A count or a rate: `7`, `1,234`, `56.7k`, `8.9M`.
pub fn count(value: f64) -> String {
    match value.abs() {
        v if v < 9.95 && v.fract() > 0.05 && v.fract() < 0.95 => format!("{value:.1}"),
        v if v < 999.5 => format!("{value:.0}"),
        v if v < 9_999.5 => {
            let digits = format!("{value:.0}");
            let (thousands, rest) = digits.split_at(digits.len() - 3);
            format!("{thousands},{rest}")
        }
        v if v < 999_950.0 => format!("{:.1}k", value / 1e3),
        v if v < 999_950_000.0 => format!("{:.1}M", value / 1e6),
        _ => format!("{:.1}G", value / 1e9),
    }
}

/// A size: `0 B`, `1.0 MiB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if value.abs() < 1024.0 {
        return format!("{value:.0} B");
    }
    let (mut value, mut named) = (value, "B");
    for unit in UNITS {
        if value.abs() < 1024.0 {
            break;
        }
        (value, named) = (value / 1024.0, unit);
    }
    format!("{value:.1} {named}")
}

/// Formats a percentile in whole milliseconds; less than one is `<1 ms`.
pub fn millis(value: f64) -> String {
    if value < 1.0 { "<1 ms".to_owned() } else { format!("{value:.0} ms") }
}

/// Formats a fraction as a percentage.
pub fn percent(part: f64) -> String {
    format!("{:.1}%", part * 100.0)
}

/// Formats a time span by its two largest units: `3 d 4 h`, `12 s`.
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_so() {
        let counts = [0.0, 0.4, 7.0, 9.98, 12.6, 999.4, 1234.0, 56_700.0, 999_949.0, 8.9e6, 2.5e9].map(count);
        let expected = ["0", "0.4", "7", "10", "13", "999", "1,234", "56.7k", "999.9k", "8.9M", "2.5G"];
        assert_eq!(counts, expected);
        let sizes = [0.0, 1023.0, 1024.0, 1.5 * 1024.0 * 1024.0, 3.0 * 1024f64.powi(4)].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "3.0 TiB"]);
        assert_eq!([0.0, 7.0].map(millis), ["<1 ms", "7 ms"]);
        assert_eq!([5, 65, 3660, 100_000].map(span), ["5 s", "1 min 5 s", "1 h 1 min", "1 d 3 h"]);
    }
}
