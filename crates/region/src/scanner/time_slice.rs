//! [`TimeSlice`]: how long reads may compute on a thread that serves others.
//!
//! All connections of a thread wait for each other's calls, so a read there has a time slice. The
//! slice begins with the first clock check, and several reads may share one. If a read is not
//! finished when the slice is over, it ends with
//! [`TimeSliceOver`](evenkeel_common::TryError::TimeSliceOver), and a thread that may compute for
//! longer repeats it from its beginning. The alternative is a scanner that moves to another thread.
//! It would have to release what it has pinned and find its position again.
//!
//! A slice is not a scan's deadline. A deadline ends a call at a place where the next call can
//! continue, and the client gets what was read so far (see
//! [`ScannerContext`](super::ScannerContext)).

use std::time::{Duration, Instant};

use evenkeel_common::clock;

/// A length of time for some reads, or no limit. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct TimeSlice {
    /// `None` for no limit.
    length: Option<Duration>,
    /// Set by the first clock check.
    end: Option<Instant>,
    is_over: bool,
}

impl TimeSlice {
    /// No limit.
    pub const UNLIMITED: Self = Self { length: None, end: None, is_over: false };

    /// A slice of this length; `None` for no limit.
    pub fn new(length: Option<Duration>) -> Self {
        Self { length, ..Self::UNLIMITED }
    }

    /// Returns true if the slice was over at the last clock check.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reads the clock. Returns true if the slice is over.
    pub fn check(&mut self) -> bool {
        let Some(length) = self.length else { return false };
        let now = clock::monotonic();
        self.is_over |= now >= *self.end.get_or_insert(now + length);
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_starts_at_the_first_check() {
        let mut slice = TimeSlice::new(Some(Duration::from_millis(20)));
        std::thread::sleep(Duration::from_millis(40));
        assert!(!slice.check() && !slice.is_over(), "it has just begun");
        std::thread::sleep(Duration::from_millis(40));
        assert!(!slice.is_over(), "nobody has looked");
        assert!(slice.check() && slice.is_over() && slice.check());
        let mut unlimited = TimeSlice::new(None);
        assert!(!unlimited.check() && !unlimited.is_over());
    }
}
