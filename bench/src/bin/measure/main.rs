//! Measurements of single parts:
//! `cargo run --release -p evenkeel-bench --bin measure -- TOOL [ARGUMENTS]`.
//!
//! | tool | measures |
//! |---|---|
//! | [`block_cache_hit`] | CPU of a hit in the block cache |
//! | [`block_cache_restart`] | the time until a cache in a file is warm after `kill -9` |
//! | [`client_get`] | CPU of a Get in the native client |
//! | [`hfile_instructions`] | one operation on a store file, repeated, for a profiler |
//! | [`hfile_speed`] | writes, scans and seeks of store files, in each encoding and codec |
//! | [`hit_ratio`] | hit ratios of eviction policies |
//! | [`memstore_bytes`] | memory of a cell in the MemStore |
//! | [`row_cache`] | CPU of a Get with the row cache and without |
//! | [`rpc_floor`] | the least that `evenkeel pe` can measure on a machine |
//! | [`wakeup_latency`] | the wake-up delay of a thread beside busy threads of lower priority |
//! | [`wal_appends`] | appends, syncs and rolls of the WAL |
//! | [`write_behind`] | the cost of a large file for a log on the same disk |
//!
//! Arguments are described in each tool's module. `hfile_support` is the test support of the crate
//! `hfile`.

#![forbid(unsafe_code)]

mod block_cache_hit;
mod block_cache_restart;
mod client_get;
mod hfile_instructions;
mod hfile_speed;
#[path = "../../../../crates/hfile/tests/support/mod.rs"]
mod hfile_support;
mod hit_ratio;
mod memstore_bytes;
mod row_cache;
mod rpc_floor;
mod wakeup_latency;
mod wal_appends;
mod write_behind;

use std::process::ExitCode;

/// The result of a tool.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// A tool's name and its entry point, which takes the arguments after the name.
type Tool = (&'static str, fn(&[String]) -> Outcome);

const TOOLS: [Tool; 12] = [
    ("block_cache_hit", block_cache_hit::run),
    ("block_cache_restart", block_cache_restart::run),
    ("client_get", client_get::run),
    ("hfile_instructions", hfile_instructions::run),
    ("hfile_speed", hfile_speed::run),
    ("hit_ratio", hit_ratio::run),
    ("memstore_bytes", memstore_bytes::run),
    ("row_cache", row_cache::run),
    ("rpc_floor", rpc_floor::run),
    ("wakeup_latency", wakeup_latency::run),
    ("wal_appends", wal_appends::run),
    ("write_behind", write_behind::run),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let tool = words.first().and_then(|name| TOOLS.iter().find(|(known, _)| known == name));
    let Some((name, run)) = tool else {
        eprintln!("usage: measure TOOL [ARGUMENTS]; tools: {}", TOOLS.map(|(name, _)| name).join(", "));
        return ExitCode::FAILURE;
    };
    match run(&words[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The argument at a position as a number, or a default if there is none.
fn number<T: std::str::FromStr>(args: &[String], at: usize, default: T) -> Outcome<T>
where
    T::Err: std::error::Error + 'static,
{
    Ok(args.get(at).map_or(Ok(default), |text| text.parse())?)
}
