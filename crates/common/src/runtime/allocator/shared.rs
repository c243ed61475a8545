//! The allocator's counters in memory that other processes can read.
//!
//! They lie in a file without a path (`memfd_create(2)`). Other processes find it among the open
//! files of this one, as `/proc/PID/fd/N`, a link to `/memfd:evenkeel-allocator`. Any process that
//! may inspect this process's files may read it. Seals prevent truncation, after which this process
//! would fault. The file disappears with the process.
//!
//! ```text
//! 8 bytes EVKALLOC | i64 nanoseconds | u64 calls        (of the machine's byte order)
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use super::AllocatorStats;

const MAGIC: [u8; 8] = *b"EVKALLOC";
/// The file's name, by which other processes find it.
const NAME: &std::ffi::CStr = c"evenkeel-allocator";
const FILE_BYTES: usize = 24;

/// The counters of another process, read without its cooperation.
#[derive(Clone, Debug)]
pub struct SharedStats(PathBuf);

impl SharedStats {
    /// The counters of a process, if it shares them and this process may read its files.
    pub fn of_pid(pid: i32) -> Option<Self> {
        let link = format!("/memfd:{}", NAME.to_str().ok()?);
        let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().map(|entry| entry.path());
        let is_it = |path: &PathBuf| {
            fs::read_link(path).is_ok_and(|to| to.to_string_lossy().split(' ').next() == Some(&link))
        };
        files.into_iter().find(is_it).map(Self).filter(|found| found.read().is_some())
    }

    /// Reads the counters; `None` if the process has ended.
    pub fn read(&self) -> Option<AllocatorStats> {
        parse(&read(&self.0)?)
    }
}

fn read(path: &Path) -> Option<[u8; FILE_BYTES]> {
    let mut bytes = [0; FILE_BYTES];
    std::io::Read::read_exact(&mut fs::File::open(path).ok()?, &mut bytes).ok()?;
    Some(bytes)
}

fn parse(bytes: &[u8; FILE_BYTES]) -> Option<AllocatorStats> {
    let number = |at: usize| <[u8; 8]>::try_from(bytes.get(at..at + 8)?).ok();
    let (ns, calls) = (i64::from_ne_bytes(number(8)?), u64::from_ne_bytes(number(16)?));
    bytes.starts_with(&MAGIC).then_some(AllocatorStats { ns: ns.max(0) as u64, calls })
}

/// Maps counters from a memory file, for as long as the process runs.
#[cfg(target_os = "linux")]
pub(super) fn page() -> std::io::Result<*mut super::Counters> {
    use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
    use std::sync::atomic::Ordering;

    use super::Counters;

    const _: () = assert!(size_of::<Counters>() == FILE_BYTES);
    let last_error = std::io::Error::last_os_error;
    // SAFETY: the name is a C string that outlives the call.
    let fd = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the descriptor was just opened, and nothing else owns it.
    let file = unsafe { fs::File::from_raw_fd(fd) };
    file.set_len(FILE_BYTES as u64)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the call takes only numbers.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(last_error());
    }
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping at an address of the kernel's choice, of an open file of that length.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), FILE_BYTES, access, flags, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED {
        return Err(last_error());
    }
    // The descriptor stays open, so that other processes can find the file.
    let _ = file.into_raw_fd();
    let counters = base.cast::<Counters>();
    // SAFETY: the mapping is large enough, aligned to a page and never unmapped. All its bytes are
    // 0, a valid value of the counters.
    unsafe { &*counters }.magic.store(u64::from_ne_bytes(MAGIC), Ordering::Relaxed);
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_statistics_file_is_parsed() {
        let mut bytes = [0; FILE_BYTES];
        assert_eq!(parse(&bytes), None);
        bytes[..8].copy_from_slice(b"EVKALLOC");
        bytes[8..16].copy_from_slice(&123_456_789_012_u64.to_ne_bytes());
        bytes[16..].copy_from_slice(&77_u64.to_ne_bytes());
        assert_eq!(parse(&bytes), Some(AllocatorStats { ns: 123_456_789_012, calls: 77 }));
        bytes[8..16].copy_from_slice(&(-1_i64).to_ne_bytes());
        assert_eq!(parse(&bytes), Some(AllocatorStats { ns: 0, calls: 77 }), "of few samples");
        bytes[0] = b'e';
        assert_eq!(parse(&bytes), None);
    }

    #[test]
    fn a_process_without_shared_statistics_has_none() {
        assert!(SharedStats::of_pid(i32::MAX).is_none());
    }
}
