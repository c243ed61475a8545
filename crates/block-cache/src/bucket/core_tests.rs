//! The lock-free core of a hit under every interleaving that the memory model allows, for a few
//! threads (loom).
//!
//! `slot` and `pin` are compiled here a second time with loom's atomics instead of the machine's
//! (see `sync`), and a third time with a known fault:
//!
//! | variant | fault | what the model finds |
//! |---|---|---|
//! | `sound` | none | |
//! | `unordered` | SeqCst accesses are only acquire and release | a write to a pinned frame |
//!
//! So the tests are known to fail when they should. The scenarios simulate the steps of a shard
//! under its lock, because a shard's table and memory come from the kernel. Each scenario has one
//! thread that acts as the lock holder.

mod machine;

/// Compiles the core once.
macro_rules! core {
    ($name:ident, in_one_order: $in_one_order:expr) => {
        #[path = "."]
        mod $name {
            mod sync {
                pub(super) use loom::sync::atomic::{AtomicU8, AtomicU64};
                pub(super) use loom::thread_local;

                pub(super) use super::super::machine::{array, shared};

                pub(super) type AtomicU32 = super::super::machine::AtomicU32<{ $in_one_order }>;
                pub(super) type AtomicUsize = super::super::machine::AtomicUsize<{ $in_one_order }>;

                pub(super) fn fence(order: std::sync::atomic::Ordering) {
                    super::super::machine::fence::<{ $in_one_order }>(order);
                }

                /// One for each thread of a scenario, and one unused.
                pub(super) const STRIPES: usize = 4;
                /// A second pin of a thread is counted in the slot.
                pub(super) const ENTRIES: usize = 1;
                pub(super) const IS_MACHINE: bool = false;
            }

            /// Adjacent slots.
            mod mapping {
                use std::ptr::NonNull;

                use super::slot::Slot;

                #[derive(Debug)]
                pub(super) struct Mapping(Box<[Slot]>);

                impl Mapping {
                    pub fn of_slots(count: u32) -> Self {
                        Self((0..count).map(|_| Slot::default()).collect())
                    }

                    pub fn len(&self) -> usize {
                        size_of_val(&*self.0)
                    }

                    pub fn at(&self, at: usize) -> NonNull<u8> {
                        assert_eq!(at, 0, "one table");
                        NonNull::from(&*self.0).cast()
                    }
                }
            }

            mod rows {
                pub(super) const NO_ROW: u8 = 0;
            }

            #[path = "pin.rs"]
            #[allow(clippy::modulo_one, reason = "a stripe has one entry here")]
            #[allow(dead_code, reason = "a scenario needs a part of it")]
            mod pin;
            #[path = "core_tests/scenarios.rs"]
            #[allow(dead_code, reason = "not every scenario is run in every way")]
            pub(super) mod scenarios;
            #[path = "slot.rs"]
            #[allow(dead_code, reason = "a scenario needs a part of it")]
            mod slot;
        }
    };
}

core!(sound, in_one_order: true);
core!(unordered, in_one_order: false);

/// More context switches find nothing new here and take long.
const SWITCHES_MAX: usize = 3;

fn every_order(scenario: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(SWITCHES_MAX);
    model.check(scenario);
}

#[test]
fn a_frame_is_not_reused_while_it_is_pinned() {
    every_order(sound::scenarios::evict_and_reuse);
}

#[test]
fn a_block_that_moves_is_found_whole_or_not_at_all() {
    every_order(sound::scenarios::move_away);
}

#[test]
fn a_forgotten_block_stays_until_its_last_pin_is_gone() {
    every_order(sound::scenarios::two_pins_and_a_retirement);
}

#[test]
fn a_clone_outlives_its_pin_and_keeps_the_frame() {
    every_order(sound::scenarios::a_clone_and_a_retirement);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_model_finds_steps_that_are_not_in_one_order() {
    every_order(unordered::scenarios::evict_and_reuse);
}
