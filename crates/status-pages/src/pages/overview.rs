//! `/rs-status`: the current state of the server, and the last ten minutes.

use std::time::Duration;

use evenkeel_info_server::Request;
use evenkeel_metrics::{Cause, SlowRequest, Waits};
use maud::{Markup, html};

use super::{Description, StatusPages};
use crate::chart::{LineChart, Scale, Series, Span};
use crate::format::{self, Quantity};
use crate::history::{KINDS, Percentiles, Sample};
use crate::layout::{bar, card, refreshed_part, tile};

pub(super) const PAGE: Description = Description {
    path: "/rs-status",
    title: "RegionServer",
    about: "The server's state now and in the last ten minutes.",
    refresh_ms: 1_000,
    content,
};

/// The time span of charts.
pub(super) const SHOWN_MS: i64 = 600_000;
/// Requests that ended within this time count as the last minute's.
const MINUTE_MS: i64 = 60_000;
/// The number of points of a line; each is the maximum of its samples.
const POINTS: usize = 200;

fn content(pages: &StatusPages, _: &Request) -> Markup {
    let samples = pages.history.samples();
    let now_ms = pages.sources.now_ms();
    html! {
        (refreshed_part("now", &tiles(pages, &samples, now_ms)))
        div.columns {
            (card("Latency", "of all calls, from arrival to reply", &refreshed_part("latency-part", &latency(&samples, now_ms))))
            (card("Throughput", "requests a second", &refreshed_part("throughput-part", &throughput(&samples, now_ms))))
            (card("Where slow requests waited", "last minute", &refreshed_part("causes", &causes(pages, now_ms))))
            (card("Log and processor", "the longest commit of each second; CPU", &refreshed_part("log-part", &log_and_cpu(&samples, now_ms))))
        }
        (card("This server", "", &refreshed_part("identity", &identity(pages, now_ms))))
    }
}

fn tiles(pages: &StatusPages, samples: &[Sample], now_ms: i64) -> Markup {
    let sources = &pages.sources;
    let last = samples.last().cloned().unwrap_or_default();
    let times = recent_times(samples);
    let micros = |us: Option<f64>| us.map_or_else(none, format::micros);
    let cache = sources.server().map(|server| server.cache_stats()).unwrap_or_default();
    let memory: (u64, u64) =
        ((sources.memory)().iter().map(|part| part.used).sum(), sources.memory_bytes_max);
    let stats = sources.rpc.stats();
    let (slow, _) = sources.rpc.metrics().ledger.counts();
    let regions = sources.server().map_or(0, |server| server.regions().len() as u64);
    let slow_minute: f64 =
        samples.iter().filter(|sample| sample.at_ms > now_ms - MINUTE_MS).map(|sample| sample.slow).sum();
    html! {
        div.tiles {
            (tile(
                "Requests",
                &format::rate(last.total(), "requests/s").show("totalRequestCount", "requests in the last second"),
                &html! { (format::count(sources.server().map_or(0, |s| s.counters().total()), "since start").show("totalRequestCount", "requests since start")) },
            ))
            (tile(
                "p99",
                &micros(times.map(|t| t.p99)).show("TotalCallTime_99th_percentile", "99 of 100 calls of the last ten seconds were at most this long"),
                &html! { "median " (micros(times.map(|t| t.p50)).show("TotalCallTime_median", "half of the calls of the last ten seconds were at most this long")) },
            ))
            (tile(
                "p99.9",
                &micros(times.map(|t| t.p999)).show("TotalCallTime_99.9th_percentile", "999 of 1000 calls of the last ten seconds were at most this long"),
                &html! { "max " (micros(times.map(|t| t.max)).show("TotalCallTime_max", "the longest call of the last ten seconds")) },
            ))
            (tile(
                "Slow requests",
                &format::count(evenkeel_common::length::whole(slow_minute.round()), "in a minute").show("slowRequestCount", "requests above the threshold that ended in the last minute"),
                &html! { a href="/slow" { (format::count(slow, "since start").show("slowRequestCount", "requests above the threshold since start")) } },
            ))
            (tile(
                "Memory",
                &format::bytes(memory.0).show("totalBytes", "memory used by all counted parts"),
                &html! { (bar(memory.0, memory.1, "memory")) " of " (format::bytes(memory.1).show("MemMaxM", "evenkeel.memory.size")) },
            ))
            (tile(
                "Block cache",
                &format::percent(cache.hit_percent() / 100.0).show("blockCacheCountHitPercent", "lookups that found their block, since start"),
                &html! { (bar(cache.bytes, cache.capacity_bytes, "block cache")) " " (format::bytes(cache.bytes).show("blockCacheSize", "bytes of blocks in the cache")) },
            ))
            (tile(
                "Regions",
                &format::count(regions, "regions").show("regionCount", "regions served here"),
                &html! { a href="/tables" { "tables" } " · " a href="/regions" { "regions" } },
            ))
            (tile(
                "Connections",
                &format::count(stats.connections_open, "open").show("numOpenConnections", "open RPC connections"),
                &html! { (format::byte_rate(last.bytes.iter().sum()).show("receivedBytes, sentBytes", "bytes in and out over RPC in the last second")) },
            ))
        }
    }
}

