//! [`QueryMatcher`]: decides what to do with each cell of a store, in order.
//!
//! One matcher serves one scan of one store, row by row. It checks each cell in this order: is it
//! in the current row; are all wanted columns served; is it older than any cell that can be
//! returned; has its own time to live passed; is it a delete marker; does a marker hide it; is it
//! in the time range; is its column wanted; is its version wanted; does the filter accept it; has
//! the filter accepted enough versions.
//!
//! | kind | markers | hidden cells |
//! |---|---|---|
//! | user scan | tracked, never returned | dropped |
//! | raw scan | returned | returned |
//! | flush, minor compaction | tracked and kept | dropped, unless a reader may need them |
//! | major compaction | tracked and dropped (not if too young or KEEP_DELETED_CELLS) | as above |
//!
//! A compaction always keeps cells above the smallest read point of open scanners. They do not
//! count as versions.

use std::cmp::Ordering;

use bytes::Bytes;
use evenkeel_common::{CellComparator, CellRef, ColumnFamilyDescriptor, KeepDeletedCells, Result};

use super::columns::{ColumnTracker, VersionLimits};
use super::deletes::{DeleteResult, DeleteTracker};
use super::new_version::NewVersionTracker;
use crate::filter::{Filter, ReturnCode};
use crate::operations::{Scan, TimeRange};

/// A scan's filter, which all its stores share.
pub type FilterSlot = Option<Box<dyn Filter>>;

/// What to do with a cell, and where to go next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchCode {
    /// Take the cell.
    Include,
    /// Take the cell; its column is done.
    IncludeAndSeekNextCol,
    /// Take the cell; its row is done.
    IncludeAndSeekNextRow,
    /// Drop the cell.
    Skip,
    /// Drop the cell; its column is done.
    SeekNextCol,
    /// Drop the cell; its row is done.
    SeekNextRow,
    /// Drop the cell; the filter gives the key to seek.
    SeekNextUsingHint,
    /// The cell belongs to another row.
    Done,
    /// The filter ends the scan.
    DoneScan,
}

impl MatchCode {
    /// Returns true if the cell is taken.
    pub fn includes(self) -> bool {
        matches!(self, Self::Include | Self::IncludeAndSeekNextCol | Self::IncludeAndSeekNextRow)
    }
}

/// The properties of a family that a matcher needs.
#[derive(Clone, Debug)]
pub struct ScanInfo {
    /// The family's name.
    pub family: Bytes,
    /// `VERSIONS`.
    pub max_versions: u32,
    /// `MIN_VERSIONS`.
    pub min_versions: u32,
    /// `TTL`, in milliseconds.
    pub ttl_ms: i64,
    /// `KEEP_DELETED_CELLS`.
    pub keep_deleted_cells: KeepDeletedCells,
    /// `NEW_VERSION_BEHAVIOR`.
    pub new_version_behavior: bool,
    /// `hbase.hstore.time.to.purge.deletes`.
    pub time_to_purge_deletes_ms: i64,
    /// The order of cells.
    pub comparator: CellComparator,
}

impl ScanInfo {
    /// Takes the properties of `family`.
    pub fn new(
        family: &ColumnFamilyDescriptor,
        comparator: CellComparator,
        time_to_purge_deletes_ms: i64,
    ) -> Self {
        Self {
            family: Bytes::copy_from_slice(family.name()),
            max_versions: family.max_versions(),
            min_versions: family.min_versions(),
            ttl_ms: family.ttl_ms(),
            keep_deleted_cells: family.keep_deleted_cells(),
            new_version_behavior: family.new_version_behavior(),
            time_to_purge_deletes_ms,
            comparator,
        }
    }

    /// Returns the timestamp below which cells have expired.
    pub fn oldest_unexpired(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(self.ttl_ms)
    }

    fn limits(&self, max: u32, oldest_unexpired: i64) -> VersionLimits {
        VersionLimits { max, min: self.min_versions, oldest_unexpired }
    }
}

