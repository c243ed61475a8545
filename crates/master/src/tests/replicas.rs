//! Secondary replicas after changes of their tables, and after starts.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::*;

fn alter(master: &Arc<Master>, replicas: u32) -> Result<u64> {
    let table = master.table(&table_name())?.descriptor;
    master.modify_table(
        table_name(),
        TableDescriptor::clone(&table).with_region_replication(replicas),
        NO_NONCE,
    )
}

/// The cluster of the other tests, with two replicas of each region.
fn with_replicas() -> Cluster {
    let cluster = Cluster::with_table();
    cluster.run(|master| alter(master, 2)).expect("altered");
    cluster
}

/// Region names of the secondary replicas that are served.
fn served(cluster: &Cluster) -> BTreeSet<String> {
    let online = cluster.master().parts.regionserver.regions().of_table(&table_name());
    let secondary = online.iter().filter(|region| region.is_secondary());
    secondary.map(|region| region.info().name_text()).collect()
}

/// Names and states of the secondary replicas that hbase:meta has.
fn recorded(cluster: &Cluster) -> BTreeSet<(String, String)> {
    let rows = cluster.master().meta().regions(Some(&table_name())).expect("read");
    let of_row = |row: &crate::meta::MetaRegion| {
        let info = row.info.clone();
        let states = row.replica_states.clone().into_iter();
        states.map(move |(id, state)| (info.replica(id).name_text(), state)).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of_row).collect()
}

/// Names of the secondary replicas that a table has if each region has this number of replicas.
fn wanted(cluster: &Cluster, replicas: i32) -> BTreeSet<String> {
    let live = cluster.master().live_regions(&table_name()).expect("read");
    live.iter().flat_map(|info| (1..replicas).map(|id| info.replica(id).name_text())).collect()
}

fn recorded_as(names: BTreeSet<String>, state: &str) -> BTreeSet<(String, String)> {
    names.into_iter().map(|name| (name, state.to_owned())).collect()
}

