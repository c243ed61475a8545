//! The request of a replica's descriptors, over the DataNode's UNIX domain socket.
//!
//! The DataNode answers with a `BlockOpResponseProto`, then with one byte, to which the descriptors
//! of the data file and of the meta file are attached (SCM_RIGHTS). If the byte is 1, the DataNode
//! waits for a byte as a receipt.
//!
//! The request names no slot of shared memory. A DataNode uses slots to tell its clients that a
//! replica is locked in memory, or about to be deleted; without one, a client gives descriptors up
//! by their age.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use evenkeel_common::clock;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use socket2::{Domain, SockAddr, Socket, Type};

use super::replica::LocalReplica;
use crate::Settings;
use crate::block::{op, operation};
use crate::hadoop::hdfs::{
    BaseHeaderProto, BlockOpResponseProto, LocatedBlockProto, OpRequestShortCircuitAccessProto, Status,
};
use crate::wire::read_delimited;

/// The newest format of replicas that this client reads.
const VERSION_MAX: u32 = 1;

/// The byte with which a DataNode requests a receipt.
const RECEIPT_WANTED: u8 = 1;

/// How long a request waits for room in the queue of the socket. An ordinary read takes less than a
/// longer wait.
const QUEUE_WAIT_MAX: Duration = Duration::from_millis(200);

/// The pause between attempts to connect while the queue of the socket is full.
const CONNECT_PAUSE: Duration = Duration::from_millis(5);

/// Why there are no descriptors.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The socket cannot be used, or the DataNode passes no descriptors at all.
    Path(String),
    /// The DataNode passes no usable descriptors of this block.
    Block(String),
    /// The block's access token is not accepted; an ordinary read gets new locations.
    Token(String),
}

/// The timeouts of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    /// How long a connect waits for room in the queue of the socket.
    pub(super) queue: Duration,
    /// The timeout of one read or write.
    pub(super) reply: Duration,
}

impl Timeouts {
    pub(super) fn of(settings: &Settings) -> Self {
        Self { queue: settings.connect_timeout.min(QUEUE_WAIT_MAX), reply: settings.socket_timeout }
    }
}

/// Requests the descriptors of a block from the DataNode that listens on `path`.
pub(super) fn request(
    path: &str,
    block: &LocatedBlockProto,
    timeouts: Timeouts,
) -> Result<LocalReplica, Refusal> {
    let broken = |e: io::Error| Refusal::Path(format!("{path}: {e}"));
    let mut socket = connect(path, timeouts).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock => Refusal::Block(format!("the queue of {path} is full")),
        _ => broken(e),
    })?;
    let reply = ask(&mut socket, block).map_err(broken)?;
    let said = || format!("{} {}", reply.status().as_str_name(), reply.message());
    match reply.status() {
        Status::Success => {}
        Status::ErrorUnsupported if reply.short_circuit_access_version.is_some() => {
            return Err(Refusal::Block(said()));
        }
        // It has no such replica, for example because the replica was moved.
        Status::Error => return Err(Refusal::Block(said())),
        Status::ErrorAccessToken => return Err(Refusal::Token(said())),
        _ => return Err(Refusal::Path(format!("{path}: {}", said()))),
    }
    let (byte, descriptors) = receive(&socket).map_err(broken)?;
    let unusable = |e: io::Error| Refusal::Block(e.to_string());
    let [data, meta] = <[OwnedFd; 2]>::try_from(descriptors)
        .map_err(|found| Refusal::Block(format!("{} descriptors instead of 2", found.len())))?;
    if byte == RECEIPT_WANTED {
        socket.write_all(&[0]).map_err(unusable)?;
    }
    LocalReplica::new(data, meta, block.b.num_bytes.unwrap_or(0)).map_err(unusable)
}

/// Connects to the socket at `path`.
///
/// # Errors
/// `WouldBlock` if the queue of the listening socket stays full; an error of the socket.
fn connect(path: &str, timeouts: Timeouts) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = SockAddr::unix(path)?;
    let deadline = clock::monotonic() + timeouts.queue;
    // A blocking connect would wait for room in the queue without limit.
    socket.set_nonblocking(true)?;
    while let Err(e) = socket.connect(&address) {
        match e.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock if clock::monotonic() < deadline => {
                std::thread::sleep(CONNECT_PAUSE);
            }
            _ => return Err(e),
        }
    }
    socket.set_nonblocking(false)?;
    let socket = UnixStream::from(OwnedFd::from(socket));
    socket.set_read_timeout(Some(timeouts.reply))?;
    socket.set_write_timeout(Some(timeouts.reply))?;
    Ok(socket)
}

fn ask(socket: &mut UnixStream, block: &LocatedBlockProto) -> io::Result<BlockOpResponseProto> {
    let request = OpRequestShortCircuitAccessProto {
        header: BaseHeaderProto { block: block.b.clone(), token: Some(block.block_token.clone()) },
        max_version: VERSION_MAX,
        supports_receipt_verification: Some(true),
    };
    socket.write_all(&operation(op::REQUEST_SHORT_CIRCUIT_FDS, &request))?;
    read_delimited(socket)
}

/// Receives the byte and its descriptors, which are closed if they are dropped.
fn receive(socket: &UnixStream) -> io::Result<(u8, Vec<OwnedFd>)> {
    let mut byte = [0];
    // With room for one too many, which is noticed. The kernel closes those beyond it.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut into = [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let descriptors = rights.flatten().collect();
    let [byte] = byte;
    Ok((byte, descriptors))
}
