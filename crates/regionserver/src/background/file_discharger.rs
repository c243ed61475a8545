//! [`FileDischarger`]: the thread that archives files which compactions have replaced
//! (`CompactedHFilesDischarger`).
//!
//! A compaction archives its inputs when it ends, except those that a reader holds. The thread
//! tries the rest every two minutes, as HBase does by default. It is not the chore's thread,
//! because each move waits for the file system.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use evenkeel_common::thread::{catch_and_log, spawn_restarted};

use crate::RegionServer;

/// The default of `hbase.hfile.compaction.discharger.interval`.
const PERIOD: Duration = Duration::from_secs(120);

/// See the module's documentation. Dropping it ends the thread.
pub struct FileDischarger {
    /// Dropping it wakes the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FileDischarger {
    /// Starts the thread.
    ///
    /// # Errors
    /// I/O error if it cannot be started.
    pub fn start(server: &Arc<RegionServer>) -> io::Result<Self> {
        Self::start_with(server, PERIOD)
    }

    fn start_with(server: &Arc<RegionServer>, period: Duration) -> io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let server = Arc::clone(server);
        let run = move || {
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                catch_and_log("the archiving of compacted files", || server.archive_compacted_files());
            }
        };
        let thread = spawn_restarted("discharge-files", run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for FileDischarger {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl RegionServer {
    /// Archives the compacted files of all regions that no reader holds.
    pub(crate) fn archive_compacted_files(&self) {
        for region in self.regions.all() {
            if let Err(error) = region.archive_compacted() {
                tracing::warn!(region = %region.info().name_text(), %error, "compacted files are not archived yet");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::clock;
    use evenkeel_region::layout;
    use evenkeel_region::operations::Scan;

    use super::*;
    use crate::testing::{TestServer, cell, put};

    #[test]
    fn files_are_archived_once_their_reader_is_gone() {
        let (server, region) = TestServer::with_region();
        for value in [b"1", b"2"] {
            put(&region, &[cell(b"a", b"q", value)]);
            region.flush().expect("flushed");
        }
        let stores = &server.env.stores;
        let dir = layout::region_dir(&stores.root, region.info()).join("f");
        let files = || stores.fs.list(&dir).expect("listed").len();
        let reader = region.scanner(Scan::default()).expect("opened");
        region.compact(None, true).expect("compacted");
        let _discharger = FileDischarger::start_with(&server.server, Duration::from_millis(1));
        server.server.archive_compacted_files();
        assert_eq!(files(), 3, "the reader holds two files");
        drop(reader);
        let deadline = clock::monotonic() + Duration::from_secs(30);
        while files() > 1 {
            assert!(clock::monotonic() < deadline, "the files are not archived");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
