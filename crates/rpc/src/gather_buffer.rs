//! A byte sequence of copied bytes and shared segments, for vectored writes.
//!
//! Small parts (lengths, headers, keys, small values) are copied in order into `copied`. A large
//! value or cell block is inserted as a [`Bytes`] at its position, without a copy, and stays pinned
//! until it is sent.
//!
//! ```text
//! copied:   |---- head ----|------ k1 ------|--------- k2 ---------|
//! inserts:                 ^ at, value 1    ^ at, value 2
//! on wire:  ---- head ----- == value 1 == -- k1 -- == value 2 == -- k2 --
//! ```
//!
//! Invariants: `inserts` is ordered by `at`, each `at` lies in `head..=copied.len()`, no insert is
//! empty, `head` is the number of copied bytes that were consumed. Memory: buffers come from a
//! per-thread pool bounded by [`POOL_BYTES_MAX`]; large ones go to the
//! [`buffer_pool`] that all threads share.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use bytes::{Buf, Bytes};
use evenkeel_common::buffer_pool::{self, POOLED_BYTES_MIN};

/// Size from which a segment is inserted instead of copied.
pub const GATHER_BYTES_MIN: usize = 16 * 1024;
/// Limit of slices per vectored write (Linux accepts at most 1024).
pub const SLICES_MAX: usize = 64;
/// Number of consumed copied bytes at which they are removed in place.
const COMPACT_BYTES_MIN: usize = 64 * 1024;
/// Limit of the buffer that a drained sequence keeps; each connection has one.
const KEPT_BYTES_MAX: usize = 128 * 1024;
/// Limit of the total size of the buffers that a thread keeps for reuse.
const POOL_BYTES_MAX: usize = 1024 * 1024;

#[derive(Default)]
struct Pool {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// Returns an empty buffer, a reused one if this thread has any.
fn pooled_buffer() -> Vec<u8> {
    let take = |pool: &RefCell<Pool>| {
        let mut pool = pool.borrow_mut();
        let buffer = pool.buffers.pop()?;
        pool.bytes -= buffer.capacity();
        Some(buffer)
    };
    POOL.try_with(take).ok().flatten().unwrap_or_default()
}

/// Keeps `buffer` for reuse, within the limits: by this thread, or by all threads if it is large.
fn recycle(mut buffer: Vec<u8>) {
    buffer.clear();
    let capacity = buffer.capacity();
    if capacity == 0 {
        return;
    }
    if capacity >= POOLED_BYTES_MIN {
        return buffer_pool::release(buffer);
    }
    // The pool does not exist while the thread ends; the buffer is freed then.
    let _ = POOL.try_with(|pool| {
        let mut pool = pool.borrow_mut();
        if pool.bytes + capacity <= POOL_BYTES_MAX {
            pool.bytes += capacity;
            pool.buffers.push(buffer);
        }
    });
}

/// Lends a pooled buffer to [`Bytes`] and recycles it when the last view is dropped.
struct PooledOwner(Vec<u8>);

impl AsRef<[u8]> for PooledOwner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for PooledOwner {
    fn drop(&mut self) {
        recycle(std::mem::take(&mut self.0));
    }
}

struct SharedSegment {
    /// Offset in `copied` before which the segment is inserted.
    at: usize,
    bytes: Bytes,
}

/// The sequence; see the module's documentation.
#[derive(Default)]
pub struct GatherBuffer {
    copied: Vec<u8>,
    head: usize,
    inserts: VecDeque<SharedSegment>,
    inserted_bytes: usize,
}

impl GatherBuffer {
    /// An empty sequence over a pooled buffer.
    pub fn new() -> Self {
        GatherBuffer { copied: pooled_buffer(), head: 0, inserts: VecDeque::new(), inserted_bytes: 0 }
    }

