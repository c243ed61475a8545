//! sub=ThrottleExceptions: the requests that quotas refused, by limit, user and table, if quotas
//! are enabled. The number of counters is bounded.

use evenkeel_metrics::Record;

use crate::quotas::RpcQuotas;

/// Creates the record.
pub fn record(quotas: &RpcQuotas) -> Record {
    let bean = "name=RegionServer,sub=ThrottleExceptions";
    let mut record = Record::new("ThrottleExceptions", "regionserver", bean);
    for ((limit, user, table), count) in quotas.refusals() {
        let (user, table) = (metric_name(&user), metric_name(&table));
        record.counter(format!("RpcThrottlingException_Type_{limit}_User_{user}_Table_{table}"), "", count);
    }
    record
}

/// Replaces the characters that no name of a metric may have, as HBase does.
fn metric_name(name: &str) -> String {
    name.replace([',', '=', ':', '*', '?', '"', '\n'], "_")
}
