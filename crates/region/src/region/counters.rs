//! [`RegionCounters`]: what was asked of a region since it opened.
//!
//! Each thread adds to counters of its own, so requests of one region on several cores do not fight
//! for a line. A region that nobody uses has 256 bytes of them.

use evenkeel_metrics::Counters;

/// What is counted. A request is counted once in each that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionCount {
    /// Gets, and results that scanners were asked for (`readRequestCount`).
    Reads,
    /// Rows that a filter left out (`filteredReadRequestCount`).
    FilteredReads,
    /// Mutations, and bulk loads (`writeRequestCount`).
    Writes,
    /// Calls of coprocessors' endpoints (`cpRequestCount`).
    CoprocessorCalls,
    /// Gets (`getCount`).
    Gets,
    /// Calls of scanners (`scanCount`), which the server counts.
    Scans,
    /// Writes with a Put: a batch counts once, as in HBase (`putCount`). The same holds for the
    /// three below.
    Puts,
    /// `deleteCount`.
    Deletes,
    /// `incrementCount`.
    Increments,
    /// `appendCount`.
    Appends,
    /// Conditions of a write that held (`checkMutatePassedCount`).
    ChecksPassed,
    /// Conditions of a write that did not (`checkMutateFailedCount`).
    ChecksFailed,
    /// Writes that were refused for the size of the MemStore (`blockedRequestCount`).
    Blocked,
    /// Mutations that are in no log (`mutationsWithoutWALCount`).
    Unlogged,
    /// Bytes of their cells (`mutationsWithoutWALSize`).
    UnloggedBytes,
    /// Flushes that were made.
    Flushes,
    /// Compactions of a store that were made (`compactionsCompletedCount`).
    Compactions,
    /// Those that failed (`compactionsFailedCount`).
    FailedCompactions,
    /// Files that were compacted (`numFilesCompactedCount`).
    CompactedFiles,
    /// Their bytes (`numBytesCompactedCount`).
    CompactedBytes,
}

const COUNTS: usize = RegionCount::CompactedBytes as usize + 1;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct RegionCounters(Counters<COUNTS>);

impl RegionCounters {
    /// Adds to a count.
    #[inline]
    pub fn add(&self, what: RegionCount, units: u64) {
        self.0.add(what as usize, units);
    }

    /// The sum so far.
    pub fn get(&self, what: RegionCount) -> u64 {
        self.0.sum(what as usize)
    }
}
