//! Writing the cells of one data block.

use evenkeel_common::CellRef;
use evenkeel_common::codec::{vlong_len, write_vlong};

use crate::context::{CellLayout, DataBlockEncoding};

/// Builds the body of one data block after another.
#[derive(Debug)]
pub(crate) struct DataBlockEncoder {
    layout: CellLayout,
    /// What the block would take unencoded.
    unencoded_bytes: usize,
    /// What the cells take, the head and tail of the body left out.
    encoded_bytes: usize,
    row_offsets: Vec<u32>,
    last_row: Vec<u8>,
}

impl DataBlockEncoder {
    pub fn new(layout: CellLayout) -> Self {
        Self { layout, unencoded_bytes: 0, encoded_bytes: 0, row_offsets: Vec::new(), last_row: Vec::new() }
    }

    /// Whether the block has reached a size, encoded or not.
    pub fn reached(&self, block_bytes: usize) -> bool {
        self.encoded_bytes >= block_bytes || self.unencoded_bytes >= block_bytes
    }

    /// Begins a block: writes what stands before the cells. `out` holds the block from its header on.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        (self.unencoded_bytes, self.encoded_bytes) = (0, 0);
        self.row_offsets.clear();
        if self.layout.encoding != DataBlockEncoding::None {
            out.extend_from_slice(&(self.layout.encoding.code() as u16).to_be_bytes());
        }
    }

    /// Adds a cell.
    pub fn append(&mut self, cell: &CellRef<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        self.unencoded_bytes += self.unencoded_len(cell);
        match self.layout.encoding {
            DataBlockEncoding::RowIndexV1 => self.append_indexed(cell, out),
            _ => append_raw(cell, self.layout, out),
        }
        self.encoded_bytes += out.len() - start;
    }

    /// Ends the block: writes what stands after the cells, and what stands before them and was not known.
    pub fn end(&mut self, out: &mut Vec<u8>, _body_start: usize) {
        if self.layout.encoding == DataBlockEncoding::RowIndexV1 {
            let cells_bytes = self.encoded_bytes - 4 * self.row_offsets.len();
            out.extend_from_slice(&(self.row_offsets.len() as u32).to_be_bytes());
            self.row_offsets.iter().for_each(|offset| out.extend_from_slice(&offset.to_be_bytes()));
            out.extend_from_slice(&(cells_bytes as u32).to_be_bytes());
        }
    }

    fn append_indexed(&mut self, cell: &CellRef<'_>, out: &mut Vec<u8>) {
        if self.row_offsets.is_empty() || self.last_row != cell.row() {
            self.row_offsets.push((self.encoded_bytes - 4 * self.row_offsets.len()) as u32);
            self.last_row.clear();
            self.last_row.extend_from_slice(cell.row());
            self.encoded_bytes += 4;
        }
        append_raw(cell, self.layout, out);
    }

    fn unencoded_len(&self, cell: &CellRef<'_>) -> usize {
        let tags = if self.layout.includes_tags { 2 + cell.tags().len() } else { 0 };
        let mvcc = if self.layout.includes_mvcc { vlong_len(cell.seq_id() as i64) } else { 0 };
        8 + cell.key().len() + cell.value().len() + tags + mvcc
    }
}

fn append_raw(cell: &CellRef<'_>, layout: CellLayout, out: &mut Vec<u8>) {
    cell.write_key_value(out, false);
    if layout.includes_tags {
        out.extend_from_slice(&(cell.tags().len() as u16).to_be_bytes());
        out.extend_from_slice(cell.tags());
    }
    if layout.includes_mvcc {
        write_vlong(out, cell.seq_id() as i64);
    }
}
