//! Positional reads of a file into the caller's buffer.
//!
//! A read goes to the first DataNode of the block, because the NameNode sorts the nearest one
//! first; DataNodes that failed within [`DEAD_FOR`] come last. Data is verified against the
//! DataNode's checksums. If all DataNodes fail, the reader fetches the locations again and retries,
//! in at most [`ROUNDS_MAX`] rounds. It uses the file's id, so a rename does not matter, and
//! replicas that moved are found. It pauses before each further round (except after a checksum
//! mismatch): for a file that was just closed, the NameNode at first has only the DataNode that
//! reported its replica first, and receives the other reports within seconds. A block without a
//! live DataNode fails with an error of another kind than `NotFound`, which only the NameNode's
//! word that the file does not exist has.
//!
//! **Hedged reads** (`dfs.client.hedged.read.threadpool.size`): if a DataNode has not begun to
//! answer after the threshold, the reader sends the request to the next one too, and reads the
//! first reply, or the other one if that fails. This needs no further thread: the reader polls both
//! sockets.
//!
//! **Short-circuit reads** (`dfs.client.read.shortcircuit`): a finished block of a DataNode on this
//! machine is read through its files, if the DataNode passes them; see
//! [`crate::block::short_circuit`].
//!
//! Connections whose read succeeded are reused within [`REUSE`]; a DataNode closes idle connections
//! after 4 s. The thread of the heartbeats closes those that are older.
//!
//! | module | contents |
//! |---|---|
//! | `reply` | the reply to a read: its status and packets |

mod reply;

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::{Mutex, RwLock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Settings;
use crate::block::located::{block_name, rpc_address, transfer_address};
use crate::block::packet::{Checksum, is_mismatch};
use crate::block::short_circuit::replica::DiskWait;
use crate::block::{client_header, op, operation};
use crate::client::Shared;
use crate::error::{HdfsError, Result};
use crate::hadoop::hdfs::{
    CachingStrategyProto, ClientReadStatusProto, DatanodeIdProto, DatanodeInfoProto, ExtendedBlockProto,
    GetReplicaVisibleLengthRequestProto, GetReplicaVisibleLengthResponseProto, LocatedBlockProto,
    LocatedBlocksProto, OpReadBlockProto, Status, hdfs_file_status_proto::FileType,
};
use crate::recovery::path_of_file;
use crate::rpc::{RpcClient, connect};
use crate::wire::put_delimited;
use reply::{DeadlineReader, receive};

/// How long a failed DataNode is sorted last.
const DEAD_FOR: Duration = Duration::from_secs(30);

/// The number of rounds over a block's replicas before a read fails.
const ROUNDS_MAX: u32 = 3;

/// The pause before the second round; before the third it is twice as long. HDFS's client pauses
/// for a random time of up to `dfs.client.retry.window.base` (3 s), and up to three times that
/// later.
const ROUND_PAUSE: Duration = Duration::from_millis(1500);

/// How long an idle connection is reused.
const REUSE: Duration = Duration::from_secs(3);

/// The maximum of idle connections kept to one DataNode.
const IDLE_MAX: usize = 16;

/// The number of attempts to get the length of a block that is being written.
const LENGTH_ATTEMPTS: usize = 4;

/// The pause between those attempts: a restarting DataNode needs seconds.
const LENGTH_PAUSE: Duration = Duration::from_secs(1);

/// The visible length that a DataNode returns for a replica that cannot be read: -1.
const LENGTH_UNREADABLE: u64 = u64::MAX;

/// Idle connections to DataNodes, and the DataNodes that failed.
#[derive(Debug)]
pub(crate) struct DataNodePool {
    idle: Mutex<HashMap<String, Vec<(Connection, Instant)>>>,
    dead: Mutex<HashMap<String, Instant>>,
    /// The remaining permits for hedged reads.
    hedges: AtomicUsize,
}

impl DataNodePool {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            idle: Mutex::default(),
            dead: Mutex::default(),
            hedges: AtomicUsize::new(settings.hedged_reads_max),
        }
    }

    fn take(&self, address: &str) -> Option<Connection> {
        let mut idle = self.idle.lock();
        let connections = idle.get_mut(address)?;
        connections.retain(|(_, since)| clock::since(*since) < REUSE);
        connections.pop().map(|(connection, _)| connection)
    }

    fn keep(&self, address: &str, connection: Connection) {
        let mut idle = self.idle.lock();
        let connections = idle.entry(address.to_owned()).or_default();
        connections.retain(|(_, since)| clock::since(*since) < REUSE);
        if connections.len() < IDLE_MAX {
            connections.push((connection, clock::monotonic()));
        }
    }

    /// Closes the connections that are too old to be reused, and forgets DataNodes without one.
    pub(crate) fn close_expired(&self) {
        let mut expired = Vec::new();
        self.idle.lock().retain(|_, connections| {
            expired.extend(connections.extract_if(.., |(_, since)| clock::since(*since) >= REUSE));
            !connections.is_empty()
        });
    }

    fn mark_failed(&self, address: &str) {
        self.dead.lock().insert(address.to_owned(), clock::monotonic());
    }

    fn is_dead(&self, address: &str) -> bool {
        let mut dead = self.dead.lock();
        dead.retain(|_, since| clock::since(*since) < DEAD_FOR);
        dead.contains_key(address)
    }

    fn acquire_hedge(&self) -> bool {
        let less = |count: usize| count.checked_sub(1);
        self.hedges.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn release_hedge(&self) {
        self.hedges.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection to a DataNode.
#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    /// The DataNode is on this machine.
    is_local: bool,
}

/// A file open for positional reads, from any thread.
#[derive(Debug)]
pub struct FileReader {
    shared: Arc<Shared>,
    /// Identifies the file by its id, if the NameNode gave one.
    path: String,
    located: RwLock<Arc<BlockLocations>>,
}

/// The blocks of a file, ordered by offset.
#[derive(Debug)]
struct BlockLocations {
    blocks: Vec<LocatedBlockProto>,
    len: u64,
    /// True if the last block is being written.
    is_growing: bool,
}

/// How the bytes of a read are obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReadMode {
    /// They are compared with the DataNode's checksums.
    verify: bool,
    /// Local replicas are read through their files.
    short_circuit: bool,
}

