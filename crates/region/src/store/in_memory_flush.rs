//! In-memory flushes: what was written moves out of the way of writers, and gets smaller.
//!
//! ```text
//! push_active        active segment -> pipeline, a new one takes its place
//! (the caller waits until all writes begun so far are complete)
//! plan_in_memory     some segments of the pipeline -> one flat segment        readers and writers go on
//! swap_in_memory     the one for the others, unless a flush took them meanwhile
//! ```
//! Every writer has begun its write, which gave it a number, before it takes the state. So when all writes that had begun
//! when the active segment was replaced are complete, nobody writes to that segment any more, and what failed was taken
//! back. Whoever reads has either the old segments or the new one, with the same cells in them; only where cells were
//! dropped must the caller see to readers that straddle the swap (see `region.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_common::{CellBuffer, KeyBuf, Result};
use parking_lot::Mutex;

use super::{Store, StoreLeaf};
use crate::memstore::{
    FlatSegmentBuilder, InMemoryCompaction, InMemoryConfig, MemStoreCompactionAction,
    MemStoreCompactionStrategy, Segment, SegmentScanner,
};
use crate::scanner::matcher::CompactionMode;
use crate::scanner::{KeyValueScanner, ScannerContext};

/// Cells of a step: a thread in the background lets others run between two of them.
const CELLS_PER_STEP: usize = 1024;

/// The in-memory flushes of a store. The region runs one at a time.
pub(super) struct InMemoryFlushState {
    /// What they have learnt.
    strategy: Mutex<MemStoreCompactionStrategy>,
    /// A flush has begun: what was learnt is of another MemStore.
    forget: AtomicBool,
}

impl InMemoryFlushState {
    /// `None` for families without.
    pub(super) fn new(config: InMemoryConfig) -> Option<Self> {
        (config.compaction != InMemoryCompaction::None).then(|| Self {
            strategy: Mutex::new(MemStoreCompactionStrategy::new(config)),
            forget: AtomicBool::new(false),
        })
    }

    /// A flush takes the pipeline.
    pub(super) fn forget(&self) {
        self.forget.store(true, Ordering::Relaxed);
    }
}

/// A flat segment and what it is to replace.
pub struct SegmentReplacement {
    inputs: Vec<Arc<Segment>>,
    /// `None` when nothing is left.
    output: Option<Arc<Segment>>,
    /// Whether cells may have been dropped.
    drops: bool,
}

impl SegmentReplacement {
    /// Whether it holds fewer cells than what it replaces, so that readers must not straddle the swap.
    pub fn drops_cells(&self) -> bool {
        self.drops
    }
}

impl Store {
    /// Whether the active segment has grown to so many bytes and an in-memory flush is of use.
    #[inline]
    pub fn wants_in_memory_flush(&self, threshold_bytes: u64) -> bool {
        self.compacts_in_memory() && self.state.load().active.size().heap_bytes >= threshold_bytes
    }

    /// Whether in-memory flushes are of use here.
    pub fn compacts_in_memory(&self) -> bool {
        self.in_memory.is_some()
    }

    /// Puts the active segment into the pipeline. Writers that have taken the state before go on in it.
    pub fn push_active(&self) {
        self.replace_state(|state| {
            if !state.active.is_empty() {
                let next = state.active.next();
                state.pipeline.push(std::mem::replace(&mut state.active, next));
            }
        });
    }

    /// Makes what the next step of the family's policy asks for; `None` when there is nothing to do. The caller has waited,
    /// after [`Store::push_active`], until every write begun so far was durable or taken back: then the pipeline changes no
    /// more. No reader that starts later reads before `smallest_read_point`.
    ///
    /// # Errors
    /// None that is known: what is in memory can be read.
    pub fn plan_in_memory(&self, smallest_read_point: u64) -> Result<Option<SegmentReplacement>> {
        let Some(in_memory) = &self.in_memory else { return Ok(None) };
        let pipeline = self.state.load().pipeline.clone();
        if pipeline.is_empty() {
            return Ok(None);
        }
        let mut strategy = in_memory.strategy.lock();
        if in_memory.forget.swap(false, Ordering::Relaxed) {
            strategy.forget();
        }
        let action = strategy.next(&pipeline);
        let counts = strategy.counts_columns();
        let change = match action {
            MemStoreCompactionAction::Merge(count) => self.merge(pipeline, count),
            MemStoreCompactionAction::Compact => {
                self.rewrite(pipeline, smallest_read_point)?.inspect(|change| {
                    let cells = |segments: &[Arc<Segment>]| segments.iter().map(|s| s.size().cells).sum();
                    strategy.learn(cells(&change.inputs), cells(change.output.as_slice()));
                })
            }
        };
        if let Some(output) = change.as_ref().filter(|_| counts).and_then(|change| change.output.as_ref()) {
            output.count_columns();
        }
        Ok(change)
    }

