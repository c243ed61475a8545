//! [`Chunk`]s, and the pool of spare ones.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Bytes of a chunk (`hbase.hregion.memstore.mslab.chunksize`).
pub const CHUNK_BYTES: usize = 2 << 20;
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

    fn reset(&mut self) {
        *self.used.get_mut() = 0;
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
    Layout::from_size_align(len, ALIGN).expect("chunk lengths are far below isize::MAX")
}

/// Spare chunks of [`CHUNK_BYTES`], kept for the next segment.
///
/// Bound: at most `spare_max` chunks are kept; what comes back beyond that is freed.
pub struct ChunkPool {
    spare: Mutex<Vec<Chunk>>,
    spare_max: usize,
}

impl ChunkPool {
    /// A pool that keeps at most `spare_max` chunks.
    pub fn new(spare_max: usize) -> Arc<Self> {
        Arc::new(Self { spare: Mutex::new(Vec::new()), spare_max })
    }

    /// Chunks that lie ready.
    pub fn spare(&self) -> usize {
        self.spare.lock().len()
    }

    pub(super) fn take(&self) -> Chunk {
        let spare = self.spare.lock().pop();
        spare.unwrap_or_else(|| Chunk::new(CHUNK_BYTES))
    }

    pub(super) fn give_back(&self, mut chunk: Chunk) {
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
        f.debug_struct("ChunkPool").field("spare", &self.spare()).field("spare_max", &self.spare_max).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_hands_out_no_byte_twice() {
        let chunk = Chunk::new(64);
        let a = chunk.take(32).expect("room");
        let b = chunk.take(32).expect("room");
        assert_eq!(b.as_ptr() as usize - a.as_ptr() as usize, 32);
        assert!(chunk.take(8).is_none());
    }

    #[test]
    fn the_pool_keeps_no_more_than_it_may() {
        let pool = ChunkPool::new(1);
        let (a, b) = (pool.take(), pool.take());
        a.take(8);
        pool.give_back(a);
        pool.give_back(b);
        assert_eq!(pool.spare(), 1);
        assert!(pool.take().take(CHUNK_BYTES).is_some(), "a chunk comes back empty");
        pool.give_back(Chunk::new(16));
        assert_eq!(pool.spare(), 0, "only chunks of the common size are kept");
    }
}
