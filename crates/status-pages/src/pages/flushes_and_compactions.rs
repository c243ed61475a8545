//! `/work`: flushes and compactions that run, wait, or have ended.

use std::sync::Arc;
use std::time::Instant;

use evenkeel_common::clock;
use evenkeel_info_server::Request;
use evenkeel_metrics::activity::{self, Activity, ActivityKind};
use evenkeel_region::region::Region;
use maud::{Markup, html};

use super::timeline::Bar;
use super::{Description, StatusPages};
use crate::format;
use crate::layout::{bar, card, refreshed_part, tile};

pub(super) const PAGE: Description = Description {
    path: "/work",
    title: "Background work",
    about: "Flushes and compactions: running with their progress, waiting, and their rate limit.",
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
                &html! { (format::count(background.flush_failures(), "failed").show("", "flushes that failed since start")) }))
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

fn running(pages: &StatusPages) -> Markup {
    let Some(server) = pages.sources.server() else { return html! {} };
    let mut busy: Vec<(Arc<Region>, bool, (u64, u64))> = Vec::new();
    for region in server.regions().all() {
        let (is_flushing, load) = (region.is_flushing(), region.load());
        if is_flushing || load.compacting_cells > 0 {
            busy.push((region, is_flushing, (load.compacted_cells, load.compacting_cells)));
        }
    }
    html! {
        @if busy.is_empty() { p.empty { "Nothing." } }
        @else {
            div.scroll { table {
                thead { tr { th scope="col" { "Work" } th scope="col" { "Region" } th scope="col" { "Progress" } th scope="col" { "" } } }
                tbody {
                    @for (region, is_flushing, (done, all)) in busy {
                        @if is_flushing { (flush_row(&region)) }
                        @if all > 0 { (compaction_row(&region, done, all)) }
                    }
                }
            } }
        }
    }
}

fn region_name(region: &Region) -> Markup {
    html! { (region.info().table()) " " code { (region.info().encoded_name()) } }
}

fn flush_row(region: &Region) -> Markup {
    html! {
        tr {
            td { span.tag { "flush" } }
            td { (region_name(region)) }
            td { (format::bytes(region.snapshot_bytes()).show("flushMemstoreSize", "bytes of cells being written")) " being written" }
            td { small { "waits for the disk" } }
        }
    }
}

fn compaction_row(region: &Region, done: u64, all: u64) -> Markup {
    html! {
        tr {
            td { span.tag { "compaction" } }
            td { (region_name(region)) }
            td { (bar(done, all, "cells")) " " (format::share(done, all).show("currentCompactedKVs / totalCompactingKVs", "compacted cells")) }
            td { (format::count(done, "cells").show("currentCompactedKVs", "compacted cells")) " of " (format::count(all, "cells").show("totalCompactingKVs", "cells of the compaction")) }
        }
    }
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
    let works = activity::kept(&[ActivityKind::Flush, ActivityKind::Compaction]);
    works
        .into_iter()
        .map(|work| bar_of(&work, at_ms(work.began_at), work.ended_at.map_or(now_ms, at_ms)))
        .collect()
}

fn bar_of(work: &Activity, from_ms: i64, to_ms: i64) -> Bar {
    let (lane, class, name) = match work.kind {
        ActivityKind::Compaction => ("compactions", "c2", "Compaction"),
        _ => ("flushes", "c1", "Flush"),
    };
    let took = format::age(to_ms - from_ms).text();
    let state = if work.ended_at.is_some() { "took" } else { "has run for" };
    let began = format::time_of_day(from_ms);
    let mut tooltip = format!("{name} of {}\n{state} {took}, from {began} UTC", work.subject);
    if !work.error.is_empty() {
        tooltip.push_str("\nfailed: ");
        tooltip.push_str(&work.error);
    }
    Bar { lane, class, from_ms, to_ms, tooltip }
}
