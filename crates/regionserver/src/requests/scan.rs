//! Scan: open, next, renew and close, all in one message.
//!
//! A call does the following, in this order: finds or opens the scanner; checks the call's sequence
//! number; reads up to the limits; builds the reply; closes the scanner, or puts it back.
//!
//! The limits that end a read:
//!
//! - rows (`number_of_rows`): after that many results
//! - rows of the whole scan (`limit_of_rows`): after that many complete rows; `more_results` =
//!   false
//! - bytes (the client's, the server's): between rows; between cells for clients that take partial
//!   results
//! - time: only for clients that take heartbeats: half of the client's or the lease's timeout
//!
//! A read also ends, without results, when the client has disconnected or its deadline has passed
//! ([`CallerState`]). The scanner is closed then.
//!
//! If a reply reports no more results (in the region, or at all), the scanner is
//! already closed here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::buffer_pool::POOLED_BYTES_MAX;
use evenkeel_common::clock;
use evenkeel_common::length;
use evenkeel_common::{
    Binary, CallerConnection, CallerState, CellBuffer, Charge, ErrorKind, HBaseError, Result, TryError,
};
use evenkeel_metrics::RequestDetail;
use evenkeel_protocol::pb;
use evenkeel_region::filter::Filter;
use evenkeel_region::region::{Operation, Region, RegionCount};
use evenkeel_region::scanner::{LimitScope, NextState, ReplyCharge, ScannerContext, TimeSlice};

use evenkeel_rpc::ConnectionInfo;
use prost::Message;

use crate::convert::{self, read, result};
use crate::quotas::operation::BlockBytes;
use crate::quotas::{OperationQuota, Request};
use crate::requests::caller::{Caller, Reply};
use crate::requests::inline;
use crate::requests::scanners::{OpenScanner, TakeError};
use crate::{RegionServer, RequestKind};

/// Memory of a requested column beside its name.
const COLUMN_BYTES: usize = 64;
/// A reply reserves capacity for at most this many results at once.
const RESULTS_RESERVED_MAX: u32 = 512;
/// A reply may exceed its size limit by this many bytes before it is charged to the reply budget.
const UNCHARGED_BYTES_MAX: u64 = 256 << 10;
/// After this many results, capacity for the rest is reserved as if they were of the same size.
const RESULTS_TO_MEASURE: usize = 32;

/// Answers one call of the scan protocol. Returns `None` if the client's deadline has passed, so
/// that no reply may be sent.
///
/// # Errors
/// `RpcThrottlingException`, which leaves the scanner as it was; `DoNotRetryIOException` for a
/// request with neither scanner nor scan; `UnknownScannerException`,
/// `OutOfOrderScannerNextException`, `NotServingRegionException`; `ScannerResetException` for
/// errors while reading, at which clients open another scanner after the last row that they have;
/// the errors of [`Scanners::admit`](crate::Scanners::admit).
pub fn scan(
    server: &RegionServer,
    request: &pb::ScanRequest,
    caller: &Caller,
) -> Result<Option<Reply<pb::ScanResponse>>> {
    scan_on(None, server, request, caller).map(|scanned| scanned.reply)
}

/// The outcome of a call of the scan protocol.
pub struct Scanned {
    /// `None` if the client's deadline has passed.
    pub reply: Option<Reply<pb::ScanResponse>>,
    /// The region, if a scanner was open.
    pub region: Option<Arc<Region>>,
}

