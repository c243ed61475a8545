//! `wal_appends [DIRECTORY [VALUE_BYTES]]`: appends and syncs on the local file system, and the
//! cost of a roll of the log for concurrent appends.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_bench::process_cpu;
use evenkeel_common::clock::SystemClock;
use evenkeel_common::{KeyValue, Result, TableName};
use evenkeel_fs::{FileSystem, LocalFileSystem};
use evenkeel_wal::{NoListener, SyncLevel, Wal, WalConfig, WalKey, WalOptions};

use crate::{Outcome, number};

/// A roll size that is never reached.
const SELDOM: u64 = 1 << 40;
/// The time of each measurement.
const LENGTH: Duration = Duration::from_secs(2);
/// The pause between the end of one roll and the next.
const ROLL_PAUSE: Duration = Duration::from_millis(20);

/// The configurations to measure: the number of appending threads, and the level of the syncs. Each
/// thread waits for its entries.
const WRITERS: [(u64, SyncLevel); 4] =
    [(1, SyncLevel::Flush), (8, SyncLevel::Flush), (1, SyncLevel::Sync), (8, SyncLevel::Sync)];

pub fn run(args: &[String]) -> Outcome {
    let dir = args.first().map_or("/tmp/wal_appends", String::as_str);
    let value_bytes = number(args, 1, 100)?;
    let bench = Bench { dir: Path::new(dir), value_bytes };
    for inline_sync in [true, false] {
        for (threads, level) in WRITERS {
            bench.appends(inline_sync, threads, level)?;
        }
    }
    for threads in [1, 8] {
        bench.appends(true, threads, SyncLevel::None)?;
    }
    for (threads, level) in WRITERS {
        bench.rolls(threads, level)?;
    }
    Ok(())
}

/// Start and end of an event, in nanoseconds since the measurement started.
#[derive(Clone, Copy)]
struct Span {
    from: u64,
    to: u64,
}

impl Span {
    fn us(&self) -> f64 {
        (self.to - self.from) as f64 / 1000.0
    }

    fn overlaps(&self, other: &Span) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// Percentiles of latencies.
struct Latencies(Vec<f64>);

impl Latencies {
    fn of<'a>(spans: impl Iterator<Item = &'a Span>) -> Self {
        let mut us: Vec<f64> = spans.map(Span::us).collect();
        us.sort_by(f64::total_cmp);
        Self(us)
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = |part: f64| self.0.get((self.0.len() as f64 * part) as usize).copied().unwrap_or_default();
        let max = self.0.last().copied().unwrap_or_default();
        write!(f, "p50={:.1}us p99={:.1}us p99.9={:.1}us max={max:.0}us", at(0.5), at(0.99), at(0.999))
    }
}

struct Bench<'a> {
    dir: &'a Path,
    value_bytes: usize,
}

