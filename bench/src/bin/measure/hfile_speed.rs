//! `hfile_speed [CELLS]`: writes, scans and seeks of store files, in each encoding and codec. One
//! thread, one warm file, 100-byte values, half of each random.

use std::sync::Arc;
use std::time::Instant;

use evenkeel_block_cache::LruBlockCache;
use evenkeel_common::{KeyBuf, KeyValue};
use evenkeel_hfile::{Compression, DataBlockEncoding, HFileContext, HFileReader, ScanOptions};

use crate::hfile_support::{Random, no_cache, open, write};
use crate::{Outcome, number};

const GETS: usize = 200_000;

pub fn run(args: &[String]) -> Outcome {
    let count = number(args, 0, 300_000)?;
    let cells = cells(count);
    let bytes: usize = cells.iter().map(|cell| cell.bytes_len()).sum();
    println!("{count} cells, {} MB as KeyValues", bytes / 1_000_000);
    let settings = DataBlockEncoding::ALL.iter().map(|encoding| (*encoding, Compression::None));
    let compressed = [Compression::Snappy, Compression::Lz4, Compression::Zstd, Compression::Gz];
    for (encoding, compression) in
        settings.chain(compressed.map(|codec| (DataBlockEncoding::FastDiff, codec)))
    {
        let context = HFileContext { encoding, compression, ..HFileContext::default() };
        let start = Instant::now();
        let written = write(&cells, &context);
        let write_s = start.elapsed().as_secs_f64();
        let cold_s = scan(&open(&written, no_cache()));
        let cached = open(&written, Arc::new(LruBlockCache::new(1 << 30)));
        scan(&cached);
        let warm_s = scan(&cached);
        println!(
            "{:12} {:6}: {:5.1} MB; write {:6.0} MB/s; scan cold {:6.0} MB/s, cached {:6.0} MB/s ({:5.1} ns a cell); \
             cached seek {:6.0} ns",
            encoding.name(),
            compression.name(),
            written.file.bytes as f64 / 1e6,
            bytes as f64 / write_s / 1e6,
            bytes as f64 / cold_s / 1e6,
            bytes as f64 / warm_s / 1e6,
            warm_s * 1e9 / count as f64,
            seeks(&cached, &cells)
        );
    }
    Ok(())
}

fn cells(count: usize) -> Vec<KeyValue> {
    let mut random = Random::new(1);
    (0..count)
        .map(|i| {
            let mut value = [b'.'; 100];
            value[..50].iter_mut().for_each(|b| *b = random.next() as u8);
            let (row, qualifier) = (format!("user{:012}", i / 3), format!("field{}", i % 3));
            KeyValue::put(row.as_bytes(), b"cf", qualifier.as_bytes(), 1_700_000_000_000 + i as i64, &value)
        })
        .collect()
}

/// Seconds of a whole scan that reads every value.
fn scan(reader: &Arc<HFileReader>) -> f64 {
    let start = Instant::now();
    let mut scanner = reader.scanner(ScanOptions::default());
    let (mut more, mut sum) = (scanner.seek_to_first().unwrap_or(false), 0usize);
    while more {
        sum += scanner.cell().map_or(0, |cell| cell.value().len());
        more = scanner.next().unwrap_or(false);
    }
    assert!(sum > 0);
    start.elapsed().as_secs_f64()
}

/// Nanoseconds of a seek to the first column of a random row, with a new scanner each, as in a Get.
fn seeks(reader: &Arc<HFileReader>, cells: &[KeyValue]) -> f64 {
    let mut random = Random::new(2);
    let start = Instant::now();
    for _ in 0..GETS {
        let cell = cells[random.below(cells.len())].as_cell();
        let key = KeyBuf::first_on_row(cell.row());
        let mut scanner = reader.scanner(ScanOptions::default());
        assert!(scanner.seek(&key.as_cell()).unwrap_or(false));
    }
    start.elapsed().as_nanos() as f64 / GETS as f64
}
