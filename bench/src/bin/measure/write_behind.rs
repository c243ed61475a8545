//! The cost of a large file that is written and synced for a log on the same disk, by the size of
//! the pieces in which it is written behind, and the amount of dirty memory that waits for the disk
//! meanwhile.
//!
//! ```text
//! write_behind [directory [MiB of the file = 512 [MiB/s = 0, unlimited
//!              [rounds = 3 [KiB of a chunk = 0 1024 ...]]]]]
//! ```
//!
//! Each round takes the piece sizes in turn (0: no write-behind), once beside a log that is flushed
//! (`write(2)`, the default of writes) and once beside one that is synced, so that other load of
//! the machine affects all of them alike. The log appends 4 KiB and pauses for half a millisecond.
//! Time in which its thread waits for a core is not counted, so the tool also runs on a busy
//! machine; its figures are not reliable there, because the kernel's threads wait too.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_fs::{AppendFile, CreateOptions, FileSystem, LocalFileSystem};

use crate::{Outcome, number};

/// Bytes per append to the file, like the blocks of a store file.
const BLOCK_BYTES: usize = 64 << 10;
/// Bytes of a log entry.
const ENTRY_BYTES: usize = 4 << 10;
/// The pause between two entries.
const ENTRY_PAUSE: Duration = Duration::from_micros(500);
/// The pause between two readings of the machine's dirty memory.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// The pause before each round, in which earlier writes reach the disk.
const SETTLE: Duration = Duration::from_secs(2);

pub fn run(args: &[String]) -> Outcome {
    let dir = PathBuf::from(args.first().map_or("/tmp/write_behind", String::as_str));
    let (file_mib, mib_per_s, rounds) = (number(args, 1, 512)?, number(args, 2, 0)?, number(args, 3, 3)?);
    let pieces = args.iter().skip(4).map(|n| n.parse()).collect::<Result<Vec<u64>, _>>()?;
    let pieces = if pieces.is_empty() { vec![0, 1024] } else { pieces };
    LocalFileSystem::new().mkdirs(&dir)?;
    let mut sums: Vec<Sum> = [false, true]
        .into_iter()
        .flat_map(|synced| pieces.iter().map(move |&piece_kib| Sum { synced, piece_kib, ..Sum::default() }))
        .collect();
    for _ in 0..rounds {
        for sum in &mut sums {
            std::thread::sleep(SETTLE);
            Round { dir: &dir, file_mib, mib_per_s }.run(sum)?;
        }
    }
    sums.iter_mut().for_each(Sum::print);
    LocalFileSystem::new().delete(&dir)?;
    Ok(())
}

/// The results of all rounds of one configuration.
#[derive(Default)]
struct Sum {
    synced: bool,
    piece_kib: u64,
    /// Latency of log entries, in microseconds.
    entries_us: Vec<f64>,
    /// Per round: seconds to write the file, and of the sync at its end.
    file_s: Vec<f64>,
    sync_s: Vec<f64>,
    /// Per round: the maximum increase of dirty memory.
    unwritten_mib: Vec<f64>,
}

impl Sum {
    fn print(&mut self) {
        self.entries_us.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let rank = (self.entries_us.len() as f64 * part) as usize;
            self.entries_us.get(rank).or(self.entries_us.last()).copied().unwrap_or_default() / 1000.0
        };
        println!(
            "log {} piece {} KiB: {} entries p50={:.3}ms p99={:.3}ms p99.9={:.2}ms max={:.1}ms; file {:.2}s, its sync {:.3}s, \
             unwritten at most {:.0} MiB",
            if self.synced { "synced" } else { "flushed" },
            self.piece_kib,
            self.entries_us.len(),
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
            mean(&self.file_s),
            mean(&self.sync_s),
            self.unwritten_mib.iter().copied().fold(0.0, f64::max),
        );
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

struct Round<'a> {
    dir: &'a Path,
    file_mib: u64,
    /// 0 for unlimited.
    mib_per_s: u64,
}

