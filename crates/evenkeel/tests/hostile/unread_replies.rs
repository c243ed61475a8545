//! Clients that request many bytes and never read a reply: only their connections stall.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use evenkeel_client::{Get, Put, Table};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use evenkeel_protocol::pb;

use crate::common::{Server, raw, runtime};

/// A row of eight cells, in the MemStore (copied into replies) or in files (shared with the cache).
const ROWS: usize = 4;
const CELLS: usize = 8;
const VALUE_BYTES: usize = 400_000;
const HOGS: usize = 60;
/// The memory of a server of 256 MiB for replies and their buffers.
const REPLIES_BYTES: u64 = 16 << 20;
/// Other growth by these clients: replies being built, on 30 handlers and two connection threads,
/// and blocks in the cache.
const REST_BYTES: u64 = 64 << 20;
/// The limit of a reply's latency for other clients, under full load of tests on a small machine.
const LATENCY_MAX: Duration = Duration::from_secs(2);

fn gets(region: &pb::RegionSpecifier) -> Vec<u8> {
    raw::gets(region, (0..50).map(|n| format!("r{}", n % ROWS)))
}

fn scans(region: &pb::RegionSpecifier) -> Vec<u8> {
    raw::scans(region, 50)
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
fn clients_that_never_read_block_only_themselves() {
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
            let mut hog = raw::connect(server.port("hbase.regionserver.port"));
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
    println!("{} MiB more, slowest reply to others {worst:?}", grown >> 20);
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
