//! Which files are compacted together: a policy for each engine, and their common input and result.
//!
//! | module | contents |
//! |---|---|
//! | `exploring` | HBase's `ExploringCompactionPolicy` |
//! | `stripe` | the same for ranges of rows |
//! | `date_tiered` | the same for ranges of time |

pub(in crate::store) mod date_tiered;
pub(in crate::store) mod exploring;
pub(in crate::store) mod stripe;

use crate::store::file_writer::FileSplit;

/// The properties of a file that a policy needs.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct CandidateFile {
    pub bytes: u64,
    pub is_reference: bool,
    /// True if minor compactions skip it.
    pub is_excluded: bool,
}

/// The circumstances of a selection.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct SelectionContext {
    /// True if a user requested a major compaction.
    pub major: bool,
    /// True if a periodic major compaction is due.
    pub major_is_due: bool,
    /// True if too few blocks of the files are local, so that a periodic major compaction has an
    /// effect.
    pub is_remote: bool,
    /// True if the number of files blocks flushes.
    pub is_blocking: bool,
    /// The number of files before the candidates that are busy in another compaction.
    pub busy: usize,
    /// True if more and larger files may be merged (`hbase.hstore.compaction.ratio.offpeak`).
    pub off_peak: bool,
}

/// The result of an engine's selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct CompactionPlan {
    /// Indexes of files, the oldest first.
    pub files: Vec<usize>,
    pub is_major: bool,
    /// True if no other file has cells of these rows, so that markers may be dropped.
    pub drops_deletes: bool,
    pub split: FileSplit,
}
