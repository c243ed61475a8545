//! [`Quota`]: what one connection keeps of the endpoint's part of the memory.
//!
//! Watches and events that a client has not taken are charged. The more of the part is taken, the less of it one connection may have, so however many connections keep all they
//! may, the few watches of another find room.

use std::sync::Arc;

use evenkeel_rpc::Budget;

/// Bytes that one connection may keep.
const CONNECTION_BYTES_MAX: u64 = 4 << 20;
/// A connection may keep one part in so many of what is free.
const FREE_PART: u64 = 8;
/// All connections together, where nothing else is said.
pub(super) const BYTES_MAX: u64 = 64 << 20;

/// Bytes that a connection keeps. They are given back when it is dropped.
#[derive(Debug)]
pub(super) struct Quota {
    whole: Arc<Budget>,
    bytes: u64,
}

impl Quota {
    /// Of a connection that keeps nothing.
    pub(super) fn new(whole: &Arc<Budget>) -> Self {
        Self { whole: Arc::clone(whole), bytes: 0 }
    }

    /// Takes `bytes` if there is room for them.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let wanted = self.bytes.saturating_add(bytes);
        let has_room =
            wanted <= CONNECTION_BYTES_MAX.min(self.whole.free() / FREE_PART) && self.whole.take(bytes);
        if has_room {
            self.bytes = wanted;
        }
        has_room
    }

    /// Gives back what was taken.
    pub(super) fn give(&mut self, bytes: usize) {
        let bytes = (bytes as u64).min(self.bytes);
        self.bytes -= bytes;
        self.whole.give(bytes);
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.whole.give(self.bytes);
    }
}
