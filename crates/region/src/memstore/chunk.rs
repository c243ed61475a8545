//! [`Chunk`]s and the pool of spare ones.
//!
//! A segment begins with a chunk of [`FIRST_CHUNK_BYTES`], which may be all that a quiet region
//! ever uses, unless many chunks are spare. Later chunks have the pool's configured size, by
//! default a huge page: without huge pages, a search among many cells waits longer for page tables
//! than for cells.
//!
//! The system supplies memory at the first touch, and zeroes a whole huge page, which would block a
//! writer for one or several milliseconds. So a thread may keep *ready* chunks, which are already
//! touched ([`ChunkPool::keep_ready`]). They are for segments that have filled their first chunk,
//! because touched memory is used memory.
//!
//! Chunks that were not needed for a while are freed, except for the ready ones
//! ([`ChunkPool::release_idle`]).
//!
//! A few ready chunks are enough for one region. But the regions of an evenly written table fill
//! their chunks at the same time, again and again. So the number of ready chunks follows the number
//! taken in the last minute, up to a quarter of the pool and up to the capacity that the chunks in
//! use leave in the pool.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::sync::{AtomicUsize, Mutex, Ordering, want_huge_pages};
use evenkeel_common::clock;

/// Default bytes of a chunk: a huge page of most machines.
pub const CHUNK_BYTES: usize = 2 << 20;
/// Bytes of a segment's first chunk, unless all chunks are smaller.
pub(super) const FIRST_CHUNK_BYTES: usize = 256 << 10;
/// Default bytes above which a cell gets a separate chunk.
pub(super) const SHARED_BYTES_MAX: usize = 256 << 10;
/// Bytes of a chunk once the pool is exhausted, unless a cell needs more.
pub(super) const CHUNK_BYTES_MIN: usize = 16 << 10;
/// Bytes of a huge page of most machines.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The minimum number of ready chunks.
const READY_CHUNKS: usize = 4;
/// At most this fraction (1/n) of a pool's chunks is ready.
const READY_DIVISOR: usize = 4;
/// The period over which takes are counted. Counts are used for up to two periods.
const TAKES_PERIOD: Duration = Duration::from_secs(60);
/// After this many idle checks without a take, the count of earlier takes is reset.
const IDLE_CHECKS: u32 = 6;
/// The system's page size, or a fraction of it.
const PAGE_BYTES: usize = 4096;
/// Allocations are multiples of this.
pub(super) const ALIGN: usize = 8;
/// Addresses have no higher bits, unless a process requests them (five-level paging, 52-bit
/// addresses).
pub(super) const ADDRESS_BITS: u32 = 48;

/// Sizes of chunks. The defaults are HBase's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSizes {
    /// Bytes of a chunk, a positive multiple of 8 (`hbase.hregion.memstore.mslab.chunksize`).
    pub chunk_bytes: usize,
    /// A larger cell gets a separate chunk; at most `chunk_bytes`
    /// (`hbase.hregion.memstore.mslab.max.allocation`).
    pub shared_bytes_max: usize,
}

impl Default for ChunkSizes {
    fn default() -> Self {
        Self { chunk_bytes: CHUNK_BYTES, shared_bytes_max: SHARED_BYTES_MAX }
    }
}

/// Memory that is allocated front to back and freed as a whole.
pub(super) struct Chunk {
    base: NonNull<u8>,
    len: usize,
    used: AtomicUsize,
}

