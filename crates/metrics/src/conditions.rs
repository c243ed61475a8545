//! [`Conditions`]: stolen processor time, page faults and evictions during a slow request, and how
//! long its thread computed or waited for a processor.
//!
//! # Source
//! The kernel's counters (proc(5)): stolen time of the machine in `/proc/stat`, page faults in
//! `/proc/self/stat`, running time and time on the run queue of each thread in
//! `/proc/self/task/N/schedstat`. [`ConditionHistory::sample`] reads all of them every
//! [`SAMPLE_PERIOD`]. When a slow request ends, it reads them again and takes the difference to the
//! last sample before it began.
//!
//! The kernel updates the running time in the file when it interrupts the thread, which may be some
//! milliseconds ago. So the request's own thread reads its clock
//! ([`thread_ran`](evenkeel_common::clock::thread_ran)) as well.
//!
//! The numbers cover a *window* that is up to one period longer than the request. The request's
//! share of its thread's time is an estimate: time without a recorded wait is divided in the
//! proportions of the window, up to the totals of the window.
//!
//! # Cost
//! A sample reads one file per thread, 5 µs each. A slow request reads the two files of the process
//! if no thread has read them for [`REUSE`], and the file of its thread if the thread has not read
//! it for [`REUSE`]: if all of a thousand requests that end together are slow, the log's thread
//! reads once. Requests below [`EXAMINED_MIN`] read nothing.
//!
//! # Bounds
//! [`SAMPLES_MAX`] samples, with 24 bytes per thread.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::cell::Cell;
use std::collections::VecDeque;
use std::fs;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;

/// Interval between samples.
pub const SAMPLE_PERIOD: Duration = Duration::from_secs(1);
/// Limit of samples: those of the last minute.
pub const SAMPLES_MAX: usize = 64;
/// Shorter requests are not examined.
pub const EXAMINED_MIN: Duration = Duration::from_millis(1);
/// Maximum age of the numbers when a request ends.
const REUSE: Duration = Duration::from_millis(20);
/// Unit of the times in `/proc/stat` (USER_HZ, which is 100 on every Linux architecture with a Rust
/// standard library).
const TICK: Duration = Duration::from_millis(10);

/// Conditions of the machine and the process in a window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// The length of the window; zero if there is no sample.
    pub window: Duration,
    /// Processor time that the hypervisor gave to other machines, over all processors.
    pub stolen: Duration,
    /// Busy time of all processors, with this process or others.
    pub busy: Duration,
    /// Page faults of the process without disk access.
    pub minor_faults: u64,
    /// Page faults of the process with disk access.
    pub major_faults: u64,
    /// Blocks evicted from the block caches.
    pub evictions: u64,
    /// How long the request's thread ran.
    pub thread_ran: Duration,
    /// How long the request's thread was runnable without a processor.
    pub thread_waited: Duration,
}

/// Counters since the start of the machine or the process.
#[derive(Clone, Copy, Debug, Default)]
struct ProcessCounts {
    stolen_ticks: u64,
    busy_ticks: u64,
    minor_faults: u64,
    major_faults: u64,
    evictions: u64,
}

/// Running time of a thread, and its waiting time for a processor, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ThreadTimes {
    ran_ns: u64,
    waited_ns: u64,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    process: ProcessCounts,
    /// By thread id, ascending.
    threads: Vec<(u64, ThreadTimes)>,
}

#[derive(Debug, Default)]
struct State {
    samples: VecDeque<Sample>,
    latest: Option<(Instant, ProcessCounts)>,
}

type EvictionCount = Box<dyn Fn() -> u64 + Send + Sync>;

/// The samples. See the module's documentation.
#[derive(Default)]
pub struct ConditionHistory {
    state: Mutex<State>,
    evictions: OnceLock<EvictionCount>,
}

impl std::fmt::Debug for ConditionHistory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConditionHistory").finish_non_exhaustive()
    }
}

impl ConditionHistory {
    /// Sets the function that counts the evictions of all caches since the start. Only the first
    /// call has an effect.
    pub fn count_evictions(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        drop(self.evictions.set(Box::new(count)));
    }

