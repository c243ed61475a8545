//! Sequential reading with every length checked.

use evenkeel_common::varint::read_vlong;

use super::Malformed;
use super::tags::varint;

/// Bytes, and the offset of the next one to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    /// Reads from an offset on.
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// The offset of the next byte.
    pub fn position(&self) -> usize {
        self.at
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or(Malformed)?;
        self.at += 1;
        Ok(byte)
    }

    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let bytes = self.bytes.get(self.at..).and_then(|rest| rest.get(..len)).ok_or(Malformed)?;
        self.at += len;
        Ok(bytes)
    }

    /// A varint that fits a Java int ("compressed int").
    #[inline]
    pub fn varint(&mut self) -> Result<usize, Malformed> {
        let (value, len) = varint(self.bytes.get(self.at..).ok_or(Malformed)?).ok_or(Malformed)?;
        self.at += len;
        Ok(value)
    }

    /// A sequence id, as a vlong that is not negative.
    #[inline]
    pub fn seq_id(&mut self) -> Result<u64, Malformed> {
        let (value, len) = read_vlong(self.bytes.get(self.at..).ok_or(Malformed)?).ok_or(Malformed)?;
        self.at += len;
        u64::try_from(value).map_err(|_| Malformed)
    }
}
