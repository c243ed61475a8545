//! Writes the cell block of a response, in the codec of its connection.

use bytes::Bytes;
use evenkeel_common::cell::CellBuffer;
use evenkeel_common::length;
use evenkeel_common::{CellRef, HBaseError, Result, buffer_pool};
use evenkeel_protocol::pb;
use prost::Message;

use super::{CellBlockCodec, CellCodec};
use crate::gather_buffer::{GATHER_BYTES_MIN, GatherBuffer};

/// The cells of a response.
///
/// Each [`push`](Self::push) copies a served cell, once. A value of 16 KiB or more that is passed
/// as shared bytes ([`push_shared`](Self::push_shared)) is not copied: the gathered write sends it,
/// and it stays pinned until then. Buffers are reused: small ones by the thread that filled them,
/// large ones by any thread (see [`pages`]).
pub struct CellBlockWriter {
    codec: CellCodec,
    compressor: Option<CellBlockCodec>,
    cells: usize,
    out: GatherBuffer,
}

impl CellBlockWriter {
    /// An empty block.
    pub fn new(codec: CellCodec, compressor: Option<CellBlockCodec>) -> Self {
        CellBlockWriter { codec, compressor, cells: 0, out: GatherBuffer::new() }
    }

    /// Number of cells pushed, for `associated_cell_count` and `cells_per_result`.
    pub fn cells(&self) -> usize {
        self.cells
    }

    /// Bytes written so far, before compression.
    pub fn bytes(&self) -> usize {
        self.out.len()
    }

    /// Returns true if no cell was pushed.
    pub fn is_empty(&self) -> bool {
        self.cells == 0
    }

    /// Appends a copy of a cell.
    #[inline]
    pub fn push(&mut self, cell: &CellRef<'_>) {
        self.cells += 1;
        let out = self.out.copied();
        match self.codec {
            CellCodec::KeyValue => {
                let tags = tags_bytes(cell);
                out.extend_from_slice(&length::must_u32(cell.key_value_len() - tags).to_be_bytes());
                cell.write_key_value(out, false);
            }
            CellCodec::KeyValueWithTags => {
                out.extend_from_slice(&length::must_u32(cell.key_value_len()).to_be_bytes());
                cell.write_key_value(out, true);
            }
            CellCodec::Cell => write_parts(out, cell, false),
            CellCodec::CellWithTags => write_parts(out, cell, true),
            CellCodec::Message => write_message(out, cell),
        }
    }

    /// Appends a cell whose value is also available as shared bytes. A large value is not copied.
    ///
    /// `value` must hold the same bytes as `cell.value()`.
    pub fn push_shared(&mut self, cell: &CellRef<'_>, value: Bytes) {
        debug_assert_eq!(cell.value(), &value[..]);
        let plain = match self.codec {
            CellCodec::KeyValue => true,
            CellCodec::KeyValueWithTags => cell.tags().is_empty(),
            _ => false,
        };
        if !plain || self.compressor.is_some() || value.len() < GATHER_BYTES_MIN {
            return self.push(cell);
        }
        self.cells += 1;
        let out = self.out.copied();
        out.extend_from_slice(&length::must_u32(8 + cell.key().len() + value.len()).to_be_bytes());
        out.extend_from_slice(&cell.prefix());
        out.extend_from_slice(cell.key());
        self.out.push_shared(value);
    }

    /// Appends several cells, as one copy if they are encoded as the codec requires.
    pub fn push_buffer(&mut self, cells: &CellBuffer) {
        let same_form = match self.codec {
            CellCodec::KeyValue => !cells.has_tags(),
            CellCodec::KeyValueWithTags => true,
            _ => false,
        };
        match cells.as_contiguous().filter(|_| same_form) {
            None => cells.iter().for_each(|cell| self.push(&cell)),
            Some(bytes) => {
                self.cells += cells.len();
                self.out.copied().extend_from_slice(bytes);
            }
        }
    }

