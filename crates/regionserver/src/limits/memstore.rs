//! [`MemStoreGauge`]: the unflushed bytes of all regions, and the watermarks on the way to their
//! limit.
//!
//! ```text
//! 0 .......... flush .................... urgency ........... throttle ......... limit
//!              watermark                  watermark           watermark
//! no call      every flusher has work,    flushes yield       replies to        writes are
//! waits        largest regions first      to nothing          writes are held   refused
//! ```
//!
//! - limit: `hbase.regionserver.global.memstore.size`
//! - throttle watermark: the *approach* before the limit: the largest recent flush, at least what
//!   `...size.lower.limit` leaves and six chunks, at most half of the limit
//! - urgency watermark: half way between the other two: a flush that yields should end before
//!   replies are held
//! - flush watermark: before that, the bytes written in [`FLUSH_LEAD`] at the present rate, at most
//!   a quarter of the lower limit: enough that writers with which the disk keeps up do not reach
//!   the throttle watermark
//!
//! HBase's watermarks are fractions of the memory. But the bytes that writers add until memory is
//! freed depend on how long a flush takes, and so on its size. With 48 MiB, the 5 % that HBase
//! leaves are full before the first flush is half done. Where memory is large, the approach is the
//! 5 %.
//!
//! # Why writers settle before the limit
//! The [throttle](crate::limits::write_throttle) holds an answer for `H (u/A)³` when `u` bytes of
//! the approach of `A` are used. So `N` callers with `b` bytes each, however fast they are, write
//! no more than `N b / H (A/u)³` in a unit of time, and in the time `T` of a flush they come no
//! further than `(u/A)⁴ = 4 N b T / (A H)`. A flush at the speed `F` takes `T = L / F`, and `A` is
//! no less than its bytes `L`, which it gives back at its end:
//!
//! ```text
//! (u/A)⁴  <=  4 N b / (F H)
//! ```
//!
//! `F` is that of a thread that yields to nobody: past the urgency watermark no flush does
//! ([`background`](crate::background)). That does not depend on the memory, on regions or on the
//! rate of writers without a throttle: no write is refused as long as a flusher writes, in the time
//! `H` of the longest hold, four times what all calls in flight carry. Callers with more than that
//! reach the limit, where writes are refused as in HBase. Nor can all writers wait while nothing is
//! flushed: the flush watermark is never behind the throttle watermark, and past it some region is
//! flushed, however small.
//!
//! # Small calls beside large ones
//! What fills the memory are bytes, and one caller with batches brings as many as a thousand with
//! single rows. Held alike, all wait for the few; without their wait nothing would be lost. So a
//! call of `b` bytes bears `b/B` of the hold, at most all of it, where `B` is the size of the call
//! that the typical byte of late came in ([`TypicalCall`]): the geometric mean of the calls' sizes,
//! each as heavy as its bytes.
//!
//! Small callers then write as if each call were of `B` bytes, and that has to stay bounded. Their
//! part `f` of all bytes grows by it, but `B` comes down to their size as it does: with two sizes
//! `s` and `l`, `B = s^f l^(1-f)`, and where held alike they would write `R` times what the large
//! ones do, they settle at `f/(1-f) = R (l/s)^(1-f)`. For sizes 10,000 times apart all write at
//! most 3.1 times what they would when held alike (at `R = 0.4`), for 100 times apart 2.1 times;
//! `u/A` grows by the fourth root of that, a third. An arithmetic mean would not do: one batch
//! among a thousand times its bytes in single rows would still be most of it. At the limit all bear
//! everything, and so does what is refused.
//!
//! The approach of a region's own limits is not shared out like this: it may have small callers
//! only.
//!
//! # Cells and chunks
//! Cells lie in chunks, which round their bytes up: a region that has one cell has a chunk. The
//! pool of chunks may have a slack beyond the limit. What it has given out beyond that slack counts
//! as unflushed bytes where that is more than those of the cells; each region is then taken for its
//! chunks. So the chunks of many nearly idle regions are flushed before they pass the budget.
//! Readers may keep chunks that were flushed: these count as well, for they are taken, but no
//! region is flushed when flushes would free next to nothing.
//!
//! # Nonces
//! What the server remembers of Increments and Appends counts as unflushed bytes, too: it comes
//! from writes and depends on time. Its own bound is far below the limit
//! (`evenkeel_region::region::nonce`).
//!
//! # What it knows when
//! The chore measures the regions every period, when a flush has ended and when the flush watermark
//! is passed ([`MemStoreGauge::note`] tells). In between, what a write brings is added before its
//! hold is computed, so that a call as large as the approach feels its own bytes; a limit can be
//! overrun many times over in one period. The limit itself is checked before, and what is refused
//! there is not added. What a region refuses after all is forgotten at the next measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::length;
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::ops::Mutation;
use evenkeel_region::region::nonce::NonceManager;
use parking_lot::Mutex;

