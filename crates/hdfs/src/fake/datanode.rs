//! A DataNode that stores received packets, and acknowledges as a closure decides.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::block::op;
use crate::block::packet::{Checksum, Header, PREFIX_BYTES, lengths, put_packet};
use crate::hadoop::hdfs::{
    BlockOpResponseProto, ChecksumProto, DatanodeIdProto, DatanodeInfoProto, OpReadBlockProto,
    OpWriteBlockProto, PipelineAckProto, ReadOpChecksumInfoProto, Status,
};
use crate::wire::{put_delimited, read_delimited};

/// A packet that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) header: Header,
    pub(crate) data: Vec<u8>,
}

/// What the server does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    /// Acknowledges it.
    Success,
    /// Acknowledges it, sending one byte at a time.
    InPieces,
    /// Answers with this status.
    Fail(Status),
    /// Acknowledges another packet.
    Seqno(i64),
    /// Sends the first bytes of an acknowledgement, then nothing.
    Half,
    /// Sends bytes that are not an acknowledgement.
    Garbage,
    /// Acknowledges it and closes the connection.
    ThenClose,
    /// Acknowledges it and closes the connection a second later.
    CloseLater,
    /// Closes the connection.
    Close,
    /// Does not answer.
    Silence,
}

/// How the server behaves.
pub(crate) struct Behavior {
    /// The reply to a block request; `None` closes the connection.
    pub(crate) reply: Option<BlockOpResponseProto>,
    /// How long it waits before it answers a block request.
    pub(crate) set_up_delay: fn(&OpWriteBlockProto) -> Duration,
    /// For each packet.
    pub(crate) ack: Box<dyn Fn(&Packet) -> Ack + Send + Sync>,
    /// How long it waits before it answers a read.
    pub(crate) read_delay: Duration,
    /// It answers no read while this is locked.
    pub(crate) read_gate: Arc<Mutex<()>>,
    /// Corrupts the data sent to readers.
    pub(crate) is_corrupt: bool,
}

impl Default for Behavior {
    fn default() -> Self {
        Self {
            reply: Some(status(Status::Success)),
            set_up_delay: |_| Duration::ZERO,
            ack: Box::new(|_| Ack::Success),
            read_delay: Duration::ZERO,
            read_gate: Arc::default(),
            is_corrupt: false,
        }
    }
}

pub(crate) fn status(status: Status) -> BlockOpResponseProto {
    BlockOpResponseProto { status: status.into(), ..Default::default() }
}

#[derive(Default)]
struct State {
    packets: Mutex<Vec<Packet>>,
    requests: Mutex<Vec<OpWriteBlockProto>>,
    reads: Mutex<Vec<OpReadBlockProto>>,
    /// Bytes by block id.
    blocks: Mutex<HashMap<u64, Vec<u8>>>,
    connections: Mutex<usize>,
    stopped: AtomicBool,
}

/// A server on a free port of this machine, which ends with the test.
pub(crate) struct FakeDataNode {
    pub(crate) port: u16,
    state: Arc<State>,
    behavior: Arc<Mutex<Arc<Behavior>>>,
}

impl FakeDataNode {
    pub(crate) fn start(behavior: Behavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State::default());
        let behavior = Arc::new(Mutex::new(Arc::new(behavior)));
        let (own, current) = (Arc::clone(&state), Arc::clone(&behavior));
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                if own.stopped.load(Ordering::SeqCst) {
                    return;
                }
                *own.connections.lock() += 1;
                let (state, behavior) = (Arc::clone(&own), Arc::clone(&current.lock()));
                let socket = socket.expect("accepted");
                std::thread::spawn(move || drop(serve(socket, &state, &behavior)));
            }
        });
        Self { port, state, behavior }
    }

    /// Behaves like this from the next connection on.
    pub(crate) fn behave(&self, behavior: Behavior) {
        *self.behavior.lock() = Arc::new(behavior);
    }

    /// How the NameNode names it.
    pub(crate) fn info(&self) -> DatanodeInfoProto {
        let id = DatanodeIdProto {
            ip_addr: "127.0.0.1".into(),
            host_name: "localhost".into(),
            datanode_uuid: format!("dn-{}", self.port),
            xfer_port: self.port.into(),
            ..Default::default()
        };
        DatanodeInfoProto { id, ..Default::default() }
    }

    pub(crate) fn packets(&self) -> Vec<Packet> {
        self.state.packets.lock().clone()
    }

    pub(crate) fn requests(&self) -> Vec<OpWriteBlockProto> {
        self.state.requests.lock().clone()
    }

    pub(crate) fn reads(&self) -> Vec<OpReadBlockProto> {
        self.state.reads.lock().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        *self.state.connections.lock()
    }

    pub(crate) fn bytes(&self, block_id: u64) -> Vec<u8> {
        self.state.blocks.lock().get(&block_id).cloned().unwrap_or_default()
    }

    /// Loses all blocks.
    pub(crate) fn forget(&self) {
        self.state.blocks.lock().clear();
    }

    pub(crate) fn store(&self, block_id: u64, bytes: &[u8]) {
        self.state.blocks.lock().insert(block_id, bytes.to_vec());
    }
}

