//! [`Progress`]: a line on stderr, rewritten in place, if stderr is a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use evenkeel_common::console;

/// The interval between updates.
const PERIOD: Duration = Duration::from_millis(200);

/// The progress of a tool.
#[derive(Debug)]
pub struct Progress {
    is_shown: bool,
    bytes: u64,
    bytes_done: u64,
    last: Instant,
}

impl Progress {
    /// The progress of work on a number of bytes.
    pub fn new(bytes: u64) -> Self {
        Self { is_shown: std::io::stderr().is_terminal(), bytes, bytes_done: 0, last: clock::monotonic() }
    }

    /// Adds finished bytes, and names the next item.
    pub fn step(&mut self, bytes: u64, next: &dyn std::fmt::Display) {
        self.bytes_done += bytes;
        if self.is_shown && clock::since(self.last) >= PERIOD {
            self.last = clock::monotonic();
            let percent = self.bytes_done * 100 / self.bytes.max(1);
            console::print_error(format_args!("\r\x1b[K{percent:3}% of {} MiB  {next}", self.bytes >> 20));
            drop(std::io::stderr().flush());
        }
    }

    /// Clears the line, so that other lines can be written.
    pub fn clear(&self) {
        if self.is_shown {
            console::print_error(format_args!("\r\x1b[K"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