/// An unknown number.
pub(super) fn none() -> Quantity {
    Quantity { digits: "–".to_owned(), unit: "" }
}

/// Returns the percentiles of the last ten seconds: each is the maximum over its seconds, which is
/// at least the percentile over all of them.
fn recent_times(samples: &[Sample]) -> Option<Percentiles> {
    let recent = samples.iter().rev().take(10).filter_map(|sample| sample.times);
    recent.reduce(|a, b| Percentiles {
        p50: a.p50.max(b.p50),
        p99: a.p99.max(b.p99),
        p999: a.p999.max(b.p999),
        max: a.max.max(b.max),
    })
}

/// Samples grouped into at most as many points as a chart can show.
struct Points {
    moments: Vec<i64>,
    chunks: Vec<Vec<Sample>>,
}

impl Points {
    fn of(samples: &[Sample]) -> Self {
        // The boundaries are fixed times of the clock, so that a point does not change as time
        // passes.
        let step_ms = SHOWN_MS / i64::try_from(POINTS).unwrap_or(i64::MAX);
        let mut points = Self { moments: Vec::new(), chunks: Vec::new() };
        for sample in samples {
            let moment = sample.at_ms.div_euclid(step_ms) * step_ms;
            match (points.moments.last(), points.chunks.last_mut()) {
                (Some(last), Some(chunk)) if *last == moment => chunk.push(sample.clone()),
                _ => {
                    points.moments.push(moment);
                    points.chunks.push(vec![sample.clone()]);
                }
            }
        }
        points
    }

    fn greatest(&self, of: impl Fn(&Sample) -> Option<f64>) -> Vec<Option<f64>> {
        self.chunks.iter().map(|chunk| chunk.iter().filter_map(&of).reduce(f64::max)).collect()
    }

    fn mean(&self, of: impl Fn(&Sample) -> f64) -> Vec<Option<f64>> {
        let mean = |chunk: &Vec<Sample>| chunk.iter().map(&of).sum::<f64>() / chunk.len().max(1) as f64;
        self.chunks.iter().map(|chunk| Some(mean(chunk))).collect()
    }
}

pub(super) fn latency(samples: &[Sample], now_ms: i64) -> Markup {
    let points = Points::of(samples);
    let line = |name, metric, class, of: fn(&Percentiles) -> f64| Series {
        name,
        metric,
        class,
        values: points.greatest(|sample| sample.times.as_ref().map(of)),
    };
    let series = [
        line("max", "TotalCallTime_max", "s4", |times| times.max),
        line("p99.9", "TotalCallTime_99.9th_percentile", "s3", |times| times.p999),
        line("p99", "TotalCallTime_99th_percentile", "s2", |times| times.p99),
        line("median", "TotalCallTime_median", "s1", |times| times.p50),
    ];
    let values = series.iter().flat_map(|series| series.values.iter().copied().flatten());
    let scale = Scale::log(values);
    let chart = LineChart {
        id: "latency",
        label: "Latency over the last ten minutes: median, 99th and 99.9th percentile, maximum",
        moments: &points.moments,
        span: Span::last(now_ms, SHOWN_MS),
        scale,
        series: &series,
        quantity: format::micros,
    };
    chart.show()
}

