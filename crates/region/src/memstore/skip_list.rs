//! [`SkipList`]: sorted cells in an arena.
//!
//! An insert makes the node, finds its neighbours on every level, and links it level by level from
//! the bottom by compare-and-swap. A thread that loses a race searches again from the same
//! position, because nodes are never removed. A node is visible once its bottom link is set, and it
//! is complete by then: the link is stored with `Release` and followed with `Acquire`.
//!
//! A link holds the address of the next node and, in its upper bits, the prefix code of that node's
//! row ([`RowPrefixEncoder`]). So a search moves from node to node by the codes beside the links,
//! and compares cells only if codes are equal. Both parts are one word, so a reader never sees the
//! code of one node with the address of another.
//!
//! A search need not begin at the head. Tall nodes, of two levels or more, register in a table of
//! *hints*, indexed by the upper bits of codes. A search starts at the hinted node before its key,
//! climbs from there while there are taller nodes on its path, and then descends. It passes as many
//! nodes as a search in a list of only the cells between the hint and the key. As the list grows,
//! the table is replaced by a larger one. Hints are optional: a lost hint only makes a later search
//! longer.
//!
//! If two cells compare equal (same key and sequence id: a batch that writes one cell twice), the
//! later one comes first and hides the other, which HBase's `CellSet` replaces. So a reader sees
//! neither of them if the later one has expired.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use std::cmp::Ordering as Order;
use std::ptr::{NonNull, null, null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use evenkeel_common::comparator::compare_without_row;
use evenkeel_common::length;
use evenkeel_common::{CellComparator, CellRef};

use super::arena::Arena;
use super::chunk::{ADDRESS_BITS, ALIGN, ChunkPool};
use super::record::write_key_value;
use super::row_prefix_code::{PREFIX_CODE_BITS, PREFIX_CODE_MAX, RowPrefixEncoder};
use super::sync::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, HINT_BITS_MIN, Ordering, PublicationCheck, prefetch,
};

/// Levels of the tallest node. One node in four has one more level, so this is enough for 4^12
/// cells.
const HEIGHT_MAX: usize = 12;

#[repr(C)]
pub(super) struct Node {
    seq_id: u64,
    key_value_len: u32,
    height: u16,
    /// Set once, if the write that the cell belongs to has failed, or has a later cell with the
    /// same key. A reader whose read point admits the cell starts after that write was completed,
    /// and so after this was set.
    hidden: AtomicBool,
    published: PublicationCheck,
    // `height` links and the KeyValue follow.
}

const HEADER_BYTES: usize = size_of::<Node>();
const LINK_BYTES: usize = size_of::<AtomicU64>();
const _: () = assert!(HEADER_BYTES.is_multiple_of(align_of::<AtomicU64>()));

/// The address of a node without its constant bits, and above it the prefix code of its row.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Link(u64);

/// The bits of an address that vary.
const LINK_ADDRESS_BITS: u32 = ADDRESS_BITS - ALIGN.trailing_zeros();
const _: () = assert!(LINK_ADDRESS_BITS + PREFIX_CODE_BITS <= u64::BITS);

impl Link {
    /// After the last node.
    const END: Self = Self(0);

    fn to(node: NonNull<Node>, code: u32) -> Self {
        let address = node.as_ptr().expose_provenance() as u64;
        Self(address >> ALIGN.trailing_zeros() | u64::from(code) << LINK_ADDRESS_BITS)
    }

    /// The node; null at the end.
    #[inline]
    fn node(self) -> *const Node {
        with_exposed_provenance_mut::<Node>(length::index(
            (self.0 << PREFIX_CODE_BITS) >> (PREFIX_CODE_BITS - ALIGN.trailing_zeros()),
        ))
    }

    #[inline]
    fn code(self) -> u32 {
        (self.0 >> LINK_ADDRESS_BITS) as u32
    }

    #[inline]
    fn is_end(self) -> bool {
        self.0 == 0
    }
}

/// A node of the list that made the cursor, or null.
pub(super) type Cursor = *const Node;

