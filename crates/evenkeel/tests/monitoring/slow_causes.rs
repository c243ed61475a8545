//! The ledger of slow requests names the right cause: each test makes requests slow in one way,
//! over a disk with scripted faults, and reads `/slow.json`.

use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use evenkeel_client::{Get, Increment, Put, Scan};
use evenkeel_fs::{Fault, Latch, Op};
use evenkeel_protocol::pb;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::common::raw;
use crate::faulty_server::{FaultyServer, table_name};

/// In the paths of logs only.
const LOGS: &str = "/WALs/";
/// In the paths of unfinished store files of the test's table.
const UNFINISHED: &str = "/.tmp/";
/// The delay that the faults add to requests.
const SLOW: Duration = Duration::from_millis(300);
/// The maximum share of the slow requests' time that may be unexplained.
const UNEXPLAINED_MAX: f64 = 0.01;
/// The time limit of an expected event.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Rows that a debug build scans for some tens of milliseconds.
const SCANNED_ROWS: usize = 200_000;

/// The hog takes every processor from servers of other tests, so it runs alone.
static HOG: RwLock<()> = RwLock::new(());

struct Server {
    server: FaultyServer,
    /// Dropped last.
    _beside: Option<RwLockReadGuard<'static, ()>>,
}

impl Deref for Server {
    type Target = FaultyServer;

    fn deref(&self) -> &FaultyServer {
        &self.server
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut FaultyServer {
        &mut self.server
    }
}

impl Server {
    fn started(settings: &[(&'static str, &'static str)]) -> Self {
        let beside = HOG.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        Self::started_beside(settings, Some(beside))
    }

    fn started_beside(
        settings: &[(&'static str, &'static str)],
        beside: Option<RwLockReadGuard<'static, ()>>,
    ) -> Self {
        Self { server: FaultyServer::started(settings, &[]), _beside: beside }
    }

    /// The first slow request of a method with this cause as its longest.
    fn slow(&self, method: &str, cause: &str) -> Value {
        let ledger = self.ledger();
        let requests = ledger["slow"].as_array().expect("requests");
        let is_it = |request: &&Value| request["method"] == method && request["causes"][0]["cause"] == cause;
        let found = requests.iter().find(is_it).cloned();
        found.unwrap_or_else(|| panic!("no {method} was slow by {cause}: {requests:#?}"))
    }

    /// The share of the slow requests' time that no cause explains.
    fn unexplained(&self) -> f64 {
        let ledger = self.ledger();
        let requests = ledger["slow"].as_array().expect("requests");
        let sum = |of: &dyn Fn(&Value) -> f64| requests.iter().map(of).sum::<f64>();
        let all = sum(&|request| ms(&request["totalMs"]));
        sum(&|request| cause_ms(request, "unexplained")) / all.max(1.0)
    }

