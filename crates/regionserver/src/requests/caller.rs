//! [`Caller`] and [`Reply`]: what request handlers know of RPC.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use evenkeel_common::{CellBuffer, Charge, Result};
use evenkeel_metrics::RequestDetail;
use evenkeel_protocol::pb;
use evenkeel_region::region::nonce::NonceSource;
use evenkeel_rpc::{Call, CallTimes, CellBlockWriter, CellCodec, Compressor, Respond};
use prost::Message;

use crate::convert::result;

/// What a request's connection and header mean for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// How cells travel beside messages; `None`: inside them.
    pub codec: Option<(CellCodec, Option<Compressor>)>,
    /// The client's version; old clients tell none.
    pub version: Option<(u32, u32)>,
    /// The client's address, which is its connection's alone; `None` where there is none, as in
    /// tests.
    pub peer: Option<SocketAddr>,
    /// When the request had arrived.
    pub received_at: Instant,
    /// After this no caller waits for the answer.
    pub deadline: Option<Instant>,
}

impl Caller {
    /// The caller of a call.
    pub fn of(call: &Call) -> Self {
        let connection = &call.connection;
        Self {
            codec: connection.codec.map(|codec| (codec, connection.compressor)),
            version: connection.client_version,
            peer: Some(connection.peer),
            received_at: call.received_at,
            deadline: call.deadline,
        }
    }

    /// Where the nonces of its operations come from, in a group. Each address has a share of the
    /// room for nonces, and each network of 2⁶⁴ addresses of IPv6: a client may have all of one.
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

    /// Whether the client is at least of this version.
    pub fn has_version(&self, major: u32, minor: u32) -> bool {
        self.version.is_some_and(|version| version >= (major, minor))
    }

    /// Whether values can go to the client as they lie in memory, beside their keys.
    pub fn takes_shared_values(&self) -> bool {
        matches!(self.codec, Some((CellCodec::KeyValue | CellCodec::KeyValueWithTags, None)))
            && self.has_version(1, 3)
    }

    /// A cell block as the client reads them; `None` when it wants cells inside messages.
    pub fn block(&self) -> Option<CellBlockWriter> {
        self.codec.map(|(codec, compressor)| CellBlockWriter::new(codec, compressor))
    }
}

/// A message, and the cells beside it.
pub struct Reply<M> {
    /// The message.
    pub message: M,
    /// The cells; `None` when there are none or they are inside the message.
    pub block: Option<CellBlockWriter>,
    /// What the cells take of the room for replies, until the reply is sent.
    pub room: Option<Charge>,
}

impl<M> Reply<M> {
    /// A message alone.
    pub fn plain(message: M) -> Self {
        Self { message, block: None, room: None }
    }
}

/// Answers a call with a request's outcome.
pub fn answer<M: Message>(responder: impl Respond, outcome: Result<Reply<M>>) {
    answer_detailed(responder, outcome, RequestDetail::default);
}

/// Answers a call with a request's outcome. Returns how long the call took. If that is long,
/// `detail` tells what it was.
pub fn answer_detailed<M: Message>(
    responder: impl Respond,
    outcome: Result<Reply<M>>,
    detail: impl FnOnce() -> RequestDetail,
) -> CallTimes {
    match outcome {
        Ok(Reply { message, block, room }) => {
            let times = responder.send_detailed(&message, block, detail);
            // The reply is counted where it waits for its client.
            drop(room);
            times
        }
        Err(error) => responder.send_error_detailed(&error, detail),
    }
}

/// A result whose cells go into `block`, or into the message when there is none.
pub fn place_cells(cells: CellBuffer, block: Option<&mut CellBlockWriter>) -> pb::Result {
    match block {
        None => result::with_cells(cells, false, false),
        Some(block) => {
            let count = cells.len();
            block.push_buffer_owned(cells);
            result::counted(count, false)
        }
    }
}
