//! [`MasterSource`]: the master's metrics by HBase's names: sub=Server, AssignmentManager,
//! Snapshots and IPC of the master's beans.
//!
//! The embedded master opens and closes regions itself, so no region is in transition for longer
//! than that takes, and no server dies except the process. HBase's metrics of procedures that do
//! not exist here are omitted; see `docs/operating/metrics-and-hbase.md`.

use std::sync::{Arc, Weak};

use evenkeel_metrics::{Ranges, Record, Source};
use evenkeel_regionserver::metrics::ipc;
use evenkeel_rpc::{Executor, RpcMonitor};

use crate::Master;

/// See the module's documentation.
pub struct MasterSource {
    /// The master, while it runs.
    pub master: Weak<Master>,
    /// The monitor of its RPC server.
    pub rpc: RpcMonitor,
    /// Its handlers.
    pub executor: Arc<Executor>,
    /// `hbase.zookeeper.quorum` with the client's port.
    pub zookeeper_quorum: String,
}

impl Source for MasterSource {
    fn collect(&self, records: &mut Vec<Record>) {
        let Some(master) = self.master.upgrade() else { return };
        records.push(self.server(&master));
        records.push(assignment(&master));
        records.extend(snapshots(&master));
        let of_master = ("Master", "master");
        records.push(ipc::record(of_master, self.rpc.metrics(), &self.rpc.stats(), &self.executor));
    }
}

impl MasterSource {
    fn server(&self, master: &Master) -> Record {
        let mut record = Record::new("Server", "master", "name=Master,sub=Server");
        let server = &master.parts.regionserver;
        let started_ms = u64::try_from(master.started_ms()).unwrap_or(0);
        record
            .tag("liveRegionServers", master.parts.server.to_string())
            .tag("deadRegionServers", "")
            .tag("drainingRegionServers", "")
            .tag("zookeeperQuorum", self.zookeeper_quorum.clone())
            .tag("serverName", master.parts.master_name.to_string())
            .tag("clusterId", master.parts.cluster_id.clone())
            .tag("isActiveMaster", "true");
        record
            .gauge("masterActiveTime", "Master Active Time", started_ms)
            .gauge("masterStartTime", "Master Start Time", started_ms)
            .gauge(
                "masterFinishedInitializationTime",
                "Timestamp when Master has finished initializing",
                started_ms,
            )
            .real("averageLoad", "AverageLoad", server.regions().len() as f64)
            .gauge("numRegionServers", "Number of RegionServers", 1)
            .gauge("numDeadRegionServers", "Number of dead RegionServers", 0)
            .gauge("numDrainingRegionServers", "Number of draining RegionServers", 0)
            .counter("clusterRequests", "Cluster requests", server.counters().total())
            .gauge("splitPlanCount", "Number of Region Split Plans executed", master.normalizer.split_count())
            .gauge(
                "mergePlanCount",
                "Number of Region Merge Plans executed",
                master.normalizer.merge_count(),
            );
        record
    }
}

/// The times of snapshots (`MetricsSnapshotSource`); `None` before the first one, as in HBase.
pub(crate) fn snapshots(master: &Master) -> Option<Record> {
    let times = &master.snapshot_procedures.times;
    let times = [
        ("snapshotTime", "Time it takes to finish snapshot()", &times.taken),
        ("snapshotRestoreTime", "Time it takes to finish restoreSnapshot()", &times.restored),
        ("snapshotCloneTime", "Time it takes to finish cloneSnapshot()", &times.cloned),
    ];
    let is_any = times.iter().any(|(_, _, times)| times.snapshot().count() > 0);
    let mut record = Record::new("Snapshots", "master", "name=Master,sub=Snapshots");
    for (name, description, times) in times {
        record.histogram(name, description, Ranges::Time, &times.interval());
    }
    is_any.then_some(record)
}

/// Regions that should be open and are not count as regions in transition.
fn assignment(master: &Master) -> Record {
    let mut record = Record::new("AssignmentManager", "master", "name=Master,sub=AssignmentManager");
    let closed = master.failed_open_count() as u64;
    record.gauge("ritCount", "Current number of Regions In Transition (Gauge).", closed).gauge(
        "ritCountOverThreshold",
        "Current number of Regions In Transition over threshold time (Gauge).",
        closed,
    );
    record
}
