//! Going on behind damage: [`WalReader::skip_damage`] finds the next entry that is whole beyond doubt.
//!
//! The format has no checksum and no mark where an entry begins: an entry begins where the one before ends, and lengths tell
//! where that is. So what can be found behind damage depends on what is damaged. In no case is anything guessed: an entry is
//! served if all of it lies outside of the gap, looks like an entry in every byte that can tell ([`super::plausible`]), and
//! is followed by such entries.
//!
//! # Plain files
//! * *By lengths*: the damaged entry's key is whole, and the lengths of its cells lead to an entry, or to the end. Then the gap
//!   is that one entry.
//! * *By search*: otherwise bytes are looked at one after the other. A cell that is found whole is passed over, so that
//!   what clients put into values is not taken for entries, be it a log: such bytes are looked at only where the lengths or
//!   the key of their own cell are damaged. Where an entry is found, all that follow it are looked at as well. They must
//!   reach the end, or (when there is more damage) all be of regions that were read before, and in both cases have sequence
//!   ids above those read before of their regions.
//!
//! # Compressed files
//! Entries share dictionaries, so a damaged one may harm all that come later, see [`crate::format::lru_dictionary`].
//! * *By lengths*: the entry is passed over part by part, and leads to another. So it is known how many strings it brought,
//!   but not which: later entries are served unless they use one of these; such an entry is a gap of its own.
//! * *By search*, as above, but nothing tells a value's bytes from others. Entries must reach the end, and one of them
//!   must be of a region that was read before. From here on only strings are known that were read before the damage, and
//!   those of an entry itself: most entries behind it may be lost, and each is named.
//!
//! # Ends
//! The last entry of a file whose writer died is cut, which is no damage. It is taken for that if no entry is found behind it.
//! If one is, but all that is there of the entry is the beginning of one, both may be true: a length may be damaged, or what
//! was found is a part of a value that is cut. So it is not served, but the file counts as damaged and is kept. In a
//! compressed file nothing tells what a beginning is; there this holds for every entry that reaches past the end.
//!
//! # Bounds
//! A search reads each byte a fixed number of times at most ([`WORK_PER_BYTE`]), whatever the bytes are: when it has cost
//! more, the rest of the file is the gap. Regions are remembered with their last sequence id, a hundred bytes each; of a
//! compressed file, a copy of the dictionaries.

use evenkeel_common::length;
use std::collections::HashMap;
use std::fmt;
use std::io;

use bytes::Bytes;
use evenkeel_common::TableName;
use evenkeel_common::varint::read_varint;
use evenkeel_protocol::pb;
use prost::Message;

use super::plausible::{self, CELL_HEAD_BYTES};
use super::{Input, ParseError, ReadError, ReadState, ResumePoint, WalReader};
use crate::entry::WalEntry;
use crate::format::compression_context::Dictionaries;

/// A search stops when it has looked at so many bytes for each byte that it may pass over, and [`WORK_MIN`] more.
const WORK_PER_BYTE: u64 = 16;
const WORK_MIN: u64 = 16 << 20;
/// What a look at an entry of a compressed file counts as, besides its bytes: dictionaries are copied for it.
const COPY_WORK: u64 = 256 << 10;
/// How many bytes a search looks at together.
const WINDOW_BYTES: usize = 4 << 10;
/// How many entries behind one that was passed over by its lengths are looked at.
const ENTRIES_AFTER: u64 = 4;
/// A copy of the dictionaries is made after so many bytes of entries.
const CHECKPOINT_BYTES: u64 = 1 << 20;
/// How many strings were added when nothing is known.
const UNKNOWN: u64 = u64::MAX / 2;
/// How often dictionaries are brought back for a damaged entry; it takes a millisecond or more each time.
const RESTORES_MAX: u32 = 1000;

/// What a key says of its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryName {
    /// The region's encoded name.
    pub region: Bytes,
    /// The region's table.
    pub table: TableName,
    /// The sequence id.
    pub seq_id: u64,
}

impl EntryName {
    pub(super) fn of(entry: &WalEntry) -> Self {
        Self { region: entry.region.clone(), table: entry.table.clone(), seq_id: entry.seq_id }
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, table, seq_id } = self;
        write!(f, "sequence id {seq_id} of region {} of table {table}", region.escape_ascii())
    }
}

