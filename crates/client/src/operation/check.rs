//! [`CheckAndMutate`]: conditional mutations of one row.

use bytes::Bytes;
use evenkeel_protocol::pb;

use super::{Mutation, RowMutations};
use crate::filter::{Comparator, Filter, SingleColumnValue};

/// The comparison of a check: `cell OP value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// The cell is less than the value.
    Less,
    /// The cell is less than or equal to the value.
    LessOrEqual,
    /// The cell equals the value.
    Equal,
    /// The cell differs from the value.
    NotEqual,
    /// The cell is greater than or equal to the value.
    GreaterOrEqual,
    /// The cell is greater than the value.
    Greater,
}

impl CompareOp {
    /// The wire format compares the value with the cell, so `cell < value` is sent as `GREATER`, as
    /// HBase's client does.
    fn on_wire(self) -> pb::CompareType {
        match self {
            Self::Less => pb::CompareType::Greater,
            Self::LessOrEqual => pb::CompareType::GreaterOrEqual,
            Self::Equal => pb::CompareType::Equal,
            Self::NotEqual => pb::CompareType::NotEqual,
            Self::GreaterOrEqual => pb::CompareType::LessOrEqual,
            Self::Greater => pb::CompareType::Less,
        }
    }
}

/// The condition on a row.
#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Column { family: Bytes, qualifier: Bytes, op: CompareOp, comparator: Comparator },
    Filter(Filter),
}

/// Mutations of one row that are applied only if a condition holds.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckAndMutate {
    condition: Condition,
    time_range: Option<pb::TimeRange>,
    pub(crate) mutations: RowMutations,
}

impl CheckAndMutate {
    /// The condition: a column's newest value compares as given with a value. With an empty value,
    /// [`CompareOp::Equal`] holds if there is no such cell (or an empty one),
    /// [`CompareOp::NotEqual`] if there is one.
    pub fn new(
        row: impl AsRef<[u8]>,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        op: CompareOp,
        value: impl AsRef<[u8]>,
    ) -> Self {
        let [family, qualifier] = [family.as_ref(), qualifier.as_ref()].map(Bytes::copy_from_slice);
        Self::of(row, Condition::Column { family, qualifier, op, comparator: Comparator::binary(value) })
    }

    /// The condition: the column exists and its newest value compares as given with a comparator.
    /// Servers treat a check's comparator as plain bytes, regardless of its class, so other
    /// comparators are sent as a filter.
    pub fn matching(
        row: impl AsRef<[u8]>,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        op: CompareOp,
        comparator: Comparator,
    ) -> Self {
        let [family, qualifier] = [family.as_ref(), qualifier.as_ref()].map(Bytes::copy_from_slice);
        let (filter_if_missing, latest_version_only) = (true, true);
        let test =
            SingleColumnValue { family, qualifier, op, comparator, filter_if_missing, latest_version_only };
        Self::if_filter(row, Filter::SingleColumnValue(test))
    }

    /// The condition: a filter passes any cell of the row.
    pub fn if_filter(row: impl AsRef<[u8]>, filter: Filter) -> Self {
        Self::of(row, Condition::Filter(filter))
    }

    /// The condition: the row has no such column.
    pub fn if_absent(row: impl AsRef<[u8]>, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Self {
        Self::new(row, family, qualifier, CompareOp::Equal, b"")
    }

    fn of(row: impl AsRef<[u8]>, condition: Condition) -> Self {
        Self { condition, time_range: None, mutations: RowMutations::new(row) }
    }

    /// Checks only cells with `from_ms <= timestamp < to_ms`.
    pub fn time_range(mut self, from_ms: u64, to_ms: u64) -> Self {
        self.time_range = Some(pb::TimeRange { from: Some(from_ms), to: Some(to_ms) });
        self
    }

    /// Adds a mutation that is applied if the condition holds.
    pub fn then(mut self, mutation: impl Into<Mutation>) -> Self {
        self.mutations = self.mutations.with(mutation);
        self
    }

    pub(crate) fn condition(&self) -> pb::Condition {
        let (row, time_range) = (self.mutations.row.clone(), self.time_range);
        let condition = pb::Condition { row, time_range, ..Default::default() };
        match &self.condition {
            Condition::Filter(filter) => pb::Condition { filter: Some(filter.message()), ..condition },
            Condition::Column { family, qualifier, op, comparator } => pb::Condition {
                family: Some(family.clone()),
                qualifier: Some(qualifier.clone()),
                compare_type: Some(op.on_wire() as i32),
                comparator: Some(comparator.message()),
                ..condition
            },
        }
    }
}
