//! Assignment: keeps every region of an enabled table served, also after a change fails.
//!
//! **A change that fails leaves its regions served.** A change that needs regions closed has these
//! steps:
//!
//! ```text
//! close the regions     ClosedRegions: on drop, serves them again, without disk access but for the
//!                       deletion of the record of a truncation
//! prepare, open others  OpenedRegions: on drop, closes them
//!                       PreparedDirs: on drop, removes them
//! hbase:meta written    the commit point of the change (or the rename of a descriptor or a record)
//! serve the others      an assignment in memory, which cannot fail
//! clean up              a failure here does not fail the change; it is retried later
//! ```
//! So an error before the commit point reverts everything, even on a full disk. After the commit
//! point no region waits for a step that can fail, except a truncated one
//! ([`crate::regions::truncate`]): its files are archived before it is opened again.
//!
//! **In-doubt writes.** A write to hbase:meta that failed may be in the log nonetheless. Another
//! write reverts it
//! ([`MetaTable::revert_failed_writes`](super::meta::MetaTable::revert_failed_writes)) before a
//! region is served again or a directory is removed. If that write fails too, both are deferred.
//!
//! **Deferred steps** form a list for each table. They run in order under the table's lock: the
//! next change of the table runs them first, or a thread retries them with pauses from
//! [`PAUSE_MIN`] to [`PAUSE_MAX`]. The same thread opens regions that hbase:meta lists, that belong
//! to an enabled table and that are not served, such as those that could not be opened at start.
//! Requests to an unserved region get `NotServingRegionException`. A region that an operator has
//! unassigned stays closed until it is assigned or the server restarts.
//!
//! Lock order: a table's lock, then those of this module, which are leaves.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use evenkeel_common::clock;
use evenkeel_common::thread::{catch, spawn_essential};
use evenkeel_common::{RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_region::region::Region;
use parking_lot::Mutex;

use super::change_intent::ChangeIntent;
use super::meta::{MetaChange, TableState};
use super::{Master, is_built_in};

/// The pause after the first failed attempt; each further failure doubles it.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often regions are checked while nothing has failed.
const CHECK_PERIOD: Duration = Duration::from_secs(60);

/// A deferred part of a change. Retried until it succeeds, so it must be idempotent.
type Step = Box<dyn FnMut(&Master) -> Result<()> + Send>;

struct DeferredStep {
    description: &'static str,
    step: Step,
}

/// Work deferred to the background; see the module.
#[derive(Default)]
pub(super) struct Assignment {
    deferred: Mutex<BTreeMap<TableName, Vec<DeferredStep>>>,
    /// Encoded names of regions that an operator closed.
    unassigned: Mutex<HashSet<String>>,
    /// Regions that could not be opened, by encoded name.
    failed: Mutex<HashMap<String, FailedOpen>>,
    /// Tables whose secondary replicas could not be opened or closed, and why.
    failed_replicas: Mutex<BTreeMap<TableName, String>>,
    /// Whether all tables with secondary replicas in hbase:meta have been updated since the start.
    replica_rows_updated: AtomicBool,
    thread: Mutex<Option<AssignmentThread>>,
}

/// The failed attempts to open a region.
#[derive(Default)]
struct FailedOpen {
    /// The region's name.
    region: String,
    attempts: u32,
    /// The error of the last attempt.
    error: String,
}

struct AssignmentThread {
    /// Dropping it ends the thread.
    wake: Sender<()>,
    handle: JoinHandle<()>,
}

impl Assignment {
    fn wake(&self) {
        if let Some(thread) = &*self.thread.lock() {
            // A full channel already holds a wake-up.
            let _full = thread.wake.try_send(());
        }
    }

    /// Records whether a table has the secondary replicas that it should have.
    pub(super) fn note_replicas(&self, table: &TableName, assigned: &Result<()>) {
        let mut failed = self.failed_replicas.lock();
        match assigned {
            Ok(()) => _ = failed.remove(table),
            Err(error) => _ = failed.insert(table.clone(), error.message().to_owned()),
        }
    }

    /// Returns true if a table's secondary replicas could not be opened or closed.
    pub(super) fn has_failed_replicas(&self, table: &TableName) -> bool {
        self.failed_replicas.lock().contains_key(table)
    }

    /// Returns true after [`Assignment::note_replica_rows_updated`].
    pub(super) fn are_replica_rows_updated(&self) -> bool {
        self.replica_rows_updated.load(Ordering::Relaxed)
    }

    /// Records that no row of hbase:meta has columns of replicas that an earlier process left.
    pub(super) fn note_replica_rows_updated(&self) {
        self.replica_rows_updated.store(true, Ordering::Relaxed);
    }

    /// Returns true if an operator has unassigned a region.
    pub(super) fn is_unassigned(&self, region: &RegionInfo) -> bool {
        self.unassigned.lock().contains(region.encoded_name())
    }

    /// Records that an operator has unassigned a region, or has assigned it again.
    pub(super) fn set_unassigned(&self, region: &RegionInfo, unassigned: bool) {
        let mut names = self.unassigned.lock();
        match unassigned {
            true => _ = names.insert(region.encoded_name().to_owned()),
            false => _ = names.remove(region.encoded_name()),
        }
    }
}

impl Master {
    /// Starts the thread that runs deferred steps; it ends with [`Master::stop`].
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start_assignment(self: &Arc<Self>) -> Result<()> {
        let (wake, woken) = bounded(1);
        // Wake it at once, for regions that could not be opened at start.
        let _empty = wake.try_send(());
        let master = Arc::downgrade(self);
        let supervisor = self.parts.regionserver.background().supervisor();
        let handle = spawn_essential("assignment", supervisor, move || {
            run(&master, &woken);
            Ok(())
        })?;
        *self.assignment.thread.lock() = Some(AssignmentThread { wake, handle });
        Ok(())
    }

    /// Returns the number of regions whose open failed and is being retried.
    pub(super) fn failed_open_count(&self) -> usize {
        self.assignment.failed.lock().len()
    }

    /// Ends the thread and waits for it.
    pub(super) fn stop_assignment(&self) {
        let Some(AssignmentThread { wake, handle }) = self.assignment.thread.lock().take() else { return };
        drop(wake);
        if handle.thread().id() != std::thread::current().id() && handle.join().is_err() {
            tracing::error!("the assignment thread panicked");
        }
    }

    /// Takes a table's lock and runs the deferred steps of earlier changes.
    ///
    /// # Errors
    /// Returns the error of the first step that still fails; the new change must then not start.
    pub(super) fn lock_table(&self, table: &TableName) -> Result<super::procedures::TableLock> {
        let guard = self.locks.lock(table);
        self.run_deferred(table)
            .map_err(|error| error.context(format_args!("{table}: an earlier change is not finished yet")))?;
        Ok(guard)
    }

    /// Runs a step, and defers it to the background if it fails. The caller holds the table's lock.
    pub(super) fn run_or_defer(
        &self,
        table: &TableName,
        description: &'static str,
        step: impl FnMut(&Self) -> Result<()> + Send + 'static,
    ) {
        let mut deferred = DeferredStep { description, step: Box::new(step) };
        let Err(error) = catch(description, || (deferred.step)(self)) else { return };
        tracing::warn!(%table, %error, "{description}: failed; will be retried until it succeeds");
        self.assignment.deferred.lock().entry(table.clone()).or_default().push(deferred);
        self.assignment.wake();
    }

    /// Runs deferred steps in order until one fails. The caller holds the table's lock.
    pub(super) fn run_deferred(&self, table: &TableName) -> Result<()> {
        let Some(steps) = self.assignment.deferred.lock().remove(table) else { return Ok(()) };
        let mut steps = steps.into_iter();
        while let Some(mut next) = steps.next() {
            if let Err(error) = catch(next.description, || (next.step)(self)) {
                let left = std::iter::once(next).chain(steps).collect();
                self.assignment.deferred.lock().insert(table.clone(), left);
                return Err(error);
            }
            tracing::info!(%table, "{}: done", next.description);
        }
        Ok(())
    }

    /// Returns one line for each region that should be served and is not, and for each table with
    /// deferred steps. Does not wait: it reports the results of the last attempts.
    pub fn pending_problems(&self) -> Vec<String> {
        let failed = self.assignment.failed.lock();
        let regions = failed.values().map(|FailedOpen { region, attempts, error }| {
            format!("region {region} is not served: {attempts} attempts to open it failed: {error}")
        });
        let mut lines: Vec<String> = regions.collect();
        drop(failed);
        for (table, steps) in &*self.assignment.deferred.lock() {
            let waits: Vec<&str> = steps.iter().map(|step| step.description).collect();
            lines.push(format!("table {table}: an earlier change is not finished: {}", waits.join(", ")));
        }
        for (table, error) in &*self.assignment.failed_replicas.lock() {
            lines.push(format!("table {table}: not all secondary replicas are served: {error}"));
        }
        lines.sort();
        lines
    }

    /// Does everything that can be done without waiting; returns true if nothing is left.
    fn assign(&self) -> Result<bool> {
        self.parts.meta.revert_failed_writes()?;
        self.parts.namespaces.revert_failed_writes()?;
        let tables: Vec<_> = self.assignment.deferred.lock().keys().cloned().collect();
        // Skip a table whose lock is taken by a change; the next attempt retries it.
        let tidy = |table: &TableName| {
            self.locks.try_lock(table).is_some_and(|_lock| self.run_deferred(table).is_ok())
        };
        let left = tables.iter().filter(|table| !tidy(table)).count();
        let unserved = self.unserved(None)?;
        self.assignment.failed.lock().retain(|name, _| unserved.iter().any(|r| r.encoded_name() == name));
        let tables: BTreeSet<_> = unserved.iter().map(RegionInfo::table).collect();
        let mut is_done = left == 0;
        for table in tables {
            is_done &= self.open_unserved(table)?;
        }
        Ok(self.assign_all_replicas() && is_done)
    }

    /// Returns live regions of enabled tables (or of the given one) that are not served, except
    /// those that an operator has unassigned.
    fn unserved(&self, table: Option<&TableName>) -> Result<Vec<RegionInfo>> {
        let online = self.parts.regionserver.regions();
        let unassigned = self.assignment.unassigned.lock().clone();
        let is_missing = |info: &RegionInfo| {
            !info.is_split_parent()
                && !is_built_in(info.table())
                && online.find(info.encoded_name()).is_none()
                && !unassigned.contains(info.encoded_name())
                && self.table(info.table()).is_ok_and(|table| table.state == TableState::Enabled)
        };
        let regions = self.parts.meta.regions(table)?.into_iter().map(|region| region.info);
        Ok(regions.filter(is_missing).collect())
    }

    /// Opens the regions of a table that should be served and are not; returns true if none is
    /// left.
    fn open_unserved(&self, table: &TableName) -> Result<bool> {
        let Some(_lock) = self.locks.try_lock(table) else { return Ok(false) };
        // Run deferred steps first: regions that a change closed may be waiting to be served again,
        // and there must be only one instance of each.
        if self.run_deferred(table).is_err() {
            return Ok(false);
        }
        // Check again: a change may have ended before this thread took the lock.
        let missing = self.unserved(Some(table))?;
        let left = missing.iter().filter(|info| self.open_and_serve(info).is_err()).count();
        Ok(left == 0)
    }

    fn open_and_serve(&self, info: &RegionInfo) -> Result<()> {
        let served = self.try_to_serve(info);
        let mut failed = self.assignment.failed.lock();
        match &served {
            Ok(()) => {
                let attempts = failed.remove(info.encoded_name()).map_or(0, |failed| failed.attempts);
                tracing::info!(region = %info.name_text(), attempts, "region is served again");
            }
            Err(error) => {
                let opening = failed.entry(info.encoded_name().to_owned()).or_default();
                let attempts = opening.attempts.saturating_add(1);
                let region = info.name_text().to_string();
                *opening = FailedOpen { region, attempts, error: error.message().to_owned() };
                if attempts == 1 {
                    tracing::error!(region = %info.name_text(), %error, "region is not served; its open will be retried until it succeeds");
                } else {
                    tracing::debug!(region = %info.name_text(), attempts, %error, "region still cannot be opened");
                }
            }
        }
        served
    }

    fn try_to_serve(&self, info: &RegionInfo) -> Result<()> {
        let table = self.table(info.table())?;
        let opened = self.open_regions(&table.descriptor, vec![info.clone()])?;
        self.parts.meta.commit(opened.changes())?;
        opened.serve();
        Ok(())
    }

    /// Opens regions of a table, all or none. They are not served yet.
    pub(super) fn open_regions<'a>(
        &'a self,
        descriptor: &Arc<TableDescriptor>,
        regions: Vec<RegionInfo>,
    ) -> Result<OpenedRegions<'a>> {
        self.parts.regionserver.config().coprocessors.check(descriptor)?;
        let mut opened = OpenedRegions { master: self, regions: Vec::with_capacity(regions.len()) };
        for info in regions {
            let region = Region::open(Arc::clone(&self.parts.region_env), info, Arc::clone(descriptor))?;
            opened.regions.push(region);
        }
        Ok(opened)
    }

    /// Flushes regions and stops serving them: all of them or none. Skips those that are not
    /// served.
    pub(super) fn close_regions<'a, 'r>(
        &'a self,
        regions: impl Iterator<Item = &'r RegionInfo>,
    ) -> Result<ClosedRegions<'a>> {
        let mut closed = ClosedRegions { master: self, regions: Vec::new(), record: None };
        for info in regions {
            closed.regions.extend(self.close_region(info)?);
        }
        Ok(closed)
    }

    /// Flushes a region and stops serving it, if it is served. If it cannot be closed it is served
    /// again, since its unflushed cells are only in memory. Most cells are flushed while it is
    /// still served, so that the region is unavailable only briefly.
    fn close_region(&self, info: &RegionInfo) -> Result<Option<Arc<Region>>> {
        let online = self.parts.regionserver.regions();
        let Some(region) = online.find(info.encoded_name()) else { return Ok(None) };
        region.flush()?;
        drop(online.remove(info.encoded_name(), None));
        match region.close(false) {
            Ok(()) => Ok(Some(region)),
            Err(error) => {
                drop(online.add(region));
                Err(error)
            }
        }
    }

    /// Registers directories that a change is about to create, for regions or a table that
    /// hbase:meta does not list yet.
    pub(super) fn prepared_dirs(&self, table: &TableName, dirs: Vec<PathBuf>) -> PreparedDirs<'_> {
        PreparedDirs { master: self, table: table.clone(), dirs, intent: None }
    }

    /// Wakes the assignment thread.
    pub(super) fn wake_assignment(&self) {
        self.assignment.wake();
    }
}

