//! [`MemoryTrim`]: returns memory that a quiet server does not need to the system.
//!
//! Every part of the memory keeps what it used at its peak, because it will probably need it again:
//! spare chunks of MemStores, reply buffers, pages of the block cache whose blocks were evicted,
//! and free memory of the allocator between used memory. After the peak, for example after tables
//! were dropped, this memory is useless to this process and missing elsewhere. So a thread checks
//! every `evenkeel.memory.trim.period.ms`, and frees:
//!
//! - pages of the block cache that had no frame at two consecutive checks
//!   ([`evenkeel_block_cache::BlockCache::release_idle`])
//! - spare chunks of MemStores: when none was taken between two checks; the ready ones stay
//! - buffers of replies: all of them, at a check of a quiet server
//! - free memory of the allocator: once when the server has become quiet, and after any of the
//!   above; at most every [`HEAP_TRIM_CHECKS`] checks. Also at each check at which the process has
//!   more anonymous memory than the plan and [`EXCESS_DIVISOR`] allow, quiet or not.
//!
//! A server is **quiet** if it received fewer than [`QUIET_CALLS_PER_SECOND`] calls a second since
//! the last check. Trimming the heap locks the arenas of the allocator in turn, for milliseconds
//! each, so it runs when no other thread needs them. Memory beyond the plan takes precedence over
//! those milliseconds: it is what an operator's limit or the kernel ends a process for. The other
//! parts are released in steps with [`PAUSE`]s between, and cost a request only the page faults of
//! memory that is needed again.
//!
//! The thread has the priority of requests, because it holds locks that they need for longer than
//! other threads do. A thread of [`BACKGROUND_NICE`](evenkeel_common::priority::BACKGROUND_NICE)
//! that is preempted during a trim keeps the arena's lock until it gets the processor again. Beside
//! many busy threads, that takes seconds.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use evenkeel_block_cache::BlockCache;
use evenkeel_common::clock;
use evenkeel_common::thread::spawn_restarted;
use evenkeel_common::{allocator, buffer_pool};
use evenkeel_info_server::platform;
use evenkeel_region::memstore::ChunkPool;
use parking_lot::Mutex;

use evenkeel_regionserver::RegionServer;

/// A server with fewer calls per second is quiet.
const QUIET_CALLS_PER_SECOND: u64 = 1000;
/// The heap is trimmed at most once in this many checks.
const HEAP_TRIM_CHECKS: u32 = 3;
/// The heap is trimmed under load, too, if anonymous memory exceeds the plan by this part of it or
/// by [`EXCESS_BYTES_MAX`], whichever is less.
const EXCESS_DIVISOR: u64 = 8;
/// See [`EXCESS_DIVISOR`].
const EXCESS_BYTES_MAX: u64 = 64 << 20;
/// Spare chunks that are freed at once.
const CHUNKS_AT_ONCE: usize = 4;
/// The pause between two pieces.
const PAUSE: Duration = Duration::from_millis(5);

