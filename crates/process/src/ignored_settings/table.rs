//! The settings without an effect, by subject, and the known keys that do not concern a standalone
//! server.

use super::Ignored;

const ONE_LOG: &str =
    "all regions write one log and hbase:meta another, in HBase's format, regardless of the provider";
const BEATS: &str = "the limit is enforced every 64 KiB";
const LIMITS_OF_WRITERS: &str = "replies to writes are held instead, above half of a region's limit or from hbase.hstore.blockingStoreFiles";
const ONE_PROCESS: &str = "master, RegionServer and ZooKeeper endpoint are one process";
const ONE_ADDRESS: &str = "all ports listen on hbase.regionserver.ipc.address";
const IN_MEMORY_TREE: &str = "the ZooKeeper endpoint is one server, with its tree in memory";
const FILE_RIGHTS: &str =
    "as in HBase without Kerberos, directories have the permissions that the umask leaves";
const ONE_QUEUE: &str = "general calls, priority calls, scans and waiting writes each have one queue, in which connections take \
    turns; hbase.ipc.server.max.callqueue.length is its limit";
const THREADS: &str = "these calls have no separate threads; hbase.regionserver.handler.count and \
    hbase.regionserver.metahandler.count set the number of handlers";
const SLOW_IS_A_SECOND: &str = "operations of one second or longer count as slow";
const NO_RESERVOIR: &str = "requests and replies have a part of the memory instead of a reservoir; evenkeel.memory.size is the total";
const FIXED_PARTS: &str = "the parts of the memory are set at start and are not tuned";
const MINUTES: &str = "counters count from the start; evenkeel.blockcache.statistics.period sets the interval at which they are logged";
const ONE_BY_ONE: &str = "space is freed for one block at a time, when it is needed";
const OTHER_POLICY: &str = "for a block cache policy that is not supported";
const INDEX_ON_DISK: &str =
    "the index of a bucket cache in a file is always in that file, and blocks are verified individually";
const NO_TIERING: &str = "blocks are evicted by use, regardless of the age of their cells";
const PREFETCH: &str =
    "one thread prefetches files into the cache, in the order of opening, after hbase.hfile.prefetch.delay";
const KERNELS_PAGES: &str = "only the kernel manages the page cache";
const BY_POSITION: &str = "all reads of store files are positional";
const DISCHARGE: &str =
    "compacted files that readers still used are archived every two minutes, by one thread";

