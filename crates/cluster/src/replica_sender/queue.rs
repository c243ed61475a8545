//! [`RegionQueue`]: what a default replica's events become for each of its secondary replicas
//! elsewhere, and the queues of entries for them. Without I/O and tasks.
//!
//! ```text
//!                opened elsewhere            flush of all began        its files are there
//! not located ------------------> waiting ------------------> filling -----------------> live
//!      ^                            ^  ^                         |                          |
//!      |  calls failed, or closed   |  '------- no space --------'--- no space, or doubts --|
//!      '----------------------------+-------------------------------------------------------'
//! ```
//! - **Live**: every edit is queued, and the markers of flushes.
//! - **Waiting**: edits are missing. None is queued until a flush of all stores begins.
//! - **Filling**: edits after the flush's sequence id are held. When the flush has ended, the files
//!   of all families are listed (REGION_OPEN), which have every edit up to that id. Then the held
//!   edits follow. So the secondary replica never shows an edit without an earlier one.
//!
//! While it is waiting or filling, it is told of new and replaced files, so that it does not read
//! files that are deleted. That needs a list of all files that it has got before, and all changes
//! since: else HBase could show a cell again whose delete marker was compacted. If changes are
//! missing, it is told nothing until the next list. The same holds after a compaction of files with
//! edits that it does not show yet: cells that it shows may not be in the new file.
//!
//! Without replication of edits (`REGION_MEMSTORE_REPLICATION` false) a secondary replica is live
//! at once, after a list of all files.
//!
//! **Order of a flush.** The event that it began may come before edits of it. Its marker, FLUSH
//! start, is queued before the first later edit, or before its end. FLUSH commit is queued only for
//! the flush whose start was queued last: for another one, HBase may drop the edits of all families
//! (`HRegion.replayWALFlushCommitMarker`). So a live replica waits if a flush ends whose start was
//! not queued, or if another one begins before the end: the first has failed.
//!
//! **Repeated calls.** Edits, replaced files and the list of all files may be sent twice. Steps of
//! a flush may not: after a call with such a step has failed, only replaced files before it are
//! sent again, and the replica waits. The list has calls of its own, because edits and files after
//! it would be taken away if it was repeated with them.
//!
//! **Memory.** An entry is charged once for the queue of each secondary replica, and once for the
//! copy that is in a socket's buffer during a call. A charge ends with the call, or when the entry
//! is dropped. See [`SendBudget`].

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::RegionLocation;
use evenkeel_common::{Budget, clock};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::flush_descriptor::FlushAction;
use evenkeel_region::region::{FileChange, FileChanges, Region, ReplicaEvent};
use evenkeel_regionserver::replica_sender::ReplicasElsewhere;
use evenkeel_wal::Txid;
use tokio::sync::Notify;

use super::budget::{Charges, SendBudget, charge};
use super::entries::{Entry, EntryKind, EntryMaker, ReplayCall};

/// The bytes of a call's entries, unless the first one has more.
const CALL_BYTES: u64 = 256 << 10;
/// Entries of a call.
const CALL_ENTRIES_MAX: usize = 1000;
/// Queued markers of replaced files for one replica.
const FILES_MAX: usize = 100;
/// How long a marker may wait, or be repeated. The files in it may be deleted after
/// `hbase.master.hfilecleaner.ttl`, which is five minutes.
pub(super) const MARKER_AGE_MAX: Duration = Duration::from_secs(120);

/// An entry in a queue.
struct Queued {
    entry: Arc<Entry>,
    since: Instant,
    _charges: Charges,
}

impl Queued {
    fn new(entry: &Arc<Entry>, charges: Charges) -> Self {
        Self { entry: Arc::clone(entry), since: clock::monotonic(), _charges: charges }
    }

    fn is(&self, kind: EntryKind) -> bool {
        self.entry.kind() == kind
    }
}

/// Entries that are being sent to a secondary replica.
pub(super) struct Batch {
    pub(super) to: RegionLocation,
    epoch: u64,
    entries: Vec<Queued>,
}

