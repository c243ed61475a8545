//! A pool of large buffers for replies.
//!
//! A reply of many cells is a buffer that lives for about a millisecond, filled by one thread and
//! freed by another. On the general heap each costs a page fault for every 4 KiB: the allocator
//! returns large blocks to the kernel, which zeroes them again. So such buffers are
//! [released](release) to a pool shared by all threads, and [acquired](acquire) from it.
//!
//! Size classes are powers of two from [`POOLED_BYTES_MIN`] to [`POOLED_BYTES_MAX`]; a buffer
//! belongs to the largest class whose size its capacity covers. [`set_capacity`] bounds the bytes
//! of all pooled buffers together. When the pool is full, a buffer of the class with the most bytes
//! is evicted. There is one lock, taken once or twice in the life of a large buffer.

use parking_lot::Mutex;

/// The smallest buffer that is pooled.
pub const POOLED_BYTES_MIN: usize = 64 << 10;
/// The largest size class: twice the default limit of a reply
/// (`hbase.client.scanner.max.result.size`).
pub const POOLED_BYTES_MAX: usize = POOLED_BYTES_MIN << (CLASSES - 1);
const CLASSES: usize = 7;
/// The capacity until [`set_capacity`] is called.
const CAPACITY_BYTES_DEFAULT: usize = 16 << 20;

static POOL: Mutex<BufferPool> = Mutex::new(BufferPool::new(CAPACITY_BYTES_DEFAULT));

/// Limits the total size of the pooled buffers to `bytes`.
pub fn set_capacity(bytes: usize) {
    let surplus = POOL.lock().set_capacity(bytes);
    drop(surplus);
}

/// Frees all pooled buffers. Returns their bytes.
pub fn clear() -> usize {
    let mut pool = POOL.lock();
    let (bytes, capacity_bytes) = (pool.bytes, pool.capacity_bytes);
    let surplus = pool.set_capacity(0);
    pool.capacity_bytes = capacity_bytes;
    drop(pool);
    drop(surplus);
    bytes
}

/// Bytes of the buffers in the pool.
pub fn pooled_bytes() -> usize {
    POOL.lock().bytes
}

/// An empty buffer with a capacity of at least `bytes`.
pub fn acquire(bytes: usize) -> Vec<u8> {
    let Some(class) = class_for(bytes) else { return Vec::with_capacity(bytes) };
    let kept = POOL.lock().acquire(class);
    kept.unwrap_or_else(|| Vec::with_capacity(POOLED_BYTES_MIN << class))
}

/// Empties a buffer and puts it into the pool. Frees it if it is too small or too large, or if the
/// pool is full.
pub fn release(buffer: Vec<u8>) {
    if class_of(&buffer).is_some() {
        // Evicted buffers are freed after the lock is released.
        let surplus = POOL.lock().release(buffer);
        drop(surplus);
    }
}

/// Returns the smallest class whose buffers have a capacity of at least `bytes`.
fn class_for(bytes: usize) -> Option<usize> {
    (0..CLASSES).find(|class| POOLED_BYTES_MIN << class >= bytes)
}

/// Returns the largest class whose size the buffer's capacity covers; `None` if it is not pooled.
fn class_of(buffer: &Vec<u8>) -> Option<usize> {
    let fits = buffer.capacity() <= 2 * POOLED_BYTES_MAX;
    (0..CLASSES).rfind(|class| fits && POOLED_BYTES_MIN << class <= buffer.capacity())
}

struct BufferPool {
    classes: [SizeClass; CLASSES],
    /// Capacity of all pooled buffers.
    bytes: usize,
    capacity_bytes: usize,
}

/// The buffers of one size class.
struct SizeClass {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "classes are below CLASSES"))]
impl BufferPool {
    const fn new(capacity_bytes: usize) -> Self {
        Self {
            classes: [const { SizeClass { buffers: Vec::new(), bytes: 0 } }; CLASSES],
            bytes: 0,
            capacity_bytes,
        }
    }

    fn acquire(&mut self, class: usize) -> Option<Vec<u8>> {
        let kept = &mut self.classes[class];
        let buffer = kept.buffers.pop()?;
        kept.bytes -= buffer.capacity();
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// Adds a buffer. Returns the buffers that are evicted for it.
    fn release(&mut self, mut buffer: Vec<u8>) -> Vec<Vec<u8>> {
        let Some(class) = class_of(&buffer) else { return vec![buffer] };
        buffer.clear();
        self.bytes += buffer.capacity();
        self.classes[class].bytes += buffer.capacity();
        self.classes[class].buffers.push(buffer);
        self.evict()
    }

    fn set_capacity(&mut self, capacity_bytes: usize) -> Vec<Vec<u8>> {
        self.capacity_bytes = capacity_bytes;
        self.evict()
    }

    fn evict(&mut self) -> Vec<Vec<u8>> {
        let mut surplus = Vec::new();
        while self.bytes > self.capacity_bytes {
            let fullest = (0..CLASSES).max_by_key(|class| self.classes[*class].bytes);
            surplus.extend(fullest.and_then(|class| self.acquire(class)));
        }
        surplus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(bytes: usize) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(bytes);
        buffer.push(1);
        buffer
    }

    #[test]
    fn a_released_buffer_is_reused_where_it_fits() {
        let mut pool = BufferPool::new(1 << 20);
        assert!(pool.release(buffer(200 << 10)).is_empty());
        assert!(pool.acquire(class_for(129 << 10).unwrap()).is_none(), "it has no room for 256 KiB");
        let again = pool.acquire(class_for(65 << 10).unwrap()).unwrap();
        assert!(again.is_empty() && again.capacity() >= 200 << 10);
        assert_eq!(pool.bytes, 0);
    }

    #[test]
    fn the_pool_stays_within_its_bound_across_sizes() {
        let mut pool = BufferPool::new(1 << 20);
        for _ in 0..100 {
            pool.release(buffer(64 << 10));
        }
        assert!(pool.bytes <= 1 << 20 && pool.bytes > 900 << 10, "{}", pool.bytes);
        let surplus = pool.release(buffer(512 << 10));
        assert_eq!(surplus.len(), 8, "small ones make room");
        assert!(pool.bytes <= 1 << 20 && pool.acquire(class_for(512 << 10).unwrap()).is_some());
        assert!(!pool.set_capacity(0).is_empty());
        assert_eq!((pool.bytes, pool.classes.iter().map(|class| class.bytes).sum::<usize>()), (0, 0));
    }

    #[test]
    fn small_buffers_and_very_large_ones_are_not_kept() {
        let mut pool = BufferPool::new(usize::MAX);
        for bytes in [0, POOLED_BYTES_MIN - 1, 2 * POOLED_BYTES_MAX + 1] {
            assert_eq!(pool.release(Vec::with_capacity(bytes)).len(), 1, "{bytes}");
        }
        assert_eq!(pool.bytes, 0);
        assert!(acquire(POOLED_BYTES_MAX + 1).capacity() > POOLED_BYTES_MAX);
    }
}
