//! Resynchronization after corruption: [`WalReader::skip_damage`] finds the next entry that is
//! certainly sound.
//!
//! The format has no entry marks: an entry begins where the previous one ends, which only lengths
//! determine. So the entries that can be found after corruption depend on which bytes are corrupt.
//! Nothing is guessed: an entry is returned only if all of it lies outside of the gap, every byte
//! of it that can be checked is plausible ([`super::plausibility`]), and such entries follow it. A
//! checksum is verified when the entry is read: the search does not need it.
//!
//! # Plain files
//! * *By lengths*: the corrupt entry's key is intact, and the lengths of its cells lead to other
//!   entries, or to the end. Then the gap is that one entry. A few of those entries are examined as
//!   in a search, because a corrupt length may lead into a value that contains a log.
//! * *By search*: otherwise the bytes are examined in turn. An intact cell is skipped
//!   as a whole, so that bytes within values, even those of a log, are not taken for entries: such
//!   bytes are examined only if the lengths or the key of their own cell are corrupt. If an entry
//!   is found, all entries that follow it are examined as well. They must reach the end, or (if
//!   there is more corruption) all belong to regions that were read before; and in both cases their
//!   sequence ids must be above those read before for their regions.
//!
//! # Compressed files
//! Entries share dictionaries, so a corrupt one may affect all later ones, see
//! [`crate::format::lru_dictionary`].
//! * *By lengths*: the entry is skipped part by part, and leads to another. So the number of
//!   strings that it added is known, but not their contents: later entries are returned unless they
//!   use one of these; each entry that does is a separate gap.
//! * *By search*, as above, but the bytes of values cannot be distinguished from others. Entries
//!   must reach the end, and one of them must belong to a region that was read before. After that
//!   only strings read before the corruption, and those within an entry, are known: most later
//!   entries may be lost, and each is named.
//! # Ends
//! The last entry of a file whose writer died is torn, which is not corruption. A torn entry is
//! assumed if no entry is found after it. If one is found, but all remaining bytes are a plausible
//! beginning of the entry, both are possible: a length may be corrupt, or the found entry is a part
//! of a torn value. So it is not returned, but the file counts as corrupt and is kept. In a
//! compressed file the beginning of an entry cannot be checked; there this applies to every entry
//! that reaches past the end.
//!
//! # Bounds
//! A search reads each byte a bounded number of times ([`WORK_PER_BYTE`]), regardless of their
//! content: beyond that the rest of the file is the gap. Regions are remembered with their last
//! sequence id, about a hundred bytes each; for a compressed file, also a copy of the dictionaries.

use evenkeel_common::length;
use std::collections::HashMap;
use std::fmt;
use std::io;

use bytes::Bytes;
use evenkeel_common::TableName;
use evenkeel_common::varint::read_varint;
use evenkeel_protocol::pb;
use prost::Message;

use super::plausibility::{self, CELL_HEAD_BYTES};
use super::{Input, ParseError, ReadError, ReadState, ResumePoint, WalReader};
use crate::entry::WalEntry;
use crate::format::compression_context::Dictionaries;

/// A search ends after it has examined this many bytes for each byte to skip, plus [`WORK_MIN`].
const WORK_PER_BYTE: u64 = 16;
const WORK_MIN: u64 = 16 << 20;
/// The cost of examining an entry of a compressed file, besides its bytes: the dictionaries are
/// copied.
const COPY_WORK: u64 = 256 << 10;
/// The bytes that a search examines at once.
const WINDOW_BYTES: usize = 4 << 10;
/// The number of entries to examine after one that was skipped by its lengths.
const ENTRIES_AFTER: u64 = 4;
/// The bytes of entries between copies of the dictionaries.
const CHECKPOINT_BYTES: u64 = 1 << 20;
/// The assumed number of added strings if nothing is known.
const UNKNOWN: u64 = u64::MAX / 2;
/// The maximum number of restorations of dictionaries for corrupt entries; each takes a millisecond
/// or more.
const DICTIONARY_RESTORES_MAX: u32 = 1000;

/// The identity of an entry, from its key.
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

/// A part of a file without readable entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The offset of the first lost entry.
    pub from: u64,
    /// The offset of the next sound entry, or the end of the entries.
    pub to: u64,
    /// The fault at `from`.
    pub what: String,
    /// The name of the first lost entry, if its key can be read. It may be corrupt, too.
    pub lost: Option<EntryName>,
    /// The last entry before the gap.
    pub before: Option<EntryName>,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, what, lost, before } = self;
        write!(f, "{} bytes from {from} to {to} cannot be read: {what}", to - from)?;
        if let Some(lost) = lost {
            write!(f, "; by its key, {lost} is lost")?;
        }
        match before {
            Some(before) => write!(f, "; the entry before is {before}"),
            None => write!(f, "; no entry is before it"),
        }
    }
}

