//! [`ArchivedFiles`]: the files that compactions have archived, for a report to a master that
//! computes the sizes of snapshots (`ReportFileArchival`).
//!
//! Nothing is recorded until a reader asks for it, and at most [`FILES_MAX`] files: the master also
//! computes the sizes from time to time, so a file that is not reported is counted later.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use evenkeel_common::TableName;
use parking_lot::Mutex;

/// The maximum files that wait for the reader.
const FILES_MAX: usize = 10_000;

/// A file in the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedFile {
    /// Its table.
    pub table: TableName,
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct ArchivedFiles {
    is_recorded: AtomicBool,
    files: Mutex<Vec<ArchivedFile>>,
}

impl ArchivedFiles {
    /// Records files from now on. The caller takes them often.
    pub fn record(&self) {
        self.is_recorded.store(true, Relaxed);
    }

    /// Takes the files that were archived since the last call.
    pub fn take(&self) -> Vec<ArchivedFile> {
        std::mem::take(&mut *self.files.lock())
    }

    /// Adds a file, if files are recorded.
    pub(super) fn add(&self, file: impl FnOnce() -> ArchivedFile) {
        if self.is_recorded.load(Relaxed) {
            let mut files = self.files.lock();
            if files.len() < FILES_MAX {
                files.push(file());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_nobody_takes_have_a_limit() {
        let files = ArchivedFiles::default();
        let file = || ArchivedFile { table: "t".parse().expect("legal"), name: "f".to_owned(), bytes: 1 };
        files.add(file);
        assert_eq!(files.take(), [], "nobody has asked for them");
        files.record();
        (0..=FILES_MAX).for_each(|_| files.add(file));
        assert_eq!(files.take().len(), FILES_MAX);
        assert_eq!(files.take(), []);
    }
}
