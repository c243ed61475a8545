//! MOB files through changes of tables: nothing that a cell refers to is deleted, and nothing else
//! stays.

use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_common::clock::Clock as _;
use evenkeel_fs::{Fault, Op};
use evenkeel_protocol::pb;
use evenkeel_region::operations::Scan;

use super::*;
use crate::meta::MetaChange;
use crate::tests::{Cluster, NO_NONCE, at_every_step, disable, path, split, table_name};

const CELLS: [&str; 6] = ["a", "b", "c", "m", "n", "z"];

fn clone_name() -> TableName {
    "clone".parse().expect("legal")
}

fn named(name: &str, table: &str) -> pb::SnapshotDescription {
    pb::SnapshotDescription { name: name.into(), table: Some(table.into()), ..Default::default() }
}

/// The values of a table's cells, which are the names of their rows.
fn values(cluster: &Cluster, table: &TableName) -> Vec<String> {
    let mut values = Vec::new();
    for region in cluster.regions_of(table) {
        let mut scanner = region.scanner(Scan::default()).expect("opens");
        let mut out = evenkeel_common::CellBuffer::new();
        let mut context = evenkeel_region::scanner::ScannerContext::unlimited();
        while scanner.next(&mut out, &mut context).expect("read").has_more() {}
        values.extend(out.iter().map(|cell| String::from_utf8_lossy(cell.value()).into_owned()));
    }
    values.sort();
    values
}

fn flushed() -> Cluster {
    let cluster = Cluster::with_mob_table();
    flush(&cluster);
    cluster
}

fn flush(cluster: &Cluster) {
    for region in cluster.regions() {
        region.flush().expect("flushed");
    }
}

fn dir_of(table: &TableName) -> PathBuf {
    mob_family_dir(Path::new("/hbase"), table, "f")
}

fn archive_of(table: &TableName) -> PathBuf {
    mob_archive_dir(Path::new("/hbase"), table, "f")
}

fn names_in(cluster: &Cluster, dir: &Path) -> Vec<String> {
    let entries = cluster.memory.list(dir).unwrap_or_default();
    let mut names: Vec<_> = entries.iter().filter(|e| !e.is_dir).map(|e| e.name().to_owned()).collect();
    names.sort();
    names
}

fn mob_files(cluster: &Cluster) -> Vec<String> {
    names_in(cluster, &dir_of(&table_name()))
}

/// Lets the files grow old, and runs the cleaner of MOB files.
fn clean_mob(cluster: &Cluster) -> usize {
    cluster.clock.advance_ms(3_600_001);
    cluster.master().clean_mob_files().expect("listed")
}

/// Deletes everything from the archive that no rule of its cleaner keeps.
fn clean_archive(cluster: &Cluster) {
    cluster.clock.advance_ms(1_000_000_000);
    for _ in 0..3 {
        cluster.master().run_cleaners().expect("ran");
    }
}

fn compact(cluster: &Cluster, table: &TableName) {
    for region in cluster.regions_of(table) {
        region.compact(None, true).expect("compacted");
        region.archive_compacted().expect("archived");
    }
}

#[test]
fn files_are_archived_when_they_are_old_and_nothing_refers_to_them() {
    let cluster = flushed();
    let before = mob_files(&cluster);
    assert!(before.len() >= 4, "{before:?}");
    assert_eq!(clean_mob(&cluster), 0, "all are referred to");
    compact(&cluster, &table_name());
    assert_eq!(cluster.master().clean_mob_files().expect("listed"), before.len());
    let after = mob_files(&cluster);
    assert_eq!(after.len(), 2, "one for each region; the new ones are young");
    assert_eq!(names_in(&cluster, &archive_of(&table_name())), before);
    assert_eq!(values(&cluster, &table_name()), CELLS);
    clean_archive(&cluster);
    assert!(names_in(&cluster, &archive_of(&table_name())).is_empty());
    assert_eq!(clean_mob(&cluster), 0);
    assert_eq!(values(&cluster, &table_name()), CELLS);
}

