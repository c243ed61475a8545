//! The bytes of a response frame.
//!
//! ```text
//! i32 total | varint len, ResponseHeader | varint len, result message | cell block
//! ```
//!
//! An exception has only the header after the total. The header is encoded by hand, because it is
//! only two numbers on the hot path.

use evenkeel_common::length;
use evenkeel_common::{ErrorKind, HBaseError, Result};
use evenkeel_protocol::pb;
use prost::Message;

use crate::exception::exception_response;
use crate::gather_buffer::GatherBuffer;
use crate::wire::{put_varint, varint_len};

/// ResponseHeader field 1, call_id, a varint.
const TAG_CALL_ID: u8 = 1 << 3;
/// ResponseHeader field 3, cell_block_meta, a message.
const TAG_CELL_BLOCK_META: u8 = 3 << 3 | 2;
/// CellBlockMeta field 1, length, a varint.
const TAG_LENGTH: u8 = 1 << 3;
/// The call id of replies to preambles (-1 in Java).
pub const PREAMBLE_CALL_ID: u32 = u32::MAX;

/// Appends the frame of a result with its cell block, if any.
///
/// # Errors
/// Returns the error to send instead if the length does not fit into the frame's length field, or
/// if the frame exceeds `bytes_max`, the limit of the budget.
pub fn write_result<M: Message>(
    out: &mut GatherBuffer,
    call_id: u32,
    message: &M,
    cells: Option<GatherBuffer>,
    bytes_max: u64,
) -> Result<()> {
    let cells = cells.filter(|block| !block.is_empty());
    let cell_bytes = cells.as_ref().map_or(0, GatherBuffer::len);
    let message_bytes = message.encoded_len();
    let header_bytes = header_len(call_id, cell_bytes);
    let total = varint_len(header_bytes as u64)
        + header_bytes
        + varint_len(message_bytes as u64)
        + message_bytes
        + cell_bytes;
    let Ok(total) = i32::try_from(total) else {
        return Err(HBaseError::do_not_retry(format!(
            "a response of {total} bytes exceeds what a frame can hold"
        )));
    };
    if total as u64 > bytes_max {
        return Err(over_budget(total as usize));
    }
    let bytes = out.copied();
    bytes.reserve(4 + total as usize - cell_bytes);
    bytes.extend_from_slice(&total.to_be_bytes());
    put_header(bytes, header_bytes, call_id, cell_bytes);
    put_varint(bytes, message_bytes as u64);
    message.encode_raw(bytes);
    if let Some(block) = cells {
        out.append(block);
    }
    Ok(())
}

/// Returns the error for a reply that does not fit into the budget.
pub fn over_budget(bytes: usize) -> HBaseError {
    let message =
        format!("a response of {bytes} bytes exceeds the budget of responses that clients have not read");
    HBaseError::new(ErrorKind::CallQueueTooBig, message)
}

/// Appends the frame of an exception.
pub fn write_exception(out: &mut GatherBuffer, call_id: u32, error: &HBaseError) {
    write_exception_response(out, call_id, exception_response(error));
}

/// Appends the frame of an exception whose fields are set.
pub fn write_exception_response(out: &mut GatherBuffer, call_id: u32, exception: pb::ExceptionResponse) {
    let header =
        pb::ResponseHeader { call_id: Some(call_id), exception: Some(exception), cell_block_meta: None };
    let header_bytes = header.encoded_len();
    let total = varint_len(header_bytes as u64) + header_bytes;
    let bytes = out.copied();
    bytes.extend_from_slice(&length::must_u32(total).to_be_bytes());
    put_varint(bytes, header_bytes as u64);
    header.encode_raw(bytes);
}

fn header_len(call_id: u32, cell_bytes: usize) -> usize {
    let call_id_bytes = 1 + varint_len(u64::from(call_id));
    match cell_bytes {
        0 => call_id_bytes,
        _ => call_id_bytes + 2 + meta_len(cell_bytes),
    }
}

fn meta_len(cell_bytes: usize) -> usize {
    1 + varint_len(cell_bytes as u64)
}

fn put_header(bytes: &mut Vec<u8>, header_bytes: usize, call_id: u32, cell_bytes: usize) {
    put_varint(bytes, header_bytes as u64);
    bytes.push(TAG_CALL_ID);
    put_varint(bytes, u64::from(call_id));
    if cell_bytes > 0 {
        bytes.push(TAG_CELL_BLOCK_META);
        bytes.push(length::must_u8(meta_len(cell_bytes)));
        bytes.push(TAG_LENGTH);
        put_varint(bytes, cell_bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn frame(call_id: u32, cells: Option<&[u8]>) -> (pb::ResponseHeader, pb::GetClusterIdResponse, Bytes) {
        let message = pb::GetClusterIdResponse { cluster_id: Some("id".to_owned()) };
        let mut out = GatherBuffer::new();
        let block = cells.map(|cells| {
            let mut block = GatherBuffer::new();
            block.copied().extend_from_slice(cells);
            block
        });
        write_result(&mut out, call_id, &message, block, u64::MAX).unwrap();
        let mut bytes = Bytes::from(out.to_vec());
        let total = bytes.split_to(4);
        assert_eq!(total, (bytes.len() as u32).to_be_bytes()[..]);
        let header = pb::ResponseHeader::decode_length_delimited(&mut bytes).unwrap();
        let message = pb::GetClusterIdResponse::decode_length_delimited(&mut bytes).unwrap();
        (header, message, bytes)
    }

    #[test]
    fn the_hand_written_header_equals_the_generated_one() {
        for (call_id, block) in [(0, None), (300, Some(vec![9; 5])), (u32::MAX, Some(vec![1; 70_000]))] {
            let (header, message, rest) = frame(call_id, block.as_deref());
            let length = block.as_ref().map(|block| block.len() as u32);
            let expected = pb::ResponseHeader {
                call_id: Some(call_id),
                exception: None,
                cell_block_meta: length.map(|length| pb::CellBlockMeta { length: Some(length) }),
            };
            assert_eq!(header, expected);
            assert_eq!(message.cluster_id.as_deref(), Some("id"));
            assert_eq!(rest, block.unwrap_or_default());
        }
    }

    #[test]
    fn an_empty_cell_block_is_not_announced() {
        assert_eq!(frame(1, Some(&[])).0.cell_block_meta, None);
    }
}
