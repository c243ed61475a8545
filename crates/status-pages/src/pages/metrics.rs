//! `/metrics-list`: all metrics, as in `/jmx`, with a search.

use std::sync::Arc;

use evenkeel_info_server::Request;
use evenkeel_metrics::{NamedValue, Record, Value};
use maud::{Markup, html};

use super::{Description, StatusPages};
use crate::format;
use crate::layout::{Column, TableView, card};

pub(super) const PAGE: Description = Description {
    path: "/metrics-list",
    title: "Metrics",
    about: "Every metric by its name in /jmx, with a description.",
    refresh_ms: 2_000,
    content,
};

const COLUMNS: [Column; 4] = [
    Column::text("bean", "Record", "The part of the bean's name after sub="),
    Column::text("name", "Metric", "The attribute of the bean"),
    Column::number("value", "Value", "The value now"),
    Column::text("about", "About", "A description of the metric"),
];

/// One metric.
struct Row {
    record: Arc<str>,
    name: String,
    value: Value,
    about: String,
}

fn content(pages: &StatusPages, request: &Request) -> Markup {
    let view = TableView::of(request, PAGE.path, &COLUMNS);
    let records = pages.sources.registry.collect();
    let mut rows: Vec<Row> = records.iter().flat_map(rows_of).collect();
    rows.retain(|row| view.matches(&[&row.record, &row.name]));
    let all = match view.sort.as_str() {
        "name" => view.sort_and_paginate(&mut rows, |row| row.name.clone()),
        "value" => view.sort_and_paginate(&mut rows, |row| number(row.value)),
        "about" => view.sort_and_paginate(&mut rows, |row| row.about.clone()),
        _ => view.sort_and_paginate(&mut rows, |row| Arc::clone(&row.record)),
    };
    let body = html! {
        div.scroll { table {
            thead { (view.heads(&COLUMNS)) }
            tbody {
                @for row in &rows {
                    tr {
                        td { (row.record) }
                        td.wide { code { (row.name) } }
                        td.num { (show(row)) }
                        td.wide { small { (row.about) } }
                    }
                }
            }
        } }
        (view.pages(all, "metrics"))
    };
    html! {
        (card("", "", &html! { (view.search_form("Name of a metric")) div #rows data-live { (body) } }))
        p.hint { "For scripts: " a href="/jmx" { "/jmx" } " as JSON, " a href="/prometheus" { "/prometheus" } " as text." }
    }
}

fn rows_of(record: &Record) -> Vec<Row> {
    let bean = record.object_name();
    let short: Arc<str> = bean.rsplit("sub=").next().unwrap_or(&bean).into();
    let row = |metric: NamedValue<'_>| Row {
        record: Arc::clone(&short),
        name: metric.name().into_owned(),
        value: metric.value,
        about: metric.description.to_owned(),
    };
    record.all_metrics().map(row).collect()
}

fn number(value: Value) -> f64 {
    match value {
        Value::Counter(count) => count as f64,
        Value::Gauge(number) => number as f64,
        Value::Real(number) => number,
    }
}

/// Renders the value with a unit, if the metric's name implies one.
fn show(row: &Row) -> Markup {
    let name = row.name.as_str();
    let is_bytes =
        ["Size", "Bytes", "bytes"].iter().any(|end| name.ends_with(end)) && !name.contains("Queue");
    let quantity = match row.value {
        Value::Counter(bytes) if is_bytes => format::bytes(bytes),
        Value::Gauge(bytes) if is_bytes => format::bytes(u64::try_from(bytes).unwrap_or(0)),
        Value::Counter(count) => format::count(count, "since start"),
        Value::Gauge(number) => match u64::try_from(number) {
            Ok(number) => format::count(number, "now"),
            Err(_) => format::Quantity { digits: number.to_string(), unit: "now" },
        },
        Value::Real(number) => format::rate(number, "now"),
    };
    quantity.show(name, &row.about)
}
