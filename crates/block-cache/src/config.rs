//! [`CacheConfig`]: from HBase's settings to one of its five deployments.
//!
//! | deployment | settings |
//! |---|---|
//! | LruBlockCache | none |
//! | CombinedBlockCache | an ioengine (see below), and a size |
//! | META blocks only | an ioengine, and `hbase.bucketcache.size` 0; or policy IndexOnlyLRU |
//! | none | `hfile.block.cache.size` at most 0.0001 |
//!
//! `hbase.bucketcache.ioengine` is `offheap`, `heap`, `file:`, `files:`, `mmap:` or `pmem:`. The
//! policy is `hfile.block.cache.policy`. docs/operating/block-cache.md describes the effect of each
//! setting, and which are accepted without effect.

use evenkeel_common::length;
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_common::{ConfigError, Configuration, HBaseError, Result};

use crate::bucket::{BLOCK_BYTES_MAX, BucketCache, BucketCacheConfig, Engine, Policy, Shares};
use crate::{BlockCache, CombinedBlockCache, LruBlockCache, NoCache};

/// At or below this share there is no cache.
const SHARE_MIN: f64 = 0.0001;
const SHARE_DEFAULT: f64 = 0.4;
const SHARE_MAX: f64 = 0.8;

/// Settings of HBase that have no effect here.
const IGNORED_SETTINGS: &[(&str, &str)] = &[
    ("hbase.bucketcache.bucket.sizes", "blocks are stored without rounding up their size"),
    ("hbase.bucketcache.percentage.in.combinedcache", "HBase ignores it too"),
    ("hbase.bucketcache.combinedcache.enabled", "the caches are always combined, as in HBase"),
    ("hbase.bucketcache.writer.threads", "the thread that reads a block writes it"),
    ("hbase.bucketcache.writer.queuelength", "the thread that reads a block writes it"),
];

/// The caches of a server.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// The cache of index and bloom blocks, or of all blocks. `None` for no cache at all.
    pub l1: Option<BucketCacheConfig>,
    /// Where data blocks are cached.
    pub data: DataBlocks,
}

/// The placement of data blocks.
#[derive(Clone, Debug)]
pub enum DataBlocks {
    /// The cache of all blocks.
    InL1,
    /// A second cache, for data blocks only.
    InL2(BucketCacheConfig),
    /// They are not cached.
    NotCached,
}

impl CacheConfig {
    /// Reads the settings. Shares are relative to `memory_bytes`, which replaces HBase's heap size.
    ///
    /// # Errors
    /// [`ConfigError`] with the key, its value and the expected values.
    pub fn from_configuration(conf: &Configuration, memory_bytes: u64) -> Result<Self, ConfigError> {
        for (key, why) in IGNORED_SETTINGS.iter().filter(|(key, _)| conf.is_set(key)) {
            tracing::info!(key, why, "block cache setting has no effect");
        }
        let l1 = l1_bytes(conf, memory_bytes)?;
        let block_bytes_max =
            conf.get_size_or("hbase.lru.max.block.size", BLOCK_BYTES_MAX as i64)?.max(0) as u64;
        let (policy, index_only) = policy(conf)?;
        let shares = shares(conf, policy, "hbase.lru.blockcache.", "percentage")?;
        let l1 = l1.map(|bytes| BucketCacheConfig {
            policy,
            shares,
            block_bytes_max,
            ..BucketCacheConfig::in_memory(bytes)
        });
        let data = match l2(conf, policy, memory_bytes)? {
            _ if index_only => DataBlocks::NotCached,
            None => DataBlocks::InL1,
            Some(l2) if l2.capacity_bytes == 0 => DataBlocks::NotCached,
            Some(l2) => DataBlocks::InL2(l2),
        };
        Ok(Self { l1, data })
    }

    /// The maximum of the process's memory that blocks use.
    pub fn memory_bytes(&self) -> u64 {
        let l2 = match &self.data {
            DataBlocks::InL2(config) if config.engine == Engine::Memory => config.capacity_bytes,
            _ => 0,
        };
        l2 + self.l1.as_ref().map_or(0, |l1| l1.capacity_bytes)
    }

    /// Opens the caches.
    ///
    /// # Errors
    /// `IOException` if memory or disk space cannot be reserved, or another process uses the files.
    pub fn open(&self) -> Result<Arc<dyn BlockCache>> {
        let failed = |e: std::io::Error| HBaseError::io(format!("the block cache cannot be opened: {e}"));
        let Some(l1) = &self.l1 else { return Ok(Arc::new(NoCache)) };
        let l1 = LruBlockCache::open(l1).map_err(failed)?;
        Ok(match &self.data {
            DataBlocks::InL1 => Arc::new(l1),
            DataBlocks::NotCached => Arc::new(CombinedBlockCache::new(l1, NoCache)),
            DataBlocks::InL2(config) => {
                let l2 = BucketCache::open(config).map_err(|e| {
                    HBaseError::io(format!("hbase.bucketcache.ioengine {:?}: {e}", config.engine))
                })?;
                Arc::new(CombinedBlockCache::new(l1, l2))
            }
        })
    }
}

