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
