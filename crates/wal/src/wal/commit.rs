//! Commits: take the queue, write it, complete the waiters; and rolls.

use evenkeel_common::length;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::bounded;
use evenkeel_common::{HBaseError, Result, clock};
use evenkeel_metrics::activity::{self, ActivityKind};
use parking_lot::{Mutex, MutexGuard};
use std::thread::JoinHandle;

use super::output::{ClosingFile, OpenFile, Output};
use super::queue::{AppendCompletion, Batch, ClosedFile, Queue, State, Waiter};
use super::{CHECK_PERIOD, RollReason, Shared, SyncLevel, Txid, closed, count};

/// Fails the log when it is dropped, which happens only if a commit panics: otherwise it is
/// forgotten. It is created before the output is locked, so that the output is unlocked first.
struct FailLogOnPanic<'a>(&'a Shared);

impl Drop for FailLogOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fail_now("a commit of the WAL panicked");
    }
}

impl Shared {
    /// The body of the WAL's thread.
    pub(super) fn run(&self) {
        let mut queue = self.queue.lock();
        loop {
            self.wait_for_work(&mut queue);
            let ends = queue.closing && queue.is_empty() && !queue.has_work();
            if ends {
                return;
            }
            queue.writing = true;
            drop(queue);
            self.commit_all();
            queue = self.queue.lock();
            queue.writing = false;
        }
    }

    /// Sleeps until there is work and no other thread commits.
    fn wait_for_work(&self, queue: &mut MutexGuard<'_, Queue>) {
        while queue.writing || !(queue.has_work() || queue.closing) {
            queue.thread_sleeps = true;
            let ticked = self.work.wait_for(queue, CHECK_PERIOD).timed_out();
            queue.thread_sleeps = false;
            if ticked && !queue.writing {
                queue.commit_requested |= !queue.is_empty();
                // No thread commits, so the output is free.
                if let Some(output) = self.output.try_lock() {
                    let is_due = || {
                        output.is_roll_period_over(&self.config) || output.roll_due(&self.config).is_some()
                    };
                    queue.roll_due |=
                        !queue.waiting_rolls.is_empty() || self.archiver.can_close_another() && is_due();
                    queue.has_closed_files = output.has_closed_file();
                }
            }
        }
    }

    /// Commits until no thread waits, and rolls if that is due.
    fn commit_all(&self) {
        let fail_on_panic = FailLogOnPanic(self);
        let mut output = self.output.lock();
        loop {
            self.commit(&mut output, None);
            self.reap_closed(&mut output);
            self.roll_if_due(&mut output);
            let mut queue = self.queue.lock();
            queue.has_closed_files = false;
            let ending = queue.closing && !queue.is_empty();
            if !queue.has_work() && !ending {
                drop(queue);
                return std::mem::forget(fail_on_panic);
            }
        }
    }

    pub(super) fn sync(&self, txid: Txid, level: SyncLevel) -> Result<()> {
        let mut queue = self.queue.lock();
        let level = self.effective(&queue, level);
        if let Some(verdict) = queue.sync_result(txid, level) {
            if level == SyncLevel::None && queue.flushed < txid.0 {
                self.request_commit(&mut queue);
            }
            return verdict;
        }
        if self.config.inline_sync && !queue.writing {
            return self.sync_inline(queue, txid, level);
        }
        let (result_sender, result) = bounded(1);
        queue.waiters.push(Waiter { txid, level, completion: AppendCompletion::Thread(result_sender) });
        self.request_commit(&mut queue);
        drop(queue);
        result.recv().unwrap_or_else(|_| Err(closed()))
    }

    pub(super) fn try_sync(&self, txid: Txid, level: SyncLevel) -> Option<Result<()>> {
        let queue = self.queue.lock();
        let level = self.effective(&queue, level);
        match queue.sync_result(txid, level) {
            Some(verdict) => Some(verdict),
            None if queue.writing => None,
            None => Some(self.sync_inline(queue, txid, level)),
        }
    }

