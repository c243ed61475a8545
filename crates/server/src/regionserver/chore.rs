//! The chore: leases of scanners, and the limit on unflushed bytes of all regions.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_region::region::Region;
use parking_lot::{Condvar, Mutex};

use super::RegionServer;

/// How often the chore looks.
const PERIOD: Duration = Duration::from_millis(200);

/// The thread that runs the chore. Dropping it ends the thread.
pub struct Chore {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Chore {
    /// Starts the thread.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(server: &Arc<RegionServer>) -> io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (server, stopped) = (Arc::clone(server), stop.clone());
        let thread = std::thread::Builder::new().name("chore".to_owned()).spawn(move || {
            let mut stopped_now = stopped.0.lock();
            while !*stopped_now {
                parking_lot::MutexGuard::unlocked(&mut stopped_now, || server.run_chore());
                if !*stopped_now {
                    stopped.1.wait_for(&mut stopped_now, PERIOD);
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Chore {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the chore panicked");
        }
    }
}

impl RegionServer {
    /// Looks once at everything that goes by time.
    pub fn run_chore(&self) {
        let expired = self.scanners.expire();
        if expired > 0 {
            tracing::info!(expired, "scanner leases ran out");
        }
        self.check_memstores();
    }

    /// Flushes the largest MemStores above the lower mark; lets writes in only below the upper.
    fn check_memstores(&self) {
        let mut sizes: Vec<(u64, Arc<Region>)> =
            self.regions.all().into_iter().map(|region| (region.memstore_bytes(), region)).collect();
        let total: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
        let over = total >= self.config.global_memstore_bytes;
        if over != self.over_memstore_limit.swap(over, Ordering::Relaxed) {
            tracing::warn!(over, total, limit = self.config.global_memstore_bytes, "global memstore limit");
        }
        let mut excess = total.saturating_sub(self.config.global_memstore_low_bytes);
        sizes.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (bytes, region) in sizes.into_iter().filter(|(bytes, _)| *bytes > 0) {
            if excess == 0 {
                return;
            }
            excess = excess.saturating_sub(bytes);
            self.background.request_flush(&region);
        }
    }
}
