//! [`Scanners`]: open scanners and their leases.
//!
//! A call *takes* its scanner, so that no two calls use it at once, and puts it back with a new lease when it is done. A
//! scanner that no call takes for the length of a lease is dropped by [`Scanners::expire`]. Ids of scanners that were
//! closed in the ordinary way are remembered for as long: old clients ask once more, and get an empty answer.
//!
//! An id is unique over restarts: its upper half is a hash of the server's name, which has the start time in it, its
//! lower half counts.
//!
//! An open scanner stands in a block of each of its files, so their number is limited (HBase does not): one too many ends
//! the one that no call took for longest. Its client is told so by `UnknownScannerException`, and opens another after the
//! last row it has.
//!
//! Scanners of a region that went away stay until their next call or the end of their lease: only a call can tell the
//! client (`NotServingRegionException`) that it must look for the region elsewhere.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use evenkeel_common::clock::Clock;
use evenkeel_common::{ErrorKind, HBaseError, ServerName};
use evenkeel_region::region::Region;
use evenkeel_region::scanner::RegionScanner;
use parking_lot::Mutex;

/// Ids of closed scanners that are remembered.
const CLOSED_MAX: usize = 64 << 10;

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
}

enum Slot {
    Idle { scanner: Box<OpenScanner>, expires_ms: i64 },
    Busy { is_system: bool },
}

struct Closed {
    next_call_seq: u64,
    expires_ms: i64,
}

#[derive(Default)]
struct State {
    slots: HashMap<u64, Slot>,
    closed: HashMap<u64, Closed>,
}

impl State {
    /// Takes out the scanner that no call took for longest, of those that read no table of HBase's own.
    fn take_stalest(&mut self) -> Option<Slot> {
        let idle = self.slots.iter().filter_map(|(id, slot)| match slot {
            Slot::Idle { scanner, expires_ms } if !scanner.region.info().table().is_system() => {
                Some((*expires_ms, *id))
            }
            _ => None,
        });
        let (_, id) = idle.min()?;
        self.slots.remove(&id)
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
    scanners_max: usize,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl Scanners {
    /// No scanners, and at most `scanners_max`.
    pub fn new(server: &ServerName, lease_ms: i64, scanners_max: usize, clock: Arc<dyn Clock>) -> Self {
        let mut hasher = DefaultHasher::new();
        server.to_string().hash(&mut hasher);
        let prefix = hasher.finish() << 32;
        Self { prefix, counter: AtomicU32::new(0), lease_ms, scanners_max, clock, state: Mutex::default() }
    }

    /// An id for a scanner that is about to be opened. Never 0: some clients take that for no scanner.
    pub fn new_id(&self) -> u64 {
        let number = self.counter.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        self.prefix | u64::from(number)
    }

    /// Takes a scanner for one call. It stays known as busy until [`put_back`](Self::put_back) or
    /// [`close`](Self::close).
    ///
    /// # Errors
    /// [`Missing::Closed`]; or `UnknownScannerException`, or `LeaseException` while another call has it.
    pub fn take(&self, id: u64) -> Result<Box<OpenScanner>, Missing> {
        let mut state = self.state.lock();
        match state.slots.remove(&id) {
            Some(Slot::Idle { scanner, .. }) => {
                state.slots.insert(id, busy(&scanner));
                Ok(scanner)
            }
            Some(slot) => {
                state.slots.insert(id, slot);
                let message = format!("lease '{}' does not exist", id as i64);
                Err(Missing::Error(HBaseError::new(ErrorKind::Lease, message)))
            }
            None => Err(match state.closed.get(&id) {
                Some(closed) => Missing::Closed(closed.next_call_seq),
                None => Missing::Error(unknown(id)),
            }),
        }
    }

    /// Puts a scanner back with a new lease; also a new one.
    pub fn put_back(&self, id: u64, scanner: Box<OpenScanner>) {
        let expires_ms = self.clock.now_ms().saturating_add(self.lease_ms);
        let mut state = self.state.lock();
        state.slots.insert(id, Slot::Idle { scanner, expires_ms });
        let ended = if state.slots.len() > self.scanners_max { state.take_stalest() } else { None };
        // Scanners let go of files when they are dropped: not under the lock.
        drop(state);
        drop(ended);
    }

    /// Ends a scanner that was taken; with `next_call_seq` its id is remembered as closed in the ordinary way.
    pub fn close(&self, id: u64, next_call_seq: Option<u64>) {
        let expires_ms = self.clock.now_ms().saturating_add(self.lease_ms);
        let mut state = self.state.lock();
        state.slots.remove(&id);
        if let Some(next_call_seq) = next_call_seq.filter(|_| state.closed.len() < CLOSED_MAX) {
            state.closed.insert(id, Closed { next_call_seq, expires_ms });
        }
    }

    /// Whether a scanner reads a table of HBase's own.
    pub fn is_system(&self, id: u64) -> bool {
        match self.state.lock().slots.get(&id) {
            Some(Slot::Idle { scanner, .. }) => scanner.region.info().table().is_system(),
            Some(Slot::Busy { is_system }) => *is_system,
            None => false,
        }
    }

    /// How many scanners are open.
    pub fn len(&self) -> usize {
        self.state.lock().slots.len()
    }

    /// Whether no scanner is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops scanners whose lease ran out, and forgets closed ones. Returns how many leases ran out.
    pub fn expire(&self) -> usize {
        let now_ms = self.clock.now_ms();
        let mut state = self.state.lock();
        state.closed.retain(|_, closed| closed.expires_ms > now_ms);
        let expired = |slot: &Slot| matches!(slot, Slot::Idle { expires_ms, .. } if *expires_ms <= now_ms);
        let ids: Vec<_> = state.slots.iter().filter(|(_, slot)| expired(slot)).map(|(id, _)| *id).collect();
        let dropped: Vec<_> = ids.iter().filter_map(|id| state.slots.remove(id)).collect();
        // Scanners let go of files when they are dropped: not under the lock.
        drop(state);
        dropped.len()
    }
}

fn busy(scanner: &OpenScanner) -> Slot {
    Slot::Busy { is_system: scanner.region.info().table().is_system() }
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
