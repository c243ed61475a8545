//! Leases of open files, heartbeats to their DataNodes, and the recovery of broken files.
//!
//! The NameNode has one lease per client name, for all its open files. After 60 s without a renewal
//! another client may take the files over, so the lease is renewed every [`RENEWAL`] while a file
//! is open.
//!
//! A DataNode drops a writer that is silent for 60 s, so it gets a heartbeat after [`HEARTBEAT`]
//! without a packet. The thread of the heartbeats also notices that an idle output has broken: then
//! it excludes the DataNode that failed and queues the file for recovery, although its writer makes
//! no call.
//!
//! A broken file stays open on the NameNode until its lease is recovered. The recovery begins
//! `Settings::recovery_delay` after the failure, because the NameNode could choose the DataNode
//! that has just died to carry it out, and no reader needs the file sooner. It is requested again
//! every [`recovery::RECOVER_AGAIN`] until the file is closed, without a time limit.
//!
//! The same thread ends two other kinds of files, which would stay open as long as the client
//! lives. A file whose creation got no reply may exist: it is recovered by its path. A new log for
//! which no block could be opened is deleted.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;

use crate::block::output::BlockOutput;
use crate::client::Shared;
use crate::recovery;

/// The time between renewals of the lease.
pub(crate) const RENEWAL: Duration = Duration::from_secs(20);

/// The idle time after which a DataNode gets a heartbeat.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(20);

/// The period of both threads.
const TICK: Duration = Duration::from_millis(500);

/// An output shared by its writer and the heartbeat thread.
pub(crate) type SharedOutput = Arc<Mutex<BlockOutput>>;

/// The open and the broken files of a client.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    inner: Mutex<Inner>,
}

/// An output that gets heartbeats, and its file.
#[derive(Clone, Debug)]
struct OpenOutput {
    output: Weak<Mutex<BlockOutput>>,
    path: String,
    file_id: u64,
}

#[derive(Debug, Default)]
struct Inner {
    open_files: usize,
    outputs: Vec<OpenOutput>,
    broken: Vec<BrokenFile>,
    renewed: Option<Instant>,
}

/// The maximum of files whose creation got no reply that are remembered.
const LOST_CREATES_MAX: usize = 1000;

/// A broken file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokenFile {
    path: String,
    /// `None` if the creation of the file got no reply.
    file_id: Option<u64>,
    /// The file has no bytes, and nobody needs it.
    is_unused: bool,
    due: Instant,
}

impl BrokenFile {
    /// A file that its writer did not close.
    pub(crate) fn new(path: String, file_id: u64, due: Instant) -> Self {
        Self { path, file_id: Some(file_id), is_unused: false, due }
    }

    /// A file that never had a block.
    pub(crate) fn unused(path: String, file_id: u64) -> Self {
        Self { is_unused: true, ..Self::new(path, file_id, clock::monotonic()) }
    }

    /// A file that may exist.
    fn of_lost_create(path: String, due: Instant) -> Self {
        Self { path, file_id: None, is_unused: false, due }
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.path, self.file_id) == (&other.path, other.file_id)
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
            // The creation of the file starts the lease.
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
    /// Registers an output for heartbeats while it exists.
    pub(crate) fn add_output(&self, output: &SharedOutput, path: &str, file_id: u64) {
        let mut inner = self.inner.lock();
        inner.outputs.retain(|known| known.output.strong_count() > 0);
        inner.outputs.push(OpenOutput { output: Arc::downgrade(output), path: path.to_owned(), file_id });
    }

    pub(crate) fn add_broken(&self, broken: BrokenFile) {
        self.inner.lock().broken.push(broken);
    }

    /// Remembers a file whose creation got no reply.
    pub(crate) fn add_lost_create(&self, path: &str, due: Instant) {
        let mut inner = self.inner.lock();
        let lost = BrokenFile::of_lost_create(path.to_owned(), due);
        let count = inner.broken.iter().filter(|broken| broken.file_id.is_none()).count();
        if count < LOST_CREATES_MAX && !inner.broken.iter().any(|broken| broken.is_same(&lost)) {
            inner.broken.push(lost);
        }
    }

    /// Forgets the lost creation of a file that was created now.
    pub(crate) fn remove_lost_create(&self, path: &str) {
        self.inner.lock().broken.retain(|broken| broken.file_id.is_some() || broken.path != path);
    }

    pub(crate) fn broken_paths(&self) -> Vec<String> {
        self.inner.lock().broken.iter().map(|broken| broken.path.clone()).collect()
    }

    fn outputs(&self) -> Vec<OpenOutput> {
        self.inner.lock().outputs.clone()
    }

    /// Returns true if the lease must be renewed now, and then records it as renewed.
    fn take_renewal(&self) -> bool {
        let mut inner = self.inner.lock();
        let is_due = inner.open_files > 0 && inner.renewed.is_none_or(|at| clock::since(at) >= RENEWAL);
        if is_due {
            inner.renewed = Some(clock::monotonic());
        }
        is_due
    }

    /// Returns the files whose recovery is due, and schedules their next attempt.
    fn take_due(&self) -> Vec<BrokenFile> {
        let now = clock::monotonic();
        let mut due = Vec::new();
        for broken in self.inner.lock().broken.iter_mut().filter(|broken| broken.due <= now) {
            due.push(broken.clone());
            broken.due = now + recovery::RECOVER_AGAIN;
        }
        due
    }

    fn remove_broken(&self, ended: &BrokenFile) {
        self.inner.lock().broken.retain(|broken| !broken.is_same(ended));
    }
}

/// The loop of the heartbeat thread; ends when the client is dropped.
pub(crate) fn heartbeats(client: &Weak<Shared>) {
    while let Some(shared) = client.upgrade() {
        for open in shared.leases.outputs() {
            let Some(output) = open.output.upgrade() else { continue };
            // A writer that holds the lock is sending packets itself.
            if let Some(mut output) = output.try_lock()
                && output.tick(HEARTBEAT).is_err()
            {
                // The writer of a broken output sees the error at its next call.
                shared.abandon(&open.path, open.file_id, &mut output);
            }
        }
        shared.pool.close_expired();
        drop(shared);
        std::thread::sleep(TICK);
    }
}

/// The loop of the lease thread; ends when the client is dropped.
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

fn recover_once(shared: &Shared, broken: &BrokenFile) {
    let path = broken.file_id.map_or_else(|| broken.path.clone(), recovery::path_of_file);
    let recover = || shared.namenode.recover_lease(&path);
    let ended = match broken.is_unused {
        true => match shared.namenode.delete(&path, false) {
            Err(e) if e.remote().is_some() && !e.is_not_found() => recover(),
            deleted => deleted.map(|_| true),
        },
        false => recover(),
    };
    match ended {
        Ok(true) => {
            tracing::info!(path = broken.path, "a broken file is closed or deleted");
            shared.leases.remove_broken(broken);
        }
        Err(e) if e.is_not_found() => shared.leases.remove_broken(broken),
        Ok(false) => {}
        Err(e) => tracing::warn!(path = broken.path, error = %e, "a broken file is not recovered yet"),
    }
}
