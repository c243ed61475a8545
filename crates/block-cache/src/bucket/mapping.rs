//! [`Mapping`]: memory from the kernel.
//!
//! Anonymous memory is reserved without being touched, so a cache costs what it holds; huge pages are asked for where
//! the kernel gives them. A mapped file keeps its pages when the process dies.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// Below this, huge pages would waste more than they save.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes that stay where they are until this is dropped. Zero where nothing was written yet.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to no thread; who may touch which bytes is settled by those who hold the mapping.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of this process, touched page by page: for what grows slowly.
    ///
    /// # Errors
    /// When the kernel has no address space.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    /// Memory of this process, in huge pages where the kernel has them.
    ///
    /// # Errors
    /// When the kernel has no address space.
    pub fn huge(len: usize) -> io::Result<Self> {
        let mapping = Self::anonymous(len)?;
        if len >= HUGE_PAGE_BYTES {
            // SAFETY: the range is the one just mapped. Advice only: a kernel without huge pages refuses, and nothing
            // is lost.
            unsafe { libc::madvise(mapping.base.as_ptr().cast(), mapping.len, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
    }

    /// The first `len` bytes of a file, shared with it. The file must have them.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of_file(file: &File, len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(len: usize, flags: i32, fd: i32) -> io::Result<Self> {
        let len = len.max(1);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(at) if base != libc::MAP_FAILED => Ok(Self { base: at, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Gives pages back to the kernel, which has zeros there from then on. For memory of this process alone, of which nobody
    /// reads or writes these bytes now.
    ///
    /// # Panics
    /// When the bytes are not within the mapping.
    pub fn release(&self, at: usize, len: usize) {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "within the mapping");
        // SAFETY: just checked to be within the mapping, which is anonymous, so the bytes stay readable as zeros. A kernel
        // that refuses leaves them as they are.
        unsafe { libc::madvise(self.base.as_ptr().add(at).cast(), len, libc::MADV_DONTNEED) };
    }

    /// Where it begins. Aligned to a page.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of a byte of it.
    ///
    /// # Panics
    /// When `at` is past its end.
    pub fn at(&self, at: usize) -> NonNull<u8> {
        assert!(at <= self.len, "within the mapping");
        // SAFETY: just checked to be within the mapping, or one past it.
        unsafe { self.base.add(at) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and unmapped only here. Those who hand out references into it keep
        // the mapping as long as they live.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
