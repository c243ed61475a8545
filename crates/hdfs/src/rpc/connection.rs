//! One connection: the preamble, the connection context and frames.
//!
//! ```text
//! "hrpc" 09 00 00            version 9, service class 0, no SASL
//! int32 length | RpcRequestHeaderProto (call -3) | IpcConnectionContextProto
//! int32 length | RpcRequestHeaderProto | RequestHeaderProto | parameters       for each call
//! ```
//!
//! Messages inside a frame are delimited; the length counts all bytes after it. The server does not
//! answer the preamble and the context, which are sent with the first call in one write.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::clock;
use prost::Message;

use crate::error::{HdfsError, RemoteException, Result};
use crate::hadoop::common::{
    IpcConnectionContextProto, RequestHeaderProto, RpcRequestHeaderProto, RpcResponseHeaderProto,
    UserInformationProto, rpc_response_header_proto::RpcStatusProto,
};
use crate::wire::{put_delimited, take_delimited};

/// The largest accepted reply, in bytes: the default of `ipc.maximum.response.length`.
const REPLY_BYTES_MAX: usize = 128 << 20;

/// The magic bytes, version 9, service class 0, no SASL.
const PREAMBLE: [u8; 7] = *b"hrpc\x09\x00\x00";

/// The call id of the connection context.
const CONTEXT_CALL: i32 = -3;

/// The kind of RPC: protocol buffers.
const PROTOBUF: u32 = 2;

/// Identifies a call in the retry cache of a NameNode, and counts its retries.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallId {
    pub(super) client: [u8; 16],
    pub(super) call: u32,
    pub(super) retry: u32,
}

/// A connection that carries one call at a time.
#[derive(Debug)]
pub(super) struct Connection {
    socket: TcpStream,
    /// True if the connection context was sent.
    is_context_sent: bool,
    /// True if no reply is outstanding and the server has not closed the connection.
    is_usable: bool,
}

impl Connection {
    /// Connects to `host:port`; tries each of its addresses in turn.
    pub(super) fn open(address: &str, timeout: Duration) -> io::Result<Self> {
        let socket = connect(address, timeout)?;
        Ok(Self { socket, is_context_sent: false, is_usable: true })
    }

    pub(super) fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// Sends one call and waits for its reply.
    pub(super) fn call<R: Message + Default>(
        &mut self,
        protocol: &str,
        user: &str,
        id: CallId,
        method: &str,
        request: &impl Message,
        deadline: Instant,
    ) -> Result<R> {
        self.is_usable = false;
        let mut out = Vec::with_capacity(256);
        if !self.is_context_sent {
            out.extend_from_slice(&PREAMBLE);
            put_context(&mut out, protocol, user, id)?;
        }
        put_call(&mut out, protocol, id, method, request)?;
        self.socket.set_write_timeout(Some(remaining(deadline)?))?;
        self.socket.write_all(&out)?;
        self.is_context_sent = true;
        self.read_reply(id, deadline)
    }

    fn read_reply<R: Message + Default>(&mut self, id: CallId, deadline: Instant) -> Result<R> {
        let frame = self.read_frame(deadline)?;
        let mut rest = &frame[..];
        let header: RpcResponseHeaderProto = take_delimited(&mut rest)?;
        if header.status() != RpcStatusProto::Success {
            // After a fatal error the server closes the connection.
            self.is_usable = header.status() == RpcStatusProto::Error && header.call_id == id.call;
            return Err(HdfsError::Remote(exception_of(header)));
        }
        if header.call_id != id.call {
            return Err(HdfsError::protocol(format!("call {} answered, {} asked", header.call_id, id.call)));
        }
        let reply = take_delimited(&mut rest)?;
        self.is_usable = rest.is_empty();
        Ok(reply)
    }

    fn read_frame(&mut self, deadline: Instant) -> Result<Vec<u8>> {
        let mut length = [0; 4];
        read_full(&mut self.socket, &mut length, deadline)?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > REPLY_BYTES_MAX {
            return Err(HdfsError::protocol(format!("a reply of {length} bytes")));
        }
        let mut frame = vec![0; length];
        read_full(&mut self.socket, &mut frame, deadline)?;
        Ok(frame)
    }
}

