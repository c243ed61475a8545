//! What the machine is told of memory. Nothing here changes what a program computes.

/// Asks for the cache lines at and behind `address`, where a node and the beginning of its key lie.
#[inline(always)]
pub(super) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = address.cast::<i8>();
        // SAFETY: a prefetch of any address, null included, reads nothing and never faults.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(address);
            _mm_prefetch::<_MM_HINT_T0>(address.wrapping_add(LINE_BYTES));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

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