/// How a flush or compaction treats the cells it reads.
#[derive(Clone, Copy, Debug)]
pub struct CompactionMode {
    /// True if every file of the store is read, so that no other file needs a marker.
    pub drop_deletes: bool,
    /// No reader reads at a point below this.
    pub smallest_read_point: u64,
    /// No put of the files is older than this.
    pub earliest_put_timestamp: i64,
}

#[derive(Debug)]
enum ScanKind {
    User(UserScan),
    Raw(UserScan),
    Compaction(CompactionMode),
    /// For flushes and minor compactions with NEW_VERSION_BEHAVIOR.
    KeepAll,
}

/// The parts of a scan that a matcher needs.
#[derive(Debug)]
struct UserScan {
    range: TimeRange,
    is_get: bool,
    reversed: bool,
    /// The stop row, if the scan includes it. If the scan excludes it, the caller does not enter
    /// that row. A Get has only one row.
    last_row: Option<Bytes>,
    see_past_markers: bool,
    /// The maximum number of versions of a column that the filter accepts, if there is a filter.
    versions_after_filter: u32,
    filtered: FilteredVersions,
    saw_markers: bool,
}

/// Counts the versions of a column that the filter accepted.
#[derive(Debug, Default)]
struct FilteredVersions {
    count: u32,
    in_column: bool,
    qualifier: Vec<u8>,
}

#[derive(Debug)]
enum Trackers {
    Normal { deletes: DeleteTracker, columns: ColumnTracker },
    NewVersion(Box<NewVersionTracker>),
}

/// The matcher of one scan of one store. See the module.
#[derive(Debug)]
pub struct QueryMatcher {
    kind: ScanKind,
    trackers: Trackers,
    comparator: CellComparator,
    keep_deleted_cells: KeepDeletedCells,
    time_to_purge_deletes_ms: i64,
    oldest_unexpired: i64,
    now_ms: i64,
    has_row: bool,
    row: Vec<u8>,
    /// Used by flushes and compactions.
    hidden_column: HiddenColumn,
}

impl QueryMatcher {
    /// Creates the matcher of a Get or Scan; `columns` are sorted and distinct.
    pub fn for_scan(info: &ScanInfo, scan: &Scan, columns: Option<&[Bytes]>, now_ms: i64) -> Self {
        let oldest_unexpired = if scan.raw { 0 } else { info.oldest_unexpired(now_ms) };
        let family_max = if scan.raw { u32::MAX } else { info.max_versions };
        let result_max = scan.max_versions.min(family_max);
        let checked_max = if scan.filter.is_some() { family_max } else { result_max };
        let user = UserScan {
            range: scan.time_range_of(&info.family),
            is_get: is_get(scan) && !scan.raw,
            reversed: scan.reversed,
            last_row: last_row(scan),
            see_past_markers: info.keep_deleted_cells != KeepDeletedCells::False,
            versions_after_filter: result_max,
            filtered: FilteredVersions::default(),
            saw_markers: false,
        };
        let trackers = if info.new_version_behavior && !scan.raw {
            let limits = info.limits(result_max, oldest_unexpired);
            Trackers::NewVersion(Box::new(NewVersionTracker::new(columns, info.max_versions, limits)))
        } else {
            let limits = info.limits(checked_max, oldest_unexpired);
            Trackers::Normal {
                deletes: DeleteTracker::default(),
                columns: ColumnTracker::new(columns, limits),
            }
        };
        let kind = if scan.raw { ScanKind::Raw(user) } else { ScanKind::User(user) };
        Self::new(info, kind, trackers, oldest_unexpired, now_ms)
    }