/// Every setting without an effect.
pub(super) const IGNORED: &[Ignored] = &[
    // MOB files.
    Ignored::new(
        &["hbase.mob.cache.evict.period"],
        &[],
        "every opening of a MOB file closes those above the limit, so the limit always holds",
    ),
    Ignored::new(
        &["hbase.mob.major.compaction.region.batch.size"],
        &[],
        "major compactions of families with MOB files queue, and the compaction threads limit how many run",
    ),
    // Secondary replicas of regions.
    Ignored::new(
        &["hbase.region.replica.replication.buffersize"],
        &[],
        "edits for secondary replicas have 8 MiB until they are replayed; those to other servers have 24 MiB",
    ),
    Ignored::new(
        &[
            "hbase.region.replica.replication.writer.threads",
            "hbase.region.replica.replication.threads.max",
            "hbase.region.replica.replication.threads.keepalivetime",
            "hbase.region.replica.replication.cache.disabledAndDroppedTables.expiryMs",
        ],
        &[],
        "one thread replays edits on the secondary replicas of this server; each one elsewhere has one call in flight",
    ),
    Ignored::new(
        &["hbase.region.replica.wait.for.primary.flush"],
        &[],
        "a secondary replica shows no edit without an earlier one, so its reads do not wait for a flush",
    ),
    Ignored::new(
        &[
            "hbase.region.replica.storefile.refresh",
            "hbase.region.replica.storefile.refresh.memstore.multiplier",
        ],
        &[],
        "a flush of the default replica frees the memory of a secondary replica",
    ),
    // Process, cluster, ZooKeeper.
    Ignored::new(&["hbase.cluster.distributed"], &["false"], ONE_PROCESS),
    Ignored::new(&["hbase.regionserver.rpc.startup.waittime"], &[], ONE_PROCESS),
    Ignored::new(
        &[
            "hbase.zookeeper.property.dataDir",
            "hbase.zookeeper.property.initLimit",
            "hbase.zookeeper.property.syncLimit",
        ],
        &[],
        IN_MEMORY_TREE,
    ),
    Ignored::new(
        &["hbase.mirror.table.state.to.zookeeper"],
        &["true"],
        "states of tables are always mirrored to the ZooKeeper endpoint",
    ),
    Ignored::new(&["hbase.master.ipc.address"], &["127.0.0.1", "localhost", "::1"], ONE_ADDRESS),
    Ignored::new(
        &["hbase.status.published"],
        &["false"],
        "clients request the cluster's state; it is not published by multicast",
    ),
    Ignored::new(
        &["hbase.regionserver.handler.abort.on.error.percent"],
        &["-1"],
        "a handler that fails answers its call and continues; the server does not stop",
    ),
    Ignored::new(
        &["hbase.master.normalizer.class"],
        &["SimpleRegionNormalizer"],
        "regions are normalized as by SimpleRegionNormalizer",
    ),
    Ignored::new(&["hbase.rootdir.perms", "hbase.wal.dir.perms"], &[], FILE_RIGHTS),
    // Requests and scans.
    Ignored::new(
        &["hbase.cells.scanned.per.heartbeat.check"],
        &[],
        "the time of a scan is checked every 1000 cells or 32 rows",
    ),
    Ignored::new(&["hbase.storescanner.use.pread"], &["true"], BY_POSITION),
    Ignored::new(&["hbase.storescanner.pread.max.bytes"], &[], BY_POSITION),
    Ignored::new(
        &["hbase.regionserver.nonces.enabled"],
        &["true"],
        "an operation with a nonce is always applied once",
    ),
    Ignored::new(&["hbase.busy.wait.duration"], &[], "a call waits for a region's lock without limit"),
    Ignored::new(&["hbase.meta.versions"], &["3"], "hbase:meta keeps 3 versions of its data about regions"),
    Ignored::new(
        &["hbase.meta.blocksize"],
        &["8192"],
        "hbase:meta has blocks of 8 KiB for its data about regions",
    ),
    Ignored::new(
        &["hbase.quota.cache.ttl.region.states.ms", "hbase.quota.cache.ttl.servers.size.ms"],
        &[],
        "the numbers of servers and regions are read whenever the quotas are",
    ),
    Ignored::new(
        &[
            "hbase.regionserver.quotas.fs.utilization.chore.delay",
            "hbase.regionserver.quotas.fs.utilization.chore.period",
            "hbase.regionserver.quotas.fs.utilization.chore.timeunit",
            "hbase.regionserver.quotas.fs.utilization.chore.max.iteration.millis",
        ],
        &[],
        "the sizes of regions are those of their open store files whenever they are reported",
    ),
    Ignored::new(
        &["hbase.regionserver.quotas.policy.refresher.report.percent"],
        &[],
        "HBase does not use it, either; hbase.master.quotas.observer.report.percent is used",
    ),
    // RPC server.
    Ignored::new(
        &[
            "hbase.regionserver.replication.handler.count",
            "hbase.regionserver.bulkload.handler.count",
            "hbase.master.handler.count",
            "hbase.master.meta.transition.handler.count",
        ],
        &[],
        THREADS,
    ),
    Ignored::new(
        &[
            "hbase.ipc.server.callqueue.handler.factor",
            "hbase.ipc.server.callqueue.read.ratio",
            "hbase.ipc.server.callqueue.scan.ratio",
            "hbase.ipc.server.metacallqueue.read.ratio",
            "hbase.ipc.server.metacallqueue.scan.ratio",
            "hbase.ipc.server.priority.max.callqueue.length",
            "hbase.ipc.server.replication.max.callqueue.length",
            "hbase.ipc.server.bulkload.max.callqueue.length",
            "hbase.ipc.server.queue.max.call.delay",
            "hbase.ipc.server.callqueue.codel.target.delay",
            "hbase.ipc.server.callqueue.codel.interval",
            "hbase.ipc.server.callqueue.codel.lifo.threshold",
            "hbase.ipc.server.callqueue.balancer.class",
        ],
        &[],
        ONE_QUEUE,
    ),
    Ignored::new(&["hbase.ipc.server.callqueue.type"], &["fifo"], ONE_QUEUE),
    Ignored::new(&["hbase.ipc.slow.metric.time"], &["-1"], SLOW_IS_A_SECOND),
    Ignored::new(&["hbase.server.allocator.pool.enabled"], &["false"], NO_RESERVOIR),
    Ignored::new(
        &[
            "hbase.server.allocator.buffer.size",
            "hbase.server.allocator.max.buffer.count",
            "hbase.server.allocator.minimal.allocate.size",
        ],
        &[],
        NO_RESERVOIR,
    ),
    Ignored::new(
        &["hbase.server.netty.writable.watermark.low"],
        &[],
        "reading from a connection resumes below hbase.server.netty.writable.watermark.high",
    ),
    // Parts of the memory.
    Ignored::new(
        &[
            "hfile.block.cache.size.min.range",
            "hfile.block.cache.size.max.range",
            "hbase.regionserver.global.memstore.size.min.range",
            "hbase.regionserver.global.memstore.size.max.range",
            "hbase.regionserver.heapmemory.tuner.class",
            "hbase.regionserver.heapmemory.tuner.period",
            "hbase.regionserver.free.heap.min.memory.size",
        ],
        &[],
        FIXED_PARTS,
    ),
    Ignored::new(
        &["hbase.regionserver.global.memstore.lowerLimit"],
        &[],
        "hbase.regionserver.global.memstore.size.lower.limit is used",
    ),
    Ignored::new(
        &["hbase.regionserver.offheap.global.memstore.size"],
        &["0"],
        "hbase.regionserver.global.memstore.size is the limit of all unflushed bytes",
    ),
    Ignored::new(
        &["hbase.hregion.memstore.mslab.enabled"],
        &["true"],
        "cells of a MemStore are always stored in chunks",
    ),
    Ignored::new(
        &["hbase.hregion.memstore.mslab.indexchunksize.percent"],
        &[],
        "a MemStore's index is stored in the chunks of its cells",
    ),
    // Block cache.
    Ignored::new(&["hbase.blockcache.use.external"], &["false"], "there is no external cache"),
    Ignored::new(&["hbase.blockcache.external.class"], &[], "there is no external cache"),
    Ignored::new(&["hbase.blockcache.minblocksize"], &[], "blocks of any size are stored exactly"),
    Ignored::new(&["hbase.blockcache.stats.period.minutes", "hbase.blockcache.stats.periods"], &[], MINUTES),
    Ignored::new(
        &[
            "hbase.lru.blockcache.min.factor",
            "hbase.lru.blockcache.acceptable.factor",
            "hbase.lru.blockcache.hard.capacity.limit.factor",
            "hbase.bucketcache.acceptfactor",
            "hbase.bucketcache.minfactor",
            "hbase.bucketcache.extrafreefactor",
        ],
        &[],
        ONE_BY_ONE,
    ),
    Ignored::new(&["hbase.lru.rs.inmemoryforcemode"], &["false"], OTHER_POLICY),
    Ignored::new(
        &[
            "hbase.lru.cache.heavy.eviction.count.limit",
            "hbase.lru.cache.heavy.eviction.mb.size.limit",
            "hbase.lru.cache.heavy.eviction.overhead.coefficient",
        ],
        &[],
        OTHER_POLICY,
    ),
    Ignored::new(&["hbase.tinylfu.max.block.size"], &[], "hbase.lru.max.block.size applies to all policies"),
    Ignored::new(
        &["hbase.bucketcache.queue.addition.waittime"],
        &["0"],
        "the thread that reads a block caches it; there is no queue",
    ),
    Ignored::new(
        &[
            "hbase.bucketcache.persist.intervalinmillis",
            "hbase.bucketcache.persistence.chunksize",
            "hbase.bucketcache.persistent.file.integrity.check.algorithm",
        ],
        &[],
        INDEX_ON_DISK,
    ),
    Ignored::new(
        &["hbase.bucketcache.block.orphan.evictgraceperiod.seconds"],
        &[],
        "blocks of files that belong to no region are evicted like others, when space is needed",
    ),
    Ignored::new(
        &["hbase.bucketcache.ioengine.errors.tolerated.duration"],
        &[],
        "after 64 failed reads or writes without a successful read, that part of the cache is no longer filled",
    ),
    Ignored::new(&["hbase.regionserver.datatiering.enable"], &["false"], NO_TIERING),
    Ignored::new(&["hbase.hstore.datatiering.type"], &["NONE"], NO_TIERING),
    Ignored::new(&["hbase.hstore.datatiering.hot.age.millis"], &[], NO_TIERING),
    Ignored::new(
        &["hbase.rs.evictblocksonsplit"],
        &["false"],
        "the daughters of a split region read their parent's blocks, which stay cached",
    ),
    Ignored::new(&["hbase.hfile.thread.prefetch"], &["1"], PREFETCH),
    Ignored::new(&["hbase.hfile.prefetch.delay.variation"], &["0"], PREFETCH),
    Ignored::new(
        &[
            "hbase.hfile.drop.behind.compaction",
            "hbase.regionserver.majorcompaction.pagecache.drop",
            "hbase.regionserver.minorcompaction.pagecache.drop",
        ],
        &["false"],
        KERNELS_PAGES,
    ),
    // Writes and flushes.
    Ignored::new(
        &["hbase.regionserver.flush.policy"],
        &["FlushAllLargeStoresPolicy", "FlushAllStoresPolicy", "FlushNonSloppyStoresFirstPolicy"],
        "FlushAllLargeStoresPolicy is used, as HBase does for a class that it cannot load",
    ),
    Ignored::new(
        &["hbase.hregion.percolumnfamilyflush.size.lower.bound"],
        &["-1"],
        "only an attribute of a table sets it, as in HBase; hbase.hregion.percolumnfamilyflush.size.lower.bound.min \
         applies to all tables",
    ),
    Ignored::new(
        &["hbase.regionserver.flush.throughput.controller"],
        &["NoLimitThroughputController", "PressureAwareFlushThroughputController"],
        "flushes have no throughput limit; PressureAwareFlushThroughputController sets one",
    ),
    Ignored::new(&["hbase.hstore.flush.throughput.control.check.interval"], &[], BEATS),
    Ignored::new(
        &["hbase.hstore.flush.throughput.tune.period"],
        &[],
        "the limit is adjusted to the unflushed bytes five times per second",
    ),
    Ignored::new(
        &["hbase.hstore.blockingWaitTime"],
        &[],
        "flushes never wait for compactions; from hbase.hstore.blockingStoreFiles on, replies to writes are held for at most a second",
    ),
    Ignored::new(&["hbase.region.store.parallel.put.limit"], &["0"], LIMITS_OF_WRITERS),
    Ignored::new(
        &[
            "hbase.region.store.parallel.put.limit.min.column.count",
            "hbase.region.store.parallel.prepare.put.multiplier",
        ],
        &[],
        LIMITS_OF_WRITERS,
    ),
    // Store files.
    Ignored::new(
        &["hbase.regionserver.checksum.verify"],
        &["true"],
        "every block that is read is verified by its HBase checksums; on HDFS, false also verifies those of HDFS",
    ),
    Ignored::new(
        &["dfs.client.read.shortcircuit.skip.checksum"],
        &["false"],
        "bytes of HDFS are compared with its checksums, except for store files' blocks, which HBase's checksums verify",
    ),
    Ignored::new(&["hfile.format.version"], &["3"], "new files have version 3"),
    Ignored::new(
        &["io.storefile.bloom.max.fold"],
        &["7"],
        "chunks of bloom filters can be folded seven times",
    ),
    Ignored::new(
        &["io.storefile.bloom.max.keys"],
        &[],
        "bloom filters have as many chunks as their keys need",
    ),
    Ignored::new(
        &["hbase.enable.historical.compaction.files"],
        &["false"],
        "old versions are in the same files as the latest",
    ),
    // WAL.
    Ignored::new(
        &["hbase.wal.provider", "hbase.wal.meta_provider"],
        &["asyncfs", "filesystem", "defaultProvider"],
        ONE_LOG,
    ),
    Ignored::new(
        &["hbase.regionserver.logroll.errors.tolerated"],
        &[],
        "any number is tolerated: a failed roll is retried after a second, and the old file is used until then",
    ),
    Ignored::new(&["hbase.regionserver.wal.codec"], &["WALCellCodec"], "WALs are written with WALCellCodec"),
    Ignored::new(
        &[
            "hbase.regionserver.hlog.reader.impl",
            "hbase.regionserver.hlog.writer.impl",
            "hbase.regionserver.wal.stream.reader.impl",
            "hbase.regionserver.wal.writer.impl",
            "hbase.regionserver.wal.async.writer.impl",
        ],
        &["ProtobufLogReader", "ProtobufWALStreamReader", "ProtobufLogWriter", "AsyncProtobufLogWriter"],
        "WALs are read and written in the format of ProtobufLogWriter",
    ),
    Ignored::new(
        &["hbase.wal.split.to.hfile", "hbase.split.wal.zk.coordinated"],
        &["false"],
        "WALs of earlier runs are split into recovered.edits by this process, at start",
    ),
    Ignored::new(
        &["hbase.separate.oldlogdir.by.regionserver"],
        &["false"],
        "WALs that are no longer needed go directly to oldWALs",
    ),
    // Compaction and split.
    Ignored::new(
        &["hbase.regionserver.throughput.controller"],
        &["NoLimitThroughputController", "PressureAwareCompactionThroughputController"],
        "compactions have the limit of PressureAwareCompactionThroughputController; NoLimitThroughputController removes it",
    ),
    Ignored::new(
        &["hbase.hstore.compaction.throughput.control.check.interval"],
        &[],
        "the limit is enforced after every row, or every 256 cells of a row",
    ),
    Ignored::new(&["hbase.hstore.compaction.kv.max"], &[], "compactions read up to 256 cells at a time"),
    Ignored::new(
        &["hbase.hstore.compaction.date.tiered.storage.policy.enable"],
        &["false"],
        "files of all windows have the same storage policy",
    ),
    Ignored::new(
        &["hbase.store.file-tracker.migration.src.impl", "hbase.store.file-tracker.migration.dst.impl"],
        &[],
        "a migration is a state of a table, whose attributes name its source and its destination",
    ),
    Ignored::new(&["hbase.hfile.compaction.discharger.interval"], &["120000"], DISCHARGE),
    Ignored::new(&["hbase.hfile.compaction.discharger.thread.count"], &["1"], DISCHARGE),
    // Standalone master, snapshots.
    Ignored::new(&["hbase.snapshot.working.dir"], &[], "snapshots are created below hbase.rootdir"),
    Ignored::new(
        &["hbase.regionserver.enable.table.latencies"],
        &["true"],
        "times of calls are always measured per table",
    ),
];

