//! sub=TableRequests: one record for each table, with the times of its operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_common::TableName;
use evenkeel_metrics::{Ranges, Record};
use evenkeel_region::region::{Operation, OperationTimes, TableOperationTimes};

use super::stores::Sizes;
use super::table_prefix;

/// Creates the records. `sizes` are the sizes of the tables.
pub(super) fn records(all: &TableOperationTimes, sizes: &BTreeMap<&TableName, Sizes>) -> Vec<Record> {
    let of_table = |(table, times): (TableName, Arc<OperationTimes>)| {
        let name = format!("TableRequests_{}", table_prefix(&table));
        let mut record = Record::new(name.clone(), "regionserver", format!("name=RegionServer,sub={name}"));
        for operation in Operation::ALL {
            let interval = times.interval(operation);
            record.histogram(operation.table_metric(), "", Ranges::Millis, &interval);
        }
        record.histogram("scanSize", "", Ranges::None, &times.scan_bytes_interval());
        let counts = sizes.get(&table).map_or([0, 0], |sizes| [sizes.reads, sizes.writes]);
        let [reads, writes] = all.rates(Some(&table), counts);
        record.meter("TableReadQueryPerSecond", "", &reads).meter("TableWriteQueryPerSecond", "", &writes);
        record
    };
    all.tables().into_iter().map(of_table).collect()
}
