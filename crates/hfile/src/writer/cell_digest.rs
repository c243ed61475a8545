//! [`CellDigest`]: one number for a sequence of cells, to compare cells written with cells read
//! back.
//!
//! It covers key, value, tags and sequence id of each cell, and the order of the cells. Two
//! different sequences have the same digest with a probability of about 2^-64. It has no secret, so
//! it detects faults, but not deliberate collisions.
//!
//! It folds 16 bytes at a time, by one multiplication per pair of words that is independent of the
//! preceding ones. A cell of 100 bytes takes about 50 instructions.

use evenkeel_common::CellRef;
use evenkeel_common::length;

/// A digest of ordered cells. See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellDigest {
    state: u64,
    cells: u64,
}

/// Odd numbers with as many ones as zeros and without a pattern.
const K1: u64 = 0x9e37_79b9_7f4a_7c15;
const K2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const K3: u64 = 0xd6e8_feb8_6659_fd93;

const STEP: usize = 16;

impl CellDigest {
    /// Adds the next cell.
    #[inline]
    pub fn add(&mut self, cell: &CellRef<'_>) {
        let (key, value, tags) = (cell.key(), cell.value(), cell.tags());
        // A key has little more than 64 KiB and tags less than 64 KiB, so both lengths are below
        // 2^24.
        let lengths = (key.len() as u64) << 40 ^ (tags.len() as u64) << 16 ^ (value.len() as u64) << 2;
        let mut state = mix(self.state, lengths ^ K2, cell.seq_id());
        state = run(state, key);
        state = run(state, value);
        if !tags.is_empty() {
            state = run(state, tags);
        }
        *self = Self { state, cells: self.cells + 1 };
    }

    /// The number of cells added.
    pub fn cells(&self) -> u64 {
        self.cells
    }
}

#[inline]
fn mix(state: u64, a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ K1) * u128::from(b ^ K2);
    let folded = length::low_u64(product >> 64) ^ length::low_u64(product);
    (state.rotate_left(29) ^ folded).wrapping_mul(K3)
}

#[inline]
#[expect(clippy::indexing_slicing, reason = "the rest is shorter than a step")]
fn run(mut state: u64, bytes: &[u8]) -> u64 {
    let (whole, rest) = bytes.as_chunks::<STEP>();
    for chunk in whole {
        let number = u128::from_le_bytes(*chunk);
        state = mix(state, length::low_u64(number), length::low_u64(number >> 64));
    }
    if rest.is_empty() {
        return state;
    }
    let mut last = [0; STEP];
    last[..rest.len()].copy_from_slice(rest);
    let number = u128::from_le_bytes(last);
    mix(state, length::low_u64(number), length::low_u64(number >> 64))
}

#[cfg(test)]
mod tests {
    use evenkeel_common::KeyValue;
    use evenkeel_common::cell::KeyValueBuilder;

    use super::*;

    fn digest(cells: &[KeyValue]) -> CellDigest {
        let mut digest = CellDigest::default();
        cells.iter().for_each(|cell| digest.add(&cell.as_cell()));
        digest
    }

    fn cell(value: &[u8], tags: &[u8], seq_id: u64) -> KeyValue {
        let kind = evenkeel_common::CellType::Put;
        let (row, family, qualifier, timestamp) = (&b"row"[..], &b"f"[..], &b"qualifier"[..], 7);
        let mut cell = KeyValueBuilder { row, family, qualifier, timestamp, kind, value, tags }.build();
        cell.set_seq_id(seq_id);
        cell
    }

    #[test]
    fn the_digest_depends_on_every_part_of_a_cell() {
        let value: Vec<u8> = (0..40).collect();
        let cells = [cell(&value, &[0, 2, 8, 1], 5), cell(b"", b"", 6), cell(&value[..17], b"", 7)];
        let mut seen = std::collections::HashSet::from([digest(&cells).state]);
        let mut is_new = |cells: &[KeyValue]| assert!(seen.insert(digest(cells).state), "{cells:?}");
        for bit in 0..value.len() * 8 {
            let mut changed = value.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            is_new(&[cell(&changed, &[0, 2, 8, 1], 5), cells[1].clone(), cells[2].clone()]);
        }
        is_new(&[cell(&value, &[0, 2, 8, 1], 6), cells[1].clone(), cells[2].clone()]);
        is_new(&[cell(&value, b"", 5), cells[1].clone(), cells[2].clone()]);
        for swapped in [[1, 0, 2], [0, 2, 1], [2, 1, 0]] {
            is_new(&swapped.map(|i| cells[i].clone()));
        }
        is_new(&cells[..2]);
        is_new(&[cells[0].clone(), cells[0].clone(), cells[1].clone(), cells[2].clone()]);
        // Zeros at the end of a value are not padding.
        for len in 0..40 {
            is_new(&[cell(&vec![0; len], b"", 1)]);
        }
        assert_eq!(digest(&cells), digest(&cells));
        assert_eq!(digest(&cells).cells(), 3);
    }
}
