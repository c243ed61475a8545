//! ClientService, and the choice of threads: calls that must not run on the connection's thread
//! (see [`inline`](crate::requests::inline)) are [handled](ClientService::handle) on handler
//! threads.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{CallerState, HBaseError, Result, TryError, TryResult, Wait, cpu_slot};
use evenkeel_metrics::RequestDetail;
use evenkeel_protocol::pb;
use evenkeel_region::region::{Operation, Region};
use evenkeel_region::scanner::TimeSlice;
use evenkeel_rpc::{
    BatchRunner, Call, CallClass, CallTimes, DetachedResponder, Executor, Respond, Responder, Service,
};
use evenkeel_wal::WakeBatch;
use prost::Message;

use crate::convert::bounded;
use crate::convert::multi::MultiRequest;
use crate::convert::service::{ServiceRequest, is_aggregation};
use crate::coprocessor::endpoint::{self, ServiceCaller};
use crate::requests::batch::{ClientRunner, KeptCalls, Write};
use crate::requests::bulk_load;
use crate::requests::caller::{Caller, Reply, send_reply, send_reply_detailed};
use crate::requests::get;
use crate::requests::get_batch::GetBatch;
use crate::requests::inline::{self, Handlers, RunsOn, SLICE};
use crate::requests::multi::{self, MultiKind};
use crate::requests::mutate;
use crate::requests::pending_reply::PendingReply;
use crate::requests::request_target::row_detail;
use crate::requests::scan::{self, Scanned};
use crate::{RegionServer, RequestKind};

const METHODS: &[&str] = &[
    "Get",
    "Mutate",
    "Multi",
    "Scan",
    "ExecService",
    "ExecRegionServerService",
    "PrepareBulkLoad",
    "BulkLoadHFile",
    "CleanupBulkLoad",
];

/// Returns the class of handlers for a kind of work. `system`: it is on a system table. What may
/// compute for long has no priority there: the priority handlers have no CPU slots.
fn class(work: HandlerWork, system: bool) -> CallClass {
    match work {
        HandlerWork::Aggregation => CallClass::Scan,
        _ if system => CallClass::Priority,
        HandlerWork::Scan => CallClass::Scan,
        HandlerWork::ReadsFirst => CallClass::Write,
        HandlerWork::LongWrite | HandlerWork::Services => CallClass::LongWrite,
        HandlerWork::BulkLoad => CallClass::General,
    }
}

/// Work that never runs on a connection's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandlerWork {
    Scan,
    /// Calls of AggregateService, which scan a region.
    Aggregation,
    /// Calls of other coprocessor services, which write; and Multi with any.
    Services,
    /// Writes that read cells first, which wait until the row's earlier writes are durable.
    ReadsFirst,
    /// Writes that evaluate a filter first. Multi with writes that read first; and with both reads
    /// and writes, which cannot restart when a read would block.
    LongWrite,
    /// The three calls of a bulk load, which copy, rename and delete files.
    BulkLoad,
}

/// Reads and writes of clients.
#[derive(Clone)]
pub struct ClientService {
    server: Arc<RegionServer>,
    executor: Arc<Executor>,
}

impl ClientService {
    /// Creates the service of a server.
    pub fn new(server: Arc<RegionServer>, executor: Arc<Executor>) -> Self {
        Self { server, executor }
    }

    /// Returns the server.
    pub(crate) fn server(&self) -> &Arc<RegionServer> {
        &self.server
    }

    /// Returns the handler threads.
    pub(crate) fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// Decodes a call and runs it, hands it to a handler thread, or keeps it with the calls that
    /// run together.
    pub(crate) fn begin(&self, call: Call, reply: Responder, kept: &mut KeptCalls) {
        match call.method {
            // The table is unknown until the call is decoded.
            "Mutate" | "Multi" if !inline::looks_short(&call) => {
                self.submit_to_handler(CallClass::Decode, call, reply);
            }
            "Get" | "Scan" | "ExecService" if !inline::looks_short(&call) => {
                self.submit_to_handler(CallClass::Scan, call, reply);
            }
            "Get" => self.get(call, reply, &mut kept.gets),
            "Mutate" => self.mutate(call, reply, &mut kept.writes),
            "Multi" => self.multi(call, reply, kept),
            "Scan" => self.scan(call, reply),
            "ExecService" => self.exec_service(call, reply),
            "ExecRegionServerService" | "PrepareBulkLoad" | "BulkLoadHFile" | "CleanupBulkLoad" => {
                self.submit_to_handler(class(HandlerWork::BulkLoad, false), call, reply);
            }
            method => reply.send_error(&not_supported(method)),
        }
    }

