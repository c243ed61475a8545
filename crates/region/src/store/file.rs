//! [`StoreFile`], an open file of a store, and [`StoreFileScanner`], a cursor over it.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod bloom_bypass;
pub(super) mod name;

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{CellRef, ErrorKind, HBaseError, KeyBuf, Result, TryResult};
use evenkeel_fs::{BlocksWeight, FileStatus};
use evenkeel_hfile::{
    HFileReader, HFileScanner, Half, InputResidency, OpenOptions, ReferenceRange, ScanOptions, SeqIds, keys,
};

use self::bloom_bypass::BloomBypass;
use self::name::{FileName, Link};
use super::{CountedFiles, Store, StoreFileInfo};
use crate::layout;
use crate::scanner::{CellSource, KeyValueScanner, LeafScanner};
use crate::store_file_tracker::ListedFile;

/// A reference holds a split key and a flag. A larger file is not a reference.
const REFERENCE_BYTES_MAX: u64 = 64 << 10;

/// An open, immutable file, shared by readers.
#[derive(Debug)]
pub struct StoreFile {
    name: String,
    reader: Arc<HFileReader>,
    max_seq_id: u64,
    cell_seq_ids: SeqIds,
    is_reference: bool,
    /// When a bulk loaded file was created; `i64::MAX` for other files.
    bulk_load_ms: i64,
    modified_ms: i64,
    bloom_bypass: BloomBypass,
    blocks_weight: BlocksWeight,
    _counted: CountedFiles,
}

impl StoreFile {
    /// Opens a file of a directory listing; `None` if it is not a store file.
    pub(super) fn open_listed(store: &Store, status: &FileStatus) -> Result<Option<Self>> {
        let name = status.name();
        let Some(kind) = FileName::parse(name).filter(|_| !status.is_dir) else { return Ok(None) };
        if status.len == 0 && !matches!(kind, FileName::Link(_)) {
            tracing::warn!(path = %status.path.display(), "an empty store file is skipped");
            return Ok(None);
        }
        let opened = Self::open(store, status, &kind);
        if opened.is_err() && store.is_secondary() {
            // The default replica may have archived the file since it was listed.
            let path = store.dirs.archive.join(name);
            if store.env.fs.exists(&path)? {
                return Self::open(store, &FileStatus { path, ..status.clone() }, &kind).map(Some);
            }
        }
        opened.map(Some)
    }

    /// Opens a file that was just moved into the family's directory.
    pub(super) fn open_new(store: &Store, name: &str) -> Result<Self> {
        let status = store.env.fs.status(&store.dirs.family.join(name))?;
        Self::open_listed(store, &status)?.ok_or_else(|| store.error(format!("{name} is not a store file")))
    }

    fn open(store: &Store, status: &FileStatus, kind: &FileName) -> Result<Self> {
        let (path, half) = match kind {
            FileName::HFile { .. } => (status.path.clone(), None),
            FileName::Link(link) => (resolve(store, link)?, None),
            FileName::Reference { file, file_name, parent } => {
                let path = match &**file {
                    FileName::Link(link) => resolve(store, link)?,
                    _ => parent_file(store, parent, file_name)?,
                };
                (path, Some(read_half(store, &status.path)?))
            }
        };
        let options = OpenOptions {
            in_memory: store.family.in_memory(),
            half,
            cache_compressed: store.config.cache.compressed,
            ..OpenOptions::default()
        };
        let is_top = options.half.as_ref().is_some_and(|half| half.range == ReferenceRange::Top);
        let reader = HFileReader::open_path(&*store.env.fs, &path, Arc::clone(&store.env.cache), &options)?;
        store.mob.note_file(&reader);
        let counted = store.env.open_files.count(1);
        let blocks_weight = reader.blocks_weight(&store.env.host);
        Ok(Self { blocks_weight, ..Self::of_reader(reader, status, kind, (&path, is_top), counted) })
    }

