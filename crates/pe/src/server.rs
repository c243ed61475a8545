//! [`ServerProcess`]: CPU, memory and garbage collection, or allocation, of a server on this
//! machine, sampled during the load.
//!
//! The sources are `/proc`, for a JVM its counters in `/tmp/hsperfdata_USER/PID` (which `jstat`
//! reads), and for an Evenkeel the counters that it [shares](evenkeel_common::allocator), so
//! sampling costs the server no CPU. Times are CPU times, except pauses, and the allocator's, which
//! is an estimate.

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_common::allocator::SharedStats;
use serde::Serialize;

mod hsperf;

/// The resources that a process has used, and its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// User and system CPU seconds, all threads.
    pub cpu_s: f64,
    /// Bytes in memory.
    pub rss_bytes: u64,
    /// Bytes that it wrote to storage.
    pub disk_written_bytes: u64,
    /// Bytes that its `read` calls returned, from the page cache or not: files, and sockets read by
    /// `read`.
    pub read_bytes: u64,
    /// CPU seconds of the JVM's collector threads; `None` if it is not a JVM.
    pub gc_cpu_s: Option<f64>,
    /// Seconds in which collections stopped the JVM or, for a concurrent collector, ran, as `jstat`
    /// counts.
    pub gc_time_s: Option<f64>,
    /// Collections.
    pub gc_count: Option<u64>,
    /// Seconds in an Evenkeel's allocator, by the server's estimate; `None` for other servers.
    pub allocator_s: Option<f64>,
    /// Calls of that allocator.
    pub allocator_calls: Option<u64>,
}

/// A process of this machine.
#[derive(Clone, Debug)]
pub struct ServerProcess {
    pid: i32,
    ticks_per_s: f64,
    counters: Option<PathBuf>,
    allocator: Option<SharedStats>,
}

impl ServerProcess {
    /// The process with an id, if it exists.
    pub fn of_pid(pid: i32) -> Option<Self> {
        Path::new("/proc").join(pid.to_string()).exists().then(|| Self {
            pid,
            ticks_per_s: rustix::param::clock_ticks_per_second() as f64,
            counters: hsperf::file_of(pid),
            allocator: SharedStats::of_pid(pid),
        })
    }

    /// The process that listens on a TCP port of this machine; `None` if there is none, or if it
    /// may not be inspected.
    pub fn listening_on(port: u16) -> Option<Self> {
        let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
            .iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .flat_map(|table| table.lines().filter_map(|line| listener(line, port)).collect::<Vec<_>>())
            .collect();
        let processes = fs::read_dir("/proc").ok()?.flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.into_iter().find(|pid| holds_any(*pid, &inodes)).and_then(Self::of_pid)
    }

    /// Its id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns true if it is a JVM whose counters can be read.
    pub fn is_jvm(&self) -> bool {
        self.counters.is_some()
    }

    /// Its usage; `None` once it has exited.
    pub fn usage(&self) -> Option<Usage> {
        let ticks = ticks(&fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?)?;
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let rss_kib: u64 = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
            .unwrap_or_default();
        let io = fs::read_to_string(format!("/proc/{}/io", self.pid)).unwrap_or_default();
        let count = |name: &str| {
            let found = io.lines().find_map(|line| line.strip_prefix(name));
            found.and_then(|n| n.trim().parse().ok()).unwrap_or_default()
        };
        let gc = self.counters.as_deref().and_then(hsperf::collections);
        let allocator = self.allocator.as_ref().and_then(SharedStats::read);
        Some(Usage {
            cpu_s: ticks / self.ticks_per_s,
            rss_bytes: rss_kib * 1024,
            disk_written_bytes: count("write_bytes:"),
            read_bytes: count("rchar:"),
            gc_cpu_s: self.is_jvm().then(|| self.collector_ticks() / self.ticks_per_s),
            gc_time_s: gc.map(|gc| gc.seconds),
            gc_count: gc.map(|gc| gc.count),
            allocator_s: allocator.map(|total| total.ns as f64 / 1e9),
            allocator_calls: allocator.map(|total| total.calls),
        })
    }

    /// CPU of the threads with the names of HotSpot's collector threads.
    fn collector_ticks(&self) -> f64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let of_thread = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).ok()?;
            is_collector(name_of(&stat)?).then(|| ticks(&stat)).flatten()
        };
        tasks.filter_map(of_thread).sum()
    }
}

/// CPU seconds that this process has used.
#[allow(clippy::disallowed_methods, reason = "CPU time, which no test sets")]
pub fn own_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The inode in a line of `/proc/net/tcp`, if the socket listens (state 0A) on the port.
fn listener(line: &str, port: u16) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
    let listens = fields.get(3) == Some(&"0A") && u16::from_str_radix(local_port, 16) == Ok(port);
    listens.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]"))).flatten()
}

fn holds_any(pid: i32, sockets: &[String]) -> bool {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    links
        .filter_map(|link| fs::read_link(link.path()).ok())
        .any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()))
}

/// The name of a thread or process in its `stat` line.
fn name_of(stat: &str) -> Option<&str> {
    stat.get(stat.find('(')? + 1..stat.rfind(')')?)
}

/// User and system ticks of a `stat` line: fields 14 and 15, counted after the name.
fn ticks(stat: &str) -> Option<f64> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().skip(11);
    Some(fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?)
}

/// HotSpot's names: `GC Thread#0`, `G1 Conc#0`, `G1 Main Marker`, `G1 Refine#0`, `ZWorkerYoung#0`,
/// `ZDriverMinor`, ...
fn is_collector(name: &str) -> bool {
    const NAMES: [&str; 12] = [
        "GC Thread",
        "G1 ",
        "ZWorker",
        "ZDriver",
        "ZDirector",
        "ZStat",
        "ZRuntimeWorker",
        "ZUncommitter",
        "ZUnmapper",
        "ZCollector",
        "XWorker",
        "Shenandoah",
    ];
    NAMES.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    #[test]
    fn the_process_behind_a_port_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let found = ServerProcess::listening_on(port).expect("this process");
        assert_eq!(found.pid(), std::process::id() as i32);
        assert!(!found.is_jvm());
        drop(listener);
        assert!(ServerProcess::listening_on(port).is_none());
    }

    #[test]
    fn usage_grows_with_work() {
        let own = ServerProcess::of_pid(std::process::id() as i32).expect("this process");
        let (before, own_before) = (own.usage().expect("there"), own_cpu_s());
        let start = Instant::now();
        while own_cpu_s() - own_before < 0.1 && start.elapsed() < Duration::from_secs(20) {
            std::hint::black_box((0..1000u64).sum::<u64>());
        }
        let after = own.usage().expect("there");
        assert!(after.cpu_s - before.cpu_s >= 0.05, "{before:?} {after:?}");
        assert!(after.rss_bytes > 1 << 20 && after.gc_cpu_s.is_none());
        assert_eq!((after.allocator_s, after.allocator_calls), (None, None), "it shares none");
        assert!(ServerProcess::of_pid(i32::MAX).is_none());
    }

    #[test]
    fn stat_lines_with_odd_names_are_read() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 700 41 0 0 20";
        assert_eq!((name_of(stat), ticks(stat)), (Some("a) b (c"), Some(741.0)));
        assert_eq!(ticks("12 (a) S 1"), None);
        assert!(
            is_collector("G1 Conc#0") && is_collector("ZWorkerYoung#1") && !is_collector("RpcServer.def")
        );
    }
}
