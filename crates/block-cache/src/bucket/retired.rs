//! Memory of caches that were dropped while readers still held their blocks.
//!
//! A [`super::pin::Pin`] holds no reference count on its cache's memory, which would be one line
//! that every hit writes. So dropping a cache checks for pins, and leaves its memory here if there
//! are any. Each later drop checks again.

use std::sync::Arc;

use parking_lot::Mutex;

use super::mapping::Mapping;
use super::pin;
use super::slot::Slots;

/// The memory of one shard, and the slots whose pins keep it.
pub(crate) struct RetiredShard {
    pub slots: Slots,
    pub used: u32,
    /// Kept to keep its memory mapped.
    pub _frames: Option<Arc<Mapping>>,
}

impl RetiredShard {
    fn is_unpinned(&self) -> bool {
        !pin::any_pinned(&self.slots, self.used)
    }
}

static RETIRED: Mutex<Vec<RetiredShard>> = Mutex::new(Vec::new());

/// Takes over the memory of a dropped cache, and frees all memory without pins.
pub(crate) fn retire(shards: impl Iterator<Item = RetiredShard>) {
    let mut all = RETIRED.lock();
    all.extend(shards);
    all.retain(|shard| !shard.is_unpinned());
}
