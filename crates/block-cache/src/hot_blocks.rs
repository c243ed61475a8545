//! [`HotBlock`]: a cached block that is requested repeatedly, and the selection of the hottest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::BlockKey;

/// A cached block that was requested repeatedly. The order of two blocks is that of their heat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HotBlock {
    /// Its recent requests, as far as the policy counts them: at most [`HEAT_MAX`].
    pub heat: u8,
    /// The block.
    pub key: BlockKey,
    /// Its bytes in the file: header, body and checksums.
    pub on_disk_bytes: u32,
}

/// The maximum of [`HotBlock::heat`]: the counts of the frequency sketch, and of a slot.
pub const HEAT_MAX: u8 = 18;

/// The hottest of the blocks that were pushed, up to a number.
#[derive(Debug)]
pub(crate) struct HottestBlocks {
    /// The coldest one is at the top.
    blocks: BinaryHeap<Reverse<HotBlock>>,
    blocks_max: usize,
}

impl HottestBlocks {
    pub fn new(blocks_max: usize) -> Self {
        Self { blocks: BinaryHeap::new(), blocks_max }
    }

    pub fn push(&mut self, block: HotBlock) {
        if self.blocks.len() < self.blocks_max {
            return self.blocks.push(Reverse(block));
        }
        if let Some(mut coldest) = self.blocks.peek_mut()
            && coldest.0 < block
        {
            *coldest = Reverse(block);
        }
    }

    /// Returns the blocks, the hottest first.
    pub fn into_vec(self) -> Vec<HotBlock> {
        self.blocks.into_sorted_vec().into_iter().map(|Reverse(block)| block).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileId;

    fn block(heat: u8, offset: u64) -> HotBlock {
        let key = BlockKey { file: FileId::from_bits(1), offset };
        HotBlock { heat, key, on_disk_bytes: 100 }
    }

    #[test]
    fn the_hottest_blocks_are_kept_in_order() {
        let mut hottest = HottestBlocks::new(3);
        for (heat, offset) in [(2, 0), (9, 1), (1, 2), (5, 3), (18, 4), (4, 5)] {
            hottest.push(block(heat, offset));
        }
        assert_eq!(hottest.into_vec(), [block(18, 4), block(9, 1), block(5, 3)]);
        let mut none = HottestBlocks::new(0);
        none.push(block(1, 1));
        assert_eq!(none.into_vec(), []);
    }
}
