//! Row prefix index: a few bytes per sorted row, which exclude most rows from a search.
//!
//! All rows begin with the *common prefix* of the first and the last. The *prefix* of a row is the
//! number made from the four bytes that follow, padded with zeros. Prefixes ascend as rows do. So a
//! search among the prefixes leaves only rows with the same prefix to compare: usually one, or none
//! if the row is absent. The prefixes are adjacent in memory, while every access to a row is a
//! cache miss.
//!
//! This requires HBase's default order of rows. If a damaged file has rows out of order, a search
//! may find the wrong row, but stays within bounds.

use std::cmp::Ordering;
use std::ops::Range;

use evenkeel_common::search::{gallop, partition_point};

/// Bytes of a prefix.
pub(crate) const PREFIX_BYTES: usize = 4;

/// The common prefix of sorted rows, from the first and the last.
pub(crate) fn common_prefix<'a>(first: &'a [u8], last: &[u8]) -> &'a [u8] {
    let len = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    first.get(..len).unwrap_or(first)
}

/// The prefix of a row after a common prefix of `prefix_len` bytes.
#[inline]
pub(crate) fn prefix_of(row: &[u8], prefix_len: usize) -> u32 {
    let rest = row.get(prefix_len..).unwrap_or_default();
    match rest.first_chunk::<PREFIX_BYTES>() {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => rest.iter().enumerate().fold(0, |sum, (i, byte)| sum | u32::from(*byte) << (24 - 8 * i)),
    }
}

/// The rows, of `len` with a common prefix, that must be compared with `row`. Rows before the range
/// are smaller, and rows after it are greater.
#[inline]
pub(crate) fn candidates(
    row: &[u8],
    prefix: &[u8],
    len: usize,
    prefix_at: impl Fn(usize) -> u32,
) -> Range<usize> {
    match row.get(..prefix.len()).unwrap_or(row).cmp(prefix) {
        Ordering::Less => 0..0,
        Ordering::Greater => len..len,
        Ordering::Equal => {
            let wanted = prefix_of(row, prefix.len());
            let first = partition_point(0..len, |i| prefix_at(i) < wanted);
            first..gallop(first..len, |i| prefix_at(i) == wanted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_rows_are_before_or_after() {
        let rows: Vec<&[u8]> =
            vec![b"ab", b"ab", b"ab\0", b"aba", b"abcdef", b"abcdefg", b"abcdeh", b"abcf", b"ab\xff"];
        let prefix = common_prefix(rows[0], rows[rows.len() - 1]);
        assert_eq!(prefix, b"ab");
        let prefix_at = |i: usize| prefix_of(rows[i], prefix.len());
        let others: [&[u8]; 8] =
            [b"", b"a", b"ac", b"b", b"aa\xff", b"abb", b"abcdefgh", b"ab\xff\xff\xff\xff\xff"];
        for row in rows.iter().chain(&others).copied() {
            let left = candidates(row, prefix, rows.len(), prefix_at);
            assert!(rows[..left.start].iter().all(|before| *before < row), "{row:?} {left:?}");
            assert!(rows[left.end..].iter().all(|after| *after > row), "{row:?} {left:?}");
        }
        assert_eq!(candidates(b"abcf", prefix, rows.len(), prefix_at), 7..8, "one is left to compare");
        assert_eq!(candidates(b"abd", prefix, rows.len(), prefix_at), 8..8, "none is");
    }

    #[test]
    fn unsorted_rows_stay_within_bounds() {
        let rows: Vec<&[u8]> = vec![b"zz", b"a", b"", b"zzzzzz", b"m"];
        let prefix = common_prefix(rows[0], rows[4]);
        for row in &rows {
            let left = candidates(row, prefix, rows.len(), |i| prefix_of(rows[i], prefix.len()));
            assert!(left.start <= left.end && left.end <= rows.len());
        }
    }
}
