//! Files through each block cache deployment: the same cells as without a cache, and blocks in the
//! right cache.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_block_cache::{
    Admission, Block, BlockCache, BlockKey, BlockParts, BlockType, BucketCache, BucketCacheConfig,
    CombinedBlockCache, Engine, FileId, HotBlock, LruBlockCache, NoCache,
};
use evenkeel_common::{CellComparator, KeyBuf, KeyValue};
use evenkeel_hfile::{
    BloomType, CacheOnWrite, CacheOnWritePolicy, Compression, DataBlockEncoding, HFileContext, HFileReader,
    HFileScanner, HFileWriter, InputResidency, OpenOptions, PREFETCH_ROWS_MAX, ScanOptions, StoreFileMeta,
    ToldBlock,
};
use support::{PATH, Random, Shape, Written, as_stored, random_cells, write};

const SHAPE: Shape = Shape {
    cells: 1500,
    tags: true,
    mvcc: true,
    deletes: true,
    value_bytes_max: 60,
    negative_timestamps: true,
};

/// Every deployment, with capacity for about half of the data.
fn deploys(dir: &std::path::Path) -> Vec<(&'static str, Arc<dyn BlockCache>)> {
    let l1 = || LruBlockCache::new(1 << 20);
    let l2 = |engine| BucketCacheConfig { engine, poison: true, ..BucketCacheConfig::in_memory(64 << 10) };
    let combined = |engine| {
        let l2 = BucketCache::open(&l2(engine)).unwrap();
        Arc::new(CombinedBlockCache::new(l1(), l2)) as Arc<dyn BlockCache>
    };
    vec![
        ("LruBlockCache", Arc::new(LruBlockCache::open(&l2(Engine::Memory)).unwrap())),
        ("offheap", combined(Engine::Memory)),
        ("file", combined(Engine::Files(vec![dir.join("file")]))),
        ("files", combined(Engine::Files(vec![dir.join("a"), dir.join("b")]))),
        ("mmap", combined(Engine::Mapped(dir.join("mmap")))),
        ("META only", Arc::new(CombinedBlockCache::new(l1(), NoCache))),
        ("none", Arc::new(NoCache)),
    ]
}

fn contexts() -> Vec<HFileContext> {
    let encodings = [
        DataBlockEncoding::None,
        DataBlockEncoding::Prefix,
        DataBlockEncoding::Diff,
        DataBlockEncoding::FastDiff,
        DataBlockEncoding::RowIndexV1,
    ];
    let context = |(i, encoding): (usize, DataBlockEncoding)| HFileContext {
        encoding,
        compression: if i % 2 == 0 { Compression::None } else { Compression::Snappy },
        block_bytes: 1024,
        index_block_bytes_max: 512,
        includes_tags: true,
        includes_mvcc: true,
        compress_tags: i % 3 == 0,
        ..HFileContext::default()
    };
    encodings.into_iter().enumerate().map(context).collect()
}

fn open(written: &Written, cache: &Arc<dyn BlockCache>, compressed: bool) -> Arc<HFileReader> {
    let options = OpenOptions { cache_compressed: compressed, ..OpenOptions::default() };
    HFileReader::open_path(&written.fs, &written.path, Arc::clone(cache), &options).unwrap()
}

fn scan(reader: &Arc<HFileReader>, wanted: &[KeyValue]) {
    let mut scanner = reader.scanner(ScanOptions::default());
    let mut more = scanner.seek_to_first().unwrap();
    for cell in wanted {
        assert!(more);
        let found = scanner.cell().unwrap();
        assert_eq!((found.key(), found.value(), found.tags()), {
            let cell = cell.as_cell();
            (cell.key(), cell.value(), cell.tags())
        });
        more = scanner.next().unwrap();
    }
    assert!(!more);
}

