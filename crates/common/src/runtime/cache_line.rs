//! Hints that memory will be read soon. They change nothing that a program computes: a prefetch reads nothing and never
//! faults, whatever the address.

#![allow(unsafe_code)]

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Asks for the cache line at an address.
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

/// Asks for the first `lines` cache lines of some bytes, or as many as there are.
#[inline(always)]
pub fn prefetch_lines(bytes: &[u8], lines: usize) {
    for line in bytes.chunks(LINE_BYTES).take(lines) {
        prefetch(line.as_ptr());
    }
}
