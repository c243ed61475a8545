//! [`Scanners`]: open scanners, their leases, and the memory that they hold.
//!
//! A call *takes* its scanner, so that no two calls use it at once, and puts it back with a new
//! lease at the end. [`Scanners::expire`] drops a scanner that no call takes for the length of a
//! lease. The ids of scanners that were closed normally are remembered for the same time: old
//! clients call once more, and get an empty reply.
//!
//! Ids are unique across restarts: the upper half of an id is a hash of the server's name, which
//! includes its start time; the lower half is a counter.
//!
//! Scanners of a region that is no longer online stay until their next call or the end of their
//! lease, because only a reply (`NotServingRegionException`) can make the client locate the region
//! again.
//!
//! # Memory that a scanner holds
//! Its [`ScannerCharge`] covers the request that opened it, its filter, its state within the
//! current row, and the blocks at its positions. The charge is computed when the scanner is opened
//! and again when it is put back. If too many blocks are outside of the caches ([`heap_blocks`]), a
//! scanner that is put back first releases its blocks, and its next call loads them again. Scanners
//! of system tables and of user tables have separate limits ([`ScannerLimits`]), so that neither
//! can use the other's memory.
//!
//! # When a limit is exceeded
//! HBase has no limit. Here, a scanner that exceeds the limit makes the server close other scanners
//! that wait for their next call. Their clients get `UnknownScannerException`, at which they open
//! another scanner after the last row that they have. The rules for the scanner to close:
//!
//! * It belongs to the connection whose scanners hold the most bytes, including the new scanner.
//!   The least recently used scanner of that connection is closed. So a client that opens many
//!   scanners, or large ones, closes its own.
//! * A scanner used within the last [`ACTIVE_MS`] is protected, unless it belongs to the connection
//!   that exceeds the limit, or its connection holds more than 1/[`FAIR_SHARE_DIVISOR`] of the
//!   limit. So no client can close the scanners that other clients are reading from.
//!
//! If no scanner may be closed, the new scanner is rejected with `RegionTooBusyException`, at which
//! clients back off and retry.
//!
//! # Flushed MemStores
//! A scanner pins the MemStore segments that it began with, and so their chunks, which a flush
//! would otherwise free. [`Scanners::close_scanners_pinning_flushed`] closes waiting scanners that
//! pin flushed segments, least recently used first, until the rest pin no more than a bound. HBase
//! switches such a scanner to the flushed file. The file has all cells that the scanner's read
//! point sees, because scanners register their read points. Flushes here do not keep cells that
//! only an older read point sees (see `evenkeel_region::region`), so the client opens another
//! scanner, with a new read point.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use bytes::Bytes;
use evenkeel_block_cache::heap_blocks;
use evenkeel_common::clock::Clock;
use evenkeel_common::{ErrorKind, HBaseError, Result as HResult, ServerName};
use evenkeel_region::region::Region;
use evenkeel_region::region::RegionScanner;
use evenkeel_rpc::ConnectionLease;
use parking_lot::Mutex;

use crate::RegionServerConfig;
use crate::quotas::operation::BlockBytes;

/// The maximum number of remembered ids of closed scanners.
const CLOSED_MAX: usize = 64 << 10;

/// The memory of a scanner when their number is derived from a memory limit: a block of the default
/// size.
pub const SCANNER_BYTES: u64 = 64 << 10;
/// A scanner used within this many milliseconds is not closed in favour of another connection.
pub const ACTIVE_MS: i64 = 5_000;
/// A connection whose scanners hold more than this fraction (1/`FAIR_SHARE_DIVISOR`) is not
/// protected by [`ACTIVE_MS`].
pub const FAIR_SHARE_DIVISOR: u64 = 16;
/// Memory of a scanner that is not counted otherwise: its table entry, the region's handle,
/// allocator overhead.
const SCANNER_BYTES_MIN: u64 = 4 << 10;

