//! [`ZooKeeperThread`]: the thread that serves the ZooKeeper endpoint.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use evenkeel_common::Result;
use evenkeel_common::thread::{Supervisor, spawn_essential};
use evenkeel_zookeeper::{ZkConfig, ZnodeTree};
use tokio::sync::oneshot;

/// See the module's documentation.
pub(crate) struct ZooKeeperThread {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl ZooKeeperThread {
    /// Serves the tree until [`ZooKeeperThread::stop`].
    ///
    /// # Errors
    /// I/O error if the thread or its runtime cannot be started.
    pub(crate) fn start(
        listener: TcpListener,
        tree: Arc<ZnodeTree>,
        config: ZkConfig,
        supervisor: &Supervisor,
    ) -> Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = move || {
            let served = runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                evenkeel_zookeeper::serve(listener, tree, config, async { drop(stopped.await) }).await
            });
            served.map_err(|error| error.to_string())
        };
        let thread = spawn_essential("zookeeper", supervisor, run)?;
        Ok(Self { stop, thread })
    }

    /// Ends all connections and the thread.
    pub(crate) fn stop(self) {
        let _already_gone = self.stop.send(());
        drop(self.thread.join());
    }
}
