//! Meters of sub=Server: requests per second, and bulk loads.
//!
//! The gauge of the last period's rate covers the time between two reads of it. The averages over
//! minutes are those of [`Meter`](evenkeel_metrics::Meter).

use evenkeel_metrics::{Ranges, Record};
use evenkeel_region::region::RegionEnv;

use super::stores::Sizes;

/// Appends the metrics.
pub(super) fn append(record: &mut Record, sizes: &Sizes, env: &RegionEnv) {
    let [reads, writes] = env.operation_times.rates(None, [sizes.reads, sizes.writes]);
    record.meter("ServerReadQueryPerSecond", "", &reads).meter("ServerWriteQueryPerSecond", "", &writes);
    record
        .real(
            "readRequestRatePerSecond",
            "Rate of answering the read requests by this region server per second.",
            reads.last,
        )
        .real(
            "writeRequestRatePerSecond",
            "Rate of answering the mutation requests by this region server per second.",
            writes.last,
        );
    let (times, rates) = env.stores.metrics.bulk_loads();
    record.meter("Bulkload", "", &rates).histogram("Bulkload", "", Ranges::None, &times);
}
