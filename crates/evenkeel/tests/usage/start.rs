//! Starting and stopping: the output that a person sees.

use std::process::{Output, Stdio};

use evenkeel_client::{Get, Put};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

use crate::common::{Server, TIMEOUT, block_on, exit_of};

/// Runs a server that is expected to exit without a signal.
fn ends(server: &Server, more: &[(&str, &str)]) -> Output {
    let mut command = server.command(more);
    let mut process =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    if exit_of(&mut process).is_none() {
        let _ = process.kill();
        let output = process.wait_with_output().expect("its output");
        panic!("still running after {TIMEOUT:?}:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    process.wait_with_output().expect("its output")
}

/// Checks that it failed with one last line that names the fault.
fn assert_one_line(output: &Output, names: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it should fail:\n{stderr}");
    assert!(output.stdout.is_empty(), "nothing is served, so nothing is announced");
    let said: Vec<_> = stderr.lines().filter(|line| line.starts_with("evenkeel: ")).collect();
    assert_eq!(said.len(), 1, "one line says why:\n{stderr}");
    assert!(said[0].contains(names), "{:?} should name {names:?}", said[0]);
    assert!(!stderr.contains("panicked"), "{stderr}");
}

fn families(name: &TableName) -> TableDescriptor {
    TableDescriptor::new(name.clone()).with_family(ColumnFamilyDescriptor::new(b"f").expect("legal"))
}

#[test]
fn one_screen_says_how_to_connect() {
    let server = Server::started(&[]);
    let screen = server.screen();
    assert!((3..=24).contains(&screen.lines().count()), "one screen:\n{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 110), "no long lines:\n{screen}");
    for key in ["hbase.zookeeper.property.clientPort", "hbase.master.port", "hbase.regionserver.port"] {
        assert!(screen.contains(&server.port(key).to_string()), "{key} is not in\n{screen}");
    }
    assert!(screen.contains(&server.root().display().to_string()), "the directory is not in\n{screen}");
}

#[test]
fn data_is_there_after_sigterm() {
    let mut server = Server::started(&[]);
    let name: TableName = "kept".parse().expect("legal");
    block_on(async {
        let connection = server.connect().await;
        connection.admin().create_table(&families(&name), &["m".into()]).await.expect("created");
        let table = connection.table(name.clone());
        table.put_all(["a", "z"].map(|r| Put::new(r).column("f", "q", r))).await.expect("written");
    });
    let status = server.terminate();
    assert!(status.success(), "SIGTERM ended it with {status}");
    server.start();
    block_on(async {
        let table = server.connect().await.table(name);
        for row in ["a", "z"] {
            let result = table.get(Get::new(row)).await.expect("a result");
            assert_eq!(result.value("f", "q"), Some(row.as_bytes()));
        }
    });
}

#[test]
fn a_secured_configuration_is_refused_at_start() {
    let server = Server::new(&[]);
    for (key, value) in [
        ("hbase.security.authentication", "kerberos"),
        ("hbase.security.authorization", "true"),
        ("hbase.server.netty.tls.enabled", "true"),
        ("hbase.regionserver.wal.encryption", "true"),
        ("hadoop.rpc.protection", "privacy"),
        ("hbase.zookeeper.client.keytab.file", "/etc/hbase.keytab"),
        (
            "hbase.regionserver.hlog.writer.impl",
            "org.apache.hadoop.hbase.regionserver.wal.SecureProtobufLogWriter",
        ),
        (
            "hbase.coprocessor.region.classes",
            "org.apache.hadoop.hbase.security.visibility.VisibilityController",
        ),
    ] {
        assert_one_line(&ends(&server, &[(key, value)]), key);
    }
}

#[test]
fn an_address_beyond_loopback_is_warned_about_on_the_screen_and_in_the_log() {
    let warning = |server: &Server| {
        let (screen, log) = (server.screen(), server.log());
        [screen, log].map(|text| text.lines().any(|line| line.contains("open to the network at 0.0.0.0")))
    };
    let open = Server::started(&[("hbase.regionserver.ipc.address", "0.0.0.0")]);
    open.log_with("open to the network at 0.0.0.0");
    assert_eq!(warning(&open), [true, true], "{}", open.screen());
    assert!(open.screen().contains("clients are not authenticated"), "{}", open.screen());
    assert_eq!(warning(&Server::started(&[])), [false, false]);
}

#[test]
fn a_directory_has_one_server() {
    let mut server = Server::started(&[]);
    let other = Server::new(&[("hbase.rootdir", &format!("file://{}", server.root().display()))]);
    let wait = [("evenkeel.rootdir.lock.wait.ms", "300")];
    assert_one_line(&ends(&other, &wait), &server.root().display().to_string());
    assert!(server.runs());
    block_on(async {
        server.connect().await.admin().list_tables().await.expect("the first one still serves")
    });
    server.kill();
    let mut other = other;
    other.start();
    assert!(other.runs(), "a killed server leaves no lock behind");
}

#[test]
fn a_start_waits_for_the_server_that_is_dying() {
    let mut server = Server::started(&[]);
    let keys = crate::common::PORT_KEYS.map(|key| (key, server.port(key).to_string()));
    let root = format!("file://{}", server.root().display());
    let same: Vec<_> = keys.iter().map(|(key, port)| (*key, port.as_str())).collect();
    let mut next = Server::new(&[&same[..], &[("hbase.rootdir", root.as_str())]].concat());
    let command = next.command(&[("evenkeel.rootdir.lock.wait.ms", "60000")]);
    next.spawn(command);
    next.log_with("waits for the other process to end");
    server.kill();
    next.wait_for_screen(0);
    assert!(next.screen().contains(&server.port("hbase.regionserver.info.port").to_string()), "its ports");
}

/// Standard output and error of a server in one file, once it has log lines.
fn screen_and_log() -> String {
    let mut server = Server::new(&[("evenkeel.log.format", "auto")]);
    let both = || std::fs::File::options().create(true).append(true).open(server.folder().join("both"));
    let (out, err) = (both().expect("a file"), both().expect("a file"));
    let command = server.command(&[]);
    server.spawn_onto(command, out, err);
    let text = || std::fs::read_to_string(server.folder().join("both")).unwrap_or_default();
    let deadline = std::time::Instant::now() + TIMEOUT;
    while !(text().contains("\"message\"") && text().contains("kill ")) {
        assert!(std::time::Instant::now() < deadline, "{}", text());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    text()
}

#[test]
fn the_screen_comes_first_and_lines_are_structured() {
    // On a busy machine, a start may exceed the time that lines are held, so its order proves
    // nothing.
    let is_quick = |text: &String| {
        let ms =
            text.split(" regions in ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        ms.is_some_and(|ms| ms < 2000)
    };
    let text = (0..20).map(|_| screen_and_log()).find(is_quick).expect("one start of twenty is quick");
    let (screen, log) = text.split_once("\n{").expect("lines behind the screen");
    assert!(screen.starts_with("Evenkeel ") && screen.contains("kill "), "{text}");
    for line in format!("{{{log}").lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
        assert!(
            ["timestamp", "level", "message", "target"].iter().all(|key| event[key].is_string()),
            "{line}"
        );
    }
}

#[test]
fn with_a_log_file_stderr_has_only_fatal_errors() {
    let mut server = Server::new(&[]);
    let file = server.folder().join("evenkeel.log");
    server.set("evenkeel.log.file", &file.display().to_string());
    server.start();
    let read = || std::fs::read_to_string(&file).expect("the log");
    assert!(read().contains("INFO"), "{}", read());
    let other = Server::new(&[("hbase.rootdir", &format!("file://{}", server.root().display()))]);
    let of_other = other.folder().join("other.log");
    let of_other = of_other.to_str().expect("UTF-8");
    let more = [("evenkeel.rootdir.lock.wait.ms", "0"), ("evenkeel.log.file", of_other)];
    assert_one_line(&ends(&other, &more), "is in use by process");
    let text = std::fs::read_to_string(of_other).expect("the log");
    assert!(text.contains("ERROR") && text.contains("is in use by process"), "{text}");
    assert!(server.terminate().success());
    assert_eq!(server.log(), "", "standard error");
    assert!(read().contains("stopped"), "{}", read());
    let nowhere = [("evenkeel.log.file", "/no/such/directory/log")];
    assert_one_line(&ends(&server, &nowhere), "evenkeel.log.file: /no/such/directory/log");
}

#[test]
fn a_port_that_is_taken_is_named() {
    for key in ["hbase.master.port", "hbase.regionserver.port", "hbase.zookeeper.property.clientPort"] {
        let server = Server::new(&[]);
        let taken = std::net::TcpListener::bind(("127.0.0.1", server.port(key))).expect("the port is free");
        let port = taken.local_addr().expect("an address").port();
        assert_one_line(&ends(&server, &[]), &port.to_string());
    }
}

#[test]
fn a_setting_that_is_wrong_is_named() {
    let server = Server::new(&[]);
    for (key, value) in [
        ("hbase.master.port", "many"),
        ("hbase.regionserver.port", "99999"),
        ("hbase.hregion.memstore.flush.size", "1 apple"),
        ("hbase.rootdir", "http://example.org/x"),
    ] {
        assert_one_line(&ends(&server, &[(key, value)]), key);
    }
}

#[test]
fn insufficient_memory_is_reported_with_its_setting() {
    let server = Server::new(&[("evenkeel.memory.size", "256m")]);
    let cache = [("hbase.bucketcache.ioengine", "offheap"), ("hbase.bucketcache.size", "512")];
    assert_one_line(&ends(&server, &cache), "hbase.bucketcache.size takes 528.0 MiB");
    assert!(!server.root().exists(), "nothing is made before it is known");
    let mut server = server;
    server.start();
    let log = server.log_with("memory 256.0 MiB: blocks ");
    let line = log.lines().find(|line| line.contains("memory 256.0 MiB: blocks ")).expect("told at start");
    assert!(line.contains(", requests ") && line.contains(", reserve "), "{line}");
}

#[test]
fn unknown_settings_are_logged_once() {
    let server = Server::started(&[("hbase.no.such.setting", "1"), ("evenkeel.nor.this", "2")]);
    let log = server.log_with("hbase.no.such.setting");
    for key in ["hbase.no.such.setting", "evenkeel.nor.this"] {
        let lines: Vec<_> = log.lines().filter(|line| line.contains(key)).collect();
        assert_eq!(lines.len(), 1, "{key}: {lines:?}");
    }
    let known = "hbase.regionserver.port";
    let complaint = log.lines().find(|l| l.contains("hbase.no.such.setting")).unwrap_or_default();
    assert!(!complaint.contains(known), "{complaint}");
}