/// The regions and dictionaries of the entries read so far.
#[derive(Default)]
pub(super) struct ReadHistory {
    /// Regions, with their table and the highest sequence id.
    regions: HashMap<Bytes, (TableName, u64)>,
    pub(super) last: Option<EntryName>,
    /// The dictionaries at an offset; `None` for a plain file, and after they are frozen.
    checkpoint: Option<(u64, Dictionaries)>,
    restores: u32,
    /// Bytes that a search has examined.
    work: u64,
}

impl ReadHistory {
    pub(super) fn note(&mut self, entry: &WalEntry) {
        match self.regions.get_mut(&entry.region) {
            Some((_, seq_id)) => *seq_id = entry.seq_id.max(*seq_id),
            None => {
                let value = (entry.table.clone(), entry.seq_id);
                // A slice of the key would keep all of it in memory.
                self.regions.insert(Bytes::copy_from_slice(&entry.region), value);
            }
        }
        self.last = Some(EntryName::of(entry));
    }
}

/// A sound entry that was found.
struct FoundEntry {
    /// Its name; `None` if its dictionary items are lost.
    name: Option<EntryName>,
    end: u64,
}

/// Consecutive entries.
struct Chain {
    end: u64,
    entries: u64,
    /// Whether the entries continue to the end of the file.
    reaches_end: bool,
    /// Whether sequence ids are above those read before.
    ascends: bool,
    /// The number of entries of regions that were read before.
    known: u64,
}

impl WalReader {
    /// Skips corruption that [`WalReader::next`] reported, and returns what is lost. `next` then
    /// returns the entry after it, or the end. `None` if there was no corruption. See the module.
    ///
    /// # Errors
    /// [`ReadError::Io`] if the storage fails.
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

    /// Copies the dictionaries every [`CHECKPOINT_BYTES`].
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

    /// Classifies an entry at `from` that reaches past the end of an unclosed file: a torn last
    /// entry (`None`), or a corrupt one, with the position where reading can resume.
    pub(super) fn torn_or_corrupt(&mut self, from: u64) -> io::Result<Option<ResumePoint>> {
        let is_beginning = self.compression.is_some() || self.is_beginning(from)?;
        let found = self.search(from + 1)?;
        Ok(found.map(|_| if is_beginning { ResumePoint::End } else { ResumePoint::Search }))
    }

    /// Where to resume after an entry that reaches into the trailer. The apparent trailer may be a
    /// part of a value in which the file is torn; then all entries found before it may be, too.
    pub(super) fn next_before_trailer(&mut self, from: u64) -> io::Result<ResumePoint> {
        let end = std::mem::replace(&mut self.input.end, self.input.file.len());
        let is_cut = self.compression.is_some() || self.is_beginning(from)?;
        self.input.end = end;
        Ok(if is_cut { ResumePoint::End } else { ResumePoint::Search })
    }

    /// The fault of a complete plain entry without checksum that contradicts the bytes after it,
    /// with the position where reading can resume: a cell that its key does not count, or an entry
    /// that begins within it and continues after it, because bytes of it are missing.
    pub(super) fn contradiction(
        &mut self,
        from: u64,
        end: u64,
    ) -> io::Result<Option<(&'static str, ResumePoint)>> {
        if self.header.entry_checksums()
            || self.compression.is_some()
            || end == self.input.end
            || plausibility::may_be_entry(self.input.peek_at(end, 4)?)
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

    /// The end of a plain entry by the lengths of its parts, if trusted entries or the end of the
    /// file follow.
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
        if at == self.input.end || self.ends_torn(at)? {
            return Ok(Some(at));
        }
        let chain = self.chain(at, ENTRIES_AFTER)?;
        let leads_on =
            chain.entries > 0 && (self.is_trusted(&chain) || chain.entries >= ENTRIES_AFTER && chain.ascends);
        Ok(leads_on.then_some(at))
    }

    /// Returns true if the file is not closed and ends within the entry at this offset.
    fn ends_torn(&mut self, at: u64) -> io::Result<bool> {
        Ok(!self.closed && self.is_beginning(at)?)
    }

