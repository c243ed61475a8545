//! Damaged files and a disk that accepts no more data: clear errors for the affected data, and
//! everything else keeps working.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_client::{ClientConfig, Connection, Error, Get, Put, Scan, Table};
use evenkeel_common::{ColumnFamilyDescriptor, ErrorKind, TableDescriptor, TableName};

use crate::common::{Server, block_on, config};

const ROWS: usize = 400;
const VALUE_BYTES: usize = 2000;

fn descriptor(name: &TableName) -> TableDescriptor {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("BLOCKSIZE", "8192");
    TableDescriptor::new(name.clone()).with_family(family)
}

fn row(i: usize) -> String {
    format!("{i:05}")
}

/// A client that gives up on persistent errors.
async fn impatient(server: &Server) -> Connection {
    let operation_timeout = Duration::from_secs(15);
    let config = ClientConfig { retries: 3, operation_timeout, ..config(&server.bootstrap()) };
    Connection::connect(config).await.expect("the server answers")
}

/// A table of two regions, flushed, so that each has one file.
async fn flushed(server: &Server, name: &str) -> TableName {
    let name: TableName = name.parse().expect("legal");
    let connection = server.connect().await;
    connection.admin().create_table(&descriptor(&name), &[row(ROWS / 2).into()]).await.expect("created");
    let puts = (0..ROWS).map(|i| Put::new(row(i)).column("f", "q", vec![i as u8; VALUE_BYTES]));
    connection.table(name.clone()).put_all(puts).await.expect("written");
    connection.admin().flush_table(&name).await.expect("flushed");
    name
}

/// The one store file of the region that holds row 0.
async fn first_file(server: &Server, name: &TableName) -> PathBuf {
    let regions = server.connect().await.admin().regions(name).await.expect("regions");
    let region = regions[0].region.encoded_name();
    let family = server.root().join("data/default").join(name.qualifier()).join(region).join("f");
    let files: Vec<_> = fs::read_dir(&family).expect("the family's directory").flatten().collect();
    assert_eq!(files.len(), 1, "{}", family.display());
    files[0].path()
}

async fn outcomes(table: &Table) -> Vec<Result<usize, Error>> {
    let mut outcomes = Vec::new();
    for i in (0..ROWS).step_by(8) {
        let result = table.get(Get::new(row(i))).await;
        outcomes.push(result.map(|r| {
            let expect = vec![i as u8; VALUE_BYTES];
            assert_eq!(r.value("f", "q"), Some(&expect[..]), "row {i} holds wrong bytes");
            i
        }));
    }
    outcomes
}

fn flip(file: &Path, at: u64) {
    let mut bytes = fs::read(file).expect("readable");
    bytes[at as usize] ^= 0x40;
    fs::write(file, bytes).expect("writable");
}

#[test]
fn a_flipped_byte_fails_only_its_block() {
    let mut server = Server::started(&[]);
    let (name, file) = block_on(async {
        let name = flushed(&server, "flipped").await;
        (name.clone(), first_file(&server, &name).await)
    });
    server.terminate();
    let middle = fs::metadata(&file).expect("a file").len() / 2;
    flip(&file, middle);
    server.start();
    block_on(async {
        let table = impatient(&server).await.table(name.clone());
        let outcomes = outcomes(&table).await;
        let failed: Vec<_> = outcomes.iter().filter_map(|o| o.as_ref().err()).collect();
        assert!(!failed.is_empty() && failed.len() <= 2, "one block of few rows: {failed:?}");
        for error in failed {
            let remote = error.remote().unwrap_or_else(|| panic!("no word from the server: {error}"));
            let words = remote.message.to_lowercase();
            assert!(words.contains("checksum") || words.contains("corrupt"), "{error}");
        }
        let scan = table.scan(Scan::new().from(row(ROWS / 2))).next().await.expect("the other region");
        assert!(scan.is_some());
        table.put(Put::new(row(1)).column("f", "q", "new")).await.expect("writes go on");
        let other = server.connect().await;
        other
            .admin()
            .create_table(&descriptor(&"other".parse().expect("legal")), &[])
            .await
            .expect("tables go on");
    });
    assert!(server.runs());
}

