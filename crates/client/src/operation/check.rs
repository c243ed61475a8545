//! [`CheckAndMutate`]: mutations that are made only if the row is as expected.

use bytes::Bytes;
use evenkeel_protocol::pb;

use super::{Mutation, RowMutations};
use crate::filter::{Comparator, Filter, SingleColumnValue};

/// How a check compares: `cell OP value`.
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
    /// The wire compares the value with the cell, so `cell < value` goes out as `GREATER`, as from HBase's client.
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

/// What must hold of a row.
#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Column { family: Bytes, qualifier: Bytes, op: CompareOp, comparator: Comparator },
    Filter(Filter),
}

/// Mutations of one row that are made only if the row is as expected.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckAndMutate {
    condition: Condition,
    time_range: Option<pb::TimeRange>,
    pub(crate) mutations: RowMutations,
}

impl CheckAndMutate {
    /// If a column's newest value compares so with a value. With an empty value, [`CompareOp::Equal`] asks that there be
    /// no such cell (or an empty one) and [`CompareOp::NotEqual`] that there be one.
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

    /// If there is such a column and its newest value compares so with a comparator. Servers take a check's own comparator
    /// for plain bytes whatever its class, so another one than those goes out as a filter.
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

    /// If a filter leaves any cell of the row.
    pub fn if_filter(row: impl AsRef<[u8]>, filter: Filter) -> Self {
        Self::of(row, Condition::Filter(filter))
    }

    /// If the row has no such column.
    pub fn if_absent(row: impl AsRef<[u8]>, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Self {
        Self::new(row, family, qualifier, CompareOp::Equal, b"")
    }

    fn of(row: impl AsRef<[u8]>, condition: Condition) -> Self {
        Self { condition, time_range: None, mutations: RowMutations::new(row) }
    }

    /// Looks only at cells with `from_ms <= timestamp < to_ms`.
    pub fn time_range(mut self, from_ms: u64, to_ms: u64) -> Self {
        self.time_range = Some(pb::TimeRange { from: Some(from_ms), to: Some(to_ms) });
        self
    }

    /// Then make this mutation, with those before it.
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
