//! Row keys, values and random choices: PerformanceEvaluation's formats, YCSB's distributions.
//!
//! Facts of HBase's tool, so that tables written by either look the same: keys are [`ROW_BYTES`]
//! decimal digits; a value is runs of eight equal letters from `A` to `Z`; `--valueZipf` draws
//! lengths by Hadoop's truncated zipf with exponent 1.2.

use bytes::Bytes;
use evenkeel_common::length;
use rand::Rng;

/// Bytes of a row key: decimal digits, padded with zeros (`ROW_LENGTH`).
pub const ROW_BYTES: usize = 26;
/// The exponent of `--valueZipf`.
const VALUE_ZIPF_EXPONENT: f64 = 1.2;
/// Lengths that differ by less than this part share a step of the cumulative distribution.
const VALUE_ZIPF_STEP: f64 = 0.001;
/// The skew of YCSB's zipfian requests.
const YCSB_THETA: f64 = 0.99;

/// The key of a row by number.
pub fn row_key(number: i64) -> [u8; ROW_BYTES] {
    let mut key = [b'0'; ROW_BYTES];
    let mut rest = number.unsigned_abs();
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The key of a uniformly random row below `rows`.
pub fn random_row(rng: &mut impl Rng, rows: i64) -> i64 {
    rng.random_range(0..rows.max(1))
}

/// A value: runs of eight equal letters, the last run one to eight long.
pub fn value(rng: &mut impl Rng, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    bytes.chunks_mut(8).for_each(|run| run.fill(rng.random_range(b'A'..=b'Z')));
    bytes.into()
}

/// The distribution of value lengths.
#[derive(Clone, Debug)]
pub enum ValueLength {
    /// `--valueSize`: all the same.
    Fixed(usize),
    /// `--valueRandom`: uniform, below `--valueSize`.
    Uniform(usize),
    /// `--valueZipf`: zipf, 1 to `--valueSize` - 1.
    Zipf(ZipfLengths),
}

impl ValueLength {
    /// The length of the next value.
    pub fn next(&self, rng: &mut impl Rng) -> usize {
        match self {
            Self::Fixed(len) => *len,
            Self::Uniform(below) => rng.random_range(0..(*below).max(1)),
            Self::Zipf(lengths) => lengths.next(rng),
        }
    }
}

/// Zipf-distributed lengths from 1, `P(n) ~ n^-1.2`, drawn from a table of the cumulative
/// distribution.
///
/// Steps of the table are at most 0.1% of the length apart; within a step the distribution is
/// uniform, as in Hadoop's generator that PerformanceEvaluation uses.
#[derive(Clone, Debug)]
pub struct ZipfLengths {
    /// (the largest length of a step, the part of values not longer), both ascending; the last part
    /// is 1.
    steps: std::sync::Arc<[(usize, f64)]>,
}

impl ZipfLengths {
    /// Lengths from 1 to `max` - 1.
    pub fn below(max: usize) -> Self {
        let (mut steps, mut sum, mut last) = (Vec::new(), 0.0, 0usize);
        for len in 1..max.max(2) {
            sum += (len as f64).powf(-VALUE_ZIPF_EXPONENT);
            let far = len as f64 * (1.0 - VALUE_ZIPF_STEP) > last as f64;
            if far || len + 1 == max {
                steps.push((len, sum));
                last = len;
            }
        }
        steps.iter_mut().for_each(|step| step.1 /= sum);
        Self { steps: steps.into() }
    }

    fn next(&self, rng: &mut impl Rng) -> usize {
        let draw: f64 = rng.random();
        let at = self.steps.partition_point(|step| step.1 <= draw).min(self.steps.len() - 1);
        let below = if at == 0 { 0 } else { self.steps[at - 1].0 };
        rng.random_range(below + 1..=self.steps[at].0)
    }
}

/// YCSB's request distributions over item numbers: zipfian of skew 0.99 by Gray's method ("Quickly
/// generating billion-record synthetic databases", 1994), scattered over the items by a hash, or
/// skewed to the newest.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    zeta: f64,
    eta: f64,
    alpha: f64,
}

