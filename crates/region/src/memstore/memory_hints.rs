//! What the machine is told of memory. Nothing here changes what a program computes.

use evenkeel_common::cache_line as line;

/// Asks for the cache lines at and behind `address`, where a node and the beginning of its key lie.
#[inline(always)]
pub(super) fn prefetch<T>(address: *const T) {
    line::prefetch(address);
    line::prefetch(address.cast::<u8>().wrapping_add(line::LINE_BYTES));
}

/// Asks the system to back a run of memory, which begins and ends at multiples of a huge page, with huge pages as it is first
/// touched (`transparent_hugepage` set to `madvise` or `always`). Refusals are not told: it is as good as it was.
pub(super) fn want_huge_pages(base: std::ptr::NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: the caller owns this memory; the advice changes how it is backed, not what is in it.
    unsafe {
        libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (base, bytes);
}
