//! [`Scanner`]: rows of a scan, batch by batch, across regions, retries and restarts of servers.
//!
//! A scanner's *position* is the row from which it continues, in `scan.start`. Complete rows
//! advance the position. Partial rows are buffered in `part` until the row is complete, and dropped
//! if the scanner on the server is lost, since its successor starts the row again. So each row is
//! returned once and is never mixed from two reads.
//!
//! Memory: one response (`scanner_bytes_max`, or one row if that is larger). A scan that allows
//! partial rows returns them as they arrive. If such a row is interrupted, the scanner keeps its
//! last returned cell, reads the row again at the same read point, and skips the cells already
//! returned.
//!
//! ```no_run
//! # async fn example(table: evenkeel_client::Table) -> evenkeel_client::Result<()> {
//! use evenkeel_client::Scan;
//! let mut scanner = table.scan(Scan::new().prefix("user:").column("f", "name").caching(1000));
//! while let Some(row) = scanner.next().await? {
//!     println!("{:?}", row.value("f", "name"));
//! }
//! // Or as a stream, which prefetches the next batch while this one is used.
//! let rows = table.scan(Scan::new()).into_stream();
//! # drop(rows);
//! # Ok(()) }
//! ```

use evenkeel_common::length;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::{CellComparator, ErrorKind, KeyValue};
use evenkeel_protocol::pb;
use futures_core::Stream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::cells::{CellBlock, cell_of};
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::location::{CachedLocation, Seek};
use crate::operation::{Replicas, Scan};
use crate::replica::{LateReadPolicy, first_of};
use crate::result::RowResult;
use crate::retry::Retry;
use crate::rpc::{Call, Service};
use crate::table::Table;

/// A scanner that is open on a server.
#[derive(Debug)]
struct OpenScanner {
    at: Arc<CachedLocation>,
    id: u64,
    next_call_seq: u64,
}

/// The first response to a scan, and the replica that sent it.
type FirstResponse = (Arc<CachedLocation>, (pb::ScanResponse, CellBlock));

/// The rows of a scan. Dropping it closes the scanner on the server.
#[derive(Debug)]
pub struct Scanner {
    table: Table,
    scan: Scan,
    left: Option<u64>,
    open: Option<OpenScanner>,
    part: Vec<KeyValue>,
    ready: VecDeque<RowResult>,
    /// For partial rows: the last returned cell of a row that is not complete.
    last: Option<KeyValue>,
    read_point: Option<u64>,
    cursor: Option<Bytes>,
    lease: Option<Duration>,
    /// Whether the last response is from a secondary replica and may be stale.
    stale: bool,
    done: bool,
}

impl Drop for Scanner {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let connection = self.table.connection().clone();
            runtime.spawn(async move { close(&connection, open).await });
        }
    }
}

impl Scanner {
    pub(crate) fn new(table: Table, scan: Scan) -> Self {
        let (left, done) = (scan.limit, scan.limit == Some(0));
        Self {
            table,
            scan,
            left,
            open: None,
            part: Vec::new(),
            ready: VecDeque::new(),
            last: None,
            read_point: None,
            cursor: None,
            lease: None,
            stale: false,
            done,
        }
    }

    /// The next row; `None` at the end.
    ///
    /// # Errors
    /// As [`Scanner::next_batch`].
    pub async fn next(&mut self) -> Result<Option<RowResult>> {
        while self.ready.is_empty() && !self.done {
            self.fetch().await?;
        }
        Ok(self.ready.pop_front())
    }

    /// The rows of the next response that has any; `None` at the end. A scan with [`Scan::cursor`]
    /// also returns an empty batch when a server reports its cursor.
    ///
    /// # Errors
    /// The server's exception, or [`Error::RetriesExhausted`]. A later call continues from the same
    /// position.
    pub async fn next_batch(&mut self) -> Result<Option<Vec<RowResult>>> {
        self.cursor = None;
        while self.ready.is_empty() && !self.done && self.cursor.is_none() {
            self.fetch().await?;
        }
        match self.ready.is_empty() && self.done {
            true => Ok(None),
            false => Ok(Some(std::mem::take(&mut self.ready).into())),
        }
    }

