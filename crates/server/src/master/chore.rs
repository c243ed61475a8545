//! What the master does now and then, on a thread of its own: let go of split and merge parents
//! (`hbase.catalogjanitor.interval`), archive compacted files that readers have let go of.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use evenkeel_common::Result;

use super::Master;

/// How often compacted files are looked at (`hbase.hfile.compaction.discharger.interval`).
const DISCHARGE_EVERY: Duration = Duration::from_secs(120);

/// The thread; it ends when this is dropped.
pub struct MasterChore {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MasterChore {
    /// Starts the thread.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(master: &Arc<Master>, janitor_every: Duration) -> Result<Self> {
        let (stop, stopped) = bounded(0);
        let master = Arc::clone(master);
        let run = move || {
            let mut janitor_due = Instant::now() + janitor_every;
            while let Err(RecvTimeoutError::Timeout) =
                stopped.recv_timeout(DISCHARGE_EVERY.min(janitor_every))
            {
                master.discharge();
                if Instant::now() >= janitor_due {
                    master.run_janitor_if_on();
                    janitor_due = Instant::now() + janitor_every;
                }
            }
        };
        let thread = std::thread::Builder::new().name("master-chore".into()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for MasterChore {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the master's chore panicked");
        }
    }
}

impl Master {
    fn discharge(&self) {
        for region in self.parts.regionserver.regions().all() {
            if let Err(error) = region.archive_compacted() {
                tracing::warn!(region = %region.info().name_text(), %error, "compacted files are not archived yet");
            }
        }
    }

    fn run_janitor_if_on(&self) {
        if !self.switches.catalog_janitor.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.run_catalog_janitor() {
            tracing::warn!(%error, "the catalog janitor could not do its work");
        }
    }
}