impl Bench<'_> {
    fn open(&self, inline_sync: bool) -> Result<Arc<Wal>> {
        let fs = Arc::new(LocalFileSystem::new());
        let wal_dir = self.dir.join("WALs/h,1,1");
        fs.mkdirs(&wal_dir)?;
        Wal::open(WalOptions {
            fs: fs as Arc<dyn FileSystem>,
            wal_dir,
            old_dir: self.dir.join("oldWALs"),
            prefix: "h%2C1%2C1".into(),
            suffix: String::new(),
            config: WalConfig { inline_sync, roll_bytes: SELDOM, ..WalConfig::default() },
            clock: Arc::new(SystemClock),
            listener: Arc::new(NoListener),
        })
    }

    fn close(&self, wal: &Wal) -> Result<()> {
        wal.close()?;
        LocalFileSystem::new().delete(self.dir)?;
        Ok(())
    }

    /// Measures the cost of an append.
    fn appends(&self, inline_sync: bool, threads: u64, level: SyncLevel) -> Result<()> {
        let wal = self.open(inline_sync)?;
        let (started, cpu) = (Instant::now(), process_cpu());
        let (appends, ()) = self.load(&wal, threads, level, started, || ());
        let (elapsed, cpu) = (started.elapsed().as_secs_f64(), process_cpu() - cpu);
        let (entries, stats) = (appends.len() as f64, wal.stats());
        println!(
            "{level:?} threads={threads} inline={inline_sync}: {:.0}/s {} cpu={:.2}us entries/commit={:.1} inline={:.0}%",
            entries / elapsed,
            Latencies::of(appends.iter()),
            cpu.as_secs_f64() * 1e6 / entries,
            entries / stats.commits.max(1) as f64,
            100.0 * stats.inline_commits as f64 / stats.commits.max(1) as f64,
        );
        self.close(&wal)
    }

    /// Measures the time of a roll, and compares appends during rolls with other appends. A roll
    /// lasts until the first write to the new file; the old one's trailer and last sync follow in
    /// the background, and appends overlap those, too.
    fn rolls(&self, threads: u64, level: SyncLevel) -> Result<()> {
        let wal = self.open(true)?;
        let started = Instant::now();
        let roll = || {
            let (mut rolls, mut closings) = (Vec::new(), Vec::new());
            while started.elapsed() < LENGTH {
                std::thread::sleep(ROLL_PAUSE);
                let from = nanos(started);
                if let Err(error) = wal.roll() {
                    eprintln!("{error}");
                    break;
                }
                rolls.push(Span { from, to: nanos(started) });
                wal.wait_for_archiver();
                closings.push(Span { from, to: nanos(started) });
            }
            (rolls, closings)
        };
        let (appends, (rolls, closings)) = self.load(&wal, threads, level, started, roll);
        let meets = |append: &&Span| {
            let next = closings.partition_point(|closing| closing.to <= append.from);
            closings.get(next).is_some_and(|closing| closing.overlaps(append))
        };
        let (during, between): (Vec<&Span>, Vec<&Span>) = appends.iter().partition(meets);
        println!("{level:?} threads={threads}: {} rolls: {}", rolls.len(), Latencies::of(rolls.iter()));
        for (when, appends) in [("during rolls", during), ("between them", between)] {
            println!("    {} appends {when}: {}", appends.len(), Latencies::of(appends.into_iter()));
        }
        self.close(&wal)
    }

    /// Runs appending threads while `work` runs on this one.
    fn load<R>(
        &self,
        wal: &Wal,
        threads: u64,
        level: SyncLevel,
        started: Instant,
        beside: impl FnOnce() -> R,
    ) -> (Vec<Span>, R) {
        std::thread::scope(|scope| {
            let of_thread =
                |thread| scope.spawn(move || appends(wal, thread, self.value_bytes, level, started));
            let running: Vec<_> = (0..threads).map(of_thread).collect();
            let beside = beside();
            let appends = running.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect();
            (appends, beside)
        })
    }
}

fn nanos(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn appends(wal: &Wal, thread: u64, value_bytes: usize, level: SyncLevel, started: Instant) -> Vec<Span> {
    let region = Bytes::from(format!("{thread:032x}"));
    let table: TableName = "usertable".parse().unwrap_or_else(|_| TableName::meta());
    let cell =
        KeyValue::put(b"user1234567890123456", b"f", b"field0", 1_700_000_000_000, &vec![b'v'; value_bytes]);
    let mut spans = Vec::with_capacity(2_000_000);
    while started.elapsed() < LENGTH {
        for _ in 0..16 {
            let from = nanos(started);
            let key = WalKey::new(&region, &table, spans.len() as u64 + 1, 1_700_000_000_000);
            let synced = wal
                .append_cells(&key, std::iter::once(cell.as_cell()))
                .and_then(|txid| if level == SyncLevel::None { Ok(()) } else { wal.sync(txid, level) });
            if let Err(error) = synced {
                eprintln!("{error}");
                return spans;
            }
            spans.push(Span { from, to: nanos(started) });
        }
    }
    spans
}
