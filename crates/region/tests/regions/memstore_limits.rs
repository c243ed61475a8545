//! How much a region keeps in memory before it requests a flush, and before it refuses writes.

use evenkeel_common::{ErrorKind, Result};

use crate::harness::Cluster;

const FLUSH_BYTES: u64 = 1 << 20;
/// `hbase.hregion.memstore.block.multiplier`, unless it is set.
const BLOCK_MULTIPLIER: u64 = 4;
/// A cell of [`write()`] takes less.
const CELL_BYTES_MAX: u64 = 5000;

fn region_from(start: &'static [u8]) -> Cluster {
    let mut cluster = Cluster::of_rows(&[(b"f", 1)], start, b"");
    cluster.alter(&[("MEMSTORE_FLUSHSIZE", &FLUSH_BYTES.to_string())]);
    cluster.restart();
    cluster
}

fn write(cluster: &Cluster) -> Result<()> {
    cluster.put("z", "f", "q", &"x".repeat(4096))
}

fn bytes(cluster: &Cluster) -> u64 {
    cluster.region().memstore_size().heap_bytes
}

#[test]
fn a_region_over_its_memstore_limit_refuses_writes_until_flushed() {
    let cluster = region_from(b"");
    let limit = BLOCK_MULTIPLIER * FLUSH_BYTES;
    let error = (0..=limit / 4096).find_map(|_| write(&cluster).err()).expect("a limit");
    assert_eq!(error.kind(), ErrorKind::RegionTooBusy);
    assert!(error.message().contains("Over memstore limit=4194304"), "{error}");
    let held = bytes(&cluster);
    assert!((limit + 1..=limit + CELL_BYTES_MAX).contains(&held), "{held}, and the limit is {limit}");
    write(&cluster).expect_err("as long as it is full");
    assert_eq!(bytes(&cluster), held, "nothing of a write that is refused is kept");
    assert_eq!(cluster.row("z").len(), 1, "reads go on");
    cluster.region().flush().expect("flushed");
    write(&cluster).expect("there is room again");
}

/// Returns how much the region holds when it first requests a flush.
fn wants_to_flush_at(cluster: &Cluster) -> u64 {
    while !cluster.region().needs_flush() {
        write(cluster).expect("written");
    }
    bytes(cluster)
}

#[test]
fn regions_opened_together_do_not_flush_together() {
    let starts: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"];
    let mut at: Vec<_> = starts
        .into_iter()
        .map(|start| {
            let cluster = region_from(start);
            let first = wants_to_flush_at(&cluster);
            assert!((FLUSH_BYTES * 3 / 4..FLUSH_BYTES + CELL_BYTES_MAX).contains(&first), "{first}");
            cluster.region().flush().expect("flushed");
            let later = wants_to_flush_at(&cluster);
            assert!((FLUSH_BYTES..FLUSH_BYTES + CELL_BYTES_MAX).contains(&later), "{later}: once is enough");
            first
        })
        .collect();
    at.sort_unstable();
    at.dedup();
    // Two may be closer to each other than the size of a cell.
    assert!(at.len() >= 6, "{at:?}");
    assert!(at[at.len() - 1] - at[0] > FLUSH_BYTES / 8, "{at:?}");
}
