//! What a store caches: [`StoreCacheConfig`], and files read into the cache when they are opened.
//!
//! Prefetches run on one thread of the process, a file at a time, after a delay that lets regions come up first. Their
//! queue holds references that do not keep a file open, and a prefetch ends at the next block when its file is closed,
//! or when the cache is full.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use evenkeel_common::{ColumnFamilyDescriptor, ConfigError, Configuration, TimeUnit};
use parking_lot::{Condvar, Mutex};

use super::{Store, StoreFile};

/// What of a store's blocks is cached, and when (`CacheConfig`). `Default` is HBase's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreCacheConfig {
    /// `hbase.block.data.cacheonread` and `BLOCKCACHE`: reads keep data blocks. Index and bloom blocks are always kept.
    pub data_on_read: bool,
    /// `hbase.rs.cacheblocksonwrite` or `CACHE_DATA_ON_WRITE`: flushes keep the data blocks they write.
    pub data_on_write: bool,
    /// `hfile.block.index.cacheonwrite` or `CACHE_INDEX_ON_WRITE`.
    pub index_on_write: bool,
    /// `hfile.block.bloom.cacheonwrite` or `CACHE_BLOOMS_ON_WRITE`.
    pub bloom_on_write: bool,
    /// `hbase.rs.cachecompactedblocksonwrite`: compactions keep all blocks they write.
    pub compacted_on_write: bool,
    /// `hbase.rs.cachecompactedblocksonwrite.threshold`: not those of more bytes than this.
    pub compacted_bytes_max: u64,
    /// `hbase.block.data.cachecompressed`: data blocks stay compressed in the cache.
    pub compressed: bool,
    /// `hbase.rs.evictblocksonclose` or `EVICT_BLOCKS_ON_CLOSE`.
    pub evict_on_close: bool,
    /// `hbase.rs.prefetchblocksonopen` or `PREFETCH_BLOCKS_ON_OPEN`.
    pub prefetch_on_open: bool,
    /// `hbase.hfile.prefetch.delay`, in milliseconds.
    pub prefetch_delay_ms: u64,
}

const PREFETCH_DELAY_MS: u64 = 1000;

impl Default for StoreCacheConfig {
    fn default() -> Self {
        Self {
            data_on_read: true,
            data_on_write: false,
            index_on_write: false,
            bloom_on_write: false,
            compacted_on_write: false,
            compacted_bytes_max: u64::MAX,
            compressed: false,
            evict_on_close: false,
            prefetch_on_open: false,
            prefetch_delay_ms: PREFETCH_DELAY_MS,
        }
    }
}

impl StoreCacheConfig {
    /// From the server's configuration.
    ///
    /// # Errors
    /// A value that cannot be read.
    pub fn from_configuration(conf: &Configuration) -> Result<Self, ConfigError> {
        const THRESHOLD: &str = "hbase.rs.cachecompactedblocksonwrite.threshold";
        const DELAY: &str = "hbase.hfile.prefetch.delay";
        let delay = conf.get_time_or(DELAY, TimeUnit::Milliseconds, PREFETCH_DELAY_MS as i64)?;
        Ok(Self {
            data_on_read: conf.get_bool_or("hbase.block.data.cacheonread", true)?,
            data_on_write: conf.get_bool_or("hbase.rs.cacheblocksonwrite", false)?,
            index_on_write: conf.get_bool_or("hfile.block.index.cacheonwrite", false)?,
            bloom_on_write: conf.get_bool_or("hfile.block.bloom.cacheonwrite", false)?,
            compacted_on_write: conf.get_bool_or("hbase.rs.cachecompactedblocksonwrite", false)?,
            compacted_bytes_max: conf.get_i64_or(THRESHOLD, i64::MAX)?.max(0) as u64,
            compressed: conf.get_bool_or("hbase.block.data.cachecompressed", false)?,
            evict_on_close: conf.get_bool_or("hbase.rs.evictblocksonclose", false)?,
            prefetch_on_open: conf.get_bool_or("hbase.rs.prefetchblocksonopen", false)?,
            prefetch_delay_ms: delay.max(0) as u64,
        })
    }

    /// With a family's attributes: one that is set adds to the server's setting, but `BLOCKCACHE` may also take away.
    pub fn for_family(mut self, family: &ColumnFamilyDescriptor) -> Self {
        let is_set = |name: &str| family.text(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        self.data_on_read &= family.block_cache_enabled();
        self.data_on_write |= is_set("CACHE_DATA_ON_WRITE");
        self.index_on_write |= is_set("CACHE_INDEX_ON_WRITE");
        self.bloom_on_write |= is_set("CACHE_BLOOMS_ON_WRITE");
        self.evict_on_close |= is_set("EVICT_BLOCKS_ON_CLOSE");
        self.prefetch_on_open |= is_set("PREFETCH_BLOCKS_ON_OPEN");
        self
    }
}

/// Files that wait to be read into the cache. No more than this; later ones are not prefetched.
const QUEUE_FILES_MAX: usize = 100_000;

struct Waiting {
    file: Weak<StoreFile>,
    due: Instant,
}

#[derive(Default)]
struct Queue {
    files: VecDeque<Waiting>,
    is_running: bool,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { files: VecDeque::new(), is_running: false });
static ADDED: Condvar = Condvar::new();

impl Store {
    /// Has a file read into the cache soon, when the settings say so. Halves of files are not.
    pub(super) fn prefetch(&self, file: &Arc<StoreFile>) {
        let cache = self.config.cache;
        if !cache.prefetch_on_open || !cache.data_on_read || file.is_reference() {
            return;
        }
        let mut queue = QUEUE.lock();
        if queue.files.len() >= QUEUE_FILES_MAX {
            return;
        }
        let due = Instant::now() + Duration::from_millis(cache.prefetch_delay_ms);
        queue.files.push_back(Waiting { file: Arc::downgrade(file), due });
        if !queue.is_running {
            let started = std::thread::Builder::new().name("prefetch".into()).spawn(run);
            queue.is_running = started.is_ok();
        }
        ADDED.notify_one();
    }

    /// The names of the files of which every block is in the cache.
    pub fn fully_cached_files(&self) -> Vec<String> {
        let state = self.state.load();
        let ids: Vec<_> = state.files.iter().map(|file| file.reader().file_id()).collect();
        let cached = self.env.cache.cached_files(&ids);
        let full = state.files.iter().zip(cached).filter(|(file, cached)| {
            cached.blocks > 0 && cached.on_disk_bytes >= file.reader().cacheable_bytes()
        });
        full.map(|(file, _)| file.name().to_owned()).collect()
    }
}

fn run() {
    loop {
        let file = next();
        // Given up when nobody else has the file any more.
        let Some(file) = file.upgrade() else { continue };
        let reader = Arc::clone(file.reader());
        let weak = Arc::downgrade(&file);
        drop(file);
        if let Err(error) = reader.prefetch(&|| weak.strong_count() > 0) {
            tracing::warn!(%error, "a file is not prefetched");
        }
    }
}

/// Waits for the next file that is due.
fn next() -> Weak<StoreFile> {
    let mut queue = QUEUE.lock();
    loop {
        match queue.files.front().map(|waiting| waiting.due) {
            None => ADDED.wait(&mut queue),
            Some(due) if due > Instant::now() => drop(ADDED.wait_until(&mut queue, due)),
            Some(_) => {
                if let Some(waiting) = queue.files.pop_front() {
                    return waiting.file;
                }
            }
        }
    }
}
