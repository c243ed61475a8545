//! The dictionary of repeated byte strings in a compressed file (`LRUDictionary`).
//!
//! Writer and reader keep equal dictionaries by doing the same to them in the same order: a string met for the first
//! time is added at the head; one met again moves to the head. Indexes count up from 0 until the dictionary is full; from
//! then on a new string takes the place, and the index, of the one at the tail. Strings of no bytes are never added.
//!
//! A reader that went past a damaged entry knows less, and says so ([`Lookup::Unknown`]) instead of guessing:
//! * The damaged entry's parts could be told apart: the dictionary has as many strings as the writer's, but those that this
//!   entry added may be other ones. Indexes of those are unknown, all others are as before.
//! * They could not: how many strings it added is not known. The dictionary is *frozen*: an index of a string that was there
//!   before is known as long as the writer's dictionary cannot have been full since, for only a full one gives an index
//!   to another string. Every string that came later is unknown.

use std::collections::HashMap;

use bytes::Bytes;
use evenkeel_common::length;

/// No slot.
const NONE: u16 = u16::MAX;

/// Index to string; and for writers, who use [`LruDictionary::find_or_add`] alone, string to index.
#[derive(Clone, Debug)]
pub(crate) struct LruDictionary {
    slots: Vec<Slot>,
    /// What a writer has in `slots`; empty in a reader.
    indexes: HashMap<Bytes, u16>,
    capacity: usize,
    head: u16,
    tail: u16,
    /// How many strings at most were added since it was frozen; `None` while it is not.
    frozen: Option<u64>,
}

/// What a reader's dictionary has at an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// A string.
    Known(Bytes),
    /// One that was lost.
    Unknown,
    /// Nothing: no writer used this index.
    Absent,
}

#[derive(Clone, Debug)]
struct Slot {
    /// Empty when it is not known.
    bytes: Bytes,
    /// Towards the head.
    prev: u16,
    /// Towards the tail.
    next: u16,
}

impl LruDictionary {
    /// A dictionary of at most so many strings.
    pub(crate) fn new(capacity: u16) -> Self {
        let capacity = usize::from(capacity);
        Self { slots: Vec::new(), indexes: HashMap::new(), capacity, head: NONE, tail: NONE, frozen: None }
    }

    /// The index of a string, which moves to the head; `None` when it was not there, and is now.
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

    /// The string of an index, which moves to the head.
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

    /// From here on at most `added` more strings were added than are here, and more as [`LruDictionary::add`] says.
    pub(crate) fn freeze(&mut self, added: u64) {
        self.frozen = Some(self.frozen.unwrap_or(0).saturating_add(added));
    }

    /// Adds a string that was met for the first time; its index, and the string that had it before.
    pub(crate) fn add(&mut self, bytes: Bytes) -> Option<(u16, Bytes)> {
        if bytes.is_empty() {
            return None;
        }
        self.put(bytes)
    }

    /// Adds a string that was met for the first time and that is not known.
    pub(crate) fn add_unknown(&mut self) {
        drop(self.put(Bytes::new()));
    }

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
    fn a_string_that_was_lost_keeps_its_index() {
        let mut dictionary = LruDictionary::new(3);
        dictionary.add(text("a"));
        dictionary.add_unknown();
        dictionary.add(text("c"));
        assert_eq!((dictionary.get(0), dictionary.get(1)), (Lookup::Known(text("a")), Lookup::Unknown));
        dictionary.add(text("d")); // order was ? a c: takes c's place
        assert_eq!((dictionary.get(2), dictionary.get(3)), (Lookup::Known(text("d")), Lookup::Absent));
    }

    #[test]
    fn a_frozen_dictionary_knows_what_cannot_have_been_replaced() {
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
