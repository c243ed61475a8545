//! [`Entry`]: the format of a cached row.
//!
//! ```text
//! i64 expires, ms since 1970 | u16 row bytes | u8 markers seen | u8 0 | u32 coverage bytes
//! row | coverage | cells, each u32 big-endian length, KeyValue without tags
//! ```
//! The coverage lists the columns that the entry covers. It is empty for all columns. Otherwise it
//! has for each family `u8 bytes, name, u32 count` ([`ALL`] for all columns of the family) and each
//! qualifier as `u32 bytes, qualifier`, sorted. All numbers except those of cells are
//! little-endian. A covered column without a cell does not exist in the row.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use evenkeel_block_cache::bucket::rows::RowUpdate;
use evenkeel_common::length;
use evenkeel_common::{CellBuffer, CellRef, CellType};

use crate::operations::{FamilyColumns, Scan};

const HEADER_BYTES: usize = 16;
/// The count that stands for all columns.
const ALL: u32 = u32::MAX;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    /// The last time at which it may be served; `i64::MAX` for no limit.
    pub expires_ms: i64,
    /// True if the read that filled it met any marker.
    pub saw_markers: bool,
    pub row: &'a [u8],
    pub coverage: &'a [u8],
    pub cells: &'a [u8],
}

/// How an entry covers a Get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoverageMatch {
    /// All cells of the entry are the answer.
    Exact,
    /// Some cells of the entry are the answer.
    Superset,
    /// The entry cannot answer the Get.
    Unknown,
}

