//! One client cannot take the server down: each line of the tables of `attack/` is an attack on a
//! server of 256 MiB with few descriptors, with every kind of connection state and call. These
//! conditions hold during and after it:
//!
//! | what | holds |
//! |---|---|
//! | the server's resident memory | grows at most by the attack's parts and a margin |
//! | the server's memory | stays within the plan and a margin, whatever came before |
//! | Gets and Puts of `attack/other_clients.rs` | P99 below 50 ms, more on a busy machine or disk |
//! | a new client | is admitted, and can write 1 MiB, while the attack lasts |
//! | the log | rolls |
//! | memory and descriptors | are released when the clients are gone |
//!
//! All attacks use one server, so leftovers of one count for the next. A failed attack is repeated
//! once: other processes on the machine may use memory and time, but a fault of the server recurs.
//!
//! `EVENKEEL_HOSTILE_SECONDS=20` sets the duration of each attack (default 1.2);
//! `EVENKEEL_HOSTILE_ONLY=scanner` selects the attacks whose names contain this text;
//! `EVENKEEL_HOSTILE_FULL=1` runs attacks at full size, which needs an optimized server:
//! `EVENKEEL_TEST_SERVER=path` attacks that one.

mod attack;
#[path = "../common/mod.rs"]
mod common;
mod requests;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use attack::{Attack, AttackContext, BIG_ROWS, Report, SMALL_ROWS, SMALL_VALUE_BYTES, bystander_row};
use common::{Server, raw, runtime};
use evenkeel_client::{Connection, Put};
use evenkeel_common::{ColumnFamilyDescriptor, KeyValue, TableDescriptor, TableName};
use evenkeel_fs::LocalFileSystem;
use evenkeel_hfile::{HFileContext, HFileWriter, StoreFileMeta};
use requests::TableTarget;

/// Open files of the server; half of them are for connections.
const DESCRIPTORS: u32 = 256;
/// A machine that is busy with other work may cause one failure.
const ATTEMPTS: usize = 2;
/// Cells of a big row, and their length.
const CELLS: usize = 8;
const VALUE_BYTES: usize = 400_000;

const SETTINGS: [(&str, &str); 5] = [
    ("evenkeel.memory.size", "256m"),
    ("evenkeel.ipc.server.receive.timeout", "2000"),
    ("evenkeel.ipc.server.handshake.timeout", "3000"),
    // Abandoned scanners expire within the time limit for release.
    ("hbase.client.scanner.timeout.period", "3000"),
    (
        "hbase.coprocessor.user.region.classes",
        "org.apache.hadoop.hbase.coprocessor.AggregateImplementation,\
         org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint",
    ),
];

async fn make_table(connection: &Connection, name: &str, puts: Vec<Put>) -> TableTarget {
    let name: TableName = name.parse().expect("legal");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let descriptor = TableDescriptor::new(name.clone()).with_family(family);
    let admin = connection.admin();
    admin.create_table(&descriptor, &[]).await.expect("created");
    let table = connection.table(name.clone());
    for some in puts.chunks(100) {
        table.put_all(some.to_vec()).await.expect("written");
    }
    admin.flush_table(&name).await.expect("flushed");
    let region = admin.regions(&name).await.expect("regions")[0].region.clone();
    TableTarget { table: descriptor, region }
}

/// A store file of one row.
fn write_store_file(path: &Path) {
    let mut writer =
        HFileWriter::create(&LocalFileSystem::new(), path, HFileContext::default()).expect("a new file");
    let cell = KeyValue::put(b"loaded", b"f", b"q", 1, b"value");
    writer.append(&cell.as_cell()).expect("in order");
    writer.finish(StoreFileMeta::default()).expect("written");
}

fn read_puts() -> Vec<Put> {
    let small =
        (0..SMALL_ROWS).map(|n| Put::new(format!("r{n:04}")).column("f", "q", vec![b'x'; SMALL_VALUE_BYTES]));
    let big = (0..BIG_ROWS * CELLS).map(|n| {
        Put::new(format!("b{}", n / CELLS)).column("f", format!("q{}", n % CELLS), vec![b'x'; VALUE_BYTES])
    });
    small.chain(big).collect()
}