impl Batch {
    pub(super) fn call(&self) -> ReplayCall {
        ReplayCall::new(&self.to.region, self.entries.iter().map(|queued| &*queued.entry))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When the oldest of the entries that name files was queued.
    pub(super) fn oldest_marker(&self) -> Option<Instant> {
        let markers = self.entries.iter().filter(|queued| !queued.is(EntryKind::Edits));
        markers.map(|queued| queued.since).min()
    }
}

/// What a secondary replica's task does next.
#[derive(Default)]
pub(super) enum Next {
    Batch(Box<Batch>),
    /// The next edits are visible here, but not in the log yet, where this is their entry.
    Unlogged(Txid),
    #[default]
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    /// With the sequence id of the flush.
    Filling(u64),
    Live,
}

/// A secondary replica that is open on another server.
struct Located {
    at: RegionLocation,
    budgets: [Arc<Budget>; 3],
    phase: Phase,
    /// Entries to send, in order.
    entries: VecDeque<Queued>,
    /// Edits behind the flush, while filling.
    held: VecDeque<Queued>,
    /// The flush whose start was queued last, and not its end.
    started: Option<u64>,
    /// True if all files were listed, and every change since was queued.
    knows_files: bool,
    /// Families that have new files of flushes whose edits it may not show yet, while not live.
    hidden: HashSet<Bytes>,
    /// The files of the last complete list: flushes that ended before the list may be told after
    /// it.
    listed: HashSet<String>,
}

impl Located {
    fn new(at: RegionLocation, budget: &SendBudget) -> Self {
        let budgets = budget.of_replica(&at.server.host_port());
        let (entries, held, hidden, listed) = Default::default();
        let (phase, started, knows_files) = (Phase::Waiting, None, false);
        Self { at, budgets, phase, entries, held, started, knows_files, hidden, listed }
    }

    /// Takes the bytes of an entry.
    fn charge(&self, entry: &Entry) -> Option<Charges> {
        charge(&self.budgets, entry.bytes() * 2)
    }

    /// Queues an entry; if there is no space, drops edits and waits for a flush.
    fn push(&mut self, entry: &Arc<Entry>, is_held: bool) -> bool {
        let Some(charges) = self.charge(entry) else {
            tracing::info!(region = %self.at.region.name_text(), server = %self.at.server, "edits are not sent in time; the next flush of all families is waited for");
            self.interrupt();
            return false;
        };
        let queue = if is_held { &mut self.held } else { &mut self.entries };
        queue.push_back(Queued::new(entry, charges));
        true
    }

    /// Queues a marker of replaced files. If there is no space for it, drops edits; then all.
    fn push_files(&mut self, entry: &Arc<Entry>) {
        let queued = self.entries.iter().filter(|queued| queued.is(EntryKind::Files)).count();
        let mut push = || self.push(entry, false) || (self.knows_files && self.push(entry, false));
        if queued >= FILES_MAX || !push() {
            self.lose();
        }
    }

    /// Makes it wait for a flush: later edits are not queued. Those before may be sent.
    fn wait(&mut self) {
        self.held.clear();
        self.phase = Phase::Waiting;
    }

    /// Makes it wait for a flush, and drops what depends on edits.
    fn interrupt(&mut self) {
        self.wait();
        self.drop_steps();
    }

    /// Drops edits and steps of flushes. After a step that is dropped, later changes of files are
    /// too: they may replace files that it is not told of.
    fn drop_steps(&mut self) {
        if let Some(step) = self.entries.iter().position(|queued| queued.is(EntryKind::Flush)) {
            self.entries.truncate(step);
            self.knows_files = false;
        }
        self.entries.retain(|queued| !queued.is(EntryKind::Edits));
    }

    /// Makes it wait for a flush: changes of files may be missing, too.
    fn lose(&mut self) {
        self.wait();
        self.entries.clear();
        self.knows_files = false;
    }

    /// Queues a list of all files instead of what is queued. Every edit up to `through` is in them,
    /// or expired; `in_files` is the greatest sequence id in them. Later edits are held, or were
    /// not queued.
    fn complete(&mut self, (in_files, through): (u64, u64), list: FileList) {
        debug_assert!(in_files <= through, "{in_files} in files that have all up to {through}");
        let (Some(open), Some(shown)) = (self.charge(&list.open), self.charge(&list.shown)) else {
            return self.interrupt();
        };
        self.entries = [Queued::new(&list.open, open), Queued::new(&list.shown, shown)].into();
        self.held.retain(|queued| queued.entry.seq_id() > through);
        self.entries.append(&mut self.held);
        (self.phase, self.started, self.knows_files) = (Phase::Live, None, true);
        self.hidden.clear();
        self.listed = list.names;
    }

