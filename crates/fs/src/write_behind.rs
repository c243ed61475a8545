//! Write-behind: a bulk file is written to the disk while it grows.
//!
//! `write(2)` only makes pages dirty. A store file that is synced at its end leaves all of its
//! bytes to that one sync (or to the kernel's flusher, at the dirty limits), which then writes at
//! the disk's full speed. Meanwhile a `write(2)` or sync of a log waits behind it, in the disk's
//! queue or in the file system's journal. So each chunk is submitted to the disk when it is
//! complete, with `sync_file_range(2)`, as RocksDB does with `bytes_per_sync` and HDFS with
//! `dfs.datanode.sync.behind.writes`:
//!
//! ```text
//! 0            waited         begun               written
//! | on the disk | in flight    | not submitted     |
//!               '- CHUNKS_IN_FLIGHT -'--- < 1 chunk ---'
//! ```
//!
//! * When a chunk is complete, its writing is **begun** (`SYNC_FILE_RANGE_WRITE`). That call may
//!   wait if the disk's queue is full. A flush or a compaction may wait there; a log may not, so
//!   log files are never bulk files. The thread that closes a log file writes it back in the same
//!   way, chunk by chunk.
//! * Then the chunk [`CHUNKS_IN_FLIGHT`] before it is **waited for**
//!   (`SYNC_FILE_RANGE_WAIT_BEFORE`). This limits a fast writer to the disk's rate, and bounds the
//!   bytes of a file that are not on the disk to the chunks in flight, the incomplete chunk and one
//!   append. With more chunks in flight even a `write(2)` of a log waits occasionally
//!   (`docs/benchmarks/journal/2026-11-22.md`), most likely because the file system submits a chunk
//!   within a journal transaction, which stays open while the disk's queue is full.
//! * This makes nothing durable: neither metadata nor the disk's cache is written. The sync at the
//!   end is still needed and has less to do.
//!
//! **Errors.** The kernel reports a failed write to a descriptor once. A wait reports it, and a
//! later sync would not report it again, so every error of a wait is an error of the file.
//! Beginning a chunk does not report earlier failures. A file system or a sandbox that does not
//! support the call reports that when a chunk is begun, and write-behind is then disabled for the
//! file.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The default bytes of a chunk; `docs/benchmarks/journal/2026-11-22.md` compares others.
pub const WRITE_BEHIND_BYTES: u64 = 1 << 20;

/// The maximum number of chunks in flight before the writer waits for the first of them.
const CHUNKS_IN_FLIGHT: u64 = 1;

/// The smallest chunk: a multiple of the page size of any kernel.
const CHUNK_BYTES_MIN: u64 = 64 << 10;

/// The kernel's writeback of a range of a file.
pub(crate) trait Writeback: Send + Sync + Debug {
    /// Begins to write the dirty pages of the range.
    fn begin(&self, file: &File, range: Range<u64>) -> io::Result<()>;

    /// Waits for the writes that were begun in the range.
    fn wait(&self, file: &File, range: Range<u64>) -> io::Result<()>;
}

/// The write-behind state of one file. See the module.
#[derive(Debug)]
pub(crate) struct WriteBehind {
    kernel: Arc<dyn Writeback>,
    chunk_bytes: u64,
    /// The writing of all bytes before this offset was begun.
    begun: u64,
    /// All bytes before this offset were waited for.
    waited: u64,
    /// The kernel does not support write-behind for this file.
    refused: bool,
}

impl WriteBehind {
    /// The state of a new file. `chunk_bytes` is rounded down to a multiple of 64 KiB, at least 64
    /// KiB.
    pub(crate) fn new(kernel: Arc<dyn Writeback>, chunk_bytes: u64) -> Self {
        let chunk_bytes = (chunk_bytes - chunk_bytes % CHUNK_BYTES_MIN).max(CHUNK_BYTES_MIN);
        Self { kernel, chunk_bytes, begun: 0, waited: 0, refused: false }
    }

    /// Begins the writing of complete chunks, when the file's first `written` bytes have been
    /// passed to the kernel.
    ///
    /// # Errors
    /// The error of a failed write to the disk. The caller must abandon the file, because its sync
    /// may not report the failure again.
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

    /// Begins the writing of complete chunks in turn, while `continues` returns true. The file's
    /// first `written` bytes have been passed to the kernel.
    ///
    /// # Errors
    /// As [`WriteBehind::advance`].
    pub(crate) fn write_back(
        &mut self,
        file: &File,
        written: u64,
        should_continue: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        while should_continue() && !self.refused && self.begun + self.chunk_bytes <= written {
            self.advance(file, self.begun + self.chunk_bytes)?;
        }
        Ok(())
    }

    /// Waits for the chunks beyond [`CHUNKS_IN_FLIGHT`].
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

/// Returns true if the error means that the kernel, the file system or a sandbox does not support
/// the call.
fn is_refusal(error: &io::Error) -> bool {
    let refusals = [libc::ENOSYS, libc::EOPNOTSUPP, libc::ESPIPE, libc::EINVAL, libc::EPERM];
    error.raw_os_error().is_some_and(|code| refusals.contains(&code))
}

/// The kernel of this machine.
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

/// Other kernels have no such call; their files are written by the sync at the end.
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
#[allow(unsafe_code, reason = "a system call")]
fn sync_file_range(file: &File, range: Range<u64>, flags: libc::c_uint) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let too_far = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let start = libc::off64_t::try_from(range.start).map_err(too_far)?;
    let len = libc::off64_t::try_from(range.end - range.start).map_err(too_far)?;
    loop {
        // SAFETY: a system call on a descriptor that `file` keeps open; it takes no memory.
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

    /// Records the calls, and fails them with the given errors.
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

    /// A sparse file of 1 GiB.
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
    fn write_back_proceeds_one_chunk_at_a_time() {
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
    fn refused_write_back_leaves_the_file_to_its_sync() {
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
    fn chunks_begin_in_order_with_a_bounded_number_in_flight() {
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
    fn refused_write_behind_is_not_retried() {
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
    fn chunks_are_whole_pages() {
        for (told, is) in [(1, 64 << 10), (100_000, 64 << 10), (MIB + 1, MIB), (u64::MAX, u64::MAX - 0xffff)]
        {
            assert_eq!(WriteBehind::new(Arc::new(Kernel), told).chunk_bytes, is);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_writes_back_files_and_refuses_pipes() {
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
