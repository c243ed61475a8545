//! The dictionary of repeated byte strings in a compressed file (HBase's `LRUDictionary`).
//!
//! Writer and reader keep equal dictionaries by applying the same operations in the same order: a
//! new string is added at the head, and a repeated one moves to the head. Indexes count up from 0
//! until the dictionary is full. After that a new string replaces the one at the tail and takes its
//! index. Empty strings are never added.
//!
//! A reader that skipped a corrupt entry lacks strings, and returns [`Lookup::Unknown`] instead of
//! a guess:
//! * If the corrupt entry's parts could be parsed, the dictionary has as many strings as the
//!   writer's, but those that this entry added may differ. Their indexes are unknown; all others
//!   are unaffected.
//! * If not, the number of added strings is unknown. The dictionary is *frozen*: an index of an
//!   earlier string is known as long as the writer's dictionary cannot have become full since,
//!   because only a full one reassigns indexes. Every later string is unknown.

use std::collections::HashMap;

use bytes::Bytes;
use evenkeel_common::length;

/// No slot.
const NONE: u16 = u16::MAX;

/// Maps indexes to strings; and for writers, which only use [`LruDictionary::find_or_add`], strings
/// to indexes.
#[derive(Clone, Debug)]
pub(crate) struct LruDictionary {
    slots: Vec<Slot>,
    /// The index of each string, for a writer; empty in a reader.
    indexes: HashMap<Bytes, u16>,
    capacity: usize,
    head: u16,
    tail: u16,
    /// An upper bound of the strings added since the dictionary was frozen; `None` if it is not.
    frozen: Option<u64>,
}

/// The result of looking up an index in a reader's dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The string.
    Known(Bytes),
    /// The string was lost.
    Unknown,
    /// No writer used this index.
    Absent,
}

#[derive(Clone, Debug)]
struct Slot {
    /// Empty if the string is unknown.
    bytes: Bytes,
    /// The neighbour towards the head.
    prev: u16,
    /// The neighbour towards the tail.
    next: u16,
}

impl LruDictionary {
    /// An empty dictionary for at most `capacity` strings.
    pub(crate) fn new(capacity: u16) -> Self {
        let capacity = usize::from(capacity);
        Self { slots: Vec::new(), indexes: HashMap::new(), capacity, head: NONE, tail: NONE, frozen: None }
    }

    /// The index of a string, which moves to the head; `None` if the string is new, in which case
    /// it is added.
    pub(crate) fn find_or_add(&mut self, bytes: &[u8]) -> Option<u16> {
        if let Some(index) = self.indexes.get(bytes).copied() {
            self.move_to_head(index);
            return Some(index);
        }
        let bytes = Bytes::copy_from_slice(bytes);
        if let Some((index, replaced)) = self.add(bytes.clone()) {
            self.indexes.remove(&replaced);
            self.indexes.insert(bytes, index);
        }
        None
    }

    /// Looks up the string of an index, which moves to the head.
    pub(crate) fn get(&mut self, index: u16) -> Lookup {
        if let Some(added) = self.frozen {
            return self.get_frozen(index, added);
        }
        let Some(slot) = self.slots.get(usize::from(index)) else { return Lookup::Absent };
        let bytes = slot.bytes.clone();
        self.move_to_head(index);
        if bytes.is_empty() { Lookup::Unknown } else { Lookup::Known(bytes) }
    }

    fn get_frozen(&self, index: u16, added: u64) -> Lookup {
        let is_full = self.slots.len() as u64 + added > self.capacity as u64;
        match self.slots.get(usize::from(index)) {
            Some(slot) if !slot.bytes.is_empty() && !is_full => Lookup::Known(slot.bytes.clone()),
            None if usize::from(index) >= self.capacity => Lookup::Absent,
            _ => Lookup::Unknown,
        }
    }

    /// Freezes the dictionary: at most `added` strings that are not here were added, and more by
    /// later calls of [`LruDictionary::add`].
    pub(crate) fn freeze(&mut self, added: u64) {
        self.frozen = Some(self.frozen.unwrap_or(0).saturating_add(added));
    }

    /// Adds a new string. Returns its index, and the string that it replaces.
    pub(crate) fn add(&mut self, bytes: Bytes) -> Option<(u16, Bytes)> {
        if bytes.is_empty() {
            return None;
        }
        self.put(bytes)
    }

