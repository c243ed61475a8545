//! The report as text.

use super::Report;
use crate::stats::Latencies;

/// The text that `evenkeel pe` prints after a run.
pub fn summary(report: &Report) -> String {
    let tally = &report.tally;
    let mut lines = vec![format!("{}: {}", report.target, report.title())];
    if let Some(warmup) = &report.warmup {
        let requests = report.warmup_requests;
        lines
            .push(format!("  warm-up, not in the figures below: {requests} requests, {}", latencies(warmup)));
    }
    lines.push(format!(
        "  rows      {} in {:.0} ms, {:.1} rows/s, {:.2} MB/s of values",
        tally.rows,
        report.seconds * 1000.0,
        report.rows_per_s,
        (tally.bytes_written + tally.bytes_read) as f64 / report.seconds / f64::from(1 << 20)
    ));
    lines.push(format!(
        "  requests  {}, {:.1} a second, {} failed",
        tally.requests, report.requests_per_s, tally.errors
    ));
    lines.push(moved("written", tally.rows_written, tally.cells_written, tally.bytes_written));
    lines.push(moved("read", tally.rows_read, tally.cells_read, tally.bytes_read));
    if report.options.replicas > 1 {
        lines.push(format!("  {} rows came from a replica that may lag behind", tally.stale));
    }
    let measures = report.latency.count;
    lines.push(format!("  latency   {}, {measures} measured", latencies(&report.latency)));
    if report.options.rate.is_some() {
        lines.push(format!("  from the send, as a closed loop would count: {}", latencies(&report.service)));
    }
    if report.options.latency_threshold > 0 {
        let (over, ms) = (tally.over_threshold, report.options.latency_threshold);
        lines.push(format!("  {over} requests took {ms} ms or longer"));
    }
    lines.push(format!(
        "  this process  {:.2} CPU s, {:.2} us a request",
        report.own_cpu_s,
        report.own_us_per_request()
    ));
    lines.extend(server(report));
    lines.extend(report.failures.iter().map(|why| format!("  failed: {why}")));
    lines.join("\n") + "\n"
}

fn moved(what: &str, rows: u64, cells: u64, bytes: u64) -> String {
    format!("  {what:<9} {rows} rows, {cells} cells, {bytes} bytes of values")
}

fn latencies(l: &Latencies) -> String {
    format!(
        "mean {:.1} P50 {:.1} P95 {:.1} P99 {:.1} P99.9 {:.1} P99.99 {:.1} max {:.1} us",
        l.mean_us, l.p50_us, l.p95_us, l.p99_us, l.p999_us, l.p9999_us, l.max_us
    )
}

fn server(report: &Report) -> Option<String> {
    let server = report.server.as_ref()?;
    let mut line = format!(
        "  server {}  {:.2} CPU s, {:.2} us a request, {:.2} us a row, {} MiB",
        server.pid,
        server.cpu_s,
        report.server_us_per_request().unwrap_or_default(),
        server.cpu_s * 1e6 / report.moved_rows().max(1) as f64,
        server.rss_bytes >> 20
    );
    if let (Some(time), Some(count)) = (server.gc_time_s, server.gc_count) {
        let cpu = server.gc_cpu_s.unwrap_or_default();
        line.push_str(&format!(", {count} collections of {:.0} ms, {:.2} CPU s", time * 1000.0, cpu));
    }
    if let (Some(time), Some(calls)) = (server.allocator_s, server.allocator_calls) {
        line.push_str(&format!(", {calls} calls of its allocator, about {time:.2} s"));
    }
    Some(line)
}
