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
//! Only occasional long waits are timed: reading a block, a contended lock, the log. When a slow
//! request is kept, the remaining time is divided by the kernel's accounting of its thread
//! ([`conditions`](crate::conditions)) into computing and waiting for a processor.
//! [`Cause::Unexplained`] is the rest: waits that are not timed.
//!
//! A read that took [`SLOW_READ`] is noted with its file ([`note_read`]), and the longest of a
//! thread is [kept](slowest_read) for the next request that ends on it.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use evenkeel_common::clock;

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
    /// No wait: the request computed. Includes decoding, MemStore, filters and encoding the reply.
    Computing,
    /// Time without a known cause.
    Unexplained,
}

impl Cause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Self; 14] = [
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
            Self::Computing => "computing",
            Self::Unexplained => "unexplained",
        }
    }
}

/// The time that went to each cause, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits([u64; Cause::ALL.len()]);

impl Waits {
    /// No time.
    pub const NONE: Self = Self([0; Cause::ALL.len()]);

    /// Adds time to a cause.
    pub fn note(&mut self, cause: Cause, time: Duration) {
        if let Some(sum) = self.0.get_mut(cause as usize) {
            *sum = sum.saturating_add(nanos(time));
        }
    }

    /// Adds the times of another value.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }

    /// Returns the time of a cause.
    pub fn of(&self, cause: Cause) -> Duration {
        Duration::from_nanos(self.0.get(cause as usize).copied().unwrap_or(0))
    }

    /// Returns the time of all causes.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.0.iter().fold(0, |sum, more| sum.saturating_add(*more)))
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

thread_local! {
    static NOTED: Cell<Waits> = const { Cell::new(Waits::NONE) };
    /// Whether `NOTED` has a nonzero time.
    static HAS_NOTED: Cell<bool> = const { Cell::new(false) };
}

/// Notes a wait of this thread's request.
pub fn note(cause: Cause, time: Duration) {
    if !is_on() {
        return;
    }
    let mut noted = NOTED.get();
    noted.note(cause, time);
    NOTED.set(noted);
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

/// Notes waits that another thread recorded.
pub fn note_all(waits: &Waits) {
    if !is_on() {
        return;
    }
    let mut noted = NOTED.get();
    noted.add(waits);
    NOTED.set(noted);
    HAS_NOTED.set(true);
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
    Some(NOTED.replace(Waits::NONE))
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