fn seek(reader: &Arc<HFileReader>, wanted: &[KeyValue], random: &mut Random) {
    let mut scanner = reader.scanner(ScanOptions::default());
    for _ in 0..300 {
        let cell = wanted[random.below(wanted.len())].as_cell();
        assert!(scanner.seek(&cell).unwrap());
        let found = scanner.cell().unwrap();
        assert_eq!((found.key(), found.value()), (cell.key(), cell.value()));
    }
}

/// Evicts until nothing is cached: a read-ahead may still insert a block after the first eviction.
fn blocks_after_evictions(reader: &HFileReader, cache: &Arc<dyn BlockCache>) -> u64 {
    let mut blocks = u64::MAX;
    for _ in 0..200 {
        reader.evict();
        blocks = cache.stats().blocks;
        if blocks == 0 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    blocks
}

#[test]
fn every_deploy_gives_the_cells_of_every_encoding() {
    let mut random = Random::new(5);
    let cells = random_cells(&mut random, SHAPE);
    for context in contexts() {
        let written = write(&cells, &context);
        let wanted: Vec<_> = cells.iter().map(|cell| as_stored(cell, &context)).collect();
        for compressed in [false, true] {
            // A read-ahead may keep a cache's files open for a moment longer.
            let dir = tempfile::tempdir().unwrap();
            for (name, cache) in deploys(dir.path()) {
                let reader = open(&written, &cache, compressed);
                scan(&reader, &wanted);
                seek(&reader, &wanted, &mut random);
                scan(&reader, &wanted);
                let stats = cache.stats();
                match name {
                    "none" => assert_eq!(stats.blocks, 0),
                    "META only" => assert!(stats.hits[0] == 0 && stats.hits[1] > 0, "{stats:?}"),
                    _ => assert!(stats.hits[0] > 0 && stats.hits[1] > 0, "{name}: {stats:?}"),
                }
                assert_eq!(blocks_after_evictions(&reader, &cache), 0, "{name}");
            }
        }
    }
}

/// Checks that the first cell at or after the start of a row, and the cell after it, are the
/// file's.
fn check_row(scanner: &mut HFileScanner, wanted: &[KeyValue], row: &[u8], history: &str) {
    let key = KeyBuf::first_on_row(row);
    let before = |cell: &KeyValue| CellComparator::Default.compare(&cell.as_cell(), &key.as_cell()).is_lt();
    let mut left = wanted[wanted.partition_point(before)..].iter();
    let mut more = scanner.seek(&key.as_cell()).unwrap();
    for _ in 0..2 {
        let found = scanner.cell().map(|cell| (cell.key().to_vec(), cell.value().to_vec()));
        let cell = left.next().map(|cell| (cell.as_cell().key().to_vec(), cell.as_cell().value().to_vec()));
        assert_eq!((more, found), (cell.is_some(), cell), "{history}, row {row:?}");
        more = scanner.next().unwrap();
    }
}

#[test]
fn prefetched_rows_are_found_like_others() {
    let mut random = Random::new(12);
    let cells = random_cells(&mut random, Shape { cells: 500, ..SHAPE });
    for mut context in contexts() {
        context.bloom = random.pick(&[BloomType::None, BloomType::Row, BloomType::RowPrefix(2)]);
        let written = write(&cells, &context);
        let wanted: Vec<_> = cells.iter().map(|cell| as_stored(cell, &context)).collect();
        for compressed in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            for (name, cache) in deploys(dir.path()) {
                let history = format!("{name}, {:?}, {:?}", context.encoding, context.bloom);
                let reader = open(&written, &cache, compressed);
                let mut scanner = reader.scanner(ScanOptions::default());
                for _ in 0..40 {
                    let mut rows: Vec<Vec<u8>> = (0..random.below(2 * PREFETCH_ROWS_MAX))
                        .map(|_| match random.one_in(5) {
                            true => random.bytes(6, b"ab\0\xff"),
                            false => random.pick(&wanted).as_cell().row().to_vec(),
                        })
                        .collect();
                    scanner.prefetch_rows(rows.iter().map(Vec::as_slice), random.one_in(2));
                    // In that order, in another order, or interleaved with other rows.
                    match random.below(4) {
                        0 => rows.sort(),
                        1 => rows.reverse(),
                        2 => rows.push(random.pick(&wanted).as_cell().row().to_vec()),
                        _ => {}
                    }
                    for row in &rows {
                        match random.below(12) {
                            0 => drop(reader.evict()),
                            1 => drop(scanner.seek(&random.pick(&wanted).as_cell()).unwrap()),
                            2 => drop(scanner.seek_to_first().unwrap()),
                            3 => scanner.unset(),
                            _ => {}
                        }
                        check_row(&mut scanner, &wanted, row, &history);
                    }
                }
            }
        }
    }
}

