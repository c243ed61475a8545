//! Writers that push faster than the disk accepts: memory stays within its budget, replies are
//! delayed but arrive, and no writer is rejected.
//!
//! The bounds:
//!
//! - chunks of MemStores: `global_memstore_bytes`, and for each region the rest of a chunk that is
//!   being written and of one that is being flushed
//! - the log's queue: two buffers of `WalConfig::queue_bytes_max`: one being filled, one being
//!   written
//!
//! The test runs over memory in place of a disk, without sockets. A whole server with all its parts
//! is in `tests/memory/memory_budget.rs` of the crate `evenkeel`.
//!
//! `EVENKEEL_BUDGET_SECONDS=300 cargo test -p evenkeel-regionserver --lib --release budget --
//! --nocapture` runs the long form, and prints its figures.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::TableDescriptor;
use evenkeel_fs::{Fault, FaultyFileSystem, FileSystem, MemoryFileSystem, Op};
use evenkeel_protocol::pb::mutation_proto::MutationType;
use evenkeel_region::memstore::CHUNK_BYTES;
use evenkeel_region::region::Region;
use evenkeel_wal::WalConfig;
use parking_lot::Mutex;

use super::reads_and_writes::{request, write};
use crate::RegionServerConfig;
use crate::background::chore::Chore;
use crate::limits::write_throttle::HOLD_MAX;
use crate::testing::*;

const REGIONS: usize = 6;
/// The number of writers of each region: the regions have very different loads.
const WRITERS_OF_REGION: [usize; REGIONS] = [6, 3, 2, 1, 1, 1];
const GLOBAL_BYTES: u64 = 48 << 20;
const QUEUE_BYTES: usize = 4 << 20;
const VALUE_BYTES: usize = 1000;
const CELLS_PER_PUT: usize = 20;
/// Rows of a region: few, so that compactions keep the files small.
const ROWS: u64 = 200;
/// The time to write a block of a file: about 8 MB/s for each thread that writes one.
const BLOCK_TIME: Duration = Duration::from_millis(8);
/// The longest hold, which no call comes near on a quiet machine.
const P99_MAX: Duration = HOLD_MAX;

const ROW_NAMES: [&[u8]; REGIONS] = [b"a", b"b", b"c", b"d", b"e", b"f"];
const ENDS: [&[u8]; REGIONS] = [b"b", b"c", b"d", b"e", b"f", b""];

struct Load {
    server: TestServer,
    stop: AtomicBool,
    latencies: Mutex<Vec<Duration>>,
    refused: AtomicUsize,
}

impl Load {
    fn new(fs: &FaultyFileSystem) -> (Self, Vec<Arc<Region>>) {
        let config = RegionServerConfig {
            global_memstore_bytes: GLOBAL_BYTES,
            // HBase's default: 5 % of such a small limit is full long before a flush has ended.
            global_memstore_low_bytes: GLOBAL_BYTES / 100 * 95,
            ..RegionServerConfig::default()
        };
        // Small WAL files, which are archived as regions are flushed, and which the test deletes.
        let wal = WalConfig { queue_bytes_max: QUEUE_BYTES, roll_bytes: 8 << 20, ..WalConfig::default() };
        let server = TestServer::over(Arc::new(fs.clone()), config, wal);
        let table: TableDescriptor = table();
        let starts = [&b""[..], b"b", b"c", b"d", b"e", b"f"];
        let regions = (0..REGIONS).map(|n| server.open(starts[n], ENDS[n], table.clone())).collect();
        let load = Self {
            server,
            stop: AtomicBool::new(false),
            latencies: Mutex::default(),
            refused: AtomicUsize::new(0),
        };
        (load, regions)
    }

