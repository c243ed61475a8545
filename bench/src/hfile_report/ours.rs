//! Our side of the commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use evenkeel_block_cache::{BlockCache, LruBlockCache, NoCache};
use evenkeel_common::clock::{Clock, SystemClock};
use evenkeel_common::{ColumnFamilyDescriptor, KeyBuf, KeyValue, RegionInfo, TableName, TryError};
use evenkeel_fs::{FileSystem, LocalFileSystem, LocalHost};
use evenkeel_hfile::{
    Compression, DataBlockEncoding, HFileContext, HFileReader, HFileWriter, OpenOptions, ScanOptions,
    StoreFileMeta,
};
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::store::{Store, StoreConfig, StoreEnv};

use super::data::{CellGenerator, FAMILY, row};
use super::{Cost, Implementation, Outcome};

const CACHE_BYTES: usize = 1 << 30;

/// Our implementation, in this process.
#[derive(Default)]
pub(super) struct Ours {
    /// Kept between commands.
    cells: Vec<KeyValue>,
}

impl Implementation for Ours {
    fn name(&self) -> &'static str {
        "Evenkeel"
    }

    fn run(&mut self, command: &str) -> Outcome<Cost> {
        let words: Vec<&str> = command.split(' ').collect();
        match words[..] {
            ["write", path, encoding, codec, cells, times] => {
                self.write(Path::new(path), &context(encoding, codec)?, cells.parse()?, times.parse()?)
            }
            ["read", path, times] => read(Path::new(path), times.parse()?),
            ["seek", path, seeks] => seek(Path::new(path), seeks.parse()?),
            ["open", path, times] => open(Path::new(path), times.parse()?),
            ["grow", path, first, second] => {
                grow(Path::new(path), first.parse::<u64>()? << 20, second.parse::<u64>()? << 20)
            }
            ["compact", root] => compact(Path::new(root)),
            ["checksum", bytes] => Ok(checksum(bytes.parse()?)),
            _ => Err(format!("no such command: {command}").into()),
        }
    }
}

impl Ours {
    fn write(&mut self, path: &Path, context: &HFileContext, count: usize, times: u64) -> Outcome<Cost> {
        if self.cells.len() != count {
            let mut stream = CellGenerator::new();
            self.cells = (0..count as u64).map(|i| stream.cell(i)).collect();
        }
        let fs = LocalFileSystem::new();
        let meter = CostTimer::new();
        let mut bytes = 0;
        for _ in 0..times {
            fs.delete(path)?;
            let mut writer = HFileWriter::create(&fs, path, context.clone())?;
            for cell in &self.cells {
                writer.append(&cell.as_cell())?;
                bytes += cell.bytes_len() as u64;
            }
            writer.finish(meta(77))?;
        }
        Ok(meter.done(count as u64 * times, bytes))
    }
}

fn meta(max_seq_id: u64) -> StoreFileMeta {
    StoreFileMeta { max_seq_id: Some(max_seq_id), ..StoreFileMeta::default() }
}

fn context(encoding: &str, codec: &str) -> Outcome<HFileContext> {
    Ok(HFileContext {
        encoding: DataBlockEncoding::from_name(encoding).ok_or("no such encoding")?,
        compression: Compression::from_name(codec).ok_or("no such codec")?,
        zstd_framed: true,
        ..HFileContext::default()
    })
}

pub(super) fn reader(path: &Path, cache: Arc<dyn BlockCache>) -> Outcome<Arc<HFileReader>> {
    Ok(HFileReader::open_path(&LocalFileSystem::new(), path, cache, &OpenOptions::default())?)
}

fn read(path: &Path, times: u64) -> Outcome<Cost> {
    let meter = CostTimer::new();
    let (mut count, mut bytes) = (0, 0);
    for _ in 0..times {
        let reader = reader(path, Arc::new(NoCache))?;
        let options =
            ScanOptions { cache_blocks: false, pread: false, is_compaction: false, ..ScanOptions::default() };
        let mut scanner = reader.scanner(options);
        let mut more = scanner.seek_to_first().map_err(TryError::into_failure)?;
        while more {
            count += 1;
            bytes += scanner.cell().map_or(0, |cell| cell.key_value_len() as u64);
            more = scanner.next().map_err(TryError::into_failure)?;
        }
    }
    Ok(meter.done(count, bytes))
}

