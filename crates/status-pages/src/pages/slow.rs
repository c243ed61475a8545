//! `/slow`: the ledger of slow requests, with a timeline of them above the background work.

use evenkeel_common::Binary;
use evenkeel_info_server::Request;
use evenkeel_metrics::sink::slow_requests::server_line;
use evenkeel_metrics::{Cause, SlowRequest, Waits};
use maud::{Markup, html};

use super::overview::{SHOWN_MS, cause_bars, cause_class, cause_name, ended_ms, micros_of};
use super::{Description, StatusPages, timeline};
use crate::chart::Span;
use crate::format;
use crate::layout::{Column, TableView, card, refreshed_part};

pub(super) const PAGE: Description = Description {
    path: "/slow",
    title: "Slow requests",
    about: "The ledger: requests above the threshold and the slowest of each minute, and the waits of each.",
    refresh_ms: 2_000,
    content,
};

const COLUMNS: [Column; 8] = [
    Column::number("time", "Received", "When the last byte of the request had arrived, UTC"),
    Column::text("method", "Method", "The method of the call"),
    Column::number("total", "Took", "Time from its arrival until its reply was ready"),
    Column::text("cause", "Mostly", "The main part of its time"),
    Column::text("table", "Table", "The table of its region"),
    Column::text("row", "Row", "The beginning of its row"),
    Column::text("client", "Client", "The client's address and user"),
    Column::number("bytes", "Reply", "Bytes of the reply"),
];

fn content(pages: &StatusPages, request: &Request) -> Markup {
    let view = TableView::of(request, PAGE.path, &COLUMNS);
    let ledger = &pages.sources.rpc.metrics().ledger;
    let (slow, slowest) = (ledger.slow_requests(), ledger.slowest_requests());
    let mut all = merge_requests(slow, slowest);
    let now_ms = pages.sources.now_ms();
    let span = Span::last(now_ms, SHOWN_MS);
    html! {
        (card("Timeline", "each dot is a request, by its duration; below, the background work", &refreshed_part("timeline-part", &timeline::show(pages, &all, span))))
        div.columns {
            (card("Where the time went", "the requests of the timeline", &refreshed_part("waits", &waits(&all, span))))
            (card("The ledger", "", &refreshed_part("counts", &counts(pages))))
        }
        (card("Requests", "", &html! {
            (view.search_form("Table, row, client, method or cause"))
            div #rows data-live { (table(&view, &mut all)) }
        }))
    }
}

/// Joins the slow requests with those of the slowest that are not slow.
fn merge_requests(mut slow: Vec<SlowRequest>, slowest: Vec<SlowRequest>) -> Vec<SlowRequest> {
    let is_same = |a: &SlowRequest, b: &SlowRequest| {
        a.received_ms == b.received_ms && a.total_time() == b.total_time() && a.client == b.client
    };
    let others: Vec<_> =
        slowest.into_iter().filter(|request| !slow.iter().any(|other| is_same(request, other))).collect();
    slow.extend(others);
    slow
}

/// Returns the cause that took most of a request's time.
pub(super) fn main_cause(request: &SlowRequest) -> Cause {
    request.waits.by_length().first().map_or(Cause::Unexplained, |(cause, _)| *cause)
}

fn waits(requests: &[SlowRequest], span: Span) -> Markup {
    let mut sum = Waits::NONE;
    requests
        .iter()
        .filter(|request| span.contains(ended_ms(request)))
        .for_each(|request| sum.add(&request.waits));
    match sum == Waits::NONE {
        true => html! { p.empty { "No request of the last ten minutes is in the ledger." } },
        false => cause_bars(&sum),
    }
}

