//! Writes many rows with few calls, and reports those that could not be written.
//!
//! `cargo run -p evenkeel-client --example bulk_writes [ZOOKEEPER]`, by default `localhost:2181`.

#![forbid(unsafe_code)]

use std::time::Duration;

use evenkeel_client::{
    Action, ClientConfig, ColumnFamilyDescriptor, Connection, Delete, Get, Put, Result, TableDescriptor,
    TableName,
};

#[tokio::main]
async fn main() -> Result<()> {
    let zookeeper = std::env::args().nth(1).unwrap_or_else(|| "localhost:2181".to_owned());
    run(&zookeeper).await
}

/// Runs the example on the cluster of a ZooKeeper ensemble.
pub async fn run(zookeeper: &str) -> Result<()> {
    let connection = Connection::connect(ClientConfig::zookeeper(zookeeper, 2181, "/hbase")).await?;
    let name: TableName = "events".parse()?;
    let admin = connection.admin();
    if !admin.table_exists(&name).await? {
        let family = ColumnFamilyDescriptor::new(b"d")?;
        admin.create_table(&TableDescriptor::new(name.clone()).with_family(family), &[]).await?;
    }
    let events = connection.table(name);

    // A stream of writes: the mutator gathers them into batches, and waits when two buffers are
    // full.
    let mutator = events.buffered_mutator().flush_interval(Duration::from_secs(1));
    for number in 0..10_000 {
        let put = Put::new(format!("{number:08}")).column("d", "body", format!("event {number}"));
        mutator.mutate(put).await?;
    }
    for failure in mutator.close().await {
        eprintln!("{:?} was not written: {}", failure.mutation.row(), failure.error);
    }

    // A known set of operations: one batch, with an outcome for each of them.
    let batch: Vec<Action> = vec![
        Get::new("00000007").into(),
        Put::new("00000008").column("d", "seen", "yes").into(),
        Delete::new("00000009").into(),
    ];
    for outcome in events.batch(batch).await {
        let result = outcome?;
        println!("{} cells", result.cells().len());
    }
    Ok(())
}
