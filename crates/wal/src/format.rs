//! The layout of a WAL file; `docs/formats/wal.md` draws every byte.
//!
//! ```text
//! file    = "PWAL" | varint len | WALHeader | entry* [ | WALTrailer | i32 trailer_len | "LAWP" ]
//! entry   = varint len | WALKey | cell * WALKey.following_kv_count
//!           (WALKey begins with the entry's checksum, see `checksum`)
//! cell    = i32 len | KeyValue with its tags        (plain; else see `compression_context`)
//! ```

pub(crate) mod checksum;
pub(crate) mod compression_context;
pub(crate) mod encode;
pub(crate) mod entry_compressor;
pub(crate) mod lru_dictionary;
pub(crate) mod value_compression;

/// The first bytes of every WAL file.
pub const MAGIC: &[u8; 4] = b"PWAL";
/// The last bytes of a closed file.
pub const TRAILER_MAGIC: &[u8; 4] = b"LAWP";
/// The bytes after the last entry of a closed file: an empty WALTrailer, its length,
/// [`TRAILER_MAGIC`].
pub const TRAILER: &[u8; 8] = b"\0\0\0\0LAWP";
/// `writer_cls_name` of files written here: readers reject names that are not on their list.
pub const WRITER_CLASS: &str = "ProtobufLogWriter";
/// `cell_codec_cls_name` of files written here: a class that Java readers load by this name.
pub const CELL_CODEC_CLASS: &str = "org.apache.hadoop.hbase.regionserver.wal.WALCellCodec";
/// A longer key is corrupt: the fields of a real one are names, ids and a few attributes.
pub const KEY_BYTES_MAX: usize = 8 << 20;
/// A longer header is corrupt.
pub const HEADER_BYTES_MAX: usize = 1 << 20;
