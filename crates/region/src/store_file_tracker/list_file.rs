//! The file that lists a store's files (`StoreFileListFile`).
//!
//! ```text
//! <family>/.filelist/f1.<sequence>      the newest list, or the one before it
//! <family>/.filelist/f2.<sequence>      the same
//!
//! int32     length of the message, big-endian, at most 16 MiB
//! bytes     StoreFileList: a timestamp, the version 1, and the name and length of each file
//! int32     CRC-32 of the message
//! ```
//! A writer takes a new sequence when it opens the store: the time, or more if an older list has a
//! later one. It then writes both files in turn, and deletes the other one after each write. A
//! reader takes the files with the highest sequence of which one is complete, and of two lists the
//! one with the later timestamp. A name without a sequence is of HBase 2.5, and has sequence 0.
//!
//! **Damage.** A file that ends too early was being written when its writer died: it counts as
//! missing. If no file is complete and the directory has older store files, lists were lost, and
//! the region is not opened; HBase opens it without its files. If a list of an earlier sequence is
//! complete, it holds, as in HBase: the later one may have been the first of its sequence. The
//! later one is kept, and so are files that are in no list, until the next open. Any other damage
//! fails the open of the region, as in HBase, because an older list names files that are gone, and
//! omits files whose log is gone. HBase creates the file under its name, so after a power failure
//! it can be damaged in such a way. Here each list is written to another name, synced, read back
//! and renamed, so a file is never incomplete. HBase ignores the other
//! name.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crc_fast::crc32_iso_hdlc;
use evenkeel_common::{HBaseError, Result};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_protocol::pb::{StoreFileEntry, StoreFileList};
use prost::Message;

use crate::links::is_store_file_name;

/// In a family's directory: the directory of its lists (`StoreFileListFile.TRACK_FILE_DIR`).
pub const LIST_DIR: &str = ".filelist";

/// The greatest length of a list's message, in bytes (`MAX_FILE_SIZE`).
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Bytes of the length and of the checksum.
const INT_BYTES: usize = 4;
/// The greatest length of a list's file, in bytes.
pub const FILE_BYTES_MAX: u64 = (MESSAGE_BYTES_MAX + 2 * INT_BYTES) as u64;
/// The version of the lists that are written, and the highest that is read.
const VERSION: u64 = 1;
/// The names of the two files, before the sequence.
const PREFIXES: [&str; 2] = ["f1", "f2"];
/// The greatest number of files with one sequence.
const FILES_OF_A_SEQUENCE_MAX: usize = 2;
/// How often a reader lists the directory again, because the writer has replaced a list meanwhile.
const ATTEMPTS_MAX: usize = 8;

/// A file of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Its name in the family's directory.
    pub name: String,
    /// Its length in bytes; 0 for a reference or a link. HBase does not read it either.
    pub bytes: u64,
}

/// A list that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReadList {
    timestamp: u64,
    files: Vec<ListedFile>,
}

/// Returns the bytes of a list.
///
/// # Errors
/// `IOException` if the list is too long.
pub fn encode(files: &[ListedFile], timestamp: u64) -> Result<Vec<u8>> {
    let entry = |file: &ListedFile| StoreFileEntry { name: file.name.clone(), size: file.bytes };
    let list =
        StoreFileList { timestamp, store_file: files.iter().map(entry).collect(), version: Some(VERSION) };
    let message = list.encode_to_vec();
    let length = u32::try_from(message.len()).ok().filter(|_| message.len() <= MESSAGE_BYTES_MAX);
    let length = length.ok_or_else(|| {
        HBaseError::io(format!("a list of {} store files takes {} bytes", files.len(), message.len()))
    })?;
    let mut bytes = Vec::with_capacity(message.len() + 2 * INT_BYTES);
    bytes.extend(length.to_be_bytes());
    bytes.extend(&message);
    bytes.extend(crc32_iso_hdlc(&message).to_be_bytes());
    Ok(bytes)
}

/// Returns the files of a list; `None` if the bytes end too early.
///
/// # Errors
/// `IOException`, with HBase's message, for bytes that are no list, for a list of a later version,
/// and for a name that is no file's name.
pub fn decode(bytes: &[u8]) -> Result<Option<Vec<ListedFile>>> {
    Ok(decode_list(bytes)?.map(|list| list.files))
}