    /// Commits once on this thread. Waiters that arrive meanwhile are left to the WAL's thread.
    fn sync_inline(&self, mut queue: MutexGuard<'_, Queue>, txid: Txid, level: SyncLevel) -> Result<()> {
        queue.writing = true;
        drop(queue);
        count(&self.counters.inline_commits);
        let fail_on_panic = FailLogOnPanic(self);
        let mut output = self.output.lock();
        self.commit(&mut output, Some(level));
        let roll_due = self.roll_reason(&output).is_some();
        drop(output);
        std::mem::forget(fail_on_panic);
        let mut queue = self.queue.lock();
        queue.writing = false;
        queue.roll_due |= roll_due;
        if queue.thread_sleeps && (queue.has_work() || queue.closing) {
            self.work.notify_one();
        }
        queue.sync_result(txid, level).unwrap_or_else(|| Err(closed()))
    }

    /// Takes the pending entries, makes them durable at the highest level that a waiter requires,
    /// and completes the waiters.
    fn commit(&self, output: &mut Output, own_level: Option<SyncLevel>) {
        let mut queue = self.queue.lock();
        let batch = queue.take_batch(self.config.queue_bytes_max);
        let (failed, blocked) = (queue.failure().is_some(), queue.blocked > 0);
        drop(queue);
        if blocked {
            self.capacity_freed.notify_all();
        }
        let wanted = !batch.segments.is_empty() || batch.is_awaited || own_level.is_some();
        if wanted && !failed {
            count(&self.counters.commits);
            self.watchdog.begin(output.path());
            let wants_sync = own_level == Some(SyncLevel::Sync) || batch.wants_sync;
            let flushed = self.flush_batch(output, &batch);
            if flushed {
                self.metrics.written((batch.last + 1).saturating_sub(batch.first), output.elapsed());
            }
            // Before the waiters complete: their requests are then entered in the ledger, with this
            // slow sync.
            self.note_if_slow(output);
            self.complete_waiters(&batch, SyncLevel::Flush);
            if wants_sync && flushed {
                self.sync_batch(output, &batch);
                self.note_if_slow(output);
            }
            self.watchdog.end();
        }
        self.complete_waiters(&batch, SyncLevel::Flush);
        self.complete_waiters(&batch, SyncLevel::Sync);
        self.queue.lock().recycle(batch.segments, self.config.queue_bytes_max);
        if let Some((took, is_slow)) = output.committed(&self.config) {
            self.metrics.synced(took);
            if is_slow {
                count(&self.counters.slow_syncs);
                tracing::info!(ms = length::whole_ms(took), path = %output.path().display(), "slow sync");
            }
        }
        output.create_next_if_due(&self.config, &self.archiver);
    }

    /// Notes the writes and syncs of the commit in progress if they have taken long.
    fn note_if_slow(&self, output: &Output) {
        let took = output.elapsed();
        if took > self.config.slow_sync {
            let now = clock::monotonic();
            let began_at = now.checked_sub(took).unwrap_or(now);
            activity::note(ActivityKind::SlowSync, output.path().display().to_string(), began_at);
        }
    }

    /// Completes the waiters of a level within the batch being written.
    fn complete_waiters(&self, batch: &Batch, level: SyncLevel) {
        if !batch.is_awaited {
            return;
        }
        let waiters = self.queue.lock().take_committing(level);
        waiters.into_iter().for_each(|(waiter, verdict)| waiter.completion.complete(verdict));
    }

    /// Writes and flushes a batch, to a new file if the current one fails. Returns true on success.
    ///
    /// On HDFS a flush and the sync after it are two round trips, and one packet can do both, so a
    /// batch is also synced if no waiter requires less.
    fn flush_batch(&self, output: &mut Output, batch: &Batch) -> bool {
        let is_synced = self.is_remote && batch.wants_sync && !batch.wants_flush;
        let written = match &mut output.current {
            Some(current) if is_synced => current.write_synced(&batch.segments),
            Some(current) => current.write(&batch.segments),
            None if batch.segments.is_empty() => Ok(()),
            None => Err(io::Error::new(io::ErrorKind::StorageFull, "no WAL file is open")),
        };
        let written = written.or_else(|error| {
            self.abandon_file(output, batch, &error)
                .into_iter()
                .for_each(|failed| output.truncate_failed(failed));
            self.write_to_new_file(output, batch)
        });
        let mut queue = self.queue.lock();
        match &written {
            Ok(()) => queue.flushed = batch.last,
            Err(error) => queue.failed_writes.add(batch.first, batch.last, error),
        }
        written.is_ok()
    }

