//! [`RowCache`]: caches the answers of a region's Gets beside blocks (HBASE-29585). It is never
//! stale.
//!
//! An entry ([`entry`]) has the newest version of each column of one row: of all its columns, or of
//! the columns that one or several Gets requested. It answers every Get of some or all of these
//! columns with one version, any time and no filter. All other Gets read the stores, as do Gets of
//! families with `NEW_VERSION_BEHAVIOR`, or with `MIN_VERSIONS` and a time to live. Rows with tags
//! (a cell may have its own time to live) and rows above [`ENTRY_BYTES_MAX`] are not cached. A row
//! of a family with a time to live is cached until the first of its cells expires.
//!
//! **Writes.** A write updates the cache in three steps:
//!
//! ```text
//! with its number        record   records the number, in a table by the row's hash
//! before it is visible   suspend  stops serving the row's entry; computes the one after the
//!                                 write, if that is possible without reading the stores
//! once it is visible     publish  serves the new entry instead of the old one
//! ```
//! A reader that fills the cache takes its read point after it computed the key and before it
//! reads. Its result is cached only if no write with a higher number was recorded. That check and
//! `suspend_entries` take the same lock, so either the reader sees the record, or the writer finds
//! the entry. Two rows may share a slot of the table; then one of them is not cached this time.
//!
//! If another write of the row follows before the first is published, it finds the entry suspended
//! and drops it. So the entry that a write computes includes every earlier write.
//!
//! **In-place updates.** Only puts compute a new entry, including those of Increments and Appends:
//! a cell that is not older than its column's cell is the newest one, unless a marker hides it. So
//! an entry records whether its read met any marker; if it did, the next write drops it. A write
//! also drops the entry if it grows, if a reader pins it, and if cells have tags.
//!
//! **Other changes.** Bulk loads and compactions that drop markers (which may uncover a cell in the
//! MemStore) change the *generation*, which is part of the key, while readers cannot take a view.
//! So lookups never find old entries, and those age out. Closing the region evicts them. Each open
//! of a region has a new id, whether after a move, split, merge, `alter`, truncation or restart.
//! Flushes and other compactions change no answer.
//!
//! **Switches.** The table's `ROW_CACHE_ENABLED`, or else `row.cache.enabled`, which is off by
//! default. With `cacheBlocks(false)` and `BLOCKCACHE => false`, Gets use the cache without filling
//! it. The clock is assumed never to go back.
//!
//! # Bounds
//! Entries share the block cache's budget. The table of a region has [`LAST_WRITE_SLOTS`] numbers.
//! A write keeps the new entries of its rows until it is visible, at most [`SUCCESSOR_BYTES_MAX`]
//! bytes; its other entries are dropped.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

mod entry;

use evenkeel_common::length;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use evenkeel_block_cache::bucket::rows::RowUpdate;
use evenkeel_block_cache::{BlockCache, BlockKey, BucketCache, FileId};
use evenkeel_common::clock::Clock;
use evenkeel_common::{CellBuffer, KeyValue, RegionInfo, TableDescriptor};

use self::entry::{CoverageMatch, Entry};
use crate::operations::{MobRead, Scan};
use crate::store::StoreEnv;

/// Slots for the numbers of writes.
const LAST_WRITE_SLOTS: usize = 1024;
/// Larger entries are not cached, so that copying one stays short.
const ENTRY_BYTES_MAX: usize = 32 << 10;
/// The maximum bytes of the entries that one write computes.
const SUCCESSOR_BYTES_MAX: usize = 1 << 20;

/// See the module.
pub(super) struct RowCache {
    blocks: Arc<dyn BlockCache>,
    clock: Arc<dyn Clock>,
    /// Identifies this open of the region.
    id: u128,
    generation: AtomicU64,
    families: Vec<FamilyRules>,
    /// The highest number of a write to a row, by the row's hash.
    last_writes: Box<[AtomicU64]>,
    /// True once any entry was cached.
    is_used: AtomicBool,
}

