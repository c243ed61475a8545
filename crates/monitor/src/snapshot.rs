//! [`Snapshot`]: the state of a server at one moment.

use std::collections::BTreeMap;
use std::time::Instant;

use evenkeel_common::{clock, length};

use crate::ErrorText;
use crate::beans::{Bean, Beans};
use crate::http::Client;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When the response arrived.
    pub at: Instant,
    /// The reasons of `/ready` why the server does not serve; empty if it does.
    pub not_ready: Vec<String>,
    /// The server as a whole; `None` while it starts.
    pub server: Option<ServerFigures>,
    /// Tables by name.
    pub tables: BTreeMap<String, TableFigures>,
    /// Regions by encoded name.
    pub regions: BTreeMap<String, RegionFigures>,
}

/// Numbers of a server. Times are milliseconds, sizes bytes, counters count from its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFigures {
    /// `host,port,startcode`.
    pub name: String,
    /// When it started, in milliseconds since 1970.
    pub started_ms: i64,
    /// Counter: operations.
    pub requests: f64,
    /// Counter: read requests.
    pub reads: f64,
    /// Counter: write requests.
    pub writes: f64,
    /// The 99th percentile of all calls, from arrival to reply.
    pub p99_call_ms: f64,
    /// The 99th percentile of a call's wait for a thread.
    pub p99_queue_ms: f64,
    /// Connections of clients.
    pub connections: f64,
    /// Busy handler threads.
    pub active_handlers: f64,
    /// Calls that wait for a handler.
    pub queued_calls: f64,
    /// Bytes of unflushed cells.
    pub memstore_bytes: f64,
    /// Resident memory of the process.
    pub resident_bytes: f64,
    /// The memory limit of the process.
    pub memory_bytes_max: f64,
    /// The block caches.
    pub cache: CacheFigures,
    /// Flushes that wait or run.
    pub flush_queue: f64,
    /// Compactions that wait.
    pub compaction_queue: f64,
    /// Counter: bytes that flushes wrote.
    pub flushed_bytes: f64,
    /// Counter: bytes that compactions wrote.
    pub compacted_bytes: f64,
    /// Counter: milliseconds in which writes were held or rejected.
    pub blocked_ms: f64,
    /// Files of the WALs.
    pub log_files: f64,
    /// Their bytes.
    pub log_bytes: f64,
    /// The 99th percentile of a log sync.
    pub p99_sync_ms: f64,
    /// Counter: requests that took longer than `evenkeel.slow.request.ms`.
    pub slow_requests: f64,
}

/// Numbers of the block caches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheFigures {
    /// Bytes of blocks.
    pub bytes: f64,
    /// Unused bytes.
    pub free_bytes: f64,
    /// Counter: lookups that found their block.
    pub hits: f64,
    /// Counter: lookups that did not.
    pub misses: f64,
    /// Counter: blocks that were evicted.
    pub evictions: f64,
}

/// Numbers of a table's regions on the server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableFigures {
    /// Regions.
    pub regions: f64,
    /// Counter: read requests.
    pub reads: f64,
    /// Counter: write requests.
    pub writes: f64,
    /// Store files.
    pub files: f64,
    /// Their bytes.
    pub file_bytes: f64,
    /// Bytes of unflushed cells.
    pub memstore_bytes: f64,
    /// Operations of the table, in the order of [`OPERATIONS`].
    pub operations: [OperationFigures; OPERATIONS.len()],
}

/// The operations whose times are shown: the name of their histogram, and their heading.
pub const OPERATIONS: [(&str, &str); 3] = [("GetTime", "get"), ("PutTime", "put"), ("ScanTime", "scan")];

/// The lengths of the queues of calls.
const QUEUES: [&str; 4] =
    ["numCallsInGeneralQueue", "numCallsInPriorityQueue", "numCallsInScanQueue", "numCallsInWriteQueue"];

