//! The RegionServer: the regions that are online here, and the services that clients, the master
//! and operators call.
//!
//! ```text
//! rpc::Service  ->  services                 decode, choose where to run   (`rpc` ends here)
//!               ->  requests, coprocessor    requests over regions         (no sockets)
//!               ->  online_regions           which region
//!               ->  evenkeel_region::Region
//! background: flush and compaction threads; a chore expires leases and watches memory
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`services`] | the RPC services; on which threads a call runs |
//! | [`requests`] | Get, Mutate, Multi, Scan, bulk load; what may run on a connection's thread |
//! | [`coprocessor`] | which regions have which built-in coprocessors, and their endpoints |
//! | [`convert`] | protobuf messages to the operations of a region, and back |
//! | [`online_regions`] | [`OnlineRegions`], read without a lock; where regions moved |
//! | [`master_connection`] | the interface between this server and its master |
//! | [`limits`] | unflushed bytes; slows writers down before memory or files run out |
//! | [`background`] | flush and compaction threads, their throughput, the chore |
//! | `split_requests` | regions whose split policy says that they must be split |
//! | [`cached_regions`] | how much of each region a persistent cache holds |
//! | [`config`] | [`RegionServerConfig`] |
//! | [`load`] | sizes for reports |
//! | [`quotas`] | limits on the requests of users, tables, namespaces and this server |
//! | [`replica_sender`] | the interface to the sender of edits to other servers |
//! | [`request_counters`] | requests so far, by method |
//! | [`metrics`] | sizes and counts for monitoring, by HBase's names |
//! | [`slow_log_table`] | slow and large calls as rows of hbase:slowlog |
//! | [`statistics`] | statistics of the caches and the allocator, for the log |
//! | [`tasks`] | background work in progress |
//! | [`user_times`] | the times of users' operations, and the requests of their hosts |
//! | `version` | the version that is reported to clients and masters |
//!
//! # Threads
//! Reads of rows (Get, and Multi with only Gets) and plain writes run on the connection's thread.
//! The reply to a write is sent when the WAL's group commit calls back. A read is served from the
//! caches and from blocks of files in the kernel's page cache. A read that would block on a disk,
//! or on a block that another thread is reading, returns
//! [`WouldWait`](evenkeel_common::TryError::WouldWait) and restarts on a handler thread, so that a
//! cold row does not delay the other calls of the thread. The same holds for long computations and
//! for writes that would block (see [`inline`](requests::inline)). One kind of blocking cannot be
//! detected here: page faults in an `mmap:` cache whose pages the kernel has reclaimed. Writes that
//! read first wait on handler threads for the writes that they build upon. Scans run on handler
//! threads. Scans of system tables and all admin calls have separate threads, so that user load
//! cannot delay hbase:meta. Admin calls that wait for a disk have yet another set of threads.
//!
//! # Bounds
//! These are bounded: the handler queues (rpc), the background queues ([`background`]), and the
//! unflushed bytes of all regions (`hbase.regionserver.global.memstore.size`). A reply is limited
//! to `hbase.server.scanner.max.result.size`, or to a share of the free budget for unsent replies
//! if that is less. A single row cannot be cut; it is limited to `hbase.table.max.rowsize`, and is
//! charged to that budget as it is read.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod background;
pub mod cached_regions;
pub mod config;
pub mod convert;
pub mod coprocessor;
pub mod limits;
pub mod load;
pub mod master_connection;
pub mod metrics;
pub mod online_regions;
pub mod quotas;
pub mod replica_sender;
pub mod request_counters;
pub mod requests;
pub mod services;
pub mod slow_log_table;
mod split_requests;
pub mod statistics;
pub mod tasks;
pub mod user_times;
mod version;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use evenkeel_block_cache::{BlockCache, CacheStats};
use evenkeel_common::clock::Clock;
use evenkeel_common::{Budget, CellBuffer, ErrorKind, HBaseError, Result, ServerName};
use evenkeel_fs::{FileSystem, Location};
use evenkeel_protocol::pb;
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::operations::{Mutation, MutationKind};
use evenkeel_region::region::Region;
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_rpc::{Executor, RpcMetrics, Service};

