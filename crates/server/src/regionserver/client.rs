//! ClientService, and the choice of threads.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{HBaseError, Result, turns};
use evenkeel_protocol::pb;
use evenkeel_rpc::{Call, CallClass, DetachedResponder, Executor, Respond, Responder, Service};
use prost::{DecodeError, Message};

use super::caller::{Caller, Reply, answer};
use super::turn::{self, Write};
use super::{RegionServer, bulk_load, endpoint, get, load, multi, mutate, scan};
use crate::convert::multi::MultiRequest;

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

/// Where a call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On the connection's thread; single writes at the end of its turn. It waits for nothing: a read that would have to wait
    /// for a disk is done anew on a handler thread.
    Inline,
    /// On a handler thread.
    Handler(CallClass),
}

/// Mutate and Multi with writes that read first, which wait until the row's earlier writes are durable, and Multi with both
/// reads and writes, which could not be begun anew when a read has to wait.
const READS_FIRST: &str = "read before write";

/// The three calls of a bulk load: they copy, rename and delete files.
const BULK_LOAD: &str = "bulk load";

/// The one place that decides where a call runs. `system`: it is for a table of HBase's own.
fn place(method: &str, system: bool) -> Place {
    match method {
        "Scan" | "ExecService" | READS_FIRST if system => Place::Handler(CallClass::Priority),
        "Scan" => Place::Handler(CallClass::Scan),
        "ExecService" | READS_FIRST | BULK_LOAD => Place::Handler(CallClass::General),
        _ => Place::Inline,
    }
}

/// Reads and writes of clients.
pub struct ClientService {
    server: Arc<RegionServer>,
    executor: Arc<Executor>,
}

impl ClientService {
    /// The service of a server.
    pub fn new(server: Arc<RegionServer>, executor: Arc<Executor>) -> Self {
        Self { server, executor }
    }

    /// The server.
    pub(super) fn server(&self) -> &Arc<RegionServer> {
        &self.server
    }

    fn get(&self, call: Call, reply: Responder) {
        let request: pb::GetRequest = match call.decode() {
            Err(error) => return reply.send_error(&error),
            Ok(request) => request,
        };
        match get::find_region(&self.server, &request) {
            Err(error) => reply.send_error(&error),
            Ok(region) => turn::put_off_get(self, region, request.get, call, reply),
        }
    }

    /// Does a Get that has to wait for a disk.
    pub(super) fn get_aside(&self, system: bool, call: Call, reply: Responder) {
        let read = |server: &Arc<RegionServer>, request: pb::GetRequest, caller: Caller| {
            get::get(server, request, &caller)
        };
        self.read_aside(system, call, reply, pb::GetRequest::decode, read);
    }

    /// Does a read that has to wait for a disk on a handler thread.
    fn read_aside<M, R: Message>(
        &self,
        system: bool,
        call: Call,
        reply: Responder,
        decode: fn(Bytes) -> Result<M, DecodeError>,
        read: impl FnOnce(&Arc<RegionServer>, M, Caller) -> Result<Reply<R>> + Send + 'static,
    ) where
        M: 'static,
    {
        load::count(&self.server.counters.reads_aside);
        let server = self.server.clone();
        let class = if system { CallClass::Priority } else { CallClass::General };
        // Decoded again, so that a call that waits does not pin the connection's buffer.
        self.executor.submit(class, call, reply, move |call, reply| {
            let request = call.decode_by(decode);
            answer(reply, request.and_then(|request| read(&server, request, Caller::of(&call))));
        });
    }

    fn mutate(&self, call: Call, reply: Responder) {
        let request: pb::MutateRequest = match call.decode() {
            Err(error) => return reply.send_error(&error),
            Ok(request) => request,
        };
        let region = self.server.region(&request.region);
        let method = if mutate::reads_first(&request) { READS_FIRST } else { "Mutate" };
        let server = self.server.clone();
        match place(method, is_system_region(&request.region)) {
            Place::Handler(class) => self.executor.submit(class, call, reply, move |call, reply| {
                Write { call, request, region, reply }.make(&server);
            }),
            Place::Inline => turn::put_off(&server, Write { call, request, region, reply: reply.detach() }),
        }
    }

    fn multi(&self, call: Call, reply: Responder) {
        let request = match call.decode_by(MultiRequest::decode) {
            Err(error) => return reply.send_error(&error),
            Ok(request) => request,
        };
        let system = request.region_actions.iter().any(|action| is_system_region(&action.region));
        let method = match multi::kind(&request) {
            multi::Kind::Reads => {
                return match turns::without_waiting(|| multi::read(&self.server, &request, Caller::of(&call)))
                {
                    Some(outcome) => answer(reply, outcome),
                    None => {
                        let read = |server: &Arc<RegionServer>, request, caller| {
                            multi::read(server, &request, caller)
                        };
                        self.read_aside(system, call, reply, MultiRequest::decode, read)
                    }
                };
            }
            multi::Kind::Writes => "Multi",
            multi::Kind::ReadsFirst => READS_FIRST,
            multi::Kind::Services => "ExecService",
        };
        let server = self.server.clone();
        self.run(method, system, call, reply, move |call, reply| {
            let done = Box::new(|outcome| answer(reply, outcome));
            multi::multi(&server, &request, call.cell_reader(), Caller::of(&call), done);
        });
    }

