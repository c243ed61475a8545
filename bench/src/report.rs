//! The reports: HBase and Evenkeel in turn on the same core, with the load on another core.
//!
//! | module | contents |
//! |---|---|
//! | [`plan`] | [`Plan`]: the options, and the sizes of a full and of a short run |
//! | [`machine`] | the machine, the versions, the newest JDK |
//! | [`servers`] | [`ServerVariant`], [`ReportContext`], [`Session`]: a server and its rows |
//! | [`read_path`], [`write_path`], [`deploys`], [`ycsb`] | the rows of each report |
//! | [`scan_flood`] | Gets and Puts beside scanners |
//! | [`cluster`] | a RegionServer of a stock cluster on HDFS, beside a stopped DataNode, too |
//! | [`metrics_switches`] | what stock HBase's metrics cost, by its switches |
//! | `causes` | what the slow requests of bad seconds waited for |
//! | `memory` | memory of a cell in a MemStore |
//! | `hits` | hits in the block cache, from the servers' counters |
//! | [`output`] | tables, plots, raw histograms |
//! | `seconds` | [`Seconds`](seconds::Seconds): seconds of a row with high latency |
//! | [`other_load`] | the CPU that other processes used during the report |
//!
//! Rules: both sides have the same data, written by the same client with the same codec, and
//! acknowledge at the same durability, which each report states. Rows with a fixed rate are open
//! loops; peaks are closed loops. Each figure has its ratio beside it; if Evenkeel is worse, the
//! ratio is below 1 and stays in the table.

mod causes;
pub mod cluster;
pub mod deploys;
mod hits;
pub mod machine;
mod memory;
pub mod metrics_switches;
pub mod other_load;
pub mod output;
pub mod plan;
pub mod read_path;
pub mod scan_flood;
mod seconds;
pub mod servers;
pub mod write_path;
pub mod ycsb;

pub use output::Results;
pub use plan::Plan;
pub use servers::{ReportContext, ServerVariant, Session};

/// Makes a report and writes it below `plan.out`; removes an earlier report's other files.
///
/// # Errors
/// The error that prevented it.
pub fn make(plan: &Plan) -> Result<(), String> {
    let context = ReportContext::new(plan)?;
    let mut results = Results::new(&context);
    match plan.report.as_str() {
        "read-path" => read_path::measure(&context, &mut results)?,
        "write-path" => write_path::measure(&context, &mut results)?,
        "deploys" => deploys::measure(&context, &mut results)?,
        "ycsb" => ycsb::measure(&context, &mut results)?,
        "scan-flood" => scan_flood::measure(&context, &mut results)?,
        "metrics-switches" => metrics_switches::measure(&context, &mut results)?,
        "cluster" => cluster::measure(&context, &mut results)?,
        other => {
            return Err(format!(
                "no report is called {other}: read-path, write-path, deploys, ycsb, scan-flood, \
                 metrics-switches or cluster"
            ));
        }
    }
    results.write(&context)?;
    results.remove_stale(&context)?;
    println!("{}", plan.out.join(format!("{}.md", plan.report)).display());
    Ok(())
}
