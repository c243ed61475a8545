//! Condition: what must hold before a write (checkAndMutate).

use evenkeel_common::{HBaseError, Result};
use evenkeel_protocol::pb::{self, CompareType};
use evenkeel_region::filter;
use evenkeel_region::operations::{Condition, ConditionTest};

use super::{check_row, missing, optional_time_range};

/// Converts a condition in its column form or its filter form.
///
/// # Errors
/// `DoNotRetryIOException` for missing fields, an unknown operator, or a filter or comparator that
/// cannot be parsed.
pub fn read(proto: &pb::Condition) -> Result<Condition> {
    check_row(&proto.row)?;
    let test = match &proto.filter {
        Some(filter) => ConditionTest::Filter(filter::from_proto(filter)?),
        None => column_test(proto)?,
    };
    let time_range = optional_time_range(proto.time_range.as_ref())?;
    Ok(Condition { row: proto.row.clone(), test, time_range })
}

fn column_test(proto: &pb::Condition) -> Result<ConditionTest> {
    let comparator = proto.comparator.as_ref().ok_or_else(|| missing("comparator"))?;
    Ok(ConditionTest::Column {
        family: proto.family.clone().ok_or_else(|| missing("family"))?,
        qualifier: proto.qualifier.clone().unwrap_or_default(),
        op: compare_op(proto.compare_type)?,
        comparator: filter::comparator_from_proto(comparator)?,
    })
}

/// Returns the operator of a number. If the number is absent, it is the first value of the enum, as
/// protobuf defines.
fn compare_op(number: Option<i32>) -> Result<CompareType> {
    let number = number.unwrap_or(CompareType::Less as i32);
    CompareType::try_from(number)
        .map_err(|_| HBaseError::do_not_retry(format!("Unknown compare type: {number}")))
}
