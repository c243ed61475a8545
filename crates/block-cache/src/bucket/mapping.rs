//! [`Mapping`]: memory from the kernel.
//!
//! Anonymous memory is reserved without being touched, so an empty cache costs no memory. It is
//! advised to use huge pages. A mapped file keeps its pages when the process dies.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// Smaller mappings would waste more in huge pages than they save.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes at a fixed address until this is dropped. They are zero until something is written.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to no thread. The owners of the mapping coordinate the accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of this process in normal pages, for tables that grow slowly.
    ///
    /// # Errors
    /// `OutOfMemory` without address space.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)
    }

    /// Memory of this process, in huge pages where the kernel has them.
    ///
    /// # Errors
    /// `OutOfMemory` without address space.
    pub fn huge(len: usize) -> io::Result<Self> {
        let mapping = Self::anonymous(len)?;
        if len >= HUGE_PAGE_BYTES {
            // SAFETY: the range was just mapped. This is advice only: a kernel without huge pages
            // refuses it without harm.
            unsafe { libc::madvise(mapping.base.as_ptr().cast(), mapping.len, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
    }

    /// The first `len` bytes of a file, shared with it. The file must be that long.
    ///
    /// # Errors
    /// The error of `mmap`.
    pub fn of_file(file: &File, len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(len: usize, flags: i32, fd: i32) -> io::Result<Self> {
        let len = len.max(1);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(at) if base != libc::MAP_FAILED => Ok(Self { base: at, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns pages to the kernel, after which they read as zeros. Only for anonymous memory,
    /// while nothing reads or writes these bytes.
    ///
    /// # Panics
    /// If the bytes are not within the mapping.
    pub fn release(&self, at: usize, len: usize) {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len), "within the mapping");
        // SAFETY: the range was just checked to be within the mapping, which is anonymous, so it
        // stays readable as zeros. A kernel that refuses leaves it unchanged.
        unsafe { libc::madvise(self.base.as_ptr().add(at).cast(), len, libc::MADV_DONTNEED) };
    }

    /// The start address, aligned to a page.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The address of a byte.
    ///
    /// # Panics
    /// If `at` is past the end.
    pub fn at(&self, at: usize) -> NonNull<u8> {
        assert!(at <= self.len, "within the mapping");
        // SAFETY: just checked to be within the mapping, or one past it.
        unsafe { self.base.add(at) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` mapped this length, and only this unmaps it. Owners of references into it
        // keep the mapping alive.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
