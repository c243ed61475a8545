//! Filters as HBase's messages.

use bytes::Bytes;
use evenkeel_protocol::pb;
use prost::Message;

use super::{Comparator, Filter, ListOperator, PACKAGE, RowRange, SingleColumnValue};
use crate::operation::CompareOp;

/// The byte of a preprocessed mask (`FuzzyRowFilter.preprocessMask`, second version) for a fixed
/// byte.
const FUZZY_FIXED: u8 = 0xff;
/// The byte of a preprocessed mask for any byte.
const FUZZY_ANY: u8 = 2;

impl Filter {
    /// HBase's message: the Java class and its serialized form.
    pub fn message(&self) -> pb::Filter {
        if let Self::Custom { class, serialized } = self {
            return pb::Filter { name: class.clone(), serialized_filter: Some(serialized.clone()) };
        }
        let name = format!("{PACKAGE}{}", self.class());
        pb::Filter { name, serialized_filter: Some(self.serialized().into()) }
    }

    /// The name of the Java class without its package; a custom filter's name as given.
    pub fn class(&self) -> &str {
        match self {
            Self::Row(..) => "RowFilter",
            Self::Family(..) => "FamilyFilter",
            Self::Qualifier(..) => "QualifierFilter",
            Self::Value(..) => "ValueFilter",
            Self::Prefix(_) => "PrefixFilter",
            Self::InclusiveStop(_) => "InclusiveStopFilter",
            Self::Page(_) => "PageFilter",
            Self::RandomRow(_) => "RandomRowFilter",
            Self::FilterAll => "FilterAllFilter",
            Self::FuzzyRow(_) => "FuzzyRowFilter",
            Self::MultiRowRange(_) => "MultiRowRangeFilter",
            Self::ColumnPrefix(_) => "ColumnPrefixFilter",
            Self::MultipleColumnPrefix(_) => "MultipleColumnPrefixFilter",
            Self::ColumnRange { .. } => "ColumnRangeFilter",
            Self::ColumnPagination { .. } | Self::ColumnPaginationFrom { .. } => "ColumnPaginationFilter",
            Self::ColumnCountGet(_) => "ColumnCountGetFilter",
            Self::FirstKeyOnly => "FirstKeyOnlyFilter",
            Self::FirstKeyValueMatchingQualifiers(_) => "FirstKeyValueMatchingQualifiersFilter",
            Self::KeyOnly { .. } => "KeyOnlyFilter",
            Self::SingleColumnValue(_) => "SingleColumnValueFilter",
            Self::SingleColumnValueExclude(_) => "SingleColumnValueExcludeFilter",
            Self::ColumnValue { .. } => "ColumnValueFilter",
            Self::DependentColumn { .. } => "DependentColumnFilter",
            Self::Timestamps { .. } => "TimestampsFilter",
            Self::Skip(_) => "SkipFilter",
            Self::WhileMatch(_) => "WhileMatchFilter",
            Self::List(..) => "FilterList",
            Self::Custom { class, .. } => class,
        }
    }

    fn serialized(&self) -> Vec<u8> {
        match self {
            Self::Row(op, with) => pb::RowFilter { compare_filter: compare(*op, with) }.encode_to_vec(),
            Self::Family(op, with) => pb::FamilyFilter { compare_filter: compare(*op, with) }.encode_to_vec(),
            Self::Qualifier(op, with) => {
                pb::QualifierFilter { compare_filter: compare(*op, with) }.encode_to_vec()
            }
            Self::Value(op, with) => pb::ValueFilter { compare_filter: compare(*op, with) }.encode_to_vec(),
            Self::ColumnValue { .. } | Self::DependentColumn { .. } => self.of_columns(),
            Self::SingleColumnValue(test) => single(test).encode_to_vec(),
            Self::SingleColumnValueExclude(test) => {
                let single_column_value_filter = single(test);
                pb::SingleColumnValueExcludeFilter { single_column_value_filter }.encode_to_vec()
            }
            Self::Skip(filter) => pb::SkipFilter { filter: filter.message() }.encode_to_vec(),
            Self::WhileMatch(filter) => pb::WhileMatchFilter { filter: filter.message() }.encode_to_vec(),
            Self::List(operator, filters) => list(*operator, filters).encode_to_vec(),
            Self::Prefix(prefix) => pb::PrefixFilter { prefix: Some(prefix.clone()) }.encode_to_vec(),
            Self::InclusiveStop(row) => {
                pb::InclusiveStopFilter { stop_row_key: Some(row.clone()) }.encode_to_vec()
            }
            Self::Page(page_size) => pb::PageFilter { page_size: *page_size }.encode_to_vec(),
            Self::RandomRow(chance) => pb::RandomRowFilter { chance: *chance }.encode_to_vec(),
            Self::FuzzyRow(keys) => fuzzy(keys).encode_to_vec(),
            Self::MultiRowRange(ranges) => {
                let row_range_list = merged(ranges).iter().map(range).collect();
                pb::MultiRowRangeFilter { row_range_list }.encode_to_vec()
            }
            Self::FilterAll | Self::FirstKeyOnly | Self::Custom { .. } => Vec::new(),
            other => other.of_names(),
        }
    }

