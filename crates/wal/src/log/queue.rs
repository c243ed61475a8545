//! What waits to be written, and who waits for it.

use std::path::PathBuf;

use crossbeam_channel::Sender;
use evenkeel_common::{HBaseError, Result};

use super::accounting::{HighestSeqIds, SequenceIdAccounting};
use super::{SyncLevel, Txid, closed};

/// Everything under the queue's lock.
#[derive(Default)]
pub(super) struct Queue {
    /// Entries encoded and not taken by a commit.
    pub(super) pending: Vec<u8>,
    /// The emptied buffer of the last batch, to be filled next.
    pub(super) spare: Vec<u8>,
    /// Bytes of the buffer that is being written.
    writing_bytes: usize,
    /// The most that these three had.
    pub(super) bytes_peak: usize,
    pub(super) last_txid: u64,
    /// The last entry that a commit took.
    taken: u64,
    pub(super) appended_bytes: u64,
    /// Everything up to here was flushed, but for `failed_writes`.
    pub(super) flushed: u64,
    /// Everything up to here was synced, but for `failed_writes` and `failed_syncs`.
    pub(super) synced: u64,
    /// Entries that are in no file for sure.
    pub(super) failed_writes: FailedRanges,
    /// Entries that are in a file which could not be synced.
    pub(super) failed_syncs: FailedRanges,
    pub(super) waiters: Vec<Waiter>,
    /// Those who wait for what is being written: here, so that they can be told when that takes too long.
    pub(super) committing: Vec<Waiter>,
    pub(super) rolls: Vec<Sender<Result<()>>>,
    pub(super) accounting: SequenceIdAccounting,
    /// Closed files that may still be needed, oldest first.
    pub(super) closed: Vec<ClosedFile>,
    pub(super) state: State,
    /// No file could be written when this was last tried: nothing is taken on trust until one can.
    pub(super) is_rejecting: bool,
    /// The WAL's thread ends once nothing is pending.
    pub(super) closing: bool,
    /// The current file is due to be followed by another.
    pub(super) roll_due: bool,
    /// The archiver is done with a file that was rolled: somebody should look how it ended.
    pub(super) has_closed_files: bool,
    /// Whether someone commits.
    pub(super) writing: bool,
    /// Whether the pending bytes should be written though nobody waits.
    pub(super) commit_requested: bool,
    pub(super) thread_sleeps: bool,
    /// How many appends wait for room.
    pub(super) blocked: usize,
}

#[derive(Default)]
pub(super) enum State {
    #[default]
    Open,
    /// No more appends.
    Closing,
    /// For good, with the reason.
    Failed(HBaseError),
    /// For good: a sync does not come to its end, and the thread that waits for it will not.
    Stuck(HBaseError),
}

/// What is told when everything up to a transaction id is as durable as was asked, or cannot be any more.
pub trait OnSynced: Send + 'static {
    /// Runs once. It must be short, and must not wait for the log.
    fn synced(self: Box<Self>, outcome: Result<()>);
}

impl<F: FnOnce(Result<()>) + Send + 'static> OnSynced for F {
    fn synced(self: Box<Self>, outcome: Result<()>) {
        self(outcome);
    }
}

/// Someone who waits for an entry.
pub(super) struct Waiter {
    pub(super) txid: Txid,
    pub(super) level: SyncLevel,
    pub(super) completion: Completion,
}

/// How to tell one who waits.
pub(super) enum Completion {
    Callback(Box<dyn OnSynced>),
    Thread(Sender<Result<()>>),
}

impl Completion {
    /// Tells it. A callback that panics does not take the log with it.
    pub(super) fn complete(self, result: Result<()>) {
        match self {
            Self::Thread(sender) => drop(sender.send(result)),
            Self::Callback(done) => {
                let run = std::panic::AssertUnwindSafe(move || done.synced(result));
                if std::panic::catch_unwind(run).is_err() {
                    tracing::error!("a WAL callback panicked");
                }
            }
        }
    }
}

/// A file that is not written any more.
#[derive(Debug)]
pub(super) struct ClosedFile {
    pub(super) path: PathBuf,
    pub(super) highest: HighestSeqIds,
}

/// What one commit takes.
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// The first and the last entry in `bytes`; the first is past the last when there is none.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Whether anyone waits.
    pub(super) is_awaited: bool,
    /// Whether anyone asks for a sync.
    pub(super) wants_sync: bool,
}

/// Buffers that grew larger than this are given back once they are empty.
pub(super) const SPARE_BYTES_MAX: usize = 4 << 20;

impl Queue {
    pub(super) fn check_open(&self) -> Result<()> {
        match &self.state {
            State::Open => Ok(()),
            State::Closing => Err(closed()),
            State::Failed(reason) | State::Stuck(reason) => Err(reason.clone()),
        }
    }

