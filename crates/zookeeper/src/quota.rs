//! [`Quota`]: the bytes that one connection keeps of the endpoint's share of memory.
//!
//! Watches are charged, and so are events that the client has not read. The more bytes are taken in
//! all, the fewer one connection may take. So a few watches of another connection find room,
//! however many connections keep all they may.

use std::sync::Arc;

use evenkeel_common::Budget;

/// Bytes that one connection may keep.
const CONNECTION_BYTES_MAX: u64 = 4 << 20;
/// A connection may keep at most this fraction (1/8) of the free bytes.
const FREE_PART: u64 = 8;
/// The default limit of all connections together.
pub(super) const BYTES_MAX: u64 = 64 << 20;

/// Bytes that a connection keeps. They are given back when it is dropped.
#[derive(Debug)]
pub(super) struct Quota {
    whole: Arc<Budget>,
    bytes: u64,
}

impl Quota {
    /// The quota of a connection that keeps nothing yet.
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
