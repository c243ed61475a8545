//! Leases of open files, heartbeats to their DataNodes, and the recovery of files that broke.
//!
//! The NameNode has one lease for a client name, over all its open files. After 60 s without a
//! renewal another client may take the files over; so it is renewed every [`RENEWAL`] while a file
//! is open.
//!
//! A DataNode gives up a writer that is silent for 60 s: after [`HEARTBEAT`] without a packet it
//! gets a heartbeat.
//!
//! A file that broke stays open on the NameNode until its lease is recovered. The recovery begins
//! `Settings::recovery_delay` after the failure: a DataNode that has just died would be chosen to
//! carry it out, and nobody needs the file sooner. It is asked for again every
//! [`recovery::RECOVER_AGAIN`] until the file is closed, however long that takes.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;

use crate::block::output::BlockOutput;
use crate::client::Shared;
use crate::recovery;

/// The time between renewals of the lease.
pub(crate) const RENEWAL: Duration = Duration::from_secs(20);

/// The silence after which a DataNode gets a heartbeat.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(20);

/// The period of both threads.
const TICK: Duration = Duration::from_millis(500);

/// An output that its writer and the heartbeat thread share.
pub(crate) type SharedOutput = Arc<Mutex<BlockOutput>>;

/// The open files of a client and the broken ones.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    open_files: usize,
    outputs: Vec<Weak<Mutex<BlockOutput>>>,
    broken: Vec<Broken>,
    renewed: Option<Instant>,
}

/// A file that broke.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    path: String,
    file_id: u64,
    due: Instant,
}

impl Broken {
    pub(crate) fn new(path: String, file_id: u64, due: Instant) -> Self {
        Self { path, file_id, due }
    }
}

/// Keeps the lease of one open file until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenFile {
    shared: Arc<Shared>,
}

impl OpenFile {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let mut inner = shared.leases.inner.lock();
        inner.open_files += 1;
        if inner.open_files == 1 {
            // Its creation has just begun the lease.
            inner.renewed = Some(clock::monotonic());
        }
        drop(inner);
        Self { shared }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.shared.leases.inner.lock().open_files -= 1;
    }
}

impl Leases {
    /// Sends heartbeats for an output while it exists.
    pub(crate) fn add_output(&self, output: &SharedOutput) {
        let mut inner = self.inner.lock();
        inner.outputs.retain(|known| known.strong_count() > 0);
        inner.outputs.push(Arc::downgrade(output));
    }

    pub(crate) fn add_broken(&self, broken: Broken) {
        self.inner.lock().broken.push(broken);
    }

    pub(crate) fn broken_paths(&self) -> Vec<String> {
        self.inner.lock().broken.iter().map(|broken| broken.path.clone()).collect()
    }

    fn outputs(&self) -> Vec<SharedOutput> {
        self.inner.lock().outputs.iter().filter_map(Weak::upgrade).collect()
    }

    /// True if the lease must be renewed now; it then counts as renewed.
    fn take_renewal(&self) -> bool {
        let mut inner = self.inner.lock();
        let is_due = inner.open_files > 0 && inner.renewed.is_none_or(|at| at.elapsed() >= RENEWAL);
        if is_due {
            inner.renewed = Some(clock::monotonic());
        }
        is_due
    }

    /// The files whose recovery is due; they are asked for again later.
    fn take_due(&self) -> Vec<Broken> {
        let now = clock::monotonic();
        let mut due = Vec::new();
        for broken in self.inner.lock().broken.iter_mut().filter(|broken| broken.due <= now) {
            due.push(broken.clone());
            broken.due = now + recovery::RECOVER_AGAIN;
        }
        due
    }

    fn remove_broken(&self, file_id: u64) {
        self.inner.lock().broken.retain(|broken| broken.file_id != file_id);
    }
}

/// The heartbeat thread: ends with the client.
pub(crate) fn heartbeats(client: &Weak<Shared>) {
    while let Some(shared) = client.upgrade() {
        for output in shared.leases.outputs() {
            // A writer that has the lock sends packets itself.
            if let Some(mut output) = output.try_lock() {
                // A broken output tells its writer.
                let _ = output.tick(HEARTBEAT);
            }
        }
        drop(shared);
        std::thread::sleep(TICK);
    }
}

/// The lease thread: ends with the client.
pub(crate) fn renewals(client: &Weak<Shared>) {
    while let Some(shared) = client.upgrade() {
        if shared.leases.take_renewal()
            && let Err(e) = shared.namenode.renew_lease()
        {
            tracing::warn!(error = %e, "the lease of open files was not renewed");
        }
        for broken in shared.leases.take_due() {
            recover_once(&shared, &broken);
        }
        drop(shared);
        std::thread::sleep(TICK);
    }
}

fn recover_once(shared: &Shared, broken: &Broken) {
    let path = recovery::path_of_file(broken.file_id);
    match shared.namenode.recover_lease(&path) {
        Ok(true) => {
            tracing::info!(path = broken.path, "a broken file is closed");
            shared.leases.remove_broken(broken.file_id);
        }
        Err(e) if e.is_not_found() => shared.leases.remove_broken(broken.file_id),
        Ok(false) => {}
        Err(e) => tracing::warn!(path = broken.path, error = %e, "a broken file is not recovered yet"),
    }
}
