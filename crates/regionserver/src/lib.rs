//! The RegionServer: which regions are online here, and the services that clients, the master and
//! operators call.
//!
//! ```text
//! rpc::Service  ->  services                 decode, choose where to run   (`rpc` ends here)
//!               ->  requests, coprocessor    requests over regions         (no sockets)
//!               ->  online_regions           which region
//!               ->  evenkeel_region::Region
//! background: flushes and compactions on their own threads, leases and memory watched by a chore
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`services`] | the RPC services; on which threads a call runs |
//! | [`requests`] | Get, Mutate, Multi, Scan, bulk load; what may run on a connection's thread |
//! | [`coprocessor`] | which regions have which built-in coprocessors, and their endpoints |
//! | [`convert`] | protobuf messages to what regions understand, and back |
//! | [`online_regions`] | [`OnlineRegions`], read without a lock; where moved regions went |
//! | [`master_connection`] | what this server tells its master and asks of it |
//! | [`limits`] | unflushed bytes; writers slow down before memory or files run out |
//! | [`background`] | flush and compaction threads, their throughput, the chore |
//! | [`config`] | [`RegionServerConfig`] |
//! | [`load`] | sizes for reports |
//! | [`request_counters`] | requests so far, by method |
//! | [`metrics`] | sizes and counts for monitoring, by HBase's names |
//! | [`statistics`] | figures of the caches and the allocator, for the log |
//! | `version` | the version that clients and masters are told |
//!
//! # Threads
//! Reads of rows (Get, and Multi with nothing else) and plain writes run on the connection's own
//! thread. The reply to a write is sent when the WAL's group commit calls back. A read takes what
//! is in caches, and blocks of files that the kernel has in memory. A read that would have to wait
//! for a disk, or for a block that another thread reads, returns
//! [`WouldWait`](evenkeel_common::TryError::WouldWait) and is done again on a handler thread, so
//! that a cold row does not hold up the other calls of the thread. The same holds for what takes
//! long and for writes that have to wait (see [`inline`](requests::inline)). One wait is invisible
//! from here: pages of an `mmap:` cache that the kernel has taken back. Writes that read first wait
//! for the writes they build upon, on handler threads. Scans run on handler threads; those of
//! system tables, and all admin calls, on threads of their own, so that user load cannot delay
//! hbase:meta. Admin calls that wait for a disk have yet other threads.
//!
//! # Bounds
//! Handler queues (rpc), background queues ([`background`]), unflushed bytes of all regions
//! (`hbase.regionserver.global.memstore.size`). A reply has `hbase.server.scanner.max.result.size`
//! bytes, or a part of the room for replies that clients have not taken, if that is less. A single
//! row, which cannot be cut, has at most `hbase.table.max.rowsize` bytes, and takes of that room as
//! it is read.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod background;
pub mod config;
pub mod convert;
pub mod coprocessor;
pub mod limits;
pub mod load;
pub mod master_connection;
pub mod metrics;
pub mod online_regions;
pub mod request_counters;
pub mod requests;
pub mod services;
pub mod statistics;
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
use evenkeel_protocol::pb;
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::region::Region;
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_rpc::{Executor, RpcMetrics, Service};

pub use self::background::Background;
pub use self::config::RegionServerConfig;
use self::limits::memstore::MemStoreGauge;
use self::limits::write_throttle;
pub use self::master_connection::{ClusterView, MasterConnection};
pub use self::online_regions::OnlineRegions;
pub use self::request_counters::{RequestCounters, RequestKind};
pub use self::requests::caller::{Caller, Reply};
pub use self::requests::pending_reply::PendingReply;
pub use self::requests::scanners::{ScannerLimits, Scanners};
pub use self::version::{HBASE_VERSION, version_info};

/// Called once with an outcome.
type Answer<T> = Box<dyn FnOnce(T) + Send>;

/// Calls of a RegionServer to the process around it.
pub trait ServerHooks: Send + Sync {
    /// Starts new WAL files; returns the encoded names of regions that should flush so that old
    /// ones can go.
    ///
    /// # Errors
    /// `IOException` from the file system.
    fn roll_wal(&self) -> Result<Vec<Vec<u8>>>;

    /// An operator asked the server to stop.
    fn stop(&self, reason: &str);

    /// An operator asked to read the configuration again.
    ///
    /// # Errors
    /// When it cannot be read.
    fn update_configuration(&self) -> Result<()>;

    /// `ExecuteProcedures`: a master opens and closes regions here and has procedures run. Returns
    /// once everything is queued; the outcomes go to the master by reports.
    ///
    /// # Errors
    /// `DoNotRetryIOException` when the request is meant for another server of this address, or
    /// where the master is of the same process and sends none.
    fn execute_procedures(&self, _request: pb::ExecuteProceduresRequest) -> Result<()> {
        Err(HBaseError::do_not_retry("this server's master sends it no procedures"))
    }