    fn check_explained(&self) {
        let unexplained = self.unexplained();
        assert!(unexplained < UNEXPLAINED_MAX, "{unexplained} of the time: {:#}", self.ledger()["slow"]);
    }
}

fn ms(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn cause_ms(request: &Value, cause: &str) -> f64 {
    let causes = request["causes"].as_array().expect("causes");
    causes.iter().find(|of| of["cause"] == cause).map_or(0.0, |of| ms(&of["ms"]))
}

/// The server's activity during a request.
fn activity(request: &Value, name: &str) -> Value {
    let activities = request["server"].as_array().expect("activities");
    let found = activities.iter().find(|of| of["activity"] == name).cloned();
    found.unwrap_or_else(|| panic!("no {name} beside {request:#}"))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn row(i: usize) -> String {
    format!("{i:06}")
}

#[test]
fn a_slow_disk_read_is_named_with_its_file() {
    let mut server = Server::started(&[]);
    server.put(&server.table(), row(1), 100);
    server.flush();
    server.restart();
    let table = server.table();
    // Data in the kernel's cache is read without waiting, so all kinds of reads are slow.
    server.fs.inject(Fault::on(Op::Read, "/data/default/t/").delays(SLOW).times(20));
    server.runtime.block_on(table.get(Get::new(row(1)))).expect("read");
    let request = server.slow("Get", "blockRead");
    assert!(cause_ms(&request, "blockRead") >= 250.0, "{request:#}");
    assert!(ms(&request["slowestReadMs"]) >= 250.0, "{request:#}");
    let file = text(&request["slowestReadFile"]).to_owned();
    assert!(text(&activity(&request, "slowRead")["of"]).contains(&file), "{request:#}");
    assert_eq!((text(&request["row"]), &request["error"]), (row(1).as_str(), &"".into()));
    assert!(text(&request["region"]).starts_with("t,,"), "{request:#}");
    server.check_explained();
}

#[test]
fn a_slow_sync_is_named_with_its_log() {
    let server = Server::started(&[]);
    let table = server.table();
    server.fs.inject(Fault::on(Op::Flush, LOGS).delays(SLOW).times(1));
    server.put(&table, row(1), 100);
    let request = server.slow("Mutate", "logSync");
    assert!(cause_ms(&request, "logSync") >= 250.0, "{request:#}");
    assert!(text(&activity(&request, "slowSync")["of"]).contains(LOGS), "{request:#}");
    server.check_explained();
}

/// Settings with which a region fills soon.
const SMALL_MEMSTORE: [(&str, &str); 3] = [
    ("hbase.hregion.memstore.flush.size", "1048576"),
    ("hbase.hregion.memstore.block.multiplier", "2"),
    ("evenkeel.slow.request.ms", "50"),
];

/// A region of 2 MiB is full after a second and a half.
const BETWEEN_PUTS: Duration = Duration::from_millis(15);

/// A slow flush fills the region's memory, and replies to writes are held.
#[test]
fn the_memory_watermark_and_a_long_flush_are_named() {
    let server = Server::started(&SMALL_MEMSTORE);
    let (table, latch) = (server.table(), Latch::new());
    server.fs.inject(Fault::on(Op::Create, UNFINISHED).waits_for(&latch).always());
    let deadline = Instant::now() + TIMEOUT;
    let is_held = || server.ledger()["slow"].as_array().is_some_and(|slow| slow.len() >= 3);
    for i in 0.. {
        server.put(&table, row(i), 20_000);
        // The server samples regions five times a second. Writers that fill this one faster are
        // refused, not held.
        std::thread::sleep(BETWEEN_PUTS);
        if i % 5 == 0 && is_held() {
            break;
        }
        assert!(Instant::now() < deadline, "no reply was held");
    }
    latch.open();
    let request = server.slow("Mutate", "throttle");
    let watermark = activity(&request, "watermark");
    assert!(text(&watermark["of"]).starts_with("unflushed bytes of t,,"), "{request:#}");
    let flush = activity(&request, "flush");
    assert!(text(&flush["of"]).starts_with("t,,"), "{request:#}");
    assert!(ms(&flush["overlapMs"]) >= 0.9 * ms(&request["totalMs"]), "{request:#}");
    server.check_explained();
}

/// Compactions fail on a full disk, so files pile up and replies to writes are held.
#[test]
fn too_many_store_files_are_named() {
    let server = Server::started(&[
        ("hbase.hstore.blockingStoreFiles", "4"),
        ("hbase.hstore.compaction.min", "2"),
        ("evenkeel.slow.request.ms", "50"),
    ]);
    let table = server.table();
    let full = Fault::on(Op::Append, UNFINISHED).of_thread("compact");
    server.fs.inject(full.fails(std::io::ErrorKind::StorageFull).always());
    for i in 0..10 {
        server.put(&table, row(i), 100);
        server.flush();
    }
    let deadline = Instant::now() + TIMEOUT;
    // The first one may be held before the first compaction has failed.
    let of_compaction = || {
        let ledger = server.ledger();
        let slow = ledger["slow"].as_array().expect("requests");
        slow.iter().find(|request| failed_activity(request, "compaction").is_some()).cloned()
    };
    let request = loop {
        if let Some(request) = of_compaction() {
            break request;
        }
        server.put(&table, row(11), 100);
        assert!(Instant::now() < deadline, "no held reply names the compaction: {:#}", server.ledger());
    };
    assert_eq!(request["causes"][0]["cause"], "throttle", "{request:#}");
    assert!(text(&activity(&request, "watermark")["of"]).starts_with("store files of t,,"), "{request:#}");
    let compaction = failed_activity(&request, "compaction").expect("it failed");
    assert!(text(&compaction["of"]).starts_with("t,,"), "{request:#}");
    assert!(text(&compaction["error"]).contains("no storage space"), "{request:#}");
    server.check_explained();
}

/// The server's activity of this name that failed, if there was one beside a request.
fn failed_activity(request: &Value, name: &str) -> Option<Value> {
    let activities = request["server"].as_array()?;
    activities.iter().find(|of| of["activity"] == name && of["error"].is_string()).cloned()
}

/// Increments hold the row's lock until the value that they read is durable.
#[test]
fn a_row_lock_wait_is_named() {
    let server = Server::started(&[]);
    let table = server.table();
    server.fs.inject(Fault::on(Op::Flush, LOGS).delays(SLOW).times(6));
    server.runtime.block_on(async {
        let mut all = JoinSet::new();
        for _ in 0..8 {
            let table = table.clone();
            all.spawn(async move { table.increment(Increment::new("r").column("f", "n", 1)).await });
        }
        all.join_all().await.into_iter().for_each(|outcome| drop(outcome.expect("incremented")));
    });
    let request = server.slow("Mutate", "rowLock");
    assert!(cause_ms(&request, "rowLock") >= 200.0, "{request:#}");
    server.check_explained();
}

/// A client requests many bytes and reads nothing for a while.
#[test]
fn a_client_that_reads_slowly_is_named() {
    let server = Server::started(&[]);
    let table = server.table();
    for i in 0..30 {
        server.put(&table, row(i), 1_000_000);
    }
    let regions = async { server.connect().await.admin().regions(&table_name()).await };
    let regions = server.runtime.block_on(regions).expect("regions");
    let region = pb::RegionSpecifier { r#type: 1, value: regions[0].region.name().clone() };
    let mut stream = raw::connect(server.ports[2]);
    let peer = stream.local_addr().expect("an address").to_string();
    stream.write_all(&raw::gets(&region, (0..30).map(row))).expect("sent");
    std::thread::sleep(2 * SLOW);
    for _ in 0..30 {
        let (header, _) = raw::reply(&mut stream).expect("a reply");
        assert!(header.exception.is_none(), "{header:?}");
    }
    let deadline = Instant::now() + TIMEOUT;
    while server.ledger()["slow"].as_array().is_none_or(Vec::is_empty) {
        assert!(Instant::now() < deadline, "the ledger has nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
    let request = server.slow("Get", "socket");
    assert!(cause_ms(&request, "socket") >= 300.0, "{request:#}");
    assert_eq!(text(&request["client"]), peer);
    server.check_explained();
}

/// Computing threads use every processor while a scan runs.
#[test]
fn a_wait_for_a_busy_processor_is_named() {
    let _alone = HOG.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let server = Server::started_beside(&[("evenkeel.slow.request.ms", "50")], None);
    let table = server.table();
    let puts = (0..SCANNED_ROWS).map(|i| Put::new(row(i)).column("f", "q", "v"));
    server.runtime.block_on(table.put_all(puts)).expect("written");
    let stop = AtomicBool::new(false);
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..8 * processors {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::black_box(());
                }
            });
        }
        // A sample from before the hog does not include it.
        std::thread::sleep(Duration::from_millis(1500));
        let deadline = Instant::now() + TIMEOUT;
        let is_told = || {
            let ledger = server.ledger();
            let slow = ledger["slow"].as_array().expect("requests");
            slow.iter().any(|of| of["method"] == "Scan" && of["causes"][0]["cause"] == "processor")
        };
        while !is_told() && Instant::now() < deadline {
            server.runtime.block_on(async {
                // One request reads all rows: it computes for longer than a thread runs at a time.
                let mut scanner = table.scan(Scan::new().column("f", "absent"));
                while scanner.next_batch().await.expect("rows").is_some() {}
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    let request = server.slow("Scan", "processor");
    let conditions = &request["conditions"];
    assert!(ms(&conditions["threadWaitedForCpuMs"]) >= cause_ms(&request, "processor"), "{request:#}");
    assert!(ms(&conditions["busyCpuMs"]) > 0.0, "{request:#}");
}
