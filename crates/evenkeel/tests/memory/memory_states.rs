//! Everything that clients can make a server retain, at the same time, each kind up to its limit:
//! the memory of the server stays within `evenkeel.memory.size` and a margin, and is released when
//! the clients are gone.
//!
//! `attacks.rs` runs each attack alone; this test adds them up. `memory_budget.rs` checks the
//! parts as the server counts them, under ordinary load; this test compares them with the system's
//! figures, so it detects uncounted memory.
//!
//! The server runs in a separate process, so its anonymous resident memory excludes that of the
//! clients. The parts are read from its `/jmx` (`sub=MemoryParts`).
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
//! longer, and prints the peak of each part. `EVENKEEL_STATES_ROUNDS=12` runs at least twelve
//! rounds, even if fewer drove every part to its limit.

#[allow(dead_code, reason = "this binary uses the attacks without their judge")]
#[path = "../hostile/attack/mod.rs"]
mod attack;
#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "this binary makes no administrator's calls")]
#[path = "../hostile/requests.rs"]
mod requests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use attack::{Attack, AttackContext, HeldResources, drain, push};
use common::{Server, raw, runtime};
use evenkeel_client::{Connection, Put};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use evenkeel_protocol::pb;
use requests::TableTarget;

/// The memory of the server.
const MEMORY: &str = "96m";
const MEMORY_BYTES: u64 = 96 << 20;
/// Memory outside of the plan: stacks of threads that have not run before, descriptors of tables
/// and procedures, and freed memory that the allocator retains or cannot reuse.
const MARGIN: u64 = 48 << 20;
/// The limit of memory that remains when clients and tables are gone.
const LEFT: u64 = 32 << 20;
/// The time limit of the release, on a busy machine: nonces expire after 15 seconds, and unused
/// memory after half a second.
const GIVE_BACK: Duration = Duration::from_secs(40);
/// How long a round makes nonces before its attacks begin.
const NONCES_TIME_MAX: Duration = Duration::from_secs(8);
/// The interval between samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);
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
    ("hbase.server.hashNonce.gracePeriod", "15000"),
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
const FROM_THE_START: [&str; 9] = [
    "idle connections",
    "scanners with filters",
    "scanners that are left",
    "scanners of hbase:meta",
    "Puts of large values",
    "procedures whose outcomes nobody asks for",
    "ZooKeeper: watches",
    "ZooKeeper: sessions",
    "ZooKeeper: replies never read",
];
/// The minimum use of each part as a share of its budget.
const DRIVEN: [(&str, f64); 11] = [
    ("blocks", 0.8),
    ("chunks", 0.6),
    ("logs", 0.3),
    ("requests", 0.6),
    ("replies", 0.6),
    ("replyBuffers", 0.7),
    ("scanners", 0.8),
    ("systemScanners", 0.5),
    ("zooKeeper", 0.7),
    // One client can have half.
    ("nonces", 0.3),
    // Seeks release blocks of files that they leave behind, so on a busy machine few are held.
    ("heapBlocks", 0.3),
];

/// The usage and the limit of a part of the server's memory.
#[derive(Clone, Copy, Default, Debug)]
struct Part {
    bytes: u64,
    bytes_max: u64,
}

/// The parts by their metrics' names.
type Parts = BTreeMap<String, Part>;

/// The parts of the server's memory now; `None` if it does not answer, as it may while connections
/// are refused.
fn parts_now(server: &Server) -> Option<Parts> {
    let (status, body) = server.page("/jmx?qry=Hadoop:service=HBase,name=RegionServer,sub=MemoryParts")?;
    let answer: serde_json::Value = (status == 200).then(|| serde_json::from_str(&body).ok())??;
    let bean = answer["beans"][0].as_object()?;
    let mut parts = Parts::new();
    for (name, value) in bean {
        if let (Some(part), Some(bytes)) = (name.strip_suffix("BytesMax"), value.as_u64()) {
            parts.entry(part.to_owned()).or_default().bytes_max = bytes;
        } else if let (Some(part), Some(bytes)) = (name.strip_suffix("Bytes"), value.as_u64()) {
            parts.entry(part.to_owned()).or_default().bytes = bytes;
        }
    }
    Some(parts)
}

/// The parts now, as soon as the server answers.
fn parts(server: &Server) -> Parts {
    let began = Instant::now();
    loop {
        if let Some(parts) = parts_now(server) {
            return parts;
        }
        assert!(began.elapsed() < GIVE_BACK, "/jmx does not answer");
        sleep(SAMPLE_INTERVAL);
    }
}

/// The sum of the parts of the plan. Blocks outside of the caches are no part of their own.
fn sum(parts: &Parts) -> u64 {
    parts.get("total").map_or(0, |total| total.bytes)
}

const TABLES: [&str; 3] = ["target", "bystander", "cached"];

