//! [`MemStoreAccounting`]: the unflushed bytes of all regions, their limit and the watermarks below
//! it.
//!
//! ```text
//! 0 .......... flush .................... urgency ........... throttle ......... limit
//!              watermark                  watermark           watermark
//! no call      every flusher has work,    flushes never       replies to        writes are
//! waits        largest regions first      yield               writes are held   rejected
//! ```
//!
//! - The limit is `hbase.regionserver.global.memstore.size`.
//! - The throttle watermark is below the limit by the *approach*: the bytes of the largest recent
//!   flush, at least what `...size.lower.limit` leaves and six chunks, at most half of the limit.
//! - The urgency watermark is half way between the flush watermark and the throttle watermark. A
//!   flush that yields should end before replies are held.
//! - The flush watermark is below the throttle watermark by the bytes written in [`FLUSH_LEAD`] at
//!   the present rate, at most a quarter of the lower limit. Writers with which the disk keeps up
//!   do not reach the throttle watermark then.
//!
//! HBase's watermarks are fractions of the memory. But the bytes that writers add until memory is
//! freed depend on the duration of a flush, and so on its size. With a limit of 48 MiB, the 5 %
//! that HBase leaves are full before the first flush is half done. With a large memory, the
//! approach is these 5 %.
//!
//! # Why writers settle before the limit
//! If `u` bytes of an approach of `A` bytes are used, the
//! [throttle](crate::limits::write_throttle) holds a reply for `H (u/A)³`, where `H` is the longest
//! hold. So `N` callers with `b` bytes in each call write at most `N b / H (A/u)³` in a unit of
//! time, however fast they are. In the duration `T` of a flush they get no further than
//! `(u/A)⁴ = 4 N b T / (A H)`. A flush of `L` bytes at the speed `F` takes `T = L / F`. It frees
//! `L` bytes at its end, and `A` is not less than `L`. Therefore:
//!
//! ```text
//! (u/A)⁴  <=  4 N b / (F H)
//! ```
//!
//! `F` is the speed of a thread that does not yield, because no flush yields above the urgency
//! watermark ([`background`](crate::background)). The bound depends neither on the memory, nor on
//! the regions, nor on the rate that writers would have without a throttle. No write is rejected as
//! long as a flusher writes, in the time `H`, four times the bytes that all calls in flight carry.
//! If callers have more bytes in flight, they reach the limit, and writes are rejected as in HBase.
//! Writers cannot all wait while no region is flushed: the flush watermark is never above the
//! throttle watermark, and above the flush watermark some region is flushed, however small it is.
//!
//! # Small calls beside large ones
//! Memory is filled by bytes, and one caller with batches writes as many bytes as a thousand
//! callers with single rows. If all were held alike, many callers would wait for a few, without a
//! benefit. So a call of `b` bytes bears `b/B` of the hold, at most all of it. `B` is the size of
//! the call that a typical recent byte came in ([`TypicalCall`]): the geometric mean of the sizes
//! of calls, weighted by their bytes.
//!
//! Small callers then write as if each of their calls had `B` bytes. This must stay bounded. As
//! their fraction `f` of all bytes grows, `B` sinks towards their size. With two sizes `s` and `l`,
//! `B = s^f l^(1-f)`. If small callers would write `R` times the bytes of large callers when all
//! are held alike, they settle at `f/(1-f) = R (l/s)^(1-f)`. For sizes that differ by a factor of
//! 10,000, all callers together write at most 3.1 times as much as when held alike (at `R = 0.4`);
//! for a factor of 100, 2.1 times. `u/A` grows by the fourth root of that factor, which is a third.
//! An arithmetic mean would not bound it: one batch among a thousand times its bytes in single rows
//! would still dominate the mean. At the limit every call bears the whole hold, and so does a call
//! that is rejected.
//!
//! The approach of a region's limits is not divided in this way, because a region may have only
//! small callers.
//!
//! # Cells and chunks
//! Cells are stored in chunks, which round their bytes up: a region with one cell occupies a chunk.
//! The pool of chunks may exceed the limit by a slack. The bytes that it has given out beyond that
//! slack count as unflushed bytes if they are more than the bytes of the cells; then each region is
//! measured by its chunks. So the chunks of many nearly idle regions are flushed before they exceed
//! the budget. Readers may keep chunks that were flushed. These chunks count as well, because they
//! occupy memory, but no region is flushed if flushes would free next to nothing.
//!
//! # Nonces
//! The nonces that the server keeps of Increments and Appends count as unflushed bytes, too: they
//! grow with writes and expire by time. Their separate bound is far below the limit
//! (`evenkeel_region::region::nonce`).
//!
//! # When bytes are counted
//! The chore measures the regions in every period, when a flush has ended, and when the flush
//! watermark is exceeded ([`MemStoreAccounting::note`] reports that). Between two measurements, the
//! bytes of a write are added before its hold is computed, so that the hold of a call as large as
//! the approach depends on its own bytes. Otherwise the limit could be exceeded many times over
//! within one period. The limit is checked before the bytes are added, and the bytes of a write
//! that is rejected there are not added. If a region rejects a write later, its bytes are dropped
//! at the next measurement.
//!
//! An Append or Increment of a few bytes writes its column's old value and tags again, which may
//! have megabytes. The region reports these bytes when it has added them
//! ([`RegionEvents::write_grew`](evenkeel_region::region::RegionEvents::write_grew)), and the hold
//! of the reply is computed from them when the write has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::length;
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::operations::Mutation;
use evenkeel_region::region::nonce::NonceManager;
use parking_lot::Mutex;

