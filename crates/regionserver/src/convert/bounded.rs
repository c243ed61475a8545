//! [`decode`]: requests with filters, within an [`Allowance`].
//!
//! A filter is a class name and bytes, which nothing has looked into when the request has been
//! decoded. What they become is told from the bytes ([`bytes_to_read`]) and taken from the
//! allowance of the request, before any of it is made.

use bytes::Bytes;
use evenkeel_protocol::{Allowance, BoundedError, pb};
use evenkeel_region::filter::bytes_to_read;
use prost::Message;

/// A request that may have a filter.
pub trait MayFilter {
    /// Its filter.
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

/// Decodes a request, and takes what reading its filter takes.
///
/// # Errors
/// When it is no such request, or there is no room for it and its filter.
pub fn decode<M: Message + Default + MayFilter>(
    bytes: Bytes,
    allowance: &mut Allowance<'_>,
) -> Result<M, BoundedError> {
    let request: M = evenkeel_protocol::decode(bytes, allowance)?;
    take_filter(request.filter(), allowance)?;
    Ok(request)
}

/// Takes what reading a filter takes.
///
/// # Errors
/// When there is no room for it.
pub fn take_filter(filter: Option<&pb::Filter>, allowance: &mut Allowance<'_>) -> Result<(), BoundedError> {
    let Some(filter) = filter else { return Ok(()) };
    if allowance.take(bytes_to_read(filter)) { Ok(()) } else { Err(BoundedError::TooLarge) }
}
