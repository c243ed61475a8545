//! Sizes and counts for reports: RegionLoad and ServerLoad.

use evenkeel_common::length;
use std::sync::Arc;

use evenkeel_protocol::pb;
use evenkeel_region::region::{Region, RegionCount, RegionLoad};

use crate::RegionServer;
use crate::background::CompactionState;
use crate::cached_regions::CachedBytes;
use crate::convert;
use crate::coprocessor::{BuiltIn, Coprocessors};
use crate::metrics::jvm;
use crate::tasks;

/// Returns a region's report (`HRegionServer.createRegionLoad`), of which the cache holds
/// `cached_bytes`. Sizes are in whole MiB or KiB. A nonzero size counts as at least 1, so that a
/// small region does not look empty.
pub fn region_load(region: &Region, compaction: CompactionState, cached_bytes: u64) -> pb::RegionLoad {
    let load = region.load();
    let cached_ratio = match mib(load.hfile_bytes) {
        0 => 0.0,
        region_mib => mib(cached_bytes) as f32 / region_mib as f32,
    };
    pb::RegionLoad {
        region_specifier: convert::region::specifier(region.info()),
        stores: Some(length::must_u32(load.stores)),
        storefiles: Some(length::must_u32(load.store_files)),
        store_ref_count: Some(count_of(load.readers)),
        max_compacted_store_file_ref_count: Some(count_of(load.replaced_readers_max)),
        read_requests_count: Some(load.counts.get(RegionCount::Reads)),
        write_requests_count: Some(load.counts.get(RegionCount::Writes)),
        filtered_read_requests_count: Some(load.counts.get(RegionCount::FilteredReads)),
        total_compacting_k_vs: Some(load.compaction.cells),
        current_compacted_k_vs: Some(load.compaction.done),
        complete_sequence_id: Some(load.max_flushed_seq_id),
        store_complete_sequence_id: store_sequence_ids(region),
        last_major_compaction_ts: Some(u64::try_from(load.major_compaction_ms).unwrap_or(0)),
        compaction_state: Some(compaction as i32),
        current_region_cached_ratio: Some(cached_ratio),
        ..sizes(&load)
    }
}

/// Returns the size of a region's store files in MiB, as its report has it.
pub fn store_files_mib(region: &Region) -> u32 {
    mib(region.load().store_file_bytes)
}

/// Returns the sizes of a region, and the locality of its store files.
fn sizes(load: &RegionLoad) -> pb::RegionLoad {
    let blocks = &load.blocks_weight;
    pb::RegionLoad {
        store_uncompressed_size_mb: Some(mib(load.uncompressed_bytes)),
        storefile_size_mb: Some(mib(load.store_file_bytes)),
        mem_store_size_mb: Some(mib(load.memstore_bytes)),
        storefile_index_size_kb: Some(u64::from(kib(load.root_index_bytes))),
        root_index_size_kb: Some(kib(load.root_index_bytes)),
        total_static_index_size_kb: Some(kib(load.index_bytes)),
        total_static_bloom_size_kb: Some(kib(load.bloom_bytes)),
        region_size_mb: Some(mib(load.hfile_bytes)),
        data_locality: Some(blocks.locality()),
        data_locality_for_ssd: Some(blocks.locality_for_ssd()),
        blocks_local_weight: Some(blocks.local),
        blocks_local_with_ssd_weight: Some(blocks.local_with_ssd),
        blocks_total_weight: Some(blocks.total),
        ..pb::RegionLoad::default()
    }
}

fn store_sequence_ids(region: &Region) -> Vec<pb::StoreSequenceId> {
    let of_family = |(family, sequence_id): (Vec<u8>, u64)| pb::StoreSequenceId {
        family_name: family.into(),
        sequence_id,
    };
    region.flushed_seq_ids().into_iter().map(of_family).collect()
}

fn count_of(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Converts to whole units as HBase does (`roundSize`): rounded down, but not to 0.
fn units(bytes: u64, unit: u64) -> u32 {
    u32::try_from((bytes / unit).max(u64::from(bytes > 0))).unwrap_or(u32::MAX)
}

fn mib(bytes: u64) -> u32 {
    units(bytes, 1 << 20)
}

fn kib(bytes: u64) -> u32 {
    units(bytes, 1 << 10)
}

/// Returns the simple class names of the coprocessors that any of these regions has.
fn coprocessors(all: &Coprocessors, regions: &[Arc<Region>]) -> Vec<pb::Coprocessor> {
    let is_used = |built_in: &BuiltIn| regions.iter().any(|region| all.has(region.table(), *built_in));
    let used = BuiltIn::ALL.into_iter().filter(is_used);
    used.map(|built_in| pb::Coprocessor { name: built_in.simple_name().to_owned() }).collect()
}

impl RegionServer {
    /// Returns the cached bytes of regions, if the cache is persistent.
    pub fn cached_bytes(&self) -> Arc<CachedBytes> {
        self.cached_regions.read(&self.cache, &self.regions.all())
    }

    /// Returns the report of a region.
    pub fn region_load(&self, region: &Region, cached: &CachedBytes) -> pb::RegionLoad {
        let name = region.info().encoded_name();
        let cached_bytes = cached.get(name).copied().unwrap_or(0);
        region_load(region, self.background.compaction_state(name), cached_bytes)
    }

    /// Returns the server's report for the time from `start_ms` to `end_ms`.
    pub fn server_load(&self, start_ms: i64, end_ms: i64) -> pb::ServerLoad {
        let regions = self.regions.all();
        let cached = self.cached_bytes();
        let tasks = tasks::running(&regions, self.clock.now_ms());
        pb::ServerLoad {
            number_of_requests: Some(self.requests_per_second()),
            total_number_of_requests: Some(self.counters.total()),
            used_heap_mb: Some(mib(jvm::resident_bytes())),
            max_heap_mb: Some(mib(self.config.memory_bytes_max)),
            region_loads: regions.iter().map(|region| self.region_load(region, &cached)).collect(),
            coprocessors: coprocessors(&self.config.coprocessors, &regions),
            report_start_time: Some(start_ms as u64),
            report_end_time: Some(end_ms as u64),
            info_server_port: Some(u32::from(self.info_port)),
            repl_load_sink: Some(self.replication_sink()),
            user_loads: self.user_times.loads(),
            region_cached_info: cached.iter().map(|(region, bytes)| (region.clone(), mib(*bytes))).collect(),
            tasks: tasks.into_iter().map(Into::into).collect(),
            ..pb::ServerLoad::default()
        }
    }

    /// Returns the load of a replication sink that has applied no edits since the server started.
    fn replication_sink(&self) -> pb::ReplicationLoadSink {
        let started_ms = self.name.start_code.unsigned_abs();
        pb::ReplicationLoadSink {
            age_of_last_applied_op: 0,
            time_stamps_of_last_applied_op: started_ms,
            timestamp_started: Some(started_ms),
            total_ops_processed: Some(0),
        }
    }
}
