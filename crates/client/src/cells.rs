//! Cell blocks of `KeyValueCodec` and `KeyValueCodecWithTags`: `u32 len | KeyValue`, repeated.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use bytes::{Buf, Bytes};
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::{CellType, KeyValue, varint};
use evenkeel_protocol::pb;

use crate::error::{Error, Result};
use crate::result::RowResult;
use crate::rpc::frame::set_length;

/// Appends a cell in the codec's form; without tags it is `KeyValueCodec`'s, with them
/// `KeyValueCodecWithTags`'.
pub(crate) fn write(out: &mut Vec<u8>, cell: &KeyValue, with_tags: bool) {
    let view = cell.as_cell();
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    view.write_key_value(out, with_tags);
    set_length(out, at);
}

/// The cells of one response, in order.
#[derive(Debug)]
pub(crate) struct CellBlock(Bytes);

impl CellBlock {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The next cells.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the block has fewer cells.
    pub(crate) fn take(&mut self, count: usize) -> Result<Vec<KeyValue>> {
        // A KeyValue takes more than 16 bytes, so the block's length bounds what a wrong count can
        // reserve.
        let mut cells = Vec::with_capacity(count.min(self.0.len() / 16));
        for _ in 0..count {
            cells.push(self.next()?);
        }
        Ok(cells)
    }

    fn next(&mut self) -> Result<KeyValue> {
        let len = varint::read_u32(&self.0, 0).ok_or_else(short)? as usize;
        self.0.advance(4);
        if len > self.0.len() {
            return Err(short());
        }
        Ok(KeyValue::parse(self.0.split_to(len))?)
    }

    /// The result of one Get, Mutate or action: the cells in the message, then those in this block.
    pub(crate) fn result(&mut self, result: &pb::Result) -> Result<RowResult> {
        let mut cells: Vec<_> = result.cell.iter().map(cell_of).collect::<Result<_>>()?;
        let associated = usize::try_from(result.associated_cell_count()).map_err(|_| short())?;
        cells.extend(self.take(associated)?);
        Ok(RowResult::new(cells, result.exists, result.stale()))
    }
}

/// Decodes a cell that is encoded in the message.
pub(crate) fn cell_of(cell: &pb::Cell) -> Result<KeyValue> {
    let code = cell.cell_type.unwrap_or_default();
    let kind = u8::try_from(code).ok().and_then(CellType::from_code);
    let kind = kind.ok_or_else(|| Error::Protocol(format!("cell type {code}")))?;
    let (row, family) = (cell.row(), cell.family());
    let (qualifier, timestamp, value) = (cell.qualifier(), cell.timestamp() as i64, cell.value());
    let parts = KeyValueBuilder { row, family, qualifier, timestamp, kind, value, tags: &[] };
    parts.try_build().map_err(|error| Error::Protocol(error.message().to_owned()))
}

fn short() -> Error {
    Error::Protocol("the cell block ends before its cells do".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_come_back_and_short_blocks_are_errors() {
        let cells = [KeyValue::put(b"r", b"f", b"q", 5, b"v"), KeyValue::put(b"r", b"f", b"z", 6, b"")];
        let mut bytes = Vec::new();
        cells.iter().for_each(|c| write(&mut bytes, c, false));
        let bytes = Bytes::from(bytes);
        assert_eq!(CellBlock::new(bytes.clone()).take(2).expect("whole"), cells);
        assert!(CellBlock::new(bytes.clone()).take(3).is_err());
        for cut in 0..bytes.len() {
            assert!(CellBlock::new(bytes.slice(..cut)).take(2).is_err(), "cut at {cut}");
        }
        assert!(CellBlock::new(Bytes::from_static(&[0xff; 9])).take(usize::MAX).is_err());
    }

    #[test]
    fn tags_are_written_only_on_request() {
        let tagged = KeyValueBuilder {
            row: b"r",
            family: b"f",
            tags: &[0, 2, 9, 1],
            qualifier: b"q",
            timestamp: 1,
            kind: CellType::Put,
            value: b"v",
        }
        .build();
        for (with_tags, len) in [(true, 4), (false, 0)] {
            let mut bytes = Vec::new();
            write(&mut bytes, &tagged, with_tags);
            let back = CellBlock::new(bytes.into()).take(1).expect("whole");
            assert_eq!(back[0].as_cell().tags().len(), len);
        }
    }

    #[test]
    fn negative_counts_are_errors() {
        let result = pb::Result { associated_cell_count: Some(-1), ..Default::default() };
        assert!(CellBlock::new(Bytes::new()).result(&result).is_err());
    }
}
