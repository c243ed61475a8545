//! [`StoreView`]: the segments and files of one reader, and which of them a scan needs.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{CellComparator, KeepDeletedCells, KeyBuf, TryResult};
use evenkeel_hfile::{BloomType, ScanOptions};
use smallvec::SmallVec;

use super::mob::MobScan;
use super::{Store, StoreFile, StoreFileScanner, StoreLeaf};
use crate::memstore::{Segment, SegmentScanner};
use crate::operations::{ReadType, Scan, TimeRange};
use crate::scanner::StoreScanner;
use crate::scanner::matcher::{QueryMatcher, ScanInfo, is_get};
use crate::scanner::store_scanner::{LeafSeeker, ScanStart};

/// The state of a store. It is never modified, only replaced.
#[derive(Clone, Debug)]
pub(super) struct StoreState {
    /// Takes writes.
    pub active: Arc<Segment>,
    /// Swapped out by in-memory flushes, the oldest first.
    pub pipeline: Vec<Arc<Segment>>,
    /// Frozen by a flush, the oldest first.
    pub frozen: Vec<Arc<Segment>>,
    /// Open files, the oldest first.
    pub files: Vec<Arc<StoreFile>>,
}

impl StoreState {
    pub(super) fn new(active: Arc<Segment>) -> Self {
        Self { active, pipeline: Vec::new(), frozen: Vec::new(), files: Vec::new() }
    }

    /// All segments, the newest first.
    pub(super) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        std::iter::once(&self.active).chain(self.pipeline.iter().rev()).chain(self.frozen.iter().rev())
    }
}

/// The segments and files that one reader reads: the state of a store at one moment.
#[derive(Clone)]
pub struct StoreView {
    store: Arc<Store>,
    state: Arc<StoreState>,
}

/// Views of the stores that one reader reads. One view is stored inline, which most Gets need.
pub type StoreViews = SmallVec<[StoreView; 1]>;

impl StoreView {
    pub(super) fn new(store: Arc<Store>, state: Arc<StoreState>) -> Self {
        Self { store, state }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Creates a scanner of the visible cells. `columns` are sorted and distinct; `None` means all.
    ///
    /// # Errors
    /// `IOException` from store files.
    pub fn scanner(
        &self,
        scan: &Scan,
        columns: Option<&[Bytes]>,
        read_point: u64,
        now_ms: i64,
    ) -> TryResult<StoreScanner<StoreLeaf>> {
        let info = &self.store.info;
        let start = ScanStart { row_bytes_max: self.store.config.row_bytes_max, ..ScanStart::of(scan) };
        let mut seek = LeafSeeker::new(start, KeyBuf::default());
        let mut leaves = Vec::with_capacity(self.state.segments().count() + self.state.files.len());
        let rows = RowRange { from: &scan.start_row, to: &scan.stop_row, reversed: scan.reversed };
        let wanted = LeafPruner::new(info, scan, rows, columns, now_ms);
        self.seek_leaves(&mut leaves, &wanted, read_point, &mut seek)?;
        let matcher = QueryMatcher::for_scan(info, scan, columns, now_ms);
        let mut scanner = StoreScanner::at(leaves, matcher, info.comparator, seek);
        if self.store.mob.resolves() && !scan.mob.raw {
            scanner.resolve_references(Box::new(MobScan::new(self.store.mob.reader(), scan)));
        }
        Ok(scanner)
    }

    /// Makes a scanner of this view read another row. The scanner must have been made for the plain
    /// Get `scan` ([`Scan::is_plain_get`]) at the same clock time; the row of `scan` itself is
    /// ignored. Do not use the scanner after an error.
    ///
    /// # Errors
    /// `IOException` from store files.
    pub fn go_to_row(
        &self,
        scanner: &mut StoreScanner<StoreLeaf>,
        scan: &Scan,
        row: &[u8],
        columns: Option<&[Bytes]>,
        read_point: u64,
        now_ms: i64,
    ) -> TryResult<()> {
        let rows = RowRange { from: row, to: row, reversed: false };
        let wanted = LeafPruner::new(&self.store.info, scan, rows, columns, now_ms);
        scanner.go_to_row(row, |leaves, seek| self.seek_leaves(leaves, &wanted, read_point, seek))
    }

    /// Returns true if a new reader would read the same segments and files.
    pub fn is_current(&self) -> bool {
        self.store.has_state(&self.state)
    }

    /// Seeks the leaves that the scan needs, the newest first. Reuses existing leaves, and rewinds
    /// those that are not needed to no cell.
    fn seek_leaves(
        &self,
        leaves: &mut Vec<StoreLeaf>,
        wanted: &LeafPruner<'_>,
        read_point: u64,
        seek: &mut LeafSeeker<'_>,
    ) -> TryResult<()> {
        let options = ScanOptions {
            cache_blocks: wanted.scan.cache_blocks && self.store.config.cache.data_on_read,
            pread: wanted.scan.read_type != ReadType::Stream,
            is_compaction: false,
            wait: wanted.scan.wait,
        };
        let mut at = 0;
        for segment in self.state.segments() {
            let is_there = leaves.get(at).is_some_and(|leaf| leaf.is_of_segment(segment));
            let is_wanted = wanted.may_match_segment(segment);
            if is_wanted && !is_there {
                leaves.insert(at, StoreLeaf::Segment(SegmentScanner::new(Arc::clone(segment), read_point)));
            }
            at += seek_or_rewind(leaves, at, is_wanted, is_there, read_point, seek)?;
        }
        for file in self.state.files.iter().rev() {
            let leaf = leaves.get_mut(at).and_then(|leaf| leaf.of_file(file));
            let is_there = leaf.is_some();
            let is_wanted = wanted.may_match_file(file, leaf)?;
            if is_wanted && !is_there {
                let scanner = StoreFileScanner::new(Arc::clone(file), options, read_point);
                leaves.insert(at, StoreLeaf::File(Box::new(scanner)));
            }
            at += seek_or_rewind(leaves, at, is_wanted, is_there, read_point, seek)?;
        }
        Ok(())
    }
}

/// Rewinds an existing leaf at `at`, and seeks it if it is needed. Returns 1 if there is a leaf at
/// `at` afterwards, otherwise 0.
fn seek_or_rewind(
    leaves: &mut [StoreLeaf],
    at: usize,
    is_wanted: bool,
    was_there: bool,
    read_point: u64,
    seek: &mut LeafSeeker<'_>,
) -> TryResult<usize> {
    if was_there && let Some(leaf) = leaves.get_mut(at) {
        leaf.rewind(read_point);
    }
    if is_wanted {
        seek.seek_leaf(leaves, at)?;
    }
    Ok(usize::from(was_there || is_wanted))
}

/// The rows of a scan. Either end is open if it is empty.
#[derive(Clone, Copy)]
struct RowRange<'a> {
    from: &'a [u8],
    to: &'a [u8],
    reversed: bool,
}

