//! The ledger's requests as JSON, which `/slow.json` serves, and as a log line.
//!
//! Times are milliseconds with three decimals. A request contains only the causes with a nonzero
//! time, the longest first, and only the conditions that are not 0.

use std::fmt::Write;
use std::time::Duration;

use evenkeel_common::Binary;

use crate::histogram::TIME_UNITS_PER_MS;
use crate::ledger::{ActionCounts, Ledger, OverlappingActivity, SlowRequest};
use crate::sink::json::JsonWriter;
use crate::waits::{Cause, Waits};

/// Returns the document: the kept requests, and the waiting times of slow requests by cause since
/// the start.
pub fn document(ledger: &Ledger) -> String {
    let mut json = JsonWriter::default();
    let (slow, left_out) = ledger.counts();
    json.begin_object();
    ms(&mut json, "thresholdMs", ledger.config().slow);
    count(&mut json, "slowRequests", slow);
    count(&mut json, "leftOut", left_out);
    json.name("causes");
    json.begin_array();
    for (cause, times) in ledger.causes() {
        let times = times.snapshot();
        json.begin_object();
        json.member("cause", cause.name());
        count(&mut json, "requests", times.count());
        json.name("meanMs");
        json.literal(&format!("{:.3}", times.mean() / TIME_UNITS_PER_MS as f64));
        json.end_object();
    }
    json.end_array();
    for (name, requests) in [("slow", ledger.slow_requests()), ("slowest", ledger.slowest_requests())] {
        json.name(name);
        json.begin_array();
        requests.iter().for_each(|request| write_request(&mut json, request));
        json.end_array();
    }
    json.end_object();
    json.finish()
}

fn write_request(json: &mut JsonWriter, request: &SlowRequest) {
    json.begin_object();
    json.member("method", request.method);
    json.name("received");
    json.literal(&request.received_ms.to_string());
    ms(json, "totalMs", request.total_time());
    ms(json, "queueMs", request.queue_time);
    ms(json, "processingMs", request.processing_time);
    count(json, "requestBytes", request.request_bytes);
    count(json, "replyBytes", request.reply_bytes);
    json.member("client", &request.client);
    json.member("user", &request.user);
    json.member("region", &request.detail.region);
    json.member("row", &Binary(&request.detail.row).to_string());
    json.member("detail", &request.detail.text);
    json.member("error", request.error);
    write_actions(json, request.detail.actions);
    json.name("causes");
    json.begin_array();
    for (cause, time) in request.waits.by_length() {
        json.begin_object();
        json.member("cause", cause.name());
        ms(json, "ms", time);
        json.end_object();
    }
    json.end_array();
    write_surroundings(json, request);
    json.end_object();
}

fn write_actions(json: &mut JsonWriter, actions: ActionCounts) {
    let ActionCounts { gets, mutations, service_calls } = actions;
    count(json, "gets", gets.into());
    count(json, "mutations", mutations.into());
    count(json, "serviceCalls", service_calls.into());
}

fn write_surroundings(json: &mut JsonWriter, request: &SlowRequest) {
    let around = &request.surroundings;
    if let Some(read) = &around.slowest_read {
        json.member("slowestReadFile", &read.file);
        ms(json, "slowestReadMs", read.took);
    }
    json.name("server");
    json.begin_array();
    around.activities.iter().for_each(|activity| write_activity(json, activity));
    json.end_array();
    let conditions = &around.conditions;
    json.name("conditions");
    json.begin_object();
    for (name, time) in [
        ("windowMs", conditions.window),
        ("stolenCpuMs", conditions.stolen),
        ("busyCpuMs", conditions.busy),
        ("threadRanMs", conditions.thread_ran),
        ("threadWaitedForCpuMs", conditions.thread_waited),
    ] {
        if !time.is_zero() {
            ms(json, name, time);
        }
    }
    for (name, number) in [
        ("minorFaults", conditions.minor_faults),
        ("majorFaults", conditions.major_faults),
        ("evictions", conditions.evictions),
    ] {
        if number > 0 {
            count(json, name, number);
        }
    }
    json.end_object();
}

fn write_activity(json: &mut JsonWriter, activity: &OverlappingActivity) {
    json.begin_object();
    json.member("activity", activity.kind.name());
    json.member("of", &activity.subject);
    ms(json, "overlapMs", activity.overlap);
    ms(json, "tookMs", activity.took);
    json.name("runs");
    json.literal(if activity.runs { "true" } else { "false" });
    if !activity.error.is_empty() {
        json.member("error", &activity.error);
    }
    json.end_object();
}

/// Formats the causes of a request in one line, the longest first:
/// `logSync 120.4ms, computing 0.2ms`.
pub fn causes_line(waits: &Waits) -> String {
    join(
        waits
            .by_length()
            .iter()
            .map(|(cause, time): &(Cause, Duration)| format!("{} {time:.1?}", cause.name())),
    )
}

/// Formats the slowest read of a request, and what else the server did, in one line:
/// `flush of t,,1.ab. 80.0ms (runs)`.
pub fn server_line(request: &SlowRequest) -> String {
    let around = &request.surroundings;
    let read = around.slowest_read.iter().map(|read| format!("read of {} {:.1?}", read.file, read.took));
    let activities = around.activities.iter().map(|activity| {
        let mut text = format!("{} of {} {:.1?}", activity.kind.name(), activity.subject, activity.overlap);
        if activity.runs {
            text.push_str(" (runs)");
        }
        if !activity.error.is_empty() {
            let _cannot_fail = write!(text, " (failed: {})", activity.error);
        }
        text
    });
    let conditions = &around.conditions;
    let stolen = (!conditions.stolen.is_zero()).then(|| format!("stolen CPU {:.1?}", conditions.stolen));
    let counts = [
        ("major page faults", conditions.major_faults),
        ("minor page faults", conditions.minor_faults),
        ("evictions", conditions.evictions),
    ];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let counts = counts.map(|(what, count)| format!("{count} {what}"));
    join(read.chain(activities).chain(stolen).chain(counts))
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn ms(json: &mut JsonWriter, name: &str, time: Duration) {
    json.name(name);
    json.literal(&format!("{:.3}", time.as_secs_f64() * 1e3));
}

fn count(json: &mut JsonWriter, name: &str, number: u64) {
    json.name(name);
    json.literal(&number.to_string());
}