    /// Why the log has failed for good, if it has.
    pub(super) fn failure(&self) -> Option<HBaseError> {
        match &self.state {
            State::Failed(reason) | State::Stuck(reason) => Some(reason.clone()),
            State::Open | State::Closing => None,
        }
    }

    /// Makes room for an entry. The buffer doubles, as a `Vec` would, but not beyond what may wait in it.
    pub(super) fn reserve(&mut self, bytes: usize, queue_bytes_max: usize) {
        let (needed, capacity) = (self.pending.len() + bytes, self.pending.capacity());
        if needed <= capacity {
            return;
        }
        let grown = needed.max((2 * capacity).min(queue_bytes_max));
        self.pending.reserve_exact(grown - self.pending.len());
        self.bytes_peak = self.bytes_peak.max(self.bytes());
    }

    /// Bytes of memory that the buffers take, the one that is being written among them.
    pub(super) fn bytes(&self) -> usize {
        self.pending.capacity() + self.spare.capacity() + self.writing_bytes
    }

    pub(super) fn next_txid(&mut self, bytes: usize) -> Txid {
        self.last_txid += 1;
        self.appended_bytes += bytes as u64;
        Txid(self.last_txid)
    }

    /// What is known of an entry's durability; `None` when it is still to come.
    pub(super) fn sync_result(&self, txid: Txid, level: SyncLevel) -> Option<Result<()>> {
        if level == SyncLevel::None {
            return Some(Ok(()));
        }
        if txid.0 > self.last_txid {
            return Some(Err(HBaseError::io(format!("{txid:?} is not of this WAL"))));
        }
        if let Some(error) = self.failed_writes.find(txid.0) {
            return Some(Err(error));
        }
        let mark = if level == SyncLevel::Sync {
            if let Some(error) = self.failed_syncs.find(txid.0) {
                return Some(Err(error));
            }
            self.synced
        } else {
            self.flushed
        };
        match &self.state {
            _ if txid.0 <= mark => Some(Ok(())),
            State::Failed(reason) | State::Stuck(reason) => Some(Err(reason.clone())),
            _ => None,
        }
    }

    /// Whether there is something that someone waits for.
    pub(super) fn has_work(&self) -> bool {
        !self.waiters.is_empty()
            || !self.rolls.is_empty()
            || self.roll_due
            || self.has_closed_files
            || (self.commit_requested && !self.pending.is_empty())
    }

    /// Asks for a commit of what is pending; whether the WAL's thread must be woken for it.
    pub(super) fn wants_commit(&mut self) -> bool {
        self.commit_requested = true;
        self.thread_sleeps && !self.writing
    }

    /// Takes everything there is.
    pub(super) fn take_batch(&mut self) -> Batch {
        let bytes = std::mem::replace(&mut self.pending, std::mem::take(&mut self.spare));
        self.writing_bytes = bytes.capacity();
        let first = self.taken + 1;
        self.taken = self.last_txid;
        self.commit_requested = false;
        self.committing = std::mem::take(&mut self.waiters);
        let wants_sync = self.committing.iter().any(|waiter| waiter.level == SyncLevel::Sync);
        Batch { bytes, first, last: self.last_txid, is_awaited: !self.committing.is_empty(), wants_sync }
    }

    /// Takes those out who wait for this level of what is being written, in order, with what is to be told.
    pub(super) fn take_committing(&mut self, level: SyncLevel) -> Vec<(Waiter, Result<()>)> {
        let (mut taken, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.committing).into_iter().partition(|waiter| waiter.level == level);
        self.committing = rest;
        taken.sort_by_key(|waiter| waiter.txid);
        taken.into_iter().map(|waiter| self.with_result(waiter)).collect()
    }

    /// Takes out everyone who waits, in order, with what is to be told.
    pub(super) fn take_all_waiters(&mut self) -> Vec<(Waiter, Result<()>)> {
        let mut taken = std::mem::take(&mut self.committing);
        taken.append(&mut self.waiters);
        taken.sort_by_key(|waiter| waiter.txid);
        taken.into_iter().map(|waiter| self.with_result(waiter)).collect()
    }

    fn with_result(&self, waiter: Waiter) -> (Waiter, Result<()>) {
        let verdict = self.sync_result(waiter.txid, waiter.level).unwrap_or_else(|| Err(closed()));
        (waiter, verdict)
    }

    /// Gives a batch's buffer back. One that an entry beyond `queue_bytes_max` has made larger than a buffer may be is freed.
    pub(super) fn recycle(&mut self, mut bytes: Vec<u8>, queue_bytes_max: usize) {
        self.writing_bytes = 0;
        bytes.clear();
        let kept_bytes_max = SPARE_BYTES_MAX.min(queue_bytes_max);
        if bytes.capacity() <= kept_bytes_max && bytes.capacity() > self.spare.capacity() {
            self.spare = bytes;
        }
    }

