//! The number of heap allocations in the server per row read or written: all blocks are cached, all
//! buffers have grown.
//!
//! The server runs in this process, so one counting allocator covers it entirely, from the bytes of
//! the request to those of the reply. The client's thread is not counted.

#[path = "../common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Server, config};
use evenkeel_client::{Action, Connection, Get, Put, Table};
use evenkeel_common::buffer_pool::POOLED_BYTES_MIN;
use evenkeel_common::{ColumnFamilyDescriptor, Configuration, TableDescriptor, TableName};
use evenkeel_standalone::Standalone;

/// The maximum number of allocations for a Get of one cached column.
const PER_GET_MAX: u64 = 10;
/// The maximum number of allocations for a batch of these Gets, of [`BATCH`] rows of one region:
/// one per row. It is a third of that if a batch takes less than a millisecond; each millisecond
/// boundary within a batch reopens the reader of the rows.
const PER_BATCH_MAX: u64 = BATCH;

/// The maximum number of allocations for a Put of one cell.
const PER_PUT_MAX: u64 = 18;
/// The maximum number of allocations for a batch of these Puts, of [`BATCH`] rows of one region.
const PER_PUT_BATCH_MAX: u64 = 3 * BATCH;

/// At most one of this many batches may allocate a large buffer: reply buffers are reused.
const BATCHES_PER_LARGE_MIN: u64 = 20;

/// A batch of these values is a reply of more than [`POOLED_BYTES_MIN`].
const VALUE_BYTES: usize = 700;
const ROWS: u64 = 1000;
/// The number of times that all rows are read, so that allocations of the server's other threads
/// are less than one per row.
const PASSES: u64 = 20;
const BATCH: u64 = 100;

static COUNTED: AtomicU64 = AtomicU64::new(0);
/// Those of [`POOLED_BYTES_MIN`] or more.
static LARGE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

impl Counting {
    fn count(&self, bytes: usize) {
        if !IS_CLIENT.try_with(Cell::get).unwrap_or(false) {
            COUNTED.fetch_add(1, Ordering::Relaxed);
            LARGE.fetch_add(u64::from(bytes >= POOLED_BYTES_MIN), Ordering::Relaxed);
        }
    }
}

// SAFETY: every call is forwarded to the system's allocator unchanged; counting does not touch the
// memory it returns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count(layout.size());
        // SAFETY: the caller upholds System's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        self.count(bytes);
        // SAFETY: the caller upholds System's contract.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds System's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn row(number: u64) -> String {
    format!("row{number:06}")
}

fn get(number: u64) -> Get {
    Get::new(row(number)).column("f", "q")
}

/// A table of one family whose rows are in a store file.
async fn flushed_table(connection: &Connection) -> Table {
    let name: TableName = "t".parse().expect("legal");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let admin = connection.admin();
    admin.create_table(&TableDescriptor::new(name.clone()).with_family(family), &[]).await.expect("created");
    let table = connection.table(name.clone());
    put_batches(&table).await;
    admin.flush_table(&name).await.expect("flushed");
    table
}

async fn get_each(table: &Table) {
    for number in 0..ROWS {
        assert!(!table.get(get(number)).await.expect("a result").is_empty());
    }
}

async fn get_batches(table: &Table) {
    for first in (0..ROWS).step_by(BATCH as usize) {
        let gets = (first..first + BATCH).map(|number| Action::Get(get(number))).collect();
        for outcome in table.batch(gets).await {
            assert!(!outcome.expect("a result").is_empty());
        }
    }
}

fn put(number: u64) -> Put {
    Put::new(row(number)).column("f", "q", vec![b'v'; VALUE_BYTES])
}

async fn put_each(table: &Table) {
    for number in 0..ROWS {
        table.put(put(number)).await.expect("written");
    }
}

async fn put_batches(table: &Table) {
    for first in (0..ROWS).step_by(BATCH as usize) {
        let puts = (first..first + BATCH).map(|number| Action::from(put(number))).collect();
        for outcome in table.batch(puts).await {
            outcome.expect("written");
        }
    }
}

/// The server's allocations per row that `pass` reads or writes.
async fn per_rows(rows: u64, pass: impl AsyncFn()) -> u64 {
    pass().await;
    let before = COUNTED.load(Ordering::Relaxed);
    for _ in 0..PASSES {
        pass().await;
    }
    (COUNTED.load(Ordering::Relaxed) - before) * rows / (PASSES * ROWS)
}

#[test]
fn a_row_allocates_no_more_than_stated() {
    IS_CLIENT.set(true);
    let server = Server::new(&[]);
    let conf = Configuration::load(None, &server.settings()).expect("settings");
    let running = Standalone::start(conf, Arc::new(|reason: &str| panic!("{reason}"))).expect("starts");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (gets, puts, large) = runtime.block_on(async {
        let connection = Connection::connect(config(&server.bootstrap())).await.expect("connected");
        let table = flushed_table(&connection).await;
        let get = per_rows(1, async || get_each(&table).await).await;
        get_batches(&table).await;
        let before = LARGE.load(Ordering::Relaxed);
        let batch = per_rows(BATCH, async || get_batches(&table).await).await;
        let large = LARGE.load(Ordering::Relaxed) - before;
        let put = per_rows(1, async || put_each(&table).await).await;
        let put_batch = per_rows(BATCH, async || put_batches(&table).await).await;
        ((get, batch), (put, put_batch), large)
    });
    for ((each, batch), name, (each_max, batch_max)) in
        [(gets, "Get", (PER_GET_MAX, PER_BATCH_MAX)), (puts, "Put", (PER_PUT_MAX, PER_PUT_BATCH_MAX))]
    {
        println!("{each} allocations a {name}, {batch} a batch of {BATCH}");
        assert!(each <= each_max, "{each} allocations a {name}");
        assert!(batch <= batch_max, "{batch} allocations a batch of {BATCH} {name}s");
    }
    let batches = PASSES * ROWS / BATCH;
    println!("{large} large buffers in {batches} batches");
    assert!(large * BATCHES_PER_LARGE_MIN <= batches, "{large} large buffers in {batches} batches");
    running.stop().expect("stops");
}
