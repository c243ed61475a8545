//! The time spent in a server's allocator, as `evenkeel pe` reads it during the load, and as the
//! server's log reports it; and the caches of the allocator.
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{Server, TIMEOUT, config};
use evenkeel_pe::report::summary;
use evenkeel_pe::{Options, Target, run};

const ROWS: u64 = 4000;
/// A Put makes the server allocate at least this often, and free as often.
const CALLS_PER_PUT_MIN: u64 = 4;

fn number(line: &str, name: &str) -> Option<u64> {
    let rest = line.split_once(&format!("{name}="))?.1;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The allocator's figures in the log after all work so far: in the second next line, because the
/// next one may have been started before.
fn next_line(server: &Server) -> (u64, u64) {
    let (from, deadline) = (server.log().len(), Instant::now() + TIMEOUT);
    loop {
        let log = server.log();
        let whole = log[from..].rfind('\n').map_or("", |end| &log[from..from + end]);
        let mut lines = whole.lines().filter(|line| line.contains(" allocator: "));
        if let Some(line) = lines.nth(1) {
            let told = [number(line, "allocatorTimeMillis"), number(line, "allocatorCallCount")];
            let [Some(millis), Some(calls)] = told else { panic!("{line}") };
            return (millis, calls);
        }
        assert!(Instant::now() < deadline, "the log says nothing of the allocator");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_load_report_includes_the_servers_allocator_time() {
    let server = Server::started(&[("evenkeel.blockcache.statistics.period", "50")]);
    let target = Target { name: "own".to_owned(), client: config(&server.bootstrap()) };
    let line = format!("--rows={ROWS} --autoFlush=true randomWrite 4");
    let report = run(&target, &Options::of_line(&line).expect("options")).expect("a report");
    let text = summary(&report);
    let written = report.tally.rows_written;
    let of_server = report.server.expect("it runs on this machine");
    let (seconds, calls) =
        (of_server.allocator_s.expect("shared"), of_server.allocator_calls.expect("shared"));
    assert!(calls > CALLS_PER_PUT_MIN * written, "{calls} calls for {written} Puts");
    assert!(seconds > 0.0 && seconds < of_server.cpu_s, "{seconds} of {} CPU s", of_server.cpu_s);
    assert!(text.contains(&format!(", {calls} calls of its allocator, about {seconds:.2} s")), "{text}");
    let (millis, all_calls) = next_line(&server);
    assert!(all_calls >= calls && millis as f64 + 1.0 > seconds * 1000.0, "{millis} ms, {all_calls} calls");
}

/// The variables of the server's process, as it was started last.
fn environment(server: &Server) -> Vec<String> {
    let bytes = std::fs::read(format!("/proc/{}/environ", server.pid())).expect("it runs");
    String::from_utf8_lossy(&bytes).split('\0').map(str::to_owned).collect()
}

#[test]
fn a_server_limits_malloc_thread_caches_by_default() {
    let mut server = Server::started(&[]);
    let is_tunable = |variable: &String| variable.starts_with("GLIBC_TUNABLES=");
    let of_start: Vec<_> = environment(&server).into_iter().filter(is_tunable).collect();
    assert_eq!(of_start, ["GLIBC_TUNABLES=glibc.malloc.tcache_count=2"]);
    let name = std::fs::read_to_string(format!("/proc/{}/comm", server.pid())).expect("it runs");
    assert_eq!(name.trim(), "evenkeel");
    assert!(server.terminate().success());
    let before = server.screen().len();
    server.spawn_with("GLIBC_TUNABLES", "glibc.malloc.tcache_count=5");
    server.wait_for_screen(before);
    let of_operator: Vec<_> = environment(&server).into_iter().filter(is_tunable).collect();
    assert_eq!(of_operator, ["GLIBC_TUNABLES=glibc.malloc.tcache_count=5"]);
}
