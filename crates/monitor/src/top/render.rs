//! Draws a view as cells of a terminal. The result depends only on the [`View`] and the size.
//!
//! ```text
//! the server: state, requests, memory, caches, logs, background work      8 rows
//! tables: rates and percentiles                     up to a third of the rest
//! regions: rates and sizes                          what is left
//! slow requests                                     up to 5 rows, if there are any
//! keys                                              1 row
//! ```

use evenkeel_common::clock::{Clock, SystemClock};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table, Widget};

use super::view::View;
use crate::rates::{RegionRates, TableRates};
use crate::snapshot::{OPERATIONS, ServerFigures};
use crate::text::{bytes, count, millis, percent, span};

/// Rows of the server.
const SERVER_ROWS: u16 = 8;
/// The maximum number of rows of slow requests, including their heading.
const SLOW_ROWS: u16 = 6;

/// Draws a view.
pub fn render(view: &View, area: Rect, buffer: &mut Buffer) {
    let slow = u16::try_from(view.slow.len()).unwrap_or(u16::MAX);
    let slow = if slow == 0 { 0 } else { slow.saturating_add(1).min(SLOW_ROWS) };
    let rest = area.height.saturating_sub(SERVER_ROWS + slow + 1);
    // The heading, and an empty row after the last.
    let tables =
        u16::try_from(view.rates.tables.len()).unwrap_or(u16::MAX).saturating_add(2).min(rest / 3 + 2);
    let parts = [SERVER_ROWS, tables].map(Constraint::Length).into_iter();
    let parts = parts.chain([Constraint::Min(0), Constraint::Length(slow), Constraint::Length(1)]);
    let [server, tables, regions, slow, keys] = Layout::vertical(parts).areas(area);
    render_server(view, server, buffer);
    render_tables(view, tables, buffer);
    render_regions(view, regions, buffer);
    render_slow(view, slow, buffer);
    let line = format!("q quit   up/down regions   s order of regions (by {})", view.order.name());
    Line::styled(line, Style::new().add_modifier(Modifier::DIM)).render(keys, buffer);
}

fn render_server(view: &View, area: Rect, buffer: &mut Buffer) {
    let mut lines = vec![state_line(view)];
    if let Some(server) = &view.now.server {
        lines.extend(server_lines(view, server).map(Line::from));
    }
    Paragraph::new(lines).render(area, buffer);
}

/// Returns the server's name, and whether it serves.
fn state_line(view: &View) -> Line<'static> {
    let bad = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    if let Some(error) = &view.error {
        return Line::styled(format!("{}: NO RESPONSE: {error}", view.address), bad);
    }
    if let Some(reason) = view.now.not_ready.first() {
        let more = view.now.not_ready.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" (and {more} more: evenkeel status)") };
        return Line::styled(format!("{}: NOT READY: {reason}{more}", view.address), bad);
    }
    let server = view.now.server.as_ref();
    let up = server.map_or(0, |server| (SystemClock.now_ms() - server.started_ms) / 1000);
    let name = server.map_or("no RegionServer yet", |server| server.name.as_str());
    let good = Style::new().fg(Color::Green).add_modifier(Modifier::BOLD);
    Line::styled(format!("{name}: ready, up {}", span(up)), good)
}

