//! [`FrequencySketch`]: how often keys were asked for, lately; a count-min sketch of counts to 15.
//!
//! Four counters stand for a key, two a byte, and the least of them is its count: others can only have raised it. All four
//! lie in one line of 64 bytes, so that a key costs one miss of the processor's cache, and that what ages ages together.
//! Only counters that are at the least are raised (*conservative update*), which leaves keys that share some alone.
//!
//! *Ageing.* Counts are halved once in [`ADDS_PER_AGE`] requests for each block that is held: a line at a time, as requests
//! come, for halving all of them at once would hold the shard's lock for milliseconds.
//!
//! *Size.* [`COUNTERS`] a block, which is ten bytes. It grows as blocks do, by an eighth at least, and forgets what it knew
//! then: that is while the cache fills, when nothing is compared.
//!
//! Called with the shard's lock held.

use evenkeel_common::length;

/// The most that is counted.
const COUNT_MAX: u8 = 15;
/// Counters a block.
const COUNTERS: usize = 20;
/// Requests for each block that is held, from one halving of a counter to the next.
const ADDS_PER_AGE: u64 = 16;
/// Blocks of the smallest sketch.
const BLOCKS_MIN: u32 = 64;

/// A line has a row of counters for each counter of a key.
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
    /// Blocks that it was made for, and that there are.
    capacity_blocks: u32,
    live: u32,
    /// The next line to age, and what has come of the way there.
    hand: usize,
    aged: u64,
}

impl FrequencySketch {
    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
    }

    /// Makes room for so many blocks.
    pub fn resize_for(&mut self, live: u32) {
        self.live = live;
        if live > self.capacity_blocks {
            let capacity_blocks = live.saturating_add(live / 8).max(BLOCKS_MIN);
            let lines = (capacity_blocks as usize * COUNTERS).div_ceil(LINE_COUNTERS);
            *self = Self { lines: vec![Line::default(); lines], capacity_blocks, live, ..Self::default() };
        }
    }

    /// How often a key was asked for, or more.
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

    /// As many lines as one request makes older.
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
        (at / WORD_COUNTERS, length::bounded_u32(at % WORD_COUNTERS * 4))
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
    fn counts_go_to_fifteen() {
        let mut sketch = sketch(1000);
        for count in 0..40u8 {
            assert_eq!(sketch.count(hash(1, 1)), count.min(15));
            sketch.add(hash(1, 1));
        }
        assert_eq!(FrequencySketch::default().count(hash(1, 1)), 0);
        FrequencySketch::default().add(hash(1, 1));
    }

    /// As many keys as there are blocks, each asked for up to four times: hardly one is counted too high, none too low.
    #[test]
    fn few_counts_are_too_high_and_none_too_low() {
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
        // Requests for one key that is never at its most: what is counted of others does not come into it.
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
    fn it_takes_ten_bytes_a_block_and_grows_with_them() {
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
