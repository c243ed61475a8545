//! Changes of tables whose store files are tracked by lists, and changes of the tracker.

use std::collections::BTreeSet;

use evenkeel_region::store_file_tracker::{
    LIST_DIR, MIGRATION_DST_IMPL, MIGRATION_SRC_IMPL, TrackerImpl, TrackerSettings, list_file,
};

use super::*;

fn with_lists() -> Cluster {
    Cluster::with_tracked_table("FILE")
}

fn to_lists(master: &Arc<Master>) -> Result<u64> {
    master.modify_tracker(table_name(), None, "FILE", NO_NONCE)
}

fn from_lists(master: &Arc<Master>) -> Result<u64> {
    master.modify_tracker(table_name(), None, "DEFAULT", NO_NONCE)
}

fn snapshot_of(table: &str) -> pb::SnapshotDescription {
    pb::SnapshotDescription { name: "s".into(), table: Some(table.into()), ..Default::default() }
}

fn clone(master: &Arc<Master>) -> Result<u64> {
    master.restore_or_clone_snapshot(&snapshot_of("clone"), None, NO_NONCE)
}

fn tracker(cluster: &Cluster) -> TrackerImpl {
    let table = cluster.master().table(&table_name()).expect("known");
    TrackerSettings::of_table(&table.descriptor).tracker().expect("known")
}

/// Checks that the list of each served store of a table names what the store serves.
fn check_lists(cluster: &Cluster, table: &TableName, history: &str) {
    for region in cluster.regions_of(table) {
        let dir = layout::region_dir(Path::new("/hbase"), region.info());
        for store in region.stores() {
            let listed =
                list_file::read(&cluster.memory, &dir.join(store.family().name_text())).expect("read");
            let listed: BTreeSet<_> = listed.into_iter().flatten().map(|file| file.name).collect();
            let served: BTreeSet<_> = store.files().into_iter().map(|file| file.name).collect();
            assert_eq!(listed, served, "{history}: {dir:?}");
        }
    }
}

fn rows_and_lists(cluster: &Cluster, _: bool, history: &str) {
    all_rows_are_there(cluster, true, history);
    check_lists(cluster, &table_name(), history);
}

#[test]
fn splits_with_lists_lose_nothing_at_any_step() {
    at_every_step(with_lists, split, rows_and_lists);
}

#[test]
fn merges_with_lists_lose_nothing_at_any_step() {
    at_every_step(with_lists, merge, rows_and_lists);
}

#[test]
fn alterations_with_lists_lose_nothing_at_any_step() {
    at_every_step(with_lists, drop_family, rows_and_lists);
}

#[test]
fn truncations_of_regions_with_lists_are_all_or_nothing_at_any_step() {
    at_every_step(with_lists, truncate_region, |cluster, ok, history| {
        cluster.check_regions(history);
        let rows = cluster.rows();
        assert!(rows == ROWS[3..] || (rows == ROWS && !ok), "{history}: {rows:?}");
        check_lists(cluster, &table_name(), history);
    });
}

#[test]
fn clones_with_lists_are_atomic_at_any_step() {
    let with_snapshot = || {
        let cluster = with_lists();
        cluster.run(|master| master.take_snapshot(snapshot_of("t"), NO_NONCE)).expect("taken");
        cluster
    };
    let name: TableName = "clone".parse().expect("legal");
    at_every_step(with_snapshot, clone, |cluster, ok, history| {
        if cluster.master().table(&name).is_err() {
            assert!(!ok, "{history}");
            cluster.run(clone).expect("cloned");
        }
        assert_eq!(cluster.rows_of(&name), ROWS, "{history}");
        check_lists(cluster, &name, history);
        assert_eq!(cluster.rows(), ROWS, "{history}");
    });
}

#[test]
fn a_change_of_the_tracker_loses_nothing_at_any_step() {
    for (prepare, change, wanted) in [
        (Cluster::with_table as fn() -> Cluster, to_lists as Change, TrackerImpl::File),
        (with_lists, from_lists, TrackerImpl::Default),
    ] {
        at_every_step(prepare, change, |cluster, ok, history| {
            all_rows_are_there(cluster, true, history);
            assert!(!ok || tracker(cluster) == wanted, "{history}");
            cluster.run(change).expect("there is space again");
            assert_eq!(tracker(cluster), wanted, "{history}");
            assert_eq!(cluster.rows().len(), ROWS.len() + 1, "{history}");
            if wanted == TrackerImpl::File {
                check_lists(cluster, &table_name(), history);
            }
        });
    }
}