    /// Creates the matcher of a flush or compaction.
    pub fn for_compaction(info: &ScanInfo, mode: CompactionMode, now_ms: i64) -> Self {
        let oldest_unexpired = info.oldest_unexpired(now_ms);
        let limits = info.limits(info.max_versions, oldest_unexpired);
        let trackers = if info.new_version_behavior {
            Trackers::NewVersion(Box::new(NewVersionTracker::new(None, info.max_versions, limits)))
        } else {
            Trackers::Normal { deletes: DeleteTracker::default(), columns: ColumnTracker::new(None, limits) }
        };
        let keep_all = info.new_version_behavior && !mode.drop_deletes;
        let kind = if keep_all { ScanKind::KeepAll } else { ScanKind::Compaction(mode) };
        Self::new(info, kind, trackers, oldest_unexpired, now_ms)
    }

    fn new(info: &ScanInfo, kind: ScanKind, trackers: Trackers, oldest_unexpired: i64, now_ms: i64) -> Self {
        Self {
            kind,
            trackers,
            comparator: info.comparator,
            keep_deleted_cells: info.keep_deleted_cells,
            time_to_purge_deletes_ms: info.time_to_purge_deletes_ms,
            oldest_unexpired,
            now_ms,
            has_row: false,
            row: Vec::new(),
            hidden_column: HiddenColumn::default(),
        }
    }

    /// Resets a Get's matcher for another row.
    pub fn restart(&mut self) {
        self.clear_row();
        if let ScanKind::User(user) | ScanKind::Raw(user) = &mut self.kind {
            user.saw_markers = false;
        }
    }

    /// Returns true if a user scan has read any marker.
    pub fn saw_markers(&self) -> bool {
        matches!(&self.kind, ScanKind::User(user) if user.saw_markers)
    }

    /// Returns the bytes of the requested columns and of the state of the current row.
    pub fn held_bytes(&self) -> u64 {
        self.trackers.held_bytes() + self.row.capacity() as u64
    }

    /// The current row. Valid if [`QueryMatcher::is_on_row`].
    pub fn row(&self) -> &[u8] {
        &self.row
    }

    /// Returns true if `row` is the current row.
    #[inline]
    pub fn is_on_row(&self, row: &[u8]) -> bool {
        self.has_row && self.row == row
    }

    /// Starts a row.
    pub fn set_row(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        self.has_row = true;
        self.trackers.reset();
        self.hidden_column.known = false;
        if let ScanKind::User(user) | ScanKind::Raw(user) = &mut self.kind {
            user.filtered.in_column = false;
        }
    }

    /// Skips a row. [`QueryMatcher::row`] returns it afterwards, but it is not matched.
    pub fn pass_row(&mut self, row: &[u8]) {
        self.row.clear();
        self.row.extend_from_slice(row);
        self.has_row = false;
    }

    /// Ends the row. [`QueryMatcher::row`] still returns it.
    pub fn clear_row(&mut self) {
        self.has_row = false;
    }

    /// Returns the next column to seek, if it is known.
    pub fn column_hint(&self) -> Option<&[u8]> {
        self.trackers.hint()
    }

    /// Returns true if the scan continues after the current row.
    pub fn more_rows_may_exist(&self) -> bool {
        let (ScanKind::User(user) | ScanKind::Raw(user)) = &self.kind else { return true };
        if user.is_get {
            return false;
        }
        let Some(last) = &user.last_row else { return true };
        let order = self.comparator.compare_rows(&self.row, last);
        order == if user.reversed { Ordering::Greater } else { Ordering::Less }
    }

