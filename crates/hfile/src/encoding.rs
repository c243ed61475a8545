//! Cells in data blocks: reading them in place, searching, and writing.
//!
//! The body of a cached block is parsed once, when it is loaded ([`index_cells`]). This checks
//! every length and every key, and computes the *seek points*. A cursor binary-searches the seek
//! points and then steps through a few cells. Cursors check lengths again, at almost no cost, so no
//! block causes a read out of bounds.
//!
//! A block without seek points was not parsed. Cursors also check the keys of its cells, and search
//! from its first cell on.

mod byte_reader;
mod delta;
mod encoder;
mod raw;
mod tags;

use std::cmp::Ordering;
use std::ops::Range;

use evenkeel_block_cache::Block;
use evenkeel_common::cache_line::{LINE_BYTES, prefetch, prefetch_lines};
use evenkeel_common::{CellComparator, CellRef};

use delta::DeltaCursor;
pub(crate) use encoder::{DataBlockEncoder, key_body, shared_bytes};
use raw::RawCursor;

use crate::context::{CellLayout, DataBlockEncoding};

/// The bytes are not cells of the file's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The positions where a search may enter a block; see [`evenkeel_block_cache::BlockParts`].
#[derive(Debug, Default)]
pub(crate) struct SeekPoints {
    pub points: Box<[u32]>,
    pub keys: Box<[u8]>,
}

/// Checks the body of a data block and computes its seek points. A block without cells is
/// malformed.
pub(crate) fn index_cells(body: &[u8], layout: CellLayout) -> Result<SeekPoints, Malformed> {
    match layout.encoding {
        DataBlockEncoding::None => raw::index(body, layout),
        encoding => {
            check_id(body, encoding)?;
            match encoding {
                DataBlockEncoding::RowIndexV1 => raw::index(body, layout),
                _ => delta::index(body, layout),
            }
        }
    }
}

/// Checks the bytes before the cells of a data block that is not parsed.
pub(crate) fn check_head(body: &[u8], layout: CellLayout) -> Result<(), Malformed> {
    match layout.encoding {
        DataBlockEncoding::None => Ok(()),
        encoding => check_id(body, encoding),
    }
}

fn check_id(body: &[u8], encoding: DataBlockEncoding) -> Result<(), Malformed> {
    let id = body.first_chunk::<2>().map(|id| u32::from(u16::from_be_bytes(*id)));
    if id == Some(encoding.code()) { Ok(()) } else { Err(Malformed) }
}

/// A position in a block. Except for queries of seek points it is only used with the block it
/// entered last.
trait BlockCursor {
    /// The number of seek points of the block; 0 if it was not parsed.
    fn points(&self, block: &Block) -> usize;
    /// The key of the cell at a seek point.
    fn point_key<'a>(&self, block: &'a Block, point: usize) -> Result<CellRef<'a>, Malformed>;
    /// The cell at a seek point, without its value.
    fn point_cell<'a>(&self, block: &'a Block, point: usize) -> Result<CellRef<'a>, Malformed>;
    /// The seek points, of `points`, that must be compared with a cell of `row`. Points before the
    /// range are at smaller cells, and points after it at greater ones.
    fn candidates(&self, _block: &Block, points: usize, _row: &[u8]) -> Range<usize> {
        0..points
    }
    /// Prefetches the cell at a seek point.
    fn prefetch_point(&self, _block: &Block, _point: usize, _lines: usize) {}
    /// Returns true if every cell has a seek point.
    fn every_cell_has_point(&self, _block: &Block) -> bool {
        false
    }
    /// Moves to the cell at a seek point. Point 0 is the first cell, also in a block without
    /// points.
    fn enter(&mut self, block: &Block, point: usize) -> Result<(), Malformed>;
    /// Moves to the next cell. `None` at the end, where the position stays.
    fn step<'a>(&'a mut self, block: &'a Block) -> Result<Option<CellRef<'a>>, Malformed>;
    /// The current cell.
    fn cell<'a>(&'a self, block: &'a Block) -> CellRef<'a>;
}

/// A position in a data block of any encoding.
#[derive(Debug)]
pub(crate) enum CellCursor {
    Raw(RawCursor),
    Delta(DeltaCursor),
}

macro_rules! each {
    ($self:expr, $cursor:ident => $do:expr) => {
        match $self {
            CellCursor::Raw($cursor) => $do,
            CellCursor::Delta($cursor) => $do,
        }
    };
}

impl CellCursor {
    pub fn new(layout: CellLayout) -> Self {
        match layout.encoding {
            DataBlockEncoding::None | DataBlockEncoding::RowIndexV1 => Self::Raw(RawCursor::new(layout)),
            _ => Self::Delta(DeltaCursor::new(layout)),
        }
    }

