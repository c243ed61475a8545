//! `/work`: background work that runs, flushes and compactions that wait, and what has ended.

use std::time::Instant;

use evenkeel_common::clock;
use evenkeel_info_server::Request;
use evenkeel_metrics::activity::{self, Activity, ActivityKind};
use evenkeel_region::region::{Region, WriteProgressReport};
use maud::{Markup, html};

use super::timeline::Bar;
use super::{Description, StatusPages};
use crate::format;
use crate::layout::{bar, card, refreshed_part, tile};

pub(super) const PAGE: Description = Description {
    path: "/work",
    title: "Background work",
    about: "Flushes, compactions, snapshots, splits and merges: running with their progress and rate, and waiting.",
    refresh_ms: 1_000,
    content,
};

fn content(pages: &StatusPages, _: &Request) -> Markup {
    html! {
        (refreshed_part("now", &tiles(pages)))
        (card("In progress", "", &refreshed_part("running", &running(pages))))
        (card("Waiting", "in queue order", &refreshed_part("waiting", &waiting(pages))))
    }
}

fn tiles(pages: &StatusPages) -> Markup {
    let Some(server) = pages.sources.server() else { return html! {} };
    let background = server.background();
    let (flushes, compactions) = background.queued();
    let limit = |limit: Option<u64>| {
        limit.map_or_else(|| "none".to_owned(), |limit| format::byte_rate(limit as f64).text())
    };
    let compaction = background.compaction_throughput().controller();
    let flush = background.flush_throughput();
    html! {
        div.tiles {
            (tile("Flushes waiting", &format::count(flushes as u64, "flushes").show("flushQueueLength", "flushes that wait for a thread"),
                &html! { (format::count(background.flush_failures(), "failed").show("flushFailureCount", "flushes that failed since start")) }))
            (tile("Compactions waiting", &format::count(compactions as u64, "compactions").show("compactionQueueLength", "compactions that wait for a thread"), &html! {}))
            (tile("Compactions wrote", &format::bytes(compaction.bytes()).show("compactedOutputBytes", "bytes written by compactions"),
                &html! { "rate limit: " (limit(compaction.limit())) }))
            (tile("Held by the limit", &format::micros(compaction.waited().as_secs_f64() * 1e6).show("hbase.hstore.compaction.throughput.higher.bound", "time that compactions waited for the rate limit"),
                &html! { "rate limit, not disk" }))
            (tile("Flushes wrote", &format::bytes(flush.bytes()).show("flushedOutputBytes", "bytes written by rate-limited flushes"),
                &html! { "rate limit: " (limit(flush.limit())) }))
        }
    }
}

/// Work that runs, as a row of the table.
struct Running {
    kind: ActivityKind,
    subject: Markup,
    /// How much is done, of how much, in this unit; `None` if it is unknown.
    progress: Option<(u64, u64, &'static str)>,
    /// For how long it has run, in milliseconds, if that is known.
    age_ms: Option<i64>,
    waits: &'static str,
}

fn running(pages: &StatusPages) -> Markup {
    let rows = running_rows(pages);
    html! {
        @if rows.is_empty() { p.empty { "Nothing." } }
        @else {
            div.scroll { table {
                thead { tr {
                    th scope="col" { "Work" } th scope="col" { "Of" } th scope="col" { "Progress" } th.num scope="col" { "Done" }
                    th.num scope="col" { "Rate" } th.num scope="col" { "Runs for" } th scope="col" { "Now" }
                } }
                tbody { @for row in &rows { (running_row(row)) } }
            } }
        }
    }
}

/// Returns the flushes and compactions of regions with their progress, then all other work.
fn running_rows(pages: &StatusPages) -> Vec<Running> {
    let (activities, now) = (activity::running(), clock::monotonic());
    let age_ms = |activity: &Activity| {
        i64::try_from(now.saturating_duration_since(activity.began_at).as_millis()).unwrap_or(i64::MAX)
    };
    let mut rows = Vec::new();
    let regions = pages.sources.server().map(|server| server.regions().all()).unwrap_or_default();
    for region in regions {
        let load = region.load();
        for (kind, runs, progress) in [
            (ActivityKind::Flush, region.is_flushing(), load.flush),
            (ActivityKind::Compaction, load.compaction.cells > 0, load.compaction),
        ] {
            if runs {
                let name = region.info().name_text();
                let activity = activities.iter().find(|one| one.kind == kind && one.is_of(&name));
                rows.push(Running {
                    kind,
                    subject: region_name(&region),
                    progress: (progress.cells > 0).then_some((progress.done, progress.cells, "cells")),
                    age_ms: activity.map(age_ms),
                    waits: waits_of(kind, &progress),
                });
            }
        }
    }
    let others = activities
        .iter()
        .filter(|activity| !matches!(activity.kind, ActivityKind::Flush | ActivityKind::Compaction));
    rows.extend(others.map(|activity| {
        let (done, all) = activity.parts;
        Running {
            kind: activity.kind,
            subject: html! { code { (activity.subject) } },
            progress: (all > 0).then_some((done as u64, all as u64, "regions")),
            age_ms: Some(age_ms(activity)),
            waits: match activity.kind {
                ActivityKind::Watermark => "holds replies to writes until flushes have made room",
                ActivityKind::Snapshot => "flushes regions and lists their files",
                _ => "waits for the disk",
            },
        }
    }));
    rows
}

/// Returns what a flush or a compaction does or waits for.
fn waits_of(kind: ActivityKind, progress: &WriteProgressReport) -> &'static str {
    match (kind, progress.cells, progress.is_limited) {
        (_, _, true) => "waits for the limit of its throughput",
        (ActivityKind::Flush, 0, _) => "waits for earlier writes, or for the disk",
        _ => "reads and writes, at the speed of the disk and the CPU",
    }
}

