//! [`KeyValueHeap`]: merges sorted runs.
//!
//! The run with the smallest cell is *current* and stays out of the heap. While it stays the
//! smallest, a step costs one comparison. In a reversed heap, rows descend while the cells of a row
//! still ascend: a run at the end of a row moves to the previous row.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use std::cmp::Ordering;

use evenkeel_block_cache::heap_blocks;
use evenkeel_common::{CellComparator, CellRef, TryResult};

use super::{KeyValueScanner, LeafScanner};

/// An input of a heap.
pub trait SortedRun {
    /// The run's current cell.
    fn peek(&self) -> Option<&CellRef<'_>>;
    /// Returns true if the run is at its end.
    fn is_at_end(&self) -> bool;
}

impl<S: KeyValueScanner> SortedRun for S {
    #[inline]
    fn peek(&self) -> Option<&CellRef<'_>> {
        KeyValueScanner::peek(self)
    }

    #[inline]
    fn is_at_end(&self) -> bool {
        KeyValueScanner::is_at_end(self)
    }
}

/// Several runs merged into one. Equal cells come in the order in which their runs were given.
pub struct KeyValueHeap<R> {
    runs: Vec<R>,
    current: Option<usize>,
    /// A binary heap of the other runs that are not at their end.
    others: Vec<usize>,
    comparator: CellComparator,
    reversed: bool,
    /// The row being left, if reversed.
    row: Vec<u8>,
}

impl<R: SortedRun> KeyValueHeap<R> {
    /// Merges runs that are already at their start positions.
    pub fn new(runs: Vec<R>, comparator: CellComparator, reversed: bool) -> Self {
        let mut heap =
            Self { runs, current: None, others: Vec::new(), comparator, reversed, row: Vec::new() };
        heap.begin();
        heap
    }

    /// Lets `change` move the runs to new positions or add some, then rebuilds the heap. Do not use
    /// the heap after an error.
    ///
    /// # Errors
    /// Any error of `change`.
    pub fn reposition_runs<T>(&mut self, change: impl FnOnce(&mut Vec<R>) -> TryResult<T>) -> TryResult<T> {
        let outcome = change(&mut self.runs)?;
        self.begin();
        Ok(outcome)
    }

    fn begin(&mut self) {
        // A single run, the usual case for a Get, needs no heap.
        if let [only] = &self.runs[..] {
            self.others.clear();
            self.current = (!only.is_at_end()).then_some(0);
            return;
        }
        let mut open = (0..self.runs.len()).filter(|i| !self.runs[*i].is_at_end());
        self.current = open.next();
        self.others.clear();
        self.others.extend(open);
        (0..self.others.len() / 2).rev().for_each(|at| self.sift_down(at));
        self.sift_current();
    }

