//! `/tables`: sizes and requests of each table with regions here.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_info_server::Request;
use evenkeel_region::region::{Operation, Region, RegionCount};
use maud::{Markup, html};

use super::{Description, StatusPages};
use crate::format;
use crate::layout::{Column, TableView, card, encoded};

pub(super) const PAGE: Description = Description {
    path: "/tables",
    title: "Tables",
    about: "Sizes, requests and latencies of each table with regions here.",
    refresh_ms: 2_000,
    content,
};

const COLUMNS: [Column; 11] = [
    Column::text("table", "Table", "The table's name"),
    Column::number("regions", "Regions", "regionCount: regions served here"),
    Column::number("reads", "Reads", "readRequestCount: read requests since the regions opened"),
    Column::number("writes", "Writes", "writeRequestCount: write requests since the regions opened"),
    Column::number("get", "Get p99", "GetTime_99th_percentile: of the last interval"),
    Column::number("put", "Put p99", "PutTime_99th_percentile: of the last interval"),
    Column::number("scan", "Scan p99", "ScanTime_99th_percentile: of the last interval"),
    Column::number("size", "Files", "storeFileSize: bytes of the store files"),
    Column::number("files", "Files", "storeFileCount: store files"),
    Column::number("memstore", "MemStore", "memStoreSize: bytes of unflushed cells"),
    Column::text("flags", "", ""),
];

/// One table.
struct Row {
    name: String,
    regions: u64,
    reads: u64,
    writes: u64,
    /// 99th percentiles, in microseconds; `None` without requests in the last interval.
    get: Option<f64>,
    put: Option<f64>,
    scan: Option<f64>,
    file_bytes: u64,
    files: u64,
    memstore_bytes: u64,
    flags: Vec<&'static str>,
}

fn content(pages: &StatusPages, request: &Request) -> Markup {
    let view = TableView::of(request, PAGE.path, &COLUMNS);
    let mut rows = rows(pages);
    rows.retain(|row| view.matches(&[&row.name]));
    let all = order(&view, &mut rows);
    let body = html! {
        div.scroll { table {
            thead { (view.heads(&COLUMNS)) }
            tbody { @for row in &rows { (show(row)) } }
        } }
        (view.pages(all, "tables"))
    };
    card("", "", &html! { (view.search_form("Name of a table")) div #rows data-live { (body) } })
}

fn rows(pages: &StatusPages) -> Vec<Row> {
    let Some(server) = pages.sources.server() else { return Vec::new() };
    let mut tables = BTreeMap::<String, Vec<Arc<Region>>>::new();
    for region in server.regions().all() {
        tables.entry(region.info().table().to_string()).or_default().push(region);
    }
    tables.into_iter().map(|(name, regions)| Row::of(name, &regions)).collect()
}

impl Row {
    fn of(name: String, regions: &[Arc<Region>]) -> Self {
        let loads: Vec<_> = regions.iter().map(|region| region.load()).collect();
        let sum = |of: fn(&evenkeel_region::region::RegionLoad) -> u64| loads.iter().map(of).sum();
        let p99 = |operation| {
            let values = regions.first().map(|region| region.operation_times().interval(operation).values)?;
            crate::history::Percentiles::of(&values).map(|times| times.p99)
        };
        Self {
            name,
            regions: regions.len() as u64,
            reads: sum(|load| load.counts.get(RegionCount::Reads)),
            writes: sum(|load| load.counts.get(RegionCount::Writes)),
            get: p99(Operation::Get),
            put: p99(Operation::Put),
            scan: p99(Operation::Scan),
            file_bytes: sum(|load| load.store_file_bytes),
            files: sum(|load| load.store_files as u64),
            memstore_bytes: sum(|load| load.memstore_bytes),
            flags: regions.first().map(|region| flags(region)).unwrap_or_default(),
        }
    }
}

/// Returns the special properties of a table.
fn flags(region: &Region) -> Vec<&'static str> {
    let table = region.table();
    let all = [
        (table.is_read_only(), "read only"),
        (!table.is_compaction_enabled(), "no compactions"),
        (table.row_cache_enabled() == Some(true), "row cache"),
        (region.info().table().is_system(), "system"),
    ];
    all.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name).collect()
}

fn order(view: &TableView, rows: &mut Vec<Row>) -> usize {
    let time = |us: Option<f64>| us.unwrap_or(-1.0);
    match view.sort.as_str() {
        "regions" => view.sort_and_paginate(rows, |row| row.regions),
        "reads" => view.sort_and_paginate(rows, |row| row.reads),
        "writes" => view.sort_and_paginate(rows, |row| row.writes),
        "get" => view.sort_and_paginate(rows, |row| time(row.get)),
        "put" => view.sort_and_paginate(rows, |row| time(row.put)),
        "scan" => view.sort_and_paginate(rows, |row| time(row.scan)),
        "size" => view.sort_and_paginate(rows, |row| row.file_bytes),
        "files" => view.sort_and_paginate(rows, |row| row.files),
        "memstore" => view.sort_and_paginate(rows, |row| row.memstore_bytes),
        _ => view.sort_and_paginate(rows, |row| row.name.clone()),
    }
}

fn show(row: &Row) -> Markup {
    let time = |us: Option<f64>, metric: &str| {
        let us = us.map_or_else(super::overview::none, format::micros);
        us.show(metric, "of the last interval")
    };
    html! {
        tr {
            td { a href={ "/regions?q=" (encoded(&row.name)) } { (row.name) } }
            td.num { (format::count(row.regions, "regions").show("regionCount", "regions served here")) }
            td.num { (format::count(row.reads, "requests").show("readRequestCount", "read requests")) }
            td.num { (format::count(row.writes, "requests").show("writeRequestCount", "write requests")) }
            td.num { (time(row.get, "GetTime_99th_percentile")) }
            td.num { (time(row.put, "PutTime_99th_percentile")) }
            td.num { (time(row.scan, "ScanTime_99th_percentile")) }
            td.num { (format::bytes(row.file_bytes).show("storeFileSize", "bytes of the store files")) }
            td.num { (format::count(row.files, "files").show("storeFileCount", "store files")) }
            td.num { (format::bytes(row.memstore_bytes).show("memStoreSize", "bytes of unflushed cells")) }
            td { @for flag in &row.flags { span.tag.dim { (flag) } " " } }
        }
    }
}