fn seek(path: &Path, seeks: usize) -> Outcome<Cost> {
    let reader = reader(path, Arc::new(LruBlockCache::new(CACHE_BYTES)))?;
    let mut scanner = reader.scanner(ScanOptions::default());
    let mut more = scanner.seek_to_first().map_err(TryError::into_failure)?;
    while more {
        more = scanner.next().map_err(TryError::into_failure)?;
    }
    let rows = reader.entry_count().div_ceil(3);
    let mut random = CellGenerator::new();
    let keys: Vec<KeyBuf> =
        (0..seeks).map(|_| KeyBuf::first_on_row(row(random.next() % rows).as_bytes())).collect();
    let mut bytes = 0;
    let meter = CostTimer::new();
    for key in &keys {
        if scanner.seek(&key.as_cell()).map_err(TryError::into_failure)? {
            bytes += scanner.cell().map_or(0, |cell| cell.key_value_len() as u64);
        }
    }
    Ok(meter.done(seeks as u64, bytes))
}

fn open(path: &Path, times: usize) -> Outcome<Cost> {
    let meter = CostTimer::new();
    let mut bytes = 0;
    for _ in 0..times {
        bytes = reader(path, Arc::new(NoCache))?.len();
    }
    Ok(meter.done(times as u64, bytes))
}

fn grow(path: &Path, first: u64, second: u64) -> Outcome<Cost> {
    let fs = LocalFileSystem::new();
    fs.delete(path)?;
    let meter = CostTimer::new();
    let mut writer = HFileWriter::create(&fs, path, context("FAST_DIFF", "NONE")?)?;
    let (mut stream, mut bytes, mut count, mut at_first) = (CellGenerator::new(), 0, 0, 0);
    while bytes < second {
        let cell = stream.cell(count);
        writer.append(&cell.as_cell())?;
        count += 1;
        bytes += cell.bytes_len() as u64;
        if at_first == 0 && bytes >= first {
            at_first = resident_kib()?;
        }
    }
    let at_second = resident_kib()?;
    writer.finish(meta(77))?;
    Ok(Cost { resident_kib: (at_first, at_second), ..meter.done(count, bytes) })
}

fn resident_kib() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// The region and family of the files to compact, as HBase's side creates them.
pub(super) fn region() -> Outcome<(RegionInfo, ColumnFamilyDescriptor)> {
    let table = TableName::new("default", "speed")?;
    Ok((
        RegionInfo::new(table, Default::default(), Default::default(), 1),
        ColumnFamilyDescriptor::new(FAMILY)?,
    ))
}

/// The directory of those files.
pub(super) fn family_dir(root: &Path) -> Outcome<PathBuf> {
    let (region, family) = region()?;
    Ok(root.join("data/default/speed").join(region.encoded_name()).join(&*family.name_text()))
}

/// Compacts a store as `evenkeel compact --major` does.
fn compact(root: &Path) -> Outcome<Cost> {
    let (region, family) = region()?;
    let env = StoreEnv {
        host: LocalHost::default(),
        fs: Arc::new(LocalFileSystem::new()) as Arc<dyn FileSystem>,
        root: root.to_owned(),
        cache: Arc::new(NoCache),
        clock: Arc::new(SystemClock) as Arc<dyn Clock>,
        chunks: ChunkPool::new(0),
        config: StoreConfig::default(),
        compaction_throughput: Arc::default(),
        metrics: Arc::default(),
        open_files: Arc::default(),
        mob: Arc::default(),
        archived_files: Arc::default(),
    };
    let meter = CostTimer::new();
    let store = Store::open(&env, family, &region)?;
    let request = store.select_compaction(true).ok_or("nothing to compact")?;
    let bytes = request.bytes();
    let result = store.compact(&request, u64::MAX)?;
    store.commit_compaction(request, &result)?;
    store.close(true)?;
    Ok(meter.done(result.cells, bytes))
}

/// Computes the checksums of a block repeatedly.
fn checksum(bytes: u64) -> Cost {
    let mut block = vec![0; 64 << 10];
    CellGenerator::new().fill(&mut block);
    let (mut done, mut sum) = (0, 0);
    let meter = CostTimer::new();
    while done < bytes {
        for chunk in block.chunks(16 << 10) {
            sum ^= crc_fast::crc32_iscsi(std::hint::black_box(chunk));
        }
        done += block.len() as u64;
    }
    std::hint::black_box(sum);
    meter.done(done, done)
}

/// Measures the cost of work since its creation.
struct CostTimer {
    start: Instant,
    cpu_s: f64,
}

impl CostTimer {
    fn new() -> Self {
        Self { start: Instant::now(), cpu_s: cpu_s() }
    }

    fn done(&self, items: u64, bytes: u64) -> Cost {
        let (cpu_s, wall_s) = (cpu_s() - self.cpu_s, self.start.elapsed().as_secs_f64());
        Cost { items, bytes, wall_s, cpu_s, resident_kib: (0, 0) }
    }
}

/// User and system seconds of this process.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
