//! [`BloomBypass`]: whether a file's bloom filter is worth asking.
//!
//! A Get asks the ends and the bloom filter of each file before it looks for its row there. That pays where files do not have the row. Where
//! one file has nearly all rows that are asked for, as after a major compaction, they say yes again and again, and
//! asking both is a ninth of the instructions of a cached Get of a batch. (RocksDB leaves filters of the last level away for that reason,
//! where `optimize_filters_for_hits` is set.) So a filter that has not refused any of many rows is asked only now and
//! then, until it refuses one.
//!
//! Not to ask is never wrong; it may only read a block in vain. The first refused row that is looked at wakes the filter, on
//! average after sixteen Gets of such rows, and then about 4,096 Gets are asked about, each of which must be taken, before
//! it is_bypassed again.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// So many rows that were looked at in a row were not refused, and the filter is_bypassed. In tests it soon does, so that models of
/// stores and regions meet one that is_bypassed.
const PASSES_TO_BYPASS: u32 = if cfg!(test) { 4 } else { 256 };
/// One Get of 2 to this power is looked at, so that threads seldom write what others read.
const SAMPLE_BITS: u32 = 4;

thread_local! {
    /// Random numbers: a file that every second question is about must not miss its turn for ever.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// What is remembered of one file's answers.
#[derive(Debug, Default)]
pub(in crate::store) struct BloomBypass {
    /// Rows in a row that were looked at and not refused; [`PASSES_TO_BYPASS`] and one for each thread at most.
    passes: AtomicU32,
}

impl BloomBypass {
    /// Whether a row may be in the file: what `ask` says, which asks the filter, or yes when that is_bypassed.
    ///
    /// # Errors
    /// What `ask` says.
    #[inline]
    pub(in crate::store) fn may_contain<E>(&self, ask: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
        // Knuth's multiplier for 64 bits; of such numbers the upper bits are good.
        let random = RANDOM.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        RANDOM.set(random);
        self.may_contain_in_turn(random >> (u64::BITS - SAMPLE_BITS) == 0, ask)
    }

    /// Whether the filter is_bypassed: nearly every row that is asked for is in the file.
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

    /// Asks about rows, each sixteenth of which is looked at; how many reached the filter, and how many were refused.
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
    fn a_filter_that_refuses_nothing_rests() {
        let bloom = BloomBypass::default();
        assert_eq!(
            asked(&bloom, PASSES_TO_BYPASS * SAMPLE, |_| true),
            [(PASSES_TO_BYPASS - 1) * SAMPLE + 1, 0]
        );
        assert_eq!(asked(&bloom, 1600, |_| true), [100, 0], "now and then it is asked");
        assert_eq!(asked(&bloom, 15, |row| row == 0), [1, 0]);
    }

    #[test]
    fn one_get_of_sixteen_is_looked_at_whatever_else_is_asked() {
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
        // Those before it is_bypassed, more or less, and a sixteenth of the others.
        let expected = PASSES_TO_BYPASS * SAMPLE + 160_000 / SAMPLE;
        assert!((expected * 9 / 10..expected * 11 / 10).contains(&reached), "{reached}");
    }

    #[test]
    fn one_refusal_wakes_it() {
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
            "it begins anew"
        );
    }

    #[test]
    fn a_filter_that_refuses_now_and_then_does_not_rest() {
        let bloom = BloomBypass::default();
        let rows = 100 * PASSES_TO_BYPASS * SAMPLE;
        let [reached, refused] = asked(&bloom, rows, |row| row % 20 != 7);
        assert_eq!((reached, refused), (rows, rows / 20));
    }
}
