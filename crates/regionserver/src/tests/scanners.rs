//! The memory of open scanners, and which of them are closed when it exceeds a limit.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{ColumnFamilyDescriptor, ErrorKind, HBaseError, TableDescriptor};
use evenkeel_protocol::pb;
use evenkeel_region::memstore::{ChunkPool, ChunkSizes};
use evenkeel_region::region::Region;
use prost::Message;

use crate::requests::scan::scan;
use crate::requests::scanners::ACTIVE_MS;
use crate::testing::*;
use crate::{Caller, RegionServerConfig};

const PART: u64 = 1 << 20;
const SYSTEM_PART: u64 = 256 << 10;

fn server() -> TestServer {
    TestServer::new(RegionServerConfig {
        scanner_bytes_max: PART,
        system_scanner_bytes_max: SYSTEM_PART,
        ..RegionServerConfig::default()
    })
}

fn rows(server: &TestServer, table: TableDescriptor) -> Arc<Region> {
    let region = server.open(b"", b"", table);
    for row in 0..100_u8 {
        put(&region, &[cell(&[row], b"q", b"v")]);
    }
    region
}

fn system_table() -> TableDescriptor {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    TableDescriptor::new("hbase:namespace".parse().expect("legal")).with_family(family)
}

fn client(number: u8) -> Caller {
    Caller { peer: Some(SocketAddr::from(([10, 0, 0, number], 1))), ..caller() }
}

/// Returns a filter that accepts every row and takes this many bytes of memory.
fn prefixes(bytes: usize) -> pb::Filter {
    let long = pb::ColumnPrefixFilter { prefix: vec![0; bytes].into() };
    let members = [
        ("ColumnPrefixFilter", long.encode_to_vec()),
        ("PageFilter", pb::PageFilter { page_size: 1 << 40 }.encode_to_vec()),
    ];
    let filters = members.into_iter().map(|(class, message)| of_class(class, message)).collect();
    let list = pb::FilterList { operator: pb::filter_list::Operator::MustPassOne as i32, filters };
    of_class("FilterList", list.encode_to_vec())
}

fn of_class(class: &str, message: Vec<u8>) -> pb::Filter {
    let name = format!("org.apache.hadoop.hbase.filter.{class}");
    pb::Filter { name, serialized_filter: Some(Bytes::from(message)) }
}

fn open(
    server: &TestServer,
    region: &Region,
    caller: &Caller,
    filter: Option<pb::Filter>,
) -> Result<u64, HBaseError> {
    let request = pb::ScanRequest {
        region: Some(specifier(region)),
        scan: Some(pb::Scan { filter, ..pb::Scan::default() }),
        number_of_rows: Some(1),
        ..pb::ScanRequest::default()
    };
    Ok(scan(&server.server, &request, caller)?.expect("in time").message.scanner_id())
}

fn next(server: &TestServer, id: u64, caller: &Caller) -> Result<(), HBaseError> {
    let request =
        pb::ScanRequest { scanner_id: Some(id), number_of_rows: Some(1), ..pb::ScanRequest::default() };
    let page = scan(&server.server, &request, caller)?.expect("in time");
    assert_eq!(page.message.more_results, Some(true));
    Ok(())
}

#[test]
fn scanner_memory_stays_within_its_part() {
    let server = server();
    let region = rows(&server, table());
    let held = || server.server.scanners().bytes();
    for filter_bytes in [0, 10, 1_000, 60_000] {
        for _ in 0..500 {
            server.clock.advance_ms(1);
            open(&server, &region, &client(1), Some(prefixes(filter_bytes))).expect("its own are ended");
            assert!(held() <= PART, "{} bytes", held());
        }
        let least = server.server.scanners().len() as u64 * filter_bytes as u64;
        assert!(held() >= least.max(PART / 8), "{} of {least} bytes", held());
    }
    let error = open(&server, &region, &client(2), Some(prefixes(PART as usize))).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::DoNotRetry, "{error}");
    server.clock.advance_ms(60_000);
    assert!(server.server.scanners().expire() > 0);
    assert_eq!((held(), server.server.scanners().len()), (0, 0));
}

