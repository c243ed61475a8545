//! `/regions`: all regions that are online here.

use std::sync::Arc;

use evenkeel_common::Binary;
use evenkeel_info_server::Request;
use evenkeel_region::region::{Region, RegionCount, RegionLoad};
use maud::{Markup, html};

use super::{Description, StatusPages};
use crate::format;
use crate::layout::{Column, TableView, card};

pub(super) const PAGE: Description = Description {
    path: "/regions",
    title: "Regions",
    about: "Every region served here: sizes, requests, and the cached share.",
    refresh_ms: 2_000,
    content,
};

const COLUMNS: [Column; 12] = [
    Column::text("table", "Table", "The region's table"),
    Column::text("start", "First row", "The first row of the region"),
    Column::text("encoded", "Encoded name", "The name of its directory"),
    Column::number("reads", "Reads", "readRequestCount: read requests since it opened"),
    Column::number("writes", "Writes", "writeRequestCount: write requests since it opened"),
    Column::number("rate", "Now", "Requests a second in the last interval of the heat map"),
    Column::number("size", "Size", "storeFileSize: bytes of the store files"),
    Column::number("files", "Files", "storeFileCount: store files"),
    Column::number("memstore", "MemStore", "memStoreSize: bytes of unflushed cells"),
    Column::number("cached", "Cached", "The share of its store files that is in the block cache"),
    Column::number("locality", "Local", "percentFilesLocal: the share of its bytes on this machine"),
    Column::number("busy", "Work", "compactionsQueuedCount, flushesQueuedCount: running or waiting"),
];

/// One region.
struct Row {
    region: Arc<Region>,
    table: String,
    load: RegionLoad,
    rate: f64,
    /// The cached fraction of its files' bytes, 0 to 1.
    cached: f64,
    compactions: usize,
}

fn content(pages: &StatusPages, request: &Request) -> Markup {
    let view = TableView::of(request, PAGE.path, &COLUMNS);
    let mut rows = rows(pages, &view);
    let all = order(&view, &mut rows);
    let body = html! {
        div.scroll { table {
            thead { (view.heads(&COLUMNS)) }
            tbody { @for row in &rows { (show(row)) } }
        } }
        (view.pages(all, "regions"))
    };
    card("", "", &html! { (view.search_form("Table, row or encoded name")) div #rows data-live { (body) } })
}

fn rows(pages: &StatusPages, view: &TableView) -> Vec<Row> {
    let Some(server) = pages.sources.server() else { return Vec::new() };
    let rates = pages.history.with_heat(|heat| {
        let last = heat.columns().last();
        let cells = last.map(|column| column.cells.as_slice()).unwrap_or_default();
        cells
            .iter()
            .map(|cell| (cell.region.encoded.clone(), cell.reads + cell.writes))
            .collect::<std::collections::HashMap<_, _>>()
    });
    let look = pages.history.cached_files().read(pages.sources.now_ms());
    let cached = look.by_region();
    let row = |region: Arc<Region>| {
        let encoded = region.info().encoded_name();
        Row {
            table: region.info().table().to_string(),
            load: region.load(),
            rate: rates.get(encoded).copied().unwrap_or(0.0),
            cached: cached.get(encoded).map_or(0.0, |(cached, all)| *cached as f64 / (*all).max(1) as f64),
            compactions: server.background().compactions_of(encoded),
            region,
        }
    };
    let is_asked = |region: &Arc<Region>| {
        let (table, start) =
            (region.info().table().to_string(), Binary(region.info().start_key()).to_string());
        view.matches(&[&table, &start, region.info().encoded_name()])
    };
    server.regions().all().into_iter().filter(is_asked).map(row).collect()
}

fn order(view: &TableView, rows: &mut Vec<Row>) -> usize {
    match view.sort.as_str() {
        "start" => view.sort_and_paginate(rows, |row| row.region.info().start_key().clone()),
        "encoded" => view.sort_and_paginate(rows, |row| row.region.info().encoded_name().to_owned()),
        "reads" => view.sort_and_paginate(rows, |row| row.load.counts.get(RegionCount::Reads)),
        "writes" => view.sort_and_paginate(rows, |row| row.load.counts.get(RegionCount::Writes)),
        "rate" => view.sort_and_paginate(rows, |row| row.rate),
        "size" => view.sort_and_paginate(rows, |row| row.load.store_file_bytes),
        "files" => view.sort_and_paginate(rows, |row| row.load.store_files),
        "memstore" => view.sort_and_paginate(rows, |row| row.load.memstore_bytes),
        "cached" => view.sort_and_paginate(rows, |row| row.cached),
        "locality" => view.sort_and_paginate(rows, |row| row.load.blocks_weight.locality()),
        "busy" => view.sort_and_paginate(rows, |row| (row.region.is_flushing(), row.compactions)),
        _ => view.sort_and_paginate(rows, |row| (row.table.clone(), row.region.info().start_key().clone())),
    }
}

fn show(row: &Row) -> Markup {
    let (info, load) = (row.region.info(), &row.load);
    html! {
        tr {
            td { (row.table) }
            td.wide title={ "to " (Binary(info.end_key())) } {
                @if info.start_key().is_empty() { small { "the first" } } @else { code { (Binary(info.start_key())) } }
            }
            td { code { (info.encoded_name()) } }
            td.num { (format::count(load.counts.get(RegionCount::Reads), "requests").show("readRequestCount", "read requests since it opened")) }
            td.num { (format::count(load.counts.get(RegionCount::Writes), "requests").show("writeRequestCount", "write requests since it opened")) }
            td.num { (format::rate(row.rate, "/s").show("readRequestCount + writeRequestCount", "requests a second in the last five seconds")) }
            td.num { (format::bytes(load.store_file_bytes).show("storeFileSize", "bytes of the store files")) }
            td.num { (format::count(load.store_files as u64, "files").show("storeFileCount", "store files")) }
            td.num { (format::bytes(load.memstore_bytes).show("memStoreSize", "bytes of unflushed cells")) }
            td.num { (format::percent(row.cached).show("", "the share of its store files that is in the block cache")) }
            td.num { (format::percent(f64::from(load.blocks_weight.locality())).show("percentFilesLocal", "the share of its bytes on this machine")) }
            td.num {
                @if row.region.is_flushing() { span.tag { "flush" } " " }
                @if row.compactions > 0 { span.tag { (row.compactions) " compactions" } }
            }
        }
    }
}
