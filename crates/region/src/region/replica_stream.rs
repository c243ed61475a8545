//! [`ReplicaStream`]: what a default replica hands to its secondary replicas, in the order in which
//! its own readers see it (`hbase.region.replica.replication.enabled`).
//!
//! ```text
//! a write is visible ---> Edits                       \
//! a flush has begun  ---> Resumed (a gap ends), or     > queue --> a thread of the server
//!                         FlushStarted                /
//! files have changed ---> Flushed                    /
//! ```
//! `FlushStarted` is queued only while a secondary replica on another server reads the stream. It
//! must know which of its cells will be in the files of the flush.
//!
//! **A write never waits.** All queues of a server share a budget of bytes. If it is exhausted, the
//! stream stops: entries from then on are not queued, so there is a gap. Those before the gap stay
//! queued. The server then requests a flush of the region. When a flush of all stores freezes the
//! MemStores, the stream starts again: every edit up to the flush's sequence id will be in its
//! files, and every later one is queued. `Resumed` tells the readers that sequence id; they show no
//! edit behind the gap until they read files that fill it ([`Region::resume_replay`]). A stream
//! begins stopped, and a new secondary replica stops it ([`ReplicaStream::stop`]).
//!
//! **Restarts are paced.** If writers are faster than the readers of the queue, a stream that
//! starts is exhausted again soon. So the server requests a flush for it at most every
//! [`RESTART_PAUSE_MIN`], and more rarely the more often that happens in a row. Any other flush of
//! all stores starts the stream, too ([`ReplicaStream::begin_restart`]).
//!
//! **`REGION_MEMSTORE_REPLICATION` false**: a stream without edits, which only tells that files
//! have changed, as in HBase.
//!
//! **Which edits.** Those that are logged, when they are as durable as requested and visible to
//! readers. A failed write and one with `SKIP_WAL` are not among them; the latter is seen after a
//! flush, as in HBase.
//!
//! **Order.** [`ReplicaStream::push_edits`] is called under the lock that moves the read point, so
//! the queue has the order of sequence ids. A flush writes its files after all edits in them are
//! visible, so these are in the queue before its files exist.
//!
//! Locks: `state` is a leaf lock. `reading` is held by the reader of the queue, also during the I/O
//! of a refresh; no request needs it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::config::ConfigError;
use evenkeel_common::{Budget, CellBuffer, Configuration, KeyValue, RegionInfo, TableDescriptor};
use evenkeel_wal::{SyncLevel, Txid};
use parking_lot::{Mutex, MutexGuard};

use super::Region;

/// The key that enables the replication of MemStores of user tables
/// (`ServerRegionReplicaUtil.REGION_REPLICA_REPLICATION_CONF_KEY`).
pub const REPLICATION_ENABLED: &str = "hbase.region.replica.replication.enabled";
/// The same for hbase:meta (`REGION_REPLICA_REPLICATION_CATALOG_CONF_KEY`).
pub const CATALOG_REPLICATION_ENABLED: &str = "hbase.region.replica.replication.catalog.enabled";

/// The maximum bytes of the events that wait in all streams of a server.
pub const QUEUED_BYTES_MAX: u64 = 8 << 20;
/// The maximum bytes of the edits that wait for a call to another server, in a cluster, with copies
/// of them in the buffers of sockets.
pub const SENDER_BYTES_MAX: u64 = 24 << 20;
/// The time after which files that could not be found are looked for again.
const REFRESH_PAUSE: Duration = Duration::from_secs(1);
/// The minimum time between two flushes of a region that are requested to start its stream.
pub const RESTART_PAUSE_MIN: Duration = Duration::from_secs(30);
/// The maximum of that time.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(16 * 60);
/// The maximum of that time if a secondary replica on another server reads the stream. It may read
/// replaced files until it is told of all files, and these files are deleted after
/// `hbase.master.hfilecleaner.ttl`, which is five minutes.
const RESTART_PAUSE_MAX_ELSEWHERE: Duration = Duration::from_secs(2 * 60);
/// The bytes that an event occupies in addition to its cells and names.
const EVENT_BYTES: u64 = 256;
/// The bytes that the name of a file or family occupies in addition to its text.
const NAME_BYTES: u64 = 32;
/// The maximum changes of files of one event. If there are more, they are [`FileChanges::Unknown`].
const CHANGES_MAX: usize = 32;