/// Regions that are open and not served yet. On drop they are closed; nothing was written to them.
pub(super) struct OpenedRegions<'a> {
    master: &'a Master,
    regions: Vec<Arc<Region>>,
}

impl OpenedRegions<'_> {
    /// The rows of hbase:meta that record the regions as open.
    pub(super) fn changes(&self) -> Vec<MetaChange> {
        let server = &self.master.parts.server;
        let opened = |r: &Arc<Region>| MetaChange::Opened(r.info().clone(), server.clone(), r.open_seq_num());
        self.regions.iter().map(opened).collect()
    }

    /// Serves the regions.
    pub(super) fn serve(mut self) -> Vec<Arc<Region>> {
        let regions = std::mem::take(&mut self.regions);
        for region in &regions {
            self.master.assignment.set_unassigned(region.info(), false);
            drop(self.master.parts.regionserver.regions().add(Arc::clone(region)));
        }
        regions
    }
}

impl Drop for OpenedRegions<'_> {
    fn drop(&mut self) {
        // Close without writing anything to the directory or the log: another instance of the
        // region may be served again and continue with these sequence ids.
        self.regions.iter().for_each(|region| drop(region.close(true)));
        if !self.regions.is_empty() {
            self.master.wake_assignment();
        }
    }
}

/// Regions that a change has closed. On drop they are served again, unchanged.
pub(super) struct ClosedRegions<'a> {
    master: &'a Master,
    regions: Vec<Arc<Region>>,
    /// The file whose existence commits the change.
    record: Option<PathBuf>,
}

