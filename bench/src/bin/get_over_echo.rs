//! The cost of a cached Get in a whole server, relative to a bare echo on the same RPC layer:
//! server CPU a call, the kernel's part included, for single calls and for calls that share a
//! wake-up.
//!
//!     cargo run --release -p evenkeel-bench --bin get_over_echo [calls]
//!
//! Both servers run in this process, one at a time, with one connection; the client is a blocking
//! socket that sends prepared requests. The figure is the CPU time of all threads except the
//! client's.

#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_bench::echo;
use evenkeel_client::{Action, ClientConfig, Connection, Put};
use evenkeel_common::{ColumnFamilyDescriptor, Configuration, TableDescriptor, TableName};
use evenkeel_protocol::pb;
use evenkeel_standalone::Standalone;

const ROWS: u32 = 10_000;
const VALUE_BYTES: usize = 200;
/// Calls that are sent together.
const TOGETHER: [u32; 3] = [1, 8, 64];
const PORT_KEYS: [&str; 5] = [
    "hbase.zookeeper.property.clientPort",
    "hbase.master.port",
    "hbase.regionserver.port",
    "hbase.master.info.port",
    "hbase.regionserver.info.port",
];

fn main() {
    let calls = std::env::args().nth(1).map_or(200_000, |calls| calls.parse().expect("a number"));
    let echoes = echo_costs(calls);
    let gets = get_costs(calls);
    println!("| calls together | echo, µs CPU a call | Get | Get to echo |\n|---|---|---|---|");
    for ((together, echo), get) in TOGETHER.iter().zip(echoes).zip(gets) {
        println!("| {together} | {echo:.2} | {get:.2} | {:.2} |", get / echo);
    }
}

fn echo_costs(calls: u32) -> Vec<f64> {
    let server = echo::serve(VALUE_BYTES);
    let param = pb::NameBytesPair { name: "row".to_owned(), value: Some(Bytes::from_static(&[7; 60])) };
    let costs = costs(server.local_addr(), calls, |id| echo::request(id, "Echo", &param));
    server.shutdown(Duration::from_secs(1));
    costs
}

fn get_costs(calls: u32) -> Vec<f64> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let ports = free_ports();
    let mut settings =
        vec![("hbase.rootdir".to_owned(), format!("file://{}/hbase", folder.path().display()))];
    settings.extend(PORT_KEYS.iter().zip(ports).map(|(key, port)| ((*key).to_owned(), port.to_string())));
    let conf = Configuration::load(None, &settings).expect("settings");
    let server = Standalone::start(conf, Arc::new(|reason: &str| panic!("{reason}"))).expect("starts");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let region = runtime.block_on(load(&format!("127.0.0.1:{}", ports[1])));
    let address = SocketAddr::from(([127, 0, 0, 1], ports[2]));
    let costs = costs(address, calls, |id| echo::request(id, "Get", &get(&region, id)));
    server.stop().expect("stops");
    costs
}

/// Loads a table and flushes it; returns the name of its region.
async fn load(bootstrap: &str) -> Bytes {
    let connection = Connection::connect(ClientConfig::new([bootstrap])).await.expect("connected");
    let name: TableName = "t".parse().expect("legal");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let admin = connection.admin();
    admin.create_table(&TableDescriptor::new(name.clone()).with_family(family), &[]).await.expect("created");
    let table = connection.table(name.clone());
    let put = |number| Action::from(Put::new(row(number)).column("f", "q", vec![b'v'; VALUE_BYTES]));
    for outcome in table.batch((0..ROWS).map(put).collect()).await {
        outcome.expect("written");
    }
    admin.flush_table(&name).await.expect("flushed");
    connection.locate(&name, b"", false).await.expect("a region").region.name().clone()
}

fn row(number: u32) -> String {
    format!("row{number:08}")
}

fn get(region: &Bytes, id: u32) -> pb::GetRequest {
    let row = row(id.wrapping_mul(7919) % ROWS);
    let column = pb::Column { family: "f".into(), qualifier: vec!["q".into()] };
    pb::GetRequest {
        region: pb::RegionSpecifier {
            r#type: pb::region_specifier::RegionSpecifierType::RegionName as i32,
            value: region.clone(),
        },
        get: pb::Get { row: row.into(), column: vec![column], ..Default::default() },
    }
}

/// Server CPU a call in µs, for each number of calls that are sent together.
fn costs(address: SocketAddr, calls: u32, request: impl Fn(u32) -> Vec<u8>) -> Vec<f64> {
    TOGETHER.iter().map(|together| cost(address, calls, *together, &request)).collect()
}

fn cost(address: SocketAddr, calls: u32, together: u32, request: impl Fn(u32) -> Vec<u8>) -> f64 {
    let mut stream = echo::connect(address);
    // Ids of the same encoded length, so that all replies have the same length.
    let ids: Vec<u32> = (1 << 14..(1 << 14) + together.max(1024)).collect();
    let reply = echo::reply_bytes(&mut stream, &request(ids[0]));
    let batches: Vec<Vec<u8>> = ids
        .chunks_exact(together as usize)
        .map(|ids| ids.iter().flat_map(|id| request(*id)).collect())
        .collect();
    let mut replies = vec![0; reply * together as usize];
    let rounds = (calls / together).max(1);
    run(&mut stream, &batches, &mut replies, rounds / 5 + 1);
    let before = servers_cpu_ns();
    run(&mut stream, &batches, &mut replies, rounds);
    (servers_cpu_ns() - before) as f64 / 1000.0 / f64::from(rounds * together)
}

fn run(stream: &mut TcpStream, batches: &[Vec<u8>], replies: &mut [u8], rounds: u32) {
    for batch in batches.iter().cycle().take(rounds as usize) {
        stream.write_all(batch).expect("write");
        stream.read_exact(replies).expect("read");
    }
}

/// CPU time of all threads but this one.
fn servers_cpu_ns() -> u64 {
    let own =
        std::fs::read_link("/proc/thread-self").ok().and_then(|path| Some(path.file_name()?.to_owned()));
    let tasks = std::fs::read_dir("/proc/self/task").expect("tasks").flatten();
    let others = tasks.filter(|task| Some(task.file_name()) != own);
    let used = others.filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok());
    used.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
}

fn free_ports() -> [u16; 5] {
    let held = [(); 5].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    held.map(|listener| listener.local_addr().expect("an address").port())
}
