//! Evenkeel's HDFS client against stock HDFS: a NameNode and three DataNodes in separate JVMs.
//!
//! The tests share one cluster and take turns, because some of them kill its servers.
//!
//! | module | contents |
//! |---|---|
//! | `contract` | the contract of the `FileSystem` trait |
//! | `faults` | servers that are killed, frozen and restarted |
//! | `files` | names, writers and readers on a healthy cluster |
//! | `standalone` | a standalone server on HDFS, and the offline tools |
//! | `suite` | the tests of that contract, from the crate `fs` |

mod contract;
mod faults;
mod files;
mod standalone;
#[allow(dead_code, reason = "some of its tests are for local files")]
#[path = "../../../crates/fs/tests/conformance/suite.rs"]
mod suite;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_hdfs::{HdfsClient, LogWriter, Settings};
use interop::HdfsCluster;

/// The cluster of all tests of this process; started by the first.
static CLUSTER: Mutex<Option<HdfsCluster>> = Mutex::new(None);

/// The cluster, while this test uses it.
pub struct Turn {
    guard: MutexGuard<'static, Option<HdfsCluster>>,
}

impl Turn {
    /// Waits for the cluster, with all its servers running.
    pub fn take() -> Self {
        let mut guard = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_none() {
            let own = [("dfs.ls.limit", "7"), ("dfs.datanode.metrics.logger.period.seconds", "0")];
            *guard = Some(HdfsCluster::start(3, &own).unwrap_or_else(|why| panic!("{why}")));
        }
        let mut turn = Self { guard };
        turn.cluster().start_missing().unwrap_or_else(|why| panic!("{why}"));
        turn
    }

    /// The NameNode and DataNodes.
    pub fn cluster(&mut self) -> &mut HdfsCluster {
        self.guard.as_mut().expect("started")
    }

    /// Settings of a client of this cluster.
    pub fn settings(&mut self) -> Settings {
        let settings = Settings::of_namenodes([self.cluster().address()]);
        // Long waits for acknowledgements: the machine may be busy with other tests.
        let (ack_timeout, recovery_delay) = (Duration::from_secs(60), Duration::from_secs(1));
        Settings { ack_timeout, recovery_delay, ..settings }
    }

    /// A client of this cluster.
    pub fn client(&mut self) -> HdfsClient {
        HdfsClient::new(self.settings()).expect("threads")
    }
}

/// Bytes that differ from those at other offsets.
pub fn bytes(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|i| u8::try_from((i * 31 + i / 251) % 251).expect("small")).collect()
}

/// A log in a directory that exists.
pub fn log(client: &HdfsClient, path: &str) -> LogWriter {
    let parent = path.rsplit_once('/').expect("a parent").0;
    client.namenode().mkdirs(parent).expect("mkdirs");
    client.create_log(path, client.new_file()).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The whole of a file.
pub fn read_all(client: &HdfsClient, path: &str) -> Vec<u8> {
    let file = client.open(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut buf = vec![0; usize::try_from(file.len()).expect("small")];
    let n = file.read_at(0, &mut buf).unwrap_or_else(|e| panic!("{path}: {e}"));
    assert_eq!(n, buf.len(), "{path}");
    buf
}
