//! A call as a service sees it, and the connection it came on.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use evenkeel_common::{Budget, Charge, ErrorKind, HBaseError, Result};
use evenkeel_protocol::{Allowance, BoundedError, pb};
use prost::Message;

use crate::cell_block::{CellBlockReader, CellBlockWriter, CellCodec, Compressor, DecompressError};

/// Calls that wait are copied out of the connection's read buffer when they are at most this long:
/// a few bytes must not pin a whole buffer.
pub const COMPACT_BYTES_MAX: usize = 16 * 1024;
/// What a request may become in memory before it takes from the budget; and by how much it takes
/// then.
const DECODED_BYTES_FREE: u64 = 64 * 1024;
const DECODED_BYTES_STEP: u64 = 256 * 1024;

/// What a client told about itself in its ConnectionHeader. One for each connection, shared by its
/// calls.
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
    /// The client's version as major and minor; `None` for clients that do not say, which count as
    /// old.
    pub client_version: Option<(u32, u32)>,
    /// Attributes of the connection.
    pub attributes: Vec<(String, Bytes)>,
    /// The client's address.
    pub peer: SocketAddr,
    pub(crate) closed: AtomicBool,
    pub(crate) leases: AtomicUsize,
    /// Where the bytes of requests are counted, and what they become.
    pub(crate) inflight: Arc<Budget>,
    /// The longest cell block, decompressed.
    pub(crate) cell_block_bytes_max: usize,
}

/// Something that a client holds on the server between its calls, an open scanner: its connection
/// does not count as idle.
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

    /// A writer of cell blocks as this client reads them; `None` when it wants cells inside
    /// messages.
    pub fn cell_block_writer(&self) -> Option<CellBlockWriter> {
        self.codec.map(|codec| CellBlockWriter::new(codec, self.compressor))
    }
}

/// One request.
///
/// `param` and `cells` are slices of the connection's read buffer: whoever keeps a call for long
/// should [`compact`](Call::compact) it, as [`crate::Executor`] does.
///
/// Reading the parameter and the cells takes time and memory by their length, and more: a
/// compressed block expands, a message of small parts becomes many structs. So both are read when
/// they are asked for, on the thread that may take so long; and what they become beyond the frame
/// is taken from the same budget as the frame, until the call is dropped ([`Call::take_charge`]).
#[derive(Debug)]
pub struct Call {
    /// The caller's connection.
    pub connection: Arc<ConnectionInfo>,
    /// The client's number for the call.
    pub id: u32,
    /// The method, one of [`crate::Service::methods`].
    pub method: &'static str,
    /// Its place in [`crate::Service::methods`].
    pub method_index: usize,
    /// The encoded parameter message.
    pub param: Bytes,
    /// The cell block as it came.
    pub(crate) cells: Option<Bytes>,
    /// The priority the client asked for.
    pub priority: Option<u32>,
    /// When the request's last byte had been read.
    pub received_at: Instant,
    /// After this the client no longer waits.
    pub deadline: Option<Instant>,
    /// Bytes of the request frame: what it counts for in the budgets.
    pub frame_bytes: usize,
    pub(crate) header: Bytes,
    /// What the parameter has become beyond the frame.
    pub(crate) decoded: RefCell<Option<Charge>>,
}

impl Call {
    /// The parameter message; its `bytes` fields are slices of the request.
    ///
    /// # Errors
    /// `DoNotRetryIOException` when it does not parse, `CallQueueTooBigException` when the budget
    /// of requests has no room for what it becomes, `RequestTooBigException` when it never has.
    pub fn decode<M: Message + Default>(&self) -> Result<M> {
        self.decode_by(evenkeel_protocol::decode)
    }

    /// As [`Call::decode`], by a decoder of the service's own.
    ///
    /// # Errors
    /// As [`Call::decode`].
    pub fn decode_by<M>(
        &self,
        decode: impl FnOnce(Bytes, &mut Allowance<'_>) -> Result<M, BoundedError>,
    ) -> Result<M> {
        let mut more = || self.charge_decoded().then_some(DECODED_BYTES_STEP);
        let mut allowance = Allowance::new(DECODED_BYTES_FREE, &mut more);
        decode(self.param.clone(), &mut allowance).map_err(|error| match error {
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
        charge.take(DECODED_BYTES_STEP)
    }

    /// The error of a request that becomes more than there is room for: what is free now may be
    /// more later, the whole is not.
    fn too_large(&self) -> HBaseError {
        let had = self.decoded.borrow().as_ref().map_or(0, Charge::units);
        let is_hopeless = had + self.frame_bytes as u64 > self.connection.inflight.max() / 8 * 7;
        let kind = if is_hopeless { ErrorKind::RequestTooBig } else { ErrorKind::CallQueueTooBig };
        let (method, bytes) = (self.method, self.frame_bytes);
        let message = format!(
            "{method} of {bytes} bytes becomes more in memory than hbase.ipc.server.max.callqueue.size has room for"
        );
        HBaseError::new(kind, message)
    }

    /// What decoding took of the budget. It is kept as long as the decoded request, even if the
    /// call is dropped before.
    pub fn take_charge(&self) -> Option<Charge> {
        self.decoded.take()
    }

    /// Bytes of the cell block as it came; how many it has when it is not
    /// [compressed](Call::is_compressed).
    pub fn cell_block_bytes(&self) -> usize {
        self.cells.as_ref().map_or(0, Bytes::len)
    }

    /// Whether there is a cell block, and it is compressed: reading it takes time by what it
    /// expands to.
    pub fn is_compressed(&self) -> bool {
        self.cells.is_some() && self.connection.compressor.is_some()
    }

    /// The cells of the request's block; none when there is no block. Decompresses it.
    ///
    /// # Errors
    /// `DoNotRetryIOException` for a block that the connection named no codec for, that is damaged
    /// or expands to more than a request may have; `CallQueueTooBigException` where there is no
    /// room for what it expands to.
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

    /// The cell block as its codec reads it. It has its part of the budget for as long as anyone
    /// holds a slice of it.
    fn decompressed(&self, cells: &Bytes, compressor: Compressor) -> Result<Bytes> {
        let mut charge = Charge::none(self.connection.inflight.clone());
        let mut take = |bytes: usize| charge.take(bytes as u64);
        let raw = compressor.decompress_within(cells, self.connection.cell_block_bytes_max, &mut take);
        match raw {
            Ok(raw) => Ok(Bytes::from_owner(Charged { raw, _charge: charge })),
            Err(DecompressError::NoRoom) => {
                let message = "a decompressed cell block passes hbase.ipc.server.max.callqueue.size";
                Err(HBaseError::new(ErrorKind::CallQueueTooBig, message))
            }
            Err(error) => Err(HBaseError::do_not_retry(error.to_string())),
        }
    }

    /// Whether nobody waits for the answer any more: the socket is gone or the client's time is up.
    pub fn is_abandoned(&self, now: Instant) -> bool {
        self.connection.is_closed() || self.deadline.is_some_and(|deadline| now > deadline)
    }

    /// Attributes of the request, decoded now.
    pub fn attributes(&self) -> Vec<(String, Bytes)> {
        // The header was walked through when the call came in; what prost does not like of it is no
        // attribute.
        let header = pb::RequestHeader::decode(self.header.clone()).unwrap_or_default();
        header.attribute.into_iter().map(|pair| (pair.name, pair.value.unwrap_or_default())).collect()
    }

    /// Copies a small request out of the connection's read buffer, so that a call that waits does
    /// not pin it.
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

/// Bytes that have their part of a budget.
struct Charged {
    raw: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.raw
    }
}
