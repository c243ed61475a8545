//! [`FaultyFileSystem`], which injects the faults of a script.
//!
//! A script is a list of [`Fault`]s. Each names an operation and a part of the path, skips some
//! matching calls, and then applies to a number of them. The first fault in the list that applies
//! decides the call.
//!
//! ```
//! use evenkeel_fs::{CreateOptions, Fault, FaultyFileSystem, FileSystem, MemoryFileSystem, Op};
//! use std::io::ErrorKind;
//!
//! let fs = FaultyFileSystem::new(MemoryFileSystem::new());
//! fs.inject(Fault::on(Op::Flush, "wal").after(1).fails(ErrorKind::StorageFull));
//! let mut file = fs.create("/wal".as_ref(), CreateOptions::default()).unwrap();
//! file.flush().unwrap();
//! assert_eq!(file.flush().unwrap_err().kind(), ErrorKind::StorageFull);
//! file.flush().unwrap();
//! ```

#![allow(clippy::indexing_slicing, reason = "a test double: nothing here comes from a disk")]

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::{
    AppendFile, BlocksWeight, CreateOptions, FileHealth, FileStatus, FileSystem, LocalHost, RandomAccessFile,
    StorageChecksum,
};

/// An operation of the file system or of one of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names of the traits' methods
pub enum Op {
    Open,
    Read,
    Create,
    Append,
    Truncate,
    Flush,
    WriteBack,
    Sync,
    Rename,
    Touch,
    Delete,
    Mkdirs,
    List,
    Status,
}

/// One fault of a script.
#[derive(Clone, Debug)]
pub struct Fault {
    /// `None` for any.
    op: Option<Op>,
    path_part: String,
    thread: Option<String>,
    skip: u64,
    times: u64,
    effect: Effect,
}

#[derive(Clone, Debug)]
enum Effect {
    Fail(io::ErrorKind),
    FailAfter(io::ErrorKind),
    Tear(io::ErrorKind),
    ShortRead(usize),
    Flip { offset: u64, mask: u8 },
    Damage(Damage),
    Block(Latch),
    Take(Duration),
    Panic,
}

/// The bytes that an append writes instead of the given ones, while it reports success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Its bytes, one of them XORed with `mask`.
    Flip {
        /// The index of the byte, modulo the length.
        at: usize,
        /// The mask; not 0.
        mask: u8,
    },
    /// Nothing.
    Drop,
    /// The first half of its bytes.
    Truncate,
    /// Its bytes twice.
    Duplicate,
    /// Zeros of the same length.
    Zero,
    /// Its bytes after those of the next append. Without a next append they are never written.
    Swap,
}

impl Fault {
    /// A fault of calls of `op` on paths that contain `path_part`. By default it applies once and
    /// fails with `Other`.
    pub fn on(op: Op, path_part: &str) -> Self {
        let effect = Effect::Fail(io::ErrorKind::Other);
        Self { op: Some(op), path_part: path_part.to_owned(), thread: None, skip: 0, times: 1, effect }
    }

    /// As [`Fault::on`], for calls of every operation.
    pub fn on_any(path_part: &str) -> Self {
        Self { op: None, ..Self::on(Op::Open, path_part) }
    }

    /// Applies only to calls of threads whose name begins with `name`.
    pub fn of_thread(self, name: &str) -> Self {
        Self { thread: Some(name.to_owned()), ..self }
    }

    /// The call panics.
    pub fn panics(self) -> Self {
        Self { effect: Effect::Panic, ..self }
    }

    fn matches(&self, op: Op, path: &str) -> bool {
        let is_of_thread = |name: &String| {
            std::thread::current().name().is_some_and(|thread| thread.starts_with(name.as_str()))
        };
        self.op.is_none_or(|of| of == op)
            && path.contains(&self.path_part)
            && self.thread.as_ref().is_none_or(is_of_thread)
    }

    /// Skips the first `calls` matching calls.
    pub fn after(self, calls: u64) -> Self {
        Self { skip: calls, ..self }
    }

