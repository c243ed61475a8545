//! What regions report to the background threads.

use std::sync::Arc;

use evenkeel_region::region::{Region, RegionEvents};

use super::Background;

impl RegionEvents for Background {
    fn abort_server(&self, region: &Region, reason: &str) {
        self.supervisor.report(format!("{reason} of region {}", region.info().encoded_name()));
    }

    fn flush_wanted(&self, region: &Arc<Region>) {
        self.request_flush(region);
    }

    fn in_memory_flush_wanted(&self, region: &Arc<Region>) {
        self.shared.in_memory_flushes.push(region.info().encoded_name().to_owned(), region.clone());
    }

    fn replica_events(&self, region: &Arc<Region>) {
        self.request_replication(region);
    }

    fn write_grew(&self, bytes: u64) {
        if self.shared.memory.get().is_some_and(|memory| memory.note(bytes)) {
            self.notifier().notify();
        }
    }
}
