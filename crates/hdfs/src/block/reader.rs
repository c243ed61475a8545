//! Positional reads of a file into the caller's buffer.
//!
//! A read goes to the first DataNode of the block, because the NameNode sorts the nearest one
//! first; DataNodes that failed within [`DEAD_FOR`] come last. Data is verified against the
//! DataNode's checksums. If all DataNodes fail, the reader fetches the locations again and retries,
//! in at most [`ROUNDS_MAX`] rounds. It uses the file's id, so a rename does not matter, and
//! replicas that moved are found. It pauses before each further round (except after a checksum
//! mismatch): for a file that was just closed, the NameNode at first has only the DataNode that
//! reported its replica first, and receives the other reports within seconds.
//!
//! **Hedged reads** (`dfs.client.hedged.read.threadpool.size`): if a DataNode has not begun to
//! answer after the threshold, the reader sends the request to the next one too, and reads the
//! first reply. This needs no further thread: the reader polls both sockets.
//!
//! Connections whose read succeeded are reused within [`REUSE`]; a DataNode closes idle connections
//! after 4 s.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::{Mutex, RwLock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Settings;
use crate::block::located::{block_name, rpc_address, transfer_address};
use crate::block::packet::{self, Checksum, Header, PREFIX_BYTES};
use crate::block::{client_header, op, operation};
use crate::client::Shared;
use crate::error::{HdfsError, Result};
use crate::hadoop::hdfs::{
    BlockOpResponseProto, CachingStrategyProto, ClientReadStatusProto, DatanodeInfoProto, ExtendedBlockProto,
    GetReplicaVisibleLengthRequestProto, GetReplicaVisibleLengthResponseProto, LocatedBlockProto,
    LocatedBlocksProto, OpReadBlockProto, Status, hdfs_file_status_proto::FileType,
};
use crate::recovery::path_of_file;
use crate::rpc::{RpcClient, connect};
use crate::wire::{put_delimited, read_delimited};

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
    idle: Mutex<HashMap<String, Vec<(TcpStream, Instant)>>>,
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

    fn take(&self, address: &str) -> Option<TcpStream> {
        let mut idle = self.idle.lock();
        let connections = idle.get_mut(address)?;
        connections.retain(|(_, since)| clock::since(*since) < REUSE);
        connections.pop().map(|(socket, _)| socket)
    }

    fn keep(&self, address: &str, socket: TcpStream) {
        let mut idle = self.idle.lock();
        let connections = idle.entry(address.to_owned()).or_default();
        connections.retain(|(_, since)| clock::since(*since) < REUSE);
        if connections.len() < IDLE_MAX {
            connections.push((socket, clock::monotonic()));
        }
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
        self.read_range(offset, buf, true)
    }

    /// As [`FileReader::read_at`], but also returns bytes that match their checksums on no replica.
    ///
    /// # Errors
    /// As [`FileReader::read_at`].
    pub fn read_verified_at(&self, offset: u64, buf: &mut [u8]) -> Result<(usize, ChecksumResult)> {
        match self.read_range(offset, buf, true) {
            Ok(n) => Ok((n, ChecksumResult::Matches)),
            Err(HdfsError::Transport(e)) if is_mismatch(&e) => {
                self.read_range(offset, buf, false).map(|n| (n, ChecksumResult::Differs))
            }
            Err(e) => Err(e),
        }
    }

    fn read_range(&self, offset: u64, buf: &mut [u8], verify: bool) -> Result<usize> {
        let len = self.len();
        let left = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = left.min(buf.len());
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..wanted).filter(|rest| !rest.is_empty()) {
            done += self.read_in_block(offset + done as u64, rest, verify)?;
        }
        Ok(wanted)
    }

    /// Reads from one block; returns the number of bytes read, at least one.
    fn read_in_block(&self, offset: u64, buf: &mut [u8], verify: bool) -> Result<usize> {
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
            let left = block.b.num_bytes.unwrap_or(0).saturating_sub(in_block);
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
            let part = buf.get_mut(..len).unwrap_or_default();
            match self.read_replicas(block, in_block, part, verify) {
                Ok(()) => return Ok(len),
                Err(e) => last = Some(e),
            }
        }
        Err(HdfsError::Transport(last.unwrap_or_else(|| io::ErrorKind::NotFound.into())))
    }

    /// Fills `buf` from one of the replicas.
    fn read_replicas(
        &self,
        block: &LocatedBlockProto,
        offset: u64,
        buf: &mut [u8],
        verify: bool,
    ) -> io::Result<()> {
        let by_name = self.shared.settings.use_datanode_hostname;
        let pool = &self.shared.pool;
        let mut addresses: Vec<String> =
            block.locs.iter().map(|node| transfer_address(&node.id, by_name)).collect();
        addresses.sort_by_key(|address| pool.is_dead(address));
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the block has no replica");
        let mut mismatch = None;
        let mut untried = addresses.iter();
        while let Some(address) = untried.next() {
            let request = Request { shared: &self.shared, block, offset, verify };
            let hedge = untried.as_slice().first();
            let outcome = request.read(address, hedge, buf);
            let Err(e) = outcome else { return Ok(()) };
            tracing::info!(block = block_name(&block.b), address, error = %e, "a replica was not read");
            pool.mark_failed(address);
            if is_mismatch(&e) {
                mismatch = Some(e);
            } else {
                last = e;
            }
        }
        Err(mismatch.unwrap_or(last))
    }
}

