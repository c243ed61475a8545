//! Measures appends and syncs on the local file system, and what a roll costs those who append meanwhile.
//!
//! ```text
//! wal_bench <directory> [value bytes]
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::clock::SystemClock;
use evenkeel_common::{KeyValue, Result, TableName};
use evenkeel_fs::{FileSystem, LocalFileSystem};
use evenkeel_wal::{NoListener, SyncLevel, Wal, WalConfig, WalKey, WalOptions};

/// Bytes of a file that is not rolled while it is measured, and of one that is, many times a second.
const SELDOM: u64 = 1 << 40;
const OFTEN: u64 = 512 << 10;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "/tmp/wal_bench".into());
    let value_bytes = args.next().and_then(|n| n.parse().ok()).unwrap_or(100);
    for inline_sync in [true, false] {
        for (threads, level) in
            [(1, SyncLevel::Flush), (8, SyncLevel::Flush), (1, SyncLevel::Sync), (8, SyncLevel::Sync)]
        {
            measure(Path::new(&dir), value_bytes, inline_sync, threads, level, SELDOM)?;
        }
    }
    for threads in [1, 8] {
        measure(Path::new(&dir), value_bytes, true, threads, SyncLevel::None, SELDOM)?;
    }
    for (threads, level) in
        [(1, SyncLevel::Flush), (8, SyncLevel::Flush), (1, SyncLevel::Sync), (8, SyncLevel::Sync)]
    {
        for roll_bytes in [SELDOM, OFTEN] {
            measure(Path::new(&dir), value_bytes, true, threads, level, roll_bytes)?;
        }
    }
    Ok(())
}

fn measure(
    dir: &Path,
    value_bytes: usize,
    inline_sync: bool,
    threads: u64,
    level: SyncLevel,
    roll_bytes: u64,
) -> Result<()> {
    let fs = Arc::new(LocalFileSystem::new());
    let wal_dir = dir.join("WALs/h,1,1");
    fs.mkdirs(&wal_dir)?;
    let wal = Wal::open(WalOptions {
        fs: Arc::clone(&fs) as Arc<dyn FileSystem>,
        wal_dir,
        old_dir: dir.join("oldWALs"),
        prefix: "h%2C1%2C1".into(),
        suffix: String::new(),
        config: WalConfig { inline_sync, roll_bytes, ..WalConfig::default() },
        clock: Arc::new(SystemClock),
        listener: Arc::new(NoListener),
    })?;
    let (started, cpu) = (Instant::now(), cpu_us());
    let length = Duration::from_secs(2);
    let mut latencies: Vec<u32> = std::thread::scope(|scope| {
        let of_thread = |thread| {
            let wal = &wal;
            scope.spawn(move || appends(wal, thread, value_bytes, level, started, length))
        };
        let running: Vec<_> = (0..threads).map(of_thread).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    let (elapsed, cpu) = (started.elapsed().as_secs_f64(), cpu_us() - cpu);
    latencies.sort_unstable();
    let at = |quantile: f64| f64::from(latencies[(latencies.len() as f64 * quantile) as usize]) / 1000.0;
    let (entries, stats) = (latencies.len() as f64, wal.stats());
    println!(
        "{level:?} threads={threads} inline={inline_sync}: {:.0}/s p50={:.1}us p99={:.1}us p99.9={:.1}us max={:.0}us cpu={:.2}us \
         entries/commit={:.1} inline={:.0}% rolls={}",
        entries / elapsed,
        at(0.5),
        at(0.99),
        at(0.999),
        latencies.last().map_or(0.0, |last| f64::from(*last) / 1000.0),
        cpu / entries,
        entries / stats.commits.max(1) as f64,
        100.0 * stats.inline_commits as f64 / stats.commits.max(1) as f64,
        stats.rolls
    );
    wal.close()?;
    fs.delete(dir)?;
    Ok(())
}

fn appends(
    wal: &Wal,
    thread: u64,
    value_bytes: usize,
    level: SyncLevel,
    started: Instant,
    length: Duration,
) -> Vec<u32> {
    let region = Bytes::from(format!("{thread:032x}"));
    let table: TableName = "usertable".parse().unwrap_or_else(|_| TableName::meta());
    let cell =
        KeyValue::put(b"user1234567890123456", b"f", b"field0", 1_700_000_000_000, &vec![b'v'; value_bytes]);
    let mut latencies = Vec::with_capacity(2_000_000);
    while started.elapsed() < length {
        for _ in 0..16 {
            let start = Instant::now();
            let key = WalKey::new(&region, &table, latencies.len() as u64 + 1, 1_700_000_000_000);
            let synced = wal
                .append_cells(&key, std::iter::once(cell.as_cell()))
                .and_then(|txid| if level == SyncLevel::None { Ok(()) } else { wal.sync(txid, level) });
            if let Err(error) = synced {
                eprintln!("{error}");
                return latencies;
            }
            latencies.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
    }
    latencies
}

/// Processor time of this process, ended threads included, in microseconds; the kernel counts ticks of 10 ms.
fn cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() * 10_000.0
}