impl Round<'_> {
    fn run(&self, sum: &mut Sum) -> io::Result<()> {
        let fs = LocalFileSystem::new().with_write_behind(sum.piece_kib << 10);
        let (log, file) = (self.dir.join("log"), self.dir.join("file"));
        let entries = fs.create(&log, CreateOptions::default())?;
        let store_file = fs.create(&file, CreateOptions::BULK)?;
        let is_over = AtomicBool::new(false);
        let before = unwritten_mib()?;
        let (appended, most, written) = std::thread::scope(|scope| {
            let appender = scope.spawn(|| append_entries(entries, sum.synced, &is_over));
            let looker = scope.spawn(|| most_unwritten(&is_over));
            let written = self.write(store_file);
            is_over.store(true, Ordering::Relaxed);
            (joined(appender.join()), joined(looker.join()), written)
        });
        let (file_s, sync_s) = written?;
        sum.file_s.push(file_s);
        sum.sync_s.push(sync_s);
        sum.entries_us.extend(appended?);
        sum.unwritten_mib.push(most? - before);
        fs.delete(&log)?;
        fs.delete(&file).map(drop)
    }

    /// Writes the file. Returns the seconds of the whole and of the sync at its end.
    fn write(&self, mut file: Box<dyn AppendFile>) -> io::Result<(f64, f64)> {
        let block: Vec<u8> = (0..BLOCK_BYTES).map(|i| (i * 31) as u8).collect();
        let started = Instant::now();
        while file.position() < self.file_mib << 20 {
            file.append(&block)?;
            if let Some(due_ms) = (file.position() / 1024 * 1000).checked_div(self.mib_per_s << 10) {
                std::thread::sleep(Duration::from_millis(due_ms).saturating_sub(started.elapsed()));
            }
        }
        let sync_started = Instant::now();
        file.sync()?;
        Ok((started.elapsed().as_secs_f64(), sync_started.elapsed().as_secs_f64()))
    }
}

fn joined<T>(result: std::thread::Result<io::Result<T>>) -> io::Result<T> {
    result.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// Appends to a log until `is_over`. Returns the latency of each entry in microseconds.
fn append_entries(mut log: Box<dyn AppendFile>, synced: bool, is_over: &AtomicBool) -> io::Result<Vec<f64>> {
    let entry = [7; ENTRY_BYTES];
    let mut took = Vec::new();
    let schedule = File::open("/proc/thread-self/schedstat")?;
    while !is_over.load(Ordering::Relaxed) {
        let (started, waited_us) = (Instant::now(), core_wait_us(&schedule)?);
        log.append(&entry)?;
        if synced {
            log.sync()?
        } else {
            log.flush()?
        }
        let waited_us = core_wait_us(&schedule)? - waited_us;
        took.push(started.elapsed().as_secs_f64() * 1e6 - waited_us);
        std::thread::sleep(ENTRY_PAUSE);
    }
    Ok(took)
}

/// The time that a thread was ready but did not run, in microseconds.
fn core_wait_us(schedule: &File) -> io::Result<f64> {
    let mut text = [0; 64];
    let len = schedule.read_at(&mut text, 0)?;
    let nanos = std::str::from_utf8(&text[..len]).ok().and_then(|text| text.split(' ').nth(1)?.parse().ok());
    nanos.map(|nanos: f64| nanos / 1000.0).ok_or_else(|| io::Error::other("no schedule"))
}

fn most_unwritten(is_over: &AtomicBool) -> io::Result<f64> {
    let mut most = 0.0_f64;
    while !is_over.load(Ordering::Relaxed) {
        most = most.max(unwritten_mib()?);
        std::thread::sleep(LOOK_PAUSE);
    }
    Ok(most)
}

/// Dirty memory and memory under writeback, of all files of the machine (`Dirty` and `Writeback`).
fn unwritten_mib() -> io::Result<f64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let kib = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()).unwrap_or_default()
    };
    Ok((kib("Dirty:") + kib("Writeback:")) / 1024.0)
}