/// Limits for open scanners.
#[derive(Clone, Copy, Debug)]
pub struct ScannerLimits {
    /// Number of scanners of user tables.
    pub scanners_max: usize,
    /// Bytes held by scanners of user tables.
    pub bytes_max: u64,
    /// Bytes held by scanners of system tables.
    pub system_bytes_max: u64,
}

impl ScannerLimits {
    /// Returns the limits of a server.
    pub fn of(config: &RegionServerConfig) -> Self {
        Self {
            scanners_max: config.scanners_max,
            bytes_max: config.scanner_bytes_max,
            system_bytes_max: config.system_scanner_bytes_max,
        }
    }
}

/// A scanner between two calls of its client.
pub struct OpenScanner {
    /// Its region, as it was when the scanner was opened.
    pub region: Arc<Region>,
    /// The scanner of the region, with its position.
    pub scanner: RegionScanner,
    /// The sequence number that the client's next call must carry, if it carries one.
    pub next_call_seq: u64,
    /// The row of the last result, if that row is not complete yet.
    pub partial_row: Option<Bytes>,
    /// The maximum number of cells in a result; 0 for no limit.
    pub batch: usize,
    /// The maximum reply size in bytes, if the client sets it.
    pub max_result_bytes: Option<u64>,
    /// True if heartbeats carry a cursor that shows the progress of the scan.
    pub need_cursor: bool,
    /// True if results must be whole rows because the filter judges whole rows.
    pub whole_rows: bool,
    /// Whether it is for all rows of the region.
    pub is_full: bool,
    /// Whether its filter may cost much for each cell.
    pub is_costly: bool,
    /// Bytes of the request that opened it, and of its filter.
    pub request_bytes: u64,
    /// Bytes of blocks that its calls have read.
    pub block_bytes: BlockBytes,
    /// The address of the connection that used it last; `None` if there is none, as in tests.
    pub owner: Option<SocketAddr>,
    /// Marks that connection as in use.
    pub lease: Option<ConnectionLease>,
}

impl OpenScanner {
    fn is_system(&self) -> bool {
        self.region.info().table().is_system()
    }

    /// Returns true if its calls may run on the priority handlers.
    fn has_priority(&self) -> bool {
        self.is_system() && !self.is_costly
    }

    fn charge(&self) -> ScannerCharge {
        let row = self.partial_row.as_ref().map_or(0, |row| row.len() as u64);
        let bytes = SCANNER_BYTES_MIN + self.request_bytes + row + self.scanner.held_bytes();
        ScannerCharge { bytes, is_system: self.is_system(), owner: self.owner }
    }
}

/// The memory that a scanner holds, and its owner.
#[derive(Clone, Copy, Debug)]
struct ScannerCharge {
    bytes: u64,
    is_system: bool,
    owner: Option<SocketAddr>,
}

struct ScannerEntry {
    charge: ScannerCharge,
    has_priority: bool,
    expires_ms: i64,
    /// `None` while a call has taken it.
    idle: Option<Box<OpenScanner>>,
}

struct ClosedScanner {
    next_call_seq: u64,
    expires_ms: i64,
}

/// Use and limits of the scanners of user tables, or of system tables.
#[derive(Clone, Copy, Debug)]
struct ScannerQuota {
    count: usize,
    bytes: u64,
    count_max: usize,
    bytes_max: u64,
}

impl ScannerQuota {
    fn of(count_max: usize, bytes_max: u64) -> Self {
        Self { count: 0, bytes: 0, count_max, bytes_max }
    }

    fn is_over(&self) -> bool {
        self.count > self.count_max || self.bytes > self.bytes_max
    }
}

struct State {
    entries: HashMap<u64, ScannerEntry>,
    closed: HashMap<u64, ClosedScanner>,
    users: ScannerQuota,
    system: ScannerQuota,
}

impl State {
    fn part(&mut self, is_system: bool) -> &mut ScannerQuota {
        if is_system { &mut self.system } else { &mut self.users }
    }

