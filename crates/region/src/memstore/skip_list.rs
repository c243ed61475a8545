//! [`SkipList`]: sorted cells in an arena.
//!
//! Insert: make the node, find its neighbours on every level, then link it level by level from the bottom by
//! compare-and-swap; whoever loses a race looks again from where it was, since nodes never go away. A node is visible
//! from the moment its bottom link is set, and complete by then: the link is stored with `Release` and followed with
//! `Acquire`.
//!
//! Two cells that compare equal (same key, same sequence id: a batch that writes one cell twice) both stay, the later
//! one first, so that a reader that counts a timestamp once sees the later.

use std::cmp::Ordering as Order;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use evenkeel_common::{CellComparator, CellRef};

use super::arena::Arena;
use super::chunk::ChunkPool;
use super::record::write_key_value;
use super::sync::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, Written, prefetch};

/// Levels of the tallest node; with one in four nodes a level higher, enough for 4^12 cells.
const HEIGHT_MAX: usize = 12;

#[repr(C)]
pub(super) struct Node {
    seq_id: u64,
    key_value_len: u32,
    height: u16,
    /// Set once, when the write that the cell belongs to has failed. Whoever may see the cell by its read point reads
    /// after that write was declared complete, and so after this was set.
    hidden: AtomicBool,
    written: Written,
    // `height` links and the KeyValue follow.
}

const HEADER_BYTES: usize = size_of::<Node>();
const LINK_BYTES: usize = size_of::<AtomicPtr<Node>>();
const _: () = assert!(HEADER_BYTES.is_multiple_of(align_of::<AtomicPtr<Node>>()));

/// A node of the list that a `Cursor` was made from, or none.
pub(super) type Cursor = *const Node;

pub(super) struct SkipList {
    arena: Arena,
    comparator: CellComparator,
    head: [AtomicPtr<Node>; HEIGHT_MAX],
    height: AtomicUsize,
    heights_drawn: AtomicUsize,
}

/// The neighbours of a place in the list on one level; a null `before` is the head.
#[derive(Clone, Copy)]
struct Gap {
    before: *const Node,
    after: *mut Node,
}

/// A descent by single steps, so that several may wait for memory together. It finds nothing: what it has passed is then
/// near the processor, for the search that follows.
pub(super) struct Approach {
    gap: Gap,
    level: usize,
}

#[cfg(test)]
impl Approach {
    /// The last node before the row, when there is nothing more to look at.
    pub(super) fn before(&self) -> Cursor {
        self.gap.before
    }
}

/// A lower list (4^5 cells) is near the processor anyway.
const APPROACH_HEIGHT_MIN: usize = 6;

impl SkipList {
    pub(super) fn new(comparator: CellComparator, pool: Arc<ChunkPool>) -> Self {
        Self {
            arena: Arena::new(pool),
            comparator,
            head: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
            height: AtomicUsize::new(1),
            heights_drawn: AtomicUsize::new(0),
        }
    }

    /// The order of the cells.
    pub(super) fn comparator(&self) -> CellComparator {
        self.comparator
    }

    /// Copies a cell into the list; gives the bytes of its node.
    pub(super) fn insert(&self, cell: &CellRef<'_>) -> usize {
        let height = self.draw_height();
        let bytes = node_bytes(height, cell);
        let node = self.new_node(cell, height, bytes);
        let gaps = self.find_gaps(cell, height);
        for (level, gap) in gaps.into_iter().enumerate().take(height) {
            self.link_in(node, level, gap, cell);
        }
        self.height.fetch_max(height, Ordering::Relaxed);
        bytes
    }

