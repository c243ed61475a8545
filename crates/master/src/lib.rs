//! The embedded master of a standalone server: tables, namespaces, regions, and the RPCs that
//! administer them.
//!
//! Unlike an HMaster it has one server, so it balances nothing and assigns no region elsewhere. It
//! creates, alters and deletes tables, and serves their descriptors and states to clients.
//!
//! **A change has one commit point.** Each change prepares everything on disk, makes one atomic
//! write to hbase:meta (or, for an altered table, one rename of its descriptor), and then removes
//! what hbase:meta no longer lists. A crash before the commit point leaves the table unchanged; a
//! crash after it leaves the change made. At the next start [`reconcile`] finds what was prepared
//! or not yet removed: it reads the intent record of the change (`change_intent`). So there is no
//! procedure log.
//!
//! **Each step is durable before the next.** A directory, a descriptor or an intent record is
//! synced before the commit point. The commit point itself (FSYNC_WAL) is synced before anything is
//! removed and before the client gets its response. So a power failure is like any other crash.
//!
//! | module | contents |
//! |---|---|
//! | [`meta`] | hbase:meta's rows |
//! | `change_intent` | intent records: what a change in progress creates and removes |
//! | [`reconcile`] | reconciles directories with hbase:meta at start |
//! | [`recovery`] | splits the WALs of earlier processes |
//! | [`regions`] | opens the regions that hbase:meta lists; splits, merges and truncates regions |
//! | [`namespaces`] | hbase:namespace |
//! | `namespace_limits` | the limits of namespaces on tables and regions |
//! | [`procedures`] | changes in progress, and their outcomes |
//! | `quotas` | the rows of hbase:quota |
//! | `tables` | changes of tables, checks of their descriptors, hbase:slowlog |
//! | `assignment` | serves regions again when a change fails |
//! | `normalizer` | splits large regions and merges small ones |
//! | `replicas` | secondary replicas of regions |
//! | [`chore`] | periodic work |
//! | [`cleaner`] | deletes unneeded files from the archive and `oldWALs` |
//! | `wal_dirs` | removes directories of regions below `hbase.wal.dir` |
//! | [`snapshot`] | snapshots of tables |
//! | [`mob`] | MOB files: archived with their table, and cleaned |
//! | [`connection`] | requests of the RegionServer of this process to the master |
//! | `status` | the status of the cluster |
//! | [`metrics`] | the master's beans |
//! | `reply_list` | lists of replies, charged while they grow |
//! | [`service`] | MasterService |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod assignment;
mod change_intent;
pub mod chore;
pub mod cleaner;
pub mod connection;
pub mod meta;
pub mod metrics;
pub mod mob;
mod namespace_limits;
pub mod namespaces;
mod normalizer;
pub mod procedures;
mod quotas;
pub mod reconcile;
pub mod recovery;
pub mod regions;
mod replicas;
mod reply_list;
pub mod service;
pub mod snapshot;
mod status;
mod tables;
mod wal_dirs;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use evenkeel_common::clock::Clock;
use evenkeel_common::config::{ConfigError, Configuration};
use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, ServerName, TableDescriptor, TableName};
use evenkeel_fs::FileSystem;
use evenkeel_protocol::pb;
use evenkeel_region::layout;
use evenkeel_region::region::RegionEnv;
pub use evenkeel_region::{descriptors, links};
use parking_lot::{Mutex, RwLock};

use self::assignment::Assignment;
use self::cleaner::{CleanerSettings, Cleaners};
use self::connection::EmbeddedConnection;
use self::meta::{MetaTable, TableState};
use self::mob::MobSettings;
use self::namespace_limits::NamespaceUsage;
use self::namespaces::NamespaceTable;
use self::normalizer::{Normalizer, NormalizerSettings};
use self::procedures::{ProcedureExecutor, TableLocks};
use self::quotas::Quotas;
use self::snapshot::{RecoverySnapshotSettings, SnapshotProcedures};
use evenkeel_regionserver::RegionServer;
use evenkeel_zookeeper::znodes::Znodes;

/// A table in the master's memory.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its descriptor.
    pub descriptor: Arc<TableDescriptor>,
    /// Enabled, disabled, or changing from one to the other.
    pub state: TableState,
}

