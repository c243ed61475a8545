//! The file being written, and how the next one is made.
//!
//! Making a file is one system call that may wait for the journal of the file system, behind a sync of something large, and
//! who commits then would wait with all the writers. So when a file is seven eighths full the archiver's thread makes the next
//! one; with [`WalConfig::hsync`] it syncs it, too, and the first sync of its entries need not wait for the directory. A roll
//! takes it if it is ready. Otherwise, and when a roll comes for another reason than length, or a file has failed, the
//! committing thread makes one itself, and the one made ahead is deleted. A crash leaves it there: a log without entries.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use evenkeel_common::{HBaseError, clock::Clock};
use evenkeel_fs::{AppendFile, CreateOptions, FileSystem};
use parking_lot::Mutex;

use super::archiver::Archiver;
use super::queue::SPARE_BYTES_MAX;
use super::slow_sync::SlowSyncs;
use crate::config::{WalCompression, WalConfig};
use crate::format::encode;
use crate::format::entry_compressor::EntryCompressor;
use crate::names;

/// Belongs to whoever commits.
pub(super) struct Output {
    creator: Arc<FileCreator>,
    last_path: PathBuf,
    /// None after neither it nor a new file could be written, until one can.
    pub(super) current: Option<OpenFile>,
    /// The file after the current one, once the archiver was asked to make it.
    next: Option<Receiver<io::Result<SpareFile>>>,
    /// Files that hold bytes of a batch that failed, and could not be cut.
    untruncated: Vec<OpenFile>,
    /// Files that the archiver closes now, with the entries that only its sync makes survive the machine.
    pub(super) closing: Vec<ClosingFile>,
    /// After a roll that failed, when to try again.
    roll_not_before_ms: i64,
}

/// Makes the files of a log, on the thread that commits or ahead of it.
pub(super) struct FileCreator {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    prefix: String,
    suffix: String,
    clock: Arc<dyn Clock>,
    compression: Option<WalCompression>,
    /// Of the last file that was made.
    number: Mutex<i64>,
}

/// A file that was made ahead. It is deleted unless it is taken: there is no entry in it.
pub(super) struct SpareFile {
    file: Option<OpenFile>,
    creator: Arc<FileCreator>,
}

/// An open file.
pub(super) struct OpenFile {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn AppendFile>,
    opened_ms: i64,
    header_bytes: u64,
    /// Where the last entry ends that was flushed, in a batch of which all were.
    flushed_bytes: u64,
    /// How long the writes and syncs of the commit under way took.
    took: Duration,
    slow: SlowSyncs,
    /// How entries are compressed, and room for the compressed ones.
    compressor: Option<(EntryCompressor, Vec<u8>)>,
}

/// The sync of a file that was rolled.
pub(super) struct ClosingFile {
    pub(super) path: PathBuf,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) result: Receiver<io::Result<()>>,
    /// Set by who waits for the result.
    pub(super) is_awaited: Arc<AtomicBool>,
}

/// How often the next number is tried when a file of that name is there.
const NAME_ATTEMPTS: usize = 100;

/// How long to wait after a roll that failed.
const ROLL_RETRY_MS: i64 = 1000;

/// Files that wait to be cut at most; the oldest is left as it is beyond.
const UNTRUNCATED_FILES_MAX: usize = 16;

