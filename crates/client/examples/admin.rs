//! Creates, alters, splits, describes and drops a table, and lists the cluster's servers.
//!
//! `cargo run -p evenkeel-client --example admin [ZOOKEEPER]`, by default `localhost:2181`.

#![forbid(unsafe_code)]

use bytes::Bytes;
use evenkeel_client::{
    Bloom, ClientConfig, ColumnFamilyDescriptor, Compression, Connection, Result, TableDescriptor, TableName,
};

#[tokio::main]
async fn main() -> Result<()> {
    let zookeeper = std::env::args().nth(1).unwrap_or_else(|| "localhost:2181".to_owned());
    run(&zookeeper).await
}

/// Runs the example on the cluster of a ZooKeeper ensemble.
pub async fn run(zookeeper: &str) -> Result<()> {
    let connection = Connection::connect(ClientConfig::zookeeper(zookeeper, 2181, "/hbase")).await?;
    let admin = connection.admin();
    for server in admin.live_servers().await? {
        println!("server {server}");
    }

    // A table of two regions, split at the row "m".
    let name: TableName = "orders".parse()?;
    let family = ColumnFamilyDescriptor::new(b"d")?
        .with_max_versions(3)
        .with_compression(Compression::Snappy)
        .with_bloom(Bloom::Row);
    let table = TableDescriptor::new(name.clone()).with_family(family);
    admin.create_table(&table, &[Bytes::from_static(b"m")]).await?;

    // Values of a second family expire after a day.
    let events = ColumnFamilyDescriptor::new(b"e")?.with_ttl_seconds(Some(86_400));
    admin.add_family(&name, &events).await?;

    admin.split_table(&name, Some(Bytes::from_static(b"t"))).await?;
    for region in admin.regions(&name).await? {
        println!("{} {} at {:?}", region.state, region.region.encoded_name(), region.server);
    }
    for family in admin.describe(&name).await?.families() {
        println!("family {}: {} versions", family.name_text(), family.max_versions());
    }

    admin.disable_table(&name).await?;
    admin.delete_table(&name).await
}
