//! [`Connection`]: sockets, location cache and registry data of one cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::{RegionInfo, ServerName, TableName};
use evenkeel_protocol::pb;
use parking_lot::Mutex;
use prost::Message;
use rand::Rng;
use tokio::time::timeout;

use crate::admin::{Admin, TableState};
use crate::cells::CellBlock;
use crate::config::ClientConfig;
use crate::error::{Error, Result};
use crate::location::{
    CachedLocation, LocationCache, MetaRow, RegionLocation, Seek, TableLocations, locations_in_meta,
};
use crate::operation::{Get, Scan};
use crate::registry;
use crate::result::RowResult;
use crate::retry::Retry;
use crate::rpc::frame::Response;
use crate::rpc::{BoxFuture, Call, Param, Pool, Service};
use crate::table::Table;

/// The priority of calls to system tables (`HConstants.SYSTEMTABLE_QOS`).
const PRIORITY_SYSTEM: u32 = 200;

/// A connection to a cluster: its sockets, its location cache and the registry's replies. Clones
/// share all of them.
#[derive(Clone, Debug)]
pub struct Connection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: Arc<ClientConfig>,
    pool: Pool,
    locations: LocationCache,
    cluster_id: String,
    master: Mutex<Option<String>>,
    /// Together with a nonce it identifies an operation of this client over retries.
    nonce_group: u64,
}

impl Connection {
    /// Connects to a cluster through its registry, and retries while no server answers.
    ///
    /// # Errors
    /// [`Error::RetriesExhausted`] if no server of the registry returns a cluster id.
    pub async fn connect(config: ClientConfig) -> Result<Self> {
        let config = Arc::new(config);
        let pool = Pool::new(config.clone());
        let mut retry = Retry::new(&config);
        let cluster_id = loop {
            match registry::cluster_id(&pool, &config).await {
                Ok(id) => break id,
                Err(error) => retry.after(error).await?,
            }
        };
        let nonce_group = rand::rng().random_range(1..=u64::MAX);
        let (locations, master) = Default::default();
        Ok(Self { inner: Arc::new(Inner { config, pool, locations, cluster_id, master, nonce_group }) })
    }

    #[cfg(test)]
    pub(crate) fn unconnected(config: ClientConfig) -> Self {
        let config = Arc::new(config);
        let (locations, master) = Default::default();
        let (pool, cluster_id) = (Pool::new(config.clone()), String::new());
        Self { inner: Arc::new(Inner { config, pool, locations, cluster_id, master, nonce_group: 1 }) }
    }

    /// The cluster's id.
    pub fn cluster_id(&self) -> &str {
        &self.inner.cluster_id
    }

    /// A table. Makes no call.
    pub fn table(&self, name: TableName) -> Table {
        Table::new(self.clone(), name)
    }

    /// The master's operations.
    pub fn admin(&self) -> Admin {
        Admin::new(self.clone())
    }

    /// Looks up the active master in the registry.
    ///
    /// # Errors
    /// [`Error::NoServer`], [`Error::Connection`] or [`Error::Timeout`] if no server of the
    /// registry returns it.
    pub async fn active_master(&self) -> Result<ServerName> {
        registry::active_master(&self.inner.pool, self.config()).await
    }

