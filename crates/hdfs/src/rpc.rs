//! Hadoop RPC, IPC version 9, with simple authentication.
//!
//! An [`RpcClient`] has a client id of 16 random bytes and a counter of call ids. A call keeps both
//! ids when it is retried on another connection or on another NameNode, so the server's retry cache
//! returns the first outcome. Thus every call may be retried: the calls that are not idempotent
//! (`create`, `rename2`, `delete`) are covered by that cache.
//!
//! A connection carries one call at a time. Idle connections are kept for the next call, at most
//! [`IDLE_CONNECTIONS_MAX`] of them for [`IDLE_MAX`]; threads that call concurrently use one each.
//! So no thread has to dispatch replies to others, and a timed-out call closes its connection.
//!
//! | outcome | reaction |
//! |---|---|
//! | `StandbyException`; no or a broken connection; a timeout | failover to the next NameNode |
//! | `RetriableException`; `SafeModeException`, as during startup | retry there, after a pause |
//! | an idle connection that turns out to be closed | retry there, on a new connection, uncounted |
//! | any other exception | returned to the caller |
//!
//! When an idle connection turns out to be closed, the server has probably ended: its other idle
//! connections are closed, too, so that a call loses none of its retries to them.
//!
//! | module | contents |
//! |---|---|
//! | `connection` | one connection: handshake, frames |

mod connection;

pub(crate) use connection::connect;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;
use prost::Message;

use crate::Settings;
use crate::error::{HdfsError, Result};
use connection::{CallId, Connection};

/// The protocol of NameNodes for clients.
pub const CLIENT_PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";

/// The protocol of DataNodes for clients.
pub const DATANODE_PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol";

/// The maximum of idle connections kept for each server.
pub const IDLE_CONNECTIONS_MAX: usize = 8;

/// How long an idle connection is kept. A server closes idle connections after about twice that
/// time.
pub const IDLE_MAX: Duration = Duration::from_secs(8);

/// A client of one protocol on one server, or on the servers of a pair.
#[derive(Debug)]
pub struct RpcClient {
    protocol: &'static str,
    user: String,
    client_id: [u8; 16],
    next_call: AtomicU32,
    servers: Vec<RpcServer>,
    /// The index of the server to call first: the last one that was not failed over.
    active: AtomicUsize,
    limits: Limits,
}

/// The deadlines and retry limits of a client.
#[derive(Clone, Copy, Debug)]
struct Limits {
    connect: Duration,
    call: Duration,
    attempts: u32,
    pause: Duration,
    pause_max: Duration,
}

/// One server and its idle connections, the newest last.
#[derive(Debug)]
struct RpcServer {
    address: String,
    idle: Mutex<Vec<(Connection, Instant)>>,
}

/// A call that failed on one server.
struct FailedCall {
    error: HdfsError,
    /// The connection had been idle: the server may have closed it before the call.
    was_idle: bool,
}

impl RpcClient {
    /// A client of the NameNodes of `settings`.
    pub fn of_namenodes(settings: &Settings) -> Self {
        Self::new(CLIENT_PROTOCOL, settings.user.clone(), settings.namenodes.clone(), settings)
    }

    /// A client of one DataNode's `ipcPort`; `user` is the block's name.
    pub fn of_datanode(address: String, user: String, settings: &Settings) -> Self {
        let mut client = Self::new(DATANODE_PROTOCOL, user, vec![address], settings);
        client.limits.attempts = 1;
        client
    }

    fn new(protocol: &'static str, user: String, addresses: Vec<String>, settings: &Settings) -> Self {
        let servers = addresses.into_iter().map(|address| RpcServer { address, idle: Mutex::default() });
        Self {
            protocol,
            user,
            client_id: (u128::from(random_u64()) << 64 | u128::from(random_u64())).to_be_bytes(),
            next_call: AtomicU32::new(0),
            servers: servers.collect(),
            active: AtomicUsize::new(0),
            limits: Limits {
                connect: settings.connect_timeout,
                call: settings.call_timeout,
                attempts: settings.attempts_max,
                pause: settings.retry_pause,
                pause_max: settings.retry_pause_max,
            },
        }
    }

