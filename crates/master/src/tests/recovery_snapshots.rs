//! A snapshot before a change that removes data.

use evenkeel_protocol::pb;

use super::*;

/// A cluster with a table, and a master that takes recovery snapshots.
fn with_recovery_snapshots(attributes: &[(&str, &str)]) -> Cluster {
    let mut cluster = Cluster::with_table();
    let described = cluster.master().table(&table_name()).expect("there").descriptor;
    let changed = attributes.iter().fold((*described).clone(), |table, (key, value)| table.with(key, value));
    cluster.run(|master| master.modify_table(table_name(), changed.clone(), NO_NONCE)).expect("altered");
    cluster.conf.set("hbase.snapshot.before.destructive.action.enabled", "true");
    cluster.crash();
    cluster
}

fn taken(cluster: &Cluster) -> Vec<pb::SnapshotDescription> {
    cluster.master().completed_snapshots().expect("listed")
}

fn delete(cluster: &Cluster) -> Result<Vec<u8>> {
    cluster.run(disable)?;
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE))
}

fn truncate(cluster: &Cluster) -> Result<Vec<u8>> {
    cluster.run(disable)?;
    cluster.run(|master| master.truncate_table(table_name(), true, NO_NONCE))
}

type Removal = fn(&Cluster) -> Result<Vec<u8>>;

const REMOVALS: [(&str, Removal); 4] = [
    ("delete", delete),
    ("truncate", truncate),
    ("truncate a region", |cluster| cluster.run(truncate_region)),
    ("delete a family", |cluster| cluster.run(drop_family)),
];

#[test]
fn what_a_change_removes_is_in_a_snapshot() {
    let clone: TableName = "clone".parse().expect("legal");
    for (what, remove) in REMOVALS {
        let cluster = with_recovery_snapshots(&[]);
        cluster.put("only in memory").expect("written");
        let before = cluster.cells_of(&table_name());
        remove(&cluster).expect(what);
        let snapshots = taken(&cluster);
        assert_eq!(snapshots.len(), 1, "{what}");
        let snapshot = &snapshots[0];
        assert_eq!(snapshot.name, format!("auto_t_{}", snapshot.creation_time()), "{what}");
        assert_eq!((snapshot.ttl(), snapshot.table()), (86_400, "t"), "{what}");
        let wanted = pb::SnapshotDescription { table: Some("clone".into()), ..snapshot.clone() };
        cluster.run(|master| master.restore_or_clone_snapshot(&wanted, None, NO_NONCE)).expect("cloned");
        assert_eq!(cluster.cells_of(&clone), before, "{what}");
        cluster.clock.set_ms(snapshot.creation_time() + 86_400_001);
        assert_eq!(cluster.master().delete_expired_snapshots(), Ok(1), "{what}");
    }
}

#[test]
fn a_change_is_not_made_without_its_snapshot() {
    for (what, remove) in REMOVALS {
        let cluster = with_recovery_snapshots(&[]);
        let before = cluster.cells_of(&table_name());
        cluster.fs.inject(Fault::on(Op::Rename, ".hbase-snapshot").always().fails(IoKind::StorageFull));
        assert!(remove(&cluster).is_err(), "{what}");
        cluster.fs.clear();
        if cluster.master().table(&table_name()).expect("there").state != TableState::Enabled {
            cluster.run(|master| master.enable_table(table_name(), NO_NONCE)).expect("enabled");
        }
        assert_eq!(cluster.cells_of(&table_name()), before, "{what}");
        assert!(taken(&cluster).is_empty(), "{what}");
    }
}

#[test]
fn only_changes_that_remove_data_take_a_snapshot_and_only_if_the_settings_ask() {
    for (what, remove) in REMOVALS {
        let cluster = Cluster::with_table();
        remove(&cluster).expect(what);
        assert!(taken(&cluster).is_empty(), "{what}");
    }
    let cluster = with_recovery_snapshots(&[]);
    let family = ColumnFamilyDescriptor::new(b"h").expect("legal");
    cluster.run(|master| master.add_family(table_name(), family.clone(), NO_NONCE)).expect("added");
    let changed = family.with("VERSIONS", "3");
    cluster.run(|master| master.modify_family(table_name(), changed.clone(), NO_NONCE)).expect("altered");
    assert!(taken(&cluster).is_empty());
}

#[test]
fn a_table_has_its_own_time_to_live() {
    for (own, seconds) in [("7", 7), ("0", 0), ("week", 86_400)] {
        let cluster = with_recovery_snapshots(&[("RECOVERY_SNAPSHOT_TTL", own)]);
        // Both within one millisecond.
        cluster.run(truncate_region).expect("truncated");
        cluster.run(truncate_region).expect("truncated");
        let ttls: Vec<_> = taken(&cluster).iter().map(pb::SnapshotDescription::ttl).collect();
        assert_eq!(ttls, [seconds, seconds], "{own}");
    }
}

#[test]
fn tables_of_similar_names_have_snapshots_of_their_own() {
    let cluster = with_recovery_snapshots(&[]);
    let master = cluster.master();
    let name = |table: &str| master.unused_name(&table.parse().expect("legal"), 7).expect("looked");
    let first = name("ns:t");
    assert_eq!((&*first.name, &*name("ns_t").name), ("auto_ns_t_7", "auto_ns_t_8"));
    drop(first);
    assert_eq!(name("ns_t").name, "auto_ns_t_7", "no snapshot has been taken");
}

#[test]
fn a_table_of_a_namespace_can_be_removed() {
    let cluster = with_recovery_snapshots(&[]);
    let name: TableName = "ns:t".parse().expect("legal");
    let namespace = pb::NamespaceDescriptor { name: "ns".into(), ..pb::NamespaceDescriptor::default() };
    cluster.run(|master| master.create_namespace(namespace.clone(), NO_NONCE)).expect("created");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let table = TableDescriptor::new(name.clone()).with_family(family);
    cluster.run(|master| master.create_table(table.clone(), Vec::new(), NO_NONCE)).expect("created");
    cluster.run(|master| master.disable_table(name.clone(), NO_NONCE)).expect("disabled");
    cluster.run(|master| master.delete_table(name.clone(), NO_NONCE)).expect("deleted");
    let snapshots = taken(&cluster);
    assert_eq!(snapshots.len(), 1);
    assert!(snapshots[0].name.starts_with("auto_ns_t_") && snapshots[0].table() == "ns:t");
}
