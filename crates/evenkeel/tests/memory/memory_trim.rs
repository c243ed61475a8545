//! A quiet server releases unneeded memory to the system.

#[path = "../common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{Server, block_on};
use evenkeel_client::{Connection, Put, Scan};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

const TABLES: [&str; 3] = ["flushed", "in_memory", "large_and_small"];
/// Bytes of each table.
const BYTES: usize = 72 << 20;
/// The limit of memory that a server retains after its peak, beyond its memory at the start: chunks
/// and threads kept ready, memory that the allocator cannot release, code that ran for the first
/// time.
const MARGIN: u64 = 48 << 20;
/// The time limit of the release, in a debug build on a busy machine: several checks at intervals
/// of half a second.
const TIME: Duration = Duration::from_secs(40);

async fn load(connection: &Connection, name: &TableName, value_bytes: usize) {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let table = TableDescriptor::new(name.clone()).with_family(family);
    connection.admin().create_table(&table, &[]).await.expect("created");
    let (table, rows) = (connection.table(name.clone()), BYTES / value_bytes);
    let value = |row: usize| (0..value_bytes).map(|at| (at * 31 + row * 7) as u8).collect::<Vec<_>>();
    let batch = ((4 << 20) / value_bytes).max(1);
    for first in (0..rows).step_by(batch) {
        let puts = (first..rows.min(first + batch))
            .map(|row| Put::new(format!("{row:08}")).column("f", "q", value(row)));
        table.put_all(puts).await.expect("written");
    }
}

#[test]
fn memory_of_dropped_tables_is_released() {
    let settings = [
        ("evenkeel.memory.size", "1g"),
        ("evenkeel.memory.trim.period.ms", "500"),
        ("hbase.hregion.memstore.flush.size", "512m"),
    ];
    let server = Server::started(&settings);
    let before = server.resident_bytes();
    let names = TABLES.map(|name| name.parse::<TableName>().expect("legal"));
    let peak = block_on(async {
        let connection = server.connect().await;
        for (name, value_bytes) in names.iter().zip([100 << 10, 64 << 10, 2 << 10]) {
            load(&connection, name, value_bytes).await;
        }
        connection.admin().flush_table(&names[0]).await.expect("flushed");
        let mut rows = connection.table(names[0].clone()).scan(Scan::new());
        while rows.next().await.expect("read").is_some() {}
        let peak = server.resident_bytes();
        for name in &names {
            connection.admin().disable_table(name).await.expect("disabled");
            connection.admin().delete_table(name).await.expect("deleted");
        }
        peak
    });
    assert!(peak > before + 2 * BYTES as u64, "{} MiB at its peak", peak >> 20);
    let deadline = Instant::now() + TIME;
    while server.resident_bytes() > before + MARGIN {
        let now = server.resident_bytes();
        let (before, peak) = (before >> 20, peak >> 20);
        assert!(
            Instant::now() < deadline,
            "{before} MiB at its start, {peak} at its peak, {} now",
            now >> 20
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}
