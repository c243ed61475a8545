//! A small server that speaks HBase's RPC: registry, hbase:meta and one table of one region that
//! answers every Get with one cell, except while it stalls.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::ClientConfig;
use evenkeel_common::{ColumnFamilyDescriptor, KeyValue, RegionInfo, ServerName, TableDescriptor, TableName};
use evenkeel_pe::Target;
use evenkeel_protocol::{PB_MAGIC, pb};
use evenkeel_rpc::{Call, Respond, Responder, RpcServer, RpcServerConfig, RpcServerHandle, Service};
use prost::Message;

const PERIOD: Duration = Duration::from_secs(1);
const STALL: Duration = Duration::from_millis(200);
const TABLE: &str = "TestTable";

/// The times at which the server's only thread is blocked.
#[allow(dead_code, reason = "not all who use the fake have it stall")]
pub enum Stalls {
    Never,
    /// For [`STALL`] at the start of each [`PERIOD`].
    EachPeriod,
    /// Between these times after the first Get.
    Once(Range<Duration>),
}

/// The state of all services.
struct Fake {
    address: ServerName,
    start: Instant,
    first_get: OnceLock<Instant>,
    stalls: Stalls,
    /// The value of each row.
    value: Vec<u8>,
}

impl Fake {
    /// Blocks the server's only thread until the current stall is over.
    fn stall(&self) {
        let since_first = self.first_get.get_or_init(Instant::now).elapsed();
        let left = match &self.stalls {
            Stalls::Never => None,
            Stalls::EachPeriod => {
                let into = Duration::from_nanos((self.start.elapsed().as_nanos() % PERIOD.as_nanos()) as u64);
                STALL.checked_sub(into)
            }
            Stalls::Once(times) => times.contains(&since_first).then(|| times.end - since_first),
        };
        left.into_iter().for_each(std::thread::sleep);
    }

    fn table(&self) -> TableName {
        TABLE.parse().expect("legal")
    }

    fn region(&self) -> RegionInfo {
        RegionInfo::new(self.table(), Bytes::new(), Bytes::new(), 1)
    }

    fn meta_row(&self) -> Vec<KeyValue> {
        let region = self.region();
        let info = [&PB_MAGIC[..], &pb::RegionInfo::from(&region).encode_to_vec()].concat();
        let server = self.address.host_port();
        let cell =
            |qualifier: &[u8], value: &[u8]| KeyValue::put(region.name(), b"info", qualifier, 1, value);
        vec![
            cell(b"regioninfo", &info),
            cell(b"seqnumDuringOpen", &2u64.to_be_bytes()),
            cell(b"server", server.as_bytes()),
            cell(b"serverstartcode", &1u64.to_be_bytes()),
            cell(b"state", b"OPEN"),
        ]
    }
}

macro_rules! service {
    ($type:ident, $name:literal, $methods:expr) => {
        struct $type(Arc<Fake>);
        impl Service for $type {
            fn name(&self) -> &'static str {
                $name
            }
            fn methods(&self) -> &'static [&'static str] {
                $methods
            }
            fn call(&self, call: Call, reply: Responder) {
                self.answer(&call, reply);
            }
        }
    };
}

service!(Registry, "ClientMetaService", &["GetClusterId", "GetActiveMaster", "GetMetaRegionLocations"]);
service!(Master, "MasterService", &["GetTableDescriptors"]);
service!(Region, "ClientService", &["Get", "Scan"]);

impl Registry {
    fn answer(&self, call: &Call, reply: Responder) {
        let server = pb::ServerName::from(&self.0.address);
        match call.method {
            "GetClusterId" => reply.send(&pb::GetClusterIdResponse { cluster_id: Some("fake".into()) }),
            "GetActiveMaster" => reply.send(&pb::GetActiveMasterResponse { server_name: Some(server) }),
            _ => {
                let meta = pb::RegionInfo::from(&RegionInfo::meta());
                let location =
                    pb::RegionLocation { region_info: meta, server_name: Some(server), seq_num: 1 };
                reply.send(&pb::GetMetaRegionLocationsResponse { meta_locations: vec![location] });
            }
        }
    }
}

impl Master {
    fn answer(&self, _: &Call, reply: Responder) {
        let family = ColumnFamilyDescriptor::new(b"info0").expect("legal");
        let table = TableDescriptor::new(self.0.table()).with_family(family);
        reply.send(&pb::GetTableDescriptorsResponse { table_schema: vec![pb::TableSchema::from(&table)] });
    }
}

impl Region {
    fn answer(&self, call: &Call, reply: Responder) {
        if call.method == "Scan" {
            let cells = self.0.meta_row();
            let response =
                pb::ScanResponse { cells_per_result: vec![cells.len() as u32], ..Default::default() };
            return send(reply, &response, &cells);
        }
        let request: pb::GetRequest = call.decode().expect("a Get");
        let cells = match &request.get.row[..] {
            // hbase:meta's row of the table's state: ENABLED.
            row if row == TABLE.as_bytes() => {
                vec![KeyValue::put(row, b"table", b"state", 1, &pb::TableState { state: 0 }.encode_to_vec())]
            }
            row => {
                self.0.stall();
                vec![KeyValue::put(row, b"info0", b"0", 1, &self.0.value)]
            }
        };
        let result = pb::Result { associated_cell_count: Some(cells.len() as i32), ..Default::default() };
        send(reply, &pb::GetResponse { result: Some(result) }, &cells);
    }
}

fn send(reply: Responder, message: &impl Message, cells: &[KeyValue]) {
    let mut writer = reply.cell_block_writer();
    cells.iter().for_each(|cell| writer.as_mut().expect("a client with a codec").push(&cell.as_cell()));
    reply.send_cells(message, writer);
}

/// Starts the server, with values of this number of bytes. It stops with the handle.
pub fn fake(stalls: Stalls, value_bytes: usize) -> (RpcServerHandle, Target) {
    let mut config = RpcServerConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    config.connection_threads = 1;
    let server = RpcServer::bind(config).expect("bound");
    let port = server.local_addr().port();
    let start = Instant::now();
    let (address, first_get) = (ServerName::new("127.0.0.1", port, 1), OnceLock::new());
    let fake = Arc::new(Fake { address, start, first_get, stalls, value: vec![b'v'; value_bytes] });
    let services: Vec<Arc<dyn Service>> =
        vec![Arc::new(Registry(fake.clone())), Arc::new(Master(fake.clone())), Arc::new(Region(fake))];
    let handle = server.serve(services).expect("serves");
    (handle, Target { name: "fake".into(), client: ClientConfig::new([format!("127.0.0.1:{port}")]) })
}
