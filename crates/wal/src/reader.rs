//! [`WalReader`]: the entries of one file, front to back.
//!
//! | module | contents |
//! |---|---|
//! | `plausibility` | plausibility checks of entries and cells at arbitrary offsets |
//! | `resync` | [`Gap`]s: unreadable parts, and the search for the next sound entry |
//!
//! A log ends in one of three ways ([`WalEnd`]): with a trailer, if it was closed; at the end of an
//! entry; or within an entry, if its writer died. The last case is normal, and the incomplete entry
//! is dropped. Bytes that a crash of the writer cannot explain are corruption
//! ([`ReadError::Corrupt`]), which is skipped only if the caller asks for it
//! ([`WalReader::skip_damage`], which returns what is lost):
//! * an entry that ends early although the file has a trailer, or although entries follow,
//! * inconsistent lengths, malformed keys, dictionary indexes that were never written,
//! * a checksum ([`crate::format::checksum`]) that the entry's bytes contradict.
//!
//! A crash of the machine may leave zeros in place of the last bytes, because a file's length can
//! reach the disk before its contents. An entry that cannot be read because its bytes are zeros *up
//! to the end of the file* counts as torn. So does one with a wrong checksum if it ends in such
//! zeros, [`TORN_ZEROS_MIN`] of them or more up to the end of the file: values often end in a few.
//!
//! Files that HBase wrote have no checksums. In them, a changed byte of a value, a timestamp or a
//! name is not detected. Changed lengths and impossible contents are. A corrupt length that points
//! past the end of a file without trailer looks like a crash if no entry follows.
//!
//! Memory: one buffer, as long as the longest entry and at least [`CHUNK_BYTES`]. Entries are
//! bounded by [`ENTRY_BYTES_MAX`], and no memory is allocated for bytes that are not in the file.
//! The exception is a dictionary-compressed cell, which is bounded by the same limit, and its value
//! by the maximal expansion of the codec.

mod plausibility;
mod resync;

use evenkeel_common::length;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::varint::read_varint;
use evenkeel_common::{CellRef, HBaseError, KeyValue, TableName};
use evenkeel_fs::{FileSystem, RandomAccessFile};
use evenkeel_protocol::pb;
use prost::Message;

use crate::entry::{ClusterUuid, FamilyScope, Scope, WalEntry};
use crate::format::checksum;
use crate::format::compression_context::{CompressionContext, DictionaryKind};
use crate::format::{HEADER_BYTES_MAX, KEY_BYTES_MAX, MAGIC, TRAILER, TRAILER_MAGIC};
use crate::names::RECOVERED_EDITS_DIR;

pub use self::resync::{EntryName, Gap};

/// The longest entry that is read, after decompression.
pub const ENTRY_BYTES_MAX: usize = 1 << 30;
/// A wrong checksum is explained by this many zeros at the end of the file.
pub const TORN_ZEROS_MIN: usize = 16;
/// The bytes of one read from the file.
pub const CHUNK_BYTES: usize = 256 << 10;
/// A longer message of a trailer is corrupt; the present one has no fields.
const TRAILER_BYTES_MAX: i64 = 1 << 20;
/// The writers whose files can be read unless they are encrypted, by `writer_cls_name`.
const WRITER_CLASSES: [&str; 4] = [
    "ProtobufLogWriter",
    "AsyncProtobufLogWriter",
    "SecureProtobufLogWriter",
    "SecureAsyncProtobufLogWriter",
];

/// The setting that encrypts WALs.
const ENCRYPTION_KEY: &str = "hbase.regionserver.wal.encryption";

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalEnd {
    /// With a trailer: the file was closed.
    Closed,
    /// After an entry: the file is being written, or its writer died.
    Open,
    /// Within an entry, a header or a trailer, which is dropped.
    Torn {
        /// The dropped bytes after the last complete entry.
        bytes: u64,
    },
}

/// Why a file cannot be read further.
#[derive(Debug)]
pub enum ReadError {
    /// The storage failed; a retry may succeed.
    Io(io::Error),
    /// The file is corrupt; a retry is useless. Entries read before are sound.
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The offset of the entry that cannot be read.
        offset: u64,
        /// The fault.
        what: String,
    },
    /// The file requires a feature that this reader lacks, such as decryption.
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The required feature.
        what: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Corrupt { path, offset, what } => {
                write!(f, "{}: corrupt WAL entry at {offset}: {what}", path.display())
            }
            Self::Unsupported { path, what } => write!(f, "{}: {what}", path.display()),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ReadError> for HBaseError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => error.into(),
            other => Self::io(other.to_string()),
        }
    }
}

