//! A call as the service sees it, and its connection.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use evenkeel_common::{Budget, CallerConnection, CallerState, Charge, ErrorKind, HBaseError, Result};
use evenkeel_metrics::waits::{self, Cause};
use evenkeel_protocol::{BoundedError, DecodeBudget, pb};
use prost::Message;

use crate::cell_block::{CellBlockCodec, CellBlockReader, CellBlockWriter, CellCodec, DecompressError};

/// Size up to which a waiting call is copied out of the connection's read buffer, so that a few
/// bytes do not pin a whole buffer.
pub const COMPACT_BYTES_MAX: usize = 16 * 1024;
/// Decoded bytes of a request that are not charged to the budget; above that, they are charged in
/// steps of [`DECODED_BYTES_STEP`].
const DECODED_BYTES_FREE: u64 = 64 * 1024;
const DECODED_BYTES_STEP: u64 = 256 * 1024;
/// Decoding a request, or encoding a cell block, of at least this size is timed.
pub(crate) const LARGE_BYTES_MIN: usize = 16 << 10;

/// The client's ConnectionHeader. One per connection, shared by its calls.
#[derive(Debug)]
pub struct ConnectionInfo {
    /// The user to act as; `None` if the client named none.
    pub user: Option<String>,
    /// The authenticated user, if it acts for another one.
    pub real_user: Option<String>,
    /// The service that all calls of this connection go to.
    pub service: &'static str,
    /// The codec of cell blocks; `None`: cells are part of the messages.
    pub codec: Option<CellCodec>,
    /// The compression of cell blocks.
    pub compressor: Option<CellBlockCodec>,
    /// The client's version as major and minor; `None` for clients that do not send it, which count
    /// as old.
    pub client_version: Option<(u32, u32)>,
    /// Attributes of the connection.
    pub attributes: Vec<(String, Bytes)>,
    /// The client's address.
    pub peer: SocketAddr,
    pub(crate) closed: AtomicBool,
    pub(crate) leases: AtomicUsize,
    /// The budget of requests and of their decoded forms.
    pub(crate) inflight: Arc<Budget>,
    /// Size limit of a decompressed cell block.
    pub(crate) cell_block_bytes_max: usize,
}

/// A resource that a client holds on the server between its calls, such as an open scanner. Its
/// connection does not count as idle.
#[derive(Debug)]
pub struct ConnectionLease(Arc<ConnectionInfo>);