use crate::limits::write_throttle;

/// Flushes begin this long before the throttle watermark would be passed.
pub const FLUSH_LEAD: Duration = Duration::from_secs(2);

/// The rate of writes is measured over at least this period.
const RATE_PERIOD: Duration = Duration::from_millis(200);

/// The size of the largest flush decays by this fraction (1/`FLUSH_BYTES_DECAY`) per
/// [`RATE_PERIOD`]. It halves in 9 s, which is longer than the time between two flushes of a server
/// near its limit.
const FLUSH_BYTES_DECAY: u64 = 64;

/// While other flushes run, a region is flushed only if that frees at least this fraction
/// (1/`WORTH_DIVISOR`) of the largest flush.
const WORTH_DIVISOR: u64 = 8;

/// The approach is at least this many chunks, so that a single chunk does not take writers from no
/// hold to the limit.
const APPROACH_CHUNKS: u64 = 6;

/// [`TypicalCall`] looks back over this fraction (1/`TYPICAL_DIVISOR`) of the limit. That is at
/// most a tenth of the smallest approach that HBase's settings leave.
const TYPICAL_DIVISOR: u64 = 256;

/// If regions have less than this fraction (1/`FLUSHED_DIVISOR`) of the limit, flushes cannot
/// reduce the unflushed bytes.
const FLUSHED_DIVISOR: u64 = 8;

/// Bytes that the MemStore adds to each cell, on average (docs/benchmarks.md).
const CELL_BYTES: usize = 30;

/// The unflushed bytes of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unflushed {
    /// Bytes of cells.
    pub cells: u64,
    /// Bytes that flushes free: bytes of cells, or of chunks if the chunks are closer to the limit.
    pub bytes: u64,
    /// The part of `bytes` that a running flush writes.
    pub flushing_bytes: u64,
    /// True if a flush runs; another one would have to wait for it.
    pub is_flushing: bool,
}

impl Unflushed {
    /// Returns the bytes that one flush frees: the running one, or the next one.
    fn flush_bytes(&self) -> u64 {
        self.flushing_bytes.max(self.bytes - self.flushing_bytes)
    }
}

/// The flushes that are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushDemand {
    /// True if the flush watermark is exceeded: no flusher may be idle.
    pub all_flushers: bool,
    /// Bytes to flush even if every flusher is busy, not counting bytes that are being flushed.
    pub bytes: u64,
    /// Regions with fewer bytes are flushed only if no other region is: their files would be small,
    /// and more small files would soon follow.
    pub worth_bytes: u64,
}

/// See the module's documentation.
pub struct MemStoreAccounting {
    low: u64,
    limit: u64,
    /// The pool from which MemStores take chunks.
    chunks: Option<Arc<ChunkPool>>,
    nonces: Option<Arc<NonceManager>>,
    /// Unflushed bytes of the last measurement, plus the bytes noted since.
    bytes: AtomicU64,
    throttle_from: AtomicU64,
    /// At most `throttle_from`.
    flush_from: AtomicU64,
    typical: TypicalCall,
    measured: Mutex<Measured>,
}

/// The size of the call that a typical byte comes in; see the module. Calls are counted while
/// replies are held. If two threads count concurrently, one of the two calls may be lost.
struct TypicalCall {
    /// The logarithm of the size, as the bits of an `f64`; 0 until a call was counted.
    ln: AtomicU64,
    /// Calls before the last `window` bytes have little weight.
    window: f64,
}

struct Measured {
    bytes: u64,
    at: Option<Instant>,
    /// Bytes written since the last measurement.
    written: u64,
    /// Bytes written in [`FLUSH_LEAD`], capped.
    lead: u64,
    /// The bytes of the largest recent flush.
    flush_bytes: u64,
    is_over: bool,
}

