//! Numbers and records of ZooKeeper 3.8's client protocol (`ZooDefs.OpCode`,
//! `KeeperException.Code`, `zookeeper.jute`).
//!
//! A client sends frames, `int` length and body. The first is a connect request, every later one
//!
//! ```text
//! | xid int | op int | record of the operation |
//! ```
//!
//! and is answered, in order, by `| xid int | zxid long | err int | record, if err is 0 |`. An
//! event is a reply of xid -1.

use super::jute::{Malformed, Reader, Write};

/// Operation numbers.
pub(super) mod op {
    pub(crate) const CREATE: i32 = 1;
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const GET_ACL: i32 = 6;
    pub(crate) const SET_ACL: i32 = 7;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const GET_CHILDREN2: i32 = 12;
    pub(crate) const CHECK: i32 = 13;
    pub(crate) const MULTI: i32 = 14;
    pub(crate) const CREATE2: i32 = 15;
    pub(crate) const RECONFIG: i32 = 16;
    pub(crate) const CHECK_WATCHES: i32 = 17;
    pub(crate) const REMOVE_WATCHES: i32 = 18;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const DELETE_CONTAINER: i32 = 20;
    pub(crate) const CREATE_TTL: i32 = 21;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const SET_WATCHES: i32 = 101;
    pub(crate) const GET_EPHEMERALS: i32 = 103;
    pub(crate) const GET_ALL_CHILDREN_NUMBER: i32 = 104;
    pub(crate) const SET_WATCHES2: i32 = 105;
    pub(crate) const ADD_WATCH: i32 = 106;
    pub(crate) const CLOSE_SESSION: i32 = -11;
}

/// Error numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Code {
    SystemError = -1,
    MarshallingError = -5,
    Unimplemented = -6,
    BadArguments = -8,
    NoNode = -101,
    NodeExists = -110,
    NotReadOnly = -119,
    NoWatcher = -121,
}

/// The xid of an event.
pub(super) const EVENT_XID: i32 = -1;

/// A node's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Transaction that created it.
    pub czxid: i64,
    /// Transaction that last changed its data.
    pub mzxid: i64,
    /// When it was created, milliseconds since 1970.
    pub ctime: i64,
    /// When its data was last changed, milliseconds since 1970.
    pub mtime: i64,
    /// Number of changes of its data.
    pub version: i32,
    /// Number of children added or removed.
    pub cversion: i32,
    /// Number of changes of its access list: none here.
    pub aversion: i32,
    /// The session that owns it: none here.
    pub ephemeral_owner: i64,
    /// Bytes of data.
    pub data_length: i32,
    /// Number of children.
    pub num_children: i32,
    /// Transaction that last added or removed a child.
    pub pzxid: i64,
}

impl Stat {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        for long in [self.czxid, self.mzxid, self.ctime, self.mtime] {
            out.long(long);
        }
        for int in [self.version, self.cversion, self.aversion] {
            out.int(int);
        }
        out.long(self.ephemeral_owner);
        out.int(self.data_length);
        out.int(self.num_children);
        out.long(self.pzxid);
    }
}

/// The first packet of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Connect<'a> {
    pub(super) timeout_ms: i32,
    /// 0 for a new session.
    pub(super) session_id: i64,
    pub(super) password: &'a [u8],
    /// True if the client sent the read-only flag (3.4 and later): then it expects one in the
    /// reply.
    pub(super) has_read_only: bool,
}

impl<'a> Connect<'a> {
    pub(super) fn read(packet: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(packet);
        let _protocol_version = reader.int()?;
        let _last_zxid_seen = reader.long()?;
        let timeout_ms = reader.int()?;
        let session_id = reader.long()?;
        let password = reader.buffer()?;
        Ok(Self { timeout_ms, session_id, password, has_read_only: !reader.is_empty() })
    }
}

/// Appends the reply to a connect request. Session 0 with timeout 0 means that the client's session
/// has expired.
pub(super) fn write_connected(
    out: &mut Vec<u8>,
    session: i64,
    password: [u8; 16],
    timeout_ms: i32,
    flag: bool,
) {
    super::jute::frame(out, |out| {
        out.int(0);
        out.int(timeout_ms);
        out.long(session);
        out.buffer(&password);
        if flag {
            out.boolean(false);
        }
    });
}

/// Kinds of watches, as `checkWatches` and `removeWatches` name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatcherType {
    Children,
    Data,
    Any,
}

