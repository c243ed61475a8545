//! [`Stretches`]: the number of puts that were live at the end of each stretch between two version
//! markers.
//!
//! An ordered list of stretches in chunks. A chunk has the largest count in it, and an amount to
//! add to all of its stretches. So adding to a range, and finding its first full stretch, visits
//! whole chunks, and single stretches only at the edges of the range: with N stretches, at most N /
//! [`CHUNK_MAX`] + 2 * [`CHUNK_MAX`] steps.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

/// The end of time, in sequence ids: the end of the last stretch.
pub(super) const OPEN: u64 = u64::MAX;

/// The maximum number of stretches of a chunk.
const CHUNK_MAX: usize = 256;

/// The time from the end of the previous stretch, or from the beginning, to `end`.
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
struct Chunk {
    /// To be added to the count of each stretch.
    added: u32,
    /// The largest count, with `added`.
    live_max: u32,
    stretches: Vec<LiveInterval>,
}

impl Chunk {
    fn new(stretches: Vec<LiveInterval>) -> Self {
        let live_max = stretches.iter().map(|stretch| stretch.live).max().unwrap_or_default();
        Self { added: 0, live_max, stretches }
    }

    fn end(&self) -> u64 {
        self.stretches.last().map_or(0, |stretch| stretch.end)
    }

    /// Moves `added` into the stretches, and then applies `change`.
    fn change(&mut self, change: impl FnOnce(&mut Vec<LiveInterval>)) {
        let added = std::mem::take(&mut self.added);
        self.stretches.iter_mut().for_each(|stretch| stretch.live += added);
        change(&mut self.stretches);
        self.live_max = self.stretches.iter().map(|stretch| stretch.live).max().unwrap_or_default();
    }
}

/// The position of a stretch in the list; positions are ordered as the stretches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    chunk: usize,
    at: usize,
}

/// See the module. The last stretch ends at [`OPEN`].
#[derive(Clone, Debug)]
pub(super) struct LiveIntervals {
    chunks: Vec<Chunk>,
}

impl LiveIntervals {
    /// One stretch, for all time.
    pub(super) fn new() -> Self {
        Self { chunks: vec![Chunk::new(vec![LiveInterval { end: OPEN, live: 0, begun: 0 }])] }
    }

    /// Bytes of memory.
    pub(super) fn held_bytes(&self) -> usize {
        let chunk = |chunk: &Chunk| size_of::<Chunk>() + chunk.stretches.capacity() * size_of::<LiveInterval>();
        self.chunks.iter().map(chunk).sum()
    }

    /// Returns the first stretch that ends at `seq_id` or later. It always exists.
    pub(super) fn ending_from(&self, seq_id: u64) -> Position {
        let chunk = self.chunks.partition_point(|chunk| chunk.end() < seq_id);
        let stretches = self.chunks.get(chunk).map_or(&[][..], |chunk| &chunk.stretches);
        Position { chunk, at: stretches.partition_point(|stretch| stretch.end < seq_id) }
    }

    /// The first stretch that ends later than `seq_id`, or the end of the list.
    pub(super) fn ending_after(&self, seq_id: u64) -> Position {
        let end = Position { chunk: self.chunks.len(), at: 0 };
        seq_id.checked_add(1).map_or(end, |next| self.ending_from(next))
    }

    /// The stretch at a position that is not the end of the list.
    pub(super) fn get(&self, position: Position) -> LiveInterval {
        let chunk = &self.chunks[position.chunk];
        let stretch = chunk.stretches[position.at];
        LiveInterval { live: stretch.live + chunk.added, ..stretch }
    }

    pub(super) fn before(&self, position: Position) -> Option<Position> {
        match position.at.checked_sub(1) {
            Some(at) => Some(Position { at, ..position }),
            None => {
                let chunk = position.chunk.checked_sub(1)?;
                Some(Position { chunk, at: self.chunks[chunk].stretches.len() - 1 })
            }
        }
    }

    pub(super) fn after(&self, position: Position) -> Position {
        let Position { chunk, at } = position;
        let is_last = at + 1 == self.chunks[chunk].stretches.len();
        if is_last { Position { chunk: chunk + 1, at: 0 } } else { Position { chunk, at: at + 1 } }
    }

    /// Returns the first stretch from `from`, before `to`, with at least `live_max` puts.
    pub(super) fn first_full(&self, from: Position, to: Position, live_max: u32) -> Option<Position> {
        self.parts(from, to).filter(|(chunk, _)| self.chunks[*chunk].live_max >= live_max).find_map(
            |(chunk, part)| {
                let (start, own) = (part.start, &self.chunks[chunk]);
                let mut counts = own.stretches[part].iter().map(|stretch| stretch.live + own.added);
                counts.position(|live| live >= live_max).map(|at| Position { chunk, at: start + at })
            },
        )
    }

    /// Counts one more put in each stretch from `from`, before `to`.
    pub(super) fn add(&mut self, from: Position, to: Position) {
        for chunk in from.chunk..self.chunks.len().min(to.chunk + 1) {
            let part = self.part(chunk, from, to);
            let own = &mut self.chunks[chunk];
            if part.len() == own.stretches.len() {
                own.added += 1;
                own.live_max += 1;
            } else if !part.is_empty() {
                own.change(|stretches| stretches[part].iter_mut().for_each(|stretch| stretch.live += 1));
            }
        }
    }

    /// Changes the stretch at a position, except its end.
    pub(super) fn change(&mut self, position: Position, change: impl FnOnce(&mut LiveInterval)) {
        self.chunks[position.chunk].change(|stretches| change(&mut stretches[position.at]));
    }

    /// Inserts a stretch before the one at `position`, which then begins where it ends.
    pub(super) fn insert(&mut self, position: Position, stretch: LiveInterval) {
        let chunk = &mut self.chunks[position.chunk];
        chunk.change(|stretches| stretches.insert(position.at, stretch));
        if chunk.stretches.len() > CHUNK_MAX {
            let upper = chunk.stretches.split_off(CHUNK_MAX / 2);
            *chunk = Chunk::new(std::mem::take(&mut chunk.stretches));
            self.chunks.insert(position.chunk + 1, Chunk::new(upper));
        }
    }

    /// Returns the chunks between two positions, with the range of each that lies between them.
    fn parts(&self, from: Position, to: Position) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        (from.chunk..self.chunks.len().min(to.chunk + 1))
            .map(move |chunk| (chunk, self.part(chunk, from, to)))
    }

    fn part(&self, chunk: usize, from: Position, to: Position) -> std::ops::Range<usize> {
        let start = if chunk == from.chunk { from.at } else { 0 };
        let end = if chunk == to.chunk { to.at } else { self.chunks[chunk].stretches.len() };
        start..end.max(start)
    }
}