/// Numbers of one kind of operation on a table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OperationFigures {
    /// Counter: operations.
    pub count: f64,
    /// The 99th percentile, in whole milliseconds as in HBase.
    pub p99_ms: f64,
}

/// Numbers of a region.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionFigures {
    /// Its table.
    pub table: String,
    /// Counter: read requests.
    pub reads: f64,
    /// Counter: write requests.
    pub writes: f64,
    /// Store files.
    pub files: f64,
    /// Their bytes.
    pub file_bytes: f64,
    /// Bytes of unflushed cells.
    pub memstore_bytes: f64,
    /// Compactions that wait or run.
    pub compactions: f64,
}

impl Snapshot {
    /// Fetches a snapshot from a server.
    ///
    /// # Errors
    /// As [`Client::get`], and if the server is not a RegionServer.
    pub fn fetch(client: &Client) -> Result<Self, ErrorText> {
        let ready = client.get("/ready")?;
        let not_ready = match ready.status {
            200 => Vec::new(),
            503 => String::from_utf8_lossy(&ready.body).lines().map(str::to_owned).collect(),
            // Stock HBase does not have this page.
            _ => Vec::new(),
        };
        let beans = Beans::parse(&client.get_ok("/jmx")?)?;
        Ok(Self::of(&beans, not_ready, clock::monotonic()))
    }

    /// Extracts a snapshot from beans.
    pub fn of(beans: &Beans, not_ready: Vec<String>, at: Instant) -> Self {
        let mut tables = BTreeMap::<String, TableFigures>::new();
        for (name, value) in beans.sub("Tables").numbers() {
            if let Some((table, metric)) =
                name.split_once("_metric_").and_then(|(p, m)| Some((table_of(p)?, m)))
            {
                tables.entry(table).or_default().set(metric, value);
            }
        }
        for (table, figures) in &mut tables {
            let (namespace, qualifier) = table.split_once(':').unwrap_or(("default", table));
            figures.set_operations(
                &beans.sub(&format!("TableRequests_Namespace_{namespace}_table_{qualifier}")),
            );
        }
        let mut regions = BTreeMap::<String, RegionFigures>::new();
        for (name, value) in beans.sub("Regions").numbers() {
            let Some((prefix, metric)) = name.rsplit_once("_metric_") else { continue };
            let Some((table, region)) = prefix.rsplit_once("_region_") else { continue };
            let Some(table) = table_of(table) else { continue };
            let figures = regions.entry(region.to_owned()).or_default();
            figures.table = table;
            figures.set(metric, value);
        }
        let server = beans.sub("Server");
        let is_there = !server.text("tag.serverName").is_empty();
        Self { at, not_ready, server: is_there.then(|| ServerFigures::of(beans, &server)), tables, regions }
    }
}

/// Returns the table of `Namespace_ns_table_qualifier`, HBase's prefix of metrics.
fn table_of(prefix: &str) -> Option<String> {
    let (namespace, qualifier) = prefix.strip_prefix("Namespace_")?.split_once("_table_")?;
    Some(if namespace == "default" { qualifier.to_owned() } else { format!("{namespace}:{qualifier}") })
}