pub(super) struct SkipList {
    arena: Arena,
    comparator: CellComparator,
    row_encoder: RowPrefixEncoder,
    head: [AtomicU64; HEIGHT_MAX],
    height: AtomicUsize,
    heights_drawn: AtomicUsize,
    /// A word with the number of index bits, followed by the hints; null initially. Replaced tables
    /// stay in the arena.
    hints: AtomicPtr<AtomicU64>,
    /// The number of nodes with more than one level.
    tall: AtomicUsize,
    /// True while a thread makes a larger table.
    makes_hints: AtomicBool,
}

/// A table has at most 2 to the power of this many hints.
const HINT_BITS_MAX: u32 = 16;
const _: () = assert!(HINT_BITS_MAX <= PREFIX_CODE_BITS);
/// The number of hints tried, from the hint of a key's code backwards.
const HINTS_TRIED: usize = 4;

/// The neighbours of a position on one level; a null `before` is the head.
#[derive(Clone, Copy)]
struct Gap {
    before: *const Node,
    after: Link,
}

/// The gap on every level before the search begins.
const FULL_RANGE: Gap = Gap { before: null(), after: Link::END };

/// A descent in single steps, so that the cache misses of several descents can overlap. It has no
/// result: it loads the nodes on its path into the cache for the search that follows.
pub(super) struct InterleavedDescent {
    gap: Gap,
    level: usize,
    code: u32,
    stage: Stage,
    /// True if the next node's row was prefetched, because the codes are equal.
    compares: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Hint,
    Climb,
    Descend,
}

#[cfg(test)]
impl InterleavedDescent {
    /// Returns the last node before the row, once the descent is complete.
    pub(super) fn before(&self) -> Cursor {
        self.gap.before
    }
}

/// A lower list (4^5 cells) is cached anyway, so descents in it are not interleaved.
const DESCENT_HEIGHT_MIN: usize = 6;

impl SkipList {
    /// An empty list. Rows are encoded only for the default comparator.
    pub(super) fn new(
        comparator: CellComparator,
        row_encoder: RowPrefixEncoder,
        pool: Arc<ChunkPool>,
    ) -> Self {
        let orders_by_bytes = comparator == CellComparator::Default;
        Self {
            arena: Arena::new(pool),
            comparator,
            row_encoder: if orders_by_bytes { row_encoder } else { RowPrefixEncoder::none() },
            head: std::array::from_fn(|_| AtomicU64::new(Link::END.0)),
            height: AtomicUsize::new(1),
            heights_drawn: AtomicUsize::new(0),
            hints: AtomicPtr::new(null_mut()),
            tall: AtomicUsize::new(0),
            makes_hints: AtomicBool::new(false),
        }
    }

    /// Bytes of its chunks, including free space.
    pub(super) fn chunk_bytes(&self) -> usize {
        self.arena.chunk_bytes()
    }

    /// Creates an empty list to follow this one. It expects rows like those in this list, or, if
    /// `like_those_here` is false, the rows that this list expected.
    pub(super) fn next_list(&self, like_those_here: bool) -> Self {
        let row = |at| self.cell(at).map_or(&[][..], |cell| cell.row());
        let row_encoder = match like_those_here {
            true => RowPrefixEncoder::between(row(self.first()), row(self.last())),
            false => self.row_encoder.clone(),
        };
        Self::new(self.comparator, row_encoder, Arc::clone(self.arena.pool()))
    }

    /// The encoder of its rows.
    #[cfg(test)]
    pub(super) fn row_encoder(&self) -> &RowPrefixEncoder {
        &self.row_encoder
    }

    /// The order of the cells.
    pub(super) fn comparator(&self) -> CellComparator {
        self.comparator
    }

    /// Copies a cell into the list. Returns the number of bytes used.
    pub(super) fn insert(&self, cell: &CellRef<'_>) -> usize {
        let height = self.draw_height();
        let bytes = node_bytes(height, cell);
        let code = self.row_encoder.code_of(cell.row());
        let node = self.new_node(cell, height, bytes);
        let gaps = self.find_gaps(cell, code, height);
        for (level, gap) in gaps.into_iter().enumerate().take(height) {
            self.link_in(node, level, gap, cell, code);
        }
        self.hide_replaced(node.as_ptr(), cell, code);
        self.height.fetch_max(height, Ordering::Relaxed);
        if height == 1 { bytes } else { bytes + self.register_hint(Link::to(node, code)) }
    }