    /// The row that the server had reached when the last batch was empty ([`Scan::cursor`]).
    pub fn cursor(&self) -> Option<&[u8]> {
        self.cursor.as_deref()
    }

    /// Renews the scanner's lease on the server, for a consumer that is slower than the lease. If
    /// the lease has expired, the next fetch opens a new scanner.
    ///
    /// # Errors
    /// As [`Scanner::next_batch`], without retries.
    pub async fn renew(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let request = pb::ScanRequest {
            scanner_id: Some(open.id),
            next_call_seq: Some(open.next_call_seq),
            number_of_rows: Some(0),
            renew: Some(true),
            ..Default::default()
        };
        let connection = self.table.connection();
        let timeout = connection.config().rpc_timeout;
        let response = connection.call_region(&open.at, "Scan", &request, &[], timeout).await;
        let (_, _): (pb::ScanResponse, _) = response?;
        open.next_call_seq += 1;
        Ok(())
    }

    /// The rows as a stream. A task prefetches one batch, and renews the server's lease while the
    /// consumer is slow. Dropping the stream ends the task.
    pub fn into_stream(self) -> RowStream {
        RowStream::new(self)
    }

    /// Closes the scan and waits until the server has closed its scanner.
    pub async fn close(mut self) {
        if let Some(open) = self.open.take() {
            close(self.table.connection(), open).await;
        }
    }

    /// Fetches one response, with retries.
    async fn fetch(&mut self) -> Result<()> {
        let mut retry = Retry::new(self.table.connection().config());
        loop {
            let mut at = self.open.as_ref().map(|open| open.at.clone());
            let Err(error) = self.try_fetch(&mut at, &retry).await else { return Ok(()) };
            self.part.clear();
            self.open = None;
            if let Some(last) = &self.last {
                let row = Bytes::copy_from_slice(last.as_cell().row());
                (self.scan.start, self.scan.start_included) = (row, true);
            }
            match reopens(&error) {
                true => retry.pause_after(error).await?,
                false => self.table.recover(at.as_ref(), error, &mut retry).await?,
            }
        }
    }

    async fn try_fetch(&mut self, at: &mut Option<Arc<CachedLocation>>, retry: &Retry) -> Result<()> {
        let connection = self.table.connection().clone();
        let location = match at {
            Some(location) => location.clone(),
            None => at.insert(self.table.locate(self.seek(), retry).await?).clone(),
        };
        let timeout = retry.call_timeout(connection.config().scanner_timeout);
        let (location, (response, cells)) = match (&self.open, self.scan.replicas()) {
            (None, Replicas::Any) if !location.replicas().is_empty() => {
                let response = Box::pin(self.open_on_any(&location, timeout)).await?;
                *at = Some(response.0.clone());
                response
            }
            (None, Replicas::One(id)) if id > 0 => {
                let known = location.replica(id);
                let location =
                    known.inspect_err(|_| connection.locations().remove_with_replicas(&location))?;
                *at = Some(location.clone());
                let request = self.request(&location);
                (location.clone(), connection.call_region(&location, "Scan", &request, &[], timeout).await?)
            }
            _ => {
                let request = self.request(&location);
                (location.clone(), connection.call_region(&location, "Scan", &request, &[], timeout).await?)
            }
        };
        self.note_scanner(&location, &response)?;
        self.take_rows(&response, cells)?;
        self.move_on(&location, &response);
        Ok(())
    }

