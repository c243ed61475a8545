//! [`Admin`]: what the master does with tables.
//!
//! Changes of tables are procedures: the master answers with an id, and these calls wait until it is finished. A nonce
//! that stays the same over retries keeps the master from starting one twice.

use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::{RegionInfo, ServerName, TableDescriptor, TableName};
use evenkeel_protocol::pb;
use prost::Message;
use tokio::time::{Instant, sleep};

use crate::connection::Connection;
use crate::error::{Error, RemoteException, Result};
use crate::location::{MetaRow, region_specifier};
use crate::retry::{Retry, backoff};
use crate::rpc::{Call, Service};

/// The longest pause between two looks at a procedure.
const POLL_PAUSE_MAX: Duration = Duration::from_secs(2);
/// The first pause between two looks at a procedure.
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// The state of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// Its regions are open, or about to be.
    Enabled,
    /// Its regions are closed.
    Disabled,
    /// On the way to be disabled.
    Disabling,
    /// On the way to be enabled.
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

/// A region as hbase:meta has it.
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

    /// Creates a table with regions that start at the split keys, and waits until they are open.
    ///
    /// # Errors
    /// The master's exception, or the last failure once all retries are spent; so for all operations.
    pub async fn create_table(&self, table: &TableDescriptor, split_keys: &[Bytes]) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let table_schema = table.into();
        let request =
            pb::CreateTableRequest { table_schema, split_keys: split_keys.to_vec(), nonce_group, nonce };
        let answer: pb::CreateTableResponse = self.call("CreateTable", &request).await?;
        self.finish(answer.proc_id).await?;
        self.wait_open(table.name()).await
    }

    /// Enables a table and waits until its regions are open.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn enable_table(&self, table: &TableName) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let request = pb::EnableTableRequest { table_name: table.into(), nonce_group, nonce };
        let answer: pb::EnableTableResponse = self.call("EnableTable", &request).await?;
        self.finish(answer.proc_id).await?;
        self.wait_open(table).await
    }

    /// Disables a table.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn disable_table(&self, table: &TableName) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let request = pb::DisableTableRequest { table_name: table.into(), nonce_group, nonce };
        let answer: pb::DisableTableResponse = self.call("DisableTable", &request).await?;
        self.connection.locations().remove_table(table);
        self.finish(answer.proc_id).await
    }

    /// Deletes a disabled table.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn delete_table(&self, table: &TableName) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let request = pb::DeleteTableRequest { table_name: table.into(), nonce_group, nonce };
        let answer: pb::DeleteTableResponse = self.call("DeleteTable", &request).await?;
        self.connection.locations().remove_table(table);
        self.finish(answer.proc_id).await
    }

    /// Empties a disabled table and enables it.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn truncate_table(&self, table: &TableName, preserve_splits: bool) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let preserve_splits = Some(preserve_splits);
        let request =
            pb::TruncateTableRequest { table_name: table.into(), preserve_splits, nonce_group, nonce };
        let answer: pb::TruncateTableResponse = self.call("truncateTable", &request).await?;
        self.connection.locations().remove_table(table);
        self.finish(answer.proc_id).await?;
        self.wait_open(table).await
    }

    /// Gives a table another descriptor.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn modify_table(&self, table: &TableDescriptor) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let (table_name, table_schema) = (table.name().into(), table.into());
        let request = pb::ModifyTableRequest {
            table_name,
            table_schema,
            nonce_group,
            nonce,
            reopen_regions: Some(true),
        };
        let answer: pb::ModifyTableResponse = self.call("ModifyTable", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Writes a table's MemStores to files.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn flush_table(&self, table: &TableName) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let request =
            pb::FlushTableRequest { table_name: table.into(), column_family: Vec::new(), nonce_group, nonce };
        let answer: pb::FlushTableResponse = self.call("FlushTable", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// Asks the region's server to compact it, and does not wait. A major compaction rewrites all its files into one.
    ///
    /// # Errors
    /// As [`Admin::create_table`]; the call is made once.
    pub async fn compact_region(&self, region: &RegionInfo, major: bool) -> Result<()> {
        let at = self.connection.locate(region.table(), region.start_key(), false).await?;
        let region = region_specifier(region);
        let request = pb::CompactRegionRequest { region, major: Some(major), family: None };
        let timeout = self.connection.config().rpc_timeout;
        let call = Call {
            service: Service::Admin,
            method: "CompactRegion",
            param: &request,
            cells: &[],
            timeout,
            priority: 0,
        };
        let _: (pb::CompactRegionResponse, _) = self.connection.call(&at.address(), call).await?;
        Ok(())
    }

    /// Splits a region at a row; the middle of its largest file when there is none.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn split_region(&self, region: &RegionInfo, row: Option<Bytes>) -> Result<()> {
        let (nonce_group, nonce) = self.nonce();
        let request =
            pb::SplitTableRegionRequest { region_info: region.into(), split_row: row, nonce_group, nonce };
        let answer: pb::SplitTableRegionResponse = self.call("SplitRegion", &request).await?;
        self.finish(answer.proc_id).await
    }

    /// The names of all user tables.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn list_tables(&self) -> Result<Vec<TableName>> {
        let request = pb::GetTableNamesRequest { include_sys_tables: Some(false), ..Default::default() };
        let answer: pb::GetTableNamesResponse = self.call("GetTableNames", &request).await?;
        answer.table_names.iter().map(|name| Ok(TableName::try_from(name)?)).collect()
    }

    /// A table's descriptor.
    ///
    /// # Errors
    /// [`Error::TableNotFound`], or as [`Admin::create_table`].
    pub async fn describe(&self, table: &TableName) -> Result<TableDescriptor> {
        let request =
            pb::GetTableDescriptorsRequest { table_names: vec![table.into()], ..Default::default() };
        let answer: pb::GetTableDescriptorsResponse = self.call("GetTableDescriptors", &request).await?;
        let schema = answer.table_schema.first().ok_or_else(|| Error::TableNotFound(table.clone()))?;
        Ok(schema.try_into()?)
    }

    /// A table's state; `None` when there is no such table. Answered by hbase:meta.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn table_state(&self, table: &TableName) -> Result<Option<TableState>> {
        let mut retry = Retry::new(self.connection.config());
        loop {
            match self.connection.table_state_once(table).await {
                Ok(state) => return Ok(state),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    /// A table's regions in the order of their rows, parents of splits left out. Answered by hbase:meta.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn regions(&self, table: &TableName) -> Result<Vec<RegionState>> {
        let state = |row: MetaRow| {
            let state = row.state.unwrap_or_default();
            RegionState { region: row.region, server: row.server, state }
        };
        Ok(self.connection.meta_regions(table).await?.into_iter().map(state).collect())
    }

    /// The cluster's state: servers with their load, regions in transition, the master.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn cluster_status(&self) -> Result<pb::ClusterStatus> {
        let request = pb::GetClusterStatusRequest { options: Vec::new() };
        let answer: pb::GetClusterStatusResponse = self.call("GetClusterStatus", &request).await?;
        Ok(answer.cluster_status)
    }

    /// Waits until a procedure is finished; one that the master no longer knows is.
    ///
    /// # Errors
    /// The procedure's exception; [`Error::Timeout`] after the operation timeout.
    pub async fn wait_for_procedure(&self, proc_id: u64) -> Result<()> {
        use pb::get_procedure_result_response::State;
        let request = pb::GetProcedureResultRequest { proc_id };
        let mut poll = Poll::new(&self.connection);
        loop {
            let answer: pb::GetProcedureResultResponse = self.call("getProcedureResult", &request).await?;
            match (&answer.exception, answer.state()) {
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
        let mut poll = Poll::new(&self.connection);
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

    async fn call<M: Message, R: Message + Default>(&self, method: &'static str, param: &M) -> Result<R> {
        let mut retry = Retry::new(self.connection.config());
        loop {
            let timeout = retry.call_timeout(self.connection.config().rpc_timeout);
            match self.connection.call_master(method, param, timeout).await {
                Ok(response) => return Ok(response),
                Err(error) => retry.after(error).await?,
            }
        }
    }
}

/// Pauses between looks at something that takes its time.
struct Poll {
    deadline: Instant,
    looks: u32,
}

impl Poll {
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
