//! [`MemoryPlan`]: the memory that each part of a server may use, so that all parts together fit
//! into `evenkeel.memory.size`.
//!
//! - Blocks and rows in memory: `hfile.block.cache.size` or `hfile.block.cache.memory.size`, and
//!   `hbase.bucketcache.size` if its engine is memory.
//! - The index of these blocks: 1/32 of their bytes, which is 80 bytes for a block of 2.5 KB.
//! - Unflushed cells: `hbase.regionserver.global.memstore.size`.
//! - Slack of chunks: [`chunk_slack_bytes`], for partly filled and spare chunks.
//! - Flushes and compactions: [`BACKGROUND_BYTES`] for each thread. This is an estimate for blocks
//!   of the default size.
//! - Buffers of the WALs: 2/16 of the rest. Each of the two WALs has two buffers, or three if WALs
//!   are compressed, of at most [`LOG_BUFFER_BYTES_MAX`].
//! - Requests in flight: `hbase.ipc.server.max.callqueue.size`; by default 4/16 of the rest, at
//!   most [`REQUEST_BYTES_MAX`].
//! - Replies that clients have not read: 4/16 of the rest.
//! - Reply buffers that are kept for reuse: 1/16 of the rest, at most [`BUFFER_POOL_BYTES_MAX`].
//! - Open scanners: `evenkeel.regionserver.scanners.max` times [`SCANNER_BYTES`]; by default 3/16
//!   of the rest.
//! - Open scanners of system tables: 1/64 of the rest.
//! - Watches, events and sessions of the ZooKeeper endpoint: 1/64 of the rest, at most
//!   [`ZOOKEEPER_BYTES_MAX`].
//! - Reserve: what is left, at least 6/64 of the rest. It is for blocks being read, entries that
//!   threads encode, connections, and in a cluster edits of logs that are split.
//!
//! Blocks outside of the caches belong to replies, to scanners, to background work, or to the
//! reserve. Their limit follows from these parts ([`MemoryPlan::heap_blocks`]).
//!
//! Nonces have no separate part: they count as unflushed cells, and may take 1/[`NONCE_PART`] of
//! that part.
//!
//! *The rest* is the memory without the first five parts, and without requests and scanners if
//! these are set.
//!
//! # Which shares shrink
//! A share that is set is used unchanged. If the set shares do not fit together with
//! [`REST_BYTES_MIN`] for the rest, the server does not start. HBase's shares of 0.4 and 0.4 always
//! fit. From 128 MiB on, all shares that HBase accepts fit, up to 0.8 together. Default shares
//! shrink if they would leave less than [`REST_BYTES_WANTED`], as on a small server or beside a
//! large off-heap cache. No share shrinks below an eighth of its default. If shares of that size do
//! not fit, the server does not start.
//!
//! # Parts that may be exceeded temporarily
//! - Unflushed cells: a write is admitted while the limit is not reached. So they may exceed their
//!   part by the bytes of the calls in flight, which have a separate part.
//! - Buffers of the WALs: an entry that is longer than a buffer takes its own bytes until it is
//!   written.
//! - Replies: values in replies pin blocks that are in no cache, of up to twice the bytes of the
//!   values.
//! - Replies that the threads of connections build concurrently are counted when they are complete.
//!   The last eighth of the part is reserved for these. The row of a Get is charged in steps as it
//!   grows; a row that exceeds the budget is dropped at that point.
//! - Replies to clients without a codec of cell blocks: three copies of a row are in memory while
//!   it is encoded.
//!
//! # Memory outside of the plan
//! The plan does not cover the code, the stacks of threads, descriptors of tables and regions,
//! handles of files with their trailers, and free memory that the allocator does not return. Pages
//! of files in the kernel's page cache (store files, caches in files) do not belong to the process.

use evenkeel_block_cache::CacheConfig;
use evenkeel_common::length;
use evenkeel_common::{Configuration, HBaseError, Result};
use evenkeel_region::memstore::chunk_slack_bytes;

use crate::io_error;
use evenkeel_region::region::{QUEUED_BYTES_MAX, ReplicaReplication, SENDER_BYTES_MAX};
use evenkeel_regionserver::RegionServerConfig;
use evenkeel_regionserver::background::BackgroundConfig;
use evenkeel_regionserver::config::SCANNERS_MAX;
use evenkeel_regionserver::requests::scanners::SCANNER_BYTES;

