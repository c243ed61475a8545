//! The bytes of all blocks outside of caches, in the whole process.
//!
//! A reader holds the block that it is in. A merge of many store files holds one block of each, and
//! if the caches have no space for them, these blocks are on the heap. Their number is the number
//! of files times the number of readers, which no setting bounds. So they are counted here, and a
//! server sets a limit:
//!
//! * Above it ([`is_over_limit`]) a merge keeps only the block that it reads from, and stores its
//!   position in the others. It loads a released block again when it reaches it.
//! * A reader of a large block first waits for memory below the limit ([`reserve`]). After
//!   [`WAIT_MAX`] the read is refused, because waiting readers may hold the blocks that other
//!   readers wait for. Waits of a thread that follow each other within [`PAUSE_MIN`] add up: a
//!   merge of many files would otherwise wait that long for each file, holding its blocks.
//!
//! A reader of a smaller block does not wait, so each reader may exceed the limit by less than
//! [`LARGE_BYTES`].
//!
//! A block counts its body with header and checksums, and its seek points, as long as it exists: in
//! a reader, or in a reply that shares its values. The limit protects the memory of the process, so
//! there is one count per process: servers in the same process share it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use evenkeel_common::clock;

use crate::BlockParts;

/// Readers reserve memory before they load a block of at least this many bytes.
pub const LARGE_BYTES: u64 = 128 << 10;
/// The maximum time that a reader waits for a reservation.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
/// A thread that did not wait for this time begins with a new [`WAIT_MAX`].
pub const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The interval at which a waiting reader retries.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

thread_local! {
    /// When this thread's last wait ended, and how long it and those just before it took. It is a
    /// thread's because a reader waits on its thread, and the readers below one merge share it.
    static WAITED: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

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
pub fn is_over_limit() -> bool {
    bytes() > LIMIT.load(Relaxed)
}

/// Reserves memory for a block of `bytes` that is about to be loaded. Waits up to [`WAIT_MAX`],
/// less the waits of this thread just before; blocks this thread. Dropping the reservation releases
/// it, once the block itself is counted. Returns `None` after the timeout.
pub fn reserve(bytes: u64) -> Option<Reservation> {
    wait_within(bytes, WAIT_MAX)
}

fn wait_within(bytes: u64, wait_max: Duration) -> Option<Reservation> {
    if let Some(room) = Reservation::try_take(bytes) {
        return Some(room);
    }
    let began = clock::monotonic();
    let before = WAITED.take().filter(|(ended, _)| began.saturating_duration_since(*ended) < PAUSE_MIN);
    let before = before.map_or(Duration::ZERO, |(_, waited)| waited);
    let until = began + wait_max.saturating_sub(before);
    while clock::monotonic() < until {
        std::thread::sleep(RETRY_INTERVAL);
        if let Some(room) = Reservation::try_take(bytes) {
            let now = clock::monotonic();
            WAITED.set(Some((now, before + now.saturating_duration_since(began))));
            return Some(room);
        }
    }
    None
}

/// Memory reserved for a block that is being loaded.
#[derive(Debug)]
pub struct Reservation {
    bytes: u64,
}

impl Reservation {
    /// Reserves memory if it is below the limit. The only block outside of caches is always
    /// admitted, however large it is.
    pub fn try_take(bytes: u64) -> Option<Self> {
        let limit = LIMIT.load(Relaxed);
        let taken = |now: u64| {
            let sum = now.saturating_add(bytes);
            (now == 0 || sum <= limit).then_some(sum)
        };
        BYTES.fetch_update(Relaxed, Relaxed, taken).ok().map(|_| Self { bytes })
    }
}

impl Drop for Reservation {
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

    /// The count is the process's, and other tests hold blocks meanwhile.
    /// Those are small beside this unit.
    const UNIT: u64 = 1 << 40;

    #[test]
    fn large_blocks_have_room_up_to_the_limit() {
        set_limit(11 * UNIT);
        let first = Reservation::try_take(6 * UNIT).expect("within the limit");
        assert!(Reservation::try_take(6 * UNIT).is_none() && !is_over_limit());
        let second = Reservation::try_take(4 * UNIT).expect("it is left");
        assert_eq!(bytes() / UNIT, 10);
        drop(second);
        waits_add_up();
        drop(first);
        assert_eq!(bytes() / UNIT, 0, "it is given back");
        set_limit(u64::MAX);
    }

    /// Five units are free, less what other tests hold.
    /// Another reader takes and releases them in turn.
    fn waits_add_up() {
        const WAIT: Duration = Duration::from_millis(200);
        let hold = |time| {
            let others = Reservation::try_take(4 * UNIT).expect("free");
            std::thread::spawn(move || {
                std::thread::sleep(time);
                drop(others);
            })
        };
        let other = hold(WAIT / 2);
        assert!(wait_within(4 * UNIT, WAIT).is_some(), "within the first wait");
        other.join().expect("ends");
        let other = hold(WAIT * 2);
        let began = clock::monotonic();
        assert!(wait_within(4 * UNIT, WAIT).is_none());
        let took = began.elapsed();
        assert!(took < WAIT * 3 / 4, "{took:?}: the first wait was half of the time");
        other.join().expect("ends");
        let other = hold(WAIT * 3 / 4);
        assert!(wait_within(4 * UNIT, WAIT).is_some(), "a refused reader begins again");
        other.join().expect("ends");
    }
}