fn l1_bytes(conf: &Configuration, memory_bytes: u64) -> Result<Option<u64>, ConfigError> {
    let share = conf.get_f64_or("hfile.block.cache.size", SHARE_DEFAULT)?.clamp(0.0, SHARE_MAX);
    if share <= SHARE_MIN {
        return Ok(None);
    }
    let absolute = match conf.is_set("hfile.block.cache.memory.size") {
        true => conf.get_size_or("hfile.block.cache.memory.size", 0)?.max(0) as u64,
        false => 0,
    };
    Ok(Some(if absolute > 0 { absolute } else { length::whole(memory_bytes as f64 * share) }))
}

/// Reads `hfile.block.cache.policy`: the order of eviction, and true if only index and bloom blocks
/// are cached. HBase's default is `LRU`. Only an explicit `LRU` selects HBase's LRU; the default
/// policy here has a better hit ratio.
fn policy(conf: &Configuration) -> Result<(Policy, bool), ConfigError> {
    const KEY: &str = "hfile.block.cache.policy";
    let name = conf.get_str_or(KEY, "LRU".into())?;
    match name.trim().to_ascii_uppercase().as_str() {
        "INDEXONLYLRU" => Ok((Policy::TinyLfu, true)),
        "LRU" if conf.is_set(KEY) => Ok((Policy::Lru, false)),
        "LRU" | "TINYLFU" | "ADAPTIVELRU" => Ok((Policy::TinyLfu, false)),
        _ => Err(conf.unusable(KEY, "LRU, TinyLFU, AdaptiveLRU or IndexOnlyLRU")),
    }
}

/// Reads the shares `<prefix>single.<suffix>`, `multi` and `memory`, which must sum to 1. The
/// single share takes effect only if it is set, or with LRU: the default policy has a smaller one
/// than HBase.
fn shares(conf: &Configuration, policy: Policy, prefix: &str, suffix: &str) -> Result<Shares, ConfigError> {
    let defaults = [("single", 0.25), ("multi", 0.50), ("memory", 0.25)];
    let mut sum = 0.0;
    let mut shares = Shares::of(policy);
    for (name, default) in defaults {
        let key = format!("{prefix}{name}.{suffix}");
        let share = conf.get_f64_or(&key, default)?;
        if !(0.0..=1.0).contains(&share) {
            return Err(conf.unusable(&key, "a share between 0 and 1"));
        }
        sum += share;
        match name {
            "single" if conf.is_set(&key) => shares.single = share,
            "multi" => shares.multi = share,
            "memory" => shares.memory = share,
            _ => {}
        }
    }
    let key = format!("{prefix}multi.{suffix}");
    if (sum - 1.0).abs() < 1e-3 { Ok(shares) } else { Err(conf.unusable(&key, "three shares that sum to 1")) }
}

/// Reads the L2 cache of data blocks. `None` without an ioengine. Its capacity is 0 if its size is
/// 0.
fn l2(
    conf: &Configuration,
    policy: Policy,
    memory_bytes: u64,
) -> Result<Option<BucketCacheConfig>, ConfigError> {
    const KEY: &str = "hbase.bucketcache.ioengine";
    let Some(text) = conf.get_trimmed(KEY)?.filter(|text| !text.is_empty()) else { return Ok(None) };
    let expected = "offheap, heap, file:PATH, files:PATH,PATH, mmap:PATH or pmem:PATH";
    let engine = engine(&text).ok_or_else(|| conf.unusable(KEY, expected))?;
    let index_path = match conf.is_set("hbase.bucketcache.persistent.path") {
        true => conf.get_trimmed("hbase.bucketcache.persistent.path")?.map(|path| local_path(&path)),
        false => None,
    };
    Ok(Some(BucketCacheConfig {
        engine,
        index_path: index_path.filter(|path| !path.as_os_str().is_empty()),
        policy,
        shares: shares(conf, policy, "hbase.bucketcache.", "factor")?,
        ..BucketCacheConfig::in_memory(l2_bytes(conf, memory_bytes)?)
    }))
}

/// Reads `hbase.bucketcache.size`: megabytes, or below 1 a share of the memory. The share is HBase
/// 1's meaning; HBase 2.6 reads it as megabytes.
fn l2_bytes(conf: &Configuration, memory_bytes: u64) -> Result<u64, ConfigError> {
    const KEY: &str = "hbase.bucketcache.size";
    let size = conf.get_f64_or(KEY, 0.0)?;
    if !size.is_finite() || size < 0.0 {
        return Err(conf.unusable(KEY, "megabytes, or a share of the memory below 1"));
    }
    let bytes = if size < 1.0 { size * memory_bytes as f64 } else { size * f64::from(1 << 20) };
    Ok(length::whole(bytes))
}

