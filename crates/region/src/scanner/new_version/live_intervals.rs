//! [`LiveIntervals`]: the number of puts that were live at the end of each interval between two
//! version markers.
//!
//! An ordered list of intervals in chunks. A chunk has the largest count in it, and an amount to
//! add to all of its intervals. So adding to a range, and finding its first full interval, visits
//! whole chunks, and single intervals only at the edges of the range: with N intervals, at most N /
//! [`CHUNK_MAX`] + 2 * [`CHUNK_MAX`] steps.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

/// The end of time, in sequence ids: the end of the last interval.
pub(super) const OPEN: u64 = u64::MAX;

/// The maximum number of intervals of a chunk.
const CHUNK_MAX: usize = 256;

/// The time from the end of the previous interval, or from the beginning, to `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveInterval {
    /// The sequence id of the marker that ends it, or [`OPEN`].
    pub(super) end: u64,
    /// The number of puts live at its end.
    pub(super) live: u32,
    /// The number of sequence ids of counted puts within it, excluding its end.
    pub(super) begun: u32,
}

#[derive(Clone, Debug)]
struct IntervalChunk {
    /// To be added to the count of each interval.
    added: u32,
    /// The largest count, with `added`.
    live_max: u32,
    intervals: Vec<LiveInterval>,
}

impl IntervalChunk {
    fn new(intervals: Vec<LiveInterval>) -> Self {
        let live_max = intervals.iter().map(|interval| interval.live).max().unwrap_or_default();
        Self { added: 0, live_max, intervals }
    }

    fn end(&self) -> u64 {
        self.intervals.last().map_or(0, |interval| interval.end)
    }

    /// Moves `added` into the intervals, and then applies `change`.
    fn change(&mut self, change: impl FnOnce(&mut Vec<LiveInterval>)) {
        let added = std::mem::take(&mut self.added);
        self.intervals.iter_mut().for_each(|interval| interval.live += added);
        change(&mut self.intervals);
        self.live_max = self.intervals.iter().map(|interval| interval.live).max().unwrap_or_default();
    }
}

/// The position of an interval in the list; positions are ordered as the intervals are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    chunk: usize,
    at: usize,
}

/// See the module. The last interval ends at [`OPEN`].
#[derive(Clone, Debug)]
pub(super) struct LiveIntervals {
    chunks: Vec<IntervalChunk>,
}

impl LiveIntervals {
    /// One interval, for all time.
    pub(super) fn new() -> Self {
        Self { chunks: vec![IntervalChunk::new(vec![LiveInterval { end: OPEN, live: 0, begun: 0 }])] }
    }

    /// Bytes of memory.
    pub(super) fn held_bytes(&self) -> usize {
        let chunk = |chunk: &IntervalChunk| {
            size_of::<IntervalChunk>() + chunk.intervals.capacity() * size_of::<LiveInterval>()
        };
        self.chunks.iter().map(chunk).sum()
    }

    /// Returns the first interval that ends at `seq_id` or later. It always exists.
    pub(super) fn ending_from(&self, seq_id: u64) -> Position {
        let chunk = self.chunks.partition_point(|chunk| chunk.end() < seq_id);
        let intervals = self.chunks.get(chunk).map_or(&[][..], |chunk| &chunk.intervals);
        Position { chunk, at: intervals.partition_point(|interval| interval.end < seq_id) }
    }

    /// The first interval that ends later than `seq_id`, or the end of the list.
    pub(super) fn ending_after(&self, seq_id: u64) -> Position {
        let end = Position { chunk: self.chunks.len(), at: 0 };
        seq_id.checked_add(1).map_or(end, |next| self.ending_from(next))
    }

    /// The interval at a position that is not the end of the list.
    pub(super) fn get(&self, position: Position) -> LiveInterval {
        let chunk = &self.chunks[position.chunk];
        let interval = chunk.intervals[position.at];
        LiveInterval { live: interval.live + chunk.added, ..interval }
    }

    pub(super) fn before(&self, position: Position) -> Option<Position> {
        match position.at.checked_sub(1) {
            Some(at) => Some(Position { at, ..position }),
            None => {
                let chunk = position.chunk.checked_sub(1)?;
                Some(Position { chunk, at: self.chunks[chunk].intervals.len() - 1 })
            }
        }
    }

    pub(super) fn after(&self, position: Position) -> Position {
        let Position { chunk, at } = position;
        let is_last = at + 1 == self.chunks[chunk].intervals.len();
        if is_last { Position { chunk: chunk + 1, at: 0 } } else { Position { chunk, at: at + 1 } }
    }

    /// Returns the first interval from `from`, before `to`, with at least `live_max` puts.
    pub(super) fn first_full(&self, from: Position, to: Position, live_max: u32) -> Option<Position> {
        self.parts(from, to).filter(|(chunk, _)| self.chunks[*chunk].live_max >= live_max).find_map(
            |(chunk, part)| {
                let (start, own) = (part.start, &self.chunks[chunk]);
                let mut counts = own.intervals[part].iter().map(|interval| interval.live + own.added);
                counts.position(|live| live >= live_max).map(|at| Position { chunk, at: start + at })
            },
        )
    }

    /// Counts one more put in each interval from `from`, before `to`.
    pub(super) fn add(&mut self, from: Position, to: Position) {
        for chunk in from.chunk..self.chunks.len().min(to.chunk + 1) {
            let part = self.part(chunk, from, to);
            let own = &mut self.chunks[chunk];
            if part.len() == own.intervals.len() {
                own.added += 1;
                own.live_max += 1;
            } else if !part.is_empty() {
                own.change(|intervals| intervals[part].iter_mut().for_each(|interval| interval.live += 1));
            }
        }
    }

    /// Changes the interval at a position, except its end.
    pub(super) fn change(&mut self, position: Position, change: impl FnOnce(&mut LiveInterval)) {
        self.chunks[position.chunk].change(|intervals| change(&mut intervals[position.at]));
    }

    /// Inserts an interval before the one at `position`, which then begins where it ends.
    pub(super) fn insert(&mut self, position: Position, interval: LiveInterval) {
        let chunk = &mut self.chunks[position.chunk];
        chunk.change(|intervals| intervals.insert(position.at, interval));
        if chunk.intervals.len() > CHUNK_MAX {
            let upper = chunk.intervals.split_off(CHUNK_MAX / 2);
            *chunk = IntervalChunk::new(std::mem::take(&mut chunk.intervals));
            self.chunks.insert(position.chunk + 1, IntervalChunk::new(upper));
        }
    }

    /// Returns the chunks between two positions, with the range of each that lies between them.
    fn parts(&self, from: Position, to: Position) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        (from.chunk..self.chunks.len().min(to.chunk + 1))
            .map(move |chunk| (chunk, self.part(chunk, from, to)))
    }

    fn part(&self, chunk: usize, from: Position, to: Position) -> std::ops::Range<usize> {
        let start = if chunk == from.chunk { from.at } else { 0 };
        let end = if chunk == to.chunk { to.at } else { self.chunks[chunk].intervals.len() };
        start..end.max(start)
    }
}