/// As [`scan`], for a call on a connection, which counts as in use while a scanner of it is open.
///
/// # Errors
/// As [`scan`].
pub fn scan_on(
    connection: Option<&Arc<ConnectionInfo>>,
    server: &RegionServer,
    request: &pb::ScanRequest,
    caller: &Caller,
) -> Result<Scanned> {
    server.counters.count(RequestKind::Scan);
    // Set on every call: asynchbase reads it from each reply (HBASE-18000).
    let mut response = pb::ScanResponse { scanner_id: request.scanner_id, ..Default::default() };
    let (id, mut scanner, mut quota) = match request.scanner_id {
        None => open(server, request, caller, &mut response)?,
        Some(id) => match find_scanner(server, request, id)? {
            Some(scanner) => check_next(server, request, caller, (id, scanner))?,
            None => return Ok(Scanned { reply: Some(Reply::plain(response)), region: None }),
        },
    };
    if scanner.is_full {
        server.counters.count(RequestKind::FullScan);
    }
    let region = Arc::clone(&scanner.region);
    let in_use = InUse { server, id: Some(id) };
    if let Err(error) = check_call_seq(request, &mut scanner) {
        in_use.put_back(scanner);
        return Err(error);
    }
    if request.renew() {
        in_use.put_back(scanner);
        return Ok(Scanned { reply: Some(Reply::plain(response)), region: Some(region) });
    }
    region.counts().add(RegionCount::Scans, 1);
    let started_at = clock::monotonic();
    let on = connection.map(|connection| Arc::clone(connection) as Arc<dyn CallerConnection>);
    let state = CallerState::new(on, caller.deadline);
    let quota_bytes_max = quota.reply_bytes_max();
    let call = Call { server, request, caller, state, started_at, quota_bytes_max };
    let mut block_bytes = 0;
    let outcome = call.run(&mut scanner, response, &mut block_bytes);
    let of_table = region.operation_times();
    let time = clock::since(started_at);
    of_table.record(Operation::Scan, time);
    server.user_times().record_batch(caller.user, Operation::Scan, time, 1);
    let (rows, filtered) = scanner.scanner.count_reads();
    server.user_times().count_rows(caller.user, rows, filtered);
    scanner.block_bytes.count(block_bytes);
    quota.add_block_bytes(block_bytes);
    if let Ok(ended) = &outcome {
        quota.add_result(ended.cells, length::index(ended.cell_bytes));
        of_table.record_scan_bytes(ended.cell_bytes);
    }
    drop(quota);
    let reply = finish(connection, in_use, scanner, caller, outcome)?;
    Ok(Scanned { reply, region: Some(region) })
}

/// Returns the details that the ledger keeps of an answered scan call.
pub fn detail(region: Option<&Region>, response: &pb::ScanResponse) -> RequestDetail {
    RequestDetail {
        operation: "getScanner",
        region: region.map(|region| Binary(region.info().name()).to_string()).unwrap_or_default(),
        text: format!("scanner_id: {}, results: {}", response.scanner_id(), response.cells_per_result.len()),
        ..RequestDetail::default()
    }
}

/// The scanner that a call has taken. Closes the scanner when it is dropped, also during a panic.
struct InUse<'a> {
    server: &'a RegionServer,
    id: Option<u64>,
}

impl InUse<'_> {
    fn put_back(mut self, scanner: Box<OpenScanner>) {
        if let Some(id) = self.id.take() {
            self.server.scanners.put_back(id, scanner);
        }
    }

    fn close(mut self, next_call_seq: u64) {
        if let Some(id) = self.id.take() {
            self.server.scanners.close(id, Some(next_call_seq));
        }
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.server.scanners.close(id, None);
        }
    }
}

/// Returns the scanner, owned by the connection that its client uses for this call.
fn with_lease(mut scanner: Box<OpenScanner>, connection: Option<&Arc<ConnectionInfo>>) -> Box<OpenScanner> {
    if let Some(connection) =
        connection.filter(|connection| scanner.owner != Some(connection.peer) || scanner.lease.is_none())
    {
        (scanner.owner, scanner.lease) = (Some(connection.peer), Some(connection.lease()));
    }
    scanner
}

