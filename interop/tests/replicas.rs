//! Tables with secondary replicas of regions, by the group `replicas` of the stock client's checks;
//! then on a directory that stock HBase and Evenkeel serve in turns, where each server is killed at
//! the end of its turn, and the next one opens the replicas of what it left.
//!
//! Then in a cluster under a stock master: each kind of RegionServer has the secondary replicas of
//! regions that the other one writes, flushes and compacts.
//!
//! Then with replication of MemStores (`replica-memstores`), on one server; from a stock
//! RegionServer to the tested one; and from the tested one to a stock one and another tested one.
//!
//! The same for replicas of hbase:meta, by the groups `meta-replicas` and `meta-replicas-kept`.
//!
//! With `EVENKEEL_INTEROP_TARGET=stock`, every server is stock HBase.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_client::{
    ClientConfig, CompactionState, Connection, Consistency, Get, Put, RegionState, Scan, ServerName,
};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use interop::cluster::{Cluster, ClusterStorage};
use interop::{
    Server, ServerKind, checks_on, java, start_evenkeel_with, start_stock_with, target_with, work,
};

const REFRESH: (&str, &str) = ("hbase.regionserver.storefile.refresh.period", "300");
const META_REFRESH: (&str, &str) = ("hbase.regionserver.meta.storefile.refresh.period", "300");
/// Stock HBase archives compacted files after this period.
const ARCHIVES: (&str, &str) = ("hbase.hfile.compaction.discharger.interval", "1000");
const WAIT: Duration = Duration::from_secs(90);

#[test]
fn replicas_serve_what_stock_hbases_do() {
    checks_on(&target_with(&[REFRESH, ARCHIVES]), "zk", &["replicas"]);
}

#[test]
fn replicas_of_meta_serve_what_stock_hbases_do() {
    checks_on(&target_with(&[META_REFRESH, ARCHIVES]), "zk", &["meta-replicas"]);
}

/// Enables the replication of MemStores. In stock HBase, a peer reads the logs.
const REPLICATION: (&str, &str) = ("hbase.region.replica.replication.enabled", "true");

#[test]
fn replicas_show_edits_before_a_flush() {
    checks_on(&target_with(&[REPLICATION, ARCHIVES]), "zk", &["replica-memstores"]);
}

#[test]
fn replicas_of_meta_show_edits_before_a_flush() {
    checks_on(&target_with(&[CATALOG_REPLICATION, ARCHIVES]), "zk", &["meta-replica-memstores"]);
}

const CATALOG_REPLICATION: (&str, &str) = ("hbase.region.replica.replication.catalog.enabled", "true");

struct Client {
    runtime: tokio::runtime::Runtime,
    connection: Connection,
}

fn table() -> TableName {
    "kept".parse().expect("legal")
}

impl Client {
    fn of(server: &Server) -> Self {
        let settings = server.client_settings();
        let bootstrap = settings.iter().find(|(key, _)| key == "hbase.client.bootstrap.servers");
        Self::with(ClientConfig::new([bootstrap.expect("known").1.as_str()]))
    }

