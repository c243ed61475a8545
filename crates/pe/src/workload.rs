//! [`Worker`]: one client of a test, and its operation for each row.
//!
//! A worker runs its rows in sequence. Most rows are a request; with `--multiGet`, `--multiPut` or
//! a write buffer several rows share one, and [`RowOutcome::sent`] is true for a row that sent one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use evenkeel_client::{
    Action, Append, CheckAndMutate, Comparator, CompareOp, Connection, Consistency, Delete, Error, Filter,
    Get, Increment, Put, Result, RowResult, Scan, Scanner, Table,
};
use evenkeel_common::cell::{KeyValue, KeyValueBuilder, LATEST_TIMESTAMP};
use evenkeel_common::length;
use evenkeel_common::{CellType, Durability, TableName};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::command::{Command, Ycsb};
use crate::data::{ValueLength, ZipfLengths, Zipfian, random_row, row_key, value};
use crate::options::Options;
use crate::stats::Tally;

/// Rows that a randomSeekScan reads (`PageFilter(120)` in HBase's tool).
const SEEK_SCAN_ROWS: i64 = 120;
/// The longest scan of YCSB's workload E.
const YCSB_SCAN_ROWS: i64 = 100;

/// Bytes of a tag's value (`TAG_LENGTH` of HBase's tool).
const TAG_BYTES: usize = 256;

/// The state that workers of one run share.
#[derive(Debug)]
pub struct Shared {
    options: Arc<Options>,
    lengths: ValueLength,
    zipfian: Option<Zipfian>,
    /// The rows of the table, with inserts of YCSB's mixes.
    rows: AtomicU64,
}

impl Shared {
    /// The shared state of a run with `options`.
    pub fn new(options: Arc<Options>) -> Self {
        let lengths = match (options.value_random, options.value_zipf) {
            (true, _) => ValueLength::Uniform(options.value_size),
            (_, true) => ValueLength::Zipf(ZipfLengths::below(options.value_size)),
            _ => ValueLength::Fixed(options.value_size),
        };
        let rows = options.total_rows.max(1) as u64;
        let zipfian = matches!(options.kind(), Command::Ycsb(_)).then(|| Zipfian::new(rows));
        Self { options, lengths, zipfian, rows: AtomicU64::new(rows) }
    }
}

/// The outcome of a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowOutcome {
    /// True if a request was sent, so the row has a latency.
    pub sent: bool,
    /// The sums.
    pub tally: Tally,
}

/// One client.
pub struct Worker {
    shared: Arc<Shared>,
    options: Arc<Options>,
    command: Command,
    connection: Connection,
    table: Table,
    rng: SmallRng,
    families: Vec<Bytes>,
    qualifiers: Vec<Bytes>,
    first: i64,
    key_digits: usize,
    scanner: Option<Scanner>,
    batch: Vec<Action>,
    batch_bytes: usize,
}

impl Worker {
    /// The client with a number, on a connection.
    ///
    /// # Errors
    /// If the table's name is invalid.
    pub fn new(shared: &Arc<Shared>, connection: Connection, client: usize) -> Result<Self> {
        let options = shared.options.clone();
        let name: TableName =
            options.table.parse().map_err(|e| Error::InvalidArgument(format!("{}: {e}", options.table)))?;
        let numbered = |prefix: &str, n: usize| (0..n).map(|i| Bytes::from(format!("{prefix}{i}"))).collect();
        Ok(Self {
            command: options.kind(),
            table: connection.table(name),
            connection,
            rng: SmallRng::from_os_rng(),
            families: numbered("info", options.families),
            qualifiers: numbered("", options.columns),
            first: options.range(client).0,
            key_digits: options.rows.to_string().len(),
            scanner: None,
            batch: Vec::new(),
            batch_bytes: 0,
            shared: shared.clone(),
            options,
        })
    }

    /// Returns true if the next row starts a request, so an open loop first waits for an arrival.
    pub fn begins_request(&self) -> bool {
        let batched = self.options.multi_get > 0 || self.options.multi_put > 0;
        !batched || self.batch.is_empty()
    }

