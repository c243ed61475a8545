//! The normalizer: splits large regions and merges small ones, towards regions of similar size
//! (`SimpleRegionNormalizer`, `RegionNormalizerWorker`).
//!
//! The periodic task and the RPC `Normalize` only put tables into a queue. One thread takes a table
//! at a time, computes its plans from the sizes and ages of its regions (`plan`), and submits each
//! as the procedure that a client's request would be: the switches, the table's attributes and the
//! table's lock apply as always.
//!
//! **One change at a time.** The thread waits for the outcome of each procedure, where HBase
//! submits all at once. A table with thousands of empty regions then neither fills the queue of
//! procedures nor delays an operator's change of the table by more than one merge. Hours may pass
//! before the last plan, so each is checked again before it is submitted: the switch, the table,
//! and that the regions of a merge have not grown. A plan that fails is logged; the next run
//! computes a new one.
//!
//! A table is normalized if `NORMALIZATION_ENABLED` is true, or if it is not set and
//! `hbase.table.normalization.enabled` is true. System tables never are.
//!
//! **Bounds.** The queue holds each table once. The plans of a table hold no more than the names of
//! its regions. `hbase.normalizer.throughput.max_bytes_per_sec` limits how fast plans are submitted
//! (`rate_limit`).
//!
//! | module | contents |
//! |---|---|
//! | `plan` | plans of a table, a function of its regions |
//! | `rate_limit` | the pauses between plans |
//! | `settings` | keys of the site file and of tables |

mod plan;
mod rate_limit;
mod settings;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_common::clock;
use evenkeel_common::thread::{catch_and_log, spawn_essential};
use evenkeel_common::{HBaseError, RegionInfo, Result, TableName};
use evenkeel_region::region::Region;
use evenkeel_regionserver::load;
use parking_lot::{Condvar, Mutex};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use self::plan::{Candidate, Plan};
use self::rate_limit::RateLimiter;
pub use self::settings::NormalizerSettings;
use crate::meta::TableState;
use crate::{Master, Table};

const NO_NONCE: (u64, u64) = (0, 0);

/// The queue of tables, and counts of what was done.
pub(super) struct Normalizer {
    pub(super) settings: NormalizerSettings,
    shared: Arc<Shared>,
    splits: AtomicU64,
    merges: AtomicU64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Tables to normalize; each is in it once.
    queue: VecDeque<TableName>,
    /// True once the thread is about to end.
    stopping: bool,
    /// The last procedure of the normalizer that has ended.
    ended: Option<u64>,
}

impl Normalizer {
    /// Creates a normalizer without a thread.
    pub(super) fn new(settings: NormalizerSettings) -> Self {
        Self { settings, shared: Arc::default(), splits: AtomicU64::new(0), merges: AtomicU64::new(0) }
    }

    /// The number of splits that were submitted.
    pub(super) fn split_count(&self) -> u64 {
        self.splits.load(Ordering::Relaxed)
    }

    /// The number of merges that were submitted.
    pub(super) fn merge_count(&self) -> u64 {
        self.merges.load(Ordering::Relaxed)
    }

    /// Lets the thread end; a procedure that it waits for goes on.
    pub(super) fn stop(&self) {
        self.shared.stop();
    }
}

