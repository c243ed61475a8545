//! What a region is asked to do, free of any RPC message: [`Scan`] (a Get is a scan of one row), [`Mutation`],
//! [`Condition`], and what comes back.
//!
//! The server room translates protobuf into these; tests and benchmarks build them directly.

use bytes::Bytes;
use evenkeel_common::cell::LATEST_TIMESTAMP;
use evenkeel_common::{CellBuffer, Durability, HBaseError, KeyValue, Result};
use smallvec::SmallVec;

use evenkeel_protocol::pb::CompareType;

use crate::filter::{ByteArrayComparable, Filter};

/// Timestamps from `min`, included, to `max`, excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The first timestamp inside.
    pub min: i64,
    /// The first timestamp outside.
    pub max: i64,
}

impl TimeRange {
    /// Every timestamp.
    pub const ALL: Self = Self { min: 0, max: i64::MAX };

    /// Whether a timestamp is inside. `max == i64::MAX` leaves nothing out.
    pub fn contains(&self, timestamp: i64) -> bool {
        timestamp >= self.min && (timestamp < self.max || self.max == i64::MAX)
    }

    /// -1 below the range, 0 inside, 1 above (`TimeRange.compare`).
    pub fn compare(&self, timestamp: i64) -> i32 {
        if timestamp < self.min { -1 } else { i32::from(timestamp >= self.max && self.max != i64::MAX) }
    }

    /// Whether nothing is left out.
    pub fn is_all(&self) -> bool {
        self.min <= 0 && self.max == i64::MAX
    }
}

/// A family that is asked for, and which of its columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyColumns {
    /// The family.
    pub family: Bytes,
    /// The qualifiers, sorted and distinct; `None` for all.
    pub qualifiers: Option<Columns>,
}

/// Qualifiers; one, as most Gets ask for, lies in place.
pub type Columns = SmallVec<[Bytes; 1]>;

/// Families that are asked for; one lies in place.
pub type Families = SmallVec<[FamilyColumns; 1]>;

/// How a scan reads files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadType {
    /// Positional reads first, a stream once it turns out long.
    #[default]
    Default,
    /// Sequential, with read-ahead.
    Stream,
    /// Positional.
    Pread,
}

/// A read of a range of rows, or of one.
pub struct Scan {
    /// Where to start; empty for the table's start (its end when reversed).
    pub start_row: Bytes,
    /// Whether `start_row` itself is wanted.
    pub include_start_row: bool,
    /// Where to stop; empty for the table's end (its start when reversed).
    pub stop_row: Bytes,
    /// Whether `stop_row` itself is wanted.
    pub include_stop_row: bool,
    /// Rows in descending order.
    pub reversed: bool,
    /// Families and columns; empty for all families.
    pub families: Families,
    /// Versions of a column at most.
    pub max_versions: u32,
    /// Timestamps that count.
    pub time_range: TimeRange,
    /// Time ranges of single families, instead of `time_range`.
    pub family_time_ranges: Vec<(Bytes, TimeRange)>,
    /// Cells of a family and row at most; negative for no limit.
    pub store_limit: i32,
    /// Cells of a family and row to leave out first.
    pub store_offset: i32,
    /// Cells of a result at most; 0 or negative for no limit.
    pub batch: i32,
    /// Show delete markers and what they hide.
    pub raw: bool,
    /// Put blocks that were read into the cache.
    pub cache_blocks: bool,
    /// Leaves out what it does not want.
    pub filter: Option<Box<dyn Filter>>,
    /// See writes that are not complete yet.
    pub read_uncommitted: bool,
    /// Continue at an earlier scanner's read point.
    pub mvcc_read_point: Option<u64>,
    /// How to read files.
    pub read_type: ReadType,
    /// Read families that the filter does not need only for rows that pass it.
    pub load_families_on_demand: bool,
    /// This is a Get: one row, bloom filters asked.
    pub is_get: bool,
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

    /// Whether it is a Get without a filter, whose answer depends on nothing that came before it.
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

    /// The columns asked for of a family: `None` when the family is not asked for at all.
    pub fn columns_of(&self, family: &[u8]) -> Option<Option<&[Bytes]>> {
        if self.families.is_empty() {
            return Some(None);
        }
        self.families.iter().find(|f| f.family == family).map(|f| f.qualifiers.as_deref())
    }
}

/// The four kinds of write.
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
    /// The cells, in the order given. A Put's or Append's timestamp may be [`LATEST_TIMESTAMP`]; an Increment's value is
    /// the amount, 8 bytes big-endian; a Delete's type says what it deletes. A Delete of no cells deletes every family.
    pub cells: Vec<KeyValue>,
    /// The timestamp of a Delete of no cells; otherwise not looked at.
    pub timestamp: i64,
    /// When it is acknowledged.
    pub durability: Durability,
    /// The mutation's time to live in milliseconds (attribute `_ttl`): becomes a tag of each cell of a Put or Increment.
    pub ttl_ms: Option<i64>,
    /// Which current values an Increment or Append starts from.
    pub time_range: TimeRange,
    /// Whether an Increment or Append returns its cells.
    pub return_results: bool,
    /// The client's number for an Increment or Append that must not happen twice; 0 for none.
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
            nonce: 0,
        }
    }
}

/// What must hold of a row before a write to it.
pub struct Condition {
    /// The row.
    pub row: Bytes,
    /// What to test.
    pub test: ConditionTest,
    /// Which timestamps count.
    pub time_range: TimeRange,
}

/// The two forms of a condition.
pub enum ConditionTest {
    /// The newest cell of a column compares to a value; see [`Condition`] users for the rules of absent cells.
    Column {
        /// The family.
        family: Bytes,
        /// The qualifier.
        qualifier: Bytes,
        /// How.
        op: CompareType,
        /// With what.
        comparator: Box<dyn ByteArrayComparable>,
    },
    /// The filter lets any cell of the row through.
    Filter(Box<dyn Filter>),
}

/// What a write gives back.
#[derive(Debug, Default)]
pub struct MutationResult {
    /// The new cells of an Increment or Append that returns them; otherwise `None`.
    pub cells: Option<CellBuffer>,
}

/// What a conditional write gives back.
#[derive(Debug, Default)]
pub struct CheckAndMutateResult {
    /// Whether the condition held and the write was made.
    pub success: bool,
    /// The new cells of the Increments and Appends in it, in order.
    pub cells: Option<CellBuffer>,
}

/// Called once with the outcome of a write when it is as durable as asked and visible to readers; on the caller's
/// thread when nothing had to be waited for, otherwise on the WAL's, so it must be short.
pub type Completion<T> = Box<dyn FnOnce(Result<T, HBaseError>) + Send>;
