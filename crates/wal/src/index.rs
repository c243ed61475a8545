//! Replaying a dead server's logs where they lie: [`LogIndex`].
//!
//! Splitting writes each edit once more before it is read again. A process that opens all regions itself need not: one pass
//! over the logs notes where each region's entries are, and a region that opens reads its own from there ([`RegionLog`]).
//! Nothing on disk changes by that, so a crash at any point, any number of times, leaves the logs for the next start, of
//! whatever server: they may go once every region that has edits in them has flushed these, or has them in a file below
//! `recovered.edits` ([`RegionLog::write_recovered_edits`]).
//!
//! **Order.** A region's entries come file after file, as the files were given, and in a file front to back: give the logs
//! of an older life first, and a life's in the order of their numbers. Then sequence ids do not fall, and a region may
//! flush half way.
//!
//! **Not every log** can be read in pieces: a compressed one only makes sense from its beginning, and is to be split; so is
//! one with damage, for splitting tells what becomes of it.
//!
//! Memory: 24 bytes for each run of entries of one region, at most [`RUNS_MAX`] of them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use evenkeel_common::{HBaseError, Result, TableName};
use evenkeel_fs::FileSystem;
use parking_lot::Mutex;

use crate::entry::WalEntry;
use crate::markers;
use crate::reader::{ReadError, WalReader};
use crate::split::Edits;

/// How many runs are noted at most; logs with more are to be split.
pub const RUNS_MAX: usize = 4 << 20;

/// Where the entries of every region are.
#[derive(Debug, Default)]
pub struct LogIndex {
    regions: HashMap<Bytes, RegionLog>,
    /// Entries in all files.
    pub entries: u64,
}

/// Where the entries of one region are.
#[derive(Clone, Debug)]
pub struct RegionLog {
    /// The region's table.
    pub table: TableName,
    files: Arc<[PathBuf]>,
    runs: Vec<Run>,
}

/// Entries of one region, one after the other in a file.
#[derive(Clone, Copy, Debug)]
struct Run {
    file: usize,
    start: u64,
    end: u64,
}

/// What one file holds.
#[derive(Default)]
struct FileIndex {
    runs: Vec<(Bytes, TableName, Run)>,
    entries: u64,
}

impl LogIndex {
    /// Reads `files`, several at once, and notes where what is; `None` when they are to be split instead.
    ///
    /// # Errors
    /// What the storage says.
    pub fn build(fs: &dyn FileSystem, files: Vec<PathBuf>, threads: usize) -> Result<Option<Self>> {
        let files: Arc<[PathBuf]> = files.into();
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            while let Some((number, path)) = next_of(&next, &files) {
                let indexed = index_file(fs, number, path);
                let go_on = matches!(indexed, Ok(Some(_)));
                done.lock().push((number, indexed));
                if !go_on {
                    next.store(files.len(), Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| (0..threads.max(1)).for_each(|_| drop(scope.spawn(work))));
        let mut done = done.into_inner();
        done.sort_by_key(|(number, _)| *number);
        let mut index = Self::default();
        let mut runs = 0;
        for (_, file) in done {
            let Some(file) = file? else { return Ok(None) };
            runs += file.runs.len();
            index.add(file, &files);
        }
        Ok((runs <= RUNS_MAX).then_some(index))
    }

    fn add(&mut self, file: FileIndex, files: &Arc<[PathBuf]>) {
        self.entries += file.entries;
        for (region, table, run) in file.runs {
            let new = || RegionLog { table, files: Arc::clone(files), runs: Vec::new() };
            self.regions.entry(region).or_insert_with(new).runs.push(run);
        }
    }

    /// The entries of a region, by its encoded name.
    pub fn region(&self, encoded_name: &[u8]) -> Option<&RegionLog> {
        self.regions.get(encoded_name)
    }

    /// Every region that has entries, by encoded name.
    pub fn regions(&self) -> impl Iterator<Item = (&Bytes, &RegionLog)> {
        self.regions.iter()
    }
}

fn next_of<'a>(next: &AtomicUsize, files: &'a [PathBuf]) -> Option<(usize, &'a Path)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    files.get(number).map(|path| (number, path.as_path()))
}

fn index_file(fs: &dyn FileSystem, number: usize, path: &Path) -> Result<Option<FileIndex>> {
    let mut index = FileIndex::default();
    let mut reader = match WalReader::open(fs, path) {
        Ok(reader) => reader,
        Err(ReadError::Corrupt { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if reader.header().has_compression() {
        return Ok(None);
    }
    loop {
        let start = reader.position();
        match reader.next() {
            Ok(Some(entry)) => index.add(entry, Run { file: number, start, end: reader.position() }),
            Ok(None) => return Ok(Some(index)),
            Err(ReadError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        if index.runs.len() > RUNS_MAX {
            return Ok(None);
        }
    }
}

impl FileIndex {
    fn add(&mut self, entry: WalEntry, run: Run) {
        self.entries += 1;
        match self.runs.last_mut() {
            Some((region, _, last)) if *region == entry.region => last.end = run.end,
            _ => self.runs.push((entry.region, entry.table, run)),
        }
    }
}

impl RegionLog {
    /// Hands every entry to `each`, in order.
    ///
    /// # Errors
    /// What the storage or `each` says; `IOException` when a file is not what it was.
    pub fn for_each(&self, fs: &dyn FileSystem, mut each: impl FnMut(WalEntry) -> Result<()>) -> Result<()> {
        for run in &self.runs {
            let path = self.files.get(run.file).ok_or_else(|| HBaseError::io("no such log"))?;
            let mut reader = WalReader::open_part(fs, path, run.start..run.end)?;
            while let Some(entry) = reader.next()? {
                each(entry)?;
            }
        }
        Ok(())
    }

    /// Bytes of the entries.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// Writes the entries to a file below `recovered.edits` of the region's directory, for whoever opens it later. Doing it
    /// again gives the same file.
    ///
    /// # Errors
    /// What the storage says.
    pub fn write_recovered_edits(&self, fs: &dyn FileSystem, region_dir: &Path, worker: &str) -> Result<()> {
        let mut edits: Option<Edits> = None;
        self.for_each(fs, |entry| {
            if entry.is_marker() && !entry.cells.iter().any(|cell| markers::is_compaction(&cell.as_cell())) {
                return Ok(());
            }
            let edits = match &mut edits {
                Some(edits) => edits,
                None => edits.insert(Edits::create(fs, region_dir, &self.files[0], worker, entry.seq_id)?),
            };
            edits.push(&entry);
            Ok(edits.spill_if_long()?)
        })?;
        if let Some(mut edits) = edits {
            edits.complete()?;
            edits.publish(fs)?;
        }
        Ok(())
    }
}