use crate::limits::write_throttle;

/// How long before the throttle watermark would be passed flushes begin.
pub const FLUSH_LEAD: Duration = Duration::from_secs(2);

/// The rate of writes is measured over at least this period.
const RATE_PERIOD: Duration = Duration::from_millis(200);

/// The part that the size of the largest flush loses in each such period. It is half forgotten
/// after 9 s: longer than the flushes of a server that is near its limit are apart.
const FLUSH_BYTES_DECAY: u64 = 64;

/// A flush while others run is worth a file when it frees this part of the largest.
const WORTH_PART: u64 = 8;

/// The approach is at least this many chunks, so that one chunk does not take writers from no hold
/// to the limit.
const APPROACH_CHUNKS: u64 = 6;

/// [`TypicalCall`] looks back over this part of the limit: a tenth of the least approach that
/// HBase's settings leave, or less.
const TYPICAL_PART: u64 = 256;

/// Where regions have less than this part of the limit, it is not flushes that bring unflushed
/// bytes down.
const FLUSHED_PART: u64 = 8;

/// What the MemStore adds to each cell, on average (docs/benchmarks.md).
const CELL_BYTES: usize = 30;

/// What a region has not flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unflushed {
    /// Of cells.
    pub cells: u64,
    /// What flushes free: bytes of cells, or of their chunks where these are what brings the limit
    /// nearer.
    pub bytes: u64,
    /// Of these, what a flush that runs is writing.
    pub going: u64,
    /// A flush runs: another one would have to wait for it.
    pub is_flushing: bool,
}

impl Unflushed {
    /// What a flush frees in one piece: the one that runs, or the next.
    fn flush_bytes(&self) -> u64 {
        self.going.max(self.bytes - self.going)
    }
}

/// What must be flushed now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// The flush watermark is passed: no flusher should be idle.
    pub all_flushers: bool,
    /// Bytes to flush even if every flusher has work, not counting bytes that are being flushed.
    pub bytes: u64,
    /// No region with less, unless nothing else is flushed: it would be a small file, and soon the
    /// next one.
    pub worth_bytes: u64,
}

/// See the module's documentation.
pub struct MemStoreGauge {
    low: u64,
    limit: u64,
    /// Where MemStores have their memory from.
    chunks: Option<Arc<ChunkPool>>,
    nonces: Option<Arc<NonceManager>>,
    /// Unflushed bytes as last measured, and what was noted since.
    bytes: AtomicU64,
    throttle_from: AtomicU64,
    /// At most `throttle_from`.
    flush_from: AtomicU64,
    typical: TypicalCall,
    measured: Mutex<Measured>,
}

/// The size of the call that the typical byte comes in, see the module. Calls are counted as long
/// as answers are held; threads that count at the same time may lose one of their calls.
struct TypicalCall {
    /// The logarithm of its bytes: an `f64`; 0 as long as nothing is known.
    ln: AtomicU64,
    /// What was written before as many bytes is mostly forgotten.
    window: f64,
}

struct Measured {
    bytes: u64,
    at: Option<Instant>,
    /// Written since.
    written: u64,
    /// Bytes written in [`FLUSH_LEAD`], capped.
    lead: u64,
    /// The bytes of the largest recent flush.
    flush_bytes: u64,
    is_over: bool,
}

