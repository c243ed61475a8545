//! AdminService: the calls of operators and of the master to one RegionServer.
//!
//! [`METHODS`] is the table of all calls. Each group of calls has a file:
//!
//! | module | calls |
//! |---|---|
//! | `cache` | the block cache; hot blocks of regions that move between Evenkeel servers |
//! | `compactions` | compactions: requests, switches, queues |
//! | `logs` | logs of slow and large calls |
//! | `procedures` | calls by which a master opens and closes regions and runs procedures |
//! | `replay` | log entries of default replicas on other servers |
//! | `regions` | the regions online here, their files and load; flush, warm-up |
//! | `server` | the server itself: its name, settings, WAL, stop |
//!
//! Admin calls must never queue behind calls of users. Calls that wait for a disk run on the admin
//! handlers, so that they do not delay hbase:meta; the others run on the priority handlers. Calls
//! that are meaningless for a single server return what HBase returns if there is nothing to
//! report. Calls in [`UNSUPPORTED`] return a `DoNotRetryIOException`.

mod cache;
mod compactions;
pub(crate) mod logs;
mod procedures;
mod regions;
mod replay;
mod server;

use std::sync::{Arc, LazyLock};

use evenkeel_rpc::{Call, CallClass, DetachedResponder, Executor, Respond, Responder, Service};

use crate::RegionServer;
use crate::services::client;
use crate::services::method_table::{Method, MethodTable};

/// The call by which masters before 2.2 open regions, and the call by which clusters replicate to
/// each other.
static UNSUPPORTED: [Method<RegionServer>; 2] = [unsupported("OpenRegion"), unsupported("ReplicateWALEntry")];

/// All supported calls.
static METHODS: LazyLock<MethodTable<RegionServer>> = LazyLock::new(|| {
    MethodTable::new(&[
        cache::METHODS,
        compactions::METHODS,
        &compactions::COMPACT,
        logs::METHODS,
        procedures::METHODS,
        regions::METHODS,
        &replay::METHODS,
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
    /// Creates the service of a server.
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
    fn calls_that_wait_for_disk_run_on_admin_handlers() {
        let rows = METHODS.names().iter().map(|name| METHODS.find(name).expect("a row"));
        let (waits, rest): (Vec<_>, Vec<_>) = rows.partition(|row| row.class == CallClass::Admin);
        let names: Vec<_> = waits.iter().map(|row| row.name).collect();
        let expected = [
            "ClearRegionBlockCache",
            "FlushRegion",
            "GetCachedFilesList",
            "GetRegionInfo",
            "Replay",
            "RollWALWriter",
            "UpdateConfiguration",
        ];
        assert_eq!(names, expected);
        assert!(rest.iter().all(|row| row.class == CallClass::Priority));
        assert_eq!(METHODS.names().len(), 27, "all calls of Admin.proto, and EvenkeelHotBlocks");
    }
}
