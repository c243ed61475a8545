//! In-memory flushes: the active segment is replaced, and older segments are compacted in memory.
//!
//! ```text
//! push_active        active segment -> pipeline, a new one takes its place
//! (the caller waits until all writes begun so far are complete)
//! plan_in_memory     segments of the pipeline -> one flat segment     readers and writers continue
//! swap_in_memory     installs it, unless a flush took the segments meanwhile
//! ```
//! Every writer begins its write, which takes a number, before it loads the state. So once all
//! writes that had begun when the active segment was replaced are complete, that segment no longer
//! changes, and failed writes are hidden. A reader has either the old segments or the
//! new one, with the same cells. Only if cells were dropped must the caller handle readers that
//! overlap the swap (see `region.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_common::{CellBuffer, KeyBuf, Result, TryError};
use parking_lot::Mutex;

use super::{Store, StoreLeaf};
use crate::memstore::{
    FlatSegmentBuilder, InMemoryCompaction, InMemoryConfig, MemStoreCompactionAction,
    MemStoreCompactionStrategy, Segment, SegmentScanner,
};
use crate::scanner::matcher::CompactionMode;
use crate::scanner::{KeyValueScanner, ScannerContext};

/// Cells between two yields of the background thread.
const CELLS_PER_STEP: usize = 1024;

/// The state of a store's in-memory flushes. The region runs one at a time.
pub(super) struct InMemoryFlushState {
    /// Adapts to the results of earlier flushes.
    strategy: Mutex<MemStoreCompactionStrategy>,
    /// True if a flush has begun, so that the strategy must be reset.
    needs_reset: AtomicBool,
}

impl InMemoryFlushState {
    /// Creates the state; `None` if the family has no in-memory flushes.
    pub(super) fn new(config: InMemoryConfig) -> Option<Self> {
        (config.compaction != InMemoryCompaction::None).then(|| Self {
            strategy: Mutex::new(MemStoreCompactionStrategy::new(config)),
            needs_reset: AtomicBool::new(false),
        })
    }

    /// Resets the strategy. Called when a flush takes the pipeline.
    pub(super) fn reset_strategy(&self) {
        self.needs_reset.store(true, Ordering::Relaxed);
    }
}

/// A flat segment and the segments it replaces.
pub struct SegmentReplacement {
    inputs: Vec<Arc<Segment>>,
    /// `None` if no cell is left.
    output: Option<Arc<Segment>>,
    /// True if cells may have been dropped.
    drops: bool,
}

impl SegmentReplacement {
    /// Returns true if it may hold fewer cells than it replaces. Then no reader may overlap the
    /// swap.
    pub fn drops_cells(&self) -> bool {
        self.drops
    }
}

impl Store {
    /// Returns true if the active segment has at least `threshold_bytes` and the family has
    /// in-memory flushes.
    #[inline]
    pub fn wants_in_memory_flush(&self, threshold_bytes: u64) -> bool {
        self.compacts_in_memory() && self.state.load().active.size().heap_bytes >= threshold_bytes
    }

    /// Returns true if the family has in-memory flushes.
    pub fn compacts_in_memory(&self) -> bool {
        self.in_memory.is_some()
    }

    /// Moves the active segment to the pipeline. Writers that loaded the earlier state continue in
    /// it.
    pub fn push_active(&self) {
        self.replace_state(|state| {
            if !state.active.is_empty() {
                let next = state.active.next();
                state.pipeline.push(std::mem::replace(&mut state.active, next));
            }
        });
    }

    /// Runs the next step of the family's policy; `None` if there is nothing to do. Before the call
    /// and after [`Store::push_active`], the caller waits until every write begun so far is durable
    /// or taken back, so that the pipeline no longer changes. No later reader reads below
    /// `smallest_read_point`.
    ///
    /// # Errors
    /// No error is known, because cells in memory can be read.
    pub fn plan_in_memory(&self, smallest_read_point: u64) -> Result<Option<SegmentReplacement>> {
        let Some(in_memory) = &self.in_memory else { return Ok(None) };
        let pipeline = self.state.load().pipeline.clone();
        if pipeline.is_empty() {
            return Ok(None);
        }
        let mut strategy = in_memory.strategy.lock();
        if in_memory.needs_reset.swap(false, Ordering::Relaxed) {
            strategy.reset();
        }
        let action = strategy.next(&pipeline);
        let counts = strategy.counts_columns();
        let change = match action {
            MemStoreCompactionAction::Merge(count) => self.merge(pipeline, count),
            MemStoreCompactionAction::Compact => {
                self.rewrite(pipeline, smallest_read_point)?.inspect(|change| {
                    let cells = |segments: &[Arc<Segment>]| segments.iter().map(|s| s.size().cells).sum();
                    strategy.record_result(cells(&change.inputs), cells(change.output.as_slice()));
                })
            }
        };
        if let Some(output) = change.as_ref().filter(|_| counts).and_then(|change| change.output.as_ref()) {
            output.count_columns();
        }
        Ok(change)
    }

    /// Merges the newest `count` segments, or all that are still lists.
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

    /// Returns the cells of a list as a flat segment, without those taken back.
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

    /// Returns all cells except those that a flush would drop.
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
            scanner.next(&mut cells, &mut limits, &mut None).map_err(TryError::into_failure)?;
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

    /// Installs a replacement. Returns false, and does nothing, if a flush has taken its inputs.
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