pub use self::background::Background;
use self::cached_regions::CachedRegions;
pub use self::config::RegionServerConfig;
use self::limits::memstore::MemStoreAccounting;
use self::limits::write_throttle;
pub use self::master_connection::{ClusterView, MasterConnection};
pub use self::metrics::HotBlockCounts;
pub use self::online_regions::OnlineRegions;
use self::quotas::RpcQuotas;
use self::replica_sender::ReplicaSender;
pub use self::request_counters::{RequestCounters, RequestKind};
use self::requests::bulk_load::ElsewhereLookups;
pub use self::requests::caller::{Caller, Reply};
pub use self::requests::pending_reply::PendingReply;
pub use self::requests::scanners::{ScannerLimits, Scanners};
use self::user_times::UserTimes;
pub use self::version::{HBASE_VERSION, is_evenkeel, version_info};

/// Calls from a RegionServer to the process around it.
pub trait ServerHooks: Send + Sync {
    /// Starts new WAL files. Returns the encoded names of regions that must flush so that old WAL
    /// files can be removed.
    ///
    /// # Errors
    /// `IOException` from the file system.
    fn roll_wal(&self) -> Result<Vec<Vec<u8>>>;

    /// Called when an operator requests that the server stops.
    fn stop(&self, reason: &str);

    /// Called when an operator requests to reload the configuration.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if it cannot be read, or a setting is invalid.
    fn update_configuration(&self) -> Result<()>;

    /// `ExecuteProcedures`: the master opens and closes regions here and runs procedures. Returns
    /// when all of them are queued; their outcomes are reported to the master.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if the request is for another server of this address, or if the
    /// master is in the same process and sends no procedures.
    fn execute_procedures(&self, _request: pb::ExecuteProceduresRequest) -> Result<()> {
        Err(HBaseError::do_not_retry("this server's master sends it no procedures"))
    }

    /// `CloseRegion`: closes a region that the master does not expect here, or that an operator
    /// names. Returns when the close has begun.
    ///
    /// # Errors
    /// `NotServingRegionException`; as [`ServerHooks::execute_procedures`].
    fn close_region(&self, _request: pb::CloseRegionRequest) -> Result<()> {
        Err(HBaseError::do_not_retry("this server's master closes regions itself"))
    }

    /// Another Evenkeel server tells the hot blocks of a region that moves here. Returns without
    /// waiting for a disk.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if this server takes no such lists, or cannot read this one.
    fn hot_blocks(&self, _request: pb::HotBlocksRequest) -> Result<()> {
        Err(HBaseError::do_not_retry("this server takes no lists of hot blocks"))
    }

    /// Returns the sender of MemStores' edits to other servers, if there is one.
    fn replica_sender(&self) -> Option<&dyn ReplicaSender> {
        None
    }

    /// Returns true if a location is in the file system of the regions, however it names that. May
    /// wait for the lookup of a host's name.
    ///
    /// # Errors
    /// `DoNotRetryIOException` for one that this server cannot read.
    fn is_own_file_system(&self, _location: &Location) -> Result<bool> {
        Ok(false)
    }

    /// Returns another file system than that of the regions, from which files are bulk loaded. Its
    /// calls fail soon if it does not answer. Connects to nothing yet.
    ///
    /// # Errors
    /// `DoNotRetryIOException` for one that this server cannot read.
    fn file_system(&self, location: &Location) -> Result<Arc<dyn FileSystem>> {
        Err(HBaseError::do_not_retry(format!("{location}: not a path of this server's file system")))
    }
}

/// A reply that can be cut takes at most this fraction (1/`REPLY_SHARE`) of the budget for replies:
/// about this many are built concurrently.
const REPLY_SHARE: u64 = 32;
/// A reply may always have at least this many bytes.
const REPLY_BYTES_MIN: u64 = 64 << 10;