    /// Returns true if a list follows what is being sent.
    fn is_list_next(&self) -> bool {
        self.entries.front().is_some_and(|queued| queued.is(EntryKind::List))
    }

    /// Returns true if the next entry names files that may be deleted.
    fn is_late(&self, now: Instant) -> bool {
        self.entries.front().is_some_and(|queued| {
            !queued.is(EntryKind::Edits) && now.saturating_duration_since(queued.since) > MARKER_AGE_MAX
        })
    }
}

/// One secondary replica.
struct Replica {
    located: Option<Located>,
    /// The server and the sequence number of its last known opening.
    last: Option<RegionLocation>,
    /// True until a flush of all stores is requested, or begins, after an opening.
    is_first: bool,
    /// Changes with `located`.
    epoch: u64,
    /// Wakes the task that sends.
    work: Arc<Notify>,
}

impl Replica {
    fn new() -> Self {
        Self { located: None, last: None, is_first: false, epoch: 0, work: Arc::default() }
    }

    fn is_live(&self) -> bool {
        self.located.as_ref().is_some_and(|located| located.phase == Phase::Live)
    }

    fn push(&mut self, entry: &Arc<Entry>, is_held: bool) {
        if let Some(located) = &mut self.located {
            located.push(entry, is_held);
            self.work.notify_one();
        }
    }

    /// Queues the start of a flush if the replica is live.
    fn push_start(&mut self, seq_id: u64, entry: &Arc<Entry>) {
        if self.is_live() {
            self.push(entry, false);
            self.located.iter_mut().for_each(|located| located.started = Some(seq_id));
        }
    }

    /// Returns whether an edit is wanted, and if so, whether it is held.
    fn wants(&self, seq_id: u64) -> Option<bool> {
        match self.located.as_ref()?.phase {
            Phase::Waiting => None,
            Phase::Filling(from) => (seq_id > from).then_some(true),
            Phase::Live => Some(false),
        }
    }

    fn fill_from(&mut self, seq_id: u64) {
        if let Some(located) = &mut self.located {
            located.phase = Phase::Filling(seq_id);
            located.held.clear();
            self.is_first = false;
        }
    }

    /// Makes it wait if it is live, and not for the end of just this flush.
    fn wait_unless_started(&mut self, flush: Option<u64>) {
        if let Some(located) = &mut self.located
            && located.phase == Phase::Live
            && located.started != flush
        {
            located.wait();
        }
    }

    /// Edits are missing.
    fn wait_if_live(&mut self) {
        if self.is_live() {
            self.wait();
        }
    }

    fn lose(&mut self) {
        self.located.iter_mut().for_each(Located::lose);
    }

    /// A replica that is not live has new files of a family, and may not show their cells yet.
    fn hide_edits_of(&mut self, family: &Bytes) {
        if let Some(located) = self.located.as_mut().filter(|located| located.phase != Phase::Live) {
            located.hidden.insert(family.clone());
        }
    }

    /// Files of a family are replaced: the new ones may lack cells that the replica shows, because
    /// newer ones that it does not show yet replace or delete them.
    fn forget_files_if_hidden(&mut self, family: &Bytes) {
        let hides = |located: &&mut Located| located.hidden.contains(family);
        self.located.as_mut().filter(hides).into_iter().for_each(|located| located.knows_files = false);
    }

    /// Changes of files are missing, but no edits.
    fn miss_changes(&mut self) {
        if self.is_live() {
            self.lose();
        }
        self.located.iter_mut().for_each(|located| located.knows_files = false);
    }

    fn complete(&mut self, ids: (u64, u64), list: FileList) {
        if let Some(located) = &mut self.located {
            located.complete(ids, list);
        }
        self.work.notify_one();
    }

    fn wait(&mut self) {
        self.located.iter_mut().for_each(Located::wait);
    }

