//! Write-behind: a bulk file is on its way to the disk while it is written.
//!
//! `write(2)` only makes pages dirty. A store file that is written through and synced at its end leaves all of itself
//! to that one sync (or to the kernel's flusher, at the dirty limits), which then writes at the disk's full speed; a log's
//! `write(2)` or sync meanwhile waits behind it, in the queue of the disk or in the file system's journal. So the kernel is
//! asked for each piece as it is complete, with `sync_file_range(2)`, as RocksDB does by `bytes_per_sync` and HDFS by
//! `dfs.datanode.sync.behind.writes`:
//!
//! ```text
//! 0            waited for     begun               written
//! | on the disk | under way    | not yet asked for |
//!               '- CHUNKS_IN_FLIGHT -'--- < 1 piece ---'
//! ```
//!
//! * Once a piece is complete, its writing is **begun** (`SYNC_FILE_RANGE_WRITE`). That may itself wait when the queue of
//!   the disk is full. A flush or a compaction may wait there; a log may not: files of logs are never bulk files. They are
//!   settled likewise, a piece at a time, by the thread that closes them.
//! * Then the piece [`CHUNKS_IN_FLIGHT`] before it is **waited for** (`SYNC_FILE_RANGE_WAIT_BEFORE`): a writer faster
//!   than the disk comes down to its pace, and of a file at most so many pieces, the one being filled and one append are
//!   not on the disk. With more of them under way even a log's `write(2)` waits now and then (`docs/benchmarks.md`),
//!   most likely because the file system begins a piece within a step of its journal, which stays open while there is no
//!   room in the queue.
//! * Nothing is durable by that: no metadata is written, and no cache of the disk. The sync at the end is what it was, with
//!   less to do.
//!
//! **Errors.** A write to the disk that fails is told to a descriptor once. Waiting tells it, and the sync after it would
//! not tell it again, so every error of a wait is an error of the file. To begin tells of nothing before; a file system or
//! a sandbox that does not know the call says so there, and is not asked again for this file.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a piece unless told otherwise; `docs/benchmarks.md` has what others cost.
pub const WRITE_BEHIND_BYTES: u64 = 1 << 20;

/// Pieces that may be on their way to the disk before the writer waits for the first of them.
const CHUNKS_IN_FLIGHT: u64 = 1;

/// The smallest piece: a whole number of pages of any kernel.
const CHUNK_BYTES_MIN: u64 = 64 << 10;

/// What a kernel is asked of a file's bytes.
pub(crate) trait Writeback: Send + Sync + Debug {
    /// Begins to write what is dirty in the range.
    fn begin(&self, file: &File, range: Range<u64>) -> io::Result<()>;

    /// Waits until what was begun in the range is written.
    fn wait(&self, file: &File, range: Range<u64>) -> io::Result<()>;
}

/// How far one file's bytes have come. See the module.
#[derive(Debug)]
pub(crate) struct WriteBehind {
    kernel: Arc<dyn Writeback>,
    chunk_bytes: u64,
    /// All before it was asked for.
    begun: u64,
    /// All before it was waited for.
    waited: u64,
    /// The kernel does not do it for this file.
    refused: bool,
}

impl WriteBehind {
    /// For a new file, by pieces of so many bytes (64 KiB at least, and whole multiples of that).
    pub(crate) fn new(kernel: Arc<dyn Writeback>, chunk_bytes: u64) -> Self {
        let chunk_bytes = (chunk_bytes - chunk_bytes % CHUNK_BYTES_MIN).max(CHUNK_BYTES_MIN);
        Self { kernel, chunk_bytes, begun: 0, waited: 0, refused: false }
    }

    /// Asks for what is complete, now that the file's first `written` bytes are with the kernel.
    ///
    /// # Errors
    /// A write to the disk that failed. The file must be given up: its sync may not tell of it any more.
    pub(crate) fn advance(&mut self, file: &File, written: u64) -> io::Result<()> {
        let complete = written - written % self.chunk_bytes;
        if self.refused || complete <= self.begun {
            return Ok(());
        }
        match self.kernel.begin(file, self.begun..complete) {
            Err(error) if is_refusal(&error) => {
                self.refused = true;
                return Ok(());
            }
            other => other?,
        }
        self.begun = complete;
        self.wait_behind(file)
    }

