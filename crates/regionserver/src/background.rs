//! [`Background`]: threads that flush and compact.
//!
//! A region requests a flush or a compaction on the path of a write (`region_events`), which only
//! puts it into a queue. A region is in a queue at most once, so the queues are bounded by the
//! number of regions, and by a fixed length.
//!
//! Flushes and compactions have separate threads: a long compaction must not delay a flush, because
//! only flushes free memory. In-memory flushes need no disk and have separate threads. Large and
//! small compactions have separate threads, too: if a small compaction waits behind an hour's work,
//! files pile up and reads become slow. One compaction of a region runs at a time, and no thread
//! waits for its end: requests for that region are deferred, and queued again when it ends.
//!
//! # Priorities
//! Compactions yield to everything else: the disk by their throughput limit, the processors by the
//! priority of the threads that write them (`priorities`, [`priority`]). They yield less when files
//! pile up: from a quarter of the way to `hbase.hstore.blockingStoreFiles` on, in any
//! region, they get a third of the CPU time of a request thread.
//!
//! Flushes yield the processors to requests in the same way, but not the disk, and not when memory
//! is short: they are urgent as long as the server's unflushed bytes are above the urgency
//! watermark ([`memstore`](crate::limits::memstore)), or while writers to some region are held
//! ([`write_throttle`](crate::limits::write_throttle)), whichever region it is, since its flush may
//! wait behind another one. The first is checked every few hundred cells, the second every time the
//! chore measures the regions. So where writers keep the processors busy, unflushed bytes rise to
//! that watermark, and flushes get the processor time that they need there; the throttle works as
//! if no flush ever yielded. Flushes are also urgent when a caller waits for their end: a close, a
//! bulk load, and a flush that a user requests, which runs on the thread of the call.
//!
//! With `hbase.regionserver.flush.throughput.controller`, flushes yield the disk, too, by the same
//! rule.
//!
//! A failed flush is retried after a pause, `hbase.hstore.flush.retries.number` times in all. The
//! threads do other work meanwhile, so that one region whose directory fails does not delay the
//! flushes of others.
//!
//! A failed compaction (a file of the region cannot be read, or verifying its output fails) is not
//! retried immediately, although every flush finds it due: it would read as much again, and most
//! likely fail at the same place. The pause is ten times `hbase.server.pause`, doubles with each
//! failure, and is at most an hour. A compaction that a user requests does not wait for the pause.
//!
//! In-memory flushes have the priority of requests: they are short, and save a flush. Requests can
//! preempt all background threads. The thread that keeps chunks ready for MemStores has the
//! priority that compactions have when files pile up.
//!
//! A flush or a compaction may find that a region is due to be split. The thread that requests the
//! split ([`split_requests`](crate::split_requests)) may wait for the network, so it does nothing
//! else.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | numbers of threads, and retries |
//! | [`job_queue`] | the queues |
//! | [`throughput`] | how fast compactions and flushes may write |
//! | [`chore`] | leases, the limit on unflushed bytes, and other periodic work |
//! | `priorities` | how flushes and compactions yield |
//! | `region_events` | what regions report |
//! | [`file_discharger`] | archives files that compactions have replaced |
//! | [`mob_cleaner`] | archives MOB files without references |
//! | [`notifier`] | wakes the chore before its time |
//! | `replica_replication` | replays edits on secondary replicas |
//! | [`store_file_refresh`] | refreshes the files of secondary replicas |

pub mod chore;
mod config;
pub mod file_discharger;
mod job_queue;
pub mod mob_cleaner;
pub mod notifier;
mod priorities;
mod region_events;
mod replica_replication;
pub mod store_file_refresh;
pub mod throughput;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::Result;
use evenkeel_common::clock;
use evenkeel_common::priority::{self, REDUCED_NICE};
use evenkeel_common::thread::{Supervisor, catch, spawn_essential, spawn_restarted};
use evenkeel_metrics::activity::{self, ActivityKind};
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::region::{FlushOutcome, Region};
use evenkeel_region::store::{CompactionKind, CompactionThroughputController, ThroughputController};
use parking_lot::Mutex;