    /// Applies to `times` matching calls.
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// Applies until the script is cleared.
    pub fn always(self) -> Self {
        self.times(u64::MAX)
    }

    /// The call fails without effect.
    pub fn fails(self, kind: io::ErrorKind) -> Self {
        Self { effect: Effect::Fail(kind), ..self }
    }

    /// The call takes effect and fails nonetheless.
    pub fn fails_after_effect(self, kind: io::ErrorKind) -> Self {
        Self { effect: Effect::FailAfter(kind), ..self }
    }

    /// For appends only: the call writes the first half of its bytes, flushes them, and fails.
    pub fn writes_half(self, kind: io::ErrorKind) -> Self {
        Self { effect: Effect::Tear(kind), ..self }
    }

    /// For appends only: the call reports success but writes other bytes. The reported position is
    /// that of an undamaged append.
    pub fn damages(self, damage: Damage) -> Self {
        Self { effect: Effect::Damage(damage), ..self }
    }

    /// For reads only: the call returns at most `bytes`.
    pub fn reads_short(self, bytes: usize) -> Self {
        Self { effect: Effect::ShortRead(bytes), ..self }
    }

    /// For reads only: the byte at `offset` is XORed with `mask`.
    pub fn flips(self, offset: u64, mask: u8) -> Self {
        Self { effect: Effect::Flip { offset, mask }, ..self }
    }

    /// The call takes effect after a delay of `time`.
    pub fn delays(self, time: Duration) -> Self {
        Self { effect: Effect::Take(time), ..self }
    }

    /// The call waits until the latch is opened, then takes effect.
    pub fn waits_for(self, latch: &Latch) -> Self {
        Self { effect: Effect::Block(latch.clone()), ..self }
    }
}

/// A latch that blocked calls wait for. It is closed at first; clones share one latch.
#[derive(Clone, Debug, Default)]
pub struct Latch(Arc<(Mutex<LatchState>, Condvar)>);

#[derive(Debug, Default)]
struct LatchState {
    open: bool,
    waiting: usize,
    /// The name of the thread that arrived last.
    last_thread: String,
}

impl Latch {
    /// A closed latch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the latch for all waiting and later calls.
    pub fn open(&self) {
        self.0.0.lock().open = true;
        self.0.1.notify_all();
    }

    /// Waits until a call waits at the latch. Returns the name of its thread.
    pub fn wait_for_arrival(&self) -> String {
        let mut state = self.0.0.lock();
        while state.waiting == 0 {
            self.0.1.wait(&mut state);
        }
        state.last_thread.clone()
    }

    fn pass(&self) {
        let mut state = self.0.0.lock();
        state.waiting += 1;
        state.last_thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.0.1.notify_all();
        while !state.open {
            self.0.1.wait(&mut state);
        }
        state.waiting -= 1;
    }
}

/// The faults and the state of the simulated power.
#[derive(Debug, Default)]
struct Script {
    faults: Mutex<Vec<Fault>>,
    /// The number of calls so far.
    calls: AtomicU64,
    /// The number of modifying calls until the power is cut; `None` if it is not cut.
    power: Mutex<Option<u64>>,
    /// Parts of paths, with the health of files whose path contains them.
    health: Mutex<Vec<(String, FileHealth)>>,
}

/// A file system that wraps another and injects faults. Clones share the script.
#[derive(Clone, Debug)]
pub struct FaultyFileSystem {
    inner: Arc<dyn FileSystem>,
    script: Arc<Script>,
    is_remote: bool,
}

impl FaultyFileSystem {
    /// Wraps a file system, without faults.
    pub fn new(inner: impl FileSystem + 'static) -> Self {
        let is_remote = inner.is_remote();
        Self { inner: Arc::new(inner), script: Arc::default(), is_remote }
    }

    /// Says that its files are on other machines: see [`FileSystem::is_remote`].
    pub fn as_remote(self) -> Self {
        Self { is_remote: true, ..self }
    }

    /// Adds a fault to the end of the script.
    pub fn inject(&self, fault: Fault) {
        self.script.faults.lock().push(fault);
    }

