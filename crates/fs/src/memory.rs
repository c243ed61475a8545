//! [`MemoryFileSystem`], files in memory, with simulated crashes.
//!
//! A file has three lengths: the appended bytes (kept in the writer until flushed), the **flushed**
//! bytes (visible to readers, survive a crash of the process) and the **synced** bytes (survive a
//! crash of the machine). [`MemoryFileSystem::crash`] reverts to one of the latter two and
//! invalidates every writer, as a real crash would.
//!
//! Names follow the guarantees of [`FileSystem`]: renames survive every crash; the name of a new
//! file survives a crash of the machine after its first sync; directories and deletes always
//! survive.

#![allow(clippy::indexing_slicing, reason = "a test double: nothing here comes from a disk")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::{AppendFile, CreateOptions, FileKind, FileStatus, FileSystem, RandomAccessFile};

/// The data that survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SurvivingData {
    /// The process crashed: flushed bytes survive.
    Flushed,
    /// The machine crashed: synced bytes survive.
    Synced,
    /// The machine crashed during writeback: synced bytes survive, and a prefix of the flushed
    /// bytes of each file, which the number selects. File systems that order data before lengths
    /// leave no other state; [`crate::PowerCutFileSystem`] leaves those of other file systems, too.
    Torn(u64),
}

/// Files in memory. Clones share the files.
#[derive(Clone, Debug, Default)]
pub struct MemoryFileSystem {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    nodes: Mutex<BTreeMap<PathBuf, Node>>,
    /// The number of crashes. Writers of an earlier incarnation are invalid.
    incarnation: AtomicU64,
    /// Replaces the clock: every change is a millisecond later than the previous one.
    changes: AtomicI64,
}

#[derive(Clone, Debug)]
enum Node {
    Dir,
    File(Arc<MemoryFile>),
}

#[derive(Debug, Default)]
struct MemoryFile {
    bulk: bool,
    content: RwLock<Content>,
}

#[derive(Debug, Default)]
struct Content {
    flushed: Vec<u8>,
    synced_len: usize,
    ever_synced: bool,
    modified_ms: i64,
}

impl MemoryFileSystem {
    /// An empty file system with only the root directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Discards the data that a crash of the process or the machine would lose. Calls on files open
    /// for writing fail from now on.
    pub fn crash(&self, survives: SurvivingData) {
        let mut nodes = self.inner.nodes.lock();
        self.inner.incarnation.fetch_add(1, Ordering::SeqCst);
        match survives {
            SurvivingData::Flushed => {}
            SurvivingData::Synced => nodes.retain(|_, node| node.discard_unsynced(|_| 0)),
            SurvivingData::Torn(mut choice) => {
                nodes.retain(|_, node| node.discard_unsynced(|len| tear(len, &mut choice)))
            }
        }
    }

    /// Changes a file's bytes in place, to simulate corruption.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let file = self.file(path)?;
        let mut content = file.content.write();
        change(&mut content.flushed);
        content.synced_len = content.synced_len.min(content.flushed.len());
        Ok(())
    }

    /// Returns true if a file was created as a bulk file, which has no effect in memory.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn is_bulk(&self, path: &Path) -> io::Result<bool> {
        self.file(path).map(|file| file.bulk)
    }

    fn file(&self, path: &Path) -> io::Result<Arc<MemoryFile>> {
        match self.inner.nodes.lock().get(path) {
            Some(Node::File(file)) => Ok(Arc::clone(file)),
            Some(Node::Dir) => Err(error(path, io::ErrorKind::IsADirectory)),
            None => Err(error(path, io::ErrorKind::NotFound)),
        }
    }
}

impl Node {
    /// Discards unsynced bytes beyond the first `keep(unsynced bytes)`. Returns true if the node
    /// still exists.
    fn discard_unsynced(&self, keep: impl FnOnce(usize) -> usize) -> bool {
        let Node::File(file) = self else { return true };
        let mut content = file.content.write();
        let len = content.synced_len;
        let kept = keep(content.flushed.len() - len);
        content.flushed.truncate(len + kept);
        // Bytes that survived one crash are on the disk and survive the next.
        content.synced_len = len + kept;
        content.ever_synced |= kept > 0;
        content.ever_synced
    }
}

/// The number of bytes of a tail that survive, selected by `choice`.
fn tear(tail_len: usize, choice: &mut u64) -> usize {
    let mut next = |below: usize| {
        *choice = choice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*choice >> 33) as usize % below.max(1)
    };
    match next(4) {
        0 => 0,
        1 => tail_len,
        _ => next(tail_len + 1),
    }
}

