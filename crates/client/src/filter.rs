//! [`Filter`] and [`Comparator`]: which cells a server returns.
//!
//! Every filter of HBase's client is here. [`parse`] reads HBase's filter language, which the shell
//! uses.
//!
//! ```
//! use evenkeel_client::{Comparator, CompareOp, Filter, Scan};
//! let cheap = Filter::column_value("f", "price", CompareOp::Less, Comparator::Long(100));
//! let named = Filter::row(CompareOp::Equal, Comparator::regex("^a.*z$"));
//! let scan = Scan::new().filter(Filter::all_of([named, cheap]));
//! let text = "PrefixFilter('a') AND (PageFilter(5) OR KeyOnlyFilter())";
//! let same = evenkeel_client::filter::parse(text)?;
//! # let _ = (scan, same);
//! # Ok::<(), evenkeel_client::Error>(())
//! ```

mod comparator;
mod message;
mod parse;

use bytes::Bytes;

pub use comparator::{BitwiseOp, CASE_INSENSITIVE, Comparator, DOTALL, MULTILINE};
pub use parse::{parse, parse_bytes, supported};

use crate::operation::CompareOp;

/// The Java package of HBase's filters and comparators.
pub(crate) const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

/// How a [`Filter::List`] combines its filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOperator {
    /// A cell must pass all.
    MustPassAll,
    /// A cell must pass one.
    MustPassOne,
}

/// A test of a column's value, for whole rows ([`Filter::SingleColumnValue`]).
#[derive(Clone, Debug, PartialEq)]
pub struct SingleColumnValue {
    /// The column's family.
    pub family: Bytes,
    /// The column's qualifier.
    pub qualifier: Bytes,
    /// The comparison.
    pub op: CompareOp,
    /// The comparator.
    pub comparator: Comparator,
    /// Whether rows without the column are also excluded.
    pub filter_if_missing: bool,
    /// Whether only the newest version is tested.
    pub latest_version_only: bool,
}

/// A range of rows ([`Filter::MultiRowRange`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRange {
    /// The first row; empty for the table's.
    pub start: Bytes,
    /// Whether the first row is included.
    pub start_included: bool,
    /// The last row; empty for the table's.
    pub stop: Bytes,
    /// Whether the last row is included.
    pub stop_included: bool,
}

impl RowRange {
    /// From `start`, included, up to `stop`, excluded.
    pub fn new(start: impl AsRef<[u8]>, stop: impl AsRef<[u8]>) -> Self {
        let (start, stop) = (owned(start), owned(stop));
        Self { start, start_included: true, stop, stop_included: false }
    }
}