    /// Appends several cells and takes the buffer: without a copy if they are encoded as the codec
    /// requires and large. Values that the buffer shares are not copied either.
    pub fn push_buffer_owned(&mut self, cells: CellBuffer) {
        let same_form = match self.codec {
            CellCodec::KeyValue => !cells.has_tags(),
            CellCodec::KeyValueWithTags => true,
            _ => false,
        };
        if !same_form || self.compressor.is_some() || cells.encoded_len() < GATHER_BYTES_MIN {
            self.push_buffer(&cells);
            return buffer_pool::release(cells.into_parts().0);
        }
        self.cells += cells.len();
        let (copied, shared) = cells.into_parts();
        self.out.append(GatherBuffer::from_parts(copied, shared));
    }

    /// Returns the block for the frame, compressed if the connection uses a compressor.
    pub(crate) fn finish(self) -> Result<GatherBuffer> {
        let Some(compressor) = self.compressor.filter(|_| !self.out.is_empty()) else {
            return Ok(self.out);
        };
        let mut packed = GatherBuffer::new();
        // With a compressor nothing is inserted, so the bytes are contiguous.
        let raw = self.out.as_contiguous().unwrap_or_default();
        compressor
            .compress(raw, packed.copied())
            .map_err(|error| HBaseError::io(format!("the cell block cannot be compressed: {error}")))?;
        Ok(packed)
    }

    /// Returns the block's bytes, compressed if required, for tests and for clients that build
    /// requests.
    pub fn into_bytes(self) -> Result<Vec<u8>> {
        self.finish().map(|block| block.to_vec())
    }
}

fn tags_bytes(cell: &CellRef<'_>) -> usize {
    if cell.tags().is_empty() { 0 } else { 2 + cell.tags().len() }
}

fn write_parts(out: &mut Vec<u8>, cell: &CellRef<'_>, with_tags: bool) {
    let sized = |out: &mut Vec<u8>, part: &[u8]| {
        out.extend_from_slice(&length::must_u32(part.len()).to_be_bytes());
        out.extend_from_slice(part);
    };
    sized(out, cell.row());
    sized(out, cell.family());
    sized(out, cell.qualifier());
    out.extend_from_slice(&cell.timestamp().to_be_bytes());
    out.push(cell.type_code());
    sized(out, cell.value());
    if with_tags {
        sized(out, cell.tags());
    }
    out.extend_from_slice(&cell.seq_id().to_be_bytes());
}

fn write_message(out: &mut Vec<u8>, cell: &CellRef<'_>) {
    let message = pb::Cell {
        row: Some(Bytes::copy_from_slice(cell.row())),
        family: Some(Bytes::copy_from_slice(cell.family())),
        qualifier: Some(Bytes::copy_from_slice(cell.qualifier())),
        timestamp: Some(cell.timestamp() as u64),
        cell_type: Some(i32::from(cell.type_code())),
        value: Some(Bytes::copy_from_slice(cell.value())),
        tags: None,
    };
    crate::wire::put_varint(out, message.encoded_len() as u64);
    message.encode_raw(out);
}

#[cfg(test)]
mod tests {
    use evenkeel_common::KeyValue;
    use evenkeel_common::cell::KeyValueBuilder;

    use super::super::CellBlockReader;
    use super::*;

    const CODECS: [CellCodec; 5] = [
        CellCodec::KeyValue,
        CellCodec::KeyValueWithTags,
        CellCodec::Cell,
        CellCodec::CellWithTags,
        CellCodec::Message,
    ];

    fn tagged(row: &[u8], value: &[u8], tags: &[u8]) -> KeyValue {
        KeyValueBuilder {
            row,
            family: b"f",
            qualifier: b"q",
            timestamp: -5,
            kind: evenkeel_common::CellType::DeleteColumn,
            value,
            tags,
        }
        .build()
    }

    fn cells() -> Vec<KeyValue> {
        let tag = [0, 2, 8, 1];
        vec![tagged(b"a", b"", &[]), tagged(b"bb", b"value", &tag), tagged(b"c", &[3; 20_000], &[])]
    }

    fn read(codec: CellCodec, block: Vec<u8>) -> Result<Vec<KeyValue>> {
        CellBlockReader::new(codec, block.into()).collect()
    }

