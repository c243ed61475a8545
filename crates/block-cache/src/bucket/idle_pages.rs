//! [`IdlePages`]: the huge pages of a shard's memory that are free and may return to the kernel.
//!
//! After many blocks were removed, for example with a dropped table, a cache has holes of many
//! megabytes whose pages the process still holds. A page is released if it was within a hole at two
//! consecutive scans and no frame was written there meanwhile. So pages that a compaction frees and
//! fills again stay mapped, and so do the small holes of a full cache.
//!
//! ```text
//! untouched --frame written--> touched --scan finds it free--> idle --next scan--> released
//!                                 ^                             |              (= untouched)
//!                                 +--------frame written--------+
//! ```
//!
//! All methods are called with the shard's lock held. An idle page is free: freeing bytes only
//! enlarges holes, and every write of a frame calls [`IdlePages::touch`].

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use std::ops::Range;

use evenkeel_common::length;

use super::slot::Extent;

/// Bytes of a huge page on most machines.
pub(crate) const PAGE_BYTES: u64 = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageState {
    Untouched,
    Touched,
    Idle,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct IdlePages {
    /// The start of the first whole page.
    first: u64,
    pages: Vec<PageState>,
}

impl IdlePages {
    /// For a space of `size` bytes whose first whole page is at `first`. `None` for storage outside
    /// of this process's memory, which has no pages.
    pub fn new(first: Option<u64>, size: u64) -> Self {
        let bytes = first.map_or(0, |first| size.saturating_sub(first));
        Self {
            first: first.unwrap_or(0),
            pages: vec![PageState::Untouched; length::index(bytes / PAGE_BYTES)],
        }
    }

    /// Records a frame written at `extent`.
    #[inline]
    pub fn touch(&mut self, extent: Extent) {
        let from = extent.start.saturating_sub(self.first) / PAGE_BYTES;
        let to = extent.end().saturating_sub(self.first).div_ceil(PAGE_BYTES);
        let to = length::index(to).min(self.pages.len());
        self.pages
            .get_mut(length::index(from)..to)
            .into_iter()
            .flatten()
            .for_each(|page| *page = PageState::Touched);
    }

    /// Returns the pages that may be released, and marks those that may be at the next scan.
    pub fn scan(&mut self, holes: impl Iterator<Item = Range<u64>>) -> Vec<usize> {
        let mut idle = Vec::new();
        for hole in holes {
            let from = length::index(hole.start.saturating_sub(self.first).div_ceil(PAGE_BYTES));
            let to = length::index(hole.end.saturating_sub(self.first) / PAGE_BYTES);
            for at in from..to.min(self.pages.len()) {
                match self.pages[at] {
                    PageState::Untouched => {}
                    PageState::Touched => self.pages[at] = PageState::Idle,
                    PageState::Idle => idle.push(at),
                }
            }
        }
        idle
    }

    /// Takes a page that is still idle, to release it. Returns its start.
    pub fn take_idle(&mut self, at: usize) -> Option<u64> {
        let page = self.pages.get_mut(at).filter(|page| **page == PageState::Idle)?;
        *page = PageState::Untouched;
        Some(self.first + at as u64 * PAGE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_free_at_two_scans_are_released_once() {
        let mut pages = IdlePages::new(Some(4096), 4096 + 4 * PAGE_BYTES + 5);
        let all = || std::iter::once(0..4096 + 4 * PAGE_BYTES + 5);
        assert!(pages.scan(all()).is_empty() && pages.scan(all()).is_empty(), "nothing was touched");
        pages.touch(Extent { start: 0, len: 4096 + 8 });
        pages.touch(Extent { start: 4096 + 2 * PAGE_BYTES - 8, len: 16 });
        let rest = || std::iter::once(4096 + 8..4096 + 4 * PAGE_BYTES);
        assert!(pages.scan(rest()).is_empty(), "once is too soon");
        assert_eq!(pages.scan(rest()), [1, 2], "the first page is not whole");
        pages.touch(Extent { start: 4096 + 2 * PAGE_BYTES, len: 8 });
        assert_eq!(
            (pages.take_idle(1), pages.take_idle(2)),
            (Some(4096 + PAGE_BYTES), None),
            "one is used again"
        );
        assert_eq!(pages.take_idle(1), None);
        assert!(pages.scan(rest()).is_empty());
        assert_eq!(pages.scan(rest()), [2]);
    }

    #[test]
    fn a_space_of_files_or_of_less_than_a_page_has_none() {
        for mut pages in [IdlePages::new(None, 1 << 30), IdlePages::new(Some(4096), PAGE_BYTES)] {
            pages.touch(Extent { start: 0, len: 4 << 20 });
            assert!(pages.scan(std::iter::once(0..1 << 30)).is_empty());
        }
    }
}