    /// Returns the new files of a flush without those that were listed, if any was.
    fn without_listed(&mut self, files: &[FlushedStore]) -> Option<Vec<FlushedStore>> {
        let listed = &mut self.located.as_mut()?.listed;
        let is_listed = files.iter().flat_map(|(_, names)| names).any(|name| listed.contains(name));
        let mut files = is_listed.then(|| files.to_vec())?;
        files.iter_mut().for_each(|(_, names)| names.retain(|name| !listed.remove(name)));
        Some(files)
    }

    fn locate(&mut self, found: Option<RegionLocation>, budget: &SendBudget) -> bool {
        if self.located.as_ref().map(|located| &located.at) == found.as_ref() {
            return false;
        }
        self.epoch += 1;
        self.located = found.map(|at| {
            self.is_first |= self.last.replace(at.clone()).is_none_or(|last| last != at);
            tracing::info!(region = %at.region.name_text(), server = %at.server, "edits are sent to a secondary replica after the next flush of all families");
            Located::new(at, budget)
        });
        self.work.notify_one();
        true
    }
}

/// A family, and its new files.
type FlushedStore = (Bytes, Vec<String>);

/// The markers of a complete list of files, and the names in it.
struct FileList {
    open: Arc<Entry>,
    shown: Arc<Entry>,
    names: HashSet<String>,
}

impl FileList {
    /// Makes it of an opening's files, which have every edit up to `seq_id` that a secondary
    /// replica needs.
    fn new(maker: &EntryMaker, seq_id: u64, files: pb::RegionEventDescriptor) -> Self {
        let names = files.stores.iter().flat_map(|store| store.store_file.iter().cloned()).collect();
        let open = pb::RegionEventDescriptor { log_sequence_number: Some(seq_id), ..files };
        Self { open: maker.open(open), shown: maker.shown(seq_id), names }
    }
}

/// What an event does not say about its region.
pub(super) trait RegionState {
    /// The greatest sequence id in files, or that of the opening.
    fn files_seq_id(&self) -> u64;

    /// The message of a REGION_OPEN marker with all files, without their sequence id.
    fn open_event(&self) -> pb::RegionEventDescriptor;

    /// Returns whether an entry is in the log; `None` if that is not known yet.
    fn is_logged(&self, entry: Txid) -> Option<bool>;
}

impl RegionState for Region {
    fn files_seq_id(&self) -> u64 {
        Region::files_seq_id(self)
    }

    fn open_event(&self) -> pb::RegionEventDescriptor {
        Region::open_event(self, 0)
    }

    fn is_logged(&self, entry: Txid) -> Option<bool> {
        Region::is_logged(self, entry)
    }
}

/// See the module's documentation.
pub(super) struct RegionQueue {
    maker: EntryMaker,
    takes_edits: bool,
    /// By replica id.
    replicas: Vec<(i32, Replica)>,
    /// The sequence id and the marker of a flush that began, while edits of it may come.
    starting: Option<(u64, Arc<Entry>)>,
    /// The greatest sequence id of an edit, or of files, in an event. Another server that opens the
    /// region after a crash uses greater ones. (The read point may be above it: edits that skip the
    /// log, and markers in it.)
    seen: u64,
}

impl RegionQueue {
    pub(super) fn new(maker: EntryMaker, takes_edits: bool) -> Self {
        Self { maker, takes_edits, replicas: Vec::new(), starting: None, seen: 0 }
    }

    /// Sets where the secondary replicas are. Returns the ids of those that are new here, and
    /// whether anything has changed.
    pub(super) fn locate(&mut self, found: &[RegionLocation], budget: &SendBudget) -> (Vec<i32>, bool) {
        let (mut new, mut is_changed) = (Vec::new(), false);
        for at in found {
            let id = at.region.replica_id();
            if !self.replicas.iter().any(|(known, _)| *known == id) {
                self.replicas.push((id, Replica::new()));
                new.push(id);
            }
        }
        for (id, replica) in &mut self.replicas {
            let at = found.iter().find(|at| at.region.replica_id() == *id);
            is_changed |= replica.locate(at.cloned(), budget);
        }
        (new, is_changed)
    }

