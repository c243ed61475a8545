//! Prefetch hints for cache lines. They do not change what a program computes: a prefetch reads
//! nothing and never faults, whatever the address.

#![allow(unsafe_code)]

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Prefetches the cache line at an address.
#[inline(always)]
pub fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address, null included, reads nothing and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Prefetches the first `lines` cache lines of `bytes`, or all of them if there are fewer.
#[inline(always)]
pub fn prefetch_lines(bytes: &[u8], lines: usize) {
    for line in bytes.chunks(LINE_BYTES).take(lines) {
        prefetch(line.as_ptr());
    }
}