    /// Decides what to do with a cell. `is_first` is true if the cell is the first of its row.
    ///
    /// # Errors
    /// Errors of the filter, and `IOException` if cells are out of order.
    #[inline]
    pub fn matches(
        &mut self,
        cell: &CellRef<'_>,
        is_first: bool,
        filter: &mut FilterSlot,
    ) -> Result<MatchCode> {
        if filter.as_ref().is_some_and(|filter| filter.filter_all_remaining()) {
            return Ok(MatchCode::DoneScan);
        }
        if !is_first && !self.is_on_row(cell.row()) {
            return Ok(MatchCode::Done);
        }
        if matches!(self.kind, ScanKind::KeepAll) {
            return Ok(MatchCode::Include);
        }
        if let Some(code) = self.check_age(cell) {
            return Ok(code);
        }
        match &mut self.kind {
            ScanKind::Compaction(mode) => {
                let mode = *mode;
                self.match_compaction(cell, mode).map(without_seeks)
            }
            ScanKind::Raw(user) => match_column(user, &mut self.trackers, cell, filter),
            ScanKind::User(user) => match_user(user, &mut self.trackers, cell, filter),
            ScanKind::KeepAll => Ok(MatchCode::Include),
        }
    }

    #[inline]
    fn check_age(&mut self, cell: &CellRef<'_>) -> Option<MatchCode> {
        if self.trackers.done() {
            return Some(MatchCode::SeekNextRow);
        }
        if self.trackers.ends_column(cell.timestamp()) {
            return Some(self.trackers.next_row_or_column(cell));
        }
        let ttl_ms = cell.ttl_ms()?;
        (cell.timestamp().saturating_add(ttl_ms) < self.now_ms).then_some(MatchCode::Skip)
    }

    fn match_compaction(&mut self, cell: &CellRef<'_>, mode: CompactionMode) -> Result<MatchCode> {
        let may_be_unseen = cell.seq_id() > mode.smallest_read_point;
        if !cell.is_delete() {
            let code = match self.trackers.check_deleted(cell)? {
                Some(code) => code,
                None => self.trackers.check_versions(cell, may_be_unseen)?,
            };
            if code == MatchCode::SeekNextCol {
                self.hidden_column.set(cell.qualifier());
            }
            return Ok(code);
        }
        if may_be_unseen {
            return Ok(MatchCode::Include);
        }
        if self.hidden_column.is(cell.qualifier()) {
            return Ok(MatchCode::Skip);
        }
        self.track_delete(cell);
        if !mode.drop_deletes {
            return Ok(MatchCode::Include);
        }
        match self.try_drop_marker(cell, mode.earliest_put_timestamp) {
            Some(code) => Ok(code),
            None => self.trackers.check_versions(cell, false),
        }
    }

    fn keeps_deleted(&self, timestamp: i64) -> bool {
        match self.keep_deleted_cells {
            KeepDeletedCells::False => false,
            KeepDeletedCells::True => true,
            KeepDeletedCells::Ttl => timestamp >= self.oldest_unexpired,
        }
    }

    fn track_delete(&mut self, cell: &CellRef<'_>) {
        if !self.keeps_deleted(cell.timestamp()) {
            self.trackers.add_delete(cell);
        }
    }

    /// Decides whether a major compaction drops a marker; `None` if that depends on the version
    /// count.
    fn try_drop_marker(&mut self, cell: &CellRef<'_>, earliest_put: i64) -> Option<MatchCode> {
        let timestamp = cell.timestamp();
        let purge_ms = self.time_to_purge_deletes_ms;
        if purge_ms > 0 && self.now_ms.saturating_sub(timestamp) <= purge_ms {
            return Some(MatchCode::Include);
        }
        if !self.keeps_deleted(timestamp) {
            return Some(MatchCode::Skip);
        }
        (timestamp < earliest_put).then(|| self.trackers.next_row_or_column(cell))
    }
}

/// The column in which a compaction keeps no further cell, because a marker hides the rest or there
/// are enough newer versions. Later markers of the column are dropped, too: HBase's compactions
/// seek to the next column here.
#[derive(Debug, Default)]
struct HiddenColumn {
    known: bool,
    qualifier: Vec<u8>,
}

impl HiddenColumn {
    /// Never stores the empty qualifier, because the family's markers have it.
    fn set(&mut self, qualifier: &[u8]) {
        self.known = !qualifier.is_empty();
        self.qualifier.clear();
        self.qualifier.extend_from_slice(qualifier);
    }

