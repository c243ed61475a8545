//! Quotas and limits of namespaces through the stock client, on a server that has them: stock
//! HBase, or Evenkeel.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::time::{Duration, Instant};

use evenkeel_client::{Admin, ClientConfig, Connection, Put, SnapshotDescription};
use evenkeel_common::quota::QuotaTarget;
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use evenkeel_protocol::pb;
use interop::cluster::{Cluster, ClusterStorage};
use interop::{ServerKind, checks_on, target_with};

#[test]
fn throttles_refuse_and_wait_as_in_stock_hbase() {
    let server = target_with(&[("hbase.quota.enabled", "true"), ("hbase.quota.refresh.period", "500")]);
    checks_on(&server, "zk", &["quotas"]);
}

/// The chores of quotas of space run every few hundred milliseconds.
const SHORT_PERIODS: [&str; 5] = [
    "hbase.master.quotas.observer.chore",
    "hbase.master.quotas.snapshot.chore",
    "hbase.regionserver.quotas.fs.utilization.chore",
    "hbase.regionserver.quotas.policy.refresher.chore",
    "hbase.regionserver.quotas.region.size.reporting.chore",
];

/// Quotas are enabled, and their chores run often.
fn settings() -> Vec<(String, &'static str)> {
    let keys = SHORT_PERIODS.iter().flat_map(|chore| [format!("{chore}.delay"), format!("{chore}.period")]);
    let enabled = ("hbase.quota.enabled".to_owned(), "true");
    keys.map(|key| (key, "300")).chain([enabled]).collect()
}

#[test]
fn quotas_of_space_and_limits_of_namespaces_are_those_of_stock_hbase() {
    let settings = settings();
    let settings: Vec<_> = settings.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    checks_on(&target_with(&settings), "zk", &["space-quotas"]);
}

#[test]
fn a_server_of_a_stock_master_reports_sizes_and_enforces_policies() {
    let settings = settings();
    let settings: Vec<_> = settings.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    let (_cluster, server) = cluster_with(&settings);
    checks_on(&server, "zk", &["space-quotas"]);
}

/// A stock master, and the tested server.
fn cluster_with(settings: &[(&str, &str)]) -> (Cluster, interop::Server) {
    let fail = |why: String| -> ! { panic!("{why}") };
    let cluster = Cluster::start_with(ClusterStorage::Directory, settings).unwrap_or_else(|why| fail(why));
    let kind = match std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() {
        Ok("stock") => ServerKind::Stock,
        _ => ServerKind::Evenkeel,
    };
    let server = cluster.start_regionserver(kind, "rs", &[]).unwrap_or_else(|why| fail(why));
    cluster.wait_for_master().unwrap_or_else(|why| fail(why));
    (cluster, server)
}

#[test]
fn a_server_of_a_stock_master_reports_the_files_that_it_archives() {
    let chore = "hbase.master.quotas.snapshot.chore";
    let [delay, period] = ["delay", "period"].map(|time| format!("{chore}.{time}"));
    // A stock server archives compacted files by a chore.
    let discharger = ("hbase.hfile.compaction.discharger.interval", "500");
    let settings = [("hbase.quota.enabled", "true"), (&*delay, "1000"), (&*period, CHORE_MS), discharger];
    let (cluster, _server) = cluster_with(&settings);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config = ClientConfig::zookeeper("127.0.0.1", cluster.zookeeper_port(), "/hbase");
    runtime.block_on(count_archived_file(config));
}

/// How often the master computes the sizes of snapshots. It takes reports of files only for
/// snapshots that it has seen then.
const CHORE_MS: &str = "25000";
/// Within this time after the master has computed a size, only a report changes it.
const REPORT_WAIT: Duration = Duration::from_secs(15);

/// Archives the file of a snapshot, and waits until its bytes count for the snapshot.
async fn count_archived_file(config: ClientConfig) {
    let connection = Connection::connect(config).await.expect("the server answers");
    let admin = connection.admin();
    let name: TableName = "archived".parse().expect("legal");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let table = TableDescriptor::new(name.clone()).with_family(family);
    admin.create_table(&table, &[]).await.expect("created");
    let limit = pb::SpaceQuota {
        soft_limit: Some(1 << 30),
        violation_policy: Some(pb::SpaceViolationPolicy::NoInserts as i32),
        ..Default::default()
    };
    admin.set_space_quota(&QuotaTarget::Table(name.clone()), Some(limit)).await.expect("set");
    let put = |row: &'static str| Put::new(row).column("f", "q", vec![b'v'; 10_000]);
    connection.table(name.clone()).put(put("a")).await.expect("written");
    let snapshot = SnapshotDescription::new("kept", name.clone());
    admin.snapshot(&snapshot).await.expect("taken");
    connection.table(name.clone()).put(put("b")).await.expect("written");
    admin.flush_table(&name).await.expect("flushed");
    // Its file is the table's.
    wait_for_size(&admin, 0..1, Duration::from_secs(90)).await;
    admin.compact_table(&name, None, true).await.expect("requested");
    wait_for_size(&admin, 10_000..20_000, REPORT_WAIT).await;
}

/// Waits until the bytes that count for the only snapshot are in a range.
async fn wait_for_size(admin: &Admin, range: Range<u64>, wait: Duration) {
    let deadline = Instant::now() + wait;
    loop {
        let sizes = admin.snapshot_sizes().await.expect("read");
        if matches!(&sizes[..], [(_, snapshot, bytes)] if snapshot == "kept" && range.contains(bytes)) {
            return;
        }
        assert!(Instant::now() < deadline, "{sizes:?}, not in {range:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