    /// `CloseRegion`: closes a region that the master does not expect here, or that an operator
    /// names. Returns once the close has begun.
    ///
    /// # Errors
    /// `NotServingRegionException`; as [`ServerHooks::execute_procedures`].
    fn close_region(&self, _request: pb::CloseRegionRequest) -> Result<()> {
        Err(HBaseError::do_not_retry("this server's master closes regions itself"))
    }
}

/// A reply that can be cut takes at most this fraction (1/`REPLY_SHARE`) of the budget for replies:
/// about that many are made at once.
const REPLY_SHARE: u64 = 32;
/// A reply may have this many bytes in any case.
const REPLY_BYTES_MIN: u64 = 64 << 10;

/// The parts of a RegionServer.
pub struct RegionServerParts {
    /// Its name.
    pub name: ServerName,
    /// The port of its web pages; 0 for none.
    pub info_port: u16,
    /// `hbase.rootdir`.
    pub root: PathBuf,
    /// Limits and switches.
    pub config: RegionServerConfig,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Blocks of store files, the same as its regions use.
    pub cache: Arc<dyn BlockCache>,
    /// Replies that clients have not taken, the same as its RPC servers count them in.
    pub unsent: Arc<Budget>,
    /// What its RPC servers count of calls, with the ledger of slow ones.
    pub rpc_metrics: Arc<RpcMetrics>,
    /// Where its regions' MemStores have their memory from.
    pub chunks: Arc<ChunkPool>,
    /// Nonces, the same as its regions use.
    pub nonces: Arc<NonceManager>,
    /// Flush and compaction threads, the same as its regions report to.
    pub background: Arc<Background>,
    /// What the process around it does.
    pub hooks: Arc<dyn ServerHooks>,
    /// Its master.
    pub master: Arc<dyn MasterConnection>,
}

/// See the module's documentation.
pub struct RegionServer {
    name: ServerName,
    info_port: u16,
    root: PathBuf,
    config: RegionServerConfig,
    /// What periodic work goes by, which operators may change.
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
    stopping: AtomicBool,
    memory: Arc<MemStoreGauge>,
    /// Some region approaches a limit: writes compute how long their replies are held.
    throttling: AtomicBool,
    schedule: background::chore::Schedule,
}

impl RegionServer {
    /// A server with no regions.
    pub fn new(parts: RegionServerParts) -> Arc<Self> {
        let lease_ms = parts.config.scanner_lease_ms;
        let RegionServerConfig { global_memstore_low_bytes: low, global_memstore_bytes: limit, .. } =
            parts.config;
        let memory = Arc::new(MemStoreGauge::new(low, limit).over(parts.chunks).with_nonces(parts.nonces));
        parts.background.watch(&memory);
        let cache = Arc::clone(&parts.cache);
        parts.rpc_metrics.ledger.conditions().count_evictions(move || cache.stats().evictions);
        Arc::new(Self {
            memory,
            regions: OnlineRegions::new(parts.name.clone(), parts.clock.clone()),
            scanners: Scanners::new(
                &parts.name,
                lease_ms,
                ScannerLimits::of(&parts.config),
                parts.clock.clone(),
            ),
            counters: RequestCounters::default(),
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
        })
    }

    /// ClientService, AdminService, ClientMetaService and BootstrapNodeService of this server.
    /// Calls that may wait run on `executor`'s threads.
    pub fn services(self: &Arc<Self>, executor: &Arc<Executor>) -> Vec<Arc<dyn Service>> {
        vec![
            Arc::new(services::client::ClientService::new(self.clone(), executor.clone())),
            Arc::new(services::admin::AdminService::new(self.clone(), executor.clone())),
            Arc::new(services::registry::ClientMetaService::new(self.clone())),
            Arc::new(services::registry::BootstrapNodeService::new(self.clone())),
        ]
    }

    /// The server's name.
    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// Limits and switches.
    pub fn config(&self) -> &RegionServerConfig {
        &self.config
    }

    /// Changes how fast flushes and compactions write and how long edits stay unflushed, from the
    /// next round of the chore on, and what the stores of all regions choose compactions by. Other
    /// limits stay.
    pub fn change_config(&self, config: &RegionServerConfig) {
        self.chore_config.store(Arc::new(self.config.with_changes_of(config)));
        self.schedule.tune_soon();
        self.regions.all().iter().for_each(|region| region.apply_changed_config());
        self.background.notifier().notify();
    }

    /// The regions served here. The opener of a region adds it, and removes it before closing it.
    pub fn regions(&self) -> &OnlineRegions {
        &self.regions
    }