/// Closes the scanner or puts it back, depending on the outcome of the call.
fn finish(
    connection: Option<&Arc<ConnectionInfo>>,
    in_use: InUse<'_>,
    scanner: Box<OpenScanner>,
    caller: &Caller,
    outcome: Result<CallOutcome>,
) -> Result<Option<Reply<pb::ScanResponse>>> {
    let too_late = caller.deadline.is_some_and(|deadline| clock::monotonic() > deadline);
    match outcome {
        Err(error) if too_late && error.kind() == ErrorKind::Timeout => Ok(None),
        Err(error) => Err(reset(error, caller)),
        // The client does not know which rows it missed, so it must not continue with this scanner.
        Ok(_) if too_late => Ok(None),
        Ok(ended) => {
            match ended.close {
                true => in_use.close(scanner.next_call_seq),
                false => in_use.put_back(with_lease(scanner, connection)),
            }
            Ok(Some(ended.reply))
        }
    }
}

fn open(
    server: &RegionServer,
    request: &pb::ScanRequest,
    caller: &Caller,
    response: &mut pb::ScanResponse,
) -> Result<(u64, Box<OpenScanner>, OperationQuota)> {
    let missing = |what: &str| HBaseError::do_not_retry(format!("Missing required input: {what}"));
    let proto = request.scan.as_ref().ok_or_else(|| missing("scannerId or scan"))?;
    let specifier = request.region.as_ref().ok_or_else(|| missing("region"))?;
    let region = server.region(specifier)?;
    let quota = check_quota(server, request, caller, (&region, BlockBytes::default()))?;
    let is_full = is_full_scan(proto, &region);
    let wanted = read::scan(proto, server.config.load_families_on_demand)?;
    let batch = usize::try_from(wanted.scan.batch).unwrap_or(0);
    // The request message, whose slices the scanner keeps, and the lists that were built from it.
    let columns: usize =
        wanted.scan.families.iter().map(|f| f.qualifiers.as_ref().map_or(0, |q| q.len())).sum();
    let request_bytes =
        (request.encoded_len() + (columns + wanted.scan.family_time_ranges.len()) * COLUMN_BYTES) as u64;
    let whole_rows = wanted.scan.filter.as_deref().is_some_and(Filter::has_filter_row);
    let scanner = region.scanner(wanted.scan)?;
    let id = server.scanners.new_id();
    response.scanner_id = Some(id);
    response.mvcc_read_point = Some(scanner.read_point());
    response.ttl = Some(u32::try_from(server.config.scanner_lease_ms).unwrap_or(u32::MAX));
    let scanner = OpenScanner {
        region,
        scanner,
        next_call_seq: 0,
        partial_row: None,
        batch,
        max_result_bytes: wanted.max_result_bytes,
        need_cursor: wanted.need_cursor,
        whole_rows,
        is_full,
        is_costly: !inline::is_cheap(proto.filter.as_ref()),
        request_bytes: request_bytes + wanted.filter_bytes,
        block_bytes: BlockBytes::default(),
        owner: caller.peer,
        lease: None,
    };
    server.scanners.admit(id, &scanner)?;
    Ok((id, Box::new(scanner), quota))
}

/// Checks a call of a scan against the quotas.
fn check_quota(
    server: &RegionServer,
    request: &pb::ScanRequest,
    caller: &Caller,
    (region, before): (&Region, BlockBytes),
) -> Result<OperationQuota> {
    let (calls, result_bytes_max) = (request.next_call_seq(), server.config.result_bytes_max);
    server.check_quota(caller, region, Request::Scan { calls, before, result_bytes_max })
}

/// Checks the next call of a scanner that was taken. If the call is refused, the scanner is put
/// back as it was, and its client calls again. A call that reads nothing is not refused: it renews
/// or closes the scanner.
fn check_next(
    server: &RegionServer,
    request: &pb::ScanRequest,
    caller: &Caller,
    (id, scanner): (u64, Box<OpenScanner>),
) -> Result<(u64, Box<OpenScanner>, OperationQuota)> {
    if request.renew() || rows_wanted(request) == 0 {
        return Ok((id, scanner, OperationQuota::NONE));
    }
    match check_quota(server, request, caller, (&scanner.region, scanner.block_bytes)) {
        Ok(quota) => Ok((id, scanner, quota)),
        Err(error) => {
            server.scanners.put_back(id, scanner);
            Err(error)
        }
    }
}

