//! Cleaners over files in memory, with a clock that stands still.

use std::sync::Arc;

use evenkeel_common::clock::ManualClock;
use evenkeel_common::{Configuration, TableDescriptor, TableName};
use evenkeel_fs::MemoryFileSystem;
use evenkeel_protocol::pb;

use super::*;
use crate::links::{create, link_to};
use crate::snapshot::store::{LAYOUT_VERSION, MANIFEST_BYTES_MAX, Snapshot, SnapshotStore};

const TTL_MS: i64 = 10_000;
const FAMILY: &str = "archive/data/default/t/aa11/f";

struct Fixture {
    fs: MemoryFileSystem,
    clock: Arc<ManualClock>,
    cleaners: Cleaners,
}

impl Fixture {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(settings: &[(&str, &str)]) -> Self {
        Self::with_wal_root(settings, None)
    }

    fn with_wal_root(settings: &[(&str, &str)], wal_root: Option<&WalRoot>) -> Self {
        let mut conf = Configuration::new();
        for key in ["hbase.master.hfilecleaner.ttl", "hbase.master.logcleaner.ttl"] {
            conf.set(key, TTL_MS.to_string());
        }
        settings.iter().for_each(|(key, value)| conf.set(*key, *value));
        let (fs, clock) = (MemoryFileSystem::new(), ManualClock::at(0));
        let cleaners = Cleaners::new(
            Arc::new(fs.clone()),
            Path::new("/"),
            wal_root,
            Arc::clone(&clock) as _,
            &CleanerSettings::from(&conf).expect("legal"),
        );
        Self { fs, clock, cleaners }
    }

    /// Writes a file; files in memory are a millisecond or two apart.
    fn write(&self, path: &str) {
        self.fs.write_atomically(&Path::new("/").join(path), b"x").expect("written");
    }

    fn written_at(&self, path: &str) -> i64 {
        self.fs.status(&Path::new("/").join(path)).expect("there").modified_ms
    }

    fn is_there(&self, path: &str) -> bool {
        self.fs.exists(&Path::new("/").join(path)).expect("looked")
    }

    fn run(&self) -> Cleaned {
        self.cleaners.run().expect("ran")
    }

    /// Runs when everything is old.
    fn run_late(&self) -> Cleaned {
        self.clock.set_ms(1_000_000_000_000);
        self.run()
    }

    fn store(&self) -> SnapshotStore<'_> {
        SnapshotStore::new(&self.fs, Path::new("/"), MANIFEST_BYTES_MAX)
    }

    fn prepare_snapshot(&self, name: &str, files: &[&str]) {
        let table: TableName = "t".parse().expect("legal");
        let description = pb::SnapshotDescription {
            name: name.to_owned(),
            version: Some(LAYOUT_VERSION),
            ..pb::SnapshotDescription::default()
        };
        let file = |name: &&str| pb::snapshot_region_manifest::StoreFile {
            name: (*name).to_owned(),
            ..pb::snapshot_region_manifest::StoreFile::default()
        };
        let family_files = vec![pb::snapshot_region_manifest::FamilyFiles {
            family_name: "f".into(),
            store_files: files.iter().map(file).collect(),
        }];
        let region = pb::SnapshotRegionManifest { family_files, ..pb::SnapshotRegionManifest::default() };
        let snapshot = Snapshot { description, table: TableDescriptor::new(table), regions: vec![region] };
        self.store().prepare(&snapshot).expect("written");
    }
}

#[test]
fn logs_are_deleted_below_both_root_directories() {
    let logs = MemoryFileSystem::new();
    let wal_root = WalRoot { fs: Arc::new(logs.clone()), path: "/wals".into() };
    let fixture = Fixture::with_wal_root(&[], Some(&wal_root));
    let old = ["oldWALs/h%2C1%2C2.17", "MasterData/oldWALs/h%2C1%2C2.17"];
    let kept = Path::new("/wals/WALs/h,1,2/h%2C1%2C2.18");
    for name in old {
        fixture.write(name);
        logs.write_atomically(&wal_root.path.join(name), b"x").expect("written");
    }
    logs.write_atomically(kept, b"x").expect("written");
    assert_eq!(fixture.run(), Cleaned { kept: 4, ..Cleaned::default() });
    assert_eq!(fixture.run_late().files, 4);
    for name in old {
        assert!(!fixture.is_there(name), "{name}");
        assert!(!logs.exists(&wal_root.path.join(name)).expect("looked"), "{name}");
    }
    assert!(logs.exists(kept).expect("looked"));
}

#[test]
fn expired_files_and_their_empty_directories_are_deleted() {
    let fixture = Fixture::new();
    let (hfile, wal) = (format!("{FAMILY}/00ff"), "oldWALs/h%2C1%2C2.17");
    fixture.write(&hfile);
    fixture.write(wal);
    let newer = fixture.written_at(&hfile).max(fixture.written_at(wal));
    fixture.clock.set_ms(newer + TTL_MS - 100);
    assert_eq!(fixture.run(), Cleaned { kept: 2, ..Cleaned::default() });
    assert!(fixture.is_there(&hfile) && fixture.is_there(wal));
    fixture.clock.set_ms(newer + TTL_MS + 1);
    assert_eq!(fixture.run(), Cleaned { files: 2, bytes: 2, kept: 0 });
    assert!(!fixture.is_there("archive/data") && fixture.is_there("archive") && fixture.is_there("oldWALs"));
}

#[test]
fn a_file_from_the_future_is_kept() {
    let fixture = Fixture::new();
    fixture.write("oldWALs/h%2C1%2C2.17");
    fixture.clock.set_ms(-5 * TTL_MS);
    assert_eq!(fixture.run().kept, 1);
}

