//! The index of logs: what a region reads from them, and what it leaves for others.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use common::*;
use evenkeel_fs::{FileSystem, MemoryFileSystem};
use evenkeel_wal::{LogIndex, NoListener, RegionLog, SyncLevel, WalCompression, WalConfig, WalEntry};

const OTHER: Bytes = Bytes::from_static(b"00000000000000000000000000000002");

/// Logs of two regions in several files.
fn logs(fs: &MemoryFileSystem, compression: Option<WalCompression>) -> (Vec<PathBuf>, Vec<WalEntry>) {
    let config = WalConfig { compression, ..WalConfig::default() };
    let wal = open_with(fs.clone(), config, Arc::new(NoListener));
    let mut entries = Vec::new();
    for seq_id in 1..=60 {
        let region = if seq_id % 7 < 4 { REGION } else { OTHER };
        let entry = entry_of(region, seq_id, 10 * seq_id as usize);
        wal.append(&entry).expect("append");
        entries.push(entry);
        if seq_id % 25 == 0 {
            wal.roll().expect("rolled");
        }
    }
    wal.close().expect("closed");
    (live_files(fs), entries)
}

fn read(fs: &MemoryFileSystem, log: &RegionLog) -> Vec<WalEntry> {
    let mut read = Vec::new();
    log.for_each(fs, |entry| {
        read.push(entry);
        Ok(())
    })
    .expect("read");
    read
}

fn of(entries: &[WalEntry], region: &Bytes) -> Vec<WalEntry> {
    entries.iter().filter(|entry| entry.region == *region).cloned().collect()
}

#[test]
fn a_region_reads_its_entries_in_order() {
    let fs = MemoryFileSystem::new();
    let (files, entries) = logs(&fs, None);
    assert_eq!(files.len(), 3);
    for threads in [1, 4] {
        let index = LogIndex::build(&fs, files.clone(), threads).expect("read").expect("plain");
        assert_eq!((index.entries, index.regions().count()), (60, 2));
        for region in [&REGION, &OTHER] {
            let log = index.region(region).expect("it has entries");
            assert_eq!(read(&fs, log), of(&entries, region));
            assert_eq!(read(&fs, log).len(), read(&fs, log).len(), "as often as one likes");
        }
        assert!(index.region(b"none").is_none());
    }
}

#[test]
fn what_a_torn_end_cuts_off_is_not_in_the_index_and_damage_is_for_splitting() {
    let fs = MemoryFileSystem::new();
    let (files, _) = logs(&fs, None);
    fs.damage(&files[2], |bytes| bytes.truncate(bytes.len() - 20)).expect("cut");
    let index = LogIndex::build(&fs, files.clone(), 2).expect("read").expect("plain");
    assert_eq!(index.entries, 59);
    fs.damage(&files[0], |bytes| bytes[86] ^= 0x04).expect("damaged");
    assert!(LogIndex::build(&fs, files, 2).expect("read").is_none());
}

#[test]
fn compressed_logs_are_to_be_split() {
    let fs = MemoryFileSystem::new();
    let (files, _) = logs(&fs, Some(WalCompression::default()));
    assert!(LogIndex::build(&fs, files, 2).expect("read").is_none());
}

#[test]
fn edits_are_left_for_others_and_leaving_them_again_changes_nothing() {
    let fs = MemoryFileSystem::new();
    let (files, entries) = logs(&fs, None);
    let index = LogIndex::build(&fs, files, 1).expect("read").expect("plain");
    let dir = Path::new("/region");
    for _ in 0..2 {
        index.region(&OTHER).expect("entries").write_recovered_edits(&fs, dir, "w").expect("written");
        let left = fs.list(&dir.join("recovered.edits")).expect("there");
        let names: Vec<_> = left.iter().map(|file| file.name().to_owned()).collect();
        assert_eq!(names, [format!("{:019}", 60)]);
        assert_eq!(read_dir(&fs, &dir.join("recovered.edits")), of(&entries, &OTHER));
    }
}

#[test]
fn entries_synced_alone_are_runs_too() {
    let fs = MemoryFileSystem::new();
    let wal = open(fs.clone());
    for seq_id in 1..=10 {
        let txid = wal.append(&entry(seq_id)).expect("append");
        wal.sync(txid, SyncLevel::Flush).expect("sync");
    }
    let index = LogIndex::build(&fs, live_files(&fs), 1).expect("read").expect("plain");
    assert_eq!(seq_ids(&read(&fs, index.region(&REGION).expect("entries"))), (1..=10).collect::<Vec<_>>());
}
