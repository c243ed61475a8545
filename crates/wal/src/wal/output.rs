//! The file being written, and the creation of the next one.
//!
//! Creating a file is one system call that may wait for the file system's journal, behind a large
//! sync, and the committing thread and all writers would wait with it. So when a file is seven
//! eighths full the archiver's thread creates the next one. With [`WalConfig::hsync`] it also syncs
//! it, so that the first sync of its entries need not wait for the directory. A roll takes that
//! file if it is ready. Otherwise, and if a roll has another reason than length, or if a file has
//! failed, the committing thread creates a file itself, and the archiver's thread deletes the spare
//! one. After a crash it remains, as a log without entries.
//!
//! On HDFS a call may take minutes, while no NameNode answers, and the current file can be written
//! further meanwhile. So on HDFS a file is rolled only once the archiver's thread has created the
//! next one, or has checked the spare one, regardless of the reason. Only after a failure of the
//! current file does the committing thread call the NameNode: no write can succeed before.
//!
//! A file on HDFS may have fewer replicas than requested, because a DataNode was down or excluded
//! when it was created. It is rolled after [`FEW_REPLICAS_MS`]. If the next one has few, too, that
//! one is kept twice as long, and so on up to [`FEW_REPLICAS_DOUBLINGS_MAX`] times: a cluster with
//! too few DataNodes does not get a file a minute.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crossbeam_channel::{Receiver, TryRecvError, bounded};
use evenkeel_common::clock;
use evenkeel_common::{HBaseError, clock::Clock};
use evenkeel_fs::{AppendFile, CreateOptions, FileHealth, FileSystem};
use parking_lot::Mutex;

use super::RollReason;
use super::archiver::Archiver;
use super::queue::SPARE_BYTES_MAX;
use super::slow_sync::SlowSyncs;
use crate::config::{WalCompression, WalConfig};
use crate::format::entry_compressor::EntryCompressor;
use crate::format::{TRAILER, encode};
use crate::names;

/// Owned by the committing thread.
pub(super) struct Output {
    creator: Arc<FileCreator>,
    last_path: PathBuf,
    /// `None` while neither the previous file nor a new one can be written.
    pub(super) current: Option<OpenFile>,
    /// The next file, once the archiver was asked to create it.
    next: Option<NextFile>,
    /// Files with bytes of a failed batch that could not be truncated.
    untruncated: Vec<OpenFile>,
    /// Files that the archiver is closing, with the entries that become durable by their syncs.
    pub(super) closing: Vec<ClosingFile>,
    /// The earliest time of the next attempt after a failed roll.
    roll_not_before_ms: i64,
    /// How many files in succession were replaced by one that has few replicas, too.
    few_replicas_again: u32,
}

/// Creates the files of a log, on the committing thread or ahead of it.
pub(super) struct FileCreator {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    prefix: String,
    suffix: String,
    clock: Arc<dyn Clock>,
    compression: Option<WalCompression>,
    /// The number of the last file created.
    number: Mutex<i64>,
}

/// A file that was created ahead. It has no entries and is deleted unless it is taken.
pub(super) struct SpareFile {
    file: Option<OpenFile>,
    creator: Arc<FileCreator>,
}

/// The next file, which the archiver creates or checks.
struct NextFile {
    created: Receiver<Created>,
    /// The file is at its path, as far as is known: it was created or checked for the roll that is
    /// due.
    is_checked: bool,
}

/// The next file, or why there is none.
pub(super) type Created = Result<Box<SpareFile>, NotReady>;

/// Why the next file is not ready.
pub(super) struct NotReady {
    error: io::Error,
    /// The file that could not be checked. It may be sound.
    spare: Option<Box<SpareFile>>,
}