impl ServerFigures {
    fn of(beans: &Beans, server: &Bean) -> Self {
        let (ipc, wal, process) = (beans.sub("IPC"), beans.sub("WAL"), beans.process());
        let mib = |name: &str| process.number(name) * f64::from(1 << 20);
        let sum = |names: &[&str]| names.iter().map(|name| server.number(name)).sum::<f64>();
        let started_ms = server.number("regionServerStartTime");
        Self {
            name: server.text("tag.serverName").to_owned(),
            started_ms: i64::try_from(length::whole(started_ms)).unwrap_or(i64::MAX),
            requests: server.number("totalRequestCount"),
            reads: server.number("readRequestCount"),
            writes: server.number("writeRequestCount"),
            p99_call_ms: ipc.number("TotalCallTime_99th_percentile"),
            p99_queue_ms: ipc.number("QueueCallTime_99th_percentile"),
            connections: ipc.number("numOpenConnections"),
            active_handlers: ipc.number("numActiveHandler"),
            queued_calls: QUEUES.iter().map(|name| ipc.number(name)).sum(),
            memstore_bytes: server.number("memStoreSize"),
            resident_bytes: mib("MemHeapCommittedM"),
            memory_bytes_max: mib("MemHeapMaxM"),
            cache: CacheFigures {
                bytes: server.number("blockCacheSize"),
                free_bytes: server.number("blockCacheFreeSize"),
                hits: server.number("blockCacheHitCount"),
                misses: server.number("blockCacheMissCount"),
                evictions: server.number("blockCacheEvictionCount"),
            },
            flush_queue: server.number("flushQueueLength"),
            compaction_queue: server.number("compactionQueueLength"),
            flushed_bytes: server.number("flushedOutputBytes"),
            compacted_bytes: sum(&["compactedOutputBytes", "majorCompactedOutputBytes"]),
            blocked_ms: server.number("updatesBlockedTime"),
            log_files: server.number("hlogFileCount"),
            log_bytes: server.number("hlogFileSize"),
            p99_sync_ms: wal.number("SyncTime_99th_percentile"),
            slow_requests: beans.sub("Ledger").number("slowRequestCount"),
        }
    }
}

impl TableFigures {
    fn set(&mut self, metric: &str, value: f64) {
        match metric {
            "regionCount" => self.regions = value,
            "readRequestCount" => self.reads = value,
            "writeRequestCount" => self.writes = value,
            "storeFileCount" => self.files = value,
            "storeFileSize" => self.file_bytes = value,
            "memStoreSize" => self.memstore_bytes = value,
            _ => {}
        }
    }

    fn set_operations(&mut self, bean: &Bean) {
        self.operations = OPERATIONS.map(|(name, _)| OperationFigures {
            count: bean.number(&format!("{name}_num_ops")),
            p99_ms: bean.number(&format!("{name}_99th_percentile")),
        });
    }
}

impl RegionFigures {
    fn set(&mut self, metric: &str, value: f64) {
        match metric {
            "readRequestCount" => self.reads = value,
            "writeRequestCount" => self.writes = value,
            "storeFileCount" => self.files = value,
            "storeFileSize" => self.file_bytes = value,
            "memStoreSize" => self.memstore_bytes = value,
            "compactionsQueuedCount" => self.compactions = value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn beans_are_read_by_hbases_names() {
        let snapshot = testing::snapshot(100, 0);
        let server = snapshot.server.expect("a server");
        assert_eq!((server.name.as_str(), server.started_ms), ("rs1,16020,1700000000000", 1_700_000_000_000));
        assert_eq!((server.requests, server.p99_call_ms, server.slow_requests), (1100.0, 7.0, 3.0));
        assert_eq!(server.memory_bytes_max, 1024.0 * 1024.0 * 2048.0);
        let tables: Vec<_> = snapshot.tables.keys().collect();
        assert_eq!(tables, ["ns:a_table_b", "trail"]);
        let trail = &snapshot.tables["trail"];
        assert_eq!((trail.reads, trail.file_bytes), (1000.0, 5e6));
        assert_eq!(trail.operations.map(|operation| operation.p99_ms), [4.0, 9.0, 0.0]);
        let region = &snapshot.regions["0123456789abcdef0123456789abcdef"];
        assert_eq!((region.table.as_str(), region.reads, region.files), ("trail", 1000.0, 2.0));
    }

    #[test]
    fn a_server_that_starts_has_no_numbers() {
        let beans = Beans::parse(br#"{"beans": []}"#).expect("parsed");
        let snapshot =
            Snapshot::of(&beans, vec!["starting: opening regions, for 3 s".into()], clock::monotonic());
        assert!(snapshot.server.is_none() && snapshot.tables.is_empty() && beans.is_empty());
        assert!(Beans::parse(b"<html>").is_err() && Beans::parse(b"{}").is_err());
    }
}
