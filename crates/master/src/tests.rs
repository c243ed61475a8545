//! Changes of tables over files in memory: the state after the disk fails, or the process dies, at
//! any step.

mod cluster;
mod connection;
mod faults;
mod hbase_1;
mod histories;
mod leftovers;
mod limits;
mod lost_rows;
mod namespace_limits;
mod namespaces;
mod recovery_keeps;
mod recovery_snapshots;
mod recovery_threads;
mod replicas;
mod space_quotas;
mod trackers;
mod wal_dir;

use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_block_cache::NoCache;
use evenkeel_common::cell::LATEST_TIMESTAMP;
use evenkeel_common::clock::{self, Clock, ManualClock};
use evenkeel_common::{
    CellBuffer, ColumnFamilyDescriptor, Configuration, KeyValue, ServerName, TableDescriptor,
};
use evenkeel_fs::{Fault, FaultyFileSystem, Latch, LocalHost, MemoryFileSystem, Op, SurvivingData};
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::operations::{Mutation, MutationKind, Scan};
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_region::region::{NoEvents, Region, RegionConfig, WalRoot};
use evenkeel_region::scanner::ScannerContext;
use evenkeel_region::store::{StoreConfig, StoreEnv};
use evenkeel_region::store_file_tracker::TRACKER_IMPL;
use evenkeel_wal::{NoListener, Wal, WalConfig, WalOptions};

pub(super) use self::cluster::{Cluster, path, table_name};
use super::*;
use crate::connection::EmbeddedConnection;
use crate::{recovery, regions};
use evenkeel_regionserver::background::BackgroundConfig;
use evenkeel_regionserver::quotas::settings::QuotaSettings;
use evenkeel_regionserver::{Background, ClusterView, RegionServerConfig, RegionServerParts, ServerHooks};
use evenkeel_zookeeper::ZnodeTree;
use evenkeel_zookeeper::znodes::ZnodePaths;

pub(super) const NO_NONCE: (u64, u64) = (0, 0);
/// WALs are split by two threads, as by default.
pub(super) const LIMITS: recovery::SplitLimits =
    recovery::SplitLimits { threads: 2, buffer_bytes_max: 1 << 20 };
pub(super) const ROWS: [&str; 6] = ["a", "b", "c", "m", "n", "z"];

pub(super) type Change = fn(&Arc<Master>) -> Result<u64>;

fn encoded(master: &Arc<Master>) -> Vec<String> {
    let mut regions = master.parts.regionserver.regions().of_table(&table_name());
    regions.retain(|region| !region.is_secondary());
    regions.iter().map(|region| region.info().encoded_name().to_owned()).collect()
}

pub(super) fn split(master: &Arc<Master>) -> Result<u64> {
    master.split_region(&encoded(master)[0], Some(Bytes::from("b")), NO_NONCE)
}

fn merge(master: &Arc<Master>) -> Result<u64> {
    master.merge_regions(encoded(master), false, NO_NONCE)
}

pub(super) fn truncate_region(master: &Arc<Master>) -> Result<u64> {
    let region = master.live_regions(&table_name())?.swap_remove(0);
    master.truncate_region(region, NO_NONCE)
}

fn drop_family(master: &Arc<Master>) -> Result<u64> {
    master.delete_family(table_name(), b"g".to_vec(), NO_NONCE)
}

pub(super) fn disable(master: &Arc<Master>) -> Result<u64> {
    master.disable_table(table_name(), NO_NONCE)
}

const STEPS: [Op; 6] = [Op::Create, Op::Append, Op::Sync, Op::Rename, Op::Delete, Op::Mkdirs];

/// Runs a change with the disk failing permanently from each step on. `check` runs after the change
/// has failed, and again after the process has died and restarted.
pub(super) fn at_every_step(
    prepare: impl Fn() -> Cluster,
    change: Change,
    check: impl Fn(&Cluster, bool, &str),
) {
    for op in STEPS {
        for step in 0.. {
            let mut cluster = prepare();
            cluster.fs.inject(Fault::on(op, "").after(step).always().fails(IoKind::StorageFull));
            let outcome = cluster.run(change);
            let history = format!("{op:?} {step}: {outcome:?}");
            cluster.crash();
            check(&cluster, outcome.is_ok(), &history);
            if outcome.is_ok() {
                break;
            }
            assert!(step < 100, "{op:?} never passes");
        }
    }
}