    fn of_reader(
        reader: Arc<HFileReader>,
        status: &FileStatus,
        kind: &FileName,
        (path, is_top): (&Path, bool),
        counted: CountedFiles,
    ) -> Self {
        let target = path.file_name().and_then(|name| name.to_str()).and_then(FileName::parse);
        let bulk_seq_id = match target {
            Some(FileName::HFile { bulk_seq_id }) => bulk_seq_id,
            _ => None,
        };
        let keeps_seq_ids = reader.file_infos().get_bool(keys::SKIP_RESET_SEQ_ID).unwrap_or(false);
        let bulk_load_ms = reader.file_infos().get_i64(keys::BULKLOAD_TIMESTAMP);
        let is_bulk_loaded = bulk_seq_id.is_some() || bulk_load_ms.is_some();
        let seq_id = bulk_seq_id.or(reader.max_seq_id()).unwrap_or(0);
        // The two halves of a file must not tie, nor may a bulk loaded file that kept its sequence
        // ids tie with another file.
        let max_seq_id = seq_id + u64::from(is_top) + u64::from(is_bulk_loaded && keeps_seq_ids);
        let cell_seq_ids = match (is_bulk_loaded, keeps_seq_ids) {
            (false, _) => SeqIds::OfFile,
            (true, true) => SeqIds::AtMost(max_seq_id),
            (true, false) => SeqIds::All(max_seq_id),
        };
        Self {
            name: status.name().to_owned(),
            max_seq_id,
            cell_seq_ids,
            is_reference: matches!(kind, FileName::Reference { .. }),
            bulk_load_ms: bulk_load_ms.unwrap_or(i64::MAX),
            modified_ms: status.modified_ms,
            bloom_bypass: BloomBypass::default(),
            blocks_weight: BlocksWeight::default(),
            reader,
            _counted: counted,
        }
    }

    /// Its name in the family's directory.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its entry in a list of the store's files.
    pub(super) fn listed(&self) -> ListedFile {
        let is_own = matches!(FileName::parse(&self.name), Some(FileName::HFile { .. }));
        ListedFile { name: self.name.clone(), bytes: if is_own { self.reader.len() } else { 0 } }
    }

    /// The file's reader.
    pub fn reader(&self) -> &Arc<HFileReader> {
        &self.reader
    }

    /// The file's length in bytes. A reference counts as half of its file.
    pub fn bytes(&self) -> u64 {
        if self.is_reference { self.reader.len() / 2 } else { self.reader.len() }
    }

    /// The weight of its blocks, as it was when the file was opened.
    pub fn blocks_weight(&self) -> BlocksWeight {
        self.blocks_weight
    }

    /// The sequence id up to which it holds every edit of the store.
    pub fn max_seq_id(&self) -> u64 {
        self.max_seq_id
    }

    /// Returns true if it is a link to a file of another region or of the archive.
    pub fn is_link(&self) -> bool {
        // Only names of links, and of references to them, have this character.
        self.name.contains('=')
    }

    /// Returns true if it is a reference to half of another region's file.
    pub fn is_reference(&self) -> bool {
        self.is_reference
    }

    /// Returns true if minor compactions skip it.
    pub fn is_excluded_from_minor(&self) -> bool {
        self.reader.file_infos().get_bool(keys::EXCLUDE_FROM_MINOR_COMPACTION).unwrap_or(false)
    }

    /// Returns true if it was bulk loaded.
    pub fn is_bulk_loaded(&self) -> bool {
        self.cell_seq_ids != SeqIds::OfFile
    }

    /// The rows of its stripe, from the first (inclusive) to the second (exclusive); empty for an
    /// open end. `None` if its file info names no stripe, or if it has cells outside of it.
    pub fn stripe(&self) -> Option<(Bytes, Bytes)> {
        let infos = self.reader.file_infos();
        let start = infos.get(keys::STRIPE_START)?.clone();
        let end = infos.get(keys::STRIPE_END)?.clone();
        let first = self.reader.first_key();
        let last = self.reader.last_key();
        let begins_within = first.is_none_or(|key| key.as_cell().row() >= &start[..]);
        let ends_within = end.is_empty() || last.is_none_or(|key| key.as_cell().row() < &end[..]);
        (begins_within && ends_within && !self.is_reference).then_some((start, end))
    }

