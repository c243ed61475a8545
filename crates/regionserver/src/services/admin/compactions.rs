//! Compactions: requests, switches, queues.

use std::sync::Arc;

use evenkeel_common::{ErrorKind, HBaseError, Result, quoted};
use evenkeel_protocol::pb;
use evenkeel_rpc::{Call, CallClass, DetachedResponder, Respond};

use crate::services::method_table::Method;
use crate::{RegionServer, methods};

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
    use crate::RegionServerConfig;
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