/// Returns the maximum number of rows of a reply.
fn rows_wanted(request: &pb::ScanRequest) -> u32 {
    request.number_of_rows.unwrap_or(u32::from(!request.close_scanner()))
}

/// Returns true if a scan covers all rows of a region.
fn is_full_scan(scan: &pb::Scan, region: &Region) -> bool {
    let (start, stop) = (scan.start_row.as_deref(), scan.stop_row.as_deref());
    let (start, stop) = (start.unwrap_or_default(), stop.unwrap_or_default());
    let info = region.info();
    let is_to_end = stop.is_empty() || (!info.end_key().is_empty() && stop >= info.end_key());
    start <= info.start_key() && is_to_end
}

/// Returns the scanner with this id. `None` if it was closed before and the reply must be empty.
fn find_scanner(
    server: &RegionServer,
    request: &pb::ScanRequest,
    id: u64,
) -> Result<Option<Box<OpenScanner>>> {
    server.check_open()?;
    let scanner = match server.scanners.take(id) {
        Ok(scanner) => scanner,
        Err(TakeError::Error(error)) => return Err(error),
        Err(TakeError::Closed(next)) => return check_closed_seq(request, next).map(|()| None),
    };
    if server.regions.serves(&scanner.region) {
        return Ok(Some(scanner));
    }
    server.scanners.close(id, None);
    let name = scanner.region.info().name_text();
    let message = format!("Region has changed on the scanner {}: regionName={name}", id as i64);
    Err(HBaseError::new(ErrorKind::NotServingRegion, message))
}

/// A closed scanner answers one more call; a client may also repeat its last call.
fn check_closed_seq(request: &pb::ScanRequest, next: u64) -> Result<()> {
    match request.next_call_seq {
        Some(seq) if seq != next && seq != next.wrapping_add(1) => Err(out_of_order(next, seq)),
        _ => Ok(()),
    }
}

fn check_call_seq(request: &pb::ScanRequest, scanner: &mut OpenScanner) -> Result<()> {
    let Some(seq) = request.next_call_seq else { return Ok(()) };
    if seq != scanner.next_call_seq {
        return Err(out_of_order(scanner.next_call_seq, seq));
    }
    scanner.next_call_seq = seq.wrapping_add(1);
    Ok(())
}

fn out_of_order(expected: u64, got: u64) -> HBaseError {
    let message = format!("Expected nextCallSeq: {expected} But the nextCallSeq got from client: {got}");
    HBaseError::new(ErrorKind::OutOfOrderScannerNext, message)
}

/// Returns the error that a client gets when reading failed: one that makes it open another
/// scanner, unless the failure is permanent.
fn reset(error: HBaseError, caller: &Caller) -> HBaseError {
    match error.kind() {
        ErrorKind::FileNotFound => HBaseError::do_not_retry(error.to_string()),
        // An unchecked exception in HBase: returned unchanged.
        ErrorKind::IllegalArgument => error,
        // No client sees it.
        ErrorKind::CallerDisconnected => error,
        _ if error.is_do_not_retry() => error,
        // The client backs off, then finds no scanner and opens another one.
        ErrorKind::CallQueueTooBig => error,
        _ if caller.has_version(1, 4) => {
            HBaseError::new(ErrorKind::ScannerReset, format!("Scanner is closed on the server-side: {error}"))
        }
        _ => HBaseError::new(
            ErrorKind::UnknownScanner,
            format!("The scanner is closed on the server; clients of this version open another one: {error}"),
        ),
    }
}

