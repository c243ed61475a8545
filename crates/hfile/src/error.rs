//! Errors with file and offset.

use evenkeel_common::{ErrorKind, HBaseError};

/// A `CorruptHFileException` at an offset of a file.
pub(crate) fn corrupt(file: &str, offset: u64, what: impl std::fmt::Display) -> HBaseError {
    HBaseError::new(ErrorKind::CorruptHFile, format!("{file} at offset {offset}: {what}"))
}

/// An I/O error with file and offset.
pub(crate) fn io_at(file: &str, offset: u64, error: std::io::Error) -> HBaseError {
    HBaseError::from(error).context(format_args!("{file} at offset {offset}"))
}