    fn link_in(&self, node: NonNull<Node>, level: usize, mut gap: Gap, cell: &CellRef<'_>) {
        loop {
            self.link(node.as_ptr(), level).store(gap.after, Ordering::Relaxed);
            let link = self.link(gap.before, level);
            if link.compare_exchange(gap.after, node.as_ptr(), Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
            gap = self.find_gap(gap, level, cell);
        }
    }

    /// Hides every cell that compares equal to `cell`.
    pub(super) fn hide(&self, cell: &CellRef<'_>) {
        let mut node = self.at_or_after(cell);
        while self.cell(node).is_some_and(|found| self.comparator.compare(&found, cell).is_eq()) {
            // SAFETY: not null, or there would be no cell; nodes of this list live as long as `self`.
            unsafe { (*node).hidden.store(true, Ordering::Relaxed) };
            node = self.after(node);
        }
    }

    /// Whether a node of this list is hidden.
    #[inline]
    pub(super) fn is_hidden(&self, node: Cursor) -> bool {
        // SAFETY: null, or a node of this list, which lives as long as `self`.
        unsafe { node.as_ref() }.is_some_and(|node| node.hidden.load(Ordering::Relaxed))
    }

    /// The first cell that is not before `key`.
    pub(super) fn at_or_after(&self, key: &CellRef<'_>) -> Cursor {
        self.descend(|cell| self.comparator.compare(cell, key) == Order::Less).after
    }

    /// The last cell that is before `key`.
    pub(super) fn before(&self, key: &CellRef<'_>) -> Cursor {
        self.descend(|cell| self.comparator.compare(cell, key) == Order::Less).before
    }

    /// The last cell.
    pub(super) fn last(&self) -> Cursor {
        self.descend(|_| true).before
    }

    /// The first cell.
    pub(super) fn first(&self) -> Cursor {
        self.head[0].load(Ordering::Acquire)
    }

    /// The cell after a node of this list.
    #[inline]
    pub(super) fn after(&self, node: Cursor) -> Cursor {
        self.link(node, 0).load(Ordering::Acquire)
    }

    /// The cell at a node of this list, or `None` for null.
    #[inline]
    pub(super) fn cell(&self, node: Cursor) -> Option<CellRef<'_>> {
        if node.is_null() {
            return None;
        }
        // SAFETY: nodes of this list are complete before they can be reached, are never changed but for their links,
        // and live as long as the arena, which is as long as `self`.
        Some(unsafe { cell_of(node) })
    }

    /// The bottom gap such that `goes_before` holds of everything before it and of nothing after it.
    fn descend(&self, goes_before: impl Fn(&CellRef<'_>) -> bool) -> Gap {
        let mut gap = Gap { before: null(), after: null_mut() };
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            gap = self.walk(gap, level, &goes_before);
        }
        gap
    }

