//! [`Abort`]: ends a server that must not continue.
//!
//! Its unflushed edits are in its log, which another server splits; so an abort writes nothing.
//! Only the first reason counts. From then on every request is rejected, the lease has ended, so
//! that no write is acknowledged, and the process exits with the reason as its error.

use std::sync::{Arc, OnceLock, Weak};

use evenkeel_process::{FailureReason, StopRequest};
use evenkeel_regionserver::RegionServer;
use tokio::runtime::Handle;

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

    /// Starts a task that the server depends on. If it panics, the server ends.
    pub fn run_task(
        self: &Arc<Self>,
        runtime: &Handle,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let (abort, task) = (Arc::clone(self), runtime.spawn(task));
        runtime.spawn(async move {
            if task.await.is_err_and(|error| error.is_panic()) {
                abort.now(&format!("the task {name} panicked"));
            }
        });
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use evenkeel_common::clock;

    use super::*;

    #[test]
    fn a_panic_of_an_essential_task_ends_the_server() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (tell, told) = channel();
        let stop: StopRequest = Arc::new(move |reason: &str| drop(tell.send(reason.to_owned())));
        let lease = Arc::new(Lease::new(clock::monotonic(), Duration::from_secs(600)));
        let abort = Abort::new(FailureReason::default(), stop, Arc::clone(&lease));
        abort.run_task(runtime.handle(), "that ends", async {});
        abort.run_task(runtime.handle(), "that panics", async { panic!("a bug") });
        runtime.block_on(async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        });
        let reason = told.try_recv().expect("the process is told");
        assert!(reason.contains("that panics") && abort.is_aborting() && !lease.holds());
    }
}
