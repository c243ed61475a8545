//! The stop of a healthy RegionServer: other servers take over its regions, and nothing is left to
//! recover.
//!
//! 1. The master moves regions away, hbase:meta last, for at most
//!    `evenkeel.regionserver.stop.move.timeout.ms`. Requests are served meanwhile. This step is
//!    skipped if the whole cluster shuts down, or there is no other server.
//! 2. The remaining regions are closed: flushed, and reported as closed.
//! 3. The logs go to `oldWALs`; their directory and the znode are removed, so the master finds
//!    nothing to split.
//!
//! A server that has failed does none of this: it reports the reason to the master, if that
//! succeeds at once, and ends.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_client::{ClientConfig, Connection};
use evenkeel_common::{HBaseError, Result, ServerName};
use evenkeel_process::StopProgress;
use evenkeel_region::region::Region;
use tokio::time::timeout;

use crate::ClusterServer;
use crate::transitions::Procedure;

/// How long calls in progress may take once the server stops.
const CALLS_GRACE: Duration = Duration::from_secs(5);
/// How long one region may take to move.
const MOVE_TIMEOUT: Duration = Duration::from_secs(20);

impl ClusterServer {
    /// Stops; see the module's documentation.
    ///
    /// # Errors
    /// Returns the reason if the server has failed, or errors of closing regions or logs.
    pub fn stop_with(self, progress: &StopProgress) -> Result<()> {
        if let Some(reason) = self.process.failure.get().cloned() {
            return Err(self.end_at_once(&reason));
        }
        tracing::info!("stopping");
        self.process.readiness.set_stopping(progress);
        progress.begin("moving regions to other servers");
        self.move_regions();
        self.transitions.stop_repeating();
        let closed = self.close_regions(progress);
        self.regionserver.start_stopping();
        progress.begin("the info pages");
        drop(self.info);
        drop(self.sampler);
        progress.begin("calls on connections' threads");
        self.rpc.shutdown(CALLS_GRACE);
        progress.begin("chores");
        drop(self.memory_trim);
        drop(self.mob_cleaner);
        drop(self.chore);
        progress.begin("flushes and compactions");
        self.regionserver.background().stop();
        progress.begin("calls on handlers' threads");
        self.executor.shutdown();
        progress.begin("the write-ahead logs");
        let wals = &self.storage.wals;
        let logs = wals.user.close().and(wals.meta.close());
        closed.and(logs)?;
        self.process.wal_root().fs.delete_empty_dir(&wals.dir)?;
        progress.begin("the znode");
        self.session.withdraw(&self.name);
        progress.begin("");
        tracing::info!("stopped");
        self.process.failure.get().map_or(Ok(()), |reason| Err(HBaseError::io(reason)))
    }

    /// Ends a failed server. Does not flush, close or drop anything, because each could still
    /// write.
    fn end_at_once(self, reason: &str) -> HBaseError {
        self.abort.now(reason);
        self.regionserver.report_fatal_error(reason);
        // Remove the znode, so that others need not wait for the session to expire: this server
        // no longer changes anything.
        self.session.withdraw(&self.name);
        std::mem::forget(self);
        HBaseError::io(reason)
    }

    fn regions(&self) -> Vec<Arc<Region>> {
        let mut regions = self.regionserver.regions().all();
        regions.sort_by_key(|region| (region.info().table().is_system(), region.info().is_meta()));
        regions
    }

    /// Makes the master move regions to other servers, in turn.
    fn move_regions(&self) {
        let others = self.session.view().region_servers.iter().any(|server| *server != self.name);
        if self.cluster.move_timeout.is_zero() || self.session.is_cluster_stopping() || !others {
            return;
        }
        let moves = async { timeout(self.cluster.move_timeout, self.move_all()).await };
        match self.connections.runtime.block_on(moves) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "regions are closed here instead of moved"),
            Err(_) => tracing::warn!("not all regions could be moved in time; the rest is closed"),
        }
    }

    async fn move_all(&self) -> Result<()> {
        let io = |e: evenkeel_client::Error| HBaseError::io(e.to_string());
        let config = ClientConfig::from_configuration(&self.process.conf).map_err(io)?;
        let connection = Connection::connect(ClientConfig { retries: 2, ..config }).await.map_err(io)?;
        let admin = connection.admin();
        for region in self.regions() {
            let info = region.info();
            let name = info.name_text();
            match timeout(MOVE_TIMEOUT, admin.move_region(info, None::<&ServerName>)).await {
                Ok(Ok(())) => tracing::info!(region = name, "moved to another server"),
                Ok(Err(error)) => tracing::warn!(region = name, %error, "cannot be moved"),
                Err(_) => tracing::warn!(region = name, "was not moved in time"),
            }
        }
        Ok(())
    }

    /// Closes all regions; continues after an error and returns the first.
    fn close_regions(&self, progress: &StopProgress) -> Result<()> {
        for region in self.regions() {
            progress.begin(format!("closing region {}", region.info().name_text()));
            self.transitions.close(region.info().encoded_name(), None, Procedure::NONE);
        }
        match self.process.failure.get() {
            None => Ok(()),
            Some(reason) => Err(HBaseError::io(reason)),
        }
    }
}
