//! Converts HBase's messages to the operations of a region ([`evenkeel_region::operations`]), and
//! back.
//!
//! Requests are validated here before they reach a region: required fields, enum numbers, row
//! lengths, cell sizes, and the rule that all cells of a mutation belong to its row. An invalid
//! request fails with `DoNotRetryIOException`, as it would fail again.
//!
//! | module | contents |
//! |---|---|
//! | [`bounded`] | requests with filters, within the budget for requests |
//! | [`read`] | Get and Scan |
//! | [`multi`] | MultiRequest |
//! | [`mutation`] | MutationProto, its cells from the message or the request's cell block |
//! | [`condition`] | Condition |
//! | [`result`] | Result, in both forms; exceptions inside results |
//! | [`region`] | RegionSpecifier |
//! | [`service`] | calls of coprocessor services, and the requests nested in them |
//!
//! # Cells of a request
//! A mutation whose cells travel in the cell block gives their number. The block contains the cells
//! in the order of the mutations. [`mutation::read`] takes exactly that many cells from the block,
//! whether or not the mutation is valid. [`mutation::skip`] takes the cells of a mutation that is
//! not processed. So the mutations that follow stay aligned with their cells.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use evenkeel_common::{HBaseError, Result};
use evenkeel_protocol::pb;
use evenkeel_region::operations::TimeRange;

pub mod bounded;
pub mod condition;
pub mod multi;
pub mod mutation;
pub mod read;
pub mod region;
pub mod result;
pub mod service;

#[cfg(test)]
mod tests;

/// Converts a time range.
///
/// # Errors
/// `DoNotRetryIOException` for negative timestamps and for a range that ends before it starts.
pub fn time_range(range: &pb::TimeRange) -> Result<TimeRange> {
    let min = range.from.unwrap_or(0) as i64;
    let max = range.to.map_or(i64::MAX, |to| to as i64);
    if min < 0 || max < 0 {
        let message = format!("Timestamp cannot be negative. minStamp:{min}, maxStamp:{max}");
        return Err(HBaseError::do_not_retry(message));
    }
    if max < min {
        return Err(HBaseError::do_not_retry("maxStamp is smaller than minStamp"));
    }
    Ok(TimeRange { min, max })
}

/// Converts a time range; without one, returns the range of all timestamps.
fn optional_time_range(range: Option<&pb::TimeRange>) -> Result<TimeRange> {
    range.map_or(Ok(TimeRange::ALL), time_range)
}

/// Checks the row of a Get or a mutation.
///
/// # Errors
/// `DoNotRetryIOException` if the row is empty or longer than a key can hold.
pub fn check_row(row: &[u8]) -> Result<()> {
    use evenkeel_common::cell::ROW_BYTES_MAX;
    match row.len() {
        0 => Err(HBaseError::do_not_retry("Row length is 0")),
        len if len > ROW_BYTES_MAX => {
            Err(HBaseError::do_not_retry(format!("Row length {len} is > {ROW_BYTES_MAX}")))
        }
        _ => Ok(()),
    }
}

/// Returns the value of an attribute of a Get, a Scan or a mutation.
fn attribute<'a>(attributes: &'a [pb::NameBytesPair], name: &str) -> Option<&'a [u8]> {
    let found = attributes.iter().find(|pair| pair.name == name)?;
    Some(found.value.as_deref().unwrap_or_default())
}

/// Returns an attribute that holds a boolean as Java's `Bytes.toBytes(boolean)` writes it.
fn boolean_attribute(attributes: &[pb::NameBytesPair], name: &str) -> Option<bool> {
    match attribute(attributes, name)? {
        [byte] => Some(*byte != 0),
        _ => None,
    }
}

/// The error for a message that lacks a required field.
fn missing(what: &str) -> HBaseError {
    HBaseError::do_not_retry(format!("Missing required field: {what}"))
}