    /// Forgets where a secondary replica is: calls to it have failed. `batch` is what was not sent.
    pub(super) fn fail(&mut self, batch: &Batch, budget: &SendBudget) {
        if let Some(replica) = self.replica(batch.to.region.replica_id())
            && replica.epoch == batch.epoch
        {
            replica.locate(None, budget);
        }
    }

    pub(super) fn work_of(&mut self, id: i32) -> Option<Arc<Notify>> {
        self.replica(id).map(|replica| Arc::clone(&replica.work))
    }

    /// Wakes the tasks of all.
    pub(super) fn wake_all(&mut self) {
        self.each(|replica| replica.work.notify_one());
    }

    fn replica(&mut self, id: i32) -> Option<&mut Replica> {
        self.replicas.iter_mut().find(|(known, _)| *known == id).map(|(_, replica)| replica)
    }

    fn each(&mut self, then: impl FnMut(&mut Replica)) {
        self.replicas.iter_mut().map(|(_, replica)| replica).for_each(then);
    }

    /// Returns how the replicas read the stream. Those that need no flush become live.
    pub(super) fn readers(&mut self, region: &impl RegionState) -> ReplicasElsewhere {
        if !self.takes_edits {
            self.list_files(region, |phase| phase == Phase::Waiting);
        }
        let located = || self.replicas.iter().filter(|(_, replica)| replica.located.is_some());
        let waits = |replica: &Replica| {
            replica.located.as_ref().is_some_and(|located| located.phase == Phase::Waiting)
        };
        // The flush that one is filled by may have failed.
        let is_behind = |replica: &Replica| !replica.is_live();
        ReplicasElsewhere {
            read: located().count() > 0,
            wait: located().any(|(_, replica)| is_behind(replica)),
            is_first: located().any(|(_, replica)| waits(replica) && replica.is_first),
        }
    }

    /// A flush of all stores was requested for the replicas.
    pub(super) fn flush_requested(&mut self) {
        self.each(|replica| replica.is_first = false);
    }

    /// Takes the next event of the stream.
    pub(super) fn take(&mut self, event: &ReplicaEvent, region: &impl RegionState) {
        self.seen = self.seen.max(seq_id_of(event));
        match event {
            ReplicaEvent::Edits { seq_id, unlogged, cells } => {
                if self.starting.as_ref().is_some_and(|(flush, _)| seq_id > flush) {
                    self.push_start();
                }
                let Self { maker, replicas, .. } = self;
                let mut entry = None;
                for (_, replica) in replicas {
                    if let Some(is_held) = replica.wants(*seq_id) {
                        let edits = || maker.edits(*seq_id, *unlogged, cells);
                        replica.push(entry.get_or_insert_with(edits), is_held);
                    }
                }
            }
            ReplicaEvent::Resumed(seq_id) => {
                self.starting = None;
                self.each(|replica| replica.fill_from(*seq_id));
            }
            ReplicaEvent::FlushStarted { seq_id, families, is_of_all } => {
                self.start_flush(*seq_id, families, *is_of_all);
            }
            ReplicaEvent::Flushed { through, changes, follows_gap } => {
                if *follows_gap {
                    self.each(Replica::wait_if_live);
                }
                self.change_files(*through, changes, region);
            }
        }
    }

    /// Queues the marker of a flush that began.
    fn push_start(&mut self) {
        if let Some((seq_id, entry)) = self.starting.take() {
            self.each(|replica| replica.push_start(seq_id, &entry));
        }
    }

    fn start_flush(&mut self, seq_id: u64, families: &[Bytes], is_of_all: bool) {
        // One before whose start was queued has failed. No replica knows of another one.
        self.each(|replica| replica.wait_unless_started(None));
        let started = families.iter().map(|family| (family.clone(), Vec::new()));
        if families.is_empty() {
            let entry = self.maker.flush(FlushAction::CannotFlush, seq_id, started);
            self.starting = None;
            for (_, replica) in self.replicas.iter_mut().filter(|(_, replica)| replica.is_live()) {
                replica.push(&entry, false);
            }
        } else {
            self.starting = Some((seq_id, self.maker.flush(FlushAction::StartFlush, seq_id, started)));
        }
        if is_of_all && self.takes_edits {
            self.each(|replica| {
                if !replica.is_live() {
                    replica.fill_from(seq_id);
                }
            });
        }
    }