/// The properties of a family that the cache needs.
struct FamilyRules {
    name: Vec<u8>,
    ttl_ms: i64,
    /// True if entries can answer Gets of it.
    is_cacheable: bool,
    /// True if reads fill the cache.
    fills_cache: bool,
}

/// The cache slot of a Get's row.
pub(super) struct CacheSlot<'a> {
    cache: &'a RowCache,
    rows: &'a BucketCache,
    key: BlockKey,
}

/// The rows of a write: the hash of each, and its cells.
pub(super) struct WrittenRows {
    cache: Arc<RowCache>,
    rows: Vec<(u64, Range<usize>)>,
}

/// Entries that become servable once a write is visible.
#[derive(Default)]
pub(super) struct SuspendedEntries {
    cache: Option<Arc<RowCache>>,
    by: u32,
    successors: Vec<(BlockKey, Vec<u8>)>,
}

impl RowCache {
    /// Returns the cache of a region that opens; `None` if its table does not enable it, or if the
    /// block cache keeps no rows.
    pub fn open(env: &StoreEnv, info: &RegionInfo, table: &TableDescriptor) -> Option<Arc<Self>> {
        let is_wanted = table.row_cache_enabled().unwrap_or(env.config.cache.rows) && !info.is_meta();
        if !is_wanted || env.cache.rows().is_none() {
            return None;
        }
        let family = |family: &evenkeel_common::ColumnFamilyDescriptor| FamilyRules {
            name: family.name().to_vec(),
            ttl_ms: family.ttl_ms(),
            is_cacheable: !family.new_version_behavior()
                && (family.min_versions() == 0 || family.ttl_ms() == i64::MAX),
            fills_cache: env.config.for_family(family).cache.data_on_read,
        };
        Some(Arc::new(Self {
            blocks: Arc::clone(&env.cache),
            clock: Arc::clone(&env.clock),
            id: uuid::Uuid::new_v4().as_u128(),
            generation: AtomicU64::new(0),
            families: table.families().map(family).collect(),
            last_writes: (0..LAST_WRITE_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            is_used: AtomicBool::new(false),
        }))
    }

    /// Returns where the answer to a Get may be cached; `None` if entries cannot answer it.
    #[inline]
    pub fn slot_of(&self, scan: &Scan) -> Option<CacheSlot<'_>> {
        let is_plain = scan.max_versions == 1
            && scan.filter.is_none()
            && scan.time_range.is_all()
            && scan.family_time_ranges.is_empty()
            && scan.store_limit < 0
            && scan.store_offset <= 0
            && scan.batch <= 0
            && scan.is_get
            && !(scan.raw || scan.reversed || scan.read_uncommitted)
            && scan.mob == MobRead::default()
            && scan.mvcc_read_point.is_none();
        if !is_plain || !self.all_asked(scan, |family| family.is_cacheable) {
            return None;
        }
        let rows = self.blocks.rows()?;
        Some(CacheSlot { cache: self, rows, key: self.key(self.hash(&scan.start_row)) })
    }

    /// Invalidates every entry.
    pub fn invalidate_all(&self) {
        self.generation.fetch_add(1, SeqCst);
    }

    /// As [`RowCache::invalidate_all`], and frees the entries. Returns their number.
    pub fn evict_all(&self) -> usize {
        let old = self.key(0).file;
        self.invalidate_all();
        self.blocks.rows().map_or(0, |rows| rows.evict_file(old))
    }

    /// Returns the rows of a write's cells.
    pub fn rows_of(self: &Arc<Self>, cells: &[KeyValue]) -> WrittenRows {
        let mut rows: Vec<(u64, Range<usize>)> = Vec::new();
        for (at, cell) in cells.iter().enumerate() {
            let row = cell.as_cell().row();
            match rows.last_mut() {
                Some((_, range)) if cells[range.start].as_cell().row() == row => range.end = at + 1,
                _ => rows.push((self.hash(row), at..at + 1)),
            }
        }
        WrittenRows { cache: Arc::clone(self), rows }
    }

