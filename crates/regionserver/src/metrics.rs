//! The metrics of a RegionServer, by HBase's names: one file for each record, or for each part of a
//! large one.
//!
//! | module | contents |
//! |---|---|
//! | [`block_cache`] | blockCache*, l1Cache* and l2Cache* of sub=Server |
//! | [`file_system`] | reads of HDFS, of sub=Server |
//! | [`ipc`] | sub=IPC |
//! | [`jvm`] | JvmMetrics: memory and threads of the process |
//! | [`ledger`] | sub=Ledger: the causes of the waits of slow requests |
//! | [`memory`] | sub=Memory |
//! | `mob` | MOB files, of sub=Server |
//! | `own` | sub=Evenkeel: what HBase has no metric for |
//! | `rates` | meters of sub=Server |
//! | [`regions`] | sub=Regions |
//! | [`requests`] | counts and times of requests, of sub=Server |
//! | [`source`] | [`ServerSource`](source::ServerSource): all records |
//! | [`stores`] | sizes of all regions together, and flushes and compactions, of sub=Server |
//! | [`table_requests`] | sub=TableRequests, of each table |
//! | [`tables`] | sub=Tables |
//! | `throttles` | sub=ThrottleExceptions |
//! | [`users`] | sub=Users |
//!
//! Each function reads counters that other code maintains, and appends to a record or creates one.
//! It keeps no state between two calls. sub=WAL and sub=IO are created where they are counted:
//! [`evenkeel_wal::metrics::record`] and
//! [`IoMetrics::record`](evenkeel_hfile::io_metrics::IoMetrics::record).

pub mod block_cache;
pub mod file_system;
pub mod ipc;
pub mod jvm;
pub mod ledger;
pub mod memory;
mod mob;
mod own;
mod rates;
pub mod regions;
pub mod requests;
pub mod source;
pub mod stores;
pub mod table_requests;
pub mod tables;
mod throttles;
pub mod users;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use evenkeel_common::TableName;
use evenkeel_region::region::{Region, RegionLoad};

pub use self::own::HotBlockCounts;
use crate::Background;

/// The state of a region, read once for several records.
pub struct RegionReport {
    /// The region.
    pub region: Arc<Region>,
    /// Its sizes and counts.
    pub load: RegionLoad,
    /// The number of compactions that wait or run.
    pub compactions: u64,
    /// The number of running flushes.
    pub flushes: u64,
}

/// Reads the state of regions, sorted by encoded name.
pub fn reports(mut regions: Vec<Arc<Region>>, background: &Background) -> Vec<RegionReport> {
    // A comparison of cached names touches neither region.
    regions.sort_by_cached_key(|region| region.info().encoded_name().to_owned());
    let report = |region: Arc<Region>| RegionReport {
        load: region.load(),
        compactions: background.compactions_of(region.info().encoded_name()) as u64,
        flushes: u64::from(region.is_flushing()),
        region,
    };
    regions.into_iter().map(report).collect()
}

/// Returns the prefix of the names of a table's metrics.
fn table_prefix(table: &TableName) -> String {
    format!("Namespace_{}_table_{}", table.namespace(), table.qualifier())
}

/// Converts an age or a size of a report, which is never negative.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