fn server_lines(view: &View, server: &ServerFigures) -> impl Iterator<Item = String> {
    let (rates, cache) = (&view.rates.server, &server.cache);
    let hits = rates.cache_hits.map_or("no lookups".to_owned(), |hits| format!("{} hits", percent(hits)));
    [
        format!(
            "requests    {}/s   reads {}/s   writes {}/s   slow {}/s",
            count(rates.requests),
            count(rates.reads),
            count(rates.writes),
            count(rates.slow),
        ),
        format!(
            "calls       P99 {}   waiting {}   connections {}   handlers {} busy, {} calls wait",
            millis(server.p99_call_ms),
            millis(server.p99_queue_ms),
            count(server.connections),
            count(server.active_handlers),
            count(server.queued_calls),
        ),
        format!(
            "memory      {} of {}   unflushed {}   writes held {} of the time",
            bytes(server.resident_bytes),
            bytes(server.memory_bytes_max),
            bytes(server.memstore_bytes),
            percent(rates.blocked),
        ),
        format!(
            "cache       {} of {}   {hits}   evicted {}/s",
            bytes(cache.bytes),
            bytes(cache.bytes + cache.free_bytes),
            count(rates.evictions),
        ),
        format!(
            "log         {} files, {}   sync P99 {}",
            count(server.log_files),
            bytes(server.log_bytes),
            millis(server.p99_sync_ms),
        ),
        format!(
            "background  flushes {} wait, {}/s   compactions {} wait, {}/s",
            count(server.flush_queue),
            bytes(rates.flushed_bytes),
            count(server.compaction_queue),
            bytes(rates.compacted_bytes),
        ),
    ]
    .into_iter()
}

/// Returns a row of right-aligned cells after a left-aligned first one.
fn row(first: String, rest: impl IntoIterator<Item = String>) -> Row<'static> {
    let rest = rest.into_iter().map(|text| Cell::from(Line::from(text).right_aligned()));
    Row::new(std::iter::once(Cell::from(first)).chain(rest))
}

fn heading() -> Style {
    Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD)
}

fn render_tables(view: &View, area: Rect, buffer: &mut Buffer) {
    let p99 = OPERATIONS.map(|(_, name)| format!("P99 {name}"));
    let names = ["regions", "reads/s", "writes/s"].map(str::to_owned).into_iter();
    let names = names.chain(p99).chain(["unflushed", "files", "size"].map(str::to_owned));
    let header = row(format!("table ({})", view.rates.tables.len()), names).style(heading());
    let widths = [Constraint::Min(16), Constraint::Length(8), Constraint::Length(9), Constraint::Length(9)];
    let widths = widths.into_iter().chain(OPERATIONS.map(|_| Constraint::Length(9)));
    let widths = widths.chain([Constraint::Length(10), Constraint::Length(6), Constraint::Length(10)]);
    Widget::render(Table::new(view.rates.tables.iter().map(table_row), widths).header(header), area, buffer);
}

fn table_row(table: &TableRates) -> Row<'static> {
    let now = &table.now;
    let p99 = now.operations.iter().zip(table.has);
    let p99 = p99.map(|(operation, has)| if has { millis(operation.p99_ms) } else { "-".to_owned() });
    let cells = [count(now.regions), count(table.reads), count(table.writes)].into_iter().chain(p99);
    row(table.name.clone(), cells.chain([bytes(now.memstore_bytes), count(now.files), bytes(now.file_bytes)]))
}

fn render_regions(view: &View, area: Rect, buffer: &mut Buffer) {
    let names = ["reads/s", "writes/s", "unflushed", "files", "size", "compactions"].map(str::to_owned);
    let header = row(format!("region ({})", view.rates.regions.len()), names).style(heading());
    let widths = [9, 9, 10, 6, 10, 11].map(Constraint::Length);
    let widths = std::iter::once(Constraint::Min(16)).chain(widths);
    let shown = view.regions().into_iter().take(area.height.into()).map(region_row);
    Widget::render(Table::new(shown, widths).header(header), area, buffer);
}

fn region_row(region: &RegionRates) -> Row<'static> {
    let now = &region.now;
    let cells = [
        count(region.reads),
        count(region.writes),
        bytes(now.memstore_bytes),
        count(now.files),
        bytes(now.file_bytes),
        count(now.compactions),
    ];
    row(format!("{} {}", now.table, region.name), cells)
}

