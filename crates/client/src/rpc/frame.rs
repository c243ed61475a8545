//! The frames of HBase's RPC.
//!
//! ```text
//! preamble = "HBas" 00 50                     (version 0, SIMPLE authentication; see `opener`)
//! header   = u32 len | ConnectionHeader
//! request  = u32 len | varint len, RequestHeader  | varint len, parameter | cell block
//! response = u32 len | varint len, ResponseHeader | varint len, result    | cell block
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use bytes::{Buf, Bytes};
use evenkeel_common::length;
use evenkeel_common::varint;
use evenkeel_protocol::pb;
use prost::Message;

use super::compress::CellBlockCodec;
use super::{Call, Service};
use crate::config::ClientConfig;
use crate::error::{Error, RemoteException, Result};

const CELL_CODEC: &str = "org.apache.hadoop.hbase.codec.KeyValueCodec";
const CELL_CODEC_WITH_TAGS: &str = "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags";
/// The major and minor version in the connection header. Servers' behaviour depends on it.
const VERSION: (u32, u32) = (2, 6);

/// What follows the preamble: `u32 len | ConnectionHeader`.
pub(super) fn connection_header(service: Service, config: &ClientConfig) -> Vec<u8> {
    let codec = if config.tags { CELL_CODEC_WITH_TAGS } else { CELL_CODEC };
    let header = pb::ConnectionHeader {
        user_info: Some(pb::UserInformation { effective_user: config.user.clone(), real_user: None }),
        service_name: Some(service.name().to_owned()),
        cell_block_codec_class: Some(codec.to_owned()),
        cell_block_compressor_class: config.compressor.map(|codec| codec.class_name().to_owned()),
        version_info: Some(version_info(config)),
        ..Default::default()
    };
    [&length::must_u32(header.encoded_len()).to_be_bytes()[..], &header.encode_to_vec()].concat()
}

fn version_info(config: &ClientConfig) -> pb::VersionInfo {
    let (major, minor) = VERSION;
    pb::VersionInfo {
        version: config.version.clone(),
        user: config.user.clone(),
        version_major: Some(major),
        version_minor: Some(minor),
        ..Default::default()
    }
}

/// Appends one request frame, or nothing on failure.
///
/// # Errors
/// [`Error::InvalidArgument`] if it exceeds the length of a frame.
pub(super) fn request(
    out: &mut Vec<u8>,
    call_id: u32,
    call: &Call<'_>,
    compressor: Option<CellBlockCodec>,
) -> Result<()> {
    let mut compressed = Vec::new();
    let cells = match compressor.filter(|_| !call.cells.is_empty()) {
        None => call.cells,
        Some(codec) => {
            codec.compress(call.cells, &mut compressed)?;
            &compressed
        }
    };
    let param_len = call.param.len();
    let too_long = || Error::InvalidArgument("a request of more than 2 GiB".to_owned());
    if param_len.saturating_add(cells.len()) > FRAME_BYTES_MAX {
        return Err(too_long());
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    header(out, call_id, call, cells.len());
    varint::write_varint(out, param_len as u64);
    call.param.write(out);
    out.extend_from_slice(cells);
    set_length(out, start);
    Ok(())
}

/// The largest request. A frame's length is an `i32`; the rest leaves space for the header.
const FRAME_BYTES_MAX: usize = (i32::MAX as usize) - (1 << 16);

/// Appends a delimited `RequestHeader`: `1` call id, `3` method, `4` parameter follows, `5` cell
/// block `{1 length}`, `6` priority, `7` timeout in ms. Encoded by hand, since every call pays for
/// it.
fn header(out: &mut Vec<u8>, call_id: u32, call: &Call<'_>, cells_len: usize) {
    let start = out.len();
    out.push(0);
    number(out, 1, u64::from(call_id));
    let method = call.method.as_bytes();
    let method = method.get(..METHOD_BYTES_MAX).unwrap_or(method);
    key(out, 3, 2);
    varint::write_varint(out, method.len() as u64);
    out.extend_from_slice(method);
    number(out, 4, 1);
    if cells_len > 0 {
        key(out, 5, 2);
        varint::write_varint(out, 1 + varint_len(cells_len as u64) as u64);
        number(out, 1, cells_len as u64);
    }
    if call.priority > 0 {
        number(out, 6, u64::from(call.priority));
    }
    let timeout_ms = u64::try_from(call.timeout.as_millis()).unwrap_or(u64::MAX).min(i32::MAX as u64);
    number(out, 7, timeout_ms);
    // The header has fewer than 128 bytes, so its length is one byte.
    let len = u8::try_from(out.len() - start - 1).unwrap_or(u8::MAX);
    if let Some(byte) = out.get_mut(start) {
        *byte = len;
    }
}

fn key(out: &mut Vec<u8>, number: u8, wire_type: u8) {
    out.push(number << 3 | wire_type);
}

fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    key(out, field, 0);
    varint::write_varint(out, value);
}

