//! Work that must not wait on some threads: [`Wait`] is passed down to all code that could wait,
//! and [`TryError`] is returned by it.
//!
//! The thread of a connection computes but must not wait for a disk or for another thread, because
//! all calls of its connections would wait with it. So it reads and writes with [`Wait::Never`].
//! Code that would have to wait returns [`TryError::WouldWait`] instead, and has changed no state
//! that a second attempt would change again, except counts of cache lookups. The caller then makes
//! the second attempt with [`Wait::Allowed`], on a thread that may wait.

use std::fmt;

use crate::HBaseError;

/// Whether work may wait for a disk or for another thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// The work may wait.
    #[default]
    Allowed,
    /// The work must return [`TryError::WouldWait`] instead of waiting.
    Never,
}

impl Wait {
    /// Returns true if the work may wait.
    #[inline]
    pub fn is_allowed(self) -> bool {
        self == Self::Allowed
    }
}

/// Why an attempt has no result.
#[derive(Debug)]
pub enum TryError {
    /// The work would have to wait, and may not.
    WouldWait,
    /// The work used up its time slice on this thread.
    TimeSliceOver,
    /// The work failed. Only the client may retry it.
    Failed(HBaseError),
}

/// The result of work that takes a [`Wait`].
pub type TryResult<T> = Result<T, TryError>;

impl TryError {
    /// The failure of work that was allowed to wait and had no time slice.
    ///
    /// Another variant is a bug of the code that returned it, and becomes an `IOException` that
    /// says so.
    pub fn into_failure(self) -> HBaseError {
        match self {
            Self::Failed(error) => error,
            Self::WouldWait | Self::TimeSliceOver => {
                debug_assert!(false, "work that may wait returned {self:?}");
                HBaseError::io(format!("internal error: work that may wait returned {self:?}"))
            }
        }
    }

    /// Returns true if the work must be repeated where it may wait or compute for longer.
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