    fn of_columns(&self) -> Vec<u8> {
        match self {
            Self::ColumnValue { family, qualifier, op, comparator } => pb::ColumnValueFilter {
                family: family.clone(),
                qualifier: qualifier.clone(),
                compare_op: op.number(),
                comparator: comparator.message(),
            }
            .encode_to_vec(),
            Self::DependentColumn { family, qualifier, drop_column, comparison } => {
                let none =
                    || pb::CompareFilter { compare_op: pb::CompareType::NoOp as i32, comparator: None };
                let compare_filter = comparison.as_ref().map_or_else(none, |(op, with)| compare(*op, with));
                pb::DependentColumnFilter {
                    compare_filter,
                    column_family: Some(family.clone()),
                    column_qualifier: Some(qualifier.clone()),
                    drop_dependent_column: Some(*drop_column),
                }
                .encode_to_vec()
            }
            _ => Vec::new(),
        }
    }

    fn of_names(&self) -> Vec<u8> {
        match self {
            Self::ColumnPrefix(prefix) => pb::ColumnPrefixFilter { prefix: prefix.clone() }.encode_to_vec(),
            Self::MultipleColumnPrefix(prefixes) => {
                pb::MultipleColumnPrefixFilter { sorted_prefixes: sorted(prefixes) }.encode_to_vec()
            }
            Self::ColumnRange { min, min_included, max, max_included } => pb::ColumnRangeFilter {
                min_column: min.clone(),
                min_column_inclusive: Some(*min_included),
                max_column: max.clone(),
                max_column_inclusive: Some(*max_included),
            }
            .encode_to_vec(),
            Self::ColumnPagination { limit, offset } => {
                let (limit, offset) = (*limit, Some(*offset));
                pb::ColumnPaginationFilter { limit, offset, column_offset: None }.encode_to_vec()
            }
            Self::ColumnPaginationFrom { limit, offset } => {
                let (limit, column_offset) = (*limit, Some(offset.clone()));
                pb::ColumnPaginationFilter { limit, offset: None, column_offset }.encode_to_vec()
            }
            Self::ColumnCountGet(limit) => pb::ColumnCountGetFilter { limit: *limit }.encode_to_vec(),
            Self::FirstKeyValueMatchingQualifiers(qualifiers) => {
                pb::FirstKeyValueMatchingQualifiersFilter { qualifiers: sorted(qualifiers) }.encode_to_vec()
            }
            Self::KeyOnly { length_as_value } => {
                pb::KeyOnlyFilter { len_as_val: *length_as_value }.encode_to_vec()
            }
            Self::Timestamps { timestamps, can_hint } => {
                let mut timestamps = timestamps.clone();
                timestamps.sort_unstable();
                timestamps.dedup();
                pb::TimestampsFilter { timestamps, can_hint: Some(*can_hint) }.encode_to_vec()
            }
            _ => Vec::new(),
        }
    }
}

impl CompareOp {
    /// The operator's number in a filter's message. The operator compares the cell with the
    /// comparator.
    fn number(self) -> i32 {
        let wire = match self {
            Self::Less => pb::CompareType::Less,
            Self::LessOrEqual => pb::CompareType::LessOrEqual,
            Self::Equal => pb::CompareType::Equal,
            Self::NotEqual => pb::CompareType::NotEqual,
            Self::GreaterOrEqual => pb::CompareType::GreaterOrEqual,
            Self::Greater => pb::CompareType::Greater,
        };
        wire as i32
    }
}

fn compare(op: CompareOp, with: &Comparator) -> pb::CompareFilter {
    pb::CompareFilter { compare_op: op.number(), comparator: Some(with.message()) }
}

fn single(test: &SingleColumnValue) -> pb::SingleColumnValueFilter {
    pb::SingleColumnValueFilter {
        column_family: Some(test.family.clone()),
        column_qualifier: Some(test.qualifier.clone()),
        compare_op: test.op.number(),
        comparator: test.comparator.message(),
        filter_if_missing: Some(test.filter_if_missing),
        latest_version_only: Some(test.latest_version_only),
    }
}

fn list(operator: ListOperator, filters: &[Filter]) -> pb::FilterList {
    use pb::filter_list::Operator;
    let operator = match operator {
        ListOperator::MustPassAll => Operator::MustPassAll,
        ListOperator::MustPassOne => Operator::MustPassOne,
    };
    pb::FilterList { operator: operator as i32, filters: filters.iter().map(Filter::message).collect() }
}

