//! The atomics and memory hints of a segment's lock-free core (`chunk`, `arena`, `skip_list`).
//! `loom_tests` compiles those three files a second time with loom's replacements, which run every
//! interleaving that the memory model allows.

pub(super) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

pub(super) use parking_lot::Mutex;

pub(super) use super::memory_hints::{prefetch, want_huge_pages};

/// Accompanies bytes that are written without atomics and later read by other threads. A no-op
/// here; under loom it fails if a read is not ordered after the write.
pub(super) struct PublicationCheck;

impl PublicationCheck {
    pub(super) fn publish() -> Self {
        Self
    }

    #[inline]
    pub(super) fn observe(&self) {}
}

/// A list makes hints once it has 2 to the power of this many tall nodes.
pub(super) const HINT_BITS_MIN: u32 = 8;
