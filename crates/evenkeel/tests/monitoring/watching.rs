//! `evenkeel status`, `slow` and `top` beside a server.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use evenkeel_client::{Get, Put};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

use crate::common::{Server, block_on};

fn evenkeel(server: &Server, args: &[&str]) -> Output {
    let address = format!("127.0.0.1:{}", server.port("hbase.regionserver.info.port"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(args).args(["--address", &address]).output().expect("it runs")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The line that begins with a word.
fn line<'a>(text: &'a str, word: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(word)).unwrap_or_else(|| panic!("{word} is not in\n{text}"))
}

#[test]
fn monitor_commands_show_a_running_server() {
    // So that every request is slow.
    let mut server = Server::started(&[("evenkeel.slow.request.ms", "0")]);
    block_on(async {
        let connection = server.connect().await;
        let name: TableName = "watched".parse().expect("legal");
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let table = TableDescriptor::new(name.clone()).with_family(family);
        connection.admin().create_table(&table, &[]).await.expect("created");
        let table = connection.table(name.clone());
        table.put(Put::new("row-1").column("f", "q", "v")).await.expect("written");
        table.get(Get::new("row-1")).await.expect("read");
    });
    let status = text(&evenkeel(&server, &["status"]));
    assert_eq!(line(&status, "state"), "state        ready");
    assert!(
        line(&status, "server").contains(&server.port("hbase.regionserver.port").to_string()),
        "{status}"
    );
    assert!(line(&status, "tables").contains(" regions, "), "{status}");
    assert!(!line(&status, "requests").contains(", 0 since the start"), "{status}");

    // While `top` watches, rows are written and read, and none scanned.
    let has_ended = AtomicBool::new(false);
    let top = thread::scope(|scope| {
        scope.spawn(|| {
            block_on(async {
                let table = server.connect().await.table("watched".parse().expect("legal"));
                while !has_ended.load(Ordering::Relaxed) {
                    table.put(Put::new("row-1").column("f", "q", "v")).await.expect("written");
                    table.get(Get::new("row-1")).await.expect("read");
                }
            })
        });
        let top = text(&evenkeel(&server, &["top", "-d", "2"]));
        has_ended.store(true, Ordering::Relaxed);
        top
    });
    let times = line(&top, "watched").split_whitespace().filter(|word| *word == "-").count();
    assert_eq!(times, 1, "the table has times of Gets and Puts, and none of scans: {top}");
    assert!(top.lines().next().is_some_and(|line| line.contains(": ready, up ")), "{top}");
    assert!(line(&top, "watched").split_whitespace().nth(1) == Some("1"), "one region: {top}");
    assert!(line(&top, "region (").contains("writes/s"), "{top}");

    let slow = text(&evenkeel(&server, &["slow", "-n", "500"]));
    assert!(slow.contains(" requests of 0 ms or longer since the start; "), "{slow}");
    assert!(slow.contains("Get watched,,") && slow.contains("row row-1"), "{slow}");
    assert!(server.terminate().success());
    let gone = evenkeel(&server, &["status"]);
    let told = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(gone.status.code() == Some(2) && told.starts_with("evenkeel: http://127.0.0.1:"), "{gone:?}");
}