/// Which MemStores are replicated to secondary replicas of regions. Clones share the budget of
/// their queues.
#[derive(Clone, Debug)]
pub struct ReplicaReplication {
    /// MemStores of user tables are.
    pub user_tables: bool,
    /// That of hbase:meta is.
    pub catalog: bool,
    /// The bytes of queued events.
    queued: Arc<Budget>,
}

impl Default for ReplicaReplication {
    fn default() -> Self {
        Self::new(false, false)
    }
}

impl ReplicaReplication {
    /// Creates a configuration with a budget of its own.
    pub fn new(user_tables: bool, catalog: bool) -> Self {
        Self { user_tables, catalog, queued: Budget::new(QUEUED_BYTES_MAX) }
    }

    /// Reads HBase's keys.
    ///
    /// # Errors
    /// [`ConfigError`] if a value is malformed.
    pub fn from_configuration(conf: &Configuration) -> Result<Self, ConfigError> {
        let user_tables = conf.get_bool_or(REPLICATION_ENABLED, false)?;
        Ok(Self::new(user_tables, conf.get_bool_or(CATALOG_REPLICATION_ENABLED, false)?))
    }

    /// Returns true if the MemStore of some table is replicated.
    pub fn is_enabled(&self) -> bool {
        self.user_tables || self.catalog
    }

    /// Returns the stream of a region, if it has secondary replicas that its edits are for.
    pub(super) fn stream_of(&self, info: &RegionInfo, table: &TableDescriptor) -> Option<Arc<ReplicaStream>> {
        let is_enabled = if info.is_meta() { self.catalog } else { self.user_tables };
        // The number of hbase:meta's replicas changes while it is open.
        let has_replicas = info.is_primary() && (info.is_meta() || table.region_replication() > 1);
        let takes_edits = table.is_memstore_replicated();
        (is_enabled && has_replicas)
            .then(|| Arc::new(ReplicaStream::new(takes_edits, Arc::clone(&self.queued))))
    }
}

/// An event of a default replica.
#[derive(Debug)]
pub enum ReplicaEvent {
    /// The cells of one log entry.
    Edits {
        /// Their sequence id, above that of all earlier edits.
        seq_id: u64,
        /// The log entry, if the edits became visible before it was in the log (`ASYNC_WAL`). Until
        /// it is, they may be lost in a crash of this server, so another server must not have them
        /// ([`Region::when_logged`]).
        unlogged: Option<Txid>,
        /// The cells.
        cells: CellBuffer,
    },
    /// Edits up to this sequence id may be missing before this event; none are after it. A flush of
    /// all stores has begun.
    Resumed(u64),
    /// A flush of stores has begun. Edits that come later and are not of the flush have a greater
    /// sequence id; edits of the flush may still come.
    FlushStarted {
        /// The sequence id of the flush.
        seq_id: u64,
        /// The families of the stores; none if there is nothing to flush: every edit up to `seq_id`
        /// is in files.
        families: Vec<Bytes>,
        /// True if the flush is of all stores of the region, or there is nothing to flush.
        is_of_all: bool,
    },
    /// Store files have changed.
    Flushed {
        /// Every edit up to this sequence id is in store files; 0 if the files have changed without
        /// a flush.
        through: u64,
        /// What has changed.
        changes: FileChanges,
        /// True if edits of before may be missing: the stream is stopped.
        follows_gap: bool,
    },
}

impl ReplicaEvent {
    fn bytes(&self) -> u64 {
        let more = match self {
            Self::Edits { cells, .. } => cells.encoded_len() as u64,
            Self::Resumed(_) => 0,
            Self::FlushStarted { families, .. } => {
                families.iter().map(|family| NAME_BYTES + family.len() as u64).sum()
            }
            Self::Flushed { changes, .. } => changes.bytes(),
        };
        EVENT_BYTES + more
    }
}

/// One change of store files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// A flush has ended.
    Flushed {
        /// The sequence id of the flush.
        seq_id: u64,
        /// The flushed families, each with the names of its new files.
        files: Vec<(Bytes, Vec<String>)>,
    },
    /// Files of a family were replaced.
    Replaced {
        /// The family.
        family: Bytes,
        /// The names of the former files.
        inputs: Vec<String>,
        /// The names of the new files.
        outputs: Vec<String>,
    },
    /// Files were loaded.
    Loaded {
        /// The sequence id of their cells; 0 if they keep their own.
        seq_id: u64,
        /// Families, each with the names of its new files.
        files: Vec<(Bytes, Vec<String>)>,
    },
}

