//! Splitting of a dead server's file: its edits, sorted by region, are written to files that the
//! regions replay when they open.
//!
//! For each entry, in order:
//! * if the region's directory is gone, the entry is dropped and counted
//!   ([`SplitOutcome::unclaimed`]): the region was merged, split or deleted, or its directory is
//!   lost;
//! * edits that the master reports as flushed are dropped: whole entries up to the region's
//!   sequence id, single cells up to their store's;
//! * all markers except those of compactions are dropped.
//!
//! A region's edits go to `<region dir>/recovered.edits/<first seq id>-<wal file>-<worker>.temp`, a
//! separate WAL file. When it is complete it is renamed to its highest sequence id, with 19 digits.
//! If a file of that name exists, from another attempt or another log, the one with more edits
//! stays: the one with the lower first sequence id. Two logs may end with the same edit, because
//! edits that were not synced are appended to the next log again. The comparison and the rename
//! exclude those of other threads (`PUBLISHING`), so logs may be split side by side. Two threads
//! must not split logs of the same name at the same time: their temporary files have one name.
//!
//! Splitting is idempotent, whichever server repeats it; a failure leaves no finished file that
//! lacks an edit. Corruption loses only the entries it affects, as far as the format allows to find
//! those after it ([`WalReader::skip_damage`]): each gap is logged, and [`SplitOutcome::corrupt`]
//! indicates that the file must be kept.
//!
//! A file of edits is read back before it is renamed, because the log may be deleted afterwards.
//!
//! Memory: each region has a buffer, which is written to its file at [`APPEND_BUFFER_BYTES`]. All
//! buffers have at most [`SplitOptions::buffer_bytes_max`] together: before one of them would grow
//! beyond that, the longest is written and freed. An entry longer than the limit is buffered alone.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use evenkeel_common::{HBaseError, KeyValue, Result, TableName, length};
use evenkeel_fs::{APPEND_BUFFER_BYTES, AppendFile, CreateOptions, FileSystem};
use parking_lot::{Mutex, MutexGuard};

use crate::entry::{META_FAMILY, WalEntry};
use crate::format::{TRAILER, encode};
use crate::markers;
use crate::names::RECOVERED_EDITS_DIR;
use crate::reader::{EntryName, Gap, ReadError, WalEnd, WalReader};

/// The digits of a sequence id in the name of a file of recovered edits.
const SEQ_ID_DIGITS: usize = 19;

/// The flushed sequence ids of a region, as the master has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSeqIds {
    /// Every edit up to this one is flushed.
    pub region: Option<u64>,
    /// Per family, the sequence id up to which every edit is flushed.
    pub stores: Vec<(Bytes, u64)>,
}

impl StoreSeqIds {
    fn covers_entry(&self, seq_id: u64) -> bool {
        self.region.is_some_and(|flushed| seq_id <= flushed)
    }

    fn covers_cell(&self, family: &[u8], seq_id: u64) -> bool {
        family != META_FAMILY
            && self.stores.iter().any(|(name, flushed)| name == family && seq_id <= *flushed)
    }
}

/// A callback that returns the directory of a region.
pub type RegionDir<'a> = dyn FnMut(&[u8], &TableName) -> Result<Option<PathBuf>> + 'a;

/// The parameters of a split.
pub struct SplitOptions<'a> {
    /// The file system of the WAL root.
    pub fs: &'a dyn FileSystem,
    /// The file to split.
    pub wal: &'a Path,
    /// The splitting server, URL-encoded `host,port`, which distinguishes temporary files of
    /// several workers.
    pub worker: &'a str,
    /// The flushed sequence ids of a region, by encoded name.
    pub last_flushed: &'a mut dyn FnMut(&[u8]) -> Result<StoreSeqIds>,
    /// The directory of a region (encoded name, table) under the WAL root; `None` if the region is
    /// gone.
    pub region_dir: &'a mut RegionDir<'a>,
    /// Called with every entry before it is filtered: some data, such as nonces, is in no file of a
    /// region but only in the log.
    pub on_entry: &'a mut dyn FnMut(&WalEntry),
    /// Called every [`ENTRIES_PER_CHECK`] entries; the split fails if it returns false.
    pub should_continue: &'a mut dyn FnMut() -> bool,
    /// The maximum bytes of the buffers of edits: `hbase.regionserver.hlog.splitlog.buffersize`.
    /// Splits that run side by side share the caller's limit.
    pub buffer_bytes_max: usize,
}