#[test]
fn young_files_and_files_of_running_scanners_are_kept() {
    let cluster = flushed();
    let region = cluster.region_in(&table_name(), "a");
    let scanner = region.scanner(Scan::default()).expect("open");
    region.compact(None, true).expect("compacted");
    assert_eq!(clean_mob(&cluster), 0, "the scanner reads the files from before");
    drop(scanner);
    region.archive_compacted().expect("archived");
    // The clock of the files in memory has barely begun.
    let age_ms = cluster.clock.now_ms();
    cluster.clock.set_ms(3_000_000);
    assert_eq!(cluster.master().clean_mob_files().expect("listed"), 0, "too young");
    cluster.clock.set_ms(age_ms);
    assert!(cluster.master().clean_mob_files().expect("listed") > 0);
}

#[test]
fn references_of_regions_that_are_not_served_count() {
    let cluster = flushed();
    cluster.run(disable).expect("disabled");
    assert_eq!(clean_mob(&cluster), 0);
    // A store file that cannot be read may refer to any file.
    let region = cluster.master().live_regions(&table_name()).expect("known").swap_remove(0);
    let family = cluster.master().region_dir(&region).join("f");
    let file = names_in(&cluster, &family).swap_remove(0);
    let bytes = cluster.memory.read_all(&family.join(&file), 1 << 20).expect("read");
    cluster.memory.write_atomically(&family.join(&file), b"damage").expect("written");
    let orphan = MobFileName::new(&region, "20260101", &"0".repeat(32)).to_string();
    cluster.memory.write_atomically(&dir_of(&table_name()).join(&orphan), b"x").expect("written");
    let before = mob_files(&cluster);
    assert_eq!(clean_mob(&cluster), 0);
    assert_eq!(mob_files(&cluster), before);
    cluster.memory.write_atomically(&family.join(&file), &bytes).expect("written");
    assert_eq!(clean_mob(&cluster), 1);
    assert_eq!(names_in(&cluster, &archive_of(&table_name())), [orphan]);
    cluster.run(|master| master.enable_table(table_name(), NO_NONCE)).expect("enabled");
    assert_eq!(values(&cluster, &table_name()), CELLS);
}

#[test]
fn daughters_keep_the_files_of_their_parent() {
    let cluster = flushed();
    cluster.master().parts.regionserver.background().switch_compactions(false);
    let before = mob_files(&cluster);
    cluster.run(split).expect("split");
    assert_eq!(clean_mob(&cluster), 0);
    // The daughters copy the references, and the parent's directory goes.
    for region in cluster.regions() {
        region.compact_references().expect("compacted");
        region.archive_compacted().expect("archived");
    }
    cluster.master().run_catalog_janitor().expect("ran");
    assert_eq!(clean_mob(&cluster), 0);
    assert_eq!(
        (values(&cluster, &table_name()), mob_files(&cluster)),
        (CELLS.map(str::to_owned).to_vec(), before)
    );
    compact(&cluster, &table_name());
    clean_mob(&cluster);
    clean_archive(&cluster);
    assert_eq!(mob_files(&cluster).len(), 3, "one for each region");
    assert_eq!(values(&cluster, &table_name()), CELLS);
}

#[test]
fn a_requested_compaction_of_daughters_rewrites_the_files_of_their_parent() {
    let cluster = flushed();
    cluster.master().parts.regionserver.background().switch_compactions(false);
    let before = mob_files(&cluster);
    cluster.run(split).expect("split");
    compact(&cluster, &table_name());
    // The parent's directory goes.
    cluster.master().run_catalog_janitor().expect("ran");
    clean_mob(&cluster);
    clean_archive(&cluster);
    let after = mob_files(&cluster);
    assert!(after.len() == 3 && after.iter().all(|file| !before.contains(file)), "{after:?}");
    assert_eq!(values(&cluster, &table_name()), CELLS);
}