    #[test]
    fn every_codec_round_trips() {
        for codec in CODECS {
            let mut writer = CellBlockWriter::new(codec, None);
            cells().iter().for_each(|cell| writer.push(&cell.as_cell()));
            assert_eq!(writer.cells(), 3);
            let back = read(codec, writer.into_bytes().unwrap()).unwrap();
            let with_tags = matches!(codec, CellCodec::KeyValueWithTags | CellCodec::CellWithTags);
            for (cell, read) in cells().iter().zip(&back) {
                assert_eq!(read.as_cell().key(), cell.as_cell().key(), "{codec:?}");
                assert_eq!(read.as_cell().value(), cell.as_cell().value(), "{codec:?}");
                let tags = if with_tags { cell.as_cell().tags().to_vec() } else { Vec::new() };
                assert_eq!(read.as_cell().tags(), tags, "{codec:?}");
            }
        }
    }

    #[test]
    fn key_value_codec_is_laid_out_as_hbase_does() {
        let mut writer = CellBlockWriter::new(CellCodec::KeyValue, None);
        writer.push(&tagged(b"r", b"v", &[0, 1, 9]).as_cell());
        let block = writer.into_bytes().unwrap();
        let expected =
            [&[0, 0, 0, 24][..], &[0, 0, 0, 15], &[0, 0, 0, 1], &[0, 1], b"r", &[1], b"f", b"q"].concat();
        assert_eq!(block[..expected.len()], expected);
        assert_eq!(block.len(), 4 + 24);
        assert_eq!(block[27], b'v');
    }

    #[test]
    fn shared_values_and_runs_give_the_same_bytes_as_pushes() {
        for codec in CODECS {
            let mut pushed = CellBlockWriter::new(codec, None);
            let mut shared = CellBlockWriter::new(codec, None);
            let mut run = CellBuffer::new();
            for cell in cells() {
                pushed.push(&cell.as_cell());
                shared.push_shared(&cell.as_cell(), Bytes::copy_from_slice(cell.as_cell().value()));
                run.push(&cell.as_cell());
            }
            let (mut copied, mut owned) =
                (CellBlockWriter::new(codec, None), CellBlockWriter::new(codec, None));
            copied.push_buffer(&run);
            owned.push_buffer_owned(run);
            assert_eq!((copied.cells(), owned.cells(), shared.cells()), (3, 3, 3));
            let expected = pushed.into_bytes().unwrap();
            for other in [shared, copied, owned] {
                assert_eq!(other.into_bytes().unwrap(), expected, "{codec:?}");
            }
        }
    }

    #[test]
    fn compressed_blocks_read_back() {
        let compressor = CellBlockCodec::Snappy;
        let mut writer = CellBlockWriter::new(CellCodec::KeyValue, Some(compressor));
        cells().iter().for_each(|cell| {
            writer.push_shared(&cell.as_cell(), Bytes::copy_from_slice(cell.as_cell().value()))
        });
        let packed = writer.into_bytes().unwrap();
        let raw = compressor.decompress(&packed, 1 << 20).unwrap();
        assert_eq!(read(CellCodec::KeyValue, raw).unwrap().len(), 3);
    }

    #[test]
    fn every_truncation_is_an_error_or_fewer_cells() {
        for codec in CODECS {
            let mut writer = CellBlockWriter::new(codec, None);
            cells()[..2].iter().for_each(|cell| writer.push(&cell.as_cell()));
            let block = writer.into_bytes().unwrap();
            let mut clean_ends = 0;
            for cut in 0..block.len() {
                if let Ok(cells) = read(codec, block[..cut].to_vec()) {
                    clean_ends += 1;
                    assert!(cells.len() < 2, "{codec:?} cut at {cut}");
                }
            }
            assert_eq!(clean_ends, 2, "{codec:?}: only the two cell boundaries end cleanly");
        }
    }

    #[test]
    fn false_lengths_are_errors() {
        for codec in CODECS {
            let block = vec![0xff; 40];
            assert!(read(codec, block).is_err(), "{codec:?}");
        }
        assert!(
            read(CellCodec::KeyValue, vec![0, 0, 0, 8, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff])
                .is_err()
        );
    }

    #[test]
    fn a_missing_cell_is_not_retried() {
        let error = CellBlockReader::new(CellCodec::KeyValue, Bytes::new()).expect_cell().unwrap_err();
        assert!(error.is_do_not_retry());
    }
}