pub use self::config::BackgroundConfig;
use self::job_queue::JobQueue;
pub use self::job_queue::WAITING_LISTED_MAX;
use self::priorities::{CompactionPriority, lower_thread_priority};
use crate::RegionServer;
use crate::background::notifier::Notifier;
use crate::limits::memstore::MemStoreAccounting;
use crate::limits::write_throttle::WriteThrottle;
use crate::split_requests::REQUEST_PAUSE;

/// From this compaction pressure on, compactions are urgent: by default at seven files in a store,
/// where three files make a compaction due and sixteen block flushes.
const URGENT_PRESSURE: f64 = 0.25;

/// The first pause after a failed compaction, as a multiple of `hbase.server.pause`.
const COMPACTION_PAUSES: u32 = 10;
/// The longest pause after a failed compaction.
const COMPACTION_PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

/// The compactions of a region that wait or run. The numbers are those of HBase's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionState {
    /// None.
    None = 0,
    /// Compactions of some files.
    Minor = 1,
    /// Compactions of all files of a store.
    Major = 2,
    /// Both.
    MajorAndMinor = 3,
}

/// A waiting compaction: the region, and whether it is a major one.
pub type WaitingCompaction = (Arc<Region>, bool);

/// A requested compaction.
#[derive(Clone)]
struct Compaction {
    region: Arc<Region>,
    /// A family of the region's table, or `None` for all of them. So a region has at most two
    /// compactions with distinct keys for each family, and three for all.
    family: Option<Vec<u8>>,
    kind: CompactionKind,
}

impl Compaction {
    /// Returns the key of the job. A queue has at most one compaction with a key.
    fn key(&self) -> String {
        let family = self.family.as_deref().unwrap_or_default().escape_ascii();
        format!("{}/{family}/{:?}", self.region.info().encoded_name(), self.kind)
    }

    /// Returns true if a compaction of the same region has the same key.
    fn has_key_of(&self, other: &Compaction) -> bool {
        (&self.family, self.kind) == (&other.family, other.kind)
    }
}

struct Shared {
    flushes: JobQueue<Arc<Region>>,
    flushers: usize,
    /// Number of flushes that wait or run on the flushers' threads.
    flushes_open: AtomicUsize,
    /// Notified when a flush has freed memory.
    notifier: Arc<Notifier>,
    /// The unflushed bytes of the server, if there is one.
    memory: OnceLock<Arc<MemStoreAccounting>>,
    /// True if writers to some region are held because of its unflushed bytes.
    region_is_throttled: AtomicBool,
    /// True if files of some region pile up.
    files_pile_up: AtomicBool,
    in_memory_flushes: JobQueue<Arc<Region>>,
    /// Compactions whose size is not known yet, and small ones.
    compactions: JobQueue<Compaction>,
    large_compactions: JobQueue<Compaction>,
    large_compaction_bytes: AtomicU64,
    compactions_enabled: AtomicBool,
    /// The number of minor and major compactions that wait or run, by region.
    compacting: Mutex<HashMap<String, (usize, usize)>>,
    /// How often a compaction was requested or ended.
    compaction_changes: AtomicU64,
    /// Regions that a thread is compacting, with their other compactions that wait, each key once.
    deferred: Mutex<HashMap<String, Vec<Compaction>>>,
    /// Regions whose split is requested next.
    splits: JobQueue<Arc<Region>>,
    /// Default replicas whose streams have events, and secondary replicas that must refresh their
    /// files.
    replica_events: JobQueue<Arc<Region>>,
    /// When a split of a region was last requested, by encoded name.
    split_requests: Mutex<HashMap<String, Instant>>,
    /// The server of the regions, if there is one.
    server: OnceLock<Weak<RegionServer>>,
    flush_failures: AtomicU64,
    flush_tries: AtomicU32,
    flush_pause: Mutex<Duration>,
    /// Regions whose last flush failed, by encoded name.
    flush_retries: Mutex<HashMap<String, FlushRetry>>,
    flush_throughput: ThroughputController,
    /// Regions whose last compaction failed, by encoded name.
    compaction_pauses: Mutex<HashMap<String, CompactionPause>>,
}