    /// Returns true if all requested families of a scan exist and satisfy `predicate`.
    fn all_asked(&self, scan: &Scan, predicate: impl Fn(&FamilyRules) -> bool) -> bool {
        if scan.families.is_empty() {
            return self.families.iter().all(predicate);
        }
        scan.families.iter().all(|asked| self.family(&asked.family).is_some_and(&predicate))
    }

    fn family(&self, name: &[u8]) -> Option<&FamilyRules> {
        self.families.iter().find(|family| family.name == name)
    }

    fn ttl_ms(&self, family: &[u8]) -> i64 {
        self.family(family).map_or(i64::MAX, |family| family.ttl_ms)
    }

    #[inline]
    fn key(&self, hash: u64) -> BlockKey {
        let generation = u128::from(self.generation.load(SeqCst));
        BlockKey { file: FileId::from_bits(self.id.wrapping_add(generation)), offset: hash }
    }

    /// Returns the hash of a row. It differs for each open, so that clients cannot choose colliding
    /// rows.
    #[inline]
    fn hash(&self, row: &[u8]) -> u64 {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let fold = |h: u64, word: u64| {
            let product = u128::from(h ^ word) * u128::from(FACTOR);
            length::low_u64(product >> 64) ^ length::low_u64(product)
        };
        let (words, rest) = row.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let h = words.iter().fold(length::low_u64(self.id), |h, word| fold(h, u64::from_le_bytes(*word)));
        fold(fold(h, u64::from_le_bytes(last)), row.len() as u64 ^ (self.id >> 64) as u64)
    }

    fn last_write_of(&self, hash: u64) -> &AtomicU64 {
        &self.last_writes[length::index(hash) % LAST_WRITE_SLOTS]
    }
}

impl CacheSlot<'_> {
    /// Appends the answer to a Get to `out`. Returns false if it is not cached.
    #[inline]
    pub fn find(&self, scan: &Scan, out: &mut CellBuffer) -> bool {
        let block = self.rows.get_row(&self.key);
        let entry = block.as_ref().and_then(|block| Entry::parse(block.data()));
        let is_found = entry.is_some_and(|entry| self.answer(entry, scan, out));
        self.rows.count_row(is_found);
        is_found
    }

    fn answer(&self, entry: Entry<'_>, scan: &Scan, out: &mut CellBuffer) -> bool {
        let is_fresh = entry.expires_ms == i64::MAX || self.cache.clock.now_ms() <= entry.expires_ms;
        if entry.row != scan.start_row || !is_fresh {
            return false;
        }
        match entry.covers(scan) {
            CoverageMatch::Exact => entry.all(out),
            CoverageMatch::Superset => entry.select(scan, out),
            CoverageMatch::Unknown => return false,
        }
        true
    }

    /// Returns the columns of a Get, for [`CacheSlot::fill`]; `None` if its answer must not be
    /// cached.
    pub fn requested(&self, scan: &Scan) -> Option<RequestedColumns> {
        let is_kept = scan.cache_blocks && self.cache.all_asked(scan, |family| family.fills_cache);
        is_kept.then(|| RequestedColumns { row: scan.start_row.clone(), coverage: entry::coverage_of(scan) })
    }

    /// Caches a row that was read at `read_point`, unless the row was written since.
    pub fn fill(
        &self,
        cells: &CellBuffer,
        requested: Option<RequestedColumns>,
        read_point: u64,
        saw_markers: bool,
    ) {
        let Some(requested) = requested.filter(|_| !cells.has_tags()) else { return };
        let Some(bytes) = cells.as_contiguous() else { return };
        let expiries =
            cells.iter().map(|cell| cell.timestamp().saturating_add(self.cache.ttl_ms(cell.family())));
        let entry = Entry {
            expires_ms: expiries.min().unwrap_or(i64::MAX),
            saw_markers,
            row: &requested.row,
            coverage: &requested.coverage,
            cells: bytes,
        };
        if entry.len() > ENTRY_BYTES_MAX {
            return;
        }
        self.cache.is_used.store(true, SeqCst);
        let note = self.cache.last_write_of(self.key.offset);
        let bytes = self.merged_with_cached(&entry).unwrap_or_else(|| entry.encode());
        self.rows.insert_row(&self.key, bytes, || note.load(SeqCst) <= read_point);
    }

    /// Merges the entry with the cached columns of the row, unless the result is too large, so that
    /// Gets of different columns do not replace each other's entries. A served entry includes every
    /// write up to the read point, because each write held it before becoming visible. If there is
    /// a later write, nothing is cached.
    fn merged_with_cached(&self, entry: &Entry<'_>) -> Option<Vec<u8>> {
        let block = self.rows.get_row(&self.key)?;
        let there = Entry::parse(block.data()).filter(|there| there.row == entry.row)?;
        let is_part = !there.coverage.is_empty() && !entry.coverage.is_empty();
        if !is_part || self.cache.clock.now_ms() > there.expires_ms {
            return None;
        }
        Some(entry.merge(&there)).filter(|both| both.len() <= ENTRY_BYTES_MAX)
    }
}