/// Keys and masks in the preprocessed form that most HBase clients send.
fn fuzzy(keys: &[(Bytes, Bytes)]) -> pb::FuzzyRowFilter {
    let prepare = |(key, mask): &(Bytes, Bytes)| {
        let free = |i: usize| mask.get(i).is_some_and(|m| *m != 0);
        let first = key.iter().enumerate().map(|(i, byte)| if free(i) { 0 } else { *byte }).collect();
        let second = mask.iter().map(|m| if *m == 0 { FUZZY_FIXED } else { FUZZY_ANY }).collect();
        pb::BytesBytesPair { first, second }
    };
    pb::FuzzyRowFilter { fuzzy_keys_data: keys.iter().map(prepare).collect(), is_mask_v2: Some(true) }
}

fn range(range: &RowRange) -> pb::RowRange {
    pb::RowRange {
        start_row: Some(range.start.clone()),
        start_row_inclusive: Some(range.start_included),
        stop_row: Some(range.stop.clone()),
        stop_row_inclusive: Some(range.stop_included),
    }
}

/// Ranges in order, with adjacent ones merged, as servers expect.
fn merged(ranges: &[RowRange]) -> Vec<RowRange> {
    let mut ranges = ranges.to_vec();
    ranges.sort_by(|a, b| (&a.start, !a.start_included).cmp(&(&b.start, !b.start_included)));
    let mut merged: Vec<RowRange> = Vec::with_capacity(ranges.len());
    for next in ranges {
        match merged.last_mut().filter(|last| touches(last, &next)) {
            Some(last) => extend(last, &next),
            None => merged.push(next),
        }
    }
    merged
}

fn touches(a: &RowRange, b: &RowRange) -> bool {
    let meets = a.stop == b.start && (a.stop_included || b.start_included);
    a.stop.is_empty() || a.stop > b.start || meets
}

fn extend(a: &mut RowRange, b: &RowRange) {
    match (a.stop.is_empty(), b.stop.is_empty()) {
        (true, _) => {}
        (false, true) => (a.stop, a.stop_included) = (b.stop.clone(), b.stop_included),
        (false, false) if b.stop > a.stop => (a.stop, a.stop_included) = (b.stop.clone(), b.stop_included),
        (false, false) => a.stop_included |= b.stop == a.stop && b.stop_included,
    }
}

fn sorted(names: &[Bytes]) -> Vec<Bytes> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<M: Message + Default>(filter: &Filter) -> M {
        let message = filter.message();
        M::decode(message.serialized_filter.unwrap_or_default()).expect("decodes")
    }

    #[test]
    fn fuzzy_masks_are_prepared() {
        let filter = Filter::FuzzyRow(vec![("abc".into(), Bytes::from_static(&[0, 1, 0]))]);
        let message: pb::FuzzyRowFilter = of(&filter);
        let pair = &message.fuzzy_keys_data[0];
        assert_eq!((&pair.first[..], &pair.second[..]), (&b"a\0c"[..], &[0xff, 2, 0xff][..]));
        assert!(message.is_mask_v2());
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let r = |a: &str, ai, b: &str, bi| RowRange {
            start: Bytes::copy_from_slice(a.as_bytes()),
            start_included: ai,
            stop: Bytes::copy_from_slice(b.as_bytes()),
            stop_included: bi,
        };
        assert_eq!(merged(&[r("c", true, "e", false), r("a", true, "c", false)]), [r("a", true, "e", false)]);
        assert_eq!(
            merged(&[r("a", true, "c", false), r("c", false, "d", true)]),
            [r("a", true, "c", false), r("c", false, "d", true)]
        );
        assert_eq!(merged(&[r("a", true, "", false), r("b", true, "c", true)]), [r("a", true, "", false)]);
        assert_eq!(merged(&[r("a", true, "z", true), r("b", true, "z", false)]), [r("a", true, "z", true)]);
        assert_eq!(merged(&[r("b", false, "c", true), r("b", true, "c", true)]), [r("b", true, "c", true)]);
    }

    #[test]
    fn nested_filters_keep_their_order() {
        let filter = Filter::one_of([Filter::Page(1), Filter::key_only().skip(), Filter::FirstKeyOnly]);
        let message: pb::FilterList = of(&filter.clone());
        let names: Vec<_> = message.filters.iter().map(|f| f.name.trim_start_matches(PACKAGE)).collect();
        assert_eq!(names, ["PageFilter", "SkipFilter", "FirstKeyOnlyFilter"]);
        assert_eq!(filter.message().name, "org.apache.hadoop.hbase.filter.FilterList");
        assert_eq!(message.operator, 2);
    }
}
