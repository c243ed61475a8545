//! [`Scanners`]: open scanners, their leases, and the memory that they take.
//!
//! A call *takes* its scanner, so that no two calls use it at once, and puts it back with a new
//! lease when it is done. A scanner that no call takes for the length of a lease is dropped by
//! [`Scanners::expire`]. Ids of scanners that were closed in the ordinary way are remembered for as
//! long: old clients ask once more, and get an empty answer.
//!
//! An id is unique over restarts: its upper half is a hash of the server's name, which has the
//! start time in it, its lower half counts.
//!
//! Scanners of a region that went away stay until their next call or the end of their lease: only a
//! call can tell the client (`NotServingRegionException`) that it must look for the region
//! elsewhere.
//!
//! # What a scanner counts for
//! Its [`Charge`]: the request that opened it, its filter, what it knows of the row at hand, and
//! the blocks that it stands in. It is charged when it is opened and again when it is put back. If
//! there are too many blocks outside of the caches ([`heap_blocks`]), a scanner that is put back
//! releases its own first, and loads them again in its next call.
//! Scanners of HBase's own tables and those of users have parts of their own ([`ScannerLimits`]),
//! so that neither can take the other's room.
//!
//! # When a part is full
//! HBase has no limit. Here one scanner too many ends others that wait for their next call, and
//! their clients get `UnknownScannerException`, at which they open another scanner after the last
//! row they have. Which one is ended:
//!
//! * one of the connection that holds most bytes, the new scanner counted; of that connection the
//!   one that no call took for longest. So a client that opens many scanners, or large ones, ends
//!   its own.
//! * none that a call took within [`ACTIVE_MS`], unless it is of the connection that asks, or its
//!   connection holds more than one part in [`FAIR_PART`]. So nobody can end the scanners that
//!   other clients are reading.
//!
//! Where none can be ended, the new scanner is refused with `RegionTooBusyException`, at which
//! clients wait and ask again.
//!
//! # Flushed MemStores
//! A scanner holds the MemStore segments that it began with, and so their chunks, which a flush
//! would give back. [`Scanners::end_holders_of_flushed`] ends waiting scanners that hold flushed
//! segments, the one that no call took for longest first, until those left hold no more than a
//! bound. HBase swaps such a scanner over to the flushed file, which has what the scanner's read
//! point sees because scanners register their read points. Here flushes do not keep what only an
//! older read point sees (see `evenkeel_region::region`), so the client opens another scanner, with
//! a read point of its own.

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

/// Ids of closed scanners that are remembered.
const CLOSED_MAX: usize = 64 << 10;

/// What a scanner is taken to hold where their number follows from their part of the memory: a
/// block of the default size.
pub const SCANNER_BYTES: u64 = 64 << 10;
/// A scanner used within this many milliseconds is not closed to make room for another connection.
pub const ACTIVE_MS: i64 = 5_000;
/// A connection whose scanners hold more than this fraction (1/`FAIR_PART`) is not protected by
/// [`ACTIVE_MS`].
pub const FAIR_PART: u64 = 16;
/// What a scanner takes beside what is counted of it: its place in the table, the region's handle,
/// allocators' rounding.
const SCANNER_BYTES_MIN: u64 = 4 << 10;

/// What open scanners may hold.
#[derive(Clone, Copy, Debug)]
pub struct ScannerLimits {
    /// Scanners of users' tables.
    pub scanners_max: usize,
    /// Bytes of these.
    pub bytes_max: u64,
    /// Bytes of scanners of HBase's own tables.
    pub system_bytes_max: u64,
}

impl ScannerLimits {
    /// Those of a server.
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
    /// Where it is.
    pub scanner: RegionScanner,
    /// The number that the client's next call must carry, if it carries one.
    pub next_call_seq: u64,
    /// The row of the last result, when that row is not complete yet.
    pub partial_row: Option<Bytes>,
    /// Cells of a result at most; 0 for no limit.
    pub batch: usize,
    /// Bytes of a reply at most, when the client sets them.
    pub max_result_bytes: Option<u64>,
    /// Whether heartbeats tell the client how far the scan has come.
    pub need_cursor: bool,
    /// Whether results must be whole rows because a filter judges whole rows.
    pub whole_rows: bool,
    /// Bytes of the request that opened it, and of its filter.
    pub request_bytes: u64,
    /// The connection that opened it, by its client's address; `None` where there is none, as in
    /// tests.
    pub owner: Option<SocketAddr>,
    /// Has that connection count as in use.
    pub lease: Option<ConnectionLease>,
}

impl OpenScanner {
    fn is_system(&self) -> bool {
        self.region.info().table().is_system()
    }

    fn charge(&self) -> Charge {
        let row = self.partial_row.as_ref().map_or(0, |row| row.len() as u64);
        let bytes = SCANNER_BYTES_MIN + self.request_bytes + row + self.scanner.held_bytes();
        Charge { bytes, is_system: self.is_system(), owner: self.owner }
    }
}

/// What a scanner counts for, and whose it is.
#[derive(Clone, Copy, Debug)]
struct Charge {
    bytes: u64,
    is_system: bool,
    owner: Option<SocketAddr>,
}

