//! Snapshots over files in memory: the state after the disk fails, or the process dies, at any
//! step.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{ErrorKind, Result, TableName};
use evenkeel_fs::{FileSystem, Op};
use evenkeel_metrics::Value;
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::snapshot_description::Type;
use prost::Message;

use super::*;
use crate::meta::TableState;
use crate::tests::{Cluster, NO_NONCE, ROWS, at_every_step, disable, path, split, table_name};

fn named(name: &str, table: &str) -> pb::SnapshotDescription {
    pb::SnapshotDescription {
        name: name.into(),
        table: Some(table.into()),
        ..pb::SnapshotDescription::default()
    }
}

fn take(master: &Arc<Master>) -> Result<u64> {
    master.take_snapshot(named("s", "t"), NO_NONCE)
}

fn clone(master: &Arc<Master>) -> Result<u64> {
    master.restore_or_clone_snapshot(&named("s", "clone"), None, NO_NONCE)
}

fn restore(master: &Arc<Master>) -> Result<u64> {
    master.restore_or_clone_snapshot(&named("s", "t"), None, NO_NONCE)
}

fn clone_name() -> TableName {
    "clone".parse().expect("legal")
}

/// A cluster with a snapshot `s` of the table, and rows written, flushed and compacted after it.
fn with_snapshot() -> Cluster {
    let cluster = Cluster::with_table();
    cluster.run(take).expect("taken");
    for row in ["later", "z2"] {
        cluster.put(row).expect("written");
    }
    for region in cluster.regions() {
        region.flush().expect("flushed");
        region.compact(None, true).expect("compacted");
        region.archive_compacted().expect("archived");
    }
    cluster
}

fn disabled_with_snapshot() -> Cluster {
    let cluster = with_snapshot();
    cluster.run(disable).expect("disabled");
    cluster
}

fn names(cluster: &Cluster) -> Vec<String> {
    let all = cluster.master().completed_snapshots().expect("listed");
    all.into_iter().map(|snapshot| snapshot.name).collect()
}

/// Deletes everything that no rule of a cleaner keeps.
fn clean(cluster: &Cluster) {
    cluster.clock.set_ms(1_000_000_000_000_000);
    for _ in 0..3 {
        cluster.master().run_cleaners().expect("ran");
    }
}

fn enable(cluster: &Cluster) {
    cluster.run(|master| master.enable_table(table_name(), NO_NONCE)).expect("enabled");
}

#[test]
fn a_snapshot_outlives_its_table() {
    let cluster = with_snapshot();
    cluster.run(disable).expect("disabled");
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
    clean(&cluster);
    cluster.run(clone).expect("cloned");
    assert_eq!(cluster.rows_of(&clone_name()), ROWS);
    // The clone's links keep the files from then on.
    cluster.master().delete_snapshot("s").expect("deleted");
    clean(&cluster);
    let regions = cluster.regions_of(&clone_name());
    assert_eq!(regions.len(), 2);
    assert!(
        regions.iter().flat_map(|r| r.stores()).flat_map(|s| s.files()).all(|file| file.name.contains('='))
    );
    assert_eq!(cluster.rows_of(&clone_name()), ROWS);
    for region in regions {
        region.compact(None, true).expect("compacted");
        region.archive_compacted().expect("archived");
    }
    clean(&cluster);
    assert!(
        !cluster.memory.exists(&path("archive/data/default/t")).expect("looked"),
        "nobody needs them now"
    );
    assert_eq!(cluster.rows_of(&clone_name()), ROWS);
}

