//! [`ChunkPoolConfig`]: HBase's MSLAB settings, for the pool of chunks.
//!
//! `hbase.hregion.memstore.mslab.enabled` has no effect, because cells always lie in chunks.
//! Neither has `hbase.hregion.memstore.mslab.indexchunksize.percent`, because a list's index lies
//! among its cells.

use evenkeel_common::length;
use std::sync::Arc;

use evenkeel_common::{ConfigError, Configuration};

use super::chunk::ALIGN;
use super::{CHUNK_BYTES, ChunkPool, ChunkSizes};

const CHUNK_SIZE: &str = "hbase.hregion.memstore.mslab.chunksize";
const MAX_ALLOCATION: &str = "hbase.hregion.memstore.mslab.max.allocation";
const POOL_MAX: &str = "hbase.hregion.memstore.chunkpool.maxsize";
const POOL_INITIAL: &str = "hbase.hregion.memstore.chunkpool.initialsize";

/// The smallest and the largest chunk that may be configured, in bytes.
const CHUNK_BYTES_BOUNDS: std::ops::RangeInclusive<u64> = 4 << 10..=256 << 20;

/// The settings of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPoolConfig {
    /// The sizes of its chunks.
    pub sizes: ChunkSizes,
    /// The maximum number of spare chunks.
    pub spare_max: usize,
    /// The initial number of ready chunks.
    pub initial: usize,
    /// The maximum bytes of all chunks: those of MemStores, and [`chunk_slack_bytes`].
    pub bytes_max: usize,
}

/// Returns the bytes that chunks may have beyond `memstore_bytes` of MemStores, because they are
/// not full or are spare: a 16th of it, but at least four chunks of 2 MiB, unless that is more than
/// an eighth.
pub fn chunk_slack_bytes(memstore_bytes: u64) -> u64 {
    (memstore_bytes / 16).max((memstore_bytes / 8).min(4 * CHUNK_BYTES as u64))
}

impl ChunkPoolConfig {
    /// Reads HBase's keys, for MemStores of `memstore_bytes` together.
    ///
    /// A value that cannot be parsed, or that HBase rejects: a fraction of the memory below 0 or
    /// above 1, an allocation larger than a chunk. A chunk below 4 KiB or above 256 MiB.
    pub fn from_configuration(conf: &Configuration, memstore_bytes: u64) -> Result<Self, ConfigError> {
        let sizes = Self::sizes(conf)?;
        let part = |key: &str, default: f64| match conf.get_f64_or(key, default)? {
            part if (0.0..=1.0).contains(&part) => Ok(part),
            _ => Err(conf.unusable(key, "a number from 0.0 to 1.0")),
        };
        let spare_max =
            length::index(length::whole(memstore_bytes as f64 * part(POOL_MAX, 1.0)?)) / sizes.chunk_bytes;
        let initial = length::index(length::whole(part(POOL_INITIAL, 0.0)? * spare_max as f64));
        let bytes_max = length::index(memstore_bytes + chunk_slack_bytes(memstore_bytes));
        Ok(Self { sizes, spare_max, initial, bytes_max })
    }

    fn sizes(conf: &Configuration) -> Result<ChunkSizes, ConfigError> {
        let chunk = conf.get_u64_or(CHUNK_SIZE, CHUNK_BYTES as u64)?;
        if !CHUNK_BYTES_BOUNDS.contains(&chunk) {
            return Err(conf.unusable(CHUNK_SIZE, "from 4096 to 268435456 bytes"));
        }
        let chunk_bytes = length::index(chunk).next_multiple_of(ALIGN);
        let shared = conf.get_u64_or(MAX_ALLOCATION, ChunkSizes::default().shared_bytes_max as u64)?;
        if shared > chunk {
            return Err(conf.unusable(MAX_ALLOCATION, &format!("no more than {CHUNK_SIZE}, {chunk}")));
        }
        Ok(ChunkSizes { chunk_bytes, shared_bytes_max: length::index(shared) })
    }

    /// The pool.
    pub fn pool(&self) -> Arc<ChunkPool> {
        ChunkPool::within(self.sizes, self.spare_max, self.initial, self.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(settings: &[(&str, &str)]) -> Result<ChunkPoolConfig, ConfigError> {
        let mut conf = Configuration::new();
        settings.iter().for_each(|(key, value)| conf.set(*key, *value));
        ChunkPoolConfig::from_configuration(&conf, 100 << 20)
    }

    #[test]
    fn settings_are_hbases() {
        let bytes_max = 108 << 20;
        let default = ChunkPoolConfig { sizes: ChunkSizes::default(), spare_max: 50, initial: 0, bytes_max };
        assert_eq!(read(&[]).expect("reads"), default);
        let small =
            [(CHUNK_SIZE, "1000001"), (MAX_ALLOCATION, "5000"), (POOL_MAX, "0.5"), (POOL_INITIAL, "0.1")];
        let sizes = ChunkSizes { chunk_bytes: 1_000_008, shared_bytes_max: 5000 };
        assert_eq!(
            read(&small).expect("reads"),
            ChunkPoolConfig { sizes, spare_max: 52, initial: 5, bytes_max }
        );
    }

    #[test]
    fn what_hbase_refuses_is_refused_by_name() {
        let bad = [
            (CHUNK_SIZE, "0"),
            (CHUNK_SIZE, "1g"),
            (MAX_ALLOCATION, "2097153"),
            (POOL_MAX, "1.1"),
            (POOL_INITIAL, "-1"),
        ];
        for (key, value) in bad {
            let error = read(&[(key, value)]).expect_err("refused").to_string();
            assert!(error.contains(key) && error.contains(value), "{error}");
        }
    }
}