/// Memory of a thread that flushes or compacts: a block of each file that it reads, the block that
/// it writes, plain and compressed, and parts of the index and of Bloom filters.
pub const BACKGROUND_BYTES: u64 = 1 << 20;
/// The largest WAL buffer; a larger one does not make the WAL faster.
pub const LOG_BUFFER_BYTES_MAX: u64 = 64 << 20;
/// The largest buffer of hbase:meta's WAL, which has small entries.
const META_LOG_BUFFER_BYTES_MAX: u64 = 4 << 20;
/// HBase's default of `hbase.ipc.server.max.callqueue.size`.
const REQUEST_BYTES_MAX: u64 = 1 << 30;
/// The largest part of the ZooKeeper endpoint. A client sends it only a few requests in its
/// lifetime.
const ZOOKEEPER_BYTES_MAX: u64 = 32 << 20;
/// Nonces may take this fraction (1/`NONCE_PART`) of the part for unflushed cells.
pub const NONCE_PART: u64 = 8;
/// See [`MemoryPlan::buffer_pool`].
const BUFFER_POOL_BYTES_MAX: u64 = 64 << 20;
/// The minimum of the rest; with less the server does not start.
const REST_BYTES_MIN: u64 = 4 << 20;
/// Bytes that default shares leave for the rest, or 5/16 of a small memory. This suffices to write
/// and read a cell of 10 MiB, the largest by default.
const REST_BYTES_WANTED: u64 = 48 << 20;
/// A default share does not shrink below this fraction of its default.
const DEFAULT_PART_MIN: f64 = 1.0 / 8.0;

const MEMORY: &str = "evenkeel.memory.size";
const L1_SHARE: &str = "hfile.block.cache.size";
const L1_BYTES: &str = "hfile.block.cache.memory.size";
const L2_BYTES: &str = "hbase.bucketcache.size";
const MEMSTORE_SHARE: &str = "hbase.regionserver.global.memstore.size";
const REQUESTS: &str = "hbase.ipc.server.max.callqueue.size";

/// The bytes of each part; see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// `evenkeel.memory.size`, or half of the machine's memory.
    pub memory: u64,
    /// Blocks and rows in memory.
    pub caches: u64,
    /// The index of these blocks.
    pub cache_index: u64,
    /// Unflushed cells.
    pub memstore: u64,
    /// Bytes of chunks beyond those of cells.
    pub chunk_slack: u64,
    /// Flushes and compactions, and edits for secondary replicas.
    pub background: u64,
    /// One buffer of the WAL.
    pub log_buffer: u64,
    /// One buffer of hbase:meta's WAL.
    pub meta_log_buffer: u64,
    /// All buffers of both WALs.
    pub logs: u64,
    /// Requests in flight.
    pub requests: u64,
    /// Replies that clients have not read.
    pub replies: u64,
    /// Reply buffers that are kept for reuse.
    pub buffer_pool: u64,
    /// Open scanners of user tables.
    pub scanners: u64,
    /// Open scanners of system tables.
    pub system_scanners: u64,
    /// Watches, events and sessions of the ZooKeeper endpoint.
    pub zookeeper: u64,
    /// What is left.
    pub reserve: u64,
}

/// Bytes that are set and so do not shrink; `None` for defaults.
struct Fixed {
    l1_key: &'static str,
    l1: Option<u64>,
    l2: u64,
    memstore: Option<u64>,
    requests: Option<u64>,
    scanners: Option<u64>,
    background: u64,
}

impl MemoryPlan {
    /// Creates the plan for a server of `memory` bytes. Reduces defaults of `cache` and `server` so
    /// that they fit.
    ///
    /// # Errors
    /// One line that names the settings and their bytes, if they do not fit.
    pub fn new(
        conf: &Configuration,
        memory: u64,
        cache: &mut CacheConfig,
        server: &mut RegionServerConfig,
    ) -> Result<Self> {
        let fixed = Fixed::of(conf, cache, server)?;
        let (set, least_rest) = (fixed.bytes(), fixed.background + REST_BYTES_MIN);
        let l1_bytes = cache.l1.as_ref().map_or(0, |l1| l1.capacity_bytes);
        let default_l1 = if fixed.l1.is_none() { with_index(l1_bytes) } else { 0 };
        let default_memstore =
            if fixed.memstore.is_none() { server.global_memstore_bytes / 8 * 9 } else { 0 };
        let defaults = default_l1 + default_memstore;
        let wanted = REST_BYTES_WANTED.min(memory / 16 * 5) + fixed.background;
        let free = memory.saturating_sub(set + wanted);
        let part = (free as f64 / defaults.max(1) as f64).clamp(DEFAULT_PART_MIN, 1.0);
        let least = set + least_rest + length::whole(defaults as f64 * part);
        if least > memory {
            return Err(fixed.refusal(memory, least - set));
        }
        if let Some(l1) = cache.l1.as_mut().filter(|_| fixed.l1.is_none()) {
            l1.capacity_bytes = length::whole(l1.capacity_bytes as f64 * part);
        }
        if fixed.memstore.is_none() {
            let of = |bytes: u64| length::whole(bytes as f64 * part);
            server.global_memstore_low_bytes = of(server.global_memstore_low_bytes);
            server.global_memstore_bytes = of(server.global_memstore_bytes);
        }
        let is_compressed =
            conf.get_bool_or("hbase.regionserver.wal.enablecompression", false).map_err(io_error)?;
        let before = Self {
            memory,
            caches: cache.memory_bytes(),
            memstore: server.global_memstore_bytes,
            background: fixed.background,
            ..Self::default()
        };
        Ok(before.with_rest(&fixed, if is_compressed { 3 } else { 2 }))
    }

