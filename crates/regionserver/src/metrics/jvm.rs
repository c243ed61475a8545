//! JvmMetrics of a process that is no JVM (`JvmMetricsInfo`).
//!
//! | HBase | here |
//! |---|---|
//! | MemHeapUsedM | resident anonymous memory |
//! | MemHeapCommittedM | resident memory |
//! | MemHeapMaxM, MemMaxM | the memory limit of the process |
//! | MemNonHeapUsedM, MemNonHeapCommittedM | resident memory of files: the program, mapped caches |
//! | ThreadsRunnable | running or runnable threads |
//! | ThreadsBlocked | threads that wait for a disk |
//! | ThreadsWaiting | sleeping threads |
//! | Gc* | 0: there is no garbage collector |
//!
//! All are read from the kernel on demand: one file, and one more for each thread.

use std::fs;
use std::path::Path;

use evenkeel_metrics::Record;

/// Properties of the process that the kernel does not provide.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessFacts<'a> {
    /// The process, as HBase names it: `RegionServer` or `Master`.
    pub process_name: &'a str,
    /// The memory limit of the process, in bytes.
    pub memory_bytes_max: u64,
}

/// Creates the record.
pub fn record(facts: ProcessFacts<'_>) -> Record {
    let mut record = Record::new("JvmMetrics", "jvm", "name=JvmMetrics");
    record.tag("ProcessName", facts.process_name).tag("SessionId", "");
    append_memory(&mut record, &Status::read(), facts.memory_bytes_max);
    record.counter("GcCount", "Total GC count", 0).counter(
        "GcTimeMillis",
        "Total GC time in milliseconds",
        0,
    );
    append_threads(&mut record, Threads::read());
    record
}

fn append_memory(record: &mut Record, status: &Status, bytes_max: u64) {
    let mib = |kib: u64| kib as f64 / 1024.0;
    let mib_max = bytes_max as f64 / (1 << 20) as f64;
    record
        .real("MemNonHeapUsedM", "Non-heap memory used in MB", mib(status.file_kib))
        .real("MemNonHeapCommittedM", "Non-heap memory committed in MB", mib(status.file_kib))
        .real("MemNonHeapMaxM", "Non-heap memory max in MB", -1.0)
        .real("MemHeapUsedM", "Heap memory used in MB", mib(status.anonymous_kib))
        .real("MemHeapCommittedM", "Heap memory committed in MB", mib(status.resident_kib))
        .real("MemHeapMaxM", "Heap memory max in MB", mib_max)
        .real("MemMaxM", "Max memory size in MB", mib_max);
}

fn append_threads(record: &mut Record, threads: Threads) {
    record
        .gauge("ThreadsNew", "Number of new threads", 0)
        .gauge("ThreadsRunnable", "Number of runnable threads", threads.runnable)
        .gauge("ThreadsBlocked", "Number of blocked threads", threads.blocked)
        .gauge("ThreadsWaiting", "Number of waiting threads", threads.waiting)
        .gauge("ThreadsTimedWaiting", "Number of timed waiting threads", 0)
        .gauge("ThreadsTerminated", "Number of terminated threads", threads.terminated);
}

/// Returns the resident memory of the process, in bytes; 0 if the kernel does not report it.
pub fn resident_bytes() -> u64 {
    Status::read().resident_kib.saturating_mul(1 << 10)
}

/// Memory of the process, in KiB; 0 if the kernel does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Status {
    resident_kib: u64,
    anonymous_kib: u64,
    file_kib: u64,
}

impl Status {
    fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let kib = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        let file_kib = kib("RssFile") + kib("RssShmem");
        Self { resident_kib: kib("VmRSS"), anonymous_kib: kib("RssAnon"), file_kib }
    }
}

/// Numbers of threads by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Threads {
    runnable: u64,
    blocked: u64,
    waiting: u64,
    terminated: u64,
}

impl Threads {
    fn read() -> Self {
        let mut threads = Self::default();
        let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        entries.filter_map(|entry| state_of(&entry.path())).for_each(|state| threads.add(state));
        threads
    }

    fn add(&mut self, state: char) {
        *match state {
            'R' => &mut self.runnable,
            'D' => &mut self.blocked,
            'Z' | 'X' => &mut self.terminated,
            _ => &mut self.waiting,
        } += 1;
    }
}

/// Returns the kernel's letter for the state of a thread. The thread name before it may contain any
/// character, but ends at the last parenthesis.
fn state_of(task: &Path) -> Option<char> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_text_is_understood() {
        let text =
            "Name:\te) R (x\nVmRSS:\t  2048 kB\nRssAnon:\t 1024 kB\nRssFile:\t 512 kB\nRssShmem:\t512 kB\n";
        let status = Status { resident_kib: 2048, anonymous_kib: 1024, file_kib: 1024 };
        assert_eq!(Status::parse(text), status);
        assert_eq!(Status::parse("VmRSS:\nRssAnon: x kB"), Status::default());
    }

    #[test]
    fn this_process_has_memory_and_threads() {
        let (status, threads) = (Status::read(), Threads::read());
        assert!(status.resident_kib > 1024 && status.anonymous_kib > 0, "{status:?}");
        assert!(threads.runnable + threads.waiting + threads.blocked > 1, "{threads:?}");
    }
}
