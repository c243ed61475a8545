//! AdminService: what operators, and the master, ask of one RegionServer.
//!
//! [`METHODS`] is the table of all calls. A group of calls has a file:
//!
//! | module | calls |
//! |---|---|
//! | `cache` | the block cache |
//! | `compactions` | compactions: asked for, switched, forgotten |
//! | `logs` | logs of slow and large calls |
//! | `procedures` | what a master has done here: regions opened and closed, procedures run |
//! | `regions` | which regions are here, their files and load; flush, warm-up |
//! | `server` | the server itself: its name, settings, WAL, stop |
//!
//! Nothing here may wait behind users. What waits for a disk runs on the admin handlers, so that
//! hbase:meta does not wait behind it; the rest on the priority handlers. Calls for which one
//! server alone has no use are answered as HBase answers when there is nothing. [`UNSUPPORTED`]
//! ones get a `DoNotRetryIOException`.

mod cache;
mod compactions;
mod logs;
mod procedures;
mod regions;
mod server;

use std::sync::{Arc, LazyLock};

use evenkeel_rpc::{Call, CallClass, DetachedResponder, Executor, Respond, Responder, Service};

use crate::RegionServer;
use crate::services::client;
use crate::services::method_table::{Method, MethodTable};

/// The call by which masters before 2.2 open regions, and those by which servers replicate to each
/// other.
static UNSUPPORTED: [Method<RegionServer>; 3] =
    [unsupported("OpenRegion"), unsupported("Replay"), unsupported("ReplicateWALEntry")];

/// Every call that is answered.
static METHODS: LazyLock<MethodTable<RegionServer>> = LazyLock::new(|| {
    MethodTable::new(&[
        cache::METHODS,
        compactions::METHODS,
        logs::METHODS,
        procedures::METHODS,
        regions::METHODS,
        server::METHODS,
        &server::STOP,
        &UNSUPPORTED,
    ])
});

const fn unsupported(name: &'static str) -> Method<RegionServer> {
    let answer = |_: &Arc<RegionServer>, call: &Call, reply: DetachedResponder| {
        reply.send_error(&client::not_supported(call.method));
    };
    Method { name, class: CallClass::Priority, answer }
}

/// See the module's documentation.
pub struct AdminService {
    server: Arc<RegionServer>,
    executor: Arc<Executor>,
}

impl AdminService {
    /// The service of a server.
    pub fn new(server: Arc<RegionServer>, executor: Arc<Executor>) -> Self {
        Self { server, executor }
    }
}

impl Service for AdminService {
    fn name(&self) -> &'static str {
        "AdminService"
    }

    fn methods(&self) -> &'static [&'static str] {
        METHODS.names()
    }

    fn call(&self, call: Call, reply: Responder) {
        let Some(method) = METHODS.find(call.method) else {
            return reply.send_error(&client::not_supported(call.method));
        };
        let (server, answer) = (Arc::clone(&self.server), method.answer);
        self.executor.submit(method.class, call, reply, move |call, reply| match server.check_open() {
            Err(error) => reply.send_error(&error),
            Ok(()) => answer(&server, &call, reply),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_disk_runs_on_the_admin_handlers() {
        let rows = METHODS.names().iter().map(|name| METHODS.find(name).expect("a row"));
        let (waits, rest): (Vec<_>, Vec<_>) = rows.partition(|row| row.class == CallClass::Admin);
        let names: Vec<_> = waits.iter().map(|row| row.name).collect();
        let expected = [
            "ClearRegionBlockCache",
            "FlushRegion",
            "GetCachedFilesList",
            "GetRegionInfo",
            "RollWALWriter",
            "UpdateConfiguration",
        ];
        assert_eq!(names, expected);
        assert!(rest.iter().all(|row| row.class == CallClass::Priority));
        assert_eq!(METHODS.names().len(), 26, "all calls of Admin.proto");
    }
}