    /// Registers a hint to a tall node that is linked on all its levels. Returns the bytes of a new
    /// table, if it made one.
    fn register_hint(&self, node: Link) -> usize {
        let tall = self.tall.fetch_add(1, Ordering::Relaxed) + 1;
        let Some((bits, hints)) = self.hints() else {
            return if tall >> HINT_BITS_MIN > 0 { self.make_hints(HINT_BITS_MIN) } else { 0 };
        };
        let hint = &hints[hint_of(node.code(), bits)];
        let known = Link(hint.load(Ordering::Relaxed));
        if known.is_end() || known.code() <= node.code() {
            hint.store(node.0, Ordering::Release);
        }
        if tall >> bits > 1 && bits < HINT_BITS_MAX { self.make_hints(bits + 1) } else { 0 }
    }

    /// Makes a larger table of hints from the current one. Returns its bytes. Hints that other
    /// threads register meanwhile are lost.
    fn make_hints(&self, bits: u32) -> usize {
        if self.makes_hints.swap(true, Ordering::Acquire) {
            return 0;
        }
        let before = self.hints();
        if before.is_some_and(|(known, _)| known >= bits) {
            self.makes_hints.store(false, Ordering::Release);
            return 0;
        }
        let bytes = ((1 << bits) + 1) * LINK_BYTES;
        let table = self.arena.alloc(bytes).cast::<AtomicU64>().as_ptr();
        // SAFETY: the bytes at `table` are ours alone until it is stored below, and aligned to 8.
        unsafe {
            table.write(AtomicU64::new(u64::from(bits)));
            (0..1 << bits).for_each(|at| table.add(1 + at).write(AtomicU64::new(Link::END.0)));
        }
        // With `Acquire`, because a thread that follows a hint must see the node's content, which
        // this thread may not have written.
        let known =
            before.iter().flat_map(|(_, hints)| *hints).map(|hint| Link(hint.load(Ordering::Acquire)));
        for link in known.filter(|link| !link.is_end()) {
            // SAFETY: as above; the index is below 2 to the power of `bits`.
            unsafe { (*table.add(1 + hint_of(link.code(), bits))).store(link.0, Ordering::Release) };
        }
        self.hints.store(table, Ordering::Release);
        self.makes_hints.store(false, Ordering::Release);
        bytes
    }

    /// The hints, and the number of bits that index them.
    #[inline]
    fn hints(&self) -> Option<(u32, &[AtomicU64])> {
        let table = NonNull::new(self.hints.load(Ordering::Acquire))?;
        // SAFETY: a table that was stored is complete (`make_hints`), and lives as long as the
        // arena.
        unsafe {
            let bits = (table.as_ref().load(Ordering::Relaxed) & 0xff) as u32;
            Some((bits, std::slice::from_raw_parts(table.as_ptr().add(1), 1 << bits)))
        }
    }

    /// Returns a tall node before all cells with this code, possibly far before; null if there is
    /// no hint.
    #[inline]
    fn hint(&self, code: u32) -> *const Node {
        let Some((bits, hints)) = self.hints() else { return null() };
        let at = hint_of(code, bits);
        let near = hints[(at + 1).saturating_sub(HINTS_TRIED)..=at].iter().rev();
        let mut near = near.map(|hint| Link(hint.load(Ordering::Acquire)));
        let leads_before = |link: &Link| !link.is_end() && link.code() < code;
        near.find(leads_before).map_or(null(), Link::node)
    }

