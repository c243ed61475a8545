//! [`LogWriter`]: a log of one block, written to all DataNodes in parallel.
//!
//! Bytes are appended to a buffer. A flush sends them to every DataNode, in one packet if they fit,
//! and ends when each DataNode has acknowledged it: after [`FlushLevel::Flushed`] the bytes are in
//! the kernel of every DataNode, after [`FlushLevel::Synced`] on the disk of every DataNode.
//! Flushes are pipelined: [`LogWriter::start_flush`] sends, [`LogWriter::wait`] waits, and any
//! number may be in flight.
//!
//! **Failure.** A bad status, a closed connection, or a packet without an acknowledgement for
//! `Settings::ack_timeout` breaks the log, and so does one DataNode that stalls while all others
//! acknowledge (`crate::stall`): every unacknowledged flush fails, the next log excludes
//! the failed DataNode, and the lease of the file is recovered in the background. The thread of the
//! heartbeats notices the failure of an idle log ([`LogWriter::is_broken`]). The log never
//! continues on the other DataNodes, because lease recovery truncates a block to its shortest
//! replica, which would be the failed DataNode's. The caller writes the unacknowledged bytes to a
//! new log.
//!
//! **Creation.** A DataNode that cannot be reached is excluded, the block is abandoned and another
//! one is allocated for the same file, in at most `Settings::create_attempts_max` attempts. Each
//! attempt avoids all DataNodes that failed in the previous ones, however many: a rack may be down.
//! If the NameNode then finds no DataNode, all are tried again. A block
//! may have fewer DataNodes than the file has replicas ([`LogWriter::has_few_replicas`]): it is
//! used, and the caller should replace it soon.
//!
//! **End.** [`LogWriter::close`] finishes the block and closes the file, which gives it its final
//! length. A log that is dropped without `close` is abandoned like a broken one. Until a file is
//! closed, the NameNode reports the length 0.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::block::output::{BlockOutput, Layout};
use crate::client::Shared;
use crate::error::{HdfsError, RemoteException, Result};
use crate::hadoop::hdfs::{DatanodeInfoProto, ExtendedBlockProto, LocatedBlockProto};
use crate::lease::{BrokenFile, OpenFile, SharedOutput};
use crate::namenode::NewFile;
use crate::stall::{self, StallLimit};

pub use crate::block::output::FlushLevel;

/// The maximum of `complete` calls until enough replicas of the last block are reported to the
/// NameNode.
const COMPLETE_ATTEMPTS: u32 = 12;

/// The pause after the first `complete` call, doubled each time up to [`COMPLETE_PAUSE_MAX`].
const COMPLETE_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between `complete` calls.
const COMPLETE_PAUSE_MAX: Duration = Duration::from_secs(2);

/// The pause after a failed creation of a block, times the number of failures.
const CREATE_PAUSE: Duration = Duration::from_millis(100);

/// Identifies a flush that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlushId(i64);

/// A log being written: see the module documentation.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<Shared>,
    path: String,
    file_id: u64,
    /// The requested number of replicas.
    replicas_wanted: usize,
    output: SharedOutput,
    /// True if the file is closed or abandoned.
    is_ended: bool,
    _lease: OpenFile,
}

impl LogWriter {
    pub(crate) fn create(shared: Arc<Shared>, path: &str, file: NewFile) -> Result<Self> {
        let lease = OpenFile::new(Arc::clone(&shared));
        let file_id = shared.create(path, file)?;
        let target = Target { path, file_id, previous: None };
        let mut output = match open_block(&shared, target, Layout::FanOut) {
            Ok(output) => output,
            Err(e) => {
                shared.leases.add_broken(BrokenFile::unused(path.to_owned(), file_id));
                return Err(e);
            }
        };
        let replicas_wanted = usize::from(file.replication);
        let replicas = output.locations().len();
        if replicas < replicas_wanted {
            tracing::warn!(path, replicas, replicas_wanted, "a log has fewer replicas than requested");
        } else if let Some(timeout) =
            shared.settings.stall_timeout.filter(|_| replicas >= stall::REPLICAS_MIN)
        {
            output.limit_stalls(StallLimit::new(timeout, &shared.stall_budget));
        }
        let output = Arc::new(Mutex::new(output));
        shared.leases.add_output(&output, path, file_id);
        let path = path.to_owned();
        Ok(Self { shared, path, file_id, replicas_wanted, output, is_ended: false, _lease: lease })
    }