/// The result of a split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitOutcome {
    /// The files of recovered edits, with their regions by encoded name.
    pub files: Vec<(Bytes, PathBuf)>,
    /// Entries read.
    pub entries: u64,
    /// Entries that no region needs, among `entries`.
    pub skipped: u64,
    /// The first corruption, if any. The file must then be kept.
    pub corrupt: Option<String>,
    /// The regions without a directory that have edits in the file, ordered by encoded name.
    /// Markers and edits for replication alone do not count. Whether the edits are lost is known
    /// to hbase:meta alone.
    pub unclaimed: Vec<Unclaimed>,
    /// The gaps, in order; at most [`GAPS_MAX`], the last of which includes all later ones.
    pub gaps: Vec<Gap>,
}

/// Edits of a region that has no directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unclaimed {
    /// The region's table.
    pub table: TableName,
    /// The region's encoded name.
    pub region: Bytes,
    /// Its entries with edits.
    pub entries: u64,
}

/// The maximum number of gaps of one file that are reported separately.
pub const GAPS_MAX: usize = 1000;

/// Splits one file. If it does not exist it was split before, and nothing is done. A file that
/// exists and cannot be read is an error: the split must be repeated.
///
/// # Errors
/// `IOException` of the storage, and the errors of the callbacks. Nothing is left half done, so the
/// split can be repeated.
pub fn split_wal(mut options: SplitOptions<'_>) -> Result<SplitOutcome> {
    if !recover_lease(&mut options)? {
        return Ok(SplitOutcome::default());
    }
    let mut reader = match WalReader::open(options.fs, options.wal) {
        Ok(reader) => reader,
        Err(ReadError::Io(error)) if is_gone(&options, &error)? => return Ok(SplitOutcome::default()),
        Err(error) => return Err(error.into()),
    };
    let outcome = SplitOutcome::default();
    let mut split = Split { options, regions: HashMap::new(), buffered: 0, outcome, is_gap_open: false };
    match split.run(&mut reader) {
        Ok(()) => Ok(split.outcome),
        Err(error) => {
            split.discard();
            Err(error)
        }
    }
}

