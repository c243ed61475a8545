//! The connection to one DataNode of a block being written.
//!
//! The socket is non-blocking: unsent bytes wait in a queue, and received bytes are buffered until
//! an acknowledgement is complete. Acknowledgements must arrive in packet order, one per packet,
//! with one status for each DataNode of the chain.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use evenkeel_common::clock;

use crate::Settings;
use crate::block::located::transfer_address;
use crate::block::{client_header, op, operation, packet};
use crate::hadoop::hdfs::{
    BlockOpResponseProto, CachingStrategyProto, DatanodeInfoProto, LocatedBlockProto, OpWriteBlockProto,
    PipelineAckProto, Status,
};
use crate::rpc::connect;
use crate::wire::{read_delimited, try_take_delimited};

/// The stage of a block that is being created.
const PIPELINE_SETUP_CREATE: u32 = 6;

/// The largest acknowledgement, in bytes: a sequence number and a few statuses.
const ACK_BYTES_MAX: usize = 4096;

/// The status bits of an acknowledgement's flag; the other bits describe the DataNode's load.
const STATUS_MASK: u32 = 0xf;

/// A failure of one DataNode.
#[derive(Debug)]
pub(crate) struct DataNodeError {
    /// Its index among the block's locations.
    pub(crate) location: usize,
    pub(crate) error: io::Error,
}

/// A connection to a DataNode: the only one of its chain, or the first of a longer chain.
#[derive(Debug)]
pub(crate) struct DataNodeConnection {
    socket: TcpStream,
    /// The index of its DataNode among the block's locations.
    pub(crate) location: usize,
    /// The number of DataNodes in the chain that begins here.
    chain: usize,
    unsent: VecDeque<Bytes>,
    received: Vec<u8>,
    /// The sequence number of the next acknowledgement.
    pub(crate) next_ack: i64,
    /// True if the DataNode has closed the connection or it broke; no more bytes can be received.
    is_closed: bool,
    /// When the socket last accepted bytes, or a packet was last acknowledged.
    pub(crate) progress: Instant,
}

