//! [`BucketCache`], the engine of every deployment. It keeps HBase's name, but has no buckets of
//! fixed size.
//!
//! # Design
//! A hash of the key selects one of several shards. Each shard has a byte budget and a lock for
//! inserts, evictions and removals.
//!
//! | module | contents |
//! |---|---|
//! | `shard` | one part of the cache: all of the below, under one lock |
//! | `slot` | 64 bytes per block: key, extent, counters, links |
//! | `hash_index` | linear hashing over the slots; 4 bytes per block; lock-free reads |
//! | `pin` | hazard pointers: a reader writes only memory of its own core |
//! | `policy`, `frequency_sketch` | W-TinyLFU or HBase's LRU, with a share for `IN_MEMORY` |
//! | `allocator` | best fit in units of 8 bytes; moves neighbours to join holes |
//! | `idle_pages` | returns unused memory to the kernel |
//! | `frame` | a block with its key, seek points and checksum |
//! | `rows` | results of Gets, under the same budget and policy |
//! | `storage`, `mapping`, `persistence` | anonymous memory, a mapped file, or files |
//! | `retired` | memory of dropped caches that readers still pin |
//! | `sync` | atomics and statics of `slot` and `pin`, replaced in their model tests |
//!
//! *No internal fragmentation.* HBase's buckets round a block up to a size class, and keep memory
//! in classes that are not in demand. Here a frame may start at any unit. Best fit leaves holes. If
//! no hole is large enough, the cache copies the few blocks beside one of the largest holes into
//! other holes, or slides the blocks between several holes together. This costs less than one byte
//! copied per byte inserted. One byte in 128 stays free so that blocks can move. The test `churn`
//! measures both.
//!
//! *Alternatives.* Log-structured segments waste the ends of segments or need a whole free segment,
//! and tie the policy to the write order. A ring is a FIFO. Slabs are HBase's design. Moving a few
//! blocks, independently of the policy, keeps space and policy apart.
//!
//! *Hits.* A hit walks a hash chain, takes a pin and reads one frame header. It increments the
//! slot's counter up to three, and after that writes no shared memory.
//!
//! *Restart.* The slots of a file engine are in a mapped file and change in place under their
//! version. Frames carry their key and a checksum, which is verified before the frame is first
//! served. A shutdown writes nothing. A start reads the slots (64 bytes per block) to find the free
//! space.
//!
//! # Bounds
//! Frames never exceed the capacity. The index comes on top, at less than 80 bytes per block. The
//! cache rejects blocks larger than `block_bytes_max` or than half a shard. A thread has 31 pins in
//! its stripe; further pins are counted in the slots.
//!
//! # Locks
//! One lock per shard, held for one insert, eviction or removal. It is never held together with a
//! lock of `single_flight`.

mod allocator;
#[allow(clippy::duplicate_mod, reason = "the core is compiled with other primitives, and with a fault")]
#[allow(unsafe_code, reason = "owns memory")]
#[cfg(test)]
mod core_tests;
#[allow(unsafe_code, reason = "owns memory")]
pub(crate) mod frame;
mod frequency_sketch;
#[allow(unsafe_code, reason = "owns memory")]
mod hash_index;
mod idle_pages;
#[allow(unsafe_code, reason = "owns memory")]
mod mapping;
#[allow(unsafe_code, reason = "owns memory")]
mod persistence;
#[allow(unsafe_code, reason = "owns memory")]
pub(crate) mod pin;
mod policy;
mod retired;
pub mod rows;
mod shard;
#[allow(unsafe_code, reason = "owns memory")]
mod slot;
#[allow(unsafe_code, reason = "owns memory")]
mod storage;
mod sync;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use evenkeel_common::length;
use evenkeel_common::{TryError, TryResult, Wait};

use self::mapping::Mapping;
use self::persistence::{Geometry, SUPERBLOCK_BYTES};
pub use self::policy::{Admission, Policy, Shares};
use self::retired::RetiredShard;
pub use self::shard::CachedFile;
use self::shard::{Shard, ShardParts, ShardUsage};
use self::slot::{SHARD_BYTES_MAX, Slots, UNIT_BYTES};
use self::storage::Storage;
use crate::hot_blocks::{HotBlock, HottestBlocks};
use crate::single_flight::SingleFlight;
use crate::stats::Counters;
use crate::{
    Block, BlockCache, BlockCategory, BlockKey, CacheHint, CacheStats, FileId, LoadBlock, PrefetchedBlock,
};

/// The cache rejects larger blocks (`hbase.lru.max.block.size`).
pub const BLOCK_BYTES_MAX: usize = 16 << 20;