impl Zipfian {
    /// A distribution over `items` items; takes time proportional to them.
    pub fn new(items: u64) -> Self {
        let items = items.max(2);
        let zeta_of = |n: u64| (1..=n).map(|i| (i as f64).powf(-YCSB_THETA)).sum::<f64>();
        let zeta = zeta_of(items);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - YCSB_THETA)) / (1.0 - zeta_of(2) / zeta);
        Self { items, zeta, eta, alpha: 1.0 / (1.0 - YCSB_THETA) }
    }

    /// A random rank: 0 is the most likely.
    pub fn rank(&self, rng: &mut impl Rng) -> u64 {
        let draw: f64 = rng.random();
        let scaled = draw * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(YCSB_THETA) {
            return 1;
        }
        let rank = self.items as f64 * (self.eta * draw - self.eta + 1.0).powf(self.alpha);
        length::whole(rank).min(self.items - 1)
    }

    /// A random item; likely ones are scattered.
    pub fn scattered(&self, rng: &mut impl Rng) -> u64 {
        fnv(self.rank(rng)) % self.items
    }

    /// A random item of `count`; the newest are the most likely.
    pub fn latest(&self, rng: &mut impl Rng, count: u64) -> u64 {
        count.saturating_sub(1).saturating_sub(self.rank(rng) % count.max(1))
    }
}

/// FNV-1a of a number's eight bytes.
fn fnv(number: u64) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    number.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    fn rng() -> SmallRng {
        SmallRng::seed_from_u64(7)
    }

    #[test]
    fn keys_are_26_digits() {
        assert_eq!(&row_key(0), b"00000000000000000000000000");
        assert_eq!(&row_key(1_048_575), b"00000000000000000001048575");
        assert_eq!(&row_key(-12), b"00000000000000000000000012");
        assert_eq!(&row_key(i64::MAX), b"00000009223372036854775807");
        assert!(row_key(9) < row_key(10));
    }

    #[test]
    fn values_are_runs_of_letters() {
        for len in [0, 1, 8, 9, 1000] {
            let value = value(&mut rng(), len);
            assert_eq!(value.len(), len);
            assert!(value.iter().all(u8::is_ascii_uppercase));
            assert!(value.chunks(8).all(|run| run.iter().all(|b| *b == run[0])));
        }
        let distinct: std::collections::BTreeSet<u8> = value(&mut rng(), 8000).to_vec().into_iter().collect();
        assert_eq!(distinct.len(), 26);
    }

    #[test]
    fn uniform_lengths_stay_below_the_size() {
        let (mut rng, length) = (rng(), ValueLength::Uniform(10));
        let mut seen = [0; 10];
        (0..10_000).for_each(|_| seen[length.next(&mut rng)] += 1);
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
        assert_eq!(ValueLength::Fixed(9).next(&mut rng), 9);
    }

    /// The share of each of the first lengths, and the mean, compared with the sums of the
    /// distribution.
    #[test]
    fn zipf_lengths_follow_the_power_law() {
        let (mut rng, max, draws) = (rng(), 1000, 400_000);
        let lengths = ZipfLengths::below(max);
        let mut seen = vec![0u32; max];
        (0..draws).for_each(|_| seen[lengths.next(&mut rng)] += 1);
        let weight = |n: usize| (n as f64).powf(-1.2);
        let sum: f64 = (1..max).map(weight).sum();
        for n in [1, 2, 3, 10] {
            let (share, expected) = (f64::from(seen[n]) / f64::from(draws), weight(n) / sum);
            assert!((share / expected - 1.0).abs() < 0.05, "{n}: {share} for {expected}");
        }
        let mean = (1..max).map(|n| n as f64 * f64::from(seen[n])).sum::<f64>() / f64::from(draws);
        let expected = (1..max).map(|n| n as f64 * weight(n)).sum::<f64>() / sum;
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean} for {expected}");
        assert_eq!(seen[0], 0);
    }

    #[test]
    fn zipfian_requests_follow_theta() {
        let (mut rng, items, draws) = (rng(), 1000u64, 300_000u32);
        let zipfian = Zipfian::new(items);
        let mut seen = vec![0u32; items as usize];
        (0..draws).for_each(|_| seen[zipfian.rank(&mut rng) as usize] += 1);
        let zeta: f64 = (1..=items).map(|i| (i as f64).powf(-0.99)).sum();
        for rank in [0usize, 1] {
            let expected = ((rank + 1) as f64).powf(-0.99) / zeta;
            let share = f64::from(seen[rank]) / f64::from(draws);
            assert!((share / expected - 1.0).abs() < 0.05, "{rank}: {share} for {expected}");
        }
        let head: u32 = seen[..100].iter().sum();
        let expected: f64 = (1..=100).map(|i| f64::from(i).powf(-0.99)).sum::<f64>() / zeta;
        assert!((f64::from(head) / f64::from(draws) / expected - 1.0).abs() < 0.05);
    }

    #[test]
    fn scattered_and_latest_stay_in_range() {
        let (mut rng, zipfian) = (rng(), Zipfian::new(100));
        let mut newest = 0;
        for _ in 0..1000 {
            assert!(zipfian.scattered(&mut rng) < 100);
            let item = zipfian.latest(&mut rng, 150);
            assert!(item < 150);
            newest += u32::from(item == 149);
        }
        assert!(newest > 150, "the newest is the likeliest: {newest}");
    }
}