/// A part of a file that holds no entry that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where the first entry that is lost begins.
    pub from: u64,
    /// Where the next one that is whole begins, or where entries end.
    pub to: u64,
    /// What is wrong at `from`.
    pub what: String,
    /// What the first lost entry's key says, where that can be read. It may be damaged, too.
    pub lost: Option<EntryName>,
    /// The last entry before it.
    pub before: Option<EntryName>,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, what, lost, before } = self;
        write!(f, "{} bytes from {from} to {to} cannot be read: {what}", to - from)?;
        if let Some(lost) = lost {
            write!(f, "; lost is, by its key, {lost}")?;
        }
        match before {
            Some(before) => write!(f, "; the entry before is {before}"),
            None => write!(f, "; no entry is before it"),
        }
    }
}

/// What was read so far of a file's regions, and what of its dictionaries.
#[derive(Default)]
pub(super) struct History {
    /// Regions, with their table and the highest sequence id.
    regions: HashMap<Bytes, (TableName, u64)>,
    pub(super) last: Option<EntryName>,
    /// Dictionaries as they were at an offset; `None` for a plain file, and once they are frozen.
    checkpoint: Option<(u64, Dictionaries)>,
    restores: u32,
    /// Bytes that a search has looked at.
    work: u64,
}

impl History {
    pub(super) fn note(&mut self, entry: &WalEntry) {
        match self.regions.get_mut(&entry.region) {
            Some((_, seq_id)) => *seq_id = entry.seq_id.max(*seq_id),
            None => {
                let value = (entry.table.clone(), entry.seq_id);
                // The name of a long key would keep all of it.
                self.regions.insert(Bytes::copy_from_slice(&entry.region), value);
            }
        }
        self.last = Some(EntryName::of(entry));
    }
}

/// An entry that was found and is whole.
struct FoundEntry {
    /// What its key says; `None` when its dictionary items are lost.
    name: Option<EntryName>,
    end: u64,
}

/// Entries in a row.
struct Chain {
    end: u64,
    entries: u64,
    /// Whether entries go on to the end of the file.
    reaches_end: bool,
    /// Whether sequence ids are above those read before.
    ascends: bool,
    /// How many entries are of regions that were read before.
    known: u64,
}

impl WalReader {
    /// After [`WalReader::next`] said that the file is damaged: goes on behind the damage, and gives what is lost. `next`
    /// then gives the entry behind it, or the end. `None` when there was no damage. See the module.
    ///
    /// # Errors
    /// What the storage says.
    pub fn skip_damage(&mut self) -> Result<Option<Gap>, ReadError> {
        let Some(ReadState::Corrupt { offset, what, next }) = &self.state else { return Ok(None) };
        let (from, what, next) = (*offset, what.clone(), *next);
        let lost = self.current_name.take();
        let found = match next {
            ResumePoint::At(at) => Some(at),
            ResumePoint::End => None,
            ResumePoint::Search => self.find_next(from)?,
        };
        let to = found.unwrap_or(self.input.end).max(from);
        let before = self.history.last.clone();
        self.input.seek(to);
        self.state = None;
        Ok(Some(Gap { from, to, what, lost, before }))
    }

    /// Takes a copy of the dictionaries now and then.
    pub(super) fn note_checkpoint(&mut self) {
        let here = self.input.start;
        let Some(context) = &self.compression else { return };
        let is_old = match &self.history.checkpoint {
            Some((offset, _)) => here - offset >= CHECKPOINT_BYTES,
            None => self.history.last.is_none() && self.state.is_none(),
        };
        if is_old {
            self.history.checkpoint = Some((here, context.dictionaries.clone()));
        }
    }

    fn find_next(&mut self, from: u64) -> io::Result<Option<u64>> {
        let by_lengths = match self.compression {
            None => self.end_by_lengths(from)?,
            Some(_) => self.end_by_parts(from)?,
        };
        if by_lengths.is_some() {
            return Ok(by_lengths);
        }
        if self.history.checkpoint.is_some() && !self.restore(from)? {
            self.freeze(UNKNOWN);
        }
        self.search(from + 1)
    }

