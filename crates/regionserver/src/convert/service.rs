//! [`ServiceCall`]: a call of a coprocessor service and its nested request.
//!
//! In the outer message the nested request is a bytes field. It is decoded together with the outer
//! message, within the same [`DecodeBudget`], so that many tiny parts count at every level. The
//! nested request of a service that is not built in is not decoded, because the service name alone
//! determines the reply.

use bytes::Bytes;
use evenkeel_common::{HBaseError, Result};
use evenkeel_protocol::{BoundedError, DecodeBudget, decode, pb};

use super::bounded::take_filter;

/// The package of HBase's services. Clients may omit it.
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
    /// The name of the service, as the client sent it.
    pub service_name: String,
    /// The name of the method.
    pub method_name: String,
    /// The request of the method.
    pub request: NestedRequest,
}

/// The nested request, or the error that decoding it returned.
#[derive(Debug)]
pub enum NestedRequest {
    /// A request to MultiRowMutationService.
    MutateRows(Result<pb::MutateRowsRequest>),
    /// A request to AggregateService.
    Aggregate(Result<Box<pb::AggregateRequest>>),
    /// A request to a service that is not built in.
    Unknown,
}

const AGGREGATE_SERVICE: &str = "AggregateService";

/// Returns true if a service of this name is AggregateService, which reads only.
pub fn is_aggregation(service_name: &str) -> bool {
    without_package(service_name) == AGGREGATE_SERVICE
}

fn without_package(service_name: &str) -> &str {
    service_name.strip_prefix(PACKAGE).unwrap_or(service_name)
}

impl ServiceRequest {
    /// Decodes a [`pb::CoprocessorServiceRequest`] and its nested request.
    ///
    /// # Errors
    /// [`BoundedError::Malformed`] if it is not such a request; [`BoundedError::TooLarge`] if it
    /// exceeds the budget. A malformed nested request is an error of the
    /// [call](ServiceCall::request).
    pub fn decode(bytes: Bytes, budget: &mut DecodeBudget<'_>) -> Result<Self, BoundedError> {
        let pb::CoprocessorServiceRequest { region, call } = decode(bytes, budget)?;
        Ok(Self { region, call: ServiceCall::decode(call, budget)? })
    }
}

impl ServiceCall {
    /// Decodes the nested request.
    ///
    /// # Errors
    /// [`BoundedError::TooLarge`] if it exceeds the budget.
    pub fn decode(
        call: pb::CoprocessorServiceCall,
        budget: &mut DecodeBudget<'_>,
    ) -> Result<Self, BoundedError> {
        if !budget.acquire(size_of::<Self>() as u64) {
            return Err(BoundedError::TooLarge);
        }
        let pb::CoprocessorServiceCall { service_name, method_name, request, .. } = call;
        let request = match without_package(&service_name) {
            "MultiRowMutationService" => {
                NestedRequest::MutateRows(or_malformed(mutate_rows(request, budget))?)
            }
            AGGREGATE_SERVICE => NestedRequest::Aggregate(or_malformed(aggregate(request, budget))?),
            _ => NestedRequest::Unknown,
        };
        Ok(Self { service_name, method_name, request })
    }
}

/// Turns a malformed nested request into an error of its call rather than of the outer request.
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

fn mutate_rows(bytes: Bytes, budget: &mut DecodeBudget<'_>) -> Result<pb::MutateRowsRequest, BoundedError> {
    let request: pb::MutateRowsRequest = decode(bytes, budget)?;
    for condition in &request.condition {
        take_filter(condition.filter.as_ref(), budget)?;
    }
    Ok(request)
}

fn aggregate(bytes: Bytes, budget: &mut DecodeBudget<'_>) -> Result<Box<pb::AggregateRequest>, BoundedError> {
    let request: Box<pb::AggregateRequest> = Box::new(decode(bytes, budget)?);
    take_filter(request.scan.filter.as_ref(), budget)?;
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

    fn within(budget: u64, call: pb::CoprocessorServiceCall) -> Result<ServiceCall, BoundedError> {
        let request = pb::CoprocessorServiceRequest { call, ..Default::default() };
        let mut none = || None;
        let mut budget = DecodeBudget::new(budget, &mut none);
        ServiceRequest::decode(request.encode_to_vec().into(), &mut budget).map(|request| request.call)
    }

    fn with_ranges(count: usize) -> Option<pb::Filter> {
        let name = "org.apache.hadoop.hbase.filter.MultiRowRangeFilter".to_owned();
        Some(pb::Filter { name, serialized_filter: Some([0x0a, 0].repeat(count).into()) })
    }

    #[test]
    fn nested_parts_and_filters_are_charged_to_the_allowance() {
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
    fn a_malformed_request_fails_only_its_call() {
        let malformed = within(1 << 20, call("AggregateService", [0xff, 0xff].to_vec())).expect("room");
        let NestedRequest::Aggregate(Err(error)) = malformed.request else { panic!("{malformed:?}") };
        assert!(error.message().starts_with("the service's request cannot be read: "), "{error}");
        let unknown = within(1 << 20, call("hbase.pb.Other", [0xff, 0xff].to_vec())).expect("room");
        assert!(matches!(unknown.request, NestedRequest::Unknown));
    }
}
