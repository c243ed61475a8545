//! [`PowerCutFileSystem`], a disk in memory whose power can be cut at any step.
//!
//! All data has a **live** state, which readers see, and a **durable** state, which is on the disk.
//! A directory's entries become durable by an `fsync` of the directory, a file's bytes by an
//! `fsync` of the file. While recording, each step is logged ([`Recording`]): a step is one of the
//! system calls that [`LocalFileSystem`](crate::LocalFileSystem) makes for a call of the trait. So
//! one run of a server yields the disks of all possible power cuts: [`Recording::disk_after`]
//! copies the initial disk, replays the first steps, and discards the data that is not durable by
//! then.
//!
//! | not durable | after a cut |
//! |---|---|
//! | directory entries | any subset of the changes that includes each change's dependencies |
//! | bytes at the end of a file | a prefix; then nothing, zeros, garbage, or a hole and the rest |
//!
//! Or only the process is killed: its disk keeps all entries and what was flushed, durable or not
//! ([`Recording::disk_after_kill`]). The power may be cut later, under the next process.
//!
//! A change depends on the earlier ones of the same name or node; both ends of a rename are one
//! change. The number given to a cut selects the outcome; 0 loses everything and 1 nothing.
//!
//! | method | steps |
//! |---|---|
//! | `mkdirs` | for each missing directory: create it, sync its parent |
//! | `create` | remove the old file, create the new one |
//! | `append`, `flush` | append, flush |
//! | `sync` | sync the file and, once per file, its directory |
//! | `rename` | rename, sync the target's directory and the source's |
//! | `delete` | remove everything, leaves first; sync the parent |
//! | `discard`, `delete_empty_dir` | the same without the sync |
//! | `sync_file` | sync the file or directory, and its parent |
//! | `sync_all` | sync everything |

#![allow(clippy::indexing_slicing, reason = "a test double: nothing here comes from a disk")]

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::{AppendFile, CreateOptions, FileStatus, FileSystem, RandomAccessFile};

type Inode = u64;

const ROOT: Inode = 0;

/// A disk in memory. Clones share the disk.
#[derive(Clone, Debug, Default)]
pub struct PowerCutFileSystem {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Held exclusively from the creation of a directory until it is durable, as in the local file
    /// system.
    making: RwLock<()>,
    /// The power is off: every call fails.
    powered_off: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    disk: Disk,
    recording: Option<Recording>,
}

/// The steps applied to a disk since a point in time, and the disk at that time.
#[derive(Clone, Debug)]
pub struct Recording {
    base: Disk,
    steps: Vec<Step>,
}

/// A system call.
#[derive(Clone, Debug)]
enum Step {
    MakeDir(PathBuf),
    Create(PathBuf),
    Append(Inode, Arc<[u8]>),
    Flush(Inode),
    Truncate(Inode, usize),
    SyncFile(Inode),
    SyncDir(PathBuf),
    SyncAll,
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    Touch(PathBuf),
}

#[derive(Clone, Debug)]
struct Disk {
    nodes: HashMap<Inode, Node>,
    /// Changes of entries that are not durable, in order.
    pending: Vec<Change>,
    next: Inode,
    /// Replaces the clock: every change is a millisecond later than the previous one.
    now_ms: i64,
}

#[derive(Clone, Debug)]
enum Node {
    Dir(Dir),
    File(File),
}

#[derive(Clone, Debug, Default)]
struct Dir {
    live: BTreeMap<OsString, Inode>,
    durable: BTreeMap<OsString, Inode>,
}

#[derive(Clone, Debug, Default)]
struct File {
    bytes: Arc<Vec<u8>>,
    /// The length that readers see.
    flushed: usize,
    durable: usize,
    modified_ms: i64,
}

/// Changes of entries that are atomic together.
#[derive(Clone, Debug)]
struct Change {
    edits: Vec<Edit>,
    nodes: Vec<Inode>,
}

#[derive(Clone, Debug)]
struct Edit {
    dir: Inode,
    name: OsString,
    node: Option<Inode>,
}