/// Takes the file from a writer that may still have it open: its length is final then. Returns
/// false if it does not exist.
fn recover_lease(options: &mut SplitOptions<'_>) -> Result<bool> {
    let should_continue = RefCell::new(&mut *options.should_continue);
    match options.fs.recover(options.wal, &|| (should_continue.borrow_mut())()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns true if the file could not be opened because it does not exist. The caller then takes it
/// as split, so the file system is asked again: a read that fails is not enough.
fn is_gone(options: &SplitOptions<'_>, error: &io::Error) -> io::Result<bool> {
    Ok(error.kind() == io::ErrorKind::NotFound && !options.fs.exists(options.wal)?)
}

/// The entries between calls of [`SplitOptions::should_continue`].
const ENTRIES_PER_CHECK: u64 = 1024;

/// A split in progress.
struct Split<'a> {
    options: SplitOptions<'a>,
    regions: HashMap<Bytes, SplitTarget>,
    /// The bytes that the buffers of all regions have allocated.
    buffered: usize,
    outcome: SplitOutcome,
    /// Whether the last gap is not logged yet, because the entry after it is unknown.
    is_gap_open: bool,
}

enum SplitTarget {
    Gone { table: TableName, entries: u64 },
    Here { dir: PathBuf, flushed: StoreSeqIds, edits: Option<Box<RecoveredEdits>> },
}

/// The recovered edits of one region.
struct RecoveredEdits {
    temporary: PathBuf,
    file: Box<dyn AppendFile>,
    buffer: Vec<u8>,
    /// The bytes of the buffer that count in [`Split::buffered`]; 0 before the first entry.
    allocated: usize,
    first: u64,
    max: u64,
    entries: u64,
    digest: DefaultHasher,
}

impl Split<'_> {
    fn run(&mut self, reader: &mut WalReader) -> Result<()> {
        loop {
            match reader.next() {
                Ok(Some(entry)) => self.entry(entry)?,
                Ok(None) => break,
                Err(error @ ReadError::Corrupt { .. }) => {
                    self.outcome.corrupt.get_or_insert_with(|| error.to_string());
                    let gap = reader.skip_damage()?;
                    gap.into_iter().for_each(|gap| self.gap(gap));
                }
                Err(error) => return Err(error.into()),
            }
            if self.outcome.entries.is_multiple_of(ENTRIES_PER_CHECK) && !(self.options.should_continue)() {
                return Err(HBaseError::io(format!(
                    "the split of {} was cancelled",
                    self.options.wal.display()
                )));
            }
        }
        self.log_gap(None);
        self.finish()
    }

    /// Adjacent gaps are joined, such as those of entries that use strings of another lost entry.
    fn gap(&mut self, gap: Gap) {
        let is_full = self.outcome.gaps.len() >= GAPS_MAX;
        match self.outcome.gaps.last_mut() {
            Some(last) if last.to == gap.from || is_full => last.to = gap.to,
            _ => {
                self.log_gap(None);
                self.outcome.gaps.push(gap);
                self.is_gap_open = true;
            }
        }
    }

    fn log_gap(&mut self, after: Option<&EntryName>) {
        if let Some(gap) = self.outcome.gaps.last().filter(|_| std::mem::take(&mut self.is_gap_open)) {
            let after = after.map_or_else(
                || "no entry is after it".to_owned(),
                |after| format!("the entry after is {after}"),
            );
            tracing::error!(wal = %self.options.wal.display(), "edits are lost: {gap}; {after}");
        }
    }

    fn entry(&mut self, mut entry: WalEntry) -> Result<()> {
        self.outcome.entries += 1;
        if self.is_gap_open {
            let name =
                EntryName { region: entry.region.clone(), table: entry.table.clone(), seq_id: entry.seq_id };
            self.log_gap(Some(&name));
        }
        (self.options.on_entry)(&entry);
        if !self.filter(&mut entry)? {
            self.outcome.skipped += 1;
            return Ok(());
        }
        self.write(&entry)
    }

    /// Removes the cells that are not needed. Returns true if any are left.
    fn filter(&mut self, entry: &mut WalEntry) -> Result<bool> {
        let marker = entry.is_marker();
        if marker && entry.cells.iter().any(|cell| markers::is_replication(&cell.as_cell())) {
            return Ok(false);
        }
        let flushed = match self.region(&entry.region, &entry.table)? {
            SplitTarget::Here { flushed, .. } => flushed,
            SplitTarget::Gone { entries, .. } => {
                *entries += u64::from(!marker);
                return Ok(false);
            }
        };
        if flushed.covers_entry(entry.seq_id) {
            return Ok(false);
        }
        if marker && !entry.cells.iter().any(|cell| markers::is_compaction(&cell.as_cell())) {
            return Ok(false);
        }
        entry.cells.retain(|cell| !flushed.covers_cell(cell.as_cell().family(), entry.seq_id));
        Ok(!entry.cells.is_empty())
    }

    fn region(&mut self, region: &Bytes, table: &TableName) -> Result<&mut SplitTarget> {
        if !self.regions.contains_key(region) {
            let found = match (self.options.region_dir)(region, table)? {
                None => SplitTarget::Gone { table: table.clone(), entries: 0 },
                Some(dir) => {
                    SplitTarget::Here { dir, flushed: (self.options.last_flushed)(region)?, edits: None }
                }
            };
            self.regions.insert(region.clone(), found);
        }
        let gone = || SplitTarget::Gone { table: table.clone(), entries: 0 };
        Ok(self.regions.entry(region.clone()).or_insert_with(gone))
    }

    fn write(&mut self, entry: &WalEntry) -> Result<()> {
        let bytes = encode::measure(&entry.key(), entry.cells.iter().map(KeyValue::as_cell)).total;
        while let Some(edits) = self.edits(entry)? {
            let growth = edits.growth(bytes);
            if self.buffered + growth <= self.options.buffer_bytes_max || !self.spill_longest()? {
                break;
            }
        }
        if let Some(edits) = self.edits(entry)? {
            let allocated = edits.push(entry);
            edits.write_if_full()?;
            self.buffered += allocated;
        }
        Ok(())
    }

    /// Returns the recovered edits of an entry's region, and creates their file if there is none.
    fn edits(&mut self, entry: &WalEntry) -> Result<Option<&mut RecoveredEdits>> {
        let (fs, wal, worker) = (self.options.fs, self.options.wal, self.options.worker);
        let SplitTarget::Here { dir, edits, .. } = self.region(&entry.region, &entry.table)? else {
            return Ok(None);
        };
        Ok(Some(match edits {
            Some(edits) => edits,
            None => edits.insert(Box::new(RecoveredEdits::create(fs, dir, wal, worker, entry.seq_id)?)),
        }))
    }

    /// Writes the longest buffer to its file. Returns false if none has entries.
    fn spill_longest(&mut self) -> Result<bool> {
        let all = self.regions.values_mut().filter_map(SplitTarget::edits);
        let Some(longest) = all.max_by_key(|edits| edits.allocated) else { return Ok(false) };
        let freed = longest.spill()?;
        self.buffered -= freed;
        Ok(freed > 0)
    }

    fn finish(&mut self) -> Result<()> {
        let fs = self.options.fs;
        for region in self.regions.values_mut().filter_map(SplitTarget::edits) {
            region.complete()?;
            region.read_back(fs)?;
        }
        for (name, region) in &mut self.regions {
            if let Some(edits) = region.edits() {
                let path = edits.publish(self.options.fs)?;
                self.outcome.files.push((name.clone(), path));
            }
        }
        self.outcome.files.sort();
        self.outcome.unclaimed = self.regions.iter().filter_map(SplitTarget::unclaimed).collect();
        self.outcome.unclaimed.sort_by(|a, b| a.region.cmp(&b.region));
        Ok(())
    }

    fn discard(&mut self) {
        for edits in self.regions.values_mut().filter_map(SplitTarget::edits) {
            if let Err(error) = self.options.fs.delete(&edits.temporary) {
                tracing::warn!(path = %edits.temporary.display(), %error, "temporary edits could not be deleted");
            }
        }
    }
}

