//! Writes cells as KeyValues into a chunk.

use std::ptr::NonNull;

use evenkeel_common::CellRef;

/// Writes a cell as a KeyValue.
///
/// # Safety
/// `at` is valid for `cell.key_value_len()` bytes of writes.
pub(super) unsafe fn write_key_value(at: NonNull<u8>, cell: &CellRef<'_>) {
    let tags_len = cell.tags_len().to_be_bytes();
    let parts: [&[u8]; 5] = [
        &cell.prefix(),
        cell.key(),
        cell.value(),
        if cell.tags().is_empty() { &[] } else { &tags_len },
        cell.tags(),
    ];
    let mut at = at.as_ptr();
    for part in parts {
        // SAFETY: the parts add up to `key_value_len` bytes, which the caller guarantees to be
        // valid; the source is a live slice elsewhere.
        unsafe {
            at.copy_from_nonoverlapping(part.as_ptr(), part.len());
            at = at.add(part.len());
        }
    }
}
