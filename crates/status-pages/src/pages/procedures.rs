//! `/procedures`: the master's procedures that run, wait, or have ended.

use evenkeel_info_server::Request;
use maud::{Markup, html};

use super::{Description, StatusPages};
use crate::format;
use crate::layout::{Column, TableView, card};
use crate::sources::MasterProcedure;

pub(super) const PAGE: Description = Description {
    path: "/procedures",
    title: "Procedures",
    about: "Changes of tables, regions, namespaces and snapshots: running, waiting, and ended in the last 15 minutes.",
    refresh_ms: 1_000,
    content,
};

const COLUMNS: [Column; 6] = [
    Column::number("id", "Id", "The procedure's number, by which clients query it"),
    Column::text("kind", "Procedure", "HBase's name of the procedure"),
    Column::text("table", "Table", "The table that it changes"),
    Column::text("state", "State", "Running, waiting, done or failed"),
    Column::number("submitted", "Submitted", "When a client submitted it, UTC"),
    Column::number("took", "Took", "Time from its submission until its end, or until now"),
];

type Row = (u64, MasterProcedure);

fn content(pages: &StatusPages, request: &Request) -> Markup {
    let Some(master) = &pages.sources.master else {
        return html! { p.empty { "This process has no master." } };
    };
    let now_ms = pages.sources.now_ms();
    let view = TableView::of(request, PAGE.path, &COLUMNS);
    let table = |state: &MasterProcedure| state.table.as_ref().map_or_else(String::new, ToString::to_string);
    let mut rows = master.procedures();
    rows.retain(|(_, procedure)| view.matches(&[procedure.kind, &table(procedure), state(procedure).1]));
    let all = match view.sort.as_str() {
        "kind" => view.sort_and_paginate(&mut rows, |(_, procedure)| procedure.kind),
        "table" => view.sort_and_paginate(&mut rows, |(_, procedure)| table(procedure)),
        "state" => view.sort_and_paginate(&mut rows, |(_, procedure)| state(procedure).1),
        "submitted" => view.sort_and_paginate(&mut rows, |(_, procedure)| procedure.submitted_ms),
        "took" => view.sort_and_paginate(&mut rows, |(_, procedure)| took_ms(procedure, now_ms)),
        _ => view.sort_and_paginate(&mut rows, |(id, _)| *id),
    };
    let body = html! {
        @if all == 0 { p.empty { "None." } }
        @else {
            div.scroll { table {
                thead { (view.heads(&COLUMNS)) }
                tbody { @for row in &rows { (show(row, now_ms)) } }
            } }
            (view.pages(all, "procedures"))
        }
    };
    card("", "", &html! { (view.search_form("Kind, table or state")) div #rows data-live { (body) } })
}

fn took_ms(procedure: &MasterProcedure, now_ms: i64) -> i64 {
    let end_ms = if procedure.outcome.is_some() { procedure.updated_ms } else { now_ms };
    end_ms.saturating_sub(procedure.submitted_ms)
}

/// Returns the class of a procedure's state, and its name.
fn state(procedure: &MasterProcedure) -> (&'static str, &'static str) {
    match (&procedure.outcome, procedure.has_begun) {
        (Some(Ok(_)), _) => ("tag dim", "done"),
        (Some(Err(_)), _) => ("tag bad", "failed"),
        (None, true) => ("tag", "runs"),
        (None, false) => ("tag warn", "waits for its table or a thread"),
    }
}

fn show((id, procedure): &Row, now_ms: i64) -> Markup {
    let (class, name) = state(procedure);
    let took = format::micros(took_ms(procedure, now_ms) as f64 * 1e3);
    html! {
        tr {
            td.num { (id) }
            td { (procedure.kind) }
            td { @if let Some(table) = &procedure.table { (table) } }
            td.wide { span class=(class) { (name) } @if let Some(Err(error)) = &procedure.outcome { " " small { (error) } } }
            td.num { (format::moment(procedure.submitted_ms)) }
            td.num { (took.show("", "time from its submission until its end, or until now")) }
        }
    }
}