impl ReadMode {
    const VERIFIED: Self = Self { verify: true, short_circuit: true };
    const UNVERIFIED: Self = Self { verify: false, short_circuit: true };
    const VERIFIED_BY_DATANODE: Self = Self { verify: true, short_circuit: false };
    const AS_STORED: Self = Self { verify: false, short_circuit: false };
}

/// The result of comparing bytes with the checksums of the DataNodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumResult {
    /// They match.
    Matches,
    /// No replica matches; the bytes come from one of them.
    Differs,
}

impl FileReader {
    pub(crate) fn open(shared: Arc<Shared>, path: &str) -> Result<Self> {
        let status = shared.namenode.file_info(path)?;
        if status.as_ref().is_some_and(|status| status.file_type() == FileType::IsDir) {
            let what = format!("{path} is a directory");
            return Err(HdfsError::Transport(io::Error::new(io::ErrorKind::IsADirectory, what)));
        }
        let file_id = status.and_then(|status| status.file_id).filter(|&id| id != 0);
        let path = file_id.map_or_else(|| path.to_owned(), path_of_file);
        let located = RwLock::new(Arc::new(locate(&shared, &path)?));
        Ok(Self { shared, path, located })
    }

    /// Returns the length of the file when it was opened or last refreshed.
    pub fn len(&self) -> u64 {
        self.located.read().len
    }

    /// Returns true if that length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the blocks that overlap a range of the file, with the locations that were last
    /// fetched.
    pub fn blocks(&self, range: std::ops::Range<u64>) -> Vec<LocatedBlockProto> {
        let located = Arc::clone(&self.located.read());
        let overlaps = |block: &&LocatedBlockProto| {
            let end = block.offset.saturating_add(block.b.num_bytes.unwrap_or(0));
            !range.is_empty() && block.offset < range.end && end > range.start
        };
        located.blocks.iter().filter(overlaps).cloned().collect()
    }

