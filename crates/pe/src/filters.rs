//! The filters that tests use, as messages.

use bytes::Bytes;
use evenkeel_client::Scan;
use evenkeel_protocol::pb;
use prost::Message;

/// The class of the filter that lets nothing through.
pub const ALL: &str = "org.apache.hadoop.hbase.filter.FilterAllFilter";
const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

/// Sets a scan's filter.
pub fn on_scan(scan: Scan, filter: pb::Filter) -> Scan {
    scan.filter(&filter.name, filter.serialized_filter.unwrap_or_default())
}

/// Lets nothing through.
pub fn all() -> pb::Filter {
    filter("FilterAllFilter", &pb::FilterAllFilter {})
}

/// Lets a part of the rows through, at random.
pub fn random_part(part: f32) -> pb::Filter {
    filter("RandomRowFilter", &pb::RandomRowFilter { chance: part })
}

/// Ends after so many rows of a region.
pub fn page(rows: i64) -> pb::Filter {
    filter("PageFilter", &pb::PageFilter { page_size: rows })
}

/// Ends the scan where another filter refuses a row.
pub fn while_match(inner: &pb::Filter) -> pb::Filter {
    filter("WhileMatchFilter", &pb::WhileMatchFilter { filter: inner.clone() })
}

/// Lets through what all of these do.
pub fn all_of(filters: Vec<pb::Filter>) -> pb::Filter {
    let operator = pb::filter_list::Operator::MustPassAll as i32;
    filter("FilterList", &pb::FilterList { operator, filters })
}

/// Lets rows through whose column has this value, or that have no such column.
pub fn column_equals(family: &'static [u8], qualifier: &'static [u8], value: Bytes) -> pb::Filter {
    let comparable = pb::ByteArrayComparable { value: Some(value) };
    let comparator = pb::Comparator {
        name: format!("{PACKAGE}BinaryComparator"),
        serialized_comparator: Some(pb::BinaryComparator { comparable }.encode_to_vec().into()),
    };
    let message = pb::SingleColumnValueFilter {
        column_family: Some(Bytes::from_static(family)),
        column_qualifier: Some(Bytes::from_static(qualifier)),
        compare_op: pb::CompareType::Equal as i32,
        comparator,
        filter_if_missing: Some(false),
        latest_version_only: Some(true),
    };
    filter("SingleColumnValueFilter", &message)
}

fn filter(class: &str, message: &impl Message) -> pb::Filter {
    pb::Filter { name: format!("{PACKAGE}{class}"), serialized_filter: Some(message.encode_to_vec().into()) }
}