/// Connects to `host:port` with `TCP_NODELAY` and keep-alive; tries each of its addresses in turn.
pub(crate) fn connect(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::HostUnreachable, format!("{address} has no address"));
    for target in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&target, timeout) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                socket2::SockRef::from(&socket).set_keepalive(true)?;
                return Ok(socket);
            }
            Err(e) => last = io::Error::new(e.kind(), format!("{target}: {e}")),
        }
    }
    Err(last)
}

fn exception_of(header: RpcResponseHeaderProto) -> RemoteException {
    let message = header.error_msg.unwrap_or_default();
    RemoteException {
        class: header.exception_class_name.unwrap_or_default(),
        message: message.lines().next().unwrap_or_default().to_owned(),
    }
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(clock::monotonic());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Fills `buf`; reads of the socket time out at `deadline`.
fn read_full(socket: &mut TcpStream, mut buf: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !buf.is_empty() {
        socket.set_read_timeout(Some(remaining(deadline)?))?;
        match socket.read(buf) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => buf = buf.get_mut(n..).unwrap_or_default(),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn request_header(call: i32, retry: i32, client: [u8; 16]) -> RpcRequestHeaderProto {
    RpcRequestHeaderProto {
        rpc_kind: Some(PROTOBUF),
        rpc_op: Some(0),
        call_id: call,
        client_id: Bytes::copy_from_slice(&client),
        retry_count: Some(retry),
    }
}

fn put_context(out: &mut Vec<u8>, protocol: &str, user: &str, id: CallId) -> io::Result<()> {
    let mut frame = Vec::with_capacity(128);
    put_delimited(&mut frame, &request_header(CONTEXT_CALL, -1, id.client));
    let user = UserInformationProto { effective_user: Some(user.to_owned()), real_user: None };
    let context = IpcConnectionContextProto { user_info: Some(user), protocol: Some(protocol.to_owned()) };
    put_delimited(&mut frame, &context);
    put_frame(out, &frame)
}

fn put_call(
    out: &mut Vec<u8>,
    protocol: &str,
    id: CallId,
    method: &str,
    request: &impl Message,
) -> io::Result<()> {
    let call = i32::try_from(id.call).unwrap_or(i32::MAX);
    let retry = i32::try_from(id.retry).unwrap_or(i32::MAX);
    let mut frame = Vec::with_capacity(128 + request.encoded_len());
    put_delimited(&mut frame, &request_header(call, retry, id.client));
    let header = RequestHeaderProto {
        method_name: method.to_owned(),
        declaring_class_protocol_name: protocol.to_owned(),
        client_protocol_version: 1,
    };
    put_delimited(&mut frame, &header);
    put_delimited(&mut frame, request);
    put_frame(out, &frame)
}

fn put_frame(out: &mut Vec<u8>, frame: &[u8]) -> io::Result<()> {
    let length = i32::try_from(frame.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(frame);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hadoop::hdfs::RenewLeaseRequestProto;
    use crate::rpc::CLIENT_PROTOCOL;

    fn id(call: u32) -> CallId {
        CallId { client: std::array::from_fn(|i| i as u8), call, retry: 0 }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Recorded from Hadoop's client.
    #[test]
    fn frames_are_hadoops_to_the_byte() {
        let client = "000102030405060708090a0b0c0d0e0f";
        let protocol = hex(CLIENT_PROTOCOL.as_bytes());
        let mut context = Vec::new();
        put_context(&mut context, CLIENT_PROTOCOL, "hbase", id(0)).expect("built");
        let wanted = format!("000000551a0802100018052210{client}280139").to_string()
            + "12070a0568626173651a2e"
            + &protocol;
        assert_eq!(hex(&context), wanted);
        let mut call = Vec::new();
        let request = RenewLeaseRequestProto { client_name: "c1".into(), namespaces: vec![] };
        put_call(&mut call, CLIENT_PROTOCOL, id(0), "renewLease", &request).expect("built");
        let wanted =
            format!("0000005f1a0802100018002210{client}28003e0a0a72656e65774c65617365122e{protocol}1801")
                + "040a026331";
        assert_eq!(hex(&call), wanted);
    }
}
