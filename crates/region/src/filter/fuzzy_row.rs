//! FuzzyRowFilter: rows that start with one of several keys in which some bytes match any byte.
//!
//! On the wire a key comes with a mask of the same length. A Java client sends the mask as its user
//! gave it (0: fixed, 1: free), or, on most machines, already converted for word comparisons: -1
//! for fixed, and 0 (first version) or 2 (second version, `is_mask_v2`) for free. A first-version
//! mask of only 0 and -1 is read as converted. Here a key is a list of bytes, each fixed or free.
//!
//! A row shorter than the key matches if its bytes do.

use bytes::Bytes;
use evenkeel_common::{CellRef, KeyBuf, Result};
use evenkeel_protocol::pb;

use super::parse::decode;
use super::{Filter, ReturnCode, first_on_row, illegal, row_after_prefix};

pub(super) fn parse(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::FuzzyRowFilter = decode(bytes, &[])?;
    if proto.fuzzy_keys_data.is_empty() {
        return Err(illegal("a FuzzyRowFilter without keys"));
    }
    let v2 = proto.is_mask_v2.unwrap_or(false);
    let keys = proto.fuzzy_keys_data.iter().map(|pair| FuzzyKey::parse(&pair.first, &pair.second, v2));
    Ok(Box::new(FuzzyRowFilter::new(keys.collect::<Result<_>>()?)))
}

/// A key; `None` is a free byte.
struct FuzzyKey(Vec<Option<u8>>);

impl FuzzyKey {
    fn parse(key: &[u8], mask: &[u8], v2: bool) -> Result<Self> {
        if key.len() != mask.len() {
            let (key, mask) = (key.escape_ascii(), mask.escape_ascii());
            return Err(illegal(format!("Fuzzy pair lengths do not match: {{{key},{mask}}}")));
        }
        let free = if v2 { 2 } else { 0 };
        let prepared = mask.iter().all(|m| *m == 0xff || *m == free);
        let is_fixed = |m: u8| m >= 0x80 || (m == 0 && !prepared);
        Ok(Self(key.iter().zip(mask).map(|(byte, m)| is_fixed(*m).then_some(*byte)).collect()))
    }

    fn matches(&self, row: &[u8]) -> bool {
        self.0.iter().zip(row).all(|(byte, r)| byte.is_none_or(|byte| byte == *r))
    }

    /// Returns the next row after `row`, in the direction of the scan, from which rows may match;
    /// `None` if there is none.
    ///
    /// The row agrees with the key up to the first fixed byte that differs. If the row's byte is
    /// lower there, that byte is set. If it is higher, the last free byte before it that can grow
    /// is incremented. The rest starts again at its lowest value.
    fn next_row(&self, row: &[u8], reversed: bool) -> Option<Vec<u8>> {
        let at = self.0.iter().zip(row).position(|(byte, r)| byte.is_some_and(|byte| byte != *r));
        let (at, row_is_lower) = match at {
            Some(i) => {
                let pair = self.0.get(i).copied().flatten().zip(row.get(i));
                (i, pair.is_some_and(|(byte, r)| (*r < byte) != reversed))
            }
            // A matching row, or one shorter than the key: only a free byte can grow.
            None => (row.len(), false),
        };
        let last = if reversed { 0 } else { u8::MAX };
        let is_free = |i: usize| self.0.get(i).is_none_or(Option::is_none);
        let can_grow = |i: &usize| is_free(*i) && row.get(*i) != Some(&last);
        let grown = (0..at).rev().find(can_grow);
        let kept = if row_is_lower { at } else { grown? };
        let mut next = row.get(..kept)?.to_vec();
        if !row_is_lower {
            let byte = *row.get(kept)?;
            next.push(if reversed { byte.checked_sub(1)? } else { byte.checked_add(1)? });
        }
        self.fill(&mut next, reversed);
        if !reversed {
            return Some(next);
        }
        // All rows with this prefix may match, so seek to the row after them. If there is none, a
        // row that does not lie ahead lets the scan step to the next row.
        Some(row_after_prefix(&next).unwrap_or_else(|| [row, &[0]].concat()))
    }

    /// Appends the rest of the key up to its last fixed byte, with the first possible byte instead
    /// of free ones.
    fn fill(&self, next: &mut Vec<u8>, reversed: bool) {
        let first = if reversed { u8::MAX } else { 0 };
        let fixed_end = self.0.iter().rposition(Option::is_some).map_or(0, |i| i + 1);
        let rest = self.0.get(next.len()..fixed_end).unwrap_or_default();
        next.extend(rest.iter().map(|byte| byte.unwrap_or(first)));
    }
}

struct FuzzyRowFilter {
    keys: Vec<FuzzyKey>,
    /// For each key, the result of the last search for the next row that may match; `None` before
    /// the first search and if there is none.
    next: Vec<Option<Vec<u8>>>,
    searched: bool,
    /// The key that matched last, which is the most likely to match next.
    last_match: usize,
    filter_row: bool,
    done: bool,
    reversed: bool,
}

impl FuzzyRowFilter {
    fn new(keys: Vec<FuzzyKey>) -> Self {
        let next = keys.iter().map(|_| None).collect();
        Self { keys, next, searched: false, last_match: 0, filter_row: false, done: false, reversed: false }
    }

    /// Updates the next rows: searches again for those that the scan has reached.
    fn search(&mut self, row: &[u8]) {
        for (key, next) in self.keys.iter().zip(&mut self.next) {
            let reached = |n: &Vec<u8>| if self.reversed { row <= &n[..] } else { row >= &n[..] };
            if !self.searched || next.as_ref().is_some_and(reached) {
                *next = key.next_row(row, self.reversed);
            }
        }
        self.searched = true;
    }

    fn nearest(&self) -> Option<&Vec<u8>> {
        let found = self.next.iter().flatten();
        if self.reversed { found.max() } else { found.min() }
    }

    /// Returns the row to seek to, if it lies ahead.
    fn hint(&self, row: &[u8]) -> Option<KeyBuf> {
        let next =
            self.nearest().filter(|next| if self.reversed { &next[..] < row } else { &next[..] > row });
        next.and_then(|next| first_on_row(next))
    }
}

impl Filter for FuzzyRowFilter {
    fn reset(&mut self) {
        self.filter_row = false;
    }

    fn filter_all_remaining(&self) -> bool {
        self.done
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        let (before, from) = self.keys.split_at(self.last_match);
        let mut in_turn = from.iter().chain(before);
        if let Some(i) = in_turn.position(|key| key.matches(cell.row())) {
            self.last_match = (self.last_match + i) % self.keys.len();
            return Ok(ReturnCode::Include);
        }
        self.last_match = 0;
        self.filter_row = true;
        Ok(ReturnCode::SeekNextUsingHint)
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(self.filter_row)
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        self.search(cell.row());
        self.done |= self.nearest().is_none();
        Ok(self.hint(cell.row()))
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
    }

    fn is_hinting(&self) -> bool {
        true
    }
}
