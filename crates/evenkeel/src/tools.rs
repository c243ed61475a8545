//! Tools over a root directory at rest: what is in a file, whether all of it is sound, and compaction without a server.
//!
//! | module | command |
//! |---|---|
//! | [`hfile`] | `evenkeel hfile`: HBase's `hbase hfile` |
//! | [`wal`] | `evenkeel wal`: HBase's `hbase wal` |
//! | [`verify`] | `evenkeel verify`: every file of a root directory, checked |
//! | [`compact`] | `evenkeel compact`: HBase's `CompactionTool` |
//! | [`text`] | bytes, cells and dates as HBase prints them |
//! | [`catalog`] | hbase:meta read from its files |
//! | [`progress`] | one line on a terminal |
//!
//! All but `compact` open files for reading only, and take no lock.

pub mod catalog;
pub mod compact;
pub mod hfile;
mod progress;
mod stats;
mod text;
pub mod verify;
pub mod wal;

use std::io;
use std::process::ExitCode;

/// What a tool found wrong with its task, rather than with the files: said on stderr.
pub type Failure = String;

/// Ends a tool that prints: a reader that has gone away, as `head` does, is no failure.
fn exit(outcome: Result<(), io::Error>) -> Result<ExitCode, Failure> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