/// Failed compactions of a region.
struct CompactionPause {
    /// The number of consecutive failures.
    failures: u32,
    /// Until then, only compactions that a user requests are run.
    until: Instant,
}

/// A failed flush.
struct FlushRetry {
    region: Arc<Region>,
    /// How often it was tried.
    tries: u32,
    /// When to retry it; `None` after it was requested again.
    at: Option<Instant>,
}

/// See the module's documentation. [`Background::stop`] ends its threads.
pub struct Background {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    write_throttle: WriteThrottle,
    compaction_throughput: Arc<CompactionThroughputController>,
    supervisor: Supervisor,
    /// The pool whose chunks are kept ready, if any.
    chunks: OnceLock<Arc<ChunkPool>>,
}

impl Background {
    /// Starts the threads.
    ///
    /// # Errors
    /// I/O error if a thread cannot be started.
    pub fn start(config: &BackgroundConfig) -> io::Result<Arc<Self>> {
        let shared = Arc::new(Shared {
            flushes: JobQueue::new(),
            flushers: config.flushers,
            flushes_open: AtomicUsize::new(0),
            notifier: Arc::default(),
            memory: OnceLock::new(),
            region_is_throttled: AtomicBool::new(false),
            files_pile_up: AtomicBool::new(false),
            in_memory_flushes: JobQueue::new(),
            compactions: JobQueue::new(),
            large_compactions: JobQueue::new(),
            large_compaction_bytes: AtomicU64::new(config.large_compaction_bytes),
            compactions_enabled: AtomicBool::new(config.compactions_enabled),
            compacting: Mutex::default(),
            compaction_changes: AtomicU64::new(0),
            deferred: Mutex::default(),
            splits: JobQueue::new(),
            replica_events: JobQueue::new(),
            split_requests: Mutex::default(),
            server: OnceLock::new(),
            flush_failures: AtomicU64::new(0),
            flush_tries: AtomicU32::new(config.flush_tries),
            flush_pause: Mutex::new(config.flush_pause),
            flush_retries: Mutex::default(),
            flush_throughput: ThroughputController::default(),
            compaction_pauses: Mutex::default(),
        });
        let (write_throttle, compaction_throughput) =
            (WriteThrottle::start(&config.supervisor)?, Arc::default());
        let (threads, supervisor) = (Mutex::default(), config.supervisor.clone());
        let background = Arc::new(Self {
            shared,
            threads,
            write_throttle,
            compaction_throughput,
            supervisor,
            chunks: OnceLock::new(),
        });
        for i in 0..config.flushers {
            background.spawn(format!("flush-{i}"), Shared::flush_jobs)?;
        }
        for i in 0..config.in_memory_flushers {
            background.spawn(format!("flush-in-memory-{i}"), Shared::in_memory_flush_jobs)?;
        }
        for i in 0..config.small_compactors {
            background.spawn(format!("compact-small-{i}"), Shared::small_compactions)?;
        }
        for i in 0..config.large_compactors {
            background.spawn(format!("compact-large-{i}"), Shared::large_compactions)?;
        }
        background.spawn("replicate".to_owned(), Shared::replicate_jobs)?;
        for i in 0..config.split_requesters {
            background.spawn(format!("split-{i}"), Shared::request_splits)?;
        }
        Ok(background)
    }

    fn spawn(&self, name: String, run: fn(&Shared)) -> io::Result<()> {
        let shared = self.shared.clone();
        let body = move || {
            run(&shared);
            Ok(())
        };
        self.threads.lock().push(spawn_essential(name, &self.supervisor, body)?);
        Ok(())
    }

