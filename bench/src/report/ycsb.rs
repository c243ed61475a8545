//! YCSB's workloads A to F, as mixes of `evenkeel pe`: stock YCSB's HBase 2 binding is not on Maven
//! Central (`site.ycsb:hbase20-binding:0.17.0` does not resolve there).
//!
//! Rows of ten fields of 100 bytes; zipfian requests of skew 0.99, the newest rows in D. One
//! difference: keys are those of PerformanceEvaluation and not `user` with a hash, so inserts go to
//! the end of the table.

use super::output::Results;
use super::read_path::load;
use super::servers::{ReportContext, settings};

/// Measures the six mixes on each server in turn.
///
/// # Errors
/// The error of the first failure.
pub fn measure(context: &ReportContext, results: &mut Results) -> Result<(), String> {
    results
        .add_header_line("Durability: SYNC_WAL (hflush) on both sides. Codec: KeyValueCodec, files SNAPPY.");
    let rows = context.plan.rows / 4;
    for variant in context.plan.servers.clone() {
        let session = context.start(variant, context.plan.cache_mib, &settings(&[]))?;
        let table = "--table=usertable --columns=10 --valueSize=100 --compress=SNAPPY";
        load(&session, "usertable", &format!("--rows={} {table} --presplit=8", rows / 4))?;
        for mix in ["A", "B", "C", "D", "E", "F"] {
            let line = format!("--rows={} --oneCon {table} --addColumns=false ycsb{mix} 50", rows / 50);
            let row = format!("ycsb-{mix}");
            session.measure(results, &row, &format!("workload {mix}, 50 callers"), &line)?;
            // E scans, so its rows are the returned ones. A request of the others is one row, read
            // or written.
            if mix != "E" {
                results.rows_each(&row, 1.0);
            }
        }
    }
    Ok(())
}