    /// Restarts: the next `scan` starts at its first row.
    pub fn rewind(&mut self) {
        self.scanner = None;
    }

    /// Runs row `i`.
    ///
    /// # Errors
    /// The error of a request after its retries.
    pub async fn row(&mut self, i: i64) -> Result<RowOutcome> {
        match self.command {
            Command::SequentialRead => self.read(i).await,
            Command::RandomRead => self.random_read().await,
            Command::SequentialWrite => self.write(i).await,
            Command::RandomWrite => {
                let row = random_row(&mut self.rng, self.options.total_rows);
                self.write(row).await
            }
            Command::SequentialDelete => self.delete(i).await,
            Command::RandomDelete => {
                let row = random_row(&mut self.rng, self.options.total_rows);
                self.delete(row).await
            }
            Command::Scan | Command::ReverseScan => self.next_row().await,
            Command::RandomSeekScan => self.seek_scan().await,
            Command::ScanRange(rows) => {
                let start = random_row(&mut self.rng, self.options.total_rows);
                let scan = self.scan_of_families().from(row_key(start)).to(row_key(start + rows));
                self.drain(self.filtered(scan)).await
            }
            Command::FilterScan => self.filter_scan().await,
            Command::Increment => self.increment(i).await,
            Command::Append => self.append(i).await,
            Command::CheckAndMutate | Command::CheckAndPut | Command::CheckAndDelete => self.check(i).await,
            Command::MetaRandomRead => self.locate().await,
            Command::Ycsb(mix) => self.ycsb(mix).await,
        }
    }

    /// Sends the buffered writes.
    ///
    /// # Errors
    /// As [`Worker::row`].
    pub async fn finish(&mut self) -> Result<RowOutcome> {
        self.scanner = None;
        self.send_batch().await
    }

    async fn read(&mut self, i: i64) -> Result<RowOutcome> {
        let get = self.get_of(i);
        Ok(self.count_get(&self.table.get(get).await?))
    }

