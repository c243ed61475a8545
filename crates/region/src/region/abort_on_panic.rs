//! [`AbortOnPanic`]: aborts the server if a thread panics between a write number and its
//! completion.
//!
//! A number that is never completed keeps every later write of its region invisible: those writes
//! would wait forever, on a server that appears to work. The interrupted write may or may not be in
//! the log, and is partly in the MemStore, so no thread can complete it. So the server aborts, and
//! the next start replays the log.

use super::Region;

/// Aborts the server if a panic drops it.
pub(super) struct AbortOnPanic<'a>(pub(super) &'a Region);

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.env.events.abort_server(self.0, "it panicked and left a change half done");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};

    use evenkeel_common::KeyValue;

    use crate::operations::{Mutation, MutationKind};
    use crate::region::nonce::NonceSource;
    use crate::region::testing::region_with;
    use crate::region::{Region, RegionEvents, RowLockWaiter};

    /// Panics in a callback, and records the abort.
    struct Panics(Sender<String>);

    impl RegionEvents for Panics {
        fn flush_wanted(&self, _: &Arc<Region>) {
            panic!("a bug");
        }

        fn abort_server(&self, _: &Region, reason: &str) {
            self.0.send(reason.to_owned()).expect("the test listens");
        }
    }

    #[test]
    fn a_panic_in_a_half_applied_write_ends_the_server() {
        let (tell, told) = channel();
        let region = region_with(Arc::new(Panics(tell)), 1);
        let cell = KeyValue::put(b"r", b"f", b"q", 1, b"v");
        let put = Mutation::new(MutationKind::Put, &b"r"[..], vec![cell]);
        let put = || region.mutate(put, NonceSource::NONE, RowLockWaiter::CallingThread, Box::new(|_| {}));
        catch_unwind(AssertUnwindSafe(put)).expect_err("the bug");
        assert!(told.try_recv().expect("the server hears of it").contains("half done"));
    }
}
