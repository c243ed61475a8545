//! [`FairQueue`]: entries of many connections, taken from one connection after the other.
//!
//! The entries of a connection are taken in order of arrival. Connections with entries take turns,
//! one entry each (round-robin). So an entry waits for at most one entry of every other connection
//! and for the earlier ones of its own: a client that sends hundreds of calls that wait for one row
//! lock delays the calls of others by one of them at a time.
//!
//! An operation costs a hash lookup. The memory of a connection's list is released when the list is
//! empty.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// The connection of an entry: the client's address and port. `None` for work of the server itself,
/// which counts as one connection.
pub(super) type Peer = Option<SocketAddr>;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    /// The entries of each connection, never empty.
    entries: HashMap<Peer, VecDeque<T>>,
    /// The connections that have entries, in the order of their turns.
    turns: VecDeque<Peer>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { entries: HashMap::new(), turns: VecDeque::new() }
    }
}

impl<T> FairQueue<T> {
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Appends an entry to those of its connection. A connection without entries gets the last
    /// turn.
    pub fn push(&mut self, peer: Peer, entry: T) {
        let own = self.entries.entry(peer).or_default();
        if own.is_empty() {
            self.turns.push_back(peer);
        }
        own.push_back(entry);
    }

    /// Returns the entry that [`FairQueue::pop`] takes.
    pub fn front(&self) -> Option<&T> {
        self.entries.get(self.turns.front()?)?.front()
    }

    /// Takes the first entry of the connection whose turn it is.
    pub fn pop(&mut self) -> Option<(Peer, T)> {
        let peer = self.turns.pop_front()?;
        let own = self.entries.get_mut(&peer)?;
        let entry = own.pop_front()?;
        if own.is_empty() {
            self.entries.remove(&peer);
        } else {
            self.turns.push_back(peer);
        }
        Some((peer, entry))
    }
}

impl<T> Iterator for FairQueue<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.pop().map(|(_, entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> Peer {
        Some(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    #[test]
    fn connections_take_turns() {
        let mut queue = FairQueue::default();
        (0..5).for_each(|n| queue.push(peer(1), n));
        queue.push(peer(2), 10);
        queue.push(None, 20);
        assert_eq!(queue.front(), Some(&0));
        assert_eq!(queue.pop(), Some((peer(1), 0)));
        queue.push(peer(2), 11);
        assert_eq!(queue.collect::<Vec<_>>(), [10, 20, 1, 11, 2, 3, 4]);
    }

    #[test]
    fn an_empty_queue_holds_no_connection() {
        let mut queue = FairQueue::default();
        assert!(queue.is_empty() && queue.front().is_none() && queue.pop().is_none());
        for round in 0..3 {
            queue.push(peer(round), round);
            assert!(!queue.is_empty());
            assert_eq!(queue.pop(), Some((peer(round), round)));
        }
        assert!(queue.entries.is_empty() && queue.turns.is_empty());
    }
}
