//! Caching settings of a store ([`StoreCacheConfig`]), and prefetches of files when they are
//! opened.
//!
//! One thread of the process prefetches one file at a time, after a delay that lets regions open
//! first. The queue does not keep a file open. A prefetch ends at the next block if its file is
//! closed or if the cache is full.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use evenkeel_block_cache::FileId;
use evenkeel_common::clock;
use evenkeel_common::thread::spawn_restarted;
use evenkeel_common::{ColumnFamilyDescriptor, ConfigError, Configuration, Result, TimeUnit, priority};
use evenkeel_hfile::ToldBlock;
use parking_lot::{Condvar, Mutex};

use super::{Store, StoreFile, StoreFileInfo};

/// Which of a store's blocks are cached, and when (`CacheConfig`). `Default` has HBase's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreCacheConfig {
    /// `hbase.block.data.cacheonread` and `BLOCKCACHE`: reads cache data blocks. Index and bloom
    /// blocks are always cached.
    pub data_on_read: bool,
    /// `hbase.rs.cacheblocksonwrite` or `CACHE_DATA_ON_WRITE`: flushes cache the data blocks they
    /// write.
    pub data_on_write: bool,
    /// `hfile.block.index.cacheonwrite` or `CACHE_INDEX_ON_WRITE`.
    pub index_on_write: bool,
    /// `hfile.block.bloom.cacheonwrite` or `CACHE_BLOOMS_ON_WRITE`.
    pub bloom_on_write: bool,
    /// `hbase.rs.cachecompactedblocksonwrite`: compactions cache all blocks they write.
    pub compacted_on_write: bool,
    /// `hbase.rs.cachecompactedblocksonwrite.threshold`: larger compactions, in bytes, do not cache
    /// their blocks.
    pub compacted_bytes_max: u64,
    /// `hbase.block.data.cachecompressed`: data blocks stay compressed in the cache.
    pub compressed: bool,
    /// `hbase.rs.evictblocksonclose` or `EVICT_BLOCKS_ON_CLOSE`.
    pub evict_on_close: bool,
    /// `hbase.rs.prefetchblocksonopen` or `PREFETCH_BLOCKS_ON_OPEN`.
    pub prefetch_on_open: bool,
    /// `hbase.hfile.prefetch.delay`, in milliseconds.
    pub prefetch_delay_ms: u64,
    /// `row.cache.enabled`: Gets cache rows, unless the table sets `ROW_CACHE_ENABLED`.
    pub rows: bool,
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
            rows: false,
        }
    }
}

impl StoreCacheConfig {
    /// Reads the server's configuration.
    ///
    /// # Errors
    /// A value that cannot be parsed.
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
            rows: conf.get_bool_or("row.cache.enabled", false)?,
        })
    }

    /// Applies a family's attributes. They add to the server's settings; only `BLOCKCACHE` may also
    /// disable one.
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

/// The maximum length of the queue. Files beyond it are not prefetched.
const QUEUE_FILES_MAX: usize = 100_000;

struct PrefetchEntry {
    file: Weak<StoreFile>,
    due: Instant,
}

#[derive(Default)]
struct PrefetchQueue {
    files: VecDeque<PrefetchEntry>,
    is_running: bool,
}

static QUEUE: Mutex<PrefetchQueue> = Mutex::new(PrefetchQueue { files: VecDeque::new(), is_running: false });
static ADDED: Condvar = Condvar::new();

impl Store {
    /// Queues a file for prefetching, if so configured. References are not prefetched.
    pub(super) fn prefetch(&self, file: &Arc<StoreFile>) {
        let cache = self.config.cache;
        if !cache.prefetch_on_open || !cache.data_on_read || file.is_reference() {
            return;
        }
        let mut queue = QUEUE.lock();
        if queue.files.len() >= QUEUE_FILES_MAX {
            return;
        }
        let due = clock::monotonic() + Duration::from_millis(cache.prefetch_delay_ms);
        queue.files.push_back(PrefetchEntry { file: Arc::downgrade(file), due });
        if !queue.is_running {
            queue.is_running = spawn_restarted("prefetch", run).is_ok();
        }
        ADDED.notify_one();
    }