    /// Returns the node from which to descend, and on how many levels: the tallest on the path from
    /// a hint, or the head.
    #[inline]
    fn start(&self, code: u32, goes_before: &impl Fn(StoredCell<'_>) -> bool) -> (Gap, usize) {
        let mut before = self.hint(code);
        if before.is_null() {
            return (FULL_RANGE, self.height.load(Ordering::Relaxed));
        }
        loop {
            let height = self.height_of(before);
            let after = self.next(before, height - 1);
            if !self.goes_before(after, code, goes_before) {
                return (Gap { before, after: Link::END }, height);
            }
            before = after.node();
        }
    }

    /// The number of levels of a node, which must not be null.
    #[inline]
    fn height_of(&self, node: *const Node) -> usize {
        // SAFETY: a node of this list, which was complete before it could be reached and lives as
        // long as `self`.
        unsafe {
            (*node).published.observe();
            usize::from((*node).height)
        }
    }

    fn link_in(&self, node: NonNull<Node>, level: usize, mut gap: Gap, cell: &CellRef<'_>, code: u32) {
        let to = Link::to(node, code);
        loop {
            self.link(node.as_ptr(), level).store(gap.after.0, Ordering::Relaxed);
            let link = self.link(gap.before, level);
            if link.compare_exchange(gap.after.0, to.0, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
            gap = self.find_gap(gap, level, cell, code);
        }
    }

    /// Hides the cell that `cell`, at `node`, replaces: the next one, if it compares equal. Those
    /// that it had replaced are hidden already.
    #[inline]
    fn hide_replaced(&self, node: Cursor, cell: &CellRef<'_>, code: u32) {
        let next = self.next(node, 0);
        if next.is_end() || next.code() != code {
            // The next node is not touched: its memory is rarely in the processor's cache.
            return;
        }
        let next = next.node();
        // Few neighbours are of the same write.
        let is_equal = |stored: StoredCell<'_>| {
            stored.seq_id == cell.seq_id() && self.comparator.compare(&stored.cell(), cell).is_eq()
        };
        if self.stored(next).is_some_and(is_equal) {
            // SAFETY: not null, or it would have no cell; nodes of this list live as long as
            // `self`.
            unsafe { (*next).hidden.store(true, Ordering::Relaxed) };
        }
    }

    /// Hides every cell that compares equal to `cell`.
    pub(super) fn hide(&self, cell: &CellRef<'_>) {
        let mut node = self.at_or_after(cell);
        while self.cell(node).is_some_and(|found| self.comparator.compare(&found, cell).is_eq()) {
            // SAFETY: not null, or there would be no cell; nodes of this list live as long as
            // `self`.
            unsafe { (*node).hidden.store(true, Ordering::Relaxed) };
            node = self.after(node);
        }
    }

    /// Returns true if a node of this list is hidden.
    #[inline]
    pub(super) fn is_hidden(&self, node: Cursor) -> bool {
        // SAFETY: null, or a node of this list, which lives as long as `self`.
        unsafe { node.as_ref() }.is_some_and(|node| node.hidden.load(Ordering::Relaxed))
    }

    /// The first cell that is not before `key`.
    pub(super) fn at_or_after(&self, key: &CellRef<'_>) -> Cursor {
        self.gap_of(key).after.node()
    }

    /// The last cell that is before `key`.
    pub(super) fn before(&self, key: &CellRef<'_>) -> Cursor {
        self.gap_of(key).before
    }

    /// The last cell.
    pub(super) fn last(&self) -> Cursor {
        self.descend(PREFIX_CODE_MAX, |_| true).before
    }

    /// The first cell.
    pub(super) fn first(&self) -> Cursor {
        self.next(null(), 0).node()
    }

    /// The cell after a node of this list.
    #[inline]
    pub(super) fn after(&self, node: Cursor) -> Cursor {
        self.next(node, 0).node()
    }

    /// The cell at a node of this list, or `None` for null.
    #[inline]
    pub(super) fn cell(&self, node: Cursor) -> Option<CellRef<'_>> {
        self.stored(node).map(StoredCell::cell)
    }

