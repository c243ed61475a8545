//! A client against a server whose responses break at every byte: no result is wrong, lost or
//! applied twice.
//!
//! The server is synthetic and quick, so each operation is made once for every byte of its replies.

mod fake;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use evenkeel_client::{Action, ClientConfig, Connection, Get, Increment, Scan, Table};
use fake::{Fake, Fault, ROWS, row};

fn config(fake: &Fake) -> ClientConfig {
    ClientConfig {
        pause: Duration::from_millis(1),
        // A corrupted length below the frame's makes the client wait for the rest.
        rpc_timeout: Duration::from_millis(300),
        scanner_timeout: Duration::from_millis(300),
        operation_timeout: Duration::from_secs(20),
        retries: 20,
        response_bytes_max: 1 << 20,
        ..ClientConfig::new([fake.address.clone()])
    }
}

async fn table(fake: &Fake) -> Table {
    let connection = Connection::connect(config(fake)).await.expect("connected");
    let table = connection.table("t".parse().expect("legal"));
    // Locations are cached and sockets open before the fault.
    table.get(Get::new("warm")).await.expect("a row");
    table
}

/// Bytes of replies that an operation takes when nothing breaks.
async fn replied(fake: &Fake, operation: impl Future<Output = ()>) -> usize {
    let before = fake.replied.load(Ordering::SeqCst);
    operation.await;
    fake.replied.load(Ordering::SeqCst) - before
}

fn run(test: impl AsyncFnOnce(Arc<Fake>, Table)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let fake = Fake::start(20).await;
        let table = table(&fake).await;
        test(fake, table).await;
    });
}

#[test]
fn increments_apply_once_wherever_the_reply_breaks() {
    run(async |fake, table| {
        let add = async || table.increment(Increment::new("r").column("f", "n", 1)).await;
        let bytes = replied(&fake, async { drop(add().await.expect("added")) }).await;
        let mut want = 1;
        for fault in [Fault::Cut, Fault::Garbage] {
            let step = if fault == Fault::Cut { 1 } else { 5 };
            for at in (0..bytes).step_by(step) {
                fake.break_after(at, fault);
                want += 1;
                // HBase's replies carry no checksum, so garbage within a cell's bytes cannot be
                // distinguished from a cell; everything else is an error or a retry.
                match add().await {
                    Ok(_) => assert_eq!(fake.counter("r"), want, "{fault:?} at {at}"),
                    // A final error may occur before the increment, from a corrupted row of
                    // hbase:meta.
                    Err(error) => {
                        assert_eq!(fault, Fault::Garbage, "{error}");
                        assert!([want - 1, want].contains(&fake.counter("r")), "{fault:?} at {at}");
                        want = fake.counter("r");
                    }
                }
            }
        }
        assert!(fake.faults.load(Ordering::SeqCst) > bytes);
    });
}

#[test]
fn results_are_right_wherever_the_reply_is_cut() {
    run(async |fake, table| {
        let mut want = 0;
        let add = async || {
            let result = table.increment(Increment::new("s").column("f", "n", 3)).await.expect("added");
            result.counter("f", "n").expect("a value")
        };
        let bytes = replied(&fake, async { assert_eq!(add().await, 3) }).await;
        want += 3;
        for at in 0..bytes {
            fake.break_after(at, Fault::Cut);
            want += 3;
            assert_eq!(add().await, want, "cut at {at}");
            let get = table.get(Get::new("x")).await.expect("a row");
            assert_eq!(get.value("f", "q"), Some(&[b'v'; 20][..]));
        }
    });
}

#[test]
fn a_scan_gives_each_row_once_wherever_it_is_cut() {
    run(async |fake, table| {
        let rows = async || {
            let mut scanner = table.scan(Scan::new());
            let mut rows = Vec::new();
            while let Some(result) = scanner.next().await.expect("a row") {
                rows.push(String::from_utf8_lossy(result.row().unwrap_or_default()).into_owned());
            }
            rows
        };
        let want: Vec<_> = (0..ROWS).map(row).collect();
        let bytes = replied(&fake, async { assert_eq!(rows().await, want) }).await;
        for at in 0..bytes {
            fake.break_after(at, Fault::Cut);
            assert_eq!(rows().await, want, "cut at {at}");
        }
        assert_eq!(fake.faults.load(Ordering::SeqCst), bytes);
    });
}

#[test]
fn a_batch_applies_each_action_once_wherever_cut() {
    run(async |fake, table| {
        let add = async || {
            let one = |i: usize| Action::Mutation(Increment::new(row(i)).column("f", "n", 1).into());
            let outcomes = table.batch((0..5).map(one).collect()).await;
            let value = |o: &evenkeel_client::Result<evenkeel_client::RowResult>| {
                o.as_ref().expect("added").counter("f", "n").expect("a value")
            };
            outcomes.iter().map(value).collect::<Vec<_>>()
        };
        let bytes = replied(&fake, async { assert_eq!(add().await, [1; 5]) }).await;
        for at in 0..bytes {
            fake.break_after(at, Fault::Cut);
            assert_eq!(add().await, [at as i64 + 2; 5], "cut at {at}");
        }
    });
}

#[test]
fn dropped_calls_leave_the_connection_usable() {
    run(async |_, table| {
        for _ in 0..200 {
            let get = table.get(Get::new("x"));
            let _ = tokio::time::timeout(Duration::from_micros(30), get).await;
        }
        let result = table.get(Get::new("y")).await.expect("a row");
        assert_eq!(result.row(), Some(&b"y"[..]));
    });
}
