//! Cells stored whole: no encoding, and ROW_INDEX_V1.
//!
//! ```text
//! cell = i32 key_len | i32 value_len | key | value [ | u16 tags_len | tags ]
//!        [ | vlong sequence id ]
//!
//! NONE          cell ...
//! ROW_INDEX_V1  u16 id (7) | cell ... | i32 rows | i32 offset of each row's first cell ...
//!               | i32 bytes of cells
//! ```
//!
//! Seek points are the offsets, from the start of the body, of every [`POINT_CELLS`]th cell, or of
//! more cells if they are large ([`POINT_BYTES`]). A search reads one cache line of the cell at a
//! point, and two or more of each cell it steps over. Both formats have the same seek points, so
//! the row index on disk is only checked.
//!
//! The seek keys hold a [row prefix index](crate::row_prefix_index) of the rows at the points, so a
//! search does not read the cells that it passes:
//!
//! ```text
//! u32 prefix of each point's row (the machine's byte order) ...
//! | u8 1 if every cell has a point | common prefix
//! ```

use std::ops::Range;

use evenkeel_block_cache::Block;
use evenkeel_common::CellRef;
use evenkeel_common::cache_line::{prefetch, prefetch_lines};
use evenkeel_common::varint::{read_u32, read_vlong};

use super::{BlockCursor, Malformed, SeekPoints};
use crate::context::{CellLayout, DataBlockEncoding};
use crate::row_prefix_index::{PREFIX_BYTES, candidates, common_prefix, prefix_of};

/// Cells per seek point. Points and prefixes take two bytes of memory per cell.
pub(crate) const POINT_CELLS: usize = 4;
/// Minimum bytes per seek point, if that makes more points: less than 2 % of memory.
const POINT_BYTES: usize = 512;

const ID_BYTES: usize = 2;
/// Bytes of the lengths before a key.
const LENGTHS_BYTES: usize = 8;
const TAGS_LENGTH_BYTES: usize = 2;

/// A position among whole cells.
#[derive(Debug)]
pub(crate) struct RawCursor {
    layout: CellLayout,
    at: CellSpans,
    /// The lengths of row and family, so that [`BlockCursor::cell`] need not read them again.
    key_lengths: (u16, u8),
    cells_end: usize,
    /// The block was not parsed, so keys are checked as the cursor reaches them.
    checks_keys: bool,
}

/// The parts of a cell.
struct CellParts<'a> {
    key: &'a [u8],
    value: &'a [u8],
    tags: &'a [u8],
    seq_id: u64,
    /// Bytes of the whole cell.
    bytes: usize,
}

/// The ranges of a cell's parts in the body.
#[derive(Clone, Copy, Debug, Default)]
struct CellSpans {
    key_start: usize,
    key_end: usize,
    value_end: usize,
    tags_start: usize,
    tags_end: usize,
    seq_id: u64,
    next: usize,
}

impl CellSpans {
    #[inline]
    fn new(start: usize, parts: &CellParts<'_>, layout: CellLayout) -> Self {
        let key_start = start + LENGTHS_BYTES;
        let key_end = key_start + parts.key.len();
        let value_end = key_end + parts.value.len();
        let tags_start = value_end + if layout.includes_tags { TAGS_LENGTH_BYTES } else { 0 };
        let tags_end = tags_start + parts.tags.len();
        let (seq_id, next) = (parts.seq_id, start + parts.bytes);
        Self { key_start, key_end, value_end, tags_start, tags_end, seq_id, next }
    }
}

impl RawCursor {
    pub fn new(layout: CellLayout) -> Self {
        Self { layout, at: CellSpans::default(), key_lengths: (0, 0), cells_end: 0, checks_keys: false }
    }

    /// The offset in the body of the current cell's end.
    pub fn cell_end(&self) -> usize {
        self.at.next
    }

    /// The start of the cell after the next one, if that is as long as this one.
    #[inline]
    pub fn prefetch_offset(&self) -> usize {
        let start = self.at.key_start.saturating_sub(LENGTHS_BYTES);
        self.at.next + (self.at.next - start)
    }