    /// Returns a sequence of copied bytes and of segments, each with its insertion offset in
    /// `copied`, ascending.
    pub fn from_parts(copied: Vec<u8>, segments: Vec<(usize, Bytes)>) -> Self {
        let segments = segments.into_iter().filter(|(_, bytes)| !bytes.is_empty());
        let inserts: VecDeque<_> =
            segments.map(|(at, bytes)| SharedSegment { at: at.min(copied.len()), bytes }).collect();
        let inserted_bytes = inserts.iter().map(|insert| insert.bytes.len()).sum();
        GatherBuffer { copied, head: 0, inserts, inserted_bytes }
    }

    /// Bytes not yet consumed.
    #[inline]
    pub fn len(&self) -> usize {
        self.copied.len() - self.head + self.inserted_bytes
    }

    /// Returns true if everything was consumed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The end of the copied bytes, to append to.
    #[inline]
    pub fn copied(&mut self) -> &mut Vec<u8> {
        &mut self.copied
    }

    /// The bytes as one slice; `None` if there are shared segments.
    pub fn as_contiguous(&self) -> Option<&[u8]> {
        if self.inserts.is_empty() { self.copied.get(self.head..) } else { None }
    }

    /// Appends `bytes` without copying them, or copies them if they are small.
    pub fn push_shared(&mut self, bytes: Bytes) {
        if bytes.len() < GATHER_BYTES_MIN {
            return self.copied.extend_from_slice(&bytes);
        }
        self.inserted_bytes += bytes.len();
        self.inserts.push_back(SharedSegment { at: self.copied.len(), bytes });
    }

    /// Appends all of `other`: copies small parts and shares large ones.
    pub fn append(&mut self, mut other: GatherBuffer) {
        if other.copied.len() >= GATHER_BYTES_MIN {
            return self.append_segments(other);
        }
        let mut from = other.head;
        for insert in std::mem::take(&mut other.inserts) {
            self.copied.extend_from_slice(other.copied.get(from..insert.at).unwrap_or_default());
            from = insert.at;
            self.push_shared(insert.bytes);
        }
        self.copied.extend_from_slice(other.copied.get(from..).unwrap_or_default());
        other.inserted_bytes = 0;
    }

    fn append_segments(&mut self, mut other: GatherBuffer) {
        let mut from = other.head;
        let whole = Bytes::from_owner(PooledOwner(std::mem::take(&mut other.copied)));
        other.head = 0;
        for insert in std::mem::take(&mut other.inserts) {
            self.push_shared(whole.slice(from..insert.at));
            from = insert.at;
            self.push_shared(insert.bytes);
        }
        self.push_shared(whole.slice(from..));
        other.inserted_bytes = 0;
    }

    /// Points `slices` to the first unconsumed bytes. Returns the number of slices filled.
    pub fn fill_slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut filled = 0;
        let mut from = self.head;
        let mut add = |bytes: &'a [u8]| {
            let Some(slice) = slices.get_mut(filled) else { return false };
            if !bytes.is_empty() {
                *slice = IoSlice::new(bytes);
                filled += 1;
            }
            true
        };
        for insert in &self.inserts {
            if !add(self.copied_range(from..insert.at)) || !add(&insert.bytes) {
                return SLICES_MAX;
            }
            from = insert.at;
        }
        add(self.copied_range(from..self.copied.len()));
        filled
    }

    /// Drops the first `count` bytes, which were written to the socket.
    pub fn consume(&mut self, mut count: usize) {
        while let Some(insert) = self.inserts.front_mut() {
            let before = insert.at - self.head;
            if count < before {
                break;
            }
            count -= before;
            self.head = insert.at;
            let taken = count.min(insert.bytes.len());
            insert.bytes.advance(taken);
            self.inserted_bytes -= taken;
            count -= taken;
            if !insert.bytes.is_empty() {
                return self.reclaim();
            }
            self.inserts.pop_front();
        }
        self.head = self.head.saturating_add(count).min(self.copied.len());
        self.reclaim();
    }

    /// Frees consumed copied bytes when that is cheap.
    fn reclaim(&mut self) {
        if self.is_empty() {
            self.head = 0;
            self.copied.clear();
            if self.copied.capacity() > KEPT_BYTES_MAX {
                recycle(std::mem::take(&mut self.copied));
            }
        } else if self.head >= COMPACT_BYTES_MIN && self.head * 2 >= self.copied.len() {
            self.copied.drain(..self.head);
            self.inserts.iter_mut().for_each(|insert| insert.at -= self.head);
            self.head = 0;
        }
    }

    /// Returns a copy of all bytes in order, for tests and for rare readers that need one slice.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        let mut from = self.head;
        for insert in &self.inserts {
            all.extend_from_slice(self.copied_range(from..insert.at));
            all.extend_from_slice(&insert.bytes);
            from = insert.at;
        }
        all.extend_from_slice(self.copied_range(from..self.copied.len()));
        all
    }

    /// Returns copied bytes. Shared segments lie at ascending offsets, so each range exists.
    #[inline]
    fn copied_range(&self, range: Range<usize>) -> &[u8] {
        self.copied.get(range).unwrap_or_default()
    }
}

