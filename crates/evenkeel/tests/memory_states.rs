//! Everything that clients can make a server retain, at the same time, each kind up to its limit:
//! the memory of the server stays within `evenkeel.memory.size` and a margin, and is released when
//! the clients are gone.
//!
//! `hostile_suite.rs` runs each attack alone; this test adds them up. `memory_budget.rs` checks the
//! parts as the server counts them, under ordinary load; this test compares them with the system's
//! figures, so it detects uncounted memory.
//!
//! Server and clients are one process. The allocator counts the memory that threads of clients
//! allocate, which is subtracted from the resident memory; the rest is the server's. The clients'
//! threads are marked.
//!
//! | state | source |
//! |---|---|
//! | idle connections, half requests and packets | `attack/connections.rs`, `attack/zookeeper.rs` |
//! | scanners with large filters, and of hbase:meta | `attack/calls.rs` |
//! | unread replies | `attack/connections.rs`, `attack/zookeeper.rs` |
//! | nonces, results of procedures | `attack/calls.rs` |
//! | sessions and watches of ZooKeeper | `attack/zookeeper.rs` |
//! | unflushed cells, cached blocks | `attack/calls.rs`, [`read_all`] |
//!
//! `EVENKEEL_STATES_SECONDS=60 cargo test -p evenkeel --test memory_states -- --nocapture` runs
//! longer, and prints the peak of each part. `EVENKEEL_STATES_ROUNDS=6` runs at least six rounds,
//! even if the first drove every part to its limit; five do not always pass
//! (docs/operating/memory.md, "Not included").

#[allow(dead_code, reason = "this binary uses the attacks without their judge")]
mod attack;
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use attack::{Attack, Held, Stage, drain, push};
use common::{PORT_KEYS, config, free_ports, raw, runtime};
use evenkeel_client::{Connection, Put};
use evenkeel_common::{ColumnFamilyDescriptor, Configuration, TableDescriptor, TableName};
use evenkeel_fs::LocalFileSystem;
use evenkeel_protocol::pb;
use evenkeel_standalone::{MemoryUse, Standalone};

/// The memory of the server.
const MEMORY: &str = "96m";
/// Memory outside of the plan: stacks of threads that have not run before, descriptors of tables
/// and procedures, and freed memory that the allocator retains or cannot reuse.
const MARGIN: u64 = 48 << 20;
/// The limit of memory that remains when clients and tables are gone.
const LEFT: u64 = 32 << 20;
/// The time limit of the release, on a busy machine: nonces expire after five seconds, and unused
/// memory after half a second.
const GIVE_BACK: Duration = Duration::from_secs(40);
/// The interval between samples.
const LOOK: Duration = Duration::from_millis(10);
/// The maximum number of rounds: on a busy machine a part may miss its limit in the first.
const ROUNDS: usize = 6;
/// More than the cache holds.
const CACHED_ROWS: usize = 200;
const CACHED_VALUE_BYTES: usize = 200_000;

const SETTINGS: [(&str, &str); 7] = [
    ("evenkeel.memory.size", MEMORY),
    ("evenkeel.memory.trim.period.ms", "500"),
    ("evenkeel.ipc.server.receive.timeout", "4000"),
    ("hbase.client.scanner.timeout.period", "5000"),
    ("hbase.server.hashNonce.gracePeriod", "5000"),
    // Reduces the number of nonces to make.
    ("hbase.regionserver.global.memstore.size", "0.2"),
    ("hbase.client.operation.timeout", "60000"),
];

