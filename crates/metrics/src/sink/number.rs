//! Numbers in the format of Java's `toString`, which scripts that read HBase's pages expect.

use std::fmt::Write;

use crate::record::Value;

/// `Double.toString` writes an exponent from this value on.
const EXPONENT_FROM: f64 = 1e7;
/// It also does so below this value.
const EXPONENT_BELOW: f64 = 1e-3;

/// Formats a value as Java does: counters and gauges as integers, reals as doubles.
pub fn value_text(value: Value) -> String {
    let mut text = String::new();
    push_value(value, &mut text);
    text
}

/// Appends a value as [`value_text`] formats it. Integers need no allocation.
pub fn push_value(value: Value, text: &mut String) {
    // Writing to a string does not fail.
    let _never_fails = match value {
        Value::Counter(count) => write!(text, "{count}"),
        Value::Gauge(gauge) => write!(text, "{gauge}"),
        Value::Real(real) => write!(text, "{}", double_text(real)),
    };
}

/// Formats a double as `Double.toString` does: `0.95`, `12.0`, `1.0E10`, `NaN`, `-Infinity`.
pub fn double_text(real: f64) -> String {
    let size = real.abs();
    if real.is_nan() {
        "NaN".to_owned()
    } else if real.is_infinite() {
        if real > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else if size == 0.0 || (EXPONENT_BELOW..EXPONENT_FROM).contains(&size) {
        format!("{real:?}")
    } else {
        with_exponent(real)
    }
}

fn with_exponent(real: f64) -> String {
    let text = format!("{real:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let fraction = if digits.contains('.') { "" } else { ".0" };
    format!("{digits}{fraction}E{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_spelled_as_by_java() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.95, "0.95"),
            (12.0, "12.0"),
            (0.001, "0.001"),
            (0.0009, "9.0E-4"),
            (9_999_999.0, "9999999.0"),
            (1e7, "1.0E7"),
            (-123_456_789.5, "-1.234567895E8"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ];
        for (real, text) in cases {
            assert_eq!(double_text(real), text);
        }
        assert_eq!(value_text(Value::Counter(u64::MAX)), "18446744073709551615");
    }
}