impl FakeDataNode {
    /// Accepts no more connections, from soon on.
    pub(crate) fn stop(&self) {
        self.state.stopped.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Drop for FakeDataNode {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(mut socket: TcpStream, state: &State, behavior: &Behavior) -> io::Result<()> {
    loop {
        let mut start = [0; 3];
        socket.read_exact(&mut start)?;
        assert_eq!(start[..2], [0, 28]);
        match start[2] {
            op::WRITE_BLOCK => return write_block(&mut socket, state, behavior),
            op::READ_BLOCK => read_block(&mut socket, state, behavior)?,
            other => panic!("operation {other}"),
        }
    }
}

fn send(socket: &mut TcpStream, message: &impl prost::Message) -> io::Result<()> {
    let mut out = Vec::new();
    put_delimited(&mut out, message);
    socket.write_all(&out)
}

fn write_block(socket: &mut TcpStream, state: &State, behavior: &Behavior) -> io::Result<()> {
    let request: OpWriteBlockProto = read_delimited(socket)?;
    let block_id = request.header.base_header.block.block_id;
    let nodes = 1 + request.targets.len();
    let delay = (behavior.set_up_delay)(&request);
    state.requests.lock().push(request);
    std::thread::sleep(delay);
    let Some(reply) = &behavior.reply else { return Ok(()) };
    send(socket, reply)?;
    if reply.status() != Status::Success {
        return Ok(());
    }
    loop {
        let packet = read_packet(socket)?;
        if packet.header.seqno >= 0 {
            store_packet(state, block_id, &packet);
        }
        let ack = |seqno: i64, status: Status| PipelineAckProto {
            seqno,
            reply: vec![status.into(); nodes],
            downstream_ack_time_nanos: Some(0),
            flag: vec![u32::try_from(i32::from(status)).expect("small"); nodes],
        };
        let seqno = packet.header.seqno;
        let mut bytes = Vec::new();
        put_delimited(&mut bytes, &ack(seqno, Status::Success));
        let action = (behavior.ack)(&packet);
        match action {
            Ack::Success | Ack::ThenClose => socket.write_all(&bytes)?,
            Ack::CloseLater => {
                socket.write_all(&bytes)?;
                std::thread::sleep(Duration::from_secs(1));
            }
            Ack::InPieces => {
                for byte in bytes {
                    socket.write_all(&[byte])?;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Ack::Fail(status) => send(socket, &ack(seqno, status))?,
            Ack::Seqno(other) => send(socket, &ack(other, Status::Success))?,
            Ack::Half => socket.write_all(&bytes[..bytes.len() / 2])?,
            Ack::Garbage => socket.write_all(&[0xff; 32])?,
            Ack::Close | Ack::Silence => {}
        }
        let closes = matches!(action, Ack::Close | Ack::ThenClose | Ack::CloseLater | Ack::Fail(_));
        let is_over = packet.header.is_last || closes;
        if is_over {
            return Ok(());
        }
    }
}

fn read_packet(socket: &mut TcpStream) -> io::Result<Packet> {
    let mut prefix = [0; PREFIX_BYTES];
    socket.read_exact(&mut prefix)?;
    let (header_len, payload_len) = lengths(prefix)?;
    let mut header = vec![0; header_len];
    socket.read_exact(&mut header)?;
    let header = Header::decode(&header)?;
    let mut payload = vec![0; payload_len];
    socket.read_exact(&mut payload)?;
    let (sums, data) = payload.split_at(payload_len - header.data_len);
    assert!(Checksum::Crc32c(512).matches(data, sums) && sums.len() == data.len().div_ceil(512) * 4);
    Ok(Packet { header, data: data.to_vec() })
}

/// Stores a packet as a DataNode does: it may repeat bytes, and begins on a chunk boundary.
fn store_packet(state: &State, block_id: u64, packet: &Packet) {
    let mut blocks = state.blocks.lock();
    let block = blocks.entry(block_id).or_default();
    let offset = usize::try_from(packet.header.offset).expect("small");
    assert!(offset <= block.len(), "out of sequence: {offset} after {}", block.len());
    assert!(packet.data.is_empty() || offset.is_multiple_of(512), "not on a chunk boundary: {offset}");
    assert_eq!(block[offset..].len().min(packet.data.len()), block[offset..].len(), "bytes are taken back");
    block.truncate(offset);
    block.extend_from_slice(&packet.data);
    drop(blocks);
    state.packets.lock().push(packet.clone());
}

fn read_block(socket: &mut TcpStream, state: &State, behavior: &Behavior) -> io::Result<()> {
    let request: OpReadBlockProto = read_delimited(socket)?;
    state.reads.lock().push(request.clone());
    std::thread::sleep(behavior.read_delay);
    drop(behavior.read_gate.lock());
    let block_id = request.header.base_header.block.block_id;
    let bytes = state.blocks.lock().get(&block_id).cloned();
    let end = usize::try_from(request.offset + request.len).expect("small");
    let Some(bytes) = bytes.filter(|bytes| end <= bytes.len()) else {
        send(socket, &status(Status::Error))?;
        return Err(io::ErrorKind::NotFound.into());
    };
    let start = usize::try_from(request.offset).expect("small") / 512 * 512;
    let end = end.next_multiple_of(512).min(bytes.len());
    let info = ReadOpChecksumInfoProto {
        checksum: ChecksumProto { r#type: 2, bytes_per_checksum: 512 },
        chunk_offset: start as u64,
    };
    send(socket, &BlockOpResponseProto { read_op_checksum_info: Some(info), ..status(Status::Success) })?;
    let mut out = Vec::new();
    for (index, data) in bytes[start..end].chunks(2048).enumerate() {
        put_packet(&mut out, (start + index * 2048) as u64, index as i64, data, false, false);
        if behavior.is_corrupt {
            *out.last_mut().expect("data") ^= 1;
        }
    }
    put_packet(&mut out, end as u64, 1 << 20, b"", true, false);
    socket.write_all(&out)?;
    let _: crate::hadoop::hdfs::ClientReadStatusProto = read_delimited(socket)?;
    Ok(())
}
