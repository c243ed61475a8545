//! Clients that ask for much and never read an answer: they hold back their own connections, and nothing else.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Server, runtime};
use evenkeel_client::{Get, Put, Table};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use evenkeel_protocol::pb;
use prost::Message;

/// A row of eight cells, in the MemStore (copied into replies) or in files (shared with the cache).
const ROWS: usize = 4;
const CELLS: usize = 8;
const VALUE_BYTES: usize = 400_000;
const HOGS: usize = 60;
/// What a server of 256 MiB keeps for replies at least.
const REPLIES_BYTES: u64 = 64 << 20;
/// Everything else that these clients may make grow: replies being made, on 30 handlers and two connection threads.
const REST_BYTES: u64 = 64 << 20;
/// A reply to the others, under full load of tests on a small machine.
const LATENCY_MAX: Duration = Duration::from_secs(2);

fn frame(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

fn call(id: u32, method: &str, param: &impl Message) -> Vec<u8> {
    let header = pb::RequestHeader {
        call_id: Some(id),
        method_name: Some(method.to_owned()),
        request_param: Some(true),
        ..Default::default()
    };
    frame(&[header.encode_length_delimited_to_vec(), param.encode_length_delimited_to_vec()].concat())
}

fn connect(server: &Server) -> TcpStream {
    let header = pb::ConnectionHeader {
        service_name: Some("ClientService".to_owned()),
        cell_block_codec_class: Some("org.apache.hadoop.hbase.codec.KeyValueCodec".to_owned()),
        version_info: Some(pb::VersionInfo {
            version_major: Some(2),
            version_minor: Some(6),
            ..Default::default()
        }),
        ..Default::default()
    };
    let address = ("127.0.0.1", server.port("hbase.regionserver.port"));
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.write_all(b"HBas\0\x50").expect("sent");
    stream.write_all(&frame(&header.encode_to_vec())).expect("sent");
    stream
}

fn gets(region: &pb::RegionSpecifier) -> Vec<u8> {
    let get = |id: u32| {
        let row = Bytes::from(format!("r{}", id as usize % ROWS));
        let get = pb::Get { row, ..Default::default() };
        call(id, "Get", &pb::GetRequest { region: region.clone(), get })
    };
    (0..50).flat_map(get).collect()
}

fn scans(region: &pb::RegionSpecifier) -> Vec<u8> {
    let scan = |id: u32| {
        let request = pb::ScanRequest {
            region: Some(region.clone()),
            scan: Some(pb::Scan { max_result_size: Some(100 << 20), ..Default::default() }),
            number_of_rows: Some(1000),
            client_handles_partials: Some(true),
            ..Default::default()
        };
        call(id, "Scan", &request)
    };
    (0..50).flat_map(scan).collect()
}

async fn make_table(server: &Server, name: &str, flush: bool) -> (Table, pb::RegionSpecifier) {
    let name: TableName = name.parse().expect("legal");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let connection = server.connect().await;
    let admin = connection.admin();
    admin.create_table(&TableDescriptor::new(name.clone()).with_family(family), &[]).await.expect("created");
    let table = connection.table(name.clone());
    for row in 0..ROWS {
        for cell in 0..CELLS {
            let value = vec![(row * CELLS + cell) as u8; VALUE_BYTES];
            table.put(Put::new(format!("r{row}")).column("f", format!("q{cell}"), value)).await.expect("put");
        }
    }
    table.put(Put::new("small").column("f", "q", "v")).await.expect("put");
    if flush {
        admin.flush_table(&name).await.expect("flushed");
    }
    let regions = admin.regions(&name).await.expect("regions");
    let region = pb::RegionSpecifier { r#type: 1, value: regions[0].region.name().clone() };
    (table, region)
}

async fn assert_whole(table: &Table) {
    for row in 0..ROWS {
        let result = table.get(Get::new(format!("r{row}"))).await.expect("served");
        for cell in 0..CELLS {
            let value = vec![(row * CELLS + cell) as u8; VALUE_BYTES];
            assert!(result.value("f", format!("q{cell}")) == Some(&value[..]), "row {row}, cell {cell}");
        }
    }
}

#[test]
fn clients_that_never_read_hold_back_only_themselves() {
    let mut server = Server::started(&[("evenkeel.memory.size", "256m")]);
    let runtime = runtime();
    let (copied, shared) = runtime.block_on(async {
        (make_table(&server, "copied", false).await, make_table(&server, "shared", true).await)
    });
    runtime.block_on(async {
        assert_whole(&copied.0).await;
        assert_whole(&shared.0).await;
    });
    let before = server.resident_bytes();
    let requests = [gets(&copied.1), gets(&shared.1), scans(&copied.1), scans(&shared.1)];
    let hogs: Vec<TcpStream> = (0..HOGS)
        .map(|i| {
            let mut hog = connect(&server);
            hog.write_all(&requests[i % requests.len()]).expect("sent");
            hog
        })
        .collect();
    let (mut worst, mut peak) = (Duration::ZERO, 0_u64);
    runtime.block_on(async {
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            for (table, _) in [&copied, &shared] {
                let asked_at = Instant::now();
                let result = table.get(Get::new("small")).await.expect("served");
                worst = worst.max(asked_at.elapsed());
                assert_eq!(result.value("f", "q"), Some(&b"v"[..]));
            }
            peak = peak.max(server.resident_bytes());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let grown = peak.saturating_sub(before);
    println!("{} MiB more, slowest answer to others {worst:?}", grown >> 20);
    assert!(server.runs());
    assert!(grown <= REPLIES_BYTES + REST_BYTES, "{} MiB for {HOGS} clients that do not read", grown >> 20);
    assert!(worst < LATENCY_MAX, "{worst:?}");
    drop(hogs);
    runtime.block_on(async {
        assert_whole(&copied.0).await;
        assert_whole(&shared.0).await;
    });
    assert!(server.terminate().success());
}