impl MemStoreAccounting {
    /// Creates a gauge with limits in bytes. Until the first flush, flushes are assumed to be a
    /// quarter of the limit.
    pub fn new(low: u64, limit: u64) -> Self {
        let gauge = Self {
            low: low.min(limit),
            limit,
            chunks: None,
            nonces: None,
            bytes: AtomicU64::new(0),
            throttle_from: AtomicU64::new(0),
            flush_from: AtomicU64::new(0),
            typical: TypicalCall { ln: AtomicU64::new(0), window: (limit / TYPICAL_DIVISOR).max(1) as f64 },
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

    /// Makes the gauge also count the chunks of all regions.
    pub fn over(self, chunks: Arc<ChunkPool>) -> Self {
        let gauge = Self { chunks: Some(chunks), ..self };
        gauge.place_watermarks(gauge.limit / 4, 0);
        gauge
    }

    /// Forgets nonces whose grace period has ended.
    pub fn expire_nonces(&self) {
        self.nonces.iter().for_each(|nonces| nonces.expire());
    }

    /// Makes the gauge also count these nonces.
    pub fn with_nonces(self, nonces: Arc<NonceManager>) -> Self {
        Self { nonces: Some(nonces), ..self }
    }

    /// Returns the bytes of chunks that count as unflushed; see the module.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunks.as_ref().map_or(0, |chunks| chunks.beyond_slack(self.limit))
    }

    /// Returns the bytes of the chunks that regions and readers hold.
    pub fn chunks_out(&self) -> u64 {
        self.chunks.as_ref().map_or(0, |chunks| chunks.out_bytes() as u64)
    }

    /// Returns the minimum of the approach: a region adds a whole chunk at a time.
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

    /// Returns the unflushed bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns true if writes are rejected.
    pub fn is_full(&self) -> bool {
        self.bytes() >= self.limit
    }

    /// Returns true if replies to writes are held.
    pub fn is_throttling(&self) -> bool {
        self.bytes() > self.throttle_from.load(Ordering::Relaxed)
    }

    /// Returns true if flushes do not yield.
    pub fn flushes_are_urgent(&self) -> bool {
        let (flush_from, throttle_from) =
            (self.flush_from.load(Ordering::Relaxed), self.throttle_from.load(Ordering::Relaxed));
        self.bytes() > flush_from.midpoint(throttle_from)
    }

    /// Returns the used fraction of the approach.
    pub fn pressure(&self) -> f64 {
        write_throttle::pressure(self.bytes(), self.throttle_from.load(Ordering::Relaxed), self.limit)
    }

    /// Returns how long to hold the reply to a call of `bytes`, which are already noted. Counts the
    /// call as a recent one.
    pub fn hold_for(&self, bytes: u64) -> Duration {
        if !self.is_throttling() {
            return Duration::ZERO;
        }
        let share = self.typical.share(bytes);
        write_throttle::hold_for(self.pressure(), if self.is_full() { 1.0 } else { share })
    }

    /// Counts a write that begins. Returns true if it exceeds the flush watermark, so that
    /// [`MemStoreAccounting::measure`] is due.
    pub fn note(&self, bytes: u64) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let flush_from = self.flush_from.load(Ordering::Relaxed);
        before <= flush_from && before.saturating_add(bytes) > flush_from
    }

    /// Applies the measurements that `regions` takes, and returns the flushes that are needed.
    pub fn measure<R>(&self, now: Instant, regions: impl FnOnce() -> R) -> (R, FlushDemand)
    where
        R: AsRef<[Unflushed]>,
    {
        // Read before measuring: bytes written during it may count twice, but are never missed.
        let counted = self.bytes();
        let regions = regions();
        let need = self.apply(now, counted, regions.as_ref());
        (regions, need)
    }

    fn apply(&self, now: Instant, counted: u64, regions: &[Unflushed]) -> FlushDemand {
        let of_regions: u64 = regions.iter().map(|region| region.bytes).sum();
        let cells: u64 = regions.iter().map(|region| region.cells).sum();
        let nonces = self.nonces.as_ref().map_or(0, |nonces| nonces.bytes());
        let total = cells.max(self.chunk_bytes()) + nonces;
        let going: u64 = regions.iter().map(|region| region.flushing_bytes).sum();
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
        let is_kept_by_readers = of_regions < total && of_regions < self.limit / FLUSHED_DIVISOR;
        let flushable = if is_kept_by_readers { 0 } else { total };
        let over = flushable.saturating_add(measured.lead).saturating_sub(throttle_from);
        FlushDemand {
            all_flushers: over > 0,
            bytes: over.saturating_sub(going),
            worth_bytes: measured.flush_bytes / WORTH_DIVISOR,
        }
    }
}

impl TypicalCall {
    /// Returns the share of a hold that a call of `bytes` bears. Counts the call.
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

impl FlushDemand {
    /// Requests flushes of the largest regions until the need is met. `open` flushes wait or run
    /// already. `request` takes an index and returns true if the flush was not requested before.
    pub fn request_flushes(
        mut self,
        regions: &[Unflushed],
        flushers: usize,
        mut open: usize,
        mut request: impl FnMut(usize) -> bool,
    ) {
        let free = regions.iter().enumerate().filter(|(_, region)| !region.is_flushing && region.bytes > 0);
        let mut largest: Vec<_> = free.map(|(at, region)| (at, region.bytes)).collect();
        largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        for (at, bytes) in largest {
            let is_needed = self.bytes > 0 || (self.all_flushers && open < flushers);
            if !is_needed || (open > 0 && bytes < self.worth_bytes) {
                return;
            }
            self.bytes = self.bytes.saturating_sub(bytes);
            open += usize::from(request(at));
        }
    }
}

/// Returns about how many bytes a mutation adds to the MemStore.
pub fn bytes_of(mutation: &Mutation) -> u64 {
    mutation.cells.iter().map(|cell| (cell.bytes_len() + CELL_BYTES) as u64).sum()
}