/// Sets the four bytes at `at` to the number of bytes after them.
pub(crate) fn set_length(out: &mut [u8], at: usize) {
    let len = length::must_u32(out.len() - at - 4).to_be_bytes();
    if let Some(bytes) = out.get_mut(at..at + 4) {
        bytes.copy_from_slice(&len);
    }
}

/// Longer than any method name of HBase. Keeps a request header below 128 bytes.
const METHOD_BYTES_MAX: usize = 64;

fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// One response: the result message and the cell block, not yet decoded.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) message: Bytes,
    pub(crate) cells: Bytes,
}

/// Parses a response frame (without its length): the call id and the outcome.
///
/// # Errors
/// [`Error::Protocol`] if the frame is malformed. The socket must be closed then.
pub(crate) fn response(mut frame: Bytes) -> Result<(u32, Result<Response>)> {
    let header = pb::ResponseHeader::decode(take_delimited(&mut frame)?)?;
    let call_id = header.call_id.ok_or_else(|| Error::Protocol("a response without a call id".to_owned()))?;
    if let Some(exception) = &header.exception {
        return Ok((call_id, Err(Error::Remote(Box::new(RemoteException::of_header(exception))))));
    }
    let message = take_delimited(&mut frame)?;
    let cells = header.cell_block_meta.map_or(0, |meta| meta.length() as usize);
    if cells != frame.len() {
        return Err(Error::Protocol(format!("a cell block of {cells} bytes has {}", frame.len())));
    }
    Ok((call_id, Ok(Response { message, cells: frame })))
}

