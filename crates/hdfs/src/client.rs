//! [`HdfsClient`]: the file operations of one name service.
//!
//! A client has two background threads, which end with it: one sends heartbeats to the DataNodes of
//! open idle files and closes connections for reads that are not reused; the other renews the lease
//! and ends broken files (see `lease`). With short-circuit reads a third one closes the unused
//! files of local replicas.

use std::sync::Arc;
use std::time::Instant;

use evenkeel_common::{clock, thread};
use parking_lot::Mutex;

use crate::block::output::BlockOutput;
use crate::block::reader::{DataNodePool, FileReader};
use crate::block::short_circuit::{self, ShortCircuit};
use crate::bulk::BulkWriter;
use crate::error::{HdfsError, Result};
use crate::excluded::ExcludedDataNodes;
use crate::lease::{BrokenFile, Leases};
use crate::log_writer::LogWriter;
use crate::namenode::{FILE_PERMISSION, NameNode, NewFile};
use crate::stall::StallBudget;
use crate::statistics::{ReadCounters, ReadStatistics};
use crate::{Settings, lease, recovery};

/// A client of one name service. Clones share its state.
#[derive(Clone, Debug)]
pub struct HdfsClient {
    pub(crate) shared: Arc<Shared>,
}

/// The state shared by the files of a client.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) namenode: NameNode,
    pub(crate) excluded: ExcludedDataNodes,
    pub(crate) stall_budget: Arc<StallBudget>,
    pub(crate) leases: Leases,
    pub(crate) pool: DataNodePool,
    pub(crate) short_circuit: ShortCircuit,
    pub(crate) statistics: ReadCounters,
    /// The time of the last check of the cluster's defaults.
    checked: Mutex<Option<Instant>>,
}

impl HdfsClient {
    /// Starts the client's threads; opens no connection yet.
    ///
    /// # Errors
    /// An I/O error if a thread cannot be started.
    pub fn new(settings: Settings) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            namenode: NameNode::new(&settings),
            excluded: ExcludedDataNodes::default(),
            stall_budget: Arc::default(),
            leases: Leases::default(),
            pool: DataNodePool::new(&settings),
            short_circuit: ShortCircuit::new(&settings),
            statistics: ReadCounters::default(),
            checked: Mutex::default(),
            settings,
        });
        let weak = Arc::downgrade(&shared);
        thread::spawn_restarted("hdfs-heartbeat", move || lease::heartbeats(&weak))?;
        let weak = Arc::downgrade(&shared);
        thread::spawn_restarted("hdfs-lease", move || lease::renewals(&weak))?;
        if shared.settings.short_circuit.is_some() {
            let weak = Arc::downgrade(&shared);
            thread::spawn_restarted("hdfs-close", move || short_circuit::closing(&weak))?;
        }
        Ok(Self { shared })
    }

    /// Returns the typed calls of the NameNode.
    pub fn namenode(&self) -> &NameNode {
        &self.shared.namenode
    }

    /// Returns the client's settings.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Opens a file for reading. The length of a file that is being written includes the visible
    /// length of its last block on one DataNode: bytes that the other DataNodes lack are not
    /// durable.
    ///
    /// # Errors
    /// `NotFound`, also for a directory.
    pub fn open(&self, path: &str) -> Result<FileReader> {
        self.check_cluster()?;
        FileReader::open(Arc::clone(&self.shared), path)
    }

    /// Creates a log: one block, written to all DataNodes in parallel, with flushes of either
    /// [`FlushLevel`](crate::FlushLevel).
    ///
    /// # Errors
    /// `NotFound` if the parent is missing, because the log's directory was fenced;
    /// `AlreadyExists`; `StorageFull` if no DataNode accepts the block.
    pub fn create_log(&self, path: &str, file: NewFile) -> Result<LogWriter> {
        self.check_cluster()?;
        LogWriter::create(Arc::clone(&self.shared), path, file)
    }

    /// Creates a file of any length, written through a chain of DataNodes.
    ///
    /// # Errors
    /// As [`HdfsClient::create_log`]; blocks are allocated as the file is written.
    pub fn create_bulk(&self, path: &str, file: NewFile) -> Result<BulkWriter> {
        self.check_cluster()?;
        BulkWriter::create(Arc::clone(&self.shared), path, file)
    }

    /// Returns the parameters of a new file from the client's settings.
    pub fn new_file(&self) -> NewFile {
        NewFile {
            overwrite: false,
            parents: false,
            replication: self.shared.settings.replication,
            block_bytes: self.shared.settings.block_bytes,
            permission: FILE_PERMISSION & !self.shared.settings.umask,
        }
    }

    /// Returns the parameters of a new log from the client's settings.
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
    /// `NotFound`; `TimedOut` when `deadline` passes; `Interrupted` when `should_continue` returns
    /// false.
    pub fn recover(&self, path: &str, deadline: Instant, should_continue: &dyn Fn() -> bool) -> Result<()> {
        recovery::recover(&self.shared.namenode, path, deadline, should_continue)
    }

    /// Returns the paths of broken files whose recovery is pending.
    pub fn broken_files(&self) -> Vec<String> {
        self.shared.leases.broken_paths()
    }

    /// Returns how many bytes this client has read, and by which ways.
    pub fn read_statistics(&self) -> ReadStatistics {
        self.shared.statistics.get()
    }

    /// Rejects a cluster that requires encrypted data transfer; checks at most once an hour.
    fn check_cluster(&self) -> Result<()> {
        const CHECKED_FOR: std::time::Duration = std::time::Duration::from_secs(3600);
        if self.shared.checked.lock().is_some_and(|at| clock::since(at) < CHECKED_FOR) {
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
    /// Creates a file and returns its id. If no reply arrives, the file may exist and is queued for
    /// recovery, unless an earlier file could be at its path.
    ///
    /// # Errors
    /// As [`NameNode::create`].
    pub(crate) fn create(&self, path: &str, file: NewFile) -> Result<u64> {
        let created = self.namenode.create(path, file);
        match &created {
            Ok(_) => self.leases.remove_lost_create(path),
            Err(HdfsError::Transport(_)) if !file.overwrite => {
                self.leases.add_lost_create(path, clock::monotonic() + self.settings.recovery_delay);
            }
            Err(_) => {}
        }
        Ok(created?.file_id())
    }

    /// Ends an output that broke or that its writer drops: excludes the DataNodes that failed, and
    /// queues the file for recovery. Does nothing the second time.
    pub(crate) fn abandon(&self, path: &str, file_id: u64, output: &mut BlockOutput) {
        if !output.abandon("abandoned by its writer") {
            return;
        }
        let why = output.failure().unwrap_or_default();
        tracing::warn!(path, why, "a file ends without being closed");
        for node in output.failed() {
            match output.is_stalled() {
                true => self.excluded.add_stalled(&node, why),
                false => self.excluded.add(&node, why),
            }
        }
        self.give_up(path.to_owned(), file_id);
    }

    /// Queues a broken file for the lease thread, which closes it by lease recovery.
    pub(crate) fn give_up(&self, path: String, file_id: u64) {
        let due = clock::monotonic() + self.settings.recovery_delay;
        self.leases.add_broken(BrokenFile::new(path, file_id, due));
    }
}
