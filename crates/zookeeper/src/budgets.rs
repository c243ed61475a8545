//! [`ConnectionBudgets`]: counts the endpoint's bytes together with those of the RPC ports, under
//! one limit.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::Budget;
use evenkeel_rpc::InputBudget;

/// The memory budgets of the endpoint's connections, shared with the RPC ports.
#[derive(Clone, Debug)]
pub struct ConnectionBudgets {
    /// Bytes of incomplete requests and packets.
    pub input: Arc<InputBudget>,
    /// Bytes of requests, including that input.
    pub requests: Arc<Budget>,
    /// Bytes of replies that clients have not read.
    pub replies: Arc<Budget>,
}

impl Default for ConnectionBudgets {
    fn default() -> Self {
        let bytes = 64 << 20;
        ConnectionBudgets {
            input: InputBudget::of(bytes),
            requests: Budget::new(bytes),
            replies: Budget::new(bytes),
        }
    }
}

/// Bytes of a reply that is being written.
pub(super) struct CountedReply {
    replies: Arc<Budget>,
    bytes: u64,
}

impl Drop for CountedReply {
    fn drop(&mut self) {
        self.replies.release(self.bytes);
    }
}

impl ConnectionBudgets {
    /// Charges bytes of an incomplete packet; returns false if the budget is exhausted.
    pub(super) fn charge_input(&self, bytes: u64) -> bool {
        if !self.input.acquire(bytes) {
            return false;
        }
        let taken = self.requests.acquire(bytes);
        if !taken {
            self.input.release(bytes);
        }
        taken
    }

    /// Releases the bytes.
    pub(super) fn release_input(&self, bytes: u64) {
        self.input.release(bytes);
        self.requests.release(bytes);
    }

    /// Returns how long a packet may take from its first byte to its last.
    pub(super) fn timeout(&self, timeout: Duration) -> Duration {
        self.input.timeout(timeout)
    }

    /// Counts a reply until the result is dropped; returns `None` if the budget is exhausted.
    pub(super) fn count_reply(&self, bytes: u64) -> Option<CountedReply> {
        let is_taken = self.replies.acquire(bytes);
        is_taken.then(|| CountedReply { replies: Arc::clone(&self.replies), bytes })
    }
}
