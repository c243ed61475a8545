//! [`ScanProfile`]: samples of what a call of a scanner computes, for the ledger of slow requests.
//!
//! A scan computes in many short phases. Reading the clock around each of them would cost more than
//! the phase, so the call takes samples. It looks at itself wherever it checks its limits of time
//! ([`ScannerContext`](super::ScannerContext)). A sample lasts for [`LOOKS_PER_SAMPLE`] looks. Its
//! computing time is the time without the waits that were noted, and it is divided:
//!
//! - The filter has the time of its calls. They are timed between two looks of each sample
//!   ([`FilterTimer`]), and those between the other looks are assumed to take as long.
//! - The MemStore has the rest if the scan's current cell at the end of the sample is there. So it
//!   includes matching and copying its cells.
//!
//! A request that reads fewer than [`LOOKS_PER_SAMPLE`] times 32 rows, or 1000 cells, has no
//! sample, except of a costly filter, whose calls are noted one by one.

use evenkeel_common::clock::{self, Ticks};
use evenkeel_metrics::waits::{self, ComputingSample};

use super::matcher::FilterSlot;
use crate::filter::FilterTimer;

/// Looks of one sample.
const LOOKS_PER_SAMPLE: u32 = 16;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ScanProfile {
    looks: u32,
    /// The start of the sample, and the waits that the thread had noted by then, in nanoseconds.
    began: Option<(Ticks, u64)>,
}

impl ScanProfile {
    /// Starts for a row that has a filter of its own, whose first calls are timed.
    pub fn of_row(filter: &mut FilterSlot) -> Self {
        if evenkeel_metrics::is_on() {
            FilterTimer::start(filter);
        }
        Self::default()
    }

    /// Looks at a scan. `reads_memstore` tells whether its current cell is in a MemStore.
    pub fn look(&mut self, filter: &mut FilterSlot, reads_memstore: impl FnOnce() -> bool) {
        if !evenkeel_metrics::is_on() {
            return;
        }
        match self.looks % LOOKS_PER_SAMPLE {
            0 => FilterTimer::start(filter),
            1 => self.sample(FilterTimer::stop(filter), reads_memstore()),
            _ => {}
        }
        self.looks = self.looks.wrapping_add(1);
    }

    /// Ends a sample and starts the next one. `filter_ns`: the calls of the filter between two
    /// looks.
    fn sample(&mut self, filter_ns: u64, reads_memstore: bool) {
        let (now, noted_ns) = (clock::ticks(), waits::noted_ns());
        if let Some((began_at, noted_before)) = self.began {
            let waited_ns = noted_ns.wrapping_sub(noted_before);
            let total_ns = now.ns_since(began_at).saturating_sub(waited_ns);
            let filter_ns = filter_ns.saturating_mul(u64::from(LOOKS_PER_SAMPLE)).min(total_ns);
            let memstore_ns = if reads_memstore { total_ns - filter_ns } else { 0 };
            waits::note_sample(ComputingSample { total_ns, filter_ns, memstore_ns });
        }
        self.began = Some((now, noted_ns));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evenkeel_metrics::waits::{Cause, Waits};

    use super::*;

    const WORK: Duration = Duration::from_millis(1);

    /// Divides 100 ms of computing as the looks have sampled it.
    fn divided() -> Waits {
        let mut waits = waits::take().expect("samples");
        waits.divide_computing(Duration::from_millis(100));
        waits
    }

    #[test]
    fn time_between_looks_belongs_to_the_memstore_that_is_read() {
        waits::take();
        let mut profile = ScanProfile::default();
        // Samples end at the second look of 16. The MemStore is read until the second of four ends.
        for look in 0..4 * LOOKS_PER_SAMPLE + 2 {
            profile.look(&mut None, || look < 2 * LOOKS_PER_SAMPLE + 2);
            std::thread::sleep(WORK);
        }
        let waits = divided();
        let (memstore, other) = (waits.of(Cause::MemStore), waits.of(Cause::Computing));
        let ms = Duration::from_millis;
        assert!(memstore > ms(25) && memstore < ms(75), "{memstore:?} {other:?}");
        assert_eq!(waits.of(Cause::Filter), Duration::ZERO);
    }

    #[test]
    fn waits_between_looks_are_no_computing() {
        waits::take();
        let mut profile = ScanProfile::default();
        for look in 0..2 * LOOKS_PER_SAMPLE + 2 {
            profile.look(&mut None, || look < LOOKS_PER_SAMPLE + 2);
            if look > LOOKS_PER_SAMPLE + 1 {
                waits::time(Cause::BlockRead, || std::thread::sleep(8 * WORK));
            }
            std::thread::sleep(WORK / 2);
        }
        let waits = divided();
        assert!(waits.of(Cause::BlockRead) >= 8 * (LOOKS_PER_SAMPLE - 1) * WORK);
        let memstore = waits.of(Cause::MemStore);
        assert!(memstore > Duration::from_millis(20), "the waits count: {waits:?}");
    }

    #[test]
    fn few_looks_note_nothing() {
        waits::take();
        let mut profile = ScanProfile::default();
        (0..=LOOKS_PER_SAMPLE).for_each(|_| profile.look(&mut None, || true));
        assert_eq!(waits::take(), None);
    }
}