/// Why an entry could not be parsed.
#[derive(Debug)]
pub(crate) enum ParseError {
    /// The bytes end within the entry.
    Torn,
    Corrupt(String),
    /// The entry is complete, but uses strings of a dictionary that were lost with another entry.
    /// It was consumed.
    Lost,
    /// The entry is complete, but its checksum does not match.
    Changed,
    Io(io::Error),
}

impl From<io::Error> for ParseError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A shorthand for `ParseError::Corrupt`.
pub(crate) fn corrupt<T>(what: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError::Corrupt(what.into()))
}

/// Reads one file. After an error or the end, [`WalReader::next`] returns the same result again.
pub struct WalReader {
    path: PathBuf,
    header: pb::WalHeader,
    compression: Option<CompressionContext>,
    input: Input,
    /// Whether the file has a trailer.
    closed: bool,
    state: Option<ReadState>,
    /// The name of the entry read last; `None` if its key could not be read.
    current_name: Option<EntryName>,
    history: resync::ReadHistory,
}

#[derive(Clone, Debug)]
enum ReadState {
    Ended(WalEnd),
    Corrupt { offset: u64, what: String, next: ResumePoint },
}

/// Where reading can resume after corruption.
#[derive(Clone, Copy, Debug)]
enum ResumePoint {
    /// The next entry must be searched for.
    Search,
    At(u64),
    /// At the end of the file: earlier candidates cannot be distinguished from other bytes.
    End,
}

impl WalReader {
    /// Opens a file and reads its header. A file that ends within its header has no entries. If the
    /// file is not a WAL, [`WalReader::next`] returns the error.
    ///
    /// # Errors
    /// [`ReadError::Io`] if the storage fails; [`ReadError::Unsupported`] if the file is encrypted
    /// or compresses values by an unsupported codec.
    pub fn open(fs: &dyn FileSystem, path: &Path) -> Result<Self, ReadError> {
        let file = fs.open(path)?;
        let mut input = Input::new(file);
        let mut state = None;
        let header = match read_header(&mut input) {
            Ok(header) => header,
            Err(ParseError::Torn) => {
                state = Some(ReadState::Ended(WalEnd::Torn { bytes: input.end }));
                pb::WalHeader::default()
            }
            Err(ParseError::Io(error)) => return Err(error.into()),
            Err(stop) => {
                let what = if let ParseError::Corrupt(what) = stop { what } else { String::new() };
                state = Some(ReadState::Corrupt { offset: 0, what, next: ResumePoint::Search });
                input.seek(0);
                pb::WalHeader::default()
            }
        };
        let unsupported = |what: String| ReadError::Unsupported { path: path.to_owned(), what };
        if header.encryption_key.is_some() {
            return Err(unsupported(format!(
                "the WAL is encrypted ({ENCRYPTION_KEY}), which is not supported"
            )));
        }
        let recovered_edits = path.components().any(|part| part.as_os_str() == RECOVERED_EDITS_DIR);
        let compression = CompressionContext::of_header(&header, recovered_edits).map_err(unsupported)?;
        input.start_next();
        let closed = input.find_trailer()?;
        let (path, history) = (path.to_owned(), resync::ReadHistory::default());
        let mut reader =
            Self { path, header, compression, input, closed, state, current_name: None, history };
        reader.note_checkpoint();
        Ok(reader)
    }