impl Drop for ConnectionLease {
    fn drop(&mut self) {
        self.0.leases.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ConnectionInfo {
    /// Returns true if the client has at least this version; false if its version is unknown.
    pub fn has_version(&self, major: u32, minor: u32) -> bool {
        self.client_version.is_some_and(|version| version >= (major, minor))
    }

    /// Returns true if the connection is closed, so that no reply can reach the client.
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

    /// Returns a writer of cell blocks in the client's codec; `None` if cells are part of the
    /// messages.
    pub fn cell_block_writer(&self) -> Option<CellBlockWriter> {
        self.codec.map(|codec| CellBlockWriter::new(codec, self.compressor))
    }
}

impl CallerConnection for ConnectionInfo {
    fn is_closed(&self) -> bool {
        ConnectionInfo::is_closed(self)
    }
}

/// One request.
///
/// `param` and `cells` are slices of the connection's read buffer: code that keeps a call for long
/// should [`compact`](Call::compact) it, as [`crate::Executor`] does.
///
/// Decoding the parameter and the cells takes time and memory in proportion to their length, and
/// possibly more: a compressed block expands, and a message of small parts becomes many structs. So
/// both are decoded on demand, on a thread that may take that time. The decoded bytes beyond the
/// frame are charged to the same budget as the frame, until the call is dropped
/// ([`Call::take_charge`]).
#[derive(Debug)]
pub struct Call {
    /// The caller's connection.
    pub connection: Arc<ConnectionInfo>,
    /// The call id, which the client chose.
    pub id: u32,
    /// The method, one of [`crate::Service::methods`].
    pub method: &'static str,
    /// Its index in [`crate::Service::methods`].
    pub method_index: usize,
    /// The encoded parameter message.
    pub param: Bytes,
    /// The cell block as received.
    pub(crate) cells: Option<Bytes>,
    /// The priority that the client requested.
    pub priority: Option<u32>,
    /// When the last byte of the request was read.
    pub received_at: Instant,
    /// When the client stops waiting.
    pub deadline: Option<Instant>,
    /// Size of the request frame, which is what the budgets count.
    pub frame_bytes: usize,
    pub(crate) header: Bytes,
    /// Charge for the decoded parameter beyond the frame.
    pub(crate) decoded: RefCell<Option<Charge>>,
}

impl Call {
    /// The parameter message; its `bytes` fields are slices of the request.
    ///
    /// # Errors
    /// Returns `DoNotRetryIOException` if the message does not parse, `CallQueueTooBigException` if
    /// the decoded message does not fit into the free budget of requests, `RequestTooBigException`
    /// if it cannot fit at all.
    pub fn decode<M: Message + Default>(&self) -> Result<M> {
        self.decode_by(evenkeel_protocol::decode)
    }

    /// As [`Call::decode`], with a decoder of the service.
    ///
    /// # Errors
    /// As [`Call::decode`].
    pub fn decode_by<M>(
        &self,
        decode: impl FnOnce(Bytes, &mut DecodeBudget<'_>) -> Result<M, BoundedError>,
    ) -> Result<M> {
        let mut more = || self.charge_decoded().then_some(DECODED_BYTES_STEP);
        let mut budget = DecodeBudget::new(DECODED_BYTES_FREE, &mut more);
        let (is_large, param) = (self.param.len() >= LARGE_BYTES_MIN, self.param.clone());
        let decoded = waits::time_if(is_large, Cause::Decode, || decode(param, &mut budget));
        decoded.map_err(|error| match error {
            BoundedError::Malformed(error) => {
                let method = self.method;
                HBaseError::do_not_retry(format!("the parameter of {method} cannot be read: {error}"))
            }
            BoundedError::TooLarge => self.too_large(),
        })
    }

    fn charge_decoded(&self) -> bool {
        let mut decoded = self.decoded.borrow_mut();
        let charge = decoded.get_or_insert_with(|| Charge::none(self.connection.inflight.clone()));
        charge.acquire(DECODED_BYTES_STEP)
    }

    /// Returns the error for a request whose decoded form does not fit: retryable if it could fit
    /// into the whole budget.
    fn too_large(&self) -> HBaseError {
        let had = self.decoded.borrow().as_ref().map_or(0, Charge::units);
        let is_hopeless = had + self.frame_bytes as u64 > self.connection.inflight.max() / 8 * 7;
        let kind = if is_hopeless { ErrorKind::RequestTooBig } else { ErrorKind::CallQueueTooBig };
        let (method, bytes) = (self.method, self.frame_bytes);
        let message = format!(
            "{method} of {bytes} bytes needs more memory than hbase.ipc.server.max.callqueue.size has left"
        );
        HBaseError::new(kind, message)
    }

    /// Takes the budget charge of decoding. It is kept as long as the decoded request, even if the
    /// call is dropped earlier.
    pub fn take_charge(&self) -> Option<Charge> {
        self.decoded.take()
    }

    /// Bytes of the cell block as received, which are its raw bytes unless it is
    /// [compressed](Call::is_compressed).
    pub fn cell_block_bytes(&self) -> usize {
        self.cells.as_ref().map_or(0, Bytes::len)
    }

    /// Returns true if there is a compressed cell block, whose reading time depends on its
    /// decompressed size.
    pub fn is_compressed(&self) -> bool {
        self.cells.is_some() && self.connection.compressor.is_some()
    }

    /// Returns the cells of the request's block, none if there is no block. Decompresses the block.
    ///
    /// # Errors
    /// Returns `DoNotRetryIOException` if the connection named no codec, or if the block is damaged
    /// or expands beyond the size limit of a request; `CallQueueTooBigException` if the
    /// decompressed block does not fit into the budget.
    pub fn cell_reader(&self) -> Result<CellBlockReader> {
        let Some(cells) = self.cells.clone() else { return Ok(CellBlockReader::none()) };
        let Some(codec) = self.connection.codec else {
            return Err(HBaseError::do_not_retry(
                "a cell block came on a connection that named no cell codec",
            ));
        };
        let cells = match self.connection.compressor {
            Some(compressor) => self.decompressed(&cells, compressor)?,
            None => cells,
        };
        Ok(CellBlockReader::new(codec, cells))
    }

    /// Decompresses the cell block. Its budget is charged as long as any slice of it exists.
    fn decompressed(&self, cells: &Bytes, compressor: CellBlockCodec) -> Result<Bytes> {
        let mut charge = Charge::none(self.connection.inflight.clone());
        let mut take = |bytes: usize| charge.acquire(bytes as u64);
        let raw = compressor.decompress_within(cells, self.connection.cell_block_bytes_max, &mut take);
        match raw {
            Ok(raw) => Ok(Bytes::from_owner(ChargedBytes { raw, _charge: charge })),
            Err(DecompressError::OverBudget) => {
                let message = "a decompressed cell block exceeds hbase.ipc.server.max.callqueue.size";
                Err(HBaseError::new(ErrorKind::CallQueueTooBig, message))
            }
            Err(error) => Err(HBaseError::do_not_retry(error.to_string())),
        }
    }

    /// Returns true if no client waits for the reply: the socket is closed, or the client's
    /// timeout is over.
    pub fn is_abandoned(&self, now: Instant) -> bool {
        self.connection.is_closed() || self.deadline.is_some_and(|deadline| now > deadline)
    }

    /// Returns what a read that takes long looks at to see whether the client still waits.
    pub fn caller_state(&self) -> CallerState {
        CallerState::new(Some(Arc::clone(&self.connection) as Arc<dyn CallerConnection>), self.deadline)
    }

    /// Decodes the attributes of the request.
    pub fn attributes(&self) -> Vec<(String, Bytes)> {
        // The header was validated when the call arrived; attributes that prost rejects are
        // ignored.
        let header = pb::RequestHeader::decode(self.header.clone()).unwrap_or_default();
        header.attribute.into_iter().map(|pair| (pair.name, pair.value.unwrap_or_default())).collect()
    }

    /// Copies a small request out of the connection's read buffer, so that a waiting call does not
    /// pin the buffer.
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

/// Bytes with their charge to a budget.
struct ChargedBytes {
    raw: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.raw
    }
}
