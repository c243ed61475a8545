//! [`MemoryUse`]: the current memory use of each part of a [`MemoryPlan`].

use std::sync::{Arc, Weak};

use evenkeel_block_cache::heap_blocks;
use evenkeel_common::buffer_pool;
use evenkeel_metrics::Record;
use evenkeel_metrics::activity::{self, ActivityKind};
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_regionserver::RegionServer;
use evenkeel_rpc::RpcMonitor;
use evenkeel_zookeeper::ZnodeTree;

use crate::memory_plan::{BACKGROUND_BYTES, CONNECTION_BYTES, MemoryPlan, NONCE_PART};
use crate::wals::Wals;

/// The parts of a server that take memory.
#[derive(Clone)]
pub struct MemoryMeter {
    /// Its caches and scanners.
    pub regionserver: Weak<RegionServer>,
    /// Its MemStores.
    pub chunks: Arc<ChunkPool>,
    /// Its WALs.
    pub wals: Wals,
    /// The monitor of any of its RPC servers, which share their budgets.
    pub rpc: RpcMonitor,
    /// Its ZooKeeper endpoint, if it has one.
    pub znode_tree: Option<Arc<ZnodeTree>>,
    /// Its nonces.
    pub nonces: Arc<NonceManager>,
}

impl MemoryMeter {
    /// Returns the current use of each part. Expensive: it takes the locks of the WALs and of the
    /// caches.
    pub fn read(&self) -> MemoryUse {
        let (rpc, server) = (self.rpc.stats(), self.regionserver.upgrade());
        let of_server = |bytes: fn(&RegionServer) -> u64| server.as_deref().map_or(0, bytes);
        MemoryUse {
            caches: of_server(|server| server.cache_stats().memory_bytes),
            chunks: self.chunks.bytes() as u64,
            logs: (self.wals.user.stats().queue_bytes + self.wals.meta.stats().queue_bytes) as u64,
            requests: rpc.inflight_bytes,
            replies: rpc.unsent_bytes,
            buffer_pool: buffer_pool::pooled_bytes() as u64,
            scanners: of_server(|server| server.scanners().bytes()),
            system_scanners: of_server(|server| server.scanners().system_bytes()),
            zookeeper: self.znode_tree.as_ref().map_or(0, |tree| tree.client_bytes()),
            nonces: self.nonces.bytes(),
            background: running_background() * BACKGROUND_BYTES,
            connections: rpc.connections_open * CONNECTION_BYTES,
        }
    }

    /// Returns sub=MemoryParts, which HBase does not have: the bytes of each part and its limit in
    /// `plan`, and those of blocks outside of the caches, which several parts provide for.
    pub fn record(&self, plan: &MemoryPlan) -> Record {
        let mut record = Record::new("MemoryParts", "regionserver", "name=RegionServer,sub=MemoryParts");
        let now = self.read();
        record.gauge("totalBytes", "Memory of all parts in bytes", now.sum()).gauge(
            "totalBytesMax",
            "evenkeel.memory.size: the limit of all parts in bytes",
            plan.memory,
        );
        for (part, metric) in now.parts(plan).into_iter().zip(METRICS) {
            let (name, bytes, bytes_max) = part;
            record.gauge(format!("{metric}Bytes"), format!("Memory of {name} in bytes"), bytes).gauge(
                format!("{metric}BytesMax"),
                format!("Limit of the memory of {name} in bytes"),
                bytes_max,
            );
        }
        record
            .gauge("heapBlocksBytes", "Memory of blocks outside of the caches in bytes", heap_blocks::bytes())
            .gauge(
                "heapBlocksBytesMax",
                "Limit from which on readers release blocks outside of the caches, in bytes",
                plan.heap_blocks(),
            );
        record
    }
}

/// The number of flushes and compactions that are running.
fn running_background() -> u64 {
    let is_background = |kind| matches!(kind, ActivityKind::Flush | ActivityKind::Compaction);
    activity::running().iter().filter(|activity| is_background(activity.kind)).count() as u64
}

/// The metrics of [`MemoryUse::parts`], in their order.
pub(crate) const METRICS: [&str; 12] = [
    "blocks",
    "chunks",
    "logs",
    "requests",
    "replies",
    "replyBuffers",
    "scanners",
    "systemScanners",
    "zooKeeper",
    "nonces",
    "background",
    "reserve",
];

/// Bytes of each part now. Those of background work and of connections are estimates, as the plan
/// has them; blocks that readers hold are in `heapBlocks` of the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Blocks and rows in memory, including those that replies pin, and their index.
    pub caches: u64,
    /// Chunks of MemStores, full or not, including spare ones and those that readers pin after a
    /// flush.
    pub chunks: u64,
    /// Buffers of the WALs.
    pub logs: u64,
    /// Requests in flight, including the idle shares of threads.
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
    /// Nonces.
    pub nonces: u64,
    /// Running flushes and compactions, each with the plan's estimate of one.
    pub background: u64,
    /// Open connections, each with the plan's estimate of an idle one.
    pub connections: u64,
}

impl MemoryUse {
    /// Returns the name of each part, its use and its limit.
    pub fn parts(&self, plan: &MemoryPlan) -> [(&'static str, u64, u64); 12] {
        [
            ("blocks", self.caches, plan.caches + plan.cache_index),
            ("chunks", self.chunks, plan.memstore + plan.chunk_slack),
            ("logs", self.logs, plan.logs),
            ("requests", self.requests, plan.requests),
            ("replies", self.replies, plan.replies),
            ("buffers of replies", self.buffer_pool, plan.buffer_pool),
            ("scanners", self.scanners, plan.scanners),
            ("system scanners", self.system_scanners, plan.system_scanners),
            ("ZooKeeper", self.zookeeper, plan.zookeeper),
            ("nonces", self.nonces, plan.memstore / NONCE_PART),
            ("flushes and compactions", self.background, plan.background),
            ("reserve", self.connections, plan.reserve),
        ]
    }

    /// Returns the sum of all parts.
    pub fn sum(&self) -> u64 {
        let of_data = self.caches + self.chunks + self.logs;
        let of_clients = self.scanners + self.system_scanners + self.zookeeper + self.nonces;
        let of_replies = self.requests + self.replies + self.buffer_pool;
        of_data + of_replies + of_clients + self.background + self.connections
    }
}