    /// Starts a thread that keeps chunks for MemStores ready, so that writers do not wait for the
    /// kernel to allocate memory.
    ///
    /// # Errors
    /// I/O error if the thread cannot be started.
    pub fn keep_chunks_ready(&self, chunks: &Arc<ChunkPool>) -> io::Result<()> {
        if self.chunks.set(chunks.clone()).is_err() {
            return Ok(());
        }
        let chunks = chunks.clone();
        let keep = move || {
            lower_thread_priority("chunk preparation", REDUCED_NICE);
            chunks.keep_ready();
        };
        self.threads.lock().push(spawn_restarted("chunks", keep)?);
        Ok(())
    }

    /// Returns the supervisor, which is notified when a thread of the server dies.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Sets the gauge that shows whether memory is short. Only the first call has an effect.
    pub fn watch(&self, memory: &Arc<MemStoreAccounting>) {
        let _ = self.shared.memory.set(Arc::clone(memory));
    }

    /// Sets the server whose regions are split when they are large. Only the first call has an
    /// effect.
    pub fn split_regions_of(&self, server: &Arc<RegionServer>) {
        let _ = self.shared.server.set(Arc::downgrade(server));
    }

    /// Sets whether writers to some region are held because of its unflushed bytes.
    pub fn region_is_throttled(&self, is_throttled: bool) {
        self.shared.region_is_throttled.store(is_throttled, Ordering::Relaxed);
    }

    /// Sets the highest compaction pressure of any region ([`Region::compaction_pressure`]).
    pub fn set_compaction_pressure(&self, pressure: f64) {
        self.shared.files_pile_up.store(pressure >= URGENT_PRESSURE, Ordering::Relaxed);
    }

    /// Requests a flush. Returns true if it was not requested before.
    pub fn request_flush(&self, region: &Arc<Region>) -> bool {
        self.shared.request_flush(region)
    }

    /// Requests again the flushes that failed long enough ago.
    pub fn retry_flushes(&self, now: Instant) {
        self.shared.retry_flushes(now);
    }

    /// Requests the due compaction of a region, unless one failed recently. Returns true if it was
    /// not requested before.
    pub fn request_due_compaction(&self, region: &Arc<Region>, now: Instant) -> bool {
        self.shared.request_due_compaction(region, now)
    }

    /// Requests a compaction of one family or all. Returns true if it was not requested before. A
    /// table may have compactions switched off (`COMPACTION_ENABLED`), as in HBase also those that
    /// users request. A family that the table does not have has nothing to compact: it is not
    /// queued, so the number of families bounds the waiting compactions of a region.
    pub fn request_compaction(&self, region: &Arc<Region>, family: Option<&[u8]>, major: bool) -> bool {
        self.shared.request_compaction(Compaction {
            region: region.clone(),
            family: family.map(<[u8]>::to_vec),
            kind: if major { CompactionKind::Major } else { CompactionKind::Due },
        })
    }

    /// Requests a compaction after which a region reads no file of its parent. It rewrites no MOB
    /// file. Returns as [`Background::request_compaction`].
    pub fn request_reference_compaction(&self, region: &Arc<Region>) -> bool {
        let (region, kind) = (region.clone(), CompactionKind::References);
        self.shared.request_compaction(Compaction { region, family: None, kind })
    }

    /// Flushes on this thread, and requests a compaction if one is due.
    ///
    /// # Errors
    /// Errors of [`Region::flush`].
    pub fn flush(&self, region: &Arc<Region>) -> Result<FlushOutcome> {
        self.flush_families(region, &[])
    }

    fn flush_families(&self, region: &Arc<Region>, families: &[Bytes]) -> Result<FlushOutcome> {
        let outcome = self.flush_only(region, families);
        if outcome.is_ok() {
            self.shared.compact_if_due(region);
        }
        outcome
    }

    /// As [`Background::flush`], for some families, or all if none is named, without requesting a
    /// compaction, like HBase's `FlushRegionCallable`. The errors are those of [`Region::flush`].
    pub fn flush_only(&self, region: &Arc<Region>, families: &[Bytes]) -> Result<FlushOutcome> {
        let outcome = region.flush_families(families);
        self.shared.notifier.notify();
        outcome
    }

