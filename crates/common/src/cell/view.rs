//! [`CellRef`], a borrowed view of one cell.

use super::tags::split_tag;
use super::{
    CellType, FAMILY_BYTES_MAX, KEY_FIXED_BYTES, KEY_VALUE_BYTES_MAX, KEY_VALUE_PREFIX_BYTES, ROW_BYTES_MAX,
    TAGS_BYTES_MAX, TIMESTAMP_TYPE_BYTES,
};
use super::{check_tags, is_delete_code, tag_type};
use crate::error::{HBaseError, Result};
use crate::length;

/// A view of one cell: the flat key, the value and the tags, borrowed from the cell's memory, and
/// the sequence id. `Copy`; 64 bytes.
///
/// Invariants: `2 + row_len + 1 + family_len + 9 <= key.len()`; the tags have [`TAGS_BYTES_MAX`]
/// bytes at most, and key and value each fit a `u32`.
#[derive(Clone, Copy)]
pub struct CellRef<'a> {
    key: &'a [u8],
    value: &'a [u8],
    tags: &'a [u8],
    seq_id: u64,
    row_len: u16,
    family_len: u8,
}

#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "lengths are checked at construction"))]
impl<'a> CellRef<'a> {
    /// A view over a flat key, a value and raw tags.
    ///
    /// # Errors
    /// `IOException` if the lengths within `key` do not match it, or if a part is longer than a
    /// KeyValue allows.
    pub fn new(key: &'a [u8], value: &'a [u8], tags: &'a [u8], seq_id: u64) -> Result<Self> {
        let (row_len, family_len) = check_key(key)?;
        if !fits(key, value, tags) {
            let lengths = (key.len(), value.len(), tags.len());
            return Err(malformed(format!("key, value and tags of {lengths:?} bytes do not fit a KeyValue")));
        }
        Ok(Self { key, value, tags, seq_id, row_len, family_len })
    }

    /// As [`CellRef::new`], for parts that were checked when they were stored.
    ///
    /// # Panics
    /// If the key is malformed nonetheless.
    #[inline]
    pub fn from_checked(key: &'a [u8], value: &'a [u8], tags: &'a [u8], seq_id: u64) -> Self {
        let Some((row_len, rest)) = key.split_first_chunk() else { panic_malformed() };
        let row_len = u16::from_be_bytes(*row_len);
        let Some(&family_len) = rest.get(usize::from(row_len)) else { panic_malformed() };
        debug_assert!(check_key(key).is_ok() && fits(key, value, tags));
        Self { key, value, tags, seq_id, row_len, family_len }
    }

    /// As [`CellRef::from_checked`], for a key whose lengths are already known. Wrong lengths give
    /// wrong parts, or a panic when a part is accessed.
    #[inline]
    pub fn from_parts(
        key: &'a [u8],
        value: &'a [u8],
        tags: &'a [u8],
        seq_id: u64,
        (row_len, family_len): (u16, u8),
    ) -> Self {
        debug_assert!(check_key(key).is_ok_and(|lengths| lengths == (row_len, family_len)));
        debug_assert!(fits(key, value, tags));
        Self { key, value, tags, seq_id, row_len, family_len }
    }

    /// The lengths of row and family, for [`CellRef::from_parts`].
    #[inline]
    pub fn key_lengths(&self) -> (u16, u8) {
        (self.row_len, self.family_len)
    }

    /// A view over the bytes of exactly one KeyValue, from key length to the end of the tags.
    ///
    /// # Errors
    /// `IOException` if a length does not match the bytes.
    pub fn parse(key_value: &'a [u8], seq_id: u64) -> Result<Self> {
        let (key_len, value_len) = lengths(key_value)?;
        let body = &key_value[KEY_VALUE_PREFIX_BYTES..];
        let key_and_value = key_len.checked_add(value_len).filter(|n| *n <= body.len()).ok_or_else(|| {
            malformed(format!("key of {key_len} and value of {value_len} bytes in {} bytes", body.len()))
        })?;
        let tags = parse_tags(&body[key_and_value..])?;
        Self::new(&body[..key_len], &body[key_len..key_and_value], tags, seq_id)
    }