    /// Moves to the block's first cell.
    pub fn first(&mut self, block: &Block) -> Result<(), Malformed> {
        each!(self, c => c.enter(block, 0))
    }

    /// Moves to the block's last cell.
    pub fn last(&mut self, block: &Block) -> Result<(), Malformed> {
        each!(self, c => last(c, block))
    }

    /// Moves to the next cell. `None` at the end of the block.
    #[inline]
    pub fn step<'a>(&'a mut self, block: &'a Block) -> Result<Option<CellRef<'a>>, Malformed> {
        each!(self, c => c.step(block))
    }

    /// The offset in the body of the current cell's end. It is unique in the block.
    pub fn cell_end(&self) -> usize {
        each!(self, c => c.cell_end())
    }

    /// The estimated offset in the body of the cell after the next one.
    #[inline]
    pub fn prefetch_offset(&self) -> Option<usize> {
        match self {
            Self::Raw(cursor) => Some(cursor.prefetch_offset()),
            Self::Delta(_) => None,
        }
    }

    /// Prefetches the memory that a search of a block reads first.
    pub fn prefetch_seek_points(&self, block: &Block) {
        prefetch_lines(block.seek_keys(), SEEK_KEY_LINES);
        let points = block.seek_points();
        points.iter().step_by(LINE_BYTES / size_of::<u32>()).take(SEEK_KEY_LINES).for_each(|p| prefetch(p));
    }

    /// The seek points that a search for the first cell of a row must compare with it. Prefetches
    /// the cell that the search most likely finds.
    pub fn seek_candidates(&self, block: &Block, row: &[u8], order: CellComparator) -> Range<usize> {
        each!(self, c => seek_candidates(c, block, row, order))
    }

    /// As [`CellCursor::seek`] to the first cell of a row, with the result of
    /// [`CellCursor::seek_candidates`].
    pub fn seek_among(
        &mut self,
        block: &Block,
        key: &CellRef<'_>,
        order: CellComparator,
        points: Range<usize>,
    ) -> Result<bool, Malformed> {
        each!(self, c => seek_among(c, block, key, order, points))
    }

    /// The current cell.
    #[inline]
    pub fn cell<'a>(&'a self, block: &'a Block) -> CellRef<'a> {
        each!(self, c => c.cell(block))
    }

    /// Moves to the first cell at or after `key`. Returns false if all cells are before it; the
    /// position is then the last cell.
    pub fn seek(
        &mut self,
        block: &Block,
        key: &CellRef<'_>,
        order: CellComparator,
    ) -> Result<bool, Malformed> {
        each!(self, c => seek(c, block, key, order))
    }

    /// Moves forward to the first cell at or after `key`.
    pub fn seek_forward(
        &mut self,
        block: &Block,
        key: &CellRef<'_>,
        order: CellComparator,
    ) -> Result<bool, Malformed> {
        each!(self, c => seek_forward(c, block, key, order))
    }

    /// Moves to the last cell before `key`. Returns false if there is none; the position is then
    /// unspecified.
    pub fn seek_before(
        &mut self,
        block: &Block,
        key: &CellRef<'_>,
        order: CellComparator,
    ) -> Result<bool, Malformed> {
        each!(self, c => seek_before(c, block, key, order))
    }
}

/// Cache lines of a block's seek keys prefetched before a search: all of them for about a hundred
/// points.
const SEEK_KEY_LINES: usize = 8;

/// Cache lines prefetched of the cell that a search most likely finds: about the number of cache
/// misses that a core can have in flight. The hardware prefetcher covers the rest of a long value.
const CELL_LINES: usize = 8;
/// As above, if there is time until they are read: a whole value of 1 KB, with the sequence id
/// after it.
const WHOLE_CELL_LINES: usize = 18;

/// Cells that a forward search compares before it searches the seek points.
const FORWARD_STEPS: usize = 8;

fn seek_candidates(
    cursor: &impl BlockCursor,
    block: &Block,
    row: &[u8],
    order: CellComparator,
) -> Range<usize> {
    let found = candidates(cursor, block, row, order);
    // If no prefix matches, the search enters at the point before.
    match found.len() {
        0 => cursor.prefetch_point(block, found.start.saturating_sub(1), WHOLE_CELL_LINES),
        1 => cursor.prefetch_point(block, found.start, WHOLE_CELL_LINES),
        _ => {}
    }
    found
}

fn last(cursor: &mut impl BlockCursor, block: &Block) -> Result<(), Malformed> {
    cursor.enter(block, cursor.points(block).saturating_sub(1))?;
    while cursor.step(block)?.is_some() {}
    Ok(())
}