async fn make_table(connection: &Connection, name: &str, puts: Vec<Put>) -> TableTarget {
    let name: TableName = name.parse().expect("legal");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let admin = connection.admin();
    let table = TableDescriptor::new(name.clone()).with_family(family);
    admin.create_table(&table, &[]).await.expect("created");
    let (small, large): (Vec<_>, Vec<_>) = puts.into_iter().partition(|put| put.row()[0] == b'r');
    connection.table(name.clone()).put_all(small).await.expect("written");
    for put in large {
        connection.table(name.clone()).put(put).await.expect("written");
    }
    admin.flush_table(&name).await.expect("flushed");
    let region = admin.regions(&name).await.expect("regions")[0].region.clone();
    TableTarget { table, region }
}

/// The tables, and the parameters of attacks on them. The last region is that of the cached rows.
fn set_up(server: &Server) -> (AttackContext, pb::RegionSpecifier) {
    let put = |row: String, bytes: usize| Put::new(row).column("f", "q", vec![b'x'; bytes]);
    let small = (0..attack::SMALL_ROWS).map(|n| put(format!("r{n:04}"), attack::SMALL_VALUE_BYTES));
    let big = (0..attack::BIG_ROWS).map(|n| put(format!("b{n}"), 3_000_000));
    let cached = (0..CACHED_ROWS).map(|n| put(format!("c{n:03}"), CACHED_VALUE_BYTES));
    let [target, bystander, cached] = runtime().block_on(async {
        let connection = server.connect().await;
        [
            make_table(&connection, TABLES[0], small.chain(big).collect()).await,
            make_table(&connection, TABLES[1], vec![put("row000".to_owned(), 10)]).await,
            make_table(&connection, TABLES[2], cached.collect()).await,
        ]
    });
    (
        AttackContext {
            regionserver: server.port("hbase.regionserver.port"),
            master: server.port("hbase.master.port"),
            zookeeper: server.port("hbase.zookeeper.property.clientPort"),
            info_ports: ["hbase.regionserver.info.port", "hbase.master.info.port"]
                .map(|key| server.port(key)),
            read_region: target.region(),
            bystander_region: bystander.region(),
            // No attack of this test changes a table or loads a file.
            administered: bystander,
            loadable: PathBuf::new(),
            until: Instant::now(),
            is_full_size: false,
        },
        cached.region(),
    )
}

/// Repeatedly reads more rows than the cache holds.
fn read_all(context: &AttackContext, region: &pb::RegionSpecifier) -> HeldResources {
    let gets = raw::gets(region, (0..CACHED_ROWS).map(|n| format!("c{n:03}")));
    let open = || {
        let stream = context.client()?;
        stream.set_write_timeout(Some(Duration::from_millis(300))).ok()?;
        Some(stream)
    };
    context.keep(2, open, |stream| {
        drain(stream);
        push(stream, &gets)
    })
}

fn named(name: &'static str) -> &'static Attack {
    attack::attacks()
        .find(|attack| attack.name == name)
        .unwrap_or_else(|| panic!("no attack is named {name}"))
}

/// The peak use of the server, and of each of its parts.
struct Peaks {
    parts: Parts,
    server: u64,
    looks: u64,
}

impl Peaks {
    fn of(server: &Server) -> Self {
        Self { parts: parts(server), server: 0, looks: 0 }
    }

    fn look(&mut self, server: &Server) {
        for (name, now) in parts_now(server).unwrap_or_default() {
            let peak = self.parts.get_mut(&name).expect("the parts stay the same");
            peak.bytes = peak.bytes.max(now.bytes);
        }
        self.server = self.server.max(server.anonymous_bytes());
        self.looks += 1;
    }

    fn print(&self) {
        for (name, Part { bytes, bytes_max }) in &self.parts {
            println!("{name:<20} {:>8.2} MiB of {:>6.2}", mib(*bytes), mib(*bytes_max));
        }
    }

    /// The parts that did not come near their limits.
    fn too_small(&self) -> Vec<String> {
        assert_eq!(self.parts.len(), DRIVEN.len(), "{:?}", self.parts);
        let driven = DRIVEN.iter().map(|(name, share)| {
            let Part { bytes, bytes_max } = self.parts[*name];
            let is_small = (bytes as f64) < share * bytes_max as f64;
            is_small.then(|| format!("{name} had {:.2} MiB of {:.2}: not tried", mib(bytes), mib(bytes_max)))
        });
        driven.flatten().collect()
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Makes nonces until a client's share of their part, which is half, is almost full. They live
/// longer than a round, and a server whose MemStores are full accepts no more of them.
fn make_nonces(context: &AttackContext, server: &Server) {
    let deadline = Instant::now() + NONCES_TIME_MAX;
    let is_full = || {
        let Part { bytes, bytes_max } = parts(server)["nonces"];
        bytes as f64 >= 0.45 * bytes_max as f64
    };
    while !is_full() && Instant::now() < deadline {
        let until = Instant::now() + Duration::from_millis(300);
        drop((named("nonces").run)(&AttackContext { until, ..context.clone() }));
    }
}

/// Runs all attacks concurrently; returns what they hold at the end.
fn attack_with_all(
    context: &AttackContext,
    cached: &pb::RegionSpecifier,
    seconds: f64,
    mut look: impl FnMut(),
) -> Vec<HeldResources> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let context = AttackContext { until, ..context.clone() };
    let later = Duration::from_secs_f64(seconds * 0.7);
    let names = FROM_THE_START.iter().map(|name| (*name, Duration::ZERO));
    let all = names.chain(LATER.iter().map(|name| (*name, later)));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut attacks: Vec<_> = all
            .map(|(name, after)| {
                let (context, attack) = (&context, named(name));
                scope.spawn(move || {
                    sleep(after);
                    (attack.run)(context)
                })
            })
            .collect();
        attacks.push(scope.spawn(|| read_all(&context, cached)));
        while !done.load(Relaxed) {
            look();
            sleep(SAMPLE_INTERVAL);
            done.store(attacks.iter().all(|attack| attack.is_finished()), Relaxed);
        }
        look();
        attacks.into_iter().map(|attack| attack.join().expect("an attack that ends")).collect()
    })
}