    /// As [`CellRef::parse`], for bytes that were checked when they were stored.
    ///
    /// # Panics
    /// If the bytes are malformed nonetheless.
    #[inline]
    pub fn parse_checked(key_value: &'a [u8], seq_id: u64) -> Self {
        let Some((prefix, body)) = key_value.split_first_chunk() else { panic_malformed() };
        let lengths = u64::from_be_bytes(*prefix);
        let (key_len, value_len) = (length::index(lengths >> 32), length::index(lengths & 0xffff_ffff));
        let Some((key, rest)) = body.split_at_checked(key_len) else { panic_malformed() };
        let Some((value, rest)) = rest.split_at_checked(value_len) else { panic_malformed() };
        let tags = if rest.is_empty() { rest } else { &rest[2..] };
        Self::from_checked(key, value, tags, seq_id)
    }

    /// The row of a KeyValue that was checked when it was stored, without the rest of the cell.
    ///
    /// # Panics
    /// If the bytes are malformed nonetheless.
    #[inline]
    pub fn row_of_checked(key_value: &'a [u8]) -> &'a [u8] {
        let Some((_, key)) = key_value.split_first_chunk::<KEY_VALUE_PREFIX_BYTES>() else {
            panic_malformed()
        };
        let Some((row_len, rest)) = key.split_first_chunk() else { panic_malformed() };
        &rest[..usize::from(u16::from_be_bytes(*row_len))]
    }

    /// The flat key: row length, row, family length, family, qualifier, timestamp, type.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The row.
    #[inline]
    pub fn row(&self) -> &'a [u8] {
        &self.key[2..2 + self.row_len as usize]
    }

    /// The column family.
    #[inline]
    pub fn family(&self) -> &'a [u8] {
        let start = 3 + self.row_len as usize;
        &self.key[start..start + self.family_len as usize]
    }

    /// The column qualifier.
    #[inline]
    pub fn qualifier(&self) -> &'a [u8] {
        let start = 3 + self.row_len as usize + self.family_len as usize;
        &self.key[start..self.key.len() - TIMESTAMP_TYPE_BYTES]
    }

    /// Milliseconds since 1970.
    #[inline]
    pub fn timestamp(&self) -> i64 {
        let end = self.key.len();
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.key[end - 9..end - 1]);
        i64::from_be_bytes(bytes)
    }

    /// The type's code; see [`CellType`]. A stored cell may have a code that HBase does not know.
    #[inline]
    pub fn type_code(&self) -> u8 {
        self.key[self.key.len() - 1]
    }

    /// The type, or `None` for a code that HBase does not have.
    pub fn cell_type(&self) -> Option<CellType> {
        CellType::from_code(self.type_code())
    }

    /// Returns true if the type is one of the four delete markers.
    #[inline]
    pub fn is_delete(&self) -> bool {
        is_delete_code(self.type_code())
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    /// The raw tags: consecutive `u16 len | u8 type | value`.
    #[inline]
    pub fn tags(&self) -> &'a [u8] {
        self.tags
    }

    /// The sequence id (mvcc, write number); 0 if the cell is older than any open scanner.
    #[inline]
    pub fn seq_id(&self) -> u64 {
        self.seq_id
    }

    /// Checks what the type does not guarantee, before a cell of a client is stored: that its tags
    /// are well-formed and that files and logs can contain a cell of its length.
    ///
    /// # Errors
    /// `DoNotRetryIOException`.
    #[inline]
    pub fn check(&self) -> Result<()> {
        check_key_value_bytes(self.key_value_len())?;
        check_tags(self.tags)
    }

    /// The same cell with another sequence id.
    pub fn with_seq_id(self, seq_id: u64) -> Self {
        Self { seq_id, ..self }
    }

    /// The same key with another value and without tags (for filters that hide values).
    pub fn with_value<'b>(self, value: &'b [u8]) -> CellRef<'b>
    where
        'a: 'b,
    {
        debug_assert!(fits(self.key, value, &[]));
        CellRef { value, tags: &[], ..self }
    }

    /// The same key and value with other tags.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if the tags are malformed or too long.
    pub fn with_tags<'b>(self, tags: &'b [u8]) -> Result<CellRef<'b>>
    where
        'a: 'b,
    {
        check_tags(tags)?;
        Ok(CellRef { tags, ..self })
    }

    /// Iterates over the tags as (type, value). Stops at the first malformed one.
    pub fn tag_iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut rest = self.tags;
        std::iter::from_fn(move || {
            let (kind, value, after) = split_tag(rest)?;
            rest = after;
            Some((kind, value))
        })
    }

    /// Returns the cell's TTL in milliseconds, if it has a TTL tag.
    pub fn ttl_ms(&self) -> Option<i64> {
        if self.tags.is_empty() {
            return None;
        }
        let (_, value) = self.tag_iter().find(|(kind, _)| *kind == tag_type::TTL)?;
        value.try_into().ok().map(i64::from_be_bytes)
    }

    /// The length of this cell in bytes, as a KeyValue with its tags.
    #[inline]
    pub fn key_value_len(&self) -> usize {
        let tags = if self.tags.is_empty() { 0 } else { 2 + self.tags.len() };
        KEY_VALUE_PREFIX_BYTES + self.key.len() + self.value.len() + tags
    }

    /// Appends the cell as a KeyValue, with its tags if `with_tags` is true.
    #[inline]
    pub fn write_key_value(&self, out: &mut Vec<u8>, with_tags: bool) {
        out.extend_from_slice(&self.prefix());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        if with_tags && !self.tags.is_empty() {
            out.extend_from_slice(&self.tags_len().to_be_bytes());
            out.extend_from_slice(self.tags);
        }
    }

    /// The bytes before the key of a KeyValue: the lengths of key and value.
    #[inline]
    pub fn prefix(&self) -> [u8; KEY_VALUE_PREFIX_BYTES] {
        let [a, b, c, d] = length::must_u32(self.key.len()).to_be_bytes();
        let [e, f, g, h] = length::must_u32(self.value.len()).to_be_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// The length of the tags in bytes.
    #[inline]
    pub fn tags_len(&self) -> u16 {
        length::must_u16(self.tags.len())
    }

    /// Returns true if both cells have the same row.
    #[inline]
    pub fn same_row(&self, other: &CellRef<'_>) -> bool {
        self.row() == other.row()
    }

    /// Returns true if both cells have the same family and qualifier (the rows are not compared).
    #[inline]
    pub fn same_column(&self, other: &CellRef<'_>) -> bool {
        self.family() == other.family() && self.qualifier() == other.qualifier()
    }
}