    /// Syncs the flushed entries; a batch that cannot be synced is written again to a new file.
    fn sync_batch(&self, output: &mut Output, batch: &Batch) {
        count(&self.counters.syncs);
        self.wait_for_closing(output);
        if output.current.is_none() {
            return; // entries flushed to a failed or closed file already have a result
        }
        let sync = |output: &mut Output| output.current.as_mut().map_or(Ok(()), OpenFile::sync);
        let synced = sync(output).or_else(|error| {
            self.abandon_file(output, batch, &error);
            self.write_to_new_file(output, batch)?;
            sync(output).map_err(|error| {
                self.abandon_file(output, batch, &error);
                self.reject_batch(&error)
            })
        });
        let mut queue = self.queue.lock();
        match &synced {
            Ok(()) => queue.synced = batch.last,
            Err(error) => queue.failed_syncs.add(batch.first, batch.last, error),
        }
    }

    /// Abandons the current file, which failed, and returns it. Entries that were flushed before
    /// this batch and not synced are lost if the machine crashes, and on a local disk perhaps even
    /// now: their stores are asked to flush. On HDFS they are on every DataNode of the file.
    fn abandon_file(&self, output: &mut Output, batch: &Batch, error: &io::Error) -> Option<OpenFile> {
        count(&self.counters.failures);
        let failed = output.current.take()?;
        self.wait_for_closing(output);
        let mut queue = self.queue.lock();
        let (first, last) = (queue.synced + 1, batch.first.saturating_sub(1));
        queue.failed_syncs.add(first, last, &HBaseError::from(clone_of(error)));
        let highest = queue.accounting.copy_highest();
        let stores = queue.accounting.in_memory_up_to(&highest);
        queue.closed.push(ClosedFile { path: failed.path.clone(), bytes: failed.file.position(), highest });
        drop(queue);
        self.counters.request_roll(RollReason::Error);
        if first <= last && !stores.is_empty() && !self.is_remote {
            self.listener.request_flush(&stores);
        }
        tracing::warn!(path = %failed.path.display(), %error, "a WAL file failed; the WAL continues in a new one");
        Some(failed)
    }

    /// Waits for the syncs of rolled files on which entries depend.
    fn wait_for_closing(&self, output: &mut Output) {
        for closing in output.closing.extract_if(.., |closing| closing.first <= closing.last) {
            let gone = || Err(io::Error::other("the archiver has ended"));
            closing.is_awaited.store(true, Ordering::Relaxed);
            self.closed(&closing, closing.result.recv().unwrap_or_else(|_| gone()));
        }
    }

    /// Removes the files that the archiver has closed. The archiver closes them in order, and so
    /// does this loop: a later file must not count as synced before the result of an earlier one is
    /// known.
    fn reap_closed(&self, output: &mut Output) {
        let mut done = 0;
        for closing in &output.closing {
            let Ok(result) = closing.result.try_recv() else { break };
            self.closed(closing, result);
            done += 1;
        }
        output.closing.drain(..done);
    }

    /// Handles the result of closing a rolled file. If the sync failed, entries that were only
    /// flushed to it may be lost even now, unless they are on other machines, so their stores are
    /// asked to flush.
    fn closed(&self, closing: &ClosingFile, result: io::Result<()>) {
        let mut queue = self.queue.lock();
        let Err(error) = result else {
            queue.synced = queue.synced.max(closing.last);
            return;
        };
        queue.failed_syncs.add(closing.first, closing.last, &error.into());
        let file = queue.closed.iter().find(|file| file.path == closing.path);
        let stores = file.map_or_else(Vec::new, |file| queue.accounting.in_memory_up_to(&file.highest));
        drop(queue);
        if closing.first <= closing.last && !stores.is_empty() && !self.is_remote {
            self.listener.request_flush(&stores);
        }
    }

    /// Writes a batch to a new file, and retries the truncations of failed files.
    fn write_to_new_file(&self, output: &mut Output, batch: &Batch) -> Result<()> {
        let new_file = output.create(&self.archiver).map_err(|error| self.reject_batch(&error))?;
        output.retry_truncations();
        match self.write_first_batch(output, batch, new_file) {
            Ok(new_file) => {
                count(&self.counters.rolls);
                self.switch_to(output, new_file);
                Ok(())
            }
            Err(error) => Err(self.reject_batch(&error)),
        }
    }