struct Slot {
    charge: Charge,
    expires_ms: i64,
    /// `None` while a call has it.
    idle: Option<Box<OpenScanner>>,
}

struct Closed {
    next_call_seq: u64,
    expires_ms: i64,
}

/// What scanners of one kind, users' or HBase's own, hold and may hold.
#[derive(Clone, Copy, Debug)]
struct Part {
    count: usize,
    bytes: u64,
    count_max: usize,
    bytes_max: u64,
}

impl Part {
    fn of(count_max: usize, bytes_max: u64) -> Self {
        Self { count: 0, bytes: 0, count_max, bytes_max }
    }

    fn is_over(&self) -> bool {
        self.count > self.count_max || self.bytes > self.bytes_max
    }
}

struct State {
    slots: HashMap<u64, Slot>,
    closed: HashMap<u64, Closed>,
    users: Part,
    system: Part,
}

impl State {
    fn part(&mut self, is_system: bool) -> &mut Part {
        if is_system { &mut self.system } else { &mut self.users }
    }

    fn insert(&mut self, id: u64, slot: Slot) {
        let part = self.part(slot.charge.is_system);
        part.count += 1;
        part.bytes += slot.charge.bytes;
        if let Some(before) = self.slots.insert(id, slot) {
            self.uncount(&before);
        }
    }

    fn remove(&mut self, id: u64) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        self.uncount(&slot);
        Some(slot)
    }

    fn uncount(&mut self, slot: &Slot) {
        let part = self.part(slot.charge.is_system);
        part.count -= 1;
        part.bytes -= slot.charge.bytes;
    }

    /// Takes out what has to end for the part of this charge to be within its bounds, where that is
    /// possible.
    fn make_room(&mut self, charge: Charge, now_ms: i64, lease_ms: i64) -> Vec<Slot> {
        let mut ended = Vec::new();
        while self.part(charge.is_system).is_over() {
            match self.next_to_end(charge, now_ms, lease_ms) {
                Some(id) => ended.extend(self.remove(id)),
                None => break,
            }
        }
        ended
    }

    /// See the module.
    fn next_to_end(&self, asking: Charge, now_ms: i64, lease_ms: i64) -> Option<u64> {
        let part = if asking.is_system { &self.system } else { &self.users };
        let of_part = || self.slots.iter().filter(|(_, slot)| slot.charge.is_system == asking.is_system);
        let mut held: HashMap<Option<SocketAddr>, u64> = HashMap::new();
        of_part().for_each(|(_, slot)| *held.entry(slot.charge.owner).or_default() += slot.charge.bytes);
        let fair = part.bytes_max / FAIR_PART;
        let of_owner = |slot: &Slot| held.get(&slot.charge.owner).copied().unwrap_or(0);
        let may_end = |slot: &Slot| {
            let idle_ms = now_ms.saturating_add(lease_ms).saturating_sub(slot.expires_ms);
            slot.charge.owner == asking.owner || idle_ms >= ACTIVE_MS || of_owner(slot) > fair
        };
        let idle = of_part().filter(|(_, slot)| slot.idle.is_some() && may_end(slot));
        let first = idle.min_by_key(|(id, slot)| (std::cmp::Reverse(of_owner(slot)), slot.expires_ms, **id));
        first.map(|(id, _)| *id)
    }
}

/// Why a scanner cannot be had.
#[derive(Debug)]
pub enum Missing {
    /// It was closed in the ordinary way; the number is what its next call would have had to carry.
    Closed(u64),
    /// What to tell the client.
    Error(HBaseError),
}

/// See the module's documentation.
pub struct Scanners {
    prefix: u64,
    counter: AtomicU32,
    lease_ms: i64,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Leases that ran out since the start.
    leases_expired: AtomicU64,
}

