//! [`Waits`]: a request's time, by cause.
//!
//! # How a wait finds its request
//! A thread runs one request at a time. So a component that makes its thread wait notes the wait
//! for the thread ([`note`], [`time`]), and the end of the request takes what the thread has noted
//! ([`take`]). The components below RPC need no reference to the request, and a request without
//! waits pays one comparison. A request that moves to another thread takes its waits along and
//! [adds](Waits::add) those of the next thread.
//!
//! # What is counted
//! Occasional long waits are timed: reading a block, a contended lock, the log. Decoding, encoding
//! and writes to the MemStore are timed for large requests ([`time_if`]), and so are single calls
//! of a filter that take long. When a slow request is kept, the remaining time is divided by the
//! kernel's accounting of its thread ([`conditions`](crate::conditions)) into computing and waiting
//! for a processor. [`Cause::Unexplained`] is the rest: waits that are not timed.
//!
//! Reads compute in many short phases, so a scan only samples them: it notes for some intervals how
//! long the filter and the MemStore took ([`note_sample`]). The computing of a kept request is
//! divided in the proportions of its samples ([`Waits::divide_computing`]).
//!
//! # Requests of several parts
//! A batch of writes is one request with several parts, which end on other threads. [`PartTimer`]
//! measures a thread that starts parts. The waits of the last part are added for the time since
//! then, which [`Waits::limit`] enforces.
//!
//! A read that took [`SLOW_READ`] is noted with its file ([`note_read`]), and the longest of a
//! thread is [kept](slowest_read) for the next request that ends on it.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use evenkeel_common::{clock, length};

use crate::activity::{self, ActivityKind};
use crate::is_on;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// From the last byte of the request until a thread began to run it: other calls of the
    /// connection's thread, or a handler queue.
    Thread,
    /// The row lock.
    RowLock,
    /// The region's lock, held by a flush or a close.
    RegionLock,
    /// Reading a block from a file, including its checksum, by this thread or another one.
    BlockRead,
    /// Decompressing a block.
    Decompress,
    /// Memory for a large block outside of the caches, while other readers have all of it.
    BlockMemory,
    /// Space in the log's queue.
    LogQueue,
    /// The log: the group commit that makes the write durable, and the writes before it.
    LogSync,
    /// Earlier writes of the region, which a read-modify-write must see.
    EarlierWrites,
    /// The write throttle, which delays replies while MemStores are full.
    Throttle,
    /// The client, until it reads its reply from the socket.
    Socket,
    /// A processor, while other processes, threads of this one, or the hypervisor use it.
    Processor,
    /// No wait: a request of many bytes was decoded.
    Decode,
    /// No wait: cells were added to the MemStore, or read from it.
    MemStore,
    /// No wait: the filter decided about rows and cells.
    Filter,
    /// No wait: a reply of many bytes was encoded or compressed.
    Encode,
    /// No wait: the request computed, for other things than these.
    Computing,
    /// Time without a known cause.
    Unexplained,
}

impl Cause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Self; 18] = [
        Self::Thread,
        Self::RowLock,
        Self::RegionLock,
        Self::BlockRead,
        Self::Decompress,
        Self::BlockMemory,
        Self::LogQueue,
        Self::LogSync,
        Self::EarlierWrites,
        Self::Throttle,
        Self::Socket,
        Self::Processor,
        Self::Decode,
        Self::MemStore,
        Self::Filter,
        Self::Encode,
        Self::Computing,
        Self::Unexplained,
    ];

    /// Returns its name in metrics and pages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::RowLock => "rowLock",
            Self::RegionLock => "regionLock",
            Self::BlockRead => "blockRead",
            Self::Decompress => "decompress",
            Self::BlockMemory => "blockMemory",
            Self::LogQueue => "logQueue",
            Self::LogSync => "logSync",
            Self::EarlierWrites => "earlierWrites",
            Self::Throttle => "throttle",
            Self::Socket => "socket",
            Self::Processor => "processor",
            Self::Decode => "decode",
            Self::MemStore => "memStore",
            Self::Filter => "filter",
            Self::Encode => "encode",
            Self::Computing => "computing",
            Self::Unexplained => "unexplained",
        }
    }
}

/// Phases of computing in sampled intervals, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComputingSample {
    /// All computing of the intervals.
    pub total_ns: u64,
    /// The calls of the filter.
    pub filter_ns: u64,
    /// Reading cells from the MemStore.
    pub memstore_ns: u64,
}

impl ComputingSample {
    const NONE: Self = Self { total_ns: 0, filter_ns: 0, memstore_ns: 0 };

    fn add(&mut self, other: &Self) {
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.filter_ns = self.filter_ns.saturating_add(other.filter_ns);
        self.memstore_ns = self.memstore_ns.saturating_add(other.memstore_ns);
    }
}

