//! Sizes and counts for reports: RegionLoad and ServerLoad.

use evenkeel_common::length;
use std::sync::Arc;

use evenkeel_protocol::pb;
use evenkeel_region::region::Region;

use crate::RegionServer;
use crate::background::CompactionState;
use crate::convert;
use crate::coprocessor::{BuiltIn, Coprocessors};

/// A region's report. Sizes are in whole MiB, as HBase's fields say MB; anything that is there
/// counts as 1 at least, so that a small region does not look empty.
pub fn region_load(region: &Region, compaction: CompactionState) -> pb::RegionLoad {
    let load = region.load();
    let files_mib = mib(load.store_file_bytes);
    pb::RegionLoad {
        region_specifier: convert::region::specifier(region.info()),
        stores: Some(length::must_u32(load.stores)),
        storefiles: Some(length::must_u32(load.store_files)),
        store_uncompressed_size_mb: Some(files_mib),
        storefile_size_mb: Some(files_mib),
        mem_store_size_mb: Some(mib(load.memstore_bytes)),
        read_requests_count: Some(load.reads),
        write_requests_count: Some(load.writes),
        filtered_read_requests_count: Some(0),
        complete_sequence_id: Some(load.max_flushed_seq_id),
        last_major_compaction_ts: Some(region.last_major_compaction_ms() as u64),
        data_locality: Some(1.0),
        compaction_state: Some(compaction as i32),
        region_size_mb: Some(files_mib),
        ..pb::RegionLoad::default()
    }
}

fn mib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX)
}

/// The simple class names of the coprocessors that any of these regions has.
fn coprocessors(all: &Coprocessors, regions: &[Arc<Region>]) -> Vec<pb::Coprocessor> {
    let is_used = |built_in: &BuiltIn| regions.iter().any(|region| all.has(region.table(), *built_in));
    let used = BuiltIn::ALL.into_iter().filter(is_used);
    used.map(|built_in| pb::Coprocessor { name: built_in.simple_name().to_owned() }).collect()
}

impl RegionServer {
    /// The server's report of the time from `start_ms` to `end_ms`, in which `requests` came in.
    pub fn server_load(&self, start_ms: i64, end_ms: i64, requests: u64) -> pb::ServerLoad {
        let regions = self.regions.all();
        let report = |region: &Arc<Region>| {
            region_load(region, self.background.compaction_state(region.info().encoded_name()))
        };
        pb::ServerLoad {
            number_of_requests: Some(requests),
            total_number_of_requests: Some(self.counters.total()),
            used_heap_mb: Some(mib(regions.iter().map(|region| region.memstore_bytes()).sum())),
            max_heap_mb: Some(mib(self.config.global_memstore_bytes)),
            region_loads: regions.iter().map(report).collect(),
            coprocessors: coprocessors(&self.config.coprocessors, &regions),
            report_start_time: Some(start_ms as u64),
            report_end_time: Some(end_ms as u64),
            info_server_port: Some(u32::from(self.info_port)),
            ..pb::ServerLoad::default()
        }
    }
}
