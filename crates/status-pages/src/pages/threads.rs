//! `/threads`: each thread of the process: its purpose, its current state, and its CPU time.

use std::collections::HashMap;
use std::time::Instant;

use evenkeel_common::clock;
use evenkeel_info_server::Request;
use evenkeel_info_server::pages::{ThreadState, threads};
use maud::{Markup, html};
use parking_lot::Mutex;

use super::{Description, StatusPages};
use crate::format;
use crate::layout::{Column, TableView, bar, card};

pub(super) const PAGE: Description = Description {
    path: "/threads",
    title: "Threads",
    about: "The purpose, the state and the CPU time of each thread.",
    refresh_ms: 2_000,
    content,
};

const COLUMNS: [Column; 6] = [
    Column::number("now", "Now", "CPU time in each second since the page was last rendered"),
    Column::number("cpu", "CPU time", "ProcessCpuTime of the thread: since it started"),
    Column::text("name", "Thread", "The thread's name and number"),
    Column::text("for", "Purpose", "What the thread does"),
    Column::text("state", "State", "The state that the system reports"),
    Column::text("waits", "Waits in", "The kernel function in which it waits"),
];

/// The purposes of threads, by the prefixes of their names (`evenkeel_common::thread`).
const PURPOSES: [(&str, &str); 45] = [
    ("rpc-conn", "reads requests of connections, runs most of them, sends replies"),
    ("rpc-accept", "takes new connections"),
    ("general", "reads that wait for a disk"),
    ("priority", "calls of system tables, quick admin calls"),
    ("scan", "scans, and calls that compute for long"),
    ("long-write", "writes that compute or wait for long"),
    ("write", "writes that wait"),
    ("decode", "large writes being decoded"),
    ("admin", "admin calls that wait"),
    ("wal-watch", "watches the log's syncs"),
    ("wal-archiver", "moves logs that are no longer needed to oldWALs"),
    ("wal", "writes and syncs a log"),
    ("flush-in-memory", "flattens MemStores"),
    ("flush", "writes MemStores to files"),
    ("compact", "merges store files"),
    ("chunks", "allocates chunks for MemStores in advance"),
    ("memory-trim", "returns memory to the system"),
    ("write-throttle", "sends the delayed replies of writers"),
    ("chore", "leases, memory limits, periodic work"),
    ("refresh-files", "finds new files of secondary replicas"),
    ("discharge-files", "archives compacted files that readers have released"),
    ("master-chore", "the master's periodic work"),
    ("assignment", "reopens regions after a failed change"),
    ("procedure", "creates, alters, splits and merges"),
    ("procedure-results", "reports outcomes of procedures to the master"),
    ("remote-procedure", "flushes and snapshots regions for the master"),
    ("claim-queue", "answers the master's requests to claim replication queues"),
    ("open-region", "opens regions"),
    ("open-priority-region", "opens regions of system tables"),
    ("open-meta", "opens hbase:meta"),
    ("close-region", "closes regions"),
    ("split-wal", "splits logs of servers that ended"),
    ("split-", "requests splits of large regions"),
    ("replicate", "replays edits on secondary replicas of regions"),
    ("cluster", "keeps the session with ZooKeeper, and reports to the master"),
    ("hdfs", "keeps connections and leases of HDFS"),
    ("metrics-sink", "writes metrics to files, Graphite or Ganglia"),
    ("stop", "stops the server"),
    ("signals", "waits for signals of the system"),
    ("zookeeper", "answers clients that locate the cluster"),
    ("info", "answers these pages"),
    ("status-history", "samples for these pages"),
    ("read-ahead", "reads blocks before scans need them"),
    ("prefetch", "reads files into the cache"),
    ("log", "writes the log of the process"),
];

/// The CPU times of threads when they were last read, by thread id.
#[derive(Debug, Default)]
pub(super) struct LastTimes(Mutex<(Option<Instant>, HashMap<u64, f64>)>);