#[test]
fn prefetched_blocks_are_pinned_until_sought_and_counted_once() {
    let mut random = Random::new(13);
    let cells = random_cells(&mut random, SHAPE);
    for context in contexts() {
        let context = HFileContext { bloom: BloomType::Row, ..context };
        let written = write(&cells, &context);
        let wanted: Vec<_> = cells.iter().map(|cell| as_stored(cell, &context)).collect();
        let config = BucketCacheConfig { poison: true, ..BucketCacheConfig::in_memory(1 << 20) };
        let bucket = Arc::new(BucketCache::open(&config).unwrap());
        let cache = Arc::clone(&bucket) as Arc<dyn BlockCache>;
        let reader = open(&written, &cache, false);
        // Unlike a scan, this leaves no read-ahead running.
        reader.prefetch_blocks(&|| true).unwrap();
        let mut scanner = reader.scanner(ScanOptions::default());
        let rows: Vec<_> = (0..20).map(|_| random.pick(&wanted).as_cell().row().to_vec()).collect();
        let keys: Vec<_> = rows.iter().map(|row| KeyBuf::first_on_row(row)).collect();
        let before = bucket.stats();
        scanner.prefetch_rows(rows.iter().map(Vec::as_slice), false);
        assert_eq!(bucket.stats().hits, before.hits, "what is looked for is not read yet");
        let held = bucket.pins();
        assert!(held >= PREFETCH_ROWS_MAX, "{held}");
        reader.evict();
        let mut entered = 0;
        for (key, row) in keys.iter().zip(&rows).take(PREFETCH_ROWS_MAX) {
            let before = CellComparator::Default;
            let at = wanted.partition_point(|cell| before.compare(&cell.as_cell(), &key.as_cell()).is_lt());
            assert!(scanner.seek(&key.as_cell()).unwrap());
            assert_eq!(scanner.cell().unwrap().key(), wanted[at].as_cell().key(), "{row:?}");
            entered += u64::from(scanner.enter_block().expect("sound") > 0);
        }
        let after = bucket.stats();
        let (hits, misses) = (after.hits[0] - before.hits[0], after.misses[0] - before.misses[0]);
        // A row that begins in the block after the indexed one is read from that block, which was
        // not prefetched.
        assert!(misses < hits, "{hits} found, {misses} read");
        let most = 2 * PREFETCH_ROWS_MAX as u64;
        assert!(
            (entered..=most).contains(&(hits + misses)),
            "{entered} entered, {hits} found, {misses} read"
        );
        reader.evict();
        scanner.prefetch_rows(rows.iter().map(Vec::as_slice), true);
        assert!(bucket.pins() < PREFETCH_ROWS_MAX / 2, "the filter is not in memory, and nothing is read");
        reader.prefetch_blocks(&|| true).unwrap();
        scanner.prefetch_rows(rows.iter().map(Vec::as_slice), true);
        assert!(bucket.pins() >= held, "they are in the filter");
        let absent: Vec<_> = rows.iter().map(|row| [row.as_slice(), b"!"].concat()).collect();
        scanner.prefetch_rows(absent.iter().map(Vec::as_slice), true);
        assert!(bucket.pins() < PREFETCH_ROWS_MAX / 2, "others are not, but for an error");
        drop(scanner);
        assert_eq!(bucket.pins(), 0);
    }
}

