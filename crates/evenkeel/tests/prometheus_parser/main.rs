//! Prometheus's own parsers, from its Go modules, accept `/prometheus` of a server under load, with
//! and without descriptions, the packaged alert rules, and the expressions of the dashboard.
//!
//! The test needs Go and downloads the modules, so only the feature `go` selects it:
//! `cargo test -p evenkeel --features go --test prometheus_parser`.

#[path = "../common/mod.rs"]
mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Server, runtime};
use evenkeel_client::{Get, NamespaceDescriptor, Put, Scan};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

fn packaging(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path)
}

/// Builds `packaging/prometheus/check`.
fn build_check() -> PathBuf {
    let check = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prometheus-check");
    let mut command = Command::new("go");
    command.args(["build", "-o"]).arg(&check).arg(".").current_dir(packaging("prometheus/check"));
    assert!(command.status().expect("Go is installed").success(), "the check cannot be built");
    check
}

/// Runs the check of a text and files: what it prints, or its error.
fn run(check: &Path, text: &str, files: &[&str]) -> Result<String, String> {
    let mut command = Command::new(check);
    command.args(files.iter().map(|file| packaging(file)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the check starts");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = |bytes| String::from_utf8(bytes).expect("UTF-8");
    if output.status.success() { Ok(said(output.stdout)) } else { Err(said(output.stderr)) }
}

/// Makes requests of each kind, so that their metrics exist.
fn use_tables(server: &Server) {
    runtime().block_on(async {
        let connection = server.connect().await;
        for name in ["t", "n_1:t.with_all-signs"] {
            if let Some((namespace, _)) = name.split_once(':') {
                connection
                    .admin()
                    .create_namespace(&NamespaceDescriptor::new(namespace))
                    .await
                    .expect("created");
            }
            let name: TableName = name.parse().expect("legal");
            let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
            let table = TableDescriptor::new(name.clone()).with_family(family);
            connection.admin().create_table(&table, &["m".into()]).await.expect("created");
            let table = connection.table(name.clone());
            let puts = (0..100).map(|i| Put::new(format!("{i}")).column("f", "q", "v"));
            table.put_all(puts).await.expect("written");
            connection.admin().flush_table(&name).await.expect("flushed");
            table.get(Get::new("7")).await.expect("read");
            let mut scanner = table.scan(Scan::new());
            while scanner.next_batch().await.expect("rows").is_some() {}
        }
    });
}

#[test]
fn prometheus_accepts_what_the_server_and_the_packages_contain() {
    let check = build_check();
    let server = Server::started(&[("hbase.regionserver.user.metrics.enabled", "true")]);
    use_tables(&server);
    let files = ["prometheus/alerts.yml", "grafana/evenkeel.json"];
    for path in ["/prometheus?description=true", "/prometheus", "/prometheus?qry=region"] {
        let (status, text) = server.page(path).expect("a response");
        assert_eq!(status, 200, "{path}");
        let said = run(&check, &text, &files).unwrap_or_else(|error| panic!("{path}: {error}"));
        println!("{path}: {said}");
        let first = said.split(' ').next().and_then(|count| count.parse::<usize>().ok());
        let samples = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).count();
        assert_eq!(first, Some(samples), "{path}");
        assert!(samples > 50, "{path}: {samples}");
    }
    // The check rejects malformed text.
    for bad in ["", "a{b=\"c} 1\n", "a{b=\"c\"} 1\na{b=\"c\"} 2\n", "9a 1\n"] {
        assert!(run(&check, bad, &files).is_err(), "{bad:?} is accepted");
    }
}
