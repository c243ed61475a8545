//! [`BloomBypass`]: bypasses a file's bloom filter while it excludes no row.
//!
//! A Get checks the key range and the bloom filter of each file before it searches the file. That
//! pays if files often lack the row. If one file has nearly all requested rows, as after a major
//! compaction, both checks keep passing, and they cost a ninth of the instructions of a cached Get
//! of a batch. (RocksDB omits the filters of the last level for that reason if
//! `optimize_filters_for_hits` is set.) So a filter that has excluded none of many rows is
//! bypassed, except for a sample of Gets, until it excludes one.
//!
//! Bypassing is always correct; it can only cause an unnecessary block read. The first sampled
//! exclusion ends the bypass, on average after sixteen Gets of absent rows. After that, about 4,096
//! Gets must pass the filter before it is bypassed again.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// After this many consecutive sampled passes the filter is bypassed. The number is small in tests,
/// so that model tests of stores and regions run with a bypassed filter, too.
const PASSES_TO_BYPASS: u32 = if cfg!(test) { 4 } else { 256 };
/// One Get in 2 to this power is sampled, so that threads seldom write to a shared cache line.
const SAMPLE_BITS: u32 = 4;

thread_local! {
    /// Pseudo-random state. With a counter, a file that only every second check concerns might
    /// never be sampled.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// The recent results of a file's filter.
#[derive(Debug, Default)]
pub(in crate::store) struct BloomBypass {
    /// Consecutive sampled passes; at most [`PASSES_TO_BYPASS`] plus one per thread.
    passes: AtomicU32,
}

impl BloomBypass {
    /// Returns true if a row may be in the file: the result of `ask`, which consults the filter, or
    /// true if the filter is bypassed.
    ///
    /// # Errors
    /// Errors of `ask`.
    #[inline]
    pub(in crate::store) fn may_contain<E>(&self, ask: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
        // Knuth's multiplier for 64 bits. The upper bits of such numbers are random enough.
        let random = RANDOM.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        RANDOM.set(random);
        self.may_contain_in_turn(random >> (u64::BITS - SAMPLE_BITS) == 0, ask)
    }

    /// Returns true if the filter is bypassed, because nearly every requested row is in the file.
    pub(in crate::store) fn is_bypassed(&self) -> bool {
        self.passes.load(Ordering::Relaxed) >= PASSES_TO_BYPASS
    }

    #[inline]
    fn may_contain_in_turn<E>(
        &self,
        is_looked_at: bool,
        ask: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let passes = self.passes.load(Ordering::Relaxed);
        if passes >= PASSES_TO_BYPASS && !is_looked_at {
            return Ok(true);
        }
        let contained = ask()?;
        if !contained && passes > 0 {
            self.passes.store(0, Ordering::Relaxed);
        } else if contained && is_looked_at && passes < PASSES_TO_BYPASS {
            self.passes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(contained)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const SAMPLE: u32 = 1 << SAMPLE_BITS;

    /// Checks rows, one sixteenth of which are sampled. Returns how many reached the filter, and
    /// how many were excluded.
    fn asked(bloom: &BloomBypass, rows: u32, is_in_file: impl Fn(u32) -> bool) -> [u32; 2] {
        let [mut reached, mut refused] = [0; 2];
        for row in 0..rows {
            let ask = || {
                reached += 1;
                Ok::<_, Infallible>(is_in_file(row))
            };
            refused += u32::from(
                !bloom.may_contain_in_turn(row.is_multiple_of(SAMPLE), ask).unwrap_or_else(|e| match e {}),
            );
        }
        [reached, refused]
    }

    #[test]
    fn a_filter_that_excludes_nothing_is_bypassed() {
        let bloom = BloomBypass::default();
        assert_eq!(
            asked(&bloom, PASSES_TO_BYPASS * SAMPLE, |_| true),
            [(PASSES_TO_BYPASS - 1) * SAMPLE + 1, 0]
        );
        assert_eq!(asked(&bloom, 1600, |_| true), [100, 0], "now and then it is asked");
        assert_eq!(asked(&bloom, 15, |row| row == 0), [1, 0]);
    }

    #[test]
    fn one_get_in_sixteen_consults_a_bypassed_filter() {
        let (bloom, other) = (BloomBypass::default(), BloomBypass::default());
        let mut reached = 0;
        for _ in 0..160_000 {
            let ask = || {
                reached += 1;
                Ok::<_, Infallible>(true)
            };
            assert_eq!(bloom.may_contain(ask), Ok(true));
            assert_eq!(other.may_contain(|| Ok::<_, Infallible>(false)), Ok(false));
        }
        // About the rows before the bypass, and a sixteenth of the others.
        let expected = PASSES_TO_BYPASS * SAMPLE + 160_000 / SAMPLE;
        assert!((expected * 9 / 10..expected * 11 / 10).contains(&reached), "{reached}");
    }

    #[test]
    fn one_exclusion_ends_the_bypass() {
        let bloom = BloomBypass::default();
        asked(&bloom, PASSES_TO_BYPASS * SAMPLE, |_| true);
        assert_eq!(
            asked(&bloom, 160, |row| row < 40),
            [3 + 112, 112],
            "from the 48th on each is asked about, and refused"
        );
        assert_eq!(
            asked(&bloom, PASSES_TO_BYPASS * SAMPLE, |_| true),
            [(PASSES_TO_BYPASS - 1) * SAMPLE + 1, 0],
            "it starts over"
        );
    }

    #[test]
    fn a_filter_that_sometimes_excludes_is_not_bypassed() {
        let bloom = BloomBypass::default();
        let rows = 100 * PASSES_TO_BYPASS * SAMPLE;
        let [reached, refused] = asked(&bloom, rows, |row| row % 20 != 7);
        assert_eq!((reached, refused), (rows, rows / 20));
    }
}
