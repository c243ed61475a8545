//! The handshake: everything before a connection's first call.
//!
//! ```text
//! client: "HBas" | u8 version = 0 | u8 authentication       (or a question: "Regist", "Securi")
//! client: frame, ConnectionHeader
//! ```
//!
//! | the client sends | the server |
//! |---|---|
//! | `Regist` | answers the cluster id and closes; refuses while it has none |
//! | `Securi` | answers SecurityNotEnabledException and waits for another preamble |
//! | other magic, version or authentication | answers the exception with call id -1 and closes |
//! | Kerberos or token | answers "switch to simple" (0, -88), drops its first token |
//! | a ConnectionHeader that cannot be served | closes without a reply, as HBase does |
//! | more than `CONNECTION_HEADER_BYTES_MAX` at a time, or more than the budget | closes |

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::{ErrorKind, HBaseError};
use evenkeel_protocol::pb;
use prost::Message;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::frame::{Frame, FrameReader};
use super::input_budget::{HEADER_BYTES_FREE, InputCharge};
use crate::call::ConnectionInfo;
use crate::cell_block::{CellBlockCodec, CellCodec};
use crate::connection_thread::ConnectionThread;
use crate::exception::preamble_exception;
use crate::gather_buffer::GatherBuffer;
use crate::reply::{PREAMBLE_CALL_ID, write_exception, write_exception_response, write_result};
use crate::service::ServiceEntry;
use crate::wire::{skip_field, take_varint};

const PREAMBLE_BYTES: usize = 6;
const MAGIC: &[u8] = b"HBas";
const REGISTRY_PREAMBLE: &[u8] = b"Regist";
const SECURITY_PREAMBLE: &[u8] = b"Securi";
const RPC_VERSION: u8 = 0;
const AUTH_SIMPLE: u8 = 80;
const AUTH_KERBEROS: u8 = 81;
const AUTH_DIGEST: u8 = 82;
/// SASL status SUCCESS, then -88: the server uses no SASL; the client continues with simple
/// authentication.
const SWITCH_TO_SIMPLE: [u8; 8] = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xa8];
/// Limit of the fields of a ConnectionHeader; each attribute is one field.
const HEADER_FIELDS_MAX: usize = 1000;
/// How long a refused client has to read the reply and to close.
const LINGER: Duration = Duration::from_secs(2);

/// A connection that has completed its handshake.
pub(crate) struct Established {
    pub info: Arc<ConnectionInfo>,
    pub service: Arc<ServiceEntry>,
    /// Budget of the ConnectionHeader, held for the life of the connection.
    pub header: InputCharge,
}

/// Performs the handshake of a new connection; `None` if it was refused or closed.
pub(crate) async fn handshake(
    stream: &mut TcpStream,
    frames: &mut FrameReader,
    thread: &Rc<ConnectionThread>,
    peer: SocketAddr,
) -> Option<Established> {
    let mut held = InputCharge::new(thread.clone());
    let sasl_token_follows = preamble(stream, frames, &mut held, thread, peer).await?;
    if sasl_token_follows {
        next_frame(stream, frames, &mut held).await?;
    }
    let header = next_frame(stream, frames, &mut held).await?;
    let established = {
        // One header per turn, so that calls of other connections run between any number of
        // handshakes.
        let _turn = thread.handshakes.acquire().await.ok()?;
        tokio::task::yield_now().await;
        established(header, held, thread, peer)
    };
    established.map_err(|reason| thread.log_refusal(peer, &reason)).ok()
}

fn established(
    header: Bytes,
    mut held: InputCharge,
    thread: &Rc<ConnectionThread>,
    peer: SocketAddr,
) -> Result<Established, String> {
    let (info, service) = connection_info(header, thread, peer)?;
    held.clear();
    let bytes = header_bytes(&info);
    if bytes > HEADER_BYTES_FREE && !held.grow_to(bytes) {
        return Err(format!("the budget of requests has no space for {bytes} bytes"));
    }
    Ok(Established { info: Arc::new(info), service, header: held })
}

/// Returns the bytes of a ConnectionHeader that stay in memory.
fn header_bytes(info: &ConnectionInfo) -> usize {
    let names = [&info.user, &info.real_user].into_iter().flatten().map(String::len).sum::<usize>();
    let attributes = info.attributes.iter().map(|(name, value)| name.len() + value.len());
    names + attributes.sum::<usize>() + std::mem::size_of_val(info.attributes.as_slice())
}

