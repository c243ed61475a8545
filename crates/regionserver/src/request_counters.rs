//! [`RequestCounters`]: the requests so far, by method.

use evenkeel_metrics::Counters;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Get.
    Get,
    /// Mutate.
    Mutate,
    /// Multi.
    Multi,
    /// Scan, every call.
    Scan,
    /// A scan that opens a scanner without a start row and a stop row.
    FullScan,
    /// PrepareBulkLoad, BulkLoadHFile and CleanupBulkLoad.
    BulkLoad,
    /// Of Get and Multi, those that would have waited on their connection's thread, and were read
    /// again on a handler thread.
    ReadAside,
}

impl RequestKind {
    /// Those that are a request each.
    const REQUESTS: [Self; 5] = [Self::Get, Self::Mutate, Self::Multi, Self::Scan, Self::BulkLoad];
}

/// Requests so far. A thread adds to counters of its own.
#[derive(Debug, Default)]
pub struct RequestCounters(Counters<7>);

impl RequestCounters {
    /// Counts one.
    #[inline]
    pub fn count(&self, kind: RequestKind) {
        self.count_n(kind, 1);
    }

    /// Counts several.
    #[inline]
    pub fn count_n(&self, kind: RequestKind, n: u64) {
        self.0.add(kind as usize, n);
    }

    /// How many there were.
    pub fn of(&self, kind: RequestKind) -> u64 {
        self.0.sum(kind as usize)
    }

    /// All requests, each once.
    pub fn total(&self) -> u64 {
        RequestKind::REQUESTS.into_iter().map(|kind| self.of(kind)).sum()
    }
}
