//! [`RowPrefixEncoder`]: encodes a row's prefix in a few bits that usually decide the order of
//! rows.
//!
//! A skip list search compares the row of each node it passes, and waits for memory to read it.
//! With a code of the row beside each link, the search usually decides without reading the node,
//! and reads only the nodes on its path.
//!
//! Rows of one region are similar: they share a prefix, and many are decimal or hexadecimal text.
//! So a code skips the prefix that rows from both ends of the range share, reads the following
//! bytes as a number in the base of their alphabet, and keeps its upper bits. Rows outside the
//! expected range have the lowest or the highest code. Rows with equal codes are compared in full,
//! so a poor guess costs time but never correctness.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use evenkeel_common::length;

/// Bits of a code.
pub(super) const PREFIX_CODE_BITS: u32 = 19;
/// The highest code.
pub(super) const PREFIX_CODE_MAX: u32 = (1 << PREFIX_CODE_BITS) - 1;

/// The first and last byte of each alphabet, narrower ones first: decimal digits, hexadecimal
/// digits, digits and letters, printable characters, any byte.
const ALPHABETS: [(u8, u8); 5] = [(b'0', b'9'), (b'0', b'f'), (b'0', b'z'), (b' ', b'~'), (0, u8::MAX)];
/// A row's number is below 2 to this power, so that sums and products do not overflow.
const NUMBER_BITS: u32 = 40;

/// Encodes the rows of one list. Codes ascend with rows in byte order; different rows may have
/// equal codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowPrefixEncoder {
    /// The prefix that expected rows share.
    prefix: Box<[u8]>,
    /// The lowest and highest byte expected after the prefix.
    alphabet: (u8, u8),
    /// The number of bytes after the prefix that make up a row's number.
    digits: u32,
    /// The number of the first expected row.
    low: u64,
    /// The number of low bits that are dropped from a number, less `low`.
    shift: u32,
}

impl RowPrefixEncoder {
    /// Creates an encoder that gives all rows the same code.
    pub(super) fn none() -> Self {
        Self { prefix: Box::default(), alphabet: ALPHABETS[ALPHABETS.len() - 1], digits: 0, low: 0, shift: 0 }
    }

    /// Creates an encoder for rows expected between these two; empty if an end is unknown.
    pub(super) fn between(low: &[u8], high: &[u8]) -> Self {
        let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
        let alphabet = alphabet_of(&low[common..], &high[common..]);
        let low = if low.is_empty() { vec![alphabet.0; high.len()] } else { low.to_vec() };
        let high = if high.is_empty() { upper_bound_like(&low, alphabet) } else { high.to_vec() };
        let common = low.iter().zip(&high).take_while(|(a, b)| a == b).count();
        let digits = (1..)
            .take_while(|digits| radix(alphabet).pow(*digits) <= 1 << NUMBER_BITS)
            .map(|_| 1)
            .sum::<u32>();
        let mut code = Self { prefix: low[..common].into(), alphabet, digits, low: 0, shift: 0 };
        code.low = code.number(&low[common..]);
        let width = code.number(&high[common..]).saturating_sub(code.low);
        code.shift = (u64::BITS - width.leading_zeros()).saturating_sub(PREFIX_CODE_BITS);
        code
    }

    /// The code of a row.
    #[inline]
    pub(super) fn code_of(&self, row: &[u8]) -> u32 {
        let Some(rest) = row.strip_prefix(&*self.prefix) else {
            return if row < &*self.prefix { 0 } else { PREFIX_CODE_MAX };
        };
        let number = self.number(rest).saturating_sub(self.low) >> self.shift;
        length::low_u32(number.min(u64::from(PREFIX_CODE_MAX)))
    }

    /// Returns the bytes after the prefix as a number. From the first byte outside the alphabet on,
    /// all digits are the lowest or the highest; after the row's end they are the lowest.
    fn number(&self, rest: &[u8]) -> u64 {
        let ((min, max), radix) = (self.alphabet, radix(self.alphabet));
        let mut number = 0;
        for place in 0..self.digits {
            let byte = rest.get(place as usize).copied();
            match byte {
                Some(byte) if (min..=max).contains(&byte) => number = number * radix + u64::from(byte - min),
                Some(byte) if byte > max => return (number + 1) * radix.pow(self.digits - place) - 1,
                _ => return number * radix.pow(self.digits - place),
            }
        }
        number
    }
}