/// States that exhaust the budget of requests, so no other request is admitted: they run in the
/// last third of the time.
const LATER: [&str; 6] = [
    "small requests, replies never read",
    "half requests",
    "half small requests",
    "longest connection headers",
    "ZooKeeper: half packets",
    "large replies never read",
];
const FROM_THE_START: [&str; 10] = [
    "idle connections",
    "scanners with filters",
    "scanners that are left",
    "scanners of hbase:meta",
    "nonces",
    "Puts of large values",
    "procedures whose outcomes nobody asks for",
    "ZooKeeper: watches",
    "ZooKeeper: sessions",
    "ZooKeeper: replies never read",
];
/// The minimum use of each part as a share of its budget.
const DRIVEN: [(&str, f64); 10] = [
    ("blocks", 0.8),
    ("chunks", 0.6),
    ("logs", 0.0),
    ("requests", 0.6),
    ("replies", 0.6),
    ("buffers of replies", 0.0),
    ("scanners", 0.8),
    ("system scanners", 0.5),
    ("ZooKeeper", 0.7),
    // An unoptimized build makes few in this time.
    ("nonces", 0.0),
];

thread_local! {
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

/// Bytes that threads of clients have allocated.
static CLIENTS_BYTES: AtomicI64 = AtomicI64::new(0);

struct ByClients;

fn count(bytes: i64) {
    if IS_CLIENT.try_with(Cell::get).unwrap_or(false) {
        CLIENTS_BYTES.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every call is forwarded unchanged; counting does not allocate.
unsafe impl GlobalAlloc for ByClients {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller upholds System's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller upholds System's contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: ByClients = ByClients;

/// Anonymous resident memory, without the clients'.
fn server_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a process with memory");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    (kib << 10).saturating_sub(u64::try_from(CLIENTS_BYTES.load(Relaxed)).unwrap_or_default())
}

fn start(folder: &std::path::Path, ports: [u16; 5]) -> Standalone {
    let mut conf = Configuration::with_system_properties(Default::default());
    conf.set("hbase.rootdir", format!("file://{}", folder.join("hbase").display()));
    conf.set("hbase.tmp.dir", folder.join("tmp").display().to_string());
    PORT_KEYS.iter().zip(ports).for_each(|(key, port)| conf.set(*key, port.to_string()));
    SETTINGS.iter().for_each(|(key, value)| conf.set(*key, *value));
    let stop = Arc::new(|reason: &str| panic!("the server asks to be stopped: {reason}"));
    Standalone::start_on(Arc::new(LocalFileSystem::new()), conf, stop).expect("the server starts")
}

const TABLES: [&str; 3] = ["target", "bystander", "cached"];

async fn make_table(connection: &Connection, name: &str, puts: Vec<Put>) -> pb::RegionSpecifier {
    let name: TableName = name.parse().expect("legal");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let admin = connection.admin();
    admin.create_table(&TableDescriptor::new(name.clone()).with_family(family), &[]).await.expect("created");
    let (small, large): (Vec<_>, Vec<_>) = puts.into_iter().partition(|put| put.row()[0] == b'r');
    connection.table(name.clone()).put_all(small).await.expect("written");
    for put in large {
        connection.table(name.clone()).put(put).await.expect("written");
    }
    admin.flush_table(&name).await.expect("flushed");
    let regions = admin.regions(&name).await.expect("regions");
    pb::RegionSpecifier { r#type: 1, value: regions[0].region.name().clone() }
}

async fn connect(ports: [u16; 5]) -> Connection {
    Connection::connect(config(&format!("127.0.0.1:{}", ports[1]))).await.expect("the server answers")
}

/// The tables, and the stage of attacks on them. The last region is that of the cached rows.
fn set_up(ports: [u16; 5]) -> (Stage, pb::RegionSpecifier) {
    let put = |row: String, bytes: usize| Put::new(row).column("f", "q", vec![b'x'; bytes]);
    let small = (0..attack::SMALL_ROWS).map(|n| put(format!("r{n:04}"), attack::SMALL_VALUE_BYTES));
    let big = (0..attack::BIG_ROWS).map(|n| put(format!("b{n}"), 3_000_000));
    let cached = (0..CACHED_ROWS).map(|n| put(format!("c{n:03}"), CACHED_VALUE_BYTES));
    let [target, bystander, cached] = runtime().block_on(async {
        let connection = connect(ports).await;
        [
            make_table(&connection, TABLES[0], small.chain(big).collect()).await,
            make_table(&connection, TABLES[1], vec![put("row000".to_owned(), 10)]).await,
            make_table(&connection, TABLES[2], cached.collect()).await,
        ]
    });
    let [zookeeper, master, regionserver, ..] = ports;
    (
        Stage {
            regionserver,
            master,
            zookeeper,
            target,
            bystander,
            until: Instant::now(),
            is_full_size: false,
        },
        cached,
    )
}

/// Repeatedly reads more rows than the cache holds.
fn read_all(stage: &Stage, region: &pb::RegionSpecifier) -> Held {
    let gets = raw::gets(region, (0..CACHED_ROWS).map(|n| format!("c{n:03}")));
    let open = || {
        let stream = stage.client()?;
        stream.set_write_timeout(Some(Duration::from_millis(300))).ok()?;
        Some(stream)
    };
    stage.keep(2, open, |stream| {
        drain(stream);
        push(stream, &gets)
    })
}

fn named(name: &'static str) -> &'static Attack {
    let all = attack::withstood().chain(attack::unmet());
    all.into_iter().find(|attack| attack.name == name).unwrap_or_else(|| panic!("no attack is named {name}"))
}

/// Marks the thread as a client's while it does something.
fn as_client<T>(act: impl FnOnce() -> T) -> T {
    IS_CLIENT.set(true);
    let outcome = act();
    IS_CLIENT.set(false);
    outcome
}

/// The peak use of the server, and of each of its parts.
struct Peaks {
    parts: Vec<(&'static str, u64, u64)>,
    server: u64,
    looks: u64,
}

impl Peaks {
    fn of(server: &Standalone) -> Self {
        let parts = server.memory_use().parts(server.memory_plan());
        Self { parts: parts.map(|(name, _, max)| (name, 0, max)).to_vec(), server: 0, looks: 0 }
    }

    fn look(&mut self, server: &Standalone) {
        for (peak, (_, bytes, _)) in
            self.parts.iter_mut().zip(server.memory_use().parts(server.memory_plan()))
        {
            peak.1 = peak.1.max(bytes);
        }
        self.server = self.server.max(server_bytes());
        self.looks += 1;
    }

    fn print(&self) {
        for (name, bytes, max) in &self.parts {
            println!("{name:<20} {:>8.2} MiB of {:>6.2}", mib(*bytes), mib(*max));
        }
    }

    /// The parts that did not come near their limits.
    fn too_small(&self) -> Vec<String> {
        let driven = self.parts.iter().zip(DRIVEN).map(|((name, bytes, max), (of, part))| {
            assert_eq!(*name, of);
            let is_small = (*bytes as f64) < part * *max as f64;
            is_small.then(|| format!("{name} had {:.2} MiB of {:.2}: not tried", mib(*bytes), mib(*max)))
        });
        driven.flatten().collect()
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Runs all attacks concurrently; returns what they hold at the end.
fn attack_with_all(
    stage: &Stage,
    cached: &pb::RegionSpecifier,
    seconds: f64,
    mut look: impl FnMut(),
) -> Vec<Held> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let stage = Stage { until, ..stage.clone() };
    let later = Duration::from_secs_f64(seconds * 0.7);
    let names = FROM_THE_START.iter().map(|name| (*name, Duration::ZERO));
    let all = names.chain(LATER.iter().map(|name| (*name, later)));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut attacks: Vec<_> = all
            .map(|(name, after)| {
                let (stage, attack) = (&stage, named(name));
                scope.spawn(move || {
                    sleep(after);
                    as_client(|| (attack.run)(stage))
                })
            })
            .collect();
        attacks.push(scope.spawn(|| as_client(|| read_all(&stage, cached))));
        while !done.load(Relaxed) {
            look();
            sleep(LOOK);
            done.store(attacks.iter().all(|attack| attack.is_finished()), Relaxed);
        }
        look();
        attacks.into_iter().map(|attack| attack.join().expect("an attack that ends")).collect()
    })
}

/// Returns true if the state that clients made the server retain, except data, is released.
fn is_given_back(now: &MemoryUse, before: &MemoryUse, server: &Standalone) -> bool {
    let is_back = |now: u64, before: u64| now <= before + (256 << 10);
    // Threads keep shares of the budget of requests.
    now.requests <= before.requests + (1 << 20)
        && is_back(now.replies, before.replies)
        && is_back(now.scanners, before.scanners)
        && is_back(now.system_scanners, before.system_scanners)
        && is_back(now.nonces, before.nonces)
        // Sessions live until their timeout, and have a quarter of the budget.
        && now.zookeeper <= server.memory_plan().zookeeper / 4 + (64 << 10)
}

#[test]
fn all_that_clients_make_a_server_keep_fits_into_its_memory_and_goes_back() {
    let given = std::env::var("EVENKEEL_STATES_SECONDS").ok().and_then(|text| text.parse().ok());
    let rounds_min = std::env::var("EVENKEEL_STATES_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds_min = rounds_min.unwrap_or(1);
    // As the binary does.
    evenkeel_common::allocator::keep_large_blocks_out_of_heaps();
    let (folder, ports) = (tempfile::tempdir().expect("a temporary directory"), free_ports());
    let server = start(folder.path(), ports);
    let (stage, cached) = set_up(ports);
    let (before, use_before) = (server_bytes(), server.memory_use());
    let mut peaks = Peaks::of(&server);
    let seconds = given.unwrap_or(8.0);
    for round in 1..=ROUNDS.max(rounds_min) {
        let held = attack_with_all(&stage, &cached, seconds, || peaks.look(&server));
        as_client(|| drop(held));
        if round >= rounds_min && peaks.too_small().is_empty() {
            break;
        }
    }
    let without_parts = before.saturating_sub(use_before.sum());
    let beside = peaks.server.saturating_sub(without_parts);
    peaks.print();
    println!(
        "before {:.1} MiB, of which parts {:.1}; most {:.1}, which is {:.1} beside what is in no part; {} looks",
        mib(before),
        mib(use_before.sum()),
        mib(peaks.server),
        mib(beside),
        peaks.looks
    );

    let began = Instant::now();
    runtime().block_on(async {
        let connection = connect(ports).await;
        for name in TABLES.map(|name| name.parse::<TableName>().expect("legal")) {
            connection.admin().disable_table(&name).await.expect("disabled");
            connection.admin().delete_table(&name).await.expect("deleted");
        }
    });
    let left_max = |now: &MemoryUse| without_parts + now.sum() + LEFT;
    let is_back = || {
        let now = server.memory_use();
        is_given_back(&now, &use_before, &server) && server_bytes() <= left_max(&now)
    };
    while !is_back() && began.elapsed() < GIVE_BACK {
        sleep(LOOK);
    }
    let (left, use_left, took) = (server_bytes(), server.memory_use(), began.elapsed());
    println!("{:.1} MiB after {took:?}: {use_left:?}", mib(left));
    let gave_back = is_given_back(&use_left, &use_before, &server);
    let memory = server.memory_plan().memory;
    server.stop().expect("stops");
    assert!(beside <= memory + MARGIN, "{:.1} MiB, {:.1} and a margin allowed", mib(beside), mib(memory));
    assert!(gave_back, "not given back: {use_left:?}, before {use_before:?}");
    let left_max = left_max(&use_left);
    assert!(left <= left_max, "{:.1} MiB are left, {:.1} allowed", mib(left), mib(left_max));
    let too_small = peaks.too_small();
    assert!(too_small.is_empty(), "{}", too_small.join("\n"));
}
