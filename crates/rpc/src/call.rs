//! A call as a service sees it, and the connection it came on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use evenkeel_common::{HBaseError, Result};
use evenkeel_protocol::pb;
use prost::{DecodeError, Message};

use crate::cell_block::{CellBlockReader, CellBlockWriter, CellCodec, Compressor};

/// Calls that wait are copied out of the connection's read buffer when they are at most this long: a few bytes must
/// not pin a whole buffer.
const COMPACT_BYTES_MAX: usize = 16 * 1024;

/// What a client told about itself in its ConnectionHeader. One for each connection, shared by its calls.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// The user to act as; `None` when the client named none.
    pub user: Option<String>,
    /// The user who authenticated, when acting for another.
    pub real_user: Option<String>,
    /// The service all calls of this connection go to.
    pub service: &'static str,
    /// The layout of cells in cell blocks; `None`: cells travel inside messages.
    pub codec: Option<CellCodec>,
    /// The compression of cell blocks.
    pub compressor: Option<Compressor>,
    /// The client's version as major and minor; `None` for clients that do not say, which count as old.
    pub client_version: Option<(u32, u32)>,
    /// Attributes of the connection.
    pub attributes: Vec<(String, Bytes)>,
    /// The client's address.
    pub peer: SocketAddr,
    pub(crate) closed: AtomicBool,
    pub(crate) leases: AtomicUsize,
}

/// Something that a client holds on the server between its calls, an open scanner: its connection does not count as idle.
#[derive(Debug)]
pub struct ConnectionLease(Arc<ConnectionInfo>);

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        self.0.leases.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionInfo {
    /// Whether the client is at least of this version; a client that told none is not.
    pub fn has_version(&self, major: u32, minor: u32) -> bool {
        self.client_version.is_some_and(|version| version >= (major, minor))
    }

    /// Whether the connection is gone, so that no answer can reach the client.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Keeps the connection from counting as idle until the lease is dropped.
    pub fn lease(self: &Arc<Self>) -> ConnectionLease {
        self.leases.fetch_add(1, Ordering::Relaxed);
        ConnectionLease(Arc::clone(self))
    }

    pub(crate) fn is_leased(&self) -> bool {
        self.leases.load(Ordering::Relaxed) > 0
    }

    /// A writer of cell blocks as this client reads them; `None` when it wants cells inside messages.
    pub fn cell_block_writer(&self) -> Option<CellBlockWriter> {
        self.codec.map(|codec| CellBlockWriter::new(codec, self.compressor))
    }
}

/// One request.
///
/// `param` and `cells` are slices of the connection's read buffer: whoever keeps a call for long should
/// [`compact`](Call::compact) it, as [`crate::Executor`] does.
#[derive(Debug)]
pub struct Call {
    /// Who is calling.
    pub connection: Arc<ConnectionInfo>,
    /// The client's number for the call.
    pub id: u32,
    /// The method, one of [`crate::Service::methods`].
    pub method: &'static str,
    /// Its place in [`crate::Service::methods`].
    pub method_index: usize,
    /// The encoded parameter message.
    pub param: Bytes,
    /// The cell block, decompressed.
    pub cells: Option<Bytes>,
    /// The priority the client asked for.
    pub priority: Option<u32>,
    /// When the request's last byte had been read.
    pub received_at: Instant,
    /// After this the client no longer waits.
    pub deadline: Option<Instant>,
    /// Bytes of the request frame: what it counts for in the budgets.
    pub frame_bytes: usize,
    pub(crate) header: Bytes,
}

impl Call {
    /// The parameter message; its `bytes` fields are slices of the request.
    ///
    /// # Errors
    /// `DoNotRetryIOException` when it does not parse.
    pub fn decode<M: Message + Default>(&self) -> Result<M> {
        self.decode_by(M::decode)
    }

    /// As [`Call::decode`], by a decoder of the service's own.
    ///
    /// # Errors
    /// As [`Call::decode`].
    pub fn decode_by<M>(&self, decode: impl FnOnce(Bytes) -> Result<M, DecodeError>) -> Result<M> {
        decode(self.param.clone()).map_err(|error| {
            HBaseError::do_not_retry(format!("the parameter of {} cannot be read: {error}", self.method))
        })
    }

    /// The cells of the request's block; none when there is no block.
    pub fn cell_reader(&self) -> CellBlockReader {
        let codec = self.connection.codec.unwrap_or(CellCodec::KeyValue);
        CellBlockReader::new(codec, self.cells.clone().unwrap_or_default())
    }

    /// Whether nobody waits for the answer any more: the socket is gone or the client's time is up.
    pub fn is_abandoned(&self, now: Instant) -> bool {
        self.connection.is_closed() || self.deadline.is_some_and(|deadline| now > deadline)
    }

    /// Attributes of the request, decoded now.
    pub fn attributes(&self) -> Vec<(String, Bytes)> {
        // The header was walked through when the call came in; what prost does not like of it is no attribute.
        let header = pb::RequestHeader::decode(self.header.clone()).unwrap_or_default();
        header.attribute.into_iter().map(|pair| (pair.name, pair.value.unwrap_or_default())).collect()
    }

    /// Copies a small request out of the connection's read buffer, so that a call that waits does not pin it.
    pub fn compact(&mut self) {
        if self.frame_bytes > COMPACT_BYTES_MAX {
            return;
        }
        let cells = self.cells.as_deref().unwrap_or_default();
        let (header_end, param_end) = (self.header.len(), self.header.len() + self.param.len());
        let whole = Bytes::from([&self.header[..], &self.param[..], cells].concat());
        self.header = whole.slice(..header_end);
        self.param = whole.slice(header_end..param_end);
        self.cells = self.cells.is_some().then(|| whole.slice(param_end..));
    }
}
