//! [`ClusterMetrics`]: the cluster's servers and regions with their load.

use std::collections::BTreeMap;

use bytes::Bytes;
use evenkeel_common::{ServerName, TableName};
use evenkeel_protocol::pb;

use super::{Admin, CompactionState};
use crate::error::Result;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// A part of the cluster's state. Few parts are cheap to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ClusterOption {
    /// [`ClusterMetrics::version`].
    Version = 0,
    /// [`ClusterMetrics::cluster_id`].
    ClusterId = 1,
    /// [`ClusterMetrics::servers`].
    LiveServers = 2,
    /// [`ClusterMetrics::dead_servers`].
    DeadServers = 3,
    /// [`ClusterMetrics::master`].
    Master = 4,
    /// [`ClusterMetrics::backup_masters`].
    BackupMasters = 5,
    /// [`ClusterMetrics::master_coprocessors`].
    MasterCoprocessors = 6,
    /// [`ClusterMetrics::regions_in_transition`].
    RegionsInTransition = 7,
    /// [`ClusterMetrics::balancer_on`].
    BalancerOn = 8,
    /// [`ClusterMetrics::master_info_port`].
    MasterInfoPort = 9,
    /// [`ClusterMetrics::server_names`].
    ServersName = 10,
    /// [`ClusterMetrics::tables`].
    TableToRegionsCount = 11,
    /// [`ClusterMetrics::master_tasks`].
    Tasks = 12,
    /// [`ClusterMetrics::unknown_servers`].
    UnknownServers = 13,
}

/// The cluster's state as the master sees it. Parts that were not requested are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterMetrics {
    /// HBase's version of the master.
    pub version: String,
    /// The cluster's id.
    pub cluster_id: String,
    /// Servers that report, with their load.
    pub servers: Vec<ServerMetrics>,
    /// Servers that died.
    pub dead_servers: Vec<ServerName>,
    /// The active master.
    pub master: Option<ServerName>,
    /// Backup masters.
    pub backup_masters: Vec<ServerName>,
    /// Coprocessors of the master.
    pub master_coprocessors: Vec<String>,
    /// Encoded names of regions in transition and HBase's names of their states.
    pub regions_in_transition: Vec<(String, String)>,
    /// Whether the balancer is on; `None` if it was not requested.
    pub balancer_on: Option<bool>,
    /// The port of the master's pages; -1 for none.
    pub master_info_port: i32,
    /// Names of servers that report, without their load.
    pub server_names: Vec<ServerName>,
    /// Regions of each table by state.
    pub tables: BTreeMap<TableName, TableRegionCounts>,
    /// The tasks of the master: description and status.
    pub master_tasks: Vec<(String, String)>,
    /// Servers that are in hbase:meta but unknown to the master.
    pub unknown_servers: Vec<ServerName>,
}

/// A table's regions by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableRegionCounts {
    /// Open.
    pub open: u32,
    /// Parents of splits.
    pub split: u32,
    /// Closed.
    pub closed: u32,
    /// In transition.
    pub in_transition: u32,
    /// All.
    pub total: u32,
}

/// A server and its load at its last report.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerMetrics {
    /// The server.
    pub server: ServerName,
    /// Requests a second since the previous report.
    pub requests_per_second: u64,
    /// Requests since its start.
    pub requests: u64,
    /// Bytes of heap in use.
    pub heap_used_bytes: u64,
    /// Bytes of the largest heap.
    pub heap_bytes_max: u64,
    /// Its regions.
    pub regions: Vec<RegionMetrics>,
    /// Its coprocessors.
    pub coprocessors: Vec<String>,
    /// The start of the reported period: ms since 1970.
    pub report_start_ms: u64,
    /// Its end.
    pub report_end_ms: u64,
    /// The port of its pages; 0 for none.
    pub info_port: u32,
}

impl ServerMetrics {
    fn of(live: &pb::LiveServerInfo) -> Self {
        let load = &live.server_load;
        Self {
            server: (&live.server).into(),
            requests_per_second: load.number_of_requests(),
            requests: load.total_number_of_requests(),
            heap_used_bytes: u64::from(load.used_heap_mb()) * MIB,
            heap_bytes_max: u64::from(load.max_heap_mb()) * MIB,
            regions: load.region_loads.iter().map(RegionMetrics::of).collect(),
            coprocessors: load.coprocessors.iter().map(|c| c.name.clone()).collect(),
            report_start_ms: load.report_start_time(),
            report_end_ms: load.report_end_time(),
            info_port: load.info_server_port(),
        }
    }
}