fn take_delimited(frame: &mut Bytes) -> Result<Bytes> {
    let torn = || Error::Protocol("a response frame that ends too early".to_owned());
    let (len, at) = varint::read_varint(frame).ok_or_else(torn)?;
    frame.advance(at);
    let len = usize::try_from(len).ok().filter(|len| *len <= frame.len()).ok_or_else(torn)?;
    Ok(frame.split_to(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(header: &pb::ResponseHeader, message: Option<&pb::GetClusterIdResponse>, cells: &[u8]) -> Bytes {
        let mut out = header.encode_length_delimited_to_vec();
        message.iter().for_each(|m| out.extend(m.encode_length_delimited_to_vec()));
        out.extend_from_slice(cells);
        out.into()
    }

    fn header(cells: Option<u32>) -> pb::ResponseHeader {
        let cell_block_meta = cells.map(|n| pb::CellBlockMeta { length: Some(n) });
        pb::ResponseHeader { call_id: Some(7), cell_block_meta, ..Default::default() }
    }

    #[test]
    fn responses_are_split_and_torn_ones_refused() {
        let message = pb::GetClusterIdResponse { cluster_id: Some("id".into()) };
        let whole = frame(&header(Some(3)), Some(&message), b"abc");
        let (id, result) = response(whole.clone()).expect("reads");
        let result = result.expect("no exception");
        assert_eq!((id, &result.cells[..]), (7, &b"abc"[..]));
        assert_eq!(pb::GetClusterIdResponse::decode(result.message).expect("decodes"), message);
        for cut in 0..whole.len() {
            assert!(response(whole.slice(..cut)).is_err(), "cut at {cut}");
        }
        assert!(response(frame(&header(Some(2)), Some(&message), b"abc")).is_err(), "more than said");
    }

    #[test]
    fn exceptions_have_no_message() {
        let exception = pb::ExceptionResponse {
            exception_class_name: Some("org.apache.hadoop.hbase.exceptions.RegionMovedException".into()),
            stack_trace: Some("org.apache.hadoop.hbase.exceptions.RegionMovedException: gone\n\tat x".into()),
            hostname: Some("h".into()),
            port: Some(9),
            ..Default::default()
        };
        let header =
            pb::ResponseHeader { call_id: Some(u32::MAX), exception: Some(exception), ..Default::default() };
        let (id, result) = response(frame(&header, None, b"")).expect("reads");
        let error = result.expect_err("an exception");
        let remote = error.remote().expect("remote");
        assert_eq!(
            (id, remote.message.as_str(), remote.moved_to.clone()),
            (u32::MAX, "gone", Some(("h".into(), 9)))
        );
    }

    #[test]
    fn requests_carry_length_and_header() {
        let param = pb::GetClusterIdRequest {};
        let mut out = b"before".to_vec();
        let mut call = Call {
            service: Service::ClientMeta,
            method: "getLastMajorCompactionTimestampForRegion",
            param: &param,
            cells: b"xyz",
            timeout: std::time::Duration::MAX,
            priority: u32::MAX,
        };
        request(&mut out, i32::MAX as u32, &call, None).expect("fits");
        let mut bytes = Bytes::from(out).split_off(6);
        let len = bytes.get_u32() as usize;
        assert_eq!(len, bytes.len());
        let header = pb::RequestHeader::decode(take_delimited(&mut bytes).expect("header")).expect("decodes");
        assert_eq!((header.call_id, header.method_name()), (Some(i32::MAX as u32), call.method));
        assert_eq!((header.timeout, header.priority), (Some(i32::MAX as u32), Some(u32::MAX)));
        assert_eq!(
            (header.request_param, header.cell_block_meta.expect("cells").length),
            (Some(true), Some(3))
        );
        assert_eq!(take_delimited(&mut bytes).expect("param").len(), 0);
        assert_eq!(&bytes[..], b"xyz");

        (call.cells, call.priority) = (b"", 0);
        let mut out = Vec::new();
        request(&mut out, 3, &call, None).expect("fits");
        let mut bytes = Bytes::from(out).split_off(4);
        let header = pb::RequestHeader::decode(take_delimited(&mut bytes).expect("header")).expect("decodes");
        assert_eq!((header.call_id, header.priority, header.cell_block_meta), (Some(3), None, None));
    }

    #[test]
    fn compressed_cells_are_as_long_as_the_header_says() {
        let param = pb::GetClusterIdRequest {};
        let cells = [5; 1000];
        let (service, timeout) = (Service::Client, std::time::Duration::from_secs(1));
        let call = Call { service, method: "M", param: &param, cells: &cells, timeout, priority: 0 };
        let mut out = Vec::new();
        request(&mut out, 3, &call, Some(CellBlockCodec::Gzip)).expect("fits");
        let mut bytes = Bytes::from(out).split_off(4);
        let header = pb::RequestHeader::decode(take_delimited(&mut bytes).expect("header")).expect("decodes");
        take_delimited(&mut bytes).expect("param");
        assert_eq!(header.cell_block_meta.expect("cells").length(), bytes.len() as u32);
        assert_eq!(CellBlockCodec::Gzip.decompress(&bytes, 1000).expect("reads"), cells);
    }
}