    /// Takes a sample. Must be called every [`SAMPLE_PERIOD`].
    pub fn sample(&self) {
        let (at, process) = (clock::monotonic(), self.read_process());
        let sample = Sample { at, process, threads: read_threads() };
        let mut state = self.state.lock();
        if state.samples.len() >= SAMPLES_MAX {
            state.samples.pop_front();
        }
        state.samples.push_back(sample);
        state.latest = Some((at, process));
    }

    /// Returns the conditions in the window around a request that began at `from` and ends now on
    /// this thread.
    pub fn since(&self, from: Instant) -> Conditions {
        let now = clock::monotonic();
        // If another slow request or a sample holds the lock, return without waiting.
        let Some(mut state) = self.state.try_lock() else { return Conditions::default() };
        let process = match state.latest {
            Some((at, process)) if now < at + REUSE => process,
            _ => {
                let process = self.read_process();
                state.latest = Some((now, process));
                process
            }
        };
        let before = state.samples.iter().rev().find(|sample| sample.at <= from);
        let Some(before) = before.or(state.samples.front()) else { return Conditions::default() };
        let (then, window) = (before.process, now.saturating_duration_since(before.at));
        let (ran, waited) = thread_since(before, now);
        Conditions {
            window,
            stolen: ticks(process.stolen_ticks.saturating_sub(then.stolen_ticks)),
            busy: ticks(process.busy_ticks.saturating_sub(then.busy_ticks)),
            minor_faults: process.minor_faults.saturating_sub(then.minor_faults),
            major_faults: process.major_faults.saturating_sub(then.major_faults),
            evictions: process.evictions.saturating_sub(then.evictions),
            thread_ran: ran,
            thread_waited: waited,
        }
    }

    fn read_process(&self) -> ProcessCounts {
        let machine = fs::read_to_string("/proc/stat").unwrap_or_default();
        let process = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let (busy_ticks, stolen_ticks) = parse_machine(&machine).unwrap_or_default();
        let (minor_faults, major_faults) = parse_faults(&process).unwrap_or_default();
        let evictions = self.evictions.get().map_or(0, |count| count());
        ProcessCounts { stolen_ticks, busy_ticks, minor_faults, major_faults, evictions }
    }
}

impl Conditions {
    /// Divides unexplained time: returns how long the thread computed and how long it waited for a
    /// processor. The remainder is neither.
    pub fn divide(&self, unexplained: Duration) -> (Duration, Duration) {
        let both = self.thread_ran + self.thread_waited;
        if both.is_zero() {
            return (Duration::ZERO, Duration::ZERO);
        }
        let of_both = unexplained.min(both);
        let waited = of_both.mul_f64(self.thread_waited.as_secs_f64() / both.as_secs_f64());
        (of_both.saturating_sub(waited), waited)
    }
}

/// What a thread last read about itself.
#[derive(Clone, Copy)]
struct ThreadReading {
    at: Instant,
    /// The kernel's number of the thread.
    number: u64,
    times: ThreadTimes,
}

thread_local! {
    static READING: Cell<Option<ThreadReading>> = const { Cell::new(None) };
}

/// Returns the times of this thread. Its waiting time is at most [`REUSE`] old.
fn this_thread(now: Instant) -> Option<ThreadReading> {
    let reading = read_this_thread(now)?;
    let ran_ns = u64::try_from(clock::thread_ran().as_nanos()).unwrap_or(u64::MAX);
    let times = ThreadTimes { ran_ns: reading.times.ran_ns.max(ran_ns), ..reading.times };
    Some(ThreadReading { times, ..reading })
}

fn read_this_thread(now: Instant) -> Option<ThreadReading> {
    let last = READING.get();
    if let Some(recent) = last.filter(|last| now < last.at + REUSE) {
        return Some(recent);
    }
    let read_number = || fs::read_link("/proc/thread-self").ok()?.file_name()?.to_str()?.parse().ok();
    let number = last.map(|last| last.number).or_else(read_number)?;
    let times = parse_thread(&fs::read_to_string("/proc/thread-self/schedstat").ok()?)?;
    READING.set(Some(ThreadReading { at: now, number, times }));
    READING.get()
}

