//! HBase's RPC, client side: one multiplexed socket per server and service.
//!
//! [`Pool`] holds the sockets and makes them on first use; one task connects while others wait for it. A
//! [`link::Link`] is one socket: requests go through a bounded queue to a writing task, a reading task hands responses
//! to whoever waits for that call id. When the socket ends, every waiting call fails with a connection error and the
//! next call connects anew. [`frame`] knows the bytes.

pub(crate) mod frame;
pub(crate) mod link;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;

use crate::config::ClientConfig;
use crate::error::Result;
use link::Link;

/// A service of a server; each has sockets of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    Client,
    ClientMeta,
    Master,
    Admin,
}

impl Service {
    /// The name in the connection header.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "ClientService",
            Self::ClientMeta => "ClientMetaService",
            Self::Master => "MasterService",
            Self::Admin => "AdminService",
        }
    }
}

/// One call: what is common to all methods.
#[derive(Debug)]
pub(crate) struct Call<'a, M> {
    pub(crate) service: Service,
    pub(crate) method: &'static str,
    pub(crate) param: &'a M,
    /// A cell block, empty for none.
    pub(crate) cells: &'a [u8],
    pub(crate) timeout: Duration,
    /// HBase's priority; 0 is not sent.
    pub(crate) priority: u32,
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Link>>>>;

/// The sockets of one connection to a cluster.
#[derive(Debug)]
pub(crate) struct Pool {
    config: Arc<ClientConfig>,
    slots: Mutex<HashMap<(String, Service), Slot>>,
}

impl Pool {
    pub(crate) fn new(config: Arc<ClientConfig>) -> Self {
        Self { config, slots: Mutex::default() }
    }

    /// Calls a method at `host:port`; gives the response and its cell block.
    pub(crate) async fn call<M: Message, R: Message + Default>(
        &self,
        address: &str,
        call: Call<'_, M>,
    ) -> Result<(R, Bytes)> {
        let link = self.link(address, call.service).await?;
        let response = link.call(&call).await?;
        Ok((R::decode(response.message)?, response.cells))
    }

    async fn link(&self, address: &str, service: Service) -> Result<Arc<Link>> {
        let slot = self.slots.lock().entry((address.to_owned(), service)).or_default().clone();
        let mut slot = slot.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| link.is_open()) {
            return Ok(link.clone());
        }
        let link = Arc::new(Link::connect(address, service, &self.config).await?);
        *slot = Some(link.clone());
        Ok(link)
    }
}