    /// The next entry, or `None` at the end.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`], or [`ReadError::Io`] if the storage fails.
    #[allow(clippy::should_implement_trait)] // an error is not one of many items: it is the end
    pub fn next(&mut self) -> Result<Option<WalEntry>, ReadError> {
        if self.state.is_none() {
            match self.try_next() {
                Ok(Some(entry)) => return Ok(Some(entry)),
                Ok(None) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match &self.state {
            Some(ReadState::Corrupt { offset, what, .. }) => {
                Err(ReadError::Corrupt { path: self.path.clone(), offset: *offset, what: what.clone() })
            }
            _ => Ok(None),
        }
    }

    /// The offset of the next entry: the end of the last complete one.
    pub fn position(&self) -> u64 {
        self.input.start
    }

    /// How the file ends, after [`WalReader::next`] has returned `None`.
    pub fn end(&self) -> Option<WalEnd> {
        match self.state {
            Some(ReadState::Ended(end)) => Some(end),
            _ => None,
        }
    }

    /// The header.
    pub fn header(&self) -> &pb::WalHeader {
        &self.header
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next entry, or `None` with `state` set.
    fn try_next(&mut self) -> io::Result<Option<WalEntry>> {
        if self.input.start == self.input.end {
            let end = if self.closed { WalEnd::Closed } else { WalEnd::Open };
            self.state = Some(ReadState::Ended(end));
            return Ok(None);
        }
        let start = self.input.start;
        match self.parse_verified() {
            Ok(entry) => {
                let end = start + self.input.at as u64;
                if let Some((what, next)) = self.contradiction(start, end)? {
                    self.state = Some(corrupt_at(start, what.to_owned(), next));
                    self.input.seek(start);
                    return Ok(None);
                }
                self.input.seek(end);
                self.history.note(&entry);
                self.note_checkpoint();
                return Ok(Some(entry));
            }
            Err(ParseError::Io(error)) => {
                // The same entry can be retried, unless a dictionary has been changed by a part of
                // it.
                self.input.seek(start);
                if self.compression.is_some() {
                    self.state =
                        Some(corrupt_at(start, format!("reading failed: {error}"), ResumePoint::End));
                }
                return Err(error);
            }
            Err(ParseError::Lost) => {
                let next = ResumePoint::At(start + self.input.at as u64);
                let what = "it uses dictionary strings of a corrupt entry".to_owned();
                self.state = Some(corrupt_at(start, what, next));
            }
            Err(ParseError::Torn) => {
                let current_name = self.current_name.take();
                self.state = Some(self.state_of_torn(start)?);
                self.current_name = current_name;
            }
            Err(ParseError::Changed) => {
                let is_cut = !self.closed && self.input.ends_in_zeros(TORN_ZEROS_MIN)?;
                let what = "its checksum does not match".to_owned();
                self.state = Some(self.torn_or(is_cut, start, what));
            }
            Err(ParseError::Corrupt(what)) => {
                let is_cut =
                    !self.closed && (self.input.is_partial_trailer()? || self.input.ends_in_zeros(1)?);
                self.state = Some(self.torn_or(is_cut, start, what));
            }
        }
        self.input.seek(start);
        Ok(None)
    }

    fn state_of_torn(&mut self, start: u64) -> io::Result<ReadState> {
        if self.closed {
            let next = self.next_before_trailer(start)?;
            return Ok(corrupt_at(start, "it runs into the trailer".to_owned(), next));
        }
        let what = "it runs past the end of the file, and entries follow".to_owned();
        Ok(match self.torn_or_corrupt(start)? {
            None => self.torn_at(start),
            Some(next) => corrupt_at(start, what, next),
        })
    }

    /// The state at a torn entry.
    fn torn_at(&self, start: u64) -> ReadState {
        ReadState::Ended(WalEnd::Torn { bytes: self.input.end - start })
    }

    fn torn_or(&self, is_cut: bool, start: u64, what: String) -> ReadState {
        if is_cut { self.torn_at(start) } else { corrupt_at(start, what, ResumePoint::Search) }
    }

    /// Parses an entry and verifies its checksum.
    fn parse_verified(&mut self) -> Result<WalEntry, ParseError> {
        let parsed = self.parse_entry();
        let is_complete = matches!(parsed, Ok(_) | Err(ParseError::Lost));
        let is_changed =
            is_complete && self.header.entry_checksums() && !checksum::matches(self.input.parsed());
        if is_changed { Err(ParseError::Changed) } else { parsed }
    }

    /// Parses an entry without regard to its checksum.
    fn parse_entry(&mut self) -> Result<WalEntry, ParseError> {
        self.current_name = None;
        let key_len = self.input.varint()?;
        if key_len == 0 || key_len > KEY_BYTES_MAX as u64 {
            return corrupt(format!("key of {key_len} bytes"));
        }
        let key = Bytes::copy_from_slice(self.input.take(length::index(key_len))?);
        let key = pb::WalKey::decode(key).or_else(|e| corrupt(format!("key: {e}")))?;
        let (count, seq_id) = (key.following_kv_count.unwrap_or(0), key.log_sequence_number);
        if seq_id == 0 {
            return corrupt("no sequence id");
        }
        let entry = entry_of(key, self.compression.as_mut())?;
        self.current_name = entry.as_ref().map(EntryName::of);
        let cells = match &mut self.compression {
            None => Some(self.input.plain_cells(count, seq_id)?),
            Some(context) => context.read_cells(&mut self.input, count, seq_id)?,
        };
        let (Some(mut entry), Some(cells)) = (entry, cells) else { return Err(ParseError::Lost) };
        entry.cells = cells;
        Ok(entry)
    }
}

fn corrupt_at(offset: u64, what: String, next: ResumePoint) -> ReadState {
    ReadState::Corrupt { offset, what, next }
}

impl fmt::Debug for WalReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WalReader").field("path", &self.path).field("position", &self.position()).finish()
    }
}

fn read_header(input: &mut Input) -> Result<pb::WalHeader, ParseError> {
    let magic = input.take(MAGIC.len())?;
    if magic != MAGIC {
        return corrupt(format!("it starts with {}, not PWAL", magic.escape_ascii()));
    }
    let len = input.varint()?;
    if len > HEADER_BYTES_MAX as u64 {
        return corrupt(format!("header of {len} bytes"));
    }
    let header = pb::WalHeader::decode(input.take(length::index(len))?)
        .or_else(|e| corrupt(format!("header: {e}")))?;
    match header.writer_cls_name.as_deref() {
        Some(name) if !WRITER_CLASSES.contains(&name) => corrupt(format!("unknown writer class {name}")),
        _ => Ok(header),
    }
}

/// Builds an entry of the fields of a key. The names of a compressed file are looked up in the
/// dictionaries in the order in which they were written. `None` if one of them was lost.
fn entry_of(
    key: pb::WalKey,
    mut context: Option<&mut CompressionContext>,
) -> Result<Option<WalEntry>, ParseError> {
    let mut is_whole = context.as_ref().is_none_or(|context| !context.is_skipping);
    let mut plain = |bytes: Bytes, kind| match &mut context {
        Some(context) => {
            let bytes = context.expand(&bytes, kind)?;
            is_whole &= bytes.is_some();
            Ok::<_, ParseError>(bytes.unwrap_or_default())
        }
        None => Ok(bytes),
    };
    let region = plain(key.encoded_region_name, DictionaryKind::Region)?;
    let table = plain(key.table_name, DictionaryKind::Table)?;
    let (mut scopes, mut attributes) = (Vec::new(), Vec::new());
    for scope in key.scopes {
        let family = plain(scope.family, DictionaryKind::Family)?;
        scopes.push(FamilyScope { family, scope: Scope::from_number(scope.scope_type) });
    }
    for attribute in key.extended_attributes {
        attributes.push((attribute.key, plain(attribute.value, DictionaryKind::Table)?));
    }
    if !is_whole {
        return Ok(None);
    }
    if region.is_empty() {
        return corrupt("no region name");
    }
    let table = TableName::from_bytes(&table).or_else(|e| corrupt(e.to_string()))?;
    let mut entry = WalEntry::new(region, table, key.log_sequence_number, key.write_time as i64, Vec::new());
    (entry.scopes, entry.attributes) = (scopes, attributes);
    let uuid = |id: &pb::Uuid| ClusterUuid { most: id.most_sig_bits, least: id.least_sig_bits };
    entry.cluster_ids = key.cluster_ids.iter().chain(&key.cluster_id).map(uuid).collect();
    entry.nonce_group = key.nonce_group.unwrap_or(0);
    entry.nonce = key.nonce.unwrap_or(0);
    entry.orig_seq_id = key.orig_sequence_number.unwrap_or(0);
    Ok(Some(entry))
}

/// The file's bytes from the start of the current entry on, as far as they were read.
pub(crate) struct Input {
    file: Arc<dyn RandomAccessFile>,
    /// Offset in the file of the current entry, and of `buffer[consumed]`.
    start: u64,
    /// The end of the entries: the end of the file, or its trailer.
    end: u64,
    buffer: Vec<u8>,
    /// Bytes of `buffer` before the current entry.
    consumed: usize,
    /// Bytes of the current entry that were parsed.
    at: usize,
}

impl Input {
    fn new(file: Arc<dyn RandomAccessFile>) -> Self {
        let end = file.len();
        Self { file, start: 0, end, buffer: Vec::new(), consumed: 0, at: 0 }
    }

