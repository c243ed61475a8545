//! `/heatmap`: the requests of each part of the key space over the last ten minutes.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_common::Binary;
use evenkeel_info_server::Request;
use maud::{Markup, html};

use super::{Description, StatusPages};
use crate::chart::Span;
use crate::format;
use crate::history::heat::{COLUMNS, Cell, HeatMap, RegionKey};
use crate::layout::{card, encoded, refreshed_part};

pub(super) const PAGE: Description = Description {
    path: "/heatmap",
    title: "Heat map",
    about: "Requests by key range and time: each row is a range, each column five seconds; darker means more requests.",
    refresh_ms: 5_000,
    content,
};

/// The maximum number of rows; with more regions, neighbours share a row.
const ROWS_MAX: usize = 60;
/// The number of colours above zero.
const STEPS: u8 = 9;
const SHOWN_MS: i64 = 600_000;

/// The kind of requests that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestFilter {
    Reads,
    Writes,
    All,
}

impl RequestFilter {
    const ALL: [(Self, &str, &str); 3] = [
        (Self::All, "all", "All requests"),
        (Self::Reads, "reads", "Reads"),
        (Self::Writes, "writes", "Writes"),
    ];

    fn rate(self, cell: &Cell) -> f64 {
        match self {
            Self::Reads => cell.reads,
            Self::Writes => cell.writes,
            Self::All => cell.reads + cell.writes,
        }
    }
}

/// The rendered map.
struct Grid {
    /// The regions of each row, in the order of their keys.
    rows: Vec<Vec<Arc<RegionKey>>>,
    /// For each column, when it ended, and the requests per second of each row.
    columns: Vec<(i64, Vec<f64>)>,
    max: f64,
}

fn content(pages: &StatusPages, request: &Request) -> Markup {
    let table = request.parameter("table").unwrap_or_default();
    let asked = request.parameter("of").unwrap_or_default();
    let filter = RequestFilter::ALL
        .iter()
        .find(|(_, key, _)| *key == asked)
        .map_or(RequestFilter::All, |(filter, ..)| *filter);
    let (tables, grid) = pages.history.with_heat(|heat| (tables(heat), Grid::of(heat, table, filter)));
    let body = html! {
        (choice(&tables, table, filter))
        @if grid.rows.is_empty() { p.empty { "No region had requests in the last ten minutes." } }
        @else { (map(&grid, Span::last(pages.sources.now_ms(), SHOWN_MS))) (legend(grid.max)) }
    };
    card("", "", &refreshed_part("map", &body))
}

fn tables(heat: &HeatMap) -> Vec<String> {
    let cells = heat.columns().flat_map(|column| &column.cells);
    let mut tables: Vec<String> = cells.map(|cell| cell.region.table.clone()).collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

fn choice(tables: &[String], table: &str, filter: RequestFilter) -> Markup {
    let address = |table: &str, key: &str| format!("/heatmap?table={}&of={key}", encoded(table));
    let key =
        RequestFilter::ALL.iter().find(|(other, ..)| *other == filter).map_or("all", |(_, key, _)| *key);
    html! {
        p.choice {
            @for (other, key, name) in RequestFilter::ALL {
                a.tag.dim[other != filter] href=(address(table, key)) data-swap aria-current=[(other == filter).then_some("true")] { (name) } " "
            }
            span.gap { "of" } " "
            a.tag.dim[!table.is_empty()] href=(address("", key)) data-swap { "all tables" } " "
            @for name in tables.iter().take(40) {
                a.tag.dim[name != table] href=(address(name, key)) data-swap { (name) } " "
            }
        }
    }
}

impl Grid {
    fn of(heat: &HeatMap, table: &str, filter: RequestFilter) -> Self {
        let is_asked = |key: &RegionKey| table.is_empty() || key.table == table;
        let mut keys: Vec<Arc<RegionKey>> = heat
            .columns()
            .flat_map(|column| &column.cells)
            .map(|cell| Arc::clone(&cell.region))
            .filter(|key| is_asked(key))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let in_a_row = keys.len().div_ceil(ROWS_MAX).max(1);
        let rows: Vec<Vec<_>> = keys.chunks(in_a_row).map(<[_]>::to_vec).collect();
        let row_of: BTreeMap<&RegionKey, usize> = rows
            .iter()
            .enumerate()
            .flat_map(|(row, keys)| keys.iter().map(move |key| (&**key, row)))
            .collect();
        let column = |column: &crate::history::heat::Column| {
            let mut rates = vec![0.0; rows.len()];
            for cell in &column.cells {
                let rate = row_of.get(&*cell.region).and_then(|row| rates.get_mut(*row));
                rate.into_iter().for_each(|rate| *rate += filter.rate(cell));
            }
            (column.at_ms, rates)
        };
        let columns: Vec<_> = heat.columns().map(column).collect();
        let max = columns.iter().flat_map(|(_, rates)| rates.iter().copied()).fold(0.0, f64::max);
        Self { rows, columns, max }
    }
}

/// Returns the colour of a rate, in equal steps of its logarithm, so that a quiet region differs
/// from one without requests.
fn step(rate: f64, max: f64) -> u8 {
    if rate <= 0.0 || max <= 0.0 {
        return 0;
    }
    let part = (1.0 + rate).ln() / (1.0 + max).ln();
    (1..STEPS).find(|step| part <= f64::from(*step) / f64::from(STEPS)).unwrap_or(STEPS)
}

const CLASSES: [&str; 10] = ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9"];

fn class(rate: f64, max: f64) -> &'static str {
    CLASSES.get(usize::from(step(rate, max))).copied().unwrap_or("h0")
}