    /// As [`Background::flush`], for a client's request, which may name families.
    ///
    /// # Errors
    /// `RegionTooBusyException` if too many store files are open; errors of [`Region::flush`].
    pub fn flush_for_client(&self, region: &Arc<Region>, families: &[Bytes]) -> Result<FlushOutcome> {
        let _admitted = region.admit_flush()?;
        self.flush_families(region, families)
    }

    /// Switches compactions on or off. Returns the previous state. Running compactions continue.
    pub fn switch_compactions(&self, enabled: bool) -> bool {
        self.shared.compactions_enabled.swap(enabled, Ordering::Relaxed)
    }

    /// Changes how flushes are retried, and which compactions are large. The numbers of threads
    /// stay the same.
    pub fn update_config(&self, config: &BackgroundConfig) {
        self.shared.flush_tries.store(config.flush_tries, Ordering::Relaxed);
        *self.shared.flush_pause.lock() = config.flush_pause;
        self.shared.large_compaction_bytes.store(config.large_compaction_bytes, Ordering::Relaxed);
    }

    /// Removes all waiting compactions.
    pub fn clear_compactions(&self) {
        let queues = [&self.shared.compactions, &self.shared.large_compactions];
        let deferred: Vec<_> = self.shared.deferred.lock().values_mut().flat_map(std::mem::take).collect();
        for compaction in queues.into_iter().flat_map(JobQueue::clear).chain(deferred) {
            self.shared.count(&compaction, false);
        }
    }

    /// Returns the state of a region's compactions that wait or run.
    pub fn compaction_state(&self, encoded_name: &str) -> CompactionState {
        match self.shared.compacting.lock().get(encoded_name) {
            None | Some((0, 0)) => CompactionState::None,
            Some((_, 0)) => CompactionState::Minor,
            Some((0, _)) => CompactionState::Major,
            Some(_) => CompactionState::MajorAndMinor,
        }
    }

    /// Returns the number of compactions of a region that wait or run.
    pub fn compactions_of(&self, encoded_name: &str) -> usize {
        self.shared.compacting.lock().get(encoded_name).map_or(0, |(minor, major)| minor + major)
    }

    /// Returns the throttle that holds replies to writers.
    pub fn write_throttle(&self) -> &WriteThrottle {
        &self.write_throttle
    }

    /// Returns how long to hold the reply to a write that has grown by `bytes`
    /// ([`RegionEvents::write_grew`](evenkeel_region::region::RegionEvents::write_grew)).
    pub fn hold_for_growth(&self, bytes: u64) -> Duration {
        let memory = self.shared.memory.get().filter(|_| bytes > 0);
        memory.map_or(Duration::ZERO, |memory| memory.hold_for(bytes))
    }

    /// Returns the notifier for checks of unflushed bytes: memory was freed, or runs out.
    pub fn notifier(&self) -> &Arc<Notifier> {
        &self.shared.notifier
    }

    /// Returns the number of flush threads, and of flushes that wait or run on them.
    pub fn flushers(&self) -> (usize, usize) {
        (self.shared.flushers, self.shared.flushes_open.load(Ordering::Relaxed))
    }

    /// Returns the throughput limit of flushes that no caller waits for.
    pub fn flush_throughput(&self) -> &ThroughputController {
        &self.shared.flush_throughput
    }

    /// Returns the throughput limit of compactions, which all regions of the server share.
    pub fn compaction_throughput(&self) -> &Arc<CompactionThroughputController> {
        &self.compaction_throughput
    }

    /// Returns the numbers of waiting flushes and compactions.
    pub fn queued(&self) -> (usize, usize) {
        let (small, large) = self.queued_compactions();
        (self.shared.flushes.len(), small + large)
    }

    /// Returns the numbers of waiting compactions that are small, or whose size is not known yet,
    /// and of those that are large.
    pub fn queued_compactions(&self) -> (usize, usize) {
        let deferred: usize = self.shared.deferred.lock().values().map(Vec::len).sum();
        (self.shared.compactions.len() + deferred, self.shared.large_compactions.len())
    }

