//! [`ServiceCall`]: a call of a coprocessor service, with the request that is nested in it.
//!
//! The nested request is bytes to the message around it. It is decoded with that message, within
//! the same [`Allowance`], so that many tiny parts count wherever they are. A call of a service
//! that is not built in is answered by its name, so its request is not decoded.

use bytes::Bytes;
use evenkeel_common::{HBaseError, Result};
use evenkeel_protocol::{Allowance, BoundedError, decode, pb};

use super::bounded::take_filter;

/// The package of HBase's own services, which a client may name or not.
const PACKAGE: &str = "hbase.pb.";

/// A request of ExecService.
#[derive(Debug)]
pub struct ServiceRequest {
    /// The region.
    pub region: pb::RegionSpecifier,
    /// The call.
    pub call: ServiceCall,
}

/// A call of a service.
#[derive(Debug)]
pub struct ServiceCall {
    /// The service as the client names it.
    pub service_name: String,
    /// Its method.
    pub method_name: String,
    /// Its request.
    pub request: NestedRequest,
}

/// The request of a service, or why it cannot be read.
#[derive(Debug)]
pub enum NestedRequest {
    /// To MultiRowMutationService.
    MutateRows(Result<pb::MutateRowsRequest>),
    /// To AggregateService.
    Aggregate(Result<Box<pb::AggregateRequest>>),
    /// A service that is not built in.
    Unknown,
}

impl ServiceRequest {
    /// Decodes a [`pb::CoprocessorServiceRequest`] and what is nested in it.
    ///
    /// # Errors
    /// When it is no such request, or there is no room for it. A nested request that is malformed
    /// is the [call's](ServiceCall::request) error.
    pub fn decode(bytes: Bytes, allowance: &mut Allowance<'_>) -> Result<Self, BoundedError> {
        let pb::CoprocessorServiceRequest { region, call } = decode(bytes, allowance)?;
        Ok(Self { region, call: ServiceCall::decode(call, allowance)? })
    }
}

impl ServiceCall {
    /// Decodes the nested request.
    ///
    /// # Errors
    /// [`BoundedError::TooLarge`] when there is no room for it.
    pub fn decode(
        call: pb::CoprocessorServiceCall,
        allowance: &mut Allowance<'_>,
    ) -> Result<Self, BoundedError> {
        if !allowance.take(size_of::<Self>() as u64) {
            return Err(BoundedError::TooLarge);
        }
        let pb::CoprocessorServiceCall { service_name, method_name, request, .. } = call;
        let request = match service_name.strip_prefix(PACKAGE).unwrap_or(&service_name) {
            "MultiRowMutationService" => {
                NestedRequest::MutateRows(or_malformed(mutate_rows(request, allowance))?)
            }
            "AggregateService" => NestedRequest::Aggregate(or_malformed(aggregate(request, allowance))?),
            _ => NestedRequest::Unknown,
        };
        Ok(Self { service_name, method_name, request })
    }
}

/// Makes a malformed nested request an error of its call, not of the request around it.
fn or_malformed<M>(nested: Result<M, BoundedError>) -> Result<Result<M>, BoundedError> {
    match nested {
        Err(BoundedError::Malformed(error)) => {
            let message = format!("the service's request cannot be read: {error}");
            Ok(Err(HBaseError::do_not_retry(message)))
        }
        Err(BoundedError::TooLarge) => Err(BoundedError::TooLarge),
        Ok(nested) => Ok(Ok(nested)),
    }
}

fn mutate_rows(bytes: Bytes, allowance: &mut Allowance<'_>) -> Result<pb::MutateRowsRequest, BoundedError> {
    let request: pb::MutateRowsRequest = decode(bytes, allowance)?;
    for condition in &request.condition {
        take_filter(condition.filter.as_ref(), allowance)?;
    }
    Ok(request)
}

fn aggregate(bytes: Bytes, allowance: &mut Allowance<'_>) -> Result<Box<pb::AggregateRequest>, BoundedError> {
    let request: Box<pb::AggregateRequest> = Box::new(decode(bytes, allowance)?);
    take_filter(request.scan.filter.as_ref(), allowance)?;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn call(service: &str, request: impl Into<Bytes>) -> pb::CoprocessorServiceCall {
        pb::CoprocessorServiceCall {
            service_name: service.to_owned(),
            request: request.into(),
            ..pb::CoprocessorServiceCall::default()
        }
    }

    fn within(allowance: u64, call: pb::CoprocessorServiceCall) -> Result<ServiceCall, BoundedError> {
        let request = pb::CoprocessorServiceRequest { call, ..Default::default() };
        let mut none = || None;
        let mut allowance = Allowance::new(allowance, &mut none);
        ServiceRequest::decode(request.encode_to_vec().into(), &mut allowance).map(|request| request.call)
    }

    fn with_ranges(count: usize) -> Option<pb::Filter> {
        let name = "org.apache.hadoop.hbase.filter.MultiRowRangeFilter".to_owned();
        Some(pb::Filter { name, serialized_filter: Some([0x0a, 0].repeat(count).into()) })
    }

    #[test]
    fn nested_parts_and_filters_take_from_the_allowance() {
        let mutations = [0x0a, 0].repeat(1000);
        let condition = vec![pb::Condition { filter: with_ranges(1000), ..Default::default() }];
        let conditions = pb::MutateRowsRequest { condition, ..Default::default() }.encode_to_vec();
        let scan = |scan| pb::AggregateRequest { scan, ..Default::default() }.encode_to_vec();
        let columns = scan(pb::Scan { column: vec![pb::Column::default(); 1000], ..Default::default() });
        let filter = scan(pb::Scan { filter: with_ranges(1000), ..Default::default() });
        for (service, request) in [
            ("MultiRowMutationService", mutations),
            ("MultiRowMutationService", conditions),
            ("AggregateService", columns),
            ("AggregateService", filter),
        ] {
            for name in [service.to_owned(), format!("{PACKAGE}{service}")] {
                let call = call(&name, request.clone());
                assert!(matches!(within(16_000, call.clone()), Err(BoundedError::TooLarge)), "{name}");
                let request = within(1 << 20, call).expect("room").request;
                let is_read =
                    matches!(request, NestedRequest::MutateRows(Ok(_)) | NestedRequest::Aggregate(Ok(_)));
                assert!(is_read, "{name}");
            }
        }
    }

    #[test]
    fn a_malformed_request_is_the_error_of_its_call() {
        let malformed = within(1 << 20, call("AggregateService", [0xff, 0xff].to_vec())).expect("room");
        let NestedRequest::Aggregate(Err(error)) = malformed.request else { panic!("{malformed:?}") };
        assert!(error.message().starts_with("the service's request cannot be read: "), "{error}");
        let unknown = within(1 << 20, call("hbase.pb.Other", [0xff, 0xff].to_vec())).expect("room");
        assert!(matches!(unknown.request, NestedRequest::Unknown));
    }
}