    async fn random_read(&mut self) -> Result<RowOutcome> {
        if self.options.random_sleep > 0 {
            let ms = self.rng.random_range(0..self.options.random_sleep);
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
        let row = random_row(&mut self.rng, self.options.total_rows);
        if self.options.multi_get == 0 {
            return self.read(row).await;
        }
        let get = self.get_of(row);
        self.batch.push(get.into());
        match self.batch.len() >= self.options.multi_get {
            true => self.send_batch().await,
            false => Ok(RowOutcome::default()),
        }
    }

    fn get_of(&self, row: i64) -> Get {
        let mut get = Get::new(row_key(row));
        for family in &self.families {
            match self.options.add_columns {
                true => get = self.qualifiers.iter().fold(get, |get, q| get.column(family, q)),
                false => get = get.family(family),
            }
        }
        if self.options.replicas > 1 && self.command == Command::RandomRead {
            get = get.consistency(Consistency::Timeline);
        }
        match self.options.filter_all {
            true => get.filter(Filter::FilterAll),
            false => get,
        }
    }

    async fn write(&mut self, row: i64) -> Result<RowOutcome> {
        let (put, tally) = self.put_of(row);
        if self.options.auto_flush && self.options.multi_put == 0 {
            self.table.put(put).await?;
            return Ok(RowOutcome { sent: true, tally });
        }
        let done = self.buffer(put.into(), length::index(tally.bytes_written)).await?;
        Ok(RowOutcome { tally: sum(&tally, &done.tally), ..done })
    }

    fn put_of(&mut self, row: i64) -> (Put, Tally) {
        let mut put = Put::new(row_key(row)).durability(self.durability());
        let mut tally = Tally { rows_written: 1, ..Tally::default() };
        for family in &self.families {
            for qualifier in &self.qualifiers {
                let len = self.shared.lengths.next(&mut self.rng);
                let value = value(&mut self.rng, len);
                put = match self.options.use_tags {
                    true => {
                        let tags = tags(&mut self.rng, self.options.no_of_tags);
                        put.cell(tagged(&row_key(row), family, qualifier, &value, &tags))
                    }
                    false => put.column(family, qualifier, value),
                };
                tally.cells_written += 1;
                tally.bytes_written += len as u64;
            }
        }
        (put, tally)
    }

    fn durability(&self) -> Durability {
        match (self.options.durability.as_deref(), self.options.write_to_wal) {
            (Some("ASYNC_WAL"), _) => Durability::AsyncWal,
            (Some("FSYNC_WAL"), _) => Durability::FsyncWal,
            (Some("SKIP_WAL"), _) | (None, false) => Durability::SkipWal,
            _ => Durability::SyncWal,
        }
    }

    async fn delete(&mut self, row: i64) -> Result<RowOutcome> {
        let delete = Delete::new(row_key(row)).durability(self.durability());
        let delete = self.families.iter().fold(delete, |delete, family| delete.family(family));
        if !self.options.auto_flush {
            return self.buffer(delete.into(), 0).await;
        }
        self.table.delete(delete).await?;
        Ok(RowOutcome { sent: true, ..RowOutcome::default() })
    }

    /// Adds to the batch, and sends it at `--multiPut` mutations or `--bufferSize` bytes. As in
    /// HBase's tool, a buffered mutation counts as a request, so most requests take no time.
    async fn buffer(&mut self, action: Action, bytes: usize) -> Result<RowOutcome> {
        self.batch.push(action);
        self.batch_bytes += bytes + crate::data::ROW_BYTES;
        let many = self.options.multi_put;
        if self.options.auto_flush {
            return match self.batch.len() >= many {
                true => self.send_batch().await,
                false => Ok(RowOutcome::default()),
            };
        }
        let done = match self.batch_bytes >= self.options.buffer_size {
            true => self.send_batch().await?,
            false => RowOutcome::default(),
        };
        Ok(RowOutcome { sent: true, ..done })
    }

    async fn send_batch(&mut self) -> Result<RowOutcome> {
        if self.batch.is_empty() {
            return Ok(RowOutcome::default());
        }
        self.batch_bytes = 0;
        let room = self.batch.len();
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(room));
        let mut done = RowOutcome { sent: true, ..RowOutcome::default() };
        // A batch has Gets, or mutations, which return no row.
        let is_of_gets = self.options.multi_get > 0 && self.command == Command::RandomRead;
        for outcome in self.table.batch(batch).await {
            let one = if is_of_gets { self.count_get(&outcome?) } else { self.count_read(&outcome?) };
            done.tally = sum(&done.tally, &one.tally);
        }
        Ok(done)
    }

    /// A scan of the families and columns in the options.
    fn scan_of_families(&self) -> Scan {
        let mut scan = self.plain_scan();
        for family in &self.families {
            match self.options.add_columns {
                true => scan = self.qualifiers.iter().fold(scan, |scan, q| scan.column(family, q)),
                false => scan = scan.family(family),
            }
        }
        scan
    }

    fn plain_scan(&self) -> Scan {
        let scan = Scan::new().caching(self.options.caching).cache_blocks(self.options.cache_blocks);
        match self.options.scan_read_type.as_str() {
            "PREAD" => scan.preads(),
            "STREAM" => scan.streams(),
            _ => scan,
        }
    }

    fn filtered(&self, scan: Scan) -> Scan {
        match (self.options.filter_all, self.options.return_part) {
            (true, _) => scan.filter(Filter::FilterAll),
            (false, Some(part)) => scan.filter(Filter::RandomRow(part)),
            _ => scan,
        }
    }

    async fn next_row(&mut self) -> Result<RowOutcome> {
        if self.scanner.is_none() {
            let scan = self.filtered(self.scan_of_families());
            let scan = match self.command {
                Command::ReverseScan => scan.reversed(),
                _ => scan.from(row_key(self.first)),
            };
            self.scanner = Some(self.table.scan(scan));
        }
        let next = match &mut self.scanner {
            Some(scanner) => scanner.next().await?,
            None => None,
        };
        // If the measured time outlasts the table, the scan restarts; HBase's tool would continue
        // with the ended scan.
        if next.is_none() && self.options.duration > 0.0 {
            self.scanner = None;
        }
        Ok(next.map_or(RowOutcome { sent: true, ..RowOutcome::default() }, |row| self.count_read(&row)))
    }