impl<'a> Entry<'a> {
    /// Parses an entry; `None` if the bytes are not one.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let (expires, lengths) = header.split_first_chunk::<8>()?;
        let (row_bytes, flags) = lengths.split_first_chunk::<2>()?;
        let coverage_bytes = flags.last_chunk::<4>()?;
        let (row, rest) = rest.split_at_checked(u16::from_le_bytes(*row_bytes).into())?;
        let (coverage, cells) = rest.split_at_checked(u32::from_le_bytes(*coverage_bytes) as usize)?;
        let expires_ms = i64::from_le_bytes(*expires);
        Some(Self { expires_ms, saw_markers: flags.first() != Some(&0), row, coverage, cells })
    }

    /// Returns the encoded length in bytes.
    pub fn len(&self) -> usize {
        HEADER_BYTES + self.row.len() + self.coverage.len() + self.cells.len()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        bytes.extend(self.expires_ms.to_le_bytes());
        bytes.extend(length::must_u16(self.row.len()).to_le_bytes());
        bytes.extend([u8::from(self.saw_markers), 0]);
        bytes.extend(length::must_u32(self.coverage.len()).to_le_bytes());
        for part in [self.row, self.coverage, self.cells] {
            bytes.extend_from_slice(part);
        }
        bytes
    }

    /// Returns how the entry covers the columns that a Get of its row requests.
    #[inline]
    pub fn covers(&self, scan: &Scan) -> CoverageMatch {
        if self.coverage.is_empty() {
            return if scan.families.is_empty() { CoverageMatch::Exact } else { CoverageMatch::Superset };
        }
        if scan.families.is_empty() {
            return CoverageMatch::Unknown;
        }
        let mut whole = self.families().count() == scan.families.len();
        for asked in &scan.families {
            let Some(known) = self.families().find(|known| known.name == asked.family) else {
                return CoverageMatch::Unknown;
            };
            match known.covers(asked) {
                CoverageMatch::Exact => {}
                CoverageMatch::Superset => whole = false,
                CoverageMatch::Unknown => return CoverageMatch::Unknown,
            }
        }
        if whole { CoverageMatch::Exact } else { CoverageMatch::Superset }
    }

    /// Appends all its cells to `out`.
    pub fn all(&self, out: &mut CellBuffer) {
        out.extend_untagged(self.cells);
    }

    /// Appends the cells that a Get requests to `out`.
    pub fn select(&self, scan: &Scan, out: &mut CellBuffer) {
        for cell in self.iter() {
            let wanted = scan.columns_of(cell.family()).is_some_and(|columns| {
                columns
                    .is_none_or(|columns| columns.binary_search_by(|q| q[..].cmp(cell.qualifier())).is_ok())
            });
            if wanted {
                out.push(&cell);
            }
        }
    }

    /// Returns the entry after a write of these cells to its row. `ages` returns, for a family, the
    /// oldest unexpired timestamp and the time to live.
    pub fn apply_write<'b>(
        &self,
        written: impl Iterator<Item = CellRef<'b>>,
        ages: impl Fn(&[u8]) -> (i64, i64),
    ) -> RowUpdate {
        let mut cells: Vec<(CellRef<'_>, bool)> = self.iter().map(|cell| (cell, false)).collect();
        let (mut expires_ms, mut is_same) = (self.expires_ms, true);
        for cell in written.filter(|cell| self.is_changed_by(cell)) {
            let (oldest, ttl_ms) = ages(cell.family());
            let is_plain = cell.cell_type() == Some(CellType::Put) && cell.tags().is_empty();
            if self.saw_markers || !is_plain || cell.timestamp() < oldest {
                return RowUpdate::Unknown;
            }
            let found = cells.binary_search_by(|(known, _)| compare_columns(known, &cell));
            match found.map(|at| cells.get_mut(at)) {
                Ok(Some((known, _))) if cell.timestamp() < known.timestamp() => continue,
                // Twice in one write: the MemStore decides which one counts.
                Ok(Some((_, true))) => return RowUpdate::Unknown,
                Ok(Some(known)) => *known = (cell, true),
                Ok(None) => {}
                Err(at) => cells.insert(at, (cell, true)),
            }
            is_same = false;
            expires_ms = expires_ms.min(cell.timestamp().saturating_add(ttl_ms));
        }
        if is_same {
            return RowUpdate::Unchanged;
        }
        let mut buffer = CellBuffer::new();
        cells.iter().for_each(|(cell, _)| buffer.push(cell));
        let (cells, _) = buffer.into_parts();
        RowUpdate::Replaced(Entry { expires_ms, cells: &cells, ..*self }.encode())
    }

    /// Merges this entry with another one of the same row, both up to date.
    pub fn merge(&self, other: &Self) -> Vec<u8> {
        let mut known: BTreeMap<&[u8], Option<BTreeSet<&[u8]>>> = BTreeMap::new();
        for family in self.families().chain(other.families()) {
            let columns = known.entry(family.name).or_insert_with(|| Some(BTreeSet::new()));
            match columns.as_mut().filter(|_| family.count != ALL) {
                Some(columns) => columns.extend(family.qualifiers()),
                None => *columns = None,
            }
        }
        let mut coverage = Vec::new();
        for (name, columns) in &known {
            push_family(&mut coverage, name, columns.as_ref().map(|columns| columns.iter().copied()));
        }
        let mut cells: Vec<_> = self.iter().chain(other.iter()).collect();
        cells.sort_by(compare_columns);
        cells.dedup_by(|b, a| compare_columns(a, b).is_eq());
        let mut buffer = CellBuffer::new();
        cells.iter().for_each(|cell| buffer.push(cell));
        let (expires_ms, saw_markers) =
            (self.expires_ms.min(other.expires_ms), self.saw_markers || other.saw_markers);
        let (cells, _) = buffer.into_parts();
        Entry { expires_ms, saw_markers, row: self.row, coverage: &coverage, cells: &cells }.encode()
    }

    /// Returns true if a written cell concerns a covered column.
    fn is_changed_by(&self, cell: &CellRef<'_>) -> bool {
        let of_family =
            matches!(cell.cell_type(), Some(CellType::DeleteFamily | CellType::DeleteFamilyVersion));
        let known = || self.families().find(|known| known.name == cell.family());
        self.coverage.is_empty() || known().is_some_and(|known| of_family || known.has(cell.qualifier()))
    }

    fn iter(&self) -> impl Iterator<Item = CellRef<'a>> + use<'a> {
        let mut rest = self.cells;
        std::iter::from_fn(move || {
            let (len, after) = rest.split_first_chunk::<4>()?;
            let (cell, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
            rest = after;
            Some(CellRef::parse_checked(cell, 0))
        })
    }

    fn families(&self) -> impl Iterator<Item = KnownFamily<'a>> + use<'a> {
        let mut rest = self.coverage;
        std::iter::from_fn(move || {
            let (len, after) = rest.split_first()?;
            let (name, after) = after.split_at_checked((*len).into())?;
            let (count, mut after) = after.split_first_chunk::<4>()?;
            let count = u32::from_le_bytes(*count);
            let qualifiers = Qualifiers(after);
            if count != ALL {
                let mut each = Qualifiers(after);
                each.by_ref().take(count as usize).for_each(|_| {});
                after = each.0;
            }
            rest = after;
            Some(KnownFamily { name, count, qualifiers })
        })
    }
}

/// A family of a coverage.
struct KnownFamily<'a> {
    name: &'a [u8],
    count: u32,
    /// `count` qualifiers, and the bytes after them.
    qualifiers: Qualifiers<'a>,
}

