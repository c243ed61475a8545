//! Requests for every method of AdminService, MasterService and HbckService.

use bytes::Bytes;
use evenkeel_common::{ColumnFamilyDescriptor, RegionInfo, TableDescriptor};
use evenkeel_protocol::pb;
use prost::Message;

const MASTER_PROTO: &str = include_str!("../../../protocol/proto/Master.proto");

/// The service of repairs, on the master's port.
pub const HBCK_SERVICE: (&str, &str) = ("HbckService", MASTER_PROTO);

/// The services of administrators, and the .proto files that list their methods.
pub const ADMIN_SERVICES: [(&str, &str); 2] =
    [("AdminService", include_str!("../../../protocol/proto/Admin.proto")), ("MasterService", MASTER_PROTO)];

/// The table and the region that calls name.
#[derive(Clone)]
pub struct TableTarget {
    pub table: TableDescriptor,
    pub region: RegionInfo,
}

impl TableTarget {
    fn name(&self) -> pb::TableName {
        self.table.name().into()
    }

    pub fn region(&self) -> pb::RegionSpecifier {
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
    pub fn request(&self, method: &str) -> Vec<u8> {
        let of_topic = [
            self.region_request(method),
            self.region_change(method),
            self.table_request(method),
            self.snapshot_request(method),
            self.procedure_request(method),
            namespace_request(method),
        ];
        of_topic.into_iter().flatten().next().unwrap_or_default()
    }

    /// Requests to a RegionServer about one of its regions.
    fn region_request(&self, method: &str) -> Option<Vec<u8>> {
        let region = self.region();
        Some(match method {
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
            _ => return None,
        })
    }

    /// Requests to the master that change or move regions.
    fn region_change(&self, method: &str) -> Option<Vec<u8>> {
        let region = self.region();
        let region_info = (&self.region).into();
        Some(match method {
            "Assigns" | "Unassigns" => {
                // Both have the same fields.
                pb::AssignsRequest { region: vec![self.region()], ..Default::default() }.encode_to_vec()
            }
            "SplitRegion" => {
                let split_row = Some(Bytes::from_static(b"m"));
                pb::SplitTableRegionRequest { region_info, split_row, nonce_group: None, nonce: None }
                    .encode_to_vec()
            }
            "TruncateRegion" => {
                pb::TruncateRegionRequest { region_info, nonce_group: None, nonce: None }.encode_to_vec()
            }
            "MergeTableRegions" => {
                let region = vec![region.clone(), region];
                pb::MergeTableRegionsRequest { region, ..Default::default() }.encode_to_vec()
            }
            "MoveRegion" => pb::MoveRegionRequest { region, dest_server_name: None }.encode_to_vec(),
            "AssignRegion" => pb::AssignRegionRequest { region, ..Default::default() }.encode_to_vec(),
            "UnassignRegion" => pb::UnassignRegionRequest { region, ..Default::default() }.encode_to_vec(),
            _ => return None,
        })
    }

    /// Requests about the table and its families.
    fn table_request(&self, method: &str) -> Option<Vec<u8>> {
        let (table_name, table_schema) = (self.name(), pb::TableSchema::from(&self.table));
        let family = pb::ColumnFamilySchema::from(&ColumnFamilyDescriptor::new(b"g").expect("legal"));
        Some(match method {
            "SetTableStateInMeta" => {
                let table_state = pb::TableState { state: pb::table_state::State::Enabled.into() };
                pb::SetTableStateInMetaRequest { table_name, table_state }.encode_to_vec()
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
            "EnableTable"
            | "DisableTable"
            | "DeleteTable"
            | "truncateTable"
            | "GetTableState"
            | "GetSchemaAlterStatus"
            | "getLastMajorCompactionTimestamp" => {
                // In all of these, the table's name has the same field number.
                pb::GetTableStateRequest { table_name }.encode_to_vec()
            }
            _ => return None,
        })
    }

    /// Requests about snapshots.
    fn snapshot_request(&self, method: &str) -> Option<Vec<u8>> {
        let snapshot = self.snapshot();
        Some(match method {
            "Snapshot" => pb::SnapshotRequest { snapshot, ..Default::default() }.encode_to_vec(),
            "IsSnapshotDone" => pb::IsSnapshotDoneRequest { snapshot: Some(snapshot) }.encode_to_vec(),
            "DeleteSnapshot" => pb::DeleteSnapshotRequest { snapshot }.encode_to_vec(),
            "RestoreSnapshot" => {
                pb::RestoreSnapshotRequest { snapshot, ..Default::default() }.encode_to_vec()
            }
            _ => return None,
        })
    }

    /// Requests about procedures that a client starts.
    fn procedure_request(&self, method: &str) -> Option<Vec<u8>> {
        Some(match method {
            "ExecProcedure" | "ExecProcedureWithRet" => {
                let procedure = self.procedure("flush-table-proc", &self.table.name().to_string());
                pb::ExecProcedureRequest { procedure }.encode_to_vec()
            }
            "IsProcedureDone" => {
                let procedure = Some(self.procedure("online-snapshot", "s"));
                pb::IsProcedureDoneRequest { procedure }.encode_to_vec()
            }
            _ => return None,
        })
    }
}

/// Requests about namespaces.
fn namespace_request(method: &str) -> Option<Vec<u8>> {
    Some(match method {
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
        _ => return None,
    })
}

/// Calls by which an administrator ends the server.
const ENDS_THE_SERVER: [&str; 4] = ["Shutdown", "StopMaster", "StopServer", "offline"];

/// Names of a service's methods, from its .proto file, without those that end the server.
pub fn methods(service: &str, proto: &'static str) -> impl Iterator<Item = &'static str> {
    let of_service = proto.split("\nservice ").find(|part| part.starts_with(&format!("{service} {{")));
    let lines = of_service.unwrap_or_else(|| panic!("no {service}")).lines();
    let names = lines.filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
    names.map(str::trim).filter(|name| !ENDS_THE_SERVER.contains(name))
}