    fn is(&self, qualifier: &[u8]) -> bool {
        self.known && self.qualifier == qualifier
    }
}

/// Replaces seeks by skips: a compaction reads every cell and must not skip one above the smallest
/// read point.
fn without_seeks(code: MatchCode) -> MatchCode {
    match code {
        MatchCode::SeekNextCol => MatchCode::Skip,
        MatchCode::IncludeAndSeekNextCol => MatchCode::Include,
        _ => code,
    }
}

/// Returns true if the scan reads exactly one row.
pub fn is_get(scan: &Scan) -> bool {
    scan.is_get
        || (scan.include_start_row
            && scan.include_stop_row
            && !scan.start_row.is_empty()
            && scan.start_row == scan.stop_row)
}

/// Returns the stop row of a scan, if the scan includes it.
fn last_row(scan: &Scan) -> Option<Bytes> {
    (scan.include_stop_row && !scan.stop_row.is_empty()).then(|| scan.stop_row.clone())
}

#[inline]
fn match_user(
    user: &mut UserScan,
    trackers: &mut Trackers,
    cell: &CellRef<'_>,
    filter: &mut FilterSlot,
) -> Result<MatchCode> {
    if cell.is_delete() {
        user.saw_markers = true;
        let order = user.range.compare(cell.timestamp());
        if order == 0 || (order > 0 && !user.see_past_markers) {
            trackers.add_delete(cell);
        }
        return Ok(MatchCode::Skip);
    }
    match trackers.check_deleted(cell)? {
        Some(code) => Ok(code),
        None => match_column(user, trackers, cell, filter),
    }
}

#[inline]
fn match_column(
    user: &mut UserScan,
    trackers: &mut Trackers,
    cell: &CellRef<'_>,
    filter: &mut FilterSlot,
) -> Result<MatchCode> {
    match user.range.compare(cell.timestamp()) {
        order if order > 0 => return Ok(MatchCode::Skip),
        order if order < 0 => return Ok(trackers.next_row_or_column(cell)),
        _ => {}
    }
    let code = trackers.check_column(cell);
    if code != MatchCode::Include {
        return Ok(code);
    }
    let code = trackers.check_versions(cell, false)?;
    match filter {
        Some(filter) if code.includes() => {
            let verdict = filter.filter_cell(cell)?;
            Ok(merge_codes(user, trackers, cell, code, verdict))
        }
        _ => Ok(code),
    }
}

/// Combines the matcher's code with the filter's: the one that drops more wins.
fn merge_codes(
    user: &mut UserScan,
    trackers: &mut Trackers,
    cell: &CellRef<'_>,
    code: MatchCode,
    verdict: ReturnCode,
) -> MatchCode {
    let row_done = code == MatchCode::IncludeAndSeekNextRow;
    let code = match verdict {
        ReturnCode::Skip | ReturnCode::NextCol if row_done => return MatchCode::SeekNextRow,
        ReturnCode::Skip if code == MatchCode::Include => return MatchCode::Skip,
        ReturnCode::Skip => return MatchCode::SeekNextCol,
        ReturnCode::NextCol => return trackers.next_row_or_column(cell),
        ReturnCode::NextRow => return MatchCode::SeekNextRow,
        ReturnCode::SeekNextUsingHint => return MatchCode::SeekNextUsingHint,
        ReturnCode::Include => code,
        ReturnCode::IncludeAndNextCol if row_done => code,
        ReturnCode::IncludeAndNextCol => MatchCode::IncludeAndSeekNextCol,
        ReturnCode::IncludeAndSeekNextRow => MatchCode::IncludeAndSeekNextRow,
    };
    let code = user.filtered.limit(cell, code, user.versions_after_filter);
    if matches!(code, MatchCode::IncludeAndSeekNextCol | MatchCode::SeekNextCol) {
        trackers.done_with_column(cell);
    }
    code
}

