//! Several threads split the WALs of an earlier process: every edit is recovered, whatever their
//! number, and a fault of one WAL loses no edit of another.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use evenkeel_region::region::nonce::{NonceKey, NonceStart};
use evenkeel_wal::{SyncLevel, WalEntry, WalReader};

use super::*;
use crate::recovery::{Recovered, SplitLimits};

const REGIONS: [&[u8]; 3] = [
    b"00000000000000000000000000000001",
    b"00000000000000000000000000000002",
    b"00000000000000000000000000000003",
];
const GONE: &[u8] = b"0000000000000000000000000000gone";
const SERVER: &str = "WALs/h,1,2";
const WALS: u64 = 16;
/// New edits of each WAL. The first edits of a WAL are the last ones of the WAL before.
const EDITS: u64 = 12;
const REPEATED_EDITS: u64 = 2;
const NONCE_GROUP: u64 = 7;
/// Small enough that every WAL has several spills.
const BUFFER_BYTES: usize = 700;

/// An earlier process that died with many WALs. Each region has edits in each WAL.
struct Dead {
    memory: MemoryFileSystem,
    fs: FaultyFileSystem,
}

fn region_dir(region: &[u8]) -> PathBuf {
    path("data/default/t").join(String::from_utf8_lossy(region).as_ref())
}

fn edit(region: &[u8], seq_id: u64) -> WalEntry {
    let row = format!("row{seq_id}");
    let mut cell = KeyValue::put(row.as_bytes(), b"f", b"q", 1000, &[7; 40]);
    cell.set_seq_id(seq_id);
    let region = Bytes::copy_from_slice(region);
    let (nonce_group, nonce) = (NONCE_GROUP, seq_id);
    WalEntry { nonce_group, nonce, ..WalEntry::new(region, table_name(), seq_id, 1_000_000, vec![cell]) }
}

/// The edits of a WAL: an edit has the sequence ids of all regions.
fn edits(wal: u64) -> impl Iterator<Item = WalEntry> {
    let first = wal * EDITS + 1;
    let seq_ids = first.saturating_sub(REPEATED_EDITS).max(1)..first + EDITS;
    seq_ids.flat_map(|seq_id| REGIONS.map(|region| edit(region, seq_id)))
}

impl Dead {
    fn new() -> Self {
        let memory = MemoryFileSystem::new();
        for region in REGIONS {
            memory.mkdirs(&region_dir(region)).expect("made");
        }
        let fs = FaultyFileSystem::new(memory.clone());
        let dead = Self { memory, fs };
        (0..WALS).for_each(|wal| dead.write(SERVER, wal, edits(wal)));
        // A log that failed after a sync: its successor has nothing but edits that are there.
        dead.write(SERVER, WALS, edits(WALS - 1).skip(REGIONS.len() * EDITS as usize));
        dead
    }

    fn write(&self, dir: &str, wal: u64, edits: impl Iterator<Item = WalEntry>) {
        self.memory.mkdirs(&path(dir)).expect("made");
        let log = Wal::open(WalOptions {
            fs: Arc::new(self.memory.clone()),
            wal_dir: path(dir),
            old_dir: path("oldWALs"),
            prefix: "h%2C1%2C2".into(),
            suffix: String::new(),
            config: WalConfig::default(),
            clock: ManualClock::at(100 + wal as i64),
            listener: Arc::new(NoListener),
        })
        .expect("opened");
        let last = edits.map(|edit| log.append(&edit).expect("appended")).last();
        log.sync(last.expect("edits"), SyncLevel::Sync).expect("synced");
    }

    fn split(&self, threads: usize) -> Result<Recovered> {
        self.split_into(threads, &NonceManager::new(ManualClock::at(1_000_000), 1000))
    }

    fn split_into(&self, threads: usize, nonces: &NonceManager) -> Result<Recovered> {
        let fs: Arc<dyn FileSystem> = Arc::new(self.fs.clone());
        let limits = SplitLimits { threads, buffer_bytes_max: threads * BUFFER_BYTES };
        recovery::split_wals(&fs, &path(""), nonces, limits)
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let files = self.memory.list(&path(dir)).unwrap_or_default();
        files.iter().map(|file| file.name().to_owned()).collect()
    }

    /// The sequence ids of the readable edits of a file, by region.
    fn seq_ids(&self, file: &Path) -> Vec<(Bytes, u64)> {
        let mut reader = WalReader::open(&self.memory, file).expect("opened");
        let mut found = Vec::new();
        while let Some(entry) = reader.next().expect("an undamaged file") {
            found.push((entry.region, entry.seq_id));
        }
        found
    }

    /// The sequence ids of a region's recovered edits.
    fn recovered(&self, region: &[u8]) -> BTreeSet<u64> {
        let files = self.memory.list(&region_dir(region).join("recovered.edits")).unwrap_or_default();
        let is_finished = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
        let files = files.iter().filter(|file| is_finished(file.name()));
        files.flat_map(|file| self.seq_ids(&file.path)).map(|(_, seq_id)| seq_id).collect()
    }

    fn assert_all_recovered(&self, context: &str) {
        for region in REGIONS {
            let all: BTreeSet<_> = (1..=WALS * EDITS).collect();
            assert_eq!(self.recovered(region), all, "{context}");
        }
    }

    /// Asserts that every edit is in a finished file of its region, or in a WAL that the next start
    /// splits.
    fn assert_none_lost(&self, context: &str) {
        let dirs = self.memory.list(&path("WALs")).expect("listed");
        let files = dirs.iter().flat_map(|dir| self.memory.list(&dir.path).expect("listed"));
        let in_wals: BTreeSet<_> = files.flat_map(|file| self.seq_ids(&file.path)).collect();
        for region in REGIONS {
            let recovered = self.recovered(region);
            let is_there = |seq_id: u64| {
                recovered.contains(&seq_id) || in_wals.contains(&(Bytes::copy_from_slice(region), seq_id))
            };
            assert!((1..=WALS * EDITS).all(is_there), "{context}");
        }
    }
}