impl BlockLocations {
    fn block_at(&self, offset: u64) -> Option<&LocatedBlockProto> {
        let after = self.blocks.partition_point(|block| block.offset <= offset);
        let block = self.blocks.get(after.checked_sub(1)?)?;
        (offset - block.offset < block.b.num_bytes.unwrap_or(0)).then_some(block)
    }
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
        let Some(mut last) = unfinished else { return Ok(BlockLocations { blocks, len: file_length }) };
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
        return Ok(BlockLocations { blocks, len: file_length + visible });
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
    verify: bool,
}

/// A connection on which the read request was sent.
struct PendingRead {
    socket: TcpStream,
    was_idle: bool,
}

impl Request<'_> {
    /// Reads from `address`, or from `hedge` if it answers first after the threshold.
    fn read(&self, address: &str, hedge: Option<&String>, buf: &mut [u8]) -> io::Result<()> {
        let asked = self.ask(address, buf.len(), true)?;
        let was_idle = asked.was_idle;
        let outcome = match hedge.filter(|_| self.shared.settings.hedged_reads_max > 0) {
            Some(other) => self.read_hedged(address, asked, other, buf),
            None => self.receive_from(address, asked.socket, buf),
        };
        match outcome {
            // The DataNode had closed the idle connection before the request.
            Err(e) if was_idle && is_closed(&e) => {
                let asked = self.ask(address, buf.len(), false)?;
                self.receive_from(address, asked.socket, buf)
            }
            outcome => outcome,
        }
    }

    fn ask(&self, address: &str, len: usize, reuse: bool) -> io::Result<PendingRead> {
        let settings = &self.shared.settings;
        let kept = if reuse { self.shared.pool.take(address) } else { None };
        let was_idle = kept.is_some();
        let mut socket = match kept {
            Some(socket) => socket,
            None => connect(address, settings.connect_timeout)?,
        };
        socket.set_read_timeout(Some(settings.socket_timeout))?;
        socket.set_write_timeout(Some(settings.socket_timeout))?;
        match socket.write_all(&operation(op::READ_BLOCK, &self.message(len))) {
            Ok(()) => Ok(PendingRead { socket, was_idle }),
            Err(_) if was_idle => self.ask(address, len, false),
            Err(e) => Err(e),
        }
    }

    fn message(&self, len: usize) -> OpReadBlockProto {
        let client_name = self.shared.namenode.client_name();
        OpReadBlockProto {
            header: client_header(&self.block.b, &self.block.block_token, client_name),
            offset: self.offset,
            len: len as u64,
            send_checksums: Some(self.verify),
            caching_strategy: Some(CachingStrategyProto::default()),
        }
    }

    fn read_hedged(&self, address: &str, first: PendingRead, other: &str, buf: &mut [u8]) -> io::Result<()> {
        let threshold = self.shared.settings.hedged_threshold;
        let pool = &self.shared.pool;
        if is_readable(&[&first.socket], threshold)?.is_some() || !pool.acquire_hedge() {
            return self.receive_from(address, first.socket, buf);
        }
        let outcome = self.race(address, first, other, buf);
        pool.release_hedge();
        outcome
    }

    fn race(&self, address: &str, first: PendingRead, other: &str, buf: &mut [u8]) -> io::Result<()> {
        let Ok(second) = self.ask(other, buf.len(), true) else {
            return self.receive_from(address, first.socket, buf);
        };
        let ready = is_readable(&[&first.socket, &second.socket], self.shared.settings.socket_timeout)?;
        let (winner, socket) = match ready {
            Some(1) => (other, second.socket),
            Some(_) => (address, first.socket),
            None => return Err(io::ErrorKind::TimedOut.into()),
        };
        self.receive_from(winner, socket, buf)
    }

    /// Reads the reply into `buf`, and returns the connection to the pool if it may be reused.
    fn receive_from(&self, address: &str, mut socket: TcpStream, buf: &mut [u8]) -> io::Result<()> {
        let checksum = receive(&mut socket, self.offset, buf)?;
        let verified = self.verify && checksum != Checksum::Null;
        let status = if verified { Status::ChecksumOk } else { Status::Success };
        let mut out = Vec::new();
        put_delimited(&mut out, &ClientReadStatusProto { status: status.into() });
        if socket.write_all(&out).is_ok() {
            self.shared.pool.keep(address, socket);
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

/// Bytes that do not match their checksum.
#[derive(Debug)]
struct Mismatch {
    offset: u64,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the packet at {} of the block does not match its checksums", self.offset)
    }
}

impl std::error::Error for Mismatch {}

fn is_mismatch(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Mismatch>())
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Reads the reply to a read of `buf.len()` bytes at `offset`: the status, and packets up to the
/// empty last one.
fn receive(from: &mut impl Read, offset: u64, buf: &mut [u8]) -> io::Result<Checksum> {
    let reply: BlockOpResponseProto = read_delimited(from)?;
    if reply.status() != Status::Success {
        let status = reply.status().as_str_name();
        return Err(io::Error::other(format!("{status}: {}", reply.message())));
    }
    let info = reply.read_op_checksum_info.ok_or_else(|| invalid("a reply without checksum information"))?;
    let checksum = Checksum::of(&info.checksum)?;
    let mut range = Range { start: offset, buf, next: info.chunk_offset, scratch: Vec::new() };
    while range.receive_packet(from, checksum)? {}
    match range.next >= range.end() {
        true => Ok(checksum),
        false => Err(invalid(format!("the block ended at {}, {} expected", range.next, range.end()))),
    }
}

/// The range being read; packets fill it in order.
struct Range<'a> {
    start: u64,
    buf: &'a mut [u8],
    /// The offset of the next packet.
    next: u64,
    /// The data of a packet that is not entirely within the range.
    scratch: Vec<u8>,
}