impl FilteredVersions {
    fn limit(&mut self, cell: &CellRef<'_>, code: MatchCode, versions_max: u32) -> MatchCode {
        if !self.in_column || cell.qualifier() != self.qualifier {
            self.in_column = true;
            self.count = 0;
            self.qualifier.clear();
            self.qualifier.extend_from_slice(cell.qualifier());
        }
        self.count += 1;
        match code {
            _ if self.count <= versions_max => code,
            MatchCode::IncludeAndSeekNextRow => MatchCode::SeekNextRow,
            _ => MatchCode::SeekNextCol,
        }
    }
}

impl Trackers {
    fn held_bytes(&self) -> u64 {
        match self {
            Self::Normal { deletes, columns } => deletes.held_bytes() + columns.held_bytes(),
            Self::NewVersion(tracker) => tracker.held_bytes(),
        }
    }

    fn reset(&mut self) {
        match self {
            Self::Normal { deletes, columns } => {
                deletes.reset();
                columns.reset();
            }
            Self::NewVersion(tracker) => tracker.reset(),
        }
    }

    #[inline]
    fn done(&self) -> bool {
        match self {
            Self::Normal { columns, .. } => columns.done(),
            Self::NewVersion(tracker) => tracker.done(),
        }
    }

    #[inline]
    fn ends_column(&self, timestamp: i64) -> bool {
        match self {
            Self::Normal { columns, .. } => columns.ends_column(timestamp),
            Self::NewVersion(_) => false,
        }
    }

    fn hint(&self) -> Option<&[u8]> {
        match self {
            Self::Normal { columns, .. } => columns.hint(),
            Self::NewVersion(tracker) => tracker.hint(),
        }
    }

    fn add_delete(&mut self, cell: &CellRef<'_>) {
        match self {
            Self::Normal { deletes, .. } => deletes.add(cell),
            Self::NewVersion(tracker) => tracker.add(cell),
        }
    }

    /// Returns `None` if no marker hides the put.
    #[inline]
    fn check_deleted(&mut self, cell: &CellRef<'_>) -> Result<Option<MatchCode>> {
        match self {
            Self::Normal { deletes, columns } => Ok(match deletes.is_deleted(cell)? {
                DeleteResult::NotDeleted => None,
                DeleteResult::FamilyDeleted | DeleteResult::ColumnDeleted => {
                    Some(columns.next_row_or_column(cell))
                }
                _ => Some(MatchCode::Skip),
            }),
            // No seek: an older put of the column may have been written after the marker.
            Self::NewVersion(tracker) => {
                Ok((tracker.is_deleted(cell) != DeleteResult::NotDeleted).then_some(MatchCode::Skip))
            }
        }
    }

    #[inline]
    fn check_column(&mut self, cell: &CellRef<'_>) -> MatchCode {
        match self {
            Self::Normal { columns, .. } => columns.check_column(cell),
            Self::NewVersion(tracker) => tracker.check_column(cell),
        }
    }

    #[inline]
    fn check_versions(&mut self, cell: &CellRef<'_>, ignore_count: bool) -> Result<MatchCode> {
        match self {
            Self::Normal { columns, .. } => columns.check_versions(cell, ignore_count),
            Self::NewVersion(_) if cell.is_delete() => Ok(MatchCode::Include),
            Self::NewVersion(tracker) => Ok(tracker.check_versions(cell, ignore_count)),
        }
    }

    fn done_with_column(&mut self, cell: &CellRef<'_>) {
        if let Self::Normal { columns, .. } = self {
            columns.done_with_column(cell);
        }
    }

    fn next_row_or_column(&mut self, cell: &CellRef<'_>) -> MatchCode {
        match self {
            Self::Normal { columns, .. } => columns.next_row_or_column(cell),
            Self::NewVersion(_) => MatchCode::SeekNextCol,
        }
    }
}