    /// Opens the scanner on the primary replica, or on another one if the primary is slow; returns
    /// the replica. Scanners that were opened too late are closed.
    async fn open_on_any(&self, first: &Arc<CachedLocation>, timeout: Duration) -> Result<FirstResponse> {
        let connection = self.table.connection();
        let open = |location: Arc<CachedLocation>| {
            let (connection, request) = (connection.clone(), self.request(&location));
            async move {
                let response = connection.call_region(&location, "Scan", &request, &[], timeout).await?;
                Ok((location, response))
            }
        };
        let late = {
            let connection = connection.clone();
            move |(at, (response, _)): FirstResponse| {
                let Some(id) = response.scanner_id.filter(|_| response.more_results_in_region()) else {
                    return;
                };
                let connection = connection.clone();
                tokio::spawn(
                    async move { close(&connection, OpenScanner { at, id, next_call_seq: 0 }).await },
                );
            }
        };
        let others = first.replicas().iter().cloned().map(open).collect();
        let wait = connection.config().primary_scan_timeout;
        first_of(open(first.clone()), wait, others, LateReadPolicy::Finish(late)).await
    }

    fn seek(&self) -> Seek<'_> {
        match (self.scan.reverse, self.scan.start_included && !self.scan.start.is_empty()) {
            (true, false) => Seek::Before(&self.scan.start),
            _ => Seek::At(&self.scan.start),
        }
    }

    fn request(&self, at: &CachedLocation) -> pb::ScanRequest {
        let config = self.table.connection().config();
        let mut request = pb::ScanRequest {
            number_of_rows: Some(
                self.scan.caching.unwrap_or(config.scanner_caching).clamp(1, i32::MAX as u32),
            ),
            limit_of_rows: self.left.map(|n| length::low_u32(n.min(i32::MAX as u64))),
            client_handles_partials: Some(true),
            client_handles_heartbeats: Some(true),
            ..Default::default()
        };
        match &self.open {
            Some(open) => {
                request.scanner_id = Some(open.id);
                request.next_call_seq = Some(open.next_call_seq);
            }
            None => {
                let bytes_max = self.scan.bytes_max.unwrap_or(config.scanner_bytes_max);
                let mut scan = pb::Scan { max_result_size: Some(bytes_max), ..self.scan.message() };
                if self.last.is_some() {
                    scan.mvcc_read_point = self.read_point;
                }
                request.scan = Some(scan);
                request.region = Some(at.specifier());
            }
        }
        request
    }

    fn note_scanner(&mut self, at: &Arc<CachedLocation>, response: &pb::ScanResponse) -> Result<()> {
        self.stale = response.stale();
        self.lease = response.ttl.map(|ttl| Duration::from_millis(ttl.into()));
        self.cursor = response.cursor.as_ref().and_then(|cursor| cursor.row.clone());
        if self.open.is_none() {
            self.read_point = response.mvcc_read_point.filter(|point| *point > 0);
        }
        if let Some(open) = &mut self.open {
            open.next_call_seq += 1;
        } else if let Some(id) = response.scanner_id {
            self.open = Some(OpenScanner { at: at.clone(), id, next_call_seq: 0 });
        } else if response.more_results_in_region() && response.more_results.unwrap_or(true) {
            return Err(Error::Protocol("the response of an unfinished scan has no scanner id".to_owned()));
        }
        Ok(())
    }

    fn take_rows(&mut self, response: &pb::ScanResponse, mut cells: CellBlock) -> Result<()> {
        let flags = response.partial_flag_per_result.iter().copied().chain(std::iter::repeat(false));
        for (count, partial) in response.cells_per_result.iter().zip(flags) {
            self.take_result(cells.take(*count as usize)?, partial);
        }
        for result in &response.results {
            let cells = result.cell.iter().map(cell_of).collect::<Result<_>>()?;
            self.take_result(cells, result.partial());
        }
        Ok(())
    }

    fn take_result(&mut self, cells: Vec<KeyValue>, partial: bool) {
        if self.scan.partial {
            return self.take_piece(cells, partial);
        }
        let another = |a: &KeyValue, b: &KeyValue| !a.as_cell().same_row(&b.as_cell());
        if self.part.first().zip(cells.first()).is_some_and(|(a, b)| another(a, b)) {
            self.finish_row();
        }
        match self.part.is_empty() {
            true => self.part = cells,
            false => self.part.extend(cells),
        }
        if !partial {
            self.finish_row();
        }
    }

    /// Returns a partial row, without the cells that were returned before the scanner was lost.
    fn take_piece(&mut self, mut cells: Vec<KeyValue>, partial: bool) {
        if let Some(last) = self.last.take() {
            let first_row = cells.first().is_none_or(|cell| cell.as_cell().same_row(&last.as_cell()));
            if first_row {
                let order = CellComparator::Default;
                cells.retain(|cell| order.compare(&cell.as_cell(), &last.as_cell()) == Ordering::Greater);
            }
            self.last = Some(last);
            if !first_row {
                self.finish_row();
            }
        }
        if self.left == Some(0) {
            return;
        }
        if let Some(cell) = cells.last() {
            self.last = Some(cell.clone());
            let result = match partial {
                true => RowResult::piece(cells, self.stale),
                false => RowResult::new(cells, None, self.stale),
            };
            self.ready.push_back(result);
        }
        if !partial {
            self.finish_row();
        }
    }

    fn finish_row(&mut self) {
        if let Some(last) = self.last.take() {
            let row = Bytes::copy_from_slice(last.as_cell().row());
            (self.scan.start, self.scan.start_included) = (row, false);
            self.left = self.left.map(|n| n.saturating_sub(1));
            return;
        }
        let row = RowResult::new(std::mem::take(&mut self.part), None, self.stale);
        let Some(key) = row.row_bytes() else { return };
        if self.left == Some(0) {
            return;
        }
        (self.scan.start, self.scan.start_included) = (key, false);
        self.left = self.left.map(|n| n - 1);
        self.ready.push_back(row);
    }

    /// Continues with the next region, or ends, if the server has no more rows of this one.
    fn move_on(&mut self, at: &CachedLocation, response: &pb::ScanResponse) {
        let heartbeat = response.heartbeat_message();
        let rows = !response.cells_per_result.is_empty() || !response.results.is_empty();
        let more = response.more_results.unwrap_or(true);
        let more_here = response.more_results_in_region.unwrap_or(rows || heartbeat);
        if more && more_here && self.left != Some(0) {
            return;
        }
        if !more_here || !more {
            // The server has closed its scanner, so the buffered part of the last row is complete.
            self.open = None;
            self.finish_row();
        }
        let next = self.next_region(at).filter(|_| more && self.left != Some(0));
        match next {
            Some((start, included)) => (self.scan.start, self.scan.start_included) = (start, included),
            None => self.done = true,
        }
    }

    /// The position after a region; `None` if the scan ends there.
    fn next_region(&self, at: &CachedLocation) -> Option<(Bytes, bool)> {
        let (stop, included) = (&self.scan.stop, self.scan.stop_included);
        match self.scan.reverse {
            false => {
                let end = at.region.end_key();
                let ends =
                    end.is_empty() || !stop.is_empty() && if included { end > stop } else { end >= stop };
                (!ends).then(|| (end.clone(), true))
            }
            true => {
                let start = at.region.start_key();
                (!start.is_empty() && start > stop).then(|| (start.clone(), false))
            }
        }
    }
}