fn name(key: &RegionKey) -> String {
    let start = if key.start.is_empty() { "first row".to_owned() } else { Binary(&key.start).to_string() };
    format!("{} · {start}", key.table)
}

fn row_name(keys: &[Arc<RegionKey>]) -> String {
    match keys {
        [] => String::new(),
        [only] => name(only),
        [first, ..] => format!("{} and {} more", name(first), keys.len() - 1),
    }
}

fn map(grid: &Grid, span: Span) -> Markup {
    let width = 1000.0 / COLUMNS as f64;
    let tip = |row: usize, at_ms: i64, rate: f64| {
        let keys = grid.rows.get(row).map(Vec::as_slice).unwrap_or_default();
        let end = keys.last().map(|key| Binary(&key.end).to_string()).filter(|end| !end.is_empty());
        format!(
            "{}\nto {}\n{} UTC: {}",
            row_name(keys),
            end.unwrap_or_else(|| "the last row".to_owned()),
            format::time_of_day(at_ms).split('.').next().unwrap_or_default(),
            format::rate(rate, "requests/s").text()
        )
    };
    html! {
        figure.heat #heat {
            div.ys { @for keys in &grid.rows { span title=(row_name(keys)) { (row_name(keys)) } } }
            div.plot.few[grid.rows.len() < 16] role="img" aria-label="Requests by part of the key space and time" {
                svg viewBox={ "0 0 1000 " (grid.rows.len()) } preserveAspectRatio="none" shape-rendering="crispEdges" {
                    rect.h0 x="0" y="0" width="1000" height=(grid.rows.len()) {}
                    @for (at_ms, rates) in grid.columns.iter().filter(|(at_ms, _)| span.contains(*at_ms)) {
                        @for (row, rate) in rates.iter().enumerate().filter(|(_, rate)| **rate > 0.0) {
                            rect class=(class(*rate, grid.max)) x=(format!("{:.2}", (span.x(*at_ms) - width).max(0.0))) y=(row)
                                width=(format!("{:.2}", width + 0.5)) height="1" data-tip=(tip(row, *at_ms, *rate)) {}
                        }
                    }
                }
            }
            (span.labels())
        }
    }
}

fn legend(max: f64) -> Markup {
    let at = |step: u8| (1.0 + max).powf(f64::from(step) / f64::from(STEPS)) - 1.0;
    html! {
        p.legend {
            span { i.key.h0 {} "none" }
            @for step in 1..=STEPS {
                @let class = CLASSES.get(usize::from(step)).copied().unwrap_or("h0");
                span { i class={ "key " (class) } {} "≤ " (format::rate(at(step), "/s").text()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_separate_zero_low_high_and_peak() {
        assert_eq!((step(0.0, 1e6), step(1e6, 1e6)), (0, 9));
        assert!(step(1.0, 1e6) >= 1 && step(1e3, 1e6) > step(10.0, 1e6));
        assert_eq!(step(5.0, 0.0), 0);
    }

    #[test]
    fn rows_are_named_by_their_first_region() {
        let key = |start: &[u8]| {
            Arc::new(RegionKey {
                table: "t".into(),
                start: start.to_vec(),
                end: Vec::new(),
                encoded: "e".into(),
            })
        };
        assert_eq!(row_name(&[key(b"")]), "t · first row");
        assert_eq!(row_name(&[key(b"\x00<"), key(b"b")]), "t · \\x00< and 1 more");
    }
}