impl Shared {
    fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
    }

    /// Adds tables behind those that wait, or before them.
    fn enqueue(&self, tables: BTreeSet<TableName>, first: bool) {
        let mut state = self.state.lock();
        let queue = &mut state.queue;
        if first {
            queue.retain(|waiting| !tables.contains(waiting));
            tables.into_iter().rev().for_each(|table| queue.push_front(table));
        } else {
            for table in tables {
                if !queue.contains(&table) {
                    queue.push_back(table);
                }
            }
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for a table; `None` at the end.
    fn next(&self) -> Option<TableName> {
        let mut state = self.state.lock();
        while !state.stopping {
            if let Some(table) = state.queue.pop_front() {
                return Some(table);
            }
            self.changed.wait(&mut state);
        }
        None
    }

    /// Waits for a time. Returns false at the end.
    fn pause(&self, time: Duration) -> bool {
        let deadline = clock::monotonic() + time;
        let mut state = self.state.lock();
        while !state.stopping && !self.changed.wait_until(&mut state, deadline).timed_out() {}
        !state.stopping
    }

    fn set_ended(&self, procedure: u64) {
        self.state.lock().ended = Some(procedure);
        self.changed.notify_all();
    }

    /// Waits for the outcome of the latest procedure. Returns false at the end.
    fn wait_for(&self, procedure: u64) -> bool {
        let mut state = self.state.lock();
        while !state.stopping && state.ended != Some(procedure) {
            self.changed.wait(&mut state);
        }
        !state.stopping
    }
}

/// The thread; it ends when this is dropped.
pub(super) struct NormalizerThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl NormalizerThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(super) fn start(master: &Arc<Master>) -> Result<Self> {
        let shared = Arc::clone(&master.normalizer.shared);
        let supervisor = master.parts.regionserver.background().supervisor();
        let mut worker = Worker {
            master: Arc::clone(master),
            shared: Arc::clone(&shared),
            rate: RateLimiter::new(master.normalizer.settings.mb_per_s, clock::monotonic()),
        };
        let thread = spawn_essential("normalizer", supervisor, move || {
            while let Some(table) = worker.shared.next() {
                catch_and_log(format_args!("normalizing {table}"), || worker.normalize(&table));
            }
            Ok(())
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for NormalizerThread {
    fn drop(&mut self) {
        self.shared.stop();
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// What the thread uses.
struct Worker {
    master: Arc<Master>,
    shared: Arc<Shared>,
    rate: RateLimiter,
}

impl Worker {
    fn normalize(&mut self, table: &TableName) {
        let plans = match self.master.normalization_plans(table) {
            Ok(plans) => plans,
            Err(error) => return tracing::warn!(%table, %error, "the table is not normalized"),
        };
        if plans.is_empty() {
            return tracing::debug!(%table, "the table needs no normalization");
        }
        tracing::info!(%table, plans = plans.len(), "normalizing");
        for plan in plans {
            if !self.carry_out(table, &plan) {
                return;
            }
        }
    }

    /// Submits a plan that is still right, and waits for its outcome. Returns false at the end of
    /// the thread.
    fn carry_out(&mut self, table: &TableName, plan: &Plan) -> bool {
        // A plan that is skipped uses up nothing of the rate.
        if !self.master.is_current(table, plan) {
            return self.skip(table, plan, "the table or its regions have changed");
        }
        let wait = self.rate.acquire(plan.mib().max(1), clock::monotonic());
        if !self.shared.pause(wait) {
            return false;
        }
        if !self.master.is_current(table, plan) {
            return self.skip(table, plan, "the table or its regions have changed");
        }
        let procedure = match self.master.submit_plan(plan) {
            Ok(procedure) => procedure,
            Err(error) => return self.skip(table, plan, &error.to_string()),
        };
        tracing::info!(%table, ?plan, procedure, "a plan of the normalizer is submitted");
        let shared = Arc::clone(&self.shared);
        self.master.procedures.on_outcome(procedure, move |_| shared.set_ended(procedure));
        self.shared.wait_for(procedure)
    }

    /// Logs a plan that is not carried out. Returns true.
    fn skip(&self, table: &TableName, plan: &Plan, why: &str) -> bool {
        tracing::info!(%table, ?plan, why, "a plan of the normalizer is skipped");
        true
    }
}

impl Master {
    /// Queues those of the matching tables that are enabled, before or behind those that wait.
    /// Returns false, and queues none, if the normalizer is switched off or a region is in
    /// transition.
    ///
    /// # Errors
    /// The errors of `matching`.
    pub(super) fn normalize_regions(
        &self,
        matching: impl FnOnce() -> Result<Vec<Table>>,
        first: bool,
    ) -> Result<bool> {
        if !self.switches.normalizer.load(Ordering::Relaxed) || self.has_regions_in_transition() {
            return Ok(false);
        }
        let enabled = matching()?.into_iter().filter(|table| table.state == TableState::Enabled);
        let names = enabled.map(|table| table.descriptor.name().clone());
        self.normalizer.shared.enqueue(names.collect(), first);
        Ok(true)
    }

    /// Queues every table of users.
    pub(super) fn normalize_all(&self) {
        let of_users = || {
            let tables = self.tables().into_iter();
            Ok(tables.filter(|table| !table.descriptor.name().is_system()).collect())
        };
        if let Err(error) = self.normalize_regions(of_users, false) {
            tracing::warn!(%error, "the normalizer failed");
        }
    }

    fn has_regions_in_transition(&self) -> bool {
        self.failed_open_count() > 0 || self.procedures.is_changing_tables()
    }

    /// Returns the plans of a table, splits before merges. If
    /// `hbase.normalizer.plans_size_limit.mb` limits their size, they are in a random order, so
    /// that the same plans are not left out each time.
    ///
    /// # Errors
    /// `TableNotFoundException`, `IOException` from hbase:meta, or an attribute of the table that
    /// cannot be parsed.
    fn normalization_plans(&self, table: &TableName) -> Result<Vec<Plan>> {
        let Table { descriptor, state } = self.table(table)?;
        let settings = &self.normalizer.settings;
        if state != TableState::Enabled || table.is_system() || !settings.is_on_for(&descriptor) {
            return Ok(Vec::new());
        }
        let mut rules = settings.rules_of(&descriptor).map_err(HBaseError::io)?;
        rules.splits &= self.switches.split.load(Ordering::Relaxed);
        rules.merges &= self.switches.merge.load(Ordering::Relaxed);
        if !rules.splits && !rules.merges {
            return Ok(Vec::new());
        }
        let mut regions = self.live_regions(table)?;
        // A region's name begins with its start key, but names are in another order than keys.
        regions.sort_by(|a, b| a.start_key().cmp(b.start_key()));
        let regions: Vec<_> = regions.iter().map(|region| self.candidate(region)).collect();
        let now_ms = self.clock().now_ms();
        let mut plans = plan::plans(&regions, &rules, now_ms);
        if let Some(mib_max) = settings.plans_mib_max {
            plans.shuffle(&mut StdRng::seed_from_u64(now_ms.unsigned_abs()));
            plan::truncate(&mut plans, mib_max);
        }
        Ok(plans)
    }

    fn candidate(&self, info: &RegionInfo) -> Candidate {
        let region = self.parts.regionserver.regions().find(info.encoded_name());
        let has_references = |region: &Arc<Region>| region.stores().iter().any(|s| s.has_references());
        Candidate {
            encoded_name: info.encoded_name().to_owned(),
            created_ms: info.region_id(),
            mib: region.as_ref().map_or(0, |region| load::store_files_mib(region).into()),
            is_changeable: region.is_some_and(|region| !has_references(&region)),
        }
    }

    /// Returns true if a plan may still be carried out: the normalizer is on, the table is enabled
    /// and chosen, and the regions of a merge are served and not larger than planned.
    fn is_current(&self, table: &TableName, plan: &Plan) -> bool {
        let is_chosen = self.switches.normalizer.load(Ordering::Relaxed)
            && self.table(table).is_ok_and(|Table { descriptor, state }| {
                state == TableState::Enabled && self.normalizer.settings.is_on_for(&descriptor)
            });
        let mib = |region: &String| {
            let region = self.parts.regionserver.regions().find(region)?;
            Some(u64::from(load::store_files_mib(&region)))
        };
        let is_right = || match plan {
            Plan::Split { .. } => true,
            Plan::Merge { regions, mib: planned } => {
                regions.iter().map(mib).sum::<Option<u64>>().is_some_and(|sum| sum <= *planned)
            }
        };
        is_chosen && is_right()
    }

    fn submit_plan(self: &Arc<Self>, plan: &Plan) -> Result<u64> {
        let (procedure, count) = match plan {
            Plan::Split { region, .. } => {
                (self.split_region(region, None, NO_NONCE)?, &self.normalizer.splits)
            }
            Plan::Merge { regions, .. } => {
                (self.merge_regions(regions.clone(), false, NO_NONCE)?, &self.normalizer.merges)
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
        Ok(procedure)
    }
}
