//! How flushes and compactions yield to requests, and when they do not.

use std::sync::atomic::Ordering;

use evenkeel_common::priority::{self, BACKGROUND_NICE};
use evenkeel_region::store::BackgroundPriority;

use super::Shared;

impl BackgroundPriority for Shared {
    fn is_urgent(&self) -> bool {
        self.region_is_throttled.load(Ordering::Relaxed)
            || self.memory.get().is_some_and(|memory| memory.flushes_are_urgent())
    }

    fn lower_priority(&self) {
        lower_thread_priority("flushes", BACKGROUND_NICE);
    }

    fn throttle(&self, bytes: u64, is_urgent: &dyn Fn() -> bool) {
        self.flush_throughput.control(bytes, is_urgent);
    }
}

/// The priority of compactions: urgent when files pile up.
pub(super) struct CompactionPriority<'a>(pub(super) &'a Shared);

impl BackgroundPriority for CompactionPriority<'_> {
    fn is_urgent(&self) -> bool {
        self.0.files_pile_up.load(Ordering::Relaxed)
    }

    fn lower_priority(&self) {
        lower_thread_priority("compactions", BACKGROUND_NICE);
    }
}

/// Lowers the priority of this thread, which runs `what`.
pub(super) fn lower_thread_priority(what: &str, nice: i32) {
    if let Err(error) = priority::lower(nice) {
        tracing::warn!(%error, "cannot lower the priority of {what}");
    }
}