impl Inner {
    fn next_change(&self) -> i64 {
        self.changes.fetch_add(1, Ordering::Relaxed)
    }
}

fn error(path: &Path, kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, format!("{}: {}", path.display(), io::Error::from(kind)))
}

fn is_root(path: &Path) -> bool {
    path.parent().is_none_or(|p| p.as_os_str().is_empty() && path.as_os_str().is_empty())
}

fn is_dir(nodes: &BTreeMap<PathBuf, Node>, path: &Path) -> bool {
    path.as_os_str().is_empty() || is_root(path) || matches!(nodes.get(path), Some(Node::Dir))
}

fn has_children(nodes: &BTreeMap<PathBuf, Node>, dir: &Path) -> bool {
    below(nodes, dir).next().is_some()
}

/// Every path under a directory, at any depth.
fn below<'a>(nodes: &'a BTreeMap<PathBuf, Node>, dir: &Path) -> impl Iterator<Item = &'a PathBuf> {
    let dir = dir.to_owned();
    let after = (std::ops::Bound::Excluded(dir.clone()), std::ops::Bound::Unbounded);
    nodes.range(after).map(|(path, _)| path).take_while(move |path| path.starts_with(&dir))
}

fn make_dirs(nodes: &mut BTreeMap<PathBuf, Node>, path: &Path) -> io::Result<()> {
    let ancestors: Vec<_> = path.ancestors().filter(|p| !p.as_os_str().is_empty() && !is_root(p)).collect();
    if ancestors.iter().any(|p| matches!(nodes.get(*p), Some(Node::File(_)))) {
        return Err(error(path, io::ErrorKind::AlreadyExists));
    }
    for dir in ancestors {
        nodes.insert(dir.to_owned(), Node::Dir);
    }
    Ok(())
}