    /// What an entry is that begins here and reaches past the end of a file that is not closed: a last one that is cut
    /// (`None`), or damaged. Then, where to go on.
    pub(super) fn torn_or_corrupt(&mut self, from: u64) -> io::Result<Option<ResumePoint>> {
        let is_beginning = self.compression.is_some() || self.is_beginning(from)?;
        let found = self.search(from + 1)?;
        Ok(found.map(|_| if is_beginning { ResumePoint::End } else { ResumePoint::Search }))
    }

    /// Where to go on behind an entry that reaches into the trailer. What looks like one may be a part of a value in which the
    /// file is cut: then all that is found before it may be, too.
    pub(super) fn next_before_trailer(&mut self, from: u64) -> io::Result<ResumePoint> {
        let end = std::mem::replace(&mut self.input.end, self.input.file.len());
        let is_cut = self.compression.is_some() || self.is_beginning(from)?;
        self.input.end = end;
        Ok(if is_cut { ResumePoint::End } else { ResumePoint::Search })
    }

    /// What is wrong with a plain entry that was read whole, as what follows it tells, and where to go on: a cell that its
    /// key does not count, or an entry that begins in it and goes on behind it, for bytes of it are gone.
    pub(super) fn contradiction(
        &mut self,
        from: u64,
        end: u64,
    ) -> io::Result<Option<(&'static str, ResumePoint)>> {
        if self.compression.is_some()
            || end == self.input.end
            || plausible::may_be_entry(self.input.peek_at(end, 4)?)
        {
            return Ok(None);
        }
        if self.plain_cell(end)?.is_some() {
            return Ok(Some(("more cells follow than its key counts", ResumePoint::Search)));
        }
        let mut at = from + 1;
        self.history.work = 0;
        while at < end && self.history.work < WORK_MIN {
            let candidate = self.candidate(at)?;
            self.history.work += candidate - at;
            at = candidate + 1;
            if candidate < end && self.plain_entry(candidate)?.is_some_and(|whole| whole.end > end) {
                let chain = self.chain(candidate, u64::MAX)?;
                if self.is_trusted(&chain) {
                    return Ok(Some(("the next entry begins in it", ResumePoint::At(candidate))));
                }
            }
        }
        Ok(None)
    }

    /// Where a plain entry ends by the lengths of its parts, if an entry begins there, or nothing does.
    fn end_by_lengths(&mut self, from: u64) -> io::Result<Option<u64>> {
        let Some((key, mut at)) = self.plain_key(from)? else { return Ok(None) };
        for _ in 0..key.following_kv_count.unwrap_or(0) {
            let Some(len) = self.input.peek_at(at, 4)?.first_chunk::<4>().map(|len| u32::from_be_bytes(*len))
            else {
                return Ok(None);
            };
            at += 4 + u64::from(len);
            if at > self.input.end {
                return Ok(None);
            }
        }
        let leads_on = at == self.input.end || self.plain_entry(at)?.is_some() || self.ends_torn(at)?;
        Ok(leads_on.then_some(at))
    }

    /// Whether the file is not closed and ends in the entry that begins here.
    fn ends_torn(&mut self, at: u64) -> io::Result<bool> {
        Ok(!self.closed && self.is_beginning(at)?)
    }

    /// A whole key that looks like one, and where it ends.
    fn plain_key(&mut self, at: u64) -> io::Result<Option<(pb::WalKey, u64)>> {
        let head = self.input.peek_at(at, 10)?;
        let Some((len, len_bytes)) = read_varint(head).filter(|_| plausible::may_be_entry(head)) else {
            return Ok(None);
        };
        if len > plausible::KEY_BYTES_MAX as u64 {
            return Ok(None);
        }
        let (from, len) = (at + len_bytes as u64, length::index(len));
        self.history.work += len as u64;
        let key = self.input.peek_at(from, len)?;
        if key.len() < len || !plausible::is_key(key, true, false) {
            return Ok(None);
        }
        Ok(pb::WalKey::decode(key).ok().map(|key| (key, from + len as u64)))
    }

