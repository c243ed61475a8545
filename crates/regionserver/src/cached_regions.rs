//! [`CachedRegions`]: how much of each open region the caches hold, for reports to the master. Its
//! CacheAwareLoadBalancer leaves regions where their blocks are cached.
//!
//! Sizes are reported if the cache survives a restart, as HBase reports `currentRegionCachedRatio`.
//! HBase also reports `regionCachedInfo` of caches in memory, and of regions that have moved away
//! since, so that its balancer may move them back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_block_cache::BlockCache;
use evenkeel_common::clock;
use evenkeel_region::region::Region;
use parking_lot::Mutex;

/// How long a count is used: it lists all store files.
const COUNTED_EVERY: Duration = Duration::from_secs(30);

/// The cached bytes of store files, by the encoded name of their region.
pub type CachedBytes = HashMap<String, u64>;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct CachedRegions(Mutex<Option<(Instant, Arc<CachedBytes>)>>);

impl CachedRegions {
    /// Returns the latest count, or makes another one if it is due. It is empty if the cache is not
    /// persistent.
    pub fn read(&self, cache: &dyn BlockCache, regions: &[Arc<Region>]) -> Arc<CachedBytes> {
        if !cache.is_persistent() {
            return Arc::default();
        }
        let mut latest = self.0.lock();
        match &*latest {
            Some((counted_at, bytes)) if clock::since(*counted_at) < COUNTED_EVERY => Arc::clone(bytes),
            _ => {
                let bytes = Arc::new(count(cache, regions));
                *latest = Some((clock::monotonic(), Arc::clone(&bytes)));
                bytes
            }
        }
    }
}

/// Counts the cached bytes of each region.
fn count(cache: &dyn BlockCache, regions: &[Arc<Region>]) -> CachedBytes {
    let (mut files, mut ids) = (Vec::new(), Vec::new());
    for region in regions {
        for store in region.stores() {
            for (_, id, bytes) in store.cacheable_files() {
                ids.push(id);
                files.push((region.info().encoded_name(), bytes));
            }
        }
    }
    let mut sums = CachedBytes::new();
    for ((region, bytes), cached) in files.into_iter().zip(cache.cached_files(&ids)) {
        if cached.on_disk_bytes > 0 {
            *sums.entry(region.to_owned()).or_default() += cached.on_disk_bytes.min(bytes);
        }
    }
    sums
}