/// The cache has one shard per this many bytes, up to [`SHARDS_MAX`].
const SHARD_BYTES: u64 = 256 << 20;
const SHARDS_MAX: u64 = 16;
/// The average block size for which slots are reserved. In memory of the process this reserves only
/// address space.
const BLOCK_BYTES_MIN: u64 = 256;
/// As above, for slots that take space in a file.
const BLOCK_BYTES_LEAST_IN_FILE: u64 = 2048;
const SLOTS_MIN: u64 = 64;

/// The storage of a cache's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Memory of the process (`offheap`, `heap`).
    Memory,
    /// A mapped file (`mmap:`, `pmem:`).
    Mapped(PathBuf),
    /// Files read and written by position (`file:`, `files:`).
    Files(Vec<PathBuf>),
}

/// The settings of a cache.
#[derive(Clone, Debug)]
pub struct BucketCacheConfig {
    /// Capacity for frames, in bytes.
    pub capacity_bytes: u64,
    /// The storage of the frames.
    pub engine: Engine,
    /// The index file of a file engine. `None` puts it beside the first data file.
    pub index_path: Option<PathBuf>,
    /// The order of eviction.
    pub policy: Policy,
    /// The policy's shares of the bytes.
    pub shares: Shares,
    /// The cache rejects larger blocks.
    pub block_bytes_max: u64,
    /// Overwrite freed memory, so that a test detects a use after free.
    pub poison: bool,
}

impl BucketCacheConfig {
    /// A cache in memory with default settings.
    pub fn in_memory(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            engine: Engine::Memory,
            index_path: None,
            policy: Policy::default(),
            shares: Shares::default(),
            block_bytes_max: BLOCK_BYTES_MAX as u64,
            poison: false,
        }
    }
}

/// The engine. See the module.
pub struct BucketCache {
    shards: Box<[Shard]>,
    frames: Option<Arc<Mapping>>,
    counters: Arc<Counters>,
    single_flight: SingleFlight,
    capacity_bytes: AtomicU64,
    /// Frames are in memory of the process.
    is_in_memory: bool,
    /// The index file, locked while the cache is open.
    index: Option<std::fs::File>,
}

impl BucketCache {
    /// Opens a cache. A cache in files starts with the blocks that the files hold.
    ///
    /// # Errors
    /// `OutOfMemory` without address space; `WouldBlock` if another process uses the files; I/O
    /// errors, such as a full disk.
    pub fn open(config: &BucketCacheConfig) -> io::Result<Self> {
        let geometry = geometry_of(config);
        let bytes = u64::from(geometry.shards) * geometry.shard_bytes;
        let counters = Arc::<Counters>::default();
        let memory = Self::open_memory(config, geometry, bytes)?;
        let slots = |shard: u32| {
            let first = memory.slots_start + shard as usize * Slots::bytes(geometry.slots);
            Slots::new(Arc::clone(&memory.slots), first, geometry.slots)
        };
        let shards = (0..geometry.shards).map(|shard| {
            Shard::new(ShardParts {
                slots: slots(shard),
                storage: memory.storage(shard, geometry),
                size: geometry.shard_bytes,
                policy: config.policy,
                shares: config.shares,
                block_bytes_max: config.block_bytes_max,
                poison: config.poison,
                counters: Arc::clone(&counters),
            })
        });
        Ok(Self {
            shards: shards.collect::<io::Result<_>>()?,
            frames: memory.frames.clone(),
            counters,
            single_flight: SingleFlight::default(),
            capacity_bytes: AtomicU64::new(config.capacity_bytes),
            is_in_memory: config.engine == Engine::Memory,
            index: memory.index,
        })
    }

    fn open_memory(config: &BucketCacheConfig, geometry: Geometry, bytes: u64) -> io::Result<BackingMemory> {
        let shared = |index: persistence::IndexFile, frames, files| BackingMemory {
            slots: index.mapping,
            slots_start: SUPERBLOCK_BYTES,
            frames,
            files,
            index: Some(index.file),
        };
        let index = |data: &PathBuf| {
            let path = config.index_path.clone().unwrap_or_else(|| persistence::index_path(data));
            persistence::open_index(&path, geometry)
        };
        match &config.engine {
            Engine::Memory => Ok(BackingMemory {
                slots: Arc::new(Mapping::anonymous(geometry.shards as usize * Slots::bytes(geometry.slots))?),
                slots_start: 0,
                frames: Some(Arc::new(Mapping::huge(length::index(bytes))?)),
                files: Vec::new(),
                index: None,
            }),
            Engine::Mapped(path) => {
                let index = index(path)?;
                let file = persistence::open_data(path, bytes)?;
                let frames = Arc::new(Mapping::of_file(&file, length::index(bytes))?);
                Ok(shared(index, Some(frames), Vec::new()))
            }
            Engine::Files(paths) => {
                let first = paths.first().ok_or(io::ErrorKind::InvalidInput)?;
                let index = index(first)?;
                let per_file = bytes / paths.len() as u64;
                let open = |path: &PathBuf| persistence::open_data(path, per_file).map(Arc::new);
                let files = paths.iter().map(open).collect::<io::Result<_>>()?;
                Ok(shared(index, None, files))
            }
        }
    }