/// The row and columns of a Get.
pub(super) struct RequestedColumns {
    row: bytes::Bytes,
    coverage: Vec<u8>,
}

impl WrittenRows {
    /// Records the number of the write. Numbers ascend.
    pub fn record_write(&self, number: u64) {
        self.rows.iter().for_each(|(hash, _)| self.cache.last_write_of(*hash).store(number, SeqCst));
    }

    /// Stops serving the rows' entries, before the write is visible.
    pub fn suspend_entries(self, number: u64, cells: &[KeyValue]) -> SuspendedEntries {
        let Some(rows) = self.cache.blocks.rows().filter(|_| self.cache.is_used.load(SeqCst)) else {
            return SuspendedEntries::default();
        };
        let by = (number & 0xffff_ffff) as u32;
        let (mut successors, mut left) = (Vec::new(), SUCCESSOR_BYTES_MAX);
        for (hash, range) in self.rows {
            let key = self.cache.key(hash);
            let next = |old: &[u8]| match self.cache.successor(old, &cells[range]) {
                RowUpdate::Replaced(next) if next.len() > left => RowUpdate::Unknown,
                next => next,
            };
            let next = rows.begin_row_update(&key, by, next).map(|next| (key, next));
            left -= next.as_ref().map_or(0, |(_, next)| next.len());
            successors.extend(next);
        }
        SuspendedEntries { cache: Some(self.cache), by, successors }
    }
}

impl RowCache {
    /// Returns the entry after a write of some cells of one row.
    fn successor(&self, old: &[u8], cells: &[KeyValue]) -> RowUpdate {
        let (Some(old), Some(first)) = (Entry::parse(old), cells.first()) else { return RowUpdate::Unknown };
        if old.row != first.as_cell().row() {
            return RowUpdate::Unchanged;
        }
        let oldest = |family: &[u8]| self.clock.now_ms().saturating_sub(self.ttl_ms(family));
        let cells = cells.iter().map(KeyValue::as_cell);
        match old.apply_write(cells, |family| (oldest(family), self.ttl_ms(family))) {
            RowUpdate::Replaced(next) if next.len() > ENTRY_BYTES_MAX => RowUpdate::Unknown,
            next => next,
        }
    }
}

impl SuspendedEntries {
    /// Serves the new entries, because the write is visible.
    pub fn publish_entries(self) {
        let Some(rows) = self.cache.as_ref().and_then(|cache| cache.blocks.rows()) else { return };
        for (key, next) in self.successors {
            rows.finish_row_update(&key, self.by, next);
        }
    }
}
