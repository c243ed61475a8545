//! The tree of nodes that this process publishes and clients read.
//!
//! One lock guards nodes, transaction id and watches. Everything done under it is short and takes
//! no other lock. One lock suffices, since a client sends only a handful of requests in its life.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::Budget;
use evenkeel_common::clock::{Clock, SystemClock};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::connection_charge::{BYTES_MAX, ConnectionCharge};
use super::jute::length;
use super::protocol::Stat;
use super::watch::{EventType, WatchEvent, Watcher};

/// How far the first transaction id is shifted from the wall clock in milliseconds: a million
/// transactions fit in each millisecond before a restart could reuse ids.
const ZXID_CLOCK_SHIFT: u32 = 20;

/// The error for a path that is not of the form `/`, `/a` or `/a/b`: absolute, no empty, `.` or
/// `..` component, no control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPath(String);

impl fmt::Display for InvalidPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a znode path: {:?}", self.0)
    }
}

impl std::error::Error for InvalidPath {}

/// Nodes in memory, with versions and watches. Only this process changes them; the module `znodes`
/// describes HBase's nodes.
#[derive(Debug)]
pub struct ZnodeTree {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    /// The budget of the memory that connections use.
    memory: Arc<Budget>,
}

/// Identifies a connection's watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WatcherId(u64);

/// The state under the lock.
#[derive(Debug)]
pub(super) struct State {
    nodes: HashMap<String, Node>,
    zxid: i64,
    watchers: HashMap<WatcherId, Watcher>,
    watchers_opened: u64,
}

/// One node.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) data: Bytes,
    /// Without lengths and counts; see [`Node::stat`].
    stat: Stat,
    /// Last components of the children's paths.
    pub(super) children: BTreeSet<String>,
}

impl Node {
    pub(super) fn stat(&self) -> Stat {
        let (data_length, num_children) = (length(self.data.len()), length(self.children.len()));
        Stat { data_length, num_children, ..self.stat }
    }
}

impl Default for ZnodeTree {
    fn default() -> Self {
        Self::new()
    }
}

impl ZnodeTree {
    /// Creates a tree with only the root, on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// Creates a tree with only the root. The clock gives the first transaction id and the times of
    /// nodes.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let zxid = clock.now_ms().max(0) << ZXID_CLOCK_SHIFT;
        let nodes = HashMap::from([("/".to_owned(), Node::default())]);
        let state = State { nodes, zxid, watchers: HashMap::new(), watchers_opened: 0 };
        Self { state: Mutex::new(state), clock, memory: Budget::new(BYTES_MAX) }
    }

    /// Limits the memory that clients can use to `bytes`.
    #[must_use]
    pub fn with_memory_limit(self, bytes: u64) -> Self {
        Self { memory: Budget::new(bytes), ..self }
    }

    /// Returns the bytes that clients use: watches, and unread events.
    pub fn client_bytes(&self) -> u64 {
        self.memory.used()
    }

    /// Returns the limit of these bytes.
    pub fn client_bytes_max(&self) -> u64 {
        self.memory.max()
    }

    /// Returns the charge of a new connection.
    pub(super) fn connection_charge(&self) -> ConnectionCharge {
        ConnectionCharge::new(&self.memory)
    }

    /// Sets the data of a node; creates it and its missing ancestors. Fires watches. Returns the
    /// node's new stat.
    ///
    /// # Errors
    /// Returns an error if `path` is not a znode path.
    pub fn set(&self, path: &str, data: impl Into<Bytes>) -> Result<Stat, InvalidPath> {
        check_path(path)?;
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        state.create_parents(path, now_ms);
        Ok(state.set(path, data.into(), now_ms))
    }

    /// Creates an empty node and its missing ancestors. An existing node keeps its data. Returns
    /// true if the node was created.
    ///
    /// # Errors
    /// Returns an error if `path` is not a znode path.
    pub fn ensure(&self, path: &str) -> Result<bool, InvalidPath> {
        check_path(path)?;
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        if state.nodes.contains_key(path) {
            return Ok(false);
        }
        state.create_parents(path, now_ms);
        state.create(path, Bytes::new(), now_ms);
        Ok(true)
    }

    /// Removes a node and all below it, deepest first. Fires watches. Returns true if it existed;
    /// the root is never removed.
    pub fn remove(&self, path: &str) -> bool {
        let mut state = self.state.lock();
        if path == "/" || !state.nodes.contains_key(path) {
            return false;
        }
        for node in state.subtree(path).iter().rev() {
            state.remove_leaf(node);
        }
        true
    }

    /// Returns data and stat of a node.
    pub fn get(&self, path: &str) -> Option<(Bytes, Stat)> {
        let state = self.state.lock();
        state.nodes.get(path).map(|node| (node.data.clone(), node.stat()))
    }

    /// Returns the names of a node's children, in order, without its path.
    pub fn children(&self, path: &str) -> Option<Vec<String>> {
        let state = self.state.lock();
        state.nodes.get(path).map(|node| node.children.iter().cloned().collect())
    }

    /// Returns the stat of a node, if it exists.
    pub fn exists(&self, path: &str) -> Option<Stat> {
        self.state.lock().nodes.get(path).map(Node::stat)
    }

    /// Returns the id of the last transaction.
    pub fn zxid(&self) -> i64 {
        self.state.lock().zxid
    }

    /// Returns the number of nodes, including the root.
    pub fn node_count(&self) -> usize {
        self.state.lock().nodes.len()
    }

    /// Returns the number of watches of all connections.
    pub fn watch_count(&self) -> usize {
        self.state.lock().watchers.values().map(Watcher::count).sum()
    }

    /// Returns the sum of `bytes`, given the path and the data of each child of a node. The child
    /// `without` does not count.
    pub(super) fn sum_of_children(
        &self,
        path: &str,
        without: &str,
        bytes: impl Fn(&str, &[u8]) -> usize,
    ) -> usize {
        let state = self.state.lock();
        let children = state.nodes.get(path).into_iter().flat_map(|node| &node.children);
        let others = children.filter(|name| *name != without).map(|name| format!("{path}/{name}"));
        others.filter_map(|path| Some(bytes(&path, &state.nodes.get(&path)?.data))).sum()
    }

    /// Returns the bytes of data and paths.
    pub(super) fn data_bytes(&self) -> usize {
        self.state.lock().nodes.iter().map(|(path, node)| path.len() + node.data.len()).sum()
    }

    /// Registers a connection; returns its id, and the notification of events due.
    pub(super) fn open_watcher(&self) -> (WatcherId, Arc<Notify>) {
        let mut state = self.state.lock();
        state.watchers_opened += 1;
        let id = WatcherId(state.watchers_opened);
        let watcher = Watcher::new(self.connection_charge());
        let due = watcher.due();
        state.watchers.insert(id, watcher);
        (id, due)
    }

    /// Removes the watches of a connection.
    pub(super) fn close_watcher(&self, id: WatcherId) {
        self.state.lock().watchers.remove(&id);
    }

    /// Takes the events due to a connection, then lets `read` read the tree and set watches, in one
    /// step: so no event follows a reply that shows its cause, or precedes the reply that set its
    /// watch. Returns `None` if events were lost.
    pub(super) fn step<R>(
        &self,
        id: WatcherId,
        read: impl FnOnce(&HashMap<String, Node>, &mut Watcher, i64) -> R,
    ) -> Option<(VecDeque<WatchEvent>, R)> {
        let state = &mut *self.state.lock();
        let watcher = state.watchers.get_mut(&id)?;
        let events = watcher.take_events()?;
        Some((events, read(&state.nodes, watcher, state.zxid)))
    }
}