    /// Changes the usable bytes, up to the capacity at opening.
    pub fn resize(&self, capacity_bytes: u64) {
        self.capacity_bytes.store(capacity_bytes, Relaxed);
        let each = capacity_bytes / self.shards.len() as u64;
        self.shards.iter().for_each(|shard| shard.resize(each / UNIT_BYTES * UNIT_BYTES));
    }

    /// The number of pins held by readers. Reads every slot: for tests and diagnosis.
    pub fn pins(&self) -> usize {
        self.shards.iter().map(|shard| pin::count(shard.slots())).sum()
    }

    /// The number of removed blocks that readers still pin.
    pub fn pending_free(&self) -> u64 {
        self.shards.iter().map(|shard| shard.usage().pending_free).sum()
    }

    /// Reads in progress.
    #[cfg(test)]
    pub(crate) fn single_flight(&self) -> &SingleFlight {
        &self.single_flight
    }

    #[inline]
    fn lookup(&self, key: &BlockKey, wait: Wait) -> TryResult<Option<Block>> {
        let hash = hash_of(key);
        self.shard(hash).get(key, hash, wait)
    }

    #[inline]
    #[allow(clippy::indexing_slicing, reason = "16 bits of the hash times the length, divided by 2^16")]
    fn shard(&self, hash: u64) -> &Shard {
        &self.shards[((hash >> 48) as usize * self.shards.len()) >> 16]
    }
}

/// The opened memory and files of a cache.
struct BackingMemory {
    slots: Arc<Mapping>,
    slots_start: usize,
    frames: Option<Arc<Mapping>>,
    files: Vec<Arc<std::fs::File>>,
    index: Option<std::fs::File>,
}

impl BackingMemory {
    #[allow(clippy::indexing_slicing, reason = "the remainder of a division by the length")]
    fn storage(&self, shard: u32, geometry: Geometry) -> Storage {
        match (&self.frames, length::must_u32(self.files.len())) {
            (Some(mapping), _) => Storage::Mapped {
                mapping: Arc::clone(mapping),
                start: u64::from(shard) * geometry.shard_bytes,
                durable: self.index.is_some(),
            },
            (None, files) => Storage::File {
                file: Arc::clone(&self.files[(shard % files) as usize]),
                start: u64::from(shard / files) * geometry.shard_bytes,
            },
        }
    }
}

fn geometry_of(config: &BucketCacheConfig) -> Geometry {
    let (files, least) = match &config.engine {
        Engine::Memory => (1, BLOCK_BYTES_MIN),
        Engine::Mapped(_) => (1, BLOCK_BYTES_LEAST_IN_FILE),
        Engine::Files(paths) => (paths.len().max(1) as u64, BLOCK_BYTES_LEAST_IN_FILE),
    };
    let wanted = (config.capacity_bytes / SHARD_BYTES)
        .max(config.capacity_bytes.div_ceil(SHARD_BYTES_MAX))
        .clamp(1, SHARDS_MAX.max(config.capacity_bytes / SHARD_BYTES_MAX));
    let shards = wanted.next_multiple_of(files);
    let shard_bytes = config.capacity_bytes / shards / UNIT_BYTES * UNIT_BYTES;
    let slots = (shard_bytes / least + SLOTS_MIN).min(u64::from(u32::MAX / 2));
    let must_u32 = |n: u64| length::must_u32(length::index(n));
    Geometry { shards: must_u32(shards), slots: must_u32(slots), shard_bytes, files: must_u32(files) }
}

/// Folds a file's id to 64 bits. The frame holds the whole id.
#[inline]
pub(crate) fn fold_file_id(file: FileId) -> u64 {
    let bits = file.bits();
    length::low_u64(bits >> 64) ^ length::low_u64(bits).rotate_left(32)
}

#[inline]
fn hash_of(key: &BlockKey) -> u64 {
    hash(fold_file_id(key.file), key.offset)
}

/// Mixes a key. File ids are already random; offsets are not.
#[inline]
fn hash(file: u64, offset: u64) -> u64 {
    let mut h = file ^ offset.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^ (h >> 33)
}

impl BlockCache for BucketCache {
    fn get(&self, key: &BlockKey) -> Option<Block> {
        // A lookup that may wait has no other error.
        let found = self.lookup(key, Wait::Allowed).ok().flatten();
        match &found {
            Some(block) => self.counters.hit(block.kind().category()),
            None => self.counters.miss(BlockCategory::Data),
        }
        found
    }

    fn prefetch(&self, key: &BlockKey, _category: BlockCategory) -> Option<PrefetchedBlock> {
        let hash = hash_of(key);
        self.shard(hash).prefetch(key, hash)
    }