/// The time that went to each cause, and samples of what the request computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// By cause, in nanoseconds.
    times: [u64; Cause::ALL.len()],
    sample: ComputingSample,
}

impl Waits {
    /// No time.
    pub const NONE: Self = Self { times: [0; Cause::ALL.len()], sample: ComputingSample::NONE };

    /// Adds time to a cause.
    pub fn note(&mut self, cause: Cause, time: Duration) {
        if let Some(sum) = self.times.get_mut(cause as usize) {
            *sum = sum.saturating_add(nanos(time));
        }
    }

    /// Adds the times and the samples of another value.
    pub fn add(&mut self, other: &Self) {
        self.times.iter_mut().zip(other.times).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        self.sample.add(&other.sample);
    }

    /// Adds computing time: to the filter and the MemStore in the proportions of the samples, and
    /// the rest to [`Cause::Computing`]. The samples are used up.
    pub fn divide_computing(&mut self, computed: Duration) {
        let ComputingSample { total_ns, filter_ns, memstore_ns } = std::mem::take(&mut self.sample);
        let share = |part_ns: u64| match total_ns {
            0 => Duration::ZERO,
            _ => computed.mul_f64(part_ns.min(total_ns) as f64 / total_ns as f64),
        };
        let (filter, memstore) = (share(filter_ns), share(memstore_ns));
        self.note(Cause::Filter, filter);
        self.note(Cause::MemStore, memstore);
        self.note(Cause::Computing, computed.saturating_sub(filter + memstore));
    }

    /// Reduces all times in proportion until their sum is at most `time`.
    pub fn limit(&mut self, time: Duration) {
        let (sum, max) = (nanos(self.sum()), nanos(time));
        if sum > max {
            let share = max as f64 / sum as f64;
            self.times.iter_mut().for_each(|time| *time = length::whole(*time as f64 * share));
        }
    }

    /// Returns the time of a cause.
    pub fn of(&self, cause: Cause) -> Duration {
        Duration::from_nanos(self.times.get(cause as usize).copied().unwrap_or(0))
    }

    /// Returns the time of all causes.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.times.iter().fold(0, |sum, more| sum.saturating_add(*more)))
    }

    /// Returns the causes with a nonzero time, the longest first.
    pub fn by_length(&self) -> Vec<(Cause, Duration)> {
        let mut all: Vec<_> = Cause::ALL.iter().map(|&cause| (cause, self.of(cause))).collect();
        all.retain(|(_, time)| !time.is_zero());
        all.sort_by_key(|&(_, time)| std::cmp::Reverse(time));
        all
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// [`Waits`] whose numbers change one by one, because a wait is noted for each write.
struct NotedWaits {
    times: [Cell<u64>; Cause::ALL.len()],
    sample: Cell<ComputingSample>,
}

impl NotedWaits {
    const fn new() -> Self {
        let times = [const { Cell::new(0) }; Cause::ALL.len()];
        Self { times, sample: Cell::new(ComputingSample::NONE) }
    }

    fn read(&self) -> Waits {
        Waits {
            times: std::array::from_fn(|at| self.times.get(at).map_or(0, Cell::get)),
            sample: self.sample.get(),
        }
    }

    fn clear(&self) {
        self.times.iter().for_each(|time| time.set(0));
        self.sample.set(ComputingSample::NONE);
    }
}

thread_local! {
    static NOTED: NotedWaits = const { NotedWaits::new() };
    /// Whether `NOTED` has a nonzero number.
    static HAS_NOTED: Cell<bool> = const { Cell::new(false) };
    /// All times that were noted, which nobody takes.
    static ALL_NOTED_NS: Cell<u64> = const { Cell::new(0) };
}

/// Notes a wait of this thread's request.
pub fn note(cause: Cause, time: Duration) {
    if !is_on() {
        return;
    }
    let ns = nanos(time);
    NOTED.with(|noted| {
        if let Some(sum) = noted.times.get(cause as usize) {
            sum.set(sum.get().saturating_add(ns));
        }
    });
    ALL_NOTED_NS.set(ALL_NOTED_NS.get().wrapping_add(ns));
    HAS_NOTED.set(true);
}

/// Reads that take at least this long are noted with their file.
pub const SLOW_READ: Duration = Duration::from_millis(5);

/// A slow read of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRead {
    /// The file.
    pub file: String,
    /// How long it took.
    pub took: Duration,
    ended_at: Instant,
}

thread_local!(static SLOWEST_READ: RefCell<Option<SlowRead>> = const { RefCell::new(None) });

/// Notes that this thread read a block of `file`, from `began_at` until now.
pub fn note_read(file: &str, began_at: Instant, took: Duration) {
    note(Cause::BlockRead, took);
    if is_on() && took >= SLOW_READ {
        note_slow_read(file, began_at, took);
    }
}