impl SplitTarget {
    fn edits(&mut self) -> Option<&mut RecoveredEdits> {
        match self {
            Self::Here { edits, .. } => edits.as_deref_mut(),
            Self::Gone { .. } => None,
        }
    }

    fn unclaimed((region, found): (&Bytes, &Self)) -> Option<Unclaimed> {
        match found {
            Self::Gone { table, entries } if *entries > 0 => {
                Some(Unclaimed { table: table.clone(), region: region.clone(), entries: *entries })
            }
            _ => None,
        }
    }
}

impl RecoveredEdits {
    fn create(
        fs: &dyn FileSystem,
        region_dir: &Path,
        wal: &Path,
        worker: &str,
        first: u64,
    ) -> io::Result<Self> {
        let wal_name = wal.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{first:0width$}-{wal_name}-{worker}.temp", width = SEQ_ID_DIGITS);
        let temporary = region_dir.join(RECOVERED_EDITS_DIR).join(name);
        let file =
            fs.create(&temporary, CreateOptions { overwrite: true, parents: true, ..CreateOptions::SMALL })?;
        let (buffer, digest) = (encode::header(None), DefaultHasher::new());
        Ok(Self { temporary, file, buffer, allocated: 0, first, max: first, entries: 0, digest })
    }

    /// Returns the bytes that the buffer allocates for an entry of `bytes` bytes.
    fn growth(&self, bytes: usize) -> usize {
        let needed = self.buffer.len() + bytes;
        if needed <= self.allocated { 0 } else { needed.max(2 * self.allocated) - self.allocated }
    }

    /// Adds an entry. Returns the bytes that the buffer allocated for it.
    fn push(&mut self, entry: &WalEntry) -> usize {
        let cells = entry.cells.iter().map(KeyValue::as_cell);
        let size = encode::measure(&entry.key(), cells.clone());
        let growth = self.growth(size.total);
        self.allocated += growth;
        self.buffer.reserve_exact(self.allocated - self.buffer.len());
        encode::write(&mut self.buffer, size, &entry.key(), cells);
        self.max = entry.seq_id.max(self.max);
        self.entries += 1;
        digest(&mut self.digest, entry);
        growth
    }

