//! Settings of a WAL, and what it tells its server.

use std::time::Duration;

use bytes::Bytes;
use evenkeel_compression::Compression;

/// The setting that names the codec of values.
pub(crate) const VALUE_COMPRESSION_KEY: &str = "hbase.regionserver.wal.value.compression.type";

/// How entries are compressed: by dictionaries (`hbase.regionserver.wal.enablecompression`), and further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalCompression {
    /// Tags by dictionary, too: `hbase.regionserver.wal.tags.enablecompression`.
    pub tags: bool,
    /// Values, by this codec: `hbase.regionserver.wal.value.enablecompression` and
    /// `hbase.regionserver.wal.value.compression.type`.
    pub values: Option<Compression>,
    /// ZSTD in the form of hbase-compression-zstd's codec: `hbase.io.compress.zstd.codec`.
    pub zstd_framed: bool,
}

impl Default for WalCompression {
    fn default() -> Self {
        Self { tags: true, values: None, zstd_framed: false }
    }
}

/// Settings, by HBase's names where HBase has them.
#[derive(Clone, Debug)]
pub struct WalConfig {
    /// A file longer than this is followed by a new one: `hbase.regionserver.hlog.blocksize` times
    /// `hbase.regionserver.logroll.multiplier`.
    pub roll_bytes: u64,
    /// A file older than this is, too, when it has entries: `hbase.regionserver.logroll.period`.
    pub roll_period_ms: i64,
    /// A sync that takes longer is slow: `hbase.regionserver.wal.slowsync.ms`.
    pub slow_sync: Duration,
    /// A file with a sync that takes longer is followed by a new one: `hbase.regionserver.wal.roll.on.sync.ms`.
    pub roll_on_sync: Duration,
    /// So is a file with so many slow syncs (`hbase.regionserver.wal.slowsync.roll.threshold`)
    pub slow_sync_roll_threshold: u32,
    /// within this time: `hbase.regionserver.wal.slowsync.roll.interval.ms`.
    pub slow_sync_roll_interval_ms: i64,
    /// A sync that has taken longer fails the log: `hbase.regionserver.wal.sync.timeout`.
    pub sync_timeout: Duration,
    /// Whether the ordinary sync is one that survives the machine: `hbase.wal.hsync`.
    pub hsync: bool,
    /// With more files than this the regions that hold the oldest are asked to flush:
    /// `hbase.regionserver.maxlogs`.
    pub logs_max: usize,
    /// Bytes that may wait to be written; [`crate::Wal::append`] blocks above it.
    pub queue_bytes_max: usize,
    /// The longest entry.
    pub entry_bytes_max: usize,
    /// Whether a thread in [`crate::Wal::sync`] that finds nobody writing writes itself, rather than wake the WAL's
    /// thread and sleep. Spares two context switches when there is one writer.
    pub inline_sync: bool,
    /// How entries are compressed, if they are. It costs the committing thread some time, and appends none.
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

/// What a server hears from its WAL. Called on the WAL's threads: return soon, and call nothing of the WAL that waits.
pub trait WalListener: Send + Sync {
    /// The WAL cannot go on: its directory is gone, or a sync does not end. Every append and sync fails from here on.
    fn abort(&self, reason: &str);

    /// These stores (regions by encoded name, and their families) should be flushed: their edits hold back the oldest
    /// file, or are in one that the disk failed to sync.
    fn request_flush(&self, stores: &[(Bytes, Vec<Bytes>)]);
}

/// Hears nothing: for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoListener;

impl WalListener for NoListener {
    fn abort(&self, reason: &str) {
        tracing::error!(reason, "the WAL failed");
    }

    fn request_flush(&self, _stores: &[(Bytes, Vec<Bytes>)]) {}
}
