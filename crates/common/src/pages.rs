//! Pages: large buffers that are used again.
//!
//! A reply of many cells is a buffer that lives for a millisecond, filled by one thread and let go of by another. From
//! the general heap each costs a page fault for every 4 KiB: what is freed in large pieces goes back to the kernel, which
//! hands it out zeroed again. So such buffers are [given](give) to a store that all threads share, and
//! [taken](take) from it.
//!
//! Sizes are powers of two from [`PAGE_BYTES_MIN`] to [`PAGE_BYTES_MAX`]; a buffer serves for the largest of them that it
//! has room for. All that are kept have no more than [`keep_at_most`] together; to keep one more, one of the size that has
//! most bytes is let go of. One lock, taken once or twice in the life of a large buffer.

use parking_lot::Mutex;

/// The smallest buffer that is kept.
pub const PAGE_BYTES_MIN: usize = 64 << 10;
/// The largest: twice what clients let a reply have by default (`hbase.client.scanner.max.result.size`).
pub const PAGE_BYTES_MAX: usize = PAGE_BYTES_MIN << (SIZES - 1);
const SIZES: usize = 7;
/// What is kept unless somebody says otherwise.
const KEPT_BYTES_DEFAULT: usize = 16 << 20;

static STORE: Mutex<Store> = Mutex::new(Store::new(KEPT_BYTES_DEFAULT));

/// From here on the buffers that are kept have at most so many bytes together.
pub fn keep_at_most(bytes: usize) {
    let surplus = STORE.lock().limit(bytes);
    drop(surplus);
}

/// Frees all buffers that are kept now; how many bytes they had.
pub fn release_all() -> usize {
    let mut store = STORE.lock();
    let (bytes, bytes_max) = (store.bytes, store.bytes_max);
    let surplus = store.limit(0);
    store.bytes_max = bytes_max;
    drop(store);
    drop(surplus);
    bytes
}

/// Bytes of the buffers that are kept now.
pub fn kept_bytes() -> usize {
    STORE.lock().bytes
}

/// An empty buffer with room for so many bytes at least.
pub fn take(bytes: usize) -> Vec<u8> {
    let Some(size) = size_for(bytes) else { return Vec::with_capacity(bytes) };
    let kept = STORE.lock().take(size);
    kept.unwrap_or_else(|| Vec::with_capacity(PAGE_BYTES_MIN << size))
}

/// Keeps a buffer for others, without what is in it; frees it when it is small, or very large, or there are enough.
pub fn give(buffer: Vec<u8>) {
    if size_of_buffer(&buffer).is_some() {
        // What is let go of is freed after the lock.
        let surplus = STORE.lock().give(buffer);
        drop(surplus);
    }
}

/// The smallest size that has so much room.
fn size_for(bytes: usize) -> Option<usize> {
    (0..SIZES).find(|size| PAGE_BYTES_MIN << size >= bytes)
}

/// The largest size that a buffer serves for.
fn size_of_buffer(buffer: &Vec<u8>) -> Option<usize> {
    let fits = buffer.capacity() <= 2 * PAGE_BYTES_MAX;
    (0..SIZES).rfind(|size| fits && PAGE_BYTES_MIN << size <= buffer.capacity())
}

struct Store {
    sizes: [Kept; SIZES],
    /// Of all.
    bytes: usize,
    bytes_max: usize,
}

/// The buffers of one size.
struct Kept {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Store {
    const fn new(bytes_max: usize) -> Self {
        Self { sizes: [const { Kept { buffers: Vec::new(), bytes: 0 } }; SIZES], bytes: 0, bytes_max }
    }

    fn take(&mut self, size: usize) -> Option<Vec<u8>> {
        let kept = &mut self.sizes[size];
        let buffer = kept.buffers.pop()?;
        kept.bytes -= buffer.capacity();
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// Keeps a buffer; gives back those that there is no room for.
    fn give(&mut self, mut buffer: Vec<u8>) -> Vec<Vec<u8>> {
        let Some(size) = size_of_buffer(&buffer) else { return vec![buffer] };
        buffer.clear();
        self.bytes += buffer.capacity();
        self.sizes[size].bytes += buffer.capacity();
        self.sizes[size].buffers.push(buffer);
        self.shrink()
    }

    fn limit(&mut self, bytes_max: usize) -> Vec<Vec<u8>> {
        self.bytes_max = bytes_max;
        self.shrink()
    }

    fn shrink(&mut self) -> Vec<Vec<u8>> {
        let mut surplus = Vec::new();
        while self.bytes > self.bytes_max {
            let fullest = (0..SIZES).max_by_key(|size| self.sizes[*size].bytes);
            surplus.extend(fullest.and_then(|size| self.take(size)));
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
    fn a_buffer_serves_again_for_what_it_has_room_for() {
        let mut store = Store::new(1 << 20);
        assert!(store.give(buffer(200 << 10)).is_empty());
        assert!(store.take(size_for(129 << 10).unwrap()).is_none(), "it has no room for 256 KiB");
        let again = store.take(size_for(65 << 10).unwrap()).unwrap();
        assert!(again.is_empty() && again.capacity() >= 200 << 10);
        assert_eq!(store.bytes, 0);
    }

    #[test]
    fn no_more_is_kept_than_may_be_and_one_size_does_not_keep_the_others_out() {
        let mut store = Store::new(1 << 20);
        for _ in 0..100 {
            store.give(buffer(64 << 10));
        }
        assert!(store.bytes <= 1 << 20 && store.bytes > 900 << 10, "{}", store.bytes);
        let surplus = store.give(buffer(512 << 10));
        assert_eq!(surplus.len(), 8, "small ones make room");
        assert!(store.bytes <= 1 << 20 && store.take(size_for(512 << 10).unwrap()).is_some());
        assert!(!store.limit(0).is_empty());
        assert_eq!((store.bytes, store.sizes.iter().map(|kept| kept.bytes).sum::<usize>()), (0, 0));
    }

    #[test]
    fn small_buffers_and_very_large_ones_are_not_kept() {
        let mut store = Store::new(usize::MAX);
        for bytes in [0, PAGE_BYTES_MIN - 1, 2 * PAGE_BYTES_MAX + 1] {
            assert_eq!(store.give(Vec::with_capacity(bytes)).len(), 1, "{bytes}");
        }
        assert_eq!(store.bytes, 0);
        assert!(take(PAGE_BYTES_MAX + 1).capacity() > PAGE_BYTES_MAX);
    }
}