/// The context of one call whose scanner was found or opened.
struct Call<'a> {
    server: &'a RegionServer,
    request: &'a pb::ScanRequest,
    caller: &'a Caller,
    state: CallerState,
    started_at: Instant,
    /// The maximum bytes of cells and of blocks that the quotas allow.
    quota_bytes_max: Option<u64>,
}

/// The outcome of a call.
struct CallOutcome {
    reply: Reply<pb::ScanResponse>,
    /// Cells of the reply.
    cells: usize,
    /// Size of the cells of the reply in bytes.
    cell_bytes: u64,
    close: bool,
}

/// The results of one call.
#[derive(Default)]
struct Page {
    cells: CellBuffer,
    counts: Vec<u32>,
    partial: Vec<bool>,
    complete_rows: u32,
    /// `limit_of_rows` was reached.
    limit_reached: bool,
    /// Bytes of blocks read for each result, if the client asked for them.
    block_bytes: Option<Vec<u64>>,
}

impl Page {
    /// Returns the row of the last result, if that result does not complete its row.
    fn partial_row(&self) -> Option<&[u8]> {
        let is_partial = self.partial.last().copied().unwrap_or(false);
        if is_partial { Some(self.last_row()?) } else { None }
    }

    /// Reserves capacity for the results up to the limits, assuming they are like the results so
    /// far. Growing step by step would copy each byte once more.
    fn reserve_capacity(&mut self, rows: u32, context: &ScannerContext) {
        let here = self.cells.encoded_len() as u64;
        let all = here.saturating_mul(context.size_limit) / context.heap_size.max(1) + here;
        let times = (rows as usize / self.counts.len().max(1)).saturating_sub(1);
        let bytes = length::index(all.min(POOLED_BYTES_MAX as u64).saturating_sub(here));
        self.cells.reserve_times(times, bytes);
    }

    fn last_row(&self) -> Option<&[u8]> {
        self.cells.last().map(|cell| cell.row())
    }
}

