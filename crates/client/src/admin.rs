//! [`Admin`]: administration, done by the master and the RegionServers.
//!
//! | module | methods of [`Admin`] |
//! |---|---|
//! | `tables` | create, change, enable, disable, truncate, delete, describe, list |
//! | `namespaces` | create, change, delete, describe, list |
//! | `regions` | find, split, merge, move, assign; flush and compaction |
//! | `servers` | regions, WAL, block cache, configuration of one server |
//! | `quotas` | limits on requests |
//! | `switches` | balancer, normalizer, catalog janitor, cleaner, split and merge |
//! | `snapshots` | take, list, restore, clone, delete |
//! | `cluster` | [`ClusterMetrics`]: servers and regions with their load |
//!
//! Most changes are procedures: the master answers with an id, and the method waits until the
//! procedure has finished. A retry carries the same nonce, so that the master does not start a
//! procedure twice. [`Admin::call_master`] and [`Admin::call_server`] send any other message of
//! HBase's services.
//!
//! ```no_run
//! # async fn example(connection: evenkeel_client::Connection) -> evenkeel_client::Result<()> {
//! use evenkeel_client::{ColumnFamilyDescriptor, Compression, Durability, TableDescriptor};
//! let admin = connection.admin();
//! let family = ColumnFamilyDescriptor::new(b"f")?.with_compression(Compression::Zstd);
//! let table = TableDescriptor::new("t".parse()?).with_family(family);
//! let table = table.with_durability(Durability::AsyncWal);
//! admin.create_table(&table, &["g".into(), "p".into()]).await?;
//! admin.flush_table(table.name()).await?;
//! for region in admin.regions(table.name()).await? {
//!     println!("{} at {:?} is {}", region.region.name_text(), region.server, region.state);
//! }
//! # Ok(()) }
//! ```

mod cluster;
mod namespaces;
mod quotas;
mod regions;
mod servers;
mod snapshots;
mod switches;
mod tables;

pub use cluster::{ClusterMetrics, ClusterOption, RegionMetrics, ServerMetrics, TableRegionCounts};
pub use namespaces::NamespaceDescriptor;
pub use quotas::{Quota, QuotaFilter, QuotaSettings, SpaceQuotaStates};
pub use regions::CompactionState;
pub use servers::{CacheEviction, CallLog};
pub use snapshots::{SnapshotDescription, SnapshotType};
pub use switches::Balance;

use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::{RegionInfo, ServerName, TableName};
use evenkeel_protocol::pb;
use prost::Message;
use tokio::time::{Instant, sleep};

use crate::connection::Connection;
use crate::error::{Error, RemoteException, Result};
use crate::location::MetaRow;
use crate::retry::{Retry, backoff};
use crate::rpc::{BoxFuture, Call, Param, Service};

/// The longest pause between two polls of a procedure.
const POLL_PAUSE_MAX: Duration = Duration::from_secs(2);
/// The first pause between two polls of a procedure.
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// The state of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// Its regions are open, or about to be.
    Enabled,
    /// Its regions are closed.
    Disabled,
    /// Its regions are being closed.
    Disabling,
    /// Its regions are being opened.
    Enabling,
}

impl TableState {
    pub(crate) fn from_number(number: i32) -> Result<Self> {
        use pb::table_state::State;
        match State::try_from(number) {
            Ok(State::Enabled) => Ok(Self::Enabled),
            Ok(State::Disabled) => Ok(Self::Disabled),
            Ok(State::Disabling) => Ok(Self::Disabling),
            Ok(State::Enabling) => Ok(Self::Enabling),
            Err(_) => Err(Error::Protocol(format!("table state {number}"))),
        }
    }
}

/// A region as hbase:meta describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionState {
    /// The region.
    pub region: RegionInfo,
    /// The server that last opened it.
    pub server: Option<ServerName>,
    /// HBase's name of its state: `OPEN`, `CLOSED`, ...
    pub state: String,
}

/// The master's operations. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admin {
    connection: Connection,
}

