//! Hints to the processor and the system about memory. They do not change the results of a program.

use evenkeel_common::cache_line as line;

/// Prefetches the cache lines at and after `address`, where a node and the start of its key lie.
#[inline(always)]
pub(super) fn prefetch<T>(address: *const T) {
    line::prefetch(address);
    line::prefetch(address.cast::<u8>().wrapping_add(line::LINE_BYTES));
}

/// Requests huge pages for memory at its first touch (`transparent_hugepage` set to `madvise` or
/// `always`). The memory starts and ends at multiples of a huge page. An error is ignored: the
/// memory stays usable.
pub(super) fn want_huge_pages(base: std::ptr::NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: the caller owns this memory; the advice changes how it is backed, not what is in it.
    unsafe {
        libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (base, bytes);
}