impl Call<'_> {
    /// Runs the call. Adds the bytes of blocks that it reads to `block_bytes`, also if it fails.
    fn run(
        &self,
        scanner: &mut OpenScanner,
        mut response: pb::ScanResponse,
        block_bytes: &mut u64,
    ) -> Result<CallOutcome> {
        let close_asked = self.request.close_scanner();
        let rows = rows_wanted(self.request);
        let mut page = Page {
            cells: self.server.cells_for(self.caller),
            block_bytes: self.wants_query_metrics().then(Vec::new),
            ..Page::default()
        };
        let mut context = self.context(scanner);
        let read = match rows {
            0 => Ok(true),
            _ => self.read(scanner, rows, &mut page, &mut context, &mut response),
        };
        *block_bytes += context.block_size;
        let more_in_region = read?;
        let filter_done = page.counts.is_empty() && scanner.scanner.is_filter_done();
        let more = !page.limit_reached && !filter_done;
        response.more_results = Some(more);
        response.more_results_in_region = Some(more_in_region);
        response.stale = Some(scanner.region.is_secondary());
        if more && more_in_region && !page.counts.is_empty() {
            scanner.partial_row = page.partial_row().map(Bytes::copy_from_slice);
        }
        if self.request.track_scan_metrics() {
            response.scan_metrics = Some(self.metrics(&context));
        }
        let (cells, cell_bytes) = (page.cells.len(), page.cells.encoded_len() as u64);
        let room = context.take_charge().map(ReplyCharge::into_charge);
        let reply = self.reply(response, page, room);
        let close = close_asked || !more || !more_in_region;
        Ok(CallOutcome { reply, cells, cell_bytes, close })
    }

    fn wants_query_metrics(&self) -> bool {
        self.request.scan.as_ref().is_some_and(|scan| scan.query_metrics_enabled())
    }

    fn context(&self, scanner: &OpenScanner) -> ScannerContext {
        let quota_max = self.quota_bytes_max.unwrap_or(u64::MAX);
        let server_max = self.server.result_bytes_max().min(quota_max);
        let bytes = scanner.max_result_bytes.map_or(server_max, |bytes| bytes.min(server_max));
        let partials = self.request.client_handles_partials() && !scanner.whole_rows;
        let scope = if partials { LimitScope::BetweenCells } else { LimitScope::BetweenRows };
        let slice = TimeSlice::while_awaited(self.state.clone());
        let mut context =
            ScannerContext::within(slice).with_batch(scanner.batch).with_size_limit(scope, bytes);
        context.block_size_limit = self.server.config.result_bytes_max.min(quota_max);
        // The size limit bounds replies of small cells. Only a large cell that exceeds it is
        // charged.
        let unsent = Charge::none(Arc::clone(&self.server.unsent));
        context.set_charge(ReplyCharge::new(unsent, bytes.saturating_add(UNCHARGED_BYTES_MAX)));
        match self.deadline() {
            Some(deadline) => context.with_deadline(scope, deadline),
            None => context,
        }
    }

    /// Returns when a client that takes heartbeats must get a reply.
    fn deadline(&self) -> Option<Instant> {
        if !self.request.client_handles_partials() || !self.request.client_handles_heartbeats() {
            return None;
        }
        let config = &self.server.config;
        let least = Duration::from_millis(config.scan_time_min_ms);
        let waits_until = self.caller.deadline.or_else(|| {
            let timeout = Duration::from_millis(config.rpc_timeout_ms);
            (!timeout.is_zero()).then(|| self.caller.received_at + timeout)
        });
        let lease = Duration::from_millis(config.scanner_lease_ms.max(0) as u64);
        let left = waits_until.map(|until| until.saturating_duration_since(self.started_at).max(least));
        let limit = left.map_or(lease, |left| left.min(lease));
        Some(self.started_at + (limit / 2).max(least))
    }

    /// Reads until a limit is reached. Returns true if the region has more.
    fn read(
        &self,
        scanner: &mut OpenScanner,
        rows: u32,
        page: &mut Page,
        context: &mut ScannerContext,
        response: &mut pb::ScanResponse,
    ) -> Result<bool> {
        page.counts.reserve(rows.min(RESULTS_RESERVED_MAX) as usize);
        loop {
            let (before, blocks_before) = (page.cells.len(), context.block_size);
            let state = scanner.scanner.next(&mut page.cells, context).map_err(TryError::into_failure)?;
            let more = state.has_more();
            if page.cells.len() > before {
                if !self.add(scanner, page, before, state) {
                    return Ok(more);
                }
                if let Some(block_bytes) = &mut page.block_bytes {
                    block_bytes.push(context.block_size - blocks_before);
                }
                if page.counts.len() == RESULTS_TO_MEASURE {
                    page.reserve_capacity(rows, context);
                }
            } else if let (false, Some(last)) = (more, page.partial.last_mut()) {
                // The row that was cut turned out to be complete.
                *last = false;
            }
            if page.limit_reached || !more {
                return Ok(more);
            }
            let time_up = matches!(state, NextState::TimeLimitMidRow | NextState::TimeLimitRowEnd);
            let full = context.size_reached(LimitScope::BetweenRows);
            if time_up || (full && page.counts.is_empty()) {
                response.heartbeat_message = Some(true);
                response.cursor = cursor(scanner);
            }
            if time_up || full || page.counts.len() >= rows as usize {
                return Ok(true);
            }
        }
    }

    /// Makes a result of the cells from `before` on. Returns false if the row limit was reached
    /// before these cells; they are dropped then.
    fn add(&self, scanner: &OpenScanner, page: &mut Page, before: usize, state: NextState) -> bool {
        let limit = self.request.limit_of_rows();
        let unfinished = match page.counts.is_empty() {
            _ if limit == 0 => None,
            true => scanner.partial_row.as_deref(),
            false if page.partial.last() == Some(&true) => {
                before.checked_sub(1).map(|i| page.cells.get(i).row())
            }
            false => None,
        };
        if unfinished.is_some_and(|row| row != page.cells.get(before).row()) {
            page.complete_rows += 1;
            page.limit_reached = page.complete_rows >= limit;
            if page.limit_reached {
                page.cells.truncate(before);
                return false;
            }
        }
        page.counts.push(length::must_u32(page.cells.len() - before));
        page.partial.push(state.is_mid_row());
        if limit > 0 && !state.is_mid_row() {
            page.complete_rows += 1;
            page.limit_reached = page.complete_rows >= limit;
        }
        true
    }

    fn metrics(&self, context: &ScannerContext) -> pb::ScanMetrics {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let counters = [
            ("ROWS_SCANNED", context.rows_scanned),
            ("ROWS_FILTERED", context.rows_filtered),
            ("BLOCK_BYTES_SCANNED", context.block_size),
            ("RPC_SCAN_PROCESSING_TIME", millis(clock::since(self.started_at))),
            (
                "RPC_SCAN_QUEUE_WAIT_TIME",
                millis(self.started_at.saturating_duration_since(self.caller.received_at)),
            ),
        ];
        let pair = |(name, value): (&str, u64)| pb::NameInt64Pair {
            name: Some(name.to_owned()),
            value: Some(value as i64),
        };
        pb::ScanMetrics { metrics: counters.into_iter().map(pair).collect() }
    }

    fn reply(
        &self,
        mut response: pb::ScanResponse,
        page: Page,
        charge: Option<Charge>,
    ) -> Reply<pb::ScanResponse> {
        if let Some(block_bytes) = &page.block_bytes {
            let metrics = |bytes: &u64| pb::QueryMetrics { block_bytes_scanned: Some(*bytes) };
            response.query_metrics = block_bytes.iter().map(metrics).collect();
        }
        match self.caller.block() {
            Some(mut block) => {
                block.push_buffer_owned(page.cells);
                response.cells_per_result = page.counts;
                response.partial_flag_per_result = page.partial;
                Reply { message: response, block: Some(block), charge }
            }
            None => {
                response.results = results(page, response.stale());
                Reply { message: response, block: None, charge }
            }
        }
    }
}