pub(super) fn throughput(samples: &[Sample], now_ms: i64) -> Markup {
    let points = Points::of(samples);
    let classes = ["c1", "c2", "c3", "c4", "c5"];
    let series: Vec<Series> = KINDS
        .into_iter()
        .zip(classes)
        .enumerate()
        .map(|(at, ((_, name, metric), class))| Series {
            name,
            metric,
            class,
            values: points.mean(|sample| sample.requests.get(at).copied().unwrap_or(0.0)),
        })
        .collect();
    let chart = LineChart {
        id: "throughput",
        label: "Requests a second over the last ten minutes, by kind",
        moments: &points.moments,
        span: Span::last(now_ms, SHOWN_MS),
        scale: Scale::linear(&series, 10.0),
        series: &series,
        quantity: |value| format::rate(value, "/s"),
    };
    chart.show()
}

fn log_and_cpu(samples: &[Sample], now_ms: i64) -> Markup {
    let points = Points::of(samples);
    let span = Span::last(now_ms, SHOWN_MS);
    let sync = [Series {
        name: "longest commit",
        metric: "SyncTime_max",
        class: "c1",
        values: points.greatest(|sample| sample.wal_sync_max_us),
    }];
    let cpu = [Series {
        name: "processors in use",
        metric: "ProcessCpuTime",
        class: "c2",
        values: points.mean(|sample| sample.cpu),
    }];
    let sync_scale = Scale::log(sync.iter().flat_map(|series| series.values.iter().copied().flatten()));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let chart = |id: &str, label: &str, series: &[Series], scale: Scale, quantity: fn(f64) -> Quantity| {
        LineChart { id, label, moments: &points.moments, span, series, scale, quantity }.show()
    };
    html! {
        (chart("syncs", "The longest commit of the logs in each second", &sync, sync_scale, format::micros))
        (chart("cpu", "Processors in use", &cpu, Scale::linear(&cpu, cores as f64), |value| format::rate(value, "cores")))
    }
}

/// Returns the slow requests of the last minute, or if there were none, the slowest ones; and
/// whether they are slow.
pub(super) fn of_last_minute(pages: &StatusPages, now_ms: i64) -> (Vec<SlowRequest>, bool) {
    let ledger = &pages.sources.rpc.metrics().ledger;
    let is_recent = |request: &SlowRequest| ended_ms(request) > now_ms - MINUTE_MS;
    let slow: Vec<_> = ledger.slow_requests().into_iter().filter(is_recent).collect();
    if !slow.is_empty() {
        return (slow, true);
    }
    (ledger.slowest_requests().into_iter().filter(is_recent).collect(), false)
}

/// Returns when a request's reply was ready, in milliseconds since 1970.
pub(super) fn ended_ms(request: &SlowRequest) -> i64 {
    let took = i64::try_from(request.total_time().as_millis()).unwrap_or(i64::MAX);
    request.received_ms.saturating_add(took)
}

fn causes(pages: &StatusPages, now_ms: i64) -> Markup {
    let (requests, are_slow) = of_last_minute(pages, now_ms);
    let mut waits = Waits::NONE;
    requests.iter().for_each(|request| waits.add(&request.waits));
    let threshold = pages.sources.rpc.metrics().ledger.config().slow;
    html! {
        @if requests.is_empty() {
            p.empty { "No request ended in the last minute." }
        } @else {
            p.hint {
                @if are_slow {
                    (requests.len()) " requests took " (micros_of(threshold).text()) " or more. Their time went to:"
                } @else {
                    "No request took " (micros_of(threshold).text()) ". The time of the " (requests.len()) " slowest went to:"
                }
            }
            (cause_bars(&waits))
        }
        p { a href="/slow" { "All slow requests, with a timeline" } }
    }
}