    fn get(&self, call: Call, reply: Responder, gets: &mut GetBatch<(Call, Responder)>) {
        let request: pb::GetRequest = match call.decode() {
            Err(error) => return reply.send_error(&error),
            Ok(request) => request,
        };
        match get::find_region(&self.server, &request) {
            Err(error) => reply.send_error(&error),
            Ok(_) if !inline::is_cheap(request.get.filter.as_ref()) => {
                self.submit_to_handler(CallClass::Scan, call, reply);
            }
            Ok(region) => gets.push(region, request.get, (call, reply)),
        }
    }

    fn mutate(&self, call: Call, reply: Responder, writes: &mut Vec<Write>) {
        let request: pb::MutateRequest = match call.decode_by(bounded::decode) {
            Err(error) => return reply.send_error(&error),
            Ok(request) => request,
        };
        match self.server.region(&request.region) {
            Ok(region) if mutate::reads_first(&request) => {
                let class = class_of_write(&request, &region);
                let own = self.clone();
                self.executor.submit(class, call, reply, move |call, reply| {
                    let executor = Arc::clone(&own.executor);
                    let runs_on = inline::runs_on(class, Handlers::for_call(&executor, &call));
                    Write { call, request, region: Ok(region), reply }.make(&own, runs_on);
                });
            }
            // Without a region, making the write only answers with the error.
            region => writes.push(Write { call, request, region, reply: reply.detach() }),
        }
    }

    fn multi(&self, call: Call, reply: Responder, kept: &mut KeptCalls) {
        let request = match call.decode_by(MultiRequest::decode) {
            Err(error) => return reply.send_error(&error),
            Ok(request) => request,
        };
        let system = || is_system(&self.server, &request);
        let kind = multi::kind(&request);
        let runs_on = RunsOn::Connection(Handlers::for_call(&self.executor, &call));
        match kind {
            // The handler decodes it again, so that the waiting call does not pin the connection's
            // buffer.
            MultiKind::Atomic => {
                self.submit_to_handler(class(HandlerWork::ReadsFirst, system()), call, reply)
            }
            MultiKind::ReadsAndWrites => {
                self.submit_to_handler(class(HandlerWork::LongWrite, system()), call, reply);
            }
            MultiKind::Services => {
                self.submit_to_handler(class(HandlerWork::Services, system()), call, reply)
            }
            _ if !inline::is_short(&request) => {
                self.submit_to_handler(class(HandlerWork::Scan, system()), call, reply);
            }
            MultiKind::Writes => {
                kept.wakes.get_or_insert_with(WakeBatch::begin);
                self.begin_multi(&request, call, reply.detach(), runs_on);
            }
            MultiKind::Reads => {
                let (caller, slice) = (Caller::of(&self.server, &call), TimeSlice::new(SLICE));
                let read = multi::read(&self.server, &request, &caller, Wait::Never, slice);
                self.reply_or_read_again(call, reply, system, read, || multi::detail(&request));
            }
        }
    }

    fn begin_multi(&self, request: &MultiRequest, call: Call, reply: DetachedResponder, runs_on: RunsOn<'_>) {
        let block = match call.cell_reader() {
            Err(error) => return reply.send_error(&error),
            Ok(block) => block,
        };
        let state = match runs_on {
            // It only writes.
            RunsOn::Connection(_) => CallerState::default(),
            RunsOn::Computing(_) | RunsOn::Writing(_) | RunsOn::Blocking => call.caller_state(),
        };
        let reply = PendingReply::to_client(reply, call.take_charge());
        multi::multi(&self.server, request, block, (Caller::of(&self.server, &call), &state), reply, runs_on);
    }

