//! Scans a range of rows as a stream, with a filter on the server.
//!
//! `cargo run -p evenkeel-client --example scan_stream [ZOOKEEPER]`, by default `localhost:2181`.

#![forbid(unsafe_code)]

use evenkeel_client::{
    ClientConfig, ColumnFamilyDescriptor, Connection, Put, Result, Scan, TableDescriptor, TableName, filter,
};
use futures_util::TryStreamExt;

#[tokio::main]
async fn main() -> Result<()> {
    let zookeeper = std::env::args().nth(1).unwrap_or_else(|| "localhost:2181".to_owned());
    run(&zookeeper).await
}

/// Runs the example on the cluster of a ZooKeeper ensemble.
pub async fn run(zookeeper: &str) -> Result<()> {
    let connection = Connection::connect(ClientConfig::zookeeper(zookeeper, 2181, "/hbase")).await?;
    let name: TableName = "readings".parse()?;
    let admin = connection.admin();
    if !admin.table_exists(&name).await? {
        let family = ColumnFamilyDescriptor::new(b"d")?;
        admin.create_table(&TableDescriptor::new(name.clone()).with_family(family), &[]).await?;
    }

    let readings = connection.table(name);
    let put = |hour: u32| Put::new(format!("sensor-7:{hour:02}")).column("d", "celsius", hour.to_string());
    readings.put_all((0..24).map(put)).await?;

    // The filter runs on the server: only rows that pass it are sent.
    let warm = filter::parse("ValueFilter(>=, 'binary:18')")?;
    let scan = Scan::new().from("sensor-7:12").to("sensor-7:24").filter(warm);

    // The stream prefetches the next batch while this one is used. `Scanner::next` reads without a
    // stream.
    let mut rows = readings.scan(scan).into_stream();
    while let Some(row) = rows.try_next().await? {
        let key = String::from_utf8_lossy(row.row().unwrap_or_default());
        let celsius = String::from_utf8_lossy(row.value("d", "celsius").unwrap_or_default());
        println!("{key}: {celsius}");
    }
    Ok(())
}
