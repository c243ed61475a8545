//! [`Abort`]: ends a server that must not continue.
//!
//! Its unflushed edits are in its log, which another server splits; so an abort writes nothing.
//! Only the first reason counts. From then on every request is rejected, the lease has ended, so
//! that no write is acknowledged, and the process exits with the reason as its error.

use std::sync::{Arc, OnceLock, Weak};

use evenkeel_process::{FailureReason, StopRequest};
use evenkeel_regionserver::RegionServer;

use crate::lease::Lease;

/// See the module's documentation.
pub struct Abort {
    failure: FailureReason,
    stop: StopRequest,
    lease: Arc<Lease>,
    server: OnceLock<Weak<RegionServer>>,
}

impl Abort {
    /// `failure` receives the reason; `stop` ends the process.
    pub fn new(failure: FailureReason, stop: StopRequest, lease: Arc<Lease>) -> Arc<Self> {
        Arc::new(Self { failure, stop, lease, server: OnceLock::new() })
    }

    /// Sets the server that rejects requests from an abort on.
    pub fn connect(&self, server: &Arc<RegionServer>) {
        drop(self.server.set(Arc::downgrade(server)));
    }

    /// Returns true if the server has failed.
    pub fn is_aborting(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Ends the server.
    pub fn now(&self, reason: &str) {
        self.lease.end();
        let is_first = self.failure.set(reason.to_owned()).is_ok();
        if let Some(server) = self.server.get().and_then(Weak::upgrade) {
            server.start_stopping();
        }
        if !is_first {
            return;
        }
        tracing::error!(reason, "ABORTING the server: other servers recover its log");
        (self.stop)(reason);
    }
}