impl State {
    fn next_zxid(&mut self) -> i64 {
        self.zxid += 1;
        self.zxid
    }

    fn create_parents(&mut self, path: &str, now_ms: i64) {
        let above = std::iter::successors(parent_of(path), |path| parent_of(path));
        let missing: Vec<&str> = above.take_while(|path| !self.nodes.contains_key(*path)).collect();
        for path in missing.into_iter().rev() {
            self.create(path, Bytes::new(), now_ms);
        }
    }

    fn set(&mut self, path: &str, data: Bytes, now_ms: i64) -> Stat {
        if !self.nodes.contains_key(path) {
            return self.create(path, data, now_ms);
        }
        let zxid = self.next_zxid();
        let node = self.nodes.entry(path.to_owned()).or_default();
        node.data = data;
        node.stat.mzxid = zxid;
        node.stat.mtime = now_ms;
        node.stat.version = node.stat.version.wrapping_add(1);
        let stat = node.stat();
        self.fire(EventType::DataChanged, path);
        stat
    }

    fn create(&mut self, path: &str, data: Bytes, now_ms: i64) -> Stat {
        let zxid = self.next_zxid();
        let stat =
            Stat { czxid: zxid, mzxid: zxid, pzxid: zxid, ctime: now_ms, mtime: now_ms, ..Stat::default() };
        let node = Node { data, stat, children: BTreeSet::new() };
        let stat = node.stat();
        self.nodes.insert(path.to_owned(), node);
        self.fire(EventType::Created, path);
        self.change_children(path, zxid, |children, name| {
            children.insert(name.to_owned());
        });
        stat
    }

    fn remove_leaf(&mut self, path: &str) {
        let zxid = self.next_zxid();
        self.nodes.remove(path);
        self.fire(EventType::Deleted, path);
        self.change_children(path, zxid, |children, name| {
            children.remove(name);
        });
    }

    fn change_children(&mut self, path: &str, zxid: i64, change: impl FnOnce(&mut BTreeSet<String>, &str)) {
        let Some((parent, name)) = split(path) else { return };
        if let Some(node) = self.nodes.get_mut(parent) {
            change(&mut node.children, name);
            node.stat.cversion = node.stat.cversion.wrapping_add(1);
            node.stat.pzxid = zxid;
        }
        self.fire(EventType::ChildrenChanged, parent);
    }

    fn fire(&mut self, kind: EventType, path: &str) {
        self.watchers.values_mut().for_each(|watcher| watcher.fire(kind, path));
    }

    /// Returns `path` and all below it, parents before their children.
    fn subtree(&self, path: &str) -> Vec<String> {
        let mut found = vec![path.to_owned()];
        let mut next = 0;
        while let Some(path) = found.get(next).cloned() {
            let children = self.nodes.get(&path).into_iter().flat_map(|node| &node.children);
            found.extend(children.map(|name| format!("{path}/{name}")));
            next += 1;
        }
        found
    }
}

/// Returns the parent path; `None` for the root.
pub(super) fn parent_of(path: &str) -> Option<&str> {
    split(path).map(|(parent, _)| parent)
}

/// Returns parent path and last component; `None` for the root.
fn split(path: &str) -> Option<(&str, &str)> {
    match path.rsplit_once('/')? {
        (_, "") => None,
        ("", name) => Some(("/", name)),
        (parent, name) => Some((parent, name)),
    }
}

fn check_path(path: &str) -> Result<(), InvalidPath> {
    let component =
        |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains(char::is_control);
    let valid = path == "/" || path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(component));
    if valid { Ok(()) } else { Err(InvalidPath(path.to_owned())) }
}
