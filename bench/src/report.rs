//! The reports: stock HBase and Evenkeel side by side, on one core each in turn, with the load on the other.
//!
//! | module | noun |
//! |---|---|
//! | [`plan`] | [`Plan`]: what is asked for, and the sizes of a full and of a short run |
//! | [`machine`] | the machine, the versions, the newest JDK |
//! | [`servers`] | [`ServerKind`], [`ReportContext`] and [`Session`]: a server on its core, and rows measured on it |
//! | [`read_path`], [`write_path`], [`deploys`], [`ycsb`] | the rows of each report |
//! | `memory` | bytes that a cell takes in a MemStore |
//! | `hits` | hits in the block cache, as servers count them |
//! | [`output`] | tables, plots, raw histograms |
//! | [`quiet`] | what else the machine did meanwhile |
//!
//! Rules. Both sides hold the same data, made by the same client with the same codec, and acknowledge at the same
//! durability, which each report states. Latencies are those of a fixed rate (open loop) where a row says so; peaks are
//! closed loops. A figure stands beside its ratio; where Evenkeel loses the ratio is below 1 and stays in the table.

pub mod deploys;
mod hits;
pub mod machine;
mod memory;
pub mod other_load;
pub mod output;
pub mod plan;
pub mod read_path;
mod seconds;
pub mod servers;
pub mod write_path;
pub mod ycsb;

pub use output::Results;
pub use plan::Plan;
pub use servers::{ReportContext, ServerKind, Session};

/// Makes a report and writes it below `plan.out`; files of an earlier one that are not of its rows go.
///
/// # Errors
/// What kept it from being made.
pub fn make(plan: &Plan) -> Result<(), String> {
    let lab = ReportContext::new(plan)?;
    let mut results = Results::new(&lab);
    match plan.report.as_str() {
        "read-path" => read_path::measure(&lab, &mut results)?,
        "write-path" => write_path::measure(&lab, &mut results)?,
        "deploys" => deploys::measure(&lab, &mut results)?,
        "ycsb" => ycsb::measure(&lab, &mut results)?,
        other => return Err(format!("no report is called {other}: read-path, write-path, deploys or ycsb")),
    }
    results.write(&lab)?;
    results.remove_stale(&lab)?;
    println!("{}", plan.out.join(format!("{}.md", plan.report)).display());
    Ok(())
}