    /// Moves to the cell at an offset.
    #[inline]
    fn go<'a>(&mut self, data: &'a [u8], start: usize) -> Result<CellRef<'a>, Malformed> {
        let parts = data.get(start..self.cells_end).and_then(|rest| parse(rest, self.layout));
        let parts = parts.ok_or(Malformed)?;
        let cell = match self.checks_keys {
            true => CellRef::new(parts.key, parts.value, parts.tags, parts.seq_id).map_err(|_| Malformed)?,
            false => CellRef::from_checked(parts.key, parts.value, parts.tags, parts.seq_id),
        };
        self.key_lengths = cell.key_lengths();
        self.at = CellSpans::new(start, &parts, self.layout);
        Ok(cell)
    }
}

impl BlockCursor for RawCursor {
    fn points(&self, block: &Block) -> usize {
        block.seek_points().len()
    }

    #[inline]
    fn point_key<'a>(&self, block: &'a Block, point: usize) -> Result<CellRef<'a>, Malformed> {
        let start = *block.seek_points().get(point).ok_or(Malformed)? as usize;
        let rest = block.data().get(start..).ok_or(Malformed)?;
        let (key_len, rest) = rest.split_first_chunk::<4>().ok_or(Malformed)?;
        let key = rest.get(4..).and_then(|rest| rest.get(..u32::from_be_bytes(*key_len) as usize));
        Ok(CellRef::from_checked(key.ok_or(Malformed)?, &[], &[], 0))
    }

    fn point_cell<'a>(&self, block: &'a Block, point: usize) -> Result<CellRef<'a>, Malformed> {
        let data = block.data();
        let start = *block.seek_points().get(point).ok_or(Malformed)? as usize;
        let parts = data.get(start..).and_then(|rest| parse(rest, self.layout)).ok_or(Malformed)?;
        Ok(CellRef::from_checked(parts.key, &[], &[], parts.seq_id))
    }

    #[expect(clippy::indexing_slicing, reason = "an index of `points` points has as many prefixes")]
    fn candidates(&self, block: &Block, points: usize, row: &[u8]) -> Range<usize> {
        match RowPrefixIndex::of(block, points) {
            Some(index) => candidates(row, index.prefix, points, |i| u32::from_ne_bytes(index.prefixes[i])),
            None => 0..points,
        }
    }

    fn prefetch_point(&self, block: &Block, point: usize, lines: usize) {
        let points = block.seek_points();
        let Some(start) = points.get(point) else { return };
        let end = points.get(point + 1).map_or(block.data().len(), |end| *end as usize);
        if let Some(cells) = block.data().get(*start as usize..end) {
            prefetch_lines(cells, lines);
            // The sequence id is at the end of the cell.
            prefetch(cells.as_ptr_range().end.wrapping_sub(1));
        }
    }

    fn every_cell_has_point(&self, block: &Block) -> bool {
        RowPrefixIndex::of(block, block.seek_points().len()).is_some_and(|index| index.all_cells)
    }

    fn enter(&mut self, block: &Block, point: usize) -> Result<(), Malformed> {
        let data = block.data();
        let (first, end) = cell_area(data, self.layout.encoding).ok_or(Malformed)?;
        (self.cells_end, self.checks_keys) = (end, block.seek_points().is_empty());
        let start = match block.seek_points().get(point) {
            Some(start) => *start as usize,
            None if self.checks_keys && point == 0 => first,
            None => return Err(Malformed),
        };
        self.go(data, start).map(drop)
    }

    #[inline]
    fn step<'a>(&'a mut self, block: &'a Block) -> Result<Option<CellRef<'a>>, Malformed> {
        if self.at.next >= self.cells_end {
            return Ok(None);
        }
        self.go(block.data(), self.at.next).map(Some)
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "`go` found these ranges in the same body")]
    fn cell<'a>(&'a self, block: &'a Block) -> CellRef<'a> {
        let (data, at) = (block.data(), &self.at);
        let (key, value) = (&data[at.key_start..at.key_end], &data[at.key_end..at.value_end]);
        CellRef::from_parts(key, value, &data[at.tags_start..at.tags_end], at.seq_id, self.key_lengths)
    }
}

/// The seek keys of a block; see the module.
struct RowPrefixIndex<'a> {
    prefixes: &'a [[u8; PREFIX_BYTES]],
    all_cells: bool,
    prefix: &'a [u8],
}

