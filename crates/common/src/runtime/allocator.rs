//! The system's allocator, with an estimate of the time that it takes: what stands beside the time of a garbage collector.
//!
//! [`SampledAllocator`] passes every call on to [`System`] and times some of them. What is counted is the time within
//! `malloc`, `calloc`, `realloc` and `free`, waits for their locks, page faults and calls of the kernel in them included. The page
//! faults of whoever first touches what it was given are not, nor is memory that is mapped otherwise, as that of caches.
//!
//! **Which calls.** A thread counts its calls down and times the one at which it comes to zero, which stands for as many as it
//! counted. How many that is, is drawn anew each time, from 1 to 255, so that no pattern of calls meets the samples. Calls of
//! [`LARGE_BYTES`] and more are few, and one of them may take as long as thousands of small ones: each of them is timed and
//! stands for itself.
//!
//! **Error.** Calls are counted exactly, but for less than 256 of each thread, the last. The time of `n` small calls has a relative
//! standard error of about `18 / sqrt(n)`, 2 % for a million, when they scatter by as much as their mean. What a look at
//! the clock takes is measured beside each sample and taken off; what is left of it, for a processor does not do one thing
//! after the other, is some nanoseconds a call either way. (Where `malloc` and `free` take 4 ns each, in a loop of nothing
//! else, the estimate is 2; where they take 35, it is 31 to 39.) Clocks tell time, not CPU: a call longer than its bound
//! (`longest_ns`) is one of a thread that lost its processor meanwhile, and counts as the bound; that befalls the look
//! beside it as often.
//!
//! **Cost.** A call that is not timed compares its size and counts a number of its thread down: seven to a dozen instructions, no
//! atomic operation, no memory of other threads. One that is timed looks at the clock four times (the first brings its code
//! near) and adds to two numbers that all threads share, 0.1 to 0.2 µs; both together are 1 to 2 ns a call.
//!
//! A process that [shares](share) the sums lets others read them without its doing, as a JVM does with its counters for
//! `jstat`: `allocator/shared.rs` has the form.

#![allow(unsafe_code)]

mod shared;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use shared::SharedStats;

/// Each call for so many bytes is timed. Below what `malloc` asks the kernel for by itself (128 KiB).
pub const LARGE_BYTES: usize = 64 << 10;
/// A sample stands for 1 to so many calls.
const GAP_MAX: u32 = 255;
/// The longest that a small call takes on a processor of its own, as when it gives the end of the heap back to the kernel.
const SMALL_NS_MAX: u64 = 20_000;

/// What the allocator has done up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocatorStats {
    /// Nanoseconds, of all threads.
    pub ns: u64,
    /// Calls that asked for memory, changed it or gave it back.
    pub calls: u64,
}

impl AllocatorStats {
    /// What it has done since then.
    pub fn since(self, before: Self) -> Self {
        Self { ns: self.ns.saturating_sub(before.ns), calls: self.calls.saturating_sub(before.calls) }
    }
}

/// What it has done in this process; nothing unless [`SampledAllocator`] is the process's allocator.
pub fn stats() -> AllocatorStats {
    counters().stats()
}

/// Lets other processes of this machine read the sums from here on ([`SharedStats`]), at no cost to this one. Does nothing
/// where the system has no means for it, and when it was done before.
///
/// # Errors
/// What the system says.
pub fn share() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if std::ptr::eq(counters(), &PROCESS_COUNTERS) {
        let page = shared::page()?;
        COUNTERS.store(page, Ordering::Release);
        // What is added here by a thread that is late is lost.
        counters().add(
            PROCESS_COUNTERS.ns.swap(0, Ordering::Relaxed),
            PROCESS_COUNTERS.calls.swap(0, Ordering::Relaxed),
        );
    }
    Ok(())
}

/// Gives what the heap has free, between what is in use too, back to the system. Locks one arena of the allocator after the
/// other, each for as long as it takes to look at what is free there. Does nothing where the system's allocator knows no such
/// thing.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes a number alone, and touches nothing but memory that the allocator has free.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// [`System`], with samples taken. See the [module](self).
#[derive(Debug)]
pub struct SampledAllocator;

// SAFETY: every call is passed on to the system's allocator unchanged; counting allocates nothing and touches no memory that
// it hands out. Nothing here unwinds: the clock and the thread's numbers are there as long as the thread.
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

/// How many calls one that is timed stands for: all since the last one, or itself.
fn weight(bytes: usize) -> u32 {
    if bytes < LARGE_BYTES { SAMPLER.try_with(Sampler::next_gap).unwrap_or(0) } else { 1 }
}

/// The longest that a call takes on a processor of its own: what is mapped and unmapped for it is taken page by page, at
/// 0.1 µs a page and mostly less.
fn longest_ns(bytes: usize) -> u64 {
    SMALL_NS_MAX + bytes as u64 / 16
}

#[cold]
#[inline(never)]
fn timed<T>(bytes: usize, call: impl FnOnce() -> T) -> T {
    let (weight, longest_ns) = (weight(bytes), longest_ns(bytes));
    black_box(Instant::now());
    let before = Instant::now();
    let start = Instant::now();
    let answer = call();
    let end = Instant::now();
    let bounded = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).min(longest_ns) as i64;
    let ns = bounded(end.duration_since(start)) - bounded(start.duration_since(before));
    counters().add(ns * i64::from(weight), u64::from(weight));
    answer
}

thread_local! {
    static SAMPLER: Sampler = const { Sampler { left: Cell::new(0), gap: Cell::new(0), random: Cell::new(0) } };
}

/// Which calls of a thread are timed. There is nothing to drop, so that it is there until the thread's last call.
struct Sampler {
    /// Calls before the next that is timed.
    left: Cell<u32>,
    /// How many calls that one stands for.
    gap: Cell<u32>,
    random: Cell<u32>,
}

impl Sampler {
    /// Whether a call is not to be timed; it is counted.
    #[inline]
    fn count_down(&self) -> bool {
        let left = self.left.get();
        if left > 0 {
            self.left.set(left - 1);
        }
        left > 0
    }

    /// Begins the next gap; the length of the last one, 0 at first.
    fn next_gap(&self) -> u32 {
        let gap = 1 + (self.next_random() >> 8) % GAP_MAX;
        self.left.set(gap - 1);
        self.gap.replace(gap)
    }

    /// Marsaglia's xorshift, begun elsewhere on each thread.
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

/// The sums of all threads, as others may read them.
#[repr(C)]
#[derive(Debug)]
struct Counters {
    magic: AtomicU64,
    ns: AtomicI64,
    calls: AtomicU64,
}

/// The sums until they are shared.
static PROCESS_COUNTERS: Counters =
    Counters { magic: AtomicU64::new(0), ns: AtomicI64::new(0), calls: AtomicU64::new(0) };
/// Where the sums are.
static COUNTERS: AtomicPtr<Counters> = AtomicPtr::new((&raw const PROCESS_COUNTERS).cast_mut());

#[inline]
fn counters() -> &'static Counters {
    // SAFETY: it points to a static or to a mapping that lasts as long as the process; both hold counters that are only
    // used as atomics.
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
    fn gaps_are_even_and_of_their_mean() {
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
    fn threads_have_gaps_of_their_own() {
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
        // The look at the clock beside it is taken off, which is short unless the processor was lost then, too.
        let of_many = (0..20).map(|_| once()).max();
        assert!(of_many.is_some_and(|ns| (bound_ns - bound_ns / 10..bound_ns).contains(&ns)), "{of_many:?}");
    }
}
