//! `/health` and `/ready`: the parts that are not ready, and the reasons.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use evenkeel_client::Put;
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

use crate::common::{Server, TIMEOUT, block_on};

fn ready(server: &Server) -> (u16, String) {
    server.page("/ready").expect("a response")
}

/// Waits until `/ready` answers so.
fn wait_until_ready(server: &Server) {
    let deadline = Instant::now() + TIMEOUT;
    while ready(server) != (200, "OK\n".to_owned()) {
        assert!(Instant::now() < deadline, "{:?}", ready(server));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A table with one store file.
fn one_file(server: &Server) -> PathBuf {
    let name: TableName = "t".parse().expect("legal");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let table = TableDescriptor::new(name.clone()).with_family(family);
    let region = block_on(async {
        let connection = server.connect().await;
        connection.admin().create_table(&table, &[]).await.expect("created");
        connection.table(name.clone()).put(Put::new("r").column("f", "q", "v")).await.expect("written");
        connection.admin().flush_table(&name).await.expect("flushed");
        connection.admin().regions(&name).await.expect("regions").remove(0).region.encoded_name().to_owned()
    });
    let family = server.root().join("data/default/t").join(region).join("f");
    let mut files = fs::read_dir(family).expect("the family's directory");
    files.next().expect("a file").expect("its entry").path()
}

#[test]
fn readiness_names_an_unopened_region_until_it_opens() {
    let mut server = Server::started(&[]);
    wait_until_ready(&server);
    let file = one_file(&server);
    assert!(server.terminate().success());
    let whole = fs::read(&file).expect("the file");
    fs::write(&file, &whole[..whole.len() / 2]).expect("cut");
    server.start();
    let deadline = Instant::now() + TIMEOUT;
    while ready(&server).0 == 200 {
        assert!(Instant::now() < deadline, "a region without its file is not served");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (status, why) = ready(&server);
    let name = file.file_name().expect("a name").to_string_lossy().into_owned();
    assert_eq!(status, 503);
    assert!(why.starts_with("region t,,") && why.contains(&name), "{why}");
    assert_eq!(server.page("/health"), Some((200, "OK\n".to_owned())), "the process can answer");
    fs::write(&file, whole).expect("restored");
    wait_until_ready(&server);
}
