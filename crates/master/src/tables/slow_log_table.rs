//! hbase:slowlog, if `hbase.regionserver.slowlog.systable.enabled` is true: created at start, and
//! written periodically. [`evenkeel_regionserver::slow_log_table`] has the period and the rows.

use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_regionserver::slow_log_table;

use crate::Master;

impl Master {
    /// Creates hbase:slowlog if it is enabled and does not exist.
    ///
    /// # Errors
    /// As [`create_table`](Self::create_table).
    pub fn ensure_slow_log_table(self: &Arc<Self>) -> Result<()> {
        if slow_log_table::period(&self.parts.conf)?.is_none() || self.table(&slow_log_table::name()?).is_ok()
        {
            return Ok(());
        }
        tracing::info!("creating the table hbase:slowlog");
        self.create_table(slow_log_table::descriptor()?, Vec::new(), (0, 0)).map(drop)
    }

    /// Writes the slow calls that wait to hbase:slowlog.
    pub(crate) fn write_slow_calls(&self) {
        if let Err(error) = slow_log_table::write(&self.parts.regionserver, self.clock().now_ms()) {
            tracing::warn!(%error, "slow calls could not be written to hbase:slowlog");
        }
    }
}