/// Rows of a scan as a stream; see [`Scanner::into_stream`].
#[derive(Debug)]
pub struct RowStream {
    batches: mpsc::Receiver<Result<Vec<RowResult>>>,
    batch: std::vec::IntoIter<RowResult>,
    task: JoinHandle<()>,
}

impl Drop for RowStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RowStream {
    fn new(scanner: Scanner) -> Self {
        let (sender, batches) = mpsc::channel(1);
        let task = tokio::spawn(feed(scanner, sender));
        Self { batches, batch: Vec::new().into_iter(), task }
    }
}

impl Stream for RowStream {
    type Item = Result<RowResult>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(row) = self.batch.next() {
                return Poll::Ready(Some(Ok(row)));
            }
            match std::task::ready!(self.batches.poll_recv(context)) {
                Some(Ok(batch)) => self.batch = batch.into_iter(),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

/// Fetches the batches of a stream; ends after a failure.
async fn feed(mut scanner: Scanner, batches: mpsc::Sender<Result<Vec<RowResult>>>) {
    while let Some(batch) = scanner.next_batch().await.transpose() {
        let failed = batch.is_err();
        let Some(permit) = reserve(&mut scanner, &batches).await else { return };
        permit.send(batch);
        if failed {
            return;
        }
    }
}

/// Waits for the consumer, and renews the scanner's lease meanwhile.
async fn reserve<'a, T>(scanner: &mut Scanner, batches: &'a mpsc::Sender<T>) -> Option<mpsc::Permit<'a, T>> {
    let half_lease = scanner.lease.unwrap_or(Duration::from_secs(60)) / 2;
    loop {
        tokio::select! {
            permit = batches.reserve() => return permit.ok(),
            () = sleep(half_lease.max(Duration::from_millis(100))) => {
                if let Err(error) = scanner.renew().await {
                    tracing::debug!(%error, "a scanner was not renewed");
                }
            }
        }
    }
}