    #[inline]
    fn stored(&self, node: Cursor) -> Option<StoredCell<'_>> {
        if node.is_null() {
            return None;
        }
        // SAFETY: nodes of this list are complete before they can be reached, only their links
        // change, and they live as long as the arena, which is as long as `self`.
        Some(unsafe { stored_in(node) })
    }

    /// The gap around a key on the bottom level.
    fn gap_of(&self, key: &CellRef<'_>) -> Gap {
        let goes_before = |stored: StoredCell<'_>| stored.is_before(key, self.comparator);
        self.descend(self.row_encoder.code_of(key.row()), goes_before)
    }

    /// Returns the bottom gap between the cells that go before and the others, decided by their
    /// codes, or by `goes_before` for cells whose code is `code`.
    fn descend(&self, code: u32, goes_before: impl Fn(StoredCell<'_>) -> bool) -> Gap {
        let (mut gap, levels) = self.start(code, &goes_before);
        for level in (0..levels).rev() {
            gap = self.walk(gap, level, code, &goes_before);
        }
        gap
    }

    /// The gap on a level, within a gap of the level above. The end of that gap is known to go
    /// after.
    #[inline]
    fn walk(
        &self,
        within: Gap,
        level: usize,
        code: u32,
        goes_before: &impl Fn(StoredCell<'_>) -> bool,
    ) -> Gap {
        let mut before = within.before;
        loop {
            let after = self.next(before, level);
            if level > 0 {
                self.prefetch_below(before, level - 1, code);
            }
            if after == within.after || !self.goes_before(after, code, goes_before) {
                return Gap { before, after };
            }
            before = after.node();
        }
    }

    /// Prefetches the node that the level below leads to, if it is on the path.
    #[inline]
    fn prefetch_below(&self, before: *const Node, level: usize, code: u32) {
        let below = Link(self.link(before, level).load(Ordering::Relaxed));
        if below.code() <= code {
            prefetch(below.node());
        }
    }

    #[inline]
    fn goes_before(&self, link: Link, code: u32, goes_before: impl FnOnce(StoredCell<'_>) -> bool) -> bool {
        match link.code().cmp(&code) {
            Order::Less if link.is_end() => false,
            Order::Less => true,
            Order::Equal => self.stored(link.node()).is_some_and(goes_before),
            Order::Greater => false,
        }
    }

    fn find_gap(&self, within: Gap, level: usize, key: &CellRef<'_>, code: u32) -> Gap {
        let goes_before = |stored: StoredCell<'_>| stored.is_before(key, self.comparator);
        self.walk(within, level, code, &goes_before)
    }

    fn find_gaps(&self, key: &CellRef<'_>, code: u32, height: usize) -> [Gap; HEIGHT_MAX] {
        let mut gaps = [FULL_RANGE; HEIGHT_MAX];
        let goes_before = |stored: StoredCell<'_>| stored.is_before(key, self.comparator);
        let (mut gap, mut levels) = self.start(code, &goes_before);
        if levels < height {
            (gap, levels) = (FULL_RANGE, height.max(self.height.load(Ordering::Relaxed)));
        }
        for level in (0..levels).rev() {
            gap = self.walk(gap, level, code, &goes_before);
            gaps[level] = gap;
        }
        gaps
    }

    /// Starts a descent to a row's position; `None` if the list is low.
    pub(super) fn begin_descent(&self, row: &[u8]) -> Option<InterleavedDescent> {
        let height = self.height.load(Ordering::Relaxed);
        if height < DESCENT_HEIGHT_MIN {
            return None;
        }
        let code = self.row_encoder.code_of(row);
        if let Some((bits, hints)) = self.hints() {
            prefetch(&hints[hint_of(code, bits)]);
        }
        Some(InterleavedDescent {
            gap: FULL_RANGE,
            level: height - 1,
            code,
            stage: Stage::Hint,
            compares: false,
        })
    }

    /// Visits one node on the way to `row`, and prefetches the next. Returns true if there is one.
    #[inline]
    pub(super) fn step(&self, descent: &mut InterleavedDescent, row: &[u8]) -> bool {
        let InterleavedDescent { gap, level, code, stage, compares } = descent;
        if *stage == Stage::Hint {
            gap.before = self.hint(*code);
            prefetch(gap.before);
            *stage = if gap.before.is_null() { Stage::Descend } else { Stage::Climb };
            return true;
        }
        if *stage == Stage::Climb {
            *level = self.height_of(gap.before) - 1;
        }
        loop {
            let after = self.next(gap.before, *level);
            let is_known = after.is_end() || after == gap.after;
            if !is_known && after.code() == *code && !*compares {
                *compares = true;
                prefetch(after.node());
                return true;
            }
            *compares = false;
            let goes_before =
                |stored: StoredCell<'_>| self.comparator.compare_rows(stored.row(), row) == Order::Less;
            if !is_known && self.goes_before(after, *code, goes_before) {
                gap.before = after.node();
                prefetch(gap.before);
                return true;
            }
            *stage = Stage::Descend;
            if *level == 0 {
                return false;
            }
            gap.after = after;
            *level -= 1;
        }
    }

    /// The link of a node on a level; the head's for null.
    #[inline]
    fn next(&self, node: *const Node, level: usize) -> Link {
        Link(self.link(node, level).load(Ordering::Acquire))
    }

    #[inline]
    fn link(&self, node: *const Node, level: usize) -> &AtomicU64 {
        if node.is_null() {
            return &self.head[level];
        }
        // SAFETY: `node` is a node of this list, so it lives as long as `self`; it was reached on
        // `level` or is being linked there, so it has that many links, which start right after its
        // header, aligned to 8.
        unsafe {
            debug_assert!(level < (*node).height as usize);
            &*node.byte_add(HEADER_BYTES + level * LINK_BYTES).cast::<AtomicU64>()
        }
    }

    fn new_node(&self, cell: &CellRef<'_>, height: usize, bytes: usize) -> NonNull<Node> {
        let node = self.arena.alloc(bytes).cast::<Node>();
        let header = Node {
            seq_id: cell.seq_id(),
            key_value_len: length::must_u32(cell.key_value_len()),
            height: length::must_u16(height),
            hidden: AtomicBool::new(false),
            published: PublicationCheck::publish(),
        };
        // SAFETY: `bytes` bytes at `node` are ours alone, aligned to 8; header, links and KeyValue
        // fit them exactly (`node_bytes`), and each is written before anything reads it.
        unsafe {
            node.write(header);
            let links = node.byte_add(HEADER_BYTES).cast::<AtomicU64>();
            (0..height).for_each(|level| links.add(level).write(AtomicU64::new(Link::END.0)));
            write_key_value(node.byte_add(HEADER_BYTES + height * LINK_BYTES).cast(), cell);
        }
        node
    }

    /// Draws a height from a geometric distribution. A counter through a mixing function is random
    /// enough, and makes runs repeatable.
    fn draw_height(&self) -> usize {
        let bits = mix(self.heights_drawn.fetch_add(1, Ordering::Relaxed) as u64);
        (1 + bits.trailing_zeros() as usize / 2).min(HEIGHT_MAX)
    }
}

/// The index of a code's hint.
fn hint_of(code: u32, bits: u32) -> usize {
    (code >> (PREFIX_CODE_BITS - bits)) as usize
}

fn node_bytes(height: usize, cell: &CellRef<'_>) -> usize {
    (HEADER_BYTES + height * LINK_BYTES + cell.key_value_len()).next_multiple_of(ALIGN)
}

/// The finalizer of SplitMix64.
fn mix(counter: u64) -> u64 {
    let mut z = counter.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The cell of a node, whose parts are not yet located.
#[derive(Clone, Copy)]
struct StoredCell<'a> {
    key_value: &'a [u8],
    seq_id: u64,
}

impl<'a> StoredCell<'a> {
    #[inline]
    fn cell(self) -> CellRef<'a> {
        CellRef::parse_checked(self.key_value, self.seq_id)
    }

    #[inline]
    fn row(self) -> &'a [u8] {
        CellRef::row_of_checked(self.key_value)
    }

    /// Returns true if it is before `key`. Most searches meet other rows only, so the other parts
    /// are located for cells of the same row only.
    #[inline]
    fn is_before(self, key: &CellRef<'_>, comparator: CellComparator) -> bool {
        match comparator.compare_rows(self.row(), key.row()) {
            Order::Less => true,
            Order::Equal => self.is_before_in_row(key),
            Order::Greater => false,
        }
    }

    fn is_before_in_row(self, key: &CellRef<'_>) -> bool {
        compare_without_row(&self.cell(), key).then(key.seq_id().cmp(&self.seq_id)) == Order::Less
    }
}

/// The cell that is stored in a node.
///
/// # Safety
/// `node` is a complete node. For `'a`, its memory lives and only its links are written.
#[inline]
unsafe fn stored_in<'a>(node: *const Node) -> StoredCell<'a> {
    // SAFETY: the caller's guarantee; the KeyValue lies after `height` links and has
    // `key_value_len` bytes.
    unsafe {
        (*node).published.observe();
        let start = HEADER_BYTES + (*node).height as usize * LINK_BYTES;
        let key_value =
            std::slice::from_raw_parts(node.byte_add(start).cast::<u8>(), (*node).key_value_len as usize);
        StoredCell { key_value, seq_id: (*node).seq_id }
    }
}
