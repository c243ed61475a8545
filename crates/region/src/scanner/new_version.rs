//! [`NewVersionTracker`]: columns, versions and deletes of a family with NEW_VERSION_BEHAVIOR.
//!
//! There, what was written last wins, whatever the timestamps say: a marker hides only what was written before it, and
//! a version that was pushed out by newer ones stays out even if those are deleted later. So answers do not depend on
//! when compactions ran.
//!
//! State of a column: *spans*, one a marker over a range of timestamps (and one without, for the open end), by sequence
//! id. A span knows the versions deleted one by one in its time, and counts, for each stretch between two of those,
//! the puts that were live then. A put is looked up in every span from its own sequence id on.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use evenkeel_common::{CellRef, CellType};

use super::columns::VersionLimits;
use super::deletes::DeleteResult;
use super::matcher::MatchCode;

/// The end of time, in sequence ids.
const OPEN: u64 = u64::MAX;

/// What a live put takes in a tree, and what a tree with its first node takes.
const PUT_BYTES: usize = 16;
const NODE_BYTES: usize = 256;

#[derive(Clone, Debug)]
struct Span {
    /// Everything up to this timestamp is deleted at the span's end.
    timestamp: i64,
    /// Timestamp to the sequence ids of markers for exactly that version.
    version_markers: BTreeMap<i64, BTreeSet<u64>>,
    /// End of a stretch to the puts that were live in it.
    live: BTreeMap<u64, BTreeSet<u64>>,
}

impl Span {
    fn ending_in(timestamp: i64) -> Self {
        Self { timestamp, version_markers: BTreeMap::new(), live: BTreeMap::from([(OPEN, BTreeSet::new())]) }
    }

    /// About: what the nodes of the trees take.
    fn held_bytes(&self) -> usize {
        let puts = self.live.values().map(BTreeSet::len).sum::<usize>();
        let markers = self.version_markers.values().map(BTreeSet::len).sum::<usize>();
        size_of::<Self>() + puts * PUT_BYTES + (self.live.len() + markers) * NODE_BYTES
    }

    fn add_version_marker(&mut self, cell: &CellRef<'_>) {
        let seq_id = cell.seq_id();
        self.version_markers.entry(cell.timestamp()).or_default().insert(seq_id);
        let stretch =
            self.live.range(seq_id..).next().map(|(_, puts)| puts.range(..seq_id).copied().collect());
        self.live.insert(seq_id, stretch.unwrap_or_default());
    }

    /// The sequence id of the first marker for exactly this version that came after the put.
    fn version_marker_after(&self, timestamp: i64, seq_id: u64) -> Option<u64> {
        self.version_markers.get(&timestamp)?.range(seq_id..).next().copied()
    }

    /// Counts a put in every stretch it lived in; false when there is one with enough others.
    fn count_put(&mut self, seq_id: u64, until: u64, versions_max: usize) -> bool {
        if seq_id > until {
            return true;
        }
        for (_, puts) in self.live.range_mut(seq_id..=until) {
            if puts.len() >= versions_max {
                return false;
            }
            puts.insert(seq_id);
        }
        true
    }
}

type Spans = BTreeMap<u64, Span>;

/// The tracker of one scan.
#[derive(Debug)]
pub(super) struct NewVersionTracker {
    columns: Option<Vec<Bytes>>,
    index: usize,
    /// Versions that the family keeps.
    family_versions_max: usize,
    limits: VersionLimits,
    family_spans: Spans,
    spans: Spans,
    qualifier: Option<Vec<u8>>,
    last_put: Option<(i64, u64)>,
    count: u32,
}

impl NewVersionTracker {
    pub(super) fn new(columns: Option<&[Bytes]>, family_versions_max: u32, limits: VersionLimits) -> Self {
        let columns = columns.filter(|columns| !columns.is_empty()).map(<[Bytes]>::to_vec);
        let mut tracker = Self {
            columns,
            index: 0,
            family_versions_max: family_versions_max as usize,
            limits,
            family_spans: Spans::new(),
            spans: Spans::new(),
            qualifier: None,
            last_put: None,
            count: 0,
        };
        tracker.reset();
        tracker
    }