impl Output {
    /// Starts the first file.
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
        let mut output = Self {
            creator,
            last_path: PathBuf::new(),
            current: None,
            next: None,
            untruncated: Vec::new(),
            closing: Vec::new(),
            roll_not_before_ms: i64::MIN,
        };
        output.current = Some(output.create()?);
        Ok(output)
    }

    pub(super) fn path(&self) -> &Path {
        &self.last_path
    }

    /// Makes the next file, with its header flushed; leaves nothing behind when that fails. One that was made ahead is given
    /// up: the order of files by name is that of their entries.
    pub(super) fn create(&mut self) -> io::Result<OpenFile> {
        self.next = None;
        let new_file = self.creator.create()?;
        self.last_path.clone_from(&new_file.path);
        Ok(new_file)
    }

    /// The next file: the one that was made ahead, if it is there, or else a new one.
    pub(super) fn create_or_take(&mut self) -> io::Result<OpenFile> {
        let ahead = self.next.take().and_then(|next| next.try_recv().ok()).and_then(Result::ok);
        match ahead.and_then(SpareFile::take) {
            Some(mut new_file) => {
                new_file.opened_ms = self.creator.clock.now_ms();
                self.last_path.clone_from(&new_file.path);
                Ok(new_file)
            }
            None => self.create(),
        }
    }

    /// Has the next file made when the current one is nearly full.
    pub(super) fn create_next_if_due(&mut self, config: &WalConfig, archiver: &Archiver) {
        let bytes = self.current.as_ref().map_or(0, |current| current.file.position());
        if self.next.is_none() && bytes > config.roll_bytes / 8 * 7 && bytes <= config.roll_bytes {
            self.next = Some(archiver.create_ahead(&self.creator, config.hsync));
        }
    }

    /// Gives the file up that was made ahead, if there is one.
    pub(super) fn drop_next(&mut self) {
        self.next = None;
    }

    /// Deletes a file in which there is no entry that anyone was told of.
    pub(super) fn discard(&self, path: &Path) {
        self.creator.discard(path);
    }

    /// Takes back what may have reached a file of a write that failed; now, or when the next file can be made.
    pub(super) fn truncate_failed(&mut self, mut failed: OpenFile) {
        let Err(error) = failed.file.truncate(failed.flushed_bytes) else { return };
        let path = failed.path.display();
        tracing::warn!(%path, %error, "a failed write may be in the file, and be replayed should the process die");
        if error.kind() != io::ErrorKind::Unsupported {
            self.untruncated.push(failed);
            self.untruncated.drain(..self.untruncated.len().saturating_sub(UNTRUNCATED_FILES_MAX));
        }
    }

    /// Cuts the files that could not be cut so far; what still cannot be is tried with the next file, and at the end.
    pub(super) fn retry_truncations(&mut self) {
        self.untruncated.retain_mut(|failed| failed.file.truncate(failed.flushed_bytes).is_err());
    }

    /// The commit under way is done; whether its writes and syncs were slow.
    pub(super) fn committed(&mut self, config: &WalConfig) -> Option<Duration> {
        let current = self.current.as_mut()?;
        let took = std::mem::take(&mut current.took);
        let clock = &self.creator.clock;
        current.slow.record(took, config, || clock.now_ms()).then_some(took)
    }

    /// Whether the current file is too long or too slow, and not empty.
    pub(super) fn roll_due(&self, config: &WalConfig) -> bool {
        let Some(current) = &self.current else { return false };
        let bytes = current.file.position();
        if bytes <= current.header_bytes {
            return false;
        }
        // The clock is read only when something asks for a roll, or once a tick.
        (bytes > config.roll_bytes || current.slow.is_too_slow())
            && self.creator.clock.now_ms() >= self.roll_not_before_ms
    }

    /// Whether the current file is too old and not empty.
    pub(super) fn too_old(&self, config: &WalConfig) -> bool {
        let now_ms = self.creator.clock.now_ms();
        self.current.as_ref().is_some_and(|current| {
            current.file.position() > current.header_bytes
                && now_ms - current.opened_ms >= config.roll_period_ms
                && now_ms >= self.roll_not_before_ms
        })
    }

    /// Whether the archiver is done with the oldest of the files that it closes.
    pub(super) fn has_closed_file(&self) -> bool {
        self.closing.first().is_some_and(|closing| !closing.result.is_empty())
    }

    pub(super) fn roll_failed(&mut self) {
        self.roll_not_before_ms = self.creator.clock.now_ms() + ROLL_RETRY_MS;
    }
}

impl FileCreator {
    /// Makes a file, with its header flushed; leaves nothing behind when that fails.
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
            took: Duration::ZERO,
            slow: SlowSyncs::default(),
            compressor: compressor.map(|compressor| (compressor, Vec::new())),
        })
    }

    /// Makes a file before it is needed. With `sync` its name is on the disk as well, for which the first sync of the file
    /// would have to wait.
    pub(super) fn create_ahead(self: &Arc<Self>, sync: bool) -> io::Result<SpareFile> {
        let mut unused = SpareFile { file: Some(self.create()?), creator: Arc::clone(self) };
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
            match self.fs.create(&path, CreateOptions::default()) {
                Ok(file) => return Ok((path, file)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempts < NAME_ATTEMPTS => {
                    attempts += 1
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Nobody waits here for the disk: who commits does not wait for a file that is made ahead.
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

impl SpareFile {
    /// The file, unless it is not where it was made: a master that takes this server for dead renames the directory, and what
    /// is written there from then on nobody replays.
    fn take(mut self) -> Option<OpenFile> {
        let is_there = |file: &OpenFile| self.creator.fs.exists(&file.path).unwrap_or(false);
        self.file.as_ref().is_some_and(is_there).then(|| self.file.take()).flatten()
    }
}

impl Drop for SpareFile {
    fn drop(&mut self) {
        if let Some(OpenFile { path, file, .. }) = self.file.take() {
            drop(file);
            self.creator.discard(&path);
        }
    }
}

impl OpenFile {
    /// Appends plain entries in one piece, compressed if the file's are, and flushes.
    pub(super) fn write(&mut self, entries: &[u8]) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let started = Instant::now();
        match &mut self.compressor {
            None => self.file.append(entries)?,
            Some((compressor, compressed)) => {
                compressor.compress(entries, compressed)?;
                self.file.append(compressed)?;
                compressed.clear();
                compressed.shrink_to(SPARE_BYTES_MAX);
            }
        }
        self.file.flush()?;
        self.flushed_bytes = self.file.position();
        self.took += started.elapsed();
        Ok(())
    }

    /// Whether its syncs are reason enough for another file.
    pub(super) fn is_too_slow(&self) -> bool {
        self.slow.is_too_slow()
    }

    /// Makes what was written survive the machine. After an error never again: what a failed sync left in memory may be
    /// taken for written.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        let started = Instant::now();
        self.file.sync()?;
        self.took += started.elapsed();
        Ok(())
    }
}

fn unsupported(error: HBaseError) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, error.to_string())
}
