//! [`ReadStatistics`]: how much a client has read, for the metrics of HBase's RegionServers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of a client's reads since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadStatistics {
    /// Bytes read from DataNodes or through their files.
    pub bytes: u64,
    /// Those of DataNodes on this machine.
    pub local_bytes: u64,
    /// Those read through the files of a DataNode.
    pub short_circuit_bytes: u64,
    /// Reads that were sent to a second DataNode, because the first one was slow.
    pub hedged_reads: u64,
    /// Those of which the second DataNode began to answer first.
    pub hedged_read_wins: u64,
    /// Slow reads that were not sent to a second DataNode, because too many others were.
    pub hedged_reads_refused: u64,
}

/// The counters of [`ReadStatistics`].
#[derive(Debug, Default)]
pub(crate) struct ReadCounters {
    bytes: AtomicU64,
    local_bytes: AtomicU64,
    short_circuit_bytes: AtomicU64,
    hedged_reads: AtomicU64,
    hedged_read_wins: AtomicU64,
    hedged_reads_refused: AtomicU64,
}

impl ReadCounters {
    /// Counts bytes that a DataNode sent.
    pub(crate) fn add_read(&self, bytes: usize, is_local: bool) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        if is_local {
            self.local_bytes.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// Counts bytes that were read through the files of a DataNode.
    pub(crate) fn add_short_circuit(&self, bytes: usize) {
        self.add_read(bytes, true);
        self.short_circuit_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts a read that was sent to a second DataNode.
    pub(crate) fn add_hedge(&self) {
        self.hedged_reads.fetch_add(1, Relaxed);
    }

    /// Counts a read of which the second DataNode answered first.
    pub(crate) fn add_hedge_win(&self) {
        self.hedged_read_wins.fetch_add(1, Relaxed);
    }

    /// Counts a slow read for which there was no permit.
    pub(crate) fn add_hedge_refused(&self) {
        self.hedged_reads_refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn get(&self) -> ReadStatistics {
        ReadStatistics {
            bytes: self.bytes.load(Relaxed),
            local_bytes: self.local_bytes.load(Relaxed),
            short_circuit_bytes: self.short_circuit_bytes.load(Relaxed),
            hedged_reads: self.hedged_reads.load(Relaxed),
            hedged_read_wins: self.hedged_read_wins.load(Relaxed),
            hedged_reads_refused: self.hedged_reads_refused.load(Relaxed),
        }
    }
}
