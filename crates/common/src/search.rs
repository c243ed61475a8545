//! Searches in sorted sequences whose items are accessed by index.

use std::ops::Range;

/// The first index of `range` for which `before` is false. `before` must be true for all indexes
/// before it (binary search).
#[inline]
pub fn partition_point(range: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// As [`partition_point`], by steps of doubling length: fast if the result is near the beginning.
#[inline]
pub fn gallop(range: Range<usize>, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut step) = (range.start, 1);
    while low + step <= range.end {
        if !before(low + step - 1) {
            return partition_point(low..low + step - 1, before);
        }
        low += step;
        step *= 2;
    }
    partition_point(low..range.end, before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_searches_find_every_boundary() {
        for len in 0..40 {
            for start in 0..=len {
                for end in start..=len {
                    assert_eq!(partition_point(start..len, |i| i < end), end, "{start}..{len}");
                    assert_eq!(gallop(start..len, |i| i < end), end, "{start}..{len}");
                }
            }
        }
    }
}
