//! A server with each deployment of the block cache, killed and restarted: the rows are the same.
//! They come from the cache alone if it is in files, and otherwise from the store files.

use std::time::{Duration, Instant};

use evenkeel_client::{Get, Put, Scan, Table};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

use crate::common::{Server, TIMEOUT, runtime};

const ROWS: u32 = 400;
/// Blocks of the table, at least.
const BLOCKS_MIN: u64 = 50;

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

/// The source of a table's blocks after a restart.
#[derive(Clone, Copy)]
enum After {
    /// From the cache alone.
    Cache,
    /// From the store files, and then they are cached.
    Files,
    /// From the store files each time: no cache is queried for data blocks, so none counts them.
    NoCache,
}

/// Lookups of data blocks since the server's start.
#[derive(Clone, Copy, Debug)]
struct Looks {
    hits: u64,
    misses: u64,
}

/// The counters of the server's caches after all requests so far: from the second next line of its
/// log, because the next one may have been started before.
fn looks(server: &Server) -> Looks {
    const MISSES: &str = "blockCacheDataMissCount=";
    let lines = |log: &str| log.lines().filter(|line| line.contains(MISSES)).count();
    let (had, deadline) = (lines(&server.log()), Instant::now() + TIMEOUT);
    loop {
        let log = server.log();
        if lines(&log) >= had + 2 {
            let line = log.lines().rfind(|line| line.contains(MISSES)).expect("counted");
            return Looks { hits: number(line, "blockCacheDataHitCount="), misses: number(line, MISSES) };
        }
        assert!(Instant::now() < deadline, "the log says nothing of the caches");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn number(line: &str, name: &str) -> u64 {
    let rest = line.split_once(name).unwrap_or_else(|| panic!("no {name} in {line}")).1;
    rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).expect("a number")
}

/// Writes the rows to files, and reads them, so that all cacheable blocks are cached.
async fn fill(server: &Server, name: &TableName) {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("BLOCKSIZE", "4096");
    let connection = server.connect().await;
    let table = TableDescriptor::new(name.clone()).with_family(family);
    connection.admin().create_table(&table, &[]).await.expect("created");
    let rows = connection.table(name.clone());
    let puts = (0..ROWS).map(|row| Put::new(format!("{row:05}")).column("f", "q", value(row)));
    rows.put_all(puts).await.expect("written");
    connection.admin().flush_table(name).await.expect("flushed");
    check(&rows).await;
    check(&rows).await;
}

#[test]
fn each_deploy_gives_the_rows_before_and_after_a_kill() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (file, mmap) = (format!("file:{}", path("file")), format!("mmap:{}", path("mmap")));
    let files = format!("files:{},{}", path("files-1"), path("files-2"));
    let deploys = [
        (None, "0", After::Files),
        (Some("offheap"), "8", After::Files),
        (Some("heap"), "8", After::Files),
        (Some(file.as_str()), "8", After::Cache),
        (Some(files.as_str()), "8", After::Cache),
        (Some(mmap.as_str()), "8", After::Cache),
        (Some("offheap"), "0", After::NoCache),
    ];
    for (engine, megabytes, after_kill) in deploys {
        let mut settings = vec![
            ("hbase.bucketcache.size", megabytes),
            ("evenkeel.memory.size", "256m"),
            ("evenkeel.blockcache.statistics.period", "50"),
        ];
        settings.extend(engine.map(|engine| ("hbase.bucketcache.ioengine", engine)));
        let mut server = Server::started(&settings);
        let name: TableName = "t".parse().expect("legal");
        runtime().block_on(fill(&server, &name));
        server.kill();
        server.start();
        let runtime = runtime();
        let rows = runtime.block_on(async {
            let rows = server.connect().await.table(name.clone());
            // Finds the region, and one block: lookups of `hbase:meta` are not counted below.
            rows.get(Get::new("00000")).await.expect("a result");
            rows
        });
        let before = looks(&server);
        runtime.block_on(check(&rows));
        let after = looks(&server);
        let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
        let is_right = match after_kill {
            After::Cache => misses == 0 && hits >= BLOCKS_MIN,
            After::Files => misses >= BLOCKS_MIN / 2,
            After::NoCache => hits == 0,
        };
        assert!(is_right, "{engine:?}: {hits} hits, {misses} misses");
    }
}