// SAFETY: a chunk owns its memory, and hands out each byte of it to one caller.
unsafe impl Send for Chunk {}
// SAFETY: `used` is atomic and nothing else changes.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Allocates a chunk of `len` bytes, a positive multiple of [`ALIGN`].
    pub(super) fn new(len: usize) -> Self {
        let layout = layout(len);
        // SAFETY: the layout's size is not 0: callers pass positive lengths, and `layout` checks
        // it.
        let memory = unsafe { alloc(layout) };
        let base = NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout));
        assert!((base.as_ptr().addr() + len) >> ADDRESS_BITS == 0, "memory at {base:?}");
        Self { base, len, used: AtomicUsize::new(0) }
    }

    /// Allocates `bytes` bytes (a multiple of [`ALIGN`]); `None` if the chunk has too little space.
    #[inline]
    pub(super) fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        let start = self.used.fetch_add(bytes, Ordering::Relaxed);
        if start.checked_add(bytes)? > self.len {
            return None;
        }
        // SAFETY: start + bytes <= len, so the pointer stays inside the allocation.
        Some(unsafe { self.base.add(start) })
    }

    /// Requests huge pages for memory not touched yet. Only for chunks that will be filled, because
    /// a huge page is resident as a whole.
    pub(super) fn want_huge_pages(&self) {
        if has_huge_pages(self.len) {
            want_huge_pages(self.base, self.len);
        }
    }

    /// Touches every page, so that the system supplies the memory at once.
    fn touch(&mut self) {
        for at in (0..self.len).step_by(PAGE_BYTES) {
            // SAFETY: inside the allocation, to which no other code has a pointer yet.
            unsafe { self.base.add(at).write_volatile(0) };
        }
    }

    /// Its bytes, including free space.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The address of its first byte.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn reset(&mut self) {
        self.used = AtomicUsize::new(0);
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout.
        unsafe { dealloc(self.base.as_ptr(), layout(self.len)) };
    }
}

fn layout(len: usize) -> Layout {
    assert!(len > 0 && len.is_multiple_of(ALIGN), "chunk of {len} bytes");
    let align = if has_huge_pages(len) { HUGE_PAGE_BYTES } else { ALIGN };
    Layout::from_size_align(len, align).expect("chunk lengths are far below isize::MAX")
}

/// Returns true if a chunk of `len` bytes fills whole huge pages.
fn has_huge_pages(len: usize) -> bool {
    len.is_multiple_of(HUGE_PAGE_BYTES)
}

/// Spare chunks of one size, kept for later segments.
///
/// Bound: it keeps at most `spare_max` chunks, the ready ones included, and no more than
/// `bytes_max` allows in addition to the chunks in use. It frees chunks that come back beyond that.
/// The module's header describes the chunks in use.
pub struct ChunkPool {
    sizes: ChunkSizes,
    /// `out_bytes` grows under this lock.
    spare: Mutex<SpareChunks>,
    spare_max: usize,
    bytes_max: usize,
    /// The initial number of ready chunks.
    initial: usize,
    /// Bytes of the chunks in use by segments, including oversized chunks.
    out_bytes: AtomicUsize,
}

#[derive(Default)]
struct SpareChunks {
    /// Spare chunks: used earlier, or touched in advance.
    chunks: Vec<Chunk>,
    takes: TakeHistory,
    /// The smallest number of spare chunks since [`ChunkPool::begin_idle_period`]: this many were
    /// not needed.
    idle: usize,
    /// True if a segment that had filled a chunk took one and left few.
    are_wanted: bool,
    /// The thread that keeps chunks ready.
    keeper: Option<Thread>,
    keeper_stops: bool,
}

/// Counts the chunks that segments take per period.
#[derive(Debug, Default)]
pub(super) struct TakeHistory {
    since: Option<Instant>,
    /// Takes of the current period, and of the previous one.
    now: usize,
    before: usize,
    /// Idle checks since the last take.
    checks: u32,
}

impl TakeHistory {
    pub(super) fn note(&mut self, at: Instant) {
        self.roll(at);
        self.now += 1;
        self.checks = 0;
    }

    /// Starts a new period if the current one is over.
    fn roll(&mut self, at: Instant) {
        let since = *self.since.get_or_insert(at);
        let periods = at.saturating_duration_since(since).as_secs() / TAKES_PERIOD.as_secs();
        if periods > 0 {
            self.before = if periods == 1 { self.now } else { 0 };
            (self.since, self.now) = (Some(at), 0);
        }
    }

    pub(super) fn most(&self) -> usize {
        self.now.max(self.before)
    }
}

impl ChunkPool {
    /// Creates a pool of chunks of the default sizes that keeps at most `spare_max`.
    pub fn new(spare_max: usize) -> Arc<Self> {
        Self::of(ChunkSizes::default(), spare_max, 0)
    }

    /// Creates a pool that keeps at most `spare_max` chunks, with `initial` ready chunks at first.
    pub fn of(sizes: ChunkSizes, spare_max: usize, initial: usize) -> Arc<Self> {
        Self::within(sizes, spare_max, initial, usize::MAX)
    }

