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
    fn corrupt(&self, offset: u64, what: &str) -> evenkeel_common::HBaseError;
    /// The order of keys.
    fn order(&self) -> CellComparator;
}

/// A place in the data index. See the module.
#[derive(Debug, Default)]
pub(crate) struct IndexCursor {
    root_entry: usize,
    /// The blocks below the root on the path, with the entry in each.
    path: Vec<PathEntry>,
}

#[derive(Debug)]
struct PathEntry {
    block: Block,
    entry: usize,
    len: usize,
}

/// Which entry to take in each block on the way down.
#[derive(Clone, Copy)]
enum Descent<'a, 'k> {
    First,
    Last,
    To(&'a CellRef<'k>),
}

impl IndexCursor {
    /// Goes to the first data block; `None` when the file has none.
    pub fn first(&mut self, index: &impl LoadIndexBlock) -> Result<Option<BlockAt>> {
        self.descend(index, 0, Descent::First)
    }

    /// Goes to the one data block that may hold `key`; `None` when every block begins after it.
    pub fn seek(&mut self, index: &impl LoadIndexBlock, key: &CellRef<'_>) -> Result<Option<BlockAt>> {
        match index.root().entries_up_to(key, index.order()).checked_sub(1) {
            Some(entry) => self.descend(index, entry, Descent::To(key)),
            None => Ok(None),
        }
    }

    /// Goes to the next data block; `None` after the last, where the place stays.
    pub fn next(&mut self, index: &impl LoadIndexBlock) -> Result<Option<BlockAt>> {
        match self.path.iter().rposition(|step| step.entry + 1 < step.len) {
            Some(depth) => {
                self.path[depth].entry += 1;
                self.descend_from(index, depth + 1, Descent::First).map(Some)
            }
            None if self.root_entry + 1 < index.root().len() => {
                self.descend(index, self.root_entry + 1, Descent::First)
            }
            None => Ok(None),
        }
    }

    /// Goes to the previous data block; `None` before the first, where the place stays.
    pub fn previous(&mut self, index: &impl LoadIndexBlock) -> Result<Option<BlockAt>> {
        match self.path.iter().rposition(|step| step.entry > 0) {
            Some(depth) => {
                self.path[depth].entry -= 1;
                self.descend_from(index, depth + 1, Descent::Last).map(Some)
            }
            None if self.root_entry > 0 => self.descend(index, self.root_entry - 1, Descent::Last),
            None => Ok(None),
        }
    }

    /// Where the next data block lies, when the index block at hand tells.
    pub fn peek_next(&self, index: &impl LoadIndexBlock) -> Option<BlockAt> {
        match self.path.last() {
            Some(step) if step.entry + 1 < step.len => {
                LeafView::new(step.block.data())?.entry(step.entry + 1)
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
        self.key_at(root, self.path.len())
    }

    /// The key of the entry at hand, `level` levels below the root.
    fn key_at<'a>(&'a self, root: &'a RootIndex, level: usize) -> Option<&'a [u8]> {
        match level.checked_sub(1).map(|below| self.path.get(below)) {
            Some(step) => step.and_then(|step| LeafView::new(step.block.data())?.key(step.entry)),
            None => (self.root_entry < root.len()).then(|| root.key(self.root_entry)),
        }
    }

    /// Whether each level's entry at hand has the key of the first entry of the block that it points to, where the place is
    /// at that first entry.
    pub fn levels_agree(&self, root: &RootIndex) -> bool {
        self.path
            .iter()
            .enumerate()
            .all(|(above, step)| step.entry > 0 || self.key_at(root, above) == self.key_at(root, above + 1))
    }

    /// The key of the next data block: all cells up to it are in blocks up to this one.
    pub fn next_key<'a>(&'a self, root: &'a RootIndex) -> Option<&'a [u8]> {
        match self.path.iter().rfind(|step| step.entry + 1 < step.len) {
            Some(step) => LeafView::new(step.block.data())?.key(step.entry + 1),
            None => (self.root_entry + 1 < root.len()).then(|| root.key(self.root_entry + 1)),
        }
    }

    fn descend(
        &mut self,
        index: &impl LoadIndexBlock,
        entry: usize,
        descent: Descent<'_, '_>,
    ) -> Result<Option<BlockAt>> {
        if entry >= index.root().len() {
            return Ok(None);
        }
        self.root_entry = entry;
        self.descend_from(index, 0, descent).map(Some)
    }

    /// Loads the blocks from `depth` below the root on down; those above stay.
    fn descend_from(
        &mut self,
        index: &impl LoadIndexBlock,
        depth: usize,
        descent: Descent<'_, '_>,
    ) -> Result<BlockAt> {
        for depth in depth..index.levels() - 1 {
            let at = self.child(index, depth)?;
            let leaf = depth + 2 == index.levels();
            let kind = if leaf { BlockType::LeafIndex } else { BlockType::IntermediateIndex };
            self.enter(index, depth, at, kind, descent)?;
        }
        self.child(index, index.levels() - 1)
    }

    fn enter(
        &mut self,
        index: &impl LoadIndexBlock,
        depth: usize,
        at: BlockAt,
        kind: BlockType,
        descent: Descent<'_, '_>,
    ) -> Result<()> {
        self.path.truncate(depth + 1);
        let at_hand = if self.path.len() > depth { self.path.pop() } else { None };
        let block = match at_hand {
            Some(step) if step.block.offset() == at.offset => step.block,
            _ => index.load_index(at, kind)?,
        };
        let view = LeafView::new(block.data()).ok_or_else(|| index.corrupt(at.offset, "no entries"))?;
        let len = view.len();
        let entry = match descent {
            Descent::First => 0,
            Descent::Last => len - 1,
            Descent::To(key) => view.entries_up_to(key, index.order()).saturating_sub(1),
        };
        self.path.push(PathEntry { block, entry, len });
        Ok(())
    }

    /// Where the entry above `depth` points.
    fn child(&self, index: &impl LoadIndexBlock, depth: usize) -> Result<BlockAt> {
        let (parent, at) = match depth.checked_sub(1).and_then(|above| self.path.get(above)) {
            Some(step) => {
                let at = LeafView::new(step.block.data()).and_then(|view| view.entry(step.entry));
                (step.block.offset(), at)
            }
            None => (index.root_offset(), Some(index.root().entry(self.root_entry))),
        };
        let at = at.ok_or_else(|| index.corrupt(parent, "no such entry"))?;
        if at.offset >= parent {
            return Err(index.corrupt(parent, "an index entry points forward"));
        }
        Ok(at)
    }
}