fn decode_list(bytes: &[u8]) -> Result<Option<ReadList>> {
    let Some((length, rest)) = bytes.split_first_chunk::<INT_BYTES>() else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    let whole = usize::try_from(length).ok().filter(|length| (1..=MESSAGE_BYTES_MAX).contains(length));
    let whole = whole.ok_or_else(|| {
        HBaseError::io(format!(
            "Invalid file length {length}, either less than 0 or greater then max allowed size {MESSAGE_BYTES_MAX}"
        ))
    })?;
    let Some((message, rest)) = rest.split_at_checked(whole) else { return Ok(None) };
    let Some((expected, _)) = rest.split_first_chunk::<INT_BYTES>() else { return Ok(None) };
    let (expected, actual) = (i32::from_be_bytes(*expected), crc32_iso_hdlc(message).cast_signed());
    if expected != actual {
        return Err(HBaseError::io(format!("Checksum mismatch, expected {expected}, actual {actual}")));
    }
    let list = StoreFileList::decode(message).map_err(|error| HBaseError::io(error.to_string()))?;
    if list.version() > VERSION {
        return Err(HBaseError::io(format!(
            "Higher store file list version detected, expected {VERSION}, got {}",
            list.version()
        )));
    }
    let file = |entry: StoreFileEntry| match is_file_name(&entry.name) {
        true => Ok(ListedFile { name: entry.name, bytes: entry.size }),
        false => Err(HBaseError::io(format!("{:?} is not the name of a store file", entry.name))),
    };
    let files = list.store_file.into_iter().map(file).collect::<Result<_>>()?;
    Ok(Some(ReadList { timestamp: list.timestamp, files }))
}

/// Returns true for a name that names a visible file of its directory.
fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// Returns the sequence in the name of a list's file; `None` for any other name.
fn sequence_of(name: &str) -> Option<u64> {
    let rest = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    if rest.is_empty() {
        return Some(0);
    }
    let digits = rest.strip_prefix('.').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    digits.parse().ok()
}

/// Returns true for the name of a list's file, of this or an earlier form.
pub fn is_list_name(name: &str) -> bool {
    sequence_of(name).is_some()
}

/// The lists of a directory.
#[derive(Debug, Default)]
struct FoundLists {
    /// The list that holds, and its sequence; `None` if no file has one.
    newest: Option<(u64, ReadList)>,
    /// Files that no reader needs, of earlier sequences.
    obsolete: Vec<PathBuf>,
    /// The incomplete files of later sequences than that of the list that holds.
    incomplete: Vec<FileStatus>,
}

impl FoundLists {
    fn read(fs: &dyn FileSystem, dir: &Path) -> Result<Self> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match Self::try_read(fs, dir)? {
                Some(found) => return Ok(found),
                None if attempt < ATTEMPTS_MAX => {}
                None => return Err(HBaseError::io(format!("{}: its files change", dir.display()))),
            }
        }
    }

    /// Returns `None` if a file is gone that was listed: its writer has written another list.
    fn try_read(fs: &dyn FileSystem, dir: &Path) -> Result<Option<Self>> {
        let entries = match fs.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(Self::default())),
            entries => entries?,
        };
        let mut found = Self::default();
        let mut by_sequence: BTreeMap<u64, Vec<FileStatus>> = BTreeMap::new();
        for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
            match sequence_of(entry.name()) {
                Some(sequence) => by_sequence.entry(sequence).or_default().push(entry),
                None if is_unfinished(&entry) => found.obsolete.push(entry.path),
                None => {
                    tracing::warn!(path = %entry.path.display(), "not a list of store files; it is ignored")
                }
            }
        }
        for (sequence, files) in by_sequence.into_iter().rev() {
            if found.newest.is_some() {
                found.obsolete.extend(files.into_iter().map(|file| file.path));
                continue;
            }
            let Some(list) = newest_of(fs, sequence, &files)? else { return Ok(None) };
            match list {
                Some(list) => found.newest = Some((sequence, list)),
                None => found.incomplete.extend(files),
            }
        }
        Ok(Some(found))
    }
}

/// Returns the names of the visible files in a family's directory, and when each was written.
fn store_files(fs: &dyn FileSystem, family_dir: &Path) -> Result<Vec<FileStatus>> {
    let mut files = match fs.list(family_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        files => files?,
    };
    files.retain(|file| !file.is_dir && !file.name().starts_with('.') && is_store_file_name(file.name()));
    Ok(files)
}

