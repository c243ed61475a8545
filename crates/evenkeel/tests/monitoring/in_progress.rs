//! Work that runs is shown: `/work`, `/rpc`, and the tasks that the shell's `processlist` fetches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_client::SnapshotDescription;
use evenkeel_fs::{Fault, Latch, Op};
use serde_json::Value;

use crate::common::TIMEOUT;
use crate::faulty_server::{FaultyServer, table_name};

/// In the paths of unfinished store files of the test's table.
const UNFINISHED: &str = "/.tmp/";

fn tasks(server: &FaultyServer, filter: &str) -> Vec<Value> {
    let body = server.page(&format!("/rs-status?format=json&filter={filter}"));
    serde_json::from_str(&body).unwrap_or_else(|why| panic!("{why}: {body}"))
}

/// A snapshot waits for the flush of its region, and that for the disk; a second flush for both.
#[test]
fn a_flush_a_snapshot_and_their_calls_are_shown_while_they_run() {
    let server = FaultyServer::started(&[], &[]);
    let (table, latch) = (server.table(), Latch::new());
    let _opened = OpenWhenDropped(&latch);
    (0..100).for_each(|i| server.put(&table, format!("{i:06}"), 1_000));
    let is_idle = || tasks(&server, "all").is_empty() && server.page("/work").contains("Nothing.");
    eventually("the Puts have ended", is_idle);
    server.fs.inject(Fault::on(Op::Create, UNFINISHED).waits_for(&latch).always());
    let connection = Arc::new(server.runtime.block_on(server.connect()));
    let snapshotting = Arc::clone(&connection);
    let snapshot = server.runtime.spawn(async move {
        let wanted = SnapshotDescription::new("s1", table_name());
        snapshotting.admin().snapshot(&wanted).await
    });
    let shows = |text: &str| server.page("/work").contains(&format!("<span class=\"tag\">{text}</span>"));
    eventually("the snapshot and its flush are shown", || shows("snapshot") && shows("flush"));
    let flush = server.runtime.spawn(async move {
        let admin = connection.admin();
        let regions = admin.regions(&table_name()).await?;
        admin.flush_region(&regions[0].region, None).await
    });
    let work = server.page("/work");
    assert!(work.contains("s1 of t") && work.contains("aria-label=\"regions\""), "{work}");
    eventually("the flush's cells are counted", || server.page("/work").contains(">100<small>cells</small>"));

    // It waits for the region's flush, so it stays listed.
    let is_flush = |call: &Value| {
        call["rpcCall"]["method"] == "FlushRegion" && call["rpcCall"]["clientaddress"] == "127.0.0.1"
    };
    eventually("the call is listed", || tasks(&server, "rpc").iter().any(is_flush));
    eventually("the call is on the page", || server.page("/rpc").contains("<code>FlushRegion</code>"));
    let general = tasks(&server, "general");
    let flushing = general
        .iter()
        .find(|task| task["description"].as_str().is_some_and(|text| text.starts_with("Flushing t,,")));
    let flushing = flushing.unwrap_or_else(|| panic!("{general:?}"));
    std::thread::sleep(Duration::from_millis(50));
    let again = tasks(&server, "general");
    let started = |task: &Value| task["starttimems"].as_i64().expect("a time");
    let same =
        again.iter().find(|task| task["description"] == flushing["description"]).expect("it still runs");
    assert!((started(same) - started(flushing)).abs() < 40, "the start does not move: {again:?}");

    latch.open();
    server.runtime.block_on(flush).expect("ran").expect("flushed");
    server.runtime.block_on(snapshot).expect("ran").expect("taken");
    eventually("nothing is shown", is_idle);
}

/// Opens a latch, so that a server that waits for it can stop after a failed check.
struct OpenWhenDropped<'a>(&'a Latch);

impl Drop for OpenWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
