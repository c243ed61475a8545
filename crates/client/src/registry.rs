//! The registry: the cluster's id, its active master and the server of hbase:meta, from servers or
//! from ZooKeeper.
//!
//! Nodes in ZooKeeper hold `FF | u32 len | len bytes that are ignored | PBUF | message`; the part
//! before `PBUF` may be absent. A session lasts for one lookup, since lookups are rare.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod zookeeper;

use evenkeel_common::ServerName;
use evenkeel_protocol::{PB_MAGIC, pb};
use prost::Message;

use crate::config::{ClientConfig, Registry};
use crate::error::{Error, Result};
use crate::rpc::{Call, Param, Pool, Service};

/// First byte of a node with metadata (`ZKMetadata`).
const METADATA: u8 = 0xff;

/// The cluster's id.
pub(crate) async fn cluster_id(pool: &Pool, config: &ClientConfig) -> Result<String> {
    if let Registry::ZooKeeper { quorum, parent, .. } = &config.registry {
        let node: pb::ClusterId = read(config, quorum, &format!("{parent}/hbaseid")).await?;
        return Ok(node.cluster_id);
    }
    ask(pool, config, "GetClusterId", &pb::GetClusterIdRequest {}, |response: pb::GetClusterIdResponse| {
        response.cluster_id.ok_or_else(|| Error::NoServer("the cluster has no id yet".to_owned()))
    })
    .await
}

/// The active master.
pub(crate) async fn active_master(pool: &Pool, config: &ClientConfig) -> Result<ServerName> {
    if let Registry::ZooKeeper { quorum, parent, .. } = &config.registry {
        let node: pb::Master = read(config, quorum, &format!("{parent}/master")).await?;
        return Ok((&node.master).into());
    }
    let request = pb::GetActiveMasterRequest {};
    ask(pool, config, "GetActiveMaster", &request, |response: pb::GetActiveMasterResponse| {
        let server = response.server_name.ok_or_else(|| Error::NoServer("no active master".to_owned()))?;
        Ok((&server).into())
    })
    .await
}

/// The server of hbase:meta.
pub(crate) async fn meta_server(pool: &Pool, config: &ClientConfig) -> Result<ServerName> {
    let offline = || Error::NoServer("hbase:meta is not online".to_owned());
    if let Registry::ZooKeeper { quorum, parent, meta_node } = &config.registry {
        let node: pb::MetaRegionServer = read(config, quorum, &format!("{parent}/{meta_node}")).await?;
        return match node.state.is_none() || node.state() == pb::region_state::State::Open {
            true => Ok((&node.server).into()),
            false => Err(offline()),
        };
    }
    let request = pb::GetMetaRegionLocationsRequest {};
    ask(pool, config, "GetMetaRegionLocations", &request, |response: pb::GetMetaRegionLocationsResponse| {
        let primary = response.meta_locations.iter().find(|l| l.region_info.replica_id() == 0);
        primary.and_then(|l| l.server_name.as_ref()).map(Into::into).ok_or_else(offline)
    })
    .await
}

/// Queries the bootstrap servers in order, and returns what `take` extracts from the first usable
/// reply. Skips a server that does not answer, sends malformed bytes or does not have the
/// information.
async fn ask<R: Message + Default, T>(
    pool: &Pool,
    config: &ClientConfig,
    method: &'static str,
    param: &dyn Param,
    take: impl Fn(R) -> Result<T>,
) -> Result<T> {
    let mut last = Error::InvalidArgument("no bootstrap server is configured".to_owned());
    for address in &config.bootstrap {
        let timeout = config.rpc_timeout;
        let call = Call { service: Service::ClientMeta, method, param, cells: &[], timeout, priority: 0 };
        let response = pool.call(address, call).await;
        match response.and_then(|response| R::decode(response.message).map_err(Error::from)).and_then(&take) {
            Ok(found) => return Ok(found),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn read<M: Message + Default>(config: &ClientConfig, quorum: &str, path: &str) -> Result<M> {
    let data = zookeeper::read(quorum, path, config.connect_timeout).await?;
    Ok(M::decode(message(&data).ok_or_else(|| bad(path))?)?)
}

fn bad(path: &str) -> Error {
    Error::Protocol(format!("the node {path} is not HBase's"))
}

/// The message in a node.
fn message(data: &[u8]) -> Option<&[u8]> {
    let data = match data.split_first() {
        Some((&METADATA, rest)) => {
            let (len, rest) = rest.split_first_chunk::<4>()?;
            rest.get(u32::from_be_bytes(*len) as usize..)?
        }
        _ => data,
    };
    data.strip_prefix(&PB_MAGIC[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_with_and_without_metadata() {
        assert_eq!(message(b"PBUFx"), Some(&b"x"[..]));
        assert_eq!(message(b"\xff\0\0\0\x03abcPBUFx"), Some(&b"x"[..]));
        for bad in
            [&b""[..], b"x", b"\xff", b"\xff\0\0\0\x03ab", b"\xff\xff\xff\xff\xffPBUF", b"\xff\0\0\0\0PBU"]
        {
            assert_eq!(message(bad), None, "{}", bad.escape_ascii());
        }
    }
}
