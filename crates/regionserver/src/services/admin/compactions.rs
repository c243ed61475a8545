//! Compactions: requests, switches, queues.

use std::sync::Arc;

use evenkeel_common::{ErrorKind, HBaseError, Result, TableName, quoted};
use evenkeel_protocol::pb;
use evenkeel_rpc::{Call, CallClass, DetachedResponder, Respond};

use crate::services::method_table::Method;
use crate::{RegionServer, convert, methods};

pub(super) const METHODS: &[Method<RegionServer>] = methods![
    "ClearCompactionQueues" => clear_queues,
    "CompactionSwitch" => switch,
];

/// CompactRegion depends on the user that calls it.
pub(super) static COMPACT: [Method<RegionServer>; 1] =
    [Method { name: "CompactRegion", class: CallClass::Priority, answer: compact_call }];

fn compact_call(server: &Arc<RegionServer>, call: &Call, reply: DetachedResponder) {
    let user = call.connection.user.as_deref();
    reply.send_result(call.decode().and_then(|request| compact(server, request, user)));
}

fn compact(
    server: &Arc<RegionServer>,
    request: pb::CompactRegionRequest,
    user: Option<&str>,
) -> Result<pb::CompactRegionResponse> {
    if let Some(table) = convert::region::mob_region_table(&request.region) {
        return compact_mob(server, &table, request.family.as_deref());
    }
    let region = server.region(&request.region)?;
    server.check_compaction_space(&region, user)?;
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
    use evenkeel_common::Configuration;
    use evenkeel_common::quota::space::{Policy, SpaceUse};

    use super::*;
    use crate::background::CompactionState;
    use crate::config::RegionServerConfig;
    use crate::quotas::settings::QuotaSettings;
    use crate::testing::{TestServer, specifier, table};

    #[test]
    fn a_compaction_is_refused_by_the_policy_of_the_table() {
        let mut conf = Configuration::new();
        conf.set("hbase.quota.enabled", "true");
        let quotas = QuotaSettings::from(&conf).expect("valid");
        let server = TestServer::new(RegionServerConfig { quotas, ..RegionServerConfig::default() });
        let region = server.open(b"", b"", table());
        let violated = Some(Policy::NoWritesCompactions);
        let found = SpaceUse { violated, used_bytes: 2, limit_bytes: 1 };
        let space = server.server.space_quotas().expect("enabled");
        space.install([(region.info().table().clone(), found)].into());
        let request = pb::CompactRegionRequest { region: specifier(&region), ..Default::default() };
        let before = server.server.background.compaction_changes();
        let error = compact(&server.server, request.clone(), Some("bob")).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::DoNotRetry);
        assert_eq!(server.server.background.compaction_changes(), before, "nothing is queued");
        space.install(Default::default());
        compact(&server.server, request, Some("bob")).expect("queued");
    }

    #[test]
    fn the_mob_region_of_a_table_is_accepted() {
        let (server, region) = TestServer::with_region();
        let mob = evenkeel_common::mob::mob_region(region.info().table());
        let region = convert::region::specifier(&mob);
        assert_eq!(convert::region::mob_region_table(&region).as_ref(), Some(mob.table()));
        let request = pb::CompactRegionRequest { region, ..Default::default() };
        compact(&server.server, request, None).expect("no family has MOB files");
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
        compact(&server.server, request(b"g"), None).expect("no such family");
        let state = || server.server.background.compaction_state(region.info().encoded_name());
        assert_eq!(state(), CompactionState::None);
        compact(&server.server, request(b"f"), None).expect("requested");
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
            let error = compact(&server.server, request(Some(family)), None).expect_err("no such family");
            assert_eq!(error.kind(), ErrorKind::NoSuchColumnFamily);
        }
        assert_eq!(server.server.background.compaction_changes(), before, "nothing is queued");
        for family in [None, Some(&b"f"[..])] {
            compact(&server.server, request(family), None).expect("queued");
        }
    }
}