    /// A plain entry that is whole and looks like one in every part.
    fn plain_entry(&mut self, from: u64) -> io::Result<Option<FoundEntry>> {
        let Some((key, mut at)) = self.plain_key(from)? else { return Ok(None) };
        for _ in 0..key.following_kv_count.unwrap_or(0) {
            let Some(end) = self.plain_cell(at)? else { return Ok(None) };
            at = end;
        }
        let (region, seq_id) = (key.encoded_region_name, key.log_sequence_number);
        let Ok(table) = TableName::from_bytes(&key.table_name) else { return Ok(None) };
        let follows_cell = at < self.input.end && self.plain_cell(at)?.is_some();
        let name = Some(EntryName { region, table, seq_id });
        Ok((!follows_cell).then_some(FoundEntry { name, end: at }))
    }

    /// Where a whole plain cell ends.
    fn plain_cell(&mut self, at: u64) -> io::Result<Option<u64>> {
        let Some(len) = plausible::may_be_cell(self.input.peek_at(at, CELL_HEAD_BYTES)?) else {
            return Ok(None);
        };
        if at + len as u64 > self.input.end {
            return Ok(None);
        }
        self.history.work += len as u64;
        let is_cell = plausible::is_cell(self.input.peek_at(at + 4, len - 4)?);
        Ok(is_cell.then_some(at + len as u64))
    }

    /// Whether all that is left from here on is the beginning of one plain entry.
    fn is_beginning(&mut self, from: u64) -> io::Result<bool> {
        let end = self.input.end;
        let head = self.input.peek_at(from, 10)?;
        let Some((len, len_bytes)) = read_varint(head) else {
            return Ok(head.len() < 10 && head.iter().all(|byte| byte & 0x80 != 0));
        };
        let (key_at, key_len) = (from + len_bytes as u64, length::index(len));
        if len == 0 || len > super::KEY_BYTES_MAX as u64 {
            return Ok(false);
        }
        if key_at + len > end {
            return Ok(plausible::is_key(self.input.peek_at(key_at, key_len)?, false, false));
        }
        let Some((key, mut at)) = self.plain_key(from)? else { return Ok(false) };
        for _ in 0..key.following_kv_count.unwrap_or(0) {
            match self.plain_cell(at)? {
                Some(cell_end) => at = cell_end,
                None => return self.is_cell_beginning(at),
            }
        }
        Ok(false)
    }

    fn is_cell_beginning(&mut self, at: u64) -> io::Result<bool> {
        let left = self.input.end - at;
        let Some(len) = self.input.peek_at(at, 4)?.first_chunk::<4>().map(|len| u32::from_be_bytes(*len))
        else {
            return Ok(true);
        };
        if 4 + u64::from(len) <= left || len as usize > super::ENTRY_BYTES_MAX {
            return Ok(false);
        }
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        Ok(plausible::is_cell_beginning(self.input.peek_at(at, left)?))
    }

    /// Where a damaged entry of a compressed file ends by its parts, if an entry begins there or nothing does. The
    /// dictionaries are as behind it then, with what it brought unknown.
    fn end_by_parts(&mut self, from: u64) -> io::Result<Option<u64>> {
        if !self.restore(from)? {
            return Ok(None);
        }
        self.input.seek(from);
        self.set_skipping(true);
        let skipped = self.parse_entry();
        self.set_skipping(false);
        let end = self.input.start + self.input.at as u64;
        match skipped {
            Err(ParseError::Lost) => {}
            Err(ParseError::Io(error)) => return Err(error),
            _ => return Ok(None),
        }
        let (current_name, behind) = (self.current_name.take(), self.dictionaries());
        let chain = self.chain(end, ENTRIES_AFTER)?;
        self.current_name = current_name;
        self.restore_dictionaries(behind.clone());
        let leads_on =
            end == self.input.end || chain.entries >= ENTRIES_AFTER || chain.entries > 0 && chain.reaches_end;
        if leads_on {
            self.history.checkpoint = behind.map(|dictionaries| (end, dictionaries));
        }
        Ok(leads_on.then_some(end))
    }