#[test]
fn a_truncated_file_is_logged_and_other_regions_serve() {
    let mut server = Server::started(&[]);
    let (cut, whole, file) = block_on(async {
        let cut = flushed(&server, "cut").await;
        let whole = flushed(&server, "whole").await;
        (cut.clone(), whole, first_file(&server, &cut).await)
    });
    server.terminate();
    let len = fs::metadata(&file).expect("a file").len();
    fs::File::options().write(true).open(&file).expect("writable").set_len(len / 2).expect("cut");
    server.start();
    block_on(async {
        let connection = impatient(&server).await;
        assert!(
            connection
                .table(whole)
                .get(Get::new(row(0)))
                .await
                .expect("another table")
                .value("f", "q")
                .is_some()
        );
        let table = connection.table(cut);
        assert!(
            table.get(Get::new(row(ROWS - 1))).await.expect("the other region").value("f", "q").is_some()
        );
        let error = table.get(Get::new(row(0))).await.expect_err("half a file");
        assert!(!matches!(error, Error::Timeout(_)), "a reply, not silence: {error}");
    });
    let named = file.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(server.log().contains(&named), "the log names the file");
    assert!(server.runs());
}

/// A limit on the size of files simulates a failing disk: a write past it fails (the shell and its
/// children ignore the signal). Every WAL file fails once it is full, and the server continues in
/// another.
#[test]
fn failing_wal_files_lose_no_acknowledged_write() {
    let mut server = Server::new(&[]);
    server.start_limited(1024);
    let name: TableName = "full".parse().expect("legal");
    let acknowledged = block_on(async {
        let connection = impatient(&server).await;
        connection.admin().create_table(&descriptor(&name), &[]).await.expect("created");
        let table = connection.table(name.clone());
        let mut acknowledged = Vec::new();
        for i in 0..2000 {
            match table.put(Put::new(row(i)).column("f", "q", vec![i as u8; VALUE_BYTES])).await {
                Ok(()) => acknowledged.push(i),
                Err(error) => {
                    assert_ne!(error.kind(), Some(ErrorKind::DoNotRetry), "it may get better: {error}");
                    break;
                }
            }
        }
        acknowledged
    });
    assert!(acknowledged.len() > 300, "at least what fits one file: {}", acknowledged.len());
    assert!(server.log().contains("WAL file failed"), "the limit stopped nothing");
    server.kill();
    server.start();
    block_on(async {
        let table = server.connect().await.table(name);
        for i in acknowledged {
            let result = table.get(Get::new(row(i))).await.expect("a result");
            assert_eq!(
                result.value("f", "q"),
                Some(&vec![i as u8; VALUE_BYTES][..]),
                "row {i} was acknowledged"
            );
        }
        table.put(Put::new("after").column("f", "q", "v")).await.expect("there is room again");
    });
}

/// A write that fits no WAL file is refused, or ends the server; it is neither acknowledged nor
/// left pending.
#[test]
fn a_write_that_cannot_be_logged_is_not_acknowledged() {
    let mut server = Server::new(&[]);
    server.start_limited(256);
    let name: TableName = "toolarge".parse().expect("legal");
    let kept = block_on(async {
        let connection = impatient(&server).await;
        connection.admin().create_table(&descriptor(&name), &[]).await.expect("created");
        let table = connection.table(name.clone());
        table.put(Put::new("before").column("f", "q", "v")).await.expect("written");
        let large = table.put(Put::new("large").column("f", "q", vec![1; 400 * 1024])).await;
        let error = large.expect_err("no file has room for it");
        assert!(!matches!(error, Error::Timeout(_)), "a reply, not silence: {error}");
        table.put(Put::new("after").column("f", "q", "v")).await.is_ok()
    });
    server.kill();
    server.start();
    block_on(async {
        let table = server.connect().await.table(name);
        let value = async |row| table.get(Get::new(row)).await.expect("a result").value("f", "q").is_some();
        assert!(value("before").await);
        assert!(!kept || value("after").await, "it was acknowledged");
    });
}
