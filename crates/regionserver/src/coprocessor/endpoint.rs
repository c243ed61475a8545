//! Built-in coprocessor services: MultiRowMutationService and AggregateService.
//!
//! A region has a service if HBase would load it there; see [`coprocessor`](crate::coprocessor).

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{CallerState, ErrorKind, HBaseError, Result};
use evenkeel_protocol::pb;
use evenkeel_region::operations::CheckAndMutateResult;
use evenkeel_region::region::nonce::NonceSource;
use evenkeel_region::region::{Region, RowLockWaiter};
use evenkeel_rpc::{CellBlockReader, CellCodec};
use prost::Message;

use crate::RegionServer;
use crate::convert::service::{NestedRequest, ServiceCall, ServiceRequest};
use crate::convert::{condition, mutation};
use crate::coprocessor::BuiltIn;
use crate::coprocessor::aggregate;
use crate::limits::memstore;
use crate::requests::caller::Reply;
use crate::requests::pending_reply::PendingReply;

/// The Java package of the response classes.
const JAVA_PACKAGE: &str = "org.apache.hadoop.hbase.protobuf.generated";

/// The caller of a service.
#[derive(Clone, Copy)]
pub struct ServiceCaller<'a> {
    /// The owner of the nonces of its writes.
    pub nonce_owner: u64,
    /// Whether it still waits.
    pub state: &'a CallerState,
}

/// Answers ExecService.
pub fn exec(
    server: &Arc<RegionServer>,
    region: &Arc<Region>,
    request: ServiceRequest,
    caller: ServiceCaller<'_>,
    reply: PendingReply<pb::CoprocessorServiceResponse>,
) {
    let specifier = request.region;
    let value = PendingReply::to_function(move |value: Result<Reply<pb::NameBytesPair>>| {
        let response =
            value.map(|value| pb::CoprocessorServiceResponse { region: specifier, value: value.message });
        reply.send(response.map(Reply::plain));
    });
    call(server, region, &request.call, caller, value);
}

/// Returns the error for a service that does not exist.
pub fn unknown_service(name: &str, place: &str) -> HBaseError {
    HBaseError::new(
        ErrorKind::UnknownProtocol,
        format!("No registered coprocessor service found for {name} {place}"),
    )
}

/// Calls a service of a region. AggregateService reads the region before this returns, or until the
/// caller waits no longer. `reply` gets the value that the service returns.
pub fn call(
    server: &Arc<RegionServer>,
    region: &Arc<Region>,
    call: &ServiceCall,
    caller: ServiceCaller<'_>,
    reply: PendingReply<pb::NameBytesPair>,
) {
    let has = |built_in| server.config.coprocessors.has(region.table(), built_in);
    match (&call.request, call.method_name.as_str()) {
        (NestedRequest::MutateRows(request), method) if has(BuiltIn::MultiRowMutation) => match method {
            "MutateRows" => mutate_rows(server, region, request.as_ref(), caller.nonce_owner, reply),
            method => reply.send(Err(unknown_method(method, "MultiRowMutationService"))),
        },
        (NestedRequest::Aggregate(request), method) if has(BuiltIn::Aggregate) => {
            let value = aggregate(server, region, (method, request.as_deref()), caller.state);
            reply.send(value.map(Reply::plain));
        }
        _ => {
            let place = format!("in region {}", region.info().name_text());
            reply.send(Err(unknown_service(&call.service_name, &place)));
        }
    }
}

fn aggregate(
    server: &RegionServer,
    region: &Arc<Region>,
    (method, request): (&str, Result<&pb::AggregateRequest, &HBaseError>),
    state: &CallerState,
) -> Result<pb::NameBytesPair> {
    let found = aggregate::Method::by_name(method);
    let method = found.ok_or_else(|| unknown_method(method, "AggregateService"))?;
    let response = aggregate::run(server, region, method, request.map_err(HBaseError::clone)?, state)?;
    Ok(value("AggregateProtos$AggregateResponse", &response))
}

fn unknown_method(method: &str, service: &str) -> HBaseError {
    let message = format!("Unknown method {method} called on service hbase.pb.{service}");
    HBaseError::new(ErrorKind::UnknownProtocol, message)
}

fn value(class: &str, message: &impl Message) -> pb::NameBytesPair {
    pb::NameBytesPair { name: format!("{JAVA_PACKAGE}.{class}"), value: Some(message.encode_to_vec().into()) }
}

/// Makes atomic writes to several rows of the region, if every condition holds.
fn mutate_rows(
    server: &RegionServer,
    region: &Arc<Region>,
    request: Result<&pb::MutateRowsRequest, &HBaseError>,
    nonce_owner: u64,
    mut reply: PendingReply<pb::NameBytesPair>,
) {
    let parsed = request.map_err(HBaseError::clone).and_then(|request| {
        server.check_memstore_limit(region)?;
        let conditions = request.condition.iter().map(condition::read).collect::<Result<Vec<_>>>()?;
        // The cells of such a request are always inside the message.
        let mut no_block = CellBlockReader::new(CellCodec::KeyValue, Bytes::new());
        let max = region.cell_bytes_max();
        let mut read = |proto| mutation::read(proto, &mut no_block, max);
        let mutations = request.mutation_request.iter().map(&mut read).collect::<Result<Vec<_>>>()?;
        let nonces = NonceSource { group: request.nonce_group.unwrap_or(0), owner: nonce_owner };
        Ok((mutations, conditions, nonces))
    });
    let (mutations, conditions, nonces) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            reply.hold_for(server.hold_for_error(&error), &server.background);
            return reply.send(Err(error));
        }
    };
    let hold = server.begin_write(region, mutations.iter().map(memstore::bytes_of).sum());
    reply.hold_for(hold, &server.background);
    let background = Arc::clone(&server.background);
    let respond = move |outcome: Result<CheckAndMutateResult>| {
        let grown_bytes = outcome.as_ref().map_or(0, |result| result.grown_bytes);
        reply.extend_hold(grown_bytes, &background);
        let outcome = outcome.map(|result| {
            let response = pb::MutateRowsResponse { processed: Some(result.success) };
            Reply::plain(value("MultiRowMutationProtos$MutateRowsResponse", &response))
        });
        reply.send(outcome);
    };
    region.mutate_rows(mutations, conditions, nonces, RowLockWaiter::CallingThread, Box::new(respond));
}
