//! Traces: the sequence of requested blocks, and their sizes. Deterministic.

use super::Sizes;

/// Deterministic pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Zipf-distributed keys with the given exponent, shuffled over the blocks.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(keys: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += 1.0 / (rank as f64).powf(exponent);
            sum
        });
        Self { sums: sums.collect() }
    }

    fn pick(&self, random: &mut Random) -> u64 {
        self.block_of(self.rank(random))
    }

    fn rank(&self, random: &mut Random) -> u64 {
        let at = random.unit() * self.sums.last().copied().unwrap_or(1.0);
        self.sums.partition_point(|sum| *sum < at) as u64
    }

    fn block_of(&self, rank: u64) -> u64 {
        rank.wrapping_mul(7_919) % self.sums.len() as u64
    }
}

/// The sequence of requested blocks.
pub(super) type Trace = Vec<u64>;

pub(super) fn zipf(sizes: &Sizes, exponent: f64) -> Trace {
    let (zipf, mut random) = (Zipf::new(sizes.keys, exponent), Random(1));
    (0..sizes.requests).map(|_| zipf.pick(&mut random)).collect()
}

/// Zipf reads, mixed with scans over other blocks, a third of all requests.
pub(super) fn zipf_and_scans(sizes: &Sizes, exponent: f64) -> Trace {
    let (zipf, mut random) = (Zipf::new(sizes.keys, exponent), Random(2));
    let mut trace = Vec::with_capacity(sizes.requests);
    let mut cold = sizes.keys as u64;
    while trace.len() < sizes.requests {
        trace.extend((0..4000).map(|_| zipf.pick(&mut random)));
        trace.extend(cold..cold + 2000);
        cold += 2000;
        if cold > 6 * sizes.keys as u64 {
            cold = sizes.keys as u64;
        }
    }
    trace
}

/// After each hundred requests another block becomes the most popular one, and the others move down
/// by one rank.
pub(super) fn newest_first(sizes: &Sizes, exponent: f64) -> Trace {
    let (zipf, mut random, keys) = (Zipf::new(sizes.keys, exponent), Random(4), sizes.keys as u64);
    let aged = |i: usize, rank: u64| (rank + keys - (i / 100) as u64 % keys) % keys;
    (0..sizes.requests).map(|i| zipf.block_of(aged(i, zipf.rank(&mut random)))).collect()
}

/// After each 20,000 requests the ranks of all blocks change.
pub(super) fn all_change(sizes: &Sizes, exponent: f64) -> Trace {
    let (zipf, mut random) = (Zipf::new(sizes.keys, exponent), Random(3));
    (0..sizes.requests)
        .map(|i| (zipf.pick(&mut random) + (i / 20_000 * 300) as u64) % sizes.keys as u64)
        .collect()
}

/// Block sizes as in tables with compression and values of all sizes: 4 KB to 256 KB, mostly about
/// 64 KB.
pub(super) fn size_of(key: u64) -> u64 {
    let mut random = Random(key ^ 0x5eed);
    match random.next() % 10 {
        0 => 4_096 + random.next() % 12_000,
        1..3 => 16_000 + random.next() % 30_000,
        9 => 80_000 + random.next() % 176_000,
        _ => 65_536 + random.next() % 2_500,
    }
}
