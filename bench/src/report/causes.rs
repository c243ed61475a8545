//! [`table`]: what the slow requests of bad seconds waited for, from Evenkeel's ledger.
//!
//! The server logs up to ten slow requests a second with the time of each cause and with what else
//! it did (`slow request` of `evenkeel_rpc::metrics`). A report lowers the threshold with
//! [`SETTING`], so that the requests that make a second bad are among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

/// The threshold of slow requests, in milliseconds.
pub const SETTING: (&str, &str) = ("evenkeel.slow.request.ms", "3");
/// Rows of the table.
const SECONDS_MAX: usize = 60;
/// Causes of a row: the longest.
const CAUSES_MAX: usize = 3;
/// A request that ended this long after its second may have begun in it.
const LATE_S: f64 = 0.1;
const DAY_S: f64 = 86_400.0;

/// A line of the log.
struct SlowRequest {
    /// The time of the day.
    at_s: f64,
    /// The time of each cause, in milliseconds.
    causes: Vec<(String, f64)>,
    /// Background work beside it.
    work: BTreeSet<String>,
}

/// Returns a table of the seconds that begin `bad_s` seconds after `began_unix_s`; `None` if there
/// are none.
pub fn table(log: &str, began_unix_s: f64, bad_s: &[f64]) -> Option<String> {
    if bad_s.is_empty() {
        return None;
    }
    let requests: Vec<_> = log.lines().filter_map(SlowRequest::of).collect();
    let mut text = String::from(
        "The server logs ten a second of the requests that take 3 ms or longer. Their time by cause, and what the server did beside them:\n\n\
         | second | logged | waited for | beside them |\n|---|---|---|---|\n",
    );
    for at_s in bad_s.iter().take(SECONDS_MAX) {
        let begin_s = (began_unix_s + at_s).rem_euclid(DAY_S);
        let is_in = |request: &&SlowRequest| {
            (0.0..1.0 + LATE_S).contains(&(request.at_s - begin_s).rem_euclid(DAY_S))
        };
        let of_second: Vec<_> = requests.iter().filter(is_in).collect();
        let _ = writeln!(
            text,
            "| {at_s:.0} | {} | {} | {} |",
            of_second.len(),
            causes(&of_second),
            work(&of_second)
        );
    }
    if bad_s.len() > SECONDS_MAX {
        let _ = writeln!(text, "\nand {} more seconds.", bad_s.len() - SECONDS_MAX);
    }
    Some(text)
}

/// The causes that took most of the requests' time: `logSync 91 %, rowLock 8 %`.
fn causes(requests: &[&SlowRequest]) -> String {
    let mut sums = BTreeMap::<&str, f64>::new();
    for (cause, ms) in requests.iter().flat_map(|request| &request.causes) {
        *sums.entry(cause).or_default() += ms;
    }
    let all: f64 = sums.values().sum();
    let mut longest: Vec<_> = sums.into_iter().collect();
    longest.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shown =
        longest.iter().take(CAUSES_MAX).map(|(cause, ms)| (cause, 100.0 * ms / all.max(f64::MIN_POSITIVE)));
    shown.map(|(cause, percent)| format!("{cause} {percent:.0} %")).collect::<Vec<_>>().join(", ")
}

fn work(requests: &[&SlowRequest]) -> String {
    let all: BTreeSet<&str> = requests.iter().flat_map(|request| &request.work).map(String::as_str).collect();
    all.into_iter().collect::<Vec<_>>().join(", ")
}

impl SlowRequest {
    fn of(line: &str) -> Option<Self> {
        if !line.contains("\"slow request\"") {
            return None;
        }
        let line: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| line.get(name).and_then(Value::as_str);
        let cause = |part: &str| {
            let (cause, took) = part.rsplit_once(' ')?;
            Some((cause.to_owned(), ms(took)?))
        };
        let work = text("server").unwrap_or_default().split(", ").filter(|part| !part.is_empty());
        Some(Self {
            at_s: time_of_day_s(text("timestamp")?)?,
            causes: text("causes")?.split(", ").filter_map(cause).collect(),
            work: work.map(kind).collect(),
        })
    }
}

/// The kind of an activity: `flush` of `flush of t,,1.ab. 80.0ms (runs)`. Counts and stolen time
/// lose their number.
fn kind(part: &str) -> String {
    match part.split_once(" of ") {
        Some((kind, _)) => kind.to_owned(),
        None => part
            .split(' ')
            .filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// Seconds since midnight of `2026-11-27T13:07:19.986642Z`.
fn time_of_day_s(timestamp: &str) -> Option<f64> {
    let time = timestamp.split_once('T')?.1.strip_suffix('Z')?;
    let mut parts = time.split(':').map(|part| part.parse::<f64>().ok());
    Some(parts.next()?? * 3600.0 + parts.next()?? * 60.0 + parts.next()??)
}

/// Milliseconds of a time in Rust's spelling: `4.2ms`.
fn ms(took: &str) -> Option<f64> {
    let (number, unit) = took.split_at(took.find(|c: char| c.is_alphabetic() || c == 'µ')?);
    let factor = match unit {
        "ns" => 1e-6,
        "µs" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_belong_to_the_second_in_which_they_ended() {
        let line = |time: &str, causes: &str, server: &str| {
            format!(
                "{{\"timestamp\":\"2026-11-27T{time}Z\",\"message\":\"slow request\",\"causes\":\"{causes}\",\"server\":\"{server}\"}}\n"
            )
        };
        let log = [
            line(
                "00:00:09.5",
                "logSync 4.5ms, processor 500.0µs",
                "flush of t,,1.ab. 80.0ms (runs), stolen CPU 10.0ms",
            ),
            line("00:00:10.05", "rowLock 1.0s", "12 minor page faults"),
            line("00:00:11.0", "socket 9.0ms", ""),
            "no JSON, but \"slow request\"\n".to_owned(),
            "another line\n".to_owned(),
        ]
        .concat();
        // 10 s after midnight, and a second before it.
        let text = table(&log, 86_400.0 * 3.0, &[9.0, 86_399.0 - 86_400.0]).expect("a table");
        assert!(
            text.contains(
                "| 9 | 2 | rowLock 100 %, logSync 0 %, processor 0 % | flush, minor page faults, stolen CPU |"
            ),
            "{text}"
        );
        assert!(text.contains("| -1 | 0 |  |  |"), "{text}");
        assert_eq!(table(&log, 0.0, &[]), None);
        assert_eq!([ms("2.0s"), ms("500.0µs"), ms("1.0h"), ms("x")], [Some(2_000.0), Some(0.5), None, None]);
    }
}
