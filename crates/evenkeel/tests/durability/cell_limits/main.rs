//! Cells at and past every limit, legal and not, sent as raw bytes by every kind of request and in
//! every cell codec, to tables of every encoding: alone and among legal cells of the same mutation.
//! Acknowledged cells survive `kill -9`, a flush and a compaction byte for byte, tags included, and
//! what a Delete deleted stays deleted. All other mutations are refused as a whole with an error
//! that no client retries, and no other cell, row or table is affected.

mod cells;
mod clients;
#[path = "../../common/mod.rs"]
mod common;
mod loaded_files;
mod wire;

use std::time::{Duration, Instant};

use evenkeel_client::{Get, Put};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use evenkeel_protocol::pb;

use self::cells::CELL_BYTES_MAX;
use self::clients::Clients;
use self::common::{Server, TIMEOUT, block_on};

const ENDPOINT: &str = "|org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint|536870911|";
const PLAIN_ROWS: usize = 100;
/// For each table: encoding, codec, and whether tags are compressed.
const TABLES: [(&str, &str, &str); 5] = [
    ("NONE", "NONE", "true"),
    ("PREFIX", "SNAPPY", "true"),
    ("DIFF", "GZ", "false"),
    ("FAST_DIFF", "LZ4", "true"),
    ("ROW_INDEX_V1", "ZSTD", "true"),
];

/// The settings of a log that compresses everything.
fn compressed_log() -> [(&'static str, &'static str); 4] {
    [
        ("hbase.regionserver.wal.enablecompression", "true"),
        ("hbase.regionserver.wal.tags.enablecompression", "true"),
        ("hbase.regionserver.wal.value.enablecompression", "true"),
        ("hbase.regionserver.wal.value.compression.type", "snappy"),
    ]
}

/// The text of an error that clients do not retry.
fn failure(pair: &pb::NameBytesPair) -> String {
    assert_ne!(pair.name, "java.io.IOException", "clients try that again");
    format!("{}: {}", pair.name, String::from_utf8_lossy(pair.value.as_deref().unwrap_or_default()))
}

fn table_name(at: usize) -> TableName {
    format!("t{at}").parse().expect("legal")
}

/// The region of each table.
async fn make_tables(server: &Server) -> Vec<pb::RegionSpecifier> {
    let connection = server.connect().await;
    let (admin, mut regions) = (connection.admin(), Vec::new());
    for (at, (encoding, codec, compress_tags)) in TABLES.into_iter().enumerate() {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let family = family.with("DATA_BLOCK_ENCODING", encoding).with("COMPRESSION", codec);
        let family = family.with("COMPRESS_TAGS", compress_tags);
        let table = TableDescriptor::new(table_name(at)).with_family(family).with("coprocessor$1", ENDPOINT);
        admin.create_table(&table, &[]).await.expect("created");
        let found = admin.regions(&table_name(at)).await.expect("regions");
        regions.push(pb::RegionSpecifier { r#type: 1, value: found[0].region.name().clone() });
    }
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let plain = TableDescriptor::new("plain".parse().expect("legal")).with_family(family);
    admin.create_table(&plain, &[]).await.expect("created");
    regions
}

async fn put_plain(server: &Server) {
    let table = server.connect().await.table("plain".parse().expect("legal"));
    for row in 0..PLAIN_ROWS {
        table.put(Put::new(format!("p{row}")).column("f", "q", "v")).await.expect("put");
    }
}

async fn check_plain(server: &Server) {
    let table = server.connect().await.table("plain".parse().expect("legal"));
    for row in 0..PLAIN_ROWS {
        let result = table.get(Get::new(format!("p{row}"))).await.expect("read");
        assert_eq!(result.value("f", "q"), Some(&b"v"[..]), "row {row} of the other table");
    }
}

async fn flush(server: &Server) {
    let connection = server.connect().await;
    for at in 0..TABLES.len() {
        connection.admin().flush_table(&table_name(at)).await.expect("flushed");
    }
}

async fn compact(server: &Server) {
    let connection = server.connect().await;
    for at in 0..TABLES.len() {
        connection.admin().compact_table(&table_name(at), None, true).await.expect("asked");
    }
    let deadline = Instant::now() + TIMEOUT;
    for at in 0..TABLES.len() {
        while connection.admin().last_major_compaction(&table_name(at)).await.expect("told") == 0 {
            assert!(Instant::now() < deadline, "table {at} is not compacted in time");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn live(settings: &[(&str, &str)]) {
    let size = CELL_BYTES_MAX.to_string();
    let settings =
        [settings, &[("hbase.server.keyvalue.maxsize", &size), ("evenkeel.memory.size", "512m")]].concat();
    let mut server = Server::started(&settings);
    let regions = block_on(make_tables(&server));
    let mut clients = Clients::new(&server, regions);
    clients.send_all();
    clients.outgrow();
    clients.send_in_vain();
    block_on(put_plain(&server));
    clients.check("before the kill");
    clients.check_by_other_codecs("before the kill");
    let restart = |server: &mut Server, clients: Clients| {
        server.kill();
        server.start();
        clients.again(server)
    };
    let mut clients = restart(&mut server, clients);
    clients.check("after the kill");
    block_on(check_plain(&server));
    block_on(flush(&server));
    clients.check("after a flush");
    block_on(compact(&server));
    let mut clients = restart(&mut server, clients);
    clients.check("after a compaction and another kill");
    block_on(check_plain(&server));
}

#[test]
fn cells_at_every_limit_come_back_or_are_refused_with_a_plain_log() {
    live(&[]);
}

#[test]
fn cells_at_every_limit_come_back_or_are_refused_with_a_compressed_log() {
    live(&compressed_log());
}
