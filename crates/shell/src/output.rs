//! [`Output`]: the stock shell's tables, `row(s)` lines and messages, on a terminal or not.
//!
//! On a terminal, columns fit its width and longer texts wrap; elsewhere every row is one line.

use std::io::{ErrorKind, IsTerminal, Write};

use crate::error::Flow;

/// The output for the user.
pub struct Output {
    writer: Box<dyn Write>,
    terminal: bool,
}

/// The width if the terminal reports an unusable one.
const WIDTH_MIN: usize = 20;

impl Output {
    /// Standard output.
    pub fn stdout() -> Self {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        Self { writer: Box::new(std::io::BufWriter::with_capacity(1 << 16, stdout)), terminal }
    }

    /// Any writer, treated as not a terminal.
    pub fn to(writer: impl Write + 'static) -> Self {
        Self { writer: Box::new(writer), terminal: false }
    }

    /// Returns true if it is a terminal, with colours and a width.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The width of the terminal; `None` elsewhere.
    fn width(&self) -> Option<usize> {
        let size = self.terminal.then(crossterm::terminal::size)?.ok()?;
        Some(usize::from(size.0).max(WIDTH_MIN))
    }

    /// Writes bytes unchanged.
    pub fn print(&mut self, bytes: &[u8]) -> Result<(), Flow> {
        self.writer.write_all(bytes).map_err(closed)
    }

    /// Writes a line.
    pub fn line(&mut self, line: impl AsRef<str>) -> Result<(), Flow> {
        self.print(line.as_ref().as_bytes())?;
        self.print(b"\n")
    }

    /// Writes a line, in a colour on a terminal.
    pub fn coloured(&mut self, colour: u8, line: &str) -> Result<(), Flow> {
        match self.terminal {
            true => self.line(format!("\x1b[{colour}m{line}\x1b[0m")),
            false => self.line(line),
        }
    }

    /// Flushes the output.
    pub fn flush(&mut self) -> Result<(), Flow> {
        self.writer.flush().map_err(closed)
    }

    /// Writes the header of a table.
    pub fn header(&mut self, names: &[&str]) -> Result<(), Flow> {
        self.columns(names, false)
    }

    /// Writes a row of one or two columns, indented by one space if it has two.
    pub fn row(&mut self, cells: &[&str]) -> Result<(), Flow> {
        self.columns(cells, true)
    }

    fn columns(&mut self, cells: &[&str], inset: bool) -> Result<(), Flow> {
        match cells {
            [] => Ok(()),
            [one] => wrap(one, self.width()).iter().try_for_each(|part| self.line(part)),
            [first, second] => self.two(first, second, inset),
            many => self.line(format!(" {}", many.join(" "))),
        }
    }

    /// A quarter of the width for the first column, the rest for the second.
    fn two(&mut self, first: &str, second: &str, inset: bool) -> Result<(), Flow> {
        let width = self.width();
        let first_width = width.map(|width| width / 4);
        let (left, right) = (wrap(first, first_width), wrap(second, width.map(|w| w - w / 4 - 2)));
        for i in 0..left.len().max(right.len()) {
            let (left, right) = (left.get(i).copied().unwrap_or(""), right.get(i).copied().unwrap_or(""));
            let gap = if inset { "" } else { " " };
            let indent = if inset { " " } else { "" };
            let padded = format!("{indent}{left:<width$}{gap} {right}", width = first_width.unwrap_or(0));
            self.line(padded)?;
        }
        Ok(())
    }

    /// `N row(s)`
    pub fn footer(&mut self, rows: usize) -> Result<(), Flow> {
        self.line(format!("{rows} row(s)"))
    }

    /// As [`Self::footer`], and says if rows are of a secondary replica, which may lag behind.
    pub fn footer_of_read(&mut self, rows: usize, is_stale: bool) -> Result<(), Flow> {
        self.footer(rows)?;
        if is_stale { self.line(" (possible stale results) ") } else { Ok(()) }
    }
}

fn closed(error: std::io::Error) -> Flow {
    match error.kind() {
        ErrorKind::BrokenPipe => Flow::Closed,
        _ => crate::error::RubyError::new("IOError", error.to_string()).into(),
    }
}

/// Splits a text by width in characters; does not if there is no width.
fn wrap(text: &str, width: Option<usize>) -> Vec<&str> {
    let Some(width) = width else { return vec![text] };
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((at, _)) = rest.char_indices().nth(width) {
        let (piece, more) = rest.split_at(at);
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_wrap() {
        assert_eq!(wrap("abcde", Some(2)), ["ab", "cd", "e"]);
        assert_eq!(wrap("äöü", Some(2)), ["äö", "ü"]);
        assert_eq!(wrap("", Some(2)), [""]);
        assert_eq!(wrap("abcde", None), ["abcde"]);
    }
}
