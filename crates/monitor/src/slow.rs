//! `evenkeel slow`: the ledger of slow requests with the causes of their times, from `/slow.json`.

use std::io::{self, Write};
use std::process::ExitCode;

use chrono::{DateTime, Local};
use clap::Args;
use serde_json::Value;

use crate::ErrorText;
use crate::address::{Address, AddressArgs};
use crate::http::Client;

/// The page of the ledger.
pub const PAGE: &str = "/slow.json";

/// The arguments of `evenkeel slow`.
#[derive(Args, Clone, Debug)]
pub struct SlowArgs {
    #[command(flatten)]
    address: AddressArgs,
    /// The number of requests to print
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20)]
    count: usize,
    /// The slowest requests of each minute, instead of all above the threshold
    #[arg(long)]
    slowest: bool,
}

/// A kept request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlowRequest {
    /// When it arrived, in milliseconds since 1970.
    pub received_ms: i64,
    /// From its arrival until its reply was ready, in milliseconds.
    pub total_ms: f64,
    /// The method, such as `Get`.
    pub method: String,
    /// The region's name, or empty.
    pub region: String,
    /// The beginning of the row, escaped.
    pub row: String,
    /// Further details.
    pub detail: String,
    /// The client and its user.
    pub client: String,
    /// The Java class of its error, or empty.
    pub error: String,
    /// The causes of its time, in milliseconds, the longest first.
    pub causes: Vec<(String, f64)>,
    /// What the server did during the request: the slowest read of a file, background activities
    /// with their overlap and their errors, stolen CPU, page faults and evictions.
    pub server: Vec<String>,
}

/// The ledger of a server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlowRequests {
    /// The threshold of slow requests, in milliseconds.
    pub threshold_ms: f64,
    /// The number of requests above it since the start.
    pub total: u64,
    /// The kept requests above the threshold, the newest first.
    pub slow: Vec<SlowRequest>,
    /// The slowest of each minute.
    pub slowest: Vec<SlowRequest>,
}

impl SlowRequests {
    /// Fetches the ledger of a server.
    ///
    /// # Errors
    /// As [`Client::get_ok`], and if the response is not such a document.
    pub fn fetch(client: &Client) -> Result<Self, ErrorText> {
        Self::parse(&client.get_ok(PAGE)?)
    }

    /// Parses the document.
    ///
    /// # Errors
    /// If it is not JSON.
    pub fn parse(document: &[u8]) -> Result<Self, ErrorText> {
        let document: Value =
            serde_json::from_slice(document).map_err(|error| format!("{PAGE} is not JSON: {error}"))?;
        Ok(Self {
            threshold_ms: number(&document, "thresholdMs"),
            total: document.get("slowRequests").and_then(Value::as_u64).unwrap_or_default(),
            slow: list(&document, "slow").map(SlowRequest::of).collect(),
            slowest: list(&document, "slowest").map(SlowRequest::of).collect(),
        })
    }
}

impl SlowRequest {
    fn of(request: &Value) -> Self {
        let cause = |cause: &Value| (text(cause, "cause"), number(cause, "ms"));
        Self {
            received_ms: request.get("received").and_then(Value::as_i64).unwrap_or_default(),
            total_ms: number(request, "totalMs"),
            method: text(request, "method"),
            region: text(request, "region"),
            row: text(request, "row"),
            detail: text(request, "detail"),
            client: format!("{} {}", text(request, "client"), text(request, "user")).trim().to_owned(),
            error: text(request, "error"),
            causes: list(request, "causes").map(cause).collect(),
            server: server_of(request),
        }
    }

    /// Returns the causes of its time: `logSync 120.4 ms, computing 0.2 ms`.
    pub fn causes_line(&self) -> String {
        let parts: Vec<_> = self.causes.iter().map(|(cause, ms)| format!("{cause} {ms:.1} ms")).collect();
        parts.join(", ")
    }

    /// Returns what it was for: `Get t,,1.ab. row r1`.
    pub fn subject(&self) -> String {
        let row = if self.row.is_empty() { String::new() } else { format!("row {}", self.row) };
        let words = [self.method.as_str(), &self.region, &row, &self.detail, &self.error];
        words.iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join(" ")
    }

    /// Returns the server's activities during the request; empty if there were none.
    pub fn server_line(&self) -> String {
        self.server.join(", ")
    }
}

