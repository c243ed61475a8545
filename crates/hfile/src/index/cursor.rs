//! A place in the data index: one entry at each level, from the root to a data block.
//!
//! Every child must lie before its parent in the file, as writers put it; so no file can send a search in circles.

use evenkeel_block_cache::{Block, BlockType};
use evenkeel_common::{CellComparator, CellRef, Result};

use super::{BlockAt, LeafView, RootIndex};

/// Where the cursor gets the root and the blocks of the index from.
pub(crate) trait LoadIndexBlock {
    /// The root.
    fn root(&self) -> &RootIndex;
    /// Where the root lies.
    fn root_offset(&self) -> u64;
    /// Levels; 1 when the root points at data blocks.
    fn levels(&self) -> usize;
    /// Reads a leaf or intermediate block.
    fn load_index(&self, at: BlockAt, kind: BlockType) -> Result<Block>;
    /// The error for a place where the file contradicts itself.
    fn contradiction(&self, offset: u64, what: &str) -> evenkeel_common::HBaseError;
    /// The order of keys.
    fn order(&self) -> CellComparator;
}

/// A place in the data index. See the module.
#[derive(Debug, Default)]
pub(crate) struct IndexCursor {
    root_entry: usize,
    /// The blocks below the root on the path, with the entry in each.
    frames: Vec<Frame>,
}

#[derive(Debug)]
struct Frame {
    block: Block,
    entry: usize,
    len: usize,
}

/// Which entry to take in each block on the way down.
#[derive(Clone, Copy)]
enum Way<'a, 'k> {
    First,
    Last,
    To(&'a CellRef<'k>),
}

impl IndexCursor {
    /// Goes to the first data block; `None` when the file has none.
    pub fn first(&mut self, index: &impl LoadIndexBlock) -> Result<Option<BlockAt>> {
        self.descend(index, 0, Way::First)
    }

    /// Goes to the one data block that may hold `key`; `None` when every block begins after it.
    pub fn seek(&mut self, index: &impl LoadIndexBlock, key: &CellRef<'_>) -> Result<Option<BlockAt>> {
        match index.root().entries_to(key, index.order()).checked_sub(1) {
            Some(entry) => self.descend(index, entry, Way::To(key)),
            None => Ok(None),
        }
    }

    /// Goes to the next data block; `None` after the last, where the place stays.
    pub fn next(&mut self, index: &impl LoadIndexBlock) -> Result<Option<BlockAt>> {
        match self.frames.iter().rposition(|frame| frame.entry + 1 < frame.len) {
            Some(depth) => {
                self.frames[depth].entry += 1;
                self.descend_from(index, depth + 1, Way::First).map(Some)
            }
            None if self.root_entry + 1 < index.root().len() => {
                self.descend(index, self.root_entry + 1, Way::First)
            }
            None => Ok(None),
        }
    }

    /// Goes to the previous data block; `None` before the first, where the place stays.
    pub fn previous(&mut self, index: &impl LoadIndexBlock) -> Result<Option<BlockAt>> {
        match self.frames.iter().rposition(|frame| frame.entry > 0) {
            Some(depth) => {
                self.frames[depth].entry -= 1;
                self.descend_from(index, depth + 1, Way::Last).map(Some)
            }
            None if self.root_entry > 0 => self.descend(index, self.root_entry - 1, Way::Last),
            None => Ok(None),
        }
    }

    /// Where the next data block lies, when the index block at hand tells.
    pub fn peek_next(&self, index: &impl LoadIndexBlock) -> Option<BlockAt> {
        match self.frames.last() {
            Some(frame) if frame.entry + 1 < frame.len => {
                LeafView::new(frame.block.data())?.entry(frame.entry + 1)
            }
            Some(_) => None,
            None => {
                let next = self.root_entry + 1;
                (next < index.root().len()).then(|| index.root().entry(next))
            }
        }
    }