    /// The newest `count` segments, or those that are lists still, as one.
    fn merge(&self, pipeline: Vec<Arc<Segment>>, count: usize) -> Option<SegmentReplacement> {
        let lists = pipeline.iter().rev().take_while(|segment| !segment.is_flat()).count();
        let count = count.max(lists);
        let (kept, inputs) = pipeline.split_at(pipeline.len() - count);
        let mut newer = inputs.to_vec();
        let mut before = newer.iter().rfind(|segment| segment.is_flat()).or(kept.last()).cloned();
        for segment in newer.iter_mut().filter(|segment| !segment.is_flat()) {
            *segment = self.flatten(segment, before.as_deref())?;
            before = Some(Arc::clone(segment));
        }
        let output = newer.into_iter().rev().try_fold(None::<Arc<Segment>>, |newer, older| match newer {
            None => Some(Some(older)),
            Some(newer) => newer.merge_with(&older).map(Some),
        })?;
        (count > 0).then(|| SegmentReplacement { inputs: inputs.to_vec(), output, drops: false })
    }

    /// The cells of a list, those taken back aside.
    fn flatten(&self, list: &Arc<Segment>, before: Option<&Segment>) -> Option<Arc<Segment>> {
        let mut builder = self.flat_builder(list.size().cells, before);
        let mut cells = SegmentScanner::new(Arc::clone(list), u64::MAX);
        cells.seek(&KeyBuf::first_on_row(b"").as_cell()).ok()?;
        let mut count = 0;
        while let Some(cell) = cells.peek() {
            if !builder.push(cell) {
                return None;
            }
            cells.advance().ok()?;
            count += 1;
            if count % CELLS_PER_STEP == 0 {
                std::thread::yield_now();
            }
        }
        Some(builder.finish())
    }

    /// All cells but what a flush would drop.
    fn rewrite(
        &self,
        inputs: Vec<Arc<Segment>>,
        smallest_read_point: u64,
    ) -> Result<Option<SegmentReplacement>> {
        let leaf =
            |segment: &Arc<Segment>| StoreLeaf::Segment(SegmentScanner::new(Arc::clone(segment), u64::MAX));
        let mode =
            CompactionMode { drop_deletes: false, smallest_read_point, earliest_put_timestamp: i64::MIN };
        let mut scanner = self.compaction_scanner(inputs.iter().rev().map(leaf).collect(), mode)?;
        let before = inputs.iter().rfind(|segment| segment.is_flat());
        let mut builder = self.flat_builder(0, before.map(|segment| &**segment));
        let mut cells = CellBuffer::new();
        let mut limits = ScannerContext::unlimited().with_batch(CELLS_PER_STEP);
        while !scanner.is_done() {
            limits.start_result();
            scanner.next(&mut cells, &mut limits, &mut None)?;
            if !cells.iter().all(|cell| builder.push(&cell)) {
                return Ok(None);
            }
            cells.clear();
            std::thread::yield_now();
        }
        let output = Some(builder.finish()).filter(|segment| !segment.is_empty());
        Ok(Some(SegmentReplacement { inputs, output, drops: true }))
    }

    fn flat_builder(&self, cells: u64, before: Option<&Segment>) -> FlatSegmentBuilder {
        FlatSegmentBuilder::new(&self.env.chunks, self.info.comparator, cells, before)
    }

    /// Puts a change into place. False, and nothing done, when a flush has taken what it is made of.
    pub fn swap_in_memory(&self, change: SegmentReplacement) -> bool {
        let mut swapped = false;
        self.replace_state(|state| {
            let same =
                |window: &[Arc<Segment>]| window.iter().zip(&change.inputs).all(|(a, b)| Arc::ptr_eq(a, b));
            let count = change.inputs.len();
            if let Some(at) = state.pipeline.windows(count).position(same) {
                state.pipeline.splice(at..at + count, change.output);
                swapped = true;
            }
        });
        swapped
    }
}
