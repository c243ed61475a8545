//! [`CachedFiles`]: the cached part of each store file.
//!
//! Computing it requires a walk over every block of the cache, a shard at a time. So the history's
//! thread computes it, at most every [`PERIOD_MS`], and only while a page that shows it is open.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use evenkeel_block_cache::BlockCache;
use evenkeel_region::region::Region;
use parking_lot::Mutex;

/// The minimum time between two walks.
pub const PERIOD_MS: i64 = 10_000;
/// Walks stop this long after a page was last rendered.
const VIEWED_MS: i64 = 30_000;

/// A store file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedFile {
    /// The table's name.
    pub table: String,
    /// The region's encoded name.
    pub region: String,
    /// The family's name.
    pub family: String,
    /// The file's name.
    pub name: String,
    /// Bytes that can be cached.
    pub bytes: u64,
    /// Bytes that are cached.
    pub cached_bytes: u64,
    /// Blocks that are cached.
    pub blocks: u64,
    /// When the file was written, in milliseconds since 1970.
    pub written_ms: i64,
}

/// The result of a walk over the cache.
#[derive(Clone, Debug, Default)]
pub struct CacheSnapshot {
    /// When the walk was done, in milliseconds since 1970; 0 if there was none yet.
    pub at_ms: i64,
    /// Every store file.
    pub files: Vec<CachedFile>,
}

impl CacheSnapshot {
    /// Returns, by encoded region name, the bytes that are cached and that can be cached.
    pub fn by_region(&self) -> HashMap<&str, (u64, u64)> {
        let mut regions = HashMap::<&str, (u64, u64)>::new();
        for file in &self.files {
            let sum = regions.entry(&file.region).or_default();
            *sum = (sum.0 + file.cached_bytes, sum.1 + file.bytes);
        }
        regions
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct CachedFiles {
    last_viewed_ms: AtomicI64,
    snapshot: Mutex<Arc<CacheSnapshot>>,
}

impl CachedFiles {
    /// Returns the last result, and requests further walks.
    pub fn read(&self, now_ms: i64) -> Arc<CacheSnapshot> {
        self.last_viewed_ms.store(now_ms, Relaxed);
        Arc::clone(&self.snapshot.lock())
    }

    /// Returns true if a walk is due.
    pub(super) fn is_due(&self, now_ms: i64) -> bool {
        let (last_viewed_ms, at_ms) = (self.last_viewed_ms.load(Relaxed), self.snapshot.lock().at_ms);
        last_viewed_ms > 0 && now_ms - last_viewed_ms < VIEWED_MS && now_ms - at_ms >= PERIOD_MS
    }

    /// Walks over the cache.
    pub(super) fn scan_cache(&self, now_ms: i64, cache: &dyn BlockCache, regions: &[Arc<Region>]) {
        let (mut files, mut ids) = (Vec::new(), Vec::new());
        for region in regions {
            for store in region.stores() {
                for (info, id, bytes) in store.cacheable_files() {
                    ids.push(id);
                    files.push(CachedFile {
                        table: region.info().table().to_string(),
                        region: region.info().encoded_name().to_owned(),
                        family: store.family().name_text(),
                        name: info.name,
                        bytes,
                        cached_bytes: 0,
                        blocks: 0,
                        written_ms: info.modified_ms,
                    });
                }
            }
        }
        for (file, cached) in files.iter_mut().zip(cache.cached_files(&ids)) {
            (file.cached_bytes, file.blocks) = (cached.on_disk_bytes.min(file.bytes), cached.blocks);
        }
        *self.snapshot.lock() = Arc::new(CacheSnapshot { at_ms: now_ms, files });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_scanned_only_while_viewed() {
        let files = CachedFiles::default();
        assert!(!files.is_due(1_000_000));
        files.read(1_000_000);
        assert!(files.is_due(1_000_001));
        files.scan_cache(1_000_001, &evenkeel_block_cache::NoCache, &[]);
        assert!(!files.is_due(1_000_002) && files.is_due(1_000_001 + PERIOD_MS));
        assert!(!files.is_due(1_000_000 + VIEWED_MS), "the page was closed");
    }

    #[test]
    fn files_are_summed_by_region() {
        let file = |region: &str, bytes, cached_bytes| CachedFile {
            table: "t".into(),
            region: region.into(),
            family: "f".into(),
            name: "n".into(),
            bytes,
            cached_bytes,
            blocks: 1,
            written_ms: 0,
        };
        let look =
            CacheSnapshot { at_ms: 1, files: vec![file("a", 10, 5), file("b", 7, 7), file("a", 10, 10)] };
        assert_eq!((look.by_region()["a"], look.by_region()["b"]), ((15, 20), (7, 7)));
    }
}