    /// Runs a call on a handler thread of a class.
    fn submit_to_handler(&self, class: CallClass, call: Call, reply: Responder) {
        let own = self.clone();
        self.executor.submit(class, call, reply, move |call, reply| own.handle(class, call, reply));
    }

    /// Answers a read that was tried on its connection's thread, or hands it to a handler thread to
    /// be read again. Returns the times of the call if it was answered. `is_system` is called only
    /// if the call waits for a disk, `detail` only if it was slow.
    pub(crate) fn reply_or_read_again<M: Message>(
        &self,
        call: Call,
        reply: Responder,
        is_system: impl FnOnce() -> bool,
        outcome: TryResult<Reply<M>>,
        detail: impl FnOnce() -> RequestDetail,
    ) -> Option<CallTimes> {
        match outcome {
            Ok(outcome) => return Some(send_reply_detailed(reply, Ok(outcome), detail)),
            Err(TryError::Failed(error)) => return Some(reply.send_error_detailed(&error, detail)),
            Err(TryError::WouldWait) => self.read_on_handler(call, reply, is_system()),
            Err(TryError::TimeSliceOver) => self.read_on_handler_of(CallClass::Scan, call, reply),
        }
        None
    }

    /// Hands a read to a handler thread that may wait for a disk. `is_system`: it is on a system
    /// table.
    pub(crate) fn read_on_handler(&self, call: Call, reply: Responder, is_system: bool) {
        let class = if is_system { CallClass::Priority } else { CallClass::General };
        self.read_on_handler_of(class, call, reply);
    }

    fn read_on_handler_of(&self, class: CallClass, call: Call, reply: Responder) {
        self.server.counters.count(RequestKind::ReadRetriedOnHandler);
        self.submit_to_handler(class, call, reply);
    }

    /// Runs a call from its beginning, on a handler thread of a class.
    fn handle(&self, class: CallClass, call: Call, reply: DetachedResponder) {
        match call.method {
            "Get" => self.handle_get(&call, reply),
            "Mutate" => self.handle_mutate(class, call, reply),
            "Multi" => self.handle_multi(class, call, reply),
            "Scan" => {
                // Decoded from a copy if it is large: an open scanner keeps slices of its request,
                // and must not pin the connection's buffer.
                let request = call.decode_by(|param, budget| bounded::decode(detached_copy(param), budget));
                let scanned = request.and_then(|request: pb::ScanRequest| {
                    scan::scan_on(
                        Some(&call.connection),
                        &self.server,
                        &request,
                        &Caller::of(&self.server, &call),
                    )
                });
                match scanned {
                    Ok(Scanned { reply: None, .. }) => reply.silently_dropped(),
                    Ok(Scanned { reply: Some(page), region }) => {
                        let detail = || scan::detail(region.as_deref(), &page.message);
                        reply.send_detailed(&page.message, page.block, detail);
                    }
                    Err(error) => reply.send_error(&error),
                }
            }
            "ExecService" => self.handle_service(class, call, reply),
            "ExecRegionServerService" => send_reply(reply, exec_region_server_service(&call)),
            // Bulk loads spend their time on file I/O.
            "PrepareBulkLoad" => {
                let user = call.connection.user.clone();
                let prepare = |request| bulk_load::prepare(&self.server, &request, user.as_deref());
                reply.send_result(
                    call.decode().and_then(|request| cpu_slot::release_during(|| prepare(request))),
                );
            }
            "BulkLoadHFile" => {
                let load = |request| bulk_load::bulk_load(&self.server, &request);
                reply.send_result(
                    call.decode().and_then(|request| cpu_slot::release_during(|| load(request))),
                );
            }
            "CleanupBulkLoad" => {
                let clean_up = |request| bulk_load::clean_up(&self.server, &request);
                reply.send_result(
                    call.decode().and_then(|request| cpu_slot::release_during(|| clean_up(request))),
                );
            }
            method => reply.send_error(&not_supported(method)),
        }
    }