fn all_rows_are_there(cluster: &Cluster, _: bool, history: &str) {
    cluster.check_regions(history);
    assert_eq!(cluster.rows(), ROWS, "{history}");
    cluster.put("new").expect("written");
    assert_eq!(cluster.rows().len(), ROWS.len() + 1, "{history}");
}

#[test]
fn splits_lose_nothing_at_any_step() {
    at_every_step(Cluster::with_table, split, all_rows_are_there);
}

#[test]
fn merges_lose_nothing_at_any_step() {
    at_every_step(Cluster::with_table, merge, all_rows_are_there);
}

#[test]
fn alterations_lose_nothing_at_any_step() {
    at_every_step(Cluster::with_table, drop_family, all_rows_are_there);
}

#[test]
fn disabling_loses_nothing_at_any_step() {
    at_every_step(Cluster::with_table, disable, |cluster, _, history| {
        if cluster.master().table(&table_name()).expect("known").state == TableState::Disabled {
            assert!(cluster.regions().is_empty());
            cluster.run(|master| master.enable_table(table_name(), NO_NONCE)).expect("enabled");
        }
        all_rows_are_there(cluster, true, history);
    });
}

fn disabled() -> Cluster {
    let cluster = Cluster::with_table();
    cluster.run(disable).expect("disabled");
    cluster
}

#[test]
fn truncation_is_all_or_nothing_at_any_step() {
    for preserve in [true, false] {
        let truncate: Change = match preserve {
            true => |master| master.truncate_table(table_name(), true, NO_NONCE),
            false => |master| master.truncate_table(table_name(), false, NO_NONCE),
        };
        at_every_step(disabled, truncate, |cluster, _, history| {
            if cluster.master().table(&table_name()).expect("known").state == TableState::Disabled {
                cluster.run(|master| master.enable_table(table_name(), NO_NONCE)).expect("enabled");
                return all_rows_are_there(cluster, true, history);
            }
            cluster.check_regions(history);
            assert!(cluster.rows().is_empty(), "{history}");
        });
    }
}

#[test]
fn removal_is_all_or_nothing_at_any_step() {
    let delete: Change = |master| master.delete_table(table_name(), NO_NONCE);
    at_every_step(disabled, delete, |cluster, _, history| {
        if cluster.master().table(&table_name()).is_ok() {
            cluster.run(|master| master.enable_table(table_name(), NO_NONCE)).expect("enabled");
            return all_rows_are_there(cluster, true, history);
        }
        assert!(cluster.master().live_regions(&table_name()).expect("read").is_empty(), "{history}");
        assert!(!cluster.memory.exists(&path("data/default/t")).expect("looked"), "{history}");
    });
}

/// While the disk fails for a while, a change fails and the table is served again, without a
/// restart.
#[test]
fn a_change_that_cannot_close_its_regions_leaves_them_served() {
    for change in [split as Change, merge, disable, drop_family] {
        let cluster = Cluster::with_table();
        // Each region has something to flush.
        ["a", "z"].into_iter().for_each(|row| cluster.put(row).expect("written"));
        cluster.fs.inject(Fault::on(Op::Create, ".tmp/f/").always().fails(IoKind::StorageFull));
        cluster.run(change).expect_err("a region cannot be flushed");
        cluster.fs.clear();
        all_rows_are_there(&cluster, true, "served on");
    }
}

/// The log has the nonces under the names of regions that no longer exist.
#[test]
fn a_retry_after_split_or_merge_is_applied_once() {
    for change in [split as Change, merge] {
        let mut cluster = Cluster::with_table();
        assert_eq!((cluster.increment("a", 5), cluster.increment("a", 5)), (1, 1), "a retry");
        cluster.run(change).expect("changed");
        assert_eq!(cluster.increment("a", 5), 1, "of the region that has the row now");
        cluster.crash();
        assert_eq!(cluster.increment("a", 5), 1, "of the next life");
        assert_eq!(cluster.increment("a", 6), 2, "another operation");
    }
}

#[test]
fn a_failed_split_is_undone_and_can_be_repeated() {
    let cluster = Cluster::with_table();
    let dirs = || cluster.memory.list(&path("data/default/t")).expect("listed").len();
    let before = dirs();
    // The names of the daughters' references.
    cluster.fs.inject(
        Fault::on(Op::Rename, &format!(".{}.tmp", encoded(cluster.master())[0])).fails(IoKind::StorageFull),
    );
    cluster.run(split).expect_err("cannot be prepared");
    cluster.fs.clear();
    assert_eq!(dirs(), before);
    cluster.check_regions("undone");
    assert_eq!(cluster.rows(), ROWS);
    cluster.run(split).expect("there is space again");
    all_rows_are_there(&cluster, true, "split");
    assert_eq!(cluster.regions().len(), 3);
}