impl FileChange {
    fn bytes(&self) -> u64 {
        let of = |names: &Vec<String>| names.iter().map(|name| NAME_BYTES + name.len() as u64).sum::<u64>();
        let of_names: u64 = match self {
            Self::Flushed { files, .. } | Self::Loaded { files, .. } => {
                files.iter().map(|(_, names)| of(names)).sum()
            }
            Self::Replaced { inputs, outputs, .. } => of(inputs) + of(outputs),
        };
        EVENT_BYTES + of_names
    }
}

/// The changes of store files that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChanges {
    /// These, in this order.
    Known(Vec<FileChange>),
    /// Too many to list: a reader must compare all files.
    Unknown,
}

impl FileChanges {
    fn bytes(&self) -> u64 {
        let Self::Known(changes) = self else { return 0 };
        changes.iter().map(FileChange::bytes).sum()
    }

    fn add(&mut self, later: Self) {
        match (self, later) {
            (Self::Known(all), Self::Known(more)) if all.len() + more.len() <= CHANGES_MAX => {
                all.extend(more);
            }
            (all, _) => *all = Self::Unknown,
        }
    }
}

impl Default for FileChanges {
    fn default() -> Self {
        Self::Known(Vec::new())
    }
}

/// See the module's documentation.
pub struct ReplicaStream {
    /// False if the table has `REGION_MEMSTORE_REPLICATION` off.
    takes_edits: bool,
    queued: Arc<Budget>,
    /// True if entries are queued. Changed under the lock of `state`.
    is_active: AtomicBool,
    /// True if the server was told that there are events.
    is_announced: AtomicBool,
    state: Mutex<StreamState>,
    reading: Mutex<()>,
}

#[derive(Debug, Default)]
struct StreamState {
    events: VecDeque<ReplicaEvent>,
    /// A [`ReplicaEvent::Flushed`] for which the budget had no space. It follows all events.
    unsent_flushed: Option<UnsentFlushed>,
    /// A [`ReplicaEvent::Flushed`] whose files could not be found, and when to try again.
    failed_flushed: Option<(u64, Instant)>,
    /// True if a secondary replica reads the stream.
    has_readers: bool,
    /// True if one on another server does.
    has_readers_elsewhere: bool,
    /// The last flush that was requested to start the stream, and the pause after it.
    restart: Option<(Instant, Duration)>,
    /// The sequence id of the last edit that was queued.
    last_edit: u64,
}

/// The content of a [`ReplicaEvent::Flushed`].
#[derive(Debug, Default)]
struct UnsentFlushed {
    through: u64,
    changes: FileChanges,
    follows_gap: bool,
}

impl UnsentFlushed {
    fn into_event(self) -> ReplicaEvent {
        let Self { through, changes, follows_gap } = self;
        ReplicaEvent::Flushed { through, changes, follows_gap }
    }
}

impl StreamState {
    fn has_events(&self) -> bool {
        !self.events.is_empty() || self.unsent_flushed.is_some()
    }

    fn take_unsent(&mut self) -> Option<ReplicaEvent> {
        self.unsent_flushed.take().map(UnsentFlushed::into_event)
    }
}

impl ReplicaStream {
    fn new(takes_edits: bool, queued: Arc<Budget>) -> Self {
        Self {
            takes_edits,
            queued,
            is_active: AtomicBool::new(false),
            is_announced: AtomicBool::new(false),
            state: Mutex::default(),
            reading: Mutex::new(()),
        }
    }

    /// Returns true if the edits of the region are for secondary replicas.
    pub fn takes_edits(&self) -> bool {
        self.takes_edits
    }

    /// Returns true if the stream has readers and waits for a flush to start again.
    pub fn needs_flush(&self) -> bool {
        self.takes_edits && self.is_stopped() && self.state.lock().has_readers
    }