/// Switches that operators set. A standalone server only stores most of them.
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
    /// `peer_modification_switch`.
    pub peer_modification: AtomicBool,
    /// `enable_rpc_throttle` and `disable_rpc_throttle`.
    pub rpc_throttle: AtomicBool,
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
            peer_modification: on(),
            rpc_throttle: on(),
        }
    }
}

/// The parts of a master.
pub struct MasterParts {
    /// The environment that regions are opened with.
    pub region_env: Arc<RegionEnv>,
    /// Settings.
    pub conf: Arc<Configuration>,
    /// The name of the RegionServer.
    pub server: ServerName,
    /// The master's server name; its port differs from the RegionServer's.
    pub master_name: ServerName,
    /// The port of its info pages; 0 for none.
    pub info_port: u16,
    /// The cluster's id.
    pub cluster_id: String,
    /// The RegionServer that serves the regions.
    pub regionserver: Arc<RegionServer>,
    /// Its connection to this master.
    pub connection: Arc<EmbeddedConnection>,
    /// hbase:meta, open.
    pub meta: MetaTable,
    /// hbase:namespace, open.
    pub namespaces: NamespaceTable,
    /// The znodes through which clients find the master and hbase:meta.
    pub znodes: Arc<Znodes>,
    /// Records for a stock master which number of replicas hbase:meta has.
    pub record_meta_replicas: Box<dyn Fn(u32) -> Result<()> + Send + Sync>,
    /// Asks the process to stop.
    pub stop: Box<dyn Fn(&str) + Send + Sync>,
}

/// The embedded master.
pub struct Master {
    parts: MasterParts,
    tables: RwLock<BTreeMap<TableName, Table>>,
    locks: TableLocks,
    assignment: Assignment,
    /// The greatest region id given or seen so far.
    last_region_id: AtomicI64,
    /// Held shared while a table is created, exclusively while a namespace is created or removed.
    /// Taken after a table's lock.
    namespace_lock: RwLock<()>,
    namespace_usage: NamespaceUsage,
    procedures: ProcedureExecutor,
    /// Tables that a procedure of an older client has flushed.
    flushed_by_procedure: Mutex<HashSet<TableName>>,
    switches: Switches,
    snapshot_procedures: SnapshotProcedures,
    recovery_snapshots: RecoverySnapshotSettings,
    cleaners: Cleaners,
    cleaner_settings: CleanerSettings,
    mob_settings: MobSettings,
    quotas: Quotas,
    normalizer: Normalizer,
    started_ms: i64,
}

impl Master {
    /// Creates a master over the stored tables; [`reconcile`] produces `tables`.
    ///
    /// # Errors
    /// Returns an error if its threads cannot be started, a setting cannot be parsed, or hbase:meta
    /// cannot be read.
    pub fn new(parts: MasterParts, tables: BTreeMap<TableName, Table>) -> Result<Arc<Self>> {
        let stores = &parts.region_env.stores;
        let clock = Arc::clone(&stores.clock);
        let invalid = |e: ConfigError| HBaseError::io(e.to_string());
        let cleaner_settings = CleanerSettings::from(&parts.conf).map_err(invalid)?;
        let recovery_snapshots = RecoverySnapshotSettings::from(&parts.conf).map_err(invalid)?;
        let mob_settings = MobSettings::from(&parts.conf).map_err(invalid)?;
        let normalizer = NormalizerSettings::from(&parts.conf).map_err(invalid)?;
        let wal_root = parts.region_env.wal_root.as_ref();
        let of_cleaners = Arc::clone(&clock);
        let cleaners =
            Cleaners::new(Arc::clone(&stores.fs), &stores.root, wal_root, of_cleaners, &cleaner_settings);
        let quotas = Quotas::from(&parts.conf)?;
        let known = parts.meta.regions(None)?;
        let last_region_id = known.iter().map(|region| region.info.region_id()).max().unwrap_or(0);
        Ok(Arc::new(Self {
            started_ms: clock.now_ms(),
            snapshot_procedures: SnapshotProcedures::default(),
            recovery_snapshots,
            flushed_by_procedure: Mutex::default(),
            cleaners,
            cleaner_settings,
            mob_settings,
            quotas,
            normalizer: Normalizer::new(normalizer),
            procedures: ProcedureExecutor::start(clock, parts.regionserver.background().supervisor())?,
            parts,
            tables: RwLock::new(tables),
            locks: TableLocks::default(),
            assignment: Assignment::default(),
            last_region_id: AtomicI64::new(last_region_id),
            namespace_lock: RwLock::new(()),
            namespace_usage: NamespaceUsage::default(),
            switches: Switches::default(),
        }))
    }

