//! The cell encodings that a client can request, by HBase's class names.

/// The encoding of a cell in a cell block.
///
/// ```text
/// KeyValue          i32 len | KeyValue without tags
/// KeyValueWithTags  i32 len | KeyValue [ | u16 tags_len | tags ]
/// Cell              i32 len, row | i32 len, family | i32 len, qualifier | i64 timestamp | u8 type
///                   | i32 len, value | i64 sequence id
/// CellWithTags      the same with i32 len, tags before the sequence id
/// Message           varint len | protobuf message Cell, without tags
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CellCodec {
    /// `KeyValueCodec`, the default of clients.
    KeyValue,
    /// `KeyValueCodecWithTags`.
    KeyValueWithTags,
    /// `CellCodec`.
    Cell,
    /// `CellCodecWithTags`.
    CellWithTags,
    /// `MessageCodec`.
    Message,
}

impl CellCodec {
    /// Returns the codec of a Java class name; `None` if this server does not have it.
    pub fn by_class_name(class: &str) -> Option<CellCodec> {
        match class.strip_prefix("org.apache.hadoop.hbase.codec.")? {
            "KeyValueCodec" => Some(CellCodec::KeyValue),
            "KeyValueCodecWithTags" => Some(CellCodec::KeyValueWithTags),
            "CellCodec" => Some(CellCodec::Cell),
            "CellCodecWithTags" => Some(CellCodec::CellWithTags),
            "MessageCodec" => Some(CellCodec::Message),
            _ => None,
        }
    }
}