fn render_slow(view: &View, area: Rect, buffer: &mut Buffer) {
    let lines = view.slow.iter().take(area.height.into()).map(|request| {
        Line::from(format!(
            "{:>9.1} ms  {}  ({})",
            request.total_ms,
            request.subject(),
            request.causes_line()
        ))
    });
    let lines: Vec<_> = std::iter::once(Line::styled("slow requests", heading())).chain(lines).collect();
    Paragraph::new(lines).render(area, buffer);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::slow::SlowRequest;
    use crate::testing::snapshot;
    use crate::top::lines_of;

    fn lines(view: &View, columns: u16, rows: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal");
        let frame = terminal.draw(|frame| render(view, frame.area(), frame.buffer_mut())).expect("drawn");
        lines_of(frame.buffer)
    }

    fn view() -> View {
        let mut view = View::new("rs1:16030", snapshot(100, 0));
        view.advance(snapshot(300, 2000));
        view
    }

    #[test]
    fn two_snapshots_render_as_a_screen() {
        let mut view = view();
        view.slow = vec![SlowRequest {
            total_ms: 250.25,
            method: "Get".into(),
            causes: vec![("blockRead".into(), 249.0)],
            ..SlowRequest::default()
        }];
        let lines = lines(&view, 100, 24);
        assert!(lines[0].starts_with("rs1,16020,1700000000000: ready, up "), "{}", lines[0]);
        let expected = [
            "requests    1,100/s   reads 1,000/s   writes 100/s   slow 0/s",
            "calls       P99 7 ms   waiting 1 ms   connections 4   handlers 2 busy, 1 calls wait",
            "memory      512.5 MiB of 2.0 GiB   unflushed 1.0 MiB   writes held 0.0% of the time",
            "cache       900 B of 1000 B   90.0% hits   evicted 0/s",
            "log         3 files, 2.0 MiB   sync P99 12 ms",
            "background  flushes 1 wait, 0 B/s   compactions 2 wait, 0 B/s",
        ];
        assert_eq!(lines[1..7], expected);
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(
            words(&lines[8]),
            "table (2) regions reads/s writes/s P99 get P99 put P99 scan unflushed files size"
        );
        assert_eq!(words(&lines[9]), "trail 1 1,000 100 4 ms 9 ms - 0 B 0 4.8 MiB");
        assert_eq!(words(&lines[12]), "region (1) reads/s writes/s unflushed files size compactions");
        let region = "trail 0123456789abcdef0123456789abcdef 1,000 100 1.0 MiB 2 4.8 MiB 0";
        assert_eq!(words(&lines[13]), region);
        assert_eq!(lines[21], "slow requests");
        assert_eq!(lines[22], "    250.2 ms  Get  (blockRead 249.0 ms)");
        assert!(lines[23].starts_with("q quit"), "{}", lines[23]);
    }

    #[test]
    fn problems_are_shown_first() {
        let mut view = view();
        view.now.not_ready = vec!["writes are refused: x".into(), "y".into()];
        let first = &lines(&view, 100, 24)[0];
        assert_eq!(first, "rs1:16030: NOT READY: writes are refused: x (and 1 more: evenkeel status)");
        view.error = Some("connection refused".into());
        let shown = lines(&view, 100, 24);
        assert_eq!(shown[0], "rs1:16030: NO RESPONSE: connection refused");
        assert!(shown[1].starts_with("requests "), "the last numbers stay");
    }

    #[test]
    fn small_terminals_and_many_regions_render() {
        let mut view = view();
        for number in 0..500 {
            let region = RegionRates { name: format!("{number:032}"), ..RegionRates::default() };
            view.rates.regions.push(region);
        }
        view.scroll(3);
        let shown = lines(&view, 100, 40);
        assert!(shown[13].contains(&format!("{:032}", 2)), "{}", shown[13]);
        view.scroll(100_000);
        assert_eq!(view.regions().len(), 1);
        for (columns, rows) in [(1, 1), (10, 5), (200, 9), (20, 60)] {
            lines(&view, columns, rows);
        }
    }
}
