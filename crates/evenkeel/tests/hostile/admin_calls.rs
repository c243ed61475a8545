//! Admin calls that wait do not delay hbase:meta: while the file system answers no call, many calls
//! of one kind are in flight, and another client's Get and scan of hbase:meta are answered.
//!
//! There are more calls than priority handlers (20), and none of them returns before the file
//! system answers. So a call that waits for the file system on a priority handler is detected,
//! regardless of the reason.

#[path = "../common/mod.rs"]
mod common;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{PORT_KEYS, block_on, config, free_ports, raw};
use evenkeel_client::{Connection, Put};
use evenkeel_common::{ColumnFamilyDescriptor, Configuration, RegionInfo, TableDescriptor, TableName};
use evenkeel_fs::{Fault, FaultyFileSystem, Latch, LocalFileSystem};
use evenkeel_protocol::pb;
use evenkeel_standalone::Standalone;
use prost::Message;

/// In-flight calls of each kind: three times the priority handlers.
const CALLS: u32 = 60;
/// The time until all of them have a handler, or wait for one.
const BEGUN: Duration = Duration::from_millis(40);
/// The time limit for an answer of hbase:meta, on a busy machine. A call that waits for a handler
/// is never answered.
const SOON: Duration = Duration::from_secs(4);

const META: &[u8] = b"hbase:meta,,1";

/// The object of each kind of call.
struct Target {
    table: TableDescriptor,
    region: RegionInfo,
}

impl Target {
    fn name(&self) -> pb::TableName {
        self.table.name().into()
    }

    fn region(&self) -> pb::RegionSpecifier {
        pb::RegionSpecifier { r#type: 1, value: self.region.name().clone() }
    }

    fn snapshot(&self) -> pb::SnapshotDescription {
        pb::SnapshotDescription {
            name: "s".to_owned(),
            table: Some(self.table.name().to_string()),
            ..pb::SnapshotDescription::default()
        }
    }

    fn procedure(&self, signature: &str, instance: &str) -> pb::ProcedureDescription {
        let table = self.table.name().to_string();
        pb::ProcedureDescription {
            signature: signature.to_owned(),
            instance: Some(instance.to_owned()),
            configuration: vec![pb::NameStringPair { name: "table".to_owned(), value: table }],
            ..pb::ProcedureDescription::default()
        }
    }

    /// A method's request; empty for methods that need no parameter.
    fn request(&self, method: &str) -> Vec<u8> {
        let (table_name, region) = (self.name(), self.region());
        let family = pb::ColumnFamilySchema::from(&ColumnFamilyDescriptor::new(b"g").expect("legal"));
        let table_schema = pb::TableSchema::from(&self.table);
        match method {
            "FlushRegion" => pb::FlushRegionRequest { region, ..Default::default() }.encode_to_vec(),
            "CompactRegion" => {
                pb::CompactRegionRequest { region, major: Some(true), ..Default::default() }.encode_to_vec()
            }
            "GetRegionInfo" => {
                pb::GetRegionInfoRequest { region, compaction_state: Some(true), best_split_row: Some(true) }
                    .encode_to_vec()
            }
            "GetStoreFile" => pb::GetStoreFileRequest { region, ..Default::default() }.encode_to_vec(),
            "ClearRegionBlockCache" => {
                pb::ClearRegionBlockCacheRequest { region: vec![region] }.encode_to_vec()
            }
            "FlushTable" => pb::FlushTableRequest { table_name, ..Default::default() }.encode_to_vec(),
            "CreateTable" => pb::CreateTableRequest { table_schema, ..Default::default() }.encode_to_vec(),
            "ModifyTable" => {
                pb::ModifyTableRequest { table_name, table_schema, ..Default::default() }.encode_to_vec()
            }
            "AddColumn" => pb::AddColumnRequest { table_name, column_families: family, ..Default::default() }
                .encode_to_vec(),
            "ModifyColumn" => {
                pb::ModifyColumnRequest { table_name, column_families: family, ..Default::default() }
                    .encode_to_vec()
            }
            "DeleteColumn" => {
                let column_name = Bytes::from_static(b"g");
                pb::DeleteColumnRequest { table_name, column_name, ..Default::default() }.encode_to_vec()
            }
            "SplitRegion" => pb::SplitTableRegionRequest {
                region_info: (&self.region).into(),
                split_row: Some(Bytes::from_static(b"m")),
                nonce_group: None,
                nonce: None,
            }
            .encode_to_vec(),
            "MergeTableRegions" => {
                let region = vec![region.clone(), region];
                pb::MergeTableRegionsRequest { region, ..Default::default() }.encode_to_vec()
            }
            "MoveRegion" => pb::MoveRegionRequest { region, dest_server_name: None }.encode_to_vec(),
            "AssignRegion" => pb::AssignRegionRequest { region, ..Default::default() }.encode_to_vec(),
            "UnassignRegion" => pb::UnassignRegionRequest { region, ..Default::default() }.encode_to_vec(),
            "Snapshot" => {
                pb::SnapshotRequest { snapshot: self.snapshot(), ..Default::default() }.encode_to_vec()
            }
            "IsSnapshotDone" => pb::IsSnapshotDoneRequest { snapshot: Some(self.snapshot()) }.encode_to_vec(),
            "DeleteSnapshot" => pb::DeleteSnapshotRequest { snapshot: self.snapshot() }.encode_to_vec(),
            "RestoreSnapshot" => {
                pb::RestoreSnapshotRequest { snapshot: self.snapshot(), ..Default::default() }.encode_to_vec()
            }
            "ExecProcedure" | "ExecProcedureWithRet" => {
                let procedure = self.procedure("flush-table-proc", &self.table.name().to_string());
                pb::ExecProcedureRequest { procedure }.encode_to_vec()
            }
            "IsProcedureDone" => {
                let procedure = Some(self.procedure("online-snapshot", "s"));
                pb::IsProcedureDoneRequest { procedure }.encode_to_vec()
            }
            "EnableTable" | "DisableTable" | "DeleteTable" | "truncateTable" | "GetTableState" => {
                // All of these have one field, with the same number.
                pb::GetTableStateRequest { table_name }.encode_to_vec()
            }
            "GetSchemaAlterStatus" | "getLastMajorCompactionTimestamp" => {
                pb::GetTableStateRequest { table_name }.encode_to_vec()
            }
            "GetNamespaceDescriptor" | "ListTableNamesByNamespace" | "ListTableDescriptorsByNamespace" => {
                pb::GetNamespaceDescriptorRequest { namespace_name: "default".to_owned() }.encode_to_vec()
            }
            "DeleteNamespace" => {
                pb::DeleteNamespaceRequest { namespace_name: "n".to_owned(), ..Default::default() }
                    .encode_to_vec()
            }
            "CreateNamespace" | "ModifyNamespace" => {
                let namespace_descriptor =
                    pb::NamespaceDescriptor { name: Bytes::from_static(b"n"), ..Default::default() };
                pb::CreateNamespaceRequest { namespace_descriptor, ..Default::default() }.encode_to_vec()
            }
            _ => Vec::new(),
        }
    }
}

/// These end the server, or stop a part of it.
const LEFT_OUT: [&str; 3] = ["Shutdown", "StopMaster", "StopServer"];

/// Names of a service's methods, from its .proto file.
fn methods(proto: &'static str) -> impl Iterator<Item = &'static str> {
    let names = proto.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
    names.map(str::trim).filter(|name| !LEFT_OUT.contains(name))
}

fn connect(port: u16, service: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    stream.write_all(&raw::opening(&raw::connection_header(service))).expect("sent");
    stream
}

/// A Get and a scan of hbase:meta; false if there was no answer.
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

struct Stage {
    fs: FaultyFileSystem,
    ports: [u16; 5],
    server: Standalone,
    _folder: tempfile::TempDir,
}

impl Stage {
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
    fn target(&self) -> Target {
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
            Target { table, region }
        })
    }