fn cursor(scanner: &OpenScanner) -> Option<pb::Cursor> {
    let row = scanner.scanner.peeked_row().filter(|_| scanner.need_cursor)?;
    Some(pb::Cursor { row: Some(Bytes::copy_from_slice(row)) })
}

/// Returns the results as messages, for clients without a codec.
fn results(page: Page, is_stale: bool) -> Vec<pb::Result> {
    if let [partial] = page.partial[..] {
        // A large row is alone in its reply, and is not copied.
        return vec![result::with_cells(page.cells, is_stale, partial)];
    }
    let mut cells = page.cells.iter();
    let counted = page.counts.iter().zip(&page.partial);
    counted
        .map(|(count, partial)| {
            let mut own = CellBuffer::new();
            cells.by_ref().take(*count as usize).for_each(|cell| own.push(&cell));
            result::with_cells(own, is_stale, *partial)
        })
        .collect()
}

/// Returns true if a request may run on the priority handlers: it is known to be for a system
/// table, and its filter is cheap.
pub fn has_priority(server: &RegionServer, request: &pb::ScanRequest) -> bool {
    if let Some(id) = request.scanner_id {
        return server.scanners.has_priority(id);
    }
    if !inline::is_cheap(request.scan.as_ref().and_then(|scan| scan.filter.as_ref())) {
        return false;
    }
    let encoded = request.region.as_ref().and_then(|specifier| convert::region::encoded_name(specifier).ok());
    let region = encoded.and_then(|name| server.regions.find(&name));
    region.is_some_and(|region| region.info().table().is_system())
}
