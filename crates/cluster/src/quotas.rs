//! Quotas under a stock master, which owns hbase:quota and the switch of all throttles.
//!
//! One task reads the table as a client, wherever its regions are: at start, soon after the master
//! has reported a change (`ReloadQuotasCallable`, which does not wait for it), every
//! `hbase.quota.refresh.period`, and soon after a read that failed. Limits of all servers together
//! are divided by their number; those of tables by the regions that are open here. Regions and
//! servers come and go, so the task computes the shares again every minute.
//!
//! The switch is a znode, which is read at start; the master reports its changes
//! (`SwitchRpcThrottleRemoteCallable`).
//!
//! Quotas of space have three further tasks. One reports the sizes of the regions to the master
//! (`ReportRegionSpaceUse`), which decides which tables exceed their quotas. The next reads that
//! from hbase:quota. A read that fails leaves the policies as they were. The last reports the files
//! that compactions have archived (`ReportFileArchival`), so that the master soon counts them for
//! the snapshots that have them. It does not repeat a report: the master finds such files at its
//! intervals, too.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_client::{ClientConfig, ClusterOption, Connection, Error, Scan};
use evenkeel_common::{CellRef, Configuration, HBaseError, Result, TableName};
use evenkeel_common::{clock, quota};
use evenkeel_protocol::pb;
use evenkeel_region::store::ArchivedFiles;
use evenkeel_regionserver::RegionServer;
use evenkeel_regionserver::quotas::limits::{ParsedQuotas, QuotaCell, QuotaCells};
use evenkeel_regionserver::quotas::settings::{self, SpaceTimes, TaskTimes};
use evenkeel_regionserver::quotas::space::{TableUseCells, TableUses};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::master::ClusterConnection;
use crate::session::Session;

/// Tries of a read after the first. The next refresh reads again.
const RETRIES: u32 = 5;
/// The time of a read with its retries.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Cells of a row that are read at a time.
const BATCH_CELLS: u32 = 1000;
/// The pause after a read that failed; it doubles with each further one, up to [`SHARES_PERIOD`].
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How often archived files are reported.
const ARCHIVED_PERIOD: Duration = Duration::from_secs(1);
/// How often the shares of this server in the limits of all servers are computed.
const SHARES_PERIOD: Duration = Duration::from_secs(60);

/// hbase:quota, read by a client of the cluster.
#[derive(Clone)]
struct ClusterQuotaTable {
    config: ClientConfig,
    session: Arc<Session>,
}

/// Starts the tasks of quotas, if they are enabled.
///
/// # Errors
/// `IOException` about a setting of a period or of clients.
pub(crate) fn start(
    runtime: &Handle,
    server: &Arc<RegionServer>,
    conf: &Configuration,
    (session, master): (&Arc<Session>, &Arc<ClusterConnection>),
    archived: &Arc<ArchivedFiles>,
) -> Result<()> {
    let Some(quotas) = server.quotas() else { return Ok(()) };
    let bad = |error: evenkeel_common::config::ConfigError| HBaseError::io(error.to_string());
    let period = settings::refresh_period(conf).map_err(bad)?;
    let config = ClientConfig::from_configuration(conf).map_err(io)?;
    let config = ClientConfig { retries: RETRIES, operation_timeout: READ_TIMEOUT, ..config };
    let table = ClusterQuotaTable { config, session: Arc::clone(session) };
    let times = SpaceTimes::from(conf).map_err(bad)?;
    quotas.set_on(session.is_rpc_throttle_on());
    let changed = Arc::new(Notify::new());
    let reported = Arc::clone(&changed);
    quotas.on_change(Box::new(move || reported.notify_one()));
    drop(runtime.spawn(report_sizes(Arc::downgrade(server), Arc::clone(master), times.report)));
    archived.record();
    drop(runtime.spawn(report_archived(Arc::downgrade(archived), Arc::clone(master))));
    drop(runtime.spawn(refresh_space(Arc::downgrade(server), table.clone(), times.refresh)));
    drop(runtime.spawn(refresh(Arc::downgrade(server), table, changed, period)));
    Ok(())
}

/// Reports the sizes of the regions to the master until the server is gone.
async fn report_sizes(server: Weak<RegionServer>, master: Arc<ClusterConnection>, times: TaskTimes) {
    sleep(times.delay).await;
    loop {
        let Some(sizes) = server.upgrade().map(|server| server.region_sizes()) else { return };
        if let Err(error) = master.report_region_space_use(sizes).await {
            tracing::debug!(%error, "the sizes of regions could not be reported to the master");
        }
        sleep(times.period).await;
    }
}

/// Reports archived files to the master until the server is gone.
async fn report_archived(archived: Weak<ArchivedFiles>, master: Arc<ClusterConnection>) {
    loop {
        sleep(ARCHIVED_PERIOD).await;
        let Some(files) = archived.upgrade().map(|archived| archived.take()) else { return };
        if !files.is_empty()
            && let Err(error) = master.report_archived_files(files).await
        {
            tracing::debug!(%error, "archived files could not be reported to the master");
        }
    }
}