#[test]
fn split_parents_are_deleted_after_their_daughters_split() {
    let cluster = Cluster::with_table();
    cluster.run(split).expect("split");
    let daughter = cluster.region_of("a");
    cluster
        .run(|master| master.split_region(daughter.info().encoded_name(), Some(Bytes::from("aa")), NO_NONCE))
        .expect("split");
    for region in cluster.regions() {
        region.compact(None, true).expect("compacted");
        region.archive_compacted().expect("archived");
    }
    drop(daughter);
    let parents = || cluster.master().meta().regions(Some(&table_name())).expect("read").into_iter();
    for _ in 0..3 {
        cluster.master().run_catalog_janitor().expect("ran");
    }
    assert_eq!(parents().filter(|region| region.info.is_split_parent()).count(), 0);
    all_rows_are_there(&cluster, true, "tidied up");
}

#[test]
fn references_are_compacted_by_the_compaction_threads_alone() {
    let cluster = Cluster::with_table();
    for region in cluster.regions() {
        region.flush().expect("flushed");
    }
    let background = cluster.master().parts.regionserver.background();
    background.switch_compactions(false);
    cluster.run(split).expect("split");
    let refers = |region: &Arc<Region>| region.stores().iter().any(|store| store.has_references());
    let daughters: Vec<_> = cluster.regions().into_iter().filter(refers).collect();
    assert!(!daughters.is_empty(), "compactions are switched off");
    background.switch_compactions(true);
    for region in &daughters {
        assert!(background.request_due_compaction(region, clock::monotonic()), "it is due later");
    }
    while daughters.iter().any(refers) {
        std::thread::yield_now();
    }
    all_rows_are_there(&cluster, false, "compacted");
}

#[test]
fn split_parents_are_kept_while_a_scanner_reads_them() {
    let mut cluster = Cluster::with_table();
    for region in cluster.regions() {
        region.flush().expect("flushed");
    }
    // The daughters' compactions begin once the scanners are open.
    let latch = Latch::new();
    cluster.fs.inject(Fault::on(Op::Create, "/.tmp/f").always().waits_for(&latch));
    cluster.run(split).expect("split");
    let daughters = cluster.regions();
    let scanners: Vec<_> =
        daughters.iter().map(|region| region.scanner(Scan::default()).expect("a scanner")).collect();
    latch.open();
    let refers = |region: &Arc<Region>| region.stores().iter().any(|store| store.has_references());
    while daughters.iter().any(refers) {
        std::thread::yield_now();
    }
    for region in daughters {
        region.archive_compacted().expect("archived");
    }
    let parents = |cluster: &Cluster| {
        let regions = cluster.master().meta().regions(Some(&table_name())).expect("read").into_iter();
        regions.filter(|region| region.info.is_split_parent()).count()
    };
    assert_eq!(cluster.master().run_catalog_janitor(), Ok(0), "the next start would open the references");
    assert_eq!(parents(&cluster), 1);
    // Delete what the cleaner would delete of archived parents.
    cluster.memory.delete(&path("archive")).expect("deleted");
    cluster.crash();
    assert_eq!(cluster.rows(), ROWS, "opened again");
    drop(scanners);
    assert_eq!(cluster.master().run_catalog_janitor(), Ok(1), "the start archived what had been replaced");
    all_rows_are_there(&cluster, true, "tidied up");
}

#[test]
fn concurrent_assigns_open_a_region_once() {
    let cluster = Cluster::with_table();
    let master = cluster.master();
    let region = cluster.region_of("a");
    let name = region.info().encoded_name();
    master.unassign_region(name).expect("closed");
    let started = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        let assign = || {
            started.wait();
            master.assign_region(name)
        };
        let all: Vec<_> = (0..4).map(|_| scope.spawn(assign)).collect();
        all.into_iter().for_each(|thread| thread.join().expect("no panic").expect("served"));
    });
    // There is one instance: what is written now is also what is read later.
    cluster.put("a2").expect("written");
    assert!(cluster.rows().contains(&"a2".to_owned()));
    let meta = RegionInfo::meta();
    assert!(master.unassign_region(meta.encoded_name()).is_err());
    master.reopen_region(meta.encoded_name()).expect("nothing to do");
    assert!(!master.meta().region().is_closed());
}

