//! `/rpc`: queues, handlers, connections, and errors returned to clients.

use evenkeel_common::ErrorKind;
use evenkeel_info_server::Request;
use evenkeel_rpc::{CallClass, ConnectionReport};
use maud::{Markup, html};

use super::overview::{latency, micros_of, throughput};
use super::{Description, StatusPages};
use crate::format;
use crate::layout::{Column, TableView, bar, card, refreshed_part, tile};

pub(super) const PAGE: Description = Description {
    path: "/rpc",
    title: "RPC",
    about: "Connections, calls and handlers. Most calls run on their connection's thread; handlers run those that wait or compute for long.",
    refresh_ms: 1_000,
    content,
};

fn content(pages: &StatusPages, request: &Request) -> Markup {
    let samples = pages.history.samples();
    let now_ms = pages.sources.now_ms();
    html! {
        (refreshed_part("now", &tiles(pages)))
        div.columns {
            (card("Handlers", "", &refreshed_part("handlers", &handlers(pages))))
            (card("Errors", "sent to clients since start", &refreshed_part("errors", &errors(pages))))
        }
        div.columns {
            (card("Latency", "from arrival to reply", &refreshed_part("latency-part", &latency(&samples, now_ms))))
            (card("Throughput", "requests a second", &refreshed_part("throughput-part", &throughput(&samples, now_ms))))
        }
        (card("Running calls", "a moment ago, the oldest first; those that end on their connection's thread are not listed", &refreshed_part("running-calls", &running_calls(pages))))
        (connections(pages, request))
        (card("Open scanners", "", &refreshed_part("scanners", &scanners(pages))))
    }
}

fn tiles(pages: &StatusPages) -> Markup {
    let (stats, last) = (pages.sources.rpc.stats(), pages.history.last());
    let limit = |name: &str| {
        (pages.sources.memory)().iter().find(|part| part.name == name).map_or(0, |part| part.limit)
    };
    let [received, sent] = last.bytes;
    html! {
        div.tiles {
            (tile("Connections", &format::count(stats.connections_open, "open").show("numOpenConnections", "open connections"),
                &html! { (format::count(stats.connections_opened, "since start").show("numOpenedConnections", "connections opened")) }))
            (tile("Calls", &format::count(stats.calls, "calls").show("TotalCallTime_num_ops", "calls since start"),
                &html! { (format::count(stats.calls_refused, "refused").show("exceptions.callQueueTooBig", "calls refused because the server was full")) }))
            (tile("Requests in flight", &format::bytes(stats.inflight_bytes).show("queueSize", "bytes of requests in flight"),
                &html! { (bar(stats.inflight_bytes, limit("requests"), "in flight")) " of " (format::bytes(limit("requests")).show("hbase.ipc.server.max.callqueue.size", "the limit in bytes")) }))
            (tile("Replies not taken", &format::bytes(stats.unsent_bytes).show("nettyTotalPendingOutboundBytes", "bytes of replies that clients have not taken"),
                &html! { (bar(stats.unsent_bytes, limit("replies"), "not taken")) " of " (format::bytes(limit("replies")).show("repliesBytesMax", "the limit in bytes")) }))
            (tile("Received", &format::byte_rate(received).show("receivedBytes", "bytes in the last second"),
                &html! { (format::bytes(stats.received_bytes).show("receivedBytes", "bytes since start")) }))
            (tile("Sent", &format::byte_rate(sent).show("sentBytes", "bytes in the last second"),
                &html! { (format::bytes(stats.sent_bytes).show("sentBytes", "bytes since start")) }))
        }
    }
}

/// The classes of handlers: their work, and the metrics of waiting and of running calls.
const CLASSES: [(CallClass, &str, &str, &str); 7] = [
    (CallClass::General, "reads that wait for a disk", "numCallsInGeneralQueue", "numActiveGeneralHandler"),
    (CallClass::Write, "writes that wait", "numCallsInWriteQueue", "numActiveWriteHandler"),
    (
        CallClass::LongWrite,
        "writes that compute or wait for long",
        "numCallsInWriteQueue",
        "numActiveWriteHandler",
    ),
    (
        CallClass::Scan,
        "scans, and calls that compute for long",
        "numCallsInScanQueue",
        "numActiveScanHandler",
    ),
    (
        CallClass::Priority,
        "system tables, quick admin calls",
        "numCallsInPriorityQueue",
        "numActivePriorityHandler",
    ),
    (CallClass::Admin, "admin calls that wait", "numCallsInGeneralQueue", "numActiveGeneralHandler"),
    (CallClass::Decode, "large writes being decoded", "numCallsInGeneralQueue", "numActiveGeneralHandler"),
];

fn handlers(pages: &StatusPages) -> Markup {
    let executor = &pages.sources.executor;
    html! {
        div.scroll { table {
            thead { tr { th scope="col" { "Handlers of" } th.num scope="col" { "Wait" } th.num scope="col" { "Run" } } }
            tbody {
                @for (class, name, queued, active) in CLASSES {
                    tr {
                        td { (name) }
                        td.num { (format::count(executor.queued(class) as u64, "calls").show(queued, "calls that wait for a handler")) }
                        td.num { (format::count(executor.active(class) as u64, "calls").show(active, "calls that run on a handler")) }
                    }
                }
            }
        } }
    }
}

