//! [`Notifier`]: wakes the one thread that waits for it.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// For one thread that waits. Rings that no caller waits for are one.
#[derive(Debug, Default)]
pub struct Notifier {
    notified: Mutex<bool>,
    changed: Condvar,
}

impl Notifier {
    /// Wakes the thread that waits, or the next one that does.
    pub fn notify(&self) {
        *self.notified.lock() = true;
        self.changed.notify_one();
    }

    /// Waits for a notification; false when `until` comes first.
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
