//! One chunk of bits.

use super::BloomHash;
use evenkeel_common::length;

/// Returns true if all bits of a key are set. `bits` is a chunk's body; a chunk without bits
/// contains nothing.
pub(crate) fn contains(bits: &[u8], hash: BloomHash, hash_count: u32, key: &[u8]) -> bool {
    bit_positions(bits.len(), hash, hash_count, key)
        .all(|place| bits.get(place >> 3).is_some_and(|byte| byte & 1 << (place & 7) != 0))
}

/// The bit positions of a key in a chunk of `bytes`.
fn bit_positions(
    bytes: usize,
    hash: BloomHash,
    hash_count: u32,
    key: &[u8],
) -> impl Iterator<Item = usize> + use<> {
    let h1 = hash.hash(key, 0);
    let h2 = hash.hash(key, h1);
    // The absolute value of a signed remainder is the remainder of the absolute values. For a power
    // of two it is a mask.
    let bits = length::low_u32(bytes as u64).cast_signed().wrapping_mul(8).unsigned_abs();
    let place = move |h: i32| match bits {
        0 => usize::MAX,
        bits if bits.is_power_of_two() => (h.unsigned_abs() & (bits - 1)) as usize,
        bits => (h.unsigned_abs() % bits) as usize,
    };
    (0..hash_count).scan(h1, move |h, _| {
        let this = *h;
        *h = h.wrapping_add(h2);
        Some(place(this))
    })
}

/// The dimensions of a chunk that is being filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkSize {
    pub bytes: usize,
    pub hash_count: u32,
    pub keys_max: u32,
}

impl ChunkSize {
    /// The dimensions for a wanted size and error rate, such that the chunk can be folded
    /// `fold_max` times.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "HBase's arithmetic, which casts doubles to longs and ints"
    )]
    pub fn new(bytes_wanted: usize, error_rate: f32, fold_max: u32) -> Self {
        let bytes = bytes_wanted.next_multiple_of(1 << fold_max.min(16)).clamp(1, (i32::MAX / 8) as usize);
        let bits = (bytes * 8) as f64;
        let error_rate = f64::from(error_rate);
        let ln2 = std::f64::consts::LN_2;
        let keys_ideal = ((bits * (ln2 * ln2 / -error_rate.ln())) as i64).max(1);
        let hash_count = (ln2 * (bits as i64 / keys_ideal) as f64).ceil().max(1.0);
        let keys_max = (-bits / hash_count * (1.0 - (error_rate.ln() / hash_count).exp()).ln()) as i64;
        Self { bytes, hash_count: hash_count as u32, keys_max: keys_max.clamp(1, i64::from(i32::MAX)) as u32 }
    }
}

/// A chunk that is being filled.
#[derive(Debug)]
pub(super) struct BloomChunk {
    size: ChunkSize,
    bits: Vec<u8>,
    keys: u32,
}

impl BloomChunk {
    pub fn new(size: ChunkSize) -> Self {
        Self { size, bits: vec![0; size.bytes], keys: 0 }
    }

    pub fn add(&mut self, hash: BloomHash, key: &[u8]) {
        for place in bit_positions(self.size.bytes, hash, self.size.hash_count, key) {
            if let Some(byte) = self.bits.get_mut(place >> 3) {
                *byte |= 1 << (place & 7);
            }
        }
        self.keys += 1;
    }

    pub fn is_full(&self) -> bool {
        self.keys >= self.size.keys_max
    }

    pub fn keys_max(&self) -> u32 {
        self.size.keys_max
    }

    pub fn bits(&self) -> &[u8] {
        &self.bits
    }

    /// Halves the chunk, by a bitwise OR of its halves, as long as it has capacity for twice its
    /// keys.
    pub fn fold(&mut self) {
        let whole = self.bits.len();
        let (mut bytes, mut keys_max) = (whole, self.size.keys_max);
        while self.keys > 0 && bytes.is_multiple_of(2) && u64::from(keys_max) > 2 * u64::from(self.keys) {
            bytes /= 2;
            keys_max /= 2;
        }
        let (first, rest) = self.bits.split_at_mut(bytes);
        for piece in rest.chunks_exact(bytes) {
            first.iter_mut().zip(piece).for_each(|(bits, more)| *bits |= more);
        }
        self.bits.truncate(bytes);
        (self.size.bytes, self.size.keys_max) = (bytes, keys_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(i: u32) -> Vec<u8> {
        i.wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec()
    }

    #[test]
    fn sizes_of_the_default_settings() {
        let size = ChunkSize::new(128 << 10, 0.01, 7);
        assert_eq!((size.bytes, size.hash_count), (131_072, 7));
        assert_eq!(size.keys_max, 109_306);
        assert_eq!(ChunkSize::new(1000, 0.01, 7).bytes, 1024);
    }

    #[test]
    fn added_keys_are_found_folded_or_not_and_most_others_are_not() {
        for hash in [BloomHash::Jenkins, BloomHash::Murmur, BloomHash::Murmur3] {
            for keys in [10u32, 100, 500, 1600] {
                let mut chunk = BloomChunk::new(ChunkSize::new(2048, 0.01, 7));
                (0..keys).for_each(|i| chunk.add(hash, &key(i)));
                chunk.fold();
                let found = |i| contains(chunk.bits(), hash, chunk.size.hash_count, &key(i));
                assert!((0..keys).all(found), "{hash:?} {keys}");
                let wrong = (10_000..20_000).filter(|i| found(*i)).count();
                assert!(wrong < 400, "{hash:?} {keys}: {wrong} false of 10000");
            }
        }
    }

    #[test]
    fn a_few_keys_fold_to_a_few_bytes() {
        let mut chunk = BloomChunk::new(ChunkSize::new(128 << 10, 0.01, 7));
        chunk.add(BloomHash::Murmur, b"row");
        chunk.fold();
        assert!(chunk.bits().len() <= 4, "{}", chunk.bits().len());
    }

    #[test]
    fn an_empty_chunk_contains_no_key() {
        assert!(!contains(&[], BloomHash::Murmur, 3, b"row"));
    }
}