#[test]
fn compressed_blocks_take_less_of_the_cache() {
    let cells = random_cells(&mut Random::new(6), Shape { value_bytes_max: 400, ..SHAPE });
    let context =
        HFileContext { compression: Compression::Snappy, block_bytes: 8192, ..HFileContext::default() };
    let written = write(&cells, &context);
    let wanted: Vec<_> = cells.iter().map(|cell| as_stored(cell, &context)).collect();
    let [plain, compressed] = [false, true].map(|compressed| {
        let cache: Arc<dyn BlockCache> = Arc::new(LruBlockCache::new(8 << 20));
        let reader = open(&written, &cache, compressed);
        scan(&reader, &wanted);
        scan(&reader, &wanted);
        assert!(cache.stats().hits[0] > 0);
        cache.stats().bytes
    });
    assert!(compressed < plain * 3 / 4, "{compressed} of {plain}");
}

fn write_cached(cells: &[KeyValue], context: &HFileContext, kept: CacheOnWrite) -> Written {
    let fs = evenkeel_fs::MemoryFileSystem::new();
    let mut writer = HFileWriter::create(&fs, PATH.as_ref(), context.clone()).unwrap();
    writer.cache_on_write(kept);
    cells.iter().for_each(|cell| writer.append(&cell.as_cell()).unwrap());
    let file = writer.finish(StoreFileMeta::default()).unwrap();
    Written { fs, path: PATH.into(), file }
}

/// Asserts that the data blocks in a cache equal those that a reader of the file caches, compressed
/// or not, with the same seek points.
fn assert_same_blocks(reader: &Arc<HFileReader>, cache: &Arc<dyn BlockCache>, compressed_data: bool) {
    let (mut data, mut offset) = (0, 0);
    while offset < reader.cacheable_bytes() {
        let block = reader.block_at(offset).unwrap();
        if block.kind().is_data() {
            let found = cache.get(&BlockKey { file: reader.file_id(), offset }).expect("cached");
            let is_compressed = compressed_data && reader.compression() != Compression::None;
            assert_eq!(found.is_compressed(), is_compressed);
            assert_eq!((found.seek_points(), found.seek_keys()), (block.seek_points(), block.seek_keys()));
            assert!(!found.seek_points().is_empty() && (is_compressed || found.data() == block.data()));
            data += 1;
        }
        offset += u64::from(block.on_disk_bytes());
    }
    assert!(data > 20, "{data}");
}

fn file_id() -> FileId {
    FileId::of_name(PATH.rsplit('/').next().unwrap())
}

#[test]
fn blocks_kept_as_they_are_written_need_not_be_read() {
    let cells = random_cells(&mut Random::new(7), SHAPE);
    for (context, compressed_data) in
        contexts().into_iter().flat_map(|context| [(context.clone(), false), (context, true)])
    {
        let cache: Arc<dyn BlockCache> = Arc::new(LruBlockCache::new(8 << 20));
        let all = CacheOnWrite {
            cache: Arc::clone(&cache),
            file: file_id(),
            in_memory: false,
            residency: Arc::default(),
            data: CacheOnWritePolicy::Always,
            compressed_data,
            index: CacheOnWritePolicy::Always,
            bloom: CacheOnWritePolicy::Always,
        };
        let written = write_cached(&cells, &context, all);
        let reader = open(&written, &cache, compressed_data);
        let on_disk = cache.cached_files(&[reader.file_id()])[0].on_disk_bytes;
        assert_eq!(on_disk, reader.cacheable_bytes(), "every block before what is kept open");
        let wanted: Vec<_> = cells.iter().map(|cell| as_stored(cell, &context)).collect();
        scan(&reader, &wanted);
        let row = wanted[3].as_cell().row().to_vec();
        assert!(reader.might_contain_row(&row).unwrap());
        assert_eq!(cache.stats().miss_count(), 0, "{context:?}");
        assert_same_blocks(&reader, &cache, compressed_data);
    }
}