/// Known keys that are neither read nor listed above, by reason: they do not apply to a standalone
/// server.
#[cfg(test)]
pub(super) const KEYS_OF_OTHER_COMPONENTS: &[(&str, &[&str])] = &[
    (
        "stands in values of other keys, ${hbase.tmp.dir}; the directory itself is not used",
        &["hbase.tmp.dir"],
    ),
    (
        "of Java's class path and its temporary jars",
        &["hbase.local.dir", "hbase.defaults.for.version", "hbase.defaults.for.version.skip"],
    ),
    (
        "of clients: their calls, and what they put into descriptions of tables and snapshots",
        &[
            "hbase.rpc.shortoperation.timeout",
            "hbase.client.meta.operation.timeout",
            "hbase.column.max.version",
            "hbase.snapshot.restore.failsafe.name",
        ],
    ),
    (
        "of clients of ZooKeeper, which HBase's servers are",
        &["zookeeper.recovery.retry", "zookeeper.recovery.retry.maxsleeptime"],
    ),
    (
        "of a cluster of several servers",
        &[
            "hbase.client.bootstrap.node.limit",
            "hbase.master.wait.on.regionservers.mintostart",
            "hbase.master.maxclockskew",
            "hbase.unsafe.regionserver.hostname.disable.master.reversedns",
        ],
    ),
    (
        "of HBase's way to HDFS, which is not ours",
        &[
            "hbase.unsafe.stream.capability.enforce",
            "hbase.dfs.client.read.shortcircuit.buffer.size",
            "hbase.lease.recovery.dfs.timeout",
        ],
    ),
    ("of readers of snapshots outside a RegionServer", &["hfile.onheap.block.cache.fixed.size"]),
];

/// Keys whose names the code composes: the prefix in the code, and the suffixes.
#[cfg(test)]
pub(super) const KEYS_BY_PREFIX: &[(&str, &[&str])] = &[
    ("hbase.lru.blockcache.", &["single.percentage", "multi.percentage", "memory.percentage"]),
    ("hbase.bucketcache.", &["single.factor", "multi.factor", "memory.factor"]),
    ("hbase.hregion.compacting.memstore.adaptive.compaction", &[".threshold", ".probability"]),
];
