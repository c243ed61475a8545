//! [`OperationQuota`]: what one request has taken from the limits that apply to it (HBase's
//! `DefaultOperationQuota` and `ExceedOperationQuota`).
//!
//! ```text
//! check: estimate the cost; ask every limit; consume the estimate
//!        the request runs: mutations, results and blocks are counted
//! end:   consume the difference of the actual cost and the estimate
//! ```
//!
//! The estimate is 100 bytes for a write, and one block for a read or the first call of a scan.
//! Later calls of a scan are estimated by the calls before them. A request is refused by its
//! estimate only, so one that turns out to cost more leaves a deficit, which delays the next ones.
//!
//! A request that stops on its connection's thread and starts again elsewhere is checked again
//! there; it first [gives back](OperationQuota::give_back) what it has taken, also for regions
//! that it has [settled](OperationQuota::settle).

use std::sync::Arc;
use std::time::Instant;

use evenkeel_common::{CellBuffer, KeyValue, clock, length};

use super::limiter::{Cost, Exceeded, Limiter};
use super::settings::QuotaSettings;

/// The estimated bytes of a write, and of a Get if results are counted.
const WRITE_BYTES: i64 = 100;
/// The estimated bytes of a call of a scan if results are counted.
const SCAN_BYTES: i64 = 1000;
/// The least estimate of a read. A request of 0 bytes passes the limits of reads unchecked, as a
/// call of a scan whose calls before read no blocks does in HBase.
const READ_BYTES_MIN: i64 = 1;
/// A call of a scan is estimated at no more than this part of a limit: a larger estimate might
/// never be available.
const SCAN_SHARE_MAX: f64 = 0.9;
/// The bytes before each cell in a [`CellBuffer`]: its length.
const CELL_LENGTH_BYTES: usize = 4;

/// A request that is about to begin, as far as its cost is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Writes and reads of single rows.
    Batch {
        /// Actions that write.
        writes: usize,
        /// Actions that read, also those that write then.
        reads: usize,
        /// Whether any action reads before it writes.
        is_atomic: bool,
    },
    /// A call of a scan.
    Scan {
        /// The number of calls of this scan before it.
        calls: u64,
        /// The bytes of blocks of the calls before it.
        before: BlockBytes,
        /// The maximum bytes of a reply.
        result_bytes_max: u64,
    },
}

impl Request {
    /// A Get.
    pub const GET: Self = Self::Batch { writes: 0, reads: 1, is_atomic: false };
    /// A Put or Delete.
    pub const WRITE: Self = Self::Batch { writes: 1, reads: 0, is_atomic: false };
    /// A write that reads first.
    pub const ATOMIC_WRITE: Self = Self::Batch { writes: 1, reads: 1, is_atomic: true };
}

/// The bytes of blocks that the calls of a scan have read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockBytes {
    max: u64,
    last: u64,
    /// By how much the last call read more than the one before.
    growth: i64,
}

