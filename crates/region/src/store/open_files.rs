//! [`OpenFiles`]: the number of store files that a server has open, and the limit above which
//! clients may not add any.
//!
//! Each open store file of a local file system holds a file descriptor. A client adds a file with
//! each bulk load and each requested flush, and only compactions remove files. If all descriptors
//! are in use, neither a log nor a compaction can create its file, so the number cannot fall again.
//! Therefore bulk loads and requested flushes are rejected at the limit. Other flushes, compactions
//! and the opening of regions are not: they use the descriptors above the limit. A change of a
//! table opens the files of its regions a second time before it closes the first ones.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use evenkeel_common::{ErrorKind, HBaseError, Result};

/// See the module.
#[derive(Debug)]
pub struct OpenFiles {
    count: AtomicUsize,
    limit: usize,
}

impl Default for OpenFiles {
    /// Without a limit.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl OpenFiles {
    /// Creates a counter whose clients may add files while fewer than `limit` are open.
    pub fn new(limit: usize) -> Self {
        Self { count: AtomicUsize::new(0), limit }
    }

    /// Counts `files` files that a client adds, until the value is dropped.
    ///
    /// # Errors
    /// `RegionTooBusyException` if more files than the limit would be open.
    pub fn admit(self: &Arc<Self>, files: usize) -> Result<CountedFiles> {
        let counted = self.count(files);
        let open = self.count.load(Relaxed);
        if files == 0 || open <= self.limit {
            return Ok(counted);
        }
        let message = format!(
            "{open} store files would be open, {} allowed by the limit of open files (ulimit -n): compactions must \
             reduce them, or the limit must be raised",
            self.limit
        );
        Err(HBaseError::new(ErrorKind::RegionTooBusy, message))
    }

    /// Counts `files` files until the value is dropped.
    pub(super) fn count(self: &Arc<Self>, files: usize) -> CountedFiles {
        self.count.fetch_add(files, Relaxed);
        CountedFiles { of: Arc::clone(self), files }
    }
}

/// Files that are counted until this value is dropped.
#[derive(Debug)]
pub struct CountedFiles {
    of: Arc<OpenFiles>,
    files: usize,
}

impl Drop for CountedFiles {
    fn drop(&mut self) {
        self.of.count.fetch_sub(self.files, Relaxed);
    }
}