/// Converts the snapshot `s` to the layout of HBase 0.98. Its reference files have their content if
/// `with_content`, and are empty otherwise.
fn convert_to_layout_of_098(cluster: &Cluster, with_content: bool) {
    let store = SnapshotStore::new(&cluster.memory, Path::new("/hbase"), store::MANIFEST_BYTES_MAX);
    let snapshot = store.read("s").expect("read");
    let dir = store.dir("s");
    cluster.memory.delete(&dir.join("data.manifest")).expect("deleted");
    let description = pb::SnapshotDescription { version: None, ..snapshot.description };
    cluster
        .memory
        .write_atomically(&dir.join(".snapshotinfo"), &description.encode_to_vec())
        .expect("written");
    crate::descriptors::write(&cluster.memory, &dir, &snapshot.table).expect("written");
    for region in &snapshot.regions {
        let info = store::region_of(region).expect("legal");
        let dir = dir.join(info.encoded_name());
        evenkeel_region::region::write_region_info(&cluster.memory, &dir, &info).expect("written");
        for family in &region.family_files {
            let dir = dir.join(String::from_utf8_lossy(&family.family_name).as_ref());
            for file in &family.store_files {
                let reference = file.reference.as_ref().filter(|_| with_content);
                let content = reference.map(evenkeel_protocol::with_magic).unwrap_or_default();
                cluster.memory.write_atomically(&dir.join(&file.name), &content).expect("written");
            }
        }
    }
}

#[test]
fn a_snapshot_in_the_layout_of_098_keeps_its_files_and_is_cloned() {
    let cluster = with_snapshot();
    convert_to_layout_of_098(&cluster, true);
    assert_eq!(names(&cluster), ["s"]);
    cluster.run(disable).expect("disabled");
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
    clean(&cluster);
    cluster.run(clone).expect("cloned");
    assert_eq!(cluster.rows_of(&clone_name()), ROWS);
    cluster.master().delete_snapshot("s").expect("deleted");
    assert_eq!(names(&cluster), Vec::<String>::new());
}

#[test]
fn references_in_the_layout_of_098() {
    for with_content in [true, false] {
        let cluster = Cluster::with_table();
        for region in cluster.regions() {
            region.flush().expect("flushed");
        }
        cluster.master().parts.regionserver.background().switch_compactions(false);
        cluster.run(split).expect("split");
        cluster.run(take).expect("taken");
        convert_to_layout_of_098(&cluster, with_content);
        cluster.run(clone).expect("cloned");
        assert_eq!(cluster.rows_of(&clone_name()), ROWS, "{with_content}");
    }
}

#[test]
fn a_damaged_snapshot_in_the_layout_of_098_keeps_the_archive() {
    let cluster = with_snapshot();
    convert_to_layout_of_098(&cluster, true);
    let region = cluster.memory.list(&path(".hbase-snapshot/s")).expect("listed");
    let region =
        region.iter().find(|entry| entry.is_dir && !entry.name().starts_with('.')).expect("a region");
    cluster.memory.write_atomically(&region.path.join(".regioninfo"), b"damage").expect("written");
    cluster.run(disable).expect("disabled");
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
    clean(&cluster);
    assert!(cluster.memory.exists(&path("archive/data/default/t")).expect("looked"));
    assert_eq!(cluster.run(clone).expect_err("refused").kind(), ErrorKind::CorruptedSnapshot);
}

#[test]
fn procedures_that_succeed_are_timed() {
    let counts = |cluster: &Cluster| {
        let record = crate::metrics::snapshots(cluster.master())?;
        let count_of = |name: &str| {
            let name = format!("{name}_num_ops");
            record.all_metrics().find(|metric| metric.name() == name).map(|metric| metric.value)
        };
        let names = ["SnapshotTime", "SnapshotCloneTime", "SnapshotRestoreTime"];
        Some(names.map(|name| count_of(name).expect("it is shown")))
    };
    let cluster = Cluster::with_table();
    assert_eq!(counts(&cluster), None, "there is no bean before the first snapshot");
    cluster.run(take).expect("taken");
    cluster.run(take).expect_err("it exists");
    cluster.run(clone).expect("cloned");
    cluster.run(clone).expect_err("it exists");
    assert_eq!(counts(&cluster), Some([1, 1, 0].map(Value::Counter)));
    cluster.run(disable).expect("disabled");
    cluster.run(restore).expect("restored");
    assert_eq!(counts(&cluster), Some([1, 1, 1].map(Value::Counter)));
}

