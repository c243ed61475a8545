//! Logs in every form, and recovered edits.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::clock::ManualClock;
use evenkeel_common::{CellType, TableName};
use evenkeel_fs::{FileSystem, MemoryFileSystem};
use evenkeel_wal::{
    Compression, FamilyScope, NoListener, Scope, SyncLevel, Wal, WalCompression, WalConfig, WalEntry,
    WalOptions, WalReader,
};

use crate::mutation::damaged;

const DIR: &str = "/WALs/h,1,2";

/// Any bytes as a log.
pub(crate) fn read(input: &[u8]) {
    read_all("/wal", input);
}

/// Any bytes as a file of recovered edits, whose dictionaries are smaller.
pub(crate) fn read_recovered_edits(input: &[u8]) {
    read_all("/region/recovered.edits/0000000000000000001", input);
}

/// Returns the entries, each with the offset of its end. Continues after damage.
fn read_all(path: &str, input: &[u8]) -> Vec<(u64, WalEntry)> {
    let fs = MemoryFileSystem::new();
    fs.write_atomically(path.as_ref(), input).unwrap_or_else(|e| panic!("{e}"));
    let Ok(mut reader) = WalReader::open(&fs, path.as_ref()) else { return Vec::new() };
    let (mut entries, mut gaps_end) = (Vec::new(), 0);
    loop {
        let entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => break,
            Err(_) => match reader.skip_damage() {
                Ok(Some(gap)) => {
                    assert!(
                        gaps_end <= gap.from && gap.from < gap.to.max(1) && gap.to <= input.len() as u64,
                        "{gap:?}"
                    );
                    gaps_end = gap.to;
                    continue;
                }
                _ => break,
            },
        };
        assert!(entry.cells.iter().all(|cell| cell.seq_id() == entry.seq_id));
        let end = reader.position();
        assert!(end <= input.len() as u64 && entries.last().is_none_or(|(before, _)| *before < end));
        // Only some entries are kept, so memory is bounded by the input; the expansion is measured
        // per entry.
        entries.push((end, entry));
        if entries.len() > ENTRIES_KEPT {
            entries.remove(0);
        }
    }
    assert!(matches!(reader.next(), Ok(None) | Err(_)), "an end stays an end");
    entries
}

/// The number of entries that are kept for comparison.
const ENTRIES_KEPT: usize = 16;

/// The first byte of `input` selects a log, the rest damages it: entries before the damage must be
/// unchanged.
pub(crate) fn damage(input: &[u8]) {
    static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let files = FILES.get_or_init(|| forms().into_iter().map(write).collect());
    let Some((which, edits)) = input.split_first() else { return };
    let file = &files[usize::from(*which) % files.len()];
    let (first, bytes) = damaged(file, edits);
    let (good, read) = (read_all("/wal", file), read_all("/wal", &bytes));
    let header_ends = good.first().map_or(0, |(end, _)| *end as usize / 2);
    // Damage to the header changes how the rest is read, and damage to the trailer its end.
    if first > header_ends && first < file.len() - 8 {
        let before = good.iter().filter(|(end, _)| *end <= first as u64);
        assert!(before.eq(read.iter().filter(|(end, _)| *end <= first as u64)), "an entry before the damage");
    }
}

pub(crate) fn damage_seeds() -> Vec<Vec<u8>> {
    (0..forms().len() as u8).map(|which| vec![which, 0, 200, 1, 1, 9, 0x80]).collect()
}

fn forms() -> Vec<Option<WalCompression>> {
    let values = |kind| Some(WalCompression { values: Some(kind), zstd_framed: true, tags: true });
    let mut forms = vec![None, Some(WalCompression::default())];
    forms.extend([Compression::Gz, Compression::Snappy, Compression::Lz4, Compression::Zstd].map(values));
    forms
}

fn entry(seq_id: u64) -> WalEntry {
    let region = Bytes::from_static(b"0123456789abcdef0123456789abcdef");
    let table: TableName = "ns:t".parse().unwrap_or_else(|e| panic!("{e:?}"));
    let row = format!("row{}", seq_id % 3);
    let cell = |qualifier: &[u8], tags: &[u8]| {
        let (row, family, timestamp, kind) = (row.as_bytes(), &b"f"[..], seq_id as i64, CellType::Put);
        KeyValueBuilder { row, family, qualifier, timestamp, kind, value: &[b'v'; 40], tags }.build()
    };
    let cells = vec![cell(b"a", &[]), cell(b"b", &[0, 3, 8, 1, 2])];
    let mut entry = WalEntry::new(region, table, seq_id, 1_700_000_000_000, cells);
    entry.scopes = vec![FamilyScope { family: Bytes::from_static(b"f"), scope: Scope::Global }];
    entry.attributes = vec![("a".into(), Bytes::from_static(b"b"))];
    entry
}

/// A log of four entries, closed.
fn write(compression: Option<WalCompression>) -> Vec<u8> {
    let fs = MemoryFileSystem::new();
    fs.mkdirs(DIR.as_ref()).unwrap_or_else(|e| panic!("{e}"));
    let options = WalOptions {
        fs: Arc::new(fs.clone()),
        wal_dir: DIR.into(),
        old_dir: "/oldWALs".into(),
        prefix: "h%2C1%2C2".into(),
        suffix: String::new(),
        config: WalConfig { compression, ..WalConfig::default() },
        clock: ManualClock::at(1000),
        listener: Arc::new(NoListener),
    };
    let wal = Wal::open(options).unwrap_or_else(|e| panic!("{e}"));
    for seq_id in 1..=4 {
        let synced = wal.append(&entry(seq_id)).and_then(|txid| wal.sync(txid, SyncLevel::Flush));
        synced.unwrap_or_else(|e| panic!("{e}"));
    }
    let path = wal.current_path();
    wal.close().unwrap_or_else(|e| panic!("{e}"));
    fs.read_all(Path::new(&path), 1 << 20).unwrap_or_else(|e| panic!("{e}"))
}

pub(crate) fn plain_seeds() -> Vec<Vec<u8>> {
    vec![write(None)]
}

pub(crate) fn dictionary_seeds() -> Vec<Vec<u8>> {
    let without_tags = WalCompression { tags: false, ..WalCompression::default() };
    vec![write(Some(WalCompression::default())), write(Some(without_tags))]
}

pub(crate) fn value_seeds() -> Vec<Vec<u8>> {
    forms().split_off(2).into_iter().map(write).collect()
}

pub(crate) fn recovered_edits_seeds() -> Vec<Vec<u8>> {
    [plain_seeds(), dictionary_seeds()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;

    #[test]
    fn committed_seeds_hold_the_known_entries() {
        // A reader assigns to cells the sequence id of their entry, so the written cells have it
        // too.
        let known: Vec<_> = read_all("/wal", &write(None)).into_iter().map(|(_, entry)| entry).collect();
        assert_eq!(known.len(), 4);
        for target in TARGETS.iter().filter(|t| ["wal", "wal_dictionary", "wal_values"].contains(&t.name)) {
            for file in std::fs::read_dir(target.seeds()).unwrap_or_else(|e| panic!("{}: {e}", target.name)) {
                let path = file.unwrap_or_else(|e| panic!("{}: {e}", target.name)).path();
                let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                let read: Vec<_> = read_all("/wal", &bytes).into_iter().map(|(_, entry)| entry).collect();
                assert_eq!(read, known, "{}", path.display());
            }
        }
    }
}