    fn with_rest(mut self, fixed: &Fixed, buffers: u64) -> Self {
        self.cache_index = with_index(self.caches) - self.caches;
        self.chunk_slack = chunk_slack_bytes(self.memstore);
        let set = fixed.requests.unwrap_or(0) + fixed.scanners.unwrap_or(0);
        let rest = self.memory.saturating_sub(self.sum() + set);
        let sixteenths = |n: u64| rest / 16 * n;
        let of_a_log = sixteenths(2) / buffers;
        self.meta_log_buffer = (of_a_log / 4).min(META_LOG_BUFFER_BYTES_MAX);
        self.log_buffer = (of_a_log - self.meta_log_buffer).min(LOG_BUFFER_BYTES_MAX);
        self.logs = buffers * (self.log_buffer + self.meta_log_buffer);
        self.requests = fixed.requests.unwrap_or(sixteenths(4).min(REQUEST_BYTES_MAX));
        self.replies = sixteenths(4);
        self.buffer_pool = sixteenths(1).min(BUFFER_POOL_BYTES_MAX);
        self.scanners = fixed.scanners.unwrap_or(sixteenths(3));
        self.system_scanners = rest / 64;
        self.zookeeper = (rest / 64).min(ZOOKEEPER_BYTES_MAX);
        self.reserve = self.memory.saturating_sub(self.sum());
        self
    }

    /// Returns the sum of all parts, which is `memory`.
    pub fn sum(&self) -> u64 {
        let before = [self.caches, self.cache_index, self.memstore, self.chunk_slack, self.background];
        let rest = [self.logs, self.requests, self.replies, self.buffer_pool, self.scanners, self.reserve];
        let small = [self.system_scanners, self.zookeeper];
        before.iter().chain(&rest).chain(&small).sum()
    }

    /// Returns the limit of blocks outside of the caches ([`evenkeel_block_cache::heap_blocks`]).
    /// The other half of the reserve is for entries that threads encode, for connections, and for
    /// edits of logs that are split ([`MemoryPlan::split_buffers`]).
    pub fn heap_blocks(&self) -> u64 {
        self.replies + self.scanners + self.system_scanners + self.background + self.reserve / 2
    }

    /// Returns the limit of edits in memory while a server of a cluster splits logs of dead
    /// servers, all threads together, in bytes. `wanted` is the setting. The server serves regions
    /// meanwhile, so the edits cannot have the part of unflushed cells, as at the start of a
    /// standalone server.
    pub fn split_buffers(&self, wanted: u64) -> u64 {
        wanted.min(self.reserve / 4)
    }

    /// Formats the plan as one line for the log.
    pub fn line(&self) -> String {
        let parts = [
            ("blocks", self.caches),
            ("their index", self.cache_index),
            ("MemStores", self.memstore),
            ("slack of chunks", self.chunk_slack),
            ("flushes and compactions", self.background),
            ("logs", self.logs),
            ("requests", self.requests),
            ("replies", self.replies),
            ("buffers of replies", self.buffer_pool),
            ("scanners", self.scanners),
            ("system scanners", self.system_scanners),
            ("ZooKeeper", self.zookeeper),
            ("reserve", self.reserve),
        ];
        let parts = parts.map(|(name, bytes)| format!("{name} {}", mib(bytes)));
        format!("memory {}: {}", mib(self.memory), parts.join(", "))
    }
}

