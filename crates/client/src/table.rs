//! [`Table`]: operations on the rows of one table.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{ErrorKind, TableName};
use evenkeel_protocol::pb;
use prost::Message;

use crate::admin::TableState;
use crate::cells::CellBlock;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::location::{CachedLocation, Seek, TableLocations};
use crate::mutator::BufferedMutator;
use crate::operation::{
    Action, Append, CheckAndMutate, Delete, Get, Increment, Mutation, Put, Replicas, RowMutations, Scan,
    check_row,
};
use crate::replica::{LateReadPolicy, NoCleanup, first_of};
use crate::result::{CheckAndMutateResult, RowResult};
use crate::retry::Retry;
use crate::scan::Scanner;

/// One table. Cheap to clone; tasks may share it.
#[derive(Clone, Debug)]
pub struct Table {
    connection: Connection,
    name: TableName,
    /// The table's part of the connection's location cache.
    locations: Arc<TableLocations>,
}

impl Table {
    pub(crate) fn new(connection: Connection, name: TableName) -> Self {
        let locations = connection.locations().of_table(&name);
        Self { connection, name, locations }
    }

    /// The table's name.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Reads a row.
    ///
    /// # Errors
    /// The server's exception, or [`Error::RetriesExhausted`]. This holds for all operations.
    pub async fn get(&self, get: Get) -> Result<RowResult> {
        check_row(get.row())?;
        match get.replicas() {
            Replicas::One(replica) => self.get_of(get.into_message(), replica).await,
            // Boxed, so that the common case has a small future.
            Replicas::Any => Box::pin(self.get_of_any(get.into_message())).await,
        }
    }

    /// Reads one replica.
    async fn get_of(&self, get: pb::Get, replica: u32) -> Result<RowResult> {
        let row = get.row.clone();
        let mut request = pb::GetRequest { region: pb::RegionSpecifier::default(), get };
        let at = |request: &mut pb::GetRequest, region| request.region = region;
        let (response, mut cells): (pb::GetResponse, _) =
            self.call_replica(ReadTarget { row: &row, replica }, "Get", &mut request, at, &[]).await?;
        cells.result(&response.result.unwrap_or_default())
    }

    /// Reads the primary replica, and the others if it is slow.
    async fn get_of_any(&self, get: pb::Get) -> Result<RowResult> {
        let read = |replica: i32| {
            let (table, get) = (self.clone(), get.clone());
            let replica = u32::try_from(replica).unwrap_or_default();
            async move { table.get_of(get, replica).await }
        };
        let known = self.locate(Seek::At(&get.row), &Retry::new(self.connection.config())).await;
        let others = known.iter().flat_map(|location| location.replicas());
        let others: Vec<_> = others.map(|other| read(other.region.replica_id())).collect();
        match others.is_empty() {
            true => read(0).await,
            false => {
                let (wait, late_reads) =
                    (self.connection.config().primary_get_timeout, LateReadPolicy::<NoCleanup<_>>::Cancel);
                first_of(read(0), wait, others, late_reads).await
            }
        }
    }