impl MemStoreGauge {
    /// With limits in bytes. As long as nothing is known of flushes they are taken to be a quarter
    /// of the limit.
    pub fn new(low: u64, limit: u64) -> Self {
        let gauge = Self {
            low: low.min(limit),
            limit,
            chunks: None,
            nonces: None,
            bytes: AtomicU64::new(0),
            throttle_from: AtomicU64::new(0),
            flush_from: AtomicU64::new(0),
            typical: TypicalCall { ln: AtomicU64::new(0), window: (limit / TYPICAL_PART).max(1) as f64 },
            measured: Mutex::new(Measured {
                bytes: 0,
                at: None,
                written: 0,
                lead: 0,
                flush_bytes: limit / 4,
                is_over: false,
            }),
        };
        gauge.place_watermarks(limit / 4, 0);
        gauge
    }

    /// The same, and looks at the chunks of all regions, too.
    pub fn over(self, chunks: Arc<ChunkPool>) -> Self {
        let gauge = Self { chunks: Some(chunks), ..self };
        gauge.place_watermarks(gauge.limit / 4, 0);
        gauge
    }

    /// Forgets nonces whose grace period is over.
    pub fn expire_nonces(&self) {
        self.nonces.iter().for_each(|nonces| nonces.expire());
    }

    /// The same, and counts these nonces.
    pub fn with_nonces(self, nonces: Arc<NonceManager>) -> Self {
        Self { nonces: Some(nonces), ..self }
    }

    /// Bytes of chunks that count, see the module.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunks.as_ref().map_or(0, |chunks| chunks.beyond_slack(self.limit))
    }

    /// Bytes of the chunks that regions and readers have.
    pub fn chunks_out(&self) -> u64 {
        self.chunks.as_ref().map_or(0, |chunks| chunks.out_bytes() as u64)
    }

    /// A region that takes a chunk brings all of it at once.
    fn chunks_of_approach(&self) -> u64 {
        self.chunks.as_ref().map_or(0, |chunks| chunks.sizes().chunk_bytes as u64 * APPROACH_CHUNKS)
    }

    fn place_watermarks(&self, flush_bytes: u64, lead: u64) -> u64 {
        let approach =
            flush_bytes.max(self.chunks_of_approach()).min(self.limit / 2).max(self.limit - self.low);
        let throttle_from = self.limit - approach;
        self.throttle_from.store(throttle_from, Ordering::Relaxed);
        self.flush_from.store(throttle_from.saturating_sub(lead), Ordering::Relaxed);
        throttle_from
    }

    /// Unflushed bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns true if writes are refused.
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.limit
    }

    /// Returns true if replies to writes are held.
    pub fn is_throttling(&self) -> bool {
        self.bytes() > self.throttle_from.load(Ordering::Relaxed)
    }

    /// Returns true if flushes yield to nothing.
    pub fn flushes_are_urgent(&self) -> bool {
        let (flush_from, throttle_from) =
            (self.flush_from.load(Ordering::Relaxed), self.throttle_from.load(Ordering::Relaxed));
        self.bytes() > flush_from.midpoint(throttle_from)
    }

    /// Which part of the approach is used.
    pub fn used(&self) -> f64 {
        write_throttle::used(self.bytes(), self.throttle_from.load(Ordering::Relaxed), self.limit)
    }

    /// How long to hold the reply to a call of `bytes`, which are noted already. Counts it among
    /// the recent calls.
    pub fn hold_for(&self, bytes: u64) -> Duration {
        if !self.is_throttling() {
            return Duration::ZERO;
        }
        let share = self.typical.share(bytes);
        write_throttle::hold_for(self.used(), if self.is_full() { 1.0 } else { share })
    }

    /// Counts a write that begins. Says whether it passes the flush watermark, so that
    /// [`MemStoreGauge::measure`] is due.
    pub fn note(&self, bytes: u64) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let flush_from = self.flush_from.load(Ordering::Relaxed);
        before <= flush_from && before.saturating_add(bytes) > flush_from
    }

    /// Applies what `regions` measures, and returns what must be flushed.
    pub fn measure<R>(&self, now: Instant, regions: impl FnOnce() -> R) -> (R, Need)
    where
        R: AsRef<[Unflushed]>,
    {
        // Read before measuring: bytes written meanwhile may count twice, but are never missed.
        let counted = self.bytes();
        let regions = regions();
        let need = self.apply(now, counted, regions.as_ref());
        (regions, need)
    }

    fn apply(&self, now: Instant, counted: u64, regions: &[Unflushed]) -> Need {
        let of_regions: u64 = regions.iter().map(|region| region.bytes).sum();
        let cells: u64 = regions.iter().map(|region| region.cells).sum();
        let nonces = self.nonces.as_ref().map_or(0, |nonces| nonces.bytes());
        let total = cells.max(self.chunk_bytes()) + nonces;
        let going: u64 = regions.iter().map(|region| region.going).sum();
        let mut measured = self.measured.lock();
        measured.written += counted.saturating_sub(measured.bytes);
        measured.bytes = total;
        self.bytes.fetch_add(total.wrapping_sub(counted), Ordering::Relaxed);
        measured.update_write_rate(now, self.low / 4);
        let flush_bytes = regions.iter().map(Unflushed::flush_bytes).max().unwrap_or(0);
        measured.flush_bytes = measured.flush_bytes.max(flush_bytes);
        let throttle_from = self.place_watermarks(measured.flush_bytes, measured.lead);
        let is_over = total >= self.limit;
        if is_over != std::mem::replace(&mut measured.is_over, is_over) {
            tracing::warn!(is_over, total, limit = self.limit, "global memstore limit");
        }
        let is_kept_by_readers = of_regions < total && of_regions < self.limit / FLUSHED_PART;
        let flushable = if is_kept_by_readers { 0 } else { total };
        let over = flushable.saturating_add(measured.lead).saturating_sub(throttle_from);
        Need {
            all_flushers: over > 0,
            bytes: over.saturating_sub(going),
            worth_bytes: measured.flush_bytes / WORTH_PART,
        }
    }
}