/// Watches that a client restores after a reconnect.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SetWatches<'a> {
    /// The last transaction that the client has seen.
    pub(super) relative_zxid: i64,
    pub(super) data: Vec<&'a str>,
    pub(super) exist: Vec<&'a str>,
    pub(super) child: Vec<&'a str>,
    pub(super) persistent: Vec<&'a str>,
    pub(super) recursive: Vec<&'a str>,
}

/// A request, decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request<'a> {
    Ping,
    CloseSession,
    Auth,
    Sync { path: &'a str },
    Exists { path: &'a str, watch: bool },
    GetData { path: &'a str, watch: bool },
    GetAcl { path: &'a str },
    GetChildren { path: &'a str, watch: bool, with_stat: bool },
    GetAllChildrenNumber { path: &'a str },
    GetEphemerals,
    SetWatches(SetWatches<'a>),
    CheckWatches { path: &'a str, kind: WatcherType },
    RemoveWatches { path: &'a str, kind: WatcherType },
    AddWatch { path: &'a str, recursive: bool },
    Create { path: &'a str },
    OtherWrite,
    Unknown,
}

/// Why a request cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadRequest(pub(super) Code);

impl From<Malformed> for BadRequest {
    fn from(_: Malformed) -> Self {
        Self(Code::MarshallingError)
    }
}

/// Reads xid and operation; without them no reply is possible.
pub(super) fn read_header(reader: &mut Reader<'_>) -> Result<(i32, i32), Malformed> {
    Ok((reader.int()?, reader.int()?))
}

/// Reads the record of operation `op`.
pub(super) fn read_request<'a>(op: i32, reader: &mut Reader<'a>) -> Result<Request<'a>, BadRequest> {
    Ok(match op {
        op::PING => Request::Ping,
        op::CLOSE_SESSION => Request::CloseSession,
        op::AUTH => Request::Auth,
        op::SYNC => Request::Sync { path: reader.string()? },
        op::EXISTS => Request::Exists { path: reader.string()?, watch: reader.boolean()? },
        op::GET_DATA => Request::GetData { path: reader.string()?, watch: reader.boolean()? },
        op::GET_ACL => Request::GetAcl { path: reader.string()? },
        op::GET_CHILDREN | op::GET_CHILDREN2 => {
            let (path, watch) = (reader.string()?, reader.boolean()?);
            Request::GetChildren { path, watch, with_stat: op == op::GET_CHILDREN2 }
        }
        op::GET_ALL_CHILDREN_NUMBER => Request::GetAllChildrenNumber { path: reader.string()? },
        op::GET_EPHEMERALS => Request::GetEphemerals,
        op::SET_WATCHES | op::SET_WATCHES2 => Request::SetWatches(read_set_watches(op, reader)?),
        op::CHECK_WATCHES => {
            Request::CheckWatches { path: reader.string()?, kind: read_watcher_type(reader)? }
        }
        op::REMOVE_WATCHES => {
            Request::RemoveWatches { path: reader.string()?, kind: read_watcher_type(reader)? }
        }
        op::ADD_WATCH => Request::AddWatch { path: reader.string()?, recursive: read_recursive(reader)? },
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
            Request::Create { path: reader.string()? }
        }
        op::DELETE
        | op::SET_DATA
        | op::SET_ACL
        | op::CHECK
        | op::MULTI
        | op::RECONFIG
        | op::DELETE_CONTAINER => Request::OtherWrite,
        _ => Request::Unknown,
    })
}

fn read_set_watches<'a>(op: i32, reader: &mut Reader<'a>) -> Result<SetWatches<'a>, Malformed> {
    let relative_zxid = reader.long()?;
    let (data, exist, child) = (reader.strings()?, reader.strings()?, reader.strings()?);
    let (persistent, recursive) = match op {
        op::SET_WATCHES2 => (reader.strings()?, reader.strings()?),
        _ => Default::default(),
    };
    Ok(SetWatches { relative_zxid, data, exist, child, persistent, recursive })
}

fn read_watcher_type(reader: &mut Reader<'_>) -> Result<WatcherType, BadRequest> {
    match reader.int()? {
        1 => Ok(WatcherType::Children),
        2 => Ok(WatcherType::Data),
        3 => Ok(WatcherType::Any),
        _ => Err(BadRequest(Code::BadArguments)),
    }
}

fn read_recursive(reader: &mut Reader<'_>) -> Result<bool, BadRequest> {
    match reader.int()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(BadRequest(Code::BadArguments)),
    }
}
