//! HBase's RPC, client side: multiplexed sockets to each server and service.
//!
//! [`Pool`] holds the sockets and makes them on first use; one task connects while others wait for it. An [`Endpoint`] is
//! one service of one server, with as many [`link::Link`]s as `hbase.client.ipc.pool.size` says, used in turn. When a
//! socket ends, every call that waits on it fails with a connection error and the next call connects anew. [`frame`] knows
//! the bytes, [`calls`] who waits for what, [`open`] what comes before the first request.
//!
//! Messages are told apart at the edges alone: a parameter is a [`Param`], an answer bytes until its caller decodes it. An
//! async function is compiled anew for each message that it is generic over, and in each crate that awaits it unless it is
//! boxed where it is written; so what is seldom done is a [`Boxed`] future, and the way of a call through an open socket,
//! which is done all the time, is not.

mod calls;
mod compress;
pub(crate) mod frame;
pub(crate) mod link;
mod open;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use prost::Message;

use crate::config::ClientConfig;
use crate::error::{Error, RemoteException, Result};
use frame::Response;
use link::Link;

pub use compress::Compressor;
pub use open::{Opened, Opener, Opening, Transport};

/// What HBase's client raises when a server has too many calls of this client.
const SERVER_TOO_BUSY: &str = "org.apache.hadoop.hbase.ipc.ServerTooBusyException";

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

/// A future whose code is here, once, and not where it is awaited.
pub(crate) type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The parameter of a call: any message.
pub(crate) trait Param: Send + Sync {
    /// Bytes that it takes.
    fn len(&self) -> usize;

    /// Appends it.
    fn write(&self, out: &mut Vec<u8>);
}

impl<M: Message> Param for M {
    fn len(&self) -> usize {
        self.encoded_len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.encode_raw(out);
    }
}

/// One call: what is common to all methods.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) service: Service,
    pub(crate) method: &'static str,
    pub(crate) param: &'a dyn Param,
    /// A cell block, empty for none.
    pub(crate) cells: &'a [u8],
    pub(crate) timeout: Duration,
    /// HBase's priority; 0 is not sent.
    pub(crate) priority: u32,
}

/// One place for a link of an endpoint.
#[derive(Debug, Default)]
struct Slot {
    link: RwLock<Option<Arc<Link>>>,
    connecting: tokio::sync::Mutex<()>,
}

impl Slot {
    /// Its link, while that is open.
    fn open(&self) -> Option<Arc<Link>> {
        self.link.read().clone().filter(|link| link.is_open())
    }
}

/// One service of one server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: String,
    service: Service,
    config: Arc<ClientConfig>,
    slots: Vec<Slot>,
    turn: AtomicUsize,
    calls: AtomicUsize,
}

/// A call that counts among those of its server.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Endpoint {
    /// Calls a method; gives the response and its cell block.
    pub(crate) async fn call<R: Message + Default>(&self, call: Call<'_>) -> Result<(R, Bytes)> {
        let response = self.exchange(call).await?;
        Ok((R::decode(response.message)?, response.cells))
    }

    async fn exchange(&self, call: Call<'_>) -> Result<Response> {
        let _counted = self.count()?;
        let turn = match self.slots.len() {
            1 => 0,
            n => self.turn.fetch_add(1, Ordering::Relaxed) % n,
        };
        let slot = &self.slots[turn];
        let open = slot.open();
        let link = match open {
            Some(link) => link,
            None => self.connect(slot).await?,
        };
        link.call(&call).await
    }

    fn count(&self) -> Result<Counted<'_>> {
        let others = self.calls.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(&self.calls);
        if others < self.config.server_calls_max {
            return Ok(counted);
        }
        let text = format!("There are {others} concurrent rpc requests for {}", self.address);
        Err(Error::Remote(Box::new(RemoteException {
            do_not_retry: true,
            ..RemoteException::new(SERVER_TOO_BUSY, &text)
        })))
    }

    fn connect<'a>(&'a self, slot: &'a Slot) -> Boxed<'a, Arc<Link>> {
        Box::pin(async move {
            let _one = slot.connecting.lock().await;
            if let Some(link) = slot.open() {
                return Ok(link);
            }
            let link = Arc::new(Link::connect(&self.address, self.service, &self.config).await?);
            *slot.link.write() = Some(link.clone());
            Ok(link)
        })
    }
}

/// The sockets of one connection to a cluster.
#[derive(Debug)]
pub(crate) struct Pool {
    config: Arc<ClientConfig>,
    endpoints: Mutex<HashMap<(String, Service), Arc<Endpoint>>>,
}

impl Pool {
    pub(crate) fn new(config: Arc<ClientConfig>) -> Self {
        Self { config, endpoints: Mutex::default() }
    }

    /// Calls a method at `host:port`; gives the response.
    pub(crate) fn call<'a>(&'a self, address: &'a str, call: Call<'a>) -> Boxed<'a, Response> {
        Box::pin(async move { self.endpoint(address, call.service).exchange(call).await })
    }

    /// A service of a server, with its sockets. It stays the same as long as the pool.
    pub(crate) fn endpoint(&self, address: &str, service: Service) -> Arc<Endpoint> {
        let mut endpoints = self.endpoints.lock();
        let new = || {
            let slots = (0..self.config.pool_size.max(1)).map(|_| Slot::default()).collect();
            let (turn, calls) = Default::default();
            let (address, config) = (address.to_owned(), self.config.clone());
            Arc::new(Endpoint { address, service, config, slots, turn, calls })
        };
        endpoints.entry((address.to_owned(), service)).or_insert_with(new).clone()
    }
}
