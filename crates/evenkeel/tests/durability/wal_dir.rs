//! Logs in another directory than the data (`hbase.wal.dir`): kill -9 under concurrent writers, and
//! changes of the setting between kills. Every acknowledged row survives, or the server does not
//! start.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_client::{ClientConfig, Connection, Put, Scan};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::{Server, config, runtime, seed};

const KILLS: usize = 10;
const WRITERS: usize = 3;
/// Frequent flushes and rolls, so that kills hit them, too.
const SETTINGS: [(&str, &str); 3] = [
    ("hbase.hregion.memstore.flush.size", "1048576"),
    ("hbase.regionserver.hlog.blocksize", "524288"),
    ("evenkeel.memory.size", "256m"),
];

fn table() -> TableName {
    "t".parse().expect("legal")
}

fn row(writer: usize, number: u64) -> String {
    // The first letter spreads the rows over the regions.
    format!("{}{writer}-{number:08}", if number.is_multiple_of(2) { 'a' } else { 'z' })
}

/// A server, and the number of rows that each writer has acknowledged.
struct Scene {
    server: Server,
    acknowledged: Vec<Arc<AtomicU64>>,
    random: StdRng,
}

impl Scene {
    fn start(wal_dir: Option<&str>) -> Self {
        let mut server = Server::new(&SETTINGS);
        let random = StdRng::seed_from_u64(seed());
        if let Some(name) = wal_dir {
            let dir = server.folder().join(name);
            server.set("hbase.wal.dir", &format!("file://{}", dir.display()));
        }
        server.start();
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let descriptor = TableDescriptor::new(table()).with_family(family);
        let splits = [bytes::Bytes::from_static(b"m")];
        let create = async { server.connect().await.admin().create_table(&descriptor, &splits).await };
        runtime().block_on(create).expect("created");
        let acknowledged = (0..WRITERS).map(|_| Arc::default()).collect();
        Self { server, acknowledged, random }
    }

    fn wal_dir(&self, name: &str) -> PathBuf {
        self.server.folder().join(name)
    }

    fn set_wal_dir(&mut self, name: Option<&str>) {
        let dir = name.map(|name| self.wal_dir(name).display().to_string());
        self.server.set("hbase.wal.dir", &dir.unwrap_or_default());
    }

    /// Writes for a while, then kills the server under the writers.
    fn write_and_kill(&mut self) {
        let before: u64 = self.rows();
        let runtime = runtime();
        let bootstrap = self.server.bootstrap();
        let writers: Vec<_> = self.acknowledged.iter().cloned().enumerate().collect();
        let tasks: Vec<_> = writers
            .into_iter()
            .map(|(writer, acknowledged)| runtime.spawn(write(bootstrap.clone(), writer, acknowledged)))
            .collect();
        let deadline = std::time::Instant::now() + crate::common::TIMEOUT;
        while self.rows() < before + 50 {
            assert!(std::time::Instant::now() < deadline, "the writers write nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(self.random.random_range(0..400)));
        self.server.kill();
        tasks.into_iter().for_each(|task| task.abort());
    }

    fn rows(&self) -> u64 {
        self.acknowledged.iter().map(|rows| rows.load(Ordering::SeqCst)).sum()
    }

    /// Checks that every acknowledged row is there.
    #[track_caller]
    fn check(&self) {
        let found = runtime().block_on(async {
            let mut rows = BTreeSet::new();
            let table = self.server.connect().await.table(table());
            let mut scanner = table.scan(Scan::new());
            while let Some(row) = scanner.next().await.expect("read") {
                assert!(row.value("f", "q").is_some_and(|value| value.len() == 700), "a torn row");
                rows.insert(String::from_utf8_lossy(row.row().expect("cells")).into_owned());
            }
            rows
        });
        for (writer, acknowledged) in self.acknowledged.iter().enumerate() {
            let acknowledged = acknowledged.load(Ordering::SeqCst);
            let lost: Vec<_> = (0..acknowledged)
                .map(|number| row(writer, number))
                .filter(|row| !found.contains(row))
                .collect();
            assert!(
                lost.is_empty(),
                "of {acknowledged} rows of writer {writer}, {} are lost: {lost:?}",
                lost.len()
            );
        }
    }

    /// Starts the server, which must refuse; returns the new part of its log.
    fn refused_start(&mut self) -> String {
        let before = self.server.log().len();
        let command = self.server.command(&[]);
        self.server.spawn(command);
        let status = self.server.exit();
        let log = self.server.log().split_off(before);
        assert!(!status.success(), "it must not start:\n{log}");
        log
    }
}

/// Writes rows until the server is killed.
async fn write(bootstrap: String, writer: usize, acknowledged: Arc<AtomicU64>) {
    let config = ClientConfig { retries: 0, ..config(&bootstrap) };
    let Ok(connection) = Connection::connect(config).await else { return };
    let table = connection.table(table());
    loop {
        let number = acknowledged.load(Ordering::SeqCst);
        let put = Put::new(row(writer, number)).column("f", "q", vec![7; 700]);
        if table.put(put).await.is_err() {
            return;
        }
        acknowledged.store(number + 1, Ordering::SeqCst);
    }
}

/// Files below a directory whose paths contain `part`.
fn files_with(dir: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, part));
        } else if path.to_string_lossy().contains(part) {
            found.push(path);
        }
    }
    found
}

