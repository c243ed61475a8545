//! Store files written, read, sought in and compacted by stock HBase's classes and by ours, on the same files, in one run.
//!
//! Each side is asked by the same commands, a line each ([`Side`]): ours runs them in this process, stock's in one JVM that
//! lives through the report (`evenkeel.interop.FilesSpeed`), so that its code is compiled by the time it counts. Sides
//! alternate, each does a command [`Sizes::warm_ups`] times before it counts and [`Sizes::rounds`] times that do, and the
//! least CPU of those is taken: what other processes do to a shared machine only adds. CPU is the whole process's, user and
//! system; the JVM's compiler and collector are part of it.
//!
//! What is measured: see the rows of [`run`].

mod data;
mod ours;
mod plan;
mod stock;
mod table;

use std::path::PathBuf;

pub use plan::run;

/// Anything that went wrong, in words.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// How much of everything.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Cells of the files that are written and read in each encoding and codec.
    pub cells: usize,
    /// Times that each is written and read in a round: the clock of the JVM's CPU ticks every 10 ms.
    pub times: usize,
    /// Seeks in cached blocks.
    pub seeks: usize,
    /// Mebibytes written between the two looks at resident memory: the first and the second.
    pub grow_mib: (u64, u64),
    /// Times that the file just grown is opened.
    pub opens: usize,
    /// Rows of 10 KB that are compacted.
    pub compact_rows: usize,
    /// Rounds that do not count.
    pub warm_ups: usize,
    /// Rounds that count.
    pub rounds: usize,
    /// Only rows whose name holds this.
    pub only: Option<String>,
    /// Where files go; they are removed.
    pub dir: PathBuf,
}

/// What a command took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Cells, seeks or opens.
    pub items: u64,
    /// Bytes of the cells as KeyValues; of an open, of the file.
    pub bytes: u64,
    /// Seconds on the clock.
    pub wall_s: f64,
    /// CPU seconds of the process.
    pub cpu_s: f64,
    /// Resident memory, in KiB, at the two looks of `grow`.
    pub resident_kib: (u64, u64),
}

/// One of the two that are compared.
///
/// | command | work |
/// |---|---|
/// | `write PATH ENCODING CODEC CELLS TIMES` | writes a store file, bloom filter included |
/// | `read PATH TIMES` | reads every cell, uncached |
/// | `seek PATH SEEKS` | seeks to the first cell of random rows, with all blocks cached before |
/// | `open PATH TIMES` | opens the file |
/// | `grow PATH MIB MIB` | writes a file, and looks at resident memory at two of its lengths |
/// | `checksum BYTES` | CRC-32C of so many bytes, by blocks of 64 KiB in chunks of 16 KiB |
/// | `compact ROOT` | major compaction of table `speed` below a root directory |
pub trait Side {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Does what a command says.
    ///
    /// # Errors
    /// When it cannot.
    fn run(&mut self, command: &str) -> Outcome<Cost>;
}
