//! `/wal`: the WALs: files, syncs, rolls and waits for them.

use evenkeel_info_server::Request;
use maud::{Markup, html};

use super::overview::{SHOWN_MS, none};
use super::{Description, StatusPages};
use crate::chart::{LineChart, Scale, Series, Span};
use crate::format;
use crate::history::Percentiles;
use crate::layout::{card, refreshed_part, tile};
use crate::sources::NamedWal;

pub(super) const PAGE: Description = Description {
    path: "/wal",
    title: "Write-ahead logs",
    about: "The write-ahead logs: commit times and files.",
    refresh_ms: 1_000,
    content,
};

fn content(pages: &StatusPages, _: &Request) -> Markup {
    html! {
        (card("Commits", "the longest of each second", &refreshed_part("syncs-part", &syncs(pages))))
        @for wal in &pages.sources.wals {
            (card("Log of", wal.name, &refreshed_part(&format!("log-{}", wal.name.replace([' ', ':'], "-")), &log(wal))))
        }
        (card("Appends by table", "", &refreshed_part("appends", &appends(pages))))
    }
}

fn syncs(pages: &StatusPages) -> Markup {
    let samples = pages.history.samples();
    let moments: Vec<i64> = samples.iter().map(|sample| sample.at_ms).collect();
    let values = samples.iter().map(|sample| sample.wal_sync_max_us).collect();
    let series = [Series { name: "longest commit", metric: "SyncTime_max", class: "c1", values }];
    let chart = LineChart {
        id: "commits",
        label: "The longest commit of each second over the last ten minutes",
        moments: &moments,
        span: Span::last(pages.sources.now_ms(), SHOWN_MS),
        scale: Scale::log(series.iter().flat_map(|series| series.values.iter().copied().flatten())),
        series: &series,
        quantity: format::micros,
    };
    chart.show()
}

fn log(wal: &NamedWal) -> Markup {
    let (stats, (files, bytes)) = (wal.log.stats(), wal.log.live_files());
    let times = {
        let mut sum = evenkeel_metrics::HistogramSnapshot::default();
        wal.log.metrics().add_sync_times(&mut sum);
        Percentiles::of(&sum)
    };
    let micros =
        |of: fn(&Percentiles) -> f64| times.as_ref().map_or_else(none, |times| format::micros(of(times)));
    html! {
        div.tiles {
            (tile("Files", &format::count(files as u64, "files").show("hlogFileCount", "files not yet archived"),
                &html! { (format::bytes(bytes).show("hlogFileSize", "bytes of the closed files")) " closed" }))
            (tile("Entries", &format::count(stats.entries, "entries").show("appendCount", "entries since the log was opened"),
                &html! { (format::bytes(stats.bytes).show("writtenBytes", "bytes of these entries")) }))
            (tile("Commit", &micros(|times| times.p50).show("SyncTime_median", "half of the commits since start were at most this long"),
                &html! { "p99.9 " (micros(|times| times.p999).show("SyncTime_99.9th_percentile", "999 of 1000 commits since start were at most this long")) }))
            (tile("Syncs", &format::count(stats.syncs, "syncs").show("SyncTime_num_ops", "syncs to the disk"),
                &html! { (format::count(stats.slow_syncs, "slow").show("hbase.regionserver.wal.slowsync.ms", "commits above this time")) ", " (format::count(stats.stuck_syncs, "stuck").show("hbase.regionserver.wal.roll.on.sync.ms", "commits in progress for more than this time")) }))
            (tile("Queue", &format::bytes(stats.queue_bytes as u64).show("", "bytes of buffers that wait or are being written"),
                &html! { "at most " (format::bytes(stats.queue_bytes_peak as u64).show("", "their maximum")) }))
            (tile("Full queue", &format::count(stats.full_queue_waits, "waits").show("LogQueueTime_num_ops", "appends that waited for space in the queue"),
                &html! { (format::count(stats.failures, "failures").show("logFailureCount", "writes and syncs that failed")) }))
        }
        dl.facts {
            dt { "Rolled" } dd { (format::count(stats.rolls, "times").show("successfulLogRolls", "new files started")) @for (reason, count) in reasons(&stats.roll_requests) { ", " (count) " for " (reason) } }
            dt { "Current file" } dd { code { (wal.log.current_path().display()) } }
            @let closed = wal.log.closed_paths();
            @if !closed.is_empty() {
                dt { "Closed" } dd { @for path in closed.iter().take(20) { code { (path.file_name().unwrap_or_default().to_string_lossy()) } " " } @if closed.len() > 20 { "and " (closed.len() - 20) " more" } }
            }
        }
    }
}

/// The reasons for rolls, in the order of [`evenkeel_wal::RollReason`].
const REASONS: [&str; evenkeel_wal::RollReason::COUNT] = ["size", "slow syncs", "an error", "few replicas"];

/// Returns the reasons for which files were rolled, with the number of rolls.
fn reasons(requests: &[u64]) -> impl Iterator<Item = (&'static str, u64)> {
    REASONS.into_iter().zip(requests.iter().copied()).filter(|(_, count)| *count > 0)
}

fn appends(pages: &StatusPages) -> Markup {
    let mut tables = std::collections::BTreeMap::new();
    pages.sources.wals.iter().for_each(|wal| wal.log.metrics().add_tables(&mut tables));
    let mut tables: Vec<_> = tables.into_iter().collect();
    tables.sort_by_key(|(_, (_, bytes))| std::cmp::Reverse(*bytes));
    html! {
        @if tables.is_empty() { p.empty { "No appends yet." } }
        @else {
            div.scroll { table {
                thead { tr { th scope="col" { "Table" } th.num scope="col" { "Entries" } th.num scope="col" { "Bytes" } } }
                tbody { @for (table, (entries, bytes)) in tables.into_iter().take(50) {
                    tr {
                        td { (table) }
                        td.num { (format::count(entries, "entries").show(&format!("{table}.appendCount"), "entries of the table")) }
                        td.num { (format::bytes(bytes).show(&format!("{table}.appendSize"), "bytes of these entries")) }
                    }
                } }
            } }
        }
    }
}
