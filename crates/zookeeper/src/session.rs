//! Sessions: an id, a password derived from it, and a timeout after which a silent session expires.
//!
//! A session owns only the watches of its connection, which the client sets again after a
//! reconnect. So nothing is kept on disk: a session of an earlier run (its id is below all ids of
//! this run) with the right password is restored. An unknown session of this run has expired or was
//! closed, and stays expired.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The limit on sessions, with or without a connection.
const SESSIONS_MAX: u64 = 1 << 16;
/// This many sessions are always allowed, however small the memory.
const SESSIONS_MIN: u64 = 256;
/// Bytes that a session takes.
const SESSION_BYTES: u64 = 160;
/// Sessions may use 1/`MEMORY_PART` of the endpoint's memory.
const MEMORY_PART: u64 = 4;

/// A session bound to a connection.
#[derive(Debug)]
pub(super) struct SessionHandle {
    pub(super) id: i64,
    pub(super) password: [u8; 16],
    /// How long the client may be silent.
    pub(super) timeout: Duration,
    /// Notified when another connection takes the session over.
    pub(super) taken_over: Arc<Notify>,
}

/// Why a client gets no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttachError {
    /// Expired, closed, or a wrong password: the client must open a new session.
    Expired,
    /// Too many sessions: the client must wait.
    Full,
}

/// All sessions of this run.
#[derive(Debug)]
pub(super) struct Sessions {
    secret: u64,
    first_id: i64,
    sessions_max: usize,
    table: Mutex<SessionTable>,
}

#[derive(Debug)]
struct SessionTable {
    next_id: i64,
    sessions: HashMap<i64, Session>,
}

#[derive(Debug)]
struct Session {
    timeout: Duration,
    /// When it expires; set while no connection is bound to it.
    expires: Option<Instant>,
    taken_over: Arc<Notify>,
}

impl Sessions {
    /// Ids start at the wall clock, as ZooKeeper's do: 40 bits of milliseconds above 16 bits of
    /// counter. `memory_bytes` is the endpoint's memory.
    pub(super) fn new(now_ms: i64, secret: u64, memory_bytes: u64) -> Self {
        let first_id = ((now_ms & ((1 << 40) - 1)) << 16) + 1;
        let affordable = memory_bytes / MEMORY_PART / SESSION_BYTES;
        let sessions_max = affordable.clamp(SESSIONS_MIN, SESSIONS_MAX) as usize;
        let table = Mutex::new(SessionTable { next_id: first_id, sessions: HashMap::new() });
        Self { secret, first_id, sessions_max, table }
    }

    /// Binds a connection to a new session (`id` 0) or to its previous one.
    pub(super) fn attach(
        &self,
        id: i64,
        password: &[u8],
        timeout: Duration,
    ) -> Result<SessionHandle, AttachError> {
        let mut table = self.table.lock();
        let id = if id == 0 { table.new_id() } else { self.known(&table, id, password)? };
        if !table.evict_if_full(id, self.sessions_max) {
            return Err(AttachError::Full);
        }
        let session = Session { timeout, expires: None, taken_over: Arc::new(Notify::new()) };
        let taken_over = session.taken_over.clone();
        if let Some(before) = table.sessions.insert(id, session) {
            before.taken_over.notify_one();
        }
        Ok(SessionHandle { id, password: self.password(id), timeout, taken_over })
    }

    fn known(&self, table: &SessionTable, id: i64, password: &[u8]) -> Result<i64, AttachError> {
        let of_earlier_run = id > 0 && id < self.first_id;
        let known = table.sessions.contains_key(&id) || of_earlier_run;
        if known && password == self.password(id) { Ok(id) } else { Err(AttachError::Expired) }
    }

    /// The connection has ended; the session waits for another one until its timeout.
    pub(super) fn detach(&self, handle: &SessionHandle, now: Instant) {
        self.with_own(handle, |session| session.expires = Some(now + session.timeout));
    }

    /// Removes a session that the client closed, or whose client was silent for too long.
    pub(super) fn close(&self, handle: &SessionHandle) {
        let mut table = self.table.lock();
        let own = |session: &Session| Arc::ptr_eq(&session.taken_over, &handle.taken_over);
        if table.sessions.get(&handle.id).is_some_and(own) {
            table.sessions.remove(&handle.id);
        }
    }

    fn with_own(&self, handle: &SessionHandle, change: impl FnOnce(&mut Session)) {
        let mut table = self.table.lock();
        let session = table.sessions.get_mut(&handle.id);
        if let Some(session) = session.filter(|s| Arc::ptr_eq(&s.taken_over, &handle.taken_over)) {
            change(session);
        }
    }

    /// Removes the sessions whose client did not reconnect in time.
    pub(super) fn expire(&self, now: Instant) {
        self.table.lock().sessions.retain(|_, session| session.expires.is_none_or(|at| at > now));
    }

    /// Returns the number of sessions.
    pub(super) fn count(&self) -> usize {
        self.table.lock().sessions.len()
    }

    /// The password is a function of the id. It keeps clients from mixing up sessions; it protects
    /// no secret.
    fn password(&self, id: i64) -> [u8; 16] {
        let high = mix(id as u64 ^ self.secret);
        let low = mix(high);
        (u128::from(high) << 64 | u128::from(low)).to_be_bytes()
    }
}

impl SessionTable {
    fn new_id(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id
    }

    /// Makes room for a session: if all are taken, removes the session without a connection that
    /// would expire first. Returns false if there is none.
    fn evict_if_full(&mut self, id: i64, sessions_max: usize) -> bool {
        if self.sessions.len() < sessions_max || self.sessions.contains_key(&id) {
            return true;
        }
        let waiting = self.sessions.iter().filter_map(|(id, session)| Some((session.expires?, *id)));
        waiting.min().is_some_and(|(_, id)| self.sessions.remove(&id).is_some())
    }
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