fn seek(
    cursor: &mut impl BlockCursor,
    block: &Block,
    key: &CellRef<'_>,
    order: CellComparator,
) -> Result<bool, Malformed> {
    let points = prefetched_candidates(cursor, block, key, order);
    seek_among(cursor, block, key, order, points)
}

fn seek_among(
    cursor: &mut impl BlockCursor,
    block: &Block,
    key: &CellRef<'_>,
    order: CellComparator,
    points: Range<usize>,
) -> Result<bool, Malformed> {
    let before = points_before(cursor, block, key, order, points)?;
    if before < cursor.points(block) && cursor.every_cell_has_point(block) {
        return cursor.enter(block, before).map(|()| true);
    }
    cursor.enter(block, before.saturating_sub(1))?;
    let mut is_before = order.compare(&cursor.cell(block), key) == Ordering::Less;
    while is_before {
        match cursor.step(block)? {
            Some(cell) => is_before = order.compare(&cell, key) == Ordering::Less,
            None => return Ok(false),
        }
    }
    Ok(true)
}

fn seek_forward(
    cursor: &mut impl BlockCursor,
    block: &Block,
    key: &CellRef<'_>,
    order: CellComparator,
) -> Result<bool, Malformed> {
    let steps = if cursor.points(block) == 0 { usize::MAX } else { FORWARD_STEPS };
    if order.compare(&cursor.cell(block), key) != Ordering::Less {
        return Ok(true);
    }
    for _ in 0..steps {
        match cursor.step(block)? {
            Some(cell) if order.compare(&cell, key) == Ordering::Less => {}
            found => return Ok(found.is_some()),
        }
    }
    seek(cursor, block, key, order)
}

fn seek_before(
    cursor: &mut impl BlockCursor,
    block: &Block,
    key: &CellRef<'_>,
    order: CellComparator,
) -> Result<bool, Malformed> {
    let points = prefetched_candidates(cursor, block, key, order);
    let point = match points_before(cursor, block, key, order, points)?.checked_sub(1) {
        Some(point) => point,
        None if cursor.points(block) == 0 => 0,
        None => return Ok(false),
    };
    cursor.enter(block, point)?;
    if order.compare(&cursor.cell(block), key) != Ordering::Less {
        return Ok(false);
    }
    let mut steps = 0usize;
    while cursor.step(block)?.is_some_and(|cell| order.compare(&cell, key) == Ordering::Less) {
        steps += 1;
    }
    cursor.enter(block, point)?;
    for _ in 0..steps {
        cursor.step(block)?;
    }
    Ok(true)
}

/// The seek points that must be compared with a cell of a row. Points before the range are smaller,
/// and points after it are greater.
fn candidates(cursor: &impl BlockCursor, block: &Block, row: &[u8], order: CellComparator) -> Range<usize> {
    let points = cursor.points(block);
    match order {
        CellComparator::Default => cursor.candidates(block, points, row),
        CellComparator::Meta => 0..points,
    }
}

/// As [`candidates`]. Prefetches the cell of a single candidate.
fn prefetched_candidates(
    cursor: &impl BlockCursor,
    block: &Block,
    key: &CellRef<'_>,
    order: CellComparator,
) -> Range<usize> {
    let found = candidates(cursor, block, key.row(), order);
    if found.len() == 1 {
        cursor.prefetch_point(block, found.start, CELL_LINES);
    }
    found
}

