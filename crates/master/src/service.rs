//! MasterService: the RPCs of the shell and of `Admin`, each translated to one method of
//! [`Master`].
//!
//! [`METHODS`] is the table of all RPCs that are implemented. Each row has the name of the RPC, the
//! handler pool that runs it and the function that handles it. A group of RPCs has a file:
//!
//! | module | RPCs |
//! |---|---|
//! | `cluster` | the cluster and its servers: status, dead servers, stop |
//! | `maintenance` | switches of background work, the catalog janitor, cleaners, the normalizer |
//! | `namespaces` | namespaces |
//! | `hbck` | HbckService: repairs by an operator |
//! | `procedures` | procedures and their results |
//! | `quotas` | quotas |
//! | `regions` | split, merge, truncate, assign; last major compactions |
//! | `replication` | replication peers, of which there are none |
//! | `schema` | create, alter and delete tables |
//! | `snapshots` | snapshots |
//! | `tables` | lists of tables, their descriptors and states |
//!
//! RPCs run on the priority handlers, since many read hbase:meta. RPCs that wait for a table's lock
//! or for a disk run on the admin handlers, so that requests to hbase:meta do not wait behind them.
//! RPCs that have no meaning on a standalone server get the response that HBase gives for an empty
//! list (no peers, no decommissioned servers). RPCs that it does not implement get a
//! `DoNotRetryIOException`, so that a shell prints one line and does not retry for minutes.

mod cluster;
mod hbck;
mod maintenance;
mod namespaces;
mod procedures;
mod quotas;
mod regions;
mod replication;
mod schema;
mod snapshots;
pub(crate) mod tables;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use evenkeel_common::{ErrorKind, HBaseError, Result, TableName};
use evenkeel_protocol::pb;
use evenkeel_regionserver::services::method_table::{Method, MethodTable};
use evenkeel_regionserver::{convert, methods};
use evenkeel_rpc::{Call, Executor, Respond, Responder, Service};

use crate::Master;

/// Every RPC that is implemented.
static METHODS: LazyLock<MethodTable<Master>> = LazyLock::new(|| {
    MethodTable::new(&[
        cluster::METHODS,
        maintenance::METHODS,
        namespaces::METHODS,
        procedures::METHODS,
        quotas::METHODS,
        regions::METHODS,
        replication::METHODS,
        schema::METHODS,
        snapshots::METHODS,
        tables::METHODS,
    ])
});

/// Every RPC of HbckService.
static HBCK_METHODS: LazyLock<MethodTable<Master>> = LazyLock::new(|| MethodTable::new(&[hbck::METHODS]));

/// Implements MasterService, or HbckService, over a [`Master`].
pub struct MasterService {
    name: &'static str,
    methods: &'static MethodTable<Master>,
    master: Arc<Master>,
    executor: Arc<Executor>,
}

impl MasterService {
    /// Creates MasterService and HbckService, which run on the priority and admin handlers of
    /// `executor`.
    pub fn all(master: &Arc<Master>, executor: &Arc<Executor>) -> [Arc<dyn Service>; 2] {
        let tables = [("MasterService", &*METHODS), ("HbckService", &*HBCK_METHODS)];
        tables.map(|(name, methods)| {
            let (master, executor) = (Arc::clone(master), Arc::clone(executor));
            Arc::new(Self { name, methods, master, executor }) as Arc<dyn Service>
        })
    }
}

impl Service for MasterService {
    fn name(&self) -> &'static str {
        self.name
    }

    fn methods(&self) -> &'static [&'static str] {
        self.methods.names()
    }

    fn call(&self, call: Call, reply: Responder) {
        let Some(method) = self.methods.find(call.method) else {
            return reply.send_error(&HBaseError::do_not_retry(format!("{} is not supported", call.method)));
        };
        let (master, answer) = (Arc::clone(&self.master), method.answer);
        self.executor.submit(method.class, call, reply, move |call, reply| answer(&master, &call, reply));
    }
}

fn illegal(error: HBaseError) -> HBaseError {
    HBaseError::do_not_retry(error.message())
}

fn name_of(name: &pb::TableName) -> Result<TableName> {
    TableName::try_from(name).map_err(illegal)
}

fn encoded(specifier: &pb::RegionSpecifier) -> Result<String> {
    let unknown = |_| HBaseError::new(ErrorKind::UnknownRegion, specifier.value.escape_ascii().to_string());
    convert::region::encoded_name(specifier).map(Cow::into_owned).map_err(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_in_one_group_and_found_by_its_name() {
        assert!(!METHODS.names().is_empty());
        for name in METHODS.names() {
            assert_eq!(METHODS.find(name).map(|method| method.name), Some(*name));
        }
    }
}