    /// The gap on a level, within one of a level above: what ends that one has been looked at.
    #[inline]
    fn walk(&self, within: Gap, level: usize, goes_before: &impl Fn(&CellRef<'_>) -> bool) -> Gap {
        let mut before = within.before;
        loop {
            let after = self.link(before, level).load(Ordering::Acquire);
            if level > 0 {
                // Half of the time the next step is down: let its node come while this one is compared.
                prefetch(self.link(before, level - 1).load(Ordering::Relaxed));
            }
            match self.cell(after) {
                Some(cell) if after != within.after && goes_before(&cell) => before = after,
                _ => return Gap { before, after },
            }
        }
    }

    fn find_gap(&self, within: Gap, level: usize, key: &CellRef<'_>) -> Gap {
        self.walk(within, level, &|cell: &CellRef<'_>| self.comparator.compare(cell, key) == Order::Less)
    }

    fn find_gaps(&self, key: &CellRef<'_>, height: usize) -> [Gap; HEIGHT_MAX] {
        let mut gaps = [Gap { before: null(), after: null_mut() }; HEIGHT_MAX];
        let mut gap = Gap { before: null(), after: null_mut() };
        for level in (0..height.max(self.height.load(Ordering::Relaxed))).rev() {
            gap = self.find_gap(gap, level, key);
            gaps[level] = gap;
        }
        gaps
    }

    /// Begins to look where a row would be; `None` when there is little to look at.
    pub(super) fn approach(&self) -> Option<Approach> {
        let height = self.height.load(Ordering::Relaxed);
        (height >= APPROACH_HEIGHT_MIN)
            .then_some(Approach { gap: Gap { before: null(), after: null_mut() }, level: height - 1 })
    }

    /// Looks at one node, and asks for the next; whether there is one.
    #[inline]
    pub(super) fn step(&self, approach: &mut Approach, row: &[u8]) -> bool {
        let Approach { gap, level } = approach;
        let after = self.link(gap.before, *level).load(Ordering::Acquire);
        let goes_before = |cell: &CellRef<'_>| self.comparator.compare_rows(cell.row(), row) == Order::Less;
        if after != gap.after && self.cell(after).is_some_and(|cell| goes_before(&cell)) {
            gap.before = after;
        } else if *level == 0 {
            return false;
        } else {
            gap.after = after;
            *level -= 1;
        }
        prefetch(self.link(gap.before, *level).load(Ordering::Relaxed));
        true
    }

    #[inline]
    fn link(&self, node: *const Node, level: usize) -> &AtomicPtr<Node> {
        if node.is_null() {
            return &self.head[level];
        }
        // SAFETY: `node` is a node of this list, so it lives as long as `self`; it was reached on `level` or is being
        // linked there, so it has that many links, which start right after its header, aligned to 8.
        unsafe {
            debug_assert!(level < (*node).height as usize);
            &*node.byte_add(HEADER_BYTES + level * LINK_BYTES).cast::<AtomicPtr<Node>>()
        }
    }

    fn new_node(&self, cell: &CellRef<'_>, height: usize, bytes: usize) -> NonNull<Node> {
        let node = self.arena.alloc(bytes).cast::<Node>();
        let header = Node {
            seq_id: cell.seq_id(),
            key_value_len: cell.key_value_len() as u32,
            height: height as u16,
            hidden: AtomicBool::new(false),
            written: Written::now(),
        };
        // SAFETY: `bytes` bytes at `node` are ours alone, aligned to 8; header, links and KeyValue fit them exactly
        // (`node_bytes`), and each is written before anything reads it.
        unsafe {
            node.write(header);
            let links = node.byte_add(HEADER_BYTES).cast::<AtomicPtr<Node>>();
            (0..height).for_each(|level| links.add(level).write(AtomicPtr::new(null_mut())));
            write_key_value(node.byte_add(HEADER_BYTES + height * LINK_BYTES).cast(), cell);
        }
        node
    }

    /// A height from a geometric distribution. A counter put through a mixing function will do for randomness, and
    /// makes runs repeatable.
    fn draw_height(&self) -> usize {
        let bits = mix(self.heights_drawn.fetch_add(1, Ordering::Relaxed) as u64);
        (1 + bits.trailing_zeros() as usize / 2).min(HEIGHT_MAX)
    }
}

fn node_bytes(height: usize, cell: &CellRef<'_>) -> usize {
    (HEADER_BYTES + height * LINK_BYTES + cell.key_value_len()).next_multiple_of(super::chunk::ALIGN)
}

/// The finalizer of SplitMix64.
fn mix(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The cell of a node.
///
/// # Safety
/// `node` is a complete node whose memory lives, and is not written but through its links, for `'a`.
#[inline]
unsafe fn cell_of<'a>(node: *const Node) -> CellRef<'a> {
    // SAFETY: the caller's promise; the KeyValue lies behind `height` links and has `key_value_len` bytes.
    unsafe {
        (*node).written.seen();
        let start = HEADER_BYTES + (*node).height as usize * LINK_BYTES;
        let bytes =
            std::slice::from_raw_parts(node.byte_add(start).cast::<u8>(), (*node).key_value_len as usize);
        CellRef::parse_checked(bytes, (*node).seq_id)
    }
}
