//! `evenkeel top`: a live view of a server in the terminal.
//!
//! Every two seconds, or at a given interval, it fetches a snapshot and shows the rates since the
//! one before: rates and percentiles of each table, rates of each region, the caches, the WALs,
//! flushes and compactions, and the newest slow requests. While a server does not answer, the last
//! numbers stay, with the reason above them.
//!
//! If standard output is not a terminal, one view is printed as text: `evenkeel top | head`.
//!
//! | module | contents |
//! |---|---|
//! | [`view`] | the content of the view, and how keys change it |
//! | [`render`] | draws a view as cells of a terminal, which tests compare |

pub mod render;
pub mod view;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use evenkeel_common::clock;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::view::View;
use crate::ErrorText;
use crate::address::{Address, AddressArgs};
use crate::http::Client;
use crate::slow::SlowRequests;
use crate::snapshot::Snapshot;

/// The columns and rows of a view that is printed as text.
const TEXT_SIZE: (u16, u16) = (120, 60);

/// The arguments of `evenkeel top`.
#[derive(Args, Clone, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    address: AddressArgs,
    /// Seconds between two snapshots of the server
    #[arg(short = 'd', long, value_name = "SECONDS", default_value_t = 2.0)]
    delay: f64,
}

/// The command of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Quit,
    Show,
}

/// Shows a server until the user quits.
///
/// # Errors
/// If no RegionServer answers at first, or the terminal cannot be used.
pub fn run(args: &TopArgs) -> Result<ExitCode, ErrorText> {
    let client = Client::new(Address::parse(&args.address.address)?)?;
    let delay = Duration::try_from_secs_f64(args.delay.clamp(0.2, 3600.0)).map_err(|e| e.to_string())?;
    let mut view = View::new(&client.address().to_string(), Snapshot::fetch(&client)?);
    if !io::stdout().is_terminal() {
        std::thread::sleep(delay);
        refresh(&client, &mut view);
        let _closed = io::stdout().write_all(as_text(&view)?.as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    let mut terminal = ratatui::try_init().map_err(|e| e.to_string())?;
    let shown = show(&mut terminal, &client, &mut view, delay);
    ratatui::restore();
    shown.map(|()| ExitCode::SUCCESS).map_err(|error| error.to_string())
}

/// Draws, waits for keys, and refreshes after `delay`.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    client: &Client,
    view: &mut View,
    delay: Duration,
) -> io::Result<()> {
    let mut next = clock::monotonic() + delay;
    loop {
        terminal.draw(|frame| render::render(view, frame.area(), frame.buffer_mut()))?;
        let left = next.saturating_duration_since(clock::monotonic());
        if event::poll(left)? {
            if let Event::Key(key) = event::read()?
                && command(view, key) == Command::Quit
            {
                return Ok(());
            }
        } else {
            refresh(client, view);
            next = clock::monotonic() + delay;
        }
    }
}

/// Fetches a snapshot and the slow requests.
fn refresh(client: &Client, view: &mut View) {
    match Snapshot::fetch(client) {
        Ok(now) => view.advance(now),
        Err(error) => view.error = Some(error),
    }
    // An older server does not have this page.
    if let Ok(ledger) = SlowRequests::fetch(client) {
        view.slow = ledger.slow;
    }
}

/// Runs the command of a key.
fn command(view: &mut View, key: KeyEvent) -> Command {
    let is_control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    if key.kind == KeyEventKind::Release {
        return Command::Show;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return Command::Quit,
        _ if is_control_c => return Command::Quit,
        KeyCode::Down | KeyCode::Char('j') => view.scroll(1),
        KeyCode::Up | KeyCode::Char('k') => view.scroll(-1),
        KeyCode::PageDown => view.scroll(10),
        KeyCode::PageUp => view.scroll(-10),
        KeyCode::Char('s') => view.order = view.order.next(),
        _ => {}
    }
    Command::Show
}

/// Formats a view as lines of text, without empty lines at the end.
fn as_text(view: &View) -> Result<String, ErrorText> {
    let (columns, rows) = TEXT_SIZE;
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).map_err(|e| e.to_string())?;
    let frame = terminal
        .draw(|frame| render::render(view, frame.area(), frame.buffer_mut()))
        .map_err(|e| e.to_string())?;
    let lines = lines_of(frame.buffer);
    let used = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    Ok(lines.into_iter().take(used).map(|line| line + "\n").collect())
}

/// Returns the text of each row, without trailing spaces.
pub fn lines_of(buffer: &Buffer) -> Vec<String> {
    let area = buffer.area;
    let cell = |x, y| buffer.cell((x, y)).map_or(" ", |cell| cell.symbol());
    let line = |y| (area.left()..area.right()).map(|x| cell(x, y)).collect::<String>().trim_end().to_owned();
    (area.top()..area.bottom()).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::snapshot;

    #[test]
    fn keys_quit_scroll_and_order() {
        let mut view = View::new("rs1:16030", snapshot(100, 0));
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let order = view.order;
        assert_eq!(command(&mut view, key(KeyCode::Char('s'))), Command::Show);
        assert_ne!(view.order, order);
        assert_eq!(command(&mut view, key(KeyCode::Char('q'))), Command::Quit);
        assert_eq!(command(&mut view, key(KeyCode::Char('c'))), Command::Show);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(command(&mut view, control_c), Command::Quit);
    }
}
