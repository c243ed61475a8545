//! The status of the cluster: `GetClusterStatus`.

use evenkeel_common::length;
use evenkeel_common::{Result, TableName};
use evenkeel_protocol::pb;

use super::Master;
use evenkeel_regionserver::HBASE_VERSION;

impl Master {
    /// Returns the requested parts of the cluster's status; all parts if `options` is empty.
    ///
    /// # Errors
    /// `IOException` from hbase:meta.
    pub fn cluster_status(&self, options: &[i32]) -> Result<pb::ClusterStatus> {
        let wants = |option: pb::Option| options.is_empty() || options.contains(&(option as i32));
        let server = || pb::ServerName::from(&self.parts.server);
        let mut status = pb::ClusterStatus::default();
        if wants(pb::Option::HbaseVersion) {
            status.hbase_version = Some(pb::HBaseVersionFileContent { version: HBASE_VERSION.into() });
        }
        if wants(pb::Option::ClusterId) {
            status.cluster_id = Some(pb::ClusterId { cluster_id: self.parts.cluster_id.clone() });
        }
        if wants(pb::Option::LiveServers) {
            let now_ms = self.clock().now_ms();
            let server_load = self.parts.regionserver.server_load(now_ms, now_ms);
            status.live_servers = vec![pb::LiveServerInfo { server: server(), server_load }];
        }
        if wants(pb::Option::Master) {
            status.master = Some((&self.parts.master_name).into());
        }
        if wants(pb::Option::BalancerOn) {
            status.balancer_on = Some(self.switches.balancer.load(std::sync::atomic::Ordering::Relaxed));
        }
        if wants(pb::Option::MasterInfoPort) {
            // Without an info port, a client of HBase sees 0.
            status.master_info_port = Some(self.parts.info_port.into());
        }
        if wants(pb::Option::ServersName) {
            status.servers_name = vec![server()];
        }
        if wants(pb::Option::TableToRegionsCount) {
            status.table_region_states_count = self.region_counts()?;
        }
        Ok(status)
    }

    fn region_counts(&self) -> Result<Vec<pb::TableRegionStatesCount>> {
        let count = |table: &TableName| {
            let regions = self.parts.meta.regions(Some(table))?;
            let split = length::must_u32(regions.iter().filter(|r| r.info.is_split_parent()).count());
            let open = length::must_u32(self.served_region_count(table));
            let live = regions.iter().filter(|region| !region.info.is_split_parent());
            let replicas: usize = live.map(|region| region.replica_states.len()).sum();
            let total = length::must_u32(regions.len() + replicas);
            let counts = pb::RegionStatesCount {
                open_regions: open,
                split_regions: split,
                closed_regions: total.saturating_sub(open + split),
                regions_in_transition: 0,
                total_regions: total,
            };
            Ok(pb::TableRegionStatesCount { table_name: table.into(), region_states_count: counts })
        };
        self.tables()
            .iter()
            .map(|t| t.descriptor.name().clone())
            .filter(|t| !t.is_meta())
            .map(|t| count(&t))
            .collect()
    }

    /// When the master started, milliseconds since 1970.
    pub fn started_ms(&self) -> i64 {
        self.started_ms
    }
}