/// A thread and its CPU seconds per second.
struct Row {
    thread: ThreadState,
    cpu: f64,
    now: f64,
}

impl LastTimes {
    fn rows(&self) -> Vec<Row> {
        let (now, mut last) = (clock::monotonic(), self.0.lock());
        let seconds =
            last.0.map_or(f64::INFINITY, |at| now.saturating_duration_since(at).as_secs_f64().max(0.1));
        let row = |thread: ThreadState| {
            let (user, system) = thread.cpu_seconds();
            let cpu = user + system;
            let before = last.1.get(&thread.id).copied().unwrap_or(cpu);
            Row { now: (cpu - before).max(0.0) / seconds, cpu, thread }
        };
        let rows: Vec<Row> = threads().into_iter().map(row).collect();
        *last = (Some(now), rows.iter().map(|row| (row.thread.id, row.cpu)).collect());
        rows
    }
}

fn purpose(name: &str) -> &'static str {
    let matching = PURPOSES.iter().filter(|(start, _)| name.starts_with(start));
    matching.max_by_key(|(start, _)| start.len()).map_or("", |(_, purpose)| purpose)
}

fn content(pages: &StatusPages, request: &Request) -> Markup {
    let view = TableView::of(request, PAGE.path, &COLUMNS);
    let mut rows = pages.thread_times.rows();
    rows.retain(|row| view.matches(&[&row.thread.name, purpose(&row.thread.name), row.thread.state]));
    let all = match view.sort.as_str() {
        "cpu" => view.sort_and_paginate(&mut rows, |row| row.cpu),
        "name" => view.sort_and_paginate(&mut rows, |row| row.thread.name.clone()),
        "for" => view.sort_and_paginate(&mut rows, |row| purpose(&row.thread.name)),
        "state" => view.sort_and_paginate(&mut rows, |row| row.thread.state),
        "waits" => view.sort_and_paginate(&mut rows, |row| row.thread.waits_in.clone()),
        _ => view.sort_and_paginate(&mut rows, |row| (row.now, row.cpu)),
    };
    let body = html! {
        div.scroll { table {
            thead { (view.heads(&COLUMNS)) }
            tbody { @for row in &rows { (show(row)) } }
        } }
        (view.pages(all, "threads"))
    };
    html! {
        (card("", "", &html! { (view.search_form("Name, purpose or state")) div #rows data-live { (body) } }))
        p.hint { "As text, for scripts: " a href="/dump" { "/dump" } ". A thread's stack is not shown: no thread can read another's." }
    }
}

fn show(row: &Row) -> Markup {
    let thread = &row.thread;
    let state = match thread.state {
        "RUNNING" => ("tag", "running"),
        "SLEEPING" => ("tag dim", "waiting"),
        "WAITING FOR A DISK" => ("tag warn", "waiting for a disk"),
        other => ("tag dim", other),
    };
    let thousandths = evenkeel_common::length::whole((row.now * 1000.0).round());
    html! {
        tr {
            td.num { (bar(thousandths, 1000, "CPU")) " " (format::percent(row.now).show("", "of a CPU, since the page was last rendered")) }
            td.num { (format::rate(row.cpu, "s").show("ProcessCpuTime", "CPU time since the thread started")) }
            td { code { (thread.name) } " " small { (thread.id) } }
            td { (purpose(&thread.name)) }
            td { span class=(state.0) { (state.1) } }
            td { code { (thread.waits_in) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_prefix_gives_the_purpose() {
        assert_eq!(purpose("wal-watch"), "watches the log's syncs");
        assert_eq!(purpose("wal"), "writes and syncs a log");
        assert_eq!(purpose("flush-in-memory-1"), "flattens MemStores");
        assert_eq!(purpose("unheard of"), "");
    }

    #[test]
    fn cpu_time_is_measured_since_the_last_read() {
        let times = LastTimes::default();
        assert!(times.rows().iter().all(|row| row.now == 0.0), "nothing is known of the time before");
        assert!(!times.rows().is_empty());
    }
}
