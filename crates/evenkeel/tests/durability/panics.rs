//! A whole server with a bug that shows in one unit of work: that unit fails, its thread survives,
//! and everything else continues. If the unit cannot be undone, every waiting caller gets an error
//! and the server ends. No caller waits forever.
//!
//! The server runs in this process, on a file system whose calls panic on threads with a given
//! name.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::{ClientConfig, Connection, Error, Get, Put};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use evenkeel_fs::{Fault, FaultyFileSystem, Latch, LocalFileSystem, Op};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::mutation_proto::column_value::QualifierValue;
use evenkeel_protocol::pb::mutation_proto::{ColumnValue, MutationType};
use evenkeel_standalone::{Standalone, StopProgress};

use crate::common::{config, free_ports, in_process, raw, runtime};

const LOGS: &str = "/WALs/";
const UNFINISHED: &str = "/.tmp/";

struct Server {
    folder: tempfile::TempDir,
    ports: [u16; 5],
    settings: Vec<(&'static str, &'static str)>,
    fs: FaultyFileSystem,
    running: Option<Standalone>,
    asked_to_stop: Receiver<String>,
    runtime: tokio::runtime::Runtime,
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
        };
        server.start();
        server.create("t").expect("created");
        server
    }

    fn start(&mut self) {
        let conf = in_process(self.folder.path(), self.ports, &self.settings);
        self.fs = FaultyFileSystem::new(LocalFileSystem::new());
        let (ask, asked) = channel();
        self.asked_to_stop = asked;
        let stop = Arc::new(move |reason: &str| drop(ask.send(reason.to_owned())));
        let running = Standalone::start_on(Arc::new(self.fs.clone()), conf, stop);
        self.running = Some(running.expect("the server starts"));
    }

    async fn connect(&self) -> Connection {
        let bootstrap = format!("127.0.0.1:{}", self.ports[1]);
        let operation_timeout = Duration::from_secs(20);
        let config = ClientConfig { retries: 1, operation_timeout, ..config(&bootstrap) };
        Connection::connect(config).await.expect("the server answers")
    }

    fn create(&self, name: &str) -> Result<(), Error> {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let table = TableDescriptor::new(name.parse().expect("legal")).with_family(family);
        self.runtime.block_on(async { self.connect().await.admin().create_table(&table, &[]).await })
    }

    fn put(&self, row: &str) -> Result<(), Error> {
        let put = Put::new(row).column("f", "q", row);
        self.runtime.block_on(async { self.connect().await.table(name()).put(put).await })
    }

    fn has(&self, row: &str) -> Result<bool, Error> {
        let got =
            self.runtime.block_on(async { self.connect().await.table(name()).get(Get::new(row)).await });
        got.map(|result| result.value("f", "q").is_some())
    }

    fn value(&self, row: &str, qualifier: &str) -> Option<Vec<u8>> {
        let get = async { self.connect().await.table(name()).get(Get::new(row)).await };
        let result = self.runtime.block_on(get).expect("read");
        result.value("f", qualifier).map(<[u8]>::to_vec)
    }

    fn region(&self) -> pb::RegionSpecifier {
        let regions = async { self.connect().await.admin().regions(&name()).await };
        let regions = self.runtime.block_on(regions).expect("regions");
        pb::RegionSpecifier { r#type: 1, value: regions[0].region.name().clone() }
    }

    /// Sends a mutation once, on a new connection.
    fn mutate(&self, request: &pb::MutateRequest) -> Result<(), String> {
        let mut stream = raw::connect(self.ports[2]);
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        stream.write_all(&raw::call(1, "Mutate", request)).expect("sent");
        let (header, _) = raw::reply(&mut stream).map_err(|error| error.to_string())?;
        header.exception.map_or(Ok(()), |error| Err(error.stack_trace.unwrap_or_default()))
    }

    fn flush(&self) -> Result<(), Error> {
        self.runtime.block_on(async { self.connect().await.admin().flush_table(&name()).await })
    }

    fn assert_goes_on(&mut self, row: &str) {
        self.fs.clear();
        self.put(row).expect("written");
        self.flush().expect("flushed");
        assert!(self.has(row).expect("read"), "{row}");
        self.create(row).expect("DDL works");
        assert_eq!(self.asked_to_stop.try_recv().ok(), None, "it is no reason to stop");
    }

    fn stop(&mut self) -> Result<(), String> {
        self.running.take().map_or(Ok(()), Standalone::stop).map_err(|error| error.message().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.fs.clear();
        drop(self.stop());
    }
}

fn name() -> TableName {
    "t".parse().expect("legal")
}

/// An Increment by 1, or an Append of the same bytes, with a nonce.
fn operation(region: &pb::RegionSpecifier, row: &str, kind: MutationType, nonce: u64) -> pb::MutateRequest {
    let value = QualifierValue {
        qualifier: Some(Bytes::from_static(b"n")),
        value: Some(Bytes::copy_from_slice(&1_u64.to_be_bytes())),
        ..Default::default()
    };
    let column = ColumnValue { family: Bytes::from_static(b"f"), qualifier_value: vec![value] };
    let mutation = pb::MutationProto {
        row: Some(Bytes::copy_from_slice(row.as_bytes())),
        mutate_type: Some(kind as i32),
        column_value: vec![column],
        nonce: Some(nonce),
        ..Default::default()
    };
    pb::MutateRequest { region: region.clone(), mutation, condition: None, nonce_group: Some(7) }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// On every committing thread and at every place: the write fails without waiting, the server
/// requests a stop and ends, and acknowledged writes survive.
#[test]
fn a_panicking_log_commit_stops_the_server_without_loss() {
    for (op, hsync) in [(Op::Append, "false"), (Op::Flush, "false"), (Op::Sync, "true")] {
        let mut server = Server::started(&[("hbase.wal.hsync", hsync)]);
        server.put("before").expect("written");
        server.fs.inject(Fault::on(op, LOGS).panics());
        server.put("while").expect_err("nobody knows whether it is in the log");
        let started = Instant::now();
        server.put("after").expect_err("the log has failed");
        assert!(started.elapsed() < Duration::from_secs(20), "{op:?}: {:?}", started.elapsed());
        let reason = server.asked_to_stop.recv_timeout(Duration::from_secs(10)).expect("asks to be stopped");
        assert!(reason.contains("panicked"), "{op:?}: {reason}");
        assert!(server.has("before").expect("reads go on"));
        server.stop().expect_err("it could not go on");
        server.start();
        assert!(server.has("before").expect("read"), "{op:?}: acknowledged and lost");
        server.assert_goes_on("again");
    }
}

#[test]
fn an_archiver_panic_does_not_stop_the_server() {
    let mut server = Server::started(&[]);
    for op in [Op::Append, Op::Sync, Op::Rename, Op::Create] {
        server.fs.inject(Fault::on(op, LOGS).of_thread("wal-archiver").panics());
        server.put("a").expect("written");
        let roll = async {
            let connection = server.connect().await;
            for server in connection.admin().live_servers().await? {
                connection.admin().roll_wal(&server).await?;
            }
            Ok::<_, Error>(())
        };
        let _may_fail = server.runtime.block_on(roll);
        server.flush().expect("flushed");
        server.assert_goes_on(&format!("after_{op:?}"));
    }
    server.stop().expect("everything is flushed");
}

#[test]
fn a_panicking_flush_fails_and_is_retried() {
    // Periodic flushes, soon.
    let settings = [("hbase.regionserver.optionalcacheflushinterval", "1"), ("hbase.server.pause", "10")];
    let mut server = Server::started(&settings);
    for op in [Op::Create, Op::Append, Op::Sync, Op::Rename] {
        server.fs.inject(Fault::on(op, UNFINISHED).panics());
        server.put("a").expect("written");
        server.flush().expect_err("the bug");
        assert!(server.has("a").expect("read"));
        server.assert_goes_on(&format!("after_{op:?}"));
    }
    server.stop().expect("everything is flushed");
}

#[test]
fn a_panicking_compaction_fails_and_the_next_succeeds() {
    let mut server = Server::started(&[]);
    let compact = |server: &Server| {
        for row in 0..3 {
            server.put(&format!("row {row}")).expect("written");
            server.flush().expect("flushed");
        }
        let ask = async { server.connect().await.admin().compact_table(&name(), None, true).await };
        server.runtime.block_on(ask).expect("asked for");
    };
    let files = |server: &Server| {
        let table = server.folder.path().join("hbase/data/default/t");
        let regions = std::fs::read_dir(table).expect("the table").flatten();
        let files =
            |dir: std::fs::DirEntry| std::fs::read_dir(dir.path().join("f")).map_or(0, Iterator::count);
        regions.map(files).sum::<usize>()
    };
    for op in [Op::Create, Op::Append, Op::Rename] {
        server.fs.inject(Fault::on(op, UNFINISHED).of_thread("compact").panics());
        compact(&server);
        std::thread::sleep(Duration::from_millis(300));
        server.assert_goes_on(&format!("after_{op:?}"));
        compact(&server);
        until("the next compaction works", || files(&server) <= 1);
    }
    server.stop().expect("everything is flushed");
}

#[test]
fn a_panicking_procedure_fails_and_the_next_succeeds() {
    let mut server = Server::started(&[]);
    for (at, op) in [Op::Mkdirs, Op::Create, Op::Rename].into_iter().enumerate() {
        server.fs.inject(Fault::on(op, "").of_thread("procedure").times(64).panics());
        let table = format!("bug_{at}");
        let error = server.create(&table).expect_err("the bug").to_string();
        assert!(error.contains("hit a bug of the server"), "{error}");
        server.assert_goes_on(&format!("after_{op:?}"));
    }
    server.stop().expect("everything is flushed");
}

#[test]
fn a_panicking_call_fails_and_the_next_succeeds() {
    let mut server = Server::started(&[("hfile.block.cache.size", "0")]);
    server.put("a").expect("written");
    server.flush().expect("flushed");
    for thread in ["general", "rpc-conn"] {
        server.fs.inject(Fault::on(Op::Read, "/t/").of_thread(thread).always().panics());
        let started = Instant::now();
        let _one_of_them_reads = server.has("a");
        assert!(started.elapsed() < Duration::from_secs(20), "{thread}");
        server.assert_goes_on(&format!("after_{thread}"));
        assert!(server.has("a").expect("read"));
    }
    server.stop().expect("everything is flushed");
}

/// The nonce does not stay "running": the same call again is answered, is made once however often
/// it is sent, and the row's lock is free.
#[test]
fn an_operation_with_a_nonce_that_panics_leaves_its_nonce_and_row_to_the_next() {
    let mut server = Server::started(&[("hfile.block.cache.size", "0")]);
    let region = server.region();
    for (nonce, kind) in [(1, MutationType::Increment), (2, MutationType::Append)] {
        let row = format!("{kind:?}");
        server.put(&row).expect("written");
        let request = operation(&region, &row, kind, nonce);
        server.mutate(&request).expect("the cell to read");
        server.flush().expect("flushed");
        let request = operation(&region, &row, kind, 10 + nonce);
        server.fs.inject(Fault::on(Op::Read, "/t/").panics());
        server.mutate(&request).expect_err("the bug");
        server.fs.clear();
        for attempt in 0..3 {
            let started = Instant::now();
            server.mutate(&request).unwrap_or_else(|error| panic!("{kind:?}, attempt {attempt}: {error}"));
            assert!(started.elapsed() < Duration::from_secs(10), "{kind:?}: {:?}", started.elapsed());
        }
        let value = server.value(&row, "n");
        let expected = match kind {
            MutationType::Increment => 2_u64.to_be_bytes().to_vec(),
            _ => [1_u64.to_be_bytes(), 1_u64.to_be_bytes()].concat(),
        };
        assert_eq!(value, Some(expected), "{kind:?}: made once");
        server.assert_goes_on(&row);
    }
    server.stop().expect("everything is flushed");
}

#[test]
fn a_panicking_chore_runs_again() {
    let mut server = Server::started(&[("hbase.master.cleaner.interval", "50")]);
    let latch = Latch::new();
    server.fs.inject(Fault::on(Op::List, "").of_thread("master-chore").times(2).panics());
    server.fs.inject(Fault::on(Op::List, "").of_thread("master-chore").waits_for(&latch));
    assert_eq!(latch.wait_for_arrival(), "master-chore", "after two that panicked");
    latch.open();
    server.assert_goes_on("after");
    server.stop().expect("everything is flushed");
}

#[test]
fn stop_progress_names_the_current_step() {
    let mut server = Server::started(&[("hbase.wal.hsync", "true")]);
    server.put("before").expect("written");
    let latch = Latch::new();
    server.fs.inject(Fault::on(Op::Sync, LOGS).waits_for(&latch));
    let (running, progress) = (server.running.take().expect("it runs"), StopProgress::default());
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| running.stop_with(&progress));
        latch.wait_for_arrival();
        until("it has come as far", || progress.step().starts_with("closing region"));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!stop.is_finished());
        latch.open();
        stop.join().expect("no panic").expect("everything is flushed");
    });
    assert_eq!(progress.step(), "");
}