impl Drop for GatherBuffer {
    fn drop(&mut self) {
        recycle(std::mem::take(&mut self.copied));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large(byte: u8) -> Bytes {
        Bytes::from(vec![byte; GATHER_BYTES_MIN + 7])
    }

    fn sample() -> (GatherBuffer, Vec<u8>) {
        let mut gather = GatherBuffer::new();
        let mut model = Vec::new();
        for i in 0..5u8 {
            gather.copied().extend_from_slice(&[i; 33]);
            gather.push_shared(large(i + 100));
            gather.push_shared(Bytes::from_static(b"tiny"));
            model.extend_from_slice(&[i; 33]);
            model.extend_from_slice(&large(i + 100));
            model.extend_from_slice(b"tiny");
        }
        (gather, model)
    }

    fn first_bytes(gather: &GatherBuffer) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let filled = gather.fill_slices(&mut slices);
        slices[..filled].iter().flat_map(|slice| slice.to_vec()).collect()
    }

    #[test]
    fn slices_are_the_bytes_in_order_whatever_was_consumed() {
        for step in [1000, 33, 16_390, 40_000] {
            let (mut gather, model) = sample();
            let mut sent = 0;
            while sent < model.len() {
                assert_eq!(first_bytes(&gather), model[sent..], "step {step} at {sent}");
                assert_eq!(gather.len(), model.len() - sent);
                gather.consume(step.min(model.len() - sent));
                sent += step.min(model.len() - sent);
            }
            assert!(gather.is_empty() && first_bytes(&gather).is_empty());
        }
    }

    #[test]
    fn append_keeps_the_order_and_gathers_large_parts() {
        let (small, model) = sample();
        let mut out = GatherBuffer::new();
        out.copied().extend_from_slice(b"head");
        out.append(small);
        let mut big = GatherBuffer::new();
        big.copied().extend_from_slice(&[7; GATHER_BYTES_MIN]);
        out.append(big);
        let expected = [b"head".as_slice(), &model, &[7; GATHER_BYTES_MIN]].concat();
        assert_eq!(out.to_vec(), expected);
        assert!(out.copied().len() < GATHER_BYTES_MIN, "large parts were copied");
    }

    #[test]
    fn a_never_drained_buffer_releases_sent_bytes() {
        let mut gather = GatherBuffer::new();
        for _ in 0..1000 {
            gather.copied().extend_from_slice(&[1; 4096]);
            if gather.len() > 8192 {
                gather.consume(4096);
            }
        }
        assert!(gather.copied().len() <= 4 * COMPACT_BYTES_MIN, "{}", gather.copied().len());
    }

    #[test]
    fn consuming_more_than_buffered_empties_the_buffer() {
        let (mut gather, _) = sample();
        gather.consume(usize::MAX);
        assert!(gather.is_empty());
    }
}
