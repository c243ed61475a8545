//! What the lock-free core of a hit (`slot`, `pin`) takes from the machine. `core_tests` compiles the same files once more
//! over loom's stand-ins, which run every order of steps that the memory model allows.

pub(super) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence};
pub(super) use std::thread_local;

/// Threads that have pins of their own; more share them.
pub(super) const STRIPES: usize = 64;
/// Pins of a stripe.
pub(super) const ENTRIES: usize = 31;
/// Whether a slot has its size here.
pub(super) const IS_MACHINE: bool = true;

/// A static, made when it is compiled.
macro_rules! shared {
    ($(#[$meta:meta])* $name:ident: $kind:ty = $value:expr) => {
        $(#[$meta])*
        static $name: $kind = $value;
    };
}

/// An array of equal values that cannot be copied.
macro_rules! array {
    ($value:expr; $count:expr) => {
        [const { $value }; $count]
    };
}

pub(super) use {array, shared};