    /// Makes the end of the parsed bytes the start of the next entry.
    fn start_next(&mut self) {
        self.consumed += self.at;
        self.start += self.at as u64;
        self.at = 0;
    }

    /// Ensures that the first `bytes` of the current entry are in the buffer.
    fn fill(&mut self, bytes: usize) -> Result<(), ParseError> {
        // The buffer may contain bytes past the end: the trailer's.
        if bytes as u64 > self.end - self.start {
            return Err(ParseError::Torn);
        }
        let have = self.buffer.len() - self.consumed;
        if bytes <= have {
            return Ok(());
        }
        if bytes > ENTRY_BYTES_MAX {
            return corrupt(format!("entry longer than {ENTRY_BYTES_MAX} bytes"));
        }
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        let wanted = bytes.max(CHUNK_BYTES).min(usize::try_from(self.end - self.start).unwrap_or(usize::MAX));
        self.buffer.resize(wanted, 0);
        let read =
            self.file.read_at(self.start + have as u64, self.buffer.get_mut(have..).unwrap_or_default());
        self.buffer.truncate(have + *read.as_ref().unwrap_or(&0));
        if self.buffer.len() < bytes {
            read?;
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter").into());
        }
        Ok(())
    }

    /// Consumes the next bytes of the entry.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<&[u8], ParseError> {
        let end = self.at.checked_add(bytes).ok_or(ParseError::Torn)?;
        self.fill(end)?;
        let from = self.consumed + self.at;
        self.at = end;
        self.buffer.get(from..from + bytes).ok_or(ParseError::Torn)
    }

