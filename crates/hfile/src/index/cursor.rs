//! A position in the data index: one entry per level, from the root to a data block.
//!
//! Every child must precede its parent in the file, as writers place it. So no file causes an
//! endless search.

use evenkeel_block_cache::{Block, BlockType};
use evenkeel_common::{CellComparator, CellRef, TryResult};

use super::{BlockLocation, LeafView, RootIndex};

/// Provides a cursor with the root and the blocks of the index.
pub(crate) trait LoadIndexBlock {
    /// The root.
    fn root(&self) -> &RootIndex;
    /// The offset of the root.
    fn root_offset(&self) -> u64;
    /// The number of levels; 1 if the root refers to data blocks.
    fn levels(&self) -> usize;
    /// Reads a leaf or intermediate block.
    fn load_index(&self, at: BlockLocation, kind: BlockType) -> TryResult<Block>;
    /// A `CorruptHFileException` at an offset.
    fn corrupt(&self, offset: u64, what: &str) -> evenkeel_common::HBaseError;
    /// The order of keys.
    fn order(&self) -> CellComparator;
}

/// A position in the data index. See the module.
#[derive(Debug, Default)]
pub(crate) struct IndexCursor {
    root_entry: usize,
    /// The blocks of the path below the root, with the entry in each.
    path: Vec<PathEntry>,
}

#[derive(Debug)]
struct PathEntry {
    block: Block,
    entry: usize,
    len: usize,
}

/// The entry to take in each block of a descent.
#[derive(Clone, Copy)]
enum Descent<'a, 'k> {
    First,
    Last,
    To(&'a CellRef<'k>),
}

impl IndexCursor {
    /// Moves to the first data block. `None` if the file has none.
    pub fn first(&mut self, index: &impl LoadIndexBlock) -> TryResult<Option<BlockLocation>> {
        self.descend(index, 0, Descent::First)
    }

    /// Moves to the one data block that may hold `key`. `None` if every block begins after it.
    pub fn seek(
        &mut self,
        index: &impl LoadIndexBlock,
        key: &CellRef<'_>,
    ) -> TryResult<Option<BlockLocation>> {
        match index.root().entries_up_to(key, index.order()).checked_sub(1) {
            Some(entry) => self.descend(index, entry, Descent::To(key)),
            None => Ok(None),
        }
    }

    /// Moves to the next data block. `None` after the last, where the position stays.
    pub fn next(&mut self, index: &impl LoadIndexBlock) -> TryResult<Option<BlockLocation>> {
        match self.path.iter_mut().enumerate().rfind(|(_, step)| step.entry + 1 < step.len) {
            Some((depth, step)) => {
                step.entry += 1;
                self.descend_from(index, depth + 1, Descent::First).map(Some)
            }
            None if self.root_entry + 1 < index.root().len() => {
                self.descend(index, self.root_entry + 1, Descent::First)
            }
            None => Ok(None),
        }
    }

    /// Moves to the previous data block. `None` before the first, where the position stays.
    pub fn previous(&mut self, index: &impl LoadIndexBlock) -> TryResult<Option<BlockLocation>> {
        match self.path.iter_mut().enumerate().rfind(|(_, step)| step.entry > 0) {
            Some((depth, step)) => {
                step.entry -= 1;
                self.descend_from(index, depth + 1, Descent::Last).map(Some)
            }
            None if self.root_entry > 0 => self.descend(index, self.root_entry - 1, Descent::Last),
            None => Ok(None),
        }
    }

    /// The location of the next data block, if it is in the current index block.
    pub fn peek_next(&self, index: &impl LoadIndexBlock) -> Option<BlockLocation> {
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

    /// The key of the current data block. `None` if an index block is malformed.
    pub fn key<'a>(&'a self, root: &'a RootIndex) -> Option<&'a [u8]> {
        self.key_at(root, self.path.len())
    }

    /// The key of the current entry, `level` levels below the root.
    fn key_at<'a>(&'a self, root: &'a RootIndex, level: usize) -> Option<&'a [u8]> {
        match level.checked_sub(1).map(|below| self.path.get(below)) {
            Some(step) => step.and_then(|step| LeafView::new(step.block.data())?.key(step.entry)),
            None => (self.root_entry < root.len()).then(|| root.key(self.root_entry)),
        }
    }

    /// Returns true if each level's current entry has the key of the first entry of the block it
    /// refers to. Levels that are not at a first entry are skipped.
    pub fn levels_agree(&self, root: &RootIndex) -> bool {
        self.path
            .iter()
            .enumerate()
            .all(|(above, step)| step.entry > 0 || self.key_at(root, above) == self.key_at(root, above + 1))
    }

    /// The key of the next data block. All cells before it are in the blocks up to this one.
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
    ) -> TryResult<Option<BlockLocation>> {
        if entry >= index.root().len() {
            return Ok(None);
        }
        self.root_entry = entry;
        self.descend_from(index, 0, descent).map(Some)
    }

    /// Loads the blocks from `depth` below the root downwards. The blocks above stay.
    fn descend_from(
        &mut self,
        index: &impl LoadIndexBlock,
        depth: usize,
        descent: Descent<'_, '_>,
    ) -> TryResult<BlockLocation> {
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
        at: BlockLocation,
        kind: BlockType,
        descent: Descent<'_, '_>,
    ) -> TryResult<()> {
        self.path.truncate(depth + 1);
        let at_hand = if self.path.len() > depth { self.path.pop() } else { None };
        let block = match at_hand {
            Some(step) if step.block.offset() == at.offset => step.block,
            _ => index.load_index(at, kind)?,
        };
        let view = LeafView::new(block.data())
            .ok_or_else(|| index.corrupt(at.offset, "an index block without entries"))?;
        let len = view.len();
        let entry = match descent {
            Descent::First => 0,
            Descent::Last => len - 1,
            Descent::To(key) => view.entries_up_to(key, index.order()).saturating_sub(1),
        };
        self.path.push(PathEntry { block, entry, len });
        Ok(())
    }

    /// The location in the entry above `depth`.
    fn child(&self, index: &impl LoadIndexBlock, depth: usize) -> TryResult<BlockLocation> {
        let (parent, at) = match depth.checked_sub(1).and_then(|above| self.path.get(above)) {
            Some(step) => {
                let at = LeafView::new(step.block.data()).and_then(|view| view.entry(step.entry));
                (step.block.offset(), at)
            }
            None => (index.root_offset(), Some(index.root().entry(self.root_entry))),
        };
        let at = at.ok_or_else(|| index.corrupt(parent, "an index entry is missing"))?;
        if at.offset >= parent {
            return Err(index.corrupt(parent, "an index entry points forward").into());
        }
        Ok(at)
    }
}