    /// Fetches the length and the locations again, and returns the length: a file that is being
    /// written grows.
    ///
    /// # Errors
    /// `NotFound` if the file no longer exists.
    pub fn refresh(&self) -> Result<u64> {
        let located = Arc::new(locate(&self.shared, &self.path)?);
        let len = located.len;
        *self.located.write() = located;
        Ok(len)
    }

    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// The last I/O error if no replica could be read; `NotFound` if the file no longer exists.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_range(offset, buf, ReadMode::VERIFIED)
    }

    /// As [`FileReader::read_at`], without a comparison with the checksums of HDFS: the caller has
    /// checksums of its own.
    ///
    /// # Errors
    /// As [`FileReader::read_at`].
    pub fn read_unverified_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_range(offset, buf, ReadMode::UNVERIFIED)
    }

    /// Fills `buf` without waiting for a disk or a network; returns false if that is impossible,
    /// and after any error. It is possible for blocks on this machine whose files are open here, if
    /// the bytes are in the page cache. `verify` compares them with the checksums of HDFS.
    pub fn read_cached_at(&self, offset: u64, buf: &mut [u8], verify: bool) -> bool {
        let short_circuit = &self.shared.short_circuit;
        if !short_circuit.is_on() {
            return false;
        }
        let located = Arc::clone(&self.located.read());
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(done as u64);
            let Some(block) = located.block_at(at).filter(|block| located.is_finished(block)) else {
                return false;
            };
            let Some(replica) = short_circuit.kept(&block.b) else { return false };
            let part = part_in_block(block, at - block.offset, rest);
            if replica.read(at - block.offset, part, verify, DiskWait::Never).is_err() {
                return false;
            }
            done += part.len();
        }
        self.shared.statistics.add_short_circuit(done);
        true
    }

    /// As [`FileReader::read_at`], but through a DataNode, and also returns bytes that match their
    /// checksums on no replica.
    ///
    /// # Errors
    /// As [`FileReader::read_at`].
    pub fn read_verified_at(&self, offset: u64, buf: &mut [u8]) -> Result<(usize, ChecksumResult)> {
        match self.read_range(offset, buf, ReadMode::VERIFIED_BY_DATANODE) {
            Ok(n) => Ok((n, ChecksumResult::Matches)),
            Err(HdfsError::Transport(e)) if is_mismatch(&e) => {
                self.read_range(offset, buf, ReadMode::AS_STORED).map(|n| (n, ChecksumResult::Differs))
            }
            Err(e) => Err(e),
        }
    }

    fn read_range(&self, offset: u64, buf: &mut [u8], mode: ReadMode) -> Result<usize> {
        let len = self.len();
        let left = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = left.min(buf.len());
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..wanted).filter(|rest| !rest.is_empty()) {
            done += self.read_in_block(offset + done as u64, rest, mode)?;
        }
        Ok(wanted)
    }

    /// Reads from one block; returns the number of bytes read, at least one.
    fn read_in_block(&self, offset: u64, buf: &mut [u8], mode: ReadMode) -> Result<usize> {
        let mut last: Option<io::Error> = None;
        for round in 0..ROUNDS_MAX {
            if let Some(error) = &last {
                // After a mismatch a pause is useless: waiting does not repair damaged replicas.
                if !is_mismatch(error) {
                    std::thread::sleep(ROUND_PAUSE * round);
                }
                self.refresh()?;
            }
            let located = Arc::clone(&self.located.read());
            let block = located.block_at(offset).ok_or_else(|| missing(&self.path, offset))?;
            let in_block = offset - block.offset;
            let part = part_in_block(block, in_block, buf);
            let short_circuit = mode.short_circuit && located.is_finished(block);
            match self.read_replicas(block, in_block, part, ReadMode { short_circuit, ..mode }) {
                Ok(()) => return Ok(part.len()),
                Err(e) => last = Some(e),
            }
        }
        Err(HdfsError::Transport(last.unwrap_or_else(no_replica)))
    }

    /// Fills `buf` from one of the replicas.
    fn read_replicas(
        &self,
        block: &LocatedBlockProto,
        offset: u64,
        buf: &mut [u8],
        mut mode: ReadMode,
    ) -> io::Result<()> {
        let by_name = self.shared.settings.use_datanode_hostname;
        let pool = &self.shared.pool;
        let mut nodes: Vec<(String, &DatanodeIdProto)> =
            block.locs.iter().map(|node| (transfer_address(&node.id, by_name), &node.id)).collect();
        let short_circuit = &self.shared.short_circuit;
        let damaged = short_circuit.damaged_datanode(&block.b);
        nodes.sort_by_key(|(address, node)| {
            pool.is_dead(address) || damaged.as_ref().is_some_and(|uuid| *uuid == node.datanode_uuid)
        });
        let mut last = no_replica();
        let mut mismatch = None;
        let mut untried: VecDeque<_> = nodes.into();
        while let Some((address, node)) = untried.pop_front() {
            let request = Request { shared: &self.shared, block, offset, mode };
            match request.read_files_of(node, buf) {
                FilesRead::Done => return Ok(()),
                FilesRead::Impossible => {}
                // The DataNode itself is asked if all others fail.
                FilesRead::Damaged(e) => {
                    mismatch = Some(e);
                    mode.short_circuit = false;
                    if !untried.is_empty() {
                        untried.push_back((address, node));
                        continue;
                    }
                }
            }
            let hedge = untried.front().map(|(address, _)| address.as_str());
            let mut failures = ReadFailures::default();
            let is_read = request.read(&address, hedge, buf, &mut failures);
            let first = failures.first.map(|e| (address, node, e));
            let second = failures.second.and_then(|e| untried.pop_front().map(|(at, node)| (at, node, e)));
            for (address, node, e) in first.into_iter().chain(second) {
                tracing::info!(block = block_name(&block.b), address, error = %e, "a replica was not read");
                let is_damaged = is_mismatch(&e);
                // The local DataNode's other blocks are read from it as before.
                match is_damaged && short_circuit.is_local(node) {
                    true => short_circuit.refuse(&block.b, Some(node)),
                    false => pool.mark_failed(&address),
                }
                if is_damaged {
                    mismatch = Some(e);
                } else {
                    last = e;
                }
            }
            if is_read {
                return Ok(());
            }
        }
        Err(mismatch.unwrap_or(last))
    }
}