    /// Returns true if the row has any cell that the Get selects.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub async fn exists(&self, get: Get) -> Result<bool> {
        let result = self.get(get.existence_only()).await?;
        Ok(result.exists().unwrap_or(!result.is_empty()))
    }

    /// Writes cells of a row.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub async fn put(&self, put: Put) -> Result<()> {
        self.mutate(put.into(), None).await.map(drop)
    }

    /// Deletes cells of a row.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub async fn delete(&self, delete: Delete) -> Result<()> {
        self.mutate(delete.into(), None).await.map(drop)
    }

    /// Adds to counters; returns their new values. Retries do not apply it twice.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub async fn increment(&self, increment: Increment) -> Result<RowResult> {
        Ok(self.mutate(increment.into(), None).await?.result)
    }

    /// Appends to values; returns the new ones. Retries do not apply it twice.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub async fn append(&self, append: Append) -> Result<RowResult> {
        Ok(self.mutate(append.into(), None).await?.result)
    }

    /// Applies mutations if a check passes. If a response is lost, the retry may see the writes of
    /// the first attempt.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub async fn check_and_mutate(&self, check: CheckAndMutate) -> Result<CheckAndMutateResult> {
        check.mutations.check()?;
        let condition = Some(check.condition());
        match <[Mutation; 1]>::try_from(check.mutations.mutations.clone()) {
            Ok([mutation]) => self.mutate(mutation, condition).await,
            Err(_) => self.mutate_atomically(check.mutations, condition).await,
        }
    }

    /// Applies several mutations of a row atomically; returns the new cells of increments and
    /// appends.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub async fn mutate_row(&self, mutations: RowMutations) -> Result<RowResult> {
        mutations.check()?;
        Ok(self.mutate_atomically(mutations, None).await?.result)
    }

    /// Reads many rows. Outcome `i` belongs to Get `i`. Reads go to the primary replicas,
    /// regardless of a Get's [`crate::Consistency`].
    pub async fn get_all(&self, gets: impl IntoIterator<Item = Get>) -> Vec<Result<RowResult>> {
        self.batch(gets.into_iter().map(Action::from).collect()).await
    }

    /// Loads store files into the region that holds `row`, all or none. Each file is given by its
    /// family and by a URI that the server can read. Returns false if their rows do not all lie in
    /// that region.
    ///
    /// # Errors
    /// As [`Table::get`]; the server's exception if a file is invalid.
    pub async fn bulk_load(&self, row: &[u8], files: Vec<(Bytes, String)>) -> Result<bool> {
        let path = |(family, path)| pb::bulk_load_h_file_request::FamilyPath { family, path };
        let mut request = pb::BulkLoadHFileRequest {
            family_path: files.into_iter().map(path).collect(),
            assign_seq_num: Some(true),
            ..Default::default()
        };
        let at = |request: &mut pb::BulkLoadHFileRequest, region| request.region = region;
        let (response, _): (pb::BulkLoadHFileResponse, _) =
            self.call(row, "BulkLoadHFile", &mut request, at, &[]).await?;
        Ok(response.loaded)
    }

    /// A mutator that gathers mutations of this table into batches.
    pub fn buffered_mutator(&self) -> BufferedMutator {
        BufferedMutator::new(self.clone())
    }

    /// Performs many actions, grouped by server, in no particular order. Outcome `i` belongs to
    /// action `i`.
    pub async fn batch(&self, actions: Vec<Action>) -> Vec<Result<RowResult>> {
        crate::batch::run(self, actions).await
    }

    /// Writes many rows.
    ///
    /// # Errors
    /// The first failure; others may have succeeded.
    pub async fn put_all(&self, puts: impl IntoIterator<Item = Put>) -> Result<()> {
        let outcomes = self.batch(puts.into_iter().map(Action::from).collect()).await;
        outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
    }

    /// Reads rows in order. Makes no call before the first batch.
    pub fn scan(&self, scan: Scan) -> Scanner {
        Scanner::new(self.clone(), scan)
    }

    async fn mutate(
        &self,
        mutation: Mutation,
        condition: Option<pb::Condition>,
    ) -> Result<CheckAndMutateResult> {
        self.check(&mutation)?;
        let nonce = if mutation.needs_nonce() { self.connection.nonce() } else { 0 };
        let mut block = Vec::new();
        mutation.write_cells(&mut block, self.connection.config().tags);
        let mut request = pb::MutateRequest {
            region: pb::RegionSpecifier::default(),
            mutation: mutation.message(nonce),
            condition,
            nonce_group: Some(self.connection.nonce_group()),
        };
        let at = |request: &mut pb::MutateRequest, region| request.region = region;
        let (response, mut cells): (pb::MutateResponse, _) =
            self.call(mutation.row(), "Mutate", &mut request, at, &block).await?;
        let result = cells.result(&response.result.unwrap_or_default())?;
        Ok(CheckAndMutateResult { success: response.processed.unwrap_or(true), result })
    }

    pub(crate) fn check(&self, mutation: &Mutation) -> Result<()> {
        mutation.check()?;
        mutation.check_size(self.connection.config().cell_bytes_max)
    }

    async fn mutate_atomically(
        &self,
        mutations: RowMutations,
        condition: Option<pb::Condition>,
    ) -> Result<CheckAndMutateResult> {
        mutations.mutations.iter().try_for_each(|mutation| self.check(mutation))?;
        let mut block = Vec::new();
        let action = (0..).zip(&mutations.mutations).map(|(i, m)| self.action(i, m, &mut block)).collect();
        let region = pb::RegionSpecifier::default();
        let mut request = pb::MultiRequest {
            region_action: vec![pb::RegionAction { region, atomic: Some(true), action, condition }],
            nonce_group: Some(self.connection.nonce_group()),
            condition: None,
        };
        let at = |request: &mut pb::MultiRequest, region: pb::RegionSpecifier| {
            request.region_action.iter_mut().for_each(|action| action.region = region.clone());
        };
        let mut retry = Retry::new(self.connection.config());
        loop {
            let asked = ReadTarget { row: mutations.row(), replica: 0 };
            let outcome = self.try_call(asked, "Multi", &mut request, &at, &block, &retry).await;
            let outcome = outcome
                .and_then(|(at, (response, cells))| atomic_outcome(&response, cells).map_err(|e| (at, e)));
            match outcome {
                Ok(outcome) => return Ok(outcome),
                Err((at, error)) => self.recover(at.as_ref(), error, &mut retry).await?,
            }
        }
    }

    fn action(&self, index: u32, mutation: &Mutation, block: &mut Vec<u8>) -> pb::Action {
        let nonce = if mutation.needs_nonce() { self.connection.nonce() } else { 0 };
        mutation.write_cells(block, self.connection.config().tags);
        pb::Action { index: Some(index), mutation: Some(mutation.message(nonce)), ..Default::default() }
    }

    /// Calls the region of a row, with retries; `at` sets the region of the request.
    pub(crate) async fn call<M: Message, R: Message + Default>(
        &self,
        row: &[u8],
        method: &'static str,
        request: &mut M,
        at: impl Fn(&mut M, pb::RegionSpecifier),
        cells: &[u8],
    ) -> Result<(R, CellBlock)> {
        self.call_replica(ReadTarget { row, replica: 0 }, method, request, at, cells).await
    }

    /// As [`Table::call`], for one replica of the region.
    async fn call_replica<M: Message, R: Message + Default>(
        &self,
        asked: ReadTarget<'_>,
        method: &'static str,
        request: &mut M,
        at: impl Fn(&mut M, pb::RegionSpecifier),
        cells: &[u8],
    ) -> Result<(R, CellBlock)> {
        let mut retry = Retry::new(self.connection.config());
        loop {
            match self.try_call(asked, method, request, &at, cells, &retry).await {
                Ok((_, response)) => return Ok(response),
                Err((location, error)) => self.recover(location.as_ref(), error, &mut retry).await?,
            }
        }
    }

    async fn try_call<M: Message, R: Message + Default>(
        &self,
        asked: ReadTarget<'_>,
        method: &'static str,
        request: &mut M,
        at: &impl Fn(&mut M, pb::RegionSpecifier),
        cells: &[u8],
        retry: &Retry,
    ) -> Result<Located<(R, CellBlock)>, (Option<Arc<CachedLocation>>, Error)> {
        let region = self.locate(Seek::At(asked.row), retry).await.map_err(|e| (None, e))?;
        let location = match asked.replica {
            0 => region,
            id => region.replica(id).map_err(|e| {
                self.connection.locations().remove_with_replicas(&region);
                (None, e)
            })?,
        };
        let timeout = retry.call_timeout(self.connection.config().rpc_timeout);
        at(request, location.specifier());
        match self.connection.call_region(&location, method, request, cells, timeout).await {
            Ok(response) => Ok((Some(location), response)),
            Err(error) => Err((Some(location), error)),
        }
    }

    /// The location of a region of the table, from the cache or from one lookup within the
    /// operation's remaining time.
    pub(crate) async fn locate(&self, seek: Seek<'_>, retry: &Retry) -> Result<Arc<CachedLocation>> {
        self.connection.locate_in(&self.locations, &self.name, seek, retry).await
    }

    /// The location of a region of the table, from the cache.
    pub(crate) fn cached_location(&self, seek: Seek<'_>) -> Option<Arc<CachedLocation>> {
        self.locations.find(seek)
    }

    /// Waits for the next attempt; fails immediately if the table is disabled or does not exist.
    pub(crate) async fn recover(
        &self,
        at: Option<&Arc<CachedLocation>>,
        error: Error,
        retry: &mut Retry,
    ) -> Result<()> {
        if let Some(at) = at {
            self.connection.locations().on_error(at, &error);
        }
        let no_region =
            matches!(error, Error::NoServer(_)) || error.kind() == Some(ErrorKind::NotServingRegion);
        if no_region && !error.is_final() {
            self.check_enabled().await?;
        }
        retry.after(error).await
    }

    /// Fails if the table is disabled in hbase:meta. If hbase:meta cannot be read, it succeeds.
    async fn check_enabled(&self) -> Result<()> {
        match self.connection.table_state_once(&self.name).await {
            Ok(Some(TableState::Disabled)) => Err(Error::TableNotEnabled(self.name.clone())),
            Ok(None) => Err(Error::TableNotFound(self.name.clone())),
            _ => Ok(()),
        }
    }
}

/// A row, and the replica of its region to read.
#[derive(Clone, Copy)]
struct ReadTarget<'a> {
    row: &'a [u8],
    replica: u32,
}

type Located<T> = (Option<Arc<CachedLocation>>, T);

/// The outcome of an atomic region action: one exception for all of it, or a flag and at most one
/// result.
fn atomic_outcome(response: &pb::MultiResponse, mut cells: CellBlock) -> Result<CheckAndMutateResult> {
    let region = response.region_action_result.first();
    let region = region.ok_or_else(|| Error::Protocol("a Multi without a region's result".to_owned()))?;
    let actions = &region.result_or_exception;
    let failure = region.exception.as_ref().or_else(|| actions.iter().find_map(|a| a.exception.as_ref()));
    if let Some(exception) = failure {
        return Err(Error::of_pair(exception));
    }
    let mut result = RowResult::default();
    for action in actions.iter().filter_map(|a| a.result.as_ref()) {
        let each = cells.result(action)?;
        if !each.is_empty() {
            result = each;
        }
    }
    let success = region.processed.or(response.processed).unwrap_or(true);
    Ok(CheckAndMutateResult { success, result })
}
