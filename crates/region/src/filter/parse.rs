//! Parses filters: class name and message, as `ProtobufUtil.toFilter` does.
//!
//! Errors are worded as in HBase, with nested causes, and the outermost is always
//! `DoNotRetryIOException`. Required fields and enum numbers are checked here, because prost does
//! not check them.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use bytes::Bytes;
use evenkeel_common::varint::read_varint;
use evenkeel_common::{ErrorKind, HBaseError, Result};
use evenkeel_protocol::pb;
use prost::Message;

use super::comparator::{self, ByteArrayComparable, RegexBudget};
use super::compare::{self, Comparison};
use super::{Filter, column, fuzzy_row, illegal, key, list, row, row_range, single_column, wrap};

/// The maximum depth of nested lists and wrappers.
pub const DEPTH_MAX: usize = 100;
/// The maximum number of filters in one request's filter.
pub const FILTERS_MAX: usize = 1 << 18;

/// An upper estimate of a filter's memory without its arguments, including keys of seek hints and
/// the current row.
const FILTER_BYTES: u64 = 512;
/// The memory of an element of a filter's arguments (a range, a key, a prefix, a member of a list)
/// in addition to its bytes.
const ELEMENT_BYTES: u64 = 256;
/// The memory for each byte of packed timestamps.
const PACKED_FACTOR: u64 = 16;
/// The memory of a regular expression in addition to its compiled form: the states of its searches.
const REGEX_BYTES: u64 = 320 << 10;

const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

/// Parses a filter's message.
///
/// # Errors
/// `DoNotRetryIOException` for an unknown class, an invalid message, arguments that the class
/// rejects, regular expressions that cannot be run, and filters beyond the bounds.
pub fn from_proto(filter: &pb::Filter) -> Result<Box<dyn Filter>> {
    from_proto_sized(filter).map(|(filter, _)| filter)
}

/// As [`from_proto`], but also returns an upper bound of the bytes that the filter takes while it
/// is used, without slices of the message.
///
/// # Errors
/// As [`from_proto`].
pub fn from_proto_sized(filter: &pb::Filter) -> Result<(Box<dyn Filter>, u64)> {
    let mut parser = Parser::default();
    let filter = parser.filter(filter)?;
    Ok((filter, parser.bytes + parser.regexes.bytes(REGEX_BYTES)))
}

/// Returns an upper bound of the memory that parsing a filter takes, without regular expressions,
/// whose bound is smaller than their size on the wire. It is computed before any bytes are decoded:
/// a filter of 2 bytes per element becomes a hundred times as large, so a caller must reserve the
/// memory before it parses a client's filter.
pub fn bytes_to_read(filter: &pb::Filter) -> u64 {
    bytes_of(&filter.name, filter.serialized_filter.as_deref().unwrap_or_default(), 0)
}

fn bytes_of(name: &str, bytes: &[u8], depth: usize) -> u64 {
    // A class that is not a filter, or a filter nested too deep, is rejected without decoding it.
    let Some(class) = name.strip_prefix(PACKAGE).filter(|_| depth < DEPTH_MAX) else { return FILTER_BYTES };
    let member = match class {
        "FilterList" => 2,
        "SkipFilter" | "WhileMatchFilter" | "FilterWrapper" => 1,
        _ => return own_bytes(class, bytes),
    };
    own_bytes(class, bytes)
        + payloads(bytes, member).map(|member| bytes_of_nested(member, depth + 1)).sum::<u64>()
}

fn bytes_of_nested(message: &[u8], depth: usize) -> u64 {
    let name = field(message, 1).and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
    bytes_of(name, field(message, 2).unwrap_or_default(), depth)
}

/// Returns the memory of a filter of a class. The arguments of a list or a wrapper are filters,
/// which are counted separately.
fn own_bytes(class: &str, bytes: &[u8]) -> u64 {
    let own = match class {
        "FilterList" | "SkipFilter" | "WhileMatchFilter" | "FilterWrapper" => 0,
        "TimestampsFilter" => bytes.len() as u64 * PACKED_FACTOR,
        _ => bytes.len() as u64 * 4,
    };
    FILTER_BYTES + own + fields(bytes) * ELEMENT_BYTES
}

/// The state of parsing one filter: its depth, the number of filters, and the memory of regular
/// expressions.
#[derive(Default)]
pub(super) struct Parser {
    depth: usize,
    filters: usize,
    /// The memory of the filters, without regular expressions.
    bytes: u64,
    regexes: RegexBudget,
}

impl Parser {
    /// Parses a filter, at the next depth.
    pub(super) fn filter(&mut self, filter: &pb::Filter) -> Result<Box<dyn Filter>> {
        self.depth += 1;
        self.filters += 1;
        let result = self.check_bounds().and_then(|()| self.of_class(filter));
        self.depth -= 1;
        result.map_err(|e| HBaseError::do_not_retry(e.to_string()))
    }

