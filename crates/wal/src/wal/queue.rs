//! The entries that are pending, and the waiters for them.

use std::path::PathBuf;
use std::time::Instant;

use crossbeam_channel::Sender;
use evenkeel_common::{HBaseError, Result};

use super::accounting::{HighestSeqIds, SequenceIdAccounting};
use super::{SyncLevel, Txid, closed};

/// The state under the queue's lock.
#[derive(Default)]
pub(super) struct Queue {
    /// Full segments of encoded entries that no commit has taken.
    full: Vec<Vec<u8>>,
    /// The sum of their capacities.
    full_bytes: usize,
    /// The segment to which entries are appended.
    last: Vec<u8>,
    /// Empty segments of earlier batches, which are filled next.
    spare: Vec<Vec<u8>>,
    /// Bytes of the segments that are being written.
    writing_bytes: usize,
    /// The maximum of the bytes of all segments.
    pub(super) bytes_peak: usize,
    pub(super) last_txid: u64,
    /// The last entry that a commit took.
    taken: u64,
    pub(super) appended_bytes: u64,
    /// All entries up to this one were flushed, except `failed_writes`.
    pub(super) flushed: u64,
    /// All entries up to this one were synced, except `failed_writes` and `failed_syncs`.
    pub(super) synced: u64,
    /// Entries that are certainly in no file.
    pub(super) failed_writes: FailedRanges,
    /// Entries in a file that could not be synced.
    pub(super) failed_syncs: FailedRanges,
    pub(super) waiters: Vec<Waiter>,
    /// The waiters for the batch being written: in the queue, so that the watchdog can fail them.
    pub(super) committing: Vec<Waiter>,
    /// Requests for a roll that the committing thread has not seen.
    pub(super) rolls: Vec<Sender<Result<()>>>,
    /// Requests for a roll that wait for the next file.
    pub(super) waiting_rolls: Vec<Sender<Result<()>>>,
    pub(super) accounting: SequenceIdAccounting,
    /// Closed files that may still be needed, oldest first.
    pub(super) closed: Vec<ClosedFile>,
    pub(super) state: State,
    /// No file could be written at the last attempt: no entry is acknowledged before it is written.
    pub(super) is_rejecting: bool,
    /// When that attempt was.
    pub(super) rejected_at: Option<Instant>,
    /// The WAL's thread ends when nothing is pending.
    pub(super) closing: bool,
    /// A roll of the current file may be due: the committing thread checks that.
    pub(super) roll_due: bool,
    /// The archiver has closed a rolled file, whose result is not handled yet.
    pub(super) has_closed_files: bool,
    /// Whether a thread commits.
    pub(super) writing: bool,
    /// Whether the pending bytes should be written although no thread waits.
    pub(super) commit_requested: bool,
    pub(super) thread_sleeps: bool,
    /// The number of appends that wait for free capacity.
    pub(super) blocked: usize,
}

#[derive(Default)]
pub(super) enum State {
    #[default]
    Open,
    /// Appends are rejected.
    Closing,
    /// Failed permanently, with the reason.
    Failed(HBaseError),
    /// Failed permanently: a sync does not return, and neither will the thread in it.
    Stuck(HBaseError),
}

/// A callback for when all entries up to a transaction id are durable at the requested level, or
/// can no longer become so.
pub trait OnSynced: Send + 'static {
    /// Runs once. It must be cheap and must not wait for the log.
    fn synced(self: Box<Self>, outcome: Result<()>);
}

impl<F: FnOnce(Result<()>) + Send + 'static> OnSynced for F {
    fn synced(self: Box<Self>, outcome: Result<()>) {
        self(outcome);
    }
}

/// A waiter for an entry.
pub(super) struct Waiter {
    pub(super) txid: Txid,
    pub(super) level: SyncLevel,
    pub(super) completion: AppendCompletion,
}

/// How a waiter is completed.
pub(super) enum AppendCompletion {
    Callback(Box<dyn OnSynced>),
    Thread(Sender<Result<()>>),
}

impl AppendCompletion {
    /// Completes the waiter. A panic of the callback does not affect the log.
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

/// A file that is no longer written.
#[derive(Debug)]
pub(super) struct ClosedFile {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) highest: HighestSeqIds,
}

/// The entries that one commit takes.
pub(super) struct Batch {
    /// Encoded entries. A segment holds whole entries.
    pub(super) segments: Vec<Vec<u8>>,
    /// The first and the last entry in `segments`; the first is greater than the last if there is
    /// none.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Whether any waiter exists.
    pub(super) is_awaited: bool,
    /// Whether any waiter requires a sync.
    pub(super) wants_sync: bool,
    /// Whether any waiter requires a flush only.
    pub(super) wants_flush: bool,
}

/// Bytes of a segment, unless one entry is longer.
const SEGMENT_BYTES: usize = 1 << 20;