    /// Returns true if a flush that starts the stream may be requested now, and remembers that. One
    /// that is the first for a secondary replica does not wait for the end of the pause.
    pub fn begin_restart(&self, now: Instant, is_first: bool) -> bool {
        let mut state = self.state.lock();
        let pause_max =
            if state.has_readers_elsewhere { RESTART_PAUSE_MAX_ELSEWHERE } else { RESTART_PAUSE_MAX };
        let (passed, pause) = match state.restart {
            Some((at, pause)) => (now.saturating_duration_since(at), pause.min(pause_max)),
            None => (Duration::MAX, RESTART_PAUSE_MIN),
        };
        let is_due = is_first || passed >= pause;
        if is_due {
            let is_rare = is_first || passed >= pause * 2;
            let next = if is_rare { RESTART_PAUSE_MIN } else { (pause * 2).min(pause_max) };
            state.restart = Some((now, next));
        }
        is_due
    }

    /// Returns true if events wait for the reader.
    pub fn has_events(&self) -> bool {
        self.state.lock().has_events()
    }

    fn is_stopped(&self) -> bool {
        !self.is_active.load(Ordering::Acquire)
    }

    /// Sets whether secondary replicas on this server and elsewhere read the stream. Without
    /// readers it is stopped, and empty. The first reader may have missed a change of files since
    /// its opening. It is told so if no flush will start the stream.
    pub fn set_has_readers(&self, here: bool, elsewhere: bool) {
        let mut state = self.state.lock();
        state.has_readers_elsewhere = elsewhere;
        let had_readers = std::mem::replace(&mut state.has_readers, here || elsewhere);
        if state.has_readers {
            if !had_readers && !self.takes_edits {
                self.queue_flushed(&mut state, 0, FileChanges::Unknown);
            }
            return;
        }
        self.is_active.store(false, Ordering::Release);
        (state.unsent_flushed, state.failed_flushed) = (None, None);
        let events = std::mem::take(&mut state.events);
        // Writers wait for the lock, so the buffers are freed without it.
        drop(state);
        self.release(events.into_iter());
    }

    /// Stops the stream until a flush has begun: a reader lacks edits of before.
    pub fn stop(&self) {
        let _state = self.state.lock();
        self.is_active.store(false, Ordering::Release);
    }

    /// As [`ReplicaStream::stop`], unless a flush has begun that the readers are not told of yet.
    pub fn stop_unless_resumed(&self) {
        let state = self.state.lock();
        if !state.events.iter().any(|event| matches!(event, ReplicaEvent::Resumed(_))) {
            self.is_active.store(false, Ordering::Release);
        }
    }

    /// Returns a copy of a log entry's cells for [`ReplicaStream::push_edits`]; `None` if the
    /// stream is stopped.
    pub(super) fn copy(&self, cells: &[KeyValue]) -> Option<CellBuffer> {
        if self.is_stopped() {
            return None;
        }
        let mut copies = CellBuffer::new();
        cells.iter().for_each(|cell| copies.push(&cell.as_cell()));
        Some(copies)
    }

    /// Queues the cells of a log entry that becomes visible, after all earlier ones. Stops the
    /// stream if the budget is exhausted.
    pub(super) fn push_edits(&self, seq_id: u64, unlogged: Option<Txid>, cells: CellBuffer) {
        let mut state = self.state.lock();
        let event = ReplicaEvent::Edits { seq_id, unlogged, cells };
        if self.is_stopped() {
            return;
        }
        match self.push(&mut state, event) {
            true => state.last_edit = seq_id,
            false => self.is_active.store(false, Ordering::Release),
        }
    }

    /// Queues an event, if the budget has space for it. Returns true if it is queued.
    fn push(&self, state: &mut StreamState, event: ReplicaEvent) -> bool {
        let fits = self.queued.acquire(event.bytes());
        if fits {
            state.events.push_back(event);
        }
        fits
    }

    /// Starts a stopped stream, if a flush of all stores has begun: every edit up to `seq_id` is in
    /// a MemStore that the flush writes, or in files. The caller excludes writers. A stream that
    /// runs only tells of the flush, if a reader elsewhere needs to know.
    pub(super) fn flush_started(&self, seq_id: u64, is_of_all: bool, families: &[Bytes]) {
        let mut state = self.state.lock();
        if self.takes_edits && self.is_stopped() {
            let is_due = is_of_all && state.has_readers;
            if is_due && self.push(&mut state, ReplicaEvent::Resumed(seq_id)) {
                self.is_active.store(true, Ordering::Release);
            }
        } else if state.has_readers_elsewhere {
            let event = ReplicaEvent::FlushStarted { seq_id, families: families.to_vec(), is_of_all };
            if !self.push(&mut state, event) {
                self.is_active.store(false, Ordering::Release);
            }
        }
    }

