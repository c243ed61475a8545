//! [`AdminCaller`]: calls of a RegionServer to another one, `AdminService`.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;

use crate::config::ClientConfig;
use crate::error::Result;
use crate::rpc::{Call, Pool, Service};

/// Sockets to RegionServers. A socket that is lost is opened again by the next call.
#[derive(Debug)]
pub struct AdminCaller {
    pool: Pool,
}

impl AdminCaller {
    /// A caller without open sockets. It uses only the settings of sockets, `user` and `version`.
    pub fn new(config: ClientConfig) -> Self {
        Self { pool: Pool::new(Arc::new(config)) }
    }

    /// Makes one call to the RegionServer at `host:port`, without retries.
    ///
    /// # Errors
    /// The server's exception; `Error::Connection` if the connection fails or is lost;
    /// `Error::Timeout` without a reply within `timeout`; `Error::Protocol` if the reply does not
    /// decode as `R`.
    pub async fn call<R: Message + Default>(
        &self,
        address: &str,
        method: &'static str,
        request: &impl Message,
        timeout: Duration,
    ) -> Result<R> {
        self.call_with_cells(address, method, request, &[], timeout).await
    }

    /// As [`AdminCaller::call`], with a cell block, in the form of the codec that
    /// [`ClientConfig::tags`] selects.
    ///
    /// # Errors
    /// As [`AdminCaller::call`].
    pub async fn call_with_cells<R: Message + Default>(
        &self,
        address: &str,
        method: &'static str,
        request: &impl Message,
        cells: &[u8],
        timeout: Duration,
    ) -> Result<R> {
        let call = Call { service: Service::Admin, method, param: request, cells, timeout, priority: 0 };
        Ok(R::decode(self.pool.call(address, call).await?.message)?)
    }
}
