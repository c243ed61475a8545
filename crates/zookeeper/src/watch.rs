//! Watches of one connection, and the events that they fired.
//!
//! A standard watch fires once and is then removed. A data watch reports the creation, change and
//! removal of its node; a child watch reports children added and removed, and the node's removal. A
//! persistent watch reports all of these and stays; a recursive one reports the data events of its
//! whole subtree. One removal reaches a connection once, however many of its watches match.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;

use super::connection_charge::ConnectionCharge;
use super::protocol::WatcherType;

/// Memory of a watch besides its path: its place in a table that may be less than half full, and
/// rounding of the path.
const WATCH_BYTES: usize = 128;

/// Memory of an unread event besides its path.
const EVENT_BYTES: usize = 96;

/// The kind of an event, in ZooKeeper's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum EventType {
    Created = 1,
    Deleted = 2,
    DataChanged = 3,
    ChildrenChanged = 4,
}

/// One event for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchEvent {
    pub(super) kind: EventType,
    pub(super) path: String,
}

/// The error for a connection that holds too many watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyWatches;

/// Watches and events of one connection.
#[derive(Debug)]
pub(super) struct Watcher {
    data: HashSet<String>,
    child: HashSet<String>,
    /// True if the watch is recursive.
    persistent: HashMap<String, bool>,
    charge: ConnectionCharge,
    events: VecDeque<WatchEvent>,
    overflowed: bool,
    due: Arc<Notify>,
}

impl Watcher {
    /// Creates an empty set of watches, to be charged to `charge`.
    pub(super) fn new(charge: ConnectionCharge) -> Self {
        Self {
            data: HashSet::new(),
            child: HashSet::new(),
            persistent: HashMap::new(),
            charge,
            events: VecDeque::new(),
            overflowed: false,
            due: Arc::default(),
        }
    }

    /// Returns the notification of events due.
    pub(super) fn due(&self) -> Arc<Notify> {
        self.due.clone()
    }

    pub(super) fn count(&self) -> usize {
        self.data.len() + self.child.len() + self.persistent.len()
    }

    /// Takes the events due; `None` if some were lost because the limit was reached.
    pub(super) fn take_events(&mut self) -> Option<VecDeque<WatchEvent>> {
        let events = std::mem::take(&mut self.events);
        events.iter().for_each(|event| self.charge.release(event.path.len() + EVENT_BYTES));
        (!self.overflowed).then_some(events)
    }

    pub(super) fn watch_data(&mut self, path: &str) -> Result<(), TooManyWatches> {
        if !self.data.contains(path) {
            self.charge(path)?;
            self.data.insert(path.to_owned());
        }
        Ok(())
    }

    pub(super) fn watch_child(&mut self, path: &str) -> Result<(), TooManyWatches> {
        if !self.child.contains(path) {
            self.charge(path)?;
            self.child.insert(path.to_owned());
        }
        Ok(())
    }

    pub(super) fn add_persistent_watch(&mut self, path: &str, recursive: bool) -> Result<(), TooManyWatches> {
        if !self.persistent.contains_key(path) {
            self.charge(path)?;
        }
        self.persistent.insert(path.to_owned(), recursive);
        Ok(())
    }

    fn charge(&mut self, path: &str) -> Result<(), TooManyWatches> {
        if self.charge.acquire(path.len() + WATCH_BYTES) { Ok(()) } else { Err(TooManyWatches) }
    }

    fn release(&mut self, path: &str) {
        self.charge.release(path.len() + WATCH_BYTES);
    }

    fn take_data(&mut self, path: &str) -> bool {
        let had = self.data.remove(path);
        if had {
            self.release(path);
        }
        had
    }

    fn take_child(&mut self, path: &str) -> bool {
        let had = self.child.remove(path);
        if had {
            self.release(path);
        }
        had
    }

    /// Returns true if there is such a watch on `path`.
    pub(super) fn has(&self, path: &str, kind: WatcherType) -> bool {
        let standard = match kind {
            WatcherType::Data => self.data.contains(path),
            WatcherType::Children => self.child.contains(path),
            WatcherType::Any => self.data.contains(path) || self.child.contains(path),
        };
        standard || self.persistent.contains_key(path)
    }

    /// Removes such watches from `path`; returns true if there were any.
    pub(super) fn remove(&mut self, path: &str, kind: WatcherType) -> bool {
        let data = kind != WatcherType::Children && self.take_data(path);
        let child = kind != WatcherType::Data && self.take_child(path);
        let persistent = kind == WatcherType::Any && self.persistent.remove(path).is_some();
        if persistent {
            self.release(path);
        }
        data || child || persistent
    }

    /// Queues an event at `path` if a watch matches it.
    pub(super) fn fire(&mut self, kind: EventType, path: &str) {
        let hit = match kind {
            EventType::Created | EventType::DataChanged => self.take_data(path),
            EventType::ChildrenChanged => self.take_child(path),
            EventType::Deleted => self.take_data(path) | self.take_child(path),
        };
        if hit || self.has_persistent_watch(kind, path) {
            self.queue_event(kind, path);
        }
    }

    fn has_persistent_watch(&self, kind: EventType, path: &str) -> bool {
        if self.persistent.is_empty() {
            return false;
        }
        match (kind, self.persistent.get(path)) {
            (_, Some(false)) => true,
            (EventType::ChildrenChanged, _) => false,
            _ => ancestors(path).any(|ancestor| self.persistent.get(ancestor) == Some(&true)),
        }
    }

    /// Queues an event.
    pub(super) fn queue_event(&mut self, kind: EventType, path: &str) {
        if self.charge.acquire(path.len() + EVENT_BYTES) {
            self.events.push_back(WatchEvent { kind, path: path.to_owned() });
        } else {
            self.overflowed = true;
        }
        self.due.notify_one();
    }
}

/// `path` and every node above it, the root last.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| super::tree::parent_of(path))
}