    fn scan(&self, call: Call, reply: Responder) {
        let system = match call.decode() {
            Err(error) => return reply.send_error(&error),
            Ok(request) => scan::is_system(&self.server, &request),
        };
        let server = self.server.clone();
        self.run("Scan", system, call, reply, move |call, reply| {
            // Decoded again, so that a call that waits does not pin the connection's buffer.
            match call.decode().and_then(|request| scan::scan(&server, &request, &Caller::of(&call))) {
                Ok(None) => reply.silently_dropped(),
                Ok(Some(page)) => reply.send_cells(&page.message, page.block),
                Err(error) => reply.send_error(&error),
            }
        });
    }

    fn exec_service(&self, call: Call, reply: Responder) {
        let request: pb::CoprocessorServiceRequest = match call.decode() {
            Err(error) => return reply.send_error(&error),
            Ok(request) => request,
        };
        let region = match self.server.region(&request.region) {
            Err(error) => return reply.send_error(&error),
            Ok(region) => region,
        };
        let server = self.server.clone();
        let system = region.info().table().is_system();
        self.run("ExecService", system, call, reply, move |_, reply| {
            let done = Box::new(|outcome| answer(reply, outcome));
            endpoint::exec(&server, &region, request, done);
        });
    }

    fn bulk_load(&self, call: Call, reply: Responder) {
        let server = self.server.clone();
        self.run(BULK_LOAD, false, call, reply, move |call, reply| match call.method {
            "PrepareBulkLoad" => {
                let user = call.connection.user.clone();
                let prepare = |request| bulk_load::prepare(&server, &request, user.as_deref());
                reply.send_result(call.decode().and_then(prepare));
            }
            "BulkLoadHFile" => {
                reply.send_result(call.decode().and_then(|request| bulk_load::bulk_load(&server, &request)));
            }
            _ => reply.send_result(call.decode().and_then(|request| bulk_load::clean_up(&server, &request))),
        });
    }

    /// Runs a call that [`place`] sends to a handler thread.
    fn run(
        &self,
        method: &str,
        system: bool,
        call: Call,
        reply: Responder,
        job: impl FnOnce(Call, DetachedResponder) + Send + 'static,
    ) {
        match place(method, system) {
            Place::Handler(class) => self.executor.submit(class, call, reply, job),
            Place::Inline => job(call, reply.detach()),
        }
    }
}

impl Service for ClientService {
    fn name(&self) -> &'static str {
        "ClientService"
    }

    fn methods(&self) -> &'static [&'static str] {
        METHODS
    }

    fn call(&self, call: Call, reply: Responder) {
        match call.method {
            "Get" => self.get(call, reply),
            "Mutate" => self.mutate(call, reply),
            "Multi" => self.multi(call, reply),
            "Scan" => self.scan(call, reply),
            "ExecService" => self.exec_service(call, reply),
            "ExecRegionServerService" => answer(reply, exec_region_server_service(&call)),
            "PrepareBulkLoad" | "BulkLoadHFile" | "CleanupBulkLoad" => self.bulk_load(call, reply),
            method => reply.send_error(&not_supported(method)),
        }
    }

    /// Writes of one turn are looked up together, and wake the log together.
    fn turn(&self, calls: &mut dyn FnMut()) {
        evenkeel_wal::together(|| turn::turn(self, calls));
    }
}

/// Whether a full region name is of one of HBase's own tables.
fn is_system_region(specifier: &pb::RegionSpecifier) -> bool {
    specifier.value.starts_with(b"hbase:")
}

fn exec_region_server_service(call: &Call) -> Result<super::Reply<pb::CoprocessorServiceResponse>> {
    let request: pb::CoprocessorServiceRequest = call.decode()?;
    Err(endpoint::unknown_service(&request.call.service_name, "on the RegionServer"))
}

/// The error of a call that this server does not know how to do.
pub fn not_supported(method: &str) -> HBaseError {
    HBaseError::do_not_retry(format!("java.lang.UnsupportedOperationException: {method}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_load_cannot_stand_before_system_tables() {
        assert_eq!(place("Scan", true), Place::Handler(CallClass::Priority));
        assert_eq!(place("Scan", false), Place::Handler(CallClass::Scan));
        for method in ["Get", "Mutate", "Multi"] {
            assert_eq!((place(method, true), place(method, false)), (Place::Inline, Place::Inline));
        }
    }
}