    /// As [`ChunkPool::of`], with at most `bytes_max` bytes of chunks in all.
    pub fn within(sizes: ChunkSizes, spare_max: usize, initial: usize, bytes_max: usize) -> Arc<Self> {
        let (spare, out_bytes) = (Mutex::new(SpareChunks::default()), AtomicUsize::new(0));
        Arc::new(Self { sizes, spare, spare_max, bytes_max, initial: initial.min(spare_max), out_bytes })
    }

    /// The sizes of its chunks.
    pub fn sizes(&self) -> ChunkSizes {
        self.sizes
    }

    /// The number of spare chunks.
    pub fn spare(&self) -> usize {
        self.spare.lock().chunks.len()
    }

    /// Bytes of the chunks in use by segments, including free space.
    pub fn out_bytes(&self) -> usize {
        self.out_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of all chunks, in use or spare.
    pub fn bytes(&self) -> usize {
        // A chunk that comes back meanwhile is counted late, but never twice.
        let spare = self.spare.lock();
        self.out_bytes() + spare.chunks.len() * self.sizes.chunk_bytes
    }

    /// The maximum bytes of all chunks.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns the bytes in use beyond the slack that a pool for MemStores of `memstore_bytes` has.
    pub fn beyond_slack(&self, memstore_bytes: u64) -> u64 {
        let slack = (self.bytes_max as u64).saturating_sub(memstore_bytes);
        (self.out_bytes() as u64).saturating_sub(slack)
    }

    /// Returns how many chunks of the usual size fit beside those in use.
    fn free_chunks(&self) -> usize {
        self.bytes_max.saturating_sub(self.out_bytes()) / self.sizes.chunk_bytes
    }

    /// Frees up to `chunks_max` spare chunks that were not needed since
    /// [`ChunkPool::begin_idle_period`], except the ready ones. Returns the bytes freed.
    pub fn release_idle(&self, chunks_max: usize) -> usize {
        let mut spare = self.spare.lock();
        spare.takes.roll(clock::monotonic());
        let ready = self.ready_chunks(&spare).max(self.initial);
        let beyond_ready = spare.chunks.len().saturating_sub(ready);
        let count = spare.idle.min(beyond_ready).min(chunks_max);
        let kept = spare.chunks.len() - count;
        spare.idle -= count;
        let surplus = spare.chunks.split_off(kept);
        drop(spare);
        surplus.len() * self.sizes.chunk_bytes
    }

    /// Starts a period: spare chunks count as idle until they are taken.
    pub fn begin_idle_period(&self) {
        let mut spare = self.spare.lock();
        spare.idle = spare.chunks.len();
        spare.takes.checks += 1;
        if spare.takes.checks >= IDLE_CHECKS {
            spare.takes = TakeHistory::default();
        }
    }

    /// Counts a chunk as in use. Returns the chunks that exceed the limit then, removed from
    /// `spare`; the caller frees them.
    fn account_taken(&self, spare: &mut SpareChunks, bytes: usize) -> Vec<Chunk> {
        self.out_bytes.fetch_add(bytes, Ordering::Relaxed);
        let kept = self.free_chunks().min(spare.chunks.len());
        let surplus = spare.chunks.split_off(kept);
        spare.idle = spare.idle.min(kept);
        surplus
    }

    /// Returns the bytes of the chunk for a cell of `wanted` bytes: `usual` if the pool's capacity
    /// allows it.
    fn size_of_next(&self, usual: usize, wanted: usize) -> usize {
        match self.out_bytes().saturating_add(usual) <= self.bytes_max {
            true => usual,
            false => wanted.next_multiple_of(ALIGN).max(CHUNK_BYTES_MIN).min(usual),
        }
    }

    /// Takes a chunk with at least `wanted` bytes, for a cell that shares chunks.
    pub(super) fn take(&self, wanted: usize) -> Chunk {
        let mut spare = self.spare.lock();
        let bytes = self.size_of_next(self.sizes.chunk_bytes, wanted);
        let chunk = spare.chunks.pop_if(|_| bytes == self.sizes.chunk_bytes);
        let surplus = self.account_taken(&mut spare, bytes);
        drop((spare, surplus));
        chunk.unwrap_or_else(|| Chunk::new(bytes))
    }

    /// Takes a segment's first chunk, with at least `wanted` bytes: a small one, or a spare one
    /// that is not among the ready ones.
    pub(super) fn take_first(&self, wanted: usize) -> Chunk {
        let mut spare = self.spare.lock();
        spare.takes.note(clock::monotonic());
        let used_before = spare.chunks.len() > self.ready_chunks(&spare);
        let chunk = spare.chunks.pop_if(|_| used_before);
        let small = || self.size_of_next(FIRST_CHUNK_BYTES.max(wanted).min(self.sizes.chunk_bytes), wanted);
        let bytes = chunk.as_ref().map_or_else(small, Chunk::len);
        let surplus = self.account_taken(&mut spare, bytes);
        drop((spare, surplus));
        chunk.unwrap_or_else(|| Chunk::new(bytes))
    }

    /// Takes a chunk with at least `wanted` bytes, for a segment that has filled its first chunk.
    pub(super) fn take_next(&self, wanted: usize) -> Chunk {
        let mut spare = self.spare.lock();
        spare.takes.note(clock::monotonic());
        let bytes = self.size_of_next(self.sizes.chunk_bytes, wanted);
        let chunk = spare.chunks.pop_if(|_| bytes == self.sizes.chunk_bytes);
        let surplus = self.account_taken(&mut spare, bytes);
        if spare.chunks.len() < self.ready_chunks(&spare) {
            spare.are_wanted = true;
            spare.keeper.iter().for_each(Thread::unpark);
        }
        drop((spare, surplus));
        let chunk = chunk.unwrap_or_else(|| Chunk::new(bytes));
        chunk.want_huge_pages();
        chunk
    }

    /// Keeps chunks ready, on this thread, until [`ChunkPool::stop_keeping_ready`] is called.
    pub fn keep_ready(&self) {
        while self.spare() < self.initial.min(self.free_chunks()) && !self.spare.lock().keeper_stops {
            self.add_ready();
        }
        loop {
            let mut spare = self.spare.lock();
            spare.keeper = Some(std::thread::current());
            let (stops, wanted) = (spare.keeper_stops, spare.are_wanted);
            spare.are_wanted = false;
            drop(spare);
            if stops {
                return;
            }
            if !wanted {
                std::thread::park();
                continue;
            }
            while !self.spare.lock().keeper_stops && self.make_ready() {}
        }
    }

    /// Makes one chunk ready, if there are too few. Returns true if it did.
    pub(super) fn make_ready(&self) -> bool {
        let spare = self.spare.lock();
        if spare.chunks.len() >= self.ready_chunks(&spare) {
            return false;
        }
        drop(spare);
        self.add_ready();
        true
    }

    /// Returns the target number of ready chunks.
    fn ready_chunks(&self, spare: &SpareChunks) -> usize {
        let besides = self.spare_max.saturating_sub(self.out_bytes() / self.sizes.chunk_bytes);
        let most = besides.min(self.spare_max / READY_DIVISOR).max(READY_CHUNKS);
        spare.takes.most().clamp(READY_CHUNKS, most).min(self.spare_max).min(self.free_chunks())
    }

    fn add_ready(&self) {
        let mut chunk = Chunk::new(self.sizes.chunk_bytes);
        chunk.want_huge_pages();
        chunk.touch();
        self.keep(chunk);
    }

    /// Ends [`ChunkPool::keep_ready`].
    pub fn stop_keeping_ready(&self) {
        let mut spare = self.spare.lock();
        spare.keeper_stops = true;
        spare.keeper.iter().for_each(Thread::unpark);
    }

    /// Takes a chunk for one large cell, of `bytes` bytes (a positive multiple of [`ALIGN`]).
    pub(super) fn take_large(&self, bytes: usize) -> Chunk {
        let mut spare = self.spare.lock();
        let surplus = self.account_taken(&mut spare, bytes);
        drop((spare, surplus));
        Chunk::new(bytes)
    }

    /// Takes a chunk back from a segment.
    pub(super) fn give_back(&self, mut chunk: Chunk) {
        self.out_bytes.fetch_sub(chunk.len, Ordering::Relaxed);
        if chunk.len != self.sizes.chunk_bytes {
            return;
        }
        chunk.reset();
        self.keep(chunk);
    }

    fn keep(&self, chunk: Chunk) {
        let mut spare = self.spare.lock();
        if spare.chunks.len() < self.spare_max.min(self.free_chunks()) {
            spare.chunks.push(chunk);
        }
    }
}

impl std::fmt::Debug for ChunkPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkPool")
            .field("spare", &self.spare())
            .field("out_bytes", &self.out_bytes())
            .finish_non_exhaustive()
    }
}
