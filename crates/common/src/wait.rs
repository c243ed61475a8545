//! Work that may be told not to wait: [`Wait`] goes down to whatever could wait, and [`TryError`] comes up from it.
//!
//! The thread of a connection computes but must not wait for a disk or for another thread: all calls of its connections
//! would wait with it. It therefore reads and writes with [`Wait::Never`]. Code that would have to wait returns
//! [`TryError::WouldWait`] instead and has changed nothing that a second attempt would change again, except counts of
//! cache lookups. The caller then makes the second attempt, with [`Wait::Allowed`], on a thread that may wait.

use std::fmt;

use crate::HBaseError;

/// Whether work may wait for a disk or for another thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// It may.
    #[default]
    Allowed,
    /// It must return [`TryError::WouldWait`] instead.
    Never,
}

impl Wait {
    /// Whether the work may wait.
    #[inline]
    pub fn is_allowed(self) -> bool {
        self == Self::Allowed
    }
}

/// Why an attempt has no outcome.
#[derive(Debug)]
pub enum TryError {
    /// It would have to wait, and may not.
    WouldWait,
    /// It computed for as long as it may on this thread.
    TimeSliceOver,
    /// It failed. A second attempt is the client's to make.
    Failed(HBaseError),
}

/// The outcome of work that may be told not to wait.
pub type TryResult<T> = Result<T, TryError>;

impl TryError {
    /// The failure of work that was allowed to wait and had no time slice, so that it failed for no other reason.
    ///
    /// A `TryError` of another kind is a bug of the code that returned it; it becomes an `IOException` that says so.
    pub fn into_failure(self) -> HBaseError {
        match self {
            Self::Failed(error) => error,
            Self::WouldWait | Self::TimeSliceOver => {
                debug_assert!(false, "{self}, although it may");
                HBaseError::io(format!("internal error: {self}, although it may"))
            }
        }
    }

    /// Whether the work has to be done again where it may wait or compute for longer.
    #[inline]
    pub fn is_unfinished(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

impl fmt::Display for TryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldWait => f.write_str("this would have to wait"),
            Self::TimeSliceOver => f.write_str("this takes longer than its time slice"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl From<HBaseError> for TryError {
    fn from(error: HBaseError) -> Self {
        Self::Failed(error)
    }
}
