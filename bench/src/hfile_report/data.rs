//! The cells, which both sides generate identically.

use evenkeel_common::KeyValue;

pub(super) const FAMILY: &[u8] = b"f";
const VALUE_BYTES: usize = 100;

/// A sequence of cells: three columns a row, half of each value random (xorshift64).
pub(super) struct CellGenerator(u64);

impl CellGenerator {
    pub fn new() -> Self {
        Self(88_172_645_463_325_252)
    }

    pub fn cell(&mut self, i: u64) -> KeyValue {
        let mut value = [b'.'; VALUE_BYTES];
        value[..VALUE_BYTES / 2].iter_mut().for_each(|byte| *byte = self.next() as u8);
        let qualifier = format!("field{}", i % 3);
        let timestamp = 1_700_000_000_000 + i as i64;
        let mut cell = KeyValue::put(row(i / 3).as_bytes(), FAMILY, qualifier.as_bytes(), timestamp, &value);
        cell.set_seq_id(i + 1);
        cell
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    /// Random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.chunks_mut(7).for_each(|part| part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]));
    }
}

pub(super) fn row(number: u64) -> String {
    format!("user{number:012}")
}
