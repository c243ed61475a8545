//! Writes and prints WAL files, for comparison with HBase's own tools. The test `exchange` runs it.
//!
//! ```text
//! wal_tool write <directory> <entries> <mode>   writes <directory>/WALs/..., prints the path
//! wal_tool print <file>                         prints each entry on one line
//! ```
//!
//! A mode is `plain`, `dict`, `dicttags` (dictionaries for tags, too), or a compression of values
//! in addition.

#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::clock::SystemClock;
use evenkeel_common::{CellType, KeyValue, Result};
use evenkeel_fs::{FileSystem, LocalFileSystem};
use evenkeel_protocol::pb;
use evenkeel_wal::markers::{self, Marker};
use evenkeel_wal::{
    Compression, FamilyScope, NoListener, Scope, SyncLevel, Wal, WalCompression, WalConfig, WalEntry,
    WalOptions, WalReader,
};

fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", dir, entries, mode] => write(Path::new(dir), entries.parse().unwrap_or(10), mode),
        ["print", file] => print(Path::new(file)),
        _ => {
            eprintln!("wal_tool write <directory> <entries> <mode> | print <file>");
            Ok(())
        }
    }
}

fn compression(mode: &str) -> Option<WalCompression> {
    let values = Compression::from_name(mode);
    let settings = WalCompression { tags: mode != "dict", values, zstd_framed: true };
    (mode != "plain").then_some(settings)
}

fn write(dir: &Path, entries: u64, mode: &str) -> Result<()> {
    let fs = Arc::new(LocalFileSystem::new());
    let wal_dir = dir.join("WALs/host,16020,1700000000000");
    fs.mkdirs(&wal_dir)?;
    let wal = Wal::open(WalOptions {
        fs,
        wal_dir,
        old_dir: dir.join("oldWALs"),
        prefix: "host%2C16020%2C1700000000000".into(),
        suffix: String::new(),
        config: WalConfig { compression: compression(mode), ..WalConfig::default() },
        clock: Arc::new(SystemClock),
        listener: Arc::new(NoListener),
    })?;
    for seq_id in 1..=entries {
        let txid = wal.append(&sample(seq_id)?)?;
        wal.sync(txid, SyncLevel::Flush)?;
    }
    println!("{}", wal.current_path().display());
    wal.close()
}

fn sample(seq_id: u64) -> Result<WalEntry> {
    let region = Bytes::from_static(b"0123456789abcdef0123456789abcdef");
    let row = format!("row-{}", seq_id % 7);
    let cell = |qualifier: String, kind, value: &[u8], tags: &[u8]| {
        let (row, qualifier) = (row.as_bytes(), qualifier.as_bytes());
        KeyValueBuilder { row, family: b"fam", qualifier, timestamp: 1000 + seq_id as i64, kind, value, tags }
            .build()
    };
    let cells = match seq_id % 4 {
        0 => vec![marker_cell(seq_id)],
        1 => vec![cell("q".into(), CellType::Put, &value(seq_id), &[])],
        2 => vec![
            cell(
                format!("q{}", seq_id * 7 % 331),
                CellType::Put,
                b"tagged",
                &[0, 9, 8, 0, 0, 0, 0, 0, 0, 3, 232],
            ),
            cell(String::new(), CellType::DeleteFamily, b"", &[]),
        ],
        _ => vec![cell("gone".into(), CellType::DeleteColumn, b"", &[])],
    };
    let mut entry =
        WalEntry::new(region, "ns:tab".parse()?, seq_id, 1_700_000_000_000 + seq_id as i64, cells);
    if seq_id.is_multiple_of(2) {
        entry.nonce = seq_id;
        entry.nonce_group = 99;
        entry.scopes = vec![FamilyScope { family: Bytes::from_static(b"fam"), scope: Scope::Global }];
    }
    Ok(entry)
}

/// Repeated or random bytes; some values are about as long as the chunks and buffers of HBase's
/// streams, or longer.
fn value(seq_id: u64) -> Vec<u8> {
    let len = match seq_id % 10 {
        1 => 65_400 + seq_id % 200,
        3 => 300_000,
        5 => 4096,
        _ => seq_id,
    };
    let mut state = seq_id | 1 << 40;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| if seq_id % 8 == 1 { b'v' } else { noise() }).collect()
}

fn marker_cell(seq_id: u64) -> KeyValue {
    let event = pb::RegionEventDescriptor {
        event_type: pb::region_event_descriptor::EventType::RegionOpen as i32,
        table_name: Bytes::from_static(b"ns:tab"),
        encoded_region_name: Bytes::from_static(b"0123456789abcdef0123456789abcdef"),
        log_sequence_number: Some(seq_id),
        ..Default::default()
    };
    markers::cell(b"", 1_700_000_000_000, &Marker::RegionEvent(event))
}

fn print(file: &Path) -> Result<()> {
    let fs = LocalFileSystem::new();
    let mut reader = WalReader::open(&fs, file)?;
    while let Some(entry) = reader.next()? {
        print!(
            "{} {} seq={} time={} nonce={}/{} scopes={}",
            entry.region.escape_ascii(),
            entry.table,
            entry.seq_id,
            entry.write_time_ms,
            entry.nonce_group,
            entry.nonce,
            entry.scopes.len()
        );
        for cell in &entry.cells {
            print!(" | {}", hex(&cell.to_bytes()));
        }
        println!();
    }
    println!("end={:?}", reader.end());
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