#[test]
fn a_killed_server_loses_no_row_of_logs_in_another_directory() {
    let mut scene = Scene::start(Some("wals"));
    for _ in 0..KILLS {
        scene.write_and_kill();
        scene.server.start();
        scene.check();
    }
    let (root, wals) = (scene.server.root(), scene.wal_dir("wals"));
    assert!(!root.join("WALs").exists() && !root.join("oldWALs").exists(), "no log is in the root directory");
    for part in ["recovered.edits", ".seqid", "MasterData/WALs"] {
        assert_eq!(files_with(&root, part), Vec::<PathBuf>::new(), "{part}");
    }
    assert!(!files_with(&wals.join("data/default/t"), ".seqid").is_empty());
    assert!(!files_with(&wals.join("oldWALs"), "").is_empty());
    assert!(scene.server.screen().contains(&format!("logs                 file:{}", wals.display())));
    scene.write_and_kill();
    // The tool finds the log of hbase:meta by the record in the root directory.
    let verify =
        Command::new(env!("CARGO_BIN_EXE_evenkeel")).arg("verify").arg(&root).output().expect("runs");
    let verified = String::from_utf8_lossy(&verify.stdout).into_owned();
    assert!(verify.status.success() && verified.contains(" 0 faults"), "{verified}");
    assert!(!verified.contains(" 0 WALs") && !verified.contains("hbase:meta"), "{verified}");
    scene.server.start();
    scene.check();
    assert!(scene.server.terminate().success());
    assert_eq!(files_with(&wals.join("WALs"), ""), Vec::<PathBuf>::new(), "a stop leaves nothing to replay");
    scene.server.start();
    scene.check();
}

#[test]
fn a_change_of_the_directory_loses_no_row() {
    let mut scene = Scene::start(None);
    let (root, wals) = (scene.server.root(), scene.wal_dir("wals"));
    // The setting is new, and the logs in the root directory were not split.
    scene.write_and_kill();
    scene.set_wal_dir(Some("wals"));
    scene.server.start();
    scene.check();
    assert!(!root.join("WALs").exists(), "its logs were split");

    // It is removed, or changed, while the logs there were not split.
    scene.write_and_kill();
    for other in [None, Some("other")] {
        scene.set_wal_dir(other);
        let log = scene.refused_start();
        let named = format!("hbase.wal.dir was file:{} until now", wals.display());
        assert!(log.contains(&named), "{log}");
    }
    // The disk is not mounted.
    let away = scene.wal_dir("away");
    std::fs::rename(&wals, &away).expect("moved");
    std::fs::create_dir(&wals).expect("a mount point");
    for setting in [None, Some("wals")] {
        scene.set_wal_dir(setting);
        let log = scene.refused_start();
        assert!(log.contains("is its disk mounted?"), "{log}");
    }
    std::fs::remove_dir(&wals).expect("nothing was written there");
    std::fs::rename(&away, &wals).expect("moved");
    scene.set_wal_dir(Some("wals"));
    scene.server.start();
    scene.check();

    // After a stop it can be removed.
    assert!(scene.server.terminate().success());
    scene.set_wal_dir(None);
    scene.server.start();
    scene.check();
    scene.write_and_kill();
    scene.server.start();
    scene.check();
    assert!(!files_with(&root.join("WALs"), "").is_empty());
    assert!(!root.join(".evenkeel.wal.dir").exists());

    // It is set again, and the logs in the root directory were not split. The old sequence ids in
    // the directory are greater than those of some edits.
    let old = files_with(&wals.join("data/default/t"), ".seqid");
    assert_eq!(old.len(), 2, "{old:?}");
    for file in old {
        std::fs::rename(&file, file.with_file_name("900000000.seqid")).expect("renamed");
    }
    scene.write_and_kill();
    scene.set_wal_dir(Some("wals"));
    scene.server.start();
    scene.check();
    scene.write_and_kill();
    scene.server.start();
    scene.check();
}

/// The servers of two root directories must not split each other's logs.
#[test]
fn a_directory_of_logs_belongs_to_one_server() {
    let mut scene = Scene::start(Some("wals"));
    let wals = scene.wal_dir("wals").display().to_string();
    let mut other = Server::new(&[("hbase.wal.dir", wals.as_str()), ("evenkeel.rootdir.lock.wait.ms", "0")]);
    let refusals = ["is in use by process", "are of the cluster"];
    for (is_alive, refusal) in [true, false].into_iter().zip(refusals) {
        if !is_alive {
            scene.write_and_kill();
        }
        let command = other.command(&[]);
        other.spawn(command);
        assert!(!other.exit().success());
        assert!(other.log().contains(refusal), "{}", other.log());
    }
    scene.server.start();
    scene.check();
}
