//! Tools for the root directory of a stopped server: print files, verify all of them, compact.
//!
//! | module | command |
//! |---|---|
//! | [`hfile`] | `evenkeel hfile`: HBase's `hbase hfile` |
//! | [`wal`] | `evenkeel wal`: HBase's `hbase wal` |
//! | [`store_file_list`] | `evenkeel sft`: HBase's `hbase sft` |
//! | [`verify`] | `evenkeel verify`: every file of a root directory, checked |
//! | [`compact`] | `evenkeel compact`: HBase's `CompactionTool` |
//! | [`text`] | bytes, cells and dates as HBase prints them |
//! | [`catalog`] | hbase:meta read from its files |
//! | `mob` | missing MOB files, for `evenkeel hfile -i` |
//! | `stats` | counts of sizes |
//! | [`progress`] | one line on a terminal |
//! | `storage` | local paths and `hdfs:` URIs |
//!
//! All but `compact` open files for reading only, and take no lock.

pub mod catalog;
pub mod compact;
pub mod hfile;
mod mob;
mod progress;
mod stats;
mod storage;
pub mod store_file_list;
mod text;
pub mod verify;
pub mod wal;

use std::io;
use std::process::ExitCode;

pub use evenkeel_monitor::ErrorText;

/// The result of a tool that prints. A closed output, as with `head`, is not a failure.
fn exit(outcome: Result<(), io::Error>) -> Result<ExitCode, ErrorText> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
