//! The core with links that are compared and then set.

mod sync {
    pub(super) use super::super::machine::{AtomicBool, AtomicUsize, Mutex, Ordering, Written};
    use super::super::machine::{Link, Links};

    pub(super) enum Used {}

    impl Links for Used {
        const RELAXED: bool = false;
        const IN_TWO_STEPS: bool = true;
    }

    pub(super) type AtomicPtr<T> = Link<T, Used>;
}

#[path = "../arena.rs"]
mod arena;
#[path = "../chunk.rs"]
#[allow(dead_code, reason = "a scenario needs a part of it")]
mod chunk;
#[path = "../record.rs"]
mod record;
#[allow(dead_code, reason = "not every scenario is run in every way")]
#[path = "scenarios.rs"]
pub(super) mod scenarios;
#[path = "../skip_list.rs"]
#[allow(dead_code, reason = "a scenario needs a part of it")]
mod skip_list;