/// Checks, if no list holds, that none is known to be lost: a list that ends too early was not the
/// first one if the directory has store files that are as old.
///
/// # Errors
/// `IOException` that names the directory of lists.
fn check_not_lost(fs: &dyn FileSystem, family_dir: &Path, found: &FoundLists) -> Result<()> {
    if found.newest.is_some() {
        return Ok(());
    }
    let dir = family_dir.join(LIST_DIR);
    let Some(torn_ms) = found.incomplete.iter().map(|list| list.modified_ms).max() else { return Ok(()) };
    let files = store_files(fs, family_dir)?;
    let older = files.iter().filter(|file| file.modified_ms <= torn_ms).count();
    if older == 0 {
        return Ok(());
    }
    Err(HBaseError::io(format!(
        "{}: no list of store files is complete, and {older} store files are older; the store opens \
         without them if the incomplete lists are deleted, which loses nothing if the log still has \
         their edits",
        dir.display()
    )))
}

/// Returns true for a list that a writer of this server had not completed.
fn is_unfinished(entry: &FileStatus) -> bool {
    entry.name().strip_suffix(".tmp").is_some_and(is_list_name)
}

/// Returns the newest complete list among the files of one sequence; `Some(None)` if none is
/// complete, `None` if a file is gone.
fn newest_of(fs: &dyn FileSystem, sequence: u64, files: &[FileStatus]) -> Result<Option<Option<ReadList>>> {
    let paths = || files.iter().map(|file| &file.path);
    if files.len() > FILES_OF_A_SEQUENCE_MAX {
        return Err(HBaseError::do_not_retry(format!(
            "Should only have at most 2 track files for sequence id {sequence}, but got {} files: {:?}",
            files.len(),
            paths().collect::<Vec<_>>()
        )));
    }
    let mut newest: Option<ReadList> = None;
    for path in paths() {
        let bytes = match fs.read_all(path, FILE_BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        match decode_list(&bytes).map_err(|error| error.context(path.display()))? {
            Some(list) if newest.as_ref().is_none_or(|newest| newest.timestamp < list.timestamp) => {
                newest = Some(list);
            }
            Some(_) => {}
            None => {
                tracing::warn!(path = %path.display(), "a list of store files is incomplete and is ignored")
            }
        }
    }
    Ok(Some(newest))
}

/// Returns the files that the list of a family's directory names; `None` if it has no list. Another
/// process may write lists meanwhile.
///
/// # Errors
/// `IOException` from the file system, for a damaged list, and if no list is complete and the
/// directory has store files that are older than one of them.
pub fn read(fs: &dyn FileSystem, family_dir: &Path) -> Result<Option<Vec<ListedFile>>> {
    let found = FoundLists::read(fs, &family_dir.join(LIST_DIR))?;
    check_not_lost(fs, family_dir, &found)?;
    Ok(found.newest.map(|(_, list)| list.files))
}

/// The lists of one store, and where the next one is written.
#[derive(Debug)]
pub(super) struct StoreFileListFile {
    family_dir: PathBuf,
    dir: PathBuf,
    /// True if the lists on disk hold; false if the next one replaces them, whatever they are.
    reads: bool,
    /// Lists to be deleted when the next one is written.
    replaced: Vec<PathBuf>,
    /// The sequence of the lists that this writer writes; `None` before
    /// [`StoreFileListFile::load`].
    sequence: Option<u64>,
    /// The index in [`PREFIXES`] of the next file.
    next: usize,
    /// The timestamp of the newest list.
    timestamp: u64,
    /// True if files of the directory may have been in a list that is lost.
    is_in_doubt: bool,
}

impl StoreFileListFile {
    /// Returns the lists of a family's directory. `reads` is false if the files of the directory
    /// count, so that the lists there may be damaged.
    pub(super) fn new(family_dir: &Path, reads: bool) -> Self {
        let (family_dir, dir) = (family_dir.to_owned(), family_dir.join(LIST_DIR));
        let replaced = Vec::new();
        Self { family_dir, dir, reads, replaced, sequence: None, next: 0, timestamp: 0, is_in_doubt: false }
    }

    /// The directory of the lists.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns true if files of the directory may have been in a list that is lost: there was none
    /// at the last [`StoreFileListFile::load`], or a later one was incomplete.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// Returns the files of the newest list; `None` if there is none. Deletes older lists, and
    /// takes the sequence for new ones. The caller is the only writer.
    ///
    /// # Errors
    /// As [`read`].
    pub(super) fn load(&mut self, fs: &dyn FileSystem, now_ms: i64) -> Result<Option<Vec<ListedFile>>> {
        let found = FoundLists::read(fs, &self.dir)?;
        check_not_lost(fs, &self.family_dir, &found)?;
        let FoundLists { newest, obsolete, incomplete } = found;
        self.is_in_doubt = match &newest {
            Some(_) => !incomplete.is_empty(),
            None => !store_files(fs, &self.family_dir)?.is_empty(),
        };
        discard(fs, &obsolete);
        let sequences = obsolete.iter().chain(incomplete.iter().map(|list| &list.path));
        let of_others = sequences.filter_map(|path| sequence_of(path.file_name()?.to_str()?));
        self.begin_sequence(newest.iter().map(|(sequence, _)| *sequence).chain(of_others).max(), now_ms);
        self.timestamp = newest.as_ref().map_or(0, |(_, list)| list.timestamp);
        Ok(newest.map(|(_, list)| list.files))
    }

    /// Takes a sequence above `highest`.
    fn begin_sequence(&mut self, highest: Option<u64>, now_ms: i64) {
        let above = highest.map_or(0, |sequence| sequence.saturating_add(1));
        self.sequence = Some(above.max(u64::try_from(now_ms).unwrap_or(0)));
        self.next = 0;
    }

    /// Prepares a list that replaces all those on disk, without reading them.
    fn replace_all(&mut self, fs: &dyn FileSystem, now_ms: i64) -> Result<()> {
        let entries = match fs.list(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => entries?,
        };
        let is_list =
            |entry: &FileStatus| !entry.is_dir && (is_list_name(entry.name()) || is_unfinished(entry));
        let lists: Vec<_> = entries.into_iter().filter(is_list).collect();
        self.begin_sequence(lists.iter().filter_map(|list| sequence_of(list.name())).max(), now_ms);
        self.replaced = lists.into_iter().map(|list| list.path).collect();
        Ok(())
    }

    /// Writes a list, durably, and deletes the one before it.
    ///
    /// # Errors
    /// `IOException` from the file system: either list may hold then.
    pub(super) fn write(&mut self, fs: &dyn FileSystem, files: &[ListedFile], now_ms: i64) -> Result<()> {
        let sequence = match self.sequence {
            Some(sequence) => sequence,
            None => {
                match self.reads {
                    true => drop(self.load(fs, now_ms)?),
                    false => self.replace_all(fs, now_ms)?,
                }
                self.sequence.unwrap_or(0)
            }
        };
        let timestamp = self.timestamp.saturating_add(1).max(u64::try_from(now_ms).unwrap_or(0));
        let path = |prefix: &str| self.dir.join(format!("{prefix}.{sequence}"));
        let (path, other) = match self.next {
            0 => (path(PREFIXES[0]), path(PREFIXES[1])),
            _ => (path(PREFIXES[1]), path(PREFIXES[0])),
        };
        // Also after an error: a later list must not have the same timestamp.
        self.timestamp = timestamp;
        fs.mkdirs(&self.dir)?;
        fs.write_atomically(&path, &encode(files, timestamp)?)?;
        self.next = 1 - self.next;
        if let Err(error) = fs.discard(&other) {
            tracing::debug!(path = %other.display(), %error, "the list before the newest could not be deleted");
        }
        discard(fs, &std::mem::take(&mut self.replaced));
        Ok(())
    }
}

/// Deletes lists that no reader needs.
fn discard(fs: &dyn FileSystem, lists: &[PathBuf]) {
    for path in lists {
        if let Err(error) = fs.discard(path) {
            tracing::warn!(path = %path.display(), %error, "an old list of store files could not be deleted");
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_fs::{Fault, FaultyFileSystem, MemoryFileSystem, Op};

    use super::*;

    const FAMILY: &str = "/data/default/t/r/f";

    fn files(names: &[&str]) -> Vec<ListedFile> {
        names.iter().map(|name| ListedFile { name: (*name).to_owned(), bytes: 7 }).collect()
    }

    fn put(fs: &MemoryFileSystem, name: &str, bytes: &[u8]) {
        fs.write_atomically(&Path::new(FAMILY).join(LIST_DIR).join(name), bytes).expect("written");
    }

    fn list(names: &[&str], timestamp: u64) -> Vec<u8> {
        encode(&files(names), timestamp).expect("short")
    }

    fn names_in(fs: &dyn FileSystem) -> Vec<String> {
        let entries = fs.list(&Path::new(FAMILY).join(LIST_DIR)).expect("listed");
        entries.iter().map(|entry| entry.name().to_owned()).collect()
    }

    fn found(fs: &dyn FileSystem) -> Option<Vec<String>> {
        let found = read(fs, Path::new(FAMILY)).expect("read")?;
        Some(found.into_iter().map(|file| file.name).collect())
    }

    /// By `StoreFileTracker.proto`, whose fields Java writes in order.
    #[test]
    fn a_list_has_the_bytes_of_stock() {
        let bytes = encode(&[ListedFile { name: "0af9".to_owned(), bytes: 300 }], 5).expect("short");
        let message = [8, 5, 18, 9, 10, 4, b'0', b'a', b'f', b'9', 16, 172, 2, 24, 1];
        assert_eq!(bytes[..4], [0, 0, 0, 15]);
        assert_eq!(bytes[4..19], message);
        assert_eq!(bytes[19..], crc32_iso_hdlc(&message).to_be_bytes());
        assert_eq!(decode(&bytes).expect("whole").expect("complete")[0].bytes, 300);
    }

    #[test]
    fn a_list_that_ends_too_early_counts_as_missing() {
        let bytes = list(&["0af9", "0afa"], 1);
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]).expect("torn"), None, "{len} bytes");
        }
        assert_eq!(decode(&bytes).expect("whole"), Some(files(&["0af9", "0afa"])));
        let mut longer = bytes;
        longer.push(1);
        assert!(decode(&longer).expect("stock ignores what follows").is_some());
    }

    #[test]
    fn a_damaged_list_is_an_error_with_the_words_of_stock() {
        let bytes = list(&["0af9"], 1);
        for at in 4..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            let error = decode(&damaged).expect_err("damaged");
            assert!(error.message().starts_with("Checksum mismatch, expected "), "{at}: {error}");
        }
        for length in [0_i32, -1, 16 * 1024 * 1024 + 1] {
            let mut damaged = bytes.clone();
            damaged[..4].copy_from_slice(&length.to_be_bytes());
            let error = decode(&damaged).expect_err("a length that no list has");
            assert_eq!(
                error.message(),
                format!(
                    "Invalid file length {length}, either less than 0 or greater then max allowed size 16777216"
                )
            );
        }
        let framed = |message: &[u8]| {
            let length = u32::try_from(message.len()).expect("short").to_be_bytes();
            [&length[..], message, &crc32_iso_hdlc(message).to_be_bytes()[..]].concat()
        };
        decode(&framed(b"garbage")).expect_err("not a message");
        let later = StoreFileList { timestamp: 1, store_file: Vec::new(), version: Some(2) };
        let error = decode(&framed(&later.encode_to_vec())).expect_err("a later version");
        assert_eq!(error.message(), "Higher store file list version detected, expected 1, got 2");
        for name in ["", "../x", "a/b", ".tmp"] {
            decode(&list(&[name], 1)).expect_err("not a name");
        }
    }

    #[test]
    fn names_of_lists() {
        for (name, sequence) in [("f1", Some(0)), ("f2.17", Some(17)), ("f1.x", None), ("f3.1", None)] {
            assert_eq!(sequence_of(name), sequence, "{name}");
        }
        assert!(!is_list_name("f1.17.tmp") && !is_list_name("f1."));
    }

    #[test]
    fn the_newest_of_two_lists_wins() {
        let fs = MemoryFileSystem::new();
        assert_eq!(found(&fs), None, "both are absent, and so is the directory");
        put(&fs, "f1.10", &list(&["a1"], 7));
        put(&fs, "f2.10", &list(&["a2"], 8));
        assert_eq!(found(&fs), Some(vec!["a2".to_owned()]));
        put(&fs, "f1.10", &list(&["a3"], 9));
        assert_eq!(found(&fs), Some(vec!["a3".to_owned()]));
        // A later sequence wins over a later timestamp.
        put(&fs, "f1.11", &list(&["a4"], 1));
        assert_eq!(found(&fs), Some(vec!["a4".to_owned()]));
        // HBase 2.5 has no sequence in its names.
        put(&fs, "f1", &list(&["a5"], 100));
        assert_eq!(found(&fs), Some(vec!["a4".to_owned()]));
    }

    #[test]
    fn a_torn_list_yields_to_the_one_before() {
        let fs = MemoryFileSystem::new();
        put(&fs, "f1.10", &list(&["a1"], 7));
        put(&fs, "f2.10", &list(&["a2"], 8)[..9]);
        assert_eq!(found(&fs), Some(vec!["a1".to_owned()]));
        // Also to a list of an earlier sequence.
        put(&fs, "f1.11", &[]);
        assert_eq!(found(&fs), Some(vec!["a1".to_owned()]));
        put(&fs, "f1.10", &[0, 0]);
        assert_eq!(found(&fs), None, "no list is complete");
        // Garbage is another matter.
        put(&fs, "f1.12", b"garbage!");
        read(&fs, Path::new(FAMILY)).expect_err("damaged");
    }

    #[test]
    fn lists_that_are_all_incomplete_are_an_error_if_there_are_store_files() {
        let fs = MemoryFileSystem::new();
        put(&fs, "f1.10", &list(&["a1"], 7)[..9]);
        let mut lists = StoreFileListFile::new(Path::new(FAMILY), true);
        assert_eq!(lists.load(&fs, 5).expect("the first flush was not completed"), None);
        assert_eq!(names_in(&fs), ["f1.10"], "it is kept");
        // A file of a flush whose list is not written yet.
        fs.write_atomically(&Path::new(FAMILY).join("a2"), b"cells").expect("written");
        assert_eq!(found(&fs), None);
        put(&fs, "f2.10", &[]);
        let error = lists.load(&fs, 5).expect_err("a2 may have been listed");
        assert!(
            error.message().contains("/data/default/t/r/f/.filelist: no list of store files is complete")
        );
        read(&fs, Path::new(FAMILY)).expect_err("for every reader");
        assert_eq!(names_in(&fs), ["f1.10", "f2.10"], "they are kept");
        let mut lists = StoreFileListFile::new(Path::new(FAMILY), false);
        lists.write(&fs, &files(&["a2"]), 5).expect("the directory counts");
        assert_eq!(names_in(&fs), ["f1.11"]);
        assert_eq!(found(&fs), Some(vec!["a2".to_owned()]));
    }

    #[test]
    fn three_lists_of_one_sequence_are_refused() {
        let fs = MemoryFileSystem::new();
        for name in ["f1", "f2", "f1.0"] {
            put(&fs, name, &list(&["a1"], 7));
        }
        let error = read(&fs, Path::new(FAMILY)).expect_err("refused");
        assert!(error.is_do_not_retry());
        assert!(
            error
                .message()
                .starts_with("Should only have at most 2 track files for sequence id 0, but got 3 files")
        );
    }

    #[test]
    fn a_writer_alternates_and_begins_anew_with_each_load() {
        let fs = MemoryFileSystem::new();
        put(&fs, "f2.400", &list(&["a1"], 90));
        put(&fs, "f1.300", &list(&["a0"], 80));
        put(&fs, "f1.500", &list(&["a2"], 91)[..6]);
        put(&fs, "f1.400.tmp", b"x");
        let mut lists = StoreFileListFile::new(Path::new(FAMILY), true);
        assert_eq!(lists.load(&fs, 50).expect("read"), Some(files(&["a1"])));
        assert!(lists.is_in_doubt(), "a later list is incomplete");
        assert_eq!(names_in(&fs), ["f1.500", "f2.400"], "it stays, and the one that holds");
        lists.write(&fs, &files(&["b1"]), 60).expect("written");
        assert_eq!(names_in(&fs), ["f1.500", "f1.501", "f2.400"]);
        lists.write(&fs, &files(&["b2"]), 60).expect("written");
        assert_eq!(names_in(&fs), ["f1.500", "f2.400", "f2.501"]);
        assert_eq!(found(&fs), Some(vec!["b2".to_owned()]));
        let bytes = fs.read_all(&Path::new(FAMILY).join(".filelist/f2.501"), 99).expect("read");
        assert_eq!(decode_list(&bytes).expect("whole").expect("complete").timestamp, 92);
        let mut next = StoreFileListFile::new(Path::new(FAMILY), true);
        assert_eq!(next.load(&fs, 9000).expect("read"), Some(files(&["b2"])));
        assert!(!next.is_in_doubt(), "the list that holds is later");
        next.write(&fs, &files(&["c1"]), 9000).expect("written");
        assert_eq!(names_in(&fs), ["f1.9000", "f2.501"]);
    }

    #[test]
    fn a_reader_is_not_confused_by_a_writer() {
        let memory = MemoryFileSystem::new();
        put(&memory, "f1.10", &list(&["a1"], 7));
        let fs = FaultyFileSystem::new(memory.clone());
        // As if the file had been replaced between the listing and the read.
        fs.inject(Fault::on(Op::Open, "f1.10").fails(io::ErrorKind::NotFound));
        assert_eq!(found(&fs), Some(vec!["a1".to_owned()]));
    }
}
