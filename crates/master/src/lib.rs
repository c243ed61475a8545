//! The embedded master of a standalone server: tables, namespaces, regions, and the calls that
//! administer them.
//!
//! Unlike an HMaster it has one server, so it balances nothing and assigns no region elsewhere. It
//! creates, alters and deletes tables, and tells clients about them.
//!
//! **A change has one commit point.** Each change prepares everything on disk, then makes one
//! atomic write to hbase:meta (or, for an altered table, one rename of its descriptor), then
//! removes what is no longer listed. A crash before that moment leaves the table as it was, a crash
//! after it as it should be; what was prepared or not yet removed is found at the next start by
//! [`reconcile`], which reads the intent record of the change (`change_intent`). So there is no
//! procedure log.
//!
//! **Each step is on the disk before the next.** A directory, a descriptor or an intent record is
//! synced before the moment, the moment (FSYNC_WAL) before anything is removed and before the
//! client is told. So a power cut is like any other crash.
//!
//! | module | contents |
//! |---|---|
//! | [`meta`] | hbase:meta's rows |
//! | `change_intent` | what a change under way makes and removes |
//! | [`reconcile`] | directories and hbase:meta brought together at start |
//! | [`recovery`] | WALs of earlier lives |
//! | [`regions`] | opens the regions that hbase:meta lists |
//! | `orphans` | regions on disk that hbase:meta does not know |
//! | [`namespaces`] | hbase:namespace |
//! | [`procedures`] | changes under way, and their outcomes |
//! | `tables`, `alter`, `split` | the changes |
//! | `assignment` | regions served again when a change fails |
//! | `checks` | what HBase refuses in a table's description |
//! | [`chore`] | periodic work |
//! | [`cleaner`] | deletes what are no longer needed from the archive and `oldWALs` |
//! | [`snapshot`] | snapshots of tables |
//! | [`connection`] | what the RegionServer of this process tells the master |
//! | `status` | the status of the cluster |
//! | [`metrics`] | the master's beans |
//! | [`service`] | MasterService |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod alter;
mod assignment;
mod change_intent;
mod checks;
pub mod chore;
pub mod cleaner;
pub mod connection;
pub mod meta;
pub mod metrics;
pub mod namespaces;
mod orphans;
pub mod procedures;
pub mod reconcile;
pub mod recovery;
pub mod regions;
pub mod service;
pub mod snapshot;
mod split;
mod status;
mod tables;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use evenkeel_common::clock::Clock;
use evenkeel_common::config::Configuration;
use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, ServerName, TableDescriptor, TableName};
use evenkeel_fs::FileSystem;
use evenkeel_protocol::pb;
use evenkeel_region::layout;
use evenkeel_region::region::RegionEnv;
pub use evenkeel_region::{descriptors, links};
use parking_lot::RwLock;

use self::assignment::Assignment;
use self::cleaner::{CleanerSettings, Cleaners};
use self::meta::{MetaTable, TableState};
use self::namespaces::NamespaceTable;
use self::procedures::{ProcedureExecutor, TableLocks};
use self::snapshot::SnapshotProcedures;
use evenkeel_regionserver::RegionServer;
use evenkeel_zookeeper::znodes::Znodes;

/// A table as the master knows it.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it looks like.
    pub descriptor: Arc<TableDescriptor>,
    /// Whether it is served.
    pub state: TableState,
}

/// Switches that operators turn and that a standalone server only remembers.
#[derive(Debug)]
pub struct Switches {
    /// `balance_switch`.
    pub balancer: AtomicBool,
    /// `normalizer_switch`.
    pub normalizer: AtomicBool,
    /// `splitormerge_switch`, for splits.
    pub split: AtomicBool,
    /// `splitormerge_switch`, for merges.
    pub merge: AtomicBool,
    /// `catalogjanitor_switch`.
    pub catalog_janitor: AtomicBool,
    /// `cleaner_chore_switch`.
    pub cleaner: AtomicBool,
    /// `snapshot_cleanup_switch`.
    pub snapshot_cleanup: AtomicBool,
}

impl Default for Switches {
    fn default() -> Self {
        let on = || AtomicBool::new(true);
        Self {
            balancer: on(),
            normalizer: on(),
            split: on(),
            merge: on(),
            catalog_janitor: on(),
            cleaner: on(),
            snapshot_cleanup: on(),
        }
    }
}

/// The parts of a master.
pub struct MasterParts {
    /// What regions are opened with.
    pub region_env: Arc<RegionEnv>,
    /// Settings.
    pub conf: Arc<Configuration>,
    /// The name of the RegionServer.
    pub server: ServerName,
    /// The master's own name: its port is another.
    pub master_name: ServerName,
    /// The port of its pages; 0 for none.
    pub info_port: u16,
    /// The cluster's id.
    pub cluster_id: String,
    /// Where regions are served.
    pub regionserver: Arc<RegionServer>,
    /// hbase:meta, open.
    pub meta: MetaTable,
    /// hbase:namespace, open.
    pub namespaces: NamespaceTable,
    /// Where clients look first.
    pub znodes: Arc<Znodes>,
    /// Asks the process to stop.
    pub stop: Box<dyn Fn(&str) + Send + Sync>,
}

/// The embedded master.
pub struct Master {
    parts: MasterParts,
    tables: RwLock<BTreeMap<TableName, Table>>,
    locks: TableLocks,
    assignment: Assignment,
    /// The greatest region id that was ever given or known.
    last_region_id: AtomicI64,
    /// Shared while a table is made, alone while a namespace is made or removed. After a table's
    /// lock.
    namespace_lock: RwLock<()>,
    procedures: ProcedureExecutor,
    switches: Switches,
    snapshot_procedures: SnapshotProcedures,
    cleaners: Cleaners,
    cleaner_settings: CleanerSettings,
    started_ms: i64,
}

