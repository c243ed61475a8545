//! The parts of a request frame: header, parameter, cell block.
//!
//! ```text
//! varint len, RequestHeader | varint len, param message | cell block
//!                                                      (header.cell_block_meta.length bytes)
//! ```
//!
//! The header is read without a generated message (see [`crate::wire`]). Attributes and trace
//! context, which calls rarely need, are decoded on demand from the header's bytes.

use bytes::Bytes;
use evenkeel_common::HBaseError;
use evenkeel_metrics::trace::TraceContext;
use evenkeel_protocol::pb;
use prost::Message;

use crate::wire::{Malformed, skip_field, take_bytes, take_delimited, take_varint};

/// The fields of RequestHeader that every call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestHead<'a> {
    /// Returned in the response; 0 if absent.
    pub call_id: u32,
    /// The method's name; empty if absent.
    pub method: &'a str,
    /// Whether a parameter message follows; required.
    pub request_param: bool,
    /// Length of the cell block, if there is one.
    pub cell_block_bytes: Option<u32>,
    /// The priority that the client requests.
    pub priority: Option<u32>,
    /// The client's timeout in milliseconds; 0: none.
    pub timeout_ms: u32,
}

impl<'a> RequestHead<'a> {
    /// Parses the header. A name that is not UTF-8 or a truncated field is malformed.
    pub fn parse(mut bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut head = RequestHead::default();
        while !bytes.is_empty() {
            let tag = take_varint(&mut bytes)?;
            head.take_field(tag, &mut bytes)?;
        }
        Ok(head)
    }

    fn take_field(&mut self, tag: u64, bytes: &mut &'a [u8]) -> Result<(), Malformed> {
        const VARINT: u64 = 0;
        const DELIMITED: u64 = 2;
        match (tag >> 3, tag & 7) {
            (0, _) => return Err(Malformed),
            (1, VARINT) => self.call_id = take_u32_field(bytes)?,
            (3, DELIMITED) => {
                self.method = std::str::from_utf8(take_delimited(bytes)?).map_err(|_| Malformed)?;
            }
            (4, VARINT) => self.request_param = take_varint(bytes)? != 0,
            (5, DELIMITED) => self.cell_block_bytes = parse_cell_block_meta(take_delimited(bytes)?)?,
            (6, VARINT) => self.priority = Some(take_u32_field(bytes)?),
            (7, VARINT) => self.timeout_ms = take_u32_field(bytes)?,
            (_, wire_type) => skip_field(bytes, wire_type)?,
        }
        Ok(())
    }
}

/// Returns the trace context of a header; an empty one if there is none.
pub fn trace_context(header: &[u8]) -> TraceContext {
    let decoded = pb::RequestHeader::decode(header).ok();
    let headers = decoded.and_then(|header| header.trace_info).map(|info| info.headers);
    TraceContext(headers.unwrap_or_default().into_iter().collect())
}

/// Reads a field of type uint32: protobuf takes the low bits of the number.
fn take_u32_field(bytes: &mut &[u8]) -> Result<u32, Malformed> {
    take_varint(bytes).map(|value| (value & 0xffff_ffff) as u32)
}

fn parse_cell_block_meta(mut bytes: &[u8]) -> Result<Option<u32>, Malformed> {
    let mut length = None;
    while !bytes.is_empty() {
        match take_varint(&mut bytes)? {
            tag if tag == 1 << 3 => length = Some(take_u32_field(&mut bytes)?),
            tag => skip_field(&mut bytes, tag & 7)?,
        }
    }
    Ok(length)
}

/// Splits the delimited header off the front of a frame; parameter and cell block remain.
pub fn split_header(frame: &mut Bytes) -> Result<Bytes, Malformed> {
    let mut rest = &frame[..];
    let header_bytes = usize::try_from(take_varint(&mut rest)?).map_err(|_| Malformed)?;
    let prefix = frame.len() - rest.len();
    take_bytes(&mut rest, header_bytes)?;
    let header = frame.slice(prefix..prefix + header_bytes);
    *frame = frame.slice(prefix + header_bytes..);
    Ok(header)
}

/// Splits the bytes after the header into parameter and cell block.
///
/// Bytes after the announced cell block are ignored, as in HBase.
///
/// # Errors
/// Returns `DoNotRetryIOException` if a length exceeds the frame.
pub fn split_body(
    mut body: Bytes,
    cell_block_bytes: Option<u32>,
) -> Result<(Bytes, Option<Bytes>), HBaseError> {
    let param = split_header(&mut body)
        .map_err(|_| HBaseError::do_not_retry("the request's parameter extends past the end of its frame"))?;
    let Some(announced) = cell_block_bytes.filter(|bytes| *bytes > 0) else {
        return Ok((param, None));
    };
    let announced = announced as usize;
    if announced > body.len() {
        return Err(HBaseError::do_not_retry(format!(
            "the request announces a cell block of {announced} bytes, but only {} follow",
            body.len()
        )));
    }
    Ok((param, Some(body.slice(..announced))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> pb::RequestHeader {
        pb::RequestHeader {
            call_id: Some(77),
            trace_info: Some(pb::RpctInfo { trace_id: Some(-1), ..Default::default() }),
            method_name: Some("Get".to_owned()),
            request_param: Some(true),
            cell_block_meta: Some(pb::CellBlockMeta { length: Some(3) }),
            priority: Some(200),
            timeout: Some(60_000),
            attribute: vec![pb::NameBytesPair {
                name: "a".to_owned(),
                value: Some(Bytes::from_static(b"b")),
            }],
        }
    }

    #[test]
    fn the_hand_parsed_header_equals_the_generated_one() {
        let bytes = header().encode_to_vec();
        let expected = RequestHead {
            call_id: 77,
            method: "Get",
            request_param: true,
            cell_block_bytes: Some(3),
            priority: Some(200),
            timeout_ms: 60_000,
        };
        assert_eq!(RequestHead::parse(&bytes), Ok(expected));
        assert_eq!(RequestHead::parse(&[]), Ok(RequestHead::default()));
    }

    #[test]
    fn a_header_parses_only_where_a_field_ends() {
        let bytes = header().encode_to_vec();
        let whole_fields = (0..bytes.len()).filter(|cut| RequestHead::parse(&bytes[..*cut]).is_ok()).count();
        assert_eq!(whole_fields, 8, "before each of the 8 fields");
    }

    #[test]
    fn bodies_are_split_by_their_own_lengths() {
        let body = Bytes::from_static(&[2, 10, 11, 1, 2, 3, 4]);
        let (param, cells) = split_body(body.clone(), Some(3)).unwrap();
        assert_eq!((&param[..], cells.as_deref()), (&[10, 11][..], Some(&[1, 2, 3][..])));
        assert_eq!(split_body(body.clone(), None).unwrap().1, None);
        assert_eq!(split_body(body.clone(), Some(0)).unwrap().1, None);
        assert!(split_body(body, Some(5)).unwrap_err().is_do_not_retry());
        assert!(split_body(Bytes::from_static(&[9, 1]), None).unwrap_err().is_do_not_retry());
        assert!(split_body(Bytes::new(), None).is_err());
    }
}
