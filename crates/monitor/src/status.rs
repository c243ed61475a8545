//! `evenkeel status`: whether a server serves its clients, and its load, on one screen.
//!
//! | exit status | |
//! |---|---|
//! | 0 | it serves |
//! | 1 | it does not; the reasons are printed |
//! | 2 | no RegionServer answers (the caller's status for a failure) |

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use evenkeel_common::clock::{Clock, SystemClock};

use crate::address::{Address, AddressArgs};
use crate::http::Client;
use crate::rates::{Rates, ServerRates};
use crate::snapshot::{ServerFigures, Snapshot};
use crate::text::{bytes, count, millis, percent};
use crate::{ErrorText, text};

/// The exit status of a server that does not serve.
const NOT_READY: u8 = 1;
/// The period over which rates are measured.
const MEASURED: Duration = Duration::from_secs(1);

/// The arguments of `evenkeel status`.
#[derive(Args, Clone, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    address: AddressArgs,
}

/// Prints the status of a server.
///
/// # Errors
/// If no RegionServer answers.
pub fn run(args: &StatusArgs) -> Result<ExitCode, ErrorText> {
    let client = Client::new(Address::parse(&args.address.address)?)?;
    let before = Snapshot::fetch(&client)?;
    if before.server.is_some() {
        std::thread::sleep(MEASURED);
    }
    let now = Snapshot::fetch(&client)?;
    let screen = render(&client.address().to_string(), &before, &now, SystemClock.now_ms());
    // A closed output, as with `head`, is not a failure.
    let _closed = io::stdout().write_all(screen.as_bytes());
    Ok(if now.not_ready.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NOT_READY) })
}

/// Formats the screen, for a server at an address and the time in milliseconds since 1970.
pub fn render(address: &str, before: &Snapshot, now: &Snapshot, now_ms: i64) -> String {
    let mut lines = Lines::default();
    match now.not_ready.split_first() {
        None => lines.add("state", "ready"),
        Some((first, more)) => {
            lines.add("state", &format!("NOT READY: {first}"));
            more.iter().for_each(|reason| lines.add("", reason));
        }
    }
    match &now.server {
        None => lines.add("server", &format!("{address} has no RegionServer yet")),
        Some(server) => {
            let up = text::span((now_ms - server.started_ms) / 1000);
            lines.add("server", &format!("{}, up {up}, pages at http://{address}/", server.name));
            lines.add_server(now, server, &Rates::between(before, now).server);
        }
    }
    lines.0
}

/// Lines with names.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: &str) {
        self.0.push_str(&format!("{name:<12} {value}\n"));
    }

    fn add_server(&mut self, now: &Snapshot, server: &ServerFigures, rates: &ServerRates) {
        self.add_tables(now);
        self.add_requests(server, rates);
        self.add_resources(server, rates);
    }

    fn add_tables(&mut self, now: &Snapshot) {
        let files = now.tables.values().map(|table| table.files).sum();
        let file_bytes = now.tables.values().map(|table| table.file_bytes).sum();
        let regions = now.regions.len();
        self.add(
            "tables",
            &format!(
                "{}, {regions} regions, {} files of {}",
                now.tables.len(),
                count(files),
                bytes(file_bytes)
            ),
        );
    }

    fn add_requests(&mut self, server: &ServerFigures, rates: &ServerRates) {
        self.add(
            "requests",
            &format!(
                "{}/s ({} reads, {} writes), {} since the start",
                count(rates.requests),
                count(rates.reads),
                count(rates.writes),
                count(server.requests),
            ),
        );
        self.add(
            "calls",
            &format!(
                "P99 {}; P99 wait for a thread {}; {} connections",
                millis(server.p99_call_ms),
                millis(server.p99_queue_ms),
                count(server.connections),
            ),
        );
        self.add(
            "slow",
            &format!("{} requests since the start (evenkeel slow)", count(server.slow_requests)),
        );
    }

    fn add_resources(&mut self, server: &ServerFigures, rates: &ServerRates) {
        let ServerFigures { cache, .. } = server;
        self.add(
            "memory",
            &format!(
                "{} resident of {}, {} unflushed",
                bytes(server.resident_bytes),
                bytes(server.memory_bytes_max),
                bytes(server.memstore_bytes),
            ),
        );
        let hits = rates
            .cache_hits
            .map_or("no lookups now".to_owned(), |hits| format!("{} hits now", percent(hits)));
        let all = cache.bytes + cache.free_bytes;
        self.add("cache", &format!("{} of {}, {hits}", bytes(cache.bytes), bytes(all)));
        self.add(
            "log",
            &format!(
                "{} files of {}, sync P99 {}",
                count(server.log_files),
                bytes(server.log_bytes),
                millis(server.p99_sync_ms),
            ),
        );
        self.add(
            "background",
            &format!(
                "{} flushes and {} compactions wait",
                count(server.flush_queue),
                count(server.compaction_queue)
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::snapshot;

    #[test]
    fn status_shows_readiness_and_load() {
        let (before, mut now) = (snapshot(100, 0), snapshot(300, 2000));
        let screen = render("rs1:16030", &before, &now, 1_700_000_100_000);
        let expected = "\
state        ready
server       rs1,16020,1700000000000, up 1 min 40 s, pages at http://rs1:16030/
tables       2, 1 regions, 0 files of 4.8 MiB
requests     1,100/s (1,000 reads, 100 writes), 3,300 since the start
calls        P99 7 ms; P99 wait for a thread 1 ms; 4 connections
slow         3 requests since the start (evenkeel slow)
memory       512.5 MiB resident of 2.0 GiB, 1.0 MiB unflushed
cache        900 B of 1000 B, 90.0% hits now
log          3 files of 2.0 MiB, sync P99 12 ms
background   1 flushes and 2 compactions wait
";
        assert_eq!(screen, expected);
        now.not_ready = vec!["starting: opening regions, for 3 s".into(), "x".into()];
        now.server = None;
        let screen = render("rs1:16030", &before, &now, 0);
        let expected = "state        NOT READY: starting: opening regions, for 3 s\n             x\n\
                        server       rs1:16030 has no RegionServer yet\n";
        assert_eq!(screen, expected);
    }
}