    async fn seek_scan(&mut self) -> Result<RowOutcome> {
        let start = random_row(&mut self.rng, self.options.total_rows);
        let page = Filter::Page(SEEK_SCAN_ROWS).while_match();
        let all = self.options.filter_all.then_some(Filter::FilterAll);
        let scan = self.scan_of_families().from(row_key(start));
        self.drain(scan.filter(Filter::all_of(all.into_iter().chain([page])))).await
    }

    async fn filter_scan(&mut self) -> Result<RowOutcome> {
        let len = self.shared.lengths.next(&mut self.rng);
        let wanted = value(&mut self.rng, len);
        let value = Comparator::binary(wanted);
        let wanted = Filter::single_column_value("info0", "0", CompareOp::Equal, value);
        let all = self.options.filter_all.then_some(Filter::FilterAll);
        let scan = match self.options.add_columns {
            true => self.qualifiers.iter().fold(self.plain_scan(), |scan, q| scan.column("info0", q)),
            false => self.plain_scan().family("info0"),
        };
        self.drain(scan.filter(Filter::all_of([wanted].into_iter().chain(all)))).await
    }

    async fn drain(&self, scan: Scan) -> Result<RowOutcome> {
        let mut scanner = self.table.scan(scan);
        let mut done = RowOutcome { sent: true, ..RowOutcome::default() };
        while let Some(rows) = scanner.next_batch().await? {
            rows.iter().for_each(|row| done.tally = sum(&done.tally, &self.count_read(row).tally));
        }
        scanner.close().await;
        Ok(done)
    }

    async fn increment(&mut self, i: i64) -> Result<RowOutcome> {
        let qualifier = self.command.qualifier();
        let increment = self
            .families
            .iter()
            .fold(Increment::new(row_key(i)), |inc, family| inc.column(family, qualifier, 1));
        let result = self.table.increment(increment).await?;
        Ok(self.count_written(&result, self.families.len(), 8))
    }

    async fn append(&mut self, i: i64) -> Result<RowOutcome> {
        let (qualifier, row) = (self.command.qualifier(), row_key(i));
        let append =
            self.families.iter().fold(Append::new(row), |app, family| app.column(family, qualifier, row));
        let result = self.table.append(append).await?;
        Ok(self.count_written(&result, self.families.len(), row.len()))
    }

    async fn check(&mut self, i: i64) -> Result<RowOutcome> {
        let (qualifier, row) = (self.command.qualifier(), row_key(i));
        let put = Put::new(row).column("info0", qualifier, row);
        self.table.put(put.clone()).await?;
        let check = CheckAndMutate::new(row, "info0", qualifier, CompareOp::Equal, row);
        let check = match self.command {
            Command::CheckAndDelete => check.then(Delete::new(row).newest("info0", qualifier)),
            _ => check.then(put),
        };
        let checked = self.table.check_and_mutate(check).await?;
        let writes = 1 + usize::from(checked.success && self.command != Command::CheckAndDelete);
        Ok(self.count_written(&RowResult::default(), writes, row.len()))
    }

    async fn locate(&mut self) -> Result<RowOutcome> {
        let key = self.rng.random_range(0..self.options.rows.max(1));
        let key = format!("{key:0digits$}", digits = self.key_digits);
        self.connection.locate(self.table.name(), key.as_bytes(), true).await?;
        Ok(RowOutcome { sent: true, ..RowOutcome::default() })
    }

    async fn ycsb(&mut self, mix: Ycsb) -> Result<RowOutcome> {
        let dice: f64 = self.rng.random();
        let reads = match mix {
            Ycsb::A | Ycsb::F => 0.5,
            Ycsb::B | Ycsb::D | Ycsb::E => 0.95,
            Ycsb::C => 1.0,
        };
        let row = self.ycsb_row(mix);
        match (mix, dice < reads) {
            (Ycsb::E, true) => {
                let rows = self.rng.random_range(1..=YCSB_SCAN_ROWS);
                let scan = self.scan_of_families().from(row_key(row)).limit(rows as u64);
                self.drain(scan).await
            }
            (_, true) => self.read(row).await,
            (Ycsb::D | Ycsb::E, false) => {
                let row = self.shared.rows.fetch_add(1, Ordering::Relaxed) as i64;
                let (put, tally) = self.put_of(row);
                self.table.put(put).await?;
                Ok(RowOutcome { sent: true, tally })
            }
            (Ycsb::F, false) => {
                let read = self.read(row).await?;
                let update = self.update(row).await?;
                Ok(RowOutcome { sent: true, tally: sum(&read.tally, &update.tally) })
            }
            _ => self.update(row).await,
        }
    }

