//! A whole server on a disk with injected faults: full, with errors, slow, with directories that
//! vanish. Each time: a clear error, no acknowledged write lost, and service again when the fault
//! has ended.
//!
//! The server runs in this process, on a file system with scripted faults; its clients use sockets.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use evenkeel_client::{ClientConfig, Connection, Error, Get, Put, Table};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use evenkeel_fs::{Fault, FaultyFileSystem, Latch, LocalFileSystem, Op};
use evenkeel_standalone::Standalone;

use crate::common::{config, free_ports, in_process, runtime};

/// In the paths of logs only.
const LOGS: &str = "/WALs/";
/// In the paths of unfinished store files.
const UNFINISHED: &str = "/.tmp/";

struct Server {
    folder: tempfile::TempDir,
    ports: [u16; 5],
    settings: Vec<(&'static str, &'static str)>,
    fs: FaultyFileSystem,
    running: Option<Standalone>,
    /// The reasons of the server's stop requests.
    asked_to_stop: Receiver<String>,
    runtime: tokio::runtime::Runtime,
    acknowledged: Vec<String>,
    refused: Vec<String>,
}

impl Server {
    fn started(settings: &[(&'static str, &'static str)]) -> Self {
        let mut server = Self {
            folder: tempfile::tempdir().expect("a temporary directory"),
            ports: free_ports(),
            settings: settings.to_vec(),
            fs: FaultyFileSystem::new(LocalFileSystem::new()),
            running: None,
            asked_to_stop: channel().1,
            runtime: runtime(),
            acknowledged: Vec::new(),
            refused: Vec::new(),
        };
        server.start();
        let name = name();
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let table = TableDescriptor::new(name).with_family(family);
        let create = async { server.connect().await.admin().create_table(&table, &[]).await };
        server.runtime.block_on(create).expect("created");
        server
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("hbase")
    }

    /// Starts on a sound disk.
    fn start(&mut self) {
        let conf = in_process(self.folder.path(), self.ports, &self.settings);
        self.fs = FaultyFileSystem::new(LocalFileSystem::new());
        let (ask, asked) = channel();
        self.asked_to_stop = asked;
        let stop = Arc::new(move |reason: &str| drop(ask.send(reason.to_owned())));
        let running = Standalone::start_on(Arc::new(self.fs.clone()), conf, stop);
        self.running = Some(running.expect("the server starts"));
    }

    /// The server dies: its later writes do not reach the disk.
    fn kill(&mut self) {
        self.fs.cut_power_after(0);
        if let Some(running) = self.running.take() {
            drop(running.stop());
        }
    }

    /// A client that gives up on persistent errors.
    async fn connect(&self) -> Connection {
        let bootstrap = format!("127.0.0.1:{}", self.ports[1]);
        let operation_timeout = Duration::from_secs(20);
        let config = ClientConfig { retries: 2, operation_timeout, ..config(&bootstrap) };
        Connection::connect(config).await.expect("the server answers")
    }

    fn table(&self) -> Table {
        self.runtime.block_on(self.connect()).table(name())
    }

    /// Writes a row, and records the outcome.
    fn put(&mut self, row: &str) -> Result<(), Error> {
        let table = self.table();
        let put = table.put(Put::new(row).column("f", "q", row));
        let outcome = self.runtime.block_on(put);
        let said = if outcome.is_ok() { &mut self.acknowledged } else { &mut self.refused };
        said.push(row.to_owned());
        outcome
    }

    /// Writes a row, which must be refused with this text.
    fn put_refused(&mut self, row: &str, words: &str) {
        let error = self.put(row).expect_err("refused");
        assert!(error.to_string().contains(words), "{error}");
    }

    fn has(&self, row: &str) -> bool {
        let result = self.runtime.block_on(self.table().get(Get::new(row)));
        result.expect("reads go on").value("f", "q").is_some_and(|value| value == row.as_bytes())
    }

    fn flush(&self) -> Result<(), Error> {
        self.runtime.block_on(async { self.connect().await.admin().flush_table(&name()).await })
    }

    /// Checks that all acknowledged rows are there, and no refused one.
    fn check(&self) {
        let missing: Vec<_> = self.acknowledged.iter().filter(|row| !self.has(row)).collect();
        assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
        let extra: Vec<_> = self.refused.iter().filter(|row| self.has(row)).collect();
        assert!(extra.is_empty(), "refused and there: {extra:?}");
    }

    /// Checks immediately, and again after the server has died and restarted.
    fn check_also_after_death(&mut self) {
        self.check();
        self.kill();
        self.start();
        self.check();
        self.put("after").expect("writes are taken");
    }

