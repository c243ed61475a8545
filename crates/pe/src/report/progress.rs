//! A line of progress on the terminal during a run.

use std::io::{IsTerminal, Write};

use evenkeel_common::console;

use super::Interval;
use crate::options::Options;
use crate::stats::Phase;

/// The line of progress: overwritten on a terminal, line by line elsewhere.
pub struct Progress {
    shown: bool,
    over: bool,
    head: String,
    rows: u64,
    rows_all: Option<u64>,
}

impl Progress {
    /// The progress of a run. Prints nothing unless requested, or if standard error is not a
    /// terminal.
    pub fn new(asked: bool, target: &str, options: &Options) -> Self {
        let over = std::io::stderr().is_terminal();
        let rows = options.rows.unsigned_abs() / options.sampling_interval().unsigned_abs();
        let all = rows * options.clients as u64 * u64::from(options.cycles);
        let head = format!("{target} {} {}", options.command, options.clients);
        Self { shown: asked || over, over, head, rows: 0, rows_all: (options.duration <= 0.0).then_some(all) }
    }

    /// Shows an interval.
    pub fn show(&mut self, phase: Phase, interval: &Interval) {
        if phase == Phase::Measured {
            self.rows += interval.rows;
        }
        if !self.shown {
            return;
        }
        let line = self.line(phase, interval);
        let mut out = std::io::stderr().lock();
        let _ = match self.over {
            true => write!(out, "\r\x1b[K{line}").and_then(|()| out.flush()),
            false => writeln!(out, "{line}"),
        };
    }

    fn line(&self, phase: Phase, i: &Interval) -> String {
        let what = if phase == Phase::Warmup { "warm-up" } else { "measured" };
        let latency = &i.latency;
        let mut line = format!(
            "{} {what} {:.0}s  {:.0} rows/s  {:.0} requests/s  P50 {:.0} P99 {:.0} max {:.0} us",
            self.head,
            i.at_s + i.seconds,
            i.rows as f64 / i.seconds,
            i.requests as f64 / i.seconds,
            latency.p50_us,
            latency.p99_us,
            latency.max_us
        );
        if let Some(all) = self.rows_all.filter(|_| phase == Phase::Measured) {
            line.push_str(&format!("  {:.0}%", self.rows as f64 * 100.0 / all.max(1) as f64));
        }
        if let Some(cores) = i.server_cores {
            line.push_str(&format!("  server {:.2} cores", cores));
        }
        if i.errors > 0 {
            line.push_str(&format!("  {} errors", i.errors));
        }
        line
    }

    /// Ends the line.
    pub fn end(&self) {
        if self.shown && self.over {
            console::print_error(format_args!("\n"));
        }
    }
}