    /// The key of the data block at hand; `None` when an index block is malformed.
    pub fn key<'a>(&'a self, root: &'a RootIndex) -> Option<&'a [u8]> {
        self.key_at(root, self.frames.len())
    }

    /// The key of the entry at hand, `level` levels below the root.
    fn key_at<'a>(&'a self, root: &'a RootIndex, level: usize) -> Option<&'a [u8]> {
        match level.checked_sub(1).map(|below| self.frames.get(below)) {
            Some(frame) => frame.and_then(|frame| LeafView::new(frame.block.data())?.key(frame.entry)),
            None => (self.root_entry < root.len()).then(|| root.key(self.root_entry)),
        }
    }

    /// Whether each level's entry at hand has the key of the first entry of the block that it points to, where the place is
    /// at that first entry.
    pub fn levels_agree(&self, root: &RootIndex) -> bool {
        self.frames
            .iter()
            .enumerate()
            .all(|(above, frame)| frame.entry > 0 || self.key_at(root, above) == self.key_at(root, above + 1))
    }

    /// The key of the next data block: all cells up to it are in blocks up to this one.
    pub fn next_key<'a>(&'a self, root: &'a RootIndex) -> Option<&'a [u8]> {
        match self.frames.iter().rfind(|frame| frame.entry + 1 < frame.len) {
            Some(frame) => LeafView::new(frame.block.data())?.key(frame.entry + 1),
            None => (self.root_entry + 1 < root.len()).then(|| root.key(self.root_entry + 1)),
        }
    }

    fn descend(
        &mut self,
        index: &impl LoadIndexBlock,
        entry: usize,
        way: Way<'_, '_>,
    ) -> Result<Option<BlockAt>> {
        if entry >= index.root().len() {
            return Ok(None);
        }
        self.root_entry = entry;
        self.descend_from(index, 0, way).map(Some)
    }

    /// Loads the blocks from `depth` below the root on down; those above stay.
    fn descend_from(
        &mut self,
        index: &impl LoadIndexBlock,
        depth: usize,
        way: Way<'_, '_>,
    ) -> Result<BlockAt> {
        for depth in depth..index.levels() - 1 {
            let at = self.child(index, depth)?;
            let leaf = depth + 2 == index.levels();
            let kind = if leaf { BlockType::LeafIndex } else { BlockType::IntermediateIndex };
            self.enter(index, depth, at, kind, way)?;
        }
        self.child(index, index.levels() - 1)
    }

    fn enter(
        &mut self,
        index: &impl LoadIndexBlock,
        depth: usize,
        at: BlockAt,
        kind: BlockType,
        way: Way<'_, '_>,
    ) -> Result<()> {
        self.frames.truncate(depth + 1);
        let at_hand = if self.frames.len() > depth { self.frames.pop() } else { None };
        let block = match at_hand {
            Some(frame) if frame.block.offset() == at.offset => frame.block,
            _ => index.load_index(at, kind)?,
        };
        let view = LeafView::new(block.data()).ok_or_else(|| index.contradiction(at.offset, "no entries"))?;
        let len = view.len();
        let entry = match way {
            Way::First => 0,
            Way::Last => len - 1,
            Way::To(key) => view.entries_to(key, index.order()).saturating_sub(1),
        };
        self.frames.push(Frame { block, entry, len });
        Ok(())
    }

    /// Where the entry above `depth` points.
    fn child(&self, index: &impl LoadIndexBlock, depth: usize) -> Result<BlockAt> {
        let (parent, at) = match depth.checked_sub(1).and_then(|above| self.frames.get(above)) {
            Some(frame) => {
                let at = LeafView::new(frame.block.data()).and_then(|view| view.entry(frame.entry));
                (frame.block.offset(), at)
            }
            None => (index.root_offset(), Some(index.root().entry(self.root_entry))),
        };
        let at = at.ok_or_else(|| index.contradiction(parent, "no such entry"))?;
        if at.offset >= parent {
            return Err(index.contradiction(parent, "an index entry points forward"));
        }
        Ok(at)
    }
}