/// Reads preambles until one opens the connection. Returns true if the client's first frame is a
/// SASL token.
async fn preamble(
    stream: &mut TcpStream,
    frames: &mut FrameReader,
    held: &mut InputCharge,
    thread: &Rc<ConnectionThread>,
    peer: SocketAddr,
) -> Option<bool> {
    loop {
        let bytes = next_bytes(stream, frames, held, PREAMBLE_BYTES).await?;
        let cluster_id = || (thread.config().cluster_id)();
        match classify_preamble(&bytes, peer, cluster_id) {
            Preamble::Simple => return Some(false),
            Preamble::SwitchToSimple => {
                stream.write_all(&SWITCH_TO_SIMPLE).await.ok()?;
                return Some(true);
            }
            Preamble::Reply(reply) => stream.write_all(&reply).await.ok()?,
            Preamble::ReplyAndClose(reply) => {
                stream.write_all(&reply).await.ok()?;
                linger(stream).await;
                return None;
            }
        }
    }
}

/// The reaction to a preamble; replies are whole frames.
#[derive(Debug, PartialEq, Eq)]
enum Preamble {
    Simple,
    SwitchToSimple,
    Reply(Vec<u8>),
    ReplyAndClose(Vec<u8>),
}

fn classify_preamble(bytes: &[u8], peer: SocketAddr, cluster_id: impl Fn() -> Option<String>) -> Preamble {
    if bytes == REGISTRY_PREAMBLE
        && let Some(cluster_id) = cluster_id()
    {
        return Preamble::ReplyAndClose(registry_reply(cluster_id));
    }
    if bytes == SECURITY_PREAMBLE {
        let error = HBaseError::new(ErrorKind::SecurityNotEnabled, "security is not enabled");
        return Preamble::Reply(refusal(&error));
    }
    match bytes {
        [magic @ .., RPC_VERSION, auth] if magic == MAGIC => match *auth {
            AUTH_SIMPLE => Preamble::Simple,
            AUTH_KERBEROS | AUTH_DIGEST => Preamble::SwitchToSimple,
            _ => reject_mode(ErrorKind::BadAuth, RPC_VERSION, *auth, peer),
        },
        [magic @ .., version, auth] if magic == MAGIC => {
            reject_mode(ErrorKind::WrongVersion, *version, *auth, peer)
        }
        _ => {
            let magic = bytes.get(..MAGIC.len()).unwrap_or(bytes).escape_ascii();
            // Clients recognize servers older than their question by exactly this prefix.
            let message = format!("Expected HEADER=HBas, but {peer} sent {magic}");
            Preamble::ReplyAndClose(refusal(&HBaseError::new(ErrorKind::FatalConnection, message)))
        }
    }
}

fn reject_mode(kind: ErrorKind, version: u8, auth: u8, peer: SocketAddr) -> Preamble {
    let message = format!(
        "{peer} speaks version {version} with authentication {auth}; this server speaks version {RPC_VERSION}"
    );
    Preamble::ReplyAndClose(refusal(&HBaseError::new(kind, message)))
}

fn refusal(error: &HBaseError) -> Vec<u8> {
    let mut out = GatherBuffer::new();
    write_exception_response(&mut out, PREAMBLE_CALL_ID, preamble_exception(error));
    out.to_vec()
}

fn registry_reply(cluster_id: String) -> Vec<u8> {
    let mut out = GatherBuffer::new();
    let reply = pb::GetConnectionRegistryResponse { cluster_id };
    if let Err(error) = write_result(&mut out, PREAMBLE_CALL_ID, &reply, None, u64::MAX) {
        write_exception(&mut out, PREAMBLE_CALL_ID, &error);
    }
    out.to_vec()
}

/// Closes so that the client can read the last reply. Closing a socket with unread bytes resets
/// it, and the reply is lost. Bounded in time and memory.
pub(crate) async fn linger(stream: &mut TcpStream) {
    let drain = async {
        let _ = stream.shutdown().await;
        while stream.readable().await.is_ok() && discard(stream) {}
    };
    let _ = tokio::time::timeout(LINGER, drain).await;
}