#[test]
fn only_replacements_of_warm_blocks_are_cached() {
    let cells = random_cells(&mut Random::new(8), SHAPE);
    let context = &contexts()[0];
    let cache: Arc<dyn BlockCache> = Arc::new(LruBlockCache::new(8 << 20));
    let input = write(&cells, context);
    let reader = HFileReader::open_path(
        &input.fs,
        &input.path,
        Arc::clone(&cache),
        &OpenOptions { cache_name: Some("input".into()), ..OpenOptions::default() },
    )
    .unwrap();
    // The first half is hot.
    let mut scanner = reader.scanner(ScanOptions::default());
    scanner.seek_to_first().unwrap();
    for _ in 0..cells.len() / 2 {
        scanner.next().unwrap();
    }
    let hot = cache.stats().insertions;
    let residency = Arc::<InputResidency>::default();
    let kept = CacheOnWrite {
        cache: Arc::clone(&cache),
        file: file_id(),
        in_memory: false,
        residency: Arc::clone(&residency),
        data: CacheOnWritePolicy::IfInputsCached,
        compressed_data: false,
        index: CacheOnWritePolicy::IfInputsCached,
        bloom: CacheOnWritePolicy::IfInputsCached,
    };
    let fs = evenkeel_fs::MemoryFileSystem::new();
    let mut writer = HFileWriter::create(&fs, PATH.as_ref(), context.clone()).unwrap();
    writer.cache_on_write(kept);
    let options =
        ScanOptions { cache_blocks: false, pread: false, is_compaction: true, ..ScanOptions::default() };
    let mut scanner = reader.scanner(options);
    scanner.track_residency(residency);
    let mut more = scanner.seek_to_first().unwrap();
    while more {
        writer.append(&scanner.cell().unwrap()).unwrap();
        more = scanner.next().unwrap();
    }
    let file = writer.finish(StoreFileMeta::default()).unwrap();
    let output = open(&Written { fs, path: PATH.into(), file }, &cache, false);
    let all = output.cacheable_bytes() as f64;
    let part = cache.cached_files(&[output.file_id()])[0].on_disk_bytes as f64 / all;
    assert!(hot > 10 && (0.35..0.6).contains(&part), "{part} of the output is kept");
}

#[test]
fn a_prefetch_reads_each_cacheable_block_once() {
    let cells = random_cells(&mut Random::new(9), SHAPE);
    let context = &contexts()[1];
    let written = write(&cells, context);
    let cache: Arc<dyn BlockCache> =
        Arc::new(CombinedBlockCache::new(LruBlockCache::new(1 << 20), LruBlockCache::new(8 << 20)));
    let reader = open(&written, &cache, false);
    let read = reader.prefetch_blocks(&|| true).unwrap();
    assert!(read > 50);
    assert_eq!(cache.cached_files(&[reader.file_id()])[0].on_disk_bytes, reader.cacheable_bytes());
    let misses = cache.stats().miss_count();
    assert_eq!(reader.prefetch_blocks(&|| true).unwrap(), 0);
    let wanted: Vec<_> = cells.iter().map(|cell| as_stored(cell, context)).collect();
    scan(&reader, &wanted);
    assert_eq!(cache.stats().miss_count(), misses);
    let small: Arc<dyn BlockCache> = Arc::new(LruBlockCache::new(20_000));
    let reader = open(&written, &small, false);
    reader.prefetch_blocks(&|| true).unwrap();
    let stats = small.stats();
    assert!(stats.blocks > 5 && stats.evictions == 0, "{stats:?}");
    assert_eq!(open(&written, &cache, false).prefetch_blocks(&|| false).unwrap(), 0);
}