    /// When it was written, milliseconds since 1970.
    pub fn modified_ms(&self) -> i64 {
        self.modified_ms
    }

    /// The greatest sequence id of its cells.
    pub fn max_cell_seq_id(&self) -> u64 {
        let of_file = self.reader.max_cell_seq_id();
        match self.cell_seq_ids {
            SeqIds::OfFile => of_file,
            SeqIds::AtMost(seq_id) => of_file.min(seq_id),
            SeqIds::All(seq_id) => seq_id,
        }
    }

    /// Decides whether its bloom filter is consulted.
    pub(super) fn bloom_bypass(&self) -> &BloomBypass {
        &self.bloom_bypass
    }

    /// Its properties, for reports.
    pub fn info(&self) -> StoreFileInfo {
        StoreFileInfo {
            name: self.name.clone(),
            bytes: self.bytes(),
            cells: self.reader.entry_count(),
            max_seq_id: self.max_seq_id,
            is_reference: self.is_reference,
            is_major: self.reader.is_major_compaction(),
            modified_ms: self.modified_ms,
        }
    }

    /// Names of the files that a compaction replaced by this one. None for a bulk loaded file,
    /// which another store wrote.
    pub(super) fn replaces(&self) -> Vec<String> {
        if self.is_bulk_loaded() { Vec::new() } else { self.reader.compacted_files() }
    }

    pub(super) fn evict(&self) {
        if !self.is_reference {
            self.reader.evict();
        }
    }

    /// Files with newer data compare greater (`StoreFileComparators.SEQ_ID`).
    pub(super) fn compare_age(&self, other: &Self) -> Ordering {
        (self.max_seq_id.cmp(&other.max_seq_id))
            .then_with(|| other.bytes().cmp(&self.bytes()))
            .then_with(|| self.bulk_load_ms.cmp(&other.bulk_load_ms))
            .then_with(|| self.name.cmp(&other.name))
    }
}

fn parent_file(store: &Store, parent: &str, file_name: &str) -> Result<PathBuf> {
    let in_region = PathBuf::from(parent).join(store.family.name_text()).join(file_name);
    let live = layout::table_dir(&store.env.root, store.region.table()).join(&in_region);
    if store.env.fs.exists(&live)? {
        return Ok(live);
    }
    Ok(layout::archive_table_dir(&store.env.root, store.region.table()).join(in_region))
}

fn resolve(store: &Store, link: &Link) -> Result<PathBuf> {
    let candidates = link.locations(&store.family.name_text()).map(|path| store.env.root.join(path));
    for path in &candidates {
        if store.env.fs.exists(path)? {
            return Ok(path.clone());
        }
    }
    Err(HBaseError::new(ErrorKind::FileNotFound, format!("no file behind a link: {candidates:?}")))
}

fn read_half(store: &Store, path: &Path) -> Result<Half> {
    let bytes = store.env.fs.read_all(path, REFERENCE_BYTES_MAX)?;
    Half::parse(&bytes).map_err(|error| error.context(path.display()))
}

/// A cursor over a file that skips cells above its read point.
pub struct StoreFileScanner {
    scanner: HFileScanner,
    read_point: u64,
    file: Arc<StoreFile>,
}

impl StoreFileScanner {
    /// Creates a cursor without a current cell; seek before use.
    pub fn new(file: Arc<StoreFile>, options: ScanOptions, read_point: u64) -> Self {
        let mut scanner = file.reader.scanner(options);
        scanner.set_seq_ids(file.cell_seq_ids);
        Self { scanner, read_point, file }
    }