    /// Calls `method`; retries it, on other servers too, if the failure allows it.
    ///
    /// # Errors
    /// The exception that the server returned, or [`HdfsError::Transport`] if no server answered
    /// within the retries: the outcome of a change is then unknown.
    pub fn call<R: Message + Default>(&self, method: &str, request: &impl Message) -> Result<R> {
        let call = self.next_call.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff;
        let mut pauses = Backoff::new(self.limits.pause, self.limits.pause_max);
        let (mut retry, mut failures) = (0, 0);
        let mut reuse = true;
        loop {
            let at = self.active.load(Ordering::Relaxed);
            let id = CallId { client: self.client_id, call, retry };
            let failure = match self.call_once(at, id, method, request, reuse) {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let reaction = retry_action(&failure);
            if reaction == RetryAction::Fail || failures >= self.limits.attempts {
                return Err(failure.error);
            }
            tracing::debug!(method, retry, error = %failure.error, "a call is repeated");
            retry += 1;
            reuse = reaction != RetryAction::SameServerAtOnce;
            if !reuse {
                self.servers.get(at).into_iter().for_each(RpcServer::close_idle);
                continue;
            }
            failures += 1;
            if reaction == RetryAction::NextServer {
                self.leave(at);
            }
            pauses.pause(reaction == RetryAction::NextServer && self.servers.len() > 1);
        }
    }

    /// Fails over from server `at` to the next one, unless another thread has done so.
    fn leave(&self, at: usize) {
        let next = (at + 1) % self.servers.len().max(1);
        let _ = self.active.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Calls one server, with `reuse` on an idle connection if there is one.
    fn call_once<R: Message + Default>(
        &self,
        at: usize,
        id: CallId,
        method: &str,
        request: &impl Message,
        reuse: bool,
    ) -> std::result::Result<R, FailedCall> {
        let fresh = |error: HdfsError| FailedCall { error, was_idle: false };
        let server = self.servers.get(at).ok_or_else(|| fresh(no_server()))?;
        let kept = if reuse { server.take_idle() } else { None };
        let was_idle = kept.is_some();
        let mut connection = match kept {
            Some(connection) => connection,
            None => Connection::open(&server.address, self.limits.connect).map_err(|e| fresh(e.into()))?,
        };
        let deadline = clock::monotonic() + self.limits.call;
        let call = connection.call(self.protocol, &self.user, id, method, request, deadline);
        let reply = call.map_err(|error| FailedCall { error, was_idle });
        if reply.is_ok() || connection.is_usable() {
            server.keep(connection);
        }
        reply
    }
}

impl RpcServer {
    fn take_idle(&self) -> Option<Connection> {
        let now = clock::monotonic();
        let mut idle = self.idle.lock();
        idle.retain(|(_, since)| now.duration_since(*since) < IDLE_MAX);
        idle.pop().map(|(connection, _)| connection)
    }

    fn close_idle(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push((connection, clock::monotonic()));
        }
    }
}

fn no_server() -> HdfsError {
    HdfsError::Transport(std::io::Error::new(std::io::ErrorKind::InvalidInput, "no NameNode is configured"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryAction {
    Fail,
    SameServerAtOnce,
    SameServer,
    NextServer,
}

fn retry_action(failure: &FailedCall) -> RetryAction {
    match &failure.error {
        HdfsError::Remote(exception) if exception.is_standby() => RetryAction::NextServer,
        HdfsError::Remote(exception) if exception.is_retriable() || exception.is_safe_mode() => {
            RetryAction::SameServer
        }
        HdfsError::Remote(_) | HdfsError::Protocol(_) => RetryAction::Fail,
        HdfsError::Transport(e) if e.kind() == std::io::ErrorKind::InvalidInput => RetryAction::Fail,
        HdfsError::Transport(e) if failure.was_idle && !is_timeout(e) => RetryAction::SameServerAtOnce,
        HdfsError::Transport(_) => RetryAction::NextServer,
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock)
}

/// Backoff between retries: exponential backoff up to a limit, times a random factor of 0.5 to 1.5.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
    count: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Self { next: first, max, count: 0 }
    }

    /// Sleeps, except before the first failover: the other server may be called immediately.
    pub(crate) fn pause(&mut self, is_failover: bool) {
        self.count += 1;
        if is_failover && self.count == 1 {
            return;
        }
        let factor = random_u64() % 1000 + 500;
        let micros = self.next.as_micros() * u128::from(factor) / 1000;
        std::thread::sleep(Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)));
        self.next = (self.next * 2).min(self.max);
    }
}

/// Returns a random number: the standard library takes the keys of its hash maps from the system's
/// random number generator.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests;
