//! [`ServerSource`]: all metrics of a RegionServer, read when a sink requests them.
//!
//! One source creates all records, so that regions are listed and read once for the three records
//! that cover them.

use std::sync::{Arc, Weak};

use evenkeel_common::clock::Clock;
use evenkeel_hfile::io_metrics;
use evenkeel_metrics::{Record, Source};
use evenkeel_region::region::RegionEnv;
use evenkeel_rpc::{Executor, RpcMonitor};
use evenkeel_wal::Wal;

use super::jvm::ProcessFacts;
use super::{
    block_cache, file_system, ipc, jvm, ledger, memory, mob, own, rates, regions, reports, requests, stores,
    table_requests, tables, throttles, users,
};
use crate::RegionServer;

/// The names of the server and its cluster, for tags.
#[derive(Clone, Debug, Default)]
pub struct SourceNames {
    /// `hbase.zookeeper.quorum` with the client's port.
    pub zookeeper_quorum: String,
    /// The cluster's id.
    pub cluster_id: String,
}

/// See the module's documentation.
pub struct ServerSource {
    /// The server; the source does not keep it alive.
    pub server: Weak<RegionServer>,
    /// The environment that its user regions are opened with.
    pub env: Arc<RegionEnv>,
    /// Its WALs.
    pub wals: Vec<Arc<Wal>>,
    /// The monitor of its calls.
    pub rpc: RpcMonitor,
    /// Its handler threads.
    pub executor: Arc<Executor>,
    /// Its wall clock.
    pub clock: Arc<dyn Clock>,
    /// The names for tags.
    pub names: SourceNames,
    /// The memory limit of the process, in bytes.
    pub memory_bytes_max: u64,
}

impl Source for ServerSource {
    fn collect(&self, records: &mut Vec<Record>) {
        let Some(server) = self.server.upgrade() else { return };
        let reports = reports(server.regions().all(), server.background());
        let sizes = stores::Sizes::of(&reports);
        let wals: Vec<&Wal> = self.wals.iter().map(|wal| &**wal).collect();
        let metrics = self.rpc.metrics();
        let mut of_server = Record::new("Server", "regionserver", "name=RegionServer,sub=Server");
        of_server
            .tag("zookeeperQuorum", self.names.zookeeper_quorum.clone())
            .tag("serverName", server.name().to_string())
            .tag("clusterId", self.names.cluster_id.clone());
        requests::append(&mut of_server, &server, &self.env.operation_times);
        file_system::append(&mut of_server, &self.env.stores.fs.read_statistics());
        stores::append(&mut of_server, &sizes, &self.env.stores.metrics, &wals);
        mob::append(&mut of_server, &self.env.stores.mob);
        rates::append(&mut of_server, &sizes, &self.env);
        block_cache::append(&mut of_server, &server.cache_levels());
        records.push(of_server);
        records.push(regions::record(&reports, self.clock.now_ms()));
        let of_tables = tables::sizes(&reports);
        records.push(tables::record(&of_tables, &self.env.stores.metrics));
        records.extend(table_requests::records(&self.env.operation_times, &of_tables));
        records.extend(users::record(server.user_times()));
        records.extend(server.quotas().map(|quotas| throttles::record(quotas)));
        let of_rpc = ("RegionServer", "regionserver");
        records.push(ipc::record(of_rpc, metrics, &self.rpc.stats(), &self.executor));
        records.push(evenkeel_wal::metrics::record(&wals));
        records.push(io_metrics::get().record());
        records.push(memory::record(
            sizes.memstore_bytes,
            server.memstore_chunk_bytes(),
            &server.cache_stats(),
        ));
        records.push(ledger::record(&metrics.ledger));
        records.push(own::record(&server, &self.rpc.stats(), &wals));
        let facts = ProcessFacts { process_name: "RegionServer", memory_bytes_max: self.memory_bytes_max };
        records.push(jvm::record(facts));
    }
}
