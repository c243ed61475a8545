//! The file being written, and how the next one is made.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use evenkeel_common::{HBaseError, clock::Clock};
use evenkeel_fs::{AppendFile, CreateOptions, FileSystem};

use super::queue::SPARE_BYTES_MAX;
use super::slow::SlowSyncs;
use crate::config::{WalCompression, WalConfig};
use crate::format::compress::EntryCompressor;
use crate::format::encode;
use crate::names;

/// Belongs to whoever commits.
pub(super) struct Output {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    prefix: String,
    suffix: String,
    clock: Arc<dyn Clock>,
    compression: Option<WalCompression>,
    last_number: i64,
    last_path: PathBuf,
    /// None after neither it nor a new file could be written, until one can.
    pub(super) current: Option<Current>,
    /// Files that hold bytes of a batch that failed, and could not be cut.
    uncut: Vec<Current>,
    /// Files that the archiver closes now, with the entries that only its sync makes survive the machine.
    pub(super) closing: Vec<Closing>,
    /// After a roll that failed, when to try again.
    roll_not_before_ms: i64,
}

/// An open file.
pub(super) struct Current {
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
pub(super) struct Closing {
    pub(super) path: PathBuf,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) result: Receiver<io::Result<()>>,
    /// Set by who waits for the result.
    pub(super) is_wanted: Arc<AtomicBool>,
}

/// How often the next number is tried when a file of that name is there.
const NAME_ATTEMPTS: usize = 100;

/// How long to wait after a roll that failed.
const ROLL_RETRY_MS: i64 = 1000;

/// Files that wait to be cut at most; the oldest is left as it is beyond.
const UNCUT_FILES_MAX: usize = 16;

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
        let mut output = Self {
            fs,
            dir,
            prefix,
            suffix,
            clock,
            compression,
            last_number: 0,
            last_path: PathBuf::new(),
            current: None,
            uncut: Vec::new(),
            closing: Vec::new(),
            roll_not_before_ms: i64::MIN,
        };
        output.current = Some(output.create()?);
        Ok(output)
    }

    pub(super) fn path(&self) -> &Path {
        &self.last_path
    }

    /// Makes the next file, with its header flushed; leaves nothing behind when that fails.
    pub(super) fn create(&mut self) -> io::Result<Current> {
        let settings = self.compression.as_ref();
        let compressor = settings.map(EntryCompressor::new).transpose().map_err(unsupported)?;
        let header = encode::header(settings);
        let (path, mut file) = self.create_numbered()?;
        if let Err(error) = file.append(&header).and_then(|()| file.flush()) {
            drop(file);
            self.discard(&path);
            return Err(error);
        }
        self.last_path.clone_from(&path);
        Ok(Current {
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

    fn create_numbered(&mut self) -> io::Result<(PathBuf, Box<dyn AppendFile>)> {
        let mut attempts = 0;
        loop {
            self.last_number = self.clock.now_ms().max(self.last_number + 1);
            let path = self.dir.join(names::file_name(&self.prefix, self.last_number, &self.suffix));
            match self.fs.create(&path, CreateOptions::default()) {
                Ok(file) => return Ok((path, file)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempts < NAME_ATTEMPTS => {
                    attempts += 1
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Deletes a file in which there is no entry that anyone was told of.
    pub(super) fn discard(&self, path: &Path) {
        if let Err(error) = self.fs.delete(path) {
            tracing::warn!(path = %path.display(), %error, "a WAL file without entries could not be deleted");
        }
    }

    /// Takes back what may have reached a file of a write that failed; now, or when the next file can be made.
    pub(super) fn cut(&mut self, mut failed: Current) {
        let Err(error) = failed.file.cut(failed.flushed_bytes) else { return };
        let path = failed.path.display();
        tracing::warn!(%path, %error, "a failed write may be in the file, and be replayed should the process die");
        if error.kind() != io::ErrorKind::Unsupported {
            self.uncut.push(failed);
            self.uncut.drain(..self.uncut.len().saturating_sub(UNCUT_FILES_MAX));
        }
    }

    /// Cuts the files that could not be cut so far; what still cannot be is tried with the next file, and at the end.
    pub(super) fn cut_again(&mut self) {
        self.uncut.retain_mut(|failed| failed.file.cut(failed.flushed_bytes).is_err());
    }

    /// The commit under way is done; whether its writes and syncs were slow.
    pub(super) fn committed(&mut self, config: &WalConfig) -> Option<Duration> {
        let current = self.current.as_mut()?;
        let took = std::mem::take(&mut current.took);
        let clock = &self.clock;
        current.slow.took(took, config, || clock.now_ms()).then_some(took)
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
            && self.clock.now_ms() >= self.roll_not_before_ms
    }

    /// Whether the current file is too old and not empty.
    pub(super) fn too_old(&self, config: &WalConfig) -> bool {
        let now_ms = self.clock.now_ms();
        self.current.as_ref().is_some_and(|current| {
            current.file.position() > current.header_bytes
                && now_ms - current.opened_ms >= config.roll_period_ms
                && now_ms >= self.roll_not_before_ms
        })
    }

    /// Whether the archiver is done with the oldest of the files that it closes.
    pub(super) fn a_closing_ended(&self) -> bool {
        self.closing.first().is_some_and(|closing| !closing.result.is_empty())
    }

    pub(super) fn roll_failed(&mut self) {
        self.roll_not_before_ms = self.clock.now_ms() + ROLL_RETRY_MS;
    }
}

impl Current {
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
