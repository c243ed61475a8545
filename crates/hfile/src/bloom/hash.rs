//! The three hash functions of `hbase.hash.type`, in Java's 32-bit arithmetic.

use evenkeel_common::jenkins::jenkins_hash;
use evenkeel_common::length;

/// A hash function of bloom filters. The code is the one in their metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BloomHash {
    /// Bob Jenkins' lookup3.
    Jenkins,
    /// MurmurHash2, with the last bytes read as signed, as HBase does.
    #[default]
    Murmur,
    /// MurmurHash3.
    Murmur3,
}

impl BloomHash {
    /// The number in a filter's metadata.
    pub fn code(self) -> u32 {
        match self {
            Self::Jenkins => 0,
            Self::Murmur => 1,
            Self::Murmur3 => 2,
        }
    }

    /// The function with this number.
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::Jenkins, Self::Murmur, Self::Murmur3].into_iter().find(|hash| hash.code() == code)
    }

    /// The function with this name in `hbase.hash.type`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "jenkins" => Some(Self::Jenkins),
            "murmur" => Some(Self::Murmur),
            "murmur3" => Some(Self::Murmur3),
            _ => None,
        }
    }

    /// Hashes a key.
    pub(crate) fn hash(self, key: &[u8], seed: i32) -> i32 {
        match self {
            Self::Jenkins => jenkins_hash(key, seed as u32) as i32,
            Self::Murmur => murmur2(key, seed as u32) as i32,
            Self::Murmur3 => murmur3(key, seed as u32) as i32,
        }
    }
}

/// The low bits of a length, as in Java's int.
fn low_bits(len: usize) -> u32 {
    length::low_u32(len as u64)
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |w, b| w << 8 | u32::from(*b))
}

/// A byte as Java's `(int) byte`, with sign extension.
fn signed(byte: u8) -> u32 {
    byte as i8 as i32 as u32
}

fn murmur2(key: &[u8], seed: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut h = seed ^ low_bits(key.len());
    let (words, tail) = key.as_chunks();
    for bytes in words {
        let mut k = u32::from_le_bytes(*bytes).wrapping_mul(M);
        k ^= k >> 24;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        h = tail.iter().enumerate().fold(h, |h, (i, b)| h ^ signed(*b) << (8 * i)).wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ h >> 15
}

fn murmur3(key: &[u8], seed: u32) -> u32 {
    let scramble = |k: u32| k.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (words, tail) = key.as_chunks();
    let mut h = words.iter().fold(seed, |h, bytes| {
        let word = scramble(u32::from_le_bytes(*bytes));
        (h ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    if !tail.is_empty() {
        h ^= scramble(word(tail));
    }
    h ^= low_bits(key.len());
    h = (h ^ h >> 16).wrapping_mul(0x85eb_ca6b);
    h = (h ^ h >> 13).wrapping_mul(0xc2b2_ae35);
    h ^ h >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur3_known_values() {
        assert_eq!(murmur3(b"", 0), 0);
        assert_eq!(murmur3(b"", 1), 0x514e_28b7);
        assert_eq!(murmur3(b"test", 0x9747_b28c), 0x704b_81dc);
        assert_eq!(murmur3(b"Hello, world!", 0x9747_b28c), 0x2488_4cba);
        assert_eq!(murmur3(b"aaa", 0x9747_b28c), 0x283e_0130);
    }

    #[test]
    fn hash_codes_round_trip() {
        for hash in [BloomHash::Jenkins, BloomHash::Murmur, BloomHash::Murmur3] {
            assert_eq!(BloomHash::from_code(hash.code()), Some(hash));
        }
        assert_eq!(BloomHash::from_code(3), None);
    }
}
