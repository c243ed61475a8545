//! [`Notifier`]: wakes one waiting thread.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Wakes one waiting thread. Notifications that arrive while it does not wait count as one.
#[derive(Debug, Default)]
pub struct Notifier {
    notified: Mutex<bool>,
    changed: Condvar,
}

impl Notifier {
    /// Wakes the waiting thread, or the next one that waits.
    pub fn notify(&self) {
        *self.notified.lock() = true;
        self.changed.notify_one();
    }

    /// Waits for a notification. Returns false if `until` comes first.
    pub fn wait(&self, until: Instant) -> bool {
        let mut notified = self.notified.lock();
        while !*notified {
            if self.changed.wait_until(&mut notified, until).timed_out() {
                break;
            }
        }
        std::mem::take(&mut notified)
    }
}