    /// The bytes of the current entry that were parsed.
    fn parsed(&self) -> &[u8] {
        self.buffer.get(self.consumed..self.consumed + self.at).unwrap_or_default()
    }

    /// Consumes one byte.
    pub(crate) fn byte(&mut self) -> Result<u8, ParseError> {
        self.take(1)?.first().copied().ok_or(ParseError::Torn)
    }

    /// Consumes a protobuf varint.
    pub(crate) fn varint(&mut self) -> Result<u64, ParseError> {
        let mut bytes = [0; 10];
        for i in 0..bytes.len() {
            let byte = self.byte()?;
            if let Some(last) = bytes.get_mut(i) {
                *last = byte;
            }
            if byte & 0x80 == 0 {
                return read_varint(&bytes).map(|(value, _)| value).ok_or(ParseError::Torn);
            }
        }
        corrupt("a number of more than 10 bytes")
    }

    /// Reads plain cells, which share one allocation.
    fn plain_cells(&mut self, count: u32, seq_id: u64) -> Result<Vec<KeyValue>, ParseError> {
        let first = self.at;
        let mut ranges = Vec::new();
        for _ in 0..count {
            let len = u32::from_be_bytes(self.take(4)?.try_into().unwrap_or_default()) as usize;
            let from = self.at - first;
            CellRef::parse(self.take(len)?, seq_id).or_else(|e| corrupt(e.to_string()))?;
            ranges.push(from..from + len);
        }
        let bytes = Bytes::copy_from_slice(self.parsed().get(first..).ok_or(ParseError::Torn)?);
        let cell = |range| {
            let mut cell = KeyValue::parse(bytes.slice(range)).or_else(|e| corrupt(e.to_string()))?;
            cell.set_seq_id(seq_id);
            Ok(cell)
        };
        ranges.into_iter().map(cell).collect()
    }

    /// Searches for a trailer at the end of the file, and excludes it from the entries.
    fn find_trailer(&mut self) -> io::Result<bool> {
        let mut tail = [0; 8];
        let Some(at) = self.end.checked_sub(8).filter(|at| *at >= self.start) else { return Ok(false) };
        self.file.read_exact_at(at, &mut tail)?;
        let [a, b, c, d, magic @ ..] = tail;
        let len = i64::from(i32::from_be_bytes([a, b, c, d]));
        let starts_at = at as i64 - len;
        if magic != *TRAILER_MAGIC || !(0..=TRAILER_BYTES_MAX).contains(&len) || starts_at < self.start as i64
        {
            return Ok(false);
        }
        let mut message = vec![0; usize::try_from(len).unwrap_or(0)];
        self.file.read_exact_at(starts_at as u64, &mut message)?;
        if pb::WalTrailer::decode(&message[..]).is_err() {
            return Ok(false);
        }
        self.end = starts_at as u64;
        Ok(true)
    }

    /// Returns true if the remaining bytes are the beginning of a trailer.
    fn is_partial_trailer(&self) -> io::Result<bool> {
        let mut left = [0; TRAILER.len()];
        let len = length::index(self.end - self.start);
        if len >= left.len() {
            return Ok(false);
        }
        let left = left.get_mut(..len).unwrap_or_default();
        self.file.read_exact_at(self.start, left)?;
        Ok(TRAILER.starts_with(left))
    }

    /// Returns true if the bytes from the last one parsed to the end of the file are zeros, and at
    /// least the last `bytes_min` of the file.
    fn ends_in_zeros(&self, bytes_min: usize) -> io::Result<bool> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let last_parsed = self.start + self.at.saturating_sub(1) as u64;
        let mut at = last_parsed.min(self.end.saturating_sub(bytes_min as u64));
        while at < self.end {
            let n = self.file.read_at(at, &mut chunk)?;
            if n == 0 || chunk.iter().take(n).any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += n as u64;
        }
        Ok(true)
    }
}