/// Checks that exactly the wanted replicas are served and recorded. The assignment thread may have
/// to open them first.
fn check_replicas(cluster: &Cluster, replicas: i32, history: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let wanted = wanted(cluster, replicas);
        let found = (served(cluster), recorded(cluster));
        if found == (wanted.clone(), recorded_as(wanted.clone(), "OPEN")) {
            return;
        }
        assert!(Instant::now() < deadline, "{history}: {found:?}, not {wanted:?}");
        cluster.master().wake_assignment();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Rows of the secondary replicas with this id.
fn rows_of(cluster: &Cluster, id: i32) -> Vec<String> {
    let mut replicas = cluster.master().parts.regionserver.regions().of_table(&table_name());
    replicas.retain(|region| region.info().replica_id() == id);
    let mut rows = Vec::new();
    for region in replicas {
        for row in ROWS.iter().filter(|row| region.info().contains_row(row.as_bytes())) {
            if !region.get(Scan::get(row.as_bytes().to_vec())).expect("read").is_empty() {
                rows.push((*row).to_owned());
            }
        }
    }
    rows
}

#[test]
fn replicas_follow_the_changes_of_their_table() {
    let cluster = Cluster::with_table();
    assert_eq!(recorded(&cluster), BTreeSet::new());
    for replicas in [3, 2, 1, 2] {
        cluster.run(|master| alter(master, replicas)).expect("altered");
        check_replicas(&cluster, replicas as i32, &format!("{replicas} replicas"));
    }
    assert_eq!(rows_of(&cluster, 1), ROWS, "the change has flushed them");
    cluster.run(disable).expect("disabled");
    let closed = recorded_as(wanted(&cluster, 2), "CLOSED");
    assert_eq!((served(&cluster), recorded(&cluster)), (BTreeSet::new(), closed));
    cluster.run(|master| alter(master, 3)).expect("altered");
    assert_eq!(served(&cluster), BTreeSet::new());
    cluster.run(|master| master.enable_table(table_name(), NO_NONCE)).expect("enabled");
    check_replicas(&cluster, 3, "enabled");
    for (change, name) in [(split as Change, "split"), (truncate_region, "truncated"), (merge_two, "merged")]
    {
        cluster.run(change).unwrap_or_else(|error| panic!("{name}: {error}"));
        check_replicas(&cluster, 3, name);
        cluster.check_regions(name);
    }
    cluster.run(disable).expect("disabled");
    cluster.run(|master| master.truncate_table(table_name(), true, NO_NONCE)).expect("truncated");
    check_replicas(&cluster, 3, "truncated");
    assert_eq!(rows_of(&cluster, 1), Vec::<String>::new());
    cluster.run(disable).expect("disabled");
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
    assert_eq!((served(&cluster), recorded(&cluster)), (BTreeSet::new(), BTreeSet::new()));
}

/// Merges the last two regions.
fn merge_two(master: &Arc<Master>) -> Result<u64> {
    let names = encoded(master);
    master.merge_regions(names[names.len() - 2..].to_vec(), false, NO_NONCE)
}

#[test]
fn a_truncated_region_is_empty_in_its_replicas() {
    let cluster = with_replicas();
    assert_eq!(rows_of(&cluster, 1), ROWS);
    cluster.run(truncate_region).expect("truncated");
    assert_eq!(rows_of(&cluster, 1), ["m", "n", "z"]);
}

#[test]
fn replicas_are_opened_at_start() {
    let mut cluster = with_replicas();
    cluster.crash();
    check_replicas(&cluster, 2, "started");
    assert_eq!(rows_of(&cluster, 1), ROWS);
}

#[test]
fn changes_of_tables_with_replicas_lose_nothing_at_any_step() {
    let check = |cluster: &Cluster, _: bool, history: &str| {
        cluster.check_regions(history);
        assert_eq!(cluster.rows(), ROWS, "{history}");
        check_replicas(cluster, 2, history);
    };
    at_every_step(with_replicas, split, check);
    at_every_step(with_replicas, merge, check);
}

/// The rows of hbase:meta keep no columns of replicas that are gone, even if the process ends
/// between the change and them.
#[test]
fn more_or_fewer_replicas_are_all_or_none() {
    let changes: [(Change, u32); 2] = [(|master| alter(master, 1), 1), (|master| alter(master, 3), 3)];
    for (change, wanted) in changes {
        let check = |cluster: &Cluster, is_done: bool, history: &str| {
            assert_eq!(cluster.rows(), ROWS, "{history}");
            let table = cluster.master().table(&table_name()).expect("known").descriptor;
            assert!(!is_done || table.region_replication() == wanted, "{history}");
            check_replicas(cluster, table.region_replication() as i32, history);
        };
        at_every_step(with_replicas, change, check);
    }
}

#[test]
fn a_replica_is_unassigned_and_assigned_by_its_name() {
    let cluster = with_replicas();
    let replica = cluster.master().live_regions(&table_name()).expect("read")[0].replica(1);
    let transit = |change| cluster.run(|master| master.submit_transit(replica.encoded_name(), change));
    transit(Master::unassign_region).expect("unassigned");
    let is_recorded = |state: &str| recorded(&cluster).contains(&(replica.name_text(), state.to_owned()));
    assert!(served(&cluster).len() == 1 && is_recorded("CLOSED"));
    assert!(cluster.master().assign_all_replicas(), "nothing is left to do");
    assert_eq!(served(&cluster).len(), 1, "it stays closed");
    transit(Master::assign_region).expect("assigned");
    check_replicas(&cluster, 2, "assigned");
    transit(Master::reopen_region).expect("moved");
    check_replicas(&cluster, 2, "moved");
}

#[test]
fn replicas_are_not_split_merged_or_truncated_directly() {
    let cluster = with_replicas();
    let live = cluster.master().live_regions(&table_name()).expect("read");
    let replicas: Vec<_> = live.iter().map(|info| info.replica(1)).collect();
    let names: Vec<_> = replicas.iter().map(|info| info.encoded_name().to_owned()).collect();
    let split = cluster.master().split_region(&names[0], Some(Bytes::from("b")), NO_NONCE);
    assert!(split.expect_err("rejected").to_string().contains("non-default regions directly"));
    let merged = cluster.master().merge_regions(names, true, NO_NONCE);
    assert!(merged.expect_err("rejected").to_string().contains("Can't merge non-default replicas"));
    let truncated = cluster.master().truncate_region(replicas[0].clone(), NO_NONCE);
    assert!(truncated.expect_err("rejected").to_string().contains("Can't truncate replicas directly"));
    check_replicas(&cluster, 2, "unchanged");
}

#[test]
fn too_many_replicas_are_refused() {
    let cluster = Cluster::with_table();
    for (replicas, message) in [(0, "should be at least one"), (65_537, "cannot exceed 65536")] {
        let error = alter(cluster.master(), replicas).expect_err("refused").to_string();
        assert!(error.contains(message), "{error}");
    }
}

/// Adds hbase:meta to the master's tables, as a start does.
fn add_meta(cluster: &Cluster) {
    let master = cluster.master();
    master.store_table(Arc::clone(master.meta().region().table()), TableState::Enabled);
    master.wake_assignment();
}

fn with_meta(settings: &[(&str, &str)]) -> Cluster {
    let cluster = Cluster::with_settings(settings);
    add_meta(&cluster);
    cluster
}

fn with_meta_replica() -> Cluster {
    let cluster = with_meta(&[]);
    cluster.run(|master| alter_meta(master, 2)).expect("altered");
    cluster
}

fn alter_meta(master: &Arc<Master>, replicas: u32) -> Result<u64> {
    let meta = TableName::meta();
    let table = TableDescriptor::clone(&master.table(&meta)?.descriptor).with_region_replication(replicas);
    master.modify_table(meta, table, NO_NONCE)
}

/// Ids of hbase:meta's secondary replicas: those that are served, those of the registry, and those
/// with a znode.
fn replicas_of_meta(cluster: &Cluster) -> [BTreeSet<i32>; 3] {
    let parts = &cluster.master().parts;
    let online = parts.regionserver.regions().of_table(&TableName::meta());
    let shown = parts.regionserver.cluster_view();
    let shown = shown.meta.iter().filter(|(_, server, _)| server.as_ref() == Some(&parts.server));
    let paths = parts.znodes.paths();
    let nodes = parts.znodes.tree().children(&paths.parent).expect("the parent");
    let of_nodes = nodes.iter().filter_map(|node| paths.meta_replica_id(node));
    let secondary = |ids: Vec<i32>| ids.into_iter().filter(|id| *id != 0).collect();
    [
        secondary(online.iter().map(|region| region.info().replica_id()).collect()),
        secondary(shown.map(|(region, ..)| region.replica_id()).collect()),
        secondary(of_nodes.collect()),
    ]
}

/// Checks that hbase:meta has this number of replicas. The assignment thread may have to open them
/// first.
fn check_meta(cluster: &Cluster, replicas: i32, history: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    let expected: BTreeSet<i32> = (1..replicas).collect();
    loop {
        let found = replicas_of_meta(cluster);
        if found.iter().all(|ids| *ids == expected) {
            return;
        }
        assert!(Instant::now() < deadline, "{history}: {found:?}, not {expected:?}");
        cluster.master().wake_assignment();
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn replicas_of_meta_follow_its_descriptor() {
    let mut cluster = with_meta(&[]);
    check_meta(&cluster, 1, "new");
    for replicas in [3, 2, 1, 3] {
        cluster.run(|master| alter_meta(master, replicas)).expect("altered");
        check_meta(&cluster, replicas as i32, &format!("{replicas} replicas"));
        assert_eq!(cluster.recorded_meta_replicas.load(Ordering::Relaxed), replicas);
    }
    cluster.crash();
    add_meta(&cluster);
    check_meta(&cluster, 3, "started");
}

#[test]
fn a_replica_of_meta_shows_what_is_flushed() {
    let cluster = with_meta_replica();
    let (master, name) = (cluster.master(), RegionInfo::meta().replica(1));
    let replica = master.parts.regionserver.regions().find(name.encoded_name()).expect("served");
    let table = TableDescriptor::new(table_name());
    let table = table.with_family(ColumnFamilyDescriptor::new(b"f").expect("legal"));
    cluster.run(|master| master.create_table(table, Vec::new(), NO_NONCE)).expect("made");
    let has_row = || !replica.get(Scan::get(table_name().to_string())).expect("read").is_empty();
    assert!(!replica.refresh_store_files().expect("listed") && !has_row());
    cluster.run(|master| master.flush_table(TableName::meta(), &[], NO_NONCE)).expect("flushed");
    assert!(replica.refresh_store_files().expect("listed") && has_row());
}

#[test]
fn the_setting_of_metas_replicas_counts_at_every_start() {
    const KEY: &str = "hbase.meta.replica.count";
    let mut cluster = with_meta(&[(KEY, "2")]);
    check_meta(&cluster, 2, "set to 2");
    cluster.run(|master| alter_meta(master, 3)).expect("altered");
    for (value, replicas) in [("2", 2), ("4", 4), ("", 4)] {
        cluster.conf.set(KEY, value);
        cluster.crash();
        add_meta(&cluster);
        check_meta(&cluster, replicas, &format!("set to {value}"));
    }
    for value in ["0", "-1", "65537", "x"] {
        cluster.conf.set(KEY, value);
        let error = regions::configured_meta_replicas(&cluster.conf).expect_err("unusable").to_string();
        assert!(error.contains(KEY), "{error}");
    }
}

#[test]
fn a_descriptor_of_meta_on_the_disk_asks_for_no_more_replicas_than_a_region_can_have() {
    let fs = MemoryFileSystem::new();
    let meta = descriptors::meta().expect("legal").with_region_replication(2_000_000_000);
    let root = Path::new("/hbase");
    descriptors::write(&fs, &layout::table_dir(root, meta.name()), &meta).expect("written");
    assert_eq!(regions::meta_replicas(&fs, root, None), Ok(0x10000));
    assert_eq!(regions::meta_replicas(&fs, root, Some(3)), Ok(3));
}

#[test]
fn more_or_fewer_replicas_of_meta_are_all_or_none() {
    let changes: [(Change, u32); 2] =
        [(|master| alter_meta(master, 1), 1), (|master| alter_meta(master, 3), 3)];
    for (change, wanted) in changes {
        let check = |cluster: &Cluster, is_done: bool, history: &str| {
            add_meta(cluster);
            let replicas = cluster.master().meta().region().table().region_replication();
            assert!(replicas == wanted || replicas == 2 && !is_done, "{history}: {replicas}");
            check_meta(cluster, replicas as i32, history);
        };
        at_every_step(with_meta_replica, change, check);
    }
}

#[test]
fn a_replica_of_meta_is_unassigned_and_assigned_by_its_name() {
    let cluster = with_meta_replica();
    let transit = |id, change| {
        let region = RegionInfo::meta().replica(id);
        cluster.run(|master| master.submit_transit(region.encoded_name(), change))
    };
    transit(1, Master::unassign_region).expect("unassigned");
    check_meta(&cluster, 1, "unassigned");
    assert!(cluster.master().assign_all_replicas(), "nothing is left to do");
    check_meta(&cluster, 1, "it stays closed");
    transit(1, Master::assign_region).expect("assigned");
    check_meta(&cluster, 2, "assigned");
    transit(1, Master::reopen_region).expect("moved");
    check_meta(&cluster, 2, "moved");
    transit(0, Master::unassign_region).expect_err("the master needs it");
    let rows = cluster.master().meta().regions(Some(&TableName::meta())).expect("read");
    assert_eq!(rows.len(), 0, "hbase:meta has no row of itself");
}

#[test]
fn nothing_but_the_replicas_of_meta_can_be_altered() {
    let cluster = with_meta(&[]);
    let master = cluster.master();
    let meta = TableDescriptor::clone(&master.table(&TableName::meta()).expect("known").descriptor);
    let (namespaces, family) =
        (TableName::namespace_table(), ColumnFamilyDescriptor::new(b"x").expect("legal"));
    let of_namespaces = TableDescriptor::clone(&master.table(&namespaces).expect("known").descriptor);
    for changed in [
        meta.clone().with("MAX_FILESIZE", "10485760").with_region_replication(2),
        meta.clone().with_family(family),
        of_namespaces.with_region_replication(2),
    ] {
        let error =
            master.modify_table(changed.name().clone(), changed.clone(), NO_NONCE).expect_err("refused");
        let error = error.to_string();
        assert!(error.contains(&format!("{} cannot be altered here", changed.name())), "{error}");
    }
    let error = alter_meta(master, 0).expect_err("refused").to_string();
    assert!(error.contains("should be at least one"), "{error}");
    let stored = meta.with("REGION_MEMSTORE_REPLICATION", "false");
    cluster.run(|master| master.modify_table(TableName::meta(), stored.clone(), NO_NONCE)).expect("altered");
    assert_eq!(*master.table(&TableName::meta()).expect("known").descriptor, stored);
}