impl ClosedRegions<'_> {
    /// Names the file that commits the change. After a failed write it may exist nonetheless, so it
    /// is deleted before the regions are served again.
    pub(super) fn with_record(mut self, record: PathBuf) -> Self {
        self.record = Some(record);
        self
    }

    /// Keeps the regions closed: the change is committed, and other regions or none are served in
    /// their place.
    pub(super) fn commit(mut self) {
        self.regions.clear();
    }
}

impl Drop for ClosedRegions<'_> {
    fn drop(&mut self) {
        let (regions, record) = (std::mem::take(&mut self.regions), self.record.take());
        let Some(table) = regions.first().map(|region| region.info().table().clone()) else { return };
        self.master.run_or_defer(
            &table,
            "regions that a failed change had closed are served again",
            move |master| {
                master.parts.meta.revert_failed_writes()?;
                record.iter().try_for_each(|record| master.fs().delete(record).map(drop))?;
                for region in &regions {
                    region.resume();
                    drop(master.parts.regionserver.regions().add(Arc::clone(region)));
                }
                Ok(())
            },
        );
    }
}

/// Directories of a change that is not committed. On drop they are removed.
pub(super) struct PreparedDirs<'a> {
    master: &'a Master,
    table: TableName,
    dirs: Vec<PathBuf>,
    intent: Option<ChangeIntent>,
}