impl Master {
    /// A master over what is stored; see [`reconcile`] for how `tables` come to be.
    ///
    /// # Errors
    /// When its threads cannot be started, a setting is not of its key's form, or hbase:meta cannot
    /// be read.
    pub fn new(parts: MasterParts, tables: BTreeMap<TableName, Table>) -> Result<Arc<Self>> {
        let stores = &parts.region_env.stores;
        let clock = Arc::clone(&stores.clock);
        let cleaner_settings =
            CleanerSettings::from(&parts.conf).map_err(|e| HBaseError::io(e.to_string()))?;
        let cleaners =
            Cleaners::new(Arc::clone(&stores.fs), &stores.root, Arc::clone(&clock), &cleaner_settings);
        let known = parts.meta.regions(None)?;
        let last_region_id = known.iter().map(|region| region.info.region_id()).max().unwrap_or(0);
        Ok(Arc::new(Self {
            started_ms: clock.now_ms(),
            snapshot_procedures: SnapshotProcedures::default(),
            cleaners,
            cleaner_settings,
            procedures: ProcedureExecutor::start(clock, parts.regionserver.background().supervisor())?,
            parts,
            tables: RwLock::new(tables),
            locks: TableLocks::default(),
            assignment: Assignment::default(),
            last_region_id: AtomicI64::new(last_region_id),
            namespace_lock: RwLock::new(()),
            switches: Switches::default(),
        }))
    }

    /// Lets running changes end and takes no more.
    pub fn stop(&self) {
        self.cleaners.stop();
        self.procedures.stop();
        self.stop_assignment();
    }

    /// Does in the background what an earlier life left to do: parents that were split or merged
    /// are archived, and regions that could not be opened are opened.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn tidy_up(self: &Arc<Self>) -> Result<()> {
        let regions = self.parts.regionserver.regions().all();
        self.compact_references(&regions);
        self.start_assignment()
    }

    /// The first of `count` region ids that no region ever had: the time, unless that has been
    /// given. Encoded names come from them, and logs may hold edits of every region that this
    /// server has served.
    fn new_region_ids(&self, count: usize) -> i64 {
        let (now_ms, count) = (self.clock().now_ms(), i64::try_from(count.max(1)).unwrap_or(i64::MAX));
        let first = |last: i64| now_ms.max(last.saturating_add(1));
        let next = |last: i64| Some(first(last).saturating_add(count - 1));
        let last = self.last_region_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        first(last.unwrap_or_else(|last| last))
    }

    /// Where everything is stored.
    pub fn file_system(&self) -> &dyn FileSystem {
        self.fs()
    }

    /// The namespaces.
    pub fn namespaces(&self) -> &NamespaceTable {
        &self.parts.namespaces
    }

    /// Changes under way, and their outcomes.
    pub fn procedures(&self) -> &ProcedureExecutor {
        &self.procedures
    }

    /// hbase:meta.
    pub fn meta(&self) -> &MetaTable {
        &self.parts.meta
    }

    /// The znodes at which clients begin.
    pub fn znodes(&self) -> &Arc<Znodes> {
        &self.parts.znodes
    }

    fn fs(&self) -> &dyn FileSystem {
        &*self.parts.region_env.stores.fs
    }

    fn root(&self) -> &Path {
        &self.parts.region_env.stores.root
    }

    fn clock(&self) -> &dyn Clock {
        &*self.parts.region_env.stores.clock
    }

    fn table_dir(&self, table: &TableName) -> PathBuf {
        layout::table_dir(self.root(), table)
    }

    /// A table by name.
    ///
    /// # Errors
    /// `TableNotFoundException`.
    pub fn table(&self, name: &TableName) -> Result<Table> {
        let found = self.tables.read().get(name).cloned();
        found.ok_or_else(|| HBaseError::new(ErrorKind::TableNotFound, name.to_string()))
    }

    /// Every table, ordered by name.
    pub fn tables(&self) -> Vec<Table> {
        self.tables.read().values().cloned().collect()
    }

    fn remember(&self, descriptor: Arc<TableDescriptor>, state: TableState) {
        let name = descriptor.name().clone();
        self.mirror_state(&name, Some(state));
        self.tables.write().insert(name, Table { descriptor, state });
    }

    /// Old clients read table states from ZooKeeper.
    fn mirror_state(&self, table: &TableName, state: Option<TableState>) {
        if let Err(error) = self.parts.znodes.set_table_state(table, state.map(mirrored)) {
            tracing::warn!(%table, %error, "table state not mirrored");
        }
    }

    /// The regions of a table that are not split parents.
    fn live_regions(&self, table: &TableName) -> Result<Vec<RegionInfo>> {
        let regions = self.parts.meta.regions(Some(table))?;
        Ok(regions.into_iter().map(|r| r.info).filter(|r| !r.is_split_parent()).collect())
    }
}

/// Whether the master itself works with a table's regions, so that they cannot be taken from under
/// it.
fn is_built_in(table: &TableName) -> bool {
    table.is_meta() || *table == TableName::namespace_table()
}

/// A table's state as ZooKeeper's mirror has it.
pub fn mirrored(state: TableState) -> pb::deprecated_table_state::State {
    match state {
        TableState::Enabled => pb::deprecated_table_state::State::Enabled,
        TableState::Disabled => pb::deprecated_table_state::State::Disabled,
        TableState::Disabling => pb::deprecated_table_state::State::Disabling,
        TableState::Enabling => pb::deprecated_table_state::State::Enabling,
    }
}