    /// Asks for what is complete of a file that has its first `written` bytes with the kernel, one piece after the other, as
    /// long as `continues`.
    ///
    /// # Errors
    /// As [`WriteBehind::advance`].
    pub(crate) fn write_back(
        &mut self,
        file: &File,
        written: u64,
        continues: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        while continues() && !self.refused && self.begun + self.chunk_bytes <= written {
            self.advance(file, self.begun + self.chunk_bytes)?;
        }
        Ok(())
    }

    /// Waits for what is not to be under way any more.
    fn wait_behind(&mut self, file: &File) -> io::Result<()> {
        let complete = self.begun;
        let settled = complete.saturating_sub(CHUNKS_IN_FLIGHT.saturating_mul(self.chunk_bytes));
        if settled > self.waited {
            self.kernel.wait(file, self.waited..settled)?;
            self.waited = settled;
        }
        Ok(())
    }
}

/// Whether the kernel, the file system or a sandbox around them does not do it, as opposed to failing at it.
fn is_refusal(error: &io::Error) -> bool {
    let refusals = [libc::ENOSYS, libc::EOPNOTSUPP, libc::ESPIPE, libc::EINVAL, libc::EPERM];
    error.raw_os_error().is_some_and(|code| refusals.contains(&code))
}

/// The machine's own kernel.
#[derive(Debug)]
pub(crate) struct Kernel;

#[cfg(target_os = "linux")]
impl Writeback for Kernel {
    fn begin(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        sync_file_range(file, range, libc::SYNC_FILE_RANGE_WRITE)
    }