impl PreparedDirs<'_> {
    /// Adds the intent record of the change, which is removed after the directories.
    pub(super) fn with_intent(mut self, intent: ChangeIntent) -> Self {
        self.intent = Some(intent);
        self
    }

    /// Keeps the directories: the change is committed. Returns its intent record.
    pub(super) fn commit(mut self) -> Option<ChangeIntent> {
        self.dirs.clear();
        self.intent.take()
    }
}

impl Drop for PreparedDirs<'_> {
    fn drop(&mut self) {
        let (dirs, mut intent) = (std::mem::take(&mut self.dirs), self.intent.take());
        if dirs.is_empty() {
            return;
        }
        self.master.run_or_defer(
            &self.table,
            "files that a failed change had prepared are removed",
            move |master| {
                master.parts.meta.revert_failed_writes()?;
                dirs.iter().try_for_each(|dir| master.fs().delete(dir).map(drop))?;
                intent.take().into_iter().for_each(|intent| intent.remove(master.fs()));
                Ok(())
            },
        );
    }
}

/// The thread: works when woken, and again after a pause while something is left.
fn run(master: &Weak<Master>, woken: &Receiver<()>) {
    let (mut pause, mut wait) = (PAUSE_MIN, CHECK_PERIOD);
    loop {
        match woken.recv_timeout(wait) {
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(()) => pause = pause.min(PAUSE_MIN * 4),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let Some(master) = master.upgrade() else { return };
        let began = clock::monotonic();
        let is_done = catch("assignment", || master.assign()).unwrap_or_else(|error| {
            tracing::debug!(%error, "assignment failed; will be retried");
            false
        });
        (pause, wait) = match is_done {
            true => (PAUSE_MIN, CHECK_PERIOD),
            false => ((pause * 2).min(PAUSE_MAX), pause.max(clock::since(began))),
        };
    }
}