/// An open file.
pub(super) struct OpenFile {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn AppendFile>,
    opened_ms: i64,
    header_bytes: u64,
    /// The length up to the last completely flushed batch.
    flushed_bytes: u64,
    /// The length up to the last synced batch, if its write synced it; otherwise 0.
    synced_bytes: u64,
    /// The time of the writes and syncs of the commit in progress.
    elapsed: Duration,
    slow: SlowSyncs,
    /// The compressor of entries, and the buffer of compressed entries.
    compressor: Option<(EntryCompressor, Vec<u8>)>,
}

/// A rolled file that is being closed.
pub(super) struct ClosingFile {
    pub(super) path: PathBuf,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) result: Receiver<io::Result<()>>,
    /// Set by the thread that waits for the result.
    pub(super) is_awaited: Arc<AtomicBool>,
}

/// The maximum number of attempts with the next number if a file of that name exists.
const NAME_ATTEMPTS: usize = 100;

/// The pause after a failed roll, in milliseconds.
const ROLL_RETRY_MS: i64 = 1000;

/// The age in milliseconds at which a file with few replicas is rolled.
const FEW_REPLICAS_MS: i64 = 60_000;

/// How often that age is doubled at most: to 64 minutes.
const FEW_REPLICAS_DOUBLINGS_MAX: u32 = 6;

/// The maximum number of files that wait for truncation; above it the oldest is left unchanged.
const UNTRUNCATED_FILES_MAX: usize = 16;

