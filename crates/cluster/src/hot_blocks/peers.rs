//! [`Peers`]: the other servers of the cluster, to which hot blocks are told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_client::{AdminCaller, ClientConfig};
use evenkeel_common::{HBaseError, Result, ServerName};
use evenkeel_protocol::pb;
use evenkeel_regionserver::is_evenkeel;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::session::Session;

/// How long a call may take. A later list comes too late.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Servers that are remembered. A server that restarts has another name.
const KNOWN_MAX: usize = 10_000;

/// The other servers.
pub trait Peers: Send + Sync {
    /// Returns true if a server takes lists of hot blocks, as far as is known. May wait.
    fn takes_lists(&self, server: &ServerName) -> bool;

    /// Sends a list. Waits for the reply.
    ///
    /// # Errors
    /// The server's exception, and errors of the connection.
    fn tell(&self, server: &ServerName, request: pb::HotBlocksRequest) -> Result<()>;
}

/// The servers that ZooKeeper lists. A server is Evenkeel if its znode says so, so that no server
/// of HBase ever gets a call that it does not know.
pub struct ClusterPeers {
    session: Arc<Session>,
    caller: AdminCaller,
    runtime: Handle,
    takes_lists: Mutex<HashMap<ServerName, bool>>,
}

impl ClusterPeers {
    /// Creates it without connections.
    pub fn new(session: &Arc<Session>, runtime: &Handle, version: &str) -> Arc<Self> {
        let config = ClientConfig { version: version.to_owned(), ..ClientConfig::new(Vec::<String>::new()) };
        Arc::new(Self {
            session: Arc::clone(session),
            caller: AdminCaller::new(config),
            runtime: runtime.clone(),
            takes_lists: Mutex::default(),
        })
    }

    fn remember(&self, server: &ServerName, takes_lists: bool) {
        let mut known = self.takes_lists.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(server.clone(), takes_lists);
    }
}

impl Peers for ClusterPeers {
    fn takes_lists(&self, server: &ServerName) -> bool {
        if let Some(known) = self.takes_lists.lock().get(server) {
            return *known;
        }
        let Some(version) = self.session.version_of(server) else { return false };
        let takes_lists = is_evenkeel(&version);
        self.remember(server, takes_lists);
        takes_lists
    }

    fn tell(&self, server: &ServerName, request: pb::HotBlocksRequest) -> Result<()> {
        let address = server.host_port();
        let call =
            self.caller.call::<pb::HotBlocksResponse>(&address, "EvenkeelHotBlocks", &request, CALL_TIMEOUT);
        self.runtime.block_on(call).map(drop).map_err(|error| {
            if error.is_final() {
                self.remember(server, false);
            }
            HBaseError::io(error.to_string())
        })
    }
}