    /// Parses a filter within another's message.
    pub(super) fn nested(&mut self, filter: &pb::Filter) -> Result<Box<dyn Filter>> {
        self.filter(filter).map_err(deserialization)
    }

    /// Parses a comparator within a filter's message.
    pub(super) fn comparator(&mut self, proto: &pb::Comparator) -> Result<Box<dyn ByteArrayComparable>> {
        comparator::parse(proto, &mut self.regexes).map_err(deserialization)
    }

    /// The operator and comparator of a CompareFilter, which is field 1 of `bytes`.
    pub(super) fn comparison(&mut self, bytes: &Bytes, proto: &pb::CompareFilter) -> Result<Comparison> {
        let inner = field(bytes, 1).ok_or_else(|| missing("compare_filter"))?;
        let op = compare_op(inner, 1, proto.compare_op, "compare_filter.compare_op")?;
        let comparator = proto.comparator.as_ref().map(|c| self.comparator(c)).transpose()?;
        Ok(Comparison { op, comparator })
    }

    fn check_bounds(&self) -> Result<()> {
        if self.depth > DEPTH_MAX || self.filters > FILTERS_MAX {
            return Err(illegal(format!(
                "filters nested more than {DEPTH_MAX} deep, or more than {FILTERS_MAX}"
            )));
        }
        Ok(())
    }

    fn of_class(&mut self, filter: &pb::Filter) -> Result<Box<dyn Filter>> {
        let bytes = filter.serialized_filter.clone().unwrap_or_default();
        self.bytes += own_bytes(filter.name.strip_prefix(PACKAGE).unwrap_or_default(), &bytes);
        match filter.name.strip_prefix(PACKAGE).unwrap_or_default() {
            "RowFilter" | "FamilyFilter" | "QualifierFilter" | "ValueFilter" => {
                compare::parse(self, &filter.name[PACKAGE.len()..], &bytes)
            }
            "DependentColumnFilter" => compare::parse_dependent(self, &bytes),
            "SingleColumnValueFilter" => single_column::parse(self, &bytes),
            "SingleColumnValueExcludeFilter" => single_column::parse_exclude(self, &bytes),
            "ColumnValueFilter" => single_column::parse_column_value(self, &bytes),
            "ColumnPrefixFilter" => column::parse_prefix(&bytes),
            "MultipleColumnPrefixFilter" => column::parse_prefixes(&bytes),
            "ColumnRangeFilter" => column::parse_range(&bytes),
            "ColumnPaginationFilter" => column::parse_pagination(&bytes),
            "ColumnCountGetFilter" => column::parse_count(&bytes),
            "PrefixFilter" => row::parse_prefix(&bytes),
            "InclusiveStopFilter" => row::parse_inclusive_stop(&bytes),
            "PageFilter" => row::parse_page(&bytes),
            "RandomRowFilter" => row::parse_random(&bytes),
            "FilterAllFilter" => row::parse_all(&bytes),
            "FuzzyRowFilter" => fuzzy_row::parse(&bytes),
            "MultiRowRangeFilter" => row_range::parse(&bytes),
            "KeyOnlyFilter" => key::parse_key_only(&bytes),
            "FirstKeyOnlyFilter" => key::parse_first_key(&bytes),
            "FirstKeyValueMatchingQualifiersFilter" => key::parse_matching_qualifiers(&bytes),
            "TimestampsFilter" => key::parse_timestamps(&bytes),
            "FilterList" => list::parse(self, &bytes),
            "SkipFilter" => wrap::parse_skip(self, &bytes),
            "WhileMatchFilter" => wrap::parse_while_match(self, &bytes),
            "FilterWrapper" => wrap::parse_wrapper(self, &bytes),
            _ => Err(class_not_found(&filter.name)),
        }
    }
}

/// A `ClassNotFoundException`, as far as an error can represent it: only used as the cause of
/// another error.
pub(super) fn class_not_found(name: &str) -> HBaseError {
    HBaseError::new(ErrorKind::Deserialization, format!("java.lang.ClassNotFoundException: {name}"))
}

/// A `DeserializationException` with a cause.
pub(super) fn deserialization(cause: HBaseError) -> HBaseError {
    HBaseError::new(ErrorKind::Deserialization, cause.to_string())
}

/// Decodes a message whose fields `required` (number and name) must be present.
pub(super) fn decode<M: Message + Default>(bytes: &Bytes, required: &[(u32, &str)]) -> Result<M> {
    let message = M::decode(bytes.clone()).map_err(|e| invalid_message(&e.to_string()))?;
    match required.iter().find(|(number, _)| field(bytes, *number).is_none()) {
        Some((_, name)) => Err(missing(name)),
        None => Ok(message),
    }
}

/// Returns the operator in a required enum field. An unknown number counts as missing, as in Java.
pub(super) fn compare_op(bytes: &[u8], number: u32, value: i32, name: &str) -> Result<pb::CompareType> {
    field(bytes, number).and_then(|_| pb::CompareType::try_from(value).ok()).ok_or_else(|| missing(name))
}