impl Output {
    /// Creates the first file.
    pub(super) fn open(
        fs: Arc<dyn FileSystem>,
        dir: PathBuf,
        prefix: String,
        suffix: String,
        clock: Arc<dyn Clock>,
        compression: Option<WalCompression>,
    ) -> io::Result<Self> {
        let number = Mutex::default();
        let creator = Arc::new(FileCreator { fs, dir, prefix, suffix, clock, compression, number });
        let first = creator.create()?;
        Ok(Self {
            creator,
            last_path: first.path.clone(),
            current: Some(first),
            next: None,
            untruncated: Vec::new(),
            closing: Vec::new(),
            roll_not_before_ms: i64::MIN,
            few_replicas_again: 0,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.last_path
    }

    /// Creates the next file, with its header flushed; leaves no file behind on failure. A spare
    /// file is dropped, because the order of files by name must be the order of their entries.
    pub(super) fn create(&mut self, archiver: &Archiver) -> io::Result<OpenFile> {
        self.drop_next(archiver);
        let new_file = self.creator.create()?;
        self.last_path.clone_from(&new_file.path);
        Ok(new_file)
    }

    /// The next file: the spare one if it is ready, otherwise a new one. On HDFS the failure to
    /// create or to check the spare one is that of the roll. A file that could not be checked is
    /// kept for the next attempt.
    pub(super) fn take_next(&mut self, archiver: &Archiver) -> io::Result<OpenFile> {
        let next = self.next.take().map(|next| (next.created.try_recv().ok(), next));
        let created = match next {
            Some((Some(Ok(spare)), next)) if next.is_checked => Ok(spare),
            Some((Some(Ok(spare)), _)) => spare.check(false),
            Some((Some(Err(failure)), _)) if self.creator.fs.is_remote() => Err(failure),
            Some((None, next)) => {
                self.next = Some(next);
                return self.create(archiver);
            }
            Some((Some(Err(_)), _)) | None => return self.create(archiver),
        };
        let taken = created.map(|mut spare| spare.file.take());
        match taken {
            Ok(Some(mut new_file)) => {
                new_file.opened_ms = self.creator.clock.now_ms();
                self.last_path.clone_from(&new_file.path);
                Ok(new_file)
            }
            Ok(None) => self.create(archiver),
            Err(NotReady { error, spare }) => {
                self.next = spare.map(NextFile::unchecked);
                Err(error)
            }
        }
    }

    /// Requests the next file if the current one is nearly full.
    pub(super) fn create_next_if_due(&mut self, config: &WalConfig, archiver: &Archiver) {
        let bytes = self.current.as_ref().map_or(0, |current| current.file.position());
        if self.next.is_none() && bytes > config.roll_bytes / 8 * 7 && bytes <= config.roll_bytes {
            let created = archiver.create_ahead(&self.creator, config.hsync);
            self.next = Some(NextFile { created, is_checked: false });
        }
    }

    /// Returns true if the next file is created and checked for a roll, or could not be; otherwise
    /// requests that.
    pub(super) fn next_is_ready(&mut self, config: &WalConfig, archiver: &Archiver) -> bool {
        let created = match &self.next {
            Some(next) if next.is_checked => return !next.created.is_empty(),
            Some(next) => match next.created.try_recv() {
                Ok(Ok(spare)) => archiver.check(spare, config.hsync),
                Ok(Err(_)) | Err(TryRecvError::Disconnected) => {
                    archiver.create_ahead(&self.creator, config.hsync)
                }
                Err(TryRecvError::Empty) => return false,
            },
            None => archiver.create_ahead(&self.creator, config.hsync),
        };
        self.next = Some(NextFile { created, is_checked: true });
        false
    }

    /// Has the archiver delete the spare file, if there is one.
    pub(super) fn drop_next(&mut self, archiver: &Archiver) {
        self.next.take().into_iter().for_each(|next| archiver.discard(next.created));
    }

    /// Deletes a file without acknowledged entries.
    pub(super) fn discard(&self, path: &Path) {
        self.creator.discard(path);
    }

    /// Removes the bytes of a failed write from a file, now or when the next file can be created.
    pub(super) fn truncate_failed(&mut self, mut failed: OpenFile) {
        let Err(error) = failed.file.truncate(failed.flushed_bytes) else { return };
        let path = failed.path.display();
        tracing::warn!(%path, %error, "the bytes of a failed write could not be truncated; they may be replayed after a crash");
        if error.kind() != io::ErrorKind::Unsupported {
            self.untruncated.push(failed);
            self.untruncated.drain(..self.untruncated.len().saturating_sub(UNTRUNCATED_FILES_MAX));
        }
    }

    /// Retries failed truncations; the remaining ones are retried with the next file, and at the
    /// end.
    pub(super) fn retry_truncations(&mut self) {
        self.untruncated.retain_mut(|failed| failed.file.truncate(failed.flushed_bytes).is_err());
    }

    /// The time of the writes and syncs of the commit in progress.
    pub(super) fn elapsed(&self) -> Duration {
        self.current.as_ref().map_or(Duration::ZERO, |current| current.elapsed)
    }

    /// Ends the commit in progress. Returns its time, and whether its writes and syncs were slow;
    /// `None` if nothing was written.
    pub(super) fn committed(&mut self, config: &WalConfig) -> Option<(Duration, bool)> {
        let current = self.current.as_mut()?;
        let took = std::mem::take(&mut current.elapsed);
        let clock = &self.creator.clock;
        let is_slow = current.slow.record(took, config, || clock.now_ms());
        (!took.is_zero()).then_some((took, is_slow))
    }

    /// Why the current file must be rolled: it has broken; or it is not empty, and too long, too
    /// slow or for too long without a replica.
    pub(super) fn roll_due(&self, config: &WalConfig) -> Option<RollReason> {
        let current = self.current.as_ref()?;
        let (bytes, health) = (current.file.position(), current.file.health());
        let reason = match bytes > config.roll_bytes {
            true => RollReason::Size,
            false if current.slow.is_too_slow() => RollReason::SlowSync,
            false if self.lacks_replicas(current, health) => RollReason::LowReplication,
            false => return None,
        };
        // The clock is read only if a roll is due or a replica is missing, or once a tick.
        let is_needed = bytes > current.header_bytes || health == FileHealth::Broken;
        let may_roll = is_needed && self.creator.clock.now_ms() >= self.roll_not_before_ms;
        may_roll.then_some(reason)
    }

    fn lacks_replicas(&self, current: &OpenFile, health: FileHealth) -> bool {
        let doublings = self.few_replicas_again.min(FEW_REPLICAS_DOUBLINGS_MAX);
        match health {
            FileHealth::Sound => false,
            FileHealth::FewReplicas => {
                self.creator.clock.now_ms() - current.opened_ms >= FEW_REPLICAS_MS << doublings
            }
            FileHealth::Broken => true,
        }
    }

    /// Makes a file the current one. Returns the one that it replaces.
    pub(super) fn replace_current(&mut self, new_file: OpenFile) -> Option<OpenFile> {
        let is_few = |file: &OpenFile| file.file.health() == FileHealth::FewReplicas;
        let is_again = self.current.as_ref().is_some_and(is_few) && is_few(&new_file);
        self.few_replicas_again = if is_again { self.few_replicas_again.saturating_add(1) } else { 0 };
        self.current.replace(new_file)
    }

    /// Returns true if the current file is too old and not empty.
    pub(super) fn is_roll_period_over(&self, config: &WalConfig) -> bool {
        let now_ms = self.creator.clock.now_ms();
        self.current.as_ref().is_some_and(|current| {
            current.file.position() > current.header_bytes
                && now_ms - current.opened_ms >= config.roll_period_ms
                && now_ms >= self.roll_not_before_ms
        })
    }

    /// Returns true if the archiver has closed the oldest of its files.
    pub(super) fn has_closed_file(&self) -> bool {
        self.closing.first().is_some_and(|closing| !closing.result.is_empty())
    }

    pub(super) fn roll_failed(&mut self) {
        self.roll_not_before_ms = self.creator.clock.now_ms() + ROLL_RETRY_MS;
    }
}

impl FileCreator {
    /// Creates a file, with its header flushed; leaves no file behind on failure.
    fn create(&self) -> io::Result<OpenFile> {
        let settings = self.compression.as_ref();
        let compressor = settings.map(EntryCompressor::new).transpose().map_err(unsupported)?;
        let header = encode::header(settings);
        let (path, mut file) = self.create_numbered()?;
        if let Err(error) = file.append(&header).and_then(|()| file.flush()) {
            drop(file);
            self.discard(&path);
            return Err(error);
        }
        Ok(OpenFile {
            path,
            file,
            opened_ms: self.clock.now_ms(),
            header_bytes: header.len() as u64,
            flushed_bytes: header.len() as u64,
            synced_bytes: 0,
            elapsed: Duration::ZERO,
            slow: SlowSyncs::default(),
            compressor: compressor.map(|compressor| (compressor, Vec::new())),
        })
    }

    /// Creates a file before it is needed. With `sync` its name is durable as well, so that the
    /// first sync of the file does not wait for it.
    pub(super) fn create_ahead(self: &Arc<Self>, sync: bool) -> io::Result<Box<SpareFile>> {
        let mut unused = Box::new(SpareFile { file: Some(self.create()?), creator: Arc::clone(self) });
        match unused.file.as_mut().filter(|_| sync).map_or(Ok(()), |file| file.file.sync()) {
            Ok(()) => Ok(unused),
            Err(error) => Err(error),
        }
    }

    fn create_numbered(&self) -> io::Result<(PathBuf, Box<dyn AppendFile>)> {
        let mut attempts = 0;
        loop {
            let number = self.next_number();
            let path = self.dir.join(names::file_name(&self.prefix, number, &self.suffix));
            match self.fs.create(&path, CreateOptions::LOG) {
                Ok(file) => return Ok((path, file)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempts < NAME_ATTEMPTS => {
                    attempts += 1
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// No thread waits for the disk while it holds this lock, so the committing thread does not
    /// wait for a file that is being created ahead.
    fn next_number(&self) -> i64 {
        let mut number = self.number.lock();
        *number = self.clock.now_ms().max(*number + 1);
        *number
    }

    fn discard(&self, path: &Path) {
        if let Err(error) = self.fs.discard(path) {
            tracing::warn!(path = %path.display(), %error, "a WAL file without entries could not be deleted");
        }
    }
}

impl NextFile {
    /// A file that needs a check before it is used.
    fn unchecked(spare: Box<SpareFile>) -> Self {
        let (sender, created) = bounded(1);
        let _ = sender.send(Ok(spare));
        Self { created, is_checked: false }
    }
}

impl NotReady {
    /// Without a file.
    pub(super) fn failed(error: io::Error) -> Self {
        Self { error, spare: None }
    }
}

impl SpareFile {
    /// Returns the file if it is still at its path and has not broken meanwhile; otherwise creates
    /// another one. A master that takes this server for dead renames the directory, and entries
    /// written there later are not replayed. If the file system does not say whether the file is
    /// there, the error has the file.
    pub(super) fn check(mut self: Box<Self>, sync: bool) -> Created {
        let creator = Arc::clone(&self.creator);
        let is_flushed = self.file.as_mut().is_some_and(|file| file.file.flush().is_ok());
        let is_sound = match &self.file {
            Some(file) if is_flushed => creator.fs.exists(&file.path),
            _ => Ok(false),
        };
        match is_sound {
            Ok(true) => Ok(self),
            Ok(false) => {
                drop(self);
                creator.create_ahead(sync).map_err(NotReady::failed)
            }
            Err(error) => Err(NotReady { error, spare: Some(self) }),
        }
    }
}

impl Drop for SpareFile {
    fn drop(&mut self) {
        if let Some(OpenFile { path, mut file, .. }) = self.file.take() {
            // On HDFS a file that was closed needs no recovery. It is deleted in any case.
            let _ = file.close();
            drop(file);
            self.creator.discard(&path);
        }
    }
}

impl OpenFile {
    /// Appends segments of plain entries, compressed if the file's entries are, and flushes.
    pub(super) fn write(&mut self, segments: &[Vec<u8>]) -> io::Result<()> {
        self.write_and(segments, |file| file.flush())
    }

    /// As [`OpenFile::write`], and syncs with the flush: [`OpenFile::sync`] then has nothing to do.
    pub(super) fn write_synced(&mut self, segments: &[Vec<u8>]) -> io::Result<()> {
        self.write_and(segments, |file| file.sync())?;
        // Without segments nothing was synced: earlier ones may only be flushed.
        if !segments.is_empty() {
            self.synced_bytes = self.flushed_bytes;
        }
        Ok(())
    }

    fn write_and(
        &mut self,
        segments: &[Vec<u8>],
        end: impl FnOnce(&mut dyn AppendFile) -> io::Result<()>,
    ) -> io::Result<()> {
        if segments.is_empty() {
            return Ok(());
        }
        let started = clock::monotonic();
        for entries in segments {
            self.append(entries)?;
        }
        end(&mut *self.file)?;
        self.flushed_bytes = self.file.position();
        self.elapsed += clock::since(started);
        Ok(())
    }

    fn append(&mut self, entries: &[u8]) -> io::Result<()> {
        let Some((compressor, compressed)) = &mut self.compressor else {
            return self.file.append(entries);
        };
        compressor.compress(entries, compressed)?;
        self.file.append(compressed)?;
        compressed.clear();
        compressed.shrink_to(SPARE_BYTES_MAX);
        Ok(())
    }

    /// Writes the trailer and closes the file.
    pub(super) fn close(&mut self) -> io::Result<()> {
        self.file.append(TRAILER)?;
        self.file.sync()?;
        self.file.close()
    }

    /// Returns true if the syncs are slow enough for a roll.
    pub(super) fn is_too_slow(&self) -> bool {
        self.slow.is_too_slow()
    }

    /// Syncs the written entries to the disk. It must not be called again after an error: pages
    /// that a failed sync left in memory may count as written.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.synced_bytes == self.file.position() {
            return Ok(());
        }
        let started = clock::monotonic();
        self.file.sync()?;
        self.elapsed += clock::since(started);
        Ok(())
    }
}

fn unsupported(error: HBaseError) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, error.to_string())
}
