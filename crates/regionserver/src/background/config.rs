//! [`BackgroundConfig`].

use std::time::Duration;

use evenkeel_common::config::ConfigError;
use evenkeel_common::thread::Supervisor;
use evenkeel_common::{Configuration, TimeUnit};

const FLUSH_TRIES: &str = "hbase.hstore.flush.retries.number";

/// Numbers of threads, and retries.
#[derive(Clone, Debug)]
pub struct BackgroundConfig {
    /// `hbase.hstore.flusher.count`.
    pub flushers: usize,
    /// `hbase.hstore.flush.retries.number`: the maximum number of tries of a flush.
    pub flush_tries: u32,
    /// `hbase.server.pause`: the pause before a failed flush is retried.
    pub flush_pause: Duration,
    /// `hbase.regionserver.thread.compaction.small`: threads for small compactions.
    pub small_compactors: usize,
    /// `hbase.regionserver.thread.compaction.large`: threads for large compactions.
    pub large_compactors: usize,
    /// `hbase.regionserver.thread.compaction.throttle`: a compaction of more bytes is large.
    pub large_compaction_bytes: u64,
    /// `hbase.regionserver.inmemory.compaction.pool.size`: threads for in-memory flushes, at most
    /// the number of cores.
    pub in_memory_flushers: usize,
    /// `hbase.regionserver.thread.split`: threads that request splits from the master.
    pub split_requesters: usize,
    /// `hbase.regionserver.compaction.enabled`.
    pub compactions_enabled: bool,
    /// Notified when a thread dies.
    pub supervisor: Supervisor,
}

impl Default for BackgroundConfig {
    fn default() -> Self {
        Self {
            flushers: 2,
            flush_tries: 10,
            flush_pause: Duration::from_secs(1),
            small_compactors: 1,
            large_compactors: 1,
            large_compaction_bytes: 2 * 10 * (128 << 20),
            in_memory_flushers: cores().min(10),
            split_requesters: 1,
            compactions_enabled: true,
            supervisor: Supervisor::log_only(),
        }
    }
}

impl BackgroundConfig {
    /// The keys whose values [`Background::update_config`](super::Background::update_config)
    /// applies.
    pub const CHANGEABLE_KEYS: [&str; 3] =
        [FLUSH_TRIES, "hbase.server.pause", "hbase.regionserver.thread.compaction.throttle"];

    /// Reads HBase's keys.
    ///
    /// # Errors
    /// [`ConfigError`] if a value is malformed.
    pub fn from(conf: &Configuration) -> Result<Self, ConfigError> {
        let threads = |key: &str, default: u64| Ok(conf.get_u64_or(key, default)?.clamp(1, 64) as usize);
        let flush_bytes = conf.get_size_or("hbase.hregion.memstore.flush.size", 128 << 20)?;
        let files_max = conf.get_i64_or("hbase.hstore.compaction.max", 10)?;
        let large = flush_bytes.saturating_mul(files_max).saturating_mul(2);
        let large = conf.get_i64_or("hbase.regionserver.thread.compaction.throttle", large)?;
        let pause_ms = conf.get_time_or("hbase.server.pause", TimeUnit::Milliseconds, 1000)?;
        let tries = conf.get_i64_or(FLUSH_TRIES, 10)?;
        if tries <= 0 {
            return Err(conf.unusable(FLUSH_TRIES, "more than 0"));
        }
        Ok(Self {
            flushers: threads("hbase.hstore.flusher.count", 2)?,
            flush_tries: u32::try_from(tries).unwrap_or(u32::MAX),
            flush_pause: Duration::from_millis(pause_ms.max(0) as u64),
            small_compactors: threads("hbase.regionserver.thread.compaction.small", 1)?,
            large_compactors: threads("hbase.regionserver.thread.compaction.large", 1)?,
            large_compaction_bytes: large.max(0) as u64,
            in_memory_flushers: threads("hbase.regionserver.inmemory.compaction.pool.size", 10)?.min(cores()),
            split_requesters: threads("hbase.regionserver.thread.split", 1)?,
            compactions_enabled: conf.get_bool_or("hbase.regionserver.compaction.enabled", true)?,
            supervisor: Supervisor::log_only(),
        })
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