    /// A complete and plausible key, and its end.
    fn plain_key(&mut self, at: u64) -> io::Result<Option<(pb::WalKey, u64)>> {
        let head = self.input.peek_at(at, 10)?;
        let Some((len, len_bytes)) = read_varint(head).filter(|_| plausibility::may_be_entry(head)) else {
            return Ok(None);
        };
        if len > plausibility::KEY_BYTES_MAX as u64 {
            return Ok(None);
        }
        let (from, len) = (at + len_bytes as u64, length::index(len));
        self.history.work += len as u64;
        let key = self.input.peek_at(from, len)?;
        if key.len() < len || !plausibility::is_key(key, true, false) {
            return Ok(None);
        }
        Ok(pb::WalKey::decode(key).ok().map(|key| (key, from + len as u64)))
    }

    /// A complete plain entry that is plausible in every part.
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

    /// The end of a complete plain cell.
    fn plain_cell(&mut self, at: u64) -> io::Result<Option<u64>> {
        let Some(len) = plausibility::may_be_cell(self.input.peek_at(at, CELL_HEAD_BYTES)?) else {
            return Ok(None);
        };
        if at + len as u64 > self.input.end {
            return Ok(None);
        }
        self.history.work += len as u64;
        let is_cell = plausibility::is_cell(self.input.peek_at(at + 4, len - 4)?);
        Ok(is_cell.then_some(at + len as u64))
    }

    /// Returns true if all remaining bytes are the beginning of one plain entry.
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
            return Ok(plausibility::is_key(self.input.peek_at(key_at, key_len)?, false, false));
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
        Ok(plausibility::is_cell_beginning(self.input.peek_at(at, left)?))
    }

    /// The end of a corrupt entry of a compressed file by its parts, if an entry or the end of the
    /// file follows. The dictionaries then have the state after it, with its strings unknown.
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

    /// Restores the dictionaries to their state before the entry at an offset. Returns false if
    /// that is not possible.
    fn restore(&mut self, to: u64) -> io::Result<bool> {
        let Some((offset, dictionaries)) = self.history.checkpoint.clone() else { return Ok(false) };
        self.history.restores += 1;
        if self.history.restores > DICTIONARY_RESTORES_MAX || offset > to {
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

    /// Searches for the next entry that is certainly sound. Freezes the dictionaries of a
    /// compressed file.
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
            tracing::warn!(file = %self.path.display(), at, "the search for entries after corruption was abandoned");
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

    /// The next offset at which an entry or plain cell may begin, judged by its first bytes.
    fn candidate(&mut self, from: u64) -> io::Result<u64> {
        let cells = self.compression.is_none();
        let end = self.input.end;
        let mut at = from;
        while at < end {
            let bytes = self.input.peek_at(at, WINDOW_BYTES)?;
            let is_last = at + bytes.len() as u64 == end;
            let looked_at = if is_last { bytes.len() } else { bytes.len() - CELL_HEAD_BYTES };
            let may_begin = |i: &usize| {
                let bytes = bytes.get(*i..).unwrap_or_default();
                plausibility::may_be_entry(bytes) || cells && plausibility::may_be_cell(bytes).is_some()
            };
            match (0..looked_at).find(may_begin) {
                Some(i) => return Ok(at + i as u64),
                None => at += looked_at as u64,
            }
        }
        Ok(end)
    }

    /// The end of a complete cell at this offset that is followed by another, by an entry, or by
    /// the end.
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

    /// Follows consecutive entries, at most `entries_max`.
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

    /// An entry of a compressed file that can be skipped, whether its strings are known or not.
    fn compressed_entry(&mut self, from: u64) -> io::Result<Option<FoundEntry>> {
        let head = self.input.peek_at(from, 10)?;
        let Some((len, len_bytes)) = read_varint(head).filter(|_| plausibility::may_be_entry(head)) else {
            return Ok(None);
        };
        let len = length::index(len.min(plausibility::KEY_BYTES_MAX as u64));
        if !plausibility::is_key(self.input.peek_at(from + len_bytes as u64, len)?, true, true) {
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
    /// Makes `offset` the start of the current entry.
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

    /// Up to `bytes` bytes at an offset, bounded by the end of the entries. The offset becomes the
    /// start of the current entry.
    fn peek_at(&mut self, offset: u64, bytes: usize) -> io::Result<&[u8]> {
        self.seek(offset.min(self.end));
        let left = usize::try_from(self.end - self.start).unwrap_or(usize::MAX);
        let bytes = bytes.min(left).min(super::ENTRY_BYTES_MAX);
        match self.fill(bytes) {
            Err(ParseError::Io(error)) => Err(error),
            Err(_) => Ok(&[]),
            Ok(()) => Ok(self.buffer.get(self.consumed..self.consumed + bytes).unwrap_or_default()),
        }
    }
}