    /// Records in `residency` whether each data block read from here on was cached.
    pub fn track_residency(mut self, residency: &Arc<InputResidency>) -> Self {
        self.scanner.track_residency(Arc::clone(residency));
        self
    }

    /// Returns true if it scans this file.
    pub fn is_of(&self, file: &Arc<StoreFile>) -> bool {
        Arc::ptr_eq(&self.file, file)
    }

    /// See [`HFileScanner::might_contain_row`].
    pub fn might_contain_row(&mut self, row: &[u8]) -> TryResult<bool> {
        self.scanner.might_contain_row(row)
    }

    /// Moves to no cell. The next seek reads at `read_point`.
    pub fn rewind(&mut self, read_point: u64) {
        self.scanner.unset();
        self.read_point = read_point;
    }

    #[inline]
    fn skip_invisible(&mut self) -> TryResult<()> {
        while self.is_beyond_read_point() {
            self.scanner.next()?;
        }
        Ok(())
    }

    #[inline]
    fn is_beyond_read_point(&self) -> bool {
        self.scanner.peek().is_some_and(|cell| cell.seq_id() > self.read_point)
    }

    /// Moves from the last cell of a row to the first visible cell of that row, or of an earlier
    /// row.
    fn seek_visible_row_start(&mut self) -> TryResult<()> {
        let mut key = KeyBuf::default();
        while let Some(last) = self.scanner.cell() {
            key.set_to(&KeyBuf::first_on_row(last.row()).as_cell());
            self.scanner.seek(&key.as_cell())?;
            self.skip_invisible()?;
            if self.scanner.cell().is_some_and(|cell| cell.same_row(&key.as_cell())) {
                break;
            }
            self.scanner.seek_before(&key.as_cell())?;
        }
        Ok(())
    }
}

impl KeyValueScanner for StoreFileScanner {
    #[inline]
    fn peek(&self) -> Option<&CellRef<'_>> {
        self.scanner.peek()
    }

    #[inline]
    fn is_at_end(&self) -> bool {
        !self.scanner.is_seeked()
    }

    #[inline]
    fn advance(&mut self) -> TryResult<()> {
        self.scanner.next()?;
        self.skip_invisible()
    }

    fn seek(&mut self, key: &CellRef<'_>) -> TryResult<()> {
        self.scanner.seek(key)?;
        self.skip_invisible()
    }

    fn reseek(&mut self, key: &CellRef<'_>) -> TryResult<()> {
        self.scanner.reseek(key)?;
        self.skip_invisible()
    }

    fn seek_to_previous_row(&mut self, row: &[u8]) -> TryResult<()> {
        self.scanner.seek_before(&KeyBuf::first_on_row(row).as_cell())?;
        self.seek_visible_row_start()
    }

    fn seek_to_last_row(&mut self) -> TryResult<()> {
        let Some(last) = self.file.reader.last_key() else { return Ok(()) };
        let key = KeyBuf::last_on_row(last.as_cell().row());
        self.scanner.seek_before(&key.as_cell())?;
        self.seek_visible_row_start()
    }
}

impl LeafScanner for StoreFileScanner {
    /// Prefetches the rows that the bloom filter does not exclude; see
    /// [`HFileScanner::prefetch_rows`].
    fn prefetch_rows<'a>(&mut self, rows: impl Iterator<Item = &'a [u8]> + Clone) {
        let asks = self.file.reader.has_bloom() && !self.file.bloom_bypass.is_bypassed();
        self.scanner.prefetch_rows(rows, asks);
    }

    fn share_value(&self) -> Option<Bytes> {
        self.scanner.share_value()
    }

    #[inline]
    fn source(&self) -> CellSource {
        CellSource::of_block(self.file.reader.encoding())
    }

    fn held_bytes(&self) -> u64 {
        self.scanner.held_bytes()
    }

    #[inline]
    fn enter_block(&mut self) -> TryResult<u64> {
        self.scanner.enter_block()
    }

    fn release_block(&mut self) {
        self.scanner.release_block();
    }
}