    /// Returns the NameNode's id of the file, which a rename keeps.
    pub fn file_id(&self) -> u64 {
        self.file_id
    }

    /// Returns the number of DataNodes that have the log.
    pub fn replicas(&self) -> usize {
        self.output.lock().locations().len()
    }

    /// Returns true if fewer DataNodes have the log than were requested: the caller should soon
    /// continue in a new log.
    pub fn has_few_replicas(&self) -> bool {
        self.replicas() < self.replicas_wanted
    }

    /// Returns true if the log has broken, also while nothing was written: the caller should
    /// continue in a new log.
    pub fn is_broken(&self) -> bool {
        self.output.lock().failure().is_some()
    }

    /// Returns `host:port` of the DataNodes that have the log.
    pub fn datanodes(&self) -> Vec<String> {
        let output = self.output.lock();
        let address = |node: &crate::hadoop::hdfs::DatanodeInfoProto| {
            crate::block::located::transfer_address(&node.id, false)
        };
        output.locations().iter().map(address).collect()
    }

    /// Returns the number of bytes appended.
    pub fn position(&self) -> u64 {
        self.output.lock().position()
    }

    /// Returns the number of bytes that every DataNode has acknowledged.
    pub fn acked(&self) -> u64 {
        self.output.lock().acked()
    }

    /// Appends bytes to the buffer; the next flush sends them.
    ///
    /// # Errors
    /// `BrokenPipe` with the reason if the log is broken.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.lock().append(bytes)
    }

    /// Sends all appended bytes; [`LogWriter::wait`] waits until they are durable.
    ///
    /// # Errors
    /// As [`LogWriter::append`].
    pub fn start_flush(&mut self, level: FlushLevel) -> io::Result<FlushId> {
        let sent = self.output.lock().send(level);
        self.checked(sent).map(FlushId)
    }

    /// Waits until every DataNode has acknowledged a flush, and all flushes before it.
    ///
    /// # Errors
    /// An I/O error if the log broke first; see the module documentation.
    pub fn wait(&mut self, flush: FlushId) -> io::Result<()> {
        let waited = self.output.lock().wait(flush.0);
        self.record_slow_acks();
        self.checked(waited)
    }

    /// Makes all appended bytes durable.
    ///
    /// # Errors
    /// As [`LogWriter::wait`].
    pub fn flush(&mut self, level: FlushLevel) -> io::Result<()> {
        let flush = self.start_flush(level)?;
        self.wait(flush)
    }

    /// Makes all bytes durable and closes the file. Returns its length.
    ///
    /// # Errors
    /// As [`LogWriter::wait`], or an error of the NameNode; the file is then abandoned.
    pub fn close(mut self, level: FlushLevel) -> io::Result<u64> {
        let finished = self.output.lock().finish(level);
        self.checked(finished)?;
        let (block, len) = {
            let output = self.output.lock();
            (output.block(), output.acked())
        };
        complete(&self.shared, &self.path, self.file_id, Some(&block))?;
        self.is_ended = true;
        Ok(len)
    }

    /// Abandons the file: closes its connections and has its lease recovered in the background.
    /// Returns the number of bytes that are certainly in the file; later bytes that were sent may
    /// be in it too.
    pub fn abandon(mut self) -> u64 {
        self.give_up();
        self.acked()
    }

    fn record_slow_acks(&self) {
        let mut output = self.output.lock();
        let slow = output.take_slow();
        if !slow.is_empty() {
            self.shared.excluded.record_slow_acks(output.locations(), &slow);
        }
    }

    /// Abandons the file after a failure, which excludes the DataNodes that broke the log.
    fn checked<T>(&mut self, outcome: io::Result<T>) -> io::Result<T> {
        if outcome.is_err() {
            self.give_up();
        }
        outcome
    }

    fn give_up(&mut self) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        self.shared.abandon(&self.path, self.file_id, &mut self.output.lock());
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// A file that needs its next block.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) path: &'a str,
    pub(crate) file_id: u64,
    /// The previous block with its final length.
    pub(crate) previous: Option<&'a ExtendedBlockProto>,
}