/// Selects the rows and cells that a server returns.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Rows that compare as given (`RowFilter`).
    Row(CompareOp, Comparator),
    /// Families that compare as given (`FamilyFilter`).
    Family(CompareOp, Comparator),
    /// Qualifiers that compare as given (`QualifierFilter`).
    Qualifier(CompareOp, Comparator),
    /// Values that compare as given (`ValueFilter`).
    Value(CompareOp, Comparator),
    /// Rows with a prefix (`PrefixFilter`).
    Prefix(Bytes),
    /// Rows up to this one, included (`InclusiveStopFilter`).
    InclusiveStop(Bytes),
    /// At most this number of rows of each region (`PageFilter`).
    Page(i64),
    /// A random part of the rows, from 0 (none) to 1 (all) (`RandomRowFilter`).
    RandomRow(f32),
    /// Nothing (`FilterAllFilter`).
    FilterAll,
    /// Rows that match one of these keys. A mask byte of 1 matches any byte, 0 matches the key's
    /// byte (`FuzzyRowFilter`).
    FuzzyRow(Vec<(Bytes, Bytes)>),
    /// Rows of these ranges (`MultiRowRangeFilter`).
    MultiRowRange(Vec<RowRange>),
    /// Columns with a prefix (`ColumnPrefixFilter`).
    ColumnPrefix(Bytes),
    /// Columns with one of these prefixes (`MultipleColumnPrefixFilter`).
    MultipleColumnPrefix(Vec<Bytes>),
    /// Columns in a range of qualifiers, unbounded where a bound is absent (`ColumnRangeFilter`).
    ColumnRange {
        /// The first.
        min: Option<Bytes>,
        /// Whether the first is included.
        min_included: bool,
        /// The last.
        max: Option<Bytes>,
        /// Whether the last is included.
        max_included: bool,
    },
    /// A page of a row's columns, by offset (`ColumnPaginationFilter`).
    ColumnPagination {
        /// Columns of the page.
        limit: i32,
        /// Columns before the page.
        offset: i32,
    },
    /// A page of a row's columns, from a qualifier on (`ColumnPaginationFilter`).
    ColumnPaginationFrom {
        /// Columns of the page.
        limit: i32,
        /// The first qualifier.
        offset: Bytes,
    },
    /// The first columns of the first row, at most this number (`ColumnCountGetFilter`).
    ColumnCountGet(i32),
    /// The first cell of each row (`FirstKeyOnlyFilter`).
    FirstKeyOnly,
    /// The cells of each row up to the first of these qualifiers
    /// (`FirstKeyValueMatchingQualifiersFilter`).
    FirstKeyValueMatchingQualifiers(Vec<Bytes>),
    /// Cells without values, or with the values' lengths in their place (`KeyOnlyFilter`).
    KeyOnly {
        /// Whether the length, 4 bytes big-endian, replaces the value.
        length_as_value: bool,
    },
    /// Rows by one column's value (`SingleColumnValueFilter`).
    SingleColumnValue(SingleColumnValue),
    /// As [`Filter::SingleColumnValue`], and excludes that column
    /// (`SingleColumnValueExcludeFilter`).
    SingleColumnValueExclude(SingleColumnValue),
    /// The cells of one column whose value compares as given (`ColumnValueFilter`).
    ColumnValue {
        /// The column's family.
        family: Bytes,
        /// The column's qualifier.
        qualifier: Bytes,
        /// The comparison.
        op: CompareOp,
        /// The comparator.
        comparator: Comparator,
    },
    /// Cells with the timestamps of one column's cells; if a comparison is given, of those whose
    /// value passes it (`DependentColumnFilter`).
    DependentColumn {
        /// The column's family.
        family: Bytes,
        /// The column's qualifier.
        qualifier: Bytes,
        /// Whether the column itself is excluded.
        drop_column: bool,
        /// The comparison of its value, if any.
        comparison: Option<(CompareOp, Comparator)>,
    },
    /// Cells of these timestamps (`TimestampsFilter`).
    Timestamps {
        /// Milliseconds since 1970.
        timestamps: Vec<i64>,
        /// Whether the server may seek, which skips delete markers.
        can_hint: bool,
    },
    /// Rows in which every cell passes (`SkipFilter`).
    Skip(Box<Filter>),
    /// All cells up to the first that does not pass (`WhileMatchFilter`).
    WhileMatch(Box<Filter>),
    /// A combination of filters (`FilterList`).
    List(ListOperator, Vec<Filter>),
    /// A custom one: its Java class and its serialized message.
    Custom {
        /// The class.
        class: String,
        /// The message.
        serialized: Bytes,
    },
}

impl Filter {
    /// Rows that compare as given.
    pub fn row(op: CompareOp, comparator: Comparator) -> Self {
        Self::Row(op, comparator)
    }

    /// Qualifiers that compare as given.
    pub fn qualifier(op: CompareOp, comparator: Comparator) -> Self {
        Self::Qualifier(op, comparator)
    }

    /// Values that compare as given.
    pub fn value(op: CompareOp, comparator: Comparator) -> Self {
        Self::Value(op, comparator)
    }

    /// Rows with a prefix.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        Self::Prefix(owned(prefix))
    }

    /// Columns with a prefix.
    pub fn column_prefix(prefix: impl AsRef<[u8]>) -> Self {
        Self::ColumnPrefix(owned(prefix))
    }

    /// Cells without their values.
    pub fn key_only() -> Self {
        Self::KeyOnly { length_as_value: false }
    }

    /// Rows by the newest value of one column. Rows without the column pass.
    pub fn single_column_value(
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        op: CompareOp,
        comparator: Comparator,
    ) -> Self {
        let (family, qualifier) = (owned(family), owned(qualifier));
        Self::SingleColumnValue(SingleColumnValue {
            family,
            qualifier,
            op,
            comparator,
            filter_if_missing: false,
            latest_version_only: true,
        })
    }

    /// The cells of one column whose value compares as given.
    pub fn column_value(
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        op: CompareOp,
        comparator: Comparator,
    ) -> Self {
        Self::ColumnValue { family: owned(family), qualifier: owned(qualifier), op, comparator }
    }

    /// Cells of these timestamps.
    pub fn timestamps(timestamps: impl IntoIterator<Item = i64>) -> Self {
        Self::Timestamps { timestamps: timestamps.into_iter().collect(), can_hint: false }
    }

    /// Cells that pass all filters.
    pub fn all_of(filters: impl IntoIterator<Item = Filter>) -> Self {
        Self::List(ListOperator::MustPassAll, filters.into_iter().collect())
    }

    /// Cells that pass at least one filter.
    pub fn one_of(filters: impl IntoIterator<Item = Filter>) -> Self {
        Self::List(ListOperator::MustPassOne, filters.into_iter().collect())
    }

    /// Rows in which every cell passes.
    pub fn skip(self) -> Self {
        Self::Skip(Box::new(self))
    }

    /// All cells up to the first that does not pass.
    pub fn while_match(self) -> Self {
        Self::WhileMatch(Box::new(self))
    }
}

fn owned(bytes: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(bytes.as_ref())
}
