//! HBase's RPC, client side: multiplexed sockets to each server and service.
//!
//! [`Pool`] holds the sockets and opens them on first use. A connect is a single flight: one task
//! connects, all calls that need the socket wait for it, each for its own timeout, and share the
//! socket or the failure. An [`Endpoint`] is one service of one server, with
//! `hbase.client.ipc.pool.size` [`connection::RpcConnection`]s, used round robin. When a socket
//! closes, every call that waits on it fails with a connection error, and the next call connects
//! again. [`frame`] encodes and parses, [`pending_calls`] holds the calls in flight, [`opener`]
//! runs before the first request.
//!
//! Only the edges are generic over messages: a parameter is a [`Param`], and a response stays bytes
//! until its caller decodes it. An async function is compiled once for each message that it is
//! generic over, and in each crate that awaits it, unless it is boxed where it is defined. So rare
//! paths are [`BoxFuture`] futures; the path of a call through an open socket is not.

mod admin_service;
mod compress;
pub(crate) mod connection;
pub(crate) mod frame;
mod opener;
mod pending_calls;
mod status_service;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use prost::Message;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::config::ClientConfig;
use crate::error::{Error, RemoteException, Result};
use connection::RpcConnection;
use frame::Response;
use pending_calls::timed_out;

pub use admin_service::AdminCaller;
pub use compress::CellBlockCodec;
pub use opener::{Opened, Opener, Opening, Transport};
pub use status_service::StatusCaller;

/// The exception of HBase's client for too many concurrent calls to one server.
const SERVER_TOO_BUSY: &str = "org.apache.hadoop.hbase.ipc.ServerTooBusyException";

/// A service of a server. Each service has its own sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Service {
    Client,
    ClientMeta,
    Master,
    Admin,
    RegionServerStatus,
}

impl Service {
    /// The name in the connection header.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "ClientService",
            Self::ClientMeta => "ClientMetaService",
            Self::Master => "MasterService",
            Self::Admin => "AdminService",
            Self::RegionServerStatus => "RegionServerStatusService",
        }
    }
}

/// A future that is compiled once, here, instead of where it is awaited.
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The parameter of a call: any message.
pub(crate) trait Param: Send + Sync {
    /// Its encoded length in bytes.
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

/// One call of any method.
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

/// The outcome of a connect, once it is known. The channel closes if the connecting task ends
/// early.
type Connecting = watch::Receiver<Option<Result<Arc<RpcConnection>>>>;

/// One connection of an endpoint, open or not.
#[derive(Debug, Default)]
struct Slot {
    connection: RwLock<Option<Arc<RpcConnection>>>,
    /// Set while a task connects.
    connecting: Mutex<Option<Connecting>>,
}

impl Slot {
    /// Its connection, if that is open.
    fn open(&self) -> Option<Arc<RpcConnection>> {
        self.connection.read().clone().filter(|connection| connection.is_open())
    }
}

/// One service of one server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: String,
    service: Service,
    config: Arc<ClientConfig>,
    first_slot: Arc<Slot>,
    more_slots: Vec<Arc<Slot>>,
    turn: AtomicUsize,
    calls: AtomicUsize,
}

/// Counts a call to a server until it is dropped.
struct InFlightGuard<'a>(&'a AtomicUsize);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Endpoint {
    /// Calls a method; returns the response and its cell block.
    pub(crate) async fn call<R: Message + Default>(&self, call: Call<'_>) -> Result<(R, Bytes)> {
        let response = self.exchange(call).await?;
        Ok((R::decode(response.message)?, response.cells))
    }

    async fn exchange(&self, mut call: Call<'_>) -> Result<Response> {
        let _counted = self.count()?;
        let turn = match self.more_slots.len() {
            0 => 0,
            more => self.turn.fetch_add(1, Ordering::Relaxed) % (more + 1),
        };
        let slot = self.more_slots.get(turn.wrapping_sub(1)).unwrap_or(&self.first_slot);
        let open = slot.open();
        let connection = match open {
            Some(connection) => connection,
            None => {
                let begun = Instant::now();
                let connection = self.connect(slot, &call).await?;
                call.timeout = call.timeout.saturating_sub(begun.elapsed());
                connection
            }
        };
        connection.call(&call).await
    }

