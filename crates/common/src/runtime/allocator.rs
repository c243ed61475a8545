//! The system's allocator, with an estimate of the time it takes: the counterpart of a garbage
//! collector's time.
//!
//! [`SampledAllocator`] passes every call on to [`System`] and times some of them. It counts the
//! time within `malloc`, `calloc`, `realloc` and `free`, including waits for their locks, page
//! faults and system calls. It does not count page faults on the first use of allocated memory, nor
//! memory that is mapped otherwise, such as that of caches.
//!
//! **Sampling.** Each thread counts down a random gap of 1 to 255 calls and times the call at which
//! the gap ends. That sample stands for all calls of the gap. Every gap is drawn independently, so
//! that no pattern of calls can coincide with the samples. Calls of [`LARGE_BYTES`] and more are
//! rare, and one may take as long as thousands of small ones: each is timed and stands for itself.
//!
//! **Error.** The count of calls is exact except for the last calls of each thread, fewer than 256.
//! The time of `n` small calls has a relative standard error of about `18 / sqrt(n)` (2 % for a
//! million) if their standard deviation equals their mean. The cost of a clock read is measured
//! beside each sample and subtracted. A few nanoseconds per call remain in either direction,
//! because processors execute out of order. (Where `malloc` and `free` take 4 ns each, in a tight
//! loop, the estimate is 2 ns; where they take 35 ns, it is 31 to 39 ns.) The clock measures
//! elapsed time, not CPU time: a call longer than its bound (`longest_ns`) belongs to a preempted
//! thread and counts as the bound. The clock read beside it is preempted equally often.
//!
//! **Cost.** An untimed call compares its size and decrements a thread-local counter: 7 to 12
//! instructions, no atomic operation, no memory shared with other threads. A timed call reads the
//! clock four times (the first read warms the instruction cache) and adds to two counters shared by
//! all threads: 0.1 to 0.2 µs. The average over all calls is 1 to 2 ns.
//!
//! A process that [shares](share) the counters lets other processes read them at no cost to itself,
//! as a JVM does for `jstat`: `allocator/shared.rs` has the format.

#![allow(unsafe_code)]

mod shared;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::clock;

pub use shared::SharedStats;

/// Each call for at least this many bytes is timed. Below the size from which `malloc` maps memory
/// (128 KiB).
pub const LARGE_BYTES: usize = 64 << 10;
/// A sample stands for 1 to `GAP_MAX` calls.
const GAP_MAX: u32 = 255;
/// The longest time of a small call that is not preempted, for example one that returns the end of
/// the heap to the kernel.
const SMALL_NS_MAX: u64 = 20_000;

/// The number of calls to the allocator and the time they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorStats {
    /// Nanoseconds within the allocator, over all threads.
    pub ns: u64,
    /// Calls that allocated, resized or freed memory.
    pub calls: u64,
}

impl AllocatorStats {
    /// The difference to an earlier reading.
    pub fn since(self, before: Self) -> Self {
        Self { ns: self.ns.saturating_sub(before.ns), calls: self.calls.saturating_sub(before.calls) }
    }
}

/// The counters of this process; zero unless [`SampledAllocator`] is its global allocator.
pub fn stats() -> AllocatorStats {
    counters().stats()
}

/// Lets other processes of this machine read the counters from now on ([`SharedStats`]), at no cost
/// to this process. Does nothing on systems other than Linux, or when called again.
///
/// # Errors
/// The error of `memfd_create(2)`, `fcntl(2)` or `mmap(2)`.
pub fn share() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if std::ptr::eq(counters(), &PROCESS_COUNTERS) {
        let page = shared::page()?;
        COUNTERS.store(page, Ordering::Release);
        // An addition of a concurrent thread to the old counters may be lost.
        counters().add(
            PROCESS_COUNTERS.ns.swap(0, Ordering::Relaxed),
            PROCESS_COUNTERS.calls.swap(0, Ordering::Relaxed),
        );
    }
    Ok(())
}

/// Blocks of at least this size are mapped separately, so they go back to the system when they are
/// freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES_MIN: libc::c_int = 256 << 10;
/// Free memory at the end of a heap above this size goes back to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAP_END_BYTES_MAX: libc::c_int = 1 << 20;

/// Minimum number of heaps of the allocator, which is otherwise the number of processors. HBase's
/// `bin/hbase-config.sh` sets the same number (`MALLOC_ARENA_MAX`).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const HEAPS_MIN: usize = 4;