    /// Takes out the closed files that nobody needs.
    pub(super) fn take_flushed(&mut self) -> Vec<PathBuf> {
        let accounting = &self.accounting;
        let (flushed, needed): (Vec<_>, Vec<_>) = std::mem::take(&mut self.closed)
            .into_iter()
            .partition(|file| accounting.all_flushed(&file.highest));
        self.closed = needed;
        flushed.into_iter().map(|file| file.path).collect()
    }
}

/// Ranges of transaction ids that failed, with the reason. Bounded: when there are too many, the two oldest become one,
/// which fails a sync that comes later than some [`FAILED_RANGES_MAX`] failures; it never lets one pass.
#[derive(Default)]
pub(super) struct FailedRanges(Vec<(u64, u64, HBaseError)>);

const FAILED_RANGES_MAX: usize = 1024;

impl FailedRanges {
    /// Adds a range; an empty one is nothing. What has failed before keeps its reason.
    pub(super) fn add(&mut self, first: u64, last: u64, error: &HBaseError) {
        let mut first = first;
        while first <= last {
            let at = self.0.partition_point(|(_, end, _)| *end < first);
            let end = match self.0.get(at) {
                Some((begin, end, _)) if *begin <= first => {
                    first = *end + 1;
                    continue;
                }
                Some((begin, ..)) => last.min(*begin - 1),
                None => last,
            };
            match at.checked_sub(1).map(|before| &mut self.0[before]) {
                Some((_, known_to, known)) if *known_to + 1 == first && known == error => *known_to = end,
                _ => self.0.insert(at, (first, end, error.clone())),
            }
            first = end + 1;
        }
        while self.0.len() > FAILED_RANGES_MAX {
            let (first, _, _) = self.0.remove(0);
            self.0[0].0 = first;
        }
    }

    pub(super) fn find(&self, txid: u64) -> Option<HBaseError> {
        let at = self.0.partition_point(|(_, last, _)| *last < txid);
        self.0.get(at).filter(|(first, _, _)| *first <= txid).map(|(_, _, error)| error.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_ranges_are_found_and_bounded() {
        let mut ranges = FailedRanges::default();
        ranges.add(5, 4, &closed());
        assert_eq!(ranges.find(4), None);
        for i in 0..3000 {
            ranges.add(10 * i + 1, 10 * i + 3, &HBaseError::io(i.to_string()));
        }
        assert_eq!(ranges.0.len(), FAILED_RANGES_MAX);
        assert_eq!(ranges.find(29_992).expect("failed").message(), "2999");
        assert_eq!(ranges.find(29_994), None);
        assert_eq!(ranges.find(29_990), None);
        assert!((1..=3).all(|txid| ranges.find(txid).is_some()), "the oldest are not forgotten");
        assert!(ranges.find(5).is_some(), "but blurred");
    }

    #[test]
    fn equal_neighbours_are_one_range() {
        let mut ranges = FailedRanges::default();
        ranges.add(1, 3, &closed());
        ranges.add(4, 4, &closed());
        assert_eq!(ranges.0.len(), 1);
        assert!(ranges.find(4).is_some() && ranges.find(5).is_none());
    }

    #[test]
    fn ranges_may_come_in_any_order_and_overlap() {
        let mut ranges = FailedRanges::default();
        ranges.add(11, 20, &HBaseError::io("b"));
        ranges.add(1, 15, &HBaseError::io("a"));
        ranges.add(5, 30, &HBaseError::io("c"));
        let reason = |txid| ranges.find(txid).map(|error| error.message().to_owned());
        let expected = |txid: u64| match txid {
            1..=10 => Some("a"),
            11..=20 => Some("b"),
            21..=30 => Some("c"),
            _ => None,
        };
        (0..=31).for_each(|txid| assert_eq!(reason(txid).as_deref(), expected(txid), "{txid}"));
    }

    #[test]
    fn a_verdict_is_given_once_it_is_known() {
        let mut queue = Queue { last_txid: 9, flushed: 8, synced: 3, ..Queue::default() };
        queue.failed_writes.add(5, 5, &closed());
        queue.failed_syncs.add(2, 2, &closed());
        let verdict = |txid, level| queue.sync_result(Txid(txid), level).map(|v| v.is_ok());
        assert_eq!(verdict(8, SyncLevel::Flush), Some(true));
        assert_eq!(verdict(9, SyncLevel::Flush), None);
        assert_eq!(verdict(9, SyncLevel::None), Some(true));
        assert_eq!(verdict(10, SyncLevel::Flush), Some(false));
        assert_eq!(verdict(5, SyncLevel::Flush), Some(false));
        assert_eq!((verdict(3, SyncLevel::Sync), verdict(4, SyncLevel::Sync)), (Some(true), None));
        assert_eq!((verdict(2, SyncLevel::Sync), verdict(2, SyncLevel::Flush)), (Some(false), Some(true)));
    }
}