fn set_up(server: &Server, folder: &Path) -> AttackContext {
    let runtime = runtime();
    let [read, bystander, administered] = runtime.block_on(async {
        let connection = server.connect().await;
        let rows = (0..100).map(|n| Put::new(bystander_row(n)).column("f", "q", "value")).collect();
        [
            make_table(&connection, "target", read_puts()).await,
            make_table(&connection, "bystander", rows).await,
            make_table(&connection, "administered", vec![Put::new("r").column("f", "q", "value")]).await,
        ]
    });
    let loadable = folder.join("loadable");
    write_store_file(&loadable);
    AttackContext {
        regionserver: server.port("hbase.regionserver.port"),
        master: server.port("hbase.master.port"),
        zookeeper: server.port("hbase.zookeeper.property.clientPort"),
        info_ports: ["hbase.regionserver.info.port", "hbase.master.info.port"].map(|key| server.port(key)),
        read_region: read.region(),
        bystander_region: bystander.region(),
        administered,
        loadable,
        until: Instant::now(),
        is_full_size: variable("EVENKEEL_HOSTILE_FULL").is_some(),
    }
}

/// Fills the working memory of handlers, caches and the allocator, so that it does not count as an
/// attack's growth.
fn warm_up(context: &AttackContext) {
    let gets = raw::gets(&context.read_region, (0..200).map(|n| format!("r{n:04}")));
    let scans = raw::scans(&context.read_region, 10);
    let clients = (0..8).map(|_| {
        let requests = [&gets[..], &scans].concat();
        let mut stream = raw::connect(context.regionserver);
        std::thread::spawn(move || {
            stream.write_all(&requests).expect("sent");
            (0..210).for_each(|_| drop(raw::reply(&mut stream).expect("answered")));
        })
    });
    clients.collect::<Vec<_>>().into_iter().for_each(|client| client.join().expect("served"));
}

fn print(attack: &Attack, report: &Report) {
    let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    let other_clients = &report.other_clients;
    println!(
        "{:<42} +{:>3} MiB to {:>3}, {:>3} left, {:>3} descriptors; P99 and longest in ms: Gets {} {}, Puts {} {}, echo {} {}, file {} {}",
        attack.name,
        report.grown_mib,
        report.total_mib,
        report.left_mib,
        report.descriptors,
        ms(other_clients.gets.0),
        ms(other_clients.gets.1),
        ms(other_clients.puts.0),
        ms(other_clients.puts.1),
        ms(other_clients.echo.0),
        ms(other_clients.echo.1),
        ms(other_clients.file_writes.0),
        ms(other_clients.file_writes.1),
    );
    report.faults.iter().for_each(|fault| println!("    {fault}"));
}

/// Repeats it until it holds; returns the conditions that failed in the last attempt.
fn faults_of(attack: &Attack, server: &mut Server, context: &AttackContext, time: Duration) -> Vec<String> {
    let mut faults = Vec::new();
    for _ in 0..ATTEMPTS {
        if !server.runs() {
            return vec!["the server is gone".to_owned()];
        }
        let report = attack::run(attack, server, context, time);
        print(attack, &report);
        faults = report.faults;
        if faults.is_empty() {
            break;
        }
    }
    faults
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[test]
fn hostile_clients_do_not_stop_the_server() {
    let time = variable("EVENKEEL_HOSTILE_SECONDS").and_then(|text| text.parse().ok()).unwrap_or(1.2);
    let only = variable("EVENKEEL_HOSTILE_ONLY");
    let mut server = Server::new(&SETTINGS);
    server.start_with_descriptors(DESCRIPTORS);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let context = set_up(&server, folder.path());
    warm_up(&context);
    let is_asked = |attack: &&Attack| only.as_ref().is_none_or(|only| attack.name.contains(only));
    let attacks: Vec<_> = attack::attacks().filter(is_asked).collect();
    assert!(!attacks.is_empty(), "no attack has {only:?} in its name");
    let mut failed = Vec::new();
    for attack in attacks {
        let faults = faults_of(attack, &mut server, &context, Duration::from_secs_f64(time));
        if !faults.is_empty() {
            failed.push(format!("{}: {}", attack.name, faults.join("; ")));
        }
        if !server.runs() {
            break;
        }
    }
    assert!(failed.is_empty(), "{} attacks:\n{}", failed.len(), failed.join("\n"));
    assert!(server.terminate().success());
}
