//! Requests to a region, without RPC messages: [`Scan`] (a Get is a scan of one row), [`Mutation`],
//! [`Condition`], and their results.
//!
//! The server translates protobuf into these; tests and benchmarks build them directly.

#![forbid(unsafe_code)]

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::cell::LATEST_TIMESTAMP;
use evenkeel_common::{Budget, CellBuffer, Charge, Durability, HBaseError, KeyValue, Result, Wait};
use smallvec::SmallVec;

use evenkeel_protocol::pb::CompareType;

use crate::filter::{ByteArrayComparable, Filter};

/// Timestamps from `min` (inclusive) to `max` (exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The first timestamp in the range.
    pub min: i64,
    /// The first timestamp after the range.
    pub max: i64,
}

impl TimeRange {
    /// Every timestamp.
    pub const ALL: Self = Self { min: 0, max: i64::MAX };

    /// Returns true if the timestamp is in the range. `max == i64::MAX` excludes nothing.
    pub fn contains(&self, timestamp: i64) -> bool {
        timestamp >= self.min && (timestamp < self.max || self.max == i64::MAX)
    }

    /// -1 below the range, 0 inside, 1 above (`TimeRange.compare`).
    pub fn compare(&self, timestamp: i64) -> i32 {
        if timestamp < self.min { -1 } else { i32::from(timestamp >= self.max && self.max != i64::MAX) }
    }

    /// Returns true if no timestamp is excluded.
    pub fn is_all(&self) -> bool {
        self.min <= 0 && self.max == i64::MAX
    }
}

/// A requested family, and the requested columns of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyColumns {
    /// The family.
    pub family: Bytes,
    /// The qualifiers, sorted and distinct; `None` for all.
    pub qualifiers: Option<Columns>,
}

/// Qualifiers. One is stored inline, which most Gets need.
pub type Columns = SmallVec<[Bytes; 1]>;

/// Requested families. One is stored inline.
pub type Families = SmallVec<[FamilyColumns; 1]>;

/// How a scan reads files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadType {
    /// Positional reads first, then a stream if the scan turns out long.
    #[default]
    Default,
    /// Sequential, with read-ahead.
    Stream,
    /// Positional.
    Pread,
}

/// A read of one row or a range of rows.
pub struct Scan {
    /// Where to start; empty for the table's start (its end when reversed).
    pub start_row: Bytes,
    /// False if `start_row` itself is excluded.
    pub include_start_row: bool,
    /// Where to stop; empty for the table's end (its start when reversed).
    pub stop_row: Bytes,
    /// True if `stop_row` itself is included.
    pub include_stop_row: bool,
    /// True to return rows in descending order.
    pub reversed: bool,
    /// Families and columns; empty for all families.
    pub families: Families,
    /// The maximum number of versions of a column.
    pub max_versions: u32,
    /// The timestamps to read.
    pub time_range: TimeRange,
    /// Time ranges of single families, which override `time_range`.
    pub family_time_ranges: Vec<(Bytes, TimeRange)>,
    /// The maximum number of cells of a family and row; negative for no limit.
    pub store_limit: i32,
    /// The number of cells to skip in each family and row.
    pub store_offset: i32,
    /// The maximum number of cells of a result; 0 or negative for no limit.
    pub batch: i32,
    /// True to return delete markers and the cells they hide.
    pub raw: bool,
    /// True to add the blocks that were read to the cache.
    pub cache_blocks: bool,
    /// The filter, if any.
    pub filter: Option<Box<dyn Filter>>,
    /// True to see writes that are not complete yet.
    pub read_uncommitted: bool,
    /// The read point of an earlier scanner to continue at.
    pub mvcc_read_point: Option<u64>,
    /// How to read files.
    pub read_type: ReadType,
    /// True to read families that the filter does not need only for rows that pass it.
    pub load_families_on_demand: bool,
    /// True for a Get: one row, for which bloom filters are consulted.
    pub is_get: bool,
    /// How values in MOB files are read.
    pub mob: MobRead,
    /// Allows or forbids the read to wait for a disk or for another thread.
    pub wait: Wait,
}

/// How a scan reads values in MOB files: attributes of a Scan or Get (`MobConstants`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MobRead {
    /// `hbase.mob.scan.raw`: return the references themselves.
    pub raw: bool,
    /// `hbase.mob.scan.ref.only`: return only cells whose values are in MOB files.
    pub references_only: bool,
    /// `hbase.mob.cache.blocks`: add the blocks of MOB files to the cache.
    pub cache_blocks: bool,
    /// `empty.value.on.mobcell.miss`: return an empty value if a MOB file is lost or damaged,
    /// instead of an error.
    pub empty_on_miss: bool,
}

impl Default for Scan {
    fn default() -> Self {
        Self {
            start_row: Bytes::new(),
            include_start_row: true,
            stop_row: Bytes::new(),
            include_stop_row: false,
            reversed: false,
            families: Families::new(),
            max_versions: 1,
            time_range: TimeRange::ALL,
            family_time_ranges: Vec::new(),
            store_limit: -1,
            store_offset: 0,
            batch: -1,
            raw: false,
            cache_blocks: true,
            filter: None,
            read_uncommitted: false,
            mvcc_read_point: None,
            read_type: ReadType::Default,
            load_families_on_demand: false,
            is_get: false,
            mob: MobRead::default(),
            wait: Wait::Allowed,
        }
    }
}

