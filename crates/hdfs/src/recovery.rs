//! Lease recovery: closes a file that its writer did not close.
//!
//! `recoverLease` revokes the lease of the writer, whose calls fail from then on, and has one of
//! the DataNodes bring all replicas of the last block to the same length: the shortest among the
//! replicas that still had a writer. Every byte that **all** DataNodes of the block had
//! acknowledged is within that length.
//!
//! Renaming a directory does not stop the writers of its files. A process that takes over a renamed
//! directory must recover each of its files before it relies on their lengths.
//!
//! A healthy recovery takes 0.3 to 3 s, since it begins at a DataNode's next heartbeat. If the
//! NameNode chose a DataNode that has just died, the attempt is lost, and the NameNode starts no
//! other one for 90 s. So `recoverLease` is called again every [`RECOVER_AGAIN`], which is cheap
//! and starts the next attempt soon after those 90 s.

use std::io;
use std::time::{Duration, Instant};

use evenkeel_common::clock;

use crate::error::{HdfsError, Result};
use crate::namenode::NameNode;

/// The interval between calls of `recoverLease`.
pub const RECOVER_AGAIN: Duration = Duration::from_secs(5);

/// The interval between checks whether the file is closed.
pub const CLOSED_AGAIN: Duration = Duration::from_millis(200);

/// Returns a path that names a file by its id, regardless of renames.
pub(crate) fn path_of_file(file_id: u64) -> String {
    format!("/.reserved/.inodes/{file_id}")
}

/// Revokes the lease of a file from its writer and waits until the file is closed.
///
/// # Errors
/// `NotFound`; `TimedOut` when `deadline` passes; `Interrupted` when `should_continue` returns
/// false. Other errors of calls are logged, and the call is retried.
pub(crate) fn recover(
    namenode: &NameNode,
    path: &str,
    deadline: Instant,
    should_continue: &dyn Fn() -> bool,
) -> Result<()> {
    let mut again = clock::monotonic();
    loop {
        let now = clock::monotonic();
        let asked = if now >= again {
            again = now + RECOVER_AGAIN;
            namenode.recover_lease(path)
        } else {
            namenode.is_file_closed(path)
        };
        match asked {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(e) if is_gone(&e) => return Err(e),
            Err(e) => tracing::warn!(path, error = %e, "a lease is not recovered yet; retrying"),
        }
        if !should_continue() {
            return Err(ended(io::ErrorKind::Interrupted, path));
        }
        if clock::monotonic() >= deadline {
            return Err(ended(io::ErrorKind::TimedOut, path));
        }
        std::thread::sleep(CLOSED_AGAIN);
    }
}

/// Returns true if the file does not exist, which the NameNode reports in two ways.
fn is_gone(error: &HdfsError) -> bool {
    error.is_not_found() || (error.is_fenced() && error.to_string().contains("does not exist"))
}

fn ended(kind: io::ErrorKind, path: &str) -> HdfsError {
    HdfsError::Transport(io::Error::new(kind, format!("the lease of {path} is not recovered")))
}