/// Keeps large blocks out of the heaps, and the number of heaps small. By default glibc moves the
/// limit between the two up to 32 MiB when large blocks are freed. From then on requests and
/// replies of megabytes lie between small blocks in one of up to eight heaps for each processor,
/// and each heap keeps what it had at its peak. With a fixed limit that holds only for smaller
/// blocks, in one heap for each processor, at least [`HEAPS_MIN`]. `MALLOC_ARENA_MAX` in the
/// environment takes precedence.
///
/// A large block costs its page faults each time; buffers that are needed often are pooled. Must be
/// called once, before threads allocate. Does nothing if the system's allocator is not glibc's.
pub fn keep_large_blocks_out_of_heaps() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let heaps = libc::c_int::try_from(processors.max(HEAPS_MIN)).unwrap_or(libc::c_int::MAX);
        // SAFETY: `mallopt` takes only numbers.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
            libc::mallopt(libc::M_TRIM_THRESHOLD, HEAP_END_BYTES_MAX);
            if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
                libc::mallopt(libc::M_ARENA_MAX, heaps);
            }
        };
    }
}

/// Returns the free memory of the heap to the system, including free pages between allocated
/// blocks. Locks the allocator's arenas in turn, each for as long as its free lists are walked.
/// Does nothing if the system's allocator is not glibc's.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` takes only a number, and touches only memory that the allocator has
    // free.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// [`System`] with sampled call times. See the [module](self).
#[derive(Debug)]
pub struct SampledAllocator;

// SAFETY: every call is passed on to the system's allocator unchanged. Counting allocates nothing
// and touches no memory that the allocator hands out. Nothing here unwinds: the clock and the
// thread-local counters exist as long as the thread.
unsafe impl GlobalAlloc for SampledAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are System's.
        sampled(layout.size(), move || unsafe { System.alloc(layout) })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are System's.
        sampled(layout.size(), move || unsafe { System.alloc_zeroed(layout) })
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's promises are System's.
        sampled(layout.size().max(bytes), move || unsafe { System.realloc(pointer, layout, bytes) })
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are System's.
        sampled(layout.size(), move || unsafe { System.dealloc(pointer, layout) })
    }
}

#[inline]
fn sampled<T>(bytes: usize, call: impl FnOnce() -> T) -> T {
    let is_counted_down = || SAMPLER.try_with(Sampler::count_down).unwrap_or(true);
    if bytes < LARGE_BYTES && is_counted_down() { call() } else { timed(bytes, call) }
}

/// The number of calls that a timed call stands for: all since the previous sample, or 1 if it is
/// large.
fn weight(bytes: usize) -> u32 {
    if bytes < LARGE_BYTES { SAMPLER.try_with(Sampler::next_gap).unwrap_or(0) } else { 1 }
}

/// The longest time of a call that is not preempted. Its memory is mapped and unmapped by pages, at
/// no more than 0.1 µs a page.
fn longest_ns(bytes: usize) -> u64 {
    SMALL_NS_MAX + bytes as u64 / 16
}

#[cold]
#[inline(never)]
fn timed<T>(bytes: usize, call: impl FnOnce() -> T) -> T {
    let (weight, longest_ns) = (weight(bytes), longest_ns(bytes));
    black_box(clock::monotonic());
    let before = clock::monotonic();
    let start = clock::monotonic();
    let answer = call();
    let end = clock::monotonic();
    let bounded = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(longest_ns) as i64;
    let ns = bounded(end.duration_since(start)) - bounded(start.duration_since(before));
    counters().add(ns * i64::from(weight), u64::from(weight));
    answer
}

thread_local! {
    static SAMPLER: Sampler = const { Sampler { left: Cell::new(0), gap: Cell::new(0), random: Cell::new(0) } };
}

/// Decides which calls of a thread are timed. It has no destructor, so it is usable until the
/// thread's last call.
struct Sampler {
    /// Untimed calls before the next timed one.
    left: Cell<u32>,
    /// The number of calls that the next timed one stands for.
    gap: Cell<u32>,
    random: Cell<u32>,
}

impl Sampler {
    /// Counts a call. Returns true if it is not timed.
    #[inline]
    fn count_down(&self) -> bool {
        let left = self.left.get();
        if left > 0 {
            self.left.set(left - 1);
        }
        left > 0
    }