#[test]
fn no_client_ends_the_scanners_of_others() {
    let server = server();
    let region = rows(&server, table());
    let (reader, sleeper, greedy) = (client(1), client(2), client(3));
    let read = open(&server, &region, &reader, None).expect("opened");
    let slept = open(&server, &region, &sleeper, None).expect("opened");
    for round in 0..50 {
        server.clock.advance_ms(ACTIVE_MS / 10);
        for _ in 0..20 {
            open(&server, &region, &greedy, Some(prefixes(40_000))).expect("its own are ended");
        }
        next(&server, read, &reader).unwrap_or_else(|error| panic!("round {round}: {error}"));
        open(&server, &region, &client(10 + round), None).expect("a small one finds room");
    }
    next(&server, slept, &sleeper).expect("one of a client with little");
}

#[test]
fn active_clients_keep_scanners_and_new_ones_are_refused() {
    let server = server();
    let region = rows(&server, table());
    let clients: Vec<_> = (0..30).map(client).collect();
    let opened: Vec<_> = clients
        .iter()
        .map_while(|of| open(&server, &region, of, Some(prefixes(9_000))).ok().map(|id| (id, of)))
        .collect();
    assert!(opened.len() > 10);
    let refused = open(&server, &region, &client(99), Some(prefixes(9_000))).expect_err("no room");
    assert_eq!(refused.kind(), ErrorKind::RegionTooBusy, "{refused}");
    opened.iter().for_each(|(id, of)| next(&server, *id, of).expect("still there"));
    server.clock.advance_ms(ACTIVE_MS);
    open(&server, &region, &client(99), Some(prefixes(9_000))).expect("in place of one that sleeps");
}

#[test]
fn scanners_of_hbases_own_tables_have_room_of_their_own() {
    let server = server();
    let (user, system) = (rows(&server, table()), rows(&server, system_table()));
    let first = open(&server, &user, &client(1), None).expect("opened");
    for _ in 0..300 {
        open(&server, &system, &client(2), Some(prefixes(5_000))).expect("its own are ended");
    }
    let scanners = server.server.scanners();
    assert!(scanners.system_bytes() <= SYSTEM_PART && scanners.system_bytes() > SYSTEM_PART / 2);
    next(&server, first, &client(1)).expect("not ended for those");
    for _ in 0..300 {
        open(&server, &user, &client(3), Some(prefixes(5_000))).expect("its own are ended");
    }
    open(&server, &system, &client(4), None).expect("users' scanners take no room");
}

#[test]
fn stalled_scanners_release_flushed_memstores() {
    const LIMIT: u64 = 8 << 20;
    let sizes = ChunkSizes { chunk_bytes: 256 << 10, shared_bytes_max: 64 << 10 };
    let chunks = ChunkPool::within(sizes, 8, 0, (LIMIT + (1 << 20)) as usize);
    let config = RegionServerConfig {
        global_memstore_bytes: LIMIT,
        global_memstore_low_bytes: LIMIT / 10 * 9,
        ..RegionServerConfig::default()
    };
    let server = TestServer::with_chunks(config, chunks.clone());
    let region = server.open(b"", b"", table());
    let value = vec![7; 32 << 10];
    for round in 0..20_u8 {
        for row in 0..30 {
            put(&region, &[cell(&[round, row], b"q", &value)]);
        }
        server.clock.advance_ms(10);
        open(&server, &region, &client(round), None).expect("opened");
        region.flush().expect("flushed");
        server.server.run_chore();
        let kept = chunks.out_bytes() as u64 - region.chunk_bytes().0;
        assert!(kept <= LIMIT / 8, "round {round}: {kept} bytes are kept by scanners");
    }
    // Also those of a region that is no longer online, whose clients never call again.
    for row in 0..60 {
        put(&region, &[cell(&[row], b"q", &value)]);
    }
    open(&server, &region, &client(1), None).expect("opened");
    server.server.regions().remove(region.info().encoded_name(), None);
    region.close(false).expect("closed");
    drop(region);
    server.server.run_chore();
    assert!(chunks.out_bytes() as u64 <= LIMIT / 8, "{} bytes", chunks.out_bytes());
}
