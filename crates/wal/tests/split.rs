//! Splitting a dead server's file.

mod common;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use common::*;
use evenkeel_common::{HBaseError, KeyValue, Result, TableName};
use evenkeel_fs::{Damage, Fault, FaultyFileSystem, FileSystem, Latch, MemoryFileSystem, Op};
use evenkeel_protocol::pb;
use evenkeel_wal::markers::{self, Marker};
use evenkeel_wal::{
    SplitOptions, SplitOutcome, StoreSeqIds, SyncLevel, WalEnd, WalEntry, WalReader, split_wal,
};

const OTHER: Bytes = Bytes::from_static(b"00000000000000000000000000000002");
const GONE: Bytes = Bytes::from_static(b"0000000000000000000000000000gone");

fn write_wal(fs: &MemoryFileSystem, entries: &[WalEntry]) -> PathBuf {
    let wal = open(fs.clone());
    for entry in entries {
        let txid = wal.append(entry).expect("append");
        wal.sync(txid, SyncLevel::Flush).expect("sync");
    }
    wal.current_path()
}

fn region_dir(region: &[u8], table: &TableName) -> Result<Option<PathBuf>> {
    let name = String::from_utf8_lossy(region).into_owned();
    Ok((region != GONE).then(|| Path::new("/data/default").join(table.to_string()).join(name)))
}

fn split_with(
    fs: &dyn FileSystem,
    wal: &Path,
    buffer_bytes_max: usize,
    flushed: impl Fn(&[u8]) -> StoreSeqIds,
) -> Result<SplitOutcome> {
    split_wal(SplitOptions {
        fs,
        wal,
        worker: "h%2C1",
        last_flushed: &mut |region| Ok(flushed(region)),
        region_dir: &mut region_dir,
        on_entry: &mut |_| (),
        should_continue: &mut || true,
        buffer_bytes_max,
    })
}

fn split(fs: &dyn FileSystem, wal: &Path) -> Result<SplitOutcome> {
    split_with(fs, wal, 1 << 20, |_| StoreSeqIds::default())
}

fn edits_dir(region: &Bytes) -> PathBuf {
    region_dir(region, &table()).expect("ok").expect("there").join("recovered.edits")
}

fn edit_names(fs: &dyn FileSystem, region: &Bytes) -> Vec<String> {
    fs.list(&edits_dir(region)).unwrap_or_default().iter().map(|file| file.name().to_owned()).collect()
}

#[test]
fn edits_go_to_their_regions() {
    for buffer_bytes_max in [0, 300, 1 << 20] {
        let fs = MemoryFileSystem::new();
        let entries: Vec<_> =
            (1..=9).map(|i| entry_of([REGION, OTHER, GONE][i % 3].clone(), i as u64, 30)).collect();
        let wal = write_wal(&fs, &entries);
        let outcome = split_with(&fs, &wal, buffer_bytes_max, |_| StoreSeqIds::default()).expect("split");
        assert_eq!((outcome.entries, outcome.skipped, outcome.corrupt), (9, 3, None));
        let unclaimed = outcome.unclaimed.iter().map(|gone| (&gone.region, gone.entries));
        assert_eq!(unclaimed.collect::<Vec<_>>(), [(&GONE, 3)]);
        assert_eq!(edit_names(&fs, &REGION), ["0000000000000000009"]);
        assert_eq!(edit_names(&fs, &OTHER), ["0000000000000000007"]);
        assert_eq!(outcome.files[1], (OTHER, edits_dir(&OTHER).join("0000000000000000007")));
        let (read, error) = read_file(&fs, &outcome.files[0].1);
        assert!(error.is_none());
        assert_eq!(read, [entries[2].clone(), entries[5].clone(), entries[8].clone()]);
        let mut reader = WalReader::open(&fs, &outcome.files[0].1).expect("open");
        while reader.next().expect("good").is_some() {}
        assert_eq!(reader.end(), Some(WalEnd::Closed));
    }
}

#[test]
fn a_split_skips_flushed_edits() {
    let fs = MemoryFileSystem::new();
    let both = |seq_id: u64| {
        let mut entry = entry(seq_id);
        let mut cell = KeyValue::put(b"row", b"g", b"q", 1, b"v");
        cell.set_seq_id(seq_id);
        entry.cells.push(cell);
        entry
    };
    let wal = write_wal(&fs, &[both(1), both(2), entry(3), both(4)]);
    let flushed = |_: &[u8]| StoreSeqIds { region: Some(1), stores: vec![(Bytes::from_static(b"f"), 3)] };
    let outcome = split_with(&fs, &wal, 1 << 20, flushed).expect("split");
    assert_eq!((outcome.entries, outcome.skipped), (4, 2));
    let (read, _) = read_file(&fs, &outcome.files[0].1);
    assert_eq!(seq_ids(&read), [2, 4]);
    assert_eq!(read[0].cells.iter().map(|c| c.as_cell().family().to_vec()).collect::<Vec<_>>(), [b"g"]);
    assert_eq!(read[1].cells.len(), 2);
}