#[test]
fn edits_of_the_same_regions_in_many_wals_are_all_recovered() {
    for threads in [1, 2, 3, 8, 64] {
        let dead = Dead::new();
        let nonces = NonceManager::new(ManualClock::at(1_000_000), 1000);
        let recovered = dead.split_into(threads, &nonces).expect("split");
        dead.assert_all_recovered(&format!("{threads} threads"));
        let entries = (0..WALS).map(|wal| edits(wal).count() as u64).sum::<u64>() + REGIONS.len() as u64 * 2;
        assert_eq!((recovered.files, recovered.entries), (WALS + 1, entries), "{threads} threads");
        assert_eq!((recovered.damaged, recovered.unclaimed), (0, Vec::new()), "{threads} threads");
        assert_eq!(dead.names("oldWALs").len() as u64, WALS + 1);
        assert!(dead.names("WALs").is_empty(), "its directory is gone");
        for nonce in 1..=WALS * EDITS {
            let key = NonceKey { group: NONCE_GROUP, nonce };
            let start = nonces.start(key, 1, || unreachable!("it is complete"));
            assert_eq!(start, NonceStart::Duplicate, "nonce {nonce}, {threads} threads");
        }
    }
}

#[test]
fn wals_that_must_be_kept_stay_in_place_beside_the_others() {
    for threads in [1, 2, 8] {
        let dead = Dead::new();
        dead.write(SERVER, 50, edits(3).chain([edit(GONE, 1)]));
        dead.write(SERVER, 40, edits(2));
        let damaged = path(SERVER).join("h%2C1%2C2.140");
        dead.memory.damage(&damaged, |bytes| bytes[0] ^= 1).expect("damaged");
        let recovered = dead.split(threads).expect("split");
        dead.assert_all_recovered(&format!("{threads} threads"));
        assert_eq!(dead.names(SERVER), ["h%2C1%2C2.140", "h%2C1%2C2.150"]);
        assert_eq!((recovered.files, recovered.damaged), (WALS + 3, 1));
        let unclaimed = recovered.unclaimed.iter().map(|wal| (wal.is_damaged, wal.regions.len()));
        assert_eq!(unclaimed.collect::<Vec<_>>(), [(true, 0), (false, 1)], "in the order of their names");
    }
}

#[test]
fn a_wal_that_cannot_be_split_loses_no_edit_of_the_others() {
    let faults: [fn() -> Fault; 5] = [
        || Fault::on(Op::Sync, "h%2C1%2C2.105-standalone"),
        || Fault::on(Op::Create, "h%2C1%2C2.105-standalone"),
        || Fault::on(Op::Rename, "h%2C1%2C2.105-standalone"),
        || Fault::on(Op::Read, "WALs/h,1,2/h%2C1%2C2.105"),
        || Fault::on(Op::Sync, "h%2C1%2C2.105-standalone").panics(),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        for threads in [1, 2, 8] {
            let context = format!("fault {number}, {threads} threads");
            let dead = Dead::new();
            dead.fs.inject(fault());
            dead.split(threads).expect_err(&context);
            assert!(dead.names(SERVER).contains(&"h%2C1%2C2.105".to_owned()), "{context}: it stays");
            dead.assert_none_lost(&context);
            dead.split(threads).expect("the disk works again");
            dead.assert_all_recovered(&context);
            assert!(dead.names("WALs").is_empty(), "{context}");
        }
    }
}

#[test]
fn a_power_cut_at_any_step_loses_no_edit() {
    let whole = Dead::new();
    whole.split(2).expect("split");
    let steps = whole.fs.calls();
    assert!(steps > 400, "{steps}");
    for step in (0..steps).step_by(13) {
        let dead = Dead::new();
        dead.fs.cut_power_after(step);
        drop(dead.split(2));
        dead.fs.clear();
        dead.memory.crash(SurvivingData::Torn(step));
        dead.assert_none_lost(&format!("step {step}"));
        dead.split(2).expect("split");
        dead.assert_all_recovered(&format!("step {step}"));
    }
}

/// hbase:meta's master renames the directory of a dead server, so two directories may have a log of
/// one name.
#[test]
fn wals_of_the_same_name_do_not_disturb_each_other() {
    let dead = Dead::new();
    dead.write("WALs/h,1,2-splitting", 0, edits(0).chain(edits(1)));
    dead.fs.inject(Fault::on(Op::Sync, ".temp").always().delays(Duration::from_millis(10)));
    dead.split(2).expect("split");
    dead.assert_all_recovered("two threads");
}

#[test]
fn a_slow_sync_delays_no_other_wal_and_the_number_of_threads_is_bounded() {
    let dead = Dead::new();
    let slow = Latch::new();
    dead.fs.inject(Fault::on(Op::Sync, "h%2C1%2C2.100-standalone").waits_for(&slow));
    dead.fs.inject(Fault::on_any("").of_thread("split-wal-2").always().panics());
    std::thread::scope(|scope| {
        let split = scope.spawn(|| dead.split(2));
        slow.wait_for_arrival();
        let began = Instant::now();
        while (dead.names("oldWALs").len() as u64) < WALS && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let others = dead.names("oldWALs").len() as u64;
        slow.open();
        split.join().expect("no panic").expect("split");
        assert_eq!(others, WALS, "all but one");
    });
    dead.assert_all_recovered("two threads");
}