impl TypicalCall {
    /// The share of a hold that a call of `bytes` bears. Counts the call.
    fn share(&self, bytes: u64) -> f64 {
        let bytes = bytes.max(1) as f64;
        let (before, ln) = (f64::from_bits(self.ln.load(Ordering::Relaxed)), bytes.ln());
        let weight = if before == 0.0 { 1.0 } else { (bytes / self.window).min(1.0) };
        let typical = before + (ln - before) * weight;
        self.ln.store(typical.to_bits(), Ordering::Relaxed);
        (ln - typical).exp().min(1.0)
    }
}

impl Measured {
    fn update_write_rate(&mut self, now: Instant, lead_max: u64) {
        let passed = now.saturating_duration_since(*self.at.get_or_insert(now));
        if passed >= RATE_PERIOD {
            let lead = self.written as f64 * FLUSH_LEAD.as_secs_f64() / passed.as_secs_f64();
            self.lead = length::whole(lead).min(lead_max);
            self.flush_bytes -= self.flush_bytes / FLUSH_BYTES_DECAY;
            (self.at, self.written) = (Some(now), 0);
        }
    }
}

impl Need {
    /// Asks for flushes of the largest regions until the need is met. `open` flushes wait or run
    /// already; `request` gets an index and says whether the flush is a new one.
    pub fn ask(
        mut self,
        regions: &[Unflushed],
        flushers: usize,
        mut open: usize,
        mut request: impl FnMut(usize) -> bool,
    ) {
        let free = |at: &usize| !regions[*at].is_flushing && regions[*at].bytes > 0;
        let mut largest: Vec<_> = (0..regions.len()).filter(free).collect();
        largest.sort_by_key(|at| std::cmp::Reverse(regions[*at].bytes));
        for at in largest {
            let is_needed = self.bytes > 0 || (self.all_flushers && open < flushers);
            if !is_needed || (open > 0 && regions[at].bytes < self.worth_bytes) {
                return;
            }
            self.bytes = self.bytes.saturating_sub(regions[at].bytes);
            open += usize::from(request(at));
        }
    }
}

/// What a mutation adds to the MemStore, about.
pub fn bytes_of(mutation: &Mutation) -> u64 {
    mutation.cells.iter().map(|cell| (cell.bytes_len() + CELL_BYTES) as u64).sum()
}
