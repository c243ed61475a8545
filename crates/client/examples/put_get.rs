//! Writes a row, reads it back, counts, and replaces a value only if it has not changed.
//!
//! `cargo run -p evenkeel-client --example put_get [ZOOKEEPER]`, by default `localhost:2181`.

#![forbid(unsafe_code)]

use evenkeel_client::{
    CheckAndMutate, ClientConfig, ColumnFamilyDescriptor, CompareOp, Connection, Get, Increment, Put, Result,
    TableDescriptor, TableName,
};

#[tokio::main]
async fn main() -> Result<()> {
    let zookeeper = std::env::args().nth(1).unwrap_or_else(|| "localhost:2181".to_owned());
    run(&zookeeper).await
}

/// Runs the example on the cluster of a ZooKeeper ensemble.
pub async fn run(zookeeper: &str) -> Result<()> {
    let connection = Connection::connect(ClientConfig::zookeeper(zookeeper, 2181, "/hbase")).await?;
    let name: TableName = "trails".parse()?;
    let admin = connection.admin();
    if !admin.table_exists(&name).await? {
        let family = ColumnFamilyDescriptor::new(b"d")?;
        admin.create_table(&TableDescriptor::new(name.clone()).with_family(family), &[]).await?;
    }

    let trails = connection.table(name);
    trails.put(Put::new("kungsleden").column("d", "km", "440").column("d", "country", "SE")).await?;

    let trail = trails.get(Get::new("kungsleden").family("d")).await?;
    let text =
        |qualifier: &str| String::from_utf8_lossy(trail.value("d", qualifier).unwrap_or(b"?")).into_owned();
    println!("kungsleden: {} km in {}", text("km"), text("country"));

    // Counters are applied once, however often the client has to retry.
    let walked = trails.increment(Increment::new("kungsleden").column("d", "walked", 1)).await?;
    println!("walked {} times", walked.counter("d", "walked").unwrap_or_default());

    let corrected = Put::new("kungsleden").column("d", "km", "441");
    let unchanged = CheckAndMutate::new("kungsleden", "d", "km", CompareOp::Equal, "440").then(corrected);
    let outcome = trails.check_and_mutate(unchanged).await?;
    println!("corrected: {}", outcome.success);
    Ok(())
}
