//! The cell layouts a client can ask for, by HBase's class names.

/// How one cell is laid out in a cell block.
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
    /// `KeyValueCodec`, what clients use by default.
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
    /// The codec of a Java class name; `None` for a class this server has not.
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
