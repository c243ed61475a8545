//! Writes, reads, seeks and compactions of store files with HBase's classes and with ours, on the
//! same files, in one run.
//!
//! Both sides run the same commands ([`Implementation`]): ours in this process, HBase's in one JVM
//! for the whole report (`evenkeel.interop.files.FilesSpeed`), so that its code is compiled when it
//! is measured. The sides alternate. Each runs a command [`Sizes::warm_ups`] times as warm-up and
//! [`Sizes::rounds`] times measured. The minimum CPU of the measured runs counts, because other
//! load of the machine only increases it. CPU is that of the whole process, user and system, with
//! the JVM's compiler and collector.
//!
//! [`run`] has the rows.

mod data;
mod ours;
mod plan;
mod stock;
mod table;

use std::path::PathBuf;

pub use plan::run;

/// An error message.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The sizes of the report.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Cells of the files that are written and read in each encoding and codec.
    pub cells: usize,
    /// Writes and reads of each file in a round. The clock of the JVM's CPU has ticks of 10 ms.
    pub times: usize,
    /// Seeks in cached blocks.
    pub seeks: usize,
    /// Mebibytes written at the two samples of resident memory.
    pub grow_mib: (u64, u64),
    /// Opens of the grown file.
    pub opens: usize,
    /// Rows of 10 KB that are compacted.
    pub compact_rows: usize,
    /// Warm-up rounds.
    pub warm_ups: usize,
    /// Measured rounds.
    pub rounds: usize,
    /// Only rows whose name contains this.
    pub only: Option<String>,
    /// The directory of the files, which is removed at the end.
    pub dir: PathBuf,
}

/// The cost of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Cells, seeks or opens.
    pub items: u64,
    /// Bytes of the cells as KeyValues; for an open, of the file.
    pub bytes: u64,
    /// Elapsed seconds.
    pub wall_s: f64,
    /// CPU seconds of the process.
    pub cpu_s: f64,
    /// Resident memory in KiB at the two samples of `grow`.
    pub resident_kib: (u64, u64),
}

/// One of the two compared implementations.
///
/// | command | work |
/// |---|---|
/// | `write PATH ENCODING CODEC CELLS TIMES` | writes a store file, bloom filter included |
/// | `read PATH TIMES` | reads every cell, uncached |
/// | `seek PATH SEEKS` | seeks to the first cell of random rows, with all blocks cached before |
/// | `open PATH TIMES` | opens the file |
/// | `grow PATH MIB MIB` | writes a file, and samples resident memory at two lengths |
/// | `checksum BYTES` | CRC-32C of this number of bytes, in blocks of 64 KiB and chunks of 16 KiB |
/// | `compact ROOT` | major compaction of table `speed` below a root directory |
pub trait Implementation {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Runs a command.
    ///
    /// # Errors
    /// If the command fails.
    fn run(&mut self, command: &str) -> Outcome<Cost>;
}