#[cold]
fn note_slow_read(file: &str, began_at: Instant, took: Duration) {
    activity::note(ActivityKind::SlowRead, file, began_at);
    SLOWEST_READ.with_borrow_mut(|slowest| {
        if slowest.as_ref().is_none_or(|other| other.took < took) {
            *slowest = Some(SlowRead { file: file.to_owned(), took, ended_at: began_at + took });
        }
    });
}

/// Takes the longest noted read of this thread if it ended after `since`; an earlier one belongs to
/// another request.
pub fn slowest_read(since: Instant) -> Option<SlowRead> {
    SLOWEST_READ.take().filter(|read| read.ended_at >= since)
}

thread_local! {
    /// What parts of this thread's request have taken, while a [`PartTimer`] exists.
    static PARTS: Cell<Option<Waits>> = const { Cell::new(None) };
}

/// Takes what this thread has noted, for a part of its request that continues elsewhere. If a
/// [`PartTimer`] measures the thread, the timer gets it and the part nothing, so that it counts
/// once.
#[inline]
pub fn take_part() -> Option<Waits> {
    let noted = take()?;
    match PARTS.get() {
        None => Some(noted),
        Some(mut parts) => {
            parts.add(&noted);
            PARTS.set(Some(parts));
            None
        }
    }
}

/// Measures a thread that starts the parts of one request.
#[derive(Debug)]
pub struct PartTimer {
    /// What the request waited for before, on this thread.
    before: Option<Waits>,
    began_at: Instant,
    ran_before: Duration,
}

impl PartTimer {
    /// Starts now.
    pub fn start() -> Self {
        let before = take();
        PARTS.set(Some(Waits::NONE));
        Self { before, began_at: clock::monotonic(), ran_before: clock::thread_ran() }
    }

    /// Ends now: returns the time of the request until now on this thread, by cause, and when it
    /// ended. The time that the thread ran counts as computing.
    pub fn end(self) -> (Waits, Instant) {
        let now = clock::monotonic();
        let mut waits = PARTS.take().unwrap_or(Waits::NONE);
        if let Some(noted) = take() {
            waits.add(&noted);
        }
        let without_wait = now.saturating_duration_since(self.began_at).saturating_sub(waits.sum());
        let ran = clock::thread_ran().saturating_sub(self.ran_before);
        waits.divide_computing(without_wait.min(ran));
        if let Some(before) = &self.before {
            waits.add(before);
        }
        (waits, now)
    }
}

impl Drop for PartTimer {
    fn drop(&mut self) {
        PARTS.set(None);
    }
}

/// Runs a callback that belongs to another request than this thread runs, or to none: the waits
/// that it notes are dropped afterwards, and this thread's are kept.
pub fn aside<T>(callback: impl FnOnce() -> T) -> T {
    let own = take();
    let result = callback();
    take();
    if let Some(own) = &own {
        note_all(own);
    }
    result
}

/// Notes waits that another thread recorded.
pub fn note_all(waits: &Waits) {
    if !is_on() {
        return;
    }
    NOTED.with(|noted| {
        let each = noted.times.iter().zip(waits.times).filter(|(_, more)| *more > 0);
        each.for_each(|(sum, more)| sum.set(sum.get().saturating_add(more)));
        let mut sample = noted.sample.get();
        sample.add(&waits.sample);
        noted.sample.set(sample);
    });
    HAS_NOTED.set(true);
}

/// Notes a sample of what this thread's request computes.
pub fn note_sample(sample: ComputingSample) {
    if is_on() {
        note_all(&Waits { sample, ..Waits::NONE });
    }
}

/// Returns the time that this thread has noted so far, for all requests, in nanoseconds.
pub fn noted_ns() -> u64 {
    ALL_NOTED_NS.get()
}

/// As [`time`] if `is_large`: work that is always short is not worth two readings of the clock.
#[inline]
pub fn time_if<T>(is_large: bool, cause: Cause, work: impl FnOnce() -> T) -> T {
    if is_large { time(cause, work) } else { work() }
}

/// Notes the time that `work` takes.
pub fn time<T>(cause: Cause, work: impl FnOnce() -> T) -> T {
    if !is_on() {
        return work();
    }
    let timer = Timer::start(cause);
    let result = work();
    drop(timer);
    result
}

/// Takes what this thread has noted since the last call.
#[inline]
pub fn take() -> Option<Waits> {
    if !HAS_NOTED.get() {
        return None;
    }
    HAS_NOTED.set(false);
    Some(NOTED.with(|noted| {
        let waits = noted.read();
        noted.clear();
        waits
    }))
}

/// Notes the time from its creation until it is dropped.
#[derive(Debug)]
pub struct Timer {
    cause: Cause,
    began_at: Instant,
}

