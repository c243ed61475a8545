//! A client that adds store files without end, to a table that compactions do not reduce: bulk
//! loads and flushes are rejected while descriptors remain for the log, and accepted again once
//! compactions have reduced the files.

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::{Connection, Put};
use evenkeel_common::{ColumnFamilyDescriptor, KeyValue, TableDescriptor, TableName};
use evenkeel_fs::LocalFileSystem;
use evenkeel_hfile::{HFileContext, HFileWriter, StoreFileMeta};
use evenkeel_protocol::pb;

use crate::common::{Server, TIMEOUT, raw, runtime};

const DESCRIPTORS: u32 = 256;
/// Half of the descriptors that connections cannot use, which are half of them.
const FILES_MAX: usize = 64;
const TOO_BUSY: &str = "org.apache.hadoop.hbase.RegionTooBusyException";

struct Target {
    server: Server,
    regionserver: TcpStream,
    admin: TcpStream,
    region: pb::RegionSpecifier,
    file: PathBuf,
}

impl Target {
    async fn new() -> (Self, Connection) {
        let mut server = Server::new(&[("evenkeel.memory.size", "256m")]);
        server.start_with_descriptors(DESCRIPTORS);
        let file = server.folder().join("loadable");
        let fs = LocalFileSystem::new();
        let mut writer = HFileWriter::create(&fs, &file, HFileContext::default()).expect("a new file");
        let cell = KeyValue::put(b"loaded", b"f", b"q", 1, b"value");
        writer.append(&cell.as_cell()).expect("in order");
        writer.finish(StoreFileMeta::default()).expect("written");
        let connection = server.connect().await;
        connection.admin().create_table(&table(false), &[]).await.expect("created");
        let region = connection.admin().regions(&name()).await.expect("regions")[0].region.name().clone();
        let port = server.port("hbase.regionserver.port");
        let region = pb::RegionSpecifier { r#type: 1, value: region };
        let admin = raw::connect_to(port, "AdminService");
        (Self { regionserver: raw::connect(port), admin, server, region, file }, connection)
    }

    /// The class of the exception, if the server replies with one.
    fn reply(stream: &mut TcpStream) -> Option<String> {
        let (header, _) = raw::reply(stream).expect("a reply");
        header.exception.map(|exception| exception.exception_class_name.unwrap_or_default())
    }

    fn load(&mut self) -> Option<String> {
        let request = pb::BulkLoadHFileRequest {
            region: self.region.clone(),
            family_path: vec![pb::bulk_load_h_file_request::FamilyPath {
                family: Bytes::from_static(b"f"),
                path: format!("file:{}", self.file.display()),
            }],
            assign_seq_num: Some(true),
            copy_file: Some(true),
            ..Default::default()
        };
        self.regionserver.write_all(&raw::call(1, "BulkLoadHFile", &request)).expect("sent");
        Self::reply(&mut self.regionserver)
    }

    fn administer(&mut self, call: &[u8]) -> Option<String> {
        self.admin.write_all(call).expect("sent");
        Self::reply(&mut self.admin)
    }

    fn flush(&mut self) -> Option<String> {
        let request = pb::FlushRegionRequest { region: self.region.clone(), ..Default::default() };
        self.administer(&raw::call(1, "FlushRegion", &request))
    }

    fn roll_log(&mut self) -> Option<String> {
        self.administer(&raw::call(1, "RollWALWriter", &pb::RollWalWriterRequest {}))
    }
}

fn name() -> TableName {
    "t".parse().expect("legal")
}

fn table(compacts: bool) -> TableDescriptor {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    TableDescriptor::new(name()).with("COMPACTION_ENABLED", &compacts.to_string()).with_family(family)
}

#[test]
fn a_client_cannot_take_all_descriptors_by_store_files() {
    let runtime = runtime();
    let (mut target, connection) = runtime.block_on(Target::new());
    let loads = (0..2 * FILES_MAX).map(|_| target.load()).collect::<Vec<_>>();
    let loaded = loads.iter().take_while(|exception| exception.is_none()).count();
    assert!((FILES_MAX / 2..=FILES_MAX).contains(&loaded), "{loaded} loads");
    assert!(loads.iter().flatten().all(|exception| exception == TOO_BUSY), "{loads:?}");
    assert!(loads.iter().flatten().count() > FILES_MAX / 2, "{loads:?}");

    let rows = connection.table(name());
    runtime.block_on(rows.put(Put::new("r").column("f", "q", "v"))).expect("written");
    assert_eq!(target.flush().as_deref(), Some(TOO_BUSY));
    assert_eq!(target.roll_log(), None, "a descriptor remains for the log");

    runtime.block_on(connection.admin().modify_table(&table(true))).expect("altered");
    runtime.block_on(connection.admin().compact_table(&name(), None, true)).expect("requested");
    let deadline = Instant::now() + TIMEOUT;
    while let Some(exception) = target.load() {
        assert!(Instant::now() < deadline, "not loaded after compactions: {exception}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(target.flush(), None);
    assert!(target.server.runs());
}