    /// Begins the next gap. Returns the length of the previous one, 0 at first.
    fn next_gap(&self) -> u32 {
        let gap = 1 + (self.next_random() >> 8) % GAP_MAX;
        self.left.set(gap - 1);
        self.gap.replace(gap)
    }

    /// Marsaglia's xorshift, with a different seed on each thread.
    fn next_random(&self) -> u32 {
        static SEEDS: AtomicU32 = AtomicU32::new(1);
        let mut random = match self.random.get() {
            0 => SEEDS.fetch_add(0x9e37_79b8, Ordering::Relaxed),
            random => random,
        };
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        self.random.set(random);
        random
    }
}

/// The sums over all threads, in the layout that other processes read.
#[repr(C)]
#[derive(Debug)]
struct Counters {
    magic: AtomicU64,
    ns: AtomicI64,
    calls: AtomicU64,
}

/// The counters until they are shared.
static PROCESS_COUNTERS: Counters =
    Counters { magic: AtomicU64::new(0), ns: AtomicI64::new(0), calls: AtomicU64::new(0) };
/// Points to the counters in use.
static COUNTERS: AtomicPtr<Counters> = AtomicPtr::new((&raw const PROCESS_COUNTERS).cast_mut());

#[inline]
fn counters() -> &'static Counters {
    // SAFETY: the pointer refers to a static or to a mapping that lasts as long as the process.
    // Both hold counters that are accessed only as atomics.
    unsafe { &*COUNTERS.load(Ordering::Acquire) }
}

impl Counters {
    fn add(&self, ns: i64, calls: u64) {
        self.ns.fetch_add(ns, Ordering::Relaxed);
        self.calls.fetch_add(calls, Ordering::Relaxed);
    }

    fn stats(&self) -> AllocatorStats {
        AllocatorStats {
            ns: self.ns.load(Ordering::Relaxed).max(0) as u64,
            calls: self.calls.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_gaps_are_uniform_around_their_mean() {
        let sampler = Sampler { left: Cell::new(0), gap: Cell::new(0), random: Cell::new(0) };
        assert!(!sampler.count_down());
        assert_eq!(sampler.next_gap(), 0, "the first call of a thread stands for none");
        let (mut seen, mut last) = ([0_u32; GAP_MAX as usize + 1], 0);
        const CALLS: u32 = 4_000_000;
        for call in 1..=CALLS {
            if !sampler.count_down() {
                let gap = sampler.next_gap();
                assert_eq!(gap, call - last, "it stands for the calls since the last one");
                (seen[gap as usize], last) = (seen[gap as usize] + 1, call);
            }
        }
        assert!(CALLS - last < GAP_MAX);
        assert_eq!(seen[0], 0);
        // 31,250 samples are expected, 123 of each length; six standard deviations.
        assert!((30_600..31_900).contains(&seen.iter().sum::<u32>()), "{seen:?}");
        assert!(seen[1..].iter().all(|count| (55..195).contains(count)), "{seen:?}");
    }

    #[test]
    fn threads_sample_at_different_gaps() {
        let gaps =
            || std::thread::spawn(|| SAMPLER.with(|sampler| [(); 16].map(|()| sampler.next_gap())).to_vec());
        let [a, b] = [gaps(), gaps()].map(|thread| thread.join().expect("no panic"));
        assert_ne!(a, b);
    }

    #[test]
    fn a_thread_without_its_processor_counts_as_the_bound() {
        assert_eq!((longest_ns(64), longest_ns(64 << 20)), (20_004, 4_214_304));
        const BYTES: usize = 16 << 20;
        let bound_ns = longest_ns(BYTES) as i64;
        let counted = || (counters().ns.load(Ordering::Relaxed), counters().calls.load(Ordering::Relaxed));
        let once = || {
            let before = counted();
            timed(BYTES, || std::thread::sleep(Duration::from_nanos(2 * bound_ns as u64)));
            let after = counted();
            assert_eq!(after.1 - before.1, 1);
            after.0 - before.0
        };
        // The cost of the clock read beside it is subtracted, which is small unless that read was
        // preempted, too.
        let of_many = (0..20).map(|_| once()).max();
        assert!(of_many.is_some_and(|ns| (bound_ns - bound_ns / 10..bound_ns).contains(&ns)), "{of_many:?}");
    }
}