impl Default for Disk {
    fn default() -> Self {
        let nodes = HashMap::from([(ROOT, Node::Dir(Dir::default()))]);
        Self { nodes, pending: Vec::new(), next: ROOT + 1, now_ms: 1 }
    }
}

impl PowerCutFileSystem {
    /// An empty disk with only the root directory.
    pub fn new() -> Self {
        Self::default()
    }

    fn from_disk(disk: Disk) -> Self {
        let fs = Self::new();
        fs.shared.state.lock().disk = disk;
        fs
    }

    /// Starts to record every step.
    pub fn start_recording(&self) {
        let mut state = self.shared.state.lock();
        state.recording = Some(Recording { base: state.disk.clone(), steps: Vec::new() });
    }

    /// The number of steps recorded so far.
    pub fn steps(&self) -> usize {
        self.shared.state.lock().recording.as_ref().map_or(0, |recording| recording.steps.len())
    }

    /// Ends the recording and returns it.
    pub fn take_recording(&self) -> Option<Recording> {
        self.shared.state.lock().recording.take()
    }

    /// Switches the power off: from now on every call fails without effect.
    pub fn power_off(&self) {
        self.shared.powered_off.store(true, Ordering::SeqCst);
    }

    fn check_power(&self) -> io::Result<()> {
        match self.shared.powered_off.load(Ordering::SeqCst) {
            true => Err(io::Error::new(io::ErrorKind::BrokenPipe, "the power is gone")),
            false => Ok(()),
        }
    }

    /// Reads the live state of the disk.
    fn with_disk<T>(&self, read: impl FnOnce(&Disk) -> io::Result<T>) -> io::Result<T> {
        self.check_power()?;
        read(&self.shared.state.lock().disk)
    }

    /// Applies a step, and records it.
    fn apply(&self, step: Step) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        self.check_power()?;
        state.disk.apply(&step)?;
        if let Some(recording) = &mut state.recording {
            recording.steps.push(step);
        }
        Ok(())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.apply(Step::MakeDir(path.to_owned()))?;
        self.sync_parent(path)
    }

    fn sync_parent(&self, path: &Path) -> io::Result<()> {
        self.apply(Step::SyncDir(path.parent().unwrap_or(Path::new("/")).to_owned()))
    }

    /// Removes a file, or a directory and everything below it, leaves first.
    fn remove_all(&self, path: &Path) -> io::Result<bool> {
        match self.status(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Ok(status) if status.is_dir => {
                for entry in self.list(path)? {
                    self.remove_all(&entry.path)?;
                }
            }
            other => drop(other?),
        }
        self.apply(Step::Remove(path.to_owned())).map(|()| true)
    }
}

impl Recording {
    /// The number of steps. A cut is possible before each, and after the last.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns true if there is no step.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The steps around a cut, for messages.
    pub fn steps_around(&self, at: usize) -> String {
        let from = at.saturating_sub(3);
        let text = |(number, step): (usize, &Step)| {
            let mark = if number + 1 == at { "last:" } else { "     " };
            format!("{mark} {number} {}", step.text())
        };
        let steps = self.steps.iter().enumerate().skip(from).take(at - from + 2).map(text);
        steps.collect::<Vec<_>>().join("\n")
    }

    /// The disk after a power cut that follows the first `at` steps. `choice` selects how much of
    /// the data that is not durable survives: 0 nothing, 1 everything, other numbers a part.
    pub fn disk_after(&self, at: usize, choice: u64) -> PowerCutFileSystem {
        PowerCutFileSystem::from_disk(self.live_disk(at).lose_power(&mut Choices::new(choice)))
    }

    /// The disk after the process was killed behind the first `at` steps, while the power stays.
    pub fn disk_after_kill(&self, at: usize) -> PowerCutFileSystem {
        let mut disk = self.live_disk(at);
        for node in disk.nodes.values_mut() {
            if let Node::File(file) = node {
                Arc::make_mut(&mut file.bytes).truncate(file.flushed);
            }
        }
        PowerCutFileSystem::from_disk(disk)
    }

