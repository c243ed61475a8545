//! A standalone server whose root directory is on HDFS, and the offline tools on it.

use std::process::Command;
use std::time::{Duration, Instant};

use evenkeel_client::{ClientConfig, Connection, Get, Put, Table};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor};
use interop::{Server, evenkeel_binary, start_evenkeel_with};
use tokio::runtime::Runtime;

use crate::Turn;

const TABLE: &str = "t";

/// A server, and a client with the rows that it has acknowledged.
struct Scene {
    server: Server,
    runtime: Runtime,
    connection: Connection,
    rows: usize,
}

impl Scene {
    fn start(root: &str, rows: usize) -> Self {
        Self::start_with_logs_in("", root, rows)
    }

    fn start_with_logs_in(wal_dir: &str, root: &str, rows: usize) -> Self {
        let settings = [
            ("hbase.rootdir", root),
            ("hbase.wal.dir", wal_dir),
            ("evenkeel.memory.size", "256m"),
            // DataNodes answer late while other tests use the CPUs.
            ("hbase.regionserver.wal.roll.on.sync.ms", "60000"),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let server = start_evenkeel_with(&settings).unwrap_or_else(|why| panic!("{why}"));
        let runtime = Runtime::new().expect("a runtime");
        let clients = server.client_settings();
        let bootstrap = clients.iter().find(|(key, _)| key == "hbase.client.bootstrap.servers");
        let config = ClientConfig::new([bootstrap.expect("known").1.as_str()]);
        let connection = runtime.block_on(Connection::connect(config)).expect("the server answers");
        Self { server, runtime, connection, rows }
    }

    fn table(&self) -> Table {
        self.connection.table(TABLE.parse().expect("legal"))
    }

    fn create(&self) {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let family = family.with("DFS_REPLICATION", "2").with("STORAGE_POLICY", "ONE_SSD");
        let table = TableDescriptor::new(TABLE.parse().expect("legal")).with_family(family);
        self.runtime.block_on(self.connection.admin().create_table(&table, &[])).expect("created");
    }

    /// Writes rows one at a time. Returns the time of the slowest.
    fn write(&mut self, rows: usize) -> Duration {
        let (table, mut slowest) = (self.table(), Duration::ZERO);
        for _ in 0..rows {
            let put = Put::new(row(self.rows)).column("f", "q", value(self.rows));
            let began = Instant::now();
            self.runtime.block_on(table.put(put)).expect("written");
            slowest = slowest.max(began.elapsed());
            self.rows += 1;
        }
        slowest
    }

    fn flush(&self) {
        let table = TABLE.parse().expect("legal");
        self.runtime.block_on(self.connection.admin().flush_table(&table)).expect("flushed");
    }

    /// Loads a file into the region of the first row.
    fn load(&self, uri: &str) {
        let file = ("f".into(), uri.to_owned());
        let loaded = self.runtime.block_on(self.table().bulk_load(row(0).as_bytes(), vec![file]));
        assert!(loaded.expect("answered"), "{uri} is loaded");
    }

    /// Compares every row with what was written.
    fn check(&self) {
        let gets = (0..self.rows).map(|number| Get::new(row(number)));
        let found = self.runtime.block_on(self.table().get_all(gets));
        for (number, found) in found.into_iter().enumerate() {
            let found = found.expect("read");
            let there = found.value("f", "q").map(<[u8]>::to_vec);
            assert_eq!(there, Some(value(number).into_bytes()), "row {number}");
        }
    }
}

fn row(number: usize) -> String {
    format!("row-{number:06}")
}

fn value(number: usize) -> String {
    format!("value {number} {}", "x".repeat(number % 300))
}

/// Returns the files of a directory, or for the data directory the store files of the family.
fn files(turn: &mut Turn, dir: &str) -> Vec<String> {
    let listed = turn.cluster().shell(&["-ls", "-R", "-C", dir]).expect("listed");
    let listed = String::from_utf8(listed).expect("names");
    let is_wanted = |path: &&str| !dir.contains("/data/") || path.contains("/f/");
    listed.lines().filter(is_wanted).map(str::to_owned).collect()
}

/// Runs a tool and returns its output.
fn tool(args: &[&str]) -> String {
    let binary = evenkeel_binary().unwrap_or_else(|why| panic!("{why}"));
    let output = Command::new(binary).args(args).output().expect("runs");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{args:?}: {shown}{}", String::from_utf8_lossy(&output.stderr));
    shown
}

#[test]
fn a_standalone_server_runs_on_hdfs() {
    let mut turn = Turn::take();
    let root = format!("hdfs://{}/standalone", turn.cluster().address());
    let mut scene = Scene::start(&root, 0);
    scene.create();
    scene.write(300);
    scene.flush();
    scene.write(300);
    scene.check();

    // The family's attributes say how its files are stored.
    let store_file = files(&mut turn, "/standalone/data/default").remove(0);
    let replication = turn.cluster().shell(&["-stat", "%r", &store_file]).expect("a file");
    assert_eq!(String::from_utf8_lossy(&replication).trim(), "2", "{store_file}");
    let policy = turn.cluster().storage_policy(&store_file).expect("a file");
    assert!(policy.contains("ONE_SSD"), "{policy}");

    // A bulk load of a file elsewhere on the same HDFS.
    let path = "/load/f/9f1c3a5e7b2d4f60a1b2c3d4e5f60718";
    turn.cluster().shell(&["-mkdir", "-p", "/load/f"]).expect("made");
    turn.cluster().shell(&["-cp", &store_file, path]).expect("copied");
    scene.load(&format!("hdfs://{}{path}", turn.cluster().address()));
    scene.check();

    // The server is killed: rows that are in no store file are in its log, which is not closed.
    let Scene { server, rows, .. } = scene;
    server.kill();
    let began = Instant::now();
    let mut scene = Scene::start(&root, rows);
    println!("started in {:?} after kill -9", began.elapsed());
    scene.check();

    // A DataNode that stores the log is killed: the next log is created without it.
    let calm = scene.write(100);
    turn.cluster().kill_datanode(0);
    let stall = scene.write(200);
    println!("the slowest write took {calm:?}, and {stall:?} at the death of a DataNode");
    assert!(stall < Duration::from_secs(10), "{stall:?}");
    scene.flush();
    scene.write(50);
    scene.check();
    turn.cluster().start_datanode(0).unwrap_or_else(|why| panic!("{why}"));

    // An orderly stop leaves empty logs, and files that the tools can read.
    drop(scene);
    let summary = tool(&["verify", &root]);
    assert!(summary.contains(" 0 faults"), "{summary}");
    println!("{summary}");
    let uri = format!("hdfs://{}", turn.cluster().address());
    let log = format!("{uri}{}", files(&mut turn, "/standalone/oldWALs").remove(0));
    let log = tool(&["wal", "-p", &log]);
    assert!(log.contains("end: "), "{log}");
    tool(&["compact", &root, "--major"]);
    let keys_of = |path: String| tool(&["hfile", "-e", "-f", &format!("{uri}{path}")]);
    let cells: usize = files(&mut turn, "/standalone/data/default")
        .into_iter()
        .map(|path| keys_of(path).lines().filter(|line| line.starts_with("K: ")).count())
        .sum();
    assert_eq!(cells, rows + 350, "cells of the store files after a major compaction");
}

/// Logs on HDFS, and tables there in another directory, or on a local disk.
#[test]
fn a_standalone_server_has_its_logs_in_another_directory_on_hdfs() {
    let mut turn = Turn::take();
    let address = turn.cluster().address();
    let folder = interop::work().join("run").join(format!("wal-dir-hdfs.{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("made");
    let local = format!("file://{}", folder.join("hbase").display());
    let roots = [format!("hdfs://{address}/apart/hbase"), local];
    for (root, wals) in roots.iter().zip(["wals-of-hdfs", "wals-of-local"]) {
        let wals = format!("hdfs://{address}/{wals}");
        let mut scene = Scene::start_with_logs_in(&wals, root, 0);
        scene.create();
        scene.write(100);
        scene.flush();
        for _ in 0..2 {
            scene.write(100);
            let Scene { server, rows, .. } = scene;
            server.kill();
            scene = Scene::start_with_logs_in(&wals, root, rows);
            scene.check();
        }
        drop(scene);
        let summary = tool(&["verify", root]);
        assert!(summary.contains(" 0 faults") && !summary.contains(" 0 WALs"), "{summary}");
        println!("{root}: {summary}");
    }
}