    /// Replaces a failed file by a new one. Writes that did not wait may have been acknowledged
    /// before writes were rejected, so they are in MemStores only: after a period of rejections all
    /// stores with unflushed edits are asked to flush.
    fn switch_to(&self, output: &mut Output, new_file: OpenFile) {
        let path = new_file.path.clone();
        output.current = Some(new_file);
        let mut queue = self.queue.lock();
        if !std::mem::take(&mut queue.is_rejecting) {
            return tracing::info!(path = %path.display(), "the WAL continues in a new file");
        }
        let stores = queue.accounting.in_memory();
        drop(queue);
        tracing::warn!(path = %path.display(), "the WAL can be written again: writes are accepted");
        if !stores.is_empty() {
            self.listener.request_flush(&stores);
        }
    }

    /// Writes the batch to the new file and returns the file. If that fails the file is removed.
    fn write_first_batch(
        &self,
        output: &mut Output,
        batch: &Batch,
        mut new_file: OpenFile,
    ) -> io::Result<OpenFile> {
        match new_file.write(&batch.segments) {
            Ok(()) => Ok(new_file),
            Err(error) => {
                let path = new_file.path.clone();
                output.truncate_failed(new_file);
                output.discard(&path);
                Err(error)
            }
        }
    }

    /// Handles a batch that neither the current file nor a new one could take: it is rejected, and
    /// the next one tries again. If the directory is gone, because a master has fenced this server,
    /// the WAL fails.
    fn reject_batch(&self, error: &io::Error) -> HBaseError {
        count(&self.counters.failures);
        let mut queue = self.queue.lock();
        queue.rejected_at = Some(clock::monotonic());
        let rejected_before = std::mem::replace(&mut queue.is_rejecting, true);
        drop(queue);
        if error.kind() == io::ErrorKind::NotFound {
            let reason = HBaseError::io(format!("WAL write failed: {error}"));
            self.fail(&reason);
            return reason;
        }
        if !rejected_before {
            tracing::error!(%error, "no WAL file can be written: writes are rejected until one can");
        }
        match error.kind() {
            io::ErrorKind::StorageFull => {
                HBaseError::io(format!("No space left on device: the WAL cannot be written ({error})"))
            }
            _ => HBaseError::io(format!("the WAL cannot be written: {error}")),
        }
    }

    fn fail(&self, reason: &HBaseError) {
        let mut queue = self.queue.lock();
        if queue.failure().is_some() {
            return;
        }
        queue.state = State::Failed(reason.clone());
        drop(queue);
        self.capacity_freed.notify_all();
        self.listener.abort(reason.message());
    }

    /// Fails the log permanently when threads may no longer commit: completes all waiters with an
    /// error.
    pub(super) fn fail_now(&self, reason: &str) {
        let failure = HBaseError::io(reason);
        let mut queue = self.queue.lock();
        queue.writing = false;
        if queue.failure().is_none() {
            queue.state = State::Failed(failure.clone());
        }
        let (waiters, rolls) = (queue.take_all_waiters(), queue.take_rolls());
        drop(queue);
        self.watchdog.end();
        self.capacity_freed.notify_all();
        self.work.notify_one();
        rolls.into_iter().for_each(|roll| drop(roll.send(Err(failure.clone()))));
        waiters.into_iter().for_each(|(waiter, verdict)| waiter.completion.complete(verdict));
        self.listener.abort(reason);
    }

    /// Starts a new file if a roll is due or requested.
    fn roll_if_due(&self, output: &mut Output) {
        let mut queue = self.queue.lock();
        let asked = queue.take_rolls();
        let is_asked = !asked.is_empty();
        queue.waiting_rolls = asked;
        let due = std::mem::take(&mut queue.roll_due);
        let failed = queue.failure();
        drop(queue);
        let reason = self.roll_reason(output);
        let is_due = is_asked || reason.is_some() || due && output.is_roll_period_over(&self.config);
        let result = match failed {
            Some(failure) => Err(failure),
            None if !is_due || !self.next_is_ready(output) => return,
            None => {
                reason.into_iter().for_each(|reason| self.counters.request_roll(reason));
                self.roll(output)
            }
        };
        let asked = std::mem::take(&mut self.queue.lock().waiting_rolls);
        for tell in asked {
            let _ = tell.send(result.clone());
        }
    }

    /// Why the current file must be rolled now; `None` if it need not be, or if the archiver takes
    /// no other file.
    fn roll_reason(&self, output: &Output) -> Option<RollReason> {
        output.roll_due(&self.config).filter(|_| self.archiver.can_close_another())
    }

