//! hbase:slowlog, if `hbase.regionserver.slowlog.systable.enabled` says so: made at start, and
//! written every `hbase.slowlog.systable.chore.duration` or
//! `hbase.regionserver.named.queue.chore.duration`, whichever is shorter (10 minutes). What is in a
//! row is in [`evenkeel_regionserver::slow_log_table`].

use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::{Configuration, HBaseError, Result};
use evenkeel_regionserver::slow_log_table;

use crate::Master;

const PERIODS: [&str; 2] =
    ["hbase.slowlog.systable.chore.duration", "hbase.regionserver.named.queue.chore.duration"];
/// HBase's default of both, in milliseconds.
const PERIOD_MS: i64 = 600_000;

fn bad(error: impl std::fmt::Display) -> HBaseError {
    HBaseError::io(error.to_string())
}

/// How often calls are written; `None` if they are not.
///
/// # Errors
/// `IOException` about a setting that is no number.
pub(crate) fn period(conf: &Configuration) -> Result<Option<Duration>> {
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
    /// Makes hbase:slowlog if it should be there and is not.
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

    /// Writes the slow calls that wait to hbase:slowlog.
    pub(crate) fn write_slow_calls(&self) {
        if let Err(error) = slow_log_table::write(&self.parts.regionserver, self.clock().now_ms()) {
            tracing::warn!(%error, "slow calls could not be written to hbase:slowlog");
        }
    }
}