    fn change_files(&mut self, through: u64, changes: &FileChanges, region: &impl RegionState) {
        match changes {
            FileChanges::Known(changes) => changes.iter().for_each(|change| self.change(change)),
            FileChanges::Unknown if self.takes_edits => self.each(Replica::miss_changes),
            FileChanges::Unknown => self.list_files(region, |_| true),
        }
        self.list_files_of_filling(through, region);
    }

    fn change(&mut self, change: &FileChange) {
        match change {
            FileChange::Replaced { family, inputs, outputs } => {
                self.each(|replica| replica.forget_files_if_hidden(family));
                self.tell_files((family, inputs, outputs), |_| true);
            }
            FileChange::Loaded { seq_id, files } => self.load_files(*seq_id, files),
            FileChange::Flushed { seq_id, files } => {
                if self.starting.as_ref().is_some_and(|(flush, _)| flush == seq_id) {
                    self.push_start();
                }
                self.end_flush(*seq_id, files);
            }
        }
    }

    /// Tells live replicas of the end of a flush, and others of its files.
    fn end_flush(&mut self, seq_id: u64, files: &[FlushedStore]) {
        self.each(|replica| replica.wait_unless_started(Some(seq_id)));
        for (family, names) in files {
            self.tell_files((family, &[], names), |replica| !replica.is_live());
            self.each(|replica| replica.hide_edits_of(family));
        }
        let Self { maker, replicas, .. } = self;
        let commit =
            |files: Vec<FlushedStore>| maker.flush(FlushAction::CommitFlush, seq_id, files.into_iter());
        let mut entry = None;
        for (_, replica) in replicas.iter_mut().filter(|(_, replica)| replica.is_live()) {
            match replica.without_listed(files) {
                Some(others) => replica.push(&commit(others), false),
                None => replica.push(entry.get_or_insert_with(|| commit(files.to_vec())), false),
            }
            replica.located.iter_mut().for_each(|located| located.started = None);
        }
    }

    /// Tells replicas of loaded files. Live ones show them.
    fn load_files(&mut self, seq_id: u64, files: &[FlushedStore]) {
        for (family, names) in files {
            self.tell_files((family, &[], names), |_| true);
            self.each(|replica| replica.hide_edits_of(family));
        }
        if seq_id == 0 {
            return;
        }
        let shown = self.maker.loaded(seq_id);
        for (_, replica) in self.replicas.iter_mut().filter(|(_, replica)| replica.is_live()) {
            if let Some(located) = &mut replica.located {
                located.push_files(&shown);
                replica.work.notify_one();
            }
        }
    }

    /// Tells replicas of replaced files of a family.
    fn tell_files(
        &mut self,
        (family, inputs, outputs): (&Bytes, &[String], &[String]),
        is_due: impl Fn(&Replica) -> bool,
    ) {
        if inputs.is_empty() && outputs.is_empty() {
            return;
        }
        // HBase ignores a marker with a smaller sequence id than that of one before.
        let entry = self.maker.files(self.seen, family, inputs, outputs);
        for (_, replica) in self.replicas.iter_mut().filter(|(_, replica)| is_due(replica)) {
            if let Some(located) = replica.located.as_mut().filter(|located| located.knows_files) {
                located.push_files(&entry);
                replica.work.notify_one();
            }
        }
    }

    /// Completes the replicas whose gap is in files now.
    fn list_files_of_filling(&mut self, through: u64, region: &impl RegionState) {
        let Self { maker, replicas, .. } = self;
        for (_, replica) in replicas {
            let Some(Phase::Filling(from)) = replica.located.as_ref().map(|located| located.phase) else {
                continue;
            };
            if through < from {
                continue;
            }
            let files = region.open_event();
            // After the list. An id that is in no file would be used again after a crash.
            let seq_id = region.files_seq_id();
            if seq_id <= through {
                replica.complete((seq_id, through), FileList::new(maker, seq_id, files));
            } else {
                // Cells of newer files would be hidden, and so would be what they replace in files
                // of compactions. The next flush of all stores has them.
                replica.wait();
            }
        }
    }

