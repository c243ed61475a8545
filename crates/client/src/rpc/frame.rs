//! The bytes of HBase's RPC.
//!
//! ```text
//! preamble = "HBas" 00 50                                     (version 0, SIMPLE authentication)
//! header   = u32 len | ConnectionHeader
//! request  = u32 len | varint len, RequestHeader  | varint len, parameter | cell block
//! response = u32 len | varint len, ResponseHeader | varint len, result    | cell block   (header alone: an exception)
//! ```

use bytes::{Buf, Bytes};
use evenkeel_common::codec;
use evenkeel_protocol::pb;
use prost::Message;

use super::{Call, Service};
use crate::error::{Error, RemoteException, Result};

const PREAMBLE: &[u8] = b"HBas\0\x50";
const CELL_CODEC: &str = "org.apache.hadoop.hbase.codec.KeyValueCodec";
/// The version of HBase's client whose rules this one follows; servers gate behaviour on it.
const VERSION: (u32, u32, &str) = (2, 6, "2.6.4");

/// What a socket starts with.
pub(crate) fn greeting(service: Service, user: &str) -> Vec<u8> {
    let header = pb::ConnectionHeader {
        user_info: Some(pb::UserInformation { effective_user: user.to_owned(), real_user: None }),
        service_name: Some(service.name().to_owned()),
        cell_block_codec_class: Some(CELL_CODEC.to_owned()),
        version_info: Some(version_info(user)),
        ..Default::default()
    };
    let mut out = PREAMBLE.to_vec();
    out.extend_from_slice(&(header.encoded_len() as u32).to_be_bytes());
    header.encode_raw_into(&mut out);
    out
}

fn version_info(user: &str) -> pb::VersionInfo {
    let (major, minor, version) = VERSION;
    pb::VersionInfo {
        version: version.to_owned(),
        user: user.to_owned(),
        version_major: Some(major),
        version_minor: Some(minor),
        ..Default::default()
    }
}

/// `Message::encode` into a `Vec`, which cannot run out of room.
trait EncodeInto {
    fn encode_raw_into(&self, out: &mut Vec<u8>);
}

impl<M: Message> EncodeInto for M {
    fn encode_raw_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.encode_to_vec());
    }
}

/// One request frame.
///
/// # Errors
/// [`Error::InvalidArgument`] when it does not fit a frame.
pub(crate) fn request<M: Message>(call_id: u32, call: &Call<'_, M>) -> Result<Bytes> {
    let meta = Some(pb::CellBlockMeta { length: Some(call.cells.len() as u32) });
    let header = pb::RequestHeader {
        call_id: Some(call_id),
        method_name: Some(call.method.to_owned()),
        request_param: Some(true),
        cell_block_meta: meta.filter(|_| !call.cells.is_empty()),
        priority: (call.priority > 0).then_some(call.priority),
        timeout: Some(u32::try_from(call.timeout.as_millis()).unwrap_or(u32::MAX).min(i32::MAX as u32)),
        ..Default::default()
    };
    let mut out = vec![0; 4];
    delimited(&mut out, &header);
    delimited(&mut out, call.param);
    out.extend_from_slice(call.cells);
    let len = i32::try_from(out.len() - 4)
        .map_err(|_| Error::InvalidArgument("a request of more than 2 GiB".to_owned()))?;
    out[..4].copy_from_slice(&len.to_be_bytes());
    Ok(out.into())
}

fn delimited<M: Message>(out: &mut Vec<u8>, message: &M) {
    codec::write_varint(out, message.encoded_len() as u64);
    message.encode_raw_into(out);
}

/// One response: the result message and the cell block, not yet decoded.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) message: Bytes,
    pub(crate) cells: Bytes,
}

/// The call id of a response frame (without its length) and what came of the call.
///
/// # Errors
/// [`Error::Protocol`] when the frame cannot be read, so that the socket cannot be trusted any longer.
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
    let (len, at) = codec::read_varint(frame).ok_or_else(torn)?;
    frame.advance(at);
    let len = usize::try_from(len).ok().filter(|len| *len <= frame.len()).ok_or_else(torn)?;
    Ok(frame.split_to(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(header: &pb::ResponseHeader, message: Option<&pb::GetClusterIdResponse>, cells: &[u8]) -> Bytes {
        let mut out = Vec::new();
        delimited(&mut out, header);
        message.iter().for_each(|m| delimited(&mut out, *m));
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
        let call = Call {
            service: Service::ClientMeta,
            method: "GetClusterId",
            param: &param,
            cells: b"xyz",
            timeout: std::time::Duration::from_secs(1),
            priority: 0,
        };
        let mut bytes = request(3, &call).expect("fits");
        let len = bytes.get_u32() as usize;
        assert_eq!(len, bytes.len());
        let header = pb::RequestHeader::decode(take_delimited(&mut bytes).expect("header")).expect("decodes");
        assert_eq!(
            (header.call_id, header.method_name(), header.timeout),
            (Some(3), "GetClusterId", Some(1000))
        );
        assert_eq!(header.cell_block_meta.expect("cells").length, Some(3));
        assert_eq!(take_delimited(&mut bytes).expect("param").len(), 0);
        assert_eq!(&bytes[..], b"xyz");
    }
}