    /// Reports this [`AppendFile::health`] of files whose path contains `path_part`, also of open
    /// ones.
    pub fn report_health(&self, path_part: &str, health: FileHealth) {
        self.script.health.lock().push((path_part.to_owned(), health));
    }

    /// The number of calls of all operations so far.
    pub fn calls(&self) -> u64 {
        self.script.calls.load(Ordering::Relaxed)
    }

    /// Cuts the power during the last of the next `calls` modifying calls. That call fails: an
    /// append takes half of its effect, any other call its whole effect. Every later call fails
    /// without effect. 0 cuts the power now.
    pub fn cut_power_after(&self, calls: u64) {
        *self.script.power.lock() = Some(calls);
    }

    /// Returns true if the power has been cut.
    pub fn is_powered_off(&self) -> bool {
        *self.script.power.lock() == Some(0)
    }

    /// Removes all faults and restores the power.
    pub fn clear(&self) {
        self.script.faults.lock().clear();
        self.script.health.lock().clear();
        *self.script.power.lock() = None;
    }

    fn run<T>(&self, op: Op, path: &Path, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        run(&self.script, op, path, work)
    }
}

/// The effect of the script on this call, after its delay.
fn next_fault(script: &Script, op: Op, path: &Path) -> Option<Effect> {
    script.calls.fetch_add(1, Ordering::Relaxed);
    match power_cut(script, op).or_else(|| next_effect(script, op, path)) {
        Some(Effect::Take(time)) => {
            std::thread::sleep(time);
            None
        }
        Some(Effect::Panic) => panic!("{}: a panic injected into {op:?}", path.display()),
        effect => effect,
    }
}

fn next_effect(script: &Script, op: Op, path: &Path) -> Option<Effect> {
    let path = path.to_string_lossy();
    for fault in script.faults.lock().iter_mut().filter(|fault| fault.matches(op, &path)) {
        if fault.skip > 0 {
            fault.skip -= 1;
        } else if fault.times > 0 {
            fault.times -= 1;
            return Some(fault.effect.clone());
        }
    }
    None
}

/// The effect on a call after the power is cut, or during which it is cut.
fn power_cut(script: &Script, op: Op) -> Option<Effect> {
    const GONE: io::ErrorKind = io::ErrorKind::BrokenPipe;
    let mut power = script.power.lock();
    let left = (*power)?;
    // A write-back makes nothing durable, so it does not count as a modification.
    let reads = matches!(op, Op::Open | Op::Read | Op::List | Op::Status | Op::WriteBack);
    match left {
        0 => Some(Effect::Fail(GONE)),
        _ if reads => None,
        1 => {
            *power = Some(0);
            Some(if op == Op::Append { Effect::Tear(GONE) } else { Effect::FailAfter(GONE) })
        }
        _ => {
            *power = Some(left - 1);
            None
        }
    }
}

fn failure(op: Op, path: &Path, kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, format!("{}: {} (injected into {op:?})", path.display(), io::Error::from(kind)))
}

fn run<T>(script: &Script, op: Op, path: &Path, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    match next_fault(script, op, path) {
        Some(Effect::Fail(kind)) => Err(failure(op, path, kind)),
        Some(Effect::FailAfter(kind)) => work().and(Err(failure(op, path, kind))),
        Some(Effect::Block(latch)) => {
            latch.pass();
            work()
        }
        _ => work(),
    }
}

