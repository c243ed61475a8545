//! Starts over directories that hbase:meta does not list, or that it lists and that do not exist:
//! no data is deleted, and every other table is served.

use evenkeel_region::layout;

use super::*;
use crate::change_intent::ChangeIntent;
use crate::meta::MetaChange;

/// A cluster with rows of `t` and of another table, in files and in the log.
fn cluster() -> Cluster {
    let cluster = Cluster::with_table();
    let table = TableDescriptor::new("other".parse().expect("legal"));
    let table = table.with_family(ColumnFamilyDescriptor::new(b"f").expect("legal"));
    cluster.run(|master| master.create_table(table, Vec::new(), NO_NONCE)).expect("made");
    cluster
}

fn forget(cluster: &Cluster, changes: Vec<MetaChange>) {
    cluster.master().meta().commit(changes).expect("written");
}

fn infos(cluster: &Cluster) -> Vec<RegionInfo> {
    cluster.regions().iter().map(|region| region.info().clone()).collect()
}

/// Empties the archive, regardless of the age of its files.
fn empty_archive(cluster: &Cluster) {
    cluster.clock.advance_ms(1_000_000_000);
    cluster.master().run_cleaners().expect("cleaned");
}

fn is_whole(cluster: &Cluster, history: &str) {
    empty_archive(cluster);
    all_rows_are_there(cluster, true, history);
    assert!(!cluster.regions_of(&"other".parse().expect("legal")).is_empty(), "{history}: the other table");
}

#[test]
fn a_table_whose_rows_are_lost_is_served() {
    let mut cluster = cluster();
    let mut changes: Vec<_> = infos(&cluster).into_iter().map(MetaChange::Delete).collect();
    changes.push(MetaChange::DeleteState(table_name()));
    forget(&cluster, changes);
    cluster.crash();
    is_whole(&cluster, "all rows lost");
}

#[test]
fn a_region_whose_row_is_lost_is_served() {
    let mut cluster = cluster();
    forget(&cluster, vec![MetaChange::Delete(infos(&cluster)[1].clone())]);
    cluster.crash();
    is_whole(&cluster, "one row lost");
}

#[test]
fn a_split_whose_rows_are_lost_is_served_once() {
    let mut cluster = cluster();
    cluster.run(split).expect("split");
    let known = cluster.master().meta().regions(Some(&table_name())).expect("read");
    forget(&cluster, known.into_iter().map(|region| MetaChange::Delete(region.info)).collect());
    cluster.crash();
    is_whole(&cluster, "daughters and parent lost");
}

#[test]
fn tables_are_served_after_hbase_meta_is_lost() {
    let mut cluster = cluster();
    cluster.end();
    cluster.memory.delete(&path("data/hbase/meta")).expect("deleted");
    cluster.memory.delete(&path("WALs")).expect("deleted");
    cluster.start();
    // Rows that were only in the logs are lost with them.
    assert_eq!(cluster.rows(), ["a", "b", "c", "m", "n"]);
    cluster.check_regions("hbase:meta made again");
}

#[test]
fn an_overlapping_region_directory_is_left_in_place() {
    let mut cluster = cluster();
    let stray = RegionInfo::new(table_name(), Bytes::from("a"), Bytes::from("z"), 7);
    let dir = layout::region_dir(Path::new("/hbase"), &stray);
    evenkeel_region::region::write_region_info(&cluster.memory, &dir, &stray).expect("written");
    cluster.memory.write_atomically(&dir.join("f/0123"), b"data").expect("written");
    let nameless = path("data/default/t/0123456789abcdef0123456789abcdef/f/4567");
    cluster.memory.write_atomically(&nameless, b"data").expect("written");
    for _ in 0..2 {
        cluster.crash();
        empty_archive(&cluster);
        assert!(cluster.memory.exists(&dir.join("f/0123")).expect("looked"));
        assert!(cluster.memory.exists(&nameless).expect("looked"));
    }
    is_whole(&cluster, "beside others");
}

#[test]
fn a_region_named_by_an_intent_is_removed() {
    let mut cluster = cluster();
    let old = RegionInfo::new(table_name(), Bytes::new(), Bytes::new(), 7);
    let dir = layout::region_dir(Path::new("/hbase"), &old);
    cluster.memory.write_atomically(&dir.join("f/0123"), b"data").expect("written");
    let named = [old, infos(&cluster)[0].clone()];
    let _left = ChangeIntent::write(&cluster.memory, &path("data/default/t"), &named, []).expect("written");
    cluster.crash();
    assert!(!cluster.memory.exists(&dir).expect("looked"));
    let files = cluster.memory.list(&path("data/default/t/.tabledesc")).expect("listed");
    assert_eq!(files.len(), 1, "the descriptor alone: {files:?}");
    is_whole(&cluster, "an intent record that names a region in service, too");
}

#[test]
fn an_unknown_family_directory_is_moved_aside() {
    let mut cluster = cluster();
    let region = infos(&cluster)[0].encoded_name().to_owned();
    let below = format!("data/default/t/{region}/x");
    for content in [b"one", b"two"] {
        cluster.memory.write_atomically(&path(&below).join("0123"), content).expect("written");
        cluster.crash();
        empty_archive(&cluster);
        assert!(!cluster.memory.exists(&path(&below)).expect("looked"));
    }
    let aside = |dir: String| cluster.memory.read_all(&path(".hbck").join(dir).join("0123"), 9);
    assert_eq!(aside(below.clone()).expect("there"), b"one");
    assert_eq!(aside(format!("{below}.1")).expect("there"), b"two");
    is_whole(&cluster, "without a family of nobody");
}

#[test]
fn a_table_without_a_descriptor_is_disabled_until_it_is_altered() {
    let mut cluster = cluster();
    let descriptor = cluster.master().table(&table_name()).expect("known").descriptor;
    for damage in [true, false] {
        let dir = path("data/default/t/.tabledesc");
        match damage {
            true => {
                let file = cluster.memory.list(&dir).expect("listed").remove(0).path;
                cluster.memory.damage(&file, |bytes| bytes.clear()).expect("damaged");
            }
            false => assert!(cluster.memory.delete(&dir).expect("deleted")),
        }
        cluster.crash();
        let table = cluster.master().table(&table_name()).expect("known");
        assert_eq!((table.state, table.descriptor.families().len()), (TableState::Disabled, 2));
        let restored = (*descriptor).clone();
        cluster.run(|master| master.modify_table(table_name(), restored, NO_NONCE)).expect("altered");
        cluster.run(|master| master.enable_table(table_name(), NO_NONCE)).expect("enabled");
        if !damage {
            is_whole(&cluster, "altered and enabled");
        }
    }
}

#[test]
fn a_table_without_a_directory_can_be_dropped() {
    let mut cluster = cluster();
    cluster.end();
    cluster.memory.delete(&path("data/default/t")).expect("deleted");
    cluster.start();
    assert_eq!(cluster.master().table(&table_name()).expect("known").state, TableState::Disabled);
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("dropped");
    assert!(!cluster.regions_of(&"other".parse().expect("legal")).is_empty());
    cluster.crash();
    assert!(cluster.master().table(&table_name()).is_err());
}