    /// Brings the dictionaries back to what they were before the entry at an offset; false when that is not possible.
    fn restore(&mut self, to: u64) -> io::Result<bool> {
        let Some((offset, dictionaries)) = self.history.checkpoint.clone() else { return Ok(false) };
        self.history.restores += 1;
        if self.history.restores > RESTORES_MAX || offset > to {
            return Ok(false);
        }
        self.restore_dictionaries(Some(dictionaries));
        self.input.seek(offset);
        while self.input.start < to {
            match self.parse_entry() {
                Ok(_) | Err(ParseError::Lost) => self.input.start_next(),
                Err(ParseError::Io(error)) => return Err(error),
                Err(_) => return Ok(false),
            }
        }
        Ok(self.input.start == to)
    }

    fn dictionaries(&self) -> Option<Dictionaries> {
        self.compression.as_ref().map(|context| context.dictionaries.clone())
    }

    fn restore_dictionaries(&mut self, dictionaries: Option<Dictionaries>) {
        if let (Some(context), Some(dictionaries)) = (&mut self.compression, dictionaries) {
            context.dictionaries = dictionaries;
        }
    }

    fn set_skipping(&mut self, is_skipping: bool) {
        self.compression.iter_mut().for_each(|context| context.is_skipping = is_skipping);
    }

    /// The next entry from an offset on that is whole beyond doubt. The dictionaries of a compressed file are frozen by it.
    fn search(&mut self, from: u64) -> io::Result<Option<u64>> {
        let before = self.dictionaries();
        self.history.checkpoint = None;
        let work_max = (self.input.end - from.min(self.input.end)).saturating_mul(WORK_PER_BYTE) + WORK_MIN;
        let mut at = from;
        self.history.work = 0;
        while at < self.input.end && self.history.work < work_max {
            let candidate = self.candidate(at)?;
            self.history.work += candidate + 1 - at;
            at = candidate;
            if at >= self.input.end {
                break;
            }
            if let Some(end) = self.skippable_cell(at)? {
                at = end;
                continue;
            }
            if before.is_some() {
                self.history.work += COPY_WORK;
                self.restore_dictionaries(before.clone());
                self.freeze(at + 1 - from);
            }
            let chain = self.chain(at, u64::MAX)?;
            if chain.entries > 0 && self.is_trusted(&chain) {
                self.restore_dictionaries(before);
                self.freeze(at + 1 - from);
                return Ok(Some(at));
            }
            at = chain.end.max(at + 1);
        }
        if self.history.work >= work_max {
            tracing::warn!(file = %self.path.display(), at, "the search for entries behind damage is given up");
        }
        self.restore_dictionaries(before);
        self.freeze(self.input.end - from.min(self.input.end) + 1);
        Ok(None)
    }

    fn freeze(&mut self, bytes: u64) {
        self.compression.iter_mut().for_each(|context| context.dictionaries.freeze(bytes));
    }

    fn is_trusted(&self, chain: &Chain) -> bool {
        let is_long = match self.compression {
            None => chain.reaches_end || chain.known == chain.entries,
            Some(_) => chain.reaches_end && chain.known > 0,
        };
        is_long && chain.ascends
    }

    /// Where the next entry or plain cell may begin, by its first bytes.
    fn candidate(&mut self, from: u64) -> io::Result<u64> {
        let cells = self.compression.is_none();
        let end = self.input.end;
        let mut at = from;
        while at < end {
            let bytes = self.input.peek_at(at, WINDOW_BYTES)?;
            let is_last = at + bytes.len() as u64 == end;
            let looked_at = if is_last { bytes.len() } else { bytes.len() - CELL_HEAD_BYTES };
            let may_begin = |i: &usize| {
                let bytes = &bytes[*i..];
                plausible::may_be_entry(bytes) || cells && plausible::may_be_cell(bytes).is_some()
            };
            match (0..looked_at).find(may_begin) {
                Some(i) => return Ok(at + i as u64),
                None => at += looked_at as u64,
            }
        }
        Ok(end)
    }