fn engine(text: &str) -> Option<Engine> {
    let path = |text: &str| Some(local_path(text)).filter(|path| !path.as_os_str().is_empty());
    match text.split_once(':') {
        None if text.starts_with("offheap") || text == "heap" => Some(Engine::Memory),
        Some(("offheap" | "heap", _)) => Some(Engine::Memory),
        Some(("mmap" | "pmem", rest)) => path(rest).map(Engine::Mapped),
        Some(("file", rest)) => path(rest).map(|path| Engine::Files(vec![path])),
        Some(("files", rest)) => {
            let paths: Option<Vec<_>> = rest.split(',').map(|part| path(part.trim())).collect();
            paths.map(Engine::Files)
        }
        _ => None,
    }
}

fn local_path(text: &str) -> PathBuf {
    PathBuf::from(text.strip_prefix("file://").or_else(|| text.strip_prefix("file:")).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: u64 = 1000 << 20;

    fn read(pairs: &[(&str, &str)]) -> Result<CacheConfig, ConfigError> {
        let mut conf = Configuration::new();
        pairs.iter().for_each(|(key, value)| conf.set(*key, *value));
        CacheConfig::from_configuration(&conf, MEMORY)
    }

    fn l2_of(pairs: &[(&str, &str)]) -> BucketCacheConfig {
        match read(pairs).unwrap().data {
            DataBlocks::InL2(config) => config,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_default_is_one_cache_for_all_blocks() {
        let config = read(&[]).unwrap();
        assert!(matches!(config.data, DataBlocks::InL1));
        assert_eq!(config.l1.unwrap().capacity_bytes, 400 << 20);
    }

    #[test]
    fn sizes_are_shares_of_the_memory_or_bytes() {
        let l1 = |pairs: &[(&str, &str)]| read(pairs).unwrap().l1.map(|l1| l1.capacity_bytes);
        assert_eq!(l1(&[("hfile.block.cache.size", "0.2")]), Some(200 << 20));
        assert_eq!(l1(&[("hfile.block.cache.size", "0.0001")]), None);
        assert_eq!(l1(&[("hfile.block.cache.memory.size", "64m")]), Some(64 << 20));
        let l2 = |size: &str| {
            l2_of(&[("hbase.bucketcache.ioengine", "offheap"), ("hbase.bucketcache.size", size)])
                .capacity_bytes
        };
        assert_eq!((l2("512"), l2("0.5")), (512 << 20, 500 << 20));
    }

    #[test]
    fn engines_by_their_names() {
        let engine = |name: &str| {
            l2_of(&[("hbase.bucketcache.ioengine", name), ("hbase.bucketcache.size", "1")]).engine
        };
        assert_eq!(engine("offheap"), Engine::Memory);
        assert_eq!(engine("heap"), Engine::Memory);
        assert_eq!(engine("mmap:/a/b"), Engine::Mapped("/a/b".into()));
        assert_eq!(engine("pmem:/a/b"), Engine::Mapped("/a/b".into()));
        assert_eq!(engine("file:/a"), Engine::Files(vec!["/a".into()]));
        assert_eq!(engine("files:/a,/b"), Engine::Files(vec!["/a".into(), "/b".into()]));
        for name in ["tape", "file:", "files:/a,"] {
            read(&[("hbase.bucketcache.ioengine", name)]).unwrap_err();
        }
    }

    #[test]
    fn an_l2_of_no_size_and_the_index_only_policy_keep_no_data() {
        let no_size = read(&[("hbase.bucketcache.ioengine", "offheap")]).unwrap();
        let index_only = read(&[("hfile.block.cache.policy", "IndexOnlyLRU")]).unwrap();
        for config in [no_size, index_only] {
            assert!(matches!(config.data, DataBlocks::NotCached));
        }
        read(&[("hfile.block.cache.policy", "Random")]).unwrap_err();
    }

    #[test]
    fn the_policy_is_lru_only_when_configured() {
        let l1 = |pairs: &[(&str, &str)]| read(pairs).unwrap().l1.unwrap();
        let set = |name| l1(&[("hfile.block.cache.policy", name)]);
        let unset = (l1(&[]), Policy::TinyLfu);
        let others = ["TinyLFU", "AdaptiveLRU", "IndexOnlyLRU"].map(|name| (set(name), Policy::TinyLfu));
        for (config, policy) in [unset, (set("LRU"), Policy::Lru)].into_iter().chain(others) {
            assert_eq!((config.policy, config.shares), (policy, Shares::of(policy)));
        }
        let l2 = l2_of(&[
            ("hbase.bucketcache.ioengine", "offheap"),
            ("hbase.bucketcache.size", "1"),
            ("hfile.block.cache.policy", "lru"),
        ]);
        assert_eq!((l2.policy, l2.shares), (Policy::Lru, Shares { single: 0.25, multi: 0.5, memory: 0.25 }));
    }

    #[test]
    fn shares_must_sum_to_one() {
        let set = [
            ("hbase.lru.blockcache.single.percentage", "0.1"),
            ("hbase.lru.blockcache.multi.percentage", "0.6"),
            ("hbase.lru.blockcache.memory.percentage", "0.3"),
        ];
        let shares = read(&set).unwrap().l1.unwrap().shares;
        assert_eq!(shares, Shares { single: 0.1, multi: 0.6, memory: 0.3 });
        read(&set[..1]).unwrap_err();
    }
}