#[test]
fn invalid_names_are_deleted_and_master_files_have_their_ttl() {
    let fixture = Fixture::new();
    let invalid_files = [format!("{FAMILY}/not-a-store-file"), "oldWALs/not-a-wal".to_owned()];
    invalid_files.iter().for_each(|path| fixture.write(path));
    let own = [
        format!("{FAMILY}/00ff$-masterlocalhfile-$"),
        "oldWALs/h%2C1%2C2.17$masterlocalwal$".to_owned(),
        "oldWALs/pv2-00000000000000000001.log".to_owned(),
        "MasterData/archive/data/master/store/1/proc/00ff".to_owned(),
        "MasterData/oldWALs/anything".to_owned(),
    ];
    own.iter().for_each(|path| fixture.write(path));
    assert_eq!(fixture.run().files, 2);
    assert!(invalid_files.iter().all(|path| !fixture.is_there(path)));
    fixture.clock.set_ms(TTL_MS * 10);
    assert_eq!(fixture.run().files, 0, "a week is not over");
    assert!(own.iter().all(|path| fixture.is_there(path)));
    assert_eq!(fixture.run_late(), Cleaned { files: 5, bytes: 5, kept: 0 });
}

#[test]
fn a_linked_file_is_kept() {
    let fixture = Fixture::new();
    let (hfile, other) = (format!("{FAMILY}/00ff"), format!("{FAMILY}/00ee"));
    fixture.write(&hfile);
    fixture.write(&other);
    let (table, clone): (TableName, TableName) =
        ("t".parse().expect("legal"), "ns:clone".parse().expect("legal"));
    let link = link_to(&table, "aa11", "00ff");
    let family_dir = Path::new("/data/ns/clone/bb22/f");
    create(&fixture.fs, Path::new("/"), family_dir, (&clone, "bb22"), &link).expect("made");
    assert_eq!(fixture.run_late().files, 1);
    assert!(fixture.is_there(&hfile) && !fixture.is_there(&other));
    // The clone compacts: its link goes to the archive, and files are no longer needed.
    let archived = Path::new("/archive/data/ns/clone/bb22/f");
    fixture.fs.mkdirs(archived).expect("made");
    fixture.fs.rename(&family_dir.join(link.name()), &archived.join(link.name())).expect("moved");
    fixture.run_late();
    fixture.run_late();
    assert!(!fixture.is_there("archive/data"), "file, link, back reference and their directories");
}

#[test]
fn a_file_of_a_snapshot_is_kept() {
    let fixture = Fixture::new();
    let all = ["00ff", "00ee", "00dd", "00cc"].map(|name| format!("{FAMILY}/{name}"));
    all.iter().for_each(|path| fixture.write(path));
    // One by its name, one by a link to it, one by a reference to a link to it.
    fixture.prepare_snapshot("s", &["00ff", "t=aa11-00ee", "t=aa11-00dd.bb22"]);
    assert_eq!(fixture.run_late().files, 1, "a snapshot in the making counts");
    fixture.store().publish("s").expect("published");
    assert_eq!(fixture.run_late().files, 0);
    assert_eq!(all.each_ref().map(|path| fixture.is_there(path)), [true, true, true, false]);
    fixture.store().delete("s").expect("deleted");
    assert_eq!(fixture.run_late().files, 3);
}

#[test]
fn a_recreated_snapshot_protects_only_its_current_files() {
    let fixture = Fixture::new();
    let all = ["00ff", "00ee"].map(|name| format!("{FAMILY}/{name}"));
    all.iter().for_each(|path| fixture.write(path));
    fixture.prepare_snapshot("s", &["00ff", "00ee"]);
    fixture.store().publish("s").expect("published");
    assert_eq!(fixture.run_late().files, 0);
    fixture.store().delete("s").expect("deleted");
    fixture.prepare_snapshot("s", &["00ee", "0011"]);
    fixture.store().publish("s").expect("published");
    assert_eq!(fixture.run_late().files, 1);
    assert!(fixture.is_there(&all[1]));
}

#[test]
fn an_unreadable_snapshot_blocks_deletion() {
    let fixture = Fixture::new();
    let hfile = format!("{FAMILY}/00ff");
    fixture.write(&hfile);
    fixture.prepare_snapshot("s", &["00ee"]);
    fixture.store().publish("s").expect("published");
    let manifest = Path::new("/.hbase-snapshot/s/data.manifest");
    fixture.fs.damage(manifest, |bytes| bytes[0] = 0xff).expect("damaged");
    assert_eq!(fixture.run_late().files, 0);
    fixture.fs.delete(Path::new("/.hbase-snapshot/s")).expect("deleted");
    assert_eq!(fixture.run_late().files, 1);
}

#[test]
fn links_or_snapshots_in_progress_block_deletion() {
    let fixture = Fixture::new();
    let hfile = format!("{FAMILY}/00ff");
    fixture.write(&hfile);
    let making = fixture.cleaners.pause();
    assert_eq!(fixture.run_late(), Cleaned { kept: 1, ..Cleaned::default() });
    drop(making);
    assert_eq!(fixture.run_late().files, 1);
}

#[test]
fn an_unknown_cleaner_plugin_blocks_deletion() {
    let plugins = "org.apache.hadoop.hbase.master.cleaner.TimeToLiveHFileCleaner,com.example.Keeper";
    let fixture = Fixture::with(&[("hbase.master.hfilecleaner.plugins", plugins)]);
    let (hfile, wal) = (format!("{FAMILY}/00ff"), "oldWALs/h%2C1%2C2.17");
    fixture.write(&hfile);
    fixture.write(wal);
    assert_eq!(fixture.run_late().files, 1);
    assert!(fixture.is_there(&hfile) && !fixture.is_there(wal));
}
