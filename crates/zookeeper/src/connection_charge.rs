//! [`ConnectionCharge`]: the bytes of the endpoint's memory that one connection uses.
//!
//! Watches and events that the client has not read are charged. The more bytes are in use in total,
//! the fewer one connection may use. So capacity remains for a few watches of another connection,
//! however many connections use their maximum.

use std::sync::Arc;

use evenkeel_common::Budget;

/// The limit of one connection.
const CONNECTION_BYTES_MAX: u64 = 4 << 20;
/// A connection may use at most this fraction (1/8) of the free bytes.
const FREE_DIVISOR: u64 = 8;
/// The default limit of all connections together.
pub(super) const BYTES_MAX: u64 = 64 << 20;

/// Bytes that a connection uses. They are released on drop.
#[derive(Debug)]
pub(super) struct ConnectionCharge {
    total: Arc<Budget>,
    bytes: u64,
}

impl ConnectionCharge {
    /// The charge of a new connection, which uses no bytes yet.
    pub(super) fn new(whole: &Arc<Budget>) -> Self {
        Self { total: Arc::clone(whole), bytes: 0 }
    }

    /// Charges `bytes`; returns false if the limit is reached.
    pub(super) fn acquire(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let wanted = self.bytes.saturating_add(bytes);
        let has_capacity =
            wanted <= CONNECTION_BYTES_MAX.min(self.total.free() / FREE_DIVISOR) && self.total.acquire(bytes);
        if has_capacity {
            self.bytes = wanted;
        }
        has_capacity
    }

    /// Releases charged bytes.
    pub(super) fn release(&mut self, bytes: usize) {
        let bytes = (bytes as u64).min(self.bytes);
        self.bytes -= bytes;
        self.total.release(bytes);
    }
}

impl Drop for ConnectionCharge {
    fn drop(&mut self) {
        self.total.release(self.bytes);
    }
}