    /// Waits for running changes to end and accepts no more.
    pub fn stop(&self) {
        self.cleaners.stop();
        self.normalizer.stop();
        self.procedures.stop();
        self.stop_assignment();
    }

    /// Starts background work that an earlier process left: archives parents that were split or
    /// merged, and opens regions that could not be opened.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    pub fn start_background_recovery(self: &Arc<Self>) -> Result<()> {
        let regions = self.parts.regionserver.regions().all();
        self.compact_references(&regions);
        self.start_assignment()
    }

    /// Returns the first of `count` region ids that no region ever had: the current time, unless
    /// that was already given. Encoded names derive from the ids, and logs may hold edits of every
    /// region that this server ever served.
    fn new_region_ids(&self, count: usize) -> i64 {
        let (now_ms, count) = (self.clock().now_ms(), i64::try_from(count.max(1)).unwrap_or(i64::MAX));
        let first = |last: i64| now_ms.max(last.saturating_add(1));
        let next = |last: i64| Some(first(last).saturating_add(count - 1));
        let last = self.last_region_id.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        first(last.unwrap_or_else(|last| last))
    }

    /// The file system that holds the root directory.
    pub fn file_system(&self) -> &dyn FileSystem {
        self.fs()
    }

    /// The namespaces.
    pub fn namespaces(&self) -> &NamespaceTable {
        &self.parts.namespaces
    }

    /// The executor of changes: those in progress, and outcomes.
    pub fn procedures(&self) -> &ProcedureExecutor {
        &self.procedures
    }

    /// hbase:meta.
    pub fn meta(&self) -> &MetaTable {
        &self.parts.meta
    }

    /// The znodes that clients read first.
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

    /// Returns a table by name.
    ///
    /// # Errors
    /// Returns `TableNotFoundException` if there is no such table.
    pub fn table(&self, name: &TableName) -> Result<Table> {
        let found = self.tables.read().get(name).cloned();
        found.ok_or_else(|| HBaseError::new(ErrorKind::TableNotFound, name.to_string()))
    }

    /// Every table, ordered by name.
    pub fn tables(&self) -> Vec<Table> {
        self.tables.read().values().cloned().collect()
    }

    fn store_table(&self, descriptor: Arc<TableDescriptor>, state: TableState) {
        let name = descriptor.name().clone();
        self.mirror_state(&name, Some(state));
        self.tables.write().insert(name, Table { descriptor, state });
    }

    /// Mirrors a table's state to ZooKeeper, where old clients read it.
    fn mirror_state(&self, table: &TableName, state: Option<TableState>) {
        if let Err(error) = self.parts.znodes.set_table_state(table, state.map(to_mirror_state)) {
            tracing::warn!(%table, %error, "table state not mirrored");
        }
    }

    /// The regions of a table that are not split parents.
    fn live_regions(&self, table: &TableName) -> Result<Vec<RegionInfo>> {
        let regions = self.parts.meta.regions(Some(table))?;
        Ok(regions.into_iter().map(|r| r.info).filter(|r| !r.is_split_parent()).collect())
    }
}

/// Returns true if the master itself uses the table's regions.
fn is_built_in(table: &TableName) -> bool {
    table.is_meta() || *table == TableName::namespace_table()
}

/// Returns true if the master itself uses a region, so that it must stay open.
fn is_in_use(region: &RegionInfo) -> bool {
    is_built_in(region.table()) && region.is_primary()
}

/// A table's state as the mirror in ZooKeeper stores it.
pub fn to_mirror_state(state: TableState) -> pb::deprecated_table_state::State {
    match state {
        TableState::Enabled => pb::deprecated_table_state::State::Enabled,
        TableState::Disabled => pb::deprecated_table_state::State::Disabled,
        TableState::Disabling => pb::deprecated_table_state::State::Disabling,
        TableState::Enabling => pb::deprecated_table_state::State::Enabling,
    }
}
