//! hbase:slowlog, enabled by `hbase.regionserver.slowlog.systable.enabled`: created at start, and
//! written every `hbase.slowlog.systable.chore.duration` or
//! `hbase.regionserver.named.queue.chore.duration`, whichever is shorter (default 10 minutes).
//! [`evenkeel_regionserver::slow_log_table`] defines its rows.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::{Configuration, HBaseError, Result};
use evenkeel_regionserver::slow_log_table;

use super::Master;

const PERIODS: [&str; 2] =
    ["hbase.slowlog.systable.chore.duration", "hbase.regionserver.named.queue.chore.duration"];
/// HBase's default of both periods, in milliseconds.
const PERIOD_MS: i64 = 600_000;

fn bad(error: impl std::fmt::Display) -> HBaseError {
    HBaseError::io(error.to_string())
}

/// Returns the period of the writes; `None` if the table is disabled.
///
/// # Errors
/// `IOException` if a setting is not a number.
pub(super) fn period(conf: &Configuration) -> Result<Option<Duration>> {
    if !conf.get_bool_or(slow_log_table::ENABLED, false).map_err(bad)? {
        return Ok(None);
    }
    let mut shortest = PERIOD_MS;
    for key in PERIODS {
        shortest = shortest.min(conf.get_i64_or(key, PERIOD_MS).map_err(bad)?);
    }
    Ok(Some(Duration::from_millis(shortest.max(1).unsigned_abs())))
}

impl Master {
    /// Creates hbase:slowlog if it is enabled and does not exist.
    ///
    /// # Errors
    /// As [`create_table`](Self::create_table).
    pub fn ensure_slow_log_table(self: &Arc<Self>) -> Result<()> {
        if period(&self.parts.conf)?.is_none() || self.table(&slow_log_table::name()?).is_ok() {
            return Ok(());
        }
        tracing::info!("the table hbase:slowlog is made");
        self.create_table(slow_log_table::descriptor()?, Vec::new(), (0, 0)).map(drop)
    }

    /// Writes the queued slow calls to hbase:slowlog.
    pub(super) fn write_slow_calls(&self) {
        if let Err(error) = slow_log_table::write(&self.parts.regionserver, self.clock().now_ms()) {
            tracing::warn!(%error, "slow calls could not be written to hbase:slowlog");
        }
    }
}