impl Timer {
    /// Starts now.
    pub fn start(cause: Cause) -> Self {
        Self { cause, began_at: clock::monotonic() }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        note(self.cause, clock::since(self.began_at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_takes_what_its_thread_noted() {
        assert_eq!(take(), None);
        note(Cause::BlockRead, Duration::from_millis(3));
        note(Cause::BlockRead, Duration::from_millis(4));
        note(Cause::RowLock, Duration::from_millis(1));
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(take(), None, "another thread's")).join().unwrap();
        });
        let waits = take().unwrap();
        assert_eq!(waits.of(Cause::BlockRead), Duration::from_millis(7));
        assert_eq!(waits.sum(), Duration::from_millis(8));
        assert_eq!(waits.by_length()[1], (Cause::RowLock, Duration::from_millis(1)));
        assert_eq!(take(), None);
    }

    #[test]
    fn computing_is_divided_as_its_samples_were() {
        let ms = Duration::from_millis;
        let mut unsampled = Waits::NONE;
        unsampled.divide_computing(ms(8));
        assert_eq!(unsampled.by_length(), [(Cause::Computing, ms(8))]);
        note_sample(ComputingSample { total_ns: 50, filter_ns: 30, memstore_ns: 0 });
        note_sample(ComputingSample { total_ns: 50, filter_ns: 20, memstore_ns: 25 });
        let mut waits = take().expect("samples");
        assert_eq!(waits.sum(), Duration::ZERO, "a sample is no time");
        waits.note(Cause::Filter, ms(1));
        waits.divide_computing(ms(8));
        let expected = [(Cause::Filter, ms(5)), (Cause::MemStore, ms(2)), (Cause::Computing, ms(2))];
        assert_eq!(waits.by_length(), expected);
    }

    #[test]
    fn the_parts_of_a_request_count_once() {
        let ms = Duration::from_millis;
        note(Cause::Thread, ms(50));
        let timer = PartTimer::start();
        note(Cause::RowLock, ms(1));
        assert_eq!(take_part(), None, "the timer has it");
        note(Cause::LogQueue, ms(2));
        // A write of another request ends on this thread.
        aside(|| note(Cause::LogSync, ms(70)));
        assert_eq!(take_part(), None);
        note(Cause::BlockRead, ms(3));
        let began_at = clock::monotonic();
        while began_at.elapsed() < ms(20) {
            std::hint::black_box(());
        }
        let (waits, _) = timer.end();
        let causes = [Cause::Thread, Cause::RowLock, Cause::LogQueue, Cause::BlockRead, Cause::LogSync];
        assert_eq!(causes.map(|cause| waits.of(cause)), [ms(50), ms(1), ms(2), ms(3), ms(0)]);
        assert!(waits.of(Cause::Computing) > ms(0) && waits.sum() >= ms(56), "{waits:?}");
        note(Cause::RowLock, ms(1));
        assert_eq!(take_part().map(|part| part.sum()), Some(ms(1)), "no timer exists");
    }

    #[test]
    fn waits_are_limited_in_proportion() {
        let ms = Duration::from_millis;
        let mut waits = Waits::NONE;
        waits.note(Cause::Thread, ms(30));
        waits.note(Cause::LogSync, ms(10));
        waits.limit(ms(40));
        assert_eq!(waits.sum(), ms(40));
        waits.limit(ms(20));
        assert_eq!((waits.of(Cause::Thread), waits.of(Cause::LogSync)), (ms(15), ms(5)));
    }

    #[test]
    fn only_large_work_is_timed() {
        let slow = || std::thread::sleep(Duration::from_millis(2));
        let before = noted_ns();
        time_if(false, Cause::Decode, slow);
        assert_eq!((noted_ns() - before, take()), (0, None));
        time_if(true, Cause::Decode, slow);
        assert!(noted_ns() - before >= 2_000_000);
        assert!(take().is_some_and(|waits| waits.of(Cause::Decode) == waits.sum()));
    }

    #[test]
    fn the_slowest_read_is_reported_with_its_file() {
        let before = clock::monotonic();
        note_read("fast", before, SLOW_READ / 2);
        assert_eq!(slowest_read(before), None);
        for (file, times) in [("a", 1), ("b", 3), ("c", 2)] {
            note_read(file, before, SLOW_READ * times);
        }
        let read = slowest_read(before).unwrap();
        assert_eq!((read.file.as_str(), read.took), ("b", SLOW_READ * 3));
        assert_eq!(slowest_read(before), None, "it was taken");
        note_read("a", before, SLOW_READ);
        assert_eq!(slowest_read(before + 2 * SLOW_READ), None, "it was before");
        assert_eq!(take().unwrap().of(Cause::BlockRead), SLOW_READ * 15 / 2);
    }

    #[test]
    fn cause_numbers_match_their_order() {
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, number);
        }
    }
}