    fn count(&self) -> Result<InFlightGuard<'_>> {
        let others = self.calls.fetch_add(1, Ordering::Relaxed);
        let counted = InFlightGuard(&self.calls);
        if others < self.config.server_calls_max {
            return Ok(counted);
        }
        let text = format!("There are {others} concurrent rpc requests for {}", self.address);
        Err(Error::Remote(Box::new(RemoteException {
            do_not_retry: true,
            ..RemoteException::new(SERVER_TOO_BUSY, &text)
        })))
    }

    /// Waits for a slot's connection, at most for the call's timeout.
    fn connect<'a>(&'a self, slot: &'a Arc<Slot>, call: &Call<'_>) -> BoxFuture<'a, Arc<RpcConnection>> {
        let (method, limit) = (call.method, call.timeout);
        Box::pin(async move {
            let mut connecting = match self.connecting(slot) {
                Ok(connection) => return Ok(connection),
                Err(connecting) => connecting,
            };
            let known = timeout(limit, connecting.wait_for(Option::is_some)).await;
            match known.map_err(|_| timed_out(method, &self.address, limit))? {
                Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(self.gave_up())),
                Err(_) => Err(self.gave_up()),
            }
        })
    }

    fn gave_up(&self) -> Error {
        Error::Connection(format!("{}: connecting ended early", self.address))
    }

    /// The slot's connection if it is open, or the outcome of the connecting task, which is spawned
    /// if there is none. It is a task of its own, so that a caller that times out does not cancel
    /// it for the others.
    fn connecting(&self, slot: &Arc<Slot>) -> Result<Arc<RpcConnection>, Connecting> {
        let mut connecting = slot.connecting.lock();
        // Checked under the lock: a connecting task stores its connection before it clears
        // `connecting`.
        if let Some(connection) = slot.open() {
            return Ok(connection);
        }
        if let Some(pending) = connecting.as_ref().filter(|task| task.has_changed().is_ok()) {
            return Err(pending.clone());
        }
        let (done, outcome) = watch::channel(None);
        *connecting = Some(outcome.clone());
        let (slot, config) = (slot.clone(), self.config.clone());
        let (address, service) = (self.address.clone(), self.service);
        tokio::spawn(async move {
            let connection = RpcConnection::connect(&address, service, &config).await.map(Arc::new);
            if let Ok(connection) = &connection {
                *slot.connection.write() = Some(connection.clone());
            }
            *slot.connecting.lock() = None;
            done.send_replace(Some(connection));
        });
        Err(outcome)
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

    /// Calls a method at `host:port`; returns the response.
    pub(crate) fn call<'a>(&'a self, address: &'a str, call: Call<'a>) -> BoxFuture<'a, Response> {
        Box::pin(async move { self.endpoint(address, call.service).exchange(call).await })
    }

    /// A service of a server, with its sockets. It lives as long as the pool.
    pub(crate) fn endpoint(&self, address: &str, service: Service) -> Arc<Endpoint> {
        let mut endpoints = self.endpoints.lock();
        let new = || {
            let more_slots = (1..self.config.pool_size).map(|_| Arc::default()).collect();
            let (first_slot, turn, calls) = Default::default();
            let (address, config) = (address.to_owned(), self.config.clone());
            Arc::new(Endpoint { address, service, config, first_slot, more_slots, turn, calls })
        };
        endpoints.entry((address.to_owned(), service)).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinSet;

    use super::*;

    /// Counts sockets and never finishes one.
    #[derive(Debug, Default)]
    struct Stuck(AtomicUsize);

    impl Opener for Stuck {
        fn open<'a>(&'a self, _: &'a str, _: &'static str, _: TcpStream) -> Opening<'a> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::pending())
        }
    }

    /// Concurrent calls to a server whose connect never finishes: their errors, the time taken, and
    /// the number of sockets.
    async fn calls(connect_ms: u64, call_ms: u64) -> (Vec<Error>, Duration, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (stuck, ms) = (Arc::new(Stuck::default()), Duration::from_millis);
        let mut config = ClientConfig::new([&*address]);
        config.opener = Some(stuck.clone());
        config.connect_timeout = ms(connect_ms);
        let (pool, begun) = (Arc::new(Pool::new(Arc::new(config))), Instant::now());
        let mut callers = JoinSet::new();
        for _ in 0..8 {
            let (pool, address) = (pool.clone(), address.clone());
            callers.spawn(async move {
                let (method, param, service) = ("GetClusterId", &(), Service::ClientMeta);
                let call = Call { service, method, param, cells: &[], timeout: ms(call_ms), priority: 0 };
                pool.call(&address, call).await.map(drop).expect_err("nobody answers")
            });
        }
        let errors = callers.join_all().await;
        (errors, begun.elapsed(), stuck.0.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_failed_connect_fails_every_waiting_call() {
        let (errors, took, sockets) = calls(300, 60_000).await;
        assert!(errors.iter().all(|e| matches!(e, Error::Connection(_))), "{errors:?}");
        assert!(took >= Duration::from_millis(300) && took < Duration::from_millis(1500), "{took:?}");
        assert_eq!(sockets, 1);
    }

    #[tokio::test]
    async fn a_call_timeout_bounds_the_wait_for_a_connect() {
        let (errors, took, sockets) = calls(60_000, 200).await;
        assert!(errors.iter().all(|e| matches!(e, Error::Timeout(_))), "{errors:?}");
        assert!(took < Duration::from_millis(1400), "{took:?}");
        assert_eq!(sockets, 1);
    }
}
