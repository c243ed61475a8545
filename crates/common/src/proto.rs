//! Conversions between this crate's types and HBase's protobuf messages (`ProtobufUtil`).

use std::collections::BTreeMap;

use evenkeel_protocol::pb;

use crate::descriptor::{ColumnFamilyDescriptor, TableDescriptor};
use crate::error::Result;
use crate::names::{ServerName, TableName};
use crate::region_info::RegionInfo;

impl From<&TableName> for pb::TableName {
    fn from(name: &TableName) -> Self {
        Self { namespace: name.namespace().to_owned().into(), qualifier: name.qualifier().to_owned().into() }
    }
}

impl TryFrom<&pb::TableName> for TableName {
    type Error = crate::HBaseError;

    fn try_from(name: &pb::TableName) -> Result<Self> {
        let namespace = String::from_utf8_lossy(&name.namespace);
        Self::new(&namespace, &String::from_utf8_lossy(&name.qualifier))
    }
}

impl From<&ServerName> for pb::ServerName {
    fn from(name: &ServerName) -> Self {
        Self {
            host_name: name.host.clone(),
            port: Some(name.port.into()),
            start_code: Some(name.start_code as u64),
        }
    }
}

impl From<&pb::ServerName> for ServerName {
    fn from(name: &pb::ServerName) -> Self {
        // A port beyond 65,535 names no server; port 0 is not reachable either.
        let port = u16::try_from(name.port()).unwrap_or(0);
        Self::new(&name.host_name, port, name.start_code() as i64)
    }
}

impl From<&RegionInfo> for pb::RegionInfo {
    /// Every field is written, as Java does, since the bytes are compared and stored.
    fn from(region: &RegionInfo) -> Self {
        Self {
            region_id: region.region_id() as u64,
            table_name: region.table().into(),
            start_key: Some(region.start_key().clone()),
            end_key: Some(region.end_key().clone()),
            offline: Some(region.is_offline()),
            split: Some(region.is_split()),
            replica_id: Some(region.replica_id()),
        }
    }
}

/// The greatest replica id: names of regions have it as four hexadecimal digits.
const REPLICA_ID_MAX: i32 = 0xFFFF;

impl TryFrom<&pb::RegionInfo> for RegionInfo {
    type Error = crate::HBaseError;

    fn try_from(region: &pb::RegionInfo) -> Result<Self> {
        let table = TableName::try_from(&region.table_name)?;
        let (start, end) =
            (region.start_key.clone().unwrap_or_default(), region.end_key.clone().unwrap_or_default());
        let replica_id = region.replica_id();
        if !(0..=REPLICA_ID_MAX).contains(&replica_id) {
            return Err(crate::HBaseError::do_not_retry(format!(
                "there is no replica {replica_id} of a region"
            )));
        }
        if table.is_meta() {
            return Ok(Self::meta().replica(replica_id));
        }
        let info = Self::with_replica(table, start, end, region.region_id as i64, replica_id);
        Ok(info.with_flags(region.offline(), region.split()))
    }
}

impl From<&ColumnFamilyDescriptor> for pb::ColumnFamilySchema {
    fn from(family: &ColumnFamilyDescriptor) -> Self {
        let configuration = family.configuration().iter();
        Self {
            name: family.name().to_vec().into(),
            attributes: family.attributes().iter().map(bytes_pair).collect(),
            configuration: configuration.map(string_pair).collect(),
        }
    }
}

impl TryFrom<&pb::ColumnFamilySchema> for ColumnFamilyDescriptor {
    type Error = crate::HBaseError;

    fn try_from(schema: &pb::ColumnFamilySchema) -> Result<Self> {
        let attributes = schema.attributes.iter().map(|a| (a.first.to_vec(), a.second.to_vec())).collect();
        let configuration: BTreeMap<_, _> =
            schema.configuration.iter().map(|c| (c.name.clone(), c.value.clone())).collect();
        Self::from_parts(schema.name.to_vec(), attributes, configuration)
    }
}

impl From<&TableDescriptor> for pb::TableSchema {
    fn from(table: &TableDescriptor) -> Self {
        Self {
            table_name: Some(table.name().into()),
            attributes: table.attributes().iter().map(bytes_pair).collect(),
            column_families: table.families().map(Into::into).collect(),
            configuration: Vec::new(),
        }
    }
}

impl TryFrom<&pb::TableSchema> for TableDescriptor {
    type Error = crate::HBaseError;

    fn try_from(schema: &pb::TableSchema) -> Result<Self> {
        let name = TableName::try_from(schema.table_name.as_ref().unwrap_or(&pb::TableName::default()))?;
        let attributes = schema.attributes.iter().map(|a| (a.first.to_vec(), a.second.to_vec()));
        // Old clients send what is now an attribute in `configuration`; both end up in one map, as
        // in Java.
        let configuration =
            schema.configuration.iter().map(|c| (c.name.clone().into_bytes(), c.value.clone().into_bytes()));
        let table = Self::new(name).with_attributes(attributes.chain(configuration).collect());
        schema
            .column_families
            .iter()
            .try_fold(table, |table, family| Ok(table.with_family(family.try_into()?)))
    }
}

fn bytes_pair((first, second): (&Vec<u8>, &Vec<u8>)) -> pb::BytesBytesPair {
    pb::BytesBytesPair { first: first.clone().into(), second: second.clone().into() }
}

fn string_pair((name, value): (&String, &String)) -> pb::NameStringPair {
    pb::NameStringPair { name: name.clone(), value: value.clone() }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use prost::Message;

    use super::*;

    #[test]
    fn replica_ids_have_four_digits() {
        let table = pb::TableName { namespace: "ns".into(), qualifier: "t".into() };
        let of = |replica_id| pb::RegionInfo {
            region_id: 7,
            table_name: table.clone(),
            replica_id: Some(replica_id),
            ..pb::RegionInfo::default()
        };
        for id in [0, 1, 0xFFFF] {
            assert_eq!(RegionInfo::try_from(&of(id)).expect("legal").replica_id(), id);
        }
        for id in [-1, 0x1_0000, i32::MIN] {
            assert!(RegionInfo::try_from(&of(id)).is_err(), "{id}");
        }
    }

    #[test]
    fn table_schemas_round_trip() {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("VERSIONS", "3").with("X", "y");
        let table =
            TableDescriptor::new("ns:t".parse().expect("legal")).with("OWNER", "me").with_family(family);
        let bytes = pb::TableSchema::from(&table).encode_to_vec();
        let back = pb::TableSchema::decode(Bytes::from(bytes)).expect("decodes");
        assert_eq!(TableDescriptor::try_from(&back).expect("converts"), table);
    }

    #[test]
    fn region_infos_round_trip() {
        let table: TableName = "t".parse().expect("legal");
        let region = RegionInfo::new(table, Bytes::from_static(b"a"), Bytes::from_static(b"b"), 7);
        let region = region.with_flags(true, true);
        assert_eq!(RegionInfo::try_from(&pb::RegionInfo::from(&region)).expect("converts"), region);
        for meta in [RegionInfo::meta(), RegionInfo::meta().replica(1)] {
            assert_eq!(RegionInfo::try_from(&pb::RegionInfo::from(&meta)).expect("converts"), meta);
        }
    }
}