impl Range<'_> {
    fn end(&self) -> u64 {
        self.start + self.buf.len() as u64
    }

    /// Reads one packet; returns false if it was the last.
    fn receive_packet(&mut self, from: &mut impl Read, checksum: Checksum) -> io::Result<bool> {
        let mut prefix = [0; PREFIX_BYTES];
        from.read_exact(&mut prefix)?;
        let (header_len, payload_len) = packet::lengths(prefix)?;
        let mut header = vec![0; header_len];
        from.read_exact(&mut header)?;
        let header = Header::decode(&header)?;
        let sums_len = checksum.sums_len(header.data_len);
        if header.data_len + sums_len != payload_len || (header.data_len > 0 && header.offset != self.next) {
            return Err(invalid(format!("packet of {payload_len} bytes, {header:?}, at {}", self.next)));
        }
        let mut sums = vec![0; sums_len];
        from.read_exact(&mut sums)?;
        self.receive_data(from, header, checksum, &sums)?;
        self.next += header.data_len as u64;
        Ok(!header.is_last)
    }

    /// Reads a packet's data, directly into the caller's buffer if all of it is within the range.
    fn receive_data(
        &mut self,
        from: &mut impl Read,
        header: Header,
        checksum: Checksum,
        sums: &[u8],
    ) -> io::Result<()> {
        let mismatch = || io::Error::other(Mismatch { offset: header.offset });
        let (start, packet_end) = (self.start, header.offset + header.data_len as u64);
        let is_inside = header.offset >= start && packet_end <= self.end();
        if is_inside {
            let at = usize::try_from(header.offset - start).unwrap_or(usize::MAX);
            let place = self.buf.get_mut(at..at + header.data_len).unwrap_or_default();
            from.read_exact(place)?;
            return if checksum.matches(place, sums) { Ok(()) } else { Err(mismatch()) };
        }
        self.scratch.resize(header.data_len, 0);
        from.read_exact(&mut self.scratch)?;
        if !checksum.matches(&self.scratch, sums) {
            return Err(mismatch());
        }
        self.copy_overlap(header.offset, packet_end);
        Ok(())
    }

    /// Copies the part of the scratch packet at `offset..packet_end` that is within the range.
    fn copy_overlap(&mut self, offset: u64, packet_end: u64) {
        let (from, to) = (offset.max(self.start), packet_end.min(self.end()));
        let Some(len) = to.checked_sub(from) else { return };
        let index = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let source = index(from - offset)..index(from - offset + len);
        let target = index(from - self.start)..index(from - self.start + len);
        if let (Some(source), Some(target)) = (self.scratch.get(source), self.buf.get_mut(target)) {
            target.copy_from_slice(source);
        }
    }
}

#[cfg(test)]
mod tests;