    /// Returns the files with their names in the cache, and the bytes of each that can be cached.
    pub fn cacheable_files(&self) -> Vec<(StoreFileInfo, FileId, u64)> {
        let state = self.state.load();
        let of_file =
            |file: &Arc<StoreFile>| (file.info(), file.reader().file_id(), file.reader().cacheable_bytes());
        state.files.iter().map(of_file).collect()
    }

    /// Returns the ids of the files in the cache.
    pub fn file_ids(&self) -> Vec<FileId> {
        self.state.load().files.iter().map(|file| file.reader().file_id()).collect()
    }

    /// Reads blocks of one of the store's files into the cache, as
    /// [`evenkeel_hfile::HFileReader::fetch_blocks`] does, if reads cache its data blocks. Ends
    /// when a compaction has replaced the file, and leaves none of its blocks then. `None` if the
    /// store has no such file.
    ///
    /// # Errors
    /// `IOException`.
    pub fn fetch_blocks(
        &self,
        id: FileId,
        told: &[ToldBlock],
        heat: u8,
        may_read: &mut dyn FnMut(usize) -> bool,
    ) -> Option<Result<u64>> {
        // Not the file itself: a file that is held is not archived.
        let (reader, is_reference) = {
            let state = self.state.load();
            let mut files = state.files.iter().filter(|_| self.config.cache.data_on_read);
            let file = files.find(|file| file.reader().file_id() == id)?;
            (Arc::clone(file.reader()), file.is_reference())
        };
        let fetched = reader.fetch_blocks(told, heat, &mut |bytes| may_read(bytes) && self.has_file(id));
        // A file leaves the store before its blocks are evicted. If it is still in the store here,
        // an eviction that comes finds all of these blocks. Otherwise it may have come before them.
        // The blocks of a reference are those of the other region's file.
        if !is_reference && !self.has_file(id) {
            reader.evict();
        }
        Some(fetched)
    }

    fn has_file(&self, id: FileId) -> bool {
        self.state.load().files.iter().any(|file| file.reader().file_id() == id)
    }

