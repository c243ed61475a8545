//! The part of sub=Server about regions, their stores and their WALs.

use evenkeel_fs::BlocksWeight;
use evenkeel_metrics::Record;
use evenkeel_region::metrics::StoreMetrics;
use evenkeel_region::region::{FileAges, RegionCount};
use evenkeel_wal::Wal;

use super::{RegionReport, unsigned};

/// Sums over regions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub regions: u64,
    pub stores: u64,
    pub store_files: u64,
    pub store_files_max: u64,
    pub reference_files: u64,
    pub store_file_bytes: u64,
    pub root_index_bytes: u64,
    pub index_bytes: u64,
    pub bloom_bytes: u64,
    pub memstore_bytes: u64,
    pub memstore_heap_bytes: u64,
    pub ages: FileAges,
    pub reads: u64,
    pub filtered_reads: u64,
    pub writes: u64,
    pub unlogged_mutations: u64,
    pub unlogged_bytes: u64,
    pub checks_passed: u64,
    pub checks_failed: u64,
    pub blocked: u64,
    /// Blocks of the store files of regions with the replica id 0.
    pub primary_blocks: BlocksWeight,
    /// Blocks of the store files of other replicas of regions.
    pub secondary_blocks: BlocksWeight,
}

impl Sizes {
    pub fn of(reports: &[RegionReport]) -> Self {
        let mut sizes = Self::default();
        reports.iter().for_each(|report| sizes.add(report));
        sizes
    }

    pub fn add(&mut self, report: &RegionReport) {
        let (load, counts) = (&report.load, &report.load.counts);
        self.regions += 1;
        self.stores += load.stores as u64;
        self.store_files += load.store_files as u64;
        self.store_files_max = self.store_files_max.max(load.store_files_max as u64);
        self.reference_files += load.reference_files as u64;
        self.store_file_bytes += load.store_file_bytes;
        self.root_index_bytes += load.root_index_bytes;
        self.index_bytes += load.index_bytes;
        self.bloom_bytes += load.bloom_bytes;
        self.memstore_bytes += load.memstore_bytes;
        self.memstore_heap_bytes += load.memstore_heap_bytes;
        self.ages.add(&load.ages);
        self.reads += counts.get(RegionCount::Reads);
        self.filtered_reads += counts.get(RegionCount::FilteredReads);
        self.writes += counts.get(RegionCount::Writes);
        self.unlogged_mutations += load.unlogged_mutations;
        self.unlogged_bytes += load.unlogged_bytes;
        self.checks_passed += counts.get(RegionCount::ChecksPassed);
        self.checks_failed += counts.get(RegionCount::ChecksFailed);
        self.blocked += counts.get(RegionCount::Blocked);
        match report.region.info().replica_id() {
            0 => self.primary_blocks += load.blocks_weight,
            _ => self.secondary_blocks += load.blocks_weight,
        }
    }

    /// Returns the bytes of files and MemStores.
    pub fn bytes(&self) -> u64 {
        self.store_file_bytes + self.memstore_bytes
    }

    /// Returns the mean size of a region in bytes.
    pub fn mean_region_bytes(&self) -> u64 {
        self.bytes().checked_div(self.regions).unwrap_or(0)
    }
}

/// Appends regions, stores, logs, requests of regions, flushes, compactions and splits.
pub(super) fn append(record: &mut Record, sizes: &Sizes, metrics: &StoreMetrics, wals: &[&Wal]) {
    append_sizes(record, sizes);
    append_ages(record, &sizes.ages);
    append_locality(record, sizes);
    append_requests(record, sizes);
    append_logs(record, wals);
    metrics.server().append_to(record, "");
    metrics.server().append_cells_to(record);
}

