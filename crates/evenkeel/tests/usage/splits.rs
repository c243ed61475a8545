//! Regions that grow are split by their table's policy, while clients write and read.

use std::time::{Duration, Instant};

use evenkeel_client::{Connection, Get, Put, Scan};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

use crate::common::{Server, TIMEOUT, runtime};

const MIB: usize = 1 << 20;
const VALUE_BYTES: usize = 2000;
const WRITERS: usize = 4;
/// Rows of each writer: 12 MiB of values in all.
const ROWS: usize = 12 * MIB / VALUE_BYTES / WRITERS;
const PACKAGE: &str = "org.apache.hadoop.hbase.regionserver";

fn row(writer: usize, n: usize) -> String {
    // The rows of all writers are spread over the table.
    format!("user{:03}_{writer}_{n:05}", n % 200)
}

/// A table with flushes of 1 MiB, whose regions are large from 2 MiB on.
async fn create(connection: &Connection, name: &str, policy: &str, attributes: &[(&str, &str)]) -> TableName {
    let name: TableName = name.parse().expect("legal");
    let table = TableDescriptor::new(name.clone())
        .with("SPLIT_POLICY", &format!("{PACKAGE}.{policy}"))
        .with("MEMSTORE_FLUSHSIZE", &MIB.to_string())
        .with("MAX_FILESIZE", &(2 * MIB).to_string())
        .with("hbase.increasing.policy.initial.size", &(2 * MIB).to_string());
    let table = attributes.iter().fold(table, |table, (key, value)| table.with(key, value));
    let table = table.with_family(ColumnFamilyDescriptor::new(b"f").expect("legal"));
    connection.admin().create_table(&table, &[]).await.expect("created");
    name
}

/// Writes the rows of a writer, and reads each at once.
async fn write(connection: Connection, name: TableName, writer: usize) {
    let table = connection.table(name);
    for n in 0..ROWS {
        let put = Put::new(row(writer, n)).column("f", "q", vec![n as u8; VALUE_BYTES]);
        table.put(put).await.expect("a client sees no split");
        assert!(table.exists(Get::new(row(writer, n))).await.expect("a client sees no split"));
    }
}

async fn fill(connection: &Connection, name: &TableName) {
    let writers: Vec<_> =
        (0..WRITERS).map(|n| tokio::spawn(write(connection.clone(), name.clone(), n))).collect();
    for writer in writers {
        writer.await.expect("no row is missing");
    }
    connection.admin().flush_table(name).await.expect("flushed");
}

/// The first rows of a table's regions, once there are at least `count` regions.
async fn starts(connection: &Connection, name: &TableName, count: usize) -> Vec<String> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let regions = connection.admin().regions(name).await.expect("listed");
        if regions.len() >= count {
            let start = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
            return regions.iter().map(|region| start(region.region.start_key())).collect();
        }
        assert!(Instant::now() < deadline, "{name}: {} regions, not {count}", regions.len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn count_rows(connection: &Connection, name: &TableName) -> usize {
    let mut scanner = connection.table(name.clone()).scan(Scan::new());
    let mut count = 0;
    while let Some(row) = scanner.next().await.expect("scanned") {
        assert_eq!(row.cells().len(), 1);
        count += 1;
    }
    count
}

#[test]
fn regions_are_split_by_their_tables_policy_while_clients_write() {
    let server = Server::started(&[]);
    runtime().block_on(async {
        let connection = server.connect().await;
        let sized = create(&connection, "sized", "ConstantSizeRegionSplitPolicy", &[]).await;
        let length = [("KeyPrefixRegionSplitPolicy.prefix_length", "7")];
        let prefixed = create(&connection, "prefixed", "KeyPrefixRegionSplitPolicy", &length).await;
        let disabled = create(&connection, "disabled", "DisabledRegionSplitPolicy", &[]).await;
        let off = [("SPLIT_ENABLED", "false")];
        let off = create(&connection, "off", "ConstantSizeRegionSplitPolicy", &off).await;
        for name in [&sized, &prefixed, &disabled, &off] {
            fill(&connection, name).await;
        }
        starts(&connection, &sized, 4).await;
        let prefixes = starts(&connection, &prefixed, 2).await;
        assert!(prefixes.iter().all(|start| start.len() <= 7), "{prefixes:?}");
        for name in [&disabled, &off] {
            assert_eq!(starts(&connection, name, 1).await, [""], "{name}");
        }
        for name in [&sized, &prefixed, &disabled, &off] {
            assert_eq!(count_rows(&connection, name).await, WRITERS * ROWS, "{name}");
        }
    });
}

#[test]
fn a_table_whose_policy_is_unknown_is_rejected() {
    let server = Server::started(&[]);
    runtime().block_on(async {
        let connection = server.connect().await;
        let table = TableDescriptor::new("t".parse().expect("legal"))
            .with("SPLIT_POLICY", "org.example.Mine")
            .with_family(ColumnFamilyDescriptor::new(b"f").expect("legal"));
        let error = connection.admin().create_table(&table, &[]).await.expect_err("rejected").to_string();
        assert!(
            error.contains("Unable to load configured region split policy 'org.example.Mine'"),
            "{error}"
        );
    });
}