#[test]
fn a_clone_of_a_clone_links_to_the_first_files() {
    let cluster = with_snapshot();
    cluster.run(clone).expect("cloned");
    cluster.run(|master| master.take_snapshot(named("s2", "clone"), NO_NONCE)).expect("taken");
    cluster
        .run(|master| master.restore_or_clone_snapshot(&named("s2", "third"), None, NO_NONCE))
        .expect("cloned");
    for (table, snapshot) in [("t", "s"), ("clone", "s2")] {
        let name: TableName = table.parse().expect("legal");
        cluster.run(|master| master.disable_table(name.clone(), NO_NONCE)).expect("disabled");
        cluster.run(|master| master.delete_table(name, NO_NONCE)).expect("deleted");
        cluster.master().delete_snapshot(snapshot).expect("deleted");
    }
    clean(&cluster);
    let third: TableName = "third".parse().expect("legal");
    assert_eq!(cluster.rows_of(&third), ROWS);
    let names = cluster.regions_of(&third)[0].stores()[0].files();
    assert!(names.iter().all(|file| file.name.starts_with("t=")), "{names:?}");
}

#[test]
fn a_snapshot_of_a_split_region_needs_no_parent() {
    let cluster = Cluster::with_table();
    for region in cluster.regions() {
        region.flush().expect("flushed");
    }
    // The daughters keep their references: nothing compacts them.
    cluster.fs.inject(
        evenkeel_fs::Fault::on(Op::Rename, "/.tmp/f/").always().fails(std::io::ErrorKind::StorageFull),
    );
    cluster.run(split).expect("split");
    let parents = |cluster: &Cluster, table: &TableName| {
        let regions = cluster.master().meta().regions(Some(table)).expect("read");
        regions.iter().filter(|r| r.info.is_split_parent()).map(|r| r.daughters.len()).collect::<Vec<_>>()
    };
    assert_eq!(parents(&cluster, &table_name()), [2]);
    cluster.put("unflushed").expect("written");
    let skip_flush = pb::SnapshotDescription { r#type: Some(Type::Skipflush.into()), ..named("s", "t") };
    cluster.run(|master| master.take_snapshot(skip_flush, NO_NONCE)).expect("taken");
    cluster.run(clone).expect("cloned");
    assert_eq!(parents(&cluster, &clone_name()), [2]);
    assert_eq!(cluster.rows_of(&clone_name()), ROWS);
    cluster.fs.clear();
    for region in cluster.regions_of(&clone_name()) {
        region.compact(None, true).expect("compacted");
        region.archive_compacted().expect("archived");
    }
    cluster.master().run_catalog_janitor().expect("ran");
    assert_eq!(parents(&cluster, &clone_name()), [0; 0]);
    assert_eq!(cluster.rows_of(&clone_name()), ROWS);
}

#[test]
fn taking_a_snapshot_is_atomic_at_any_step() {
    at_every_step(Cluster::with_table, take, |cluster, ok, history| {
        let found = names(cluster);
        assert!(found.is_empty() || found == ["s"], "{history}: {found:?}");
        assert!(!ok || !found.is_empty(), "{history}");
        let below = cluster.memory.list(&path(".hbase-snapshot/.tmp")).unwrap_or_default();
        assert!(below.is_empty(), "{history}: {below:?}");
        if found.is_empty() {
            cluster.run(take).expect("there is space again");
        }
        cluster.run(clone).expect("cloned");
        assert_eq!(cluster.rows_of(&clone_name()), ROWS, "{history}");
    });
}

#[test]
fn deleting_a_snapshot_is_atomic_at_any_step() {
    let delete = |master: &Arc<Master>| -> Result<u64> {
        master.delete_snapshot("s")?;
        master.procedures.submit("TestProcedure", NO_NONCE, None, || Ok(Vec::new()))
    };
    at_every_step(with_snapshot, delete, |cluster, ok, history| {
        assert!(!ok || names(cluster).is_empty(), "{history}");
        if !names(cluster).is_empty() {
            cluster.run(clone).expect("cloned");
            assert_eq!(cluster.rows_of(&clone_name()), ROWS, "{history}");
        }
    });
}

#[test]
fn cloning_a_snapshot_is_atomic_at_any_step() {
    at_every_step(with_snapshot, clone, |cluster, ok, history| {
        if cluster.master().table(&clone_name()).is_err() {
            assert!(!ok, "{history}");
            assert!(!cluster.memory.exists(&path("data/default/clone")).expect("looked"), "{history}");
            cluster.run(clone).expect("cloned");
        }
        clean(cluster);
        assert_eq!(cluster.rows_of(&clone_name()), ROWS, "{history}");
    });
}

#[test]
fn restoring_a_snapshot_is_atomic_at_any_step() {
    at_every_step(disabled_with_snapshot, restore, |cluster, ok, history| {
        enable(cluster);
        cluster.check_regions(history);
        clean(cluster);
        let rows = cluster.rows();
        let untouched = [&ROWS[..3], &["later"], &ROWS[3..], &["z2"]].concat();
        assert!(rows == ROWS || (!ok && rows == untouched), "{history}: {rows:?}");
        cluster.put("new").expect("written");
    });
}

#[test]
fn a_restore_brings_back_the_table_descriptor() {
    let mut cluster = with_snapshot();
    cluster.run(|master| master.delete_family(table_name(), b"g".to_vec(), NO_NONCE)).expect("altered");
    cluster.run(disable).expect("disabled");
    cluster.run(restore).expect("restored");
    for _ in 0..2 {
        let table = cluster.master().table(&table_name()).expect("known");
        assert_eq!((table.descriptor.families().len(), table.state), (2, TableState::Disabled));
        cluster.crash();
    }
    enable(&cluster);
    assert_eq!(cluster.rows(), ROWS);
}

/// Logs may still hold what was written after the snapshot; it must not come back.
#[test]
fn edits_undone_by_a_restore_are_not_replayed() {
    let mut cluster = disabled_with_snapshot();
    cluster.run(restore).expect("restored");
    cluster.crash();
    enable(&cluster);
    assert_eq!(cluster.rows(), ROWS);
    cluster.crash();
    assert_eq!(cluster.rows(), ROWS);
}

/// The snapshot of a disabled table has the edits that only a dead server's logs hold.
#[test]
fn edits_of_a_dead_server_are_in_a_snapshot() {
    let mut cluster = Cluster::with_table();
    let meta = &cluster.master().parts.meta;
    meta.commit(vec![crate::meta::MetaChange::State(table_name(), TableState::Disabling)]).expect("written");
    cluster.crash();
    assert_eq!(cluster.master().table(&table_name()).expect("known").state, TableState::Disabled);
    cluster.run(take).expect("taken");
    cluster.run(clone).expect("cloned");
    assert_eq!(cluster.rows_of(&clone_name()), ROWS);
}

#[test]
fn invalid_snapshot_requests_fail_with_hbases_exceptions() {
    let cluster = with_snapshot();
    let master = cluster.master();
    let kind = |outcome: Result<u64>| outcome.map(|id| cluster.run(|_| Ok(id))).map_err(|e| e.kind()).err();
    assert_eq!(kind(take(master)), Some(ErrorKind::SnapshotExists));
    assert_eq!(
        kind(master.take_snapshot(named("x", "nowhere"), NO_NONCE)),
        Some(ErrorKind::SnapshotCreation)
    );
    for name in ["", ".tmp", "../x", "a/b", "-x"] {
        assert_eq!(
            kind(master.take_snapshot(named(name, "t"), NO_NONCE)),
            Some(ErrorKind::DoNotRetry),
            "{name}"
        );
        assert!(master.delete_snapshot(name).is_err(), "{name}");
    }
    assert_eq!(master.delete_snapshot("nowhere").map_err(|e| e.kind()), Err(ErrorKind::SnapshotDoesNotExist));
    assert_eq!(
        kind(master.restore_or_clone_snapshot(&named("nowhere", "t"), None, NO_NONCE)),
        Some(ErrorKind::SnapshotDoesNotExist)
    );
    assert_eq!(kind(restore(master)), Some(ErrorKind::UnsupportedOperation), "the table is enabled");
    assert_eq!(
        kind(master.restore_or_clone_snapshot(&named("s", "nowhere:t"), None, NO_NONCE)),
        Some(ErrorKind::NamespaceNotFound)
    );
    assert_eq!(
        master.is_snapshot_done(&named("nowhere", "t")).map_err(|e| e.kind()),
        Err(ErrorKind::UnknownSnapshot)
    );
    assert_eq!(master.is_snapshot_done(&named("s", "t")), Ok(true));
    // A file that the snapshot names is missing.
    cluster.memory.delete(&path("archive")).expect("deleted");
    assert_eq!(kind(clone(master)), Some(ErrorKind::CorruptedSnapshot));
}

#[test]
fn snapshots_end_with_their_time_to_live() {
    let cluster = with_snapshot();
    let short = pb::SnapshotDescription { ttl: Some(5), ..named("short", "t") };
    cluster.run(|master| master.take_snapshot(short, NO_NONCE)).expect("taken");
    cluster.clock.advance_ms(5_000);
    assert_eq!(cluster.master().delete_expired_snapshots(), Ok(0));
    cluster.clock.advance_ms(1);
    let clone =
        cluster.run(|master| master.restore_or_clone_snapshot(&named("short", "clone"), None, NO_NONCE));
    assert_eq!(clone.map_err(|e| e.kind()), Err(ErrorKind::SnapshotTtlExpired));
    assert_eq!(cluster.master().delete_expired_snapshots(), Ok(1));
    assert_eq!(names(&cluster), ["s"]);
}

#[test]
fn a_clone_has_the_snapshots_regions_and_ids_in_order() {
    let cluster = with_snapshot();
    cluster.run(clone).expect("cloned");
    let keys = |table: &TableName| {
        let regions = cluster.regions_of(table);
        regions.iter().map(|r| r.info().start_key().clone()).collect::<Vec<Bytes>>()
    };
    assert_eq!(keys(&clone_name()), keys(&table_name()));
}

#[test]
fn the_description_of_a_snapshot_is_limited() {
    let cluster = Cluster::with_table();
    let owned =
        |bytes: usize| pb::SnapshotDescription { owner: Some("o".repeat(bytes)), ..named("owned", "t") };
    let take = |snapshot| cluster.run(|master| master.take_snapshot(snapshot, NO_NONCE));
    let error = take(owned(store::NEW_INFO_BYTES_MAX)).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::SnapshotCreation);
    assert!(take(named(&"s".repeat(256), "t")).expect_err("no directory has this name").is_do_not_retry());
    take(owned(store::NEW_INFO_BYTES_MAX - 100)).expect("taken");
    take(named(&"s".repeat(255), "t")).expect("taken");
    assert_eq!(names(&cluster).len(), 2);
    let clone = named("owned", &"t".repeat(256));
    let error = cluster.run(|master| master.restore_or_clone_snapshot(&clone, None, NO_NONCE));
    assert!(error.expect_err("no directory has this name").is_do_not_retry());
}

#[test]
fn a_list_of_snapshots_is_charged_while_it_grows() {
    let cluster = Cluster::with_table();
    for at in 0..4 {
        let snapshot = pb::SnapshotDescription {
            owner: Some("o".repeat(60 << 10)),
            creation_time: Some(1),
            ttl: Some(1),
            ..named(&format!("s{at}"), "t")
        };
        cluster.clock.set_ms(1);
        cluster.run(|master| master.take_snapshot(snapshot, NO_NONCE)).expect("taken");
    }
    let budget = Arc::clone(cluster.master().parts.regionserver.unsent_budget());
    let taken = budget.free() - (200 << 10);
    assert!(budget.acquire(taken));
    let error = cluster.master().completed_snapshots().expect_err("no space");
    assert_eq!(error.kind(), ErrorKind::CallQueueTooBig);
    assert_eq!(budget.used(), taken);
    // The chore does not need the list.
    cluster.clock.set_ms(1_000_000);
    assert_eq!(cluster.master().delete_expired_snapshots(), Ok(4));
    budget.release(taken);
    assert!(names(&cluster).is_empty());
}