    /// Returns true if hbase:meta answers while this number of calls of a method is in flight and
    /// the file system answers no call.
    fn meta_answers_beside(&self, service: &str, method: &str, request: &[u8]) -> bool {
        let port = if service == "MasterService" { self.ports[1] } else { self.ports[2] };
        let mut calls = connect(port, service);
        let mut meta = connect(self.ports[2], "ClientService");
        assert!(look_up(&mut meta), "before {method}");
        let latch = Latch::new();
        self.fs.inject(Fault::on_any("").always().waits_for(&latch));
        let all: Vec<u8> = (0..CALLS).flat_map(|id| raw::call_of_bytes(id, method, request)).collect();
        calls.write_all(&all).expect("sent");
        sleep(BEGUN);
        let answers = look_up(&mut meta);
        latch.open();
        self.fs.clear();
        calls.set_read_timeout(Some(common::TIMEOUT)).expect("set");
        (0..CALLS).for_each(|_| drop(raw::reply(&mut calls).expect("answered in the end")));
        answers
    }
}

#[test]
fn hbase_meta_responds_while_admin_calls_wait_for_disk() {
    let stage = Stage::new();
    let target = stage.target();
    let services = [
        ("AdminService", include_str!("../../../protocol/proto/Admin.proto")),
        ("MasterService", include_str!("../../../protocol/proto/Master.proto")),
    ];
    let (mut tried, mut failed) = (0, Vec::new());
    let began = Instant::now();
    for (service, proto) in services {
        for method in methods(proto) {
            let request = target.request(method);
            if !stage.meta_answers_beside(service, method, &request) {
                failed.push(method);
            }
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried} methods");
    println!("{tried} methods in {:?}", began.elapsed());
    stage.server.stop().expect("stops");
    assert!(failed.is_empty(), "hbase:meta waits behind {failed:?}");
}