#[test]
fn the_chore_compacts_families_with_mob_files() {
    let cluster = flushed();
    let before = mob_files(&cluster);
    cluster.master().compact_mob_families();
    for _ in 0..1000 {
        if mob_files(&cluster).len() == before.len() + 2 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let new: Vec<_> = mob_files(&cluster).into_iter().filter(|file| !before.contains(file)).collect();
    assert_eq!(new.len(), 2, "one for each region");
    assert_eq!(values(&cluster, &table_name()), CELLS);
}

#[test]
fn files_with_other_names_are_not_touched() {
    let cluster = flushed();
    cluster.memory.write_atomically(&dir_of(&table_name()).join("notes.txt"), b"x").expect("written");
    clean_mob(&cluster);
    assert!(mob_files(&cluster).contains(&"notes.txt".to_owned()));
}

#[test]
fn a_clone_keeps_the_files_of_a_deleted_table() {
    let cluster = flushed();
    cluster.run(|master| master.take_snapshot(named("s", "t"), NO_NONCE)).expect("taken");
    let files = mob_files(&cluster);
    let cloned = named("s", "clone");
    cluster.run(|master| master.restore_or_clone_snapshot(&cloned, None, NO_NONCE)).expect("cloned");
    let links = names_in(&cluster, &dir_of(&clone_name()));
    let region = mob_region(&table_name()).encoded_name().to_owned();
    assert_eq!(links, files.iter().map(|file| format!("t={region}-{file}")).collect::<Vec<_>>());
    // A clone of the clone has the same links.
    cluster.run(|master| master.take_snapshot(named("s2", "clone"), NO_NONCE)).expect("taken");
    let third = named("s2", "third");
    cluster.run(|master| master.restore_or_clone_snapshot(&third, None, NO_NONCE)).expect("cloned");
    assert_eq!(names_in(&cluster, &dir_of(&"third".parse().expect("legal"))), links);
    compact(&cluster, &table_name());
    assert_eq!(clean_mob(&cluster), 0, "the clones refer to them");
    assert_eq!(names_in(&cluster, &dir_of(&clone_name())), links);
    cluster.run(disable).expect("disabled");
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
    assert!(!cluster.memory.exists(&path("mobdir/data/default/t")).expect("looked"));
    for name in ["s", "s2"] {
        cluster.master().delete_snapshot(name).expect("deleted");
    }
    clean_archive(&cluster);
    assert_eq!(values(&cluster, &clone_name()), CELLS);
    compact(&cluster, &clone_name());
    assert_eq!(clean_mob(&cluster), files.len(), "the links of the first clone");
    clean_archive(&cluster);
    assert_eq!(values(&cluster, &"third".parse().expect("legal")), CELLS);
    compact(&cluster, &"third".parse().expect("legal"));
    clean_mob(&cluster);
    clean_archive(&cluster);
    assert!(names_in(&cluster, &archive_of(&table_name())).is_empty(), "nobody needs them now");
    assert_eq!(values(&cluster, &clone_name()), CELLS);
    assert_eq!(values(&cluster, &"third".parse().expect("legal")), CELLS);
}

#[test]
fn a_snapshot_has_the_mob_files_of_a_family_that_writes_none_any_more() {
    let cluster = flushed();
    let family = evenkeel_common::ColumnFamilyDescriptor::new(b"f").expect("legal");
    cluster.run(|master| master.modify_family(table_name(), family.clone(), NO_NONCE)).expect("altered");
    cluster.run(|master| master.take_snapshot(named("s", "t"), NO_NONCE)).expect("taken");
    compact(&cluster, &table_name());
    clean_mob(&cluster);
    assert!(mob_files(&cluster).is_empty(), "the values are in store files");
    clean_archive(&cluster);
    let cloned = named("s", "clone");
    cluster.run(|master| master.restore_or_clone_snapshot(&cloned, None, NO_NONCE)).expect("cloned");
    assert_eq!(values(&cluster, &clone_name()), CELLS);
    cluster.master().delete_snapshot("s").expect("deleted");
    clean_mob(&cluster);
    clean_archive(&cluster);
    assert_eq!(values(&cluster, &clone_name()), CELLS, "the links keep them");
}

#[test]
fn a_snapshot_keeps_mob_files_and_restores_them() {
    let cluster = flushed();
    cluster.run(|master| master.take_snapshot(named("s", "t"), NO_NONCE)).expect("taken");
    cluster.put("later").expect("written");
    flush(&cluster);
    compact(&cluster, &table_name());
    clean_mob(&cluster);
    clean_archive(&cluster);
    cluster.run(disable).expect("disabled");
    let snapshot = named("s", "t");
    cluster.run(|master| master.restore_or_clone_snapshot(&snapshot, None, NO_NONCE)).expect("restored");
    cluster.run(|master| master.enable_table(table_name(), NO_NONCE)).expect("enabled");
    assert_eq!(values(&cluster, &table_name()), CELLS);
    cluster.master().delete_snapshot("s").expect("deleted");
    clean_mob(&cluster);
    clean_archive(&cluster);
    assert_eq!(values(&cluster, &table_name()), CELLS, "the links keep them");
    compact(&cluster, &table_name());
    clean_mob(&cluster);
    clean_archive(&cluster);
    assert_eq!(mob_files(&cluster).len(), 2);
    assert!(names_in(&cluster, &archive_of(&table_name())).is_empty());
    assert_eq!(values(&cluster, &table_name()), CELLS);
}

#[test]
fn a_deleted_family_and_a_truncated_table_leave_no_mob_files() {
    let cluster = flushed();
    let files = mob_files(&cluster);
    cluster.run(disable).expect("disabled");
    cluster.run(|master| master.truncate_table(table_name(), true, NO_NONCE)).expect("truncated");
    assert!(mob_files(&cluster).is_empty());
    assert_eq!(names_in(&cluster, &archive_of(&table_name())), files);
    cluster.put("a").expect("written");
    flush(&cluster);
    assert_eq!(values(&cluster, &table_name()), ["a"]);
    cluster.run(|master| master.delete_family(table_name(), b"f".to_vec(), NO_NONCE)).expect("altered");
    assert!(!cluster.memory.exists(&dir_of(&table_name())).expect("looked"));
}

#[test]
fn mob_files_of_a_table_of_which_nothing_exists_are_archived() {
    let cluster = flushed();
    let lost: TableName = "lost".parse().expect("legal");
    let name = mob_files(&cluster).swap_remove(0);
    let is_kept = || {
        cluster.master().clean_mob_files().expect("listed");
        names_in(&cluster, &dir_of(&lost)) == [name.clone()]
    };
    cluster.memory.write_atomically(&dir_of(&lost).join(&name), b"x").expect("written");
    let now_ms = cluster.clock.now_ms();
    cluster.clock.set_ms(3_000_000);
    assert!(is_kept(), "too young");
    cluster.clock.set_ms(now_ms + 3_600_001);
    // An operator copies a table while the server runs, or moved its data aside.
    for dir in ["data/default/lost", ".hbck/data/default/lost"] {
        cluster.memory.mkdirs(&path(dir)).expect("made");
        assert!(is_kept(), "{dir}");
        cluster.memory.delete(&path(dir)).expect("deleted");
    }
    let region = RegionInfo::new(lost.clone(), bytes::Bytes::new(), bytes::Bytes::new(), 7);
    let listed = MetaChange::Put(region.clone(), "CLOSED");
    cluster.master().parts.meta.commit(vec![listed]).expect("written");
    assert!(is_kept(), "listed in hbase:meta");
    cluster.master().parts.meta.commit(vec![MetaChange::Delete(region)]).expect("written");
    cluster.master().clean_mob_files().expect("listed");
    assert!(!cluster.memory.exists(&path("mobdir/data/default/lost")).expect("looked"));
    assert_eq!(names_in(&cluster, &archive_of(&lost)), [name]);
}

#[test]
fn data_that_was_moved_aside_keeps_its_mob_files() {
    let cluster = flushed();
    cluster.run(disable).expect("disabled");
    let all = mob_files(&cluster);
    let region = cluster.master().live_regions(&table_name()).expect("known").swap_remove(0);
    let family = cluster.master().region_dir(&region).join("f");
    let aside = path(".hbck/data/default/t").join(region.encoded_name()).join("f");
    cluster.memory.mkdirs(aside.parent().expect("below")).expect("made");
    cluster.memory.rename(&family, &aside).expect("moved");
    assert_eq!((clean_mob(&cluster), mob_files(&cluster)), (0, all.clone()));
    // Not even with the table.
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
    let of_region: Vec<_> =
        all.iter().filter(|name| name.ends_with(region.encoded_name())).cloned().collect();
    assert!(!of_region.is_empty() && of_region.len() < all.len());
    assert_eq!(mob_files(&cluster), of_region);
    assert_eq!((clean_mob(&cluster), mob_files(&cluster)), (0, of_region));
    // A file there that cannot be read may need any of them.
    cluster
        .memory
        .write_atomically(&aside.join("0123456789abcdef0123456789abcdef"), b"damage")
        .expect("written");
    assert_eq!(clean_mob(&cluster), 0);
}

#[test]
fn files_of_a_family_that_the_descriptor_lacks_are_kept() {
    let cluster = flushed();
    let unknown = mob_family_dir(Path::new("/hbase"), &table_name(), "x");
    let name = mob_files(&cluster).swap_remove(0);
    cluster.memory.write_atomically(&unknown.join(&name), b"x").expect("written");
    assert_eq!((clean_mob(&cluster), names_in(&cluster, &unknown)), (0, vec![name]));
}

#[test]
fn a_family_that_cannot_be_cleaned_does_not_stop_others() {
    let cluster = flushed();
    cluster.run(disable).expect("disabled");
    let region = cluster.master().live_regions(&table_name()).expect("known").swap_remove(0);
    let family = cluster.master().region_dir(&region).join("f");
    cluster
        .memory
        .write_atomically(&family.join("0123456789abcdef0123456789abcdef"), b"damage")
        .expect("written");
    let orphan = MobFileName::new(&region, "20260101", &"0".repeat(32)).to_string();
    let of_g = mob_family_dir(Path::new("/hbase"), &table_name(), "g");
    for dir in [dir_of(&table_name()), of_g.clone()] {
        cluster.memory.write_atomically(&dir.join(&orphan), b"x").expect("written");
    }
    assert_eq!(clean_mob(&cluster), 1);
    assert!(mob_files(&cluster).contains(&orphan) && names_in(&cluster, &of_g).is_empty());
}

#[test]
fn unknown_content_of_mob_directories_is_moved_aside() {
    let cluster = flushed();
    let files = mob_files(&cluster);
    let region_dir = dir_of(&table_name()).parent().expect("below").to_owned();
    let region = mob_region(&table_name()).encoded_name().to_owned();
    let unknown = ["f/notes.txt", "f/sub/data", "notes.txt", "../notes.txt", "../other/f/data"];
    for below in unknown {
        let path: PathBuf = match below.strip_prefix("../") {
            Some(below) => region_dir.parent().expect("below").join(below),
            None => region_dir.join(below),
        };
        cluster.memory.write_atomically(&path, below.as_bytes()).expect("written");
    }
    cluster.run(disable).expect("disabled");
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
    assert!(!cluster.memory.exists(&path("mobdir/data/default/t")).expect("looked"));
    assert_eq!(names_in(&cluster, &archive_of(&table_name())), files);
    for below in unknown {
        let aside = path(".hbck/data/default/t").join(match below.strip_prefix("../") {
            Some(below) => below.to_owned(),
            None => format!("{region}/{below}"),
        });
        assert_eq!(cluster.memory.read_all(&aside, 99).expect("there"), below.as_bytes());
    }
}

#[test]
fn a_snapshot_is_cloned_completely_or_not_at_all_whenever_the_process_dies() {
    let prepare = || {
        let cluster = flushed();
        cluster.run(|master| master.take_snapshot(named("s", "t"), NO_NONCE)).expect("taken");
        cluster
    };
    let clone = |master: &Arc<Master>| master.restore_or_clone_snapshot(&named("s", "clone"), None, NO_NONCE);
    at_every_step(prepare, clone, |cluster, _, at| {
        if cluster.master().table(&clone_name()).is_ok() {
            assert_eq!(values(cluster, &clone_name()), CELLS, "{at}");
        }
        assert_eq!(values(cluster, &table_name()), CELLS, "{at}");
    });
}

#[test]
fn a_deletion_that_fails_is_finished_later() {
    let cluster = flushed();
    cluster.run(disable).expect("disabled");
    cluster.fs.inject(Fault::on(Op::Rename, "mobdir"));
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
    // The next change of the table runs what is left of the deletion.
    drop(cluster.master().lock_table(&table_name()).expect("finished"));
    assert!(!cluster.memory.exists(&path("mobdir/data/default/t")).expect("looked"));
}