/// A region's load. Servers report sizes in MiB or KiB, so small ones are 0.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionMetrics {
    /// The region's full name.
    pub name: Bytes,
    /// Its families.
    pub stores: u32,
    /// Its store files.
    pub store_files: u32,
    /// Bytes of its store files before compression.
    pub store_file_uncompressed_bytes: u64,
    /// Bytes of its store files.
    pub store_file_bytes: u64,
    /// Bytes of its MemStores.
    pub memstore_bytes: u64,
    /// Bytes of its index blocks.
    pub index_bytes: u64,
    /// Bytes of its Bloom filters.
    pub bloom_bytes: u64,
    /// Reads since it opened.
    pub read_requests: u64,
    /// Reads whose filter passed nothing.
    pub filtered_read_requests: u64,
    /// Writes since it opened.
    pub write_requests: u64,
    /// Cells of the compaction in progress.
    pub compacting_cells: u64,
    /// Cells that the compaction has processed.
    pub compacted_cells: u64,
    /// The sequence id up to which all edits are in files.
    pub complete_sequence_id: u64,
    /// The part of its bytes that lies on its server's machine.
    pub data_locality: f32,
    /// When its last major compaction ended: ms since 1970, 0 for never.
    pub last_major_compaction_ms: u64,
    /// Compactions in progress.
    pub compaction_state: CompactionState,
}

impl RegionMetrics {
    /// Converts HBase's message.
    pub fn of(load: &pb::RegionLoad) -> Self {
        Self {
            name: load.region_specifier.value.clone(),
            stores: load.stores(),
            store_files: load.storefiles(),
            store_file_uncompressed_bytes: u64::from(load.store_uncompressed_size_mb()) * MIB,
            store_file_bytes: u64::from(load.storefile_size_mb()) * MIB,
            memstore_bytes: u64::from(load.mem_store_size_mb()) * MIB,
            index_bytes: u64::from(load.total_static_index_size_kb()) * KIB,
            bloom_bytes: u64::from(load.total_static_bloom_size_kb()) * KIB,
            read_requests: load.read_requests_count(),
            filtered_read_requests: load.filtered_read_requests_count(),
            write_requests: load.write_requests_count(),
            compacting_cells: load.total_compacting_k_vs(),
            compacted_cells: load.current_compacted_k_vs(),
            complete_sequence_id: load.complete_sequence_id(),
            data_locality: load.data_locality(),
            last_major_compaction_ms: load.last_major_compaction_ts(),
            compaction_state: CompactionState::from_number(load.compaction_state.unwrap_or_default()),
        }
    }
}

impl Admin {
    /// The cluster's state in HBase's own message: servers with their load, regions in transition,
    /// the master.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn cluster_status(&self) -> Result<pb::ClusterStatus> {
        self.cluster_status_of(&[]).await
    }

    /// Parts of the cluster's state; all parts if none is named.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn cluster_metrics(&self, parts: &[ClusterOption]) -> Result<ClusterMetrics> {
        let status = self.cluster_status_of(parts).await?;
        let servers = |names: &[pb::ServerName]| names.iter().map(Into::into).collect();
        let mut tables = BTreeMap::new();
        for table in &status.table_region_states_count {
            let n = &table.region_states_count;
            let counts = TableRegionCounts {
                open: n.open_regions,
                split: n.split_regions,
                closed: n.closed_regions,
                in_transition: n.regions_in_transition,
                total: n.total_regions,
            };
            tables.insert(TableName::try_from(&table.table_name)?, counts);
        }
        Ok(ClusterMetrics {
            version: status.hbase_version.as_ref().map(|v| v.version.clone()).unwrap_or_default(),
            cluster_id: status.cluster_id.as_ref().map(|id| id.cluster_id.clone()).unwrap_or_default(),
            servers: status.live_servers.iter().map(ServerMetrics::of).collect(),
            dead_servers: servers(&status.dead_servers),
            master: status.master.as_ref().map(Into::into),
            backup_masters: servers(&status.backup_masters),
            master_coprocessors: status.master_coprocessors.iter().map(|c| c.name.clone()).collect(),
            regions_in_transition: status.regions_in_transition.iter().map(transition).collect(),
            balancer_on: status.balancer_on,
            master_info_port: status.master_info_port(),
            server_names: servers(&status.servers_name),
            tables,
            master_tasks: status
                .master_tasks
                .iter()
                .map(|t| (t.description.clone(), t.status.clone()))
                .collect(),
            unknown_servers: servers(&status.unknown_servers),
        })
    }

    /// The servers that report to the master.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn live_servers(&self) -> Result<Vec<ServerName>> {
        Ok(self.cluster_metrics(&[ClusterOption::ServersName]).await?.server_names)
    }

    async fn cluster_status_of(&self, parts: &[ClusterOption]) -> Result<pb::ClusterStatus> {
        let options = parts.iter().map(|part| *part as i32).collect();
        let request = pb::GetClusterStatusRequest { options };
        let response: pb::GetClusterStatusResponse = self.call("GetClusterStatus", &request).await?;
        Ok(response.cluster_status)
    }
}

fn transition(region: &pb::RegionInTransition) -> (String, String) {
    let name = String::from_utf8_lossy(&region.spec.value).into_owned();
    (name, region.region_state.state().as_str_name().to_owned())
}
