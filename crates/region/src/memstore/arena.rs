//! [`Arena`]: the chunks of one segment.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::chunk::{ALIGN, Chunk, ChunkPool};
use super::sync::{AtomicPtr, Mutex, Ordering};

/// An allocator that many threads use at once, and that is freed as a whole.
///
/// An allocation is one atomic addition in the current chunk. A thread that finds the chunk full
/// takes the lock and installs a new one. Invariant: a chunk that was ever current stays in
/// `chunks` until the arena is dropped.
pub(super) struct Arena {
    pool: Arc<ChunkPool>,
    current: AtomicPtr<Chunk>,
    chunks: Mutex<Vec<NonNull<Chunk>>>,
}

// SAFETY: the pointers in `chunks` are owned boxes; chunks themselves are Send and Sync.
unsafe impl Send for Arena {}
// SAFETY: as above; `current` is atomic and `chunks` is behind a lock.
unsafe impl Sync for Arena {}

impl Arena {
    pub(super) fn new(pool: Arc<ChunkPool>) -> Self {
        Self { pool, current: AtomicPtr::new(null_mut()), chunks: Mutex::new(Vec::new()) }
    }

    /// The pool of its chunks.
    pub(super) fn pool(&self) -> &Arc<ChunkPool> {
        &self.pool
    }

    /// Allocates `bytes` bytes, aligned to 8. They stay valid as long as the arena.
    pub(super) fn alloc(&self, bytes: usize) -> NonNull<u8> {
        let bytes = bytes.next_multiple_of(ALIGN);
        if bytes > self.pool.sizes().shared_bytes_max {
            return self.alloc_alone(bytes);
        }
        loop {
            let current = self.current.load(Ordering::Acquire);
            // SAFETY: null, or a chunk that lives as long as the arena (the invariant of `chunks`).
            if let Some(space) = unsafe { current.as_ref() }.and_then(|chunk| chunk.take(bytes)) {
                return space;
            }
            self.replace(current, bytes);
        }
    }

    fn alloc_alone(&self, bytes: usize) -> NonNull<u8> {
        let chunk = self.pool.take_large(bytes);
        let space = chunk.take(bytes).expect("the chunk was made for this");
        self.chunks.lock().push(own(chunk));
        space
    }

    /// Bytes of its chunks, including free space.
    pub(super) fn chunk_bytes(&self) -> usize {
        // SAFETY: the pointers are owned, and freed when the arena is dropped.
        self.chunks.lock().iter().map(|chunk| unsafe { chunk.as_ref() }.len()).sum()
    }

    /// Replaces a full chunk by one with at least `wanted` free bytes.
    fn replace(&self, full: *mut Chunk, wanted: usize) {
        let mut chunks = self.chunks.lock();
        if self.current.load(Ordering::Relaxed) == full {
            let chunk = match chunks.is_empty() {
                true => self.pool.take_first(wanted),
                false => self.pool.take_next(wanted),
            };
            let chunk = own(chunk);
            chunks.push(chunk);
            self.current.store(chunk.as_ptr(), Ordering::Release);
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks.get_mut().drain(..) {
            // SAFETY: made by `own`; the arena is being dropped, so there is no other owner.
            self.pool.give_back(unsafe { *Box::from_raw(chunk.as_ptr()) });
        }
    }
}

fn own(chunk: Chunk) -> NonNull<Chunk> {
    NonNull::from(Box::leak(Box::new(chunk)))
}