impl<'a> KnownFamily<'a> {
    fn qualifiers(&self) -> impl Iterator<Item = &'a [u8]> {
        self.qualifiers.take(self.count as usize)
    }

    fn has(&self, qualifier: &[u8]) -> bool {
        self.count == ALL || self.qualifiers().any(|known| known == qualifier)
    }

    fn covers(&self, asked: &FamilyColumns) -> CoverageMatch {
        match &asked.qualifiers {
            None if self.count == ALL => CoverageMatch::Exact,
            None => CoverageMatch::Unknown,
            Some(_) if self.count == ALL => CoverageMatch::Superset,
            Some(asked) => self.covers_columns(asked),
        }
    }

    /// Both lists are sorted.
    fn covers_columns(&self, asked: &[bytes::Bytes]) -> CoverageMatch {
        let mut known = self.qualifiers();
        match asked.iter().all(|asked| known.any(|known| known == asked)) {
            true if asked.len() == self.count as usize => CoverageMatch::Exact,
            true => CoverageMatch::Superset,
            false => CoverageMatch::Unknown,
        }
    }
}

#[derive(Clone, Copy)]
struct Qualifiers<'a>(&'a [u8]);

impl<'a> Iterator for Qualifiers<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, after) = self.0.split_first_chunk::<4>()?;
        let (qualifier, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        self.0 = after;
        Some(qualifier)
    }
}

fn compare_columns(a: &CellRef<'_>, b: &CellRef<'_>) -> Ordering {
    a.family().cmp(b.family()).then_with(|| a.qualifier().cmp(b.qualifier()))
}

/// Encodes the coverage of a Get's columns.
pub(super) fn coverage_of(scan: &Scan) -> Vec<u8> {
    let mut bytes = Vec::new();
    for family in &scan.families {
        let qualifiers = family.qualifiers.as_ref().map(|all| all.iter().map(|qualifier| &qualifier[..]));
        push_family(&mut bytes, &family.family, qualifiers);
    }
    bytes
}

fn push_family<'a>(
    coverage: &mut Vec<u8>,
    name: &[u8],
    qualifiers: Option<impl ExactSizeIterator<Item = &'a [u8]>>,
) {
    coverage.push(length::must_u8(name.len()));
    coverage.extend_from_slice(name);
    let count = qualifiers.as_ref().map_or(ALL, |qualifiers| length::must_u32(qualifiers.len()));
    coverage.extend(count.to_le_bytes());
    for qualifier in qualifiers.into_iter().flatten() {
        coverage.extend(length::must_u32(qualifier.len()).to_le_bytes());
        coverage.extend_from_slice(qualifier);
    }
}
