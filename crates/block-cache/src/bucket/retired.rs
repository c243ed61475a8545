//! What is left of caches that were dropped while readers still had blocks of theirs.
//!
//! A [`super::pin::Pin`] does not count a reference to its cache's memory: that would be one line that every hit writes.
//! So a cache that is dropped looks for pins, and leaves its memory here when there are any; each later drop looks again.

use std::sync::Arc;

use parking_lot::Mutex;

use super::mapping::Mapping;
use super::pin;
use super::slot::Slots;

/// The memory of one shard, and the slots that tell whether it is still read.
pub(crate) struct RetiredShard {
    pub slots: Slots,
    pub used: u32,
    /// Kept for its memory.
    pub _frames: Option<Arc<Mapping>>,
}

impl RetiredShard {
    fn is_unpinned(&self) -> bool {
        !pin::any_pinned(&self.slots, self.used)
    }
}

static RETIRED: Mutex<Vec<RetiredShard>> = Mutex::new(Vec::new());

/// Takes in the memory of a cache; frees what nobody reads any more.
pub(crate) fn retire(shards: impl Iterator<Item = RetiredShard>) {
    let mut all = RETIRED.lock();
    all.extend(shards);
    all.retain(|shard| !shard.is_unpinned());
}
