//! [`decode`]: decodes requests with filters within a [`DecodeBudget`].
//!
//! A filter in a decoded request is a class name and bytes that are not parsed yet. The memory that
//! the parsed filter takes is computed from those bytes ([`bytes_to_read`]) and taken from the
//! request's budget before the filter is built.

use bytes::Bytes;
use evenkeel_protocol::{BoundedError, DecodeBudget, pb};
use evenkeel_region::filter::bytes_to_read;
use prost::Message;

/// A request that may have a filter.
pub trait MayFilter {
    /// Returns its filter.
    fn filter(&self) -> Option<&pb::Filter>;
}

impl MayFilter for pb::GetRequest {
    fn filter(&self) -> Option<&pb::Filter> {
        self.get.filter.as_ref()
    }
}

impl MayFilter for pb::ScanRequest {
    fn filter(&self) -> Option<&pb::Filter> {
        self.scan.as_ref()?.filter.as_ref()
    }
}

impl MayFilter for pb::MutateRequest {
    fn filter(&self) -> Option<&pb::Filter> {
        self.condition.as_ref()?.filter.as_ref()
    }
}

/// Decodes a request. Takes the memory for the request and for its parsed filter from `budget`.
///
/// # Errors
/// [`BoundedError::Malformed`] if it is not such a request; [`BoundedError::TooLarge`] if it
/// exceeds the budget together with its filter.
pub fn decode<M: Message + Default + MayFilter>(
    bytes: Bytes,
    budget: &mut DecodeBudget<'_>,
) -> Result<M, BoundedError> {
    let request: M = evenkeel_protocol::decode(bytes, budget)?;
    take_filter(request.filter(), budget)?;
    Ok(request)
}

/// Takes the memory that parsing a filter needs.
///
/// # Errors
/// [`BoundedError::TooLarge`] if it exceeds the budget.
pub fn take_filter(filter: Option<&pb::Filter>, budget: &mut DecodeBudget<'_>) -> Result<(), BoundedError> {
    let Some(filter) = filter else { return Ok(()) };
    if budget.acquire(bytes_to_read(filter)) { Ok(()) } else { Err(BoundedError::TooLarge) }
}
