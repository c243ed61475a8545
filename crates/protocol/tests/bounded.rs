//! The memory of messages while they are decoded: at most three times the budget taken,
//! whichever of their fields is repeated.

#![allow(missing_docs, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use evenkeel_protocol::{DecodeBudget, decode, pb};
use prost::Message;

/// Counts the bytes allocated now, and their maximum.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let now = NOW.fetch_add(size, Ordering::Relaxed) + size - layout.size();
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ELEMENTS: usize = 4000;
const ALLOWANCE: u64 = 1 << 30;
/// Memory of decoding that does not depend on elements.
const SLACK_BYTES: usize = 64 << 10;

/// A length-delimited field.
fn field(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag << 3 | 2];
    prost::encoding::encode_varint(payload.len() as u64, &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// The peak memory of decoding, and the budget it takes.
fn peak_and_taken<M: Message + Default>(bytes: &Bytes, budget: u64) -> (usize, u64) {
    let mut none = || None;
    let mut allowance_left = DecodeBudget::new(budget, &mut none);
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    drop(decode::<M>(bytes.clone(), &mut allowance_left));
    (PEAK.load(Ordering::Relaxed) - before, budget - allowance_left.left())
}

/// Every length-delimited field of messages down to the third level, repeated many times and empty.
fn check<M: Message + Default>(name: &str) {
    let mut worst = 0.0;
    for outer in 0..9u8 {
        for middle in 0..9u8 {
            for inner in 1..12u8 {
                let many = [inner << 3 | 2, 0].repeat(ELEMENTS);
                let nested = if middle == 0 { many } else { field(middle, &many) };
                let whole = Bytes::from(if outer == 0 { nested } else { field(outer, &nested) });
                let (peak, taken) = peak_and_taken::<M>(&whole, ALLOWANCE);
                if taken > 1 << 18 {
                    worst = f64::max(worst, peak as f64 / taken as f64);
                }
                assert!(
                    peak <= 3 * taken as usize + SLACK_BYTES,
                    "{name} {outer}.{middle}.{inner}: {peak} bytes for {taken}"
                );
                let (peak, _) = peak_and_taken::<M>(&whole, taken / 10);
                assert!(
                    peak <= 3 * taken as usize / 10 + SLACK_BYTES,
                    "{name} {outer}.{middle}.{inner}: {peak} bytes for a tenth of {taken}"
                );
            }
        }
    }
    println!("{name}: {worst:.2} times what was taken at most");
}

// There is only one test: the peak is that of the process.
#[test]
fn no_message_exceeds_three_times_its_charge() {
    check::<pb::GetRequest>("Get");
    check::<pb::MutateRequest>("Mutate");
    check::<pb::ScanRequest>("Scan");
    check::<pb::CoprocessorServiceRequest>("ExecService");
    check::<pb::MutateRowsRequest>("MutateRows");
    check::<pb::AggregateRequest>("Aggregate");
    check::<pb::BulkLoadHFileRequest>("BulkLoadHFile");
    check::<pb::PrepareBulkLoadRequest>("PrepareBulkLoad");
    check::<pb::FilterList>("FilterList");
    check::<pb::MultiRowRangeFilter>("MultiRowRangeFilter");
    check::<pb::FuzzyRowFilter>("FuzzyRowFilter");
    check::<pb::CreateTableRequest>("CreateTable");
    check::<pb::ModifyTableRequest>("ModifyTable");
    check::<pb::GetTableDescriptorsRequest>("GetTableDescriptors");
    check::<pb::GetTableNamesRequest>("GetTableNames");
    check::<pb::SplitTableRegionRequest>("SplitTableRegion");
    check::<pb::MergeTableRegionsRequest>("MergeTableRegions");
    check::<pb::SnapshotRequest>("Snapshot");
    check::<pb::RestoreSnapshotRequest>("RestoreSnapshot");
    check::<pb::GetClusterStatusRequest>("GetClusterStatus");
    check::<pb::ExecuteProceduresRequest>("ExecuteProcedures");
    check::<pb::OpenRegionRequest>("OpenRegion");
    check::<pb::ConnectionHeader>("ConnectionHeader");
    check::<pb::RequestHeader>("RequestHeader");
}
