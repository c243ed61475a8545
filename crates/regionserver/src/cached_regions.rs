//! [`CachedRegions`]: how much of each region a cache holds that survives a restart, for reports to
//! the master. Its CacheAwareLoadBalancer leaves regions where their blocks are cached.
//!
//! HBase reports these sizes only of a persistent bucket cache, and so does this server. HBase adds
//! and subtracts each block as it is cached and evicted. Here the cache is counted from time to
//! time instead, on a thread of its own, so that inserting a block updates no further map.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_block_cache::BlockCache;
use evenkeel_common::clock;
use evenkeel_common::thread;
use evenkeel_region::region::Region;
use parking_lot::Mutex;

/// How long a count is used.
const COUNTED_EVERY: Duration = Duration::from_secs(30);

/// The cached bytes of store files, by the encoded name of their region.
pub type CachedBytes = HashMap<String, u64>;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct CachedRegions(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    is_counting: bool,
    counted_at: Option<Instant>,
    bytes: Arc<CachedBytes>,
}

impl CachedRegions {
    /// Returns the latest count, and starts another one if it is due. The count is empty at first,
    /// and always if the cache is not persistent.
    pub fn read(&self, cache: &Arc<dyn BlockCache>, regions: &[Arc<Region>]) -> Arc<CachedBytes> {
        if !cache.is_persistent() {
            return Arc::default();
        }
        let mut state = self.0.lock();
        let is_due = state.counted_at.is_none_or(|at| clock::since(at) >= COUNTED_EVERY);
        if is_due && !state.is_counting {
            let (cache, regions, state_of) = (Arc::clone(cache), regions.to_vec(), Arc::clone(&self.0));
            let count = move || {
                // A count that panics is made again when the next one is due.
                let ended = Ended(state_of);
                let bytes = count(&*cache, &regions);
                ended.0.lock().bytes = Arc::new(bytes);
            };
            state.is_counting = thread::spawn("cached-regions", count).is_ok();
        }
        Arc::clone(&state.bytes)
    }
}

/// Marks the running count as ended when it is dropped.
struct Ended(Arc<Mutex<State>>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        (state.is_counting, state.counted_at) = (false, Some(clock::monotonic()));
    }
}

/// Counts the cached bytes of each region. Expensive: it walks over the cache.
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