/// Reads which policies of quotas of space are in force until the server is gone.
async fn refresh_space(server: Weak<RegionServer>, table: ClusterQuotaTable, times: TaskTimes) {
    let mut connection = None;
    sleep(times.delay).await;
    loop {
        let read = table.read_table_uses(&mut connection).await;
        let Some(server) = server.upgrade() else { return };
        match (read, server.space_quotas()) {
            (Ok(uses), Some(quotas)) => quotas.install(uses),
            (Err(error), _) => {
                connection = None;
                tracing::warn!(%error, "the policies of quotas of space could not be read");
            }
            (Ok(_), None) => {}
        }
        drop(server);
        sleep(times.period).await;
    }
}

/// Reads the quotas and computes the shares until the server is gone.
async fn refresh(
    server: Weak<RegionServer>,
    table: ClusterQuotaTable,
    changed: Arc<Notify>,
    period: Duration,
) {
    let (mut known, mut open_regions) = (None, HashMap::new());
    let (mut due, mut pause) = (clock::monotonic(), RETRY_PAUSE);
    loop {
        let Some(of_server) = server.upgrade() else { return };
        if clock::monotonic() >= due {
            let next = match table.read_cells().await {
                Ok(cells) => {
                    known = Some(ParsedQuotas::of(cells));
                    pause = RETRY_PAUSE;
                    period
                }
                Err(error) => {
                    tracing::warn!(%error, "the quotas could not be read from hbase:quota");
                    let next = pause.min(period);
                    pause = (2 * pause).min(SHARES_PERIOD);
                    next
                }
            };
            due = clock::monotonic() + next;
        }
        if let Some(parsed) = &known {
            table.apply(&of_server, parsed, &mut open_regions).await;
        }
        drop(of_server);
        let wait = due.saturating_duration_since(clock::monotonic()).min(SHARES_PERIOD);
        if timeout(wait, changed.notified()).await.is_ok() {
            due = clock::monotonic();
        }
    }
}

/// Makes the task read the quotas, whose change the master reports.
///
/// # Errors
/// None.
pub(crate) fn report_change(server: &RegionServer) -> Result<()> {
    server.quotas().into_iter().for_each(|quotas| quotas.report_change());
    Ok(())
}

/// Switches all throttles, as the master reports.
///
/// # Errors
/// None.
pub(crate) fn switch(server: &RegionServer, change: &pb::SwitchRpcThrottleRemoteStateData) -> Result<()> {
    if let Some(quotas) = server.quotas() {
        quotas.set_on(change.rpc_throttle_enabled);
    }
    Ok(())
}

fn io(error: Error) -> HBaseError {
    HBaseError::io(error.to_string())
}

impl ClusterQuotaTable {
    /// Applies quotas, and reads the numbers of open regions for it if they matter. If the master
    /// does not answer, the numbers stay as they were.
    async fn apply(
        &self,
        server: &RegionServer,
        parsed: &ParsedQuotas,
        open_regions: &mut HashMap<TableName, u64>,
    ) {
        let Some(quotas) = server.quotas() else { return };
        let read = quotas.begin_read();
        if parsed.shares_tables() {
            match self.read_open_regions().await {
                Ok(read) => *open_regions = read,
                Err(error) => tracing::warn!(%error, "the shares in the quotas of tables are not known"),
            }
        }
        let servers = self.session.view().region_servers.len();
        quotas.install(server, read, parsed, (servers, open_regions));
    }

    /// Connects for one read: there are few.
    async fn connect(&self) -> Result<Connection> {
        Connection::connect(self.config.clone()).await.map_err(io)
    }

    async fn read_cells(&self) -> Result<Vec<QuotaCell>> {
        let mut cells = QuotaCells::default();
        visit(&self.connect().await?, quota::FAMILY, |cell| cells.push(cell)).await?;
        Ok(cells.finish())
    }

    /// Reads the use of space of tables, by a connection that is made if there is none.
    async fn read_table_uses(&self, connection: &mut Option<Connection>) -> Result<TableUses> {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(self.connect().await?),
        };
        let mut cells = TableUseCells::default();
        visit(connection, quota::USAGE_FAMILY, |cell| cells.push(cell)).await?;
        Ok(cells.finish())
    }

    async fn read_open_regions(&self) -> Result<HashMap<TableName, u64>> {
        let admin = self.connect().await?.admin();
        let metrics = admin.cluster_metrics(&[ClusterOption::TableToRegionsCount]).await.map_err(io)?;
        Ok(metrics.tables.into_iter().map(|(table, counts)| (table, u64::from(counts.open))).collect())
    }
}

/// Calls `push` with each cell of a family of hbase:quota until it returns false.
async fn visit(
    connection: &Connection,
    family: &'static [u8],
    mut push: impl FnMut(CellRef<'_>) -> bool + Send,
) -> Result<()> {
    // A row may have any number of columns.
    let scan = Scan::new().family(family).batch(BATCH_CELLS);
    let mut rows = connection.table(quota::table_name()?).scan(scan);
    loop {
        match rows.next().await {
            Ok(Some(row)) if row.cells().iter().all(|cell| push(cell.as_cell())) => {}
            // All cells, no more that count, or a master without quotas.
            Ok(_) | Err(Error::TableNotFound(_)) => return Ok(()),
            Err(error) => return Err(io(error)),
        }
    }
}
