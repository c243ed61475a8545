//! A reference for [`NewVersionTracker`](super::NewVersionTracker), implemented with sets: each
//! interval between two markers has the set of the puts that were live in it, copied whenever a
//! marker cuts it. Quadratic, but simple.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_common::{CellRef, CellType};

use super::super::deletes::DeleteResult;

const OPEN: u64 = u64::MAX;

#[derive(Clone, Debug)]
struct Span {
    /// Everything up to this timestamp is deleted at the span's end.
    timestamp: i64,
    /// Sequence ids of markers for exactly one version, by timestamp.
    version_markers: BTreeMap<i64, BTreeSet<u64>>,
    /// The puts that were live in each interval, by the interval's end.
    live: BTreeMap<u64, BTreeSet<u64>>,
}

impl Span {
    fn ending_in(timestamp: i64) -> Self {
        Self { timestamp, version_markers: BTreeMap::new(), live: BTreeMap::from([(OPEN, BTreeSet::new())]) }
    }

    fn add_version_marker(&mut self, cell: &CellRef<'_>) {
        let seq_id = cell.seq_id();
        self.version_markers.entry(cell.timestamp()).or_default().insert(seq_id);
        let interval =
            self.live.range(seq_id..).next().map(|(_, puts)| puts.range(..seq_id).copied().collect());
        self.live.insert(seq_id, interval.unwrap_or_default());
    }

    /// Returns the sequence id of the first marker for exactly this version that came after the
    /// put.
    fn version_marker_after(&self, timestamp: i64, seq_id: u64) -> Option<u64> {
        self.version_markers.get(&timestamp)?.range(seq_id..).next().copied()
    }

    /// Counts a put in every interval in which it was live. Returns false if an interval has enough
    /// others.
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

/// The tracker of one row.
pub(super) struct Reference {
    family_versions_max: usize,
    family_spans: Spans,
    spans: Spans,
    qualifier: Option<Vec<u8>>,
    last_put: Option<(i64, u64)>,
}

impl Reference {
    pub(super) fn new(family_versions_max: usize) -> Self {
        let family_spans = Spans::from([(OPEN, Span::ending_in(i64::MIN))]);
        Self { family_versions_max, family_spans, spans: Spans::new(), qualifier: None, last_put: None }
    }

    /// Enters the cell's column. Returns the sequence id of a newer put of the same version.
    fn enter(&mut self, cell: &CellRef<'_>) -> Option<u64> {
        let put = (cell.type_code() == CellType::Put.code()).then(|| (cell.timestamp(), cell.seq_id()));
        if self.qualifier.as_deref() != Some(cell.qualifier()) {
            self.qualifier = Some(cell.qualifier().to_vec());
            self.spans = self.family_spans.clone();
        } else if let (Some((timestamp, seq_id)), Some(last)) = (self.last_put, put)
            && timestamp == last.0
        {
            return Some(seq_id);
        }
        self.last_put = put;
        None
    }

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