/// The parts of a RegionServer.
pub struct RegionServerParts {
    /// Its name.
    pub name: ServerName,
    /// The port of its web pages; 0 for none.
    pub info_port: u16,
    /// The root directory, `hbase.rootdir`.
    pub root: PathBuf,
    /// Its configuration.
    pub config: RegionServerConfig,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// The block cache, which its regions use, too.
    pub cache: Arc<dyn BlockCache>,
    /// The budget for unsent replies, in which its RPC servers count them.
    pub unsent: Arc<Budget>,
    /// The call metrics of its RPC servers, with the ledger of slow calls.
    pub rpc_metrics: Arc<RpcMetrics>,
    /// The pool from which its regions' MemStores allocate chunks.
    pub chunks: Arc<ChunkPool>,
    /// The nonces, which its regions use, too.
    pub nonces: Arc<NonceManager>,
    /// The flush and compaction threads, to which its regions send requests.
    pub background: Arc<Background>,
    /// The process around it.
    pub hooks: Arc<dyn ServerHooks>,
    /// The connection to its master.
    pub master: Arc<dyn MasterConnection>,
}

/// See the module's documentation.
pub struct RegionServer {
    name: ServerName,
    info_port: u16,
    root: PathBuf,
    config: RegionServerConfig,
    /// The configuration of periodic work, which operators may change.
    chore_config: ArcSwap<RegionServerConfig>,
    clock: Arc<dyn Clock>,
    cache: Arc<dyn BlockCache>,
    unsent: Arc<Budget>,
    rpc_metrics: Arc<RpcMetrics>,
    background: Arc<Background>,
    hooks: Arc<dyn ServerHooks>,
    master: Arc<dyn MasterConnection>,
    regions: OnlineRegions,
    scanners: Scanners,
    counters: RequestCounters,
    user_times: UserTimes,
    cached_regions: CachedRegions,
    hot_blocks: HotBlockCounts,
    stopping: AtomicBool,
    memory: Arc<MemStoreAccounting>,
    /// True if some region approaches a limit: writes then compute how long to hold their replies.
    throttling: AtomicBool,
    schedule: background::chore::Schedule,
    elsewhere_lookups: ElsewhereLookups,
    /// `None` if quotas are not enabled.
    quotas: Option<Arc<RpcQuotas>>,
}

impl RegionServer {
    /// Creates a server with no regions.
    pub fn new(parts: RegionServerParts) -> Arc<Self> {
        let lease_ms = parts.config.scanner_lease_ms;
        let RegionServerConfig { global_memstore_low_bytes: low, global_memstore_bytes: limit, .. } =
            parts.config;
        let memory =
            Arc::new(MemStoreAccounting::new(low, limit).over(parts.chunks).with_nonces(parts.nonces));
        parts.background.watch(&memory);
        let cache = Arc::clone(&parts.cache);
        let quotas = parts.config.quotas.clone();
        let quotas = quotas.map(|settings| Arc::new(RpcQuotas::new(settings, parts.clock.clone())));
        parts.rpc_metrics.ledger.conditions().count_evictions(move || cache.stats().evictions);
        let server = Arc::new(Self {
            memory,
            regions: OnlineRegions::new(parts.name.clone(), parts.clock.clone()),
            scanners: Scanners::new(
                &parts.name,
                lease_ms,
                ScannerLimits::of(&parts.config),
                parts.clock.clone(),
            ),
            counters: RequestCounters::default(),
            user_times: UserTimes::new(parts.config.user_metrics),
            cached_regions: CachedRegions::default(),
            hot_blocks: HotBlockCounts::default(),
            name: parts.name,
            info_port: parts.info_port,
            root: parts.root,
            chore_config: ArcSwap::from_pointee(parts.config.clone()),
            config: parts.config,
            clock: parts.clock,
            cache: parts.cache,
            unsent: parts.unsent,
            rpc_metrics: parts.rpc_metrics,
            background: parts.background,
            hooks: parts.hooks,
            master: parts.master,
            stopping: AtomicBool::new(false),
            throttling: AtomicBool::new(false),
            schedule: background::chore::Schedule::default(),
            elsewhere_lookups: ElsewhereLookups::default(),
            quotas,
        });
        server.background.split_regions_of(&server);
        server
    }

