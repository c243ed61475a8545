//! The sampled allocator, installed as the allocator of this process.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use evenkeel_common::allocator::{self, AllocatorStats, LARGE_BYTES, SampledAllocator};

#[global_allocator]
static ALLOCATOR: SampledAllocator = SampledAllocator;

/// Serializes the tests that count, because the sums are per process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

const PIECES: u64 = 200_000;
/// Each piece is allocated, enlarged and freed.
const CALLS: u64 = 3 * PIECES;
/// Limit of the calls of the test harness and at a thread's end.
const OTHERS_MAX: u64 = 2000;

/// Allocates, enlarges and frees [`PIECES`] pieces.
fn use_pieces(bytes: usize) {
    let layout = Layout::from_size_align(bytes, 8).expect("legal");
    let larger = Layout::from_size_align(2 * bytes, 8).expect("legal");
    for piece in 0..PIECES {
        // SAFETY: the layouts are not empty, the piece is written within its bytes and freed once
        // with its last layout.
        unsafe {
            let first = if piece % 2 == 0 { ALLOCATOR.alloc(layout) } else { ALLOCATOR.alloc_zeroed(layout) };
            first.write_volatile(1);
            let second = ALLOCATOR.realloc(first, layout, larger.size());
            second.write_volatile(2);
            ALLOCATOR.dealloc(second, larger);
        }
    }
}

fn since(before: AllocatorStats) -> AllocatorStats {
    allocator::stats().since(before)
}

fn assert_counted(done: AllocatorStats, calls: u64) {
    assert!((calls - calls / 100..=calls + OTHERS_MAX).contains(&done.calls), "{done:?}, {calls} were made");
}

#[test]
fn calls_are_counted() {
    let _alone = alone();
    let before = allocator::stats();
    use_pieces(48);
    assert_counted(since(before), CALLS);
}

/// Returns the elapsed nanoseconds, and those of the allocator, while the allocator and the test
/// alternately clear memory.
fn clear_in_turns() -> (u64, u64) {
    const BYTES: usize = 16 << 10;
    let layout = Layout::from_size_align(BYTES, 8).expect("legal");
    let (before, start) = (allocator::stats(), Instant::now());
    for _ in 0..50_000 {
        // SAFETY: the layout is not empty, the piece is written within its bytes and freed once.
        unsafe {
            let piece = ALLOCATOR.alloc_zeroed(layout);
            std::hint::black_box(piece).write_bytes(1, BYTES);
            ALLOCATOR.dealloc(std::hint::black_box(piece), layout);
        }
    }
    (start.elapsed().as_nanos() as u64, since(before).ns)
}

#[test]
fn sampled_time_matches_the_time_of_the_calls() {
    let _alone = alone();
    // The run with the least disturbance.
    let (elapsed_ns, ns) = (0..10).map(|_| clear_in_turns()).min().expect("some");
    assert!((elapsed_ns / 5..elapsed_ns / 10 * 9).contains(&ns), "{ns} of {elapsed_ns}");
}

#[test]
fn all_threads_are_counted() {
    let _alone = alone();
    let before = allocator::stats();
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| use_pieces(48)))));
    assert_counted(since(before), 4 * CALLS);
}

#[test]
fn large_calls_are_each_counted() {
    let _alone = alone();
    let before = allocator::stats();
    for _ in 0..100 {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE_BYTES)));
    }
    let done = since(before);
    assert!((200..200 + OTHERS_MAX).contains(&done.calls), "{done:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn shared_sums_are_readable_and_keep_growing() {
    use evenkeel_common::allocator::SharedStats;

    let _alone = alone();
    let pid = std::process::id() as i32;
    use_pieces(48);
    let before = allocator::stats();
    assert!(SharedStats::of_pid(pid).is_none(), "not shared yet");
    allocator::share().expect("shared");
    let shared = SharedStats::of_pid(pid).expect("shared");
    let at_first = shared.read().expect("there");
    assert!(at_first.calls >= before.calls && at_first.ns > before.ns / 2, "{at_first:?} after {before:?}");
    allocator::share().expect("done before");
    assert!(shared.read().expect("there").calls >= at_first.calls, "the sums are not reset");
    use_pieces(48);
    let (read, own) = (shared.read().expect("there"), allocator::stats());
    assert_counted(read.since(at_first), CALLS);
    assert!(read.calls <= own.calls && own.calls - read.calls < OTHERS_MAX, "{read:?} {own:?}");
}