/// The number of seek points at cells before `key`. Only points in the range are compared.
fn points_before(
    cursor: &impl BlockCursor,
    block: &Block,
    key: &CellRef<'_>,
    order: CellComparator,
    Range { start: mut low, end: mut high }: Range<usize>,
) -> Result<usize, Malformed> {
    while low < high {
        let middle = low + (high - low) / 2;
        let by_key = match order.compare_keys(&cursor.point_key(block, middle)?, key) {
            Ordering::Equal => order.compare(&cursor.point_cell(block, middle)?, key),
            unequal => unequal,
        };
        match by_key {
            Ordering::Less => low = middle + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use evenkeel_block_cache::{BlockParts, BlockType};
    use evenkeel_common::{KeyBuf, KeyValue};

    use super::*;

    const ROWS: usize = 3000;
    const CELLS_OF_ROW: usize = 3;
    /// A search that enters by seek points decodes at most this many cells, and steps to the end of
    /// the row.
    const DECODED_MAX: usize = 16 + CELLS_OF_ROW + 1;
    /// A search compares at most this many keys: a binary search among all cells.
    const COMPARED_MAX: usize = (ROWS * CELLS_OF_ROW).ilog2() as usize + 2;

    const ENCODINGS: [DataBlockEncoding; 5] = [
        DataBlockEncoding::None,
        DataBlockEncoding::Prefix,
        DataBlockEncoding::Diff,
        DataBlockEncoding::FastDiff,
        DataBlockEncoding::RowIndexV1,
    ];

    /// A cursor that counts decoded cells and queried seek points.
    struct Counting<C> {
        cursor: C,
        decoded: usize,
        compared: Cell<usize>,
    }

    impl<C: BlockCursor> BlockCursor for Counting<C> {
        fn points(&self, block: &Block) -> usize {
            self.cursor.points(block)
        }

        fn point_key<'a>(&self, block: &'a Block, point: usize) -> Result<CellRef<'a>, Malformed> {
            self.compared.set(self.compared.get() + 1);
            self.cursor.point_key(block, point)
        }

        fn point_cell<'a>(&self, block: &'a Block, point: usize) -> Result<CellRef<'a>, Malformed> {
            self.compared.set(self.compared.get() + 1);
            self.cursor.point_cell(block, point)
        }

        fn candidates(&self, block: &Block, points: usize, row: &[u8]) -> Range<usize> {
            self.cursor.candidates(block, points, row)
        }

        fn every_cell_has_point(&self, block: &Block) -> bool {
            self.cursor.every_cell_has_point(block)
        }

        fn enter(&mut self, block: &Block, point: usize) -> Result<(), Malformed> {
            self.decoded += 1;
            self.cursor.enter(block, point)
        }

        fn step<'a>(&'a mut self, block: &'a Block) -> Result<Option<CellRef<'a>>, Malformed> {
            self.decoded += 1;
            self.cursor.step(block)
        }

        fn cell<'a>(&'a self, block: &'a Block) -> CellRef<'a> {
            self.cursor.cell(block)
        }
    }

    fn layout(encoding: DataBlockEncoding) -> CellLayout {
        CellLayout { encoding, includes_tags: false, includes_mvcc: true, compressed_tags: false }
    }

    fn row(at: usize) -> Vec<u8> {
        format!("row{at:07}").into_bytes()
    }

    /// One block of all rows, with seek points.
    fn block(layout: CellLayout) -> Block {
        let (mut body, mut encoder, mut last) =
            (Vec::new(), DataBlockEncoder::new(layout), KeyBuf::default());
        encoder.begin(&mut body);
        for at in 0..ROWS * CELLS_OF_ROW {
            let qualifier = [b'a' + (at % CELLS_OF_ROW) as u8];
            let cell = KeyValue::put(&row(at / CELLS_OF_ROW), b"f", &qualifier, 1, b"value");
            let cell = cell.as_cell();
            encoder.append(&cell, last.bytes(), shared_bytes(last.bytes(), cell.key()), &mut body);
            last.set_to(&cell);
        }
        encoder.end(&mut body, 0);
        let points = index_cells(&body, layout).expect("sound");
        Block::new(BlockParts {
            kind: BlockType::Data,
            offset: 0,
            on_disk_bytes: body.len() as u32,
            prev_offset: -1,
            body: 0..body.len() as u32,
            bytes: body.into(),
            seek_points: points.points,
            seek_keys: points.keys,
            compressed: false,
        })
    }

    /// Gets every seventh row from a block. Returns the maximum of decoded cells and of compared
    /// seek points.
    fn most_of_a_get<C: BlockCursor>(block: &Block, cursor: C) -> (usize, usize) {
        let mut cursor = Counting { cursor, decoded: 0, compared: Cell::new(0) };
        let order = CellComparator::Default;
        let (mut decoded, mut compared) = (0, 0);
        for row in (0..ROWS).step_by(7).map(row) {
            (cursor.decoded, cursor.compared) = (0, Cell::new(0));
            assert!(seek(&mut cursor, block, &KeyBuf::first_on_row(&row).as_cell(), order).expect("sound"));
            let mut found = 0;
            let mut is_there = cursor.cell(block).row() == row;
            while is_there {
                found += 1;
                is_there = cursor.step(block).expect("sound").is_some_and(|cell| cell.row() == row);
            }
            assert_eq!(found, CELLS_OF_ROW);
            decoded = decoded.max(cursor.decoded);
            compared = compared.max(cursor.compared.get());
        }
        (decoded, compared)
    }

    #[test]
    fn a_get_decodes_a_row_and_not_the_block_whatever_the_encoding() {
        for encoding in ENCODINGS {
            let layout = layout(encoding);
            let block = block(layout);
            let (decoded, compared) = match CellCursor::new(layout) {
                CellCursor::Raw(cursor) => most_of_a_get(&block, cursor),
                CellCursor::Delta(cursor) => most_of_a_get(&block, cursor),
            };
            assert!(decoded <= DECODED_MAX, "{encoding:?}: {decoded} cells");
            assert!(compared <= COMPARED_MAX, "{encoding:?}: {compared} seek points");
        }
    }
}