    /// Returns the number of regions whose split is requested next.
    pub fn queued_splits(&self) -> usize {
        self.shared.splits.len()
    }

    /// Returns how often a compaction was requested or ended. While the number is unchanged, no
    /// compaction has begun, and the files of regions are unchanged unless they were flushed or
    /// bulk loaded.
    pub fn compaction_changes(&self) -> u64 {
        self.shared.compaction_changes.load(Ordering::Relaxed)
    }

    /// Returns true if a failed flush will be requested again.
    pub fn has_flushes_to_retry(&self) -> bool {
        !self.shared.flush_retries.lock().is_empty()
    }

    /// Returns the waiting flushes and compactions, the first [`WAITING_LISTED_MAX`] of each queue.
    pub fn waiting(&self) -> (Vec<Arc<Region>>, Vec<WaitingCompaction>) {
        let of_compaction =
            |compaction: &Compaction| (Arc::clone(&compaction.region), compaction.kind.is_of_all_files());
        let queues = [&self.shared.compactions, &self.shared.large_compactions];
        let mut compactions: Vec<_> =
            queues.into_iter().flat_map(|queue| queue.waiting(of_compaction)).collect();
        compactions.extend(self.shared.deferred.lock().values().flatten().map(of_compaction));
        compactions.truncate(WAITING_LISTED_MAX);
        (self.shared.flushes.waiting(Arc::clone), compactions)
    }

    /// Returns the number of failed flushes.
    pub fn flush_failures(&self) -> u64 {
        self.shared.flush_failures.load(Ordering::Relaxed)
    }

    /// Returns true if a split of the region was requested recently, and not rejected.
    #[cfg(test)]
    pub(crate) fn has_requested_split(&self, region: &Region) -> bool {
        self.shared.split_requests.lock().contains_key(region.info().encoded_name())
    }

