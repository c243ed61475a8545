//! Cells.
//!
//! The layout of a cell is HBase's *KeyValue* everywhere: in the MemStore's arena, in data blocks,
//! in WAL entries and in cell blocks on the wire. All integers are big-endian.
//!
//! ```text
//! KeyValue = i32 key_len | i32 value_len | key | value [ | u16 tags_len | tags ]
//! key      = u16 row_len | row | u8 family_len | family | qualifier | i64 timestamp | u8 type
//! tag      = u16 len (of type and value) | u8 type | value
//! ```
//!
//! The *sequence id* (also: write number, mvcc) is not a part of those bytes; it is stored beside
//! them.
//!
//! There are four types, by the owner of the bytes:
//! * [`CellRef`]: a view, `Copy`, borrowed from a block, an arena or a frame. Scanners return
//!   views, so a cell that is examined but not returned to the client is never copied.
//! * [`KeyValue`]: owned (a slice of a shared buffer), for mutations until they are in the WAL and
//!   the MemStore.
//! * [`KeyBuf`]: an owned key without a value, to seek with.
//! * [`CellBuffer`]: consecutive cells in the format of HBase's `KeyValueCodecWithTags`, which is
//!   also the format of a reply's cell block: a served cell is copied once, into this buffer.
//!
//! Invariant of all four: lengths were checked at construction, so accessors stay within bounds,
//! and every length fits its field. Well-formed tags are not a part of the invariant: files and
//! logs of other writers may contain malformed ones. Cells of clients are checked for that, too
//! ([`CellRef::check`]).

mod buffer;
mod key;
mod key_value;
mod tags;
mod view;

pub use buffer::CellBuffer;
pub use key::{KeyBuf, write_key};
pub use key_value::{KeyValue, KeyValueBuilder};
pub use tags::{TAGS_BYTES_MAX, check_tags, check_tags_bytes, tags_with_ttl, whole_tags};
pub use view::{CellRef, check_key_value_bytes};

/// The longest row, in bytes (`HConstants.MAX_ROW_LENGTH`, Java's `Short.MAX_VALUE`).
pub const ROW_BYTES_MAX: usize = i16::MAX as usize;
/// The longest family name, in bytes (Java's `Byte.MAX_VALUE`).
pub const FAMILY_BYTES_MAX: usize = i8::MAX as usize;
/// The timestamp that the server replaces by its own time (`HConstants.LATEST_TIMESTAMP`).
pub const LATEST_TIMESTAMP: i64 = i64::MAX;
/// The smallest timestamp; sorts last within a column (`HConstants.OLDEST_TIMESTAMP`).
pub const OLDEST_TIMESTAMP: i64 = i64::MIN;
/// Bytes of a key besides row, family and qualifier: row length, family length, timestamp, type.
pub const KEY_FIXED_BYTES: usize = 2 + 1 + 8 + 1;
/// The longest KeyValue, in bytes. It is less than Java's `Integer.MAX_VALUE`, so that a block of a
/// file or an entry of a log can contain one together with its overhead.
pub const KEY_VALUE_BYTES_MAX: usize = 1 << 30;
/// Bytes of a KeyValue before its key.
pub const KEY_VALUE_PREFIX_BYTES: usize = 8;
/// Bytes of a key after its qualifier: timestamp and type.
pub const TIMESTAMP_TYPE_BYTES: usize = 9;

/// Types of tags that the server interprets (`TagType`).
pub mod tag_type {
    /// Access control list.
    pub const ACL: u8 = 1;
    /// Visibility expression.
    pub const VISIBILITY: u8 = 2;
    /// TTL of the cell, an i64 of milliseconds.
    pub const TTL: u8 = 8;
}

/// The type of a cell. Its code is a part of the key and sorts descending (`KeyValue.Type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CellType {
    /// For seek keys only: sorts after every stored cell of its timestamp.
    Minimum = 0,
    /// A value.
    Put = 4,
    /// Deletes one version of a column: the put of exactly this timestamp.
    Delete = 8,
    /// Deletes every column of the family at exactly this timestamp.
    DeleteFamilyVersion = 10,
    /// Deletes all versions of a column up to and including this timestamp.
    DeleteColumn = 12,
    /// Deletes all columns of the family up to and including this timestamp.
    DeleteFamily = 14,
    /// For seek keys only: sorts before every stored cell of its timestamp.
    Maximum = 255,
}

impl CellType {
    /// The type of a code, or `None` for one that HBase does not have.
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Minimum,
            4 => Self::Put,
            8 => Self::Delete,
            10 => Self::DeleteFamilyVersion,
            12 => Self::DeleteColumn,
            14 => Self::DeleteFamily,
            255 => Self::Maximum,
            _ => return None,
        })
    }

    /// The byte in the key.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// Returns true if a type code is one of the four types of delete markers.
pub fn is_delete_code(code: u8) -> bool {
    (CellType::Delete as u8..=CellType::DeleteFamily as u8).contains(&code)
}