fn counts(pages: &StatusPages) -> Markup {
    let ledger = &pages.sources.rpc.metrics().ledger;
    let (config, (slow, left_out)) = (ledger.config(), ledger.counts());
    html! {
        dl.facts {
            dt { "Slow from" } dd { (micros_of(config.slow).show("evenkeel.slow.request.ms", "requests of this duration or longer are kept")) }
            dt { "Slow so far" } dd { (format::count(slow, "requests").show("slowRequestCount", "requests above the threshold since the start")) }
            dt { "Not kept" } dd { (format::count(left_out, "requests").show("leftOutCount", "requests dropped because the ledger was busy")) }
            dt { "Kept" } dd { (format::count(config.kept as u64, "requests").show("hbase.regionserver.slowlog.ringbuffer.size", "maximum number of requests in each of the two rings")) " at most in each ring" }
            dt { "For scripts" } dd { a href="/slow.json" { "/slow.json" } }
        }
    }
}

fn table(view: &TableView, requests: &mut Vec<SlowRequest>) -> Markup {
    requests.retain(|request| {
        let (row, cause) = (Binary(&request.detail.row).to_string(), cause_name(main_cause(request)));
        view.matches(&[request.method, &request.detail.region, &row, &request.client, &request.user, &cause])
    });
    let all = match view.sort.as_str() {
        "method" => view.sort_and_paginate(requests, |request| request.method),
        "total" => view.sort_and_paginate(requests, SlowRequest::total_time),
        "cause" => view.sort_and_paginate(requests, |request| main_cause(request).name()),
        "table" => view.sort_and_paginate(requests, |request| request.detail.region.clone()),
        "row" => view.sort_and_paginate(requests, |request| request.detail.row.clone()),
        "client" => view.sort_and_paginate(requests, |request| request.client.clone()),
        "bytes" => view.sort_and_paginate(requests, |request| request.reply_bytes),
        _ => view.sort_and_paginate(requests, |request| request.received_ms),
    };
    html! {
        div.scroll { table {
            thead { (view.heads(&COLUMNS)) }
            tbody { @for request in requests.iter() { (row(request)) } }
        } }
        (view.pages(all, "requests"))
    }
}

fn row(request: &SlowRequest) -> Markup {
    let (detail, cause) = (&request.detail, main_cause(request));
    let actions = detail.actions;
    html! {
        tr data-tip=(tooltip(request)) {
            td.num title=(format::moment(request.received_ms)) { (format::time_of_day(request.received_ms)) }
            td {
                (request.method)
                @if actions.gets + actions.mutations + actions.service_calls > 0 {
                    " " small { "of " (actions.gets) " gets, " (actions.mutations) " mutations" }
                }
                @if !request.error.is_empty() { " " span.tag.bad { (request.error.rsplit('.').next().unwrap_or_default()) } }
            }
            td.num { (micros_of(request.total_time()).show("TotalCallTime_mean", "time from its arrival until its reply was ready")) }
            td { i class={ "key " (cause_class(cause)) } {} (cause_name(cause)) " " small { (micros_of(request.waits.of(cause)).text()) } }
            td { (table_of(&detail.region)) }
            td.wide { code { (Binary(&detail.row)) } @if !detail.text.is_empty() { " " small { (detail.text) } } }
            td { (request.client) " " small { (request.user) } }
            td.num { (format::bytes(request.reply_bytes).show("ResponseSize_mean", "bytes of the reply")) }
        }
    }
}

/// Describes a request and its waits, as lines.
pub(super) fn tooltip(request: &SlowRequest) -> String {
    let took = micros_of(request.total_time()).text();
    let mut tip =
        format!("{} took {took}, received {} UTC", request.method, format::time_of_day(request.received_ms));
    for (cause, time) in request.waits.by_length() {
        tip.push_str(&format!("\n{}: {}", cause_name(cause), micros_of(time).text()));
    }
    if !request.detail.region.is_empty() {
        tip.push_str(&format!("\n{}", request.detail.region));
    }
    let beside = server_line(request);
    if !beside.is_empty() {
        tip.push_str(&format!("\nbeside: {beside}"));
    }
    tip
}

/// Returns the table of a region name, `table,start,id.encoded.`; empty for an empty name.
fn table_of(region: &str) -> &str {
    region.split(',').next().unwrap_or_default()
}