    fn write(&self, region: &Arc<Region>, name: &'static [u8], writer: u64) {
        let put = request(region, MutationType::Put, name);
        let mut put = put;
        put.mutation.associated_cell_count = Some(CELLS_PER_PUT as i32);
        let mut n = writer;
        while !self.stop.load(Ordering::Relaxed) {
            n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(writer + 1);
            let row = [name, format!("{:05}", (n >> 32) % ROWS).as_bytes()].concat();
            put.mutation.row = Some(row.clone().into());
            let value = vec![n as u8; VALUE_BYTES];
            let cells: Vec<_> =
                (0..CELLS_PER_PUT).map(|at| cell(&row, format!("q{at:02}").as_bytes(), &value)).collect();
            let started = Instant::now();
            let outcome = write(&self.server, &put, &cells, caller());
            let took = started.elapsed();
            self.latencies.lock().push(took);
            if outcome.is_err() {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn chunk_bytes(&self) -> usize {
        self.server.env.stores.chunks.out_bytes()
    }
}

/// Deletes files that no reader needs, as the master's cleaners do.
fn clean(fs: &MemoryFileSystem) {
    for entry in fs.list(Path::new("/hbase/oldWALs")).unwrap_or_default() {
        fs.delete(&entry.path).expect("deleted");
    }
    fs.delete(Path::new("/hbase/archive")).expect("deleted");
}

#[test]
fn writers_faster_than_the_disk_slow_down_within_budget() {
    let seconds =
        std::env::var("EVENKEEL_BUDGET_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(15);
    let memory = MemoryFileSystem::new();
    let fs = FaultyFileSystem::new(memory.clone());
    fs.inject(Fault::on(Op::Append, "/.tmp/").always().delays(BLOCK_TIME));
    let (load, regions) = Load::new(&fs);
    let chore = Chore::start(&load.server.server).expect("a thread");
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut chunks_max = 0;
    std::thread::scope(|scope| {
        for (at, region) in regions.iter().enumerate() {
            for writer in 0..WRITERS_OF_REGION[at] {
                let load = &load;
                scope.spawn(move || load.write(region, ROW_NAMES[at], (at * 10 + writer) as u64));
            }
        }
        while Instant::now() < until {
            for _ in 0..100 {
                chunks_max = chunks_max.max(load.chunk_bytes());
                std::thread::sleep(Duration::from_millis(2));
            }
            clean(&memory);
        }
        load.stop.store(true, Ordering::Relaxed);
    });
    drop(chore);
    fs.clear();
    let mut latencies = load.latencies.lock().clone();
    latencies.sort_unstable();
    let part = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    let held = load.server.server.background().write_throttle().count();
    let refused = load.refused.load(Ordering::Relaxed);
    let budget = GLOBAL_BYTES as usize + 2 * REGIONS * CHUNK_BYTES;
    let (queue_max, queue_budget) = (load.server.env.wal.stats().queue_bytes_peak, 2 * QUEUE_BYTES);
    let files: Vec<_> = regions.iter().map(|region| region.load().store_files).collect();
    println!(
        "{seconds} s: {} puts of {} bytes, {held} held, {refused} refused; chunks at most {chunks_max} of {budget}, \
         the log's queue {queue_max} of {queue_budget}; \
         P50 {:?}, P99 {:?}, P99.9 {:?}, longest {:?}; files {files:?}",
        latencies.len(),
        CELLS_PER_PUT * VALUE_BYTES,
        part(0.5),
        part(0.99),
        part(0.999),
        part(1.0),
    );
    assert!(
        latencies.len() * CELLS_PER_PUT * VALUE_BYTES > 2 * GLOBAL_BYTES as usize,
        "the limit was not tried"
    );
    assert!(held > 0, "nobody was slowed down");
    assert_eq!(refused, 0, "of {}", latencies.len());
    assert!(chunks_max <= budget, "{chunks_max} bytes of chunks, {budget} allowed");
    assert!(queue_max > VALUE_BYTES && queue_max <= queue_budget, "{queue_max} bytes of the log's queue");
    assert!(part(0.99) <= P99_MAX, "{:?}", part(0.99));
}
