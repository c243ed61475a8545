//! The reply to each request.
//!
//! `exists` sets its watch whether the node exists or not; `getData` and `getChildren` set it only
//! if the node exists. `setWatches` fires at once for nodes that changed since the client's last
//! transaction, and watches the others.

use std::collections::{HashMap, VecDeque};

use super::jute::{Reader, Write, frame};
use super::protocol::{self, BadRequest, Code, EVENT_XID, Request, SetWatches, Stat};
use super::tree::{Node, WatcherId, ZnodeTree};
use super::watch::{EventType, TooManyWatches, WatchEvent, Watcher};

/// Permission bit of an access list entry: all clients may read.
const PERMISSION_READ: i32 = 1;

/// `SyncConnected`, the state an event carries.
const STATE_CONNECTED: i32 = 3;

/// What happens to the connection after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionAction {
    /// It continues.
    Serve,
    /// The client closed the session: nothing is sent after the reply.
    Close,
    /// It is closed: no reply is possible, or events were lost.
    Drop,
}

/// Answers one packet: the events due and the reply are appended to `out`.
pub(super) fn answer(
    tree: &ZnodeTree,
    watcher: WatcherId,
    packet: &[u8],
    out: &mut Vec<u8>,
) -> ConnectionAction {
    let mut reader = Reader::new(packet);
    let Ok((xid, op)) = protocol::read_header(&mut reader) else { return ConnectionAction::Drop };
    let request = protocol::read_request(op, &mut reader);
    let step = tree.step(watcher, |nodes, watcher, zxid| {
        let mut body = Vec::new();
        let view = RequestContext { nodes, watcher };
        let outcome = match &request {
            Ok(request) => view.answer(request, &mut body),
            Err(bad) => Err(*bad),
        };
        (zxid, outcome.map(|()| body))
    });
    let Some((events, (zxid, outcome))) = step else { return ConnectionAction::Drop };
    write_events(out, &events);
    frame(out, |out| {
        out.int(xid);
        out.long(zxid);
        out.int(outcome.as_ref().map_or_else(|bad| bad.0 as i32, |_| 0));
        out.extend(outcome.unwrap_or_default());
    });
    if request == Ok(Request::CloseSession) { ConnectionAction::Close } else { ConnectionAction::Serve }
}

/// Appends one frame for each event.
pub(super) fn write_events(out: &mut Vec<u8>, events: &VecDeque<WatchEvent>) {
    for event in events {
        frame(out, |out| {
            out.int(EVENT_XID);
            out.long(-1);
            out.int(0);
            out.int(event.kind as i32);
            out.int(STATE_CONNECTED);
            out.buffer(event.path.as_bytes());
        });
    }
}

/// The tree, and the watches of the requesting connection.
struct RequestContext<'a> {
    nodes: &'a HashMap<String, Node>,
    watcher: &'a mut Watcher,
}

type OpResult = Result<(), BadRequest>;

impl From<TooManyWatches> for BadRequest {
    fn from(_: TooManyWatches) -> Self {
        Self(Code::SystemError)
    }
}

impl RequestContext<'_> {
    fn answer(mut self, request: &Request<'_>, out: &mut Vec<u8>) -> OpResult {
        match *request {
            Request::Ping | Request::CloseSession | Request::Auth => {}
            Request::Sync { path } => out.buffer(path.as_bytes()),
            Request::Exists { path, watch } => self.exists(path, watch, out)?,
            Request::GetData { path, watch } => self.get_data(path, watch, out)?,
            Request::GetAcl { path } => write_acl(&self.node(path)?.stat(), out),
            Request::GetChildren { path, watch, with_stat } => {
                self.get_children(path, watch, with_stat, out)?
            }
            Request::GetAllChildrenNumber { path } => out.int(self.count_below(path)?),
            Request::GetEphemerals => out.int(0),
            Request::SetWatches(ref watches) => self.set_watches(watches)?,
            Request::CheckWatches { path, kind } => check_watcher(self.watcher.has(path, kind))?,
            Request::RemoveWatches { path, kind } => check_watcher(self.watcher.remove(path, kind))?,
            Request::AddWatch { path, recursive } => {
                self.watcher.add_persistent_watch(path, recursive)?;
                out.int(0);
            }
            Request::Create { path } if self.nodes.contains_key(path) => {
                return Err(BadRequest(Code::NodeExists));
            }
            Request::Create { .. } | Request::OtherWrite => return Err(BadRequest(Code::NotReadOnly)),
            Request::Unknown => return Err(BadRequest(Code::Unimplemented)),
        }
        Ok(())
    }

    fn node(&self, path: &str) -> Result<&Node, BadRequest> {
        self.nodes.get(path).ok_or(BadRequest(Code::NoNode))
    }

    fn exists(&mut self, path: &str, watch: bool, out: &mut Vec<u8>) -> OpResult {
        if watch {
            self.watcher.watch_data(path)?;
        }
        self.node(path)?.stat().write(out);
        Ok(())
    }

    fn get_data(&mut self, path: &str, watch: bool, out: &mut Vec<u8>) -> OpResult {
        let node = self.node(path)?;
        out.buffer(&node.data);
        node.stat().write(out);
        if watch {
            self.watcher.watch_data(path)?;
        }
        Ok(())
    }

    fn get_children(&mut self, path: &str, watch: bool, with_stat: bool, out: &mut Vec<u8>) -> OpResult {
        let node = self.node(path)?;
        out.strings(node.children.iter().map(String::as_str));
        if with_stat {
            node.stat().write(out);
        }
        if watch {
            self.watcher.watch_child(path)?;
        }
        Ok(())
    }

    fn count_below(&self, path: &str) -> Result<i32, BadRequest> {
        self.node(path)?;
        let prefix = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        let below = self.nodes.keys().filter(|key| key.len() > prefix.len() && key.starts_with(&prefix));
        Ok(super::jute::length(below.count()))
    }

    fn set_watches(&mut self, watches: &SetWatches<'_>) -> OpResult {
        let since = watches.relative_zxid;
        for path in &watches.data {
            self.renew(path, EventType::DataChanged, |stat| stat.mzxid > since)?;
        }
        for path in &watches.child {
            self.renew(path, EventType::ChildrenChanged, |stat| stat.pzxid > since)?;
        }
        for path in &watches.exist {
            match self.nodes.contains_key(*path) {
                true => self.watcher.queue_event(EventType::Created, path),
                false => self.watcher.watch_data(path)?,
            }
        }
        for path in &watches.persistent {
            self.watcher.add_persistent_watch(path, false)?;
        }
        for path in &watches.recursive {
            self.watcher.add_persistent_watch(path, true)?;
        }
        Ok(())
    }

    fn renew(&mut self, path: &str, kind: EventType, changed: impl Fn(&Stat) -> bool) -> OpResult {
        match self.nodes.get(path) {
            None => self.watcher.queue_event(EventType::Deleted, path),
            Some(node) if changed(&node.stat()) => self.watcher.queue_event(kind, path),
            Some(_) if kind == EventType::ChildrenChanged => self.watcher.watch_child(path)?,
            Some(_) => self.watcher.watch_data(path)?,
        }
        Ok(())
    }
}

fn check_watcher(found: bool) -> OpResult {
    if found { Ok(()) } else { Err(BadRequest(Code::NoWatcher)) }
}

/// One entry: the world may read.
fn write_acl(stat: &Stat, out: &mut Vec<u8>) {
    out.int(1);
    out.int(PERMISSION_READ);
    out.buffer(b"world");
    out.buffer(b"anyone");
    stat.write(out);
}