/// Discards received bytes; returns false at the end of the stream. The buffer is on the stack, not
/// in the connection's task.
fn discard(stream: &TcpStream) -> bool {
    let mut bytes = [0; 4096];
    match stream.try_read(&mut bytes) {
        Ok(read) => read > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Charges the buffered bytes to the budget, then reads once. The buffer is allocated only when
/// bytes have arrived.
async fn receive(stream: &mut TcpStream, frames: &mut FrameReader, held: &mut InputCharge) -> Option<()> {
    if !held.grow_to(frames.buffered().len()) {
        return None;
    }
    loop {
        stream.readable().await.ok()?;
        match stream.try_read_buf(frames.spare_capacity()) {
            Ok(0) => return None,
            Ok(count) => {
                frames.received(count);
                return Some(());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
}

async fn next_bytes(
    stream: &mut TcpStream,
    frames: &mut FrameReader,
    held: &mut InputCharge,
    count: usize,
) -> Option<Bytes> {
    loop {
        if let Some(bytes) = frames.take(count) {
            return Some(bytes);
        }
        receive(stream, frames, held).await?;
    }
}

async fn next_frame(
    stream: &mut TcpStream,
    frames: &mut FrameReader,
    held: &mut InputCharge,
) -> Option<Bytes> {
    loop {
        match frames.next_frame() {
            Frame::Whole(frame) => return Some(frame),
            Frame::Partial(_) => receive(stream, frames, held).await?,
            Frame::TooLong(bytes) => {
                tracing::debug!(bytes, "frame before the connection header is too long");
                return None;
            }
        }
    }
}

fn connection_info(
    header: Bytes,
    thread: &ConnectionThread,
    peer: SocketAddr,
) -> Result<(ConnectionInfo, Arc<ServiceEntry>), String> {
    if fields(&header).ok_or("a field of the connection header cannot be read")? > HEADER_FIELDS_MAX {
        return Err(format!("a connection header has more than {HEADER_FIELDS_MAX} fields"));
    }
    let header = pb::ConnectionHeader::decode(header).map_err(|error| error.to_string())?;
    let name = header.service_name.as_deref().unwrap_or_default();
    let service =
        thread.shared.services.by_name(name).ok_or_else(|| format!("UnknownServiceException: {name:?}"))?;
    let (codec, compressor) = cell_block_classes(&header)?;
    let user = header.user_info.unwrap_or_default();
    let info = ConnectionInfo {
        user: Some(user.effective_user).filter(|user| !user.is_empty()),
        real_user: user.real_user,
        service: service.service.name(),
        codec,
        compressor,
        client_version: header.version_info.as_ref().and_then(client_version),
        attributes: header
            .attribute
            .into_iter()
            // A slice of the decoded message would keep the whole read buffer alive.
            .map(|pair| (pair.name, Bytes::copy_from_slice(&pair.value.unwrap_or_default())))
            .collect(),
        peer,
        closed: AtomicBool::new(false),
        leases: AtomicUsize::new(0),
        inflight: thread.shared.inflight_bytes.clone(),
        cell_block_bytes_max: thread.config().request_bytes_max,
    };
    Ok((info, service))
}

/// Counts the top-level fields of a message, before it is decoded.
fn fields(mut message: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !message.is_empty() {
        let tag = take_varint(&mut message).ok()?;
        skip_field(&mut message, tag & 7).ok()?;
        count += 1;
    }
    Some(count)
}

/// Finds the codec and the compressor by class name; a compressor is ignored without a codec.
fn cell_block_classes(
    header: &pb::ConnectionHeader,
) -> Result<(Option<CellCodec>, Option<CellBlockCodec>), String> {
    let Some(class) = header.cell_block_codec_class.as_deref().filter(|class| !class.is_empty()) else {
        return Ok((None, None));
    };
    let codec =
        CellCodec::by_class_name(class).ok_or_else(|| format!("UnsupportedCellCodecException: {class}"))?;
    let Some(class) = header.cell_block_compressor_class.as_deref() else { return Ok((Some(codec), None)) };
    let compressor = CellBlockCodec::by_class_name(class)
        .ok_or_else(|| format!("UnsupportedCompressionCodecException: {class}"))?;
    Ok((Some(codec), Some(compressor)))
}

/// Returns major and minor version from their fields, or else from the start of the version string.
fn client_version(info: &pb::VersionInfo) -> Option<(u32, u32)> {
    if let Some(major) = info.version_major {
        return Some((major, info.version_minor.unwrap_or(0)));
    }
    let mut parts = info.version.split(['.', '-']);
    let major = parts.next()?.parse().ok()?;
    Some((major, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(bytes: &[u8]) -> Preamble {
        classify_preamble(bytes, SocketAddr::from(([127, 0, 0, 1], 7)), || None)
    }

    #[test]
    fn preambles_are_judged_by_their_bytes() {
        assert_eq!(judged(b"HBas\x00\x50"), Preamble::Simple);
        assert_eq!(judged(b"HBas\x00\x51"), Preamble::SwitchToSimple);
        assert_eq!(judged(b"HBas\x00\x52"), Preamble::SwitchToSimple);
        for refused in [&b"HBas\x01\x50"[..], b"HBas\x00\x53", b"Regist", b"GET / "] {
            assert!(matches!(judged(refused), Preamble::ReplyAndClose(_)), "{refused:?}");
        }
        assert!(matches!(judged(b"Securi"), Preamble::Reply(_)));
    }

    #[test]
    fn versions_come_from_numbers_or_from_the_text() {
        let info = |version: &str, numbers: Option<(u32, u32)>| pb::VersionInfo {
            version: version.to_owned(),
            version_major: numbers.map(|n| n.0),
            version_minor: numbers.map(|n| n.1),
            ..Default::default()
        };
        assert_eq!(client_version(&info("x", Some((2, 6)))), Some((2, 6)));
        assert_eq!(client_version(&info("1.4.13", None)), Some((1, 4)));
        assert_eq!(client_version(&info("3.0.0-beta-1", None)), Some((3, 0)));
        assert_eq!(client_version(&info("unknown", None)), None);
    }
}