    fn wait(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        sync_file_range(file, range, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
    }
}

/// Other kernels have nothing like it; their files are left to the sync at their end.
#[cfg(not(target_os = "linux"))]
impl Writeback for Kernel {
    fn begin(&self, _file: &File, _range: Range<u64>) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENOSYS))
    }

    fn wait(&self, _file: &File, _range: Range<u64>) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn sync_file_range(file: &File, range: Range<u64>, flags: libc::c_uint) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let too_far = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let start = libc::off64_t::try_from(range.start).map_err(too_far)?;
    let len = libc::off64_t::try_from(range.end - range.start).map_err(too_far)?;
    loop {
        // SAFETY: a plain system call on a descriptor that `file` keeps open; it is given no memory.
        if unsafe { libc::sync_file_range(file.as_raw_fd(), start, len, flags) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use parking_lot::Mutex;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// What it was asked, and what it answers: the errors of `begin`, of `wait`.
    #[derive(Debug, Default)]
    struct RecordingWriteback {
        begun: Mutex<Vec<Range<u64>>>,
        waited: Mutex<Vec<Range<u64>>>,
        begin_fails: Option<i32>,
        wait_fails: Option<i32>,
    }

    impl Writeback for RecordingWriteback {
        fn begin(&self, file: &File, range: Range<u64>) -> io::Result<()> {
            assert!(file.metadata()?.len() >= range.end, "asked for before it is written");
            self.begun.lock().push(range);
            self.begin_fails.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
        }

        fn wait(&self, _file: &File, range: Range<u64>) -> io::Result<()> {
            let begun = self.begun.lock().last().map_or(0, |last| last.end);
            assert!(range.end + CHUNKS_IN_FLIGHT * MIB <= begun, "waited for too early");
            self.waited.lock().push(range);
            self.wait_fails.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
        }
    }

    /// A file that is as long as it needs to be.
    fn file() -> File {
        let file = tempfile::tempfile().expect("temp file");
        file.set_len(1 << 30).expect("sparse");
        file
    }

    fn ends(ranges: &[Range<u64>]) -> u64 {
        ranges.iter().fold(0, |end, range| {
            assert!(range.start == end && range.end > range.start, "{ranges:?} is not one after the other");
            range.end
        })
    }

    #[test]
    fn a_file_that_settles_goes_a_piece_at_a_time() {
        let kernel = Arc::new(RecordingWriteback::default());
        let mut behind = WriteBehind::new(kernel.clone(), MIB);
        let file = file();
        behind.write_back(&file, 3 * MIB + 5, &|| true).expect("no error");
        behind.write_back(&file, 4 * MIB - 1, &|| true).expect("no error");
        behind.write_back(&file, 9 * MIB, &|| false).expect("no error");
        assert_eq!(*kernel.begun.lock(), [0..MIB, MIB..2 * MIB, 2 * MIB..3 * MIB]);
        assert_eq!(*kernel.waited.lock(), [0..MIB, MIB..2 * MIB]);
    }

    #[test]
    fn a_file_that_cannot_settle_is_left_to_its_sync() {
        let kernel =
            Arc::new(RecordingWriteback { begin_fails: Some(libc::ENOSYS), ..RecordingWriteback::default() });
        WriteBehind::new(kernel.clone(), MIB)
            .write_back(&file(), 9 * MIB, &|| true)
            .expect("refused, not failed");
        assert_eq!(kernel.begun.lock().len(), 1);
        let kernel =
            Arc::new(RecordingWriteback { wait_fails: Some(libc::EIO), ..RecordingWriteback::default() });
        assert!(WriteBehind::new(kernel, MIB).write_back(&file(), 9 * MIB, &|| true).is_err());
    }

    #[test]
    fn pieces_are_begun_in_order_and_waited_for_behind() {
        for step in [1000, 64 << 10, MIB, 3 * MIB + 7] {
            let kernel = Arc::new(RecordingWriteback::default());
            let mut behind = WriteBehind::new(Arc::clone(&kernel) as _, MIB);
            let (file, mut written) = (file(), 0);
            while written < 20 * MIB {
                written += step;
                behind.advance(&file, written).expect("asked");
                let begun = ends(&kernel.begun.lock());
                assert_eq!(begun, written / MIB * MIB, "all but the piece being filled");
                assert_eq!(
                    ends(&kernel.waited.lock()),
                    begun.saturating_sub(CHUNKS_IN_FLIGHT * MIB),
                    "of {written}"
                );
            }
            let pieces = written / step.max(MIB);
            assert!(kernel.begun.lock().len() as u64 <= pieces, "one call a piece at most");
        }
    }

    #[test]
    fn who_refuses_is_not_asked_again() {
        for code in [libc::ENOSYS, libc::EOPNOTSUPP, libc::ESPIPE, libc::EINVAL, libc::EPERM] {
            let kernel =
                Arc::new(RecordingWriteback { begin_fails: Some(code), ..RecordingWriteback::default() });
            let mut behind = WriteBehind::new(Arc::clone(&kernel) as _, MIB);
            let file = file();
            (1..=10).for_each(|n| behind.advance(&file, n * MIB).expect("no error of the file"));
            assert_eq!((kernel.begun.lock().len(), kernel.waited.lock().len()), (1, 0));
        }
    }

    #[test]
    fn errors_of_the_disk_are_errors_of_the_file() {
        let later = CHUNKS_IN_FLIGHT + 1;
        let (eio, full, invalid) = (Some(libc::EIO), Some(libc::ENOSPC), Some(libc::EINVAL));
        for (begin_fails, wait_fails, pieces) in
            [(eio, None, 1), (full, None, 1), (None, eio, later), (None, full, later), (None, invalid, later)]
        {
            let kernel =
                Arc::new(RecordingWriteback { begin_fails, wait_fails, ..RecordingWriteback::default() });
            let mut behind = WriteBehind::new(kernel, MIB);
            let file = file();
            (1..pieces).for_each(|n| behind.advance(&file, n * MIB).expect("not yet"));
            let error = behind.advance(&file, pieces * MIB).expect_err("told");
            assert_eq!(error.raw_os_error(), begin_fails.or(wait_fails));
        }
    }

    #[test]
    fn pieces_are_whole_pages() {
        for (told, is) in [(1, 64 << 10), (100_000, 64 << 10), (MIB + 1, MIB), (u64::MAX, u64::MAX - 0xffff)]
        {
            assert_eq!(WriteBehind::new(Arc::new(Kernel), told).chunk_bytes, is);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_kernel_does_it_for_a_file_and_refuses_a_pipe() {
        let file = file();
        Kernel.begin(&file, 0..MIB).expect("begun");
        Kernel.wait(&file, 0..MIB).expect("waited");
        let (_reader, writer) = io::pipe().expect("a pipe");
        let pipe = File::from(OwnedFd::from(writer));
        let error = Kernel.begin(&pipe, 0..MIB).expect_err("a pipe");
        assert!(is_refusal(&error), "{error}");
        let mut behind = WriteBehind::new(Arc::new(Kernel), MIB);
        (1..=10).for_each(|n| behind.advance(&pipe, n * MIB).expect("no error of the file"));
    }
}
