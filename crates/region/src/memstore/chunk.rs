//! [`Chunk`]s, and the pool of spare ones.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use super::sync::{AtomicUsize, Mutex, Ordering, want_huge_pages};

/// Bytes of a chunk (`hbase.hregion.memstore.mslab.chunksize`), which is a huge page of most machines.
pub const CHUNK_BYTES: usize = 2 << 20;
/// What is larger gets a chunk of its own (`hbase.hregion.memstore.mslab.max.allocation`).
pub(super) const SHARED_BYTES_MAX: usize = 256 << 10;
const _: () = assert!(SHARED_BYTES_MAX <= CHUNK_BYTES);
/// Space is handed out in multiples of this.
pub(super) const ALIGN: usize = 8;

/// A run of memory that is handed out front to back and freed as a whole.
pub(super) struct Chunk {
    base: NonNull<u8>,
    len: usize,
    used: AtomicUsize,
}

// SAFETY: a chunk owns its memory, and hands out each byte of it once.
unsafe impl Send for Chunk {}
// SAFETY: `used` is atomic and nothing else changes.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Allocates a chunk of `len` bytes, a positive multiple of [`ALIGN`].
    pub(super) fn new(len: usize) -> Self {
        let layout = layout(len);
        // SAFETY: the layout's size is not 0: callers pass positive lengths, and `layout` checks it.
        let memory = unsafe { alloc(layout) };
        let base = NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout));
        Self { base, len, used: AtomicUsize::new(0) }
    }

    /// `bytes` bytes (a multiple of [`ALIGN`]) that nobody else has, or `None` when the chunk has no such room.
    #[inline]
    pub(super) fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        let start = self.used.fetch_add(bytes, Ordering::Relaxed);
        if start.checked_add(bytes)? > self.len {
            return None;
        }
        // SAFETY: start + bytes <= len, so the pointer stays inside the allocation.
        Some(unsafe { self.base.add(start) })
    }

    /// Asks for huge pages where nothing has been touched yet. For chunks that will be filled: a page is resident as a whole.
    pub(super) fn want_huge_pages(&self) {
        if self.len == CHUNK_BYTES {
            want_huge_pages(self.base, self.len);
        }
    }

    /// Where its first byte is.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn reset(&mut self) {
        self.used = AtomicUsize::new(0);
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout.
        unsafe { dealloc(self.base.as_ptr(), layout(self.len)) };
    }
}

fn layout(len: usize) -> Layout {
    assert!(len > 0 && len.is_multiple_of(ALIGN), "chunk of {len} bytes");
    let align = if len == CHUNK_BYTES { CHUNK_BYTES } else { ALIGN };
    Layout::from_size_align(len, align).expect("chunk lengths are far below isize::MAX")
}

/// Spare chunks of [`CHUNK_BYTES`], kept for the next segment.
///
/// Bound: at most `spare_max` chunks are kept; what comes back beyond that is freed. How many are out is counted, not
/// bounded: writers are slowed and refused by the bytes of their cells, long before.
pub struct ChunkPool {
    spare: Mutex<Vec<Chunk>>,
    spare_max: usize,
    /// Bytes of chunks that segments hold, those that are larger than usual included.
    out_bytes: AtomicUsize,
}

impl ChunkPool {
    /// A pool that keeps at most `spare_max` chunks.
    pub fn new(spare_max: usize) -> Arc<Self> {
        Arc::new(Self { spare: Mutex::new(Vec::new()), spare_max, out_bytes: AtomicUsize::new(0) })
    }

    /// Chunks that lie ready.
    pub fn spare(&self) -> usize {
        self.spare.lock().len()
    }

    /// Bytes of the chunks that segments hold now, used up or not.
    pub fn out_bytes(&self) -> usize {
        self.out_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self) -> Chunk {
        self.out_bytes.fetch_add(CHUNK_BYTES, Ordering::Relaxed);
        let spare = self.spare.lock().pop();
        spare.unwrap_or_else(|| Chunk::new(CHUNK_BYTES))
    }

    /// A chunk for one large cell, of `bytes` bytes (a positive multiple of [`ALIGN`]).
    pub(super) fn take_large(&self, bytes: usize) -> Chunk {
        self.out_bytes.fetch_add(bytes, Ordering::Relaxed);
        Chunk::new(bytes)
    }

    /// Takes back what [`ChunkPool::take`] or [`ChunkPool::take_large`] gave.
    pub(super) fn give_back(&self, mut chunk: Chunk) {
        self.out_bytes.fetch_sub(chunk.len, Ordering::Relaxed);
        if chunk.len != CHUNK_BYTES {
            return;
        }
        chunk.reset();
        let mut spare = self.spare.lock();
        if spare.len() < self.spare_max {
            spare.push(chunk);
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