impl FileSystem for FaultyFileSystem {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        let inner = self.run(Op::Open, path, || self.inner.open(path))?;
        Ok(Arc::new(FaultyReader { inner, path: path.to_owned(), script: Arc::clone(&self.script) }))
    }

    fn create(&self, path: &Path, options: CreateOptions) -> io::Result<Box<dyn AppendFile>> {
        let inner = self.run(Op::Create, path, || self.inner.create(path, options))?;
        let position = inner.position();
        let (path, script) = (path.to_owned(), Arc::clone(&self.script));
        Ok(Box::new(FaultyAppendFile { inner, path, script, position, held: Vec::new() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.run(Op::Rename, from, || self.inner.rename(from, to))
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.run(Op::Touch, path, || self.inner.touch(path))
    }

    fn delete(&self, path: &Path) -> io::Result<bool> {
        self.run(Op::Delete, path, || self.inner.delete(path))
    }

    fn discard(&self, path: &Path) -> io::Result<bool> {
        self.run(Op::Delete, path, || self.inner.discard(path))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.run(Op::Sync, path, || self.inner.sync_file(path))
    }

    fn sync_all(&self, root: &Path) -> io::Result<()> {
        self.run(Op::Sync, root, || self.inner.sync_all(root))
    }

    fn delete_empty_dir(&self, path: &Path) -> io::Result<bool> {
        self.run(Op::Delete, path, || self.inner.delete_empty_dir(path))
    }

    fn mkdirs(&self, path: &Path) -> io::Result<()> {
        self.run(Op::Mkdirs, path, || self.inner.mkdirs(path))
    }

    fn set_storage_policy(&self, path: &Path, policy: &str) -> io::Result<()> {
        self.inner.set_storage_policy(path, policy)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileStatus>> {
        self.run(Op::List, dir, || self.inner.list(dir))
    }

    fn status(&self, path: &Path) -> io::Result<FileStatus> {
        self.run(Op::Status, path, || self.inner.status(path))
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.run(Op::Status, path, || self.inner.resolve(path))
    }

    fn recover(&self, path: &Path, should_continue: &dyn Fn() -> bool) -> io::Result<()> {
        self.run(Op::Open, path, || self.inner.recover(path, should_continue))
    }

    fn is_remote(&self) -> bool {
        self.is_remote
    }

    fn path_of(&self, uri: &str) -> Option<PathBuf> {
        self.inner.path_of(uri)
    }

    fn uri_of(&self, path: &Path) -> String {
        self.inner.uri_of(path)
    }
}

#[derive(Debug)]
struct FaultyReader {
    inner: Arc<dyn RandomAccessFile>,
    path: PathBuf,
    script: Arc<Script>,
}

impl FaultyReader {
    /// Reads under the script. `read` returns the number of bytes and another result.
    fn read_by<T>(
        &self,
        offset: u64,
        buf: &mut [u8],
        read: impl Fn(&mut [u8]) -> io::Result<(usize, T)>,
    ) -> io::Result<(usize, T)> {
        match next_fault(&self.script, Op::Read, &self.path) {
            Some(Effect::Fail(kind) | Effect::FailAfter(kind) | Effect::Tear(kind)) => {
                Err(failure(Op::Read, &self.path, kind))
            }
            Some(Effect::ShortRead(bytes)) => {
                let len = buf.len().min(bytes);
                read(&mut buf[..len])
            }
            Some(Effect::Flip { offset: at, mask }) => {
                let (n, known) = read(buf)?;
                if let Some(byte) =
                    at.checked_sub(offset).and_then(|i| buf[..n].get_mut(usize::try_from(i).ok()?))
                {
                    *byte ^= mask;
                }
                Ok((n, known))
            }
            Some(Effect::Block(latch)) => {
                latch.pass();
                read(buf)
            }
            Some(Effect::Take(_) | Effect::Damage(_) | Effect::Panic) | None => read(buf),
        }
    }
}

impl RandomAccessFile for FaultyReader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.read_by(offset, buf, |buf| Ok((self.inner.read_at(offset, buf)?, ()))).map(|(n, ())| n)
    }

    fn read_verified_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<StorageChecksum> {
        let read = |buf: &mut [u8]| Ok((buf.len(), self.inner.read_verified_at(offset, buf)?));
        self.read_by(offset, buf, read).map(|(_, sum)| sum)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn blocks_weight(&self, range: Range<u64>, host: &LocalHost) -> BlocksWeight {
        self.inner.blocks_weight(range, host)
    }
}

#[derive(Debug)]
struct FaultyAppendFile {
    inner: Box<dyn AppendFile>,
    path: PathBuf,
    script: Arc<Script>,
    /// The position that was reported to the writer.
    position: u64,
    /// Bytes to write after the next append.
    held: Vec<u8>,
}

impl FaultyAppendFile {
    fn damaged(&mut self, bytes: &[u8], damage: Damage) -> io::Result<()> {
        match damage {
            Damage::Flip { at, mask } => {
                let mut flipped = bytes.to_vec();
                if let Some(byte) = flipped.get_mut(at % bytes.len().max(1)) {
                    *byte ^= mask;
                }
                self.inner.append(&flipped)
            }
            Damage::Drop => Ok(()),
            Damage::Truncate => self.inner.append(&bytes[..bytes.len() / 2]),
            Damage::Duplicate => self.inner.append(bytes).and_then(|()| self.inner.append(bytes)),
            Damage::Zero => self.inner.append(&vec![0; bytes.len()]),
            Damage::Swap => {
                self.held.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    fn append_with_held(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.inner.append(bytes)?;
        let held = std::mem::take(&mut self.held);
        if held.is_empty() { Ok(()) } else { self.inner.append(&held) }
    }
}

impl AppendFile for FaultyAppendFile {
    fn write_back(&mut self, should_continue: &dyn Fn() -> bool) -> io::Result<()> {
        run(&self.script, Op::WriteBack, &self.path, || self.inner.write_back(should_continue))
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        run(&self.script, Op::Truncate, &self.path, || self.inner.truncate(len))
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.position += bytes.len() as u64;
        match next_fault(&self.script, Op::Append, &self.path) {
            Some(Effect::Damage(damage)) => self.damaged(bytes, damage),
            Some(Effect::Fail(kind)) => Err(failure(Op::Append, &self.path, kind)),
            Some(Effect::FailAfter(kind)) => {
                self.inner.append(bytes).and(Err(failure(Op::Append, &self.path, kind)))
            }
            Some(Effect::Tear(kind)) => {
                self.inner.append(&bytes[..bytes.len() / 2])?;
                self.inner.flush().and(Err(failure(Op::Append, &self.path, kind)))
            }
            Some(Effect::Block(latch)) => {
                latch.pass();
                self.inner.append(bytes)
            }
            _ => self.append_with_held(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        run(&self.script, Op::Flush, &self.path, || self.inner.flush())
    }

    fn sync(&mut self) -> io::Result<()> {
        run(&self.script, Op::Sync, &self.path, || self.inner.sync())
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn health(&self) -> FileHealth {
        let path = self.path.to_string_lossy();
        let scripted = self.script.health.lock();
        let found = scripted.iter().find(|(part, _)| path.contains(part));
        found.map_or_else(|| self.inner.health(), |(_, health)| *health)
    }

    fn close(&mut self) -> io::Result<()> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryFileSystem;

    fn file_with(fs: &FaultyFileSystem, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = fs.create(
            path.as_ref(),
            CreateOptions { overwrite: true, parents: true, ..CreateOptions::SMALL },
        )?;
        file.append(bytes)?;
        file.flush()
    }

    #[test]
    fn faults_affect_only_the_named_calls() {
        let fs = FaultyFileSystem::new(MemoryFileSystem::new());
        fs.inject(Fault::on(Op::Append, "/a").after(1).times(2).fails(io::ErrorKind::StorageFull));
        file_with(&fs, "/a", b"1").expect("passes");
        file_with(&fs, "/b", b"1").expect("another path");
        for _ in 0..2 {
            let error = file_with(&fs, "/a", b"1").expect_err("struck");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        file_with(&fs, "/a", b"1").expect("over");
    }

    #[test]
    fn a_torn_append_leaves_half() {
        let fs = FaultyFileSystem::new(MemoryFileSystem::new());
        fs.inject(Fault::on(Op::Append, "a").writes_half(io::ErrorKind::StorageFull));
        file_with(&fs, "/a", b"1234").expect_err("torn");
        assert_eq!(fs.read_all("/a".as_ref(), 10).expect("readable"), b"12");
    }

    #[test]
    fn a_damaged_append_succeeds_with_other_bytes() {
        let left = |damage| {
            let fs = FaultyFileSystem::new(MemoryFileSystem::new());
            fs.inject(Fault::on(Op::Append, "a").damages(damage));
            let mut file = fs.create("/a".as_ref(), CreateOptions::default()).expect("created");
            file.append(b"1234").and_then(|()| file.append(b"56")).expect("told of nothing");
            assert_eq!(file.position(), 6);
            file.flush().expect("flushed");
            String::from_utf8(fs.read_all("/a".as_ref(), 10).expect("readable")).expect("text")
        };
        assert_eq!(left(Damage::Flip { at: 6, mask: 1 }), "122456");
        assert_eq!(left(Damage::Drop), "56");
        assert_eq!(left(Damage::Truncate), "1256");
        assert_eq!(left(Damage::Duplicate), "1234123456");
        assert_eq!(left(Damage::Zero), "\0\0\0\0".to_owned() + "56");
        assert_eq!(left(Damage::Swap), "561234");
    }

    #[test]
    fn a_small_file_that_does_not_read_back_is_not_put_in_place() {
        for damage in
            [Damage::Flip { at: 1, mask: 8 }, Damage::Drop, Damage::Truncate, Damage::Duplicate, Damage::Zero]
        {
            let fs = FaultyFileSystem::new(MemoryFileSystem::new());
            fs.write_atomically("/a".as_ref(), b"before").expect("written");
            fs.inject(Fault::on(Op::Append, "/a").damages(damage));
            let error = fs.write_atomically("/a".as_ref(), b"after").expect_err("something else is there");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            assert_eq!(fs.read_all("/a".as_ref(), 10).expect("readable"), b"before");
            fs.write_atomically("/a".as_ref(), b"after").expect("sound again");
            assert_eq!(fs.read_all("/a".as_ref(), 10).expect("readable"), b"after");
        }
    }

    #[test]
    fn a_failure_after_the_effect_keeps_the_effect() {
        let fs = FaultyFileSystem::new(MemoryFileSystem::new());
        fs.inject(Fault::on(Op::Flush, "a").fails_after_effect(io::ErrorKind::Other));
        file_with(&fs, "/a", b"1234").expect_err("failed");
        assert_eq!(fs.read_all("/a".as_ref(), 10).expect("readable"), b"1234");
    }

    #[test]
    fn every_call_fails_while_the_power_is_cut() {
        let fs = FaultyFileSystem::new(MemoryFileSystem::new());
        fs.cut_power_after(2);
        file_with(&fs, "/a", b"1234").expect_err("created, then torn");
        assert!(fs.is_powered_off() && fs.open("/a".as_ref()).is_err() && fs.list("/".as_ref()).is_err());
        fs.clear();
        assert_eq!(fs.read_all("/a".as_ref(), 10).expect("readable"), b"12");
        file_with(&fs, "/a", b"1234").expect("the power is back");
    }

    #[test]
    fn reads_can_be_short_or_wrong() {
        let fs = FaultyFileSystem::new(MemoryFileSystem::new());
        file_with(&fs, "/a", b"1234").expect("written");
        let file = fs.open("/a".as_ref()).expect("open");
        fs.inject(Fault::on(Op::Read, "a").reads_short(3));
        fs.inject(Fault::on(Op::Read, "a").flips(2, 1));
        let mut buf = [0; 4];
        assert_eq!(file.read_at(0, &mut buf).expect("short"), 3);
        assert_eq!(file.read_at(1, &mut buf).expect("wrong"), 3);
        assert_eq!(&buf[..3], b"224");
        assert_eq!(file.read_at(0, &mut buf).expect("whole"), 4);
        assert_eq!(&buf, b"1234");
    }

    #[test]
    fn a_gate_holds_a_call() {
        let fs = FaultyFileSystem::new(MemoryFileSystem::new());
        let latch = Latch::new();
        fs.inject(Fault::on(Op::Create, "a").waits_for(&latch));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| file_with(&fs, "/a", b"1"));
            latch.wait_for_arrival();
            assert!(!fs.exists("/a".as_ref()).expect("status"));
            latch.open();
            writer.join().expect("no panic").expect("written");
        });
    }
}