impl Fixed {
    fn of(conf: &Configuration, cache: &CacheConfig, server: &RegionServerConfig) -> Result<Self> {
        let l1 = cache.l1.as_ref().map_or(0, |l1| l1.capacity_bytes);
        let is_set = |key: &str| conf.is_set(key);
        let background = BackgroundConfig::from(conf).map_err(io_error)?;
        let threads = background.flushers + background.small_compactors + background.large_compactors;
        let replication = ReplicaReplication::from_configuration(conf).map_err(io_error)?;
        let replicated_bytes = if replication.is_enabled() { QUEUED_BYTES_MAX + SENDER_BYTES_MAX } else { 0 };
        let requests = match is_set(REQUESTS) {
            true => {
                Some(conf.get_size_or(REQUESTS, REQUEST_BYTES_MAX as i64).map_err(io_error)?.max(1) as u64)
            }
            false => None,
        };
        Ok(Self {
            l1_key: if is_set(L1_BYTES) { L1_BYTES } else { L1_SHARE },
            l1: (cache.l1.is_none() || is_set(L1_SHARE) || is_set(L1_BYTES)).then_some(l1),
            l2: cache.memory_bytes() - l1,
            memstore: is_set(MEMSTORE_SHARE).then_some(server.global_memstore_bytes),
            requests,
            scanners: is_set(SCANNERS_MAX)
                .then_some((server.scanners_max as u64).saturating_mul(SCANNER_BYTES)),
            background: threads as u64 * BACKGROUND_BYTES + replicated_bytes,
        })
    }

    /// Returns the sum of everything that is set, with indexes and slack.
    fn bytes(&self) -> u64 {
        let memstore = self.memstore.unwrap_or(0);
        with_index(self.l1.unwrap_or(0).saturating_add(self.l2))
            .saturating_add(memstore + chunk_slack_bytes(memstore))
            .saturating_add(self.requests.unwrap_or(0))
            .saturating_add(self.scanners.unwrap_or(0))
    }

    fn refusal(&self, memory: u64, others: u64) -> HBaseError {
        let memstore = self.memstore.map(|bytes| bytes + chunk_slack_bytes(bytes));
        let parts = [
            (self.l1_key, self.l1.map(with_index)),
            (L2_BYTES, Some(with_index(self.l2))),
            (MEMSTORE_SHARE, memstore),
            (REQUESTS, self.requests),
            (SCANNERS_MAX, self.scanners),
        ];
        let set = parts.into_iter().filter_map(|(key, bytes)| Some((key, bytes.filter(|bytes| *bytes > 0)?)));
        let set: Vec<_> = set.map(|(key, bytes)| format!("{key} takes {}", mib(bytes))).collect();
        HBaseError::io(format!(
            "{MEMORY} is {}, which is too little: {}, and the rest needs {} at least; make these smaller or {MEMORY} larger",
            mib(memory),
            set.join(", "),
            mib(others),
        ))
    }
}