/// Renders times of causes as bars, the longest first.
pub(super) fn cause_bars(waits: &Waits) -> Markup {
    let sum = waits.sum();
    html! {
        dl.bars {
            @for (cause, time) in waits.by_length() {
                dt { i class={ "key " (cause_class(cause)) } {} (cause_name(cause)) }
                dd {
                    (bar(nanos(time), nanos(sum), cause.name()))
                    (micros_of(time).show(&metric_of(cause), "time that these requests spent on it"))
                    " " small { (format::share(nanos(time), nanos(sum)).text()) }
                }
            }
        }
    }
}

/// Returns the name of a cause's metric in sub=Ledger, which begins with a capital.
fn metric_of(cause: Cause) -> String {
    let mut metric = format!("{}Time_mean", cause.name());
    if let Some(first) = metric.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    metric
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Formats a time as a number with a unit.
pub(super) fn micros_of(time: Duration) -> Quantity {
    format::micros(time.as_secs_f64() * 1e6)
}

/// Returns the name of a cause as words: `earlier writes`.
pub(super) fn cause_name(cause: Cause) -> String {
    let mut words = String::new();
    for c in cause.name().chars() {
        if c.is_ascii_uppercase() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}

/// Returns the colour of a cause: a class of the style sheet.
pub(super) fn cause_class(cause: Cause) -> &'static str {
    // Eight colours, as a disc, as a square, and one more.
    const CLASSES: [&str; 17] = [
        "c1",
        "c2",
        "c3",
        "c4",
        "c5",
        "c6",
        "c7",
        "c8",
        "c1 square",
        "c2 square",
        "c3 square",
        "c4 square",
        "c5 square",
        "c6 square",
        "c7 square",
        "c8 square",
        "c0 square",
    ];
    if cause == Cause::Unexplained {
        return "c0";
    }
    let others = Cause::ALL.iter().filter(|other| **other != Cause::Unexplained);
    others.zip(CLASSES).find(|(other, _)| **other == cause).map_or("c0", |(_, class)| class)
}

fn identity(pages: &StatusPages, now_ms: i64) -> Markup {
    let sources = &pages.sources;
    html! {
        dl.facts {
            dt { "Version" } dd { "Evenkeel " (env!("CARGO_PKG_VERSION")) ", as HBase " (evenkeel_regionserver::HBASE_VERSION) }
            dt { "Server" } dd { code { (sources.server_name) } }
            dt { "Cluster" } dd { code { (sources.cluster_id) } }
            dt { "ZooKeeper" } dd { code { (sources.zookeeper_quorum) } }
            dt { "Started" } dd { (format::moment(sources.started_ms)) " UTC, " (format::age(now_ms - sources.started_ms).show("regionServerStartTime", "time since the start")) " ago" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_a_name_and_a_colour() {
        assert_eq!(cause_name(Cause::EarlierWrites), "earlier writes");
        assert_eq!(cause_class(Cause::Unexplained), "c0");
        let classes: std::collections::HashSet<_> = Cause::ALL.into_iter().map(cause_class).collect();
        assert_eq!(classes.len(), Cause::ALL.len(), "{classes:?}");
    }

    #[test]
    fn points_keep_the_peaks() {
        let sample = |second: i64, p99: f64| Sample {
            at_ms: second * 1_000,
            times: Some(Percentiles { p99, ..Percentiles::default() }),
            cpu: p99,
            ..Sample::default()
        };
        let samples = [sample(3, 1.0), sample(4, 9.0), sample(5, 2.0), sample(6, 4.0)];
        let points = Points::of(&samples);
        assert_eq!(points.moments, [3_000, 6_000]);
        assert_eq!(points.greatest(|sample| sample.times.map(|times| times.p99)), [Some(9.0), Some(4.0)]);
        assert_eq!(points.mean(|sample| sample.cpu), [Some(4.0), Some(4.0)]);
    }
}