impl Scan {
    /// A Get: exactly one row.
    pub fn get(row: impl Into<Bytes>) -> Self {
        let row = row.into();
        Self {
            start_row: row.clone(),
            stop_row: row,
            include_stop_row: true,
            is_get: true,
            ..Self::default()
        }
    }

    /// Returns true for a Get without a filter, whose answer depends on no earlier read.
    pub fn is_plain_get(&self) -> bool {
        self.is_get
            && self.filter.is_none()
            && !self.reversed
            && self.include_start_row
            && self.include_stop_row
            && self.start_row == self.stop_row
    }

    /// The time range of a family.
    pub fn time_range_of(&self, family: &[u8]) -> TimeRange {
        self.family_time_ranges
            .iter()
            .find(|(name, _)| name == family)
            .map_or(self.time_range, |(_, range)| *range)
    }

    /// The requested columns of a family: `None` if the family is not requested, `Some(None)` for
    /// all of its columns.
    pub fn columns_of(&self, family: &[u8]) -> Option<Option<&[Bytes]>> {
        if self.families.is_empty() {
            return Some(None);
        }
        self.families.iter().find(|f| f.family == family).map(|f| f.qualifiers.as_deref())
    }
}

/// The kinds of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutationKind {
    /// Values.
    Put,
    /// Delete markers.
    Delete,
    /// Adds to 8-byte numbers.
    Increment,
    /// Adds to the end of values.
    Append,
}

/// A write to one row.
#[derive(Clone, Debug)]
pub struct Mutation {
    /// Which kind.
    pub kind: MutationKind,
    /// The row; every cell has the same.
    pub row: Bytes,
    /// The cells, in the given order. A Put's or Append's timestamp may be [`LATEST_TIMESTAMP`]; an
    /// Increment's value is the amount, 8 bytes big-endian; a Delete's type selects what it
    /// deletes. A Delete without cells deletes every family.
    pub cells: Vec<KeyValue>,
    /// The timestamp of a Delete without cells; otherwise ignored.
    pub timestamp: i64,
    /// How durable the write must be before it is acknowledged.
    pub durability: Durability,
    /// The mutation's time to live in milliseconds (attribute `_ttl`). It becomes a tag of each
    /// cell of a Put or Increment.
    pub ttl_ms: Option<i64>,
    /// Which current values an Increment or Append reads.
    pub time_range: TimeRange,
    /// True if an Increment or Append returns its cells.
    pub return_results: bool,
    /// The budget to which the cells that an Increment or Append returns are charged; `None` if
    /// they are not.
    pub reply_budget: Option<Arc<Budget>>,
    /// The nonce of an Increment or Append that must be applied only once; 0 for none.
    pub nonce: u64,
}

impl Mutation {
    /// A mutation with default options.
    pub fn new(kind: MutationKind, row: impl Into<Bytes>, cells: Vec<KeyValue>) -> Self {
        Self {
            kind,
            row: row.into(),
            cells,
            timestamp: LATEST_TIMESTAMP,
            durability: Durability::UseDefault,
            ttl_ms: None,
            time_range: TimeRange::ALL,
            return_results: true,
            reply_budget: None,
            nonce: 0,
        }
    }
}

/// A condition on a row under which a write is made.
pub struct Condition {
    /// The row.
    pub row: Bytes,
    /// The test.
    pub test: ConditionTest,
    /// The timestamps to read.
    pub time_range: TimeRange,
}

/// The two forms of a condition.
pub enum ConditionTest {
    /// Compares the newest cell of a column to a value; see [`Condition`]'s users for absent cells.
    Column {
        /// The family.
        family: Bytes,
        /// The qualifier.
        qualifier: Bytes,
        /// The operator.
        op: CompareType,
        /// The value to compare to.
        comparator: Box<dyn ByteArrayComparable>,
    },
    /// Holds if the filter lets any cell of the row through.
    Filter(Box<dyn Filter>),
}

/// The result of a write.
#[derive(Debug, Default)]
pub struct MutationResult {
    /// The new cells of an Increment or Append that returns them; otherwise `None`.
    pub cells: Option<CellBuffer>,
    /// Bytes of the cells that were written beyond those of the mutation: the old value and tags
    /// that an Append or Increment writes again. A batch of Puts and Deletes does not count them.
    pub grown_bytes: u64,
    /// The charge of `cells` to the budget of replies, until they are sent.
    pub charge: Option<Charge>,
}

/// The result of a conditional write.
#[derive(Debug, Default)]
pub struct CheckAndMutateResult {
    /// True if the condition held and the write was made.
    pub success: bool,
    /// The new cells of its Increments and Appends, in order.
    pub cells: Option<CellBuffer>,
    /// See [`MutationResult::grown_bytes`]; of all mutations together.
    pub grown_bytes: u64,
    /// See [`MutationResult::charge`].
    pub charge: Option<Charge>,
}

/// Called once with the outcome of a write, when it is as durable as requested and visible to
/// readers. It runs on the caller's thread if the write did not wait, otherwise on the WAL's
/// thread, so it must be short.
pub type Completion<T> = Box<dyn FnOnce(Result<T, HBaseError>) + Send>;