    /// The smallest cell.
    #[inline]
    pub fn peek(&self) -> Option<&CellRef<'_>> {
        self.runs[self.current?].peek()
    }

    /// Returns true if every run is at its end.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.current.is_none_or(|current| self.runs[current].is_at_end())
    }

    /// Returns true if all runs but the current one are at their end.
    #[inline]
    pub fn is_last_run(&self) -> bool {
        self.others.is_empty()
    }

    /// The run with the smallest cell.
    #[inline]
    pub fn current(&self) -> Option<&R> {
        Some(&self.runs[self.current?])
    }

    /// The run with the smallest cell. Call [`KeyValueHeap::sift_current`] after moving it.
    pub fn current_mut(&mut self) -> Option<&mut R> {
        Some(&mut self.runs[self.current?])
    }

    /// All runs.
    pub fn runs(&self) -> &[R] {
        &self.runs
    }

    /// All runs, for calls that do not move them.
    pub fn runs_mut(&mut self) -> &mut [R] {
        &mut self.runs
    }

    /// Calls `change` for all runs but the current one, those at their end included, until `change`
    /// returns false. `change` must not move a run.
    pub fn for_each_other(&mut self, mut change: impl FnMut(&mut R) -> bool) {
        let current = self.current;
        let others = self.runs.iter_mut().enumerate().filter(|(i, _)| Some(*i) != current);
        others.map(|(_, run)| change(run)).take_while(|go_on| *go_on).for_each(drop);
    }

    /// Returns true if there are no runs.
    pub fn has_no_runs(&self) -> bool {
        self.runs.is_empty()
    }

    /// Finds the smallest cell again after the current run moved.
    #[inline]
    pub fn sift_current(&mut self) {
        let Some(current) = self.current else { return };
        if !self.others.is_empty() {
            self.sift_among_others(current);
        } else if self.runs[current].is_at_end() {
            self.current = None;
        }
    }

    #[inline(never)]
    fn sift_among_others(&mut self, current: usize) {
        if self.runs[current].is_at_end() {
            self.current = self.pop();
        } else if let Some(first) = self.others.first().copied()
            && self.is_less(first, current)
        {
            self.others[0] = current;
            self.sift_down(0);
            self.current = Some(first);
        }
    }

    fn pop(&mut self) -> Option<usize> {
        let last = self.others.pop()?;
        let Some(first) = self.others.first_mut() else { return Some(last) };
        let least = std::mem::replace(first, last);
        self.sift_down(0);
        Some(least)
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            for child in [left, right] {
                if child < self.others.len() && self.is_less(self.others[child], self.others[least]) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.others.swap(at, least);
            at = least;
        }
    }

    #[inline]
    fn is_less(&self, a: usize, b: usize) -> bool {
        let (Some(cell_a), Some(cell_b)) = (self.runs[a].peek(), self.runs[b].peek()) else {
            return false;
        };
        self.compare(cell_a, cell_b).then(a.cmp(&b)) == Ordering::Less
    }

    #[inline]
    fn compare(&self, a: &CellRef<'_>, b: &CellRef<'_>) -> Ordering {
        if self.reversed {
            self.comparator.compare_rows(b.row(), a.row()).then_with(|| self.comparator.compare(a, b))
        } else {
            self.comparator.compare(a, b)
        }
    }

    /// Returns true if the smallest cell comes before `key` in the heap's direction.
    pub fn is_before(&self, key: &CellRef<'_>) -> bool {
        self.peek().is_some_and(|cell| self.compare(cell, key) == Ordering::Less)
    }
}

impl<S: KeyValueScanner> KeyValueHeap<S> {
    /// Moves to the next cell.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    #[inline]
    pub fn advance(&mut self) -> TryResult<()> {
        let Some(current) = self.current else { return Ok(()) };
        if self.reversed {
            self.advance_reversed(current)?;
        } else {
            self.runs[current].advance()?;
        }
        self.sift_current();
        Ok(())
    }

    fn advance_reversed(&mut self, current: usize) -> TryResult<()> {
        let run = &mut self.runs[current];
        if let Some(cell) = run.peek()
            && cell.row() != self.row.as_slice()
        {
            self.row.clear();
            self.row.extend_from_slice(cell.row());
        }
        run.advance()?;
        if run.peek().is_none_or(|cell| cell.row() != self.row.as_slice()) {
            run.seek_to_previous_row(&self.row)?;
        }
        Ok(())
    }
}

impl<S: LeafScanner> KeyValueHeap<S> {
    /// Moves, in the heap's direction, to the first cell that is not before `key`.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    pub fn reseek(&mut self, key: &CellRef<'_>) -> TryResult<()> {
        while self.is_before(key) {
            let Some(current) = self.current else { return Ok(()) };
            if self.reversed {
                self.runs[current].backward_seek(key)?;
            } else {
                self.runs[current].reseek(key)?;
            }
            self.sift_sought(current);
        }
        Ok(())
    }

    /// Moves a reversed heap to a row before `row`.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    pub fn leave_row_backwards(&mut self, row: &[u8]) -> TryResult<()> {
        debug_assert!(self.reversed);
        let comparator = self.comparator;
        while self.peek().is_some_and(|cell| comparator.compare_rows(cell.row(), row).is_ge()) {
            let Some(current) = self.current else { return Ok(()) };
            self.runs[current].seek_to_previous_row(row)?;
            self.sift_sought(current);
        }
        Ok(())
    }

    /// As [`KeyValueHeap::sift_current`], after a seek. A seek loads a block in each run that it
    /// moves, so runs that do not become the current one release theirs if too many are held.
    fn sift_sought(&mut self, sought: usize) {
        self.sift_current();
        if self.current != Some(sought) && heap_blocks::is_over_limit() {
            self.runs[sought].release_block();
        }
    }
}