/// Returns the bytes of blocks together with their index.
fn with_index(blocks: u64) -> u64 {
    blocks.saturating_add(blocks / 32)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    const MIB: u64 = 1 << 20;

    fn settings(memory: &str, pairs: &[(&str, &str)]) -> Result<Settings> {
        let mut conf = Configuration::with_system_properties(Default::default());
        conf.set(MEMORY, memory);
        pairs.iter().for_each(|(key, value)| conf.set(*key, *value));
        Settings::from(&conf)
    }

    fn plan(memory: &str, pairs: &[(&str, &str)]) -> MemoryPlan {
        settings(memory, pairs).unwrap_or_else(|e| panic!("{memory} {pairs:?}: {e}")).memory
    }

    fn off_heap(mib: &str) -> [(&'static str, &str); 2] {
        [("hbase.bucketcache.ioengine", "offheap"), (L2_BYTES, mib)]
    }

    #[test]
    fn memory_parts_sum_to_the_memory_size() {
        let compressed = [("hbase.regionserver.wal.enablecompression", "true")];
        let old = [("hbase.regionserver.global.memstore.upperLimit", "0.3"), (L1_BYTES, "16m")];
        let off_heap = off_heap("24");
        let set: [&[_]; 6] = [
            &[],
            &compressed,
            &old,
            &off_heap,
            &[(REQUESTS, "16m")],
            &[(SCANNERS_MAX, "100"), (L1_SHARE, "0")],
        ];
        for memory in ["128m", "64m", "120m", "256m", "1g", "2g", "10g", "512g"] {
            for set in set.into_iter().filter(|set| memory != "64m" || set.len() < 2) {
                let plan = plan(memory, set);
                assert_eq!(plan.sum(), plan.memory, "{memory} {set:?}: {plan:?}");
                let least =
                    [plan.log_buffer, plan.meta_log_buffer, plan.replies, plan.scanners, plan.requests];
                assert!(least.iter().all(|part| *part >= 64 << 10), "{memory} {set:?}: {plan:?}");
                assert!(plan.reserve >= (plan.memory - plan.caches - plan.memstore) / 32, "{plan:?}");
            }
        }
    }

    #[test]
    fn large_memory_has_hbases_shares() {
        let large = plan("16g", &[]);
        let share = 16 * 1024 * MIB / 5 * 2;
        assert!(large.caches.abs_diff(share) < 8 && large.memstore.abs_diff(share) < 8, "{large:?}");
        assert_eq!(
            (large.log_buffer, large.meta_log_buffer),
            (LOG_BUFFER_BYTES_MAX, META_LOG_BUFFER_BYTES_MAX)
        );
        assert_eq!(large.logs, 2 * (large.log_buffer + large.meta_log_buffer));
        assert_eq!(large.buffer_pool, BUFFER_POOL_BYTES_MAX);
        let set = [(L1_SHARE, "0.4"), (MEMSTORE_SHARE, "0.4")];
        for memory in ["64m", "128m", "16g"] {
            let plan = plan(memory, &set);
            assert_eq!((plan.caches, plan.memstore), (plan.memory * 2 / 5, plan.memory * 2 / 5), "as set");
        }
        let compressed = plan("16g", &[("hbase.regionserver.wal.enablecompression", "true")]);
        assert_eq!(compressed.logs, 3 * (compressed.log_buffer + compressed.meta_log_buffer));
    }

    #[test]
    fn unset_parts_shrink_first() {
        let small = plan("256m", &[]);
        assert!(small.memstore > 80 * MIB && small.memstore < 102 * MIB, "{small:?}");
        assert!(
            small.requests > 11 * MIB && small.replies > 11 * MIB,
            "the largest cell comes and goes: {small:?}"
        );
        let settings = settings("2g", &off_heap("1536")).expect("fits");
        let plan = settings.memory;
        let l1 = plan.caches - 1536 * MIB;
        assert!(plan.memstore > 80 * MIB && l1 > 80 * MIB, "{plan:?}");
        assert_eq!(plan.memstore, settings.regionserver.global_memstore_bytes);
        assert!(settings.regionserver.global_memstore_low_bytes < plan.memstore);
        assert_eq!(plan.caches, settings.block_cache.memory_bytes());
        assert_eq!(settings.regionserver.scanners_max as u64, plan.scanners / SCANNER_BYTES);
        let in_file = self::plan("256m", &[("hbase.bucketcache.ioengine", "file:/x"), (L2_BYTES, "100000")]);
        assert_eq!(in_file, small, "files are not memory");
    }

    #[test]
    fn settings_that_do_not_fit_are_refused_by_name() {
        let both = [(L1_SHARE, "0.8"), (MEMSTORE_SHARE, "0.4")];
        let refused = [
            ("1g", both.to_vec(), vec![L1_SHARE, "844.8 MiB", MEMSTORE_SHARE, "435.2 MiB"]),
            ("2g", off_heap("2048").to_vec(), vec![L2_BYTES, "2112.0 MiB"]),
            ("1g", vec![(L1_BYTES, "1g")], vec![L1_BYTES, "1056.0 MiB"]),
            ("1g", vec![(REQUESTS, "1g")], vec![REQUESTS, "1024.0 MiB"]),
            ("1g", vec![(SCANNERS_MAX, "20000")], vec![SCANNERS_MAX, "1250.0 MiB"]),
        ];
        for (memory, set, words) in refused {
            let error = settings(memory, &set).expect_err("too much").message().to_owned();
            let has_all = words.iter().all(|word| error.contains(word));
            assert!(has_all && error.contains(MEMORY) && !error.contains('\n'), "{error}");
            let keys = [L1_SHARE, L1_BYTES, L2_BYTES, MEMSTORE_SHARE, REQUESTS, SCANNERS_MAX];
            let named = keys.iter().filter(|key| error.contains(&format!("{key} takes"))).count();
            assert_eq!(named, words.len() / 2, "{error}");
        }
    }

    #[test]
    fn the_line_names_every_part() {
        let line = plan("1g", &[]).line();
        assert!(line.starts_with("memory 1024.0 MiB: blocks 409.6 MiB, "), "{line}");
        assert_eq!(line.matches(" MiB").count(), 14, "{line}");
    }
}