    fn count_hit(&self, category: BlockCategory) {
        self.counters.hit(category);
    }

    fn contains(&self, key: &BlockKey) -> bool {
        let hash = hash_of(key);
        self.shard(hash).contains(key, hash)
    }

    fn has_space(&self, _category: BlockCategory, bytes: usize) -> bool {
        self.shards.iter().map(Shard::free_bytes).sum::<u64>() >= bytes as u64
    }

    fn insert(&self, key: BlockKey, block: Block, admission: Admission) {
        let hash = hash_of(&key);
        self.counters.insertion(self.shard(hash).insert(&key, hash, &block, admission));
    }

    fn rows(&self) -> Option<&BucketCache> {
        self.frames.is_some().then_some(self)
    }

    fn evict_file(&self, file: FileId) -> usize {
        let removed = self.shards.iter().map(|shard| shard.remove_file(fold_file_id(file))).sum();
        self.counters.invalidation(removed);
        removed
    }

    fn hot_blocks(&self, files: &[FileId], blocks_max: usize) -> Vec<HotBlock> {
        let files: HashMap<_, _> = files.iter().map(|file| (fold_file_id(*file), *file)).collect();
        let mut hottest = HottestBlocks::new(blocks_max);
        self.shards.iter().for_each(|shard| shard.each_hot_block(&files, &mut |block| hottest.push(block)));
        hottest.into_vec()
    }

    fn admits(&self, key: &BlockKey, _category: BlockCategory, bytes: usize, heat: u8) -> bool {
        self.shard(hash_of(key)).admits(bytes as u64, heat)
    }

    fn release_idle(&self, should_continue: &dyn Fn() -> bool) -> u64 {
        self.shards.iter().map(|shard| shard.release_idle(should_continue)).sum()
    }

    fn stats(&self) -> CacheStats {
        let mut sum = ShardUsage::default();
        for shard in &self.shards {
            let used = shard.usage();
            sum.blocks += used.blocks;
            sum.bytes += used.bytes;
            sum.index_bytes += used.index_bytes;
            sum.rows += used.rows;
            sum.row_bytes += used.row_bytes;
        }
        CacheStats {
            blocks: sum.blocks,
            bytes: sum.bytes,
            index_bytes: sum.index_bytes,
            memory_bytes: if self.is_in_memory { sum.bytes + sum.index_bytes } else { 0 },
            rows: sum.rows,
            row_bytes: sum.row_bytes,
            capacity_bytes: self.capacity_bytes.load(Relaxed),
            ..self.counters.snapshot()
        }
    }

    fn is_persistent(&self) -> bool {
        self.index.is_some()
    }

    fn cached_files(&self, files: &[FileId]) -> Vec<CachedFile> {
        let mut all: HashMap<u64, CachedFile> = HashMap::new();
        for shard in &self.shards {
            shard.each_file(|file, cached| {
                let sum = all.entry(file).or_default();
                sum.blocks += cached.blocks;
                sum.on_disk_bytes += cached.on_disk_bytes;
            });
        }
        files.iter().map(|file| all.get(&fold_file_id(*file)).copied().unwrap_or_default()).collect()
    }

    /// One caller loads. Others that miss the same block wait for it, even if the block is not
    /// inserted. If the load fails, the next waiter loads.
    fn get_or_load(&self, key: &BlockKey, hint: CacheHint, load: LoadBlock<'_>) -> TryResult<Block> {
        if let Some(block) = self.lookup(key, hint.wait)? {
            self.counters.hit(block.kind().category());
            return Ok(block);
        }
        // With a file engine an insert writes to the file, which may wait for a disk.
        let writes = hint.insert && self.frames.is_none();
        if writes && !hint.wait.is_allowed() {
            return Err(TryError::WouldWait);
        }
        let outcome = self.single_flight.read(key, hint.wait, || {
            // Another thread may have inserted the block since the lookup.
            if let Some(block) = self.lookup(key, hint.wait)? {
                return Ok(block);
            }
            let block = load()?;
            if !hint.insert {
                return Ok(block);
            }
            self.insert(*key, block.clone(), Admission::of(hint.in_memory));
            // The reader uses the copy in the cache, so that the block does not take memory twice.
            Ok(self.lookup(key, Wait::Never).ok().flatten().unwrap_or(block))
        });
        if !matches!(outcome, Err(TryError::WouldWait)) {
            self.counters.miss(hint.category);
        }
        outcome
    }
}

impl Drop for BucketCache {
    fn drop(&mut self) {
        let retired = std::mem::take(&mut self.shards).into_iter().map(|shard| RetiredShard {
            used: shard.used_slots(),
            slots: shard.into_slots(),
            _frames: self.frames.clone(),
        });
        retired::retire(retired);
    }
}

impl fmt::Debug for BucketCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketCache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