    /// The location of the region that holds a row. With `reload`, hbase:meta is read even if the
    /// location is cached.
    ///
    /// # Errors
    /// [`Error::TableNotFound`]; [`Error::RetriesExhausted`] if hbase:meta cannot be read.
    pub async fn locate(&self, table: &TableName, row: &[u8], reload: bool) -> Result<Arc<RegionLocation>> {
        if reload {
            self.inner.locations.remove_table(table);
        }
        let mut retry = Retry::new(self.config());
        loop {
            match self.locate_once(table, Seek::At(row), &retry).await {
                Ok(location) => return Ok(Arc::new(RegionLocation::clone(&location))),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    pub(crate) fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    pub(crate) fn locations(&self) -> &LocationCache {
        &self.inner.locations
    }

    pub(crate) fn nonce_group(&self) -> u64 {
        self.inner.nonce_group
    }

    /// A new nonce; 0 means none, so it is never 0.
    pub(crate) fn nonce(&self) -> u64 {
        rand::rng().random_range(1..=u64::MAX)
    }

    /// Calls a method of a server.
    pub(crate) fn call<'a>(&'a self, address: &'a str, call: Call<'a>) -> BoxFuture<'a, Response> {
        self.inner.pool.call(address, call)
    }

    /// Calls a method of ClientService on a region's server, once.
    pub(crate) async fn call_region<M: Message, R: Message + Default>(
        &self,
        location: &Arc<CachedLocation>,
        method: &'static str,
        param: &M,
        cells: &[u8],
        timeout: Duration,
    ) -> Result<(R, CellBlock)> {
        let priority = if location.region.table().is_system() { PRIORITY_SYSTEM } else { 0 };
        let call = Call { service: Service::Client, method, param, cells, timeout, priority };
        match location.endpoint(&self.inner.pool).call(call).await {
            Ok((response, cells)) => Ok((response, CellBlock::new(cells))),
            Err(error) => {
                self.inner.locations.on_error(location, &error);
                Err(error)
            }
        }
    }

    /// Calls a method of MasterService, once. After a failure the next call looks the master up
    /// again.
    pub(crate) async fn call_master(
        &self,
        method: &'static str,
        param: &dyn Param,
        timeout: Duration,
    ) -> Result<Bytes> {
        let known = self.inner.master.lock().clone();
        let address = match known {
            Some(address) => address,
            None => self.active_master().await?.host_port(),
        };
        *self.inner.master.lock() = Some(address.clone());
        let call = Call { service: Service::Master, method, param, cells: &[], timeout, priority: 0 };
        let response = self.call(&address, call).await;
        if response.is_err() {
            *self.inner.master.lock() = None;
        }
        response.map(|response| response.message)
    }

    /// The location of a region, from the cache or from one lookup within the operation's remaining
    /// time.
    pub(crate) async fn locate_once(
        &self,
        table: &TableName,
        seek: Seek<'_>,
        retry: &Retry,
    ) -> Result<Arc<CachedLocation>> {
        self.locate_in(&self.inner.locations.of_table(table), table, seek, retry).await
    }

    /// As [`Connection::locate_once`], for a caller that has the table's part of the cache.
    pub(crate) async fn locate_in(
        &self,
        locations: &TableLocations,
        table: &TableName,
        seek: Seek<'_>,
        retry: &Retry,
    ) -> Result<Arc<CachedLocation>> {
        if let Some(location) = locations.find(seek) {
            return Ok(location);
        }
        // BoxFuture, so that the common case, a hit in the cache, has a small future.
        Box::pin(async {
            let limit = retry.call_timeout(self.config().operation_timeout);
            let found = timeout(limit, self.locate_in_turn(locations, table, seek)).await;
            found.unwrap_or_else(|_| Err(Error::Timeout(format!("no location in {table} after {limit:?}"))))
        })
        .await
    }

    /// Looks a location up; lookups of one table are a single flight. A caller that waited takes
    /// the location that the other one cached, or the other one's error if hbase:meta could not be
    /// reached.
    async fn locate_in_turn(
        &self,
        locations: &TableLocations,
        table: &TableName,
        seek: Seek<'_>,
    ) -> Result<Arc<CachedLocation>> {
        let failures = locations.failures.load(Ordering::Acquire);
        let mut failure = locations.lookup.lock().await;
        if let Some(location) = locations.find(seek) {
            return Ok(location);
        }
        if let Some(error) =
            failure.as_ref().filter(|_| locations.failures.load(Ordering::Acquire) > failures)
        {
            return Err(error.clone());
        }
        let found = match table.is_meta() {
            true => self.locate_meta().await,
            false => self.look_up(table, seek).await,
        };
        if let Some(error) = found.as_ref().err().filter(|error| error.is_unreachable()) {
            *failure = Some(error.clone());
            locations.failures.fetch_add(1, Ordering::Release);
        }
        found
    }

    async fn meta_location(&self) -> Result<Arc<CachedLocation>> {
        let locations = self.inner.locations.of_table(&TableName::meta());
        match locations.find(Seek::At(b"")) {
            Some(location) => Ok(location),
            None => self.locate_meta().await,
        }
    }

    async fn locate_meta(&self) -> Result<Arc<CachedLocation>> {
        let server = registry::meta_server(&self.inner.pool, self.config()).await?;
        let location = RegionLocation { region: RegionInfo::meta(), server, seq_num: -1 };
        let location = Arc::new(CachedLocation::new(location));
        self.inner.locations.add(location.clone());
        Ok(location)
    }

    async fn look_up(&self, table: &TableName, seek: Seek<'_>) -> Result<Arc<CachedLocation>> {
        let stop = format!("{table},,");
        let scan =
            Scan::new().family("info").reversed().from(seek.meta_row(table)).to_inclusive(stop).preads();
        let rows = self.scan_meta_once(&scan, self.config().locate_prefetch.max(1)).await?;
        let mut locations = locations_in_meta(seek, table, &rows)?.into_iter().map(Arc::new);
        let first = locations.next().ok_or_else(|| Error::NoServer(table.to_string()))?;
        locations.for_each(|location| self.inner.locations.add(location));
        self.inner.locations.add(first.clone());
        Ok(first)
    }

    /// The first rows of a scan of hbase:meta, read by one call.
    async fn scan_meta_once(&self, scan: &Scan, rows: u32) -> Result<Vec<RowResult>> {
        let meta = self.meta_location().await?;
        let request = pb::ScanRequest {
            region: Some(meta.specifier()),
            scan: Some(scan.message()),
            number_of_rows: Some(rows),
            limit_of_rows: Some(rows),
            close_scanner: Some(true),
            ..Default::default()
        };
        let timeout = self.config().rpc_timeout;
        let (response, mut cells): (pb::ScanResponse, _) =
            self.call_region(&meta, "Scan", &request, &[], timeout).await?;
        let counts = response.cells_per_result.iter();
        counts.map(|n| Ok(RowResult::new(cells.take(*n as usize)?, None, false))).collect()
    }

    /// The regions of a table in hbase:meta, in order, without parents of splits.
    pub(crate) async fn meta_regions(&self, table: &TableName) -> Result<Vec<MetaRow>> {
        if table.is_meta() {
            let at = self.locate(table, b"", true).await?;
            let (region, server) = (at.region.clone(), Some(at.server.clone()));
            let (seq_num, state) = (at.seq_num, Some("OPEN".to_owned()));
            return Ok(vec![MetaRow { region, server, seq_num, state, replicas: Vec::new() }]);
        }
        // '-' follows ',': the first name after all rows of the table.
        let scan = Scan::new().family("info").from(format!("{table},,")).to(format!("{table}-")).preads();
        let mut scanner = self.table(TableName::meta()).scan(scan);
        let mut regions = Vec::new();
        while let Some(row) = scanner.next().await? {
            let row = MetaRow::read(&row)?;
            regions.extend(row.filter(|r| !r.region.is_split_parent() && r.region.table() == table));
        }
        Ok(regions)
    }

    /// The regions of all tables in hbase:meta, with parents of splits.
    pub(crate) async fn all_meta_regions(&self) -> Result<Vec<MetaRow>> {
        let mut scanner = self.table(TableName::meta()).scan(Scan::new().family("info").preads());
        let mut regions = Vec::new();
        while let Some(row) = scanner.next().await? {
            regions.extend(MetaRow::read(&row)?);
        }
        Ok(regions)
    }

    /// The row of hbase:meta for a region's full name; `None` when there is no such region.
    pub(crate) async fn meta_row(&self, region_name: &[u8]) -> Result<Option<MetaRow>> {
        let get = Get::new(region_name).family("info");
        MetaRow::read(&self.table(TableName::meta()).get(get).await?)
    }

    /// The state of a table in hbase:meta, read by one call; `None` when there is no such table.
    pub(crate) async fn table_state_once(&self, table: &TableName) -> Result<Option<TableState>> {
        if table.is_meta() {
            return Ok(Some(TableState::Enabled));
        }
        let meta = self.meta_location().await?;
        let get = Get::new(table.to_string()).column("table", "state").message();
        let request = pb::GetRequest { region: meta.specifier(), get };
        let (response, mut cells): (pb::GetResponse, _) =
            self.call_region(&meta, "Get", &request, &[], self.config().rpc_timeout).await?;
        let row = cells.result(&response.result.unwrap_or_default())?;
        let Some(value) = row.value("table", "state") else { return Ok(None) };
        TableState::from_number(pb::TableState::decode(value)?.state).map(Some)
    }
}