/// Allocates a block and opens it on its DataNodes; retries with other DataNodes if some fail.
///
/// # Errors
/// An exception of the NameNode, or the last failure of a DataNode after `create_attempts_max`
/// attempts.
pub(crate) fn open_block(shared: &Shared, target: Target<'_>, layout: Layout) -> Result<BlockOutput> {
    let mut failures = 0;
    let mut failed_nodes = Vec::new();
    loop {
        let (block, mut failure) = match allocate(shared, target, &failed_nodes) {
            Ok(block) => match try_block(shared, &block, layout, &mut failed_nodes) {
                Ok(output) => return Ok(output),
                Err(failure) => (Some(block), failure),
            },
            Err(e) if e.remote().is_some_and(RemoteException::is_without_target) => {
                shared.excluded.clear();
                failed_nodes.clear();
                (None, e)
            }
            Err(e) if e.remote().is_some_and(RemoteException::is_not_replicated_yet) => (None, e),
            Err(e) => return Err(e),
        };
        failures += 1;
        if let Some(block) = block {
            let given_back = shared.namenode.abandon_block(target.path, target.file_id, &block.b);
            failure = given_back.err().unwrap_or(failure);
            if failure.remote().is_some() {
                return Err(failure);
            }
        }
        if failures >= shared.settings.create_attempts_max {
            return Err(failure);
        }
        std::thread::sleep(CREATE_PAUSE * failures);
    }
}

/// Allocates a block that avoids the excluded DataNodes and those that failed before.
fn allocate(
    shared: &Shared,
    target: Target<'_>,
    failed_nodes: &[DatanodeInfoProto],
) -> Result<LocatedBlockProto> {
    let mut excluded = shared.excluded.list();
    let is_new = |node: &&DatanodeInfoProto| {
        excluded.iter().all(|known| known.id.datanode_uuid != node.id.datanode_uuid)
    };
    let others: Vec<_> = failed_nodes.iter().filter(is_new).cloned().collect();
    excluded.extend(others);
    shared.namenode.add_block(target.path, target.file_id, target.previous, &excluded)
}

/// Opens a block. DataNodes that fail are excluded and added to `failed_nodes`.
fn try_block(
    shared: &Shared,
    block: &LocatedBlockProto,
    layout: Layout,
    failed_nodes: &mut Vec<DatanodeInfoProto>,
) -> Result<BlockOutput> {
    if block.locs.is_empty() {
        return Err(HdfsError::protocol("a block without locations"));
    }
    let opened = BlockOutput::open(block.clone(), layout, shared.namenode.client_name(), &shared.settings);
    opened.map_err(|failures| {
        let mut last = None;
        for failure in failures {
            if let Some(node) = block.locs.get(failure.location) {
                shared.excluded.add(node, &failure.error.to_string());
                failed_nodes.push(node.clone());
            }
            last = Some(failure.error);
        }
        HdfsError::Transport(last.unwrap_or_else(|| io::Error::other("no DataNode")))
    })
}

/// Closes a file on the NameNode: retries until enough replicas of the last block are reported.
///
/// # Errors
/// An exception of the NameNode; `TimedOut` when the replicas are not reported in time.
pub(crate) fn complete(
    shared: &Shared,
    path: &str,
    file_id: u64,
    last: Option<&ExtendedBlockProto>,
) -> Result<()> {
    let mut pause = COMPLETE_PAUSE;
    for _ in 0..COMPLETE_ATTEMPTS {
        if shared.namenode.complete(path, file_id, last)? {
            return Ok(());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(COMPLETE_PAUSE_MAX);
    }
    let what = format!("the replicas of {path} were not reported in time");
    Err(HdfsError::Transport(io::Error::new(io::ErrorKind::TimedOut, what)))
}

#[cfg(test)]
mod tests;