/// Returns the beginning of `buf` that a block can fill from an offset in it.
fn part_in_block<'a>(block: &LocatedBlockProto, offset: u64, buf: &'a mut [u8]) -> &'a mut [u8] {
    let left = block.b.num_bytes.unwrap_or(0).saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
    buf.get_mut(..len).unwrap_or_default()
}

impl BlockLocations {
    /// Returns true if a block is not being written.
    fn is_finished(&self, block: &LocatedBlockProto) -> bool {
        !self.is_growing || self.blocks.last().is_none_or(|last| last.b.block_id != block.b.block_id)
    }

    fn block_at(&self, offset: u64) -> Option<&LocatedBlockProto> {
        let after = self.blocks.partition_point(|block| block.offset <= offset);
        let block = self.blocks.get(after.checked_sub(1)?)?;
        (offset - block.offset < block.b.num_bytes.unwrap_or(0)).then_some(block)
    }
}

/// The error of a block that no live DataNode has at present. The file exists and its DataNodes may
/// return, so the error is not `NotFound`.
fn no_replica() -> io::Error {
    io::Error::other("no live DataNode has a replica of the block at present")
}

fn missing(path: &str, offset: u64) -> HdfsError {
    let what = format!("{path} has no block at {offset}");
    HdfsError::Transport(io::Error::new(io::ErrorKind::UnexpectedEof, what))
}

/// Returns the blocks of a file, with the visible length of the last one if it is being written.
fn locate(shared: &Shared, path: &str) -> Result<BlockLocations> {
    let mut attempts = 0;
    loop {
        let LocatedBlocksProto { file_length, mut blocks, last_block, is_last_block_complete, .. } =
            shared.namenode.block_locations(path, 0, u64::MAX >> 1)?;
        blocks.sort_by_key(|block| block.offset);
        let unfinished = last_block.filter(|_| !is_last_block_complete);
        let Some(mut last) = unfinished else {
            return Ok(BlockLocations { blocks, len: file_length, is_growing: false });
        };
        attempts += 1;
        let Some(visible) = visible_length(shared, &last)? else {
            if attempts >= LENGTH_ATTEMPTS {
                let what = format!("no DataNode shows the length of the last block of {path}");
                return Err(HdfsError::Transport(io::Error::new(io::ErrorKind::TimedOut, what)));
            }
            std::thread::sleep(LENGTH_PAUSE);
            continue;
        };
        blocks.retain(|block| block.b.block_id != last.b.block_id);
        last.b.num_bytes = Some(visible);
        last.offset = file_length;
        blocks.push(last);
        return Ok(BlockLocations { blocks, len: file_length.saturating_add(visible), is_growing: true });
    }
}

/// Returns the visible length of a replica of an unfinished block; `None` if no DataNode returns
/// one at present.
fn visible_length(shared: &Shared, block: &LocatedBlockProto) -> Result<Option<u64>> {
    if block.locs.is_empty() {
        let is_empty = block.b.num_bytes.unwrap_or(0) == 0;
        return Ok(is_empty.then_some(0));
    }
    let mut without_replica = 0;
    for node in &block.locs {
        match ask_length(shared, node, &block.b) {
            Ok(LENGTH_UNREADABLE) => {}
            Ok(len) => return Ok(Some(len)),
            Err(e) if e.remote().is_some_and(|e| e.short_class() == "ReplicaNotFoundException") => {
                without_replica += 1;
            }
            Err(e) => tracing::info!(block = block_name(&block.b), error = %e, "no visible length"),
        }
    }
    Ok((without_replica == block.locs.len()).then_some(0))
}

