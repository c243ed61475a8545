//! [`RequestCounters`]: the number of requests so far, by method.

use evenkeel_metrics::Counters;

/// The kinds of requests that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Get.
    Get,
    /// Mutate.
    Mutate,
    /// Multi.
    Multi,
    /// Scan: every call of the scan protocol.
    Scan,
    /// A scan that opens a scanner without a start row and a stop row.
    FullScan,
    /// PrepareBulkLoad, BulkLoadHFile and CleanupBulkLoad.
    BulkLoad,
    /// A Get or Multi that its connection's thread could not read, because it would have blocked or
    /// the time slice ended, and that a handler thread read.
    ReadRetriedOnHandler,
}

impl RequestKind {
    /// The kinds that count each request once.
    const REQUESTS: [Self; 5] = [Self::Get, Self::Mutate, Self::Multi, Self::Scan, Self::BulkLoad];
}

/// The number of requests so far. Each thread adds to its own counters.
#[derive(Debug, Default)]
pub struct RequestCounters(Counters<7>);

impl RequestCounters {
    /// Counts one request.
    #[inline]
    pub fn count(&self, kind: RequestKind) {
        self.count_n(kind, 1);
    }

    /// Counts `n` requests.
    #[inline]
    pub fn count_n(&self, kind: RequestKind, n: u64) {
        self.0.add(kind as usize, n);
    }

    /// Returns the number of requests of a kind.
    pub fn of(&self, kind: RequestKind) -> u64 {
        self.0.sum(kind as usize)
    }

    /// Returns the number of all requests, each counted once.
    pub fn total(&self) -> u64 {
        RequestKind::REQUESTS.into_iter().map(|kind| self.of(kind)).sum()
    }
}
