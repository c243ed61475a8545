//! [`FrequencySketch`]: counts the recent requests of keys. A count-min sketch with counts up to
//! 15.
//!
//! A key has four counters of four bits. The smallest is its count, because other keys can only
//! have raised them. All four are in one 64-byte line, so a key costs one cache miss, and a line
//! ages as a whole. Only counters at the minimum are raised (*conservative update*), which disturbs
//! keys that share the others less.
//!
//! *Ageing.* Every count is halved once per [`ADDS_PER_AGE`] requests for each live block. Halving
//! proceeds one line at a time, as requests arrive: halving all of them at once would hold the
//! shard's lock for milliseconds.
//!
//! *Size.* [`COUNTERS`] per block, which is ten bytes. The sketch grows with the number of blocks,
//! by at least an eighth, and loses its counts then. This happens while the cache fills, when
//! nothing is compared.
//!
//! All methods are called with the shard's lock held.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use evenkeel_common::length;

/// The maximum of a count.
const COUNT_MAX: u8 = 15;
/// Counters per block.
const COUNTERS: usize = 20;
/// Requests per live block from one halving of a counter to the next.
const ADDS_PER_AGE: u64 = 16;
/// Blocks of the smallest sketch.
const BLOCKS_MIN: u32 = 64;

/// A line has one row of counters for each of a key's counters.
const ROWS: usize = 4;
const ROW_COUNTERS: usize = LINE_COUNTERS / ROWS;
const LINE_COUNTERS: usize = 128;
const WORD_COUNTERS: usize = 16;
const LOW_BITS: u64 = 0x7777_7777_7777_7777;

type Line = [u64; LINE_COUNTERS / WORD_COUNTERS];

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FrequencySketch {
    lines: Vec<Line>,
    /// The number of blocks it was made for, and the number of live blocks.
    capacity_blocks: u32,
    live: u32,
    /// The next line to halve, and the progress towards it.
    hand: usize,
    aged: u64,
}

impl FrequencySketch {
    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
    }

    /// Makes the sketch large enough for `live` blocks.
    pub fn resize_for(&mut self, live: u32) {
        self.live = live;
        if live > self.capacity_blocks {
            let capacity_blocks = live.saturating_add(live / 8).max(BLOCKS_MIN);
            let lines = (capacity_blocks as usize * COUNTERS).div_ceil(LINE_COUNTERS);
            *self = Self { lines: vec![Line::default(); lines], capacity_blocks, live, ..Self::default() };
        }
    }

    /// An upper bound of a key's requests since it aged.
    pub fn count(&self, hash: u64) -> u8 {
        let Some(line) = self.lines.get(self.line_of(hash)) else { return 0 };
        counters(hash).map(|(word, shift)| (line[word] >> shift & 0xff) as u8 & COUNT_MAX).min().unwrap_or(0)
    }

    /// Counts a request.
    pub fn add(&mut self, hash: u64) {
        let (at, count) = (self.line_of(hash), self.count(hash));
        if count == COUNT_MAX {
            return;
        }
        let Some(line) = self.lines.get_mut(at) else { return };
        for (word, shift) in counters(hash) {
            if (line[word] >> shift & 0xff) as u8 & COUNT_MAX == count {
                line[word] += 1 << shift;
            }
        }
        self.age();
    }

    /// Halves the lines that are due after one request.
    fn age(&mut self) {
        let period = ADDS_PER_AGE * u64::from(self.live.max(self.capacity_blocks / 4));
        self.aged += self.lines.len() as u64;
        while self.aged >= period {
            self.aged -= period;
            self.lines[self.hand].iter_mut().for_each(|word| *word = (*word >> 1) & LOW_BITS);
            self.hand = (self.hand + 1) % self.lines.len();
        }
    }

    fn line_of(&self, hash: u64) -> usize {
        let spread = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((spread * self.lines.len() as u64) >> 32) as usize
    }
}

/// Word and shift of a key's counters in its line.
fn counters(hash: u64) -> impl Iterator<Item = (usize, u32)> {
    let spread = hash.wrapping_mul(0xc2b2_ae3d_27d4_eb4f) >> 44;
    (0..ROWS).map(move |row| {
        let at = row * ROW_COUNTERS + (spread >> (5 * row)) as usize % ROW_COUNTERS;
        (at / WORD_COUNTERS, length::must_u32(at % WORD_COUNTERS * 4))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::hash;

    fn sketch(blocks: u32) -> FrequencySketch {
        let mut sketch = FrequencySketch::default();
        sketch.resize_for(blocks);
        sketch
    }

    #[test]
    fn counts_saturate_at_fifteen() {
        let mut sketch = sketch(1000);
        for count in 0..40u8 {
            assert_eq!(sketch.count(hash(1, 1)), count.min(15));
            sketch.add(hash(1, 1));
        }
        assert_eq!(FrequencySketch::default().count(hash(1, 1)), 0);
        FrequencySketch::default().add(hash(1, 1));
    }

    /// With one key per block, each requested up to four times: hardly any count is too high, and
    /// none is too low.
    #[test]
    fn counts_are_rarely_too_high_and_never_too_low() {
        let (blocks, mut too_high) = (10_000, 0);
        let mut sketch = sketch(blocks);
        // Nothing ages.
        sketch.live = u32::MAX;
        let key = |n: u32| hash(u64::from(n) % 7, u64::from(n) * 65_536);
        let times = |n: u32| (n % 4) as u8 + 1;
        for n in 0..blocks {
            (0..times(n)).for_each(|_| sketch.add(key(n)));
        }
        for n in 0..blocks {
            let count = sketch.count(key(n));
            assert!(count >= times(n), "{n}: {count}");
            too_high += u32::from(count > times(n));
        }
        assert!(too_high < blocks / 20, "{too_high} of {blocks}");
    }

    #[test]
    fn counts_are_halved_once_in_sixteen_requests_a_block() {
        let blocks = 4096;
        let mut sketch = sketch(blocks);
        let old: Vec<u64> = (0..50).map(|n| hash(1, n)).collect();
        old.iter().for_each(|key| (0..12).for_each(|_| sketch.add(*key)));
        // Requests for keys that never reach the maximum, so each of them ages the sketch.
        let mut ages = |requests: u64| {
            for n in 0..requests {
                sketch.add(hash(2, n));
            }
            old.iter().map(|key| f64::from(sketch.count(*key))).sum::<f64>() / old.len() as f64
        };
        let period = ADDS_PER_AGE * u64::from(blocks);
        let first = ages(period);
        assert!((6.0..8.0).contains(&first), "{first}");
        let later = ages(3 * period);
        assert!(later < 4.5, "{later}");
    }

    #[test]
    fn the_sketch_takes_ten_bytes_per_block() {
        let mut sketch = sketch(100);
        for live in 100..50_000 {
            sketch.resize_for(live);
            let each = sketch.bytes() as f64 / f64::from(live);
            assert!((10.0..12.0).contains(&each), "{each} bytes for each of {live}");
        }
        sketch.resize_for(10);
        assert!(sketch.bytes() > 500_000, "it stays as large as it was");
    }
}
