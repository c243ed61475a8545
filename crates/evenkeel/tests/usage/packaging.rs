//! The packaged files match the server: every metric in the dashboard and the alerts is in
//! `/prometheus`, the unit's options are the binary's, and systemd is notified when the server
//! answers.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use evenkeel_client::{Get, Put};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use regex::Regex;
use serde_json::Value;

use crate::common::{Server, TIMEOUT, block_on};

fn packaged(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The expressions of all panels.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&packaged("grafana/evenkeel.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect()
}

/// The expressions of all rules, each on one line.
fn alerts() -> Vec<String> {
    let text = packaged("prometheus/alerts.yml");
    let value = |line: &str| line.trim().strip_prefix("expr: ").map(str::to_owned);
    let expressions: Vec<_> = text.lines().filter_map(value).collect();
    assert_eq!(
        expressions.len(),
        text.matches("- alert: ").count(),
        "each rule has its expression on a line"
    );
    expressions
}

/// The selectors in an expression of PromQL: names, and regular expressions of names.
fn selectors(expression: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let by_pattern = Regex::new(r#"__name__=~"([^"]*)""#).expect("a pattern");
    let patterns = by_pattern.captures_iter(expression).map(|found| found[1].to_owned()).collect();
    let without = Regex::new(r#""[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(by|without|on|ignoring)\s*\([^)]*\)"#);
    let bare = without.expect("a pattern").replace_all(expression, " ").into_owned();
    let word = Regex::new(r"[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?").expect("a pattern");
    let words = word.find_iter(&bare).map(|found| found.as_str().trim().to_owned());
    let names =
        words.filter(|word| !word.ends_with('(') && !["and", "or", "unless", "up"].contains(&word.as_str()));
    (names.collect(), patterns)
}

/// A server after each kind of operation.
fn used() -> Server {
    let server = Server::started(&[]);
    block_on(async {
        let connection = server.connect().await;
        let name: TableName = "t".parse().expect("legal");
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let table = TableDescriptor::new(name.clone()).with_family(family);
        connection.admin().create_table(&table, &[]).await.expect("created");
        let table = connection.table(name.clone());
        table.put(Put::new("r").column("f", "q", "v")).await.expect("written");
        table.get(Get::new("r")).await.expect("read");
        connection.admin().flush_table(&name).await.expect("flushed");
    });
    server
}

#[test]
fn every_metric_of_dashboard_and_alerts_exists() {
    let server = used();
    let (status, text) = server.page("/prometheus").expect("a response");
    assert_eq!(status, 200);
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let names: BTreeSet<&str> = samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    let (dashboard, alerts) = (dashboard(), alerts());
    assert!(dashboard.len() > 40 && alerts.len() > 8, "{} and {}", dashboard.len(), alerts.len());
    let mut missing = Vec::new();
    for expression in dashboard.iter().chain(&alerts) {
        let (selected, patterns) = selectors(expression);
        assert!(
            !selected.is_empty() || !patterns.is_empty() || expression.starts_with("up{"),
            "{expression}"
        );
        missing.extend(selected.into_iter().filter(|name| !names.contains(name.as_str())));
        for pattern in patterns {
            // Prometheus anchors its patterns.
            let whole = Regex::new(&format!("^(?:{pattern})$")).expect("a pattern");
            if !names.iter().any(|name| whole.is_match(name)) {
                missing.push(pattern);
            }
        }
    }
    assert_eq!(missing, [""; 0], "selected, and not in /prometheus");
}

#[test]
fn metric_names_are_extracted_from_expressions() {
    let names = |expression| selectors(expression).0.into_iter().collect::<Vec<_>>();
    let expression =
        r#"sum by (instance) (rate(a_total{job="b_c"}[5m])) / on (x) d_e > 1 and up{job="f"} == 0"#;
    assert_eq!(names(expression), ["a_total", "d_e"]);
    let (names, patterns) =
        selectors(r#"rate(label_replace({__name__=~"a_.*_b",x=~"y"}, "t", "$1", "n", "m")[1m:])"#);
    assert_eq!((names.len(), patterns.into_iter().collect::<Vec<_>>()), (0, vec!["a_.*_b".to_owned()]));
}

#[test]
fn systemd_is_notified_of_readiness_and_stop() {
    let mut server = Server::new(&[]);
    let path = server.folder().join("notify");
    let socket = UnixDatagram::bind(&path).expect("bound");
    socket.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let told = || {
        let mut message = [0; 1024];
        let length = socket.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let mut command = server.command(&[]);
    command.env("NOTIFY_SOCKET", &path);
    server.spawn(command);
    let ready = told();
    assert!(ready.starts_with("READY=1\nSTATUS=serves "), "{ready:?}");
    assert_eq!(server.page("/ready").map(|(status, _)| status), Some(200), "it is, when it says so");
    assert!(server.terminate().success());
    assert_eq!(told(), "STOPPING=1\nSTATUS=stopping: SIGTERM");
}

/// The paths named in the unit, the image and the package exist.
#[test]
fn paths_named_in_packages_exist() {
    let unit = packaged("systemd/evenkeel.service");
    for line in
        ["Type=notify", "ExecStart=/usr/bin/evenkeel start --config /etc/evenkeel", "KillSignal=SIGTERM"]
    {
        assert!(unit.lines().any(|found| found == line), "{line}");
    }
    for settings in ["debian/hbase-site.xml", "container/hbase-site.xml"] {
        let mut conf = evenkeel_common::Configuration::new();
        conf.add_xml(settings, &packaged(settings)).expect("settings");
        assert_eq!(conf.unknown_keys(), [""; 0], "{settings}");
        assert_eq!(
            conf.get("hbase.rootdir").expect("a value").as_deref(),
            Some("file:///var/lib/evenkeel/hbase")
        );
    }
    let manifest = include_str!("../../Cargo.toml");
    let assets = manifest.lines().filter_map(|line| line.trim().strip_prefix("[\"../../"));
    let assets: Vec<PathBuf> = assets.filter_map(|line| line.split('"').next()).map(PathBuf::from).collect();
    assert!(assets.len() > 4, "{assets:?}");
    for asset in assets {
        let directory = asset.parent().expect("a directory");
        let path = if asset.ends_with("*.md") { directory } else { &asset };
        assert!(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).exists(),
            "{}",
            asset.display()
        );
    }
}
