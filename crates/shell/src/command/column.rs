//! Columns as typed, `family:qualifier:formatter`, and cells as printed.

use std::collections::HashMap;

use evenkeel_common::{CellRef, CellType, RegionInfo};
use evenkeel_protocol::pb;
use prost::Message;

use crate::error::{CommandResult, RubyError};
use crate::text;
use crate::value::{Hash, Value};

/// The only class whose methods format values.
const BYTES_CLASS: &str = "org.apache.hadoop.hbase.util.Bytes";

/// The prefix of a region's message in hbase:meta (`ProtobufMagic`).
const PROTOBUF_MAGIC: &[u8] = b"PBUF";

/// A column; without a qualifier, a whole family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The family.
    pub family: Vec<u8>,
    /// The qualifier.
    pub qualifier: Option<Vec<u8>>,
}

impl Column {
    /// Parses `family`, `family:qualifier` or `family:qualifier:formatter`.
    pub fn parse(text: &[u8]) -> (Self, Option<String>) {
        let (family, rest) = split_colon(text);
        let Some(rest) = rest else { return (Self { family, qualifier: None }, None) };
        let (qualifier, formatter) = split_colon(&rest);
        let formatter = formatter.map(|formatter| String::from_utf8_lossy(&formatter).into_owned());
        (Self { family, qualifier: Some(qualifier) }, formatter)
    }

    /// The qualifier for writes, empty if there is none.
    pub fn qualifier(&self) -> &[u8] {
        self.qualifier.as_deref().unwrap_or_default()
    }
}

fn split_colon(text: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    match text.iter().position(|b| *b == b':') {
        Some(at) => (text[..at].to_vec(), Some(text[at + 1..].to_vec())),
        None => (text.to_vec(), None),
    }
}

/// A method of `Bytes` that formats bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    StringBinary,
    Text,
    Hex,
    Int,
    Long,
    Short,
    Float,
    Double,
    Boolean,
    Length,
}

impl Method {
    fn named(name: &str) -> CommandResult<Self> {
        Ok(match name {
            "toStringBinary" => Self::StringBinary,
            "toString" => Self::Text,
            "toHex" => Self::Hex,
            "toInt" => Self::Int,
            "toLong" => Self::Long,
            "toShort" => Self::Short,
            "toFloat" => Self::Float,
            "toDouble" => Self::Double,
            "toBoolean" => Self::Boolean,
            "len" => Self::Length,
            other => {
                let message = format!(
                    "undefined method `{other}' for class `#<Class:Java::OrgApacheHadoopHbaseUtil::Bytes>'"
                );
                return Err(RubyError::new("NameError", message).into());
            }
        })
    }

    fn show(self, bytes: &[u8]) -> CommandResult<String> {
        Ok(match self {
            Self::StringBinary => text::binary(bytes),
            Self::Text => String::from_utf8_lossy(bytes).into_owned(),
            Self::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            Self::Int => i32::from_be_bytes(head(bytes)?).to_string(),
            Self::Long => i64::from_be_bytes(head(bytes)?).to_string(),
            Self::Short => i16::from_be_bytes(head(bytes)?).to_string(),
            Self::Float => text::double(f64::from(f32::from_be_bytes(head(bytes)?))),
            Self::Double => text::double(f64::from_be_bytes(head(bytes)?)),
            Self::Boolean => match bytes {
                [byte] => (*byte != 0).to_string(),
                other => {
                    return Err(RubyError::argument(format!("Array has wrong size: {}", other.len())).into());
                }
            },
            Self::Length => bytes.len().to_string(),
        })
    }
}

fn head<const N: usize>(bytes: &[u8]) -> CommandResult<[u8; N]> {
    bytes.first_chunk().copied().ok_or_else(|| {
        let length = bytes.len();
        RubyError::argument(format!("offset (0) + length ({N}) exceed the capacity of the array: {length}"))
            .into()
    })
}

/// The format of one read's cells.
pub struct CellFormat {
    all: Method,
    columns: HashMap<(Vec<u8>, Vec<u8>), Method>,
    characters_max: Option<usize>,
    epoch: bool,
    meta: bool,
}

impl CellFormat {
    /// Removes the options `FORMATTER`, `FORMATTER_CLASS` and `MAXLENGTH`, and applies them.
    pub fn take(options: &mut Hash, epoch: bool, meta: bool) -> CommandResult<Self> {
        if let Some(class) = options.take("FORMATTER_CLASS") {
            check_class(&class.to_text())?;
        }
        let all = options
            .take("FORMATTER")
            .map_or(Ok(Method::StringBinary), |name| Method::named(&name.to_text()))?;
        let length = options.take("MAXLENGTH").map(|length| crate::args::number("MAXLENGTH", &length));
        let characters_max = length.transpose()?.and_then(|length| usize::try_from(length).ok());
        Ok(Self { all, columns: HashMap::new(), characters_max, epoch, meta })
    }

    /// Sets the formatter of a column: a method of `Bytes`, or `c(CLASS).METHOD`.
    pub fn set_column(&mut self, column: &Column, formatter: &str) -> CommandResult<()> {
        let method = match formatter.strip_prefix("c(").and_then(|rest| rest.split_once(").")) {
            Some((class, method)) => {
                check_class(class)?;
                method
            }
            None => formatter,
        };
        let key = (column.family.clone(), column.qualifier().to_vec());
        self.columns.insert(key, Method::named(method)?);
        Ok(())
    }