/// Returns how long this thread ran since a sample, and how long it waited for a processor.
fn thread_since(before: &Sample, now: Instant) -> (Duration, Duration) {
    let Some(ThreadReading { number, times, .. }) = this_thread(now) else { return Default::default() };
    let at = before.threads.binary_search_by_key(&number, |(number, _)| *number).ok();
    // A thread that is not in the sample has started since.
    let then = at.and_then(|at| before.threads.get(at)).map(|(_, then)| *then).unwrap_or_default();
    let since = |now: u64, then: u64| Duration::from_nanos(now.saturating_sub(then));
    (since(times.ran_ns, then.ran_ns), since(times.waited_ns, then.waited_ns))
}

fn read_threads() -> Vec<(u64, ThreadTimes)> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let threads = entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        Some((number, parse_thread(&text)?))
    });
    let mut threads: Vec<_> = threads.collect();
    threads.sort_unstable_by_key(|(number, _)| *number);
    threads
}

/// Returns the busy and the stolen ticks of all processors. The first line is
/// `cpu user nice system idle iowait irq softirq steal guest guest_nice`; user and nice include the
/// guests.
fn parse_machine(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, stolen, ..] = ticks[..] else { return None };
    Some((user + nice + system + irq + softirq, stolen))
}

/// Returns minor and major faults: the 10th and the 12th field. The process name, which may contain
/// any character, ends with the last parenthesis.
fn parse_faults(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    let minor = fields.nth(7)?.parse().ok()?;
    Some((minor, fields.nth(1)?.parse().ok()?))
}

/// Parses `ran waited slices`.
fn parse_thread(text: &str) -> Option<ThreadTimes> {
    let mut numbers = text.split_whitespace();
    let ran_ns = numbers.next()?.parse().ok()?;
    Some(ThreadTimes { ran_ns, waited_ns: numbers.next()?.parse().ok()? })
}

fn ticks(count: u64) -> Duration {
    TICK.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_texts_are_understood() {
        let machine = "cpu  10 2 30 400 5 6 7 80 9 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(parse_machine(machine), Some((55, 80)));
        let process = "7 (a) b) S 1 2 3 4 5 4194560 111 222 333 444 5 6";
        assert_eq!(parse_faults(process), Some((111, 333)));
        assert_eq!(parse_thread("5 6 7\n"), Some(ThreadTimes { ran_ns: 5, waited_ns: 6 }));
        assert_eq!((parse_machine("cpu 1"), parse_faults("x"), parse_thread("1")), (None, None, None));
    }

    #[test]
    fn time_of_a_busy_thread_counts_as_computing() {
        let history = ConditionHistory::default();
        history.count_evictions(|| 7);
        assert_eq!(history.since(clock::monotonic()), Conditions::default(), "no sample yet");
        history.sample();
        let began_at = clock::monotonic();
        let mut number = 0_u64;
        while began_at.elapsed() < Duration::from_millis(30) {
            number = std::hint::black_box(number.wrapping_mul(31) + 1);
        }
        let conditions = history.since(began_at);
        assert!(conditions.window >= Duration::from_millis(30), "{conditions:?}");
        let (computed, waited) = conditions.divide(Duration::from_millis(30));
        assert!(computed > Duration::ZERO, "{conditions:?}");
        assert!(computed + waited >= Duration::from_millis(25), "{conditions:?}");
        assert_eq!(conditions.evictions, 0);
    }

    #[test]
    fn unexplained_time_is_divided_as_the_window_was() {
        let ms = Duration::from_millis;
        let conditions = Conditions { thread_ran: ms(100), thread_waited: ms(300), ..Conditions::default() };
        assert_eq!(conditions.divide(ms(200)), (ms(50), ms(150)));
        assert_eq!(conditions.divide(ms(1000)), (ms(100), ms(300)), "no more than there was");
        assert_eq!(Conditions::default().divide(ms(5)), (ms(0), ms(0)));
    }
}