impl DataNodeConnection {
    /// Connects to the DataNode at index `location` and creates the block on it and on the `chain -
    /// 1` locations after it.
    ///
    /// # Errors
    /// Returns the failed locations, at least one, with their errors. In a chain the first DataNode
    /// reports which one failed. It does so only after it has tried for more than
    /// `dfs.client.socket-timeout` to connect to a machine without power. So if it is silent for
    /// `Settings::ack_timeout`, the others are connected to from here, and those that do not accept
    /// it have failed. If all accept it, the first one has its time: `Settings::chain_timeout`.
    pub(crate) fn open(
        block: &LocatedBlockProto,
        location: usize,
        chain: usize,
        client_name: &str,
        settings: &Settings,
    ) -> Result<Self, Vec<DataNodeError>> {
        let at = |error: io::Error| vec![DataNodeError { location, error }];
        let first = block.locs.get(location).ok_or_else(|| at(io::ErrorKind::NotFound.into()))?;
        let address = transfer_address(&first.id, settings.use_datanode_hostname);
        let mut socket = connect(&address, settings.connect_timeout).map_err(at)?;
        let request = write_request(block, location, chain, client_name);
        send_request(&mut socket, &request, settings).map_err(at)?;
        if chain > 1 {
            if is_silent(&socket).map_err(at)? {
                let unreachable = unreachable(block, location + 1..location + chain, settings);
                if !unreachable.is_empty() {
                    return Err(unreachable);
                }
            }
            socket.set_read_timeout(Some(settings.chain_timeout(chain))).map_err(at)?;
        }
        let reply: BlockOpResponseProto = read_delimited(&mut socket).map_err(at)?;
        if reply.status() != Status::Success {
            let bad = reply.first_bad_link().to_owned();
            let location = location_of(block, &bad).unwrap_or(location);
            let what = format!("{}: {}", reply.status().as_str_name(), reply.message());
            return Err(vec![DataNodeError { location, error: io::Error::other(what) }]);
        }
        socket.set_nonblocking(true).map_err(at)?;
        let (unsent, received) = (VecDeque::new(), Vec::new());
        let progress = clock::monotonic();
        Ok(Self { socket, location, chain, unsent, received, next_ack: 0, is_closed: false, progress })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Queues bytes and sends as many as the socket accepts.
    pub(crate) fn send(&mut self, bytes: Bytes) -> Result<(), DataNodeError> {
        self.unsent.push_back(bytes);
        self.send_queued()
    }

    /// Sends as many queued bytes as the socket accepts.
    pub(crate) fn send_queued(&mut self) -> Result<(), DataNodeError> {
        let location = self.location;
        while let Some(front) = self.unsent.front_mut() {
            match self.socket.write(front) {
                Ok(0) if !front.is_empty() => {
                    return Err(DataNodeError { location, error: io::ErrorKind::WriteZero.into() });
                }
                Ok(n) => {
                    self.progress = clock::monotonic();
                    *front = front.slice(n..);
                    if front.is_empty() {
                        self.unsent.pop_front();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(DataNodeError { location, error }),
            }
        }
        Ok(())
    }

    /// Returns true if the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Processes the acknowledgements that have arrived, including those before the end of the
    /// connection. A read that does not fill its buffer is the last one: what arrives later, also
    /// the end of the connection, is for the next call.
    pub(crate) fn receive(&mut self) -> Result<(), DataNodeError> {
        let mut buffer = [0; 1024];
        while self.received.len() < ACK_BYTES_MAX {
            match self.socket.read(&mut buffer) {
                Ok(n) if n > 0 => {
                    self.received.extend_from_slice(buffer.get(..n).unwrap_or_default());
                    if n < buffer.len() {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => {
                    self.is_closed = true;
                    break;
                }
            }
        }
        self.take_acks()
    }

    fn take_acks(&mut self) -> Result<(), DataNodeError> {
        let received = std::mem::take(&mut self.received);
        let mut rest = &received[..];
        let location = self.location;
        let next =
            |rest: &mut &[u8]| try_take_delimited(rest).map_err(|error| DataNodeError { location, error });
        while let Some(ack) = next(&mut rest)? {
            self.accept(&ack)?;
        }
        if rest.len() >= ACK_BYTES_MAX {
            let what = format!("an acknowledgement of more than {ACK_BYTES_MAX} bytes");
            return Err(DataNodeError { location, error: io::Error::new(io::ErrorKind::InvalidData, what) });
        }
        self.received = rest.to_vec();
        Ok(())
    }

    /// Checks one acknowledgement; advances `next_ack` unless it is a heartbeat's.
    fn accept(&mut self, ack: &PipelineAckProto) -> Result<(), DataNodeError> {
        let fail = |index: usize, what: String| DataNodeError {
            location: self.location + index,
            error: io::Error::other(what),
        };
        let statuses: Vec<i32> = statuses_of(ack);
        if let Some(index) = statuses.iter().position(|&status| status != i32::from(Status::Success)) {
            let name =
                statuses.get(index).and_then(|&s| Status::try_from(s).ok()).map_or("?", |s| s.as_str_name());
            return Err(fail(index, format!("packet {} was answered with {name}", ack.seqno)));
        }
        if ack.seqno == packet::HEARTBEAT {
            return Ok(());
        }
        if ack.seqno != self.next_ack || statuses.len() != self.chain {
            let wanted = self.next_ack;
            return Err(fail(0, format!("ack {} of {} nodes, {wanted} expected", ack.seqno, statuses.len())));
        }
        self.next_ack += 1;
        self.progress = clock::monotonic();
        Ok(())
    }
}

/// Returns the status of each DataNode of the chain, from the flags if there are any.
fn statuses_of(ack: &PipelineAckProto) -> Vec<i32> {
    if ack.flag.is_empty() {
        return ack.reply.clone();
    }
    ack.flag.iter().map(|flag| i32::try_from(flag & STATUS_MASK).unwrap_or(-1)).collect()
}

fn send_request(socket: &mut TcpStream, request: &OpWriteBlockProto, settings: &Settings) -> io::Result<()> {
    socket.set_write_timeout(Some(settings.ack_timeout))?;
    socket.set_read_timeout(Some(settings.ack_timeout))?;
    socket.write_all(&operation(op::WRITE_BLOCK, request))
}

/// Waits for the first byte; returns true if it does not arrive within the read timeout.
fn is_silent(socket: &TcpStream) -> io::Result<bool> {
    loop {
        match socket.peek(&mut [0]) {
            Ok(_) => return Ok(false),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(true);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Returns the locations that accept no connection, with the errors.
fn unreachable(
    block: &LocatedBlockProto,
    locations: Range<usize>,
    settings: &Settings,
) -> Vec<DataNodeError> {
    let probe = |location: usize| {
        let node = block.locs.get(location)?;
        let address = transfer_address(&node.id, settings.use_datanode_hostname);
        let error = connect(&address, settings.connect_timeout).err()?;
        Some(DataNodeError { location, error })
    };
    locations.filter_map(probe).collect()
}

fn write_request(
    block: &LocatedBlockProto,
    location: usize,
    chain: usize,
    client_name: &str,
) -> OpWriteBlockProto {
    let behind = location + 1..location + chain;
    let targets: Vec<DatanodeInfoProto> = block.locs.get(behind.clone()).unwrap_or_default().to_vec();
    let target_storage_types = block.storage_types.get(behind).unwrap_or_default().to_vec();
    OpWriteBlockProto {
        header: client_header(&block.b, &block.block_token, client_name),
        targets,
        source: None,
        stage: PIPELINE_SETUP_CREATE,
        pipeline_size: u32::try_from(chain).unwrap_or(1),
        min_bytes_rcvd: 0,
        max_bytes_rcvd: 0,
        latest_generation_stamp: 0,
        requested_checksum: packet::CRC32C,
        caching_strategy: Some(CachingStrategyProto { drop_behind: Some(chain == 1), readahead: None }),
        storage_type: block.storage_types.get(location).copied(),
        target_storage_types,
        storage_id: None,
        target_storage_ids: Vec::new(),
    }
}

/// Returns the index of the location that `firstBadLink` names.
fn location_of(block: &LocatedBlockProto, link: &str) -> Option<usize> {
    let is_it = |info: &DatanodeInfoProto| {
        [false, true].into_iter().any(|by_name| transfer_address(&info.id, by_name) == link)
    };
    (!link.is_empty()).then(|| block.locs.iter().position(is_it)).flatten()
}