fn ask_length(shared: &Shared, node: &DatanodeInfoProto, block: &ExtendedBlockProto) -> Result<u64> {
    let settings = &shared.settings;
    let address = rpc_address(&node.id, settings.use_datanode_hostname);
    let client = RpcClient::of_datanode(address, block_name(block), settings);
    let request = GetReplicaVisibleLengthRequestProto { block: block.clone() };
    let reply: GetReplicaVisibleLengthResponseProto = client.call("getReplicaVisibleLength", &request)?;
    Ok(reply.length)
}

/// A read of a range of one block.
struct Request<'a> {
    shared: &'a Shared,
    block: &'a LocatedBlockProto,
    offset: u64,
    mode: ReadMode,
}

/// A connection on which the read request was sent.
struct PendingRead {
    connection: Connection,
    was_idle: bool,
}

/// Why the DataNodes of a read failed: the one that was asked first, and the one that was asked
/// too. A read may succeed although one of them failed.
#[derive(Default)]
struct ReadFailures {
    first: Option<io::Error>,
    second: Option<io::Error>,
}

/// The outcome of a read through the files of a DataNode.
enum FilesRead {
    Done,
    /// An ordinary read is needed.
    Impossible,
    /// The bytes do not match their checksums.
    Damaged(io::Error),
}