    fn with(config: ClientConfig) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let connection = runtime.block_on(Connection::connect(config)).expect("the server answers");
        Self { runtime, connection }
    }

    fn create(&self) {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let table = TableDescriptor::new(table()).with_family(family).with_region_replication(2);
        self.runtime.block_on(self.connection.admin().create_table(&table, &["m".into()])).expect("created");
    }

    /// Writes a row into each region and flushes them.
    fn write(&self, turn: usize) {
        self.runtime.block_on(async {
            let rows = self.connection.table(table());
            for row in ["a", "z"] {
                let put = Put::new(format!("{row}{turn}")).column("f", "q", format!("{turn}"));
                rows.put(put).await.expect("written");
            }
            self.connection.admin().flush_table(&table()).await.expect("flushed");
            // Only in the log when the server is killed.
            rows.put(Put::new(format!("log{turn}")).column("f", "q", "x")).await.expect("written");
        });
    }

    /// The rows that replica 1 of each region has, and whether all results are stale; an error as
    /// text.
    fn rows_of_replica(&self) -> Result<(Vec<String>, bool), String> {
        self.runtime.block_on(async {
            let mut scan = self.connection.table(table()).scan(Scan::new().replica(1));
            let (mut rows, mut stale) = (Vec::new(), true);
            while let Some(row) = scan.next().await.map_err(|error| error.to_string())? {
                rows.push(String::from_utf8_lossy(row.row().unwrap_or_default()).into_owned());
                stale &= row.is_stale();
            }
            Ok((rows, stale))
        })
    }

    fn wait_for_rows(&self, expected: &[String], what: &str) {
        let deadline = Instant::now() + WAIT;
        loop {
            let found = self.rows_of_replica();
            if found.as_ref().is_ok_and(|(rows, stale)| rows == expected && *stale) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {found:?}, not {expected:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Reads with timeline consistency, by whichever replica answers.
    fn read_by_any(&self, row: &str) {
        let get = Get::new(row).consistency(Consistency::Timeline);
        let found = self.runtime.block_on(self.connection.table(table()).get(get)).expect("read");
        assert_eq!(found.cells().len(), 1, "{row}");
    }
}

#[test]
fn replicas_of_either_server_are_opened_by_the_other() {
    let root = work().join("run").join(format!("replicas.{}", std::process::id())).join("hbase");
    fs::create_dir_all(&root).expect("made");
    let settings = [("hbase.rootdir".to_owned(), format!("file://{}", root.display())), {
        let (key, value) = REFRESH;
        (key.to_owned(), value.to_owned())
    }];
    let only_stock = std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() == Ok("stock");
    let mut expected: Vec<String> = Vec::new();
    for (turn, is_stock) in (1..).zip([true, false, true, false]) {
        let server = match is_stock || only_stock {
            true => start_stock_with(&settings),
            false => start_evenkeel_with(&settings),
        };
        let server = server.unwrap_or_else(|why| panic!("turn {turn}: {why}"));
        let client = Client::of(&server);
        if turn == 1 {
            client.create();
        }
        // The replay of the log has flushed the last row of the turn before.
        client.wait_for_rows(&expected, &format!("turn {turn}, on {}", server.name()));
        client.write(turn);
        expected.extend([format!("a{turn}"), format!("z{turn}")]);
        expected.sort();
        client.wait_for_rows(&expected, &format!("turn {turn}, on {}, after a flush", server.name()));
        client.read_by_any(&format!("a{turn}"));
        server.kill();
        expected.push(format!("log{turn}"));
        expected.sort();
    }
}

impl Client {
    fn wait_for<T>(&self, what: &str, found: impl Fn() -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT;
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The name that the master has of a server which this process started.
    fn name_of(&self, server: &Server) -> ServerName {
        let port: u16 = server.setting("hbase.regionserver.port").and_then(|p| p.parse().ok()).expect("set");
        let live = || self.runtime.block_on(self.connection.admin().live_servers()).unwrap_or_default();
        self.wait_for("the server to be live", || live().into_iter().find(|name| name.port == port))
    }

    fn replicas(&self) -> Vec<RegionState> {
        let (admin, table) = (self.connection.admin(), table());
        self.runtime.block_on(admin.regions_and_replicas(&table)).unwrap_or_default()
    }

    /// Moves the default replicas to one server and the others to another one.
    fn place(&self, primaries: &ServerName, secondaries: &ServerName) {
        self.wait_for("the replicas to be at their places", || {
            let replicas = self.replicas();
            let target = |state: &RegionState| match state.region.replica_id() {
                0 => primaries.clone(),
                _ => secondaries.clone(),
            };
            let is_there =
                |state: &&RegionState| state.state == "OPEN" && state.server.as_ref() == Some(&target(state));
            let elsewhere: Vec<_> = replicas.iter().filter(|state| !is_there(state)).collect();
            for state in &elsewhere {
                let (admin, to) = (self.connection.admin(), target(state));
                let moved = admin.move_region(&state.region, Some(&to));
                if let Err(error) = self.runtime.block_on(moved) {
                    println!("{:?} is not moved yet: {error}", state.region);
                }
            }
            (replicas.len() == 4 && elsewhere.is_empty()).then_some(())
        });
    }

    fn compact(&self) {
        let (admin, table) = (self.connection.admin(), table());
        self.runtime.block_on(admin.compact_table(&table, None, true)).expect("asked for");
        let state = || self.runtime.block_on(admin.compaction_state(&table)).expect("a state");
        self.wait_for("the end of the compaction", || (state() == CompactionState::None).then_some(()));
    }
}

fn tested() -> ServerKind {
    match std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() {
        Ok("stock") => ServerKind::Stock,
        _ => ServerKind::Evenkeel,
    }
}

#[test]
fn replicas_in_a_cluster_show_what_the_other_kind_of_server_writes() {
    let cluster = Cluster::start(ClusterStorage::Directory).unwrap_or_else(|why| panic!("{why}"));
    let start =
        |kind, name| cluster.start_regionserver(kind, name, &[REFRESH]).unwrap_or_else(|why| panic!("{why}"));
    let java = start(ServerKind::Stock, "java");
    cluster.wait_for_master().unwrap_or_else(|why| panic!("{why}"));
    let ours = start(tested(), "ours");
    let config = ClientConfig::zookeeper("127.0.0.1", cluster.zookeeper_port(), "/hbase");
    let client = Client::with(config);
    let (java_name, our_name) = (client.name_of(&java), client.name_of(&ours));
    client.create();
    let mut expected: Vec<String> = Vec::new();
    for turn in 1..5 {
        let (writer, reader) = if turn % 2 == 1 { (&java_name, &our_name) } else { (&our_name, &java_name) };
        client.place(writer, reader);
        client.write(turn);
        // The moves of the default replicas have flushed the last row of the turn before.
        expected.extend([format!("a{turn}"), format!("z{turn}")]);
        expected.sort();
        client.wait_for_rows(&expected, &format!("turn {turn}: replicas on {reader}"));
        client.compact();
        for _ in 0..5 {
            client
                .wait_for_rows(&expected, &format!("turn {turn}: replicas on {reader}, after a compaction"));
        }
        expected.push(format!("log{turn}"));
        expected.sort();
    }
    // The server of the secondary replicas dies: the other one opens them.
    client.place(&java_name, &our_name);
    ours.kill();
    client.wait_for("the replicas on the server that is left", || {
        let replicas = client.replicas();
        let is_there =
            |state: &RegionState| state.server.as_ref() == Some(&java_name) && state.state == "OPEN";
        (replicas.len() == 4 && replicas.iter().all(is_there)).then_some(())
    });
    client.wait_for_rows(&expected, "after the death of a server");
}

/// The default replicas are on stock HBase, which sends its edits.
#[test]
fn replicas_in_a_cluster_show_the_edits_that_stock_hbase_sends() {
    let settings = [REPLICATION, ("replication.source.sleepforretries", "200")];
    let cluster = Cluster::start_with(ClusterStorage::Directory, &settings);
    let cluster = cluster.unwrap_or_else(|why| panic!("{why}"));
    let start =
        |kind, name| cluster.start_regionserver(kind, name, &[]).unwrap_or_else(|why| panic!("{why}"));
    let java = start(ServerKind::Stock, "java");
    cluster.wait_for_master().unwrap_or_else(|why| panic!("{why}"));
    let ours = start(tested(), "ours");
    let config = ClientConfig::zookeeper("127.0.0.1", cluster.zookeeper_port(), "/hbase");
    let client = Client::with(config);
    let (java_name, our_name) = (client.name_of(&java), client.name_of(&ours));
    client.create();
    client.place(&java_name, &our_name);
    let mut expected: Vec<String> = Vec::new();
    for turn in 1..4 {
        client.write(turn);
        // The last row is not flushed.
        expected.extend([format!("a{turn}"), format!("log{turn}"), format!("z{turn}")]);
        expected.sort();
        client.wait_for_rows(&expected, &format!("turn {turn}"));
    }
}

/// How long an edit may take to a secondary replica on another server.
const EDIT_WAIT: Duration = Duration::from_secs(10);

impl Client {
    fn put(&self, row: &str) {
        let put = Put::new(row).column("f", "q", "v");
        self.runtime.block_on(self.connection.table(table()).put(put)).expect("written");
    }

    fn flush(&self, table: &TableName) {
        self.runtime.block_on(self.connection.admin().flush_table(table)).expect("flushed");
    }

    /// Writes a file with a row, by way of another table. Returns the directory to load from.
    fn write_file(&self, root: &Path, row: &str) -> PathBuf {
        let source: TableName = format!("source-{row}").parse().expect("legal");
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let descriptor = TableDescriptor::new(source.clone()).with_family(family);
        self.runtime.block_on(async {
            self.connection.admin().create_table(&descriptor, &[]).await.expect("created");
            let put = Put::new(row).column("f", "q", "v");
            self.connection.table(source.clone()).put(put).await.expect("written");
        });
        self.flush(&source);
        let entries =
            |dir: &Path| fs::read_dir(dir).expect("listed").map(|entry| entry.expect("read").path());
        let regions = entries(&root.join("data/default").join(source.to_string()));
        let family = regions.map(|region| region.join("f")).find(|family| family.is_dir()).expect("a region");
        let file = entries(&family).find(|file| file.is_file()).expect("flushed");
        let to = root.join("staging").join(row);
        fs::create_dir_all(to.join("f")).expect("made");
        fs::copy(&file, to.join("f").join(file.file_name().expect("named"))).expect("copied");
        to
    }
}

/// Loads a directory by HBase's tool.
fn load(cluster: &Cluster, dir: &Path) {
    let mut args: Vec<String> =
        cluster.client_settings().iter().map(|(key, value)| format!("-D{key}={value}")).collect();
    args.extend([format!("file://{}", dir.display()), table().to_string()]);
    let run = java("org.apache.hadoop.hbase.tool.BulkLoadHFilesTool", &args).label("bulk-load");
    let run = run.deadline_secs(120).run().unwrap_or_else(|why| panic!("{why}"));
    assert!(run.success, "{}", run.failures());
}

/// The default replicas are on the tested server, which sends its edits to a Java server and to
/// another tested one; and on a Java server, which sends them to a tested one. Each time they come
/// from the servers of the turn before.
#[test]
fn replicas_in_a_cluster_show_the_edits_that_either_server_sends() {
    show_edits_of_either_server(ClusterStorage::Directory);
}

/// The same without bulk loads, whose files are made in the directory of the cluster.
#[test]
fn replicas_on_hdfs_show_the_edits_that_either_server_sends() {
    show_edits_of_either_server(ClusterStorage::Hdfs(3));
}

fn show_edits_of_either_server(storage: ClusterStorage) {
    let loads = matches!(storage, ClusterStorage::Directory);
    let settings = [REPLICATION, ARCHIVES, ("replication.source.sleepforretries", "200")];
    let cluster = Cluster::start_with(storage, &settings);
    let cluster = cluster.unwrap_or_else(|why| panic!("{why}"));
    let start =
        |kind, name| cluster.start_regionserver(kind, name, &[]).unwrap_or_else(|why| panic!("{why}"));
    let java = start(ServerKind::Stock, "java");
    cluster.wait_for_master().unwrap_or_else(|why| panic!("{why}"));
    let (first, second) = (start(tested(), "ours"), start(tested(), "ours-2"));
    let root = java.setting("hbase.rootdir").expect("set").trim_start_matches("file://").to_owned();
    let client = Client::with(ClientConfig::zookeeper("127.0.0.1", cluster.zookeeper_port(), "/hbase"));
    let [java, first, second] = [&java, &first, &second].map(|server| client.name_of(server));
    client.create();
    let mut expected: Vec<String> = Vec::new();
    let turns = [(&first, &java), (&first, &second), (&java, &first), (&second, &java)];
    for (turn, (writer, reader)) in (1..).zip(turns) {
        client.place(writer, reader);
        let at = format!("turn {turn}, from {writer} to {reader}");
        let mut wait_for = |rows: &[String], what: &str| {
            expected.extend_from_slice(rows);
            expected.sort();
            client.wait_for_rows(&expected, &format!("{at}: {what}"));
        };
        client.put(&format!("a{turn}"));
        wait_for(&[format!("a{turn}")], "the first edit after a move");
        let (written, row) = (Instant::now(), format!("z{turn}"));
        client.put(&row);
        wait_for(&[row], "an edit that is not flushed");
        let took = written.elapsed();
        println!("{at}: an edit took {took:?}");
        assert!(took < EDIT_WAIT, "{at}: an edit took {took:?}");
        client.flush(&table());
        client.put(&format!("b{turn}"));
        wait_for(&[format!("b{turn}")], "a flush, and an edit");
        if loads {
            let dir = client.write_file(Path::new(&root), &format!("l{turn}"));
            // Then no edit comes with the load.
            client.flush(&table());
            load(&cluster, &dir);
            wait_for(&[format!("l{turn}")], "a bulk load");
        }
        client.flush(&table());
        client.compact();
        // Compacted files are archived and deleted meanwhile.
        client.put(&format!("c{turn}"));
        wait_for(&[format!("c{turn}")], "a compaction, and an edit");
    }
}

/// Runs a group of the stock client's checks with settings of its own.
fn checks_with(server: &Server, group: &str, own: &[(&str, String)]) {
    let mut args = vec!["--registry".to_owned(), "zk".to_owned(), group.to_owned()];
    args.extend(server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}")));
    args.extend(own.iter().map(|(key, value)| format!("-D{key}={value}")));
    let run = java("evenkeel.interop.checks.Checks", &args).label(group).deadline_secs(900).run();
    let run = run.unwrap_or_else(|why| panic!("{why}"));
    println!("{}", run.stdout);
    assert!(run.success, "{group} with {own:?} against {}:\n{}", server.name(), run.failures());
}

#[test]
fn replicas_of_meta_of_either_server_are_opened_by_the_other() {
    let root = work().join("run").join(format!("meta-replicas.{}", std::process::id())).join("hbase");
    fs::create_dir_all(&root).expect("made");
    let only_stock = std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() == Ok("stock");
    // Whether the server is stock HBase, the number that is set, and the number that the next
    // server must find.
    let turns = [
        (true, Some(2), 2),
        (false, None, 3),
        (true, None, 2),
        (false, Some(4), 4),
        (true, None, 1),
        (false, None, 1),
    ];
    let mut found = 1;
    for (turn, (is_stock, configured, next)) in turns.into_iter().enumerate() {
        let settings = [META_REFRESH, ARCHIVES].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut settings = settings.to_vec();
        settings.push(("hbase.rootdir".to_owned(), format!("file://{}", root.display())));
        settings.extend(configured.map(|count| ("hbase.meta.replica.count".to_owned(), format!("{count}"))));
        let server = match is_stock || only_stock {
            true => start_stock_with(&settings),
            false => start_evenkeel_with(&settings),
        };
        let server = server.unwrap_or_else(|why| panic!("turn {turn}: {why}"));
        println!("turn {turn}: {}", server.name());
        let expected: u32 = configured.unwrap_or(found);
        let own = [
            ("evenkeel.interop.meta.found", expected.to_string()),
            ("evenkeel.interop.meta.next", next.to_string()),
        ];
        checks_with(&server, "meta-replicas-kept", &own);
        server.kill();
        found = next;
    }
}

#[test]
fn replicas_of_meta_in_a_cluster_show_what_the_other_kind_of_server_writes() {
    check_meta_between_servers("meta-replicas", META_REFRESH);
}

#[test]
fn replicas_of_meta_in_a_cluster_show_the_edits_that_either_server_sends() {
    check_meta_between_servers("meta-replica-memstores", CATALOG_REPLICATION);
}

/// Runs a group of checks with the default replica on a Java server and replica 1 on a tested one,
/// and the other way round.
fn check_meta_between_servers(group: &str, setting: (&str, &str)) {
    let own = [setting, ARCHIVES];
    let cluster = Cluster::start_with(ClusterStorage::Directory, &own);
    let cluster = cluster.unwrap_or_else(|why| panic!("{why}"));
    let start =
        |kind, name| cluster.start_regionserver(kind, name, &own).unwrap_or_else(|why| panic!("{why}"));
    let java = start(ServerKind::Stock, "java");
    cluster.wait_for_master().unwrap_or_else(|why| panic!("{why}"));
    let ours = start(tested(), "ours");
    let client = Client::with(ClientConfig::zookeeper("127.0.0.1", cluster.zookeeper_port(), "/hbase"));
    let (java_port, our_port) = (client.name_of(&java).port, client.name_of(&ours).port);
    for (primary, secondary) in [(java_port, our_port), (our_port, java_port)] {
        let own = [
            ("evenkeel.interop.meta.primary", primary.to_string()),
            ("evenkeel.interop.meta.secondary", secondary.to_string()),
            // RegionServers are a registry, too.
            ("hbase.client.bootstrap.servers", format!("127.0.0.1:{our_port}")),
        ];
        checks_with(&ours, group, &own);
    }
}
