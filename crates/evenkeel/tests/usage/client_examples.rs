//! The client's examples (`crates/client/examples`), run against a whole server that clients find
//! through ZooKeeper.

#[allow(dead_code, reason = "an example's main is not called here")]
#[path = "../../../client/examples/admin.rs"]
mod admin;
#[allow(dead_code, reason = "an example's main is not called here")]
#[path = "../../../client/examples/bulk_writes.rs"]
mod bulk_writes;
#[allow(dead_code, reason = "an example's main is not called here")]
#[path = "../../../client/examples/put_get.rs"]
mod put_get;
#[allow(dead_code, reason = "an example's main is not called here")]
#[path = "../../../client/examples/scan_stream.rs"]
mod scan_stream;

use evenkeel_client::{Get, RowResult, Scan};

use crate::common::{Server, block_on};

/// The rows of a table after an example has run.
async fn rows(server: &Server, table: &str) -> Vec<RowResult> {
    let table = server.connect().await.table(table.parse().expect("legal"));
    let mut scanner = table.scan(Scan::new());
    let mut rows = Vec::new();
    while let Some(row) = scanner.next().await.expect("a row") {
        rows.push(row);
    }
    rows
}

#[test]
fn every_example_does_what_it_says() {
    block_on(async {
        let server = Server::started(&[]);
        let zookeeper = format!("127.0.0.1:{}", server.port("hbase.zookeeper.property.clientPort"));

        put_get::run(&zookeeper).await.expect("put_get");
        let trails = rows(&server, "trails").await;
        assert_eq!((trails.len(), trails[0].value("d", "km")), (1, Some(&b"441"[..])), "corrected");
        assert_eq!(trails[0].counter("d", "walked"), Some(1));

        scan_stream::run(&zookeeper).await.expect("scan_stream");
        assert_eq!(rows(&server, "readings").await.len(), 24);

        bulk_writes::run(&zookeeper).await.expect("bulk_writes");
        let events = rows(&server, "events").await;
        assert_eq!(events.len(), 9_999, "one is deleted");
        assert_eq!(events[8].value("d", "seen"), Some(&b"yes"[..]));

        admin::run(&zookeeper).await.expect("admin");
        let connection = server.connect().await;
        let orders = "orders".parse().expect("legal");
        assert!(!connection.admin().table_exists(&orders).await.expect("a reply"), "dropped");
        let trails = connection.table("trails".parse().expect("legal"));
        assert!(trails.exists(Get::new("kungsleden")).await.expect("a reply"), "other tables stay");
    });
}
