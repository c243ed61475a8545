//! [`StoreLeaf`]: the leaf scanners of a store, over its segments and its files.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{CellRef, TryResult};

use super::{StoreFile, StoreFileScanner};
use crate::memstore::{Segment, SegmentScanner};
use crate::scanner::{CellSource, KeyValueScanner, LeafScanner, StoreScanner};

/// A scanner of one segment or one file.
pub enum StoreLeaf {
    /// A MemStore segment.
    Segment(SegmentScanner),
    /// A store file.
    File(Box<StoreFileScanner>),
}

macro_rules! each {
    ($self:ident, $leaf:ident => $call:expr) => {
        match $self {
            StoreLeaf::Segment($leaf) => $call,
            StoreLeaf::File($leaf) => $call,
        }
    };
}

impl StoreLeaf {
    /// Returns true if it scans this segment.
    pub(super) fn is_of_segment(&self, segment: &Arc<Segment>) -> bool {
        matches!(self, Self::Segment(leaf) if leaf.is_of(segment))
    }

    /// Returns the scanner of this file, if this leaf is one.
    pub(super) fn of_file(&mut self, file: &Arc<StoreFile>) -> Option<&mut StoreFileScanner> {
        match self {
            Self::File(leaf) if leaf.is_of(file) => Some(leaf),
            _ => None,
        }
    }

    /// Moves to no cell. The next seek reads at `read_point`.
    pub(super) fn rewind(&mut self, read_point: u64) {
        each!(self, leaf => leaf.rewind(read_point));
    }
}

impl StoreScanner<StoreLeaf> {
    /// The MemStore segments that it reads.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.leaves().iter().filter_map(|leaf| match leaf {
            StoreLeaf::Segment(leaf) => Some(leaf.segment()),
            StoreLeaf::File(_) => None,
        })
    }
}

impl KeyValueScanner for StoreLeaf {
    #[inline]
    fn peek(&self) -> Option<&CellRef<'_>> {
        match self {
            Self::Segment(leaf) => leaf.peek(),
            Self::File(leaf) => leaf.peek(),
        }
    }

    #[inline]
    fn is_at_end(&self) -> bool {
        match self {
            Self::Segment(leaf) => leaf.is_at_end(),
            Self::File(leaf) => leaf.is_at_end(),
        }
    }

    #[inline(always)]
    fn advance(&mut self) -> TryResult<()> {
        each!(self, leaf => leaf.advance())
    }

    fn seek(&mut self, key: &CellRef<'_>) -> TryResult<()> {
        each!(self, leaf => leaf.seek(key))
    }

    fn reseek(&mut self, key: &CellRef<'_>) -> TryResult<()> {
        each!(self, leaf => leaf.reseek(key))
    }

    fn seek_to_previous_row(&mut self, row: &[u8]) -> TryResult<()> {
        each!(self, leaf => leaf.seek_to_previous_row(row))
    }

    fn seek_to_last_row(&mut self) -> TryResult<()> {
        each!(self, leaf => leaf.seek_to_last_row())
    }
}

impl LeafScanner for StoreLeaf {
    fn prefetch_rows<'a>(&mut self, rows: impl Iterator<Item = &'a [u8]> + Clone) {
        each!(self, leaf => leaf.prefetch_rows(rows));
    }

    fn share_value(&self) -> Option<Bytes> {
        each!(self, leaf => leaf.share_value())
    }

    #[inline]
    fn source(&self) -> CellSource {
        each!(self, leaf => leaf.source())
    }

    fn held_bytes(&self) -> u64 {
        each!(self, leaf => leaf.held_bytes())
    }

    #[inline]
    fn enter_block(&mut self) -> TryResult<u64> {
        each!(self, leaf => leaf.enter_block())
    }

    fn release_block(&mut self) {
        each!(self, leaf => leaf.release_block());
    }
}
