//! [`Filter`] and [`Comparator`]: what a server leaves out of what it reads.
//!
//! Every filter of HBase's client is here, and [`parse`] reads HBase's filter language, in which the shell takes them.
//!
//! ```
//! use evenkeel_client::{Comparator, CompareOp, Filter, Scan};
//! let cheap = Filter::column_value("f", "price", CompareOp::Less, Comparator::Long(100));
//! let named = Filter::row(CompareOp::Equal, Comparator::regex("^a.*z$"));
//! let scan = Scan::new().filter(Filter::all_of([named, cheap]));
//! let same = evenkeel_client::filter::parse("PrefixFilter('a') AND (PageFilter(5) OR KeyOnlyFilter())")?;
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
    /// How the value compares.
    pub op: CompareOp,
    /// With what.
    pub comparator: Comparator,
    /// Whether rows without the column are left out too.
    pub filter_if_missing: bool,
    /// Whether only the newest version is tested.
    pub latest_version_only: bool,
}

/// A range of rows ([`Filter::MultiRowRange`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRange {
    /// The first row; empty for the table's.
    pub start: Bytes,
    /// Whether the first row is in it.
    pub start_included: bool,
    /// The last row; empty for the table's.
    pub stop: Bytes,
    /// Whether the last row is in it.
    pub stop_included: bool,
}

impl RowRange {
    /// From a row on, up to and without another.
    pub fn new(start: impl AsRef<[u8]>, stop: impl AsRef<[u8]>) -> Self {
        let (start, stop) = (owned(start), owned(stop));
        Self { start, start_included: true, stop, stop_included: false }
    }
}

/// What a server leaves out of what it reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Rows that compare so (`RowFilter`).
    Row(CompareOp, Comparator),
    /// Families that compare so (`FamilyFilter`).
    Family(CompareOp, Comparator),
    /// Qualifiers that compare so (`QualifierFilter`).
    Qualifier(CompareOp, Comparator),
    /// Values that compare so (`ValueFilter`).
    Value(CompareOp, Comparator),
    /// Rows that start so (`PrefixFilter`).
    Prefix(Bytes),
    /// Rows up to and with this one (`InclusiveStopFilter`).
    InclusiveStop(Bytes),
    /// So many rows of each region (`PageFilter`).
    Page(i64),
    /// Rows by chance, of which 0 is none and 1 is all (`RandomRowFilter`).
    RandomRow(f32),
    /// Nothing (`FilterAllFilter`).
    FilterAll,
    /// Rows that match one of these keys in which a mask of 1 frees a byte and one of 0 does not (`FuzzyRowFilter`).
    FuzzyRow(Vec<(Bytes, Bytes)>),
    /// Rows of these ranges (`MultiRowRangeFilter`).
    MultiRowRange(Vec<RowRange>),
    /// Columns that start so (`ColumnPrefixFilter`).
    ColumnPrefix(Bytes),
    /// Columns that start with one of these (`MultipleColumnPrefixFilter`).
    MultipleColumnPrefix(Vec<Bytes>),
    /// Columns of a range of qualifiers, open where there is none (`ColumnRangeFilter`).
    ColumnRange {
        /// The first.
        min: Option<Bytes>,
        /// Whether the first is in it.
        min_included: bool,
        /// The last.
        max: Option<Bytes>,
        /// Whether the last is in it.
        max_included: bool,
    },
    /// So many columns of a row, after so many (`ColumnPaginationFilter`).
    ColumnPagination {
        /// Columns that are given.
        limit: i32,
        /// Columns that are passed over before.
        offset: i32,
    },
    /// So many columns of a row, from a qualifier on (`ColumnPaginationFilter`).
    ColumnPaginationFrom {
        /// Columns that are given.
        limit: i32,
        /// The first qualifier.
        offset: Bytes,
    },
    /// The first so many columns of the first row (`ColumnCountGetFilter`).
    ColumnCountGet(i32),
    /// The first cell of each row (`FirstKeyOnlyFilter`).
    FirstKeyOnly,
    /// The cells of each row up to the first of these qualifiers (`FirstKeyValueMatchingQualifiersFilter`).
    FirstKeyValueMatchingQualifiers(Vec<Bytes>),
    /// Cells without their values, or with the values' lengths instead (`KeyOnlyFilter`).
    KeyOnly {
        /// Whether the length, 4 bytes big-endian, takes the value's place.
        length_as_value: bool,
    },
    /// Rows by one column's value (`SingleColumnValueFilter`).
    SingleColumnValue(SingleColumnValue),
    /// As [`Filter::SingleColumnValue`], without that column (`SingleColumnValueExcludeFilter`).
    SingleColumnValueExclude(SingleColumnValue),
    /// One column, where its value compares so (`ColumnValueFilter`).
    ColumnValue {
        /// The column's family.
        family: Bytes,
        /// The column's qualifier.
        qualifier: Bytes,
        /// How the value compares.
        op: CompareOp,
        /// With what.
        comparator: Comparator,
    },
    /// Cells of the timestamps of one column, where its value compares so if a comparison is given
    /// (`DependentColumnFilter`).
    DependentColumn {
        /// The column's family.
        family: Bytes,
        /// The column's qualifier.
        qualifier: Bytes,
        /// Whether the column itself is left out.
        drop_column: bool,
        /// How its value compares and with what.
        comparison: Option<(CompareOp, Comparator)>,
    },
    /// Cells of these timestamps (`TimestampsFilter`).
    Timestamps {
        /// Milliseconds since 1970.
        timestamps: Vec<i64>,
        /// Whether the server may seek, which passes over delete markers.
        can_hint: bool,
    },
    /// Rows of which no cell is left out (`SkipFilter`).
    Skip(Box<Filter>),
    /// All up to the first that is left out (`WhileMatchFilter`).
    WhileMatch(Box<Filter>),
    /// Several filters together (`FilterList`).
    List(ListOperator, Vec<Filter>),
    /// Another one: its Java class and its serialized message.
    Custom {
        /// The class.
        class: String,
        /// The message.
        serialized: Bytes,
    },
}