#[test]
fn a_split_keeps_only_compaction_markers() {
    let fs = MemoryFileSystem::new();
    let markers = [
        Marker::Compaction(pb::CompactionDescriptor::default()),
        Marker::Flush(pb::FlushDescriptor::default()),
        Marker::RegionEvent(pb::RegionEventDescriptor::default()),
        Marker::Replication(pb::ReplicationMarkerDescriptor::default()),
    ];
    let entries: Vec<_> = markers
        .iter()
        .zip(1..)
        .map(|(marker, seq_id)| WalEntry { cells: vec![markers::cell(b"", 1, marker)], ..entry(seq_id) })
        .collect();
    let wal = write_wal(&fs, &entries);
    let outcome = split(&fs, &wal).expect("split");
    assert_eq!(seq_ids(&read_file(&fs, &outcome.files[0].1).0), [1]);
    assert_eq!(outcome.skipped, 3);
}

#[test]
fn a_missing_or_empty_file_has_nothing_to_split() {
    let fs = MemoryFileSystem::new();
    assert_eq!(split(&fs, "/absent".as_ref()), Ok(SplitOutcome::default()));
    fs.write_atomically("/empty".as_ref(), b"").expect("write");
    assert_eq!(split(&fs, "/empty".as_ref()), Ok(SplitOutcome::default()));
    let header = write_wal(&fs, &[]);
    assert!(fs.status(&header).expect("there").len > 0);
    assert_eq!(split(&fs, &header), Ok(SplitOutcome::default()));
}

/// As on HDFS while no DataNode of a block is up. The caller moves a log that was split away.
#[test]
fn a_log_that_cannot_be_read_is_not_taken_as_split() {
    let memory = MemoryFileSystem::new();
    let wal = write_wal(&memory, &[entry(1), entry(2)]);
    let fs = FaultyFileSystem::new(memory.clone());
    fs.inject(Fault::on(Op::Read, "WALs").fails(ErrorKind::NotFound));
    split(&fs, &wal).expect_err("its entries are unknown");
    assert!(edit_names(&memory, &REGION).is_empty());
    assert_eq!(split(&fs, &wal).expect("readable again").entries, 2);
    assert_eq!(seq_ids(&read_dir(&memory, &edits_dir(&REGION))), [1, 2]);
    // The existence of a file that cannot be opened is unknown if the question fails, too.
    fs.inject(Fault::on(Op::Open, "WALs").after(1).fails(ErrorKind::NotFound));
    fs.inject(Fault::on(Op::Status, "WALs").fails(ErrorKind::TimedOut));
    split(&fs, &wal).expect_err("not known to be gone");
}

#[test]
fn a_torn_end_is_cut_and_damage_loses_one_entry() {
    let fs = MemoryFileSystem::new();
    let wal = write_wal(&fs, &[entry(1), entry(2), entry(3)]);
    fs.damage(&wal, |bytes| bytes.truncate(bytes.len() - 1)).expect("damage");
    let outcome = split(&fs, &wal).expect("split");
    assert_eq!((edit_names(&fs, &REGION), outcome.corrupt), (vec!["0000000000000000002".to_owned()], None));

    let fs = MemoryFileSystem::new();
    let wal = write_wal(&fs, &[entry(1), entry(2), entry(3)]);
    fs.damage(&wal, |bytes| {
        let at = bytes.windows(4).rposition(|w| w == b"row2").expect("there");
        bytes[at - 2..at].fill(0xff); // the row's length
    })
    .expect("damage");
    let outcome = split(&fs, &wal).expect("split");
    assert_eq!(edit_names(&fs, &REGION), ["0000000000000000003"]);
    assert_eq!(seq_ids(&read_dir(&fs, &edits_dir(&REGION))), [1, 3]);
    assert!(outcome.corrupt.expect("told").contains("corrupt WAL entry"));
    let [gap] = &outcome.gaps[..] else { panic!("{:?}", outcome.gaps) };
    let lost = gap.lost.as_ref().expect("its key is whole");
    assert_eq!((&lost.region, lost.seq_id, outcome.entries), (&REGION, 2, 2));
}

#[test]
fn a_repeated_split_keeps_the_file_with_more_edits() {
    let fs = MemoryFileSystem::new();
    let wal = write_wal(&fs, &[entry(1), entry(2), entry(3)]);
    let flushed_1 = |_: &[u8]| StoreSeqIds { region: Some(1), stores: Vec::new() };
    let path = edits_dir(&REGION).join("0000000000000000003");
    for (flush, expected) in
        [(true, vec![2, 3]), (false, vec![1, 2, 3]), (true, vec![1, 2, 3]), (false, vec![1, 2, 3])]
    {
        let outcome =
            split_with(&fs, &wal, 1 << 20, |r| if flush { flushed_1(r) } else { StoreSeqIds::default() });
        assert_eq!(outcome.expect("split").files, [(REGION, path.clone())]);
        assert_eq!(seq_ids(&read_file(&fs, &path).0), expected);
        assert_eq!(edit_names(&fs, &REGION).len(), 1, "no temporary file stays");
    }
}

