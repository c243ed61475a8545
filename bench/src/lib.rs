//! Shared parts of the benchmarks: a region in a separate directory; a bare [`echo`]; [`report`],
//! HBase and Evenkeel side by side; [`hit_ratio`], eviction policies on the same traces; [`soak`],
//! hours of load under faults.

#![forbid(unsafe_code)]

pub mod echo;
pub mod hfile_report;
pub mod hit_ratio;
pub mod report;
pub mod soak;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_block_cache::{BlockCache, LruBlockCache};
use evenkeel_common::clock::{Clock, SystemClock};
use evenkeel_common::{ColumnFamilyDescriptor, RegionInfo, Result, ServerName, TableDescriptor, TableName};
use evenkeel_fs::{FileSystem, LocalHost};
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_region::region::{NoEvents, Region, RegionConfig, RegionEnv};
use evenkeel_region::store::{StoreConfig, StoreEnv};
use evenkeel_wal::{NoListener, Wal, WalConfig, WalOptions};
use rustix::time::{ClockId, clock_gettime};

/// Bytes of the block cache: larger than any benchmark's data.
const CACHE_BYTES: usize = 256 << 20;

/// A region of one family, `f`, that covers every row, with a separate WAL below `root`.
///
/// # Errors
/// I/O errors.
pub fn region_in(fs: Arc<dyn FileSystem>, root: PathBuf) -> Result<Arc<Region>> {
    let family = ColumnFamilyDescriptor::new(b"f")?;
    let table = TableDescriptor::new(TableName::new("default", "bench")?).with_family(family);
    region_of(fs, root, table, Arc::new(LruBlockCache::new(CACHE_BYTES)))
}

/// As [`region_in`], for the given table and cache.
///
/// # Errors
/// I/O errors.
pub fn region_of(
    fs: Arc<dyn FileSystem>,
    root: PathBuf,
    table: TableDescriptor,
    cache: Arc<dyn BlockCache>,
) -> Result<Arc<Region>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let server = ServerName::new("bench", 1, 1);
    let wal_dir = root.join("WALs").join(server.to_string());
    fs.mkdirs(&wal_dir)?;
    let wal = Wal::open(WalOptions {
        fs: Arc::clone(&fs),
        wal_dir,
        old_dir: root.join("oldWALs"),
        prefix: "bench".into(),
        suffix: String::new(),
        config: WalConfig::default(),
        clock: Arc::clone(&clock),
        listener: Arc::new(NoListener),
    })?;
    let stores = StoreEnv {
        host: LocalHost::default(),
        compaction_throughput: Arc::default(),
        metrics: Arc::default(),
        open_files: Arc::default(),
        mob: Arc::default(),
        archived_files: Arc::default(),
        fs,
        root,
        cache,
        clock: Arc::clone(&clock),
        chunks: ChunkPool::new(64),
        config: StoreConfig::default(),
    };
    let env = RegionEnv {
        wal_root: None,
        stores,
        wal,
        config: RegionConfig::default(),
        server,
        nonces: Arc::new(NonceManager::new(clock, 60_000)),
        events: Arc::new(NoEvents),
        operation_times: Arc::default(),
    };
    let info = RegionInfo::new(table.name().clone(), Default::default(), Default::default(), 1);
    Region::open(Arc::new(env), info, Arc::new(table))
}

/// CPU time of this thread so far, user and system.
pub fn thread_cpu() -> Duration {
    cpu_of(ClockId::ThreadCPUTime)
}

/// CPU time of this process so far, user and system, ended threads included.
pub fn process_cpu() -> Duration {
    cpu_of(ClockId::ProcessCPUTime)
}

fn cpu_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