/// Returns true for exceptions that a new scanner recovers from, although they forbid a retry.
fn reopens(error: &Error) -> bool {
    use ErrorKind as K;
    matches!(error.kind(), Some(K::ScannerReset | K::UnknownScanner | K::OutOfOrderScannerNext | K::Lease))
}

/// Closes a scanner on its server. A failure is ignored: the lease expires.
async fn close(connection: &Connection, open: OpenScanner) {
    let request = pb::ScanRequest {
        scanner_id: Some(open.id),
        close_scanner: Some(true),
        number_of_rows: Some(0),
        ..Default::default()
    };
    let timeout = connection.config().rpc_timeout;
    let call =
        Call { service: Service::Client, method: "Scan", param: &request, cells: &[], timeout, priority: 0 };
    if let Err(error) = connection.call(&open.at.address(), call).await {
        tracing::debug!(%error, "a scanner was not closed");
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::{RegionInfo, ServerName};

    use super::*;
    use crate::config::ClientConfig;
    use crate::location::RegionLocation;

    fn at(start: &'static str, end: &'static str) -> CachedLocation {
        let region = RegionInfo::new("t".parse().expect("legal"), start.into(), end.into(), 1);
        CachedLocation::new(RegionLocation { region, server: ServerName::new("h", 1, 1), seq_num: 1 })
    }

    fn scanner(scan: Scan) -> Scanner {
        let connection = Connection::unconnected(ClientConfig::new(["x:1"]));
        Scanner::new(connection.table("t".parse().expect("legal")), scan)
    }

    fn cell(row: &str, qualifier: &str) -> KeyValue {
        KeyValue::put(row.as_bytes(), b"f", qualifier.as_bytes(), 1, b"v")
    }

    fn rows(scanner: &mut Scanner) -> Vec<(String, usize)> {
        let name = |r: &RowResult| String::from_utf8_lossy(r.row().unwrap_or_default()).into_owned();
        scanner.ready.drain(..).map(|r| (name(&r), r.cells().len())).collect()
    }

    #[test]
    fn forward_scans_end_where_the_stop_row_says() {
        let next = |scan: Scan| {
            scanner(scan).next_region(&at("c", "g")).map(|(row, included)| (row.to_vec(), included))
        };
        let on = Some((b"g".to_vec(), true));
        assert_eq!(next(Scan::new()), on);
        assert_eq!(next(Scan::new().to("g")), None);
        assert_eq!(next(Scan::new().to_inclusive("g")), on);
        assert_eq!(next(Scan::new().to("h")), on);
        assert_eq!(next(Scan::new().to_inclusive("f")), None);
        assert_eq!(scanner(Scan::new()).next_region(&at("g", "")), None);
    }

    #[test]
    fn reversed_scans_end_where_the_stop_row_says() {
        let next = |scan: Scan| {
            scanner(scan.reversed()).next_region(&at("c", "g")).map(|(row, i)| (row.to_vec(), i))
        };
        let on = Some((b"c".to_vec(), false));
        assert_eq!(next(Scan::new()), on);
        assert_eq!(next(Scan::new().to("c")), None);
        assert_eq!(next(Scan::new().to_inclusive("c")), None);
        assert_eq!(next(Scan::new().to("b")), on);
        assert_eq!(scanner(Scan::new().reversed()).next_region(&at("", "g")), None);
    }

    #[test]
    fn partial_results_merge_into_one_row() {
        let mut s = scanner(Scan::new());
        s.take_result(vec![cell("a", "1")], true);
        assert!(s.ready.is_empty());
        s.take_result(vec![cell("a", "2")], true);
        s.take_result(vec![cell("b", "1")], true);
        assert_eq!(rows(&mut s), [("a".to_owned(), 2)]);
        s.take_result(vec![cell("b", "2")], false);
        assert_eq!(rows(&mut s), [("b".to_owned(), 2)]);
        assert_eq!((&s.scan.start[..], s.scan.start_included), (&b"b"[..], false));
    }

    #[test]
    fn a_regions_last_part_completes_a_row_and_heartbeats_do_not() {
        let mut s = scanner(Scan::new());
        s.take_result(vec![cell("a", "1")], true);
        let beat = pb::ScanResponse {
            heartbeat_message: Some(true),
            more_results_in_region: Some(true),
            more_results: Some(true),
            ..Default::default()
        };
        s.move_on(&at("", "g"), &beat);
        assert!(s.ready.is_empty() && !s.done);
        let end = pb::ScanResponse { more_results_in_region: Some(false), ..Default::default() };
        s.move_on(&at("", "g"), &end);
        assert_eq!(rows(&mut s), [("a".to_owned(), 1)]);
        assert_eq!((&s.scan.start[..], s.scan.start_included, s.done), (&b"g"[..], true, false));
    }

    #[test]
    fn partial_results_are_not_repeated_after_a_restart() {
        let mut s = scanner(Scan::new().allow_partial());
        s.take_result(vec![cell("a", "1"), cell("a", "2")], true);
        s.take_result(vec![cell("a", "3")], true);
        assert!(s.ready.iter().all(RowResult::is_partial));
        assert_eq!(rows(&mut s), [("a".to_owned(), 2), ("a".to_owned(), 1)]);
        assert_eq!(s.scan.start, "", "the place moves with whole rows only");
        // The scanner was lost, so the row starts again.
        s.take_result(vec![cell("a", "1"), cell("a", "2"), cell("a", "3"), cell("a", "4")], false);
        assert_eq!(rows(&mut s), [("a".to_owned(), 1)]);
        assert_eq!((&s.scan.start[..], s.scan.start_included), (&b"a"[..], false));
        s.take_result(vec![cell("b", "1")], true);
        s.take_result(vec![cell("c", "1")], true);
        assert_eq!(&s.scan.start[..], b"b");
        let end = pb::ScanResponse { more_results_in_region: Some(false), ..Default::default() };
        s.move_on(&at("", "g"), &end);
        assert_eq!(rows(&mut s).len(), 2);
        assert_eq!(&s.scan.start[..], b"g");
    }

    #[test]
    fn the_limit_ends_the_scan() {
        let mut s = scanner(Scan::new().limit(1));
        s.take_result(vec![cell("a", "1")], false);
        s.take_result(vec![cell("b", "1")], false);
        let response = pb::ScanResponse { more_results_in_region: Some(true), ..Default::default() };
        s.move_on(&at("", "g"), &response);
        assert_eq!((rows(&mut s), s.done), (vec![("a".to_owned(), 1)], true));
    }
}