    fn handle_get(&self, call: &Call, reply: DetachedResponder) {
        let request: pb::GetRequest = match call.decode_by(bounded::decode) {
            Err(error) => return reply.send_error(&error),
            Ok(request) => request,
        };
        let region = match get::find_region(&self.server, &request) {
            Err(error) => return reply.send_error(&error),
            Ok(region) => region,
        };
        let row = request.get.row.clone();
        let caller = Caller::of(&self.server, call);
        let outcome = get::get_of(&self.server, &region, &request.get, (&caller, call.caller_state()));
        let times = send_reply_detailed(reply, outcome, || row_detail(&region, &row));
        region.operation_times().record_ns(Operation::Get, times.processing_ns());
        self.server.user_times().record_ns(caller.user, Operation::Get, times.processing_ns());
    }

    fn handle_mutate(&self, at: CallClass, call: Call, mut reply: DetachedResponder) {
        let request: pb::MutateRequest = match call.decode_by(bounded::decode) {
            Err(error) => return reply.send_error(&error),
            Ok(request) => request,
        };
        reply.leave_thread();
        let region = self.server.region(&request.region);
        let class = match &region {
            Ok(region) if mutate::reads_first(&request) => class_of_write(&request, region),
            _ => at,
        };
        let own = self.clone();
        let handlers = Handlers::for_call(&self.executor, &call);
        let write = Write { call, request, region, reply };
        match class == at {
            true => write.make(self, inline::runs_on(at, handlers)),
            false => handlers.continue_writing(class, move |runs_on| write.make(&own, runs_on)),
        }
    }

    fn handle_multi(&self, at: CallClass, call: Call, mut reply: DetachedResponder) {
        let request = match call.decode_by(MultiRequest::decode) {
            Err(error) => return reply.send_error(&error),
            Ok(request) => request,
        };
        // The time of decoding.
        reply.leave_thread();
        let kind = multi::kind(&request);
        let handlers = Handlers::for_call(&self.executor, &call);
        if kind == MultiKind::Reads {
            let server = Arc::clone(&self.server);
            let slice = TimeSlice::while_awaited(call.caller_state());
            let read = move || {
                let caller = Caller::of(&server, &call);
                let read = multi::read(&server, &request, &caller, Wait::Allowed, slice);
                send_reply_detailed(reply, read.map_err(TryError::into_failure), || multi::detail(&request));
            };
            return match at {
                CallClass::Decode => handlers.continue_on(CallClass::Scan, read),
                _ => read(),
            };
        }
        let class = match kind {
            MultiKind::Atomic => class(HandlerWork::ReadsFirst, is_system(&self.server, &request)),
            MultiKind::ReadsAndWrites => class(HandlerWork::LongWrite, is_system(&self.server, &request)),
            MultiKind::Services => class(HandlerWork::Services, is_system(&self.server, &request)),
            MultiKind::Reads | MultiKind::Writes => at,
        };
        let own = self.clone();
        match class == at {
            true => self.begin_multi(&request, call, reply, inline::runs_on(at, handlers)),
            false => handlers
                .continue_writing(class, move |runs_on| own.begin_multi(&request, call, reply, runs_on)),
        }
    }

    fn handle_service(&self, at: CallClass, call: Call, reply: DetachedResponder) {
        let request = match call.decode_by(ServiceRequest::decode) {
            Err(error) => return reply.send_error(&error),
            Ok(request) => request,
        };
        let region = match self.server.region(&request.region) {
            Err(error) => return reply.send_error(&error),
            Ok(region) => region,
        };
        let (server, aggregates) = (self.server.clone(), is_aggregation(&request.call.service_name));
        let handlers = Handlers::for_call(&self.executor, &call);
        let exec = move || {
            let reply = PendingReply::to_client(reply, call.take_charge());
            let nonce_owner = Caller::of(&server, &call).nonce_source(None).owner;
            let caller = ServiceCaller { nonce_owner, state: &call.caller_state() };
            endpoint::exec(&server, &region, request, caller, reply);
        };
        match at {
            CallClass::Scan if !aggregates => handlers.continue_on(class(HandlerWork::Services, false), exec),
            _ => exec(),
        }
    }