    /// Adds a new string that is unknown.
    pub(crate) fn add_unknown(&mut self) {
        drop(self.put(Bytes::new()));
    }

    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "a full dictionary has a tail"))]
    fn put(&mut self, bytes: Bytes) -> Option<(u16, Bytes)> {
        if let Some(added) = &mut self.frozen {
            *added = added.saturating_add(1);
            return None;
        }
        if self.capacity == 0 {
            return None;
        }
        if self.slots.len() < self.capacity {
            let index = length::must_u16(self.slots.len());
            self.slots.push(Slot { bytes, prev: NONE, next: NONE });
            self.link_head(index);
            return Some((index, Bytes::new()));
        }
        let index = self.tail;
        let replaced = std::mem::replace(&mut self.slots[usize::from(index)].bytes, bytes);
        self.move_to_head(index);
        Some((index, replaced))
    }

    fn move_to_head(&mut self, index: u16) {
        if self.head == index {
            return;
        }
        let (prev, next) = (self.slot(index).prev, self.slot(index).next);
        self.slot(prev).next = next;
        if next == NONE {
            self.tail = prev;
        } else {
            self.slot(next).prev = prev;
        }
        self.link_head(index);
    }

    fn link_head(&mut self, index: u16) {
        let old = self.head;
        self.slot(index).prev = NONE;
        self.slot(index).next = old;
        if old == NONE {
            self.tail = index;
        } else {
            self.slot(old).prev = index;
        }
        self.head = index;
    }

    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "links are indexes of slots"))]
    fn slot(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn indexes_count_up_and_then_reuse_the_least_recent() {
        let mut dictionary = LruDictionary::new(3);
        for name in ["a", "b", "c"] {
            dictionary.add(text(name));
        }
        assert_eq!(dictionary.get(0), Lookup::Known(text("a"))); // order now: a c b
        dictionary.add(text("d")); // takes b's place
        assert_eq!(dictionary.get(1), Lookup::Known(text("d")));
        dictionary.add(text("e")); // order was d a c: takes c's
        assert_eq!(
            (dictionary.get(2), dictionary.get(0)),
            (Lookup::Known(text("e")), Lookup::Known(text("a")))
        );
        dictionary.add(text("f")); // order was a e d: takes d's
        assert_eq!(dictionary.get(1), Lookup::Known(text("f")));
        assert_eq!(dictionary.get(3), Lookup::Absent);
    }

    #[test]
    fn a_writer_and_a_reader_agree() {
        let (mut writer, mut reader) = (LruDictionary::new(5), LruDictionary::new(5));
        for i in 0..2000usize {
            let name = Bytes::from(format!("{}", i * i % 7 + i % 3));
            match writer.find_or_add(&name) {
                Some(index) => assert_eq!(reader.get(index), Lookup::Known(name)),
                None => drop(reader.add(name)),
            }
        }
        assert_eq!(writer.indexes.len(), 5);
        assert_eq!((writer.find_or_add(b""), writer.find_or_add(b"")), (None, None));
    }

    #[test]
    fn a_dictionary_of_one_holds_the_last() {
        let mut dictionary = LruDictionary::new(1);
        assert_eq!(dictionary.get(0), Lookup::Absent);
        dictionary.add(text("a"));
        dictionary.add(text(""));
        assert_eq!(dictionary.get(0), Lookup::Known(text("a")));
        dictionary.add(text("b"));
        assert_eq!(dictionary.get(0), Lookup::Known(text("b")));
    }

    #[test]
    fn a_lost_string_keeps_its_index() {
        let mut dictionary = LruDictionary::new(3);
        dictionary.add(text("a"));
        dictionary.add_unknown();
        dictionary.add(text("c"));
        assert_eq!((dictionary.get(0), dictionary.get(1)), (Lookup::Known(text("a")), Lookup::Unknown));
        dictionary.add(text("d")); // order was ? a c: takes c's place
        assert_eq!((dictionary.get(2), dictionary.get(3)), (Lookup::Known(text("d")), Lookup::Absent));
    }

    #[test]
    fn a_frozen_dictionary_keeps_only_certain_entries() {
        let mut dictionary = LruDictionary::new(5);
        dictionary.add(text("a"));
        dictionary.add(text("b"));
        dictionary.freeze(2);
        assert_eq!((dictionary.get(1), dictionary.get(2)), (Lookup::Known(text("b")), Lookup::Unknown));
        dictionary.add(text("c")); // may be the fifth
        assert_eq!((dictionary.get(0), dictionary.get(4)), (Lookup::Known(text("a")), Lookup::Unknown));
        dictionary.add(text("d")); // may have taken a's place
        assert_eq!((dictionary.get(0), dictionary.get(5)), (Lookup::Unknown, Lookup::Absent));
    }
}
