//! Settings that are changed while the server runs, by the shell's `update_all_config`.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use evenkeel_client::{Put, Table};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

use crate::common::{Server, TIMEOUT, block_on};

const FLUSH: &str = "hbase.hregion.memstore.flush.size";

fn write_settings(server: &Server, settings: &[(&str, &str)]) {
    let property = |(key, value): &(&str, &str)| {
        format!("<property><name>{key}</name><value>{value}</value></property>")
    };
    let properties: String = settings.iter().map(property).collect();
    let text = format!("<configuration>{properties}</configuration>");
    std::fs::write(server.folder().join("hbase-site.xml"), text).expect("written");
}

fn update(server: &Server) -> Output {
    let masters = format!("-Dhbase.masters={}", server.bootstrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(["shell", &masters, "-e", "update_all_config"]).env_remove("HBASE_CONF_DIR");
    command.output().expect("the shell runs")
}

async fn table(server: &Server) -> Table {
    let connection = server.connect().await;
    let name: TableName = "t".parse().expect("legal");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let table = TableDescriptor::new(name.clone()).with_family(family);
    connection.admin().create_table(&table, &[]).await.expect("created");
    connection.table(name)
}

/// Writes three MiB.
async fn put(table: &Table) {
    let rows = (0..300).map(|row| Put::new(format!("{row:05}")).column("f", "q", vec![b'v'; 10 << 10]));
    table.put_all(rows).await.expect("written");
}

/// The store files of table t.
fn files(server: &Server) -> u64 {
    let (_, text) = server.page("/prometheus").expect("a response");
    let name = "tables_namespace_default_table_t_metric_store_file_count";
    let sample = text.lines().find(|line| line.starts_with(name)).expect("the table's metric");
    sample.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
}

fn level(server: &Server) -> String {
    let (_, page) = server.page("/logLevel?log=root").expect("a response");
    page.lines().find(|line| line.contains("Effective level")).expect("the level").to_owned()
}

#[test]
fn dynamic_settings_change_and_others_are_named() {
    let mut server = Server::new(&[]);
    write_settings(&server, &[(FLUSH, "128m")]);
    let mut command = server.command(&[]);
    command.arg("--config").arg(server.folder());
    server.spawn(command);
    server.wait_for_screen(0);
    block_on(async { put(&table(&server).await).await });
    assert!(level(&server).contains("INFO"), "{}", level(&server));
    assert_eq!(files(&server), 0, "far from 128 MiB");

    let handlers = "hbase.regionserver.handler.count";
    write_settings(&server, &[(FLUSH, "1m"), (handlers, "7"), ("evenkeel.log.levels", "warn")]);
    let output = update(&server);
    assert!(output.status.success(), "{output:?}");
    let log = server.log_with("settings that cannot be changed while the server runs");
    let named = log.lines().find(|line| line.contains("settings that cannot be changed")).expect("a line");
    assert!(named.contains(handlers) && !named.contains(FLUSH), "{named}");
    assert!(level(&server).contains("WARN"), "{}", level(&server));
    block_on(async { put(&server.connect().await.table("t".parse().expect("legal"))).await });
    let deadline = Instant::now() + TIMEOUT;
    while files(&server) == 0 {
        assert!(Instant::now() < deadline, "the region is flushed at the new size");
        std::thread::sleep(Duration::from_millis(50));
    }

    write_settings(&server, &[(FLUSH, "no size"), ("evenkeel.log.levels", "debug")]);
    let output = update(&server);
    let told =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains(FLUSH), "{output:?}");
    assert!(level(&server).contains("WARN"), "nothing is changed: {}", level(&server));
    assert!(server.terminate().success());
}