    fn log_files(&self) -> usize {
        let dirs = std::fs::read_dir(self.root().join("WALs")).expect("logs").flatten();
        dirs.map(|dir| std::fs::read_dir(dir.path()).map_or(0, Iterator::count)).sum()
    }

    /// The directory of the table's family.
    fn family_dir(&self) -> PathBuf {
        let table = self.root().join("data/default").join(name().qualifier());
        let mut dirs =
            std::fs::read_dir(&table).expect("the table").flatten().map(|dir| dir.path().join("f"));
        dirs.find(|dir| dir.is_dir()).expect("a region")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn name() -> TableName {
    "t".parse().expect("legal")
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Opens the latch when the test ends, in any way.
struct Opened(Latch);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn move_away(dir: &Path) -> PathBuf {
    let aside = dir.with_extension("aside");
    std::fs::rename(dir, &aside).expect("moved");
    aside
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space() {
    let mut server = Server::started(&[]);
    server.put("before").expect("written");
    for op in [Op::Append, Op::Create] {
        server.fs.inject(Fault::on(op, LOGS).always().fails(ErrorKind::StorageFull));
    }
    for row in ["full 1", "full 2"] {
        server.put_refused(row, "No space left on device");
    }
    assert!(server.has("before"));
    server.fs.clear();
    server.put("space").expect("there is space");

    server.fs.inject(Fault::on(Op::Append, UNFINISHED).always().fails(ErrorKind::StorageFull));
    server.fs.inject(Fault::on(Op::Sync, UNFINISHED).always().fails(ErrorKind::StorageFull));
    // Earlier rows may be flushed already, because the log requests a flush when it becomes
    // writable again.
    server.put("only flushes fail").expect("written");
    let error = server.flush().expect_err("no space for a store file").to_string();
    assert!(error.to_lowercase().contains("no s"), "{error}");
    server.check();
    server.fs.clear();
    server.flush().expect("flushed");
    server.check_also_after_death();
}

#[test]
fn write_errors_roll_the_log_or_fail_the_write() {
    let mut server = Server::started(&[]);
    server.put("before").expect("written");
    let files = server.log_files();
    server.fs.inject(Fault::on(Op::Append, LOGS).fails(ErrorKind::Other));
    server.put("in a new file").expect("nobody hears of it");
    assert_eq!(server.log_files(), files + 1);
    server.fs.inject(Fault::on(Op::Flush, LOGS).always().fails(ErrorKind::Other));
    for row in ["bad 1", "bad 2"] {
        server.put_refused(row, "the WAL cannot be written");
    }
    assert!(server.has("before") && server.has("in a new file"));
    server.fs.clear();
    server.put("sound").expect("the disk is sound again");
    assert!(server.asked_to_stop.try_recv().is_err(), "it was no reason to stop");
    server.check_also_after_death();
}

#[test]
fn sync_errors_roll_the_log_or_fail_the_write() {
    let mut server = Server::started(&[("hbase.wal.hsync", "true")]);
    server.put("before").expect("written");
    let files = server.log_files();
    server.fs.inject(Fault::on(Op::Sync, LOGS).fails(ErrorKind::Other));
    server.put("in a new file").expect("nobody hears of it");
    assert_eq!(server.log_files(), files + 1);
    server.fs.inject(Fault::on(Op::Sync, LOGS).always().fails(ErrorKind::Other));
    let error = server.put("bad").expect_err("refused").to_string();
    assert!(error.contains("the WAL cannot be written"), "{error}");
    assert!(server.has("before") && !server.has("bad"));
    server.fs.clear();
    server.put("sound").expect("the disk is sound again");
    server.check();
    // A row that could not be synced may still be in a file, and then reappears after a death.
    server.refused.clear();
    server.check_also_after_death();
}

#[test]
fn a_slow_sync_delays_writes_and_rolls_the_log() {
    let settings = [("hbase.wal.hsync", "true"), ("hbase.regionserver.wal.roll.on.sync.ms", "300")];
    let mut server = Server::started(&settings);
    server.put("before").expect("written");
    let (table, files) = (server.table(), server.log_files());
    server.fs.inject(Fault::on(Op::Sync, LOGS).delays(Duration::from_millis(500)));
    let started = Instant::now();
    let (written, reads) = server.runtime.block_on(async {
        let put = table.put(Put::new("slow").column("f", "q", "slow"));
        let get = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let began = Instant::now();
            table.get(Get::new("before")).await.expect("reads do not wait");
            began.elapsed()
        };
        tokio::join!(put, get)
    });
    written.expect("slow, but sound");
    assert!(started.elapsed() >= Duration::from_millis(500));
    assert!(reads < Duration::from_millis(400), "a read took {reads:?}");
    server.acknowledged.push("slow".into());
    let deadline = Instant::now() + Duration::from_secs(10);
    while server.log_files() == files {
        assert!(Instant::now() < deadline, "the log does not roll");
        std::thread::sleep(Duration::from_millis(5));
    }
    let began = Instant::now();
    server.put("fast").expect("written");
    assert!(began.elapsed() < Duration::from_millis(400), "{:?}", began.elapsed());
    server.check_also_after_death();
}

/// HBase's RegionServer aborts: a sync that may still succeed cannot be undone. This server does
/// not wait for it to stop either.
#[test]
fn a_sync_that_does_not_end_is_an_error_and_stops_the_server() {
    let settings = [("hbase.wal.hsync", "true"), ("hbase.regionserver.wal.sync.timeout", "500")];
    let mut server = Server::started(&settings);
    server.put("before").expect("written");
    let latch = Opened(Latch::new());
    server.fs.inject(Fault::on(Op::Sync, LOGS).waits_for(&latch.0));
    server.put_refused("hangs", "WAL system stuck");
    assert!(server.has("before"));
    let reason = server.asked_to_stop.recv_timeout(Duration::from_secs(10)).expect("asks to be stopped");
    assert!(reason.contains("WAL sync timeout"), "{reason}");
    server.kill();
    drop(latch);
    server.start();
    // The row may be in the log, as in HBase.
    server.refused.clear();
    server.check();
    server.put("after").expect("writes are taken");
}

/// Gets of one connection, which one thread serves: a Get that waits for a disk does not delay
/// those that need no disk.
#[test]
fn reads_that_wait_for_a_disk_do_not_block_others() {
    let mut server = Server::started(&[]);
    server.put("cold").expect("written");
    server.put("cold, too").expect("written");
    server.flush().expect("flushed");
    server.put("warm").expect("written");
    let latch = Latch::new();
    let _opened = Opened(latch.clone());
    let connection = server.runtime.block_on(server.connect());
    let table = connection.table(name());
    server.runtime.block_on(async {
        // A table without files.
        let other: TableName = "other".parse().expect("legal");
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let descriptor = TableDescriptor::new(other.clone()).with_family(family);
        connection.admin().create_table(&descriptor, &[]).await.expect("created");
        let warm = connection.table(other);
        warm.put(Put::new("warm").column("f", "q", "warm")).await.expect("written");
        connection.locate(&name(), b"cold", false).await.expect("located");

        server.fs.inject(Fault::on(Op::Read, "/t/").always().waits_for(&latch));
        let (one, two, three) = (table.clone(), table.clone(), table.clone());
        let cold = tokio::spawn(async move { one.get(Get::new("cold")).await });
        let waiting = latch.clone();
        let thread = tokio::task::spawn_blocking(move || waiting.wait_for_arrival()).await.expect("no panic");
        assert!(thread.starts_with("general-"), "{thread} waits for the disk");
        let same_block = tokio::spawn(async move { two.get(Get::new("cold, too")).await });
        let batch = tokio::spawn(async move { three.get_all(["cold", "cold, too"].map(Get::new)).await });
        for _ in 0..20 {
            let result = warm.get(Get::new("warm")).await.expect("answered");
            assert_eq!(result.value("f", "q"), Some(&b"warm"[..]));
            let both = warm.get_all(["warm", "nowhere"].map(Get::new)).await;
            assert!(both.iter().all(Result::is_ok), "{both:?}");
        }
        assert!(!cold.is_finished() && !same_block.is_finished() && !batch.is_finished());
        latch.open();
        let cold = cold.await.expect("no panic").expect("read");
        assert_eq!(cold.value("f", "q"), Some(&b"cold"[..]));
        let same_block = same_block.await.expect("no panic").expect("read");
        assert_eq!(same_block.value("f", "q"), Some(&b"cold, too"[..]));
        let batch = batch.await.expect("no panic");
        for (result, row) in batch.into_iter().zip(["cold", "cold, too"]) {
            assert_eq!(result.expect("read").value("f", "q"), Some(row.as_bytes()));
        }
    });
    server.check();
}

#[test]
fn a_missing_store_directory_fails_flushes_but_loses_nothing() {
    let mut server = Server::started(&[]);
    server.put("flushed").expect("written");
    server.flush().expect("flushed");
    server.put("in memory").expect("written");
    let dir = server.family_dir();
    let aside = move_away(&dir);
    let error = server.flush().expect_err("no directory").to_string();
    assert!(error.contains("No such file or directory") && error.contains("/t/"), "{error}");
    server.put("meanwhile").expect("the log is sound");
    server.check();
    std::fs::rename(aside, dir).expect("back");
    server.flush().expect("flushed");
    server.check_also_after_death();
}

#[test]
fn a_deleted_tmp_directory_is_recreated() {
    let mut server = Server::started(&[]);
    server.put("before").expect("written");
    server.flush().expect("flushed");
    let unfinished = server.family_dir().parent().expect("a region").join(".tmp");
    std::fs::remove_dir_all(&unfinished).expect("removed");
    server.put("no directory").expect("written");
    server.flush().expect("flushed");
    assert!(unfinished.is_dir());

    // With the file of a flush in it.
    server.put("no file").expect("written");
    let latch = Opened(Latch::new());
    server.fs.inject(Fault::on(Op::Rename, UNFINISHED).waits_for(&latch.0));
    let connection = server.runtime.block_on(server.connect());
    let flushed = server.runtime.block_on(async {
        let flush = tokio::spawn(async move { connection.admin().flush_table(&name()).await });
        let waiting = latch.0.clone();
        tokio::task::spawn_blocking(move || waiting.wait_for_arrival()).await.expect("no panic");
        std::fs::remove_dir_all(&unfinished).expect("removed");
        latch.0.open();
        flush.await.expect("no panic")
    });
    let error = flushed.expect_err("its file is gone").to_string();
    assert!(error.contains("No such file or directory"), "{error}");
    server.check();
    server.flush().expect("flushed");
    server.check_also_after_death();
}

#[test]
fn a_deleted_old_wals_directory_is_recreated() {
    let mut server = Server::started(&[]);
    let old = server.root().join("oldWALs");
    for row in ["1", "2"] {
        std::fs::remove_dir_all(&old).expect("removed");
        server.put(row).expect("written");
        // The log continues in a new file, and the edits of the old one are flushed.
        server.fs.inject(Fault::on(Op::Append, LOGS).fails(ErrorKind::Other));
        server.put(&format!("{row}, in a new file")).expect("nobody hears of it");
        server.flush().expect("flushed");
        until("no log is archived", || std::fs::read_dir(&old).is_ok_and(|files| files.count() > 0));
    }
    server.put("in the log").expect("written");
    server.kill();
    std::fs::remove_dir_all(&old).expect("removed");
    server.start();
    server.check_also_after_death();
}

#[test]
fn a_deleted_archive_is_recreated() {
    let mut server = Server::started(&[]);
    let (archive, dir) = (server.root().join("archive"), server.family_dir());
    let files = |dir: &Path| std::fs::read_dir(dir).map_or(0, |files| files.flatten().count());
    let archived =
        archive.join("data/default/t").join(dir.parent().expect("a region").file_name().expect("named"));
    for round in ["1", "2"] {
        drop(std::fs::remove_dir_all(&archive));
        for row in ["a", "b"] {
            server.put(&format!("{row}{round}")).expect("written");
            server.flush().expect("flushed");
        }
        let before = files(&dir);
        assert!(before > 1);
        server.runtime.block_on(async {
            let connection = server.connect().await;
            connection.admin().compact_table(&name(), None, true).await.expect("asked for");
        });
        until("the files are not compacted", || files(&dir) == 1);
        until("they are not archived", || files(&archived.join("f")) == before);
        server.check();
    }
    server.check_also_after_death();
}

/// A master that considers a server dead removes its log directory: the server must not continue.
#[test]
fn a_server_without_its_wal_directory_stops() {
    let mut server = Server::started(&[]);
    for row in ["1", "2", "3"] {
        server.put(row).expect("written");
    }
    let running = server.running.as_ref().expect("runs");
    let dir = server.root().join("WALs").join(running.name().to_string());
    let aside = move_away(&dir);
    server.put("in the file that was moved").expect("written");
    server.fs.inject(Fault::on(Op::Append, LOGS).fails(ErrorKind::Other));
    server.put_refused("gone", "WAL");
    let reason = server.asked_to_stop.recv_timeout(Duration::from_secs(10)).expect("asks to be stopped");
    assert!(reason.contains("WAL") && reason.contains("No such file or directory"), "{reason}");
    server.kill();
    std::fs::rename(aside, dir).expect("back");
    server.start();
    server.check();
    server.put("after").expect("writes are taken");
}
