//! Admin calls that wait do not delay hbase:meta: while the file system answers no call, many calls
//! of one kind are in flight, and another client's Get and scan of hbase:meta are answered.
//!
//! There are more calls than priority handlers (20), and none of them returns before the file
//! system answers. So a call that waits for the file system on a priority handler is detected,
//! regardless of the reason.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::{Connection, Put};
use evenkeel_common::{ColumnFamilyDescriptor, Configuration, TableDescriptor, TableName};
use evenkeel_fs::{Fault, FaultyFileSystem, Latch, LocalFileSystem};
use evenkeel_protocol::pb;
use evenkeel_standalone::Standalone;

use crate::common::{PORT_KEYS, block_on, config, free_ports, raw};
use crate::requests::{ADMIN_SERVICES, HBCK_SERVICE, TableTarget, methods};

/// In-flight calls of each kind: three times the priority handlers.
const CALLS: u32 = 60;
/// The time until all of them have a handler, or wait for one.
const BEGUN: Duration = Duration::from_millis(40);
/// The time limit for a reply of hbase:meta, on a busy machine. A call that waits for a handler
/// is never answered.
const SOON: Duration = Duration::from_secs(4);

const META: &[u8] = b"hbase:meta,,1";

/// A Get and a scan of hbase:meta; false if there was no reply.
fn look_up(stream: &mut TcpStream) -> bool {
    let region = pb::RegionSpecifier { r#type: 1, value: Bytes::from_static(META) };
    let get =
        pb::Get { row: Bytes::from_static(b"t,,"), closest_row_before: Some(true), ..Default::default() };
    let scan = pb::ScanRequest {
        region: Some(region.clone()),
        scan: Some(pb::Scan::default()),
        number_of_rows: Some(10),
        close_scanner: Some(true),
        ..Default::default()
    };
    let calls = [raw::call(1, "Get", &pb::GetRequest { region, get }), raw::call(2, "Scan", &scan)].concat();
    stream.write_all(&calls).expect("sent");
    stream.set_read_timeout(Some(SOON)).expect("set");
    (0..2).all(|_| raw::reply(stream).is_ok())
}

/// A server whose file system can stop answering.
struct StalledDisk {
    fs: FaultyFileSystem,
    ports: [u16; 5],
    server: Standalone,
    _folder: tempfile::TempDir,
}

impl StalledDisk {
    fn new() -> Self {
        let (folder, ports) = (tempfile::tempdir().expect("a temporary directory"), free_ports());
        let fs = FaultyFileSystem::new(LocalFileSystem::new());
        let mut conf = Configuration::with_system_properties(Default::default());
        conf.set("hbase.rootdir", format!("file://{}", folder.path().join("hbase").display()));
        conf.set("hbase.tmp.dir", folder.path().join("tmp").display().to_string());
        conf.set("evenkeel.memory.size", "256m");
        // Indexes of several levels, which are not cached.
        conf.set("hfile.index.block.max.size", "256");
        conf.set("hfile.block.cache.size", "0");
        PORT_KEYS.iter().zip(ports).for_each(|(key, port)| conf.set(*key, port.to_string()));
        let stop = Arc::new(|reason: &str| panic!("the server asks to be stopped: {reason}"));
        let server = Standalone::start_on(Arc::new(fs.clone()), conf, stop).expect("the server starts");
        Self { fs, ports, server, _folder: folder }
    }

    /// A table with a file of several blocks, and unflushed cells.
    fn target(&self) -> TableTarget {
        let name: TableName = "t".parse().expect("legal");
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("BLOCKSIZE", "1024");
        let table = TableDescriptor::new(name.clone()).with_family(family);
        block_on(async {
            let bootstrap = format!("127.0.0.1:{}", self.ports[1]);
            let connection = Connection::connect(config(&bootstrap)).await.expect("the server answers");
            let admin = connection.admin();
            admin.create_table(&table, &[]).await.expect("created");
            let rows = connection.table(name.clone());
            let put = |n: u32| Put::new(format!("r{n:05}")).column("f", "q", vec![b'v'; 500]);
            rows.put_all((0..200).map(put)).await.expect("written");
            admin.flush_table(&name).await.expect("flushed");
            rows.put_all((0..5).map(put)).await.expect("written");
            let region = admin.regions(&name).await.expect("regions")[0].region.clone();
            TableTarget { table, region }
        })
    }

    /// Returns true if hbase:meta answers while this number of calls of a method is in flight and
    /// the file system answers no call.
    fn meta_answers_beside(&self, service: &str, method: &str, request: &[u8]) -> bool {
        let port = if service == "AdminService" { self.ports[2] } else { self.ports[1] };
        let mut calls = raw::connect_to(port, service);
        let mut meta = raw::connect_to(self.ports[2], "ClientService");
        assert!(look_up(&mut meta), "before {method}");
        let latch = Latch::new();
        self.fs.inject(Fault::on_any("").always().waits_for(&latch));
        let all: Vec<u8> = (0..CALLS).flat_map(|id| raw::call_of_bytes(id, method, request)).collect();
        calls.write_all(&all).expect("sent");
        sleep(BEGUN);
        let answers = look_up(&mut meta);
        latch.open();
        self.fs.clear();
        calls.set_read_timeout(Some(crate::common::TIMEOUT)).expect("set");
        (0..CALLS).for_each(|_| drop(raw::reply(&mut calls).expect("answered in the end")));
        answers
    }
}

#[test]
fn hbase_meta_responds_while_admin_calls_wait_for_disk() {
    let stalled = StalledDisk::new();
    let target = stalled.target();
    let (mut tried, mut failed) = (0, Vec::new());
    let began = Instant::now();
    for (service, proto) in ADMIN_SERVICES.into_iter().chain([HBCK_SERVICE]) {
        for method in methods(service, proto) {
            let request = target.request(method);
            if !stalled.meta_answers_beside(service, method, &request) {
                failed.push(method);
            }
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried} methods");
    println!("{tried} methods in {:?}", began.elapsed());
    stalled.server.stop().expect("stops");
    assert!(failed.is_empty(), "hbase:meta waits behind {failed:?}");
}