    /// Open scanners.
    pub fn scanners(&self) -> &Scanners {
        &self.scanners
    }

    /// Flush and compaction threads.
    pub fn background(&self) -> &Arc<Background> {
        &self.background
    }

    /// What its block caches did and hold.
    pub fn cache_stats(&self) -> CacheStats {
        self.cache.stats()
    }

    /// What each level of its block caches did and holds: L1, and L2 if there is one.
    pub fn cache_levels(&self) -> Vec<CacheStats> {
        self.cache.levels()
    }

    /// The memory of its MemStores.
    pub fn memstore_chunk_bytes(&self) -> u64 {
        self.memory.chunk_bytes()
    }

    /// Times of calls, and the slow ones.
    pub fn rpc_metrics(&self) -> &RpcMetrics {
        &self.rpc_metrics
    }

    /// Requests so far.
    pub fn counters(&self) -> &RequestCounters {
        &self.counters
    }

    /// Refuses all requests from now on.
    pub fn start_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// The region a request is for.
    ///
    /// # Errors
    /// `RegionServerStoppedException` once stopping; otherwise as [`OnlineRegions::get`].
    pub fn region(&self, specifier: &pb::RegionSpecifier) -> Result<Arc<Region>> {
        self.check_open()?;
        self.regions.get(convert::region::encoded_name(specifier)?, &specifier.value)
    }

    /// Checks that the server takes requests.
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

    /// Whether answers to writes may have to be held. Three loads.
    fn may_throttle(&self) -> bool {
        self.memory.is_throttling() || self.throttling.load(Ordering::Relaxed)
    }

    /// Counts a write that begins, after [`RegionServer::check_memstore_limit`] and before its hold
    /// is computed.
    fn note_written(&self, bytes: u64) {
        if self.memory.note(bytes) {
            self.background.notifier().notify();
        }
    }

    /// Bytes of cells that a reply may have now, at a place where it can be cut:
    /// `hbase.server.scanner.max.result.size`, and less while many replies wait for their clients,
    /// so that all handlers together find room for theirs.
    fn result_bytes_max(&self) -> u64 {
        let share = (self.unsent.free() / REPLY_SHARE).max(REPLY_BYTES_MIN);
        self.config.result_bytes_max.min(share)
    }

    /// As [`RegionServer::result_bytes_max`], of a client that does not know how to ask for the
    /// rest: as much as leaves two thirds of the room to others.
    fn result_bytes_max_uncut(&self) -> u64 {
        (self.unsent.free() / 3).max(REPLY_BYTES_MIN)
    }

    /// An empty buffer for the cells of a reply. It shares large values with their blocks as long
    /// as there is room for replies: blocks that clients hold on to cannot leave the cache.
    fn cells_for(&self, caller: &Caller) -> CellBuffer {
        match caller.takes_shared_values() && self.unsent.free() >= self.unsent.max() / 2 {
            true => CellBuffer::sharing(self.config.shared_value_bytes_min),
            false => CellBuffer::new(),
        }
    }

    /// How long to hold the reply to a write of `bytes` to these regions, see [`write_throttle`]:
    /// the longest hold that any of them needs.
    fn hold_for<'a>(&self, regions: impl IntoIterator<Item = &'a Region>, bytes: u64) -> Duration {
        if !self.may_throttle() {
            return Duration::ZERO;
        }
        let pressures =
            regions.into_iter().filter(|region| !region.info().is_meta()).map(Region::write_pressure);
        let Some(pressure) = pressures.reduce(f64::max) else { return Duration::ZERO };
        write_throttle::hold_for(pressure, 1.0).max(self.memory.hold_for(bytes))
    }

    /// How long to hold the error of a write that was not begun, so that clients that retry at once
    /// are slowed.
    fn hold_for_error(&self, error: &HBaseError) -> Duration {
        if error.kind() == ErrorKind::RegionTooBusy { write_throttle::HOLD_MAX } else { Duration::ZERO }
    }

    /// Counts a write of `bytes` that begins. Returns how long to hold its reply.
    fn begin_write(&self, region: &Region, bytes: u64) -> Duration {
        self.note_written(bytes);
        self.hold_for([region], bytes)
    }

    /// Answers a write after `hold`.
    fn answer_after<T: Send + 'static>(&self, hold: Duration, done: Answer<T>) -> Answer<T> {
        if hold.is_zero() {
            return done;
        }
        let background = Arc::clone(&self.background);
        Box::new(move |outcome| background.write_throttle().hold(hold, move || done(outcome)))
    }

    /// Checks that there is memory for a write. Writes to hbase:meta are never refused: the cluster
    /// needs them to recover.
    ///
    /// # Errors
    /// `RegionTooBusyException`, at which clients back off. HBase makes the handler wait; here no
    /// thread may, and the answer waits instead.
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
