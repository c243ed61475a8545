//! Quotas and limits of namespaces through the stock client, on a server that has them: stock
//! HBase, or Evenkeel.

#![forbid(unsafe_code)]

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
    let fail = |why: String| -> ! { panic!("{why}") };
    let cluster = Cluster::start_with(ClusterStorage::Directory, &settings).unwrap_or_else(|why| fail(why));
    let kind = match std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() {
        Ok("stock") => ServerKind::Stock,
        _ => ServerKind::Evenkeel,
    };
    let server = cluster.start_regionserver(kind, "rs", &[]).unwrap_or_else(|why| fail(why));
    cluster.wait_for_master().unwrap_or_else(|why| fail(why));
    checks_on(&server, "zk", &["space-quotas"]);
}