    fn scan(&self, call: Call, reply: Responder) {
        let priority = match call.decode() {
            Err(error) => return reply.send_error(&error),
            Ok(request) => scan::has_priority(&self.server, &request),
        };
        // The handler decodes it again, so that the waiting call does not pin the connection's
        // buffer.
        self.submit_to_handler(class(HandlerWork::Scan, priority), call, reply);
    }

    fn exec_service(&self, call: Call, reply: Responder) {
        let decoded = call.decode::<pb::CoprocessorServiceRequest>();
        let found = decoded.and_then(|request| Ok((self.server.region(&request.region)?, request.call)));
        let (region, service) = match found {
            Err(error) => return reply.send_error(&error),
            Ok(found) => found,
        };
        let work = if is_aggregation(&service.service_name) {
            HandlerWork::Aggregation
        } else {
            HandlerWork::Services
        };
        self.submit_to_handler(class(work, region.info().table().is_system()), call, reply);
    }
}

/// Returns the class of a write that reads first.
fn class_of_write(request: &pb::MutateRequest, region: &Region) -> CallClass {
    let work =
        if mutate::may_compute_for_long(request) { HandlerWork::LongWrite } else { HandlerWork::ReadsFirst };
    class(work, region.info().table().is_system())
}

/// Returns true if a request has a region, and all its regions are online and of system tables.
/// Other requests have no claim to the priority handlers: a client could add one region of a system
/// table to the work of a user.
///
/// Looks at the regions that are found. The name that a client sends says nothing of the table: a
/// region is found by the hash at the end of its name alone.
fn is_system(server: &RegionServer, request: &MultiRequest) -> bool {
    let mut regions = request.region_actions.iter().map(|action| server.region(&action.region));
    !request.region_actions.is_empty()
        && regions.all(|region| region.is_ok_and(|region| region.info().table().is_system()))
}

impl Service for ClientService {
    fn name(&self) -> &'static str {
        "ClientService"
    }

    fn methods(&self) -> &'static [&'static str] {
        METHODS
    }

    /// Runs a batch of one call.
    fn call(&self, call: Call, reply: Responder) {
        let mut runner = ClientRunner::new(self.clone());
        runner.begin(call, reply);
        runner.finish();
    }

    fn batch_runner(&self) -> Option<Box<dyn BatchRunner>> {
        Some(Box::new(ClientRunner::new(self.clone())))
    }
}

/// Returns the bytes without a connection's buffer behind them: large parameters are slices of it.
fn detached_copy(param: Bytes) -> Bytes {
    if param.len() <= evenkeel_rpc::COMPACT_BYTES_MAX { param } else { Bytes::copy_from_slice(&param) }
}

fn exec_region_server_service(call: &Call) -> Result<crate::Reply<pb::CoprocessorServiceResponse>> {
    let request: pb::CoprocessorServiceRequest = call.decode()?;
    Err(endpoint::unknown_service(&request.call.service_name, "on the RegionServer"))
}

/// Returns the error for a call that this server does not support.
pub fn not_supported(method: &str) -> HBaseError {
    HBaseError::do_not_retry(format!("java.lang.UnsupportedOperationException: {method}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_table_calls_have_their_own_queue() {
        for work in
            [HandlerWork::Scan, HandlerWork::Services, HandlerWork::ReadsFirst, HandlerWork::LongWrite]
        {
            assert_eq!(class(work, true), CallClass::Priority, "{work:?}");
            assert_ne!(class(work, false), CallClass::Priority, "{work:?}");
        }
        assert_eq!(class(HandlerWork::Aggregation, true), CallClass::Scan, "it may compute for long");
    }

    #[test]
    fn waiting_writes_do_not_share_the_read_queue() {
        assert_eq!(class(HandlerWork::Scan, false), CallClass::Scan);
        assert_eq!(class(HandlerWork::Aggregation, false), CallClass::Scan);
        assert_eq!(class(HandlerWork::ReadsFirst, false), CallClass::Write);
        assert_eq!(class(HandlerWork::LongWrite, false), CallClass::LongWrite);
        assert_eq!(class(HandlerWork::Services, false), CallClass::LongWrite);
        assert_eq!(class(HandlerWork::BulkLoad, false), CallClass::General);
    }
}
