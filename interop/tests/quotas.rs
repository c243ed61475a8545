//! Quotas through the stock client, on a server that has them: stock HBase, or Evenkeel.

#![forbid(unsafe_code)]

use interop::{checks_on, target_with};

#[test]
fn throttles_refuse_and_wait_as_in_stock_hbase() {
    let server = target_with(&[("hbase.quota.enabled", "true"), ("hbase.quota.refresh.period", "500")]);
    checks_on(&server, "zk", &["quotas"]);
}