    /// Writes the buffer to the file if the file would not buffer it again. Keeps its memory.
    fn write_if_full(&mut self) -> io::Result<()> {
        if self.buffer.len() >= APPEND_BUFFER_BYTES {
            self.file.append(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Writes the buffer to the file, and frees it. Returns the bytes that it had allocated.
    fn spill(&mut self) -> io::Result<usize> {
        let buffer = std::mem::take(&mut self.buffer);
        self.file.append(&buffer)?;
        Ok(std::mem::take(&mut self.allocated))
    }

    pub(crate) fn complete(&mut self) -> io::Result<()> {
        self.spill()?;
        self.file.append(TRAILER)?;
        self.file.sync()?;
        self.file.close()
    }

    /// Reads a complete file back and compares it.
    fn read_back(&self, fs: &dyn FileSystem) -> Result<()> {
        let differs = || {
            HBaseError::io(format!(
                "{}: the edits read back differ from those written",
                self.temporary.display()
            ))
        };
        let mut reader = WalReader::open(fs, &self.temporary)?;
        let (mut entries, mut read) = (0, DefaultHasher::new());
        while let Some(entry) = reader.next().map_err(|error| match error {
            ReadError::Io(error) => error.into(),
            _ => differs(),
        })? {
            entries += 1;
            digest(&mut read, &entry);
        }
        let is_same = entries == self.entries && read.finish() == self.digest.finish();
        if is_same && reader.end() == Some(WalEnd::Closed) { Ok(()) } else { Err(differs()) }
    }

    /// Renames the file to its final name, unless a file with more edits has it.
    pub(crate) fn publish(&self, fs: &dyn FileSystem) -> Result<PathBuf> {
        let name = format!("{:0width$}", self.max, width = SEQ_ID_DIGITS);
        let path = self.temporary.with_file_name(name);
        let _alone = publishing(&path);
        if fs.exists(&path)? && first_seq_id(fs, &path)?.is_some_and(|first| first <= self.first) {
            fs.delete(&self.temporary)?;
        } else {
            fs.rename(&self.temporary, &path)?;
        }
        Ok(path)
    }
}

/// Locks, by path, that a thread holds while it replaces a file of recovered edits. They belong to
/// the process and not to a caller, because any two splits may have a region in common. A rename
/// waits for a sync, so there are several.
static PUBLISHING: [Mutex<()>; 16] = [const { Mutex::new(()) }; 16];

fn publishing(path: &Path) -> Option<MutexGuard<'static, ()>> {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    PUBLISHING.get(length::index(hasher.finish()) % PUBLISHING.len()).map(Mutex::lock)
}

/// Adds the replayed parts of an entry to a digest.
fn digest(digest: &mut DefaultHasher, entry: &WalEntry) {
    for number in [entry.seq_id, entry.nonce_group, entry.nonce, entry.write_time_ms as u64] {
        digest.write_u64(number);
    }
    digest.write(&entry.region);
    digest.write(entry.table.qualifier().as_bytes());
    digest.write(entry.table.namespace().as_bytes());
    for cell in entry.cells.iter().map(KeyValue::as_cell) {
        [cell.key(), cell.value(), cell.tags()].iter().for_each(|bytes| {
            digest.write_usize(bytes.len());
            digest.write(bytes);
        });
    }
}

/// The sequence id of a file's first entry; `None` if it has no readable one.
fn first_seq_id(fs: &dyn FileSystem, path: &Path) -> Result<Option<u64>> {
    let entry = WalReader::open(fs, path).and_then(|mut reader| reader.next());
    match entry {
        Ok(entry) => Ok(entry.map(|entry| entry.seq_id)),
        Err(ReadError::Io(error)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_fs::MemoryFileSystem;

    use super::*;

    const BYTES_MAX: usize = 2 * APPEND_BUFFER_BYTES;

    fn entry(region: usize, seq_id: u64) -> WalEntry {
        let cell = KeyValue::put(b"row", b"f", b"q", 1, &[7; 100]);
        let region = Bytes::from(format!("{region:032}"));
        WalEntry::new(region, TableName::meta(), seq_id, 1, vec![cell])
    }

    /// Edits come in runs of one region, so that every buffer would become as long as all may be.
    #[test]
    fn the_buffers_of_all_regions_have_one_limit() {
        let fs = MemoryFileSystem::new();
        let options = SplitOptions {
            fs: &fs,
            wal: Path::new("/w.1"),
            worker: "w",
            last_flushed: &mut |_| Ok(StoreSeqIds::default()),
            region_dir: &mut |region, _| {
                Ok(Some(Path::new("/t").join(String::from_utf8_lossy(region).as_ref())))
            },
            on_entry: &mut |_| (),
            should_continue: &mut || true,
            buffer_bytes_max: BYTES_MAX,
        };
        let (regions, outcome) = (HashMap::new(), SplitOutcome::default());
        let mut split = Split { options, regions, buffered: 0, outcome, is_gap_open: false };
        let mut most = 0;
        for number in 0..20_000 {
            split.entry(entry(number / 2000, number as u64 + 1)).expect("buffered");
            let buffers = split.regions.values_mut().filter_map(SplitTarget::edits);
            let allocated: usize = buffers.map(|edits| edits.buffer.capacity()).sum();
            assert_eq!(allocated, split.buffered, "after entry {number}");
            assert!(allocated <= BYTES_MAX, "{allocated} bytes after entry {number}");
            most = most.max(allocated);
        }
        assert!(most > BYTES_MAX / 2, "{most} bytes: the limit is used");
        split.finish().expect("published");
        assert_eq!(split.outcome.files.len(), 10);
    }
}
