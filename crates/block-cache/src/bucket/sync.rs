//! The primitives of the lock-free core of a hit (`slot`, `pin`). `core_tests` compiles the same
//! files again with loom's primitives, and checks every interleaving that the memory model allows.

pub(super) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence};
pub(super) use std::thread_local;

/// The number of stripes. More threads than this share them.
pub(super) const STRIPES: usize = 64;
/// Pins per stripe.
pub(super) const ENTRIES: usize = 31;
/// True with the machine's primitives, where a slot has its real size.
pub(super) const IS_MACHINE: bool = true;

/// A static with a constant initializer.
macro_rules! shared {
    ($(#[$meta:meta])* $name:ident: $kind:ty = $value:expr) => {
        $(#[$meta])*
        static $name: $kind = $value;
    };
}

/// An array of equal values that are not `Copy`.
macro_rules! array {
    ($value:expr; $count:expr) => {
        [const { $value }; $count]
    };
}

pub(super) use {array, shared};