impl FileSystem for MemoryFileSystem {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        let file = self.file(path)?;
        let len = file.content.read().flushed.len() as u64;
        Ok(Arc::new(MemoryReader { file, len }))
    }

    fn create(&self, path: &Path, options: CreateOptions) -> io::Result<Box<dyn AppendFile>> {
        let mut nodes = self.inner.nodes.lock();
        let parent = path.parent().unwrap_or(Path::new(""));
        if options.parents {
            make_dirs(&mut nodes, parent)?;
        } else if !is_dir(&nodes, parent) {
            return Err(error(path, io::ErrorKind::NotFound));
        }
        match nodes.get(path) {
            Some(Node::Dir) if options.overwrite => return Err(error(path, io::ErrorKind::IsADirectory)),
            Some(_) if !options.overwrite => return Err(error(path, io::ErrorKind::AlreadyExists)),
            _ => {}
        }
        let file = Arc::new(MemoryFile { bulk: options.kind == FileKind::Bulk, ..MemoryFile::default() });
        file.content.write().modified_ms = self.inner.next_change();
        nodes.insert(path.to_owned(), Node::File(Arc::clone(&file)));
        let incarnation = self.inner.incarnation.load(Ordering::SeqCst);
        let inner = Arc::clone(&self.inner);
        Ok(Box::new(MemoryAppendFile { inner, incarnation, file, buffer: Vec::new(), position: 0 }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut nodes = self.inner.nodes.lock();
        let node = nodes.get(from).cloned().ok_or_else(|| error(from, io::ErrorKind::NotFound))?;
        if !is_dir(&nodes, to.parent().unwrap_or(Path::new(""))) {
            return Err(error(to, io::ErrorKind::NotFound));
        }
        match (&node, nodes.get(to)) {
            (Node::File(_), Some(Node::Dir)) => return Err(error(to, io::ErrorKind::IsADirectory)),
            (Node::Dir, Some(Node::File(_))) => return Err(error(to, io::ErrorKind::NotADirectory)),
            (Node::Dir, Some(Node::Dir)) if from != to && has_children(&nodes, to) => {
                return Err(error(to, io::ErrorKind::DirectoryNotEmpty));
            }
            (Node::Dir, _) if from != to && to.starts_with(from) => {
                return Err(error(to, io::ErrorKind::InvalidInput));
            }
            _ => {}
        }
        if let Node::File(file) = &node {
            file.content.write().ever_synced = true; // the name: a rename survives a crash of the machine
        }
        let moved: Vec<_> = below(&nodes, from).cloned().chain([from.to_owned()]).collect();
        for path in moved {
            if let (Some(node), Ok(rest)) = (nodes.remove(&path), path.strip_prefix(from)) {
                let target = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
                nodes.insert(target, node);
            }
        }
        Ok(())
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.file(path)?.content.write().modified_ms = self.inner.next_change();
        Ok(())
    }

    fn delete(&self, path: &Path) -> io::Result<bool> {
        let mut nodes = self.inner.nodes.lock();
        let children: Vec<_> = below(&nodes, path).cloned().collect();
        children.iter().for_each(|child| drop(nodes.remove(child)));
        Ok(nodes.remove(path).is_some())
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        if self.status(path)?.is_dir {
            return Ok(()); // directories survive every crash here
        }
        let file = self.file(path)?;
        let mut content = file.content.write();
        (content.synced_len, content.ever_synced) = (content.flushed.len(), true);
        Ok(())
    }

    fn sync_all(&self, root: &Path) -> io::Result<()> {
        let files: Vec<_> = {
            let nodes = self.inner.nodes.lock();
            let is_file = |path: &&PathBuf| matches!(nodes.get(*path), Some(Node::File(_)));
            below(&nodes, root).filter(is_file).cloned().collect()
        };
        files.iter().try_for_each(|file| self.sync_file(file))
    }

    fn delete_empty_dir(&self, path: &Path) -> io::Result<bool> {
        let mut nodes = self.inner.nodes.lock();
        match nodes.get(path) {
            None => Ok(false),
            Some(Node::File(_)) => Err(error(path, io::ErrorKind::NotADirectory)),
            Some(Node::Dir) if below(&nodes, path).next().is_some() => Ok(false),
            Some(Node::Dir) => Ok(nodes.remove(path).is_some()),
        }
    }

    fn mkdirs(&self, path: &Path) -> io::Result<()> {
        make_dirs(&mut self.inner.nodes.lock(), path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileStatus>> {
        let nodes = self.inner.nodes.lock();
        if !is_dir(&nodes, dir) {
            let kind =
                if nodes.contains_key(dir) { io::ErrorKind::NotADirectory } else { io::ErrorKind::NotFound };
            return Err(error(dir, kind));
        }
        let children = below(&nodes, dir).filter(|path| path.parent() == Some(dir));
        Ok(children.filter_map(|path| nodes.get(path).map(|node| status_of(path, node))).collect())
    }

    fn status(&self, path: &Path) -> io::Result<FileStatus> {
        let nodes = self.inner.nodes.lock();
        match nodes.get(path) {
            Some(node) => Ok(status_of(path, node)),
            None if is_root(path) => Ok(status_of(path, &Node::Dir)),
            None => Err(error(path, io::ErrorKind::NotFound)),
        }
    }
}

fn status_of(path: &Path, node: &Node) -> FileStatus {
    let path = path.to_owned();
    match node {
        Node::Dir => FileStatus { path, is_dir: true, len: 0, modified_ms: 0 },
        Node::File(file) => {
            let content = file.content.read();
            let (len, modified_ms) = (content.flushed.len() as u64, content.modified_ms);
            FileStatus { path, is_dir: false, len, modified_ms }
        }
    }
}

#[derive(Debug)]
struct MemoryReader {
    file: Arc<MemoryFile>,
    len: u64,
}

impl RandomAccessFile for MemoryReader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let content = self.file.content.read();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.flushed.len());
        let bytes = &content.flushed[start..];
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn read_at_nowait(&self, offset: u64, buf: &mut [u8], _caller_verifies: bool) -> bool {
        self.read_exact_at(offset, buf).is_ok()
    }

    fn len(&self) -> u64 {
        self.len
    }
}

#[derive(Debug)]
struct MemoryAppendFile {
    inner: Arc<Inner>,
    incarnation: u64,
    file: Arc<MemoryFile>,
    /// Appended bytes that are not flushed.
    buffer: Vec<u8>,
    position: u64,
}

impl MemoryAppendFile {
    fn check_alive(&self) -> io::Result<()> {
        if self.incarnation == self.inner.incarnation.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::BrokenPipe, "the file's writer died in a crash"))
    }
}

impl AppendFile for MemoryAppendFile {
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let _no_crash_meanwhile = self.inner.nodes.lock();
        self.check_alive()?;
        self.buffer.clear();
        let mut content = self.file.content.write();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        content.flushed.truncate(len);
        content.synced_len = content.synced_len.min(len);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.check_alive()?;
        self.buffer.extend_from_slice(bytes);
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _no_crash_meanwhile = self.inner.nodes.lock();
        self.check_alive()?;
        let mut content = self.file.content.write();
        content.flushed.append(&mut self.buffer);
        content.modified_ms = self.inner.next_change();
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        let _no_crash_meanwhile = self.inner.nodes.lock();
        self.check_alive()?;
        let mut content = self.file.content.write();
        content.synced_len = content.flushed.len();
        content.ever_synced = true;
        Ok(())
    }

    fn position(&self) -> u64 {
        self.position
    }
}
