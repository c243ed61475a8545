//! Calls of clients that have not located any region yet: ClientMetaService and
//! BootstrapNodeService.

use std::sync::Arc;

use evenkeel_common::{RegionInfo, ServerName};
use evenkeel_protocol::pb;
use evenkeel_rpc::{Call, Respond, Responder, Service};

use crate::{ClusterView, RegionServer};

/// The registry for clients that do not use ZooKeeper.
pub struct ClientMetaService {
    server: Arc<RegionServer>,
}

impl ClientMetaService {
    /// Creates the service of a server.
    pub fn new(server: Arc<RegionServer>) -> Self {
        Self { server }
    }
}

impl Service for ClientMetaService {
    fn name(&self) -> &'static str {
        "ClientMetaService"
    }

    fn methods(&self) -> &'static [&'static str] {
        &["GetClusterId", "GetActiveMaster", "GetMasters", "GetMetaRegionLocations", "GetBootstrapNodes"]
    }

    fn call(&self, call: Call, reply: Responder) {
        let view = self.server.cluster_view();
        match call.method {
            "GetClusterId" => {
                let cluster_id = Some(view.cluster_id.clone()).filter(|id| !id.is_empty());
                reply.send(&pb::GetClusterIdResponse { cluster_id });
            }
            "GetActiveMaster" => {
                let server_name = view.active_master.as_ref().map(Into::into);
                reply.send(&pb::GetActiveMasterResponse { server_name });
            }
            "GetMasters" => reply.send(&masters(&view)),
            "GetMetaRegionLocations" => reply.send(&meta_locations(&view)),
            _ => {
                let server_name = view.region_servers.iter().map(Into::into).collect();
                reply.send(&pb::GetBootstrapNodesResponse { server_name });
            }
        }
    }
}

fn masters(view: &ClusterView) -> pb::GetMastersResponse {
    let entry = |is_active| {
        move |name: &ServerName| pb::GetMastersResponseEntry { server_name: name.into(), is_active }
    };
    let active = view.active_master.iter().map(entry(true));
    pb::GetMastersResponse {
        master_servers: active.chain(view.backup_masters.iter().map(entry(false))).collect(),
    }
}

fn meta_locations(view: &ClusterView) -> pb::GetMetaRegionLocationsResponse {
    let location = |(region, server, seq_num): &(RegionInfo, Option<ServerName>, i64)| pb::RegionLocation {
        region_info: region.into(),
        server_name: server.as_ref().map(Into::into),
        seq_num: *seq_num,
    };
    pb::GetMetaRegionLocationsResponse { meta_locations: view.meta.iter().map(location).collect() }
}

/// The service by which RegionServers find each other.
pub struct BootstrapNodeService {
    server: Arc<RegionServer>,
}

impl BootstrapNodeService {
    /// Creates the service of a server.
    pub fn new(server: Arc<RegionServer>) -> Self {
        Self { server }
    }
}

impl Service for BootstrapNodeService {
    fn name(&self) -> &'static str {
        "BootstrapNodeService"
    }

    fn methods(&self) -> &'static [&'static str] {
        &["GetAllBootstrapNodes"]
    }

    fn call(&self, _call: Call, reply: Responder) {
        let node = self.server.cluster_view().region_servers.iter().map(Into::into).collect();
        reply.send(&pb::GetAllBootstrapNodesResponse { node });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(port: u16) -> ServerName {
        ServerName::new("h", port, 7)
    }

    #[test]
    fn the_active_master_comes_first_and_is_marked() {
        let view = ClusterView {
            active_master: Some(name(1)),
            backup_masters: vec![name(2)],
            ..ClusterView::default()
        };
        let masters = masters(&view).master_servers;
        let told: Vec<_> =
            masters.iter().map(|master| (master.server_name.port(), master.is_active)).collect();
        assert_eq!(told, [(1, true), (2, false)]);
    }

    #[test]
    fn meta_location_comes_from_the_cluster_view() {
        let replica = RegionInfo::meta().replica(1);
        let meta = vec![(RegionInfo::meta(), Some(name(3)), 9), (replica.clone(), Some(name(4)), -1)];
        let view = ClusterView { meta, ..ClusterView::default() };
        let locations = meta_locations(&view).meta_locations;
        assert_eq!(locations[0].seq_num, 9);
        assert_eq!(locations[0].server_name.as_ref().map(pb::ServerName::port), Some(3));
        assert_eq!(RegionInfo::try_from(&locations[0].region_info).expect("valid"), RegionInfo::meta());
        assert_eq!(locations[1].server_name.as_ref().map(pb::ServerName::port), Some(4));
        assert_eq!(RegionInfo::try_from(&locations[1].region_info).expect("valid"), replica);
        assert_eq!(locations.len(), 2);
    }
}
