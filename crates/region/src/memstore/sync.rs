//! What the lock-free core of a segment (`chunk`, `arena`, `skip_list`) takes from the machine. `loom_tests` compiles the
//! same three files once more over loom's stand-ins, which run every order of steps that the memory model allows.

pub(super) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

pub(super) use parking_lot::Mutex;

pub(super) use super::memory_hints::{prefetch, want_huge_pages};

/// Stands beside bytes that are written plainly and read by other threads later. Nothing here; in the model it fails when
/// a reader came to the bytes by no way on which their writing happened before.
pub(super) struct PublicationCheck;

impl PublicationCheck {
    pub(super) fn publish() -> Self {
        Self
    }

    #[inline]
    pub(super) fn observe(&self) {}
}

/// A list has hints once it has 2 to this power of tall nodes.
pub(super) const HINT_BITS_MIN: u32 = 8;