impl BlockBytes {
    /// Counts a call.
    pub fn count(&mut self, bytes: u64) {
        self.growth = signed(bytes) - signed(self.last);
        self.last = bytes;
        self.max = self.max.max(bytes);
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn bytes_of(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

/// The limits that apply to a request.
#[derive(Debug, Default)]
pub(super) struct Applicable {
    /// Those of the user, table, namespace and RegionServer, in this order.
    pub limiters: Vec<Arc<Limiter>>,
    /// That of the RegionServer, if requests may exceed their other limits while this one has free
    /// units. It is not in `limiters` then.
    pub may_exceed: Option<Arc<Limiter>>,
}

impl Applicable {
    pub fn is_empty(&self) -> bool {
        self.limiters.is_empty() && self.may_exceed.is_none()
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Limiter>> {
        self.limiters.iter().chain(&self.may_exceed)
    }
}

/// The facts that estimates depend on.
pub(super) struct Estimates<'a> {
    pub settings: &'a QuotaSettings,
    /// The smallest block size of the table's families.
    pub block_bytes: i64,
    /// The estimated milliseconds of a request, if the time of handlers is limited.
    pub handler_ms: i64,
}

impl Estimates<'_> {
    fn cost(&self, request: Request, limits: &Applicable) -> Cost {
        let mut cost = Cost::default();
        match request {
            Request::Batch { writes, reads, is_atomic } => {
                (cost.writes, cost.reads) = (bytes_of(writes), bytes_of(reads));
                cost.is_atomic = is_atomic;
                cost.write_bytes = cost.writes.saturating_mul(WRITE_BYTES);
                cost.read_bytes = match self.settings.use_result_bytes {
                    true => cost.reads.saturating_mul(WRITE_BYTES),
                    false if reads > 0 => self.block_bytes.max(READ_BYTES_MIN),
                    false => 0,
                };
                cost.handler_ms = cost.writes.saturating_add(cost.reads).saturating_mul(self.handler_ms);
            }
            Request::Scan { calls, before, result_bytes_max } => {
                cost.reads = 1;
                cost.read_bytes = match self.settings.use_result_bytes {
                    true => SCAN_BYTES,
                    false => {
                        let bytes = self.scan_bytes(calls, before, result_bytes_max);
                        bytes.min(scan_bytes_max(limits)).max(READ_BYTES_MIN)
                    }
                };
                cost.handler_ms = self.handler_ms;
            }
        }
        cost.write_units = units(cost.write_bytes, self.settings.write_unit_bytes);
        cost.read_units = units(cost.read_bytes, self.settings.read_unit_bytes);
        cost
    }

    fn scan_bytes(&self, calls: u64, before: BlockBytes, result_bytes_max: u64) -> i64 {
        match calls {
            0 => self.block_bytes,
            _ if before.growth > self.block_bytes => {
                signed(result_bytes_max).min(signed(calls.saturating_mul(before.max)))
            }
            _ => signed(before.max),
        }
    }
}

fn scan_bytes_max(limits: &Applicable) -> i64 {
    let limit = limits.limiters.iter().map(|limiter| limiter.read_bytes_limit()).min().unwrap_or(i64::MAX);
    length::integer_part((SCAN_SHARE_MAX * limit as f64).round())
}

/// Returns the capacity units of bytes, rounded up.
fn units(bytes: i64, unit_bytes: i64) -> i64 {
    length::integer_part((bytes as f64 / unit_bytes as f64).ceil())
}

/// What a request has taken. Its end consumes the rest; an operation quota that is dropped ends.
#[derive(Debug)]
struct Taken {
    limits: Applicable,
    estimate: Cost,
    read_bytes_available: i64,
    write_unit_bytes: i64,
    read_unit_bytes: i64,
    use_result_bytes: bool,
    began_at: Instant,
    written_bytes: i64,
    result_bytes: i64,
    /// What it has cost beyond its estimate, if that was consumed already.
    settled: Option<Cost>,
    block_bytes: i64,
    /// Whether some of its reads are counted by no result and no block. The reads cost at least
    /// the estimate then.
    has_uncounted_reads: bool,
    is_over: bool,
}

/// See the module's documentation. Takes no memory while no limit applies.
#[derive(Debug, Default)]
pub struct OperationQuota(Option<Box<Taken>>);

impl OperationQuota {
    /// A request without limits.
    pub const NONE: Self = Self(None);

    /// Checks a request and consumes its estimated cost.
    ///
    /// # Errors
    /// The first limit that is used up.
    pub(super) fn take(
        request: Request,
        limits: Applicable,
        estimates: &Estimates<'_>,
        now_ms: i64,
    ) -> Result<Self, Exceeded> {
        let estimate = estimates.cost(request, &limits);
        let check = |limiter: &Arc<Limiter>| limiter.check(&estimate, now_ms);
        match &limits.may_exceed {
            None => limits.limiters.iter().try_for_each(check)?,
            // The others are consumed beyond their limits, and refilled as by their checks.
            Some(server) => {
                check(server)?;
                limits.limiters.iter().for_each(|limiter| limiter.refill(now_ms));
            }
        }
        // HBase: with a RegionServer's limit that may be used, what that limit has left counts.
        let available = |limiter: &Arc<Limiter>| limiter.read_bytes_available();
        let of_server = limits.may_exceed.as_ref().map_or(i64::MIN, available);
        let least = limits.limiters.iter().map(available).min().unwrap_or(i64::MAX);
        limits.all().for_each(|limiter| limiter.grab(&estimate));
        let settings = estimates.settings;
        Ok(Self(Some(Box::new(Taken {
            estimate,
            read_bytes_available: least.max(of_server),
            write_unit_bytes: settings.write_unit_bytes,
            read_unit_bytes: settings.read_unit_bytes,
            use_result_bytes: settings.use_result_bytes,
            began_at: clock::monotonic(),
            written_bytes: 0,
            result_bytes: 0,
            block_bytes: 0,
            has_uncounted_reads: false,
            settled: None,
            is_over: false,
            limits,
        }))))
    }

    /// Returns true if limits apply.
    pub fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the maximum bytes of the reply; `None` for no limit. As in HBase there is no limit
    /// for a request that only writes if nothing is left to read.
    pub fn reply_bytes_max(&self) -> Option<u64> {
        let taken = self.0.as_ref()?;
        let bytes = taken.read_bytes_available.max(taken.estimate.read_bytes);
        (bytes > 0).then(|| bytes.unsigned_abs())
    }

    /// Counts the cells of a mutation.
    pub fn add_mutation(&mut self, cells: &[KeyValue]) {
        if let Some(taken) = &mut self.0 {
            taken.written_bytes += cells.iter().map(|cell| bytes_of(cell.bytes_len())).sum::<i64>();
        }
    }

    /// Counts the cells of a result, given by their number and the bytes that they take in a
    /// [`CellBuffer`].
    pub fn add_result(&mut self, cells: usize, encoded_bytes: usize) {
        if let Some(taken) = &mut self.0 {
            taken.result_bytes += bytes_of(encoded_bytes.saturating_sub(cells * CELL_LENGTH_BYTES));
        }
    }

    /// Counts all cells of a buffer.
    pub fn add_cells(&mut self, cells: &CellBuffer) {
        self.add_result(cells.len(), cells.encoded_len());
    }

    /// Counts bytes of blocks that the request read.
    pub fn add_block_bytes(&mut self, bytes: u64) {
        if let Some(taken) = &mut self.0 {
            taken.block_bytes = taken.block_bytes.saturating_add(signed(bytes));
        }
    }

    /// Makes the estimate the least that the reads of the request cost, because nothing counts
    /// some of them: those that a write makes first.
    pub fn keep_read_estimate(&mut self) {
        if let Some(taken) = &mut self.0 {
            taken.has_uncounted_reads = true;
        }
    }

    /// Gives back everything: the request will be checked again.
    pub fn give_back(mut self) {
        if let Some(taken) = &mut self.0 {
            taken.is_over = true;
            // First what was settled, which may consume: what is given back beyond a full limit is
            // lost.
            if let Some(settled) = &taken.settled {
                let settled = settled.negated();
                taken.limits.all().for_each(|limiter| limiter.adjust(&settled));
            }
            taken.limits.all().for_each(|limiter| limiter.give_back(&taken.estimate));
        }
    }

    /// Consumes the difference of the cost so far and the estimate now, and not when this is
    /// dropped. [`OperationQuota::give_back`] gives it back, too.
    pub fn settle(&mut self) {
        if let Some(taken) = &mut self.0 {
            taken.settle();
        }
    }
}

impl Taken {
    fn settle(&mut self) {
        if !self.is_over && self.settled.is_none() {
            let difference = self.difference();
            self.limits.all().for_each(|limiter| limiter.adjust(&difference));
            self.settled = Some(difference);
        }
    }

    /// Returns what the request has cost beyond its estimate.
    fn difference(&self) -> Cost {
        let estimate = &self.estimate;
        let units_more = |actual, estimated, unit| units(actual, unit) - units(estimated, unit);
        let least = if self.has_uncounted_reads { estimate.read_bytes } else { 0 };
        let read_bytes = match self.use_result_bytes {
            true => self.result_bytes,
            false => self.block_bytes.max(self.result_bytes),
        };
        // Capacity units count results alone, as in HBase.
        let unit_bytes = self.result_bytes.max(least);
        let ms = signed(length::whole_ms(clock::since(self.began_at)));
        Cost {
            write_bytes: self.written_bytes - estimate.write_bytes,
            read_bytes: read_bytes.max(least) - estimate.read_bytes,
            write_units: units_more(self.written_bytes, estimate.write_bytes, self.write_unit_bytes),
            read_units: units_more(unit_bytes, estimate.read_bytes, self.read_unit_bytes),
            is_atomic: estimate.is_atomic,
            handler_ms: ms - estimate.handler_ms,
            ..Cost::default()
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.settle();
    }
}