/// Reads a file twice through a cache. Returns the hot blocks.
fn hot_blocks(written: &Written, wanted: &[KeyValue], compressed: bool) -> Vec<ToldBlock> {
    let cache: Arc<dyn BlockCache> = Arc::new(LruBlockCache::new(8 << 20));
    let reader = open(written, &cache, compressed);
    (0..2).for_each(|_| scan(&reader, wanted));
    let told = |block: HotBlock| ToldBlock { offset: block.key.offset, on_disk_bytes: block.on_disk_bytes };
    cache.hot_blocks(&[reader.file_id()], 10_000).into_iter().map(told).collect()
}

#[test]
fn hot_blocks_of_another_cache_are_fetched() {
    let cells = random_cells(&mut Random::new(14), SHAPE);
    for (context, compressed) in contexts().iter().flat_map(|context| [(context, false), (context, true)]) {
        let written = write(&cells, context);
        let wanted: Vec<_> = cells.iter().map(|cell| as_stored(cell, context)).collect();
        let told = hot_blocks(&written, &wanted, compressed);
        assert!(told.len() > 20, "{}", told.len());
        let cache: Arc<dyn BlockCache> = Arc::new(LruBlockCache::new(8 << 20));
        let reader = open(&written, &cache, compressed);
        let mut reads = Vec::new();
        let fetched = reader.fetch_blocks(&told, 4, &mut |bytes| {
            reads.push(bytes);
            true
        });
        assert_eq!(fetched.unwrap(), told.len() as u64);
        assert!(reads.len() < told.len() / 2, "{} reads of {} blocks", reads.len(), told.len());
        let before = cache.stats().misses;
        scan(&reader, &wanted);
        assert_eq!(cache.stats().misses, before, "every block was fetched");
        let again = reader.fetch_blocks(&told, 4, &mut |_| panic!("they are cached"));
        assert_eq!(again.unwrap(), 0);
    }
}

#[test]
fn a_fetch_ends_when_it_is_told_to() {
    let cells = random_cells(&mut Random::new(15), SHAPE);
    let written = write(&cells, &contexts()[0]);
    let wanted: Vec<_> = cells.iter().map(|cell| as_stored(cell, &contexts()[0])).collect();
    let told = hot_blocks(&written, &wanted, false);
    let cache: Arc<dyn BlockCache> = Arc::new(LruBlockCache::new(8 << 20));
    let reader = open(&written, &cache, false);
    assert_eq!(reader.fetch_blocks(&told, 4, &mut |_| false).unwrap(), 0);
    assert_eq!(cache.stats().blocks, 0);
}

/// Caches blocks of 1000 bytes of a file that is not read.
fn insert_blocks(cache: &LruBlockCache, file: FileId, blocks: u64, admission: Admission) {
    for offset in 0..blocks {
        let block = Block::new(BlockParts {
            kind: BlockType::Data,
            offset,
            on_disk_bytes: 1000,
            prev_offset: -1,
            bytes: vec![7; 1000].into(),
            body: 0..1000,
            seek_points: Box::default(),
            seek_keys: Box::default(),
            compressed: false,
        });
        cache.insert(BlockKey { file, offset }, block, admission);
    }
}