    /// Queues that every edit up to `seq_id` is in store files; 0 for files that have changed
    /// without a flush. That is never lost, even if the budget is exhausted.
    pub fn push_flushed(&self, seq_id: u64, changes: FileChanges) {
        self.queue_flushed(&mut self.state.lock(), seq_id, changes);
    }

    /// Keeps a change of files that a reader could not see, for [`ReplicaStream::retry_flushed`].
    pub fn set_failed_flushed(&self, seq_id: u64, now: Instant) {
        let mut state = self.state.lock();
        let before = state.failed_flushed.map_or(0, |(through, _)| through);
        state.failed_flushed = Some((seq_id.max(before), now + REFRESH_PAUSE));
    }

    /// Queues the change of files that a reader could not see, if that was long enough ago.
    pub fn retry_flushed(&self, now: Instant) {
        let mut state = self.state.lock();
        if let Some((seq_id, _)) = state.failed_flushed.take_if(|(_, at)| *at <= now) {
            // Readers elsewhere were told of the changes already.
            self.queue_flushed(&mut state, seq_id, FileChanges::default());
        }
    }

    fn queue_flushed(&self, state: &mut StreamState, seq_id: u64, changes: FileChanges) {
        if !state.has_readers {
            return;
        }
        let mut all = state.unsent_flushed.take().unwrap_or_default();
        // Those for which there was no space follow all events.
        if let Some(ReplicaEvent::Flushed { .. }) = state.events.back()
            && let Some(ReplicaEvent::Flushed { through, changes, follows_gap }) = self.pop_back(state)
        {
            let later = std::mem::replace(&mut all.changes, changes);
            all.changes.add(later);
            (all.through, all.follows_gap) = (all.through.max(through), all.follows_gap || follows_gap);
        }
        all.through = all.through.max(seq_id);
        all.changes.add(changes);
        all.follows_gap |= self.takes_edits && self.is_stopped();
        let bytes = EVENT_BYTES + all.changes.bytes();
        if self.queued.acquire(bytes) {
            state.events.push_back(all.into_event());
        } else {
            state.unsent_flushed = Some(all);
        }
    }

    fn pop_back(&self, state: &mut StreamState) -> Option<ReplicaEvent> {
        let event = state.events.pop_back()?;
        self.queued.release(event.bytes());
        Some(event)
    }

    /// Returns true if the server must be told that there are events, once until the next
    /// [`ReplicaStream::read`].
    pub(super) fn announce(&self) -> bool {
        !self.is_announced.load(Ordering::Relaxed)
            && self.has_events()
            && !self.is_announced.swap(true, Ordering::AcqRel)
    }

    /// Returns the reader of the queue; waits for another one.
    pub fn read(&self) -> ReplicaStreamReader<'_> {
        let reading = self.reading.lock();
        self.is_announced.store(false, Ordering::Release);
        ReplicaStreamReader { stream: self, _reading: reading }
    }

    fn release(&self, events: impl Iterator<Item = ReplicaEvent>) {
        self.queued.release(events.map(|event| event.bytes()).sum());
    }
}

impl Drop for ReplicaStream {
    fn drop(&mut self) {
        let events = std::mem::take(&mut self.state.get_mut().events);
        self.release(events.into_iter());
    }
}

impl std::fmt::Debug for ReplicaStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplicaStream").field("is_stopped", &self.is_stopped()).finish_non_exhaustive()
    }
}

/// The only reader of a stream at a time.
pub struct ReplicaStreamReader<'a> {
    stream: &'a ReplicaStream,
    _reading: MutexGuard<'a, ()>,
}