    /// Bytes of the columns asked for and of what is known of the row at hand.
    pub(super) fn held_bytes(&self) -> u64 {
        let columns = self.columns.as_deref().map_or(0, size_of_val);
        let spans =
            self.family_spans.values().chain(self.spans.values()).map(Span::held_bytes).sum::<usize>();
        (size_of::<Self>() + columns + spans) as u64
    }

    pub(super) fn reset(&mut self) {
        self.family_spans = Spans::from([(OPEN, Span::ending_in(i64::MIN))]);
        self.spans.clear();
        self.qualifier = None;
        self.last_put = None;
        self.index = 0;
        self.count = 0;
    }

    /// Goes to the cell's column; gives the sequence id of a newer put of the same version.
    fn enter(&mut self, cell: &CellRef<'_>) -> Option<u64> {
        let put = (cell.type_code() == CellType::Put.code()).then(|| (cell.timestamp(), cell.seq_id()));
        if self.qualifier.as_deref() != Some(cell.qualifier()) {
            self.qualifier = Some(cell.qualifier().to_vec());
            self.spans = self.family_spans.clone();
            self.count = 0;
        } else if let (Some((timestamp, seq_id)), Some(last)) = (self.last_put, put)
            && timestamp == last.0
        {
            return Some(seq_id);
        }
        self.last_put = put;
        None
    }

    /// Takes note of a marker. A family's marker belongs to the empty qualifier too.
    pub(super) fn add(&mut self, cell: &CellRef<'_>) {
        self.enter(cell);
        let of_family =
            matches!(cell.cell_type(), Some(CellType::DeleteFamily | CellType::DeleteFamilyVersion));
        if of_family {
            add_to(&mut self.family_spans, cell);
        }
        add_to(&mut self.spans, cell);
    }

    pub(super) fn is_deleted(&mut self, cell: &CellRef<'_>) -> DeleteResult {
        let newer = self.enter(cell);
        let (timestamp, seq_id) = (cell.timestamp(), cell.seq_id());
        for (_, span) in self.spans.range_mut(seq_id..) {
            let marker = span.version_marker_after(timestamp, seq_id);
            let until = newer.unwrap_or(OPEN).min(marker.unwrap_or(OPEN));
            if !span.count_put(seq_id, until, self.family_versions_max) {
                return DeleteResult::VersionMasked;
            }
            if marker.is_some() {
                return DeleteResult::VersionDeleted;
            }
            if timestamp <= span.timestamp {
                return DeleteResult::ColumnDeleted;
            }
        }
        if newer.is_some() { DeleteResult::VersionMasked } else { DeleteResult::NotDeleted }
    }

    pub(super) fn done(&self) -> bool {
        self.columns.as_ref().is_some_and(|columns| self.index >= columns.len())
    }

    pub(super) fn hint(&self) -> Option<&[u8]> {
        self.columns.as_ref()?.get(self.index).map(|column| &column[..])
    }

    pub(super) fn check_column(&mut self, cell: &CellRef<'_>) -> MatchCode {
        let Some(columns) = &self.columns else { return MatchCode::Include };
        while let Some(wanted) = columns.get(self.index) {
            match cell.qualifier().cmp(&wanted[..]) {
                Ordering::Less => return MatchCode::SeekNextCol,
                Ordering::Equal => return MatchCode::Include,
                Ordering::Greater => self.index += 1,
            }
        }
        MatchCode::SeekNextRow
    }

    pub(super) fn check_versions(&mut self, cell: &CellRef<'_>, ignore_count: bool) -> MatchCode {
        if ignore_count {
            return MatchCode::Include;
        }
        self.count += 1;
        let mut limit = self.limits.max;
        if cell.timestamp() < self.limits.oldest_unexpired {
            limit = limit.min(self.limits.min);
        }
        match self.count.cmp(&limit) {
            Ordering::Less => MatchCode::Include,
            Ordering::Equal => MatchCode::IncludeAndSeekNextCol,
            Ordering::Greater => MatchCode::SeekNextCol,
        }
    }
}

fn add_to(spans: &mut Spans, cell: &CellRef<'_>) {
    match cell.cell_type() {
        Some(CellType::DeleteFamily | CellType::DeleteColumn) => {
            spans.insert(cell.seq_id(), Span::ending_in(cell.timestamp()));
        }
        _ => {
            if let Some((_, span)) = spans.range_mut(cell.seq_id()..).next() {
                span.add_version_marker(cell);
            }
        }
    }
}