    /// Returns ClientService, AdminService, ClientMetaService and BootstrapNodeService of this
    /// server. Calls that may block run on the threads of `executor`.
    pub fn services(self: &Arc<Self>, executor: &Arc<Executor>) -> Vec<Arc<dyn Service>> {
        vec![
            Arc::new(services::client::ClientService::new(self.clone(), executor.clone())),
            Arc::new(services::admin::AdminService::new(self.clone(), executor.clone())),
            Arc::new(services::registry::ClientMetaService::new(self.clone())),
            Arc::new(services::registry::BootstrapNodeService::new(self.clone())),
        ]
    }

    /// Returns the server's name.
    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// Returns the configuration.
    pub fn config(&self) -> &RegionServerConfig {
        &self.config
    }

    /// Changes the throughput of flushes and compactions and the age limit of unflushed edits, from
    /// the next round of the chore on, and the settings by which the stores of all regions select
    /// compactions. Other limits stay the same.
    pub fn update_config(&self, config: &RegionServerConfig) {
        self.chore_config.store(Arc::new(self.config.with_changes_of(config)));
        self.schedule.retune_soon();
        self.regions.all().iter().for_each(|region| region.apply_changed_config());
        self.background.notifier().notify();
    }

    /// Returns the regions that are online here. The opener of a region adds it, and removes it
    /// before closing it.
    pub fn regions(&self) -> &OnlineRegions {
        &self.regions
    }

    /// Returns the open scanners.
    pub fn scanners(&self) -> &Scanners {
        &self.scanners
    }

    /// Returns the budget for unread replies.
    pub fn unsent_budget(&self) -> &Arc<Budget> {
        &self.unsent
    }

    /// Returns the flush and compaction threads.
    pub fn background(&self) -> &Arc<Background> {
        &self.background
    }

    /// Returns the statistics of all block cache levels together.
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// Returns the statistics of each block cache level: L1, and L2 if there is one.
    pub fn cache_levels(&self) -> Vec<CacheStats> {
        self.cache.levels()
    }

    /// Returns the bytes of MemStore chunks that count as unflushed.
    pub fn memstore_chunk_bytes(&self) -> u64 {
        self.memory.chunk_bytes()
    }

    /// Returns the times of calls, and the ledger of slow ones.
    pub fn rpc_metrics(&self) -> &RpcMetrics {
        &self.rpc_metrics
    }

    /// Returns the request counters.
    pub fn counters(&self) -> &RequestCounters {
        &self.counters
    }

    /// Returns the counts of hot blocks of regions that moved.
    pub fn hot_block_counts(&self) -> &HotBlockCounts {
        &self.hot_blocks
    }

    /// Rejects all requests from here on.
    pub fn start_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Returns the times of users' operations.
    pub fn user_times(&self) -> &UserTimes {
        &self.user_times
    }

    /// Returns the region that a request names.
    ///
    /// # Errors
    /// `RegionServerStoppedException` once stopping; otherwise as [`OnlineRegions::get`].
    pub fn region(&self, specifier: &pb::RegionSpecifier) -> Result<Arc<Region>> {
        self.check_open()?;
        self.regions.get(&convert::region::encoded_name(specifier)?, &specifier.value)
    }

    /// Checks that the server accepts requests.
    ///
    /// # Errors
    /// `RegionServerStoppedException`.
    pub fn check_open(&self) -> Result<()> {
        if self.stopping.load(Ordering::Relaxed) {
            let message = format!("Server {} stopping", self.name);
            return Err(HBaseError::new(ErrorKind::RegionServerStopped, message));
        }
        Ok(())
    }

