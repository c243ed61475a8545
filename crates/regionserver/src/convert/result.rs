//! Result, and exceptions inside results.

use bytes::Bytes;
use evenkeel_common::{CellBuffer, CellRef, HBaseError};
use evenkeel_protocol::pb;

/// Replaces the stack frames of Java.
const FRAME_LINE: &str = "\n\tat evenkeel.server.RegionServer.call(Native Method)";

/// Creates a result whose cells travel in the reply's cell block.
pub fn counted(cells: usize, stale: bool) -> pb::Result {
    if cells == 0 {
        return empty(stale);
    }
    let count = i32::try_from(cells).unwrap_or(i32::MAX);
    pb::Result { associated_cell_count: Some(count), stale: Some(stale), ..pb::Result::default() }
}

/// Creates a result that contains its cells. `partial`: the next result has more cells of the row.
pub fn with_cells(cells: CellBuffer, stale: bool, partial: bool) -> pb::Result {
    if cells.is_empty() {
        return empty(stale);
    }
    // All cells share one allocation; the fields of the messages are slices of it.
    let bytes = Bytes::from(contiguous(cells));
    pb::Result {
        cell: key_values(&bytes).map(|cell| message_of(&bytes, &cell)).collect(),
        stale: Some(stale),
        partial: Some(partial),
        ..pb::Result::default()
    }
}

/// Creates the result of a Get that only checks for existence.
pub fn existence(exists: bool, stale: bool) -> pb::Result {
    pb::Result { exists: Some(exists), stale: stale.then_some(true), ..pb::Result::default() }
}

/// Creates a result without cells.
pub fn empty(stale: bool) -> pb::Result {
    pb::Result { stale: stale.then_some(true), ..pb::Result::default() }
}

/// Converts an error to a part of a result: the class name and the text of the throwable.
pub fn exception(error: &HBaseError) -> pb::NameBytesPair {
    let text = format!("{error}{FRAME_LINE}");
    pb::NameBytesPair { name: error.kind().class_name().to_owned(), value: Some(text.into()) }
}

/// Returns the approximate size of [`exception`] in bytes.
pub fn exception_bytes(error: &HBaseError) -> u64 {
    (2 * error.kind().class_name().len() + error.message().len() + FRAME_LINE.len() + 16) as u64
}

fn contiguous(cells: CellBuffer) -> Vec<u8> {
    if cells.as_contiguous().is_some() {
        return cells.into_parts().0;
    }
    let mut copied = CellBuffer::new();
    cells.iter().for_each(|cell| copied.push(&cell));
    copied.into_parts().0
}

/// Returns the cells in the bytes of a [`CellBuffer`].
fn key_values(bytes: &Bytes) -> impl Iterator<Item = CellRef<'_>> {
    let mut rest = &bytes[..];
    std::iter::from_fn(move || {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let (cell, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        rest = after;
        CellRef::parse(cell, 0).ok()
    })
}

/// Converts a cell to a message, without its tags: they may hold data that the reader must not see.
fn message_of(bytes: &Bytes, cell: &CellRef<'_>) -> pb::Cell {
    pb::Cell {
        row: Some(bytes.slice_ref(cell.row())),
        family: Some(bytes.slice_ref(cell.family())),
        qualifier: Some(bytes.slice_ref(cell.qualifier())),
        timestamp: Some(cell.timestamp() as u64),
        cell_type: Some(i32::from(cell.type_code())),
        value: Some(bytes.slice_ref(cell.value())),
        tags: None,
    }
}