/// The thread that trims memory; it ends when this is dropped.
pub struct MemoryTrim {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryTrim {
    /// Starts the thread; with a period of 0, none. `memory_bytes_max` is the plan's sum.
    ///
    /// # Errors
    /// I/O errors if the thread cannot be started.
    pub fn start(
        (period, memory_bytes_max): (Duration, u64),
        regionserver: &Arc<RegionServer>,
        cache: &Arc<dyn BlockCache>,
        chunks: &Arc<ChunkPool>,
    ) -> io::Result<Self> {
        if period.is_zero() {
            return Ok(Self { stop: None, thread: None });
        }
        let (stop, stopped) = bounded(0);
        let regionserver = Arc::clone(regionserver);
        let calls = Box::new(move || regionserver.counters().total());
        let sources = TrimSources {
            calls,
            cache: Arc::clone(cache),
            chunks: Arc::clone(chunks),
            trimmed_above: memory_bytes_max + (memory_bytes_max / EXCESS_DIVISOR).min(EXCESS_BYTES_MAX),
            state: Mutex::default(),
        };
        let thread = spawn_restarted("memory-trim", move || sources.run(period, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for MemoryTrim {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

struct TrimSources {
    calls: Box<dyn Fn() -> u64 + Send>,
    cache: Arc<dyn BlockCache>,
    chunks: Arc<ChunkPool>,
    /// The heap is trimmed under load if anonymous memory exceeds this.
    trimmed_above: u64,
    state: Mutex<TrimState>,
}

/// State kept between checks.
#[derive(Default)]
struct TrimState {
    calls: u64,
    since: Option<Instant>,
    /// True if the heap may have free memory: memory was freed, or many calls arrived.
    heap_is_due: bool,
    /// The number of checks since the heap was trimmed.
    heap_checks: u32,
}

impl TrimState {
    /// Returns true if few calls arrived since the last check.
    fn is_quiet(&mut self, calls: u64, now: Instant) -> bool {
        let seconds = self.since.map_or(0.0, |since| now.saturating_duration_since(since).as_secs_f64());
        let came = calls.saturating_sub(self.calls);
        (self.calls, self.since) = (calls, Some(now));
        let is_quiet = came as f64 <= seconds * QUIET_CALLS_PER_SECOND as f64;
        self.heap_is_due |= !is_quiet;
        is_quiet
    }

    /// Returns true if the heap must be trimmed now.
    fn trims_heap(&mut self, has_freed: bool, is_quiet: bool) -> bool {
        self.heap_is_due |= has_freed;
        self.heap_checks = self.heap_checks.saturating_add(1);
        let trims = is_quiet && self.heap_is_due && self.heap_checks >= HEAP_TRIM_CHECKS;
        if trims {
            (self.heap_is_due, self.heap_checks) = (false, 0);
        }
        trims
    }
}

impl TrimSources {
    fn run(&self, period: Duration, stopped: &Receiver<()>) {
        while matches!(stopped.recv_timeout(period), Err(RecvTimeoutError::Timeout)) {
            self.check(stopped);
        }
    }

    fn check(&self, stopped: &Receiver<()>) {
        let should_continue = || matches!(stopped.recv_timeout(PAUSE), Err(RecvTimeoutError::Timeout));
        let cached = self.cache.release_idle(&should_continue);
        let mut chunks = 0;
        while let bytes @ 1.. = self.chunks.release_idle(CHUNKS_AT_ONCE) {
            chunks += bytes;
            if !should_continue() {
                break;
            }
        }
        self.chunks.begin_idle_period();
        let mut state = self.state.lock();
        let is_quiet = state.is_quiet((self.calls)(), clock::monotonic());
        let buffers = if is_quiet { buffer_pool::clear() } else { 0 };
        let trims_heap = state.trims_heap(chunks + buffers > 0, is_quiet);
        drop(state);
        if trims_heap || platform::anonymous_bytes() > self.trimmed_above {
            allocator::trim();
        }
        if cached > 0 || chunks + buffers > 0 {
            tracing::info!(cached, chunks, buffers, "bytes of memory returned to the system");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_trimmed_once_per_quiet_period() {
        let (mut state, start) = (TrimState::default(), Instant::now());
        let mut at_second = |second: u64, calls: u64, has_freed: bool| {
            let is_quiet = state.is_quiet(calls, start + Duration::from_secs(second));
            (is_quiet, state.trims_heap(has_freed, is_quiet))
        };
        assert_eq!(at_second(0, 0, false), (true, false));
        assert_eq!(at_second(1, 999, false), (true, false));
        assert_eq!(at_second(2, 1_999, false), (true, false), "nothing was ever freed");
        assert_eq!(at_second(3, 50_000, true), (false, false), "there are calls");
        assert_eq!(at_second(4, 50_500, false), (true, true));
        assert_eq!(at_second(5, 50_500, true), (true, false), "not so soon again");
        assert_eq!(at_second(6, 50_500, false), (true, false));
        assert_eq!(at_second(7, 50_500, false), (true, true), "for what was freed");
        assert_eq!(at_second(20, 50_500, false), (true, false));
    }
}
