//! A server with each deploy of the block cache, killed and started again: the same rows, cached or not.

mod common;

use common::{Server, runtime};
use evenkeel_client::{Get, Put, Scan, Table};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

const ROWS: u32 = 400;

fn value(row: u32) -> Vec<u8> {
    vec![row as u8; 500 + row as usize % 100]
}

async fn check(table: &Table) {
    for row in (0..ROWS).step_by(37) {
        let found = table.get(Get::new(format!("{row:05}"))).await.expect("a result");
        assert_eq!(found.value("f", "q"), Some(&value(row)[..]));
    }
    let mut scanner = table.scan(Scan::new());
    let mut rows = 0;
    while let Some(batch) = scanner.next_batch().await.expect("a batch") {
        for found in batch {
            assert_eq!(found.value("f", "q"), Some(&value(rows)[..]));
            rows += 1;
        }
    }
    assert_eq!(rows, ROWS);
}

#[test]
fn each_deploy_gives_the_rows_before_and_after_a_kill() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = |engine: &str, name: &str| format!("{engine}:{}", folder.path().join(name).display());
    let (file, mmap) = (path("file", "file"), path("mmap", "mmap"));
    let deploys = [
        (None, "0"),
        (Some("offheap"), "8"),
        (Some("heap"), "8"),
        (Some(file.as_str()), "8"),
        (Some(mmap.as_str()), "8"),
        (Some("offheap"), "0"),
    ];
    for (engine, megabytes) in deploys {
        let mut settings = vec![("hbase.bucketcache.size", megabytes), ("evenkeel.memory.size", "256m")];
        settings.extend(engine.map(|engine| ("hbase.bucketcache.ioengine", engine)));
        let mut server = Server::started(&settings);
        let name: TableName = "t".parse().expect("legal");
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("BLOCKSIZE", "4096");
        let table = TableDescriptor::new(name.clone()).with_family(family);
        runtime().block_on(async {
            let connection = server.connect().await;
            connection.admin().create_table(&table, &[]).await.expect("created");
            let rows = connection.table(name.clone());
            let puts = (0..ROWS).map(|row| Put::new(format!("{row:05}")).column("f", "q", value(row)));
            rows.put_all(puts).await.expect("written");
            connection.admin().flush_table(&name).await.expect("flushed");
            check(&rows).await;
            check(&rows).await;
        });
        server.kill();
        server.start();
        runtime().block_on(async {
            let rows = server.connect().await.table(name.clone());
            check(&rows).await;
        });
    }
}