    /// The end of a whole cell that begins here and is followed by another, by an entry, or by nothing.
    fn skippable_cell(&mut self, at: u64) -> io::Result<Option<u64>> {
        if self.compression.is_some() {
            return Ok(None);
        }
        let Some(end) = self.plain_cell(at)? else { return Ok(None) };
        let goes_on = end == self.input.end
            || self.plain_cell(end)?.is_some()
            || self.plain_key(end)?.is_some()
            || !self.closed && (self.is_cell_beginning(end)? || self.is_beginning(end)?);
        Ok(goes_on.then_some(end))
    }

    /// Entries in a row from here on, so many at most.
    fn chain(&mut self, from: u64, entries_max: u64) -> io::Result<Chain> {
        let mut chain = Chain { end: from, entries: 0, reaches_end: false, ascends: true, known: 0 };
        let mut seen: HashMap<Bytes, u64> = HashMap::new();
        while chain.end < self.input.end && chain.entries < entries_max {
            let whole = match self.compression {
                None => self.plain_entry(chain.end)?,
                Some(_) => self.compressed_entry(chain.end)?,
            };
            let Some(whole) = whole else { break };
            if let Some(name) = whole.name {
                let known = self.history.regions.get(&name.region);
                chain.known += u64::from(known.is_some_and(|(table, _)| *table == name.table));
                let last = seen.insert(name.region, name.seq_id).or(known.map(|(_, seq_id)| *seq_id));
                chain.ascends &= last.is_none_or(|last| name.seq_id > last);
            }
            chain.entries += 1;
            chain.end = whole.end;
        }
        chain.reaches_end =
            chain.end == self.input.end || chain.entries > 0 && self.is_torn_after(chain.end)?;
        Ok(chain)
    }

    fn is_torn_after(&mut self, at: u64) -> io::Result<bool> {
        if self.closed {
            return Ok(false);
        }
        if self.compression.is_none() {
            return self.is_beginning(at);
        }
        self.input.seek(at);
        match self.parse_entry() {
            Err(ParseError::Torn) => Ok(true),
            Err(ParseError::Io(error)) => Err(error),
            _ => Ok(false),
        }
    }

    /// An entry of a compressed file that can be passed over, be its strings known or not.
    fn compressed_entry(&mut self, from: u64) -> io::Result<Option<FoundEntry>> {
        let head = self.input.peek_at(from, 10)?;
        let Some((len, len_bytes)) = read_varint(head).filter(|_| plausible::may_be_entry(head)) else {
            return Ok(None);
        };
        let len = length::index(len.min(plausible::KEY_BYTES_MAX as u64));
        if !plausible::is_key(self.input.peek_at(from + len_bytes as u64, len)?, true, true) {
            return Ok(None);
        }
        self.input.seek(from);
        let parsed = self.parse_entry();
        self.history.work += self.input.at as u64;
        let name = match parsed {
            Ok(entry) => Some(EntryName::of(&entry)),
            Err(ParseError::Lost) => self.current_name.take(),
            Err(ParseError::Io(error)) => return Err(error),
            Err(_) => return Ok(None),
        };
        Ok(Some(FoundEntry { name, end: from + self.input.at as u64 }))
    }
}

impl Input {
    /// The current entry begins at an offset.
    pub(super) fn seek(&mut self, offset: u64) {
        let buffered_from = self.start - self.consumed as u64;
        match offset.checked_sub(buffered_from).and_then(|at| usize::try_from(at).ok()) {
            Some(at) if at <= self.buffer.len() => self.consumed = at,
            _ => {
                self.buffer.clear();
                self.consumed = 0;
            }
        }
        self.start = offset;
        self.at = 0;
    }

    /// Bytes at an offset, so many or as there are before the end. The current entry begins there from here on.
    fn peek_at(&mut self, offset: u64, bytes: usize) -> io::Result<&[u8]> {
        self.seek(offset.min(self.end));
        let left = usize::try_from(self.end - self.start).unwrap_or(usize::MAX);
        let bytes = bytes.min(left).min(super::ENTRY_BYTES_MAX);
        match self.fill(bytes) {
            Err(ParseError::Io(error)) => Err(error),
            Err(_) => Ok(&[]),
            Ok(()) => Ok(&self.buffer[self.consumed..self.consumed + bytes]),
        }
    }
}
