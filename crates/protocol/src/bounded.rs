//! Decoding within a [`DecodeBudget`]: the memory of a message is counted while it is decoded.
//!
//! An empty inner message is 2 bytes on the wire and a struct of some hundred bytes in a `Vec`, so
//! a frame of 8 MiB can grow to more than a GiB. The size of a message in memory is not known
//! beforehand, but no part of it is created without reading a key. So decoding reads through a
//! [`Buf`] that takes [`READ_BYTES`] of the budget for each step it is advanced by, and ends
//! when the budget is exhausted. Payloads of `bytes` fields cost nothing, because they share the
//! frame.
//!
//! The estimate is rough. An element takes at least two reads, a key and a length or a value, and
//! so 256 bytes of budget; the elements of HBase's lists have 24 to 350 bytes, and the `Vec`
//! that grows by them up to twice that. So the budget taken is at least a third of the actual
//! memory, and a multiple of it for fields of small numbers. `tests/bounded.rs` checks every list
//! that clients send.

use bytes::{Buf, Bytes};
use prost::{DecodeError, Message};

/// The budget that each read of a message takes.
const READ_BYTES: u64 = 128;

/// Memory that decoding may use. It has an initial amount and can request more.
pub struct DecodeBudget<'a> {
    left: u64,
    more: &'a mut dyn FnMut() -> Option<u64>,
    is_exceeded: bool,
}

impl<'a> DecodeBudget<'a> {
    /// A budget of `bytes`. When it is exhausted, `more` is called for further bytes; `None`
    /// means that there are none.
    pub fn new(bytes: u64, more: &'a mut dyn FnMut() -> Option<u64>) -> Self {
        DecodeBudget { left: bytes, more, is_exceeded: false }
    }

    /// Takes bytes. Returns false if there are not enough, and always from then on.
    #[inline]
    pub fn acquire(&mut self, bytes: u64) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => self.acquire_more(bytes),
        }
    }

    /// The remaining bytes, without requesting more.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns true if more bytes were needed than available.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded
    }

    #[cold]
    fn acquire_more(&mut self, bytes: u64) -> bool {
        while !self.is_exceeded && self.left < bytes {
            match (self.more)() {
                Some(more) if more > 0 => self.left = self.left.saturating_add(more),
                _ => self.is_exceeded = true,
            }
        }
        match self.is_exceeded {
            true => self.left = 0,
            false => self.left -= bytes,
        }
        !self.is_exceeded
    }
}

/// Why a message was not decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundedError {
    /// The message is malformed, with the reason.
    Malformed(String),
    /// The message would exceed the budget.
    TooLarge,
}

impl From<DecodeError> for BoundedError {
    fn from(error: DecodeError) -> Self {
        BoundedError::Malformed(error.to_string())
    }
}

/// Decodes a message within a budget. Its `bytes` fields share `bytes`.
///
/// # Errors
/// [`BoundedError::Malformed`], [`BoundedError::TooLarge`].
pub fn decode<M: Message + Default>(bytes: Bytes, budget: &mut DecodeBudget<'_>) -> Result<M, BoundedError> {
    let mut message = M::default();
    merge(&mut message, bytes, budget)?;
    Ok(message)
}

/// Decodes a message into an existing one, as protobuf merges repeated fields; otherwise as
/// [`decode`].
///
/// # Errors
/// As [`decode`].
pub fn merge<M: Message>(
    into: &mut M,
    bytes: Bytes,
    budget: &mut DecodeBudget<'_>,
) -> Result<(), BoundedError> {
    let merged = into.merge(BoundedBuf { bytes, budget });
    match budget.is_exceeded() {
        true => Err(BoundedError::TooLarge),
        false => Ok(merged?),
    }
}

/// A buffer that ends when the budget is exhausted.
struct BoundedBuf<'a, 'b> {
    bytes: Bytes,
    budget: &'a mut DecodeBudget<'b>,
}

impl Buf for BoundedBuf<'_, '_> {
    #[inline]
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if !self.budget.acquire(READ_BYTES) {
            self.bytes.clear();
        }
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        self.bytes.copy_to_bytes(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb;

    /// The budget that decoding took, or its error, with a budget of `max` in steps of 1000.
    fn decoded(bytes: &[u8], max: u64) -> Result<(pb::MutationProto, u64), BoundedError> {
        let mut taken = 0;
        let mut more = || {
            taken += 1000;
            (taken <= max).then_some(1000)
        };
        let message = decode(Bytes::copy_from_slice(bytes), &mut DecodeBudget::new(0, &mut more))?;
        Ok((message, taken))
    }

    #[test]
    fn bounded_decoding_yields_the_same_message() {
        let value = pb::mutation_proto::column_value::QualifierValue {
            qualifier: Some(Bytes::from_static(b"q")),
            value: Some(vec![7; 10_000].into()),
            ..Default::default()
        };
        let column = pb::mutation_proto::ColumnValue {
            family: Bytes::from_static(b"f"),
            qualifier_value: vec![value; 5],
        };
        let message = pb::MutationProto {
            column_value: vec![column],
            attribute: vec![pb::NameBytesPair { name: "a name".to_owned(), value: None }],
            nonce: Some(u64::MAX),
            ..Default::default()
        };
        let bytes = message.encode_to_vec();
        let (decoded_message, taken) = decoded(&bytes, 1 << 20).expect("within");
        assert_eq!(decoded_message, message);
        assert!((2000..20_000).contains(&taken), "{taken}");
        for end in 0..bytes.len() {
            let plain = pb::MutationProto::decode(&bytes[..end]);
            assert_eq!(decoded(&bytes[..end], 1 << 20).ok().map(|(message, _)| message), plain.ok(), "{end}");
        }
    }

    #[test]
    fn decoding_of_many_parts_fails_beyond_the_allowance() {
        // Empty column values, then one with empty qualifier values.
        let mut bytes = [0x1a, 0].repeat(1000);
        bytes.extend([0x1a, 0xd0, 0x0f]);
        bytes.extend([0x12, 0].repeat(1000));
        let (message, taken) = decoded(&bytes, 1 << 20).expect("within");
        assert_eq!(
            (message.column_value.len(), message.column_value[1000].qualifier_value.len()),
            (1001, 1000)
        );
        assert!(taken >= 2000 * 2 * READ_BYTES, "{taken}");
        for max in (0..taken / 1000).map(|step| step * 1000) {
            assert_eq!(decoded(&bytes, max).err(), Some(BoundedError::TooLarge), "{max} of {taken}");
        }
    }
}
