//! [`HdfsClient`]: the file operations of one name service.
//!
//! Two threads stand behind a client, and end with it: one sends heartbeats to the DataNodes of
//! files that are open and idle, the other renews the lease and recovers files that broke
//! (see `lease`).

use std::sync::Arc;
use std::time::Instant;

use evenkeel_common::{clock, thread};
use parking_lot::Mutex;

use crate::block::reader::{DataNodePool, FileReader};
use crate::bulk::BulkWriter;
use crate::error::{HdfsError, Result};
use crate::excluded::Excluded;
use crate::lease::{Broken, Leases};
use crate::log::LogWriter;
use crate::namenode::{NameNode, NewFile};
use crate::{Settings, lease, recovery};

/// A client of one name service. Clones share it.
#[derive(Clone, Debug)]
pub struct HdfsClient {
    shared: Arc<Shared>,
}

/// What the files of a client share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) namenode: NameNode,
    pub(crate) excluded: Excluded,
    pub(crate) leases: Leases,
    pub(crate) pool: DataNodePool,
    /// When the cluster's defaults were checked.
    checked: Mutex<Option<Instant>>,
}

impl HdfsClient {
    /// Starts the client's threads; connects to nothing yet.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn new(settings: Settings) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            namenode: NameNode::new(&settings),
            excluded: Excluded::default(),
            leases: Leases::default(),
            pool: DataNodePool::new(&settings),
            checked: Mutex::default(),
            settings,
        });
        let weak = Arc::downgrade(&shared);
        thread::spawn_restarted("hdfs-heartbeat", move || lease::heartbeats(&weak))?;
        let weak = Arc::downgrade(&shared);
        thread::spawn_restarted("hdfs-lease", move || lease::renewals(&weak))?;
        Ok(Self { shared })
    }

    /// The calls of the NameNode.
    pub fn namenode(&self) -> &NameNode {
        &self.shared.namenode
    }

    /// The settings that it was made with.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Opens a file for reading. The length of a file that is being written is what a DataNode of
    /// its last block shows: bytes that the others lack are not durable.
    ///
    /// # Errors
    /// `NotFound`, also for a directory.
    pub fn open(&self, path: &str) -> Result<FileReader> {
        self.check_cluster()?;
        FileReader::open(Arc::clone(&self.shared), path)
    }

    /// Creates a log: one block, to all DataNodes at once, flushed or synced as asked.
    ///
    /// # Errors
    /// `NotFound` if the parent is missing: the log's directory was fenced. `AlreadyExists`.
    /// `StorageFull` if no DataNode takes the block.
    pub fn create_log(&self, path: &str, file: NewFile) -> Result<LogWriter> {
        self.check_cluster()?;
        LogWriter::create(Arc::clone(&self.shared), path, file)
    }

    /// Creates a file of any length, through a chain of DataNodes.
    ///
    /// # Errors
    /// As [`HdfsClient::create_log`]; blocks are allocated as the file is written.
    pub fn create_bulk(&self, path: &str, file: NewFile) -> Result<BulkWriter> {
        self.check_cluster()?;
        BulkWriter::create(Arc::clone(&self.shared), path, file)
    }

    /// A new file by the client's settings.
    pub fn new_file(&self) -> NewFile {
        NewFile {
            overwrite: false,
            parents: false,
            replication: self.shared.settings.replication,
            block_bytes: self.shared.settings.block_bytes,
        }
    }

    /// A new log by the client's settings.
    pub fn new_log(&self) -> NewFile {
        NewFile {
            replication: self.shared.settings.log_replication,
            block_bytes: self.shared.settings.log_block_bytes,
            ..self.new_file()
        }
    }

    /// Takes the lease of a file away from its writer and waits until it is closed with its final
    /// length: see [`crate::recovery`].
    ///
    /// # Errors
    /// `NotFound`; `TimedOut` when `deadline` passes; `Interrupted` when `go_on` returns false.
    pub fn recover(&self, path: &str, deadline: Instant, go_on: &dyn Fn() -> bool) -> Result<()> {
        recovery::recover(&self.shared.namenode, path, deadline, go_on)
    }

    /// The files that broke and wait for their recovery.
    pub fn broken_files(&self) -> Vec<String> {
        self.shared.leases.broken_paths()
    }

    /// The hosts that have bytes of a file, each with how many: the DataNodes' host names.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn hosts(&self, path: &str) -> Result<Vec<(String, u64)>> {
        let located = self.shared.namenode.block_locations(path, 0, u64::MAX >> 1)?;
        let mut hosts = std::collections::BTreeMap::new();
        for block in located.blocks {
            for node in block.locs {
                *hosts.entry(node.id.host_name).or_insert(0) += block.b.num_bytes.unwrap_or(0);
            }
        }
        Ok(hosts.into_iter().collect())
    }

    /// Refuses a cluster that demands what this client does not do, once an hour.
    fn check_cluster(&self) -> Result<()> {
        const CHECKED_FOR: std::time::Duration = std::time::Duration::from_secs(3600);
        if self.shared.checked.lock().is_some_and(|at| at.elapsed() < CHECKED_FOR) {
            return Ok(());
        }
        if self.shared.namenode.server_defaults()?.encrypt_data_transfer() {
            let what =
                "the cluster encrypts data transfer (dfs.encrypt.data.transfer), which is not supported";
            return Err(HdfsError::Transport(std::io::Error::new(std::io::ErrorKind::Unsupported, what)));
        }
        *self.shared.checked.lock() = Some(clock::monotonic());
        Ok(())
    }
}

impl Shared {
    /// Hands a file that broke to the lease thread, which closes it by recovery.
    pub(crate) fn give_up(&self, path: String, file_id: u64) {
        let due = clock::monotonic() + self.settings.recovery_delay;
        self.leases.add_broken(Broken::new(path, file_id, due));
    }
}
