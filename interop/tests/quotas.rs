//! Quotas and limits of namespaces through the stock client, on a server that has them: stock HBase,
//! or Evenkeel.

#![forbid(unsafe_code)]

use interop::{checks_on, target_with};

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

#[test]
fn quotas_of_space_and_limits_of_namespaces_are_those_of_stock_hbase() {
    let keys = SHORT_PERIODS.iter().flat_map(|chore| [format!("{chore}.delay"), format!("{chore}.period")]);
    let keys: Vec<_> = keys.collect();
    let mut settings: Vec<_> = keys.iter().map(|key| (key.as_str(), "300")).collect();
    settings.push(("hbase.quota.enabled", "true"));
    let server = target_with(&settings);
    checks_on(&server, "zk", &["space-quotas"]);
}
