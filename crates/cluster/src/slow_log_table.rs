//! Writes slow calls to hbase:slowlog, which the master creates, as a client of that table: its
//! regions may be on other servers.
//!
//! A batch that fails is lost, as in HBase, so a table that is not served delays nothing. The task
//! ends when the RegionServer does.

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_client::{ClientConfig, Connection, Durability, Put};
use evenkeel_common::clock::Clock;
use evenkeel_common::{Configuration, HBaseError, Result};
use evenkeel_region::operations::Mutation;
use evenkeel_regionserver::{RegionServer, slow_log_table};
use tokio::runtime::Handle;

/// Tries of a batch after the first.
const RETRIES: u32 = 2;

/// A task that writes the calls of one server.
struct Writer {
    server: Weak<RegionServer>,
    clock: Arc<dyn Clock>,
    config: ClientConfig,
}

/// Starts the task if `hbase.regionserver.slowlog.systable.enabled` is true.
///
/// # Errors
/// `IOException` about a setting of the period or of clients.
pub(crate) fn start(
    runtime: &Handle,
    server: &Arc<RegionServer>,
    conf: &Configuration,
    clock: &Arc<dyn Clock>,
) -> Result<()> {
    let Some(period) = slow_log_table::period(conf)? else { return Ok(()) };
    let config = ClientConfig::from_configuration(conf).map_err(io)?;
    let config = ClientConfig { retries: RETRIES, ..config };
    let writer = Writer { server: Arc::downgrade(server), clock: Arc::clone(clock), config };
    drop(runtime.spawn(writer.run(period)));
    Ok(())
}

fn io(error: evenkeel_client::Error) -> HBaseError {
    HBaseError::io(error.to_string())
}

impl Writer {
    async fn run(self, period: Duration) {
        loop {
            tokio::time::sleep(period).await;
            let Some(server) = self.server.upgrade() else { return };
            if let Err(error) = self.write(&server).await {
                tracing::warn!(%error, "slow calls could not be written to hbase:slowlog");
            }
        }
    }

    /// Writes all calls that wait, with a connection for this time only: there are few.
    async fn write(&self, server: &RegionServer) -> Result<()> {
        let mut rows = slow_log_table::take_rows(server, self.clock.now_ms());
        if rows.is_empty() {
            return Ok(());
        }
        let connection = Connection::connect(self.config.clone()).await.map_err(io)?;
        let table = connection.table(slow_log_table::name()?);
        while !rows.is_empty() {
            table.put_all(rows.into_iter().map(put)).await.map_err(io)?;
            rows = slow_log_table::take_rows(server, self.clock.now_ms());
        }
        Ok(())
    }
}

fn put(row: Mutation) -> Put {
    let put = Put::new(&row.row).durability(Durability::SkipWal);
    row.cells.into_iter().fold(put, Put::cell)
}