/// The limit of the bytes of empty segments, and the largest buffer of compressed entries that is
/// kept.
pub(super) const SPARE_BYTES_MAX: usize = 4 << 20;

impl Queue {
    pub(super) fn check_open(&self) -> Result<()> {
        match &self.state {
            State::Open => Ok(()),
            State::Closing => Err(closed()),
            State::Failed(reason) | State::Stuck(reason) => Err(reason.clone()),
        }
    }

    /// The reason why the log has failed permanently, if it has.
    pub(super) fn failure(&self) -> Option<HBaseError> {
        match &self.state {
            State::Failed(reason) | State::Stuck(reason) => Some(reason.clone()),
            State::Open | State::Closing => None,
        }
    }

    /// Returns true if no entry is pending.
    pub(super) fn is_empty(&self) -> bool {
        self.full.is_empty() && self.last.is_empty()
    }

    /// Bytes that pending entries occupy, including the unused ends of full segments.
    pub(super) fn pending_bytes(&self) -> usize {
        self.full_bytes + self.last.len()
    }

    /// Returns true if an entry can be appended within `queue_bytes_max`.
    pub(super) fn has_capacity(&self, bytes: usize, queue_bytes_max: usize) -> bool {
        let last = if self.needs_segment(bytes) { self.last.capacity() } else { self.last.len() };
        self.full_bytes + last + bytes <= queue_bytes_max
    }

    fn needs_segment(&self, bytes: usize) -> bool {
        let needed = self.last.len() + bytes;
        needed > SEGMENT_BYTES.max(self.last.capacity()) && !self.last.is_empty()
    }

    /// Appends an encoded entry. Full segments stay where they are: apart from the entry, an append
    /// copies at most [`SEGMENT_BYTES`] under the queue's lock.
    pub(super) fn push(&mut self, entry: &[u8], queue_bytes_max: usize) {
        if self.last.len() + entry.len() > self.last.capacity() {
            self.reserve(entry.len(), queue_bytes_max);
            self.bytes_peak = self.bytes_peak.max(self.bytes());
        }
        self.last.extend_from_slice(entry);
    }

    /// Doubles the last segment, as a `Vec` would, up to [`SEGMENT_BYTES`], or begins another.
    #[cold]
    fn reserve(&mut self, bytes: usize, queue_bytes_max: usize) {
        if self.needs_segment(bytes) {
            let full = std::mem::replace(&mut self.last, self.spare.pop().unwrap_or_default());
            self.full_bytes += full.capacity();
            self.full.push(full);
        }
        let (needed, capacity) = (self.last.len() + bytes, self.last.capacity());
        if needed > capacity {
            // A segment after a full one will most likely be full, too.
            let wanted = if self.full.is_empty() { 2 * capacity } else { SEGMENT_BYTES };
            let free = queue_bytes_max.saturating_sub(self.full_bytes);
            let grown = needed.max(wanted.min(SEGMENT_BYTES).min(free));
            self.last.reserve_exact(grown - self.last.len());
        }
    }

    /// Bytes of all segments, including those being written.
    pub(super) fn bytes(&self) -> usize {
        self.full_bytes + self.last.capacity() + self.spare_bytes() + self.writing_bytes
    }

    fn spare_bytes(&self) -> usize {
        self.spare.iter().map(Vec::capacity).sum()
    }

    pub(super) fn next_txid(&mut self, bytes: usize) -> Txid {
        self.last_txid += 1;
        self.appended_bytes += bytes as u64;
        Txid(self.last_txid)
    }