#[test]
fn fetched_blocks_of_a_family_in_memory_evict_none_of_its_area() {
    let cells = random_cells(&mut Random::new(17), SHAPE);
    let written = write(&cells, &contexts()[0]);
    let wanted: Vec<_> = cells.iter().map(|cell| as_stored(cell, &contexts()[0])).collect();
    let told = hot_blocks(&written, &wanted, false);
    let cache = Arc::new(LruBlockCache::new(1 << 20));
    let [in_memory, other] = ["in-memory", "other"].map(FileId::of_name);
    // More blocks than the area's share, and then other blocks that reduce it to the share.
    insert_blocks(&cache, in_memory, 400, Admission::InMemory);
    insert_blocks(&cache, other, 2000, Admission::Warm);
    let count = || cache.cached_files(&[in_memory, other]).iter().map(|file| file.blocks).collect::<Vec<_>>();
    let before = count();
    assert!(before[0] > 100 && before[0] < 400, "{before:?}");
    let options = OpenOptions { in_memory: true, ..OpenOptions::default() };
    let reader =
        HFileReader::open_path(&written.fs, &written.path, Arc::clone(&cache) as _, &options).unwrap();
    let fetched = reader.fetch_blocks(&told, 4, &mut |_| true).unwrap();
    assert!(fetched > 10, "{fetched} blocks replaced colder ones");
    let after = count();
    assert!(after[0] == before[0] && after[1] < before[1], "{before:?} became {after:?}");
}

#[test]
fn wrong_positions_are_skipped_and_harm_nothing() {
    let mut random = Random::new(16);
    let cells = random_cells(&mut random, SHAPE);
    for context in contexts() {
        let written = write(&cells, &context);
        let wanted: Vec<_> = cells.iter().map(|cell| as_stored(cell, &context)).collect();
        let right = hot_blocks(&written, &wanted, false);
        let cache: Arc<dyn BlockCache> = Arc::new(LruBlockCache::new(8 << 20));
        let reader = open(&written, &cache, false);
        let shifted = |by: u64| {
            let shift = move |told: &ToldBlock| ToldBlock { offset: told.offset.wrapping_add(by), ..*told };
            right.iter().map(shift).collect::<Vec<_>>()
        };
        let resized = |bytes: u32| {
            right.iter().map(|told| ToldBlock { on_disk_bytes: bytes, ..*told }).collect::<Vec<_>>()
        };
        let mut random_position =
            || ToldBlock { offset: random.below(40_000) as u64, on_disk_bytes: random.below(3000) as u32 };
        let wrong = [
            shifted(1),
            shifted(u64::MAX),
            shifted(u64::MAX / 2),
            resized(0),
            resized(33),
            resized(u32::MAX),
            resized(right[0].on_disk_bytes + 7),
            (0..500).map(|_| random_position()).collect(),
        ];
        for mut told in wrong {
            // A block may have the size that another one was given.
            told.retain(|told| !right.contains(told));
            assert_eq!(reader.fetch_blocks(&told, 4, &mut |_| true).unwrap(), 0);
        }
        assert_eq!((cache.stats().blocks, reader.checksum_failures()), (0, 0));
        scan(&reader, &wanted);
    }
}

#[test]
fn a_scan_reads_ahead_and_a_get_does_not() {
    let cells = random_cells(&mut Random::new(10), SHAPE);
    let context = HFileContext { index_block_bytes_max: 128 << 10, ..contexts()[0].clone() };
    let written = write(&cells, &context);
    let cache: Arc<dyn BlockCache> = Arc::new(LruBlockCache::new(8 << 20));
    let reader = open(&written, &cache, false);
    let mut scanner = reader.scanner(ScanOptions::default());
    scanner.seek_to_first().unwrap();
    assert_eq!(cache.stats().insertions, 1, "one block, and none ahead of the first");
    let first = scanner.next_indexed_key().map(|key| key.row().to_vec());
    let mut entered = 1;
    let mut last = first;
    // After four more blocks, read-ahead caches a block that was not requested.
    while entered < 4 {
        scanner.next().unwrap();
        let here = scanner.next_indexed_key().map(|key| key.row().to_vec());
        entered += u64::from(here != last);
        last = here;
    }
    let began = Instant::now();
    while cache.stats().insertions <= entered {
        assert!(began.elapsed() < Duration::from_secs(10), "nothing was read ahead");
        std::thread::sleep(Duration::from_millis(1));
    }
}