#[test]
fn a_migration_does_not_end_while_a_region_is_not_served_with_it() {
    let mut cluster = Cluster::with_table();
    let modify = |cluster: &Cluster, changes: &[(&str, &str)]| {
        cluster.run(|master| {
            let table = (*master.table(&table_name())?.descriptor).clone();
            let table = changes.iter().fold(table, |table, (key, value)| table.with(key, value));
            master.modify_table(table_name(), table, NO_NONCE)
        })
    };
    let migration =
        [(TRACKER_IMPL, "MIGRATION"), (MIGRATION_SRC_IMPL, "DEFAULT"), (MIGRATION_DST_IMPL, "FILE")];
    modify(&cluster, &migration).expect("begun");
    let region = cluster.region_of("z");
    let online =
        |cluster: &Cluster| cluster.master().parts.regionserver.regions().find(region.info().encoded_name());
    drop(cluster.master().parts.regionserver.regions().remove(region.info().encoded_name(), None));
    assert!(online(&cluster).is_none());
    let message = format!(
        "The migration of the store file tracker of family f cannot end yet: region {} is not served with MIGRATION",
        region.info().name_text()
    );
    assert_eq!(modify(&cluster, &[(TRACKER_IMPL, "FILE")]).expect_err("refused").message(), message);
    assert_eq!(cluster.run(to_lists).expect_err("refused").message(), message);
    assert_eq!(tracker(&cluster), TrackerImpl::Migration);
    cluster.crash();
    cluster.run(to_lists).expect("all regions are served");
    assert_eq!(tracker(&cluster), TrackerImpl::File);
    assert_eq!(cluster.rows(), ROWS);
}

#[test]
fn a_start_gives_hbase_meta_a_tracker() {
    let mut cluster = Cluster::new();
    let dir = layout::table_dir(Path::new("/hbase"), &TableName::meta());
    let on_disk = |cluster: &Cluster| descriptors::read(&cluster.memory, &dir).expect("read").expect("there");
    assert_eq!(on_disk(&cluster).text(TRACKER_IMPL), Some("DEFAULT"));
    let older = on_disk(&cluster);
    let mut attributes = older.attributes().clone();
    attributes.remove(TRACKER_IMPL.as_bytes());
    descriptors::write(&cluster.memory, &dir, &older.clone().with_attributes(attributes)).expect("written");
    assert_eq!(on_disk(&cluster).text(TRACKER_IMPL), None);
    cluster.crash();
    assert_eq!(on_disk(&cluster), older);
}

#[test]
fn illegal_changes_are_refused() {
    let cluster = Cluster::with_table();
    let modify = |tracker: &'static str| {
        cluster.run(|master| {
            let table = master.table(&table_name())?.descriptor;
            master.modify_table(table_name(), (*table).clone().with(TRACKER_IMPL, tracker), NO_NONCE)
        })
    };
    let error = modify("FILE").expect_err("it needs a migration");
    assert_eq!(error.kind(), ErrorKind::DoNotRetry);
    let message = "Should change to MIGRATION first when migrating from DEFAULT for family f of table t";
    assert_eq!(error.message(), message);
    let migrate = |master: &Arc<Master>| master.modify_tracker(table_name(), None, "MIGRATION", NO_NONCE);
    assert_eq!(cluster.run(migrate).expect_err("refused").message(), "Do not need to transfer to MIGRATION");
    let unknown =
        |master: &Arc<Master>| master.modify_tracker(table_name(), Some(b"x".to_vec()), "FILE", NO_NONCE);
    assert_eq!(cluster.run(unknown).expect_err("refused").kind(), ErrorKind::NoSuchColumnFamily);
    cluster.run(disable).expect("disabled");
    assert_eq!(cluster.run(to_lists).expect_err("refused").kind(), ErrorKind::TableNotEnabled);
}

#[test]
fn a_family_changes_alone() {
    let mut cluster = Cluster::with_table();
    let change =
        |master: &Arc<Master>| master.modify_tracker(table_name(), Some(b"f".to_vec()), "FILE", NO_NONCE);
    cluster.run(change).expect("changed");
    cluster.crash();
    assert_eq!(cluster.rows(), ROWS);
    let lists = |family: &str| {
        let regions = cluster.regions().into_iter();
        let dirs = regions.map(|region| layout::region_dir(Path::new("/hbase"), region.info()).join(family));
        dirs.filter(|dir| cluster.memory.exists(&dir.join(LIST_DIR)).expect("looked")).count()
    };
    assert_eq!((lists("f"), lists("g")), (2, 0));
}

#[test]
fn lists_of_a_deleted_table_go_to_the_archive_and_are_deleted_there() {
    let cluster = with_lists();
    cluster.run(disable).expect("disabled");
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
    assert!(!cluster.memory.exists(&path(".hbck")).expect("looked"), "nothing was moved aside");
    assert!(!cluster.memory.exists(&path("data/default/t")).expect("looked"));
    cluster.clock.set_ms(1_000_000_000_000_000);
    for _ in 0..3 {
        cluster.master().run_cleaners().expect("ran");
    }
    assert!(!cluster.memory.exists(&path("archive/data/default/t")).expect("looked"));
}
