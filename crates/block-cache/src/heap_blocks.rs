//! The bytes of blocks that are outside of every cache, in the whole process.
//!
//! A reader holds the block that it is in. A merge of many store files holds one of each, and if
//! the caches have no space for them, these blocks are on the heap. Their number is the number of
//! files times the number of readers, which no setting bounds. So they are counted here, and a
//! server sets a limit:
//!
//! * Above it ([`are_too_many`]) a merge keeps only the block that it reads from, and remembers
//!   where it was in the others. It loads them again when it comes to them.
//! * A reader that wants a large block waits until there is room for it ([`wait_for_room`]). After
//!   [`WAIT_MAX`] it is refused, because readers that wait may hold what others wait for.
//!
//! Smaller blocks wait for nothing, so each reader may exceed the limit by less than
//! [`LARGE_BYTES`].
//!
//! Counted is the body with its header and checksums, and its seek points, as long as the block
//! exists: in a reader, or in a reply that shares its values. The memory of a process is one, so
//! the count is one: servers in the same process share it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use evenkeel_common::clock;

use crate::BlockParts;

/// Readers wait for room before they load a block of this many bytes.
pub const LARGE_BYTES: u64 = 128 << 10;
/// Readers wait for room this long at most.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
/// How often a reader that waits looks for room.
const LOOK: Duration = Duration::from_millis(1);

static BYTES: AtomicU64 = AtomicU64::new(0);
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Bytes of all blocks outside of caches.
pub fn bytes() -> u64 {
    BYTES.load(Relaxed)
}

/// Sets the bytes above which merges release blocks. There is no limit before the first call.
pub fn set_limit(bytes: u64) {
    LIMIT.store(bytes, Relaxed);
}

/// Returns true if merges should release the blocks that they do not read from.
#[inline]
pub fn are_too_many() -> bool {
    bytes() > LIMIT.load(Relaxed)
}

/// Takes room for a block of `bytes` that is about to be loaded; waits for it, up to [`WAIT_MAX`].
/// The room is given back when it is dropped, once the block itself is counted. Blocks this thread.
/// Returns `None` if there was no room in time.
pub fn wait_for_room(bytes: u64) -> Option<Room> {
    let mut until = None;
    loop {
        if let Some(room) = Room::try_take(bytes) {
            return Some(room);
        }
        let now = clock::monotonic();
        if now >= *until.get_or_insert(now + WAIT_MAX) {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// Room for a block that is being loaded.
#[derive(Debug)]
pub struct Room {
    bytes: u64,
}

impl Room {
    /// A block has room if it is the only one, however large it is.
    fn try_take(bytes: u64) -> Option<Self> {
        let limit = LIMIT.load(Relaxed);
        let taken = |now: u64| {
            let sum = now.saturating_add(bytes);
            (now == 0 || sum <= limit).then_some(sum)
        };
        BYTES.fetch_update(Relaxed, Relaxed, taken).ok().map(|_| Self { bytes })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.bytes, Relaxed);
    }
}

/// The fields of a block on the heap, counted as long as they exist.
#[derive(Debug)]
pub(crate) struct HeapBlock {
    parts: BlockParts,
    bytes: u64,
}

impl HeapBlock {
    pub fn new(parts: BlockParts) -> Self {
        let bytes = parts.bytes.len() + size_of_val(&*parts.seek_points) + parts.seek_keys.len();
        let bytes = bytes as u64;
        BYTES.fetch_add(bytes, Relaxed);
        Self { parts, bytes }
    }
}

impl std::ops::Deref for HeapBlock {
    type Target = BlockParts;

    fn deref(&self) -> &BlockParts {
        &self.parts
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        BYTES.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The count is the process's, so one test has all of it.
    #[test]
    fn large_blocks_have_room_up_to_the_limit() {
        let before = bytes();
        set_limit(before + 1000);
        let first = Room::try_take(600).expect("within the limit");
        assert!(Room::try_take(600).is_none() && !are_too_many());
        let second = Room::try_take(400).expect("as much as is left");
        assert_eq!(bytes(), before + 1000);
        drop(first);
        drop(second);
        assert_eq!(bytes(), before, "it is given back");
        set_limit(u64::MAX);
    }
}