    /// Lists all files for replicas without replicated edits.
    fn list_files(&mut self, region: &impl RegionState, is_due: impl Fn(Phase) -> bool) {
        let Self { maker, replicas, seen, .. } = self;
        for (_, replica) in replicas {
            if replica.located.as_ref().is_some_and(|located| is_due(located.phase)) {
                let files = region.open_event();
                // After the list, so that no cell of its files is hidden.
                *seen = (*seen).max(region.files_seq_id());
                replica.complete((*seen, *seen), FileList::new(maker, *seen, files));
            }
        }
    }

    /// Events may be missing.
    pub(super) fn lose(&mut self) {
        self.starting = None;
        self.each(Replica::lose);
    }

    /// Takes the next entries for a secondary replica.
    pub(super) fn next(&mut self, id: i32, now: Instant, region: &impl RegionState) -> Next {
        let Some(replica) = self.replica(id) else { return Next::Nothing };
        let epoch = replica.epoch;
        let Some(located) = &mut replica.located else { return Next::Nothing };
        let (mut entries, mut bytes) = (Vec::<Queued>::new(), 0);
        if located.is_late(now) {
            located.lose();
        }
        let has_list = located.is_list_next();
        while !located.is_late(now)
            && let Some(front) = located.entries.front()
            && front.is(EntryKind::List) == has_list
            && (entries.is_empty() || bytes + front.entry.bytes() <= CALL_BYTES)
            && entries.len() < CALL_ENTRIES_MAX
        {
            let unlogged = front.entry.unlogged();
            match unlogged.map(|entry| (entry, region.is_logged(entry))) {
                Some((entry, None)) if entries.is_empty() => return Next::Unlogged(entry),
                Some((_, None)) => break,
                // The log has lost it, but readers here have seen it.
                Some((_, Some(false))) => {
                    located.interrupt();
                    if entries.is_empty() {
                        return self.next(id, now, region);
                    }
                    break;
                }
                Some((_, Some(true))) | None => {}
            }
            bytes += front.entry.bytes();
            entries.extend(located.entries.pop_front());
        }
        match entries.is_empty() {
            true => Next::Nothing,
            false => Next::Batch(Box::new(Batch { to: located.at.clone(), epoch, entries })),
        }
    }

    /// Takes what may not be sent again out of a batch that may have been replayed.
    pub(super) fn prepare_repetition(&mut self, batch: &mut Batch) {
        let Some(step) = batch.entries.iter().position(|queued| queued.is(EntryKind::Flush)) else {
            return;
        };
        batch.entries.truncate(step);
        batch.entries.retain(|queued| queued.is(EntryKind::Files));
        // A list that follows has what was sent before. So has one that a flush is waited for.
        if let Some(replica) = self.replica(batch.to.region.replica_id())
            && replica.epoch == batch.epoch
            && let Some(located) = replica.located.as_mut().filter(|located| !located.is_list_next())
        {
            // What follows the step is dropped with it.
            located.entries.clear();
            located.knows_files = false;
            if located.phase == Phase::Live {
                located.wait();
            }
        }
    }

    /// Returns true if a batch that was taken may still be sent: it is for the same opening.
    pub(super) fn is_current(&mut self, batch: &Batch) -> bool {
        let epoch = self.replica(batch.to.region.replica_id()).map(|replica| replica.epoch);
        epoch == Some(batch.epoch)
    }
}

/// The greatest sequence id of an event.
fn seq_id_of(event: &ReplicaEvent) -> u64 {
    match event {
        ReplicaEvent::Edits { seq_id, .. } => *seq_id,
        // After a crash before the flush ends, an edit may have its sequence id.
        ReplicaEvent::FlushStarted { .. } | ReplicaEvent::Resumed(_) => 0,
        ReplicaEvent::Flushed { through, changes: FileChanges::Unknown, .. } => *through,
        ReplicaEvent::Flushed { through, changes: FileChanges::Known(changes), .. } => {
            let of_flush = |change: &FileChange| match change {
                FileChange::Flushed { seq_id, .. } | FileChange::Loaded { seq_id, .. } => *seq_id,
                FileChange::Replaced { .. } => 0,
            };
            changes.iter().map(of_flush).fold(*through, u64::max)
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
