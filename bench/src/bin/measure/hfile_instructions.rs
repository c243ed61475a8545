//! `hfile_instructions write|read|seek ENCODING CODEC CELLS TIMES`: one operation, repeated, for a
//! profiler, in a temporary directory. Cells are made in advance; the operation is in the functions
//! `measured_*`:
//!
//! `valgrind --tool=callgrind --toggle-collect='*measured_read*' target/release/measure
//! hfile_instructions read DIFF NONE 20000 1`

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use evenkeel_bench::thread_cpu;
use evenkeel_block_cache::{LruBlockCache, NoCache};
use evenkeel_common::{KeyBuf, KeyValue, TryError};
use evenkeel_fs::{FileSystem, LocalFileSystem};
use evenkeel_hfile::{
    Compression, DataBlockEncoding, HFileContext, HFileReader, HFileScanner, HFileWriter, OpenOptions,
    ScanOptions, StoreFileMeta,
};

use crate::Outcome;
use crate::hfile_support::Random;

pub fn run(words: &[String]) -> Outcome {
    let [what, encoding, codec, count, times] = words else {
        return Err("write|read|seek ENCODING CODEC CELLS TIMES".into());
    };
    let context = HFileContext {
        encoding: DataBlockEncoding::from_name(encoding).ok_or("no such encoding")?,
        compression: Compression::from_name(codec).ok_or("no such codec")?,
        ..HFileContext::default()
    };
    let (cells, times) = (cells(count.parse()?), times.parse::<usize>()?);
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("file");
    measured_write(&path, &context, &cells)?;
    let run = |times: usize| match what.as_str() {
        "write" => (0..times).try_for_each(|_| measured_write(&path, &context, &cells)),
        "read" => (0..times).try_for_each(|_| measured_read(&path)),
        "seek" => seek(&path, &cells, times),
        _ => Err("no such thing".into()),
    };
    let start = thread_cpu();
    run(times)?;
    let nanos = (thread_cpu() - start).as_nanos() as f64 / (cells.len() * times) as f64;
    println!("{}: {nanos:.1} ns of CPU a cell or seek", words.join(" "));
    Ok(())
}

/// The cells of the store file report: three columns a row, half-random values.
fn cells(count: usize) -> Vec<KeyValue> {
    let mut random = Random::new(1);
    (0..count)
        .map(|i| {
            let mut value = [b'.'; 100];
            value[..50].iter_mut().for_each(|b| *b = random.next() as u8);
            let (row, qualifier) = (format!("user{:012}", i / 3), format!("field{}", i % 3));
            let timestamp = 1_700_000_000_000 + i as i64;
            let mut cell = KeyValue::put(row.as_bytes(), b"f", qualifier.as_bytes(), timestamp, &value);
            cell.set_seq_id(i as u64 + 1);
            cell
        })
        .collect()
}

#[inline(never)]
fn measured_write(path: &Path, context: &HFileContext, cells: &[KeyValue]) -> Outcome<()> {
    let fs = LocalFileSystem::new();
    fs.delete(path)?;
    let mut writer = HFileWriter::create(&fs, path, context.clone())?;
    for cell in cells {
        writer.append(&cell.as_cell())?;
    }
    writer.finish(StoreFileMeta { max_seq_id: Some(77), ..StoreFileMeta::default() })?;
    Ok(())
}

#[inline(never)]
fn measured_read(path: &Path) -> Outcome<()> {
    let reader =
        HFileReader::open_path(&LocalFileSystem::new(), path, Arc::new(NoCache), &OpenOptions::default())?;
    let mut scanner = reader.scanner(ScanOptions {
        cache_blocks: false,
        pread: false,
        is_compaction: false,
        ..ScanOptions::default()
    });
    let (mut more, mut bytes) = (scanner.seek_to_first().map_err(TryError::into_failure)?, 0);
    while more {
        bytes += scanner.cell().map_or(0, |cell| cell.key_value_len());
        more = scanner.next().map_err(TryError::into_failure)?;
    }
    black_box(bytes);
    Ok(())
}

/// Seeks to random rows, `times` times the number of cells, with all blocks cached.
fn seek(path: &Path, cells: &[KeyValue], times: usize) -> Outcome<()> {
    let cache = Arc::new(LruBlockCache::new(1 << 30));
    let reader = HFileReader::open_path(&LocalFileSystem::new(), path, cache, &OpenOptions::default())?;
    let mut random = Random::new(2);
    let mut scanner = reader.scanner(ScanOptions::default());
    let keys: Vec<KeyBuf> = cells
        .iter()
        .map(|_| KeyBuf::first_on_row(cells[random.below(cells.len())].as_cell().row()))
        .collect();
    (0..times).try_for_each(|_| measured_seek(&mut scanner, &keys))
}

#[inline(never)]
fn measured_seek(scanner: &mut HFileScanner, keys: &[KeyBuf]) -> Outcome<()> {
    for key in keys {
        black_box(scanner.seek(&key.as_cell()).map_err(TryError::into_failure)?);
    }
    Ok(())
}