    /// Returns true if replies to writes may have to be held. Takes three loads.
    fn may_throttle(&self) -> bool {
        self.memory.is_throttling() || self.throttling.load(Ordering::Relaxed)
    }

    /// Counts a write that begins. Called after [`RegionServer::check_memstore_limit`] and before
    /// the hold is computed.
    fn count_written(&self, bytes: u64) {
        if self.memory.note(bytes) {
            self.background.notifier().notify();
        }
    }

    /// Returns the maximum bytes of cells in a reply that can be cut:
    /// `hbase.server.scanner.max.result.size`, or less while many replies wait for their clients,
    /// so that the replies of all handlers fit into the budget.
    fn result_bytes_max(&self) -> u64 {
        let share = (self.unsent.free() / REPLY_SHARE).max(REPLY_BYTES_MIN);
        self.config.result_bytes_max.min(share)
    }

    /// As [`RegionServer::result_bytes_max`], for a client that cannot request the rest of a reply:
    /// a third of the free budget.
    fn result_bytes_max_single_reply(&self) -> u64 {
        (self.unsent.free() / 3).max(REPLY_BYTES_MIN)
    }

    /// Creates an empty buffer for the cells of a reply. It shares large values with their blocks
    /// only while at least half of the reply budget is free, because blocks pinned by clients
    /// cannot be evicted.
    fn cells_for(&self, caller: &Caller) -> CellBuffer {
        match caller.takes_shared_values() && self.unsent.free() >= self.unsent.max() / 2 {
            true => CellBuffer::sharing(self.config.shared_value_bytes_min),
            false => CellBuffer::new(),
        }
    }

    /// Returns how long to hold the reply to a write of `bytes` to these regions, see
    /// [`write_throttle`]: the longest hold that any of them requires.
    fn hold_for<'a>(&self, regions: impl IntoIterator<Item = &'a Region>, bytes: u64) -> Duration {
        if !self.may_throttle() {
            return Duration::ZERO;
        }
        let pressures =
            regions.into_iter().filter(|region| !region.info().is_meta()).map(Region::write_pressure);
        let Some(pressure) = pressures.reduce(f64::max) else { return Duration::ZERO };
        write_throttle::hold_for(pressure, 1.0).max(self.memory.hold_for(bytes))
    }

    /// Returns how long to hold the error of a write that was rejected, to slow down clients that
    /// retry immediately.
    fn hold_for_error(&self, error: &HBaseError) -> Duration {
        if error.kind() == ErrorKind::RegionTooBusy { write_throttle::HOLD_MAX } else { Duration::ZERO }
    }

    /// Makes an Increment or Append charge the cells that it returns to the budget of replies.
    fn with_reply_budget(&self, mutation: Mutation) -> Mutation {
        match mutation.kind {
            MutationKind::Put | MutationKind::Delete => mutation,
            MutationKind::Increment | MutationKind::Append => {
                Mutation { reply_budget: Some(Arc::clone(&self.unsent)), ..mutation }
            }
        }
    }

    /// Counts a write of `bytes` that begins. Returns how long to hold its reply.
    fn begin_write(&self, region: &Region, bytes: u64) -> Duration {
        self.count_written(bytes);
        self.hold_for([region], bytes)
    }

    /// Checks that there is memory for a write. Writes to hbase:meta are never rejected: the
    /// cluster needs them to recover.
    ///
    /// # Errors
    /// `RegionTooBusyException`, at which clients back off. HBase blocks the handler instead; here
    /// threads must not block, and the reply is held instead.
    fn check_memstore_limit(&self, region: &Region) -> Result<()> {
        if self.memory.is_full() && !region.info().is_meta() {
            let limit = self.config.global_memstore_bytes;
            let message =
                format!("Over global memstore limit={limit}, regionName={}", region.info().name_text());
            return Err(HBaseError::new(ErrorKind::RegionTooBusy, message));
        }
        Ok(())
    }
}