fn running_row(row: &Running) -> Markup {
    let is_compaction = row.kind == ActivityKind::Compaction;
    let all_metric = if is_compaction { "totalCompactingKVs" } else { "" };
    let (metric, what) = match row.kind {
        ActivityKind::Compaction => ("currentCompactedKVs", "compacted cells"),
        ActivityKind::Flush => ("", "cells of the MemStore that are in files"),
        _ => ("", "parts that are done"),
    };
    html! {
        tr {
            td { span.tag { (row.kind.name()) } }
            td { (row.subject) }
            @match row.progress {
                Some((done, all, unit)) => {
                    td { (bar(done, all, unit)) " " (format::share(done, all).show(metric, what)) }
                    td.num { (format::count(done, unit).show(metric, what)) " of " (format::count(all, unit).show(all_metric, "all of them")) }
                    td.num { @if let Some(ms) = row.age_ms.filter(|ms| *ms > 0) {
                        (format::rate(done as f64 * 1e3 / ms as f64, if unit == "cells" { "cells/s" } else { "regions/s" }).show(metric, "a second, since it began"))
                    } }
                }
                None => { td {} td {} td {} }
            }
            td.num { @if let Some(ms) = row.age_ms { (format::age(ms).show("", "time since it began")) } }
            td { small { (row.waits) } }
        }
    }
}

fn region_name(region: &Region) -> Markup {
    html! { (region.info().table()) " " code { (region.info().encoded_name()) } }
}

fn waiting(pages: &StatusPages) -> Markup {
    let Some(server) = pages.sources.server() else { return html! {} };
    let (flushes, compactions) = server.background().waiting();
    html! {
        @if flushes.is_empty() && compactions.is_empty() { p.empty { "Nothing." } }
        @else {
            div.scroll { table { tbody {
                @for region in &flushes {
                    tr { td { span.tag.dim { "flush" } } td { (region_name(region)) } td { small { "waits for a flush thread" } } td.num { (format::bytes(region.memstore_bytes()).show("memStoreSize", "bytes of unflushed cells")) } }
                }
                @for (region, is_major) in &compactions {
                    tr { td { span.tag.dim { (if *is_major { "major compaction" } else { "compaction" }) } } td { (region_name(region)) } td { small { "waits for a compaction thread, or for the region's running one" } } td.num { (format::bytes(region.load().store_file_bytes).show("storeFileSize", "bytes of the region's files")) } }
                }
            } } }
        }
    }
}

/// Returns the work of the last minutes, for the timeline.
pub(super) fn bars(pages: &StatusPages) -> Vec<Bar> {
    let (now, now_ms) = (clock::monotonic(), pages.sources.now_ms());
    let at_ms = |at: Instant| {
        let ago = now.saturating_duration_since(at).as_millis();
        now_ms.saturating_sub(i64::try_from(ago).unwrap_or(i64::MAX))
    };
    let works = activity::kept(&ActivityKind::ALL);
    works
        .into_iter()
        .map(|work| bar_of(&work, at_ms(work.began_at), work.ended_at.map_or(now_ms, at_ms)))
        .collect()
}

fn bar_of(work: &Activity, from_ms: i64, to_ms: i64) -> Bar {
    let (lane, class) = match work.kind {
        ActivityKind::Flush => ("flushes", "c1"),
        ActivityKind::Compaction => ("compactions", "c2"),
        ActivityKind::LogRoll => ("log rolls", "c3"),
        ActivityKind::Split | ActivityKind::Merge => ("splits, merges", "c4"),
        ActivityKind::Snapshot => ("snapshots", "c5"),
        ActivityKind::Watermark => ("watermark", "c6"),
        ActivityKind::SlowRead | ActivityKind::SlowSync => ("slow disk", "c7"),
    };
    let name = work.kind.name();
    let took = format::age(to_ms - from_ms).text();
    let state = if work.ended_at.is_some() { "took" } else { "has run for" };
    let began = format::time_of_day(from_ms);
    let mut tooltip = format!("{name}: {}\n{state} {took}, from {began} UTC", work.subject);
    if !work.error.is_empty() {
        tooltip.push_str("\nfailed: ");
        tooltip.push_str(&work.error);
    }
    Bar { lane, class, from_ms, to_ms, tooltip }
}