    fn ycsb_row(&mut self, mix: Ycsb) -> i64 {
        let rows = self.shared.rows.load(Ordering::Relaxed);
        let Some(zipfian) = &self.shared.zipfian else { return 0 };
        match mix {
            Ycsb::D => zipfian.latest(&mut self.rng, rows) as i64,
            _ => zipfian.scattered(&mut self.rng) as i64,
        }
    }

    /// YCSB's update: one field of a row.
    async fn update(&mut self, row: i64) -> Result<RowOutcome> {
        let qualifier = self.rng.random_range(0..self.qualifiers.len().max(1));
        let len = self.shared.lengths.next(&mut self.rng);
        let put = Put::new(row_key(row)).durability(self.durability());
        let put = put.column("info0", qualifier.to_string(), value(&mut self.rng, len));
        self.table.put(put).await?;
        let bytes_written = len as u64;
        let tally = Tally { rows_written: 1, cells_written: 1, bytes_written, ..Tally::default() };
        Ok(RowOutcome { sent: true, tally })
    }

    fn count_read(&self, row: &RowResult) -> RowOutcome {
        let cells = row.cells();
        let bytes: usize = cells.iter().map(|cell| cell.as_cell().value().len()).sum();
        let tally = Tally {
            rows_read: u64::from(!cells.is_empty()),
            cells_read: cells.len() as u64,
            bytes_read: bytes as u64,
            stale: u64::from(row.is_stale()),
            ..Tally::default()
        };
        RowOutcome { sent: true, tally }
    }

    fn count_get(&self, row: &RowResult) -> RowOutcome {
        let mut done = self.count_read(row);
        (done.tally.gets, done.tally.gets_empty) = (1, 1 - done.tally.rows_read);
        done
    }

    fn count_written(&self, result: &RowResult, cells: usize, bytes: usize) -> RowOutcome {
        let mut done = self.count_read(result);
        done.tally.rows_written = 1;
        done.tally.cells_written = cells as u64;
        done.tally.bytes_written = (cells * bytes) as u64;
        done
    }
}

/// Tags of random bytes, of types 0, 1, ...: `u16 length of what follows | u8 type | bytes`.
fn tags(rng: &mut SmallRng, count: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(count * (TAG_BYTES + 3));
    for kind in (0..=u8::MAX).cycle().take(count) {
        out.extend_from_slice(&length::must_u16(TAG_BYTES + 1).to_be_bytes());
        out.push(kind);
        out.extend_from_slice(&value(rng, TAG_BYTES));
    }
    out
}

fn tagged(row: &[u8], family: &[u8], qualifier: &[u8], value: &[u8], tags: &[u8]) -> KeyValue {
    let (timestamp, kind) = (LATEST_TIMESTAMP, CellType::Put);
    KeyValueBuilder { row, family, qualifier, timestamp, kind, value, tags }.build()
}

fn sum(a: &Tally, b: &Tally) -> Tally {
    let mut sum = *a;
    sum.add(b);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_have_the_layout_of_hbase() {
        let raw = tags(&mut SmallRng::seed_from_u64(1), 2);
        assert_eq!(raw.len(), 2 * (2 + 1 + TAG_BYTES));
        assert_eq!(raw[..3], [1, 1, 0], "257 bytes follow, of type 0");
        assert_eq!(raw[259..262], [1, 1, 1]);
        let cell = tagged(b"row", b"info0", b"0", b"value", &raw);
        assert_eq!((cell.as_cell().tags(), cell.as_cell().value()), (&raw[..], &b"value"[..]));
    }
}