/// Decides whether a segment or file can contribute to a scan.
struct LeafPruner<'a> {
    scan: &'a Scan,
    rows: RowRange<'a>,
    column: Option<&'a [u8]>,
    is_get: bool,
    comparator: CellComparator,
    /// Timestamps that can affect the result, including those of markers that hide older cells.
    range: TimeRange,
    oldest_unexpired: i64,
}

impl<'a> LeafPruner<'a> {
    fn new(
        info: &ScanInfo,
        scan: &'a Scan,
        rows: RowRange<'a>,
        columns: Option<&'a [Bytes]>,
        now_ms: i64,
    ) -> Self {
        let mut range = scan.time_range_of(&info.family);
        // A marker after the range may hide a cell in it. With NEW_VERSION_BEHAVIOR, a later put
        // may displace one.
        let sees_past_markers =
            info.keep_deleted_cells != KeepDeletedCells::False && !info.new_version_behavior;
        if !scan.raw && !sees_past_markers {
            range.max = i64::MAX;
        }
        let expires = info.min_versions == 0 && !scan.raw;
        Self {
            scan,
            rows,
            column: columns.and_then(|columns| if let [one] = columns { Some(&one[..]) } else { None }),
            is_get: is_get(scan),
            comparator: info.comparator,
            range,
            oldest_unexpired: if expires { info.oldest_unexpired(now_ms) } else { i64::MIN },
        }
    }

    fn may_match_segment(&self, segment: &Segment) -> bool {
        !segment.is_empty() && segment.may_contain(&self.range, self.oldest_unexpired)
    }

    /// Returns true if the file may contribute. `leaf` is the existing scanner of the file, if
    /// there is one.
    fn may_match_file(&self, file: &StoreFile, leaf: Option<&mut StoreFileScanner>) -> TryResult<bool> {
        if !self.time_range_overlaps(file) {
            return Ok(false);
        }
        if self.is_get && file.reader().has_bloom() {
            let ask = || Ok(self.row_range_overlaps(file) && self.bloom_may_contain_row(file, leaf)?);
            return file.bloom_bypass().may_contain(ask);
        }
        Ok(self.row_range_overlaps(file) && self.bloom_may_contain_prefix(file)?)
    }

    fn time_range_overlaps(&self, file: &StoreFile) -> bool {
        let Some((min, max)) = file.reader().time_range() else { return true };
        max >= self.oldest_unexpired && max >= self.range.min && self.range.compare(min) <= 0
    }

    fn row_range_overlaps(&self, file: &StoreFile) -> bool {
        let (Some(first), Some(last)) = (file.reader().first_key(), file.reader().last_key()) else {
            return false;
        };
        let RowRange { from, to, reversed } = self.rows;
        let (from, to) = if reversed { (to, from) } else { (from, to) };
        let starts_after =
            !from.is_empty() && self.comparator.compare_rows(from, last.as_cell().row()).is_gt();
        let ends_before = !to.is_empty() && self.comparator.compare_rows(to, first.as_cell().row()).is_lt();
        !starts_after && !ends_before
    }

    /// Returns false if the bloom filter excludes the row of a Get, or its only column.
    fn bloom_may_contain_row(
        &self,
        file: &StoreFile,
        leaf: Option<&mut StoreFileScanner>,
    ) -> TryResult<bool> {
        let (reader, row) = (file.reader(), self.rows.from);
        let filters = reader.bloom_filters(self.scan.wait);
        match (self.column, leaf) {
            (Some(column), _) if reader.bloom_type() == BloomType::RowCol => {
                filters.might_contain_row_col(row, column)
            }
            (_, Some(leaf)) => leaf.might_contain_row(row),
            (_, None) => filters.might_contain_row(row),
        }
    }

    /// Returns false if a bloom filter of row prefixes excludes the prefix that all rows of the
    /// scan share.
    fn bloom_may_contain_prefix(&self, file: &StoreFile) -> TryResult<bool> {
        let (reader, row) = (file.reader(), self.rows.from);
        let BloomType::RowPrefix(bytes) = reader.bloom_type() else { return Ok(true) };
        let shared = row.iter().zip(self.rows.to).take_while(|(a, b)| a == b).count();
        match row.get(..shared) {
            Some(prefix) if shared >= bytes as usize => {
                reader.bloom_filters(self.scan.wait).might_contain_row_prefix(prefix)
            }
            _ => Ok(true),
        }
    }
}
