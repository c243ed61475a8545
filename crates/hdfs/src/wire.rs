//! Delimited messages on a socket: a varint length of at most 32 bits, then the message.

use std::io::{self, Read};

use prost::Message;

/// The largest accepted delimited message of a DataNode, in bytes. Replies have tens of bytes;
/// error messages may be longer.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Appends the length of `message` and `message`.
pub(crate) fn put_delimited(out: &mut Vec<u8>, message: &impl Message) {
    evenkeel_common::varint::write_varint(out, message.encoded_len() as u64);
    // Encoding into a `Vec` cannot fail: it grows.
    let _ = message.encode(out);
}

/// Reads a delimited message of a DataNode.
///
/// # Errors
/// `InvalidData` if it is malformed or too long; `UnexpectedEof`; I/O errors of the socket.
pub(crate) fn read_delimited<M: Message + Default>(from: &mut impl Read) -> io::Result<M> {
    let len = read_length(from)?;
    if len > MESSAGE_BYTES_MAX {
        return Err(invalid(format!("a message of {len} bytes")));
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    M::decode(&bytes[..]).map_err(|e| invalid(e.to_string()))
}

fn read_length(from: &mut impl Read) -> io::Result<usize> {
    let mut len = 0_usize;
    for shift in [0, 7, 14, 21, 28] {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        let [byte] = byte;
        len |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(len);
        }
    }
    Err(invalid("a length of more than 5 bytes"))
}

/// Decodes and removes one delimited message from the front of `bytes`.
///
/// # Errors
/// `InvalidData` if it is malformed or extends beyond the end.
pub(crate) fn take_delimited<M: Message + Default>(bytes: &mut &[u8]) -> io::Result<M> {
    match try_take_delimited(bytes)? {
        Some(message) => Ok(message),
        None => Err(invalid("a message that reaches beyond its frame")),
    }
}

/// As [`take_delimited`], but returns `None` if the message is incomplete.
///
/// # Errors
/// `InvalidData` if it is malformed or too long.
pub(crate) fn try_take_delimited<M: Message + Default>(bytes: &mut &[u8]) -> io::Result<Option<M>> {
    let mut rest = *bytes;
    let len = match read_length(&mut rest) {
        Ok(len) => len,
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(e),
    };
    let Some((message, rest)) = rest.split_at_checked(len) else { return Ok(None) };
    let message = M::decode(message).map_err(|e| invalid(e.to_string()))?;
    *bytes = rest;
    Ok(Some(message))
}
