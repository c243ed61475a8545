//! sub=Ledger, which HBase does not have: how long slow requests waited, by cause.

use evenkeel_metrics::{Ledger, Ranges, Record};

/// Creates the record.
pub fn record(ledger: &Ledger) -> Record {
    let mut record = Record::new("Ledger", "regionserver", "name=RegionServer,sub=Ledger");
    let (slow, left_out) = ledger.counts();
    record
        .counter("slowRequestCount", "Requests that took longer than evenkeel.slow.request.ms", slow)
        .counter("leftOutCount", "Slow requests dropped because the ledger was busy", left_out);
    for (cause, times) in ledger.causes() {
        let description = format!("Time that slow requests spent on: {}", cause.name());
        record.histogram(&format!("{}Time", cause.name()), &description, Ranges::Time, &times.interval());
    }
    record
}