fn append_sizes(record: &mut Record, sizes: &Sizes) {
    record
        .gauge("regionCount", "Number of regions", sizes.regions)
        .gauge("storeCount", "Number of Stores", sizes.stores)
        .gauge("storeFileCount", "Number of Store Files", sizes.store_files)
        .gauge("maxStoreFileCount", "Max store file count across all regions", sizes.store_files_max)
        .gauge("memStoreSize", "Size of the memstore", sizes.memstore_bytes)
        .gauge("memStoreHeapSize", "On-heap Size of the memstore", sizes.memstore_heap_bytes)
        .gauge("memStoreOffHeapSize", "Off-heap Size of the memstore", 0)
        .gauge("storeFileSize", "Size of storefiles being served.", sizes.store_file_bytes)
        .gauge(
            "averageRegionSize",
            "Average region size over the RegionServer including memstore and storefile sizes.",
            sizes.mean_region_bytes(),
        )
        .gauge("storeFileIndexSize", "Size of indexes in storefiles on disk.", sizes.root_index_bytes)
        .gauge("staticIndexSize", "Uncompressed size of the static indexes.", sizes.index_bytes)
        .gauge("staticBloomSize", "Uncompressed size of the static bloom filters.", sizes.bloom_bytes)
        .gauge("numReferenceFiles", "Number of reference file on this RegionServer", sizes.reference_files)
        .gauge(
            "mutationsWithoutWALCount",
            "Number of mutations that have been sent by clients with the write ahead logging turned off.",
            sizes.unlogged_mutations,
        )
        .gauge(
            "mutationsWithoutWALSize",
            "Size of data that has been sent by clients with the write ahead logging turned off.",
            sizes.unlogged_bytes,
        );
}

fn append_ages(record: &mut Record, ages: &FileAges) {
    let mut add = |name, description, ms| _ = record.gauge(name, description, unsigned(ms));
    add("maxStoreFileAge", "Max age of store files hosted on this RegionServer", ages.max_ms);
    add("minStoreFileAge", "Min age of store files hosted on this RegionServer", ages.min_ms);
    add("avgStoreFileAge", "Average age of store files hosted on this RegionServer", ages.mean_ms());
}

fn append_locality(record: &mut Record, sizes: &Sizes) {
    let mut all = sizes.primary_blocks;
    all += sizes.secondary_blocks;
    let mut add = |name, description, blocks: &BlocksWeight| {
        record.real(name, description, f64::from(blocks.locality() * 100.0));
    };
    add(
        "percentFilesLocal",
        "The percent of HFiles that are stored on the local hdfs data node. If not using region replicas, this should equal percentFilesLocalPrimaryRegions",
        &all,
    );
    add(
        "percentFilesLocalPrimaryRegions",
        "The percent of HFiles used by primary regions that are stored on the local hdfs data node. This is the category of locality that you want to reach 100% when using region replicas",
        &sizes.primary_blocks,
    );
    add(
        "percentFilesLocalSecondaryRegions",
        "The percent of HFiles used by secondary regions that are stored on the local hdfs data node. This is not likely to reach 100%",
        &sizes.secondary_blocks,
    );
}

fn append_requests(record: &mut Record, sizes: &Sizes) {
    record
        .counter(
            "totalRowActionRequestCount",
            "Total number of region requests this RegionServer has answered; counts by row-level action at the RPC Server (Sums 'readRequestsCount' and 'writeRequestsCount'); countsonce per access whether a Put of 1M rows or a Get that returns 1M Results",
            sizes.reads + sizes.writes,
        )
        .counter(
            "readRequestCount",
            "Number of read requests with non-empty Results that this RegionServer has answered.",
            sizes.reads,
        )
        .counter(
            "filteredReadRequestCount",
            "Number of read requests this region server has answered.",
            sizes.filtered_reads,
        )
        .counter(
            "writeRequestCount",
            "Number of mutation requests this RegionServer has answered.",
            sizes.writes,
        )
        .counter(
            "checkMutateFailedCount",
            "Number of Check and Mutate calls that failed the checks.",
            sizes.checks_failed,
        )
        .counter(
            "checkMutatePassedCount",
            "Number of Check and Mutate calls that passed the checks.",
            sizes.checks_passed,
        )
        .counter(
            "blockedRequestCount",
            "The number of blocked requests because of memstore size is larger than blockingMemStoreSize",
            sizes.blocked,
        );
}

fn append_logs(record: &mut Record, wals: &[&Wal]) {
    let (files, bytes) =
        wals.iter().map(|wal| wal.live_files()).fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    record.gauge("hlogFileCount", "Number of WAL Files", files as u64).gauge(
        "hlogFileSize",
        "Size of all WAL Files",
        bytes,
    );
}