#[test]
fn a_retried_request_returns_the_first_procedure_id() {
    let cluster = Cluster::with_table();
    let master = cluster.master();
    let nonce = (3, 4);
    let first = master.disable_table(table_name(), nonce).expect("submitted");
    cluster.run(|_| Ok(first)).expect("disabled");
    assert_eq!(master.disable_table(table_name(), nonce), Ok(first));
    assert!(master.disable_table(table_name(), NO_NONCE).is_err());
}

#[test]
fn a_recreated_table_survives_a_clock_set_back() {
    let mut cluster = disabled();
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
    cluster.clock = ManualClock::at(1);
    cluster.crash();
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let table = TableDescriptor::new(table_name()).with_family(family);
    cluster.run(|master| master.create_table(table, Vec::new(), NO_NONCE)).expect("made");
    cluster.put("a").expect("written");
    cluster.crash();
    assert_eq!(cluster.rows(), ["a"]);
    cluster.check_regions("made again");
}

/// A region's name is longer than its start key, and must fit a row of hbase:meta.
#[test]
fn a_region_name_longer_than_a_row_is_refused() {
    let cluster = Cluster::with_table();
    let long = |len: usize| Bytes::from(vec![b'c'; len]);
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let table = TableDescriptor::new("long".parse().expect("legal")).with_family(family);
    let made = cluster.run(|master| master.create_table(table.clone(), vec![long(32_767)], NO_NONCE));
    let error = made.expect_err("its name is longer than a row");
    assert!(error.is_do_not_retry() && error.message().contains("is > 32767"), "{error}");
    let before = encoded(cluster.master());
    let split = cluster.run(|master| master.split_region(&before[0], Some(long(32_760)), NO_NONCE));
    let error = split.expect_err("the daughter's name is longer than a row");
    assert!(error.is_do_not_retry() && error.message().contains("is > 32767"), "{error}");
    assert_eq!(encoded(cluster.master()), before);
    cluster.put("a").expect("the parent is served");
    cluster.run(|master| master.create_table(table.clone(), vec![long(32_000)], NO_NONCE)).expect("made");
}

#[test]
fn the_state_of_a_table_can_be_repaired_but_not_that_of_a_served_one() {
    use pb::table_state::State::{Disabled, Disabling, Enabled};

    let cluster = Cluster::with_table();
    let name = table_name();
    let set = |state| cluster.run(|master| master.set_table_state(&name, state));
    let error = set(Disabled).expect_err("its regions are served");
    assert!(error.message().contains("are served"), "{error}");
    assert_eq!(
        cluster.run(|master| master.set_table_state(&name, Disabling)).expect_err("in between").kind(),
        ErrorKind::DoNotRetry
    );
    let of_namespaces = TableName::namespace_table();
    cluster.run(|master| master.set_table_state(&of_namespaces, Enabled)).expect_err("a system table");

    cluster.run(|master| master.disable_table(name.clone(), NO_NONCE)).expect("disabled");
    assert_eq!(set(Disabled), Ok(vec![Disabled as u8]), "no region is served");
    assert_eq!(set(Enabled), Ok(vec![Disabled as u8]), "the previous state");
    let deadline = Instant::now() + Duration::from_secs(30);
    while cluster.regions_of(&name).is_empty() {
        assert!(Instant::now() < deadline, "the regions of an enabled table are opened");
        std::thread::sleep(Duration::from_millis(1));
    }
    set(Disabled).expect_err("its regions are served again");
}

#[test]
fn regions_are_assigned_and_unassigned_by_name() {
    let cluster = Cluster::with_table();
    let names: Vec<String> = cluster
        .regions_of(&table_name())
        .iter()
        .map(|region| region.info().encoded_name().to_owned())
        .collect();
    let mut requested = names.clone();
    requested.push("unknown".to_owned());
    for (change, served) in [
        (Master::unassign_region as fn(&Master, &str) -> Result<()>, 0),
        (Master::assign_region, names.len()),
    ] {
        let ids = cluster.master().submit_transits(&requested, change).expect("hbase:meta is read");
        assert_eq!(ids.len(), names.len(), "an unknown region is left out");
        for id in ids {
            cluster.run(|_| Ok(id.expect("submitted"))).expect("done");
        }
        assert_eq!(cluster.regions_of(&table_name()).len(), served);
    }
}