/// The error for a missing required field.
pub(super) fn missing(name: &str) -> HBaseError {
    invalid_message(&format!("Message missing required fields: {name}"))
}

fn invalid_message(what: &str) -> HBaseError {
    let class = "org.apache.hbase.thirdparty.com.google.protobuf.InvalidProtocolBufferException";
    HBaseError::new(ErrorKind::Deserialization, format!("{class}: {what}"))
}

/// Returns the payload of a message's last field with this number; empty for scalars.
pub(super) fn field(bytes: &[u8], number: u32) -> Option<&[u8]> {
    payloads(bytes, number).last()
}

/// Returns the payloads of all of a message's fields with this number.
fn payloads(mut bytes: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    let next = move || {
        let (tag, payload, rest) = next_field(bytes)?;
        bytes = rest;
        Some((tag, payload))
    };
    let of_number = move |(tag, payload): (u64, _)| (tag == u64::from(number)).then_some(payload);
    std::iter::from_fn(next).filter_map(of_number)
}

/// Returns the number of fields of a message.
fn fields(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while let Some((_, _, rest)) = next_field(bytes) {
        (count, bytes) = (count + 1, rest);
    }
    count
}

fn next_field(bytes: &[u8]) -> Option<(u64, &[u8], &[u8])> {
    let (key, key_len) = read_varint(bytes)?;
    let rest = bytes.get(key_len..)?;
    let (start, end) = match key & 7 {
        0 => (0, read_varint(rest)?.1),
        1 => (0, 8),
        2 => {
            let (len, len_len) = read_varint(rest)?;
            (len_len, len_len.checked_add(usize::try_from(len).ok()?)?)
        }
        5 => (0, 4),
        _ => return None,
    };
    Some((key >> 3, rest.get(start..end)?, rest.get(end..)?))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{FILTER_PACKAGE, filter_error, filter_of, wire};
    use super::*;

    fn class_error(name: &str) -> HBaseError {
        filter_error(&pb::Filter { name: name.into(), serialized_filter: None })
    }

    #[test]
    fn unknown_classes_are_named() {
        for name in ["com.example.MyFilter", "RowFilter", "org.apache.hadoop.hbase.filter.NoSuchFilter"] {
            let error = class_error(name);
            assert_eq!(error.kind(), ErrorKind::DoNotRetry);
            assert!(error.message().contains(name), "{error}");
            assert!(error.message().contains("ClassNotFoundException"), "{error}");
        }
    }

    #[test]
    fn bad_bytes_and_missing_fields_are_refused() {
        let bad = |name: &str, bytes: &'static [u8]| {
            let name = format!("{FILTER_PACKAGE}{name}");
            filter_error(&pb::Filter { name, serialized_filter: Some(Bytes::from_static(bytes)) })
        };
        for (name, bytes, says) in [
            ("PageFilter", &b""[..], "missing required fields: page_size"),
            ("PageFilter", &[0x08, 0xff], "InvalidProtocolBufferException"),
            ("PrefixFilter", &[0x0a, 0x05, 0x01], "InvalidProtocolBufferException"),
            ("RowFilter", &[], "compare_filter"),
            ("ValueFilter", &[0x0a, 0x00], "compare_filter.compare_op"),
            ("ValueFilter", &[0x0a, 0x02, 0x08, 0x63], "compare_filter.compare_op"),
            ("FilterList", &[0x08, 0x07], "operator"),
            ("SingleColumnValueFilter", &[0x18, 0x00], "comparator"),
            ("KeyOnlyFilter", &[], "len_as_val"),
            ("ColumnValueFilter", &[], "family"),
            ("SkipFilter", &[], "filter"),
        ] {
            let error = bad(name, bytes);
            assert_eq!(error.kind(), ErrorKind::DoNotRetry, "{name}");
            assert!(error.message().contains(says), "{name}: {error}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nest = |depth: usize| {
            let inner = wire("FirstKeyOnlyFilter", &pb::FirstKeyOnlyFilter {});
            (1..depth).fold(inner, |f, _| wire("SkipFilter", &pb::SkipFilter { filter: f }))
        };
        filter_of(&nest(DEPTH_MAX));
        assert!(filter_error(&nest(DEPTH_MAX + 1)).message().contains("nested"));
        assert_eq!(filter_error(&nest(10 * DEPTH_MAX)).kind(), ErrorKind::DoNotRetry);
    }

    #[test]
    fn hostile_bytes_do_not_panic() {
        let mut state = 7u64;
        let names =
            ["FilterList", "FuzzyRowFilter", "MultiRowRangeFilter", "ValueFilter", "SkipFilter", "RowFilter"];
        for round in 0..20_000 {
            let bytes: Vec<u8> =
                (0..round % 23).map(|_| super::super::testing::next_random(&mut state) as u8).collect();
            let name = format!("{FILTER_PACKAGE}{}", names[round % names.len()]);
            let _ = from_proto(&pb::Filter { name, serialized_filter: Some(bytes.into()) });
        }
    }
}