    /// Returns true if the current file can be rolled: on HDFS once the next one is ready.
    /// Otherwise the roll is tried again after the next commit, and within a [`CHECK_PERIOD`].
    fn next_is_ready(&self, output: &mut Output) -> bool {
        !self.is_remote || output.next_is_ready(&self.config, &self.archiver)
    }

    fn roll(&self, output: &mut Output) -> Result<()> {
        let _activity = activity::begin(ActivityKind::LogRoll, output.path().display().to_string());
        let new_file = output.take_next(&self.archiver).map_err(|error| self.roll_failed(output, &error))?;
        count(&self.counters.rolls);
        output.retry_truncations();
        if output.current.is_none() {
            self.switch_to(output, new_file);
        } else if let Some(old) = output.replace_current(new_file) {
            self.close_rolled(output, old);
        }
        let held = self.queue.lock().closed.len() >= self.config.logs_max;
        self.archive_flushed();
        if held {
            self.request_flushes_of_oldest();
        }
        Ok(())
    }

    /// Passes a rolled file to the archiver.
    fn close_rolled(&self, output: &mut Output, old: OpenFile) {
        if old.is_too_slow() {
            tracing::warn!(path = %old.path.display(), "syncs of a WAL file are too slow; the WAL continues in a new one");
        }
        let mut queue = self.queue.lock();
        // Pending entries will be in the new file but are counted with the old one, too: it may be
        // kept too long, but never too short.
        let highest =
            if queue.is_empty() { queue.accounting.take_highest() } else { queue.accounting.copy_highest() };
        queue.closed.push(ClosedFile { path: old.path.clone(), bytes: old.file.position(), highest });
        let (first, last) = (queue.synced + 1, queue.flushed);
        let is_awaited = Arc::<AtomicBool>::default();
        let result = self.archiver.close(old.path.clone(), old.file, &is_awaited);
        output.closing.push(ClosingFile { path: old.path, first, last, result, is_awaited });
    }

    /// Handles the failure to create a new file while the current one is sound: it stays in use,
    /// unless its directory is gone because a master has fenced this server.
    fn roll_failed(&self, output: &mut Output, error: &io::Error) -> HBaseError {
        count(&self.counters.failures);
        output.roll_failed();
        let reason = HBaseError::io(format!("WAL roll failed: {error}"));
        if error.kind() == io::ErrorKind::NotFound {
            self.fail(&reason);
        }
        reason
    }

    fn request_flushes_of_oldest(&self) {
        let queue = self.queue.lock();
        let over = queue.closed.len() >= self.config.logs_max;
        let stores = queue
            .closed
            .first()
            .filter(|_| over)
            .map(|oldest| queue.accounting.unflushed_up_to(&oldest.highest));
        drop(queue);
        if let Some(stores) = stores.filter(|stores| !stores.is_empty()) {
            self.listener.request_flush(&stores);
        }
    }

    /// Rejects further appends and makes the WAL's thread end. Returns the thread at the first
    /// call. The caller must not join it if the log is stuck.
    pub(super) fn begin_close(&self, thread: &Mutex<Option<JoinHandle<()>>>) -> Option<JoinHandle<()>> {
        let thread = thread.lock().take()?;
        let mut queue = self.queue.lock();
        queue.closing = true;
        if matches!(queue.state, State::Open) {
            queue.state = State::Closing;
        }
        drop(queue);
        self.work.notify_one();
        self.capacity_freed.notify_all();
        Some(thread)
    }

    /// Writes the trailer of the last file, after the thread has ended.
    pub(super) fn finish_close(&self) -> Result<()> {
        let mut output = self.output.lock();
        self.wait_for_closing(&mut output);
        output.drop_next(&self.archiver);
        output.retry_truncations();
        let closed = output.current.take().map(|mut current| {
            let result = current.close();
            (current.path, current.file.position(), result)
        });
        let mut queue = self.queue.lock();
        // Their callers get an error.
        drop(queue.take_rolls());
        let failed = queue.failure();
        let Some((path, bytes, result)) = closed else { return failed.map_or(Ok(()), Err) };
        let highest = queue.accounting.copy_highest();
        queue.closed.push(ClosedFile { path, bytes, highest });
        if result.is_ok() {
            queue.synced = queue.flushed;
        }
        failed.map_or(Ok(()), Err)?;
        Ok(result?)
    }
}

fn clone_of(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