    /// A row key.
    pub fn row(&self, row: &[u8]) -> CommandResult<String> {
        self.all.show(row)
    }

    /// `family:qualifier`
    pub fn column(&self, cell: &CellRef<'_>) -> CommandResult<String> {
        Ok(format!("{}:{}", self.all.show(cell.family())?, self.all.show(cell.qualifier())?))
    }

    /// `timestamp=..., value=...`, or the type of a delete marker.
    pub fn cell(&self, cell: &CellRef<'_>) -> CommandResult<String> {
        let timestamp = match self.epoch {
            true => cell.timestamp().to_string(),
            false => text::local_time(cell.timestamp()),
        };
        let text = match delete_type(cell.cell_type()) {
            Some(kind) => format!("timestamp={timestamp}, type={kind}"),
            None => format!("timestamp={timestamp}, value={}", self.value(cell)?),
        };
        Ok(match self.characters_max {
            Some(most) => text.chars().take(most).collect(),
            None => text,
        })
    }

    fn value(&self, cell: &CellRef<'_>) -> CommandResult<String> {
        if let Some(shown) = self.meta.then(|| meta_value(cell)).flatten() {
            return Ok(shown);
        }
        let key = (cell.family().to_vec(), cell.qualifier().to_vec());
        self.columns.get(&key).copied().unwrap_or(self.all).show(cell.value())
    }
}

fn check_class(class: &str) -> CommandResult<()> {
    match class {
        BYTES_CLASS | "Bytes" => Ok(()),
        other => {
            Err(RubyError::argument(format!("the formatter class {other} is not supported by this shell"))
                .into())
        }
    }
}

fn delete_type(kind: Option<CellType>) -> Option<&'static str> {
    match kind? {
        CellType::Delete => Some("Delete"),
        CellType::DeleteColumn => Some("DeleteColumn"),
        CellType::DeleteFamily => Some("DeleteFamily"),
        CellType::DeleteFamilyVersion => Some("DeleteFamilyVersion"),
        _ => None,
    }
}

/// Regions and start codes in hbase:meta, which are not text.
fn meta_value(cell: &CellRef<'_>) -> Option<String> {
    if cell.family() != b"info" {
        return None;
    }
    match cell.qualifier() {
        b"serverstartcode" => cell.value().try_into().ok().map(|bytes| i64::from_be_bytes(bytes).to_string()),
        b"regioninfo" | b"splitA" | b"splitB" => Some(meta_region(cell.value())),
        merged if merged.starts_with(b"merge") => Some(meta_region(cell.value())),
        _ => None,
    }
}

fn meta_region(value: &[u8]) -> String {
    let message = value.strip_prefix(PROTOBUF_MAGIC).and_then(|message| pb::RegionInfo::decode(message).ok());
    let region = message.and_then(|message| RegionInfo::try_from(&message).ok());
    region.map(|region| text::region(&region)).unwrap_or_default()
}

/// The columns of an option or argument: a string or an array of strings.
pub fn columns(value: &Value) -> CommandResult<Vec<Vec<u8>>> {
    match value {
        Value::Nil => Ok(Vec::new()),
        Value::Str(_) | Value::Symbol(_) => Ok(vec![value.to_bytes()]),
        Value::Array(items) => Ok(crate::builtin::flatten(items.clone())
            .iter()
            .filter(|i| **i != Value::Nil)
            .map(Value::to_bytes)
            .collect()),
        _ => Err(RubyError::argument("COLUMNS must be specified as a String or an Array").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_up_to_three_parts() {
        let parse = |text: &str| Column::parse(text.as_bytes());
        assert_eq!(parse("f"), (Column { family: b"f".into(), qualifier: None }, None));
        assert_eq!(parse("f:"), (Column { family: b"f".into(), qualifier: Some(vec![]) }, None));
        let column = Column { family: b"f".into(), qualifier: Some(b"q".into()) };
        assert_eq!(parse("f:q"), (column.clone(), None));
        assert_eq!(parse("f:q:toInt"), (column.clone(), Some("toInt".into())));
        assert_eq!(parse("f:q:c(a.B).toX"), (column, Some("c(a.B).toX".into())));
    }

    #[test]
    fn values_are_formatted_as_java_formats_them() {
        let show = |name: &str, bytes: &[u8]| Method::named(name).and_then(|m| m.show(bytes)).ok();
        assert_eq!(show("toInt", b"\0\0\0\x07"), Some("7".into()));
        assert_eq!(show("toInt", b"\0"), None);
        assert_eq!(show("toLong", &(-2i64).to_be_bytes()), Some("-2".into()));
        assert_eq!(show("toDouble", &1.5f64.to_be_bytes()), Some("1.5".into()));
        assert_eq!(show("toBoolean", b"\xff"), Some("true".into()));
        assert_eq!(show("toHex", b"\xff\x01"), Some("ff01".into()));
        assert_eq!(show("toNothing", b""), None);
    }
}