fn errors(pages: &StatusPages) -> Markup {
    let metrics = pages.sources.rpc.metrics();
    let mut errors: Vec<_> = ErrorKind::ALL
        .iter()
        .map(|kind| (kind.class_name(), metrics.exceptions(*kind)))
        .filter(|(_, count)| *count > 0)
        .collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    html! {
        @if errors.is_empty() { p.empty { "None." } }
        @else {
            div.scroll { table { tbody {
                @for (class, count) in errors {
                    @let name = class.rsplit('.').next().unwrap_or(class);
                    tr { td title=(class) { (name) } td.num { (format::count(count, "times").show("exceptions", "replies with this error, of all")) } }
                }
            } } }
        }
    }
}

/// The number of calls that the page lists.
const CALLS_LISTED: usize = 50;

fn running_calls(pages: &StatusPages) -> Markup {
    let calls = pages.sources.rpc.running_calls();
    html! {
        @if calls.is_empty() { p.empty { "None." } }
        @else {
            div.scroll { table {
                thead { tr { th.num scope="col" { "Runs for" } th scope="col" { "Method" } th scope="col" { "Client" } th scope="col" { "User" } th.num scope="col" { "Request" } } }
                tbody {
                    @for call in calls.iter().take(CALLS_LISTED) {
                        tr {
                            td.num { (micros_of(call.ran_for).show("TotalCallTime_max", "time from its arrival until it was listed")) }
                            td { (call.service) " " code { (call.method) } }
                            td { code { (call.peer) } }
                            td { (call.user) }
                            td.num { (format::bytes(call.request_bytes as u64).show("RequestSize_max", "bytes of the request")) }
                        }
                    }
                }
            } }
            @if calls.len() > CALLS_LISTED { p { small { "and " (calls.len() - CALLS_LISTED) " more" } } }
        }
    }
}

fn scanners(pages: &StatusPages) -> Markup {
    let Some(server) = pages.sources.server() else { return html! {} };
    let scanners = server.scanners();
    html! {
        dl.facts {
            dt { "Open" } dd { (format::count(scanners.len() as u64, "scanners").show("activeScanners", "scanners open for clients")) " of " (format::count(server.config().scanners_max as u64, "scanners").show("evenkeel.regionserver.scanners.max", "scanners at most")) }
            dt { "Memory" } dd { (format::bytes(scanners.bytes()).show("scannersBytes", "memory of scanners of user tables")) " and " (format::bytes(scanners.system_bytes()).show("systemScannersBytes", "memory of scanners of HBase's tables")) " of HBase's own tables" }
        }
    }
}

const COLUMNS: [Column; 7] = [
    Column::number("calls", "Calls", "Running calls"),
    Column::number("request", "Requests", "Bytes of the requests of these calls"),
    Column::number("unsent", "Not taken", "Bytes of replies that the client has not taken"),
    Column::text("peer", "Client", "The client's address"),
    Column::text("user", "User", "The client's user"),
    Column::text("service", "Service", "The service that it calls, and the client's version"),
    Column::number("silent", "Silent for", "Time since the last bytes arrived"),
];

fn connections(pages: &StatusPages, request: &Request) -> Markup {
    let view = TableView::of(request, PAGE.path, &COLUMNS);
    let mut rows = pages.sources.rpc.connections();
    rows.retain(|row| view.matches(&[&row.peer.to_string(), &row.user, row.service]));
    let all = match view.sort.as_str() {
        "request" => view.sort_and_paginate(&mut rows, |row| row.call_bytes),
        "unsent" => view.sort_and_paginate(&mut rows, |row| row.unsent_bytes),
        "peer" => view.sort_and_paginate(&mut rows, |row| row.peer),
        "user" => view.sort_and_paginate(&mut rows, |row| row.user.clone()),
        "service" => view.sort_and_paginate(&mut rows, |row| row.service),
        "silent" => view.sort_and_paginate(&mut rows, |row| row.silent_for),
        _ => view.sort_and_paginate(&mut rows, |row| row.calls),
    };
    let body = html! {
        div.scroll { table {
            thead { (view.heads(&COLUMNS)) }
            tbody { @for row in &rows { (connection(row)) } }
        } }
        (view.pages(all, "connections"))
    };
    card(
        "Connections",
        "a moment ago",
        &html! { (view.search_form("Address, user or service")) div #rows data-live { (body) } },
    )
}

fn connection(row: &ConnectionReport) -> Markup {
    let silent_ms = i64::try_from(row.silent_for.as_millis()).unwrap_or(i64::MAX);
    html! {
        tr {
            td.num { (format::count(row.calls as u64, "calls").show("", "running calls")) }
            td.num { (format::bytes(row.call_bytes as u64).show("", "bytes of the requests of these calls")) }
            td.num { (format::bytes(row.unsent_bytes as u64).show("", "bytes of replies that the client has not taken")) }
            td { code { (row.peer) } }
            td { (row.user) }
            td { (row.service) @if let Some((major, minor)) = row.client_version { " " small { (major) "." (minor) } } }
            td.num { (format::age(silent_ms).show("", "time since the last bytes arrived")) }
        }
    }
}