/// Returns the narrowest alphabet with all these bytes.
fn alphabet_of(low: &[u8], high: &[u8]) -> (u8, u8) {
    let has = |(min, max): &(u8, u8)| low.iter().chain(high).all(|byte| (min..=max).contains(&byte));
    let known = !(low.is_empty() && high.is_empty());
    ALPHABETS.into_iter().find(has).filter(|_| known).unwrap_or((0, u8::MAX))
}

/// Returns a row above all rows that begin with the same number of lowest bytes as `low`, as
/// numbers of one length do.
fn upper_bound_like(low: &[u8], alphabet: (u8, u8)) -> Vec<u8> {
    let lowest = low.iter().take_while(|byte| **byte == alphabet.0);
    lowest.copied().chain([alphabet.1; NUMBER_BITS as usize]).collect()
}

fn radix((min, max): (u8, u8)) -> u64 {
    u64::from(max - min) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the codes of sorted rows are sorted, and returns how many differ.
    fn different(code: &RowPrefixEncoder, mut rows: Vec<Vec<u8>>) -> usize {
        rows.sort_unstable();
        let codes: Vec<_> = rows.iter().map(|row| code.code_of(row)).collect();
        assert!(codes.is_sorted(), "{code:?}");
        assert!(codes.iter().all(|code| *code <= PREFIX_CODE_MAX));
        let mut codes = codes;
        codes.dedup();
        codes.len()
    }

    fn decimals(from: u64, to: u64) -> Vec<Vec<u8>> {
        (from..to).map(|n| format!("{n:026}").into_bytes()).collect()
    }

    #[test]
    fn rows_of_a_region_of_decimal_rows_differ() {
        let code = RowPrefixEncoder::between(&decimals(4096, 4097)[0], &decimals(8192, 8193)[0]);
        assert_eq!(different(&code, decimals(4096, 8192)), 4096);
        let (first, last) = (decimals(0, 4096), decimals(40_960, 45_056));
        assert_eq!(different(&RowPrefixEncoder::between(b"", &decimals(4096, 4097)[0]), first), 4096);
        assert_eq!(different(&RowPrefixEncoder::between(&last[0].clone(), b""), last), 4096);
    }

    #[test]
    fn rows_of_hashed_text_mostly_differ() {
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n >> 3);
        let hex = (0..4096).map(|n| format!("{:016x}-user", hash(n)).into_bytes()).collect();
        assert!(different(&RowPrefixEncoder::between(b"0001", b"ffa8"), hex) > 2000);
        let bytes: Vec<_> = (0..4096).map(|n| hash(n).to_be_bytes().to_vec()).collect();
        assert!(different(&RowPrefixEncoder::between(&[0, 3, 1], &[255, 250]), bytes) > 4000);
    }

    #[test]
    fn unexpected_rows_keep_their_order() {
        let mut odd: Vec<Vec<u8>> = decimals(0, 300);
        odd.extend(
            (0..=255).flat_map(|a| [vec![a], vec![b'0', a], vec![b'0', b'5', a, 1], vec![b'0', 0, a]]),
        );
        odd.extend(
            [&b""[..], b"000000", b"0000000000000000000000000", b"05", b"05\0", b"0\xff"].map(Vec::from),
        );
        odd.extend((0..=255).map(|a| [&b"0000000000000000000000"[..], &[a, b'7']].concat()));
        let ends: [&[u8]; 8] =
            [b"", b"0", b"05", b"0000000000000000000000", b"03a", b"a~", b"\0\0", b"\xff\xff"];
        for (low, high) in ends.iter().flat_map(|low| ends.iter().map(move |high| (low, high))) {
            different(&RowPrefixEncoder::between(low, high), odd.clone());
        }
        let rows = decimals(100, 200);
        different(&RowPrefixEncoder::between(&rows[0], &rows[99]), odd.clone());
        assert_eq!(different(&RowPrefixEncoder::none(), odd), 1);
    }
}