/// Describes what the server did during a request.
fn server_of(request: &Value) -> Vec<String> {
    let mut parts = Vec::new();
    let file = text(request, "slowestReadFile");
    if !file.is_empty() {
        parts.push(format!("read of {file} for {:.1} ms", number(request, "slowestReadMs")));
    }
    for beside in list(request, "server") {
        let (activity, of, ms) = (text(beside, "activity"), text(beside, "of"), number(beside, "overlapMs"));
        let mut part = format!("{activity} of {of} for {ms:.1} ms");
        let error = text(beside, "error");
        if !error.is_empty() {
            part.push_str(&format!(" (failed: {error})"));
        }
        parts.push(part);
    }
    let conditions = request.get("conditions").unwrap_or(&Value::Null);
    let stolen_ms = number(conditions, "stolenCpuMs");
    if stolen_ms > 0.0 {
        parts.push(format!("stolen CPU {stolen_ms:.1} ms"));
    }
    for (name, what) in [
        ("majorFaults", "major page faults"),
        ("minorFaults", "minor page faults"),
        ("evictions", "evictions"),
    ] {
        let count = conditions.get(name).and_then(Value::as_u64).unwrap_or_default();
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    parts
}

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn number(of: &Value, name: &str) -> f64 {
    of.get(name).and_then(Value::as_f64).unwrap_or_default()
}

/// Returns a text without control characters: clients choose rows and names of regions.
fn text(of: &Value, name: &str) -> String {
    let text = of.get(name).and_then(Value::as_str).unwrap_or_default();
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Prints the ledger of a server.
///
/// # Errors
/// If no server answers, or it has no ledger.
pub fn run(args: &SlowArgs) -> Result<ExitCode, ErrorText> {
    let client = Client::new(Address::parse(&args.address.address)?)?;
    let ledger = SlowRequests::fetch(&client)?;
    // A closed output, as with `head`, is not a failure.
    let _closed = io::stdout().write_all(render(&ledger, args.slowest, args.count).as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// Formats the requests: one line for the subject of each, and one for the causes of its time.
pub fn render(ledger: &SlowRequests, slowest: bool, count: usize) -> String {
    let kept = if slowest { &ledger.slowest } else { &ledger.slow };
    let what = if slowest { "the slowest of each minute" } else { "the newest first" };
    let mut lines = format!(
        "{} requests of {} ms or longer since the start; {} of {} kept, {what}\n",
        ledger.total,
        ledger.threshold_ms,
        kept.len().min(count),
        kept.len(),
    );
    for request in kept.iter().take(count) {
        lines.push_str(&format!(
            "\n{} {:>9.1} ms  {}\n{:>24}{}\n",
            time_of(request.received_ms),
            request.total_ms,
            request.subject(),
            "",
            request.causes_line(),
        ));
        for (name, line) in [("beside ", request.server_line()), ("client ", request.client.clone())] {
            if !line.is_empty() {
                lines.push_str(&format!("{:>24}{name}{line}\n", ""));
            }
        }
    }
    lines
}

/// Returns the local time of day, with milliseconds.
fn time_of(ms: i64) -> String {
    let time = DateTime::from_timestamp_millis(ms).unwrap_or_default();
    time.with_timezone(&Local).format("%H:%M:%S%.3f").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A document in the server's format.
    const DOCUMENT: &str = r#"{"thresholdMs": 100.000, "slowRequests": 12, "leftOut": 0, "causes": [],
        "slow": [{"method": "Get", "received": 1700000000123, "totalMs": 250.250, "queueMs": 0.250,
            "client": "10.0.0.7:4711", "user": "ann", "region": "t,,1.ab.", "row": "r1\u001b[2J", "detail": "",
            "error": "", "causes": [{"cause": "blockRead", "ms": 249.000}, {"cause": "thread", "ms": 0.250}],
            "slowestReadFile": "/t/f1", "slowestReadMs": 249.000,
            "server": [{"activity": "compaction", "of": "t,,1.ab.", "overlapMs": 200.000, "runs": true},
                {"activity": "flush", "of": "t,,1.ab.", "overlapMs": 0.000, "runs": false, "error": "no space"}],
            "conditions": {"stolenCpuMs": 3.000, "majorFaults": 2, "evictions": 5}},
            {"method": "Mutate"}],
        "slowest": []}"#;

    #[test]
    fn slow_requests_are_printed_with_their_causes() {
        let ledger = SlowRequests::parse(DOCUMENT.as_bytes()).expect("parsed");
        let text = render(&ledger, false, 1);
        let mut lines = text.lines();
        let first = "12 requests of 100 ms or longer since the start; 1 of 2 kept, the newest first";
        assert_eq!((lines.next(), lines.next()), (Some(first), Some("")));
        let line = lines.next().expect("a request");
        assert!(
            line.ends_with(".123     250.2 ms  Get t,,1.ab. row r1[2J"),
            "no control characters: {line:?}"
        );
        let rest: Vec<_> = lines.map(str::trim_start).collect();
        let expected = [
            "blockRead 249.0 ms, thread 0.2 ms",
            "beside read of /t/f1 for 249.0 ms, compaction of t,,1.ab. for 200.0 ms, \
             flush of t,,1.ab. for 0.0 ms (failed: no space), stolen CPU 3.0 ms, 2 major page faults, 5 evictions",
            "client 10.0.0.7:4711 ann",
        ];
        assert_eq!(rest, expected);
        assert!(render(&ledger, true, 9).contains("0 of 0 kept, the slowest of each minute"));
        assert!(SlowRequests::parse(b"<html>").is_err());
    }
}
