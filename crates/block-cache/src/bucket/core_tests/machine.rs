//! `sync` with loom's primitives, and its faulty variant.
//!
//! loom treats sequentially consistent accesses as acquire and release, but implements their
//! fences. So such an access has a fence on the side that prevents reordering: before a load, and
//! after a store or an exchange. The fence also orders the accesses around it, which the machine
//! need not do. A fault that only shows without that order is not found here.

use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Release, SeqCst};

use loom::sync::atomic;

/// A fence. Without `IN_ONE_ORDER` it is acquire and release.
pub(super) fn fence<const IN_ONE_ORDER: bool>(order: Ordering) {
    atomic::fence(if order == SeqCst && !IN_ONE_ORDER { AcqRel } else { order });
}

fn settle<const IN_ONE_ORDER: bool>(order: Ordering) {
    if order == SeqCst {
        fence::<IN_ONE_ORDER>(SeqCst);
    }
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        /// A number. Without `IN_ONE_ORDER`, sequentially consistent accesses are acquire and
        /// release.
        #[derive(Debug, Default)]
        pub(super) struct $name<const IN_ONE_ORDER: bool>(atomic::$name);

        #[allow(dead_code, reason = "not every number is changed in every way")]
        impl<const IN_ONE_ORDER: bool> $name<IN_ONE_ORDER> {
            pub(super) fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            pub(super) fn load(&self, order: Ordering) -> $value {
                settle::<IN_ONE_ORDER>(order);
                self.0.load(if order == SeqCst { Acquire } else { order })
            }

            pub(super) fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, if order == SeqCst { Release } else { order });
                settle::<IN_ONE_ORDER>(order);
            }

            pub(super) fn fetch_add(&self, more: $value, order: Ordering) -> $value {
                let was = self.0.fetch_add(more, if order == SeqCst { AcqRel } else { order });
                settle::<IN_ONE_ORDER>(order);
                was
            }

            pub(super) fn fetch_sub(&self, less: $value, order: Ordering) -> $value {
                let was = self.0.fetch_sub(less, if order == SeqCst { AcqRel } else { order });
                settle::<IN_ONE_ORDER>(order);
                was
            }

            pub(super) fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                let was = self.0.fetch_max(value, if order == SeqCst { AcqRel } else { order });
                settle::<IN_ONE_ORDER>(order);
                was
            }

            pub(super) fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                done: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                let was =
                    self.0.compare_exchange(from, to, if done == SeqCst { AcqRel } else { done }, failed);
                settle::<IN_ONE_ORDER>(done);
                was
            }
        }
    };
}

number!(AtomicU32, u32);
number!(AtomicUsize, usize);

/// A static that lives for one execution of a model.
macro_rules! shared {
    ($(#[$meta:meta])* $name:ident: $kind:ty = $value:expr) => {
        loom::lazy_static! {
            $(#[$meta])*
            static ref $name: $kind = $value;
        }
    };
}

macro_rules! array {
    ($value:expr; $count:expr) => {
        std::array::from_fn(|_| $value)
    };
}

pub(super) use {array, shared};
