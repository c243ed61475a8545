//! Which files are compacted together: a policy for each engine, and what they are asked and answer.

pub(in crate::store) mod date_tiered;
pub(in crate::store) mod exploring;
pub(in crate::store) mod stripe;

use crate::store::file_writer::FileSplit;

/// What selection needs to know of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct CandidateFile {
    pub bytes: u64,
    pub is_reference: bool,
    /// Minor compactions leave it alone.
    pub is_excluded: bool,
}

/// How a compaction was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct SelectionContext {
    /// A user wants all files merged.
    pub major: bool,
    /// Time for a major compaction has come.
    pub major_is_due: bool,
    /// There are so many files that flushes are held up.
    pub may_be_stuck: bool,
    /// Files before the candidates, busy in another compaction.
    pub busy: usize,
    /// Larger files may be merged, and more (`hbase.hstore.compaction.ratio.offpeak`).
    pub off_peak: bool,
}

/// What an engine chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct CompactionPlan {
    /// Indexes of files, the oldest first.
    pub files: Vec<usize>,
    pub is_major: bool,
    /// No other file has cells of these rows: markers have done their work.
    pub drops_deletes: bool,
    pub split: FileSplit,
}
