//! The lock-free core, tested with loom under every interleaving that the memory model allows for a
//! few threads.
//!
//! `chunk`, `arena` and `skip_list` are compiled here a second time, with loom's atomics instead of
//! the machine's (see `sync`), and in two incorrect variants:
//!
//! | variant | defect | what the model finds |
//! |---|---|---|
//! | `sound` | none | |
//! | `relaxed` | links are read and set without order | a reader sees a node before its content |
//! | `two_steps` | a link is compared, then set | two writers link at one place: a cell is lost |
//!
//! So the tests are known to fail when they should.

mod machine;

/// Compiles the core again, with links of one kind.
macro_rules! core_with_links {
    ($name:ident, relaxed: $relaxed:expr, in_two_steps: $in_two_steps:expr) => {
        #[path = "."]
        mod $name {
            mod sync {
                pub(super) use super::super::machine::{
                    AtomicBool, AtomicPtr, AtomicUsize, Mutex, Ordering, PublicationCheck,
                };
                use super::super::machine::{Link, Links};

                pub(super) enum Used {}

                impl Links for Used {
                    const RELAXED: bool = $relaxed;
                    const IN_TWO_STEPS: bool = $in_two_steps;
                }

                pub(super) type AtomicU64 = Link<Used>;

                /// One tall node is enough.
                pub(super) const HINT_BITS_MIN: u32 = 0;

                pub(super) fn prefetch<T>(_: *const T) {}

                pub(super) fn want_huge_pages(_: std::ptr::NonNull<u8>, _: usize) {}
            }

            #[path = "arena.rs"]
            mod arena;
            #[path = "chunk.rs"]
            #[allow(dead_code, reason = "a scenario needs a part of it")]
            mod chunk;
            #[path = "record.rs"]
            mod record;
            #[path = "row_prefix_code.rs"]
            #[allow(dead_code, reason = "its own tests are elsewhere")]
            mod row_prefix_code;
            #[path = "loom_tests/scenarios.rs"]
            #[allow(dead_code, reason = "not every scenario is run in every way")]
            pub(super) mod scenarios;
            #[path = "skip_list.rs"]
            #[allow(dead_code, reason = "a scenario needs a part of it")]
            mod skip_list;
        }
    };
}

core_with_links!(sound, relaxed: false, in_two_steps: false);
core_with_links!(relaxed, relaxed: true, in_two_steps: false);
core_with_links!(two_steps, relaxed: false, in_two_steps: true);

/// More context switches than these find no further errors here, and take long.
const SWITCHES_MAX: usize = 3;

/// The same for two writers beside a reader, which have many more interleavings.
const SWITCHES_OF_THREE_MAX: usize = 2;

fn every_order(scenario: impl Fn() + Send + Sync + 'static) {
    every_order_of(SWITCHES_MAX, scenario);
}

fn every_order_of(switches_max: usize, scenario: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches_max);
    model.check(scenario);
}

#[test]
fn two_writers_lose_no_cell_and_a_reader_finds_them_in_order() {
    every_order_of(SWITCHES_OF_THREE_MAX, sound::scenarios::two_writers_and_a_reader);
}

#[test]
fn a_reader_that_walks_backwards_misses_no_cell_while_a_writer_inserts() {
    every_order(sound::scenarios::a_writer_and_a_reader_that_walks_backwards);
}

#[test]
fn two_threads_get_different_bytes_when_a_chunk_is_full() {
    every_order(sound::scenarios::two_threads_at_the_end_of_a_chunk);
}

#[test]
fn a_rolled_back_cell_is_never_visible() {
    every_order(sound::scenarios::a_cell_is_taken_back);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_model_finds_links_without_order() {
    every_order_of(SWITCHES_OF_THREE_MAX, relaxed::scenarios::two_writers_and_a_reader);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_model_finds_links_without_order_backwards_too() {
    every_order(relaxed::scenarios::a_writer_and_a_reader_that_walks_backwards);
}

#[test]
#[should_panic(expected = "a cell is lost")]
fn the_model_finds_links_set_in_two_steps() {
    every_order_of(SWITCHES_OF_THREE_MAX, two_steps::scenarios::two_writers_and_a_reader);
}
