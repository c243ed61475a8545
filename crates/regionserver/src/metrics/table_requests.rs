//! sub=TableRequests: one record for each table, with the times of its operations.

use evenkeel_metrics::{Ranges, Record};
use evenkeel_region::region::{Operation, TableOperationTimes};

use super::table_prefix;

/// The records.
pub fn records(times: &TableOperationTimes) -> Vec<Record> {
    let of_table = |(table, times): (_, std::sync::Arc<evenkeel_region::region::OperationTimes>)| {
        let name = format!("TableRequests_{}", table_prefix(&table));
        let mut record = Record::new(name.clone(), "regionserver", format!("name=RegionServer,sub={name}"));
        for operation in Operation::ALL {
            let interval = times.interval(operation);
            record.histogram(operation.table_metric(), "", Ranges::Millis, &interval);
        }
        record.histogram("scanSize", "", Ranges::None, &times.scan_bytes_interval());
        record
    };
    times.tables().into_iter().map(of_table).collect()
}