impl<'a> RowPrefixIndex<'a> {
    /// Returns `None` if the block has no index for `points` points.
    #[inline]
    fn of(block: &'a Block, points: usize) -> Option<Self> {
        let (prefixes, rest) = block.seek_keys().split_at_checked(points * PREFIX_BYTES)?;
        let (all_cells, prefix) = rest.split_first()?;
        Some(Self { prefixes: prefixes.as_chunks().0, all_cells: *all_cells == 1, prefix })
    }

    /// Builds the index of at least one point of a checked body.
    fn build(data: &[u8], points: &[u32], all_cells: bool) -> Option<Box<[u8]>> {
        let row_at = |point: &u32| {
            let key_len = read_u32(data, *point as usize)? as usize;
            let key = data.get(*point as usize + 8..)?.get(..key_len)?;
            Some(CellRef::from_checked(key, &[], &[], 0).row())
        };
        let prefix = common_prefix(row_at(points.first()?)?, row_at(points.last()?)?);
        let mut index = Vec::with_capacity(points.len() * PREFIX_BYTES + 1 + prefix.len());
        for point in points {
            index.extend_from_slice(&prefix_of(row_at(point)?, prefix.len()).to_ne_bytes());
        }
        index.push(u8::from(all_cells));
        index.extend_from_slice(prefix);
        Some(index.into())
    }
}

/// Parses a block's body once: checks every length, and computes the seek points.
pub(crate) fn index(data: &[u8], layout: CellLayout) -> Result<SeekPoints, Malformed> {
    let (mut next, end) = cell_area(data, layout.encoding).ok_or(Malformed)?;
    let mut offsets = Vec::with_capacity((end - next) / (POINT_CELLS * 64) + 1);
    let (mut cells, mut cells_after, mut point) = (0, POINT_CELLS, next);
    while next < end {
        if cells_after >= POINT_CELLS || next - point >= POINT_BYTES {
            offsets.push(u32::try_from(next).map_err(|_| Malformed)?);
            (cells_after, point) = (0, next);
        }
        let cell = data.get(next..end).and_then(|rest| parse(rest, layout)).ok_or(Malformed)?;
        CellRef::new(cell.key, &[], &[], 0).map_err(|_| Malformed)?;
        next += cell.bytes;
        cells_after += 1;
        cells += 1;
    }
    let keys = RowPrefixIndex::build(data, &offsets, offsets.len() == cells).ok_or(Malformed)?;
    Ok(SeekPoints { points: offsets.into(), keys })
}

/// The start and the end of the cells.
fn cell_area(data: &[u8], encoding: DataBlockEncoding) -> Option<(usize, usize)> {
    if encoding == DataBlockEncoding::None {
        return Some((0, data.len()));
    }
    let cells_bytes = read_u32(data, data.len().checked_sub(4)?)? as usize;
    let end = ID_BYTES.checked_add(cells_bytes)?;
    let rows = read_u32(data, end)? as usize;
    (end + 4 + rows.checked_mul(4)? + 4 == data.len()).then_some((ID_BYTES, end))
}

/// Parses the cell at the start of `rest`.
#[inline]
fn parse(rest: &[u8], layout: CellLayout) -> Option<CellParts<'_>> {
    let ([a, b, c, d, e, f, g, h], left) = rest.split_first_chunk::<LENGTHS_BYTES>()?;
    let (key, left) = left.split_at_checked(u32::from_be_bytes([*a, *b, *c, *d]) as usize)?;
    let (value, mut left) = left.split_at_checked(u32::from_be_bytes([*e, *f, *g, *h]) as usize)?;
    let (mut tags, mut seq_id) = (<&[u8]>::default(), 0);
    if layout.includes_tags {
        let (len, behind) = left.split_first_chunk::<TAGS_LENGTH_BYTES>()?;
        (tags, left) = behind.split_at_checked(u16::from_be_bytes(*len) as usize)?;
    }
    if layout.includes_mvcc {
        let (value, len) = read_vlong(left)?;
        seq_id = u64::try_from(value).ok()?;
        left = left.get(len..)?;
    }
    Some(CellParts { key, value, tags, seq_id, bytes: rest.len() - left.len() })
}