    /// Drops all waiting jobs and ends each thread after its current job.
    pub fn stop(&self) {
        self.shared.flushes.stop();
        self.shared.in_memory_flushes.stop();
        self.shared.compactions.stop();
        self.shared.large_compactions.stop();
        self.shared.splits.stop();
        self.shared.replica_events.stop();
        self.chunks.get().into_iter().for_each(|chunks| chunks.stop_keeping_ready());
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn flush_jobs(&self) {
        priority::allow_preemption();
        while let Some(region) = self.flushes.next() {
            let outcome = region.flush_in_background(self);
            if outcome.is_ok() && !self.split_if_due(&region) {
                self.compact_if_due(&region);
            }
            self.flushes_open.fetch_sub(1, Ordering::Relaxed);
            match outcome {
                Ok(_) => {
                    self.flush_retries.lock().remove(region.info().encoded_name());
                    self.notifier.notify();
                }
                Err(error) => {
                    self.flush_failures.fetch_add(1, Ordering::Relaxed);
                    let tries = self.note_failed_flush(&region);
                    tracing::error!(region = %region.info().name_text(), tries, %error, "flush failed");
                }
            }
        }
    }

    fn request_flush(&self, region: &Arc<Region>) -> bool {
        // Counted first: another thread may complete the flush before this one continues.
        self.flushes_open.fetch_add(1, Ordering::Relaxed);
        let added = self.flushes.push(region.info().encoded_name().to_owned(), region.clone());
        if !added {
            self.flushes_open.fetch_sub(1, Ordering::Relaxed);
        }
        added
    }

    /// Schedules the retry of a failed flush, whose cells stay in memory and in the WAL. After a
    /// pause the flush is requested again, a few times; after that by the next write or by the
    /// chore. Returns how often the flush was tried.
    fn note_failed_flush(&self, region: &Arc<Region>) -> u32 {
        let mut retries = self.flush_retries.lock();
        let name = region.info().encoded_name();
        let tries = retries.get(name).map_or(0, |retry| retry.tries) + 1;
        if tries < self.flush_tries.load(Ordering::Relaxed) && !region.is_closed() {
            let at = clock::monotonic().checked_add(*self.flush_pause.lock());
            retries.insert(name.to_owned(), FlushRetry { region: Arc::clone(region), tries, at });
        } else {
            retries.remove(name);
        }
        tries
    }

    fn retry_flushes(&self, now: Instant) {
        let mut retries = self.flush_retries.lock();
        retries.retain(|_, retry| !retry.region.is_closed());
        let is_due = |retry: &&mut FlushRetry| retry.at.is_some_and(|at| at <= now);
        let due = retries.values_mut().filter(is_due);
        let due: Vec<_> = due.map(|retry| (retry.at = None, Arc::clone(&retry.region)).1).collect();
        drop(retries);
        for region in due {
            self.request_flush(&region);
        }
    }

    fn in_memory_flush_jobs(&self) {
        priority::allow_preemption();
        while let Some(region) = self.in_memory_flushes.next() {
            let what = format!("the in-memory flush of {}", region.info().encoded_name());
            if let Err(error) = catch(what, || region.flush_in_memory()) {
                tracing::error!(region = %region.info().name_text(), %error, "in-memory flush failed");
            }
        }
    }

    fn compact_if_due(&self, region: &Arc<Region>) {
        if region.needs_compaction() {
            self.request_due_compaction(region, clock::monotonic());
        }
    }

    /// Queues a region whose split is due. Returns false if it is not, or was requested recently.
    fn split_if_due(&self, region: &Arc<Region>) -> bool {
        let Some(server) = self.server.get().and_then(Weak::upgrade) else { return false };
        let requested_at = self.split_requests.lock().get(region.info().encoded_name()).copied();
        if requested_at.is_some_and(|at| clock::since(at) < REQUEST_PAUSE)
            || server.due_split(region).is_none()
        {
            return false;
        }
        self.splits.push(region.info().encoded_name().to_owned(), Arc::clone(region));
        true
    }

    fn request_splits(&self) {
        priority::allow_preemption();
        while let Some(region) = self.splits.next() {
            let what = format!("the request to split {}", region.info().encoded_name());
            if let Err(error) = catch(what, || self.request_split(&region)) {
                tracing::warn!(region = %region.info().name_text(), %error, "the region is not split");
                self.compact_if_due(&region);
            }
        }
    }

    fn request_split(&self, region: &Arc<Region>) -> Result<()> {
        let Some(server) = self.server.get().and_then(Weak::upgrade) else { return Ok(()) };
        let Some(row) = server.due_split(region) else { return Ok(()) };
        let name = region.info().encoded_name();
        let mut requests = self.split_requests.lock();
        requests.retain(|_, at| clock::since(*at) < REQUEST_PAUSE);
        requests.insert(name.to_owned(), clock::monotonic());
        drop(requests);
        tracing::info!(
            region = %region.info().name_text(), row = %row.escape_ascii(),
            "a split is requested: the region is due by its split policy"
        );
        server.request_split(region, &row).inspect_err(|_| {
            self.split_requests.lock().remove(name);
        })
    }

    fn request_due_compaction(&self, region: &Arc<Region>, now: Instant) -> bool {
        let name = region.info().encoded_name();
        if self.compaction_pauses.lock().get(name).is_some_and(|pause| now < pause.until) {
            return false;
        }
        self.request_compaction(Compaction {
            region: region.clone(),
            family: None,
            kind: CompactionKind::Due,
        })
    }

    /// Records a failed compaction. Returns the number of consecutive failures, and the pause.
    fn note_failed_compaction(&self, region: &Arc<Region>) -> (u32, Duration) {
        let mut pauses = self.compaction_pauses.lock();
        let now = clock::monotonic();
        // Entries of closed regions are removed when their pause has ended.
        pauses.retain(|_, pause| now < pause.until + COMPACTION_PAUSE_MAX);
        let name = region.info().encoded_name();
        let failures = pauses.get(name).map_or(0, |pause| pause.failures).saturating_add(1);
        let first = self.flush_pause.lock().saturating_mul(COMPACTION_PAUSES);
        let pause = first.saturating_mul(1 << (failures - 1).min(16)).min(COMPACTION_PAUSE_MAX);
        pauses.insert(name.to_owned(), CompactionPause { failures, until: now + pause });
        (failures, pause)
    }

    fn request_compaction(&self, compaction: Compaction) -> bool {
        let enabled = self.compactions_enabled.load(Ordering::Relaxed);
        let Compaction { region, family, .. } = &compaction;
        let is_unknown = family.as_deref().is_some_and(|family| region.table().family(family).is_none());
        if !enabled || is_unknown || !region.table().is_compaction_enabled() {
            return false;
        }
        // Counted first: another thread may complete the compaction before this one continues.
        self.count(&compaction, true);
        let added = self.compactions.push(compaction.key(), compaction.clone());
        if !added {
            self.count(&compaction, false);
        }
        added
    }

    fn count(&self, compaction: &Compaction, start: bool) {
        self.compaction_changes.fetch_add(1, Ordering::Relaxed);
        let mut compacting = self.compacting.lock();
        let name = compaction.region.info().encoded_name();
        let counts = compacting.entry(name.to_owned()).or_default();
        let count = if compaction.kind.is_of_all_files() { &mut counts.1 } else { &mut counts.0 };
        *count = if start { *count + 1 } else { count.saturating_sub(1) };
        if *counts == (0, 0) {
            compacting.remove(name);
        }
    }

    fn small_compactions(&self) {
        lower_thread_priority("compactions", REDUCED_NICE);
        while let Some(compaction) = self.compactions.next() {
            if self.is_large(&compaction) {
                if !self.large_compactions.push(compaction.key(), compaction.clone()) {
                    self.count(&compaction, false);
                }
                continue;
            }
            self.compact_or_defer(compaction);
        }
    }

    fn is_large(&self, compaction: &Compaction) -> bool {
        let Compaction { region, family, kind } = compaction;
        region.next_compaction_bytes(family.as_deref(), kind.is_of_all_files())
            > self.large_compaction_bytes.load(Ordering::Relaxed)
    }

    fn large_compactions(&self) {
        lower_thread_priority("compactions", REDUCED_NICE);
        while let Some(compaction) = self.large_compactions.next() {
            self.compact_or_defer(compaction);
        }
    }

    fn compact_or_defer(&self, compaction: Compaction) {
        let name = compaction.region.info().encoded_name();
        match self.deferred.lock().entry(name.to_owned()) {
            Entry::Vacant(first) => drop(first.insert(Vec::new())),
            Entry::Occupied(mut deferred) => {
                match deferred.get().iter().any(|other| other.has_key_of(&compaction)) {
                    true => self.count(&compaction, false),
                    false => deferred.get_mut().push(compaction),
                }
                return;
            }
        }
        self.compact(&compaction);
        self.count(&compaction, false);
        let deferred = self.deferred.lock().remove(name).unwrap_or_default();
        for next in deferred {
            if !self.compactions.push(next.key(), next.clone()) {
                self.count(&next, false);
            }
        }
    }

    fn compact(&self, compaction: &Compaction) {
        let Compaction { region, family, kind } = compaction;
        let activity = activity::begin(ActivityKind::Compaction, region.info().name_text());
        let outcome = region.compact_in_background(family.as_deref(), *kind, &CompactionPriority(self));
        if outcome.is_ok() {
            self.compaction_pauses.lock().remove(region.info().encoded_name());
        }
        match outcome {
            Err(_) if region.is_closed() => {}
            Err(error) => {
                activity.fail(&error);
                let (failures, pause) = self.note_failed_compaction(region);
                tracing::error!(
                    region = %region.info().name_text(), %error, failures, ?pause,
                    "compaction failed; its files are unchanged, and only a user's request is tried before the pause ends"
                );
            }
            Ok(_) if self.split_if_due(region) => {}
            Ok(true) if region.needs_compaction() => {
                self.request_compaction(Compaction {
                    region: region.clone(),
                    family: None,
                    kind: CompactionKind::Due,
                });
            }
            Ok(_) => {}
        }
    }
}