impl Filter {
    /// Rows that compare so.
    pub fn row(op: CompareOp, comparator: Comparator) -> Self {
        Self::Row(op, comparator)
    }

    /// Qualifiers that compare so.
    pub fn qualifier(op: CompareOp, comparator: Comparator) -> Self {
        Self::Qualifier(op, comparator)
    }

    /// Values that compare so.
    pub fn value(op: CompareOp, comparator: Comparator) -> Self {
        Self::Value(op, comparator)
    }

    /// Rows that start so.
    pub fn prefix(prefix: impl AsRef<[u8]>) -> Self {
        Self::Prefix(owned(prefix))
    }

    /// Columns that start so.
    pub fn column_prefix(prefix: impl AsRef<[u8]>) -> Self {
        Self::ColumnPrefix(owned(prefix))
    }

    /// Cells without their values.
    pub fn key_only() -> Self {
        Self::KeyOnly { length_as_value: false }
    }

    /// Rows by the newest value of one column; rows without the column are given.
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

    /// One column, where its value compares so.
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

    /// What passes all.
    pub fn all_of(filters: impl IntoIterator<Item = Filter>) -> Self {
        Self::List(ListOperator::MustPassAll, filters.into_iter().collect())
    }

    /// What passes one of them.
    pub fn one_of(filters: impl IntoIterator<Item = Filter>) -> Self {
        Self::List(ListOperator::MustPassOne, filters.into_iter().collect())
    }

    /// Rows of which this leaves out no cell.
    pub fn skip(self) -> Self {
        Self::Skip(Box::new(self))
    }

    /// All up to the first that this leaves out.
    pub fn while_match(self) -> Self {
        Self::WhileMatch(Box::new(self))
    }
}

fn owned(bytes: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(bytes.as_ref())
}
