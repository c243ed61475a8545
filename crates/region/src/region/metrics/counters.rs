//! [`RegionCounters`]: counts of a region's requests and maintenance since it opened.
//!
//! Each thread adds to its own counters, so requests of one region on several cores do not contend
//! for a cache line. An idle region has 256 bytes of counters.

use evenkeel_metrics::Counters;

/// The counters. A request increments each counter that applies by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionCount {
    /// Gets, and results requested from scanners (`readRequestCount`).
    Reads,
    /// Rows that a filter dropped (`filteredReadRequestCount`).
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
    /// Writes refused because of the size of the MemStore (`blockedRequestCount`).
    Blocked,
    /// Mutations that skip the log (`mutationsWithoutWALCount`).
    SkippedWal,
    /// Bytes of their cells (`mutationsWithoutWALSize`).
    UnloggedBytes,
    /// Completed flushes.
    Flushes,
    /// Completed compactions of a store (`compactionsCompletedCount`).
    Compactions,
    /// Failed compactions (`compactionsFailedCount`).
    FailedCompactions,
    /// Compacted files (`numFilesCompactedCount`).
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

    /// Returns the current sum of a count.
    pub fn get(&self, what: RegionCount) -> u64 {
        self.0.sum(what as usize)
    }

    /// Returns the current sums of all counts.
    pub fn all(&self) -> RegionCounts {
        RegionCounts(self.0.sums())
    }
}

/// The counts of a region, read together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionCounts([u64; COUNTS]);

impl RegionCounts {
    /// Returns a count.
    pub fn get(&self, what: RegionCount) -> u64 {
        self.0.get(what as usize).copied().unwrap_or(0)
    }
}
