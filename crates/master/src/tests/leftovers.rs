//! Data that a family or a table left in logs or on disk does not come back in a new one of the
//! same name.

use super::*;

fn family(name: &str) -> ColumnFamilyDescriptor {
    ColumnFamilyDescriptor::new(name.as_bytes()).expect("legal")
}

/// Writes a row of both families.
fn put_both(cluster: &Cluster, row: &str) {
    cluster.clock.advance_ms(1);
    let cell = |family: &[u8]| KeyValue::put(row.as_bytes(), family, b"q", LATEST_TIMESTAMP, b"old");
    let mutation = Mutation::new(MutationKind::Put, row.as_bytes().to_vec(), vec![cell(b"f"), cell(b"g")]);
    cluster.region_of(row).mutate_wait(mutation).expect("written");
}

fn delete_and_add(cluster: &Cluster) {
    cluster.run(drop_family).expect("deleted");
    cluster.run(|master| master.add_family(table_name(), family("g"), NO_NONCE)).expect("added");
}

fn enable(cluster: &Cluster) {
    cluster.run(|master| master.enable_table(table_name(), NO_NONCE)).expect("enabled");
}

fn check_without_g(cluster: &mut Cluster, rows: usize) {
    for _ in 0..2 {
        let cells = cluster.cells_of(&table_name());
        let of_g: Vec<_> = cells.iter().filter(|cell| cell.contains("/g=")).collect();
        assert!(of_g.is_empty(), "{of_g:?}");
        assert_eq!(cluster.rows().len(), rows);
        cluster.crash();
    }
}

/// The files of the regions that were merged still hold the family when it is deleted.
#[test]
fn a_family_deleted_after_a_merge_stays_in_snapshots() {
    let mut cluster = Cluster::with_table();
    put_both(&cluster, "a");
    let snapshot = |name: &str| pb::SnapshotDescription {
        name: "s".into(),
        table: Some(name.into()),
        ..Default::default()
    };
    cluster.run(|master| master.take_snapshot(snapshot("t"), NO_NONCE)).expect("taken");
    let before = cluster.cells_of(&table_name());
    cluster.run(merge).expect("merged");
    cluster.run(drop_family).expect("deleted");
    cluster.crash();
    let clone = |master: &Arc<Master>| master.restore_or_clone_snapshot(&snapshot("clone"), None, NO_NONCE);
    cluster.run(clone).expect("cloned");
    assert_eq!(cluster.cells_of(&"clone".parse().expect("legal")), before);
}

#[test]
fn edits_of_a_deleted_family_do_not_reappear() {
    let mut cluster = Cluster::with_table();
    put_both(&cluster, "a");
    delete_and_add(&cluster);
    cluster.crash();
    check_without_g(&mut cluster, ROWS.len());
}

/// The table's last server died while it disabled the table, so its edits are in no file yet.
#[test]
fn unreplayed_edits_of_a_deleted_family_do_not_reappear() {
    let mut cluster = Cluster::with_table();
    put_both(&cluster, "a");
    let disabling = meta::MetaChange::State(table_name(), TableState::Disabling);
    cluster.master().meta().commit(vec![disabling]).expect("written");
    cluster.crash();
    delete_and_add(&cluster);
    enable(&cluster);
    check_without_g(&mut cluster, ROWS.len());
}

#[test]
fn unarchived_files_of_a_deleted_family_do_not_reappear() {
    for is_enabled in [true, false] {
        let mut cluster = Cluster::with_table();
        put_both(&cluster, "a");
        cluster.region_of("a").flush().expect("flushed");
        if !is_enabled {
            cluster.run(disable).expect("disabled");
        }
        cluster.fs.inject(Fault::on(Op::Touch, "/g/").always().fails(IoKind::Other));
        cluster.run(drop_family).expect("its files are archived later");
        let added = cluster.run(|master| master.add_family(table_name(), family("g"), NO_NONCE));
        added.expect_err("not beside the files of the old one");
        cluster.fs.clear();
        cluster.run(|master| master.add_family(table_name(), family("g"), NO_NONCE)).expect("added");
        if !is_enabled {
            enable(&cluster);
        }
        check_without_g(&mut cluster, ROWS.len());
    }
}

/// Within one clock millisecond, a table is written, deleted and created again.
#[test]
fn edits_of_a_recreated_table_do_not_reappear() {
    let mut cluster = Cluster::with_table();
    let names = encoded(cluster.master());
    cluster.run(disable).expect("disabled");
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
    let table = TableDescriptor::new(table_name()).with_family(family("f")).with_family(family("g"));
    cluster.run(|master| master.create_table(table, vec![Bytes::from("m")], NO_NONCE)).expect("made");
    assert!(encoded(cluster.master()).iter().all(|name| !names.contains(name)));
    cluster.crash();
    assert!(cluster.rows().is_empty(), "{:?}", cluster.rows());
}