    fn live_disk(&self, at: usize) -> Disk {
        let mut disk = self.base.clone();
        for step in self.steps.iter().take(at) {
            // A step that succeeded on the live disk succeeds on its copy.
            let taken = disk.apply(step);
            debug_assert!(taken.is_ok(), "{step:?}: {taken:?}");
        }
        disk
    }
}

impl Step {
    fn text(&self) -> String {
        match self {
            Self::Append(node, bytes) => format!("Append({node}, {} bytes)", bytes.len()),
            other => format!("{other:?}"),
        }
    }
}

/// Selects what survives a cut, by a number.
struct Choices {
    all: Option<bool>,
    random: u64,
}

impl Choices {
    fn new(choice: u64) -> Self {
        let all = match choice {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        Self { all, random: choice.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % limit.max(1)
    }

    fn survives(&mut self) -> bool {
        self.all.unwrap_or_else(|| self.below(2) == 0)
    }

    /// The part of a file's tail that survives.
    fn tear(&mut self, tail: &[u8]) -> Vec<u8> {
        if let Some(all) = self.all {
            return if all { tail.to_vec() } else { Vec::new() };
        }
        let (kind, end) = (self.below(8), self.below(tail.len() + 1));
        let mut left = tail[..end].to_vec();
        match kind {
            0 => left.clear(),
            1 => left = tail.to_vec(),
            2 | 3 => {}
            4 => left.resize(tail.len(), 0),
            5 | 6 => {
                let hole = self.below(tail.len() - end + 1);
                left.resize(end + hole, 0);
                left.extend_from_slice(&tail[end + hole..]);
            }
            _ => left.resize_with(tail.len(), || self.below(256).to_le_bytes()[0]),
        }
        left
    }
}

impl Disk {
    fn dir(&self, node: Inode) -> Option<&Dir> {
        match self.nodes.get(&node) {
            Some(Node::Dir(dir)) => Some(dir),
            _ => None,
        }
    }

    fn file(&mut self, node: Inode) -> io::Result<&mut File> {
        match self.nodes.get_mut(&node) {
            Some(Node::File(file)) => Ok(file),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The node of a path.
    fn find(&self, path: &Path) -> io::Result<Inode> {
        let mut node = ROOT;
        for part in path.components() {
            if let Component::Normal(name) = part {
                let below = self.dir(node).and_then(|dir| dir.live.get(name));
                node = *below.ok_or_else(|| error(path, io::ErrorKind::NotFound))?;
            }
        }
        Ok(node)
    }

    /// The directory that contains a path, and the name within it.
    fn parent_and_name(&self, path: &Path) -> io::Result<(Inode, OsString)> {
        let name = path.file_name().ok_or_else(|| error(path, io::ErrorKind::InvalidInput))?;
        let dir = self.find(path.parent().unwrap_or(Path::new("/")))?;
        self.dir(dir).ok_or_else(|| error(path, io::ErrorKind::NotFound))?;
        Ok((dir, name.to_owned()))
    }

    fn exists_live(&self, path: &Path) -> bool {
        self.find(path).is_ok()
    }

    fn apply(&mut self, step: &Step) -> io::Result<()> {
        self.now_ms += 1;
        match step {
            Step::MakeDir(path) => self.add(path, Node::Dir(Dir::default())),
            Step::Create(path) => {
                self.add(path, Node::File(File { modified_ms: self.now_ms, ..File::default() }))
            }
            Step::Append(node, bytes) => {
                Arc::make_mut(&mut self.file(*node)?.bytes).extend_from_slice(bytes);
                Ok(())
            }
            Step::Flush(node) => self.flush(*node),
            Step::Truncate(node, len) => {
                let file = self.file(*node)?;
                Arc::make_mut(&mut file.bytes).truncate(*len);
                (file.flushed, file.durable) = (file.flushed.min(*len), file.durable.min(*len));
                Ok(())
            }
            Step::SyncFile(node) => {
                self.flush(*node)?;
                let file = self.file(*node)?;
                file.durable = file.bytes.len();
                Ok(())
            }
            Step::SyncDir(path) => self.find(path).map(|dir| self.sync_dir(dir)),
            Step::SyncAll => {
                self.make_durable(&vec![true; self.pending.len()]);
                let nodes: Vec<Inode> = self.nodes.keys().copied().collect();
                for node in nodes {
                    if let Ok(file) = self.file(node) {
                        file.durable = file.flushed;
                    }
                }
                Ok(())
            }
            Step::Rename(from, to) => self.rename(from, to),
            Step::Remove(path) => self.remove(path),
            Step::Touch(path) => {
                let (node, now_ms) = (self.find(path)?, self.now_ms);
                self.file(node)?.modified_ms = now_ms;
                Ok(())
            }
        }
    }

    fn flush(&mut self, node: Inode) -> io::Result<()> {
        let now_ms = self.now_ms;
        let file = self.file(node)?;
        (file.flushed, file.modified_ms) = (file.bytes.len(), now_ms);
        Ok(())
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<()> {
        let (dir, name) = self.parent_and_name(path)?;
        if self.dir(dir).is_some_and(|dir| dir.live.contains_key(&name)) {
            return Err(error(path, io::ErrorKind::AlreadyExists));
        }
        let inode = self.next;
        self.next += 1;
        self.nodes.insert(inode, node);
        self.change(vec![Edit { dir, name, node: Some(inode) }], vec![inode]);
        Ok(())
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        let ((dir, name), node) = (self.parent_and_name(path)?, self.find(path)?);
        if self.dir(node).is_some_and(|dir| !dir.live.is_empty()) {
            return Err(error(path, io::ErrorKind::DirectoryNotEmpty));
        }
        self.change(vec![Edit { dir, name, node: None }], vec![node]);
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.find(from)?;
        let ((from_dir, from_name), (to_dir, to_name)) =
            (self.parent_and_name(from)?, self.parent_and_name(to)?);
        if from == to {
            return Ok(());
        }
        let mut nodes = vec![node];
        if let Ok(replaced) = self.find(to) {
            match (self.dir(node), self.dir(replaced)) {
                (None, Some(_)) => return Err(error(to, io::ErrorKind::IsADirectory)),
                (Some(_), None) => return Err(error(to, io::ErrorKind::NotADirectory)),
                (Some(_), Some(dir)) if !dir.live.is_empty() => {
                    return Err(error(to, io::ErrorKind::DirectoryNotEmpty));
                }
                _ => nodes.push(replaced),
            }
        }
        if to.starts_with(from) {
            return Err(error(to, io::ErrorKind::InvalidInput));
        }
        let out = Edit { dir: from_dir, name: from_name, node: None };
        self.change(vec![out, Edit { dir: to_dir, name: to_name, node: Some(node) }], nodes);
        Ok(())
    }

    /// Changes live entries, not durably.
    fn change(&mut self, edits: Vec<Edit>, nodes: Vec<Inode>) {
        self.apply_edits(&edits, |dir| &mut dir.live);
        self.pending.push(Change { edits, nodes });
    }

    fn apply_edits(&mut self, edits: &[Edit], entries: fn(&mut Dir) -> &mut BTreeMap<OsString, Inode>) {
        for edit in edits {
            if let Some(Node::Dir(dir)) = self.nodes.get_mut(&edit.dir) {
                match edit.node {
                    Some(node) => drop(entries(dir).insert(edit.name.clone(), node)),
                    None => drop(entries(dir).remove(&edit.name)),
                }
            }
        }
    }

    /// Makes the changes of a directory's entries durable, together with their dependencies.
    fn sync_dir(&mut self, dir: Inode) {
        let mut wanted: Vec<bool> =
            self.pending.iter().map(|change| change.edits.iter().any(|edit| edit.dir == dir)).collect();
        for later in (0..wanted.len()).rev().filter(|at| wanted[*at]).collect::<Vec<_>>() {
            (0..later)
                .filter(|at| self.pending[later].depends_on(&self.pending[*at]))
                .for_each(|at| wanted[at] = true);
        }
        self.make_durable(&wanted);
    }

    fn make_durable(&mut self, wanted: &[bool]) {
        let pending = std::mem::take(&mut self.pending);
        for (change, wanted) in pending.into_iter().zip(wanted) {
            match wanted {
                true => self.apply_edits(&change.edits, |dir| &mut dir.durable),
                false => self.pending.push(change),
            }
        }
    }

    /// The disk after the power is cut.
    fn lose_power(mut self, choices: &mut Choices) -> Self {
        let mut survives: Vec<bool> = Vec::with_capacity(self.pending.len());
        for (at, change) in self.pending.iter().enumerate() {
            let has_dependencies =
                (0..at).all(|before| survives[before] || !change.depends_on(&self.pending[before]));
            survives.push(choices.survives() && has_dependencies);
        }
        self.make_durable(&survives);
        let mut left =
            Self { nodes: HashMap::new(), pending: Vec::new(), next: self.next, now_ms: self.now_ms };
        left.copy_durable(ROOT, &self, choices);
        left
    }

    /// Copies the durable state of a node and of all nodes below it.
    fn copy_durable(&mut self, node: Inode, of: &Self, choices: &mut Choices) {
        match of.nodes.get(&node) {
            Some(Node::Dir(dir)) => {
                let entries = dir.durable.clone();
                entries.values().for_each(|below| self.copy_durable(*below, of, choices));
                self.nodes.insert(node, Node::Dir(Dir { live: entries.clone(), durable: entries }));
            }
            Some(Node::File(file)) => {
                let mut bytes = file.bytes[..file.durable].to_vec();
                bytes.extend(choices.tear(&file.bytes[file.durable..]));
                let len = bytes.len();
                let left = File {
                    bytes: Arc::new(bytes),
                    flushed: len,
                    durable: len,
                    modified_ms: file.modified_ms,
                };
                self.nodes.insert(node, Node::File(left));
            }
            None => {}
        }
    }

    fn status(&self, path: &Path) -> io::Result<FileStatus> {
        let path = path.to_owned();
        match self.nodes.get(&self.find(&path)?) {
            Some(Node::File(file)) => {
                let (len, modified_ms) = (file.flushed as u64, file.modified_ms);
                Ok(FileStatus { path, is_dir: false, len, modified_ms })
            }
            _ => Ok(FileStatus { path, is_dir: true, len: 0, modified_ms: 0 }),
        }
    }
}

impl Change {
    /// Returns true if this change requires an earlier one.
    fn depends_on(&self, earlier: &Self) -> bool {
        let same_name = |a: &Edit| earlier.edits.iter().any(|b| (a.dir, &a.name) == (b.dir, &b.name));
        self.nodes.iter().any(|node| earlier.nodes.contains(node)) || self.edits.iter().any(same_name)
    }
}

fn error(path: &Path, kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, format!("{}: {}", path.display(), io::Error::from(kind)))
}

impl FileSystem for PowerCutFileSystem {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        let (node, len) = self.with_disk(|disk| {
            let node = disk.find(path)?;
            match disk.nodes.get(&node) {
                Some(Node::File(file)) => Ok((node, file.flushed as u64)),
                _ => Err(error(path, io::ErrorKind::IsADirectory)),
            }
        })?;
        Ok(Arc::new(Reader { fs: self.clone(), node, len }))
    }

    fn create(&self, path: &Path, options: CreateOptions) -> io::Result<Box<dyn AppendFile>> {
        if options.parents
            && let Some(parent) = path.parent()
        {
            self.mkdirs(parent)?;
        }
        if options.overwrite && self.with_disk(|disk| Ok(disk.exists_live(path)))? {
            self.with_disk(|disk| match disk.status(path)?.is_dir {
                true => Err(error(path, io::ErrorKind::IsADirectory)),
                false => Ok(()),
            })?;
            self.apply(Step::Remove(path.to_owned()))?;
        }
        self.apply(Step::Create(path.to_owned()))?;
        let node = self.with_disk(|disk| disk.find(path))?;
        let (fs, path) = (self.clone(), path.to_owned());
        Ok(Box::new(Writer { fs, path, node, position: 0, flushed: 0, is_name_synced: false }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.apply(Step::Rename(from.to_owned(), to.to_owned()))?;
        self.sync_parent(to)?;
        if from.parent() == to.parent() { Ok(()) } else { self.sync_parent(from) }
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.apply(Step::Touch(path.to_owned()))
    }

    fn delete(&self, path: &Path) -> io::Result<bool> {
        let was_there = self.remove_all(path)?;
        if was_there {
            self.sync_parent(path)?;
        }
        Ok(was_there)
    }

    fn discard(&self, path: &Path) -> io::Result<bool> {
        self.remove_all(path)
    }

    fn delete_empty_dir(&self, path: &Path) -> io::Result<bool> {
        match self.status(path) {
            Ok(status) if !status.is_dir => return Err(error(path, io::ErrorKind::NotADirectory)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        match self.apply(Step::Remove(path.to_owned())) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let (node, is_dir) = self.with_disk(|disk| Ok((disk.find(path)?, disk.status(path)?.is_dir)))?;
        self.apply(if is_dir { Step::SyncDir(path.to_owned()) } else { Step::SyncFile(node) })?;
        self.sync_parent(path)
    }

    fn sync_all(&self, _root: &Path) -> io::Result<()> {
        self.apply(Step::SyncAll)
    }

    fn mkdirs(&self, path: &Path) -> io::Result<()> {
        let is_dir = |path: &Path| match self.status(path) {
            Ok(status) if status.is_dir => Ok(true),
            Ok(_) => Err(error(path, io::ErrorKind::AlreadyExists)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        {
            let _none_is_being_made = self.shared.making.read();
            if is_dir(path)? {
                return Ok(());
            }
        }
        let _alone = self.shared.making.write();
        let missing: Vec<_> = path.ancestors().collect();
        for dir in missing.into_iter().rev().filter(|dir| !dir.as_os_str().is_empty()) {
            if !is_dir(dir)? {
                self.make_dir(dir)?;
            }
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileStatus>> {
        self.with_disk(|disk| {
            let node = disk.find(dir)?;
            let entries = disk.dir(node).ok_or_else(|| error(dir, io::ErrorKind::NotADirectory))?;
            entries.live.keys().map(|name| disk.status(&dir.join(name))).collect()
        })
    }

    fn status(&self, path: &Path) -> io::Result<FileStatus> {
        self.with_disk(|disk| disk.status(path))
    }
}

#[derive(Debug)]
struct Reader {
    fs: PowerCutFileSystem,
    node: Inode,
    len: u64,
}

impl RandomAccessFile for Reader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.fs.with_disk(|disk| {
            let Some(Node::File(file)) = disk.nodes.get(&self.node) else { return Ok(0) };
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(file.flushed);
            let bytes = &file.bytes[start..file.flushed];
            let n = bytes.len().min(buf.len());
            buf[..n].copy_from_slice(&bytes[..n]);
            Ok(n)
        })
    }

    fn read_at_nowait(&self, offset: u64, buf: &mut [u8], _caller_verifies: bool) -> bool {
        self.read_exact_at(offset, buf).is_ok()
    }

    fn len(&self) -> u64 {
        self.len
    }
}

#[derive(Debug)]
struct Writer {
    fs: PowerCutFileSystem,
    path: PathBuf,
    node: Inode,
    position: u64,
    /// The position at the last flush or sync.
    flushed: u64,
    is_name_synced: bool,
}

impl AppendFile for Writer {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !bytes.is_empty() {
            self.fs.apply(Step::Append(self.node, bytes.into()))?;
            self.position += bytes.len() as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.fs.apply(Step::Flush(self.node))?;
        self.flushed = self.position;
        Ok(())
    }

    /// No step if nothing is left to flush.
    fn close(&mut self) -> io::Result<()> {
        if self.flushed == self.position { Ok(()) } else { self.flush() }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.fs.apply(Step::SyncFile(self.node))?;
        self.flushed = self.position;
        if !self.is_name_synced {
            self.fs.sync_parent(&self.path)?;
            self.is_name_synced = true;
        }
        Ok(())
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.fs.apply(Step::Truncate(self.node, usize::try_from(len).unwrap_or(usize::MAX)))
    }
}