    /// The result of syncing an entry; `None` if it is not known yet.
    pub(super) fn sync_result(&self, txid: Txid, level: SyncLevel) -> Option<Result<()>> {
        if level == SyncLevel::None {
            return Some(Ok(()));
        }
        if txid.0 > self.last_txid {
            return Some(Err(HBaseError::io(format!("{txid:?} does not belong to this WAL"))));
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

    /// Returns true if a thread waits for work of a commit.
    pub(super) fn has_work(&self) -> bool {
        !self.waiters.is_empty()
            || !self.rolls.is_empty()
            || self.roll_due
            || self.has_closed_files
            || (self.commit_requested && !self.is_empty())
    }

    /// Takes all requests for a roll.
    pub(super) fn take_rolls(&mut self) -> Vec<Sender<Result<()>>> {
        let mut rolls = std::mem::take(&mut self.rolls);
        rolls.append(&mut self.waiting_rolls);
        rolls
    }

    /// Requests a commit of the pending entries. Returns true if the WAL's thread must be woken for
    /// it.
    pub(super) fn wants_commit(&mut self) -> bool {
        self.commit_requested = true;
        self.thread_sleeps && !self.writing
    }

    /// Takes all pending entries. Frees empty segments that would exceed `queue_bytes_max` together
    /// with those being written.
    pub(super) fn take_batch(&mut self, queue_bytes_max: usize) -> Batch {
        let mut segments = std::mem::take(&mut self.full);
        if !self.last.is_empty() {
            segments.push(std::mem::replace(&mut self.last, self.spare.pop().unwrap_or_default()));
        }
        self.full_bytes = 0;
        self.writing_bytes = segments.iter().map(Vec::capacity).sum();
        while !self.spare.is_empty() && self.writing_bytes + self.spare_bytes() > queue_bytes_max {
            self.spare.pop();
        }
        let first = self.taken + 1;
        self.taken = self.last_txid;
        self.commit_requested = false;
        self.committing = std::mem::take(&mut self.waiters);
        let wants_sync = self.committing.iter().any(|waiter| waiter.level == SyncLevel::Sync);
        let wants_flush = self.committing.iter().any(|waiter| waiter.level != SyncLevel::Sync);
        let is_awaited = !self.committing.is_empty();
        Batch { segments, first, last: self.last_txid, is_awaited, wants_sync, wants_flush }
    }

    /// Takes the waiters of a level within the batch being written, in order, with their results.
    pub(super) fn take_committing(&mut self, level: SyncLevel) -> Vec<(Waiter, Result<()>)> {
        let (mut taken, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.committing).into_iter().partition(|waiter| waiter.level == level);
        self.committing = rest;
        taken.sort_by_key(|waiter| waiter.txid);
        taken.into_iter().map(|waiter| self.with_result(waiter)).collect()
    }

    /// Takes all waiters, in order, with their results.
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

    /// Keeps a batch's segments for the next ones. A segment that an entry has enlarged is freed.
    pub(super) fn recycle(&mut self, segments: Vec<Vec<u8>>, queue_bytes_max: usize) {
        self.writing_bytes = 0;
        for mut segment in segments {
            segment.clear();
            let bytes = self.spare_bytes() + segment.capacity();
            if segment.capacity() <= SEGMENT_BYTES && bytes <= SPARE_BYTES_MAX.min(queue_bytes_max) {
                self.spare.push(segment);
            }
        }
    }

    /// Takes the closed files that are no longer needed.
    pub(super) fn take_flushed(&mut self) -> Vec<PathBuf> {
        let accounting = &self.accounting;
        let (flushed, needed): (Vec<_>, Vec<_>) = std::mem::take(&mut self.closed)
            .into_iter()
            .partition(|file| accounting.all_flushed(&file.highest));
        self.closed = needed;
        flushed.into_iter().map(|file| file.path).collect()
    }
}

/// Ranges of transaction ids that failed, with the reason. The list is bounded: if it is full, the
/// two oldest ranges are joined. That fails a sync that arrives later than [`FAILED_RANGES_MAX`]
/// failures; it never lets one succeed wrongly.
#[derive(Default)]
pub(super) struct FailedRanges(Vec<(u64, u64, HBaseError)>);

const FAILED_RANGES_MAX: usize = 1024;

impl FailedRanges {
    /// Adds a range, which may be empty. Entries that had failed before keep their reason.
    #[cfg_attr(
        not(test),
        expect(clippy::indexing_slicing, reason = "the offsets are those of ranges in the list")
    )]
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
    fn an_append_copies_no_more_than_a_segment() {
        const MAX: usize = 32 << 20;
        const COPIED_MAX: usize = 1 << 20;
        let mut queue = Queue::default();
        for entry in [100, 70_000, 3 * COPIED_MAX, COPIED_MAX - 1].map(|bytes| vec![7_u8; bytes]) {
            let (mut pushed, mut copied_max) = (0, 0);
            while queue.has_capacity(entry.len(), MAX) {
                let (at, len, full) = (queue.last.as_ptr(), queue.last.len(), queue.full.len());
                queue.push(&entry, MAX);
                pushed += 1;
                if queue.last.as_ptr() != at && queue.full.len() == full {
                    copied_max = copied_max.max(len);
                }
                assert!(queue.bytes() <= MAX + SPARE_BYTES_MAX, "{} bytes", queue.bytes());
            }
            assert!(pushed * entry.len() >= MAX / 2, "{pushed} entries of {}", entry.len());
            assert!(copied_max <= COPIED_MAX, "{copied_max} bytes were copied");
            let batch = queue.take_batch(MAX);
            assert_eq!(batch.segments.concat().len(), pushed * entry.len());
            assert!(
                queue.is_empty() && batch.segments.iter().all(|segment| segment.len() % entry.len() == 0)
            );
            queue.recycle(batch.segments, MAX);
        }
        assert!(queue.bytes() <= SPARE_BYTES_MAX + SEGMENT_BYTES, "{} bytes are kept", queue.bytes());
    }

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
    fn a_sync_result_is_returned_once_known() {
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
