//! Compactions: requests, switches, queues.

use std::sync::Arc;

use evenkeel_common::{ErrorKind, HBaseError, Result, TableName, quoted};
use evenkeel_protocol::pb;

use crate::services::method_table::Method;
use crate::{RegionServer, convert, methods};

pub(super) const METHODS: &[Method<RegionServer>] = methods![
    "ClearCompactionQueues" => clear_queues,
    "CompactRegion" => compact,
    "CompactionSwitch" => switch,
];

fn compact(
    server: &Arc<RegionServer>,
    request: pb::CompactRegionRequest,
) -> Result<pb::CompactRegionResponse> {
    if let Some(table) = convert::region::mob_region_table(&request.region) {
        return compact_mob(server, &table, request.family.as_deref());
    }
    let region = server.region(&request.region)?;
    if let Some(family) = request.family.as_deref().filter(|family| region.table().family(family).is_none()) {
        let (family, region) = (quoted(family), region.info().name_text());
        let message = format!("column family {family} does not exist in region {region}");
        return Err(HBaseError::new(ErrorKind::NoSuchColumnFamily, message));
    }
    server.background.request_compaction(&region, request.family.as_deref(), request.major());
    Ok(pb::CompactRegionResponse {})
}

/// Requests a major compaction of a table's families with MOB files, or of one, for a request that
/// names the MOB region (`CompactType.MOB`). HBase announces a regular compaction there, and then
/// finds no region of that name.
fn compact_mob(
    server: &Arc<RegionServer>,
    table: &TableName,
    family: Option<&[u8]>,
) -> Result<pb::CompactRegionResponse> {
    for region in server.regions().of_table(table).iter().filter(|region| !region.is_secondary()) {
        let descriptor = region.table();
        let is_wanted = |name: &[u8]| family.is_none_or(|family| family == name);
        for family in descriptor.families().filter(|family| family.is_mob() && is_wanted(family.name())) {
            server.background.request_compaction(region, Some(family.name()), true);
        }
    }
    Ok(pb::CompactRegionResponse {})
}

fn switch(
    server: &Arc<RegionServer>,
    request: pb::CompactionSwitchRequest,
) -> Result<pb::CompactionSwitchResponse> {
    let prev_state = server.background.switch_compactions(request.enabled);
    Ok(pb::CompactionSwitchResponse { prev_state })
}

fn clear_queues(
    server: &Arc<RegionServer>,
    _: pb::ClearCompactionQueuesRequest,
) -> Result<pb::ClearCompactionQueuesResponse> {
    server.background.clear_compactions();
    Ok(pb::ClearCompactionQueuesResponse {})
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::background::CompactionState;
    use crate::config::RegionServerConfig;
    use crate::testing::{TestServer, specifier};

    #[test]
    fn the_mob_region_of_a_table_is_accepted() {
        let (server, region) = TestServer::with_region();
        let mob = evenkeel_common::mob::mob_region(region.info().table());
        let region = convert::region::specifier(&mob);
        assert_eq!(convert::region::mob_region_table(&region).as_ref(), Some(mob.table()));
        let request = pb::CompactRegionRequest { region, ..Default::default() };
        compact(&server.server, request).expect("no family has MOB files");
    }

    #[test]
    fn a_request_for_the_mob_region_rewrites_mob_files() {
        let server = TestServer::new(RegionServerConfig::default());
        let region = server.open_with_mob_file();
        let old = server.mob_files();
        let mob = evenkeel_common::mob::mob_region(region.info().table());
        let request = |family: &'static [u8]| pb::CompactRegionRequest {
            region: convert::region::specifier(&mob),
            major: Some(false),
            family: Some(family.into()),
        };
        compact(&server.server, request(b"g")).expect("no such family");
        let state = || server.server.background.compaction_state(region.info().encoded_name());
        assert_eq!(state(), CompactionState::None);
        compact(&server.server, request(b"f")).expect("requested");
        while state() != CompactionState::None {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let new = server.mob_files();
        assert!(new.len() == 2 && new.iter().filter(|name| !old.contains(name)).count() == 1, "{new:?}");
    }

    #[test]
    fn a_compaction_of_an_unknown_family_is_refused() {
        let (server, region) = TestServer::with_region();
        let request = |family: Option<&'static [u8]>| pb::CompactRegionRequest {
            region: specifier(&region),
            family: family.map(Bytes::from_static),
            ..Default::default()
        };
        let before = server.server.background.compaction_changes();
        for family in [&b"none"[..], b""] {
            let error = compact(&server.server, request(Some(family))).expect_err("no such family");
            assert_eq!(error.kind(), ErrorKind::NoSuchColumnFamily);
        }
        assert_eq!(server.server.background.compaction_changes(), before, "nothing is queued");
        for family in [None, Some(&b"f"[..])] {
            compact(&server.server, request(family)).expect("queued");
        }
    }
}