impl Scanners {
    /// No scanners.
    pub fn new(server: &ServerName, lease_ms: i64, limits: ScannerLimits, clock: Arc<dyn Clock>) -> Self {
        let mut hasher = DefaultHasher::new();
        server.to_string().hash(&mut hasher);
        let prefix = hasher.finish() << 32;
        let state = State {
            slots: HashMap::new(),
            closed: HashMap::new(),
            users: Part::of(limits.scanners_max, limits.bytes_max),
            system: Part::of(usize::MAX, limits.system_bytes_max),
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

    /// An id for a scanner that is about to be opened. Never 0: some clients take that for no
    /// scanner.
    pub fn new_id(&self) -> u64 {
        let number = self.counter.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        self.prefix | u64::from(number)
    }

    /// Makes room for a scanner that was opened, and has it in use from here on.
    ///
    /// # Errors
    /// `RegionTooBusyException` when there is no room now, `DoNotRetryIOException` when there can
    /// never be.
    pub fn admit(&self, id: u64, scanner: &OpenScanner) -> HResult<()> {
        let (charge, now_ms) = (scanner.charge(), self.clock.now_ms());
        let mut state = self.state.lock();
        let bytes_max = state.part(charge.is_system).bytes_max;
        if charge.bytes > bytes_max {
            let message = format!("the scanner takes {} bytes, of {bytes_max} for all of them", charge.bytes);
            return Err(HBaseError::do_not_retry(message));
        }
        state.insert(id, Slot { charge, expires_ms: now_ms.saturating_add(self.lease_ms), idle: None });
        let ended = state.make_room(charge, now_ms, self.lease_ms);
        let is_over = state.part(charge.is_system).is_over();
        if is_over {
            state.remove(id);
        }
        // Scanners let go of files when they are dropped: not under the lock.
        drop(state);
        drop(ended);
        match is_over {
            true => Err(HBaseError::new(ErrorKind::RegionTooBusy, "too many open scanners; try again later")),
            false => Ok(()),
        }
    }

    /// Takes a scanner for one call. It stays known as busy until [`put_back`](Self::put_back) or
    /// [`close`](Self::close).
    ///
    /// # Errors
    /// [`Missing::Closed`]; or `UnknownScannerException`, or `LeaseException` while another call
    /// has it.
    pub fn take(&self, id: u64) -> Result<Box<OpenScanner>, Missing> {
        let mut state = self.state.lock();
        match state.slots.get_mut(&id) {
            Some(slot) => slot.idle.take().ok_or_else(|| {
                let message = format!("lease '{}' does not exist", id as i64);
                Missing::Error(HBaseError::new(ErrorKind::Lease, message))
            }),
            None => Err(match state.closed.get(&id) {
                Some(closed) => Missing::Closed(closed.next_call_seq),
                None => Missing::Error(unknown(id)),
            }),
        }
    }

    /// Puts a scanner back with a new lease; also a new one. When there is no room for what it has
    /// become, it is ended.
    pub fn put_back(&self, id: u64, mut scanner: Box<OpenScanner>) {
        if heap_blocks::are_too_many() {
            scanner.scanner.release_blocks();
        }
        let (charge, now_ms) = (scanner.charge(), self.clock.now_ms());
        let expires_ms = now_ms.saturating_add(self.lease_ms);
        let mut state = self.state.lock();
        state.insert(id, Slot { charge, expires_ms, idle: Some(scanner) });
        let mut ended = state.make_room(charge, now_ms, self.lease_ms);
        if state.part(charge.is_system).is_over() {
            ended.extend(state.remove(id));
        }
        // Scanners let go of files when they are dropped: not under the lock.
        drop(state);
        drop(ended);
    }

    /// Ends a scanner that was taken; with `next_call_seq` its id is remembered as closed in the
    /// ordinary way.
    pub fn close(&self, id: u64, next_call_seq: Option<u64>) {
        let expires_ms = self.clock.now_ms().saturating_add(self.lease_ms);
        let mut state = self.state.lock();
        let ended = state.remove(id);
        if let Some(next_call_seq) = next_call_seq.filter(|_| state.closed.len() < CLOSED_MAX) {
            state.closed.insert(id, Closed { next_call_seq, expires_ms });
        }
        drop(state);
        drop(ended);
    }

    /// Whether a scanner reads a table of HBase's own.
    pub fn is_system(&self, id: u64) -> bool {
        self.state.lock().slots.get(&id).is_some_and(|slot| slot.charge.is_system)
    }

    /// How many scanners are open.
    pub fn len(&self) -> usize {
        self.state.lock().slots.len()
    }

    /// Whether no scanner is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that open scanners of users' tables hold.
    pub fn bytes(&self) -> u64 {
        self.state.lock().users.bytes
    }

    /// Bytes that open scanners of HBase's own tables hold.
    pub fn system_bytes(&self) -> u64 {
        self.state.lock().system.bytes
    }

    /// Drops scanners whose lease ran out, and forgets closed ones. Returns how many leases ran
    /// out.
    pub fn expire(&self) -> usize {
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        state.closed.retain(|_, closed| closed.expires_ms > now_ms);
        let expired = |slot: &Slot| slot.idle.is_some() && slot.expires_ms <= now_ms;
        let ids: Vec<_> = state.slots.iter().filter(|(_, slot)| expired(slot)).map(|(id, _)| *id).collect();
        let dropped: Vec<_> = ids.iter().filter_map(|id| state.remove(*id)).collect();
        // Scanners let go of files when they are dropped: not under the lock.
        drop(state);
        self.leases_expired.fetch_add(dropped.len() as u64, Ordering::Relaxed);
        dropped.len()
    }

    /// Leases that ran out since the start.
    pub fn leases_expired(&self) -> u64 {
        self.leases_expired.load(Ordering::Relaxed)
    }

    /// Ends waiting scanners that hold segments which only readers keep, the one that no call took
    /// for longest first, until those left hold no more than `bytes_max` of them. `kept` tells the
    /// segments of a scanner, each by a number of its own, and their bytes. Returns how many it
    /// ended.
    pub fn end_holders_of_flushed(
        &self,
        bytes_max: u64,
        kept: impl Fn(&OpenScanner) -> Vec<(usize, u64)>,
    ) -> usize {
        let mut state = self.state.lock();
        let idle =
            state.slots.iter().filter_map(|(id, slot)| Some((*id, slot.expires_ms, slot.idle.as_ref()?)));
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