impl ReplicaStreamReader<'_> {
    /// Takes the next event.
    pub fn take(&self) -> Option<ReplicaEvent> {
        let mut state = self.stream.state.lock();
        let Some(event) = state.events.pop_front() else {
            return state.take_unsent();
        };
        drop(state);
        self.stream.queued.release(event.bytes());
        Some(event)
    }

    /// Takes the next event if it belongs before the files of a flush: edits up to `seq_id`, and
    /// what precedes them. Events about files are passed to `set_aside`.
    pub fn take_up_to(&self, seq_id: u64, mut set_aside: impl FnMut(ReplicaEvent)) -> Option<ReplicaEvent> {
        loop {
            match self.take_if_before(seq_id)? {
                event @ ReplicaEvent::Flushed { .. } => set_aside(event),
                event => return Some(event),
            }
        }
    }

    fn take_if_before(&self, seq_id: u64) -> Option<ReplicaEvent> {
        let mut state = self.stream.state.lock();
        let is_before = match state.events.front() {
            Some(ReplicaEvent::Edits { seq_id: edit, .. }) => *edit <= seq_id,
            Some(ReplicaEvent::Resumed(until)) => *until <= seq_id,
            Some(ReplicaEvent::FlushStarted { seq_id: started, .. }) => *started <= seq_id,
            Some(ReplicaEvent::Flushed { .. }) => true,
            None => return state.take_unsent(),
        };
        let event = if is_before { state.events.pop_front()? } else { return None };
        drop(state);
        self.stream.queued.release(event.bytes());
        Some(event)
    }
}

impl Region {
    /// Returns whether a log entry of [`ReplicaEvent::Edits`] is in the log; `None` if that is not
    /// known yet.
    pub fn is_logged(&self, entry: Txid) -> Option<bool> {
        self.env.wal.settled(entry, SyncLevel::Flush).map(|outcome| outcome.is_ok())
    }

    /// Calls `done` once, when [`Region::is_logged`] is known, and requests that it becomes so. It
    /// may run on the log's thread, so it must be cheap.
    pub fn when_logged(&self, entry: Txid, done: impl FnOnce() + Send + 'static) {
        self.env.wal.when_synced(entry, SyncLevel::Flush, move |_| done());
    }

    /// The stream for its secondary replicas, if its edits are replicated to them.
    pub fn replica_stream(&self) -> Option<&Arc<ReplicaStream>> {
        self.replica_stream.as_ref()
    }

    /// Tells the secondary replicas that a flush of some families has begun, for a caller that
    /// excludes writers: every edit of these up to `seq_id` is frozen. See
    /// [`ReplicaStream::flush_started`].
    pub(super) fn stream_flush(&self, seq_id: u64, is_of_all: bool, families: &[Bytes]) {
        self.replica_stream.iter().for_each(|stream| stream.flush_started(seq_id, is_of_all, families));
    }

    /// Tells the secondary replicas that store files have changed, for a caller that changes them
    /// now ([`Region::with_new_epoch_then`]): events have the order of the changes. Every edit up
    /// to `seq_id` is in the files. [`Region::announce_files`] follows, without a lock.
    pub(super) fn stream_files(&self, seq_id: u64, changes: impl FnOnce() -> Vec<FileChange>) {
        if let Some(stream) = &self.replica_stream {
            stream.push_flushed(seq_id, FileChanges::Known(changes()));
        }
    }

    /// Tells the server that files have changed.
    pub(super) fn announce_files(self: &Arc<Self>) {
        self.replica_stream.iter().for_each(|stream| self.announce_events(stream));
    }

    /// Returns the greatest sequence id that is in store files, or that of the opening.
    ///
    /// The numbers of the log's markers may be greater. After a crash they are used again, so they
    /// say nothing about edits.
    pub fn files_seq_id(&self) -> u64 {
        let of_files = self.stores.iter().map(|store| store.max_seq_id()).max();
        of_files.unwrap_or(0).max(self.open_seq_num())
    }

    /// Returns a sequence id up to which every edit is in files, if none is in memory: at least
    /// that of every edit that secondary replicas have got.
    pub(super) fn flushed_seq_id(&self) -> u64 {
        let last_edit = self.replica_stream.as_ref().map_or(0, |stream| stream.state.lock().last_edit);
        self.files_seq_id().max(last_edit)
    }

    /// Tells the server that the stream has events.
    pub(super) fn announce_events(self: &Arc<Self>, stream: &ReplicaStream) {
        if stream.announce() {
            self.env.events.replica_events(self);
        }
    }
}

#[cfg(test)]
mod tests;