#[test]
fn a_failure_leaves_nothing_and_can_be_repeated() {
    for op in [Op::Append, Op::Sync, Op::Rename, Op::Create] {
        let memory = MemoryFileSystem::new();
        let wal = write_wal(&memory, &[entry(1), entry_of(OTHER, 2, 10), entry(3)]);
        let fs = FaultyFileSystem::new(memory.clone());
        fs.inject(Fault::on(op, "recovered.edits").after(1).fails(ErrorKind::StorageFull));
        split(&fs, &wal).expect_err("failed");
        for region in [REGION, OTHER] {
            assert!(edit_names(&memory, &region).iter().all(|name| !name.ends_with(".temp")), "{op:?}");
        }
        split(&fs, &wal).expect("again");
        assert_eq!(seq_ids(&read_dir(&memory, &edits_dir(&REGION))), [1, 3]);
        assert_eq!(seq_ids(&read_dir(&memory, &edits_dir(&OTHER))), [2]);
    }
}

/// Files of edits are read back before the log may be deleted: a difference is an error, and the
/// split can be repeated.
#[test]
fn recovered_edits_that_fail_read_back_are_not_published() {
    let damages = [
        Damage::Flip { at: 200, mask: 1 },
        Damage::Drop,
        Damage::Truncate,
        Damage::Duplicate,
        Damage::Zero,
        Damage::Swap,
    ];
    for damage in damages {
        for nth in 0..2 {
            let memory = MemoryFileSystem::new();
            let wal = write_wal(&memory, &[entry(1), entry(2), entry(3)]);
            let fs = FaultyFileSystem::new(memory.clone());
            fs.inject(Fault::on(Op::Append, "recovered.edits").after(nth).damages(damage));
            assert!(split(&fs, &wal).is_err(), "{damage:?} of append {nth}");
            assert!(edit_names(&memory, &REGION).is_empty(), "{damage:?}");
            split(&fs, &wal).expect("again");
            assert_eq!(seq_ids(&read_dir(&memory, &edits_dir(&REGION))), [1, 2, 3]);
        }
    }
}

#[test]
fn callback_errors_and_cancellation_end_the_split() {
    let fs = MemoryFileSystem::new();
    let entries: Vec<_> = (1..=2000).map(entry).collect();
    let wal = write_wal(&fs, &entries);
    let attempt = |answer: Result<StoreSeqIds>, go_on: bool| {
        split_wal(SplitOptions {
            fs: &fs,
            wal: &wal,
            worker: "w",
            last_flushed: &mut |_| answer.clone(),
            region_dir: &mut region_dir,
            on_entry: &mut |_| (),
            should_continue: &mut || go_on,
            buffer_bytes_max: 1 << 20,
        })
    };
    let error = attempt(Err(HBaseError::io("no master")), true).expect_err("no answer");
    assert_eq!(error.message(), "no master");
    let error = attempt(Ok(StoreSeqIds::default()), false).expect_err("cancelled");
    assert!(error.message().contains("cancelled"));
    assert!(edit_names(&fs, &REGION).is_empty());
}

/// A log that failed and its successor may end with the same edit, and their files of recovered
/// edits then have the same name. The file with fewer edits must not replace the other, at any
/// order of two threads.
#[test]
fn logs_that_end_with_the_same_edit_are_split_side_by_side() {
    for slow in ["long", "short"] {
        let memory = MemoryFileSystem::new();
        let write = |name: &str, first: u64| {
            let entries: Vec<_> = (first..=9).map(entry).collect();
            let path = Path::new(WAL_DIR).join(format!("{name}.1"));
            memory.rename(&write_wal(&memory, &entries), &path).expect("renamed");
            path
        };
        let (long, short) = (write("long", 1), write("short", 8));
        let fs = FaultyFileSystem::new(memory.clone());
        let latch = Latch::new();
        fs.inject(Fault::on(Op::Rename, &format!("-{slow}.1-")).waits_for(&latch));
        std::thread::scope(|scope| {
            let (slow, fast) = if slow == "long" { (&long, &short) } else { (&short, &long) };
            let slow = scope.spawn(|| split(&fs, slow));
            latch.wait_for_arrival();
            let fast = scope.spawn(|| split(&fs, fast));
            std::thread::sleep(Duration::from_millis(100));
            latch.open();
            slow.join().expect("no panic").expect("split");
            fast.join().expect("no panic").expect("split");
        });
        assert_eq!(seq_ids(&read_dir(&memory, &edits_dir(&REGION))), (1..=9).collect::<Vec<_>>());
    }
}