impl Admin {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// Waits until a procedure has finished. A procedure of which the master has no record counts
    /// as finished.
    ///
    /// # Errors
    /// The procedure's exception; [`Error::Timeout`] after the operation timeout.
    pub async fn wait_for_procedure(&self, proc_id: u64) -> Result<()> {
        use pb::get_procedure_result_response::State;
        let request = pb::GetProcedureResultRequest { proc_id };
        let mut poll = ProcedurePoll::new(&self.connection);
        loop {
            let response: pb::GetProcedureResultResponse = self.call("getProcedureResult", &request).await?;
            match (&response.exception, response.state()) {
                (Some(exception), _) => return Err(foreign(exception)),
                (None, State::Running) => poll.pause(|| format!("procedure {proc_id}")).await?,
                (None, State::Finished | State::NotFound) => return Ok(()),
            }
        }
    }

    async fn finish(&self, proc_id: Option<u64>) -> Result<()> {
        match proc_id {
            Some(id) => self.wait_for_procedure(id).await,
            None => Ok(()),
        }
    }

    /// Waits until hbase:meta has a server for every region of a table.
    async fn wait_open(&self, table: &TableName) -> Result<()> {
        let mut poll = ProcedurePoll::new(&self.connection);
        loop {
            let regions = self.connection.meta_regions(table).await?;
            let open = |r: &MetaRow| r.server.is_some() && r.state.as_deref().is_none_or(|s| s == "OPEN");
            if !regions.is_empty() && regions.iter().all(open) {
                return Ok(());
            }
            poll.pause(|| format!("regions of {table} to open")).await?;
        }
    }

    fn nonce(&self) -> (Option<u64>, Option<u64>) {
        (Some(self.connection.nonce_group()), Some(self.connection.nonce()))
    }

    /// Calls a method of the master's `MasterService`, with retries.
    ///
    /// # Errors
    /// The master's exception, or [`Error::RetriesExhausted`].
    pub async fn call_master<M: Message, R: Message + Default>(
        &self,
        method: &'static str,
        param: &M,
    ) -> Result<R> {
        self.call(method, param).await
    }

    /// Calls a method of a server's `AdminService`, once. The master serves it too.
    ///
    /// # Errors
    /// The server's exception; [`Error::Connection`] or [`Error::Timeout`] if the server cannot be
    /// reached.
    pub async fn call_server<M: Message, R: Message + Default>(
        &self,
        server: &ServerName,
        method: &'static str,
        param: &M,
    ) -> Result<R> {
        Ok(R::decode(self.ask_server(server, method, param).await?)?)
    }

    async fn call<M: Message, R: Message + Default>(&self, method: &'static str, param: &M) -> Result<R> {
        Ok(R::decode(self.ask_master(method, param).await?)?)
    }

    /// As [`Admin::call_server`], undecoded.
    fn ask_server<'a>(
        &'a self,
        server: &'a ServerName,
        method: &'static str,
        param: &'a dyn Param,
    ) -> BoxFuture<'a, Bytes> {
        let timeout = self.connection.config().rpc_timeout;
        let call = Call { service: Service::Admin, method, param, cells: &[], timeout, priority: 0 };
        Box::pin(async move { Ok(self.connection.call(&server.host_port(), call).await?.message) })
    }

    /// As [`Admin::call_master`], undecoded.
    fn ask_master<'a>(&'a self, method: &'static str, param: &'a dyn Param) -> BoxFuture<'a, Bytes> {
        Box::pin(async move {
            let mut retry = Retry::new(self.connection.config());
            loop {
                let timeout = retry.call_timeout(self.connection.config().rpc_timeout);
                match self.connection.call_master(method, param, timeout).await {
                    Ok(response) => return Ok(response),
                    Err(error) => retry.after(error).await?,
                }
            }
        })
    }
}

/// The growing pauses between polls of a long operation.
struct ProcedurePoll {
    deadline: Instant,
    looks: u32,
}

impl ProcedurePoll {
    fn new(connection: &Connection) -> Self {
        Self { deadline: Instant::now() + connection.config().operation_timeout, looks: 0 }
    }

    async fn pause(&mut self, what: impl Fn() -> String) -> Result<()> {
        if Instant::now() >= self.deadline {
            return Err(Error::Timeout(what()));
        }
        sleep(backoff(POLL_PAUSE, self.looks).min(POLL_PAUSE_MAX)).await;
        self.looks += 1;
        Ok(())
    }
}

/// The exception that ended a procedure.
fn foreign(exception: &pb::ForeignExceptionMessage) -> Error {
    let generic = exception.generic_exception.clone().unwrap_or_default();
    Error::Remote(Box::new(RemoteException::new(generic.class_name(), generic.message())))
}
