//! Settings of a WAL ([`WalConfig`]), and the callbacks to its server ([`WalListener`]).

use std::time::Duration;

use bytes::Bytes;
use evenkeel_compression::Compression;

/// The setting that names the compression of values.
pub(crate) const VALUE_COMPRESSION_KEY: &str = "hbase.regionserver.wal.value.compression.type";

/// Compression of entries by dictionaries (`hbase.regionserver.wal.enablecompression`), and its
/// options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalCompression {
    /// Whether tags are compressed by a dictionary, too:
    /// `hbase.regionserver.wal.tags.enablecompression`.
    pub tags: bool,
    /// The compression of values: `hbase.regionserver.wal.value.enablecompression` and
    /// `hbase.regionserver.wal.value.compression.type`.
    pub values: Option<Compression>,
    /// Whether ZSTD uses the framing of hbase-compression-zstd's codec:
    /// `hbase.io.compress.zstd.codec`.
    pub zstd_framed: bool,
}

impl Default for WalCompression {
    fn default() -> Self {
        Self { tags: true, values: None, zstd_framed: false }
    }
}

/// Settings, with HBase's names where HBase has them.
#[derive(Clone, Debug)]
pub struct WalConfig {
    /// The length at which a file is rolled: `hbase.regionserver.hlog.blocksize` times
    /// `hbase.regionserver.logroll.multiplier`.
    pub roll_bytes: u64,
    /// The age at which a file with entries is rolled: `hbase.regionserver.logroll.period`.
    pub roll_period_ms: i64,
    /// The time from which a sync counts as slow: `hbase.regionserver.wal.slowsync.ms`.
    pub slow_sync: Duration,
    /// The time of one sync from which its file is rolled:
    /// `hbase.regionserver.wal.roll.on.sync.ms`.
    pub roll_on_sync: Duration,
    /// The number of slow syncs within [`WalConfig::slow_sync_roll_interval_ms`] after which a file
    /// is rolled: `hbase.regionserver.wal.slowsync.roll.threshold`.
    pub slow_sync_roll_threshold: u32,
    /// The interval in which slow syncs are counted:
    /// `hbase.regionserver.wal.slowsync.roll.interval.ms`.
    pub slow_sync_roll_interval_ms: i64,
    /// The time after which a sync fails the log: `hbase.regionserver.wal.sync.timeout`.
    pub sync_timeout: Duration,
    /// Whether [`SyncLevel::Flush`](crate::SyncLevel::Flush) syncs to the disk: `hbase.wal.hsync`.
    pub hsync: bool,
    /// The number of files above which the regions that pin the oldest file are asked to flush:
    /// `hbase.regionserver.maxlogs`.
    pub logs_max: usize,
    /// The maximum bytes waiting to be written; [`crate::Wal::append`] blocks above it.
    pub queue_bytes_max: usize,
    /// The longest entry, in bytes.
    pub entry_bytes_max: usize,
    /// Whether a thread in [`crate::Wal::sync`] commits itself if no other thread does, rather than
    /// wake the WAL's thread and sleep. This saves two context switches if there is a single
    /// writer.
    pub inline_sync: bool,
    /// The compression of entries; `None` for none. It takes time of the committing thread, not of
    /// appends.
    pub compression: Option<WalCompression>,
}

impl Default for WalConfig {
    fn default() -> Self {
        Self {
            roll_bytes: 128 << 20,
            roll_period_ms: 3_600_000,
            slow_sync: Duration::from_millis(100),
            roll_on_sync: Duration::from_secs(10),
            sync_timeout: Duration::from_secs(300),
            slow_sync_roll_threshold: 100,
            slow_sync_roll_interval_ms: 60_000,
            hsync: false,
            logs_max: 32,
            queue_bytes_max: 64 << 20,
            entry_bytes_max: 512 << 20,
            inline_sync: true,
            compression: None,
        }
    }
}

/// Callbacks from a WAL to its server. They run on the WAL's threads, so they must return soon and
/// must not wait for the WAL.
pub trait WalListener: Send + Sync {
    /// The WAL has failed permanently: its directory is gone, or a sync does not return. Every
    /// later append and sync fails.
    fn abort(&self, reason: &str);

    /// Asks for flushes of these stores (regions by encoded name, with their families): their edits
    /// pin the oldest file, or are in a file that the disk failed to sync.
    fn request_flush(&self, stores: &[(Bytes, Vec<Bytes>)]);
}

/// Ignores all callbacks: for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoListener;

impl WalListener for NoListener {
    fn abort(&self, reason: &str) {
        tracing::error!(reason, "the WAL failed");
    }

    fn request_flush(&self, _stores: &[(Bytes, Vec<Bytes>)]) {}
}