    fn insert(&mut self, id: u64, entry: ScannerEntry) {
        let part = self.part(entry.charge.is_system);
        part.count += 1;
        part.bytes += entry.charge.bytes;
        if let Some(before) = self.entries.insert(id, entry) {
            self.uncount(&before);
        }
    }

    fn remove(&mut self, id: u64) -> Option<ScannerEntry> {
        let entry = self.entries.remove(&id)?;
        self.uncount(&entry);
        Some(entry)
    }

    fn uncount(&mut self, entry: &ScannerEntry) {
        let part = self.part(entry.charge.is_system);
        part.count -= 1;
        part.bytes -= entry.charge.bytes;
    }

    /// Removes idle scanners until the limits that apply to this charge hold, or no more may be
    /// removed. Returns them.
    fn evict_over_limit(&mut self, charge: ScannerCharge, now_ms: i64, lease_ms: i64) -> Vec<ScannerEntry> {
        let mut ended = Vec::new();
        while self.part(charge.is_system).is_over() {
            match self.next_to_end(charge, now_ms, lease_ms) {
                Some(id) => ended.extend(self.remove(id)),
                None => break,
            }
        }
        ended
    }

    /// Returns the next scanner to close. The rules are in the module's documentation.
    fn next_to_end(&self, asking: ScannerCharge, now_ms: i64, lease_ms: i64) -> Option<u64> {
        let part = if asking.is_system { &self.system } else { &self.users };
        let of_part = || self.entries.iter().filter(|(_, entry)| entry.charge.is_system == asking.is_system);
        let mut held: HashMap<Option<SocketAddr>, u64> = HashMap::new();
        of_part().for_each(|(_, entry)| *held.entry(entry.charge.owner).or_default() += entry.charge.bytes);
        let fair = part.bytes_max / FAIR_SHARE_DIVISOR;
        let of_owner = |entry: &ScannerEntry| held.get(&entry.charge.owner).copied().unwrap_or(0);
        let may_end = |entry: &ScannerEntry| {
            let idle_ms = now_ms.saturating_add(lease_ms).saturating_sub(entry.expires_ms);
            entry.charge.owner == asking.owner || idle_ms >= ACTIVE_MS || of_owner(entry) > fair
        };
        let idle = of_part().filter(|(_, entry)| entry.idle.is_some() && may_end(entry));
        let first =
            idle.min_by_key(|(id, entry)| (std::cmp::Reverse(of_owner(entry)), entry.expires_ms, **id));
        first.map(|(id, _)| *id)
    }
}

/// The reason why a scanner cannot be taken.
#[derive(Debug)]
pub enum TakeError {
    /// It was closed normally; the number is the sequence number that its next call would have
    /// carried.
    Closed(u64),
    /// The error for the client.
    Error(HBaseError),
}

/// See the module's documentation.
pub struct Scanners {
    prefix: u64,
    counter: AtomicU32,
    lease_ms: i64,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Leases that expired since the start.
    leases_expired: AtomicU64,
}

impl Scanners {
    /// Creates an empty table of scanners.
    pub fn new(server: &ServerName, lease_ms: i64, limits: ScannerLimits, clock: Arc<dyn Clock>) -> Self {
        let mut hasher = DefaultHasher::new();
        server.to_string().hash(&mut hasher);
        let prefix = hasher.finish() << 32;
        let state = State {
            entries: HashMap::new(),
            closed: HashMap::new(),
            users: ScannerQuota::of(limits.scanners_max, limits.bytes_max),
            system: ScannerQuota::of(usize::MAX, limits.system_bytes_max),
        };
        Self {
            prefix,
            counter: AtomicU32::new(0),
            lease_ms,
            clock,
            state: Mutex::new(state),
            leases_expired: AtomicU64::new(0),
        }
    }

    /// Returns an id for a scanner that will be opened. Never 0: some clients take 0 for no
    /// scanner.
    pub fn new_id(&self) -> u64 {
        let number = self.counter.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        self.prefix | u64::from(number)
    }