impl std::fmt::Debug for CellRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.cell_type().map_or_else(|| self.type_code().to_string(), |t| format!("{t:?}"));
        write!(
            f,
            "{}/{}:{}/{}/{kind}/vlen={}/seqid={}",
            self.row().escape_ascii(),
            self.family().escape_ascii(),
            self.qualifier().escape_ascii(),
            self.timestamp(),
            self.value.len(),
            self.seq_id
        )
    }
}

/// Returns true if every length fits its field of a KeyValue.
#[inline]
fn fits(key: &[u8], value: &[u8], tags: &[u8]) -> bool {
    let max = u32::MAX as usize;
    tags.len() <= TAGS_BYTES_MAX && key.len() <= max && value.len() <= max
}

/// Checks the length of a KeyValue, tags included, against the limit, in bytes.
///
/// # Errors
/// `DoNotRetryIOException`.
#[inline]
pub fn check_key_value_bytes(bytes: usize) -> Result<()> {
    if bytes <= KEY_VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(HBaseError::do_not_retry(format!("KeyValue length {bytes} > {KEY_VALUE_BYTES_MAX}")))
}

#[cold]
fn panic_malformed() -> ! {
    panic!("a malformed cell was stored")
}

fn malformed(what: String) -> HBaseError {
    HBaseError::io(format!("malformed cell: {what}"))
}

fn lengths(key_value: &[u8]) -> Result<(usize, usize)> {
    let prefix =
        key_value.first_chunk::<8>().ok_or_else(|| malformed(format!("{} bytes", key_value.len())))?;
    let [a, b, c, d, e, f, g, h] = *prefix;
    Ok((u32::from_be_bytes([a, b, c, d]) as usize, u32::from_be_bytes([e, f, g, h]) as usize))
}

fn parse_tags(rest: &[u8]) -> Result<&[u8]> {
    let Some((len, tags)) = rest.split_first_chunk::<2>() else {
        return if rest.is_empty() { Ok(rest) } else { Err(malformed("1 byte after the value".into())) };
    };
    let len = u16::from_be_bytes(*len) as usize;
    if tags.len() != len {
        return Err(malformed(format!("{len} bytes of tags announced, {} present", tags.len())));
    }
    Ok(tags)
}

fn check_key(key: &[u8]) -> Result<(u16, u8)> {
    let bad = || malformed(format!("key of {} bytes", key.len()));
    let row_len = u16::from_be_bytes(*key.first_chunk::<2>().ok_or_else(bad)?);
    let family_len = *key.get(2 + row_len as usize).ok_or_else(bad)?;
    let fits = row_len as usize + family_len as usize + KEY_FIXED_BYTES <= key.len();
    let legal = row_len as usize <= ROW_BYTES_MAX && family_len as usize <= FAMILY_BYTES_MAX;
    if fits && legal { Ok((row_len, family_len)) } else { Err(bad()) }
}