impl Request<'_> {
    /// Reads through the files of a DataNode on this machine.
    fn read_files_of(&self, node: &DatanodeIdProto, buf: &mut [u8]) -> FilesRead {
        let short_circuit = &self.shared.short_circuit;
        let replica = if self.mode.short_circuit { short_circuit.replica(self.block, node) } else { None };
        let Some(replica) = replica else { return FilesRead::Impossible };
        let Err(e) = replica.read(self.offset, buf, self.mode.verify, DiskWait::Allowed) else {
            self.shared.statistics.add_short_circuit(buf.len());
            return FilesRead::Done;
        };
        let is_damaged = is_mismatch(&e);
        short_circuit.refuse(&self.block.b, is_damaged.then_some(node));
        let block = block_name(&self.block.b);
        tracing::info!(block, error = %e, "the files of a replica were not read");
        if is_damaged { FilesRead::Damaged(e) } else { FilesRead::Impossible }
    }

    /// Reads from `address`, or from `hedge` if it answers first after the threshold. Returns true
    /// on success.
    fn read(&self, address: &str, hedge: Option<&str>, buf: &mut [u8], failures: &mut ReadFailures) -> bool {
        let Err(e) = self.try_read(address, hedge, buf, failures) else { return true };
        failures.first = Some(e);
        false
    }

    /// Returns the error of `address`.
    fn try_read(
        &self,
        address: &str,
        hedge: Option<&str>,
        buf: &mut [u8],
        failures: &mut ReadFailures,
    ) -> io::Result<()> {
        let asked = self.ask(address, buf.len(), true)?;
        let was_idle = asked.was_idle;
        let outcome = match hedge.filter(|_| self.shared.settings.hedged_reads_max > 0) {
            Some(other) => self.read_hedged(address, asked, other, buf, failures),
            None => self.receive_from(address, asked.connection, buf),
        };
        match outcome {
            // The DataNode had closed the idle connection before the request.
            Err(e) if was_idle && is_closed(&e) => {
                let asked = self.ask(address, buf.len(), false)?;
                self.receive_from(address, asked.connection, buf)
            }
            outcome => outcome,
        }
    }

    fn ask(&self, address: &str, len: usize, reuse: bool) -> io::Result<PendingRead> {
        let settings = &self.shared.settings;
        let kept = if reuse { self.shared.pool.take(address) } else { None };
        let was_idle = kept.is_some();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect(address)?,
        };
        let socket = &mut connection.socket;
        socket.set_read_timeout(Some(settings.socket_timeout))?;
        socket.set_write_timeout(Some(settings.socket_timeout))?;
        match socket.write_all(&operation(op::READ_BLOCK, &self.message(len))) {
            Ok(()) => Ok(PendingRead { connection, was_idle }),
            Err(_) if was_idle => self.ask(address, len, false),
            Err(e) => Err(e),
        }
    }

    fn connect(&self, address: &str) -> io::Result<Connection> {
        let socket = connect(address, self.shared.settings.connect_timeout)?;
        let own = self.shared.short_circuit.own_addresses();
        let is_local = socket.peer_addr().is_ok_and(|at| own.contains(at.ip()));
        Ok(Connection { socket, is_local })
    }

    fn message(&self, len: usize) -> OpReadBlockProto {
        let client_name = self.shared.namenode.client_name();
        OpReadBlockProto {
            header: client_header(&self.block.b, &self.block.block_token, client_name),
            offset: self.offset,
            len: len as u64,
            send_checksums: Some(self.mode.verify),
            caching_strategy: Some(CachingStrategyProto::default()),
        }
    }

    fn read_hedged(
        &self,
        address: &str,
        first: PendingRead,
        other: &str,
        buf: &mut [u8],
        failures: &mut ReadFailures,
    ) -> io::Result<()> {
        let threshold = self.shared.settings.hedged_threshold;
        let pool = &self.shared.pool;
        if is_readable(&[&first.connection.socket], threshold)?.is_some() {
            return self.receive_from(address, first.connection, buf);
        }
        if !pool.acquire_hedge() {
            self.shared.statistics.add_hedge_refused();
            return self.receive_from(address, first.connection, buf);
        }
        let outcome = self.race(address, first, other, buf, failures);
        pool.release_hedge();
        outcome
    }

    /// Sends the request to `other`, too, and reads the reply that begins first; if that fails, the
    /// other one. Returns the error of `address` if both fail.
    fn race(
        &self,
        address: &str,
        first: PendingRead,
        other: &str,
        buf: &mut [u8],
        failures: &mut ReadFailures,
    ) -> io::Result<()> {
        let second = match self.ask(other, buf.len(), true) {
            Ok(second) => second,
            Err(e) => {
                failures.second = Some(e);
                return self.receive_from(address, first.connection, buf);
            }
        };
        self.shared.statistics.add_hedge();
        let sockets = [&first.connection.socket, &second.connection.socket];
        let Some(ready) = is_readable(&sockets, self.shared.settings.socket_timeout)? else {
            failures.second = Some(io::ErrorKind::TimedOut.into());
            return Err(io::ErrorKind::TimedOut.into());
        };
        let is_second = ready == 1;
        let (now, later) = if is_second { (second, first) } else { (first, second) };
        let (at, at_later) = if is_second { (other, address) } else { (address, other) };
        let was_idle = now.was_idle;
        let Err(e) = self.receive_from(at, now.connection, buf) else {
            if is_second {
                self.shared.statistics.add_hedge_win();
            }
            return Ok(());
        };
        let later = self.receive_from(at_later, later.connection, buf);
        // The DataNode had closed an idle connection before the request: it has not failed.
        let failed = (!(was_idle && is_closed(&e))).then_some(e);
        if is_second {
            failures.second = failed;
            return later;
        }
        let Err(of_second) = later else {
            self.shared.statistics.add_hedge_win();
            failures.first = failed;
            return Ok(());
        };
        failures.second = Some(of_second);
        failed.map_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()), Err)
    }

    /// Reads the reply into `buf`, and returns the connection to the pool if it may be reused.
    fn receive_from(&self, address: &str, mut connection: Connection, buf: &mut [u8]) -> io::Result<()> {
        let time_max = reply::time_max(buf.len(), self.shared.settings.socket_timeout);
        let deadline = clock::monotonic() + time_max;
        let mut socket = DeadlineReader { socket: &connection.socket, deadline };
        let checksum = receive(&mut socket, self.offset, buf)?;
        self.shared.statistics.add_read(buf.len(), connection.is_local);
        let verified = self.mode.verify && checksum != Checksum::Null;
        let status = if verified { Status::ChecksumOk } else { Status::Success };
        let mut out = Vec::new();
        put_delimited(&mut out, &ClientReadStatusProto { status: status.into() });
        if connection.socket.write_all(&out).is_ok() {
            self.shared.pool.keep(address, connection);
        }
        Ok(())
    }
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// Returns the index of the first readable socket, or `None` after `wait`.
fn is_readable(sockets: &[&TcpStream], wait: Duration) -> io::Result<Option<usize>> {
    let deadline = clock::monotonic() + wait;
    loop {
        let mut fds: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(*socket, PollFlags::IN)).collect();
        let left = deadline.saturating_duration_since(clock::monotonic());
        let timeout = Timespec::try_from(left).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => return Ok(fds.iter().position(|fd| !fd.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests;
