//! [`Caller`] and [`Reply`]: the parts of RPC that request handlers need.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use evenkeel_common::{CellBuffer, Charge, Result};
use evenkeel_metrics::RequestDetail;
use evenkeel_protocol::pb;
use evenkeel_region::region::nonce::NonceSource;
use evenkeel_rpc::{Call, CallTimes, CellBlockCodec, CellBlockWriter, CellCodec, Respond};
use prost::Message;

use crate::RegionServer;
use crate::convert::result;
use crate::quotas::QuotaUser;
use crate::user_times::UserId;

/// The properties of a request's connection and header that determine its reply.
#[derive(Clone, Debug)]
pub struct Caller {
    /// How cells are encoded in cell blocks; `None`: cells travel inside messages.
    pub codec: Option<(CellCodec, Option<CellBlockCodec>)>,
    /// The client's version; old clients send none.
    pub version: Option<(u32, u32)>,
    /// The client's address and port, which identify its connection; `None` if there is none, as in
    /// tests.
    pub peer: Option<SocketAddr>,
    /// When the request was completely received.
    pub received_at: Instant,
    /// When the caller stops waiting for the reply.
    pub deadline: Option<Instant>,
    /// The user whose times are counted.
    pub user: Option<UserId>,
    /// The user whose quotas apply.
    pub quota_user: QuotaUser,
}

impl Caller {
    /// Creates the caller of a call.
    pub fn of(server: &RegionServer, call: &Call) -> Self {
        let connection = &call.connection;
        Self {
            codec: connection.codec.map(|codec| (codec, connection.compressor)),
            version: connection.client_version,
            peer: Some(connection.peer),
            received_at: call.received_at,
            deadline: call.deadline,
            user: server.user_times().id_of(connection.user.as_deref(), connection.peer.ip()),
            quota_user: server.quota_user_of(call),
        }
    }

    /// Returns the source of the nonces of its operations, in a nonce group. Each IPv4 address and
    /// each /64 network of IPv6 has a share of the nonce capacity, because one client may own such
    /// a network.
    pub fn nonce_source(&self, group: Option<u64>) -> NonceSource {
        let owner = match self.peer.map(|peer| peer.ip().to_canonical()) {
            None => 0,
            Some(IpAddr::V4(address)) => u64::from(address.to_bits()),
            Some(IpAddr::V6(address)) => {
                let [a, b, c, d, ..] = address.segments();
                [a, b, c, d].iter().fold(0, |network, part| network << 16 | u64::from(*part))
            }
        };
        NonceSource { group: group.unwrap_or(0), owner }
    }

    /// Returns true if the client has at least this version.
    pub fn has_version(&self, major: u32, minor: u32) -> bool {
        self.version.is_some_and(|version| version >= (major, minor))
    }

    /// Returns true if the reply can share values with the blocks that they lie in, apart from
    /// keys.
    pub fn takes_shared_values(&self) -> bool {
        matches!(self.codec, Some((CellCodec::KeyValue | CellCodec::KeyValueWithTags, None)))
            && self.has_version(1, 3)
    }

    /// Creates a cell block writer for this client; `None` if it expects cells inside messages.
    pub fn block(&self) -> Option<CellBlockWriter> {
        self.codec.map(|(codec, compressor)| CellBlockWriter::new(codec, compressor))
    }
}

/// A reply message and the cells beside it.
pub struct Reply<M> {
    /// The message.
    pub message: M,
    /// The cells; `None` if there are none or they are inside the message.
    pub block: Option<CellBlockWriter>,
    /// The charge of the cells against the budget for replies, until the reply is sent.
    pub charge: Option<Charge>,
}

impl<M> Reply<M> {
    /// Creates a reply without cells.
    pub fn plain(message: M) -> Self {
        Self { message, block: None, charge: None }
    }
}

/// Answers a call with the outcome of a request.
pub fn send_reply<M: Message>(responder: impl Respond, outcome: Result<Reply<M>>) {
    send_reply_detailed(responder, outcome, RequestDetail::default);
}

/// Answers a call with the outcome of a request. Returns the times of the call. `detail` describes
/// the request and is called only if the call was slow.
pub fn send_reply_detailed<M: Message>(
    responder: impl Respond,
    outcome: Result<Reply<M>>,
    detail: impl FnOnce() -> RequestDetail,
) -> CallTimes {
    match outcome {
        Ok(Reply { message, block, charge }) => {
            let times = responder.send_detailed(&message, block, detail);
            // From here on, the connection counts the reply while it waits for the client.
            drop(charge);
            times
        }
        Err(error) => responder.send_error_detailed(&error, detail),
    }
}

/// Moves cells into `block`, or into the result if there is no block. `is_stale`: they are of a
/// secondary replica.
pub fn place_cells(cells: CellBuffer, block: Option<&mut CellBlockWriter>, is_stale: bool) -> pb::Result {
    match block {
        None => result::with_cells(cells, is_stale, false),
        Some(block) => {
            let count = cells.len();
            block.push_buffer_owned(cells);
            result::counted(count, is_stale)
        }
    }
}