    /// Adds a scanner that was opened, and marks it as taken. Closes other scanners if a limit is
    /// exceeded.
    ///
    /// # Errors
    /// `RegionTooBusyException` if the limits do not allow the scanner at present,
    /// `DoNotRetryIOException` if it exceeds a limit alone.
    pub fn admit(&self, id: u64, scanner: &OpenScanner) -> HResult<()> {
        let (charge, now_ms) = (scanner.charge(), self.clock.now_ms());
        let mut state = self.state.lock();
        let bytes_max = state.part(charge.is_system).bytes_max;
        if charge.bytes > bytes_max {
            let message = format!(
                "the scanner needs {} bytes; all scanners together may use {bytes_max}",
                charge.bytes
            );
            return Err(HBaseError::do_not_retry(message));
        }
        let (has_priority, expires_ms) = (scanner.has_priority(), now_ms.saturating_add(self.lease_ms));
        state.insert(id, ScannerEntry { charge, has_priority, expires_ms, idle: None });
        let ended = state.evict_over_limit(charge, now_ms, self.lease_ms);
        let is_over = state.part(charge.is_system).is_over();
        if is_over {
            state.remove(id);
        }
        // Dropping a scanner closes files, so it is done without the lock.
        drop(state);
        drop(ended);
        match is_over {
            true => Err(HBaseError::new(ErrorKind::RegionTooBusy, "too many open scanners; try again later")),
            false => Ok(()),
        }
    }

    /// Takes a scanner for one call. It remains in the table until [`put_back`](Self::put_back) or
    /// [`close`](Self::close).
    ///
    /// # Errors
    /// [`TakeError::Closed`] if it was closed normally; otherwise `UnknownScannerException`, or
    /// `LeaseException` while another call has taken it.
    pub fn take(&self, id: u64) -> Result<Box<OpenScanner>, TakeError> {
        let mut state = self.state.lock();
        match state.entries.get_mut(&id) {
            Some(entry) => entry.idle.take().ok_or_else(|| {
                let message = format!("lease '{}' does not exist", id as i64);
                TakeError::Error(HBaseError::new(ErrorKind::Lease, message))
            }),
            None => Err(match state.closed.get(&id) {
                Some(closed) => TakeError::Closed(closed.next_call_seq),
                None => TakeError::Error(unknown(id)),
            }),
        }
    }

    /// Puts a scanner back with a new lease, also one that was just admitted. Closes scanners,
    /// possibly this one, if it has grown beyond a limit.
    pub fn put_back(&self, id: u64, mut scanner: Box<OpenScanner>) {
        if heap_blocks::is_over_limit() {
            scanner.scanner.release_blocks();
        }
        let (charge, now_ms) = (scanner.charge(), self.clock.now_ms());
        let (has_priority, expires_ms) = (scanner.has_priority(), now_ms.saturating_add(self.lease_ms));
        let mut state = self.state.lock();
        state.insert(id, ScannerEntry { charge, has_priority, expires_ms, idle: Some(scanner) });
        let mut ended = state.evict_over_limit(charge, now_ms, self.lease_ms);
        if state.part(charge.is_system).is_over() {
            ended.extend(state.remove(id));
        }
        // Dropping a scanner closes files, so it is done without the lock.
        drop(state);
        drop(ended);
    }

    /// Closes a scanner that was taken. With `next_call_seq`, its id is remembered as closed
    /// normally.
    pub fn close(&self, id: u64, next_call_seq: Option<u64>) {
        let expires_ms = self.clock.now_ms().saturating_add(self.lease_ms);
        let mut state = self.state.lock();
        let ended = state.remove(id);
        if let Some(next_call_seq) = next_call_seq.filter(|_| state.closed.len() < CLOSED_MAX) {
            state.closed.insert(id, ClosedScanner { next_call_seq, expires_ms });
        }
        drop(state);
        drop(ended);
    }