/// Returns true if the state that clients made the server retain, except data, is released.
fn is_given_back(now: &Parts, before: &Parts) -> bool {
    let is_back = |name: &str, slack: u64| now[name].bytes <= before[name].bytes + slack;
    // Threads keep shares of the budget of requests.
    is_back("requests", 1 << 20)
        && ["replies", "scanners", "systemScanners", "nonces"].iter().all(|name| is_back(name, 256 << 10))
        // Sessions live until their timeout, and have a quarter of the budget.
        && now["zooKeeper"].bytes <= now["zooKeeper"].bytes_max / 4 + (64 << 10)
}

fn delete_tables(server: &Server) {
    runtime().block_on(async {
        let connection = server.connect().await;
        for name in TABLES.map(|name| name.parse::<TableName>().expect("legal")) {
            connection.admin().disable_table(&name).await.expect("disabled");
            connection.admin().delete_table(&name).await.expect("deleted");
        }
    });
}

/// An environment variable that is a number.
fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn memory_kept_for_clients_is_bounded_and_released() {
    let rounds_min = variable("EVENKEEL_STATES_ROUNDS").unwrap_or(1);
    let seconds = variable("EVENKEEL_STATES_SECONDS").unwrap_or(8.0);
    let server = Server::started(&SETTINGS);
    let (context, cached) = set_up(&server);
    let (before, parts_before) = (server.anonymous_bytes(), parts(&server));
    let mut peaks = Peaks::of(&server);
    for round in 1..=ROUNDS.max(rounds_min) {
        make_nonces(&context, &server);
        drop(attack_with_all(&context, &cached, seconds, || peaks.look(&server)));
        if round >= rounds_min && peaks.too_small().is_empty() {
            break;
        }
    }
    let without_parts = before.saturating_sub(sum(&parts_before));
    let beside = peaks.server.saturating_sub(without_parts);
    peaks.print();
    println!(
        "before {:.1} MiB, of which parts {:.1}; most {:.1}, which is {:.1} beside what is in no part; {} looks",
        mib(before),
        mib(sum(&parts_before)),
        mib(peaks.server),
        mib(beside),
        peaks.looks
    );

    let began = Instant::now();
    delete_tables(&server);
    let left_max = |now: &Parts| without_parts + sum(now) + LEFT;
    let is_back = || {
        let now = parts(&server);
        is_given_back(&now, &parts_before) && server.anonymous_bytes() <= left_max(&now)
    };
    while !is_back() && began.elapsed() < GIVE_BACK {
        sleep(SAMPLE_INTERVAL);
    }
    let (left, parts_left, took) = (server.anonymous_bytes(), parts(&server), began.elapsed());
    println!("{:.1} MiB after {took:?}: {parts_left:?}", mib(left));
    assert!(
        beside <= MEMORY_BYTES + MARGIN,
        "{:.1} MiB, {:.1} allowed",
        mib(beside),
        mib(MEMORY_BYTES + MARGIN)
    );
    assert!(is_given_back(&parts_left, &parts_before), "{parts_left:?}, before {parts_before:?}");
    let left_max = left_max(&parts_left);
    assert!(left <= left_max, "{:.1} MiB are left, {:.1} allowed", mib(left), mib(left_max));
    let too_small = peaks.too_small();
    assert!(too_small.is_empty(), "{}", too_small.join("\n"));
}
