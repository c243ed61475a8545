//! [`Bell`]: wakes the thread that waits for it.

use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// For one thread that waits. Rings that nobody waits for are one.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Wakes the thread that waits, or the next one that does.
    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }

    /// Waits until it rings; false when `until` comes first.
    pub fn wait(&self, until: Instant) -> bool {
        let mut rung = self.rung.lock();
        while !*rung {
            if self.changed.wait_until(&mut rung, until).timed_out() {
                break;
            }
        }
        std::mem::take(&mut rung)
    }
}
