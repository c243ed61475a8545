//! In-memory flushes: the active segment moves behind a new one and becomes flat (HBase's
//! CompactingMemStore).
//!
//! A write that finds its segment large requests one, and a background thread runs it. A flush that
//! begins meanwhile takes the segments as they are; the new flat segment is then discarded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_common::Result;
use parking_lot::Mutex;

use crate::region::Region;
use crate::store::Store;

/// Decides when in-memory flushes are due.
pub(in crate::region) struct InMemoryFlushSchedule {
    /// `None` if no family has them.
    threshold_bytes: Option<u64>,
    /// An in-memory flush is requested and has not begun.
    requested: AtomicBool,
    /// Serialises in-memory flushes: while one waits, another could push a segment whose writes are
    /// incomplete.
    running: Mutex<()>,
}

impl InMemoryFlushSchedule {
    pub(in crate::region) fn new(stores: &[Arc<Store>], threshold_bytes: u64) -> Self {
        let some = stores.iter().any(|store| store.compacts_in_memory());
        Self {
            threshold_bytes: some.then_some(threshold_bytes),
            requested: AtomicBool::new(false),
            running: Mutex::new(()),
        }
    }
}

impl Region {
    /// Requests an in-memory flush if one is due and none is requested.
    #[inline]
    pub(in crate::region) fn request_in_memory_flush(self: &Arc<Self>) {
        let Some(bytes) = self.in_memory.threshold_bytes else { return };
        if !self.in_memory.requested.load(Ordering::Relaxed)
            && self.stores.iter().any(|store| store.wants_in_memory_flush(bytes))
            && !self.in_memory.requested.swap(true, Ordering::Relaxed)
        {
            self.env.events.in_memory_flush_wanted(self);
        }
    }

    /// Makes the large parts of the MemStore flat. Waits for the log, but blocks no other thread.
    ///
    /// # Errors
    /// No error is known. The cells are unchanged after an error.
    pub fn flush_in_memory(&self) -> Result<()> {
        let _one = self.in_memory.running.lock();
        self.in_memory.requested.store(false, Ordering::Relaxed);
        let Some(bytes) = self.in_memory.threshold_bytes else { return Ok(()) };
        self.stores
            .iter()
            .filter(|store| store.wants_in_memory_flush(bytes))
            .try_for_each(|store| self.flush_store_in_memory(store))
    }

    fn flush_store_in_memory(&self, store: &Store) -> Result<()> {
        store.push_active();
        // From here on no write changes the pipeline, and every write in it is durable or taken
        // back.
        self.mvcc.wait_for(self.mvcc.write_point());
        let Some(change) = store.plan_in_memory(self.mvcc.read_point())? else { return Ok(()) };
        match change.drops_cells() {
            true => self.with_new_epoch(|| store.swap_in_memory(change)),
            false => store.swap_in_memory(change),
        };
        Ok(())
    }
}