    /// Returns true if a scanner reads a system table, with a cheap filter or none: its calls may
    /// run on the priority handlers.
    pub fn has_priority(&self, id: u64) -> bool {
        self.state.lock().entries.get(&id).is_some_and(|entry| entry.has_priority)
    }

    /// Returns the number of open scanners.
    pub fn len(&self) -> usize {
        self.state.lock().entries.len()
    }

    /// Returns true if no scanner is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that open scanners of user tables hold.
    pub fn bytes(&self) -> u64 {
        self.state.lock().users.bytes
    }

    /// Returns the bytes that open scanners of system tables hold.
    pub fn system_bytes(&self) -> u64 {
        self.state.lock().system.bytes
    }

    /// Drops scanners whose lease expired, and forgets the ids of closed ones. Returns the number
    /// of expired leases.
    pub fn expire(&self) -> usize {
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        state.closed.retain(|_, closed| closed.expires_ms > now_ms);
        let expired = |entry: &ScannerEntry| entry.idle.is_some() && entry.expires_ms <= now_ms;
        let ids: Vec<_> =
            state.entries.iter().filter(|(_, entry)| expired(entry)).map(|(id, _)| *id).collect();
        let dropped: Vec<_> = ids.iter().filter_map(|id| state.remove(*id)).collect();
        // Dropping a scanner closes files, so it is done without the lock.
        drop(state);
        self.leases_expired.fetch_add(dropped.len() as u64, Ordering::Relaxed);
        dropped.len()
    }

    /// Returns the number of leases that expired since the start.
    pub fn leases_expired(&self) -> u64 {
        self.leases_expired.load(Ordering::Relaxed)
    }

    /// Closes waiting scanners that pin segments held only by readers, least recently used first,
    /// until the rest pin no more than `bytes_max`. `kept` returns the segments of a scanner as
    /// unique numbers, with their bytes. Returns the number of scanners closed.
    pub fn close_scanners_pinning_flushed(
        &self,
        bytes_max: u64,
        kept: impl Fn(&OpenScanner) -> Vec<(usize, u64)>,
    ) -> usize {
        let mut state = self.state.lock();
        let idle = state
            .entries
            .iter()
            .filter_map(|(id, entry)| Some((*id, entry.expires_ms, entry.idle.as_ref()?)));
        let mut holders: Vec<_> =
            idle.map(|(id, expires_ms, scanner)| (expires_ms, id, kept(scanner))).collect();
        holders.retain(|(_, _, segments)| !segments.is_empty());
        holders.sort_unstable_by_key(|(expires_ms, id, _)| (*expires_ms, *id));
        let mut readers_of: HashMap<usize, usize> = HashMap::new();
        let mut bytes = 0;
        for (segment, segment_bytes) in holders.iter().flat_map(|(_, _, segments)| segments) {
            let readers = readers_of.entry(*segment).or_default();
            bytes += if *readers == 0 { *segment_bytes } else { 0 };
            *readers += 1;
        }
        let mut ended = Vec::new();
        for (_, id, segments) in holders {
            if bytes <= bytes_max {
                break;
            }
            for (segment, segment_bytes) in segments {
                let readers = readers_of.entry(segment).or_default();
                *readers -= 1;
                bytes -= if *readers == 0 { segment_bytes } else { 0 };
            }
            ended.extend(state.remove(id));
        }
        drop(state);
        ended.len()
    }
}

fn unknown(id: u64) -> HBaseError {
    let message = format!(
        "Unknown scanner '{}'. This can happen due to any of the following reasons: a) Scanner id given is wrong, \
         b) Scanner lease expired because of long wait between consecutive client checkins, c) Server may be closing \
         down, d) RegionServer restart during upgrade.\nIf the issue is due to reason (b), a possible fix would be \
         increasing the value of 'hbase.client.scanner.timeout.period' configuration.",
        id as i64
    );
    HBaseError::new(ErrorKind::UnknownScanner, message)
}