    /// Returns the names of the files whose blocks are all in the cache.
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
    if let Err(error) = priority::lower(priority::REDUCED_NICE) {
        tracing::warn!(%error, "files are prefetched at normal priority");
    }
    loop {
        let file = next();
        // Skipped if only the queue refers to the file.
        let Some(file) = file.upgrade() else { continue };
        let reader = Arc::clone(file.reader());
        let weak = Arc::downgrade(&file);
        drop(file);
        if let Err(error) = reader.prefetch_blocks(&|| weak.strong_count() > 0) {
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
            Some(due) if due > clock::monotonic() => drop(ADDED.wait_until(&mut queue, due)),
            Some(_) => {
                if let Some(waiting) = queue.files.pop_front() {
                    return waiting.file;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use bytes::Bytes;
    use evenkeel_block_cache::{
        Admission, Block, BlockCache, BlockKey, BlockParts, BlockType, ByCategory, FileId, LruBlockCache,
    };
    use evenkeel_common::CellType;
    use evenkeel_fs::{Fault, FaultyFileSystem, Latch, MemoryFileSystem, Op};

    use super::super::StoreConfig;
    use super::super::testing::{TestStore, env, family, region};
    use super::*;
    use crate::operations::{ReadType, Scan};

    const ROWS: usize = 300;
    /// Blocks of a few rows.
    const SMALL_DATA: (&str, &str) = ("BLOCKSIZE", "128");
    /// With them, the index has blocks of both levels below the root, and the bloom filter has a
    /// chunk for each hundred rows or so.
    const SMALL_BLOCKS: [(&str, &str); 2] =
        [("hfile.index.block.max.size", "128"), ("io.storefile.bloom.block.size", "128")];

    fn store(attributes: &[(&str, &str)], settings: &[(&str, &str)]) -> (TestStore, Arc<LruBlockCache>) {
        store_with(8 << 20, attributes, settings)
    }

    fn store_with(
        cache_bytes: usize,
        attributes: &[(&str, &str)],
        settings: &[(&str, &str)],
    ) -> (TestStore, Arc<LruBlockCache>) {
        let (mut env, clock) = env();
        let cache = Arc::new(LruBlockCache::new(cache_bytes));
        env.cache = Arc::clone(&cache) as _;
        let mut conf = Configuration::new();
        settings.iter().for_each(|(key, value)| conf.set(*key, *value));
        env.config = StoreConfig::from_configuration(&conf).expect("read");
        let attributes = [&[("BLOCKSIZE", "1024")], attributes].concat();
        let store = Store::open(&env, family(b"f", &attributes), &region()).expect("opens");
        (TestStore { env, clock, store, seq_id: 0 }, cache)
    }

    /// A file of rows, flushed.
    fn fill(test: &mut TestStore, value: &str) {
        for row in 0..ROWS {
            test.add(&self::row(row), "q", 1, CellType::Put, value);
        }
        test.flush(u64::MAX);
    }

    fn row(at: usize) -> String {
        format!("row{at:05}")
    }

    /// Gets rows, and checks the bloom filter of each file for them. Returns how many blocks were
    /// not cached.
    fn misses_of(test: &TestStore, cache: &LruBlockCache, rows: Range<usize>) -> ByCategory {
        let before = cache.stats().misses;
        for row in rows.map(row) {
            assert_eq!(test.scan(Scan::get(row.clone())).len(), 1);
            for file in &test.store.state.load().files {
                assert!(file.reader().might_contain_row(row.as_bytes()).expect("asked"));
            }
        }
        let after = cache.stats().misses;
        std::array::from_fn(|category| after[category] - before[category])
    }

    fn data_misses(cache: &LruBlockCache) -> u64 {
        cache.stats().misses[0]
    }

    #[test]
    fn flushes_cache_blocks_as_the_family_configures() {
        let (mut plain, cache) = store(&[], &[]);
        fill(&mut plain, "v");
        assert_eq!(cache.stats().blocks, 0);
        for (attributes, settings) in [
            (&[("CACHE_DATA_ON_WRITE", "true")][..], &[][..]),
            (&[], &[("hbase.rs.cacheblocksonwrite", "true")]),
        ] {
            let (mut test, cache) = store(attributes, settings);
            fill(&mut test, "v");
            assert!(cache.stats().blocks > 5);
            assert_eq!(test.scan(Scan::default()).len(), ROWS);
            assert_eq!(data_misses(&cache), 0);
        }
    }

    #[test]
    fn a_compaction_keeps_warm_rows_cached() {
        // Blocks at both ends of the warm rows have other rows, too.
        for (warm, after) in [(0..ROWS, 0..ROWS), (60..160, 75..145)] {
            let (mut test, cache) = store(&[SMALL_DATA], &SMALL_BLOCKS);
            fill(&mut test, "old");
            fill(&mut test, "new");
            misses_of(&test, &cache, warm.clone());
            test.compact(true, u64::MAX).expect("compacted");
            assert_eq!(misses_of(&test, &cache, after.clone()), [0; 4], "kept as they were written");
            assert!(test.scan(Scan::get(row(100)))[0].ends_with("new"));

            let file = Arc::clone(&test.store.state.load().files[0]);
            let kept = cache.cached_files(&[file.reader().file_id()])[0].on_disk_bytes as f64;
            let kept = kept / file.reader().cacheable_bytes() as f64;
            if warm.len() == ROWS {
                assert_eq!(kept, 1.0)
            } else {
                assert!(kept < 0.5, "{kept} is kept")
            }
            file.reader().evict();
            let [data, index, bloom, _] = misses_of(&test, &cache, after);
            assert!(file.reader().trailer().data_index_levels > 2, "with an intermediate level");
            assert!(data > 15 && index > 5 && bloom > 1, "{data}, {index}, {bloom}");
        }
    }

    /// Caches blocks of another file, as a scan does: twice the cache's capacity.
    fn scan_elsewhere(cache: &LruBlockCache, round: u64) {
        let (capacity, bytes) = (cache.stats().capacity_bytes, vec![7; 1000]);
        for n in 0..2 * capacity / 1000 {
            let block = Block::new(BlockParts {
                kind: BlockType::Data,
                offset: n,
                on_disk_bytes: 1000,
                prev_offset: -1,
                bytes: bytes.as_slice().into(),
                body: 0..1000,
                seek_points: Box::default(),
                seek_keys: Box::default(),
                compressed: false,
            });
            let key = BlockKey { file: FileId::from_bits(u128::from(round)), offset: n };
            cache.insert(key, block, Admission::New);
        }
    }

    #[test]
    fn warm_blocks_of_a_compaction_survive_in_a_full_cache() {
        let (mut test, cache) = store_with(256 << 10, &[], &[]);
        let value = "v".repeat(100);
        fill(&mut test, &value);
        fill(&mut test, &value);
        misses_of(&test, &cache, 0..ROWS);
        misses_of(&test, &cache, 0..ROWS);
        scan_elsewhere(&cache, 1);
        test.compact(true, u64::MAX).expect("compacted");
        scan_elsewhere(&cache, 2);
        let stats = cache.stats();
        assert!(stats.evictions > 500, "the cache was not full: {stats:?}");
        let [missed, ..] = misses_of(&test, &cache, 0..ROWS);
        test.store.state.load().files[0].reader().evict();
        let [all, ..] = misses_of(&test, &cache, 0..ROWS);
        assert!(all > 30 && missed <= all / 10, "{missed} of {all} blocks were not there");
    }

    #[test]
    fn a_compaction_of_cold_files_leaves_the_cache_alone() {
        let (mut test, cache) = store(&[], &[]);
        fill(&mut test, "old");
        fill(&mut test, "new");
        test.compact(true, u64::MAX).expect("compacted");
        assert_eq!(cache.stats().blocks, 0);
        let (mut test, cache) = store(&[], &[("hbase.rs.cachecompactedblocksonwrite", "true")]);
        fill(&mut test, "old");
        fill(&mut test, "new");
        test.compact(true, u64::MAX).expect("compacted");
        assert!(cache.stats().blocks > 5);
    }

    /// Returns which data, index and bloom blocks a read of all rows misses, after a flush with a
    /// setting or attribute of a family, or after a compaction of uncached files.
    fn missed(attributes: &[(&str, &str)], settings: &[(&str, &str)], compacts: bool) -> [bool; 3] {
        let attributes = [&[SMALL_DATA], attributes].concat();
        let (mut test, cache) = store(&attributes, &[&SMALL_BLOCKS, settings].concat());
        fill(&mut test, "old");
        if compacts {
            fill(&mut test, "new");
            for file in &test.store.state.load().files {
                file.reader().evict();
            }
            test.compact(true, u64::MAX).expect("compacted");
        }
        let misses = misses_of(&test, &cache, 0..ROWS);
        [0, 1, 2].map(|category| misses[category] > 0)
    }

    #[test]
    fn each_setting_of_cache_on_write_keeps_its_kind_of_block_at_a_flush() {
        assert_eq!(missed(&[], &[], false), [true; 3]);
        let kinds = [
            ("hbase.rs.cacheblocksonwrite", "CACHE_DATA_ON_WRITE", [false, true, true]),
            ("hfile.block.index.cacheonwrite", "CACHE_INDEX_ON_WRITE", [true, false, true]),
            ("hfile.block.bloom.cacheonwrite", "CACHE_BLOOMS_ON_WRITE", [true, true, false]),
        ];
        for (setting, attribute, expected) in kinds {
            assert_eq!(missed(&[], &[(setting, "true")], false), expected, "{setting}");
            assert_eq!(missed(&[(attribute, "true")], &[], false), expected, "{attribute}");
        }
        let compacted = [("hbase.rs.cachecompactedblocksonwrite", "true")];
        assert_eq!(missed(&[], &compacted, false), [true; 3], "says nothing of flushes");
    }

    #[test]
    fn each_setting_of_cache_on_write_has_its_effect_at_a_compaction() {
        const ALL: (&str, &str) = ("hbase.rs.cachecompactedblocksonwrite", "true");
        const THRESHOLD: &str = "hbase.rs.cachecompactedblocksonwrite.threshold";
        assert_eq!(missed(&[], &[], true), [true; 3]);
        assert_eq!(missed(&[], &[("hbase.rs.cacheblocksonwrite", "true")], true), [true; 3]);
        let index = [("hfile.block.index.cacheonwrite", "true")];
        assert_eq!(missed(&[], &index, true), [true, false, true]);
        let bloom = [("hfile.block.bloom.cacheonwrite", "true")];
        assert_eq!(missed(&[], &bloom, true), [true, true, false]);

        assert_eq!(missed(&[], &[ALL], true), [false; 3]);
        assert_eq!(missed(&[], &[ALL, (THRESHOLD, "10000000")], true), [false; 3]);
        assert_eq!(missed(&[], &[ALL, (THRESHOLD, "10000")], true), [true; 3], "more than that is compacted");
    }

    #[test]
    fn reads_that_keep_no_blocks_leave_no_data_in_the_cache() {
        let (mut test, cache) = store(&[SMALL_DATA], &SMALL_BLOCKS);
        fill(&mut test, "v");
        let reads = |cache_blocks| {
            let scan = || Scan { cache_blocks, ..Scan::default() };
            let rows = |scan: Scan| test.scan(scan).len();
            // Twice: the second pass finds what was cached.
            for _ in 0..2 {
                assert_eq!(rows(scan()), ROWS);
                assert_eq!(rows(Scan { read_type: ReadType::Stream, ..scan() }), ROWS);
                assert_eq!(rows(Scan { reversed: true, ..scan() }), ROWS);
                let (start_row, stop_row) = (Bytes::from(row(50)), Bytes::from(row(70)));
                assert_eq!(rows(Scan { start_row, stop_row, ..scan() }), 20);
                assert_eq!(rows(Scan { cache_blocks, ..Scan::get(row(7)) }), 1);
            }
        };
        reads(false);
        let stats = cache.stats();
        assert_eq!(stats.hits[0], 0, "data blocks were kept");
        assert!(stats.misses[0] > 100 && stats.hits[1] > 0, "index blocks are kept: {stats:?}");
        reads(true);
        assert!(cache.stats().hits[0] > 100);
    }

    #[test]
    fn a_family_without_block_cache_keeps_no_data() {
        let (mut test, cache) = store(&[("BLOCKCACHE", "false")], &[]);
        fill(&mut test, "v");
        test.scan(Scan::default());
        test.scan(Scan::default());
        assert_eq!((cache.stats().blocks, cache.stats().hits[0]), (0, 0));
    }

    #[test]
    fn a_compaction_caches_index_and_bloom_blocks_without_data() {
        let (mut test, cache) = store(&[SMALL_DATA, ("BLOCKCACHE", "false")], &SMALL_BLOCKS);
        fill(&mut test, "old");
        fill(&mut test, "new");
        misses_of(&test, &cache, 0..ROWS);
        test.compact(true, u64::MAX).expect("compacted");
        let [data, index, bloom, _] = misses_of(&test, &cache, 0..ROWS);
        assert!(data >= ROWS as u64, "{data}");
        assert_eq!((index, bloom), (0, 0));
    }

    #[test]
    fn a_close_evicts_blocks_only_when_configured() {
        for (attributes, left) in [(&[][..], true), (&[("EVICT_BLOCKS_ON_CLOSE", "true")], false)] {
            let (mut test, cache) = store(attributes, &[]);
            fill(&mut test, "v");
            test.scan(Scan::default());
            test.store.close(false).expect("closed");
            assert_eq!(cache.stats().blocks > 0, left);
        }
    }

    /// Reads a store's file twice, and evicts it. Returns its id and its hot blocks.
    fn hot_blocks(test: &TestStore, cache: &LruBlockCache) -> (FileId, Vec<ToldBlock>) {
        (0..2).for_each(|_| drop(test.scan(Scan::default())));
        let id = test.store.file_ids()[0];
        let hot = cache.hot_blocks(&[id], 10_000).into_iter();
        let told = hot.map(|b| ToldBlock { offset: b.key.offset, on_disk_bytes: b.on_disk_bytes }).collect();
        test.store.state.load().files[0].reader().evict();
        (id, told)
    }

    #[test]
    fn a_fetch_leaves_no_blocks_of_a_file_that_a_compaction_archives_meanwhile() {
        let (mut test, cache) = store(&[SMALL_DATA], &[]);
        let faulty = FaultyFileSystem::new(MemoryFileSystem::new());
        test.env.fs = Arc::new(faulty.clone());
        test.store = Store::open(&test.env, family(b"f", &[SMALL_DATA]), &region()).expect("opens");
        fill(&mut test, "v");
        let (id, told) = hot_blocks(&test, &cache);
        assert_eq!(cache.cached_files(&[id])[0].blocks, 0);
        let (latch, name) = (Latch::new(), test.store.files()[0].name.clone());
        // The scans of before may still read ahead.
        faulty.inject(Fault::on(Op::Read, &name).of_thread("fetch").waits_for(&latch));
        let fetched = std::thread::scope(|scope| {
            let fetch = std::thread::Builder::new().name("fetch".to_owned());
            let fetch = fetch.spawn_scoped(scope, || test.store.fetch_blocks(id, &told, 4, &mut |_| true));
            let fetch = fetch.expect("it starts");
            latch.wait_for_arrival();
            test.compact(true, u64::MAX).expect("compacted");
            assert_eq!(test.store.archive_replaced(), Ok(0), "a fetch does not hold the file");
            latch.open();
            fetch.join().expect("no panic").expect("a file").expect("read")
        });
        assert!(fetched > 0 && fetched < told.len() as u64, "{fetched} of {}: it ends early", told.len());
        assert_eq!(cache.cached_files(&[id])[0].blocks, 0);
        assert!(test.store.fetch_blocks(id, &told, 4, &mut |_| true).is_none());

        let (id, told) = hot_blocks(&test, &cache);
        let fetched = test.store.fetch_blocks(id, &told, 4, &mut |_| true).expect("a file").expect("read");
        assert_eq!((fetched, cache.cached_files(&[id])[0].blocks), (told.len() as u64, fetched));
    }

    #[test]
    fn files_are_prefetched_when_they_are_opened() {
        let settings = [("hbase.hfile.prefetch.delay", "0")];
        let (mut test, cache) = store(&[("PREFETCH_BLOCKS_ON_OPEN", "true")], &settings);
        fill(&mut test, "v");
        let began = Instant::now();
        while test.store.fully_cached_files().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", cache.stats());
            std::thread::sleep(Duration::from_millis(2));
        }
        let misses = data_misses(&cache);
        assert_eq!(test.scan(Scan::default()).len(), ROWS);
        assert_eq!(data_misses(&cache), misses);
        assert_eq!(test.store.fully_cached_files(), [test.store.files()[0].name.clone()]);
    }
}
