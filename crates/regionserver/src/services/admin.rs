//! AdminService: what operators, and the master, ask of one RegionServer.
//!
//! Nothing here may wait behind users. What waits for a disk ([`WAITS`]) runs on handlers of its
//! own, so that hbase:meta does not wait behind it; the rest on the priority handlers.

use std::sync::Arc;

use evenkeel_block_cache::FileId;
use evenkeel_common::{HBaseError, Result, TableName};
use evenkeel_protocol::pb;
use evenkeel_region::layout;
use evenkeel_region::region::Region;
use evenkeel_rpc::{Call, CallClass, DetachedResponder, Executor, Respond, Responder, Service};

use crate::background::CompactionState;
use crate::convert::result;
use crate::services::client;
use crate::{RegionServer, load};

const METHODS: &[&str] = &[
    "GetRegionInfo",
    "GetStoreFile",
    "GetOnlineRegion",
    "OpenRegion",
    "WarmupRegion",
    "CloseRegion",
    "FlushRegion",
    "CompactionSwitch",
    "CompactRegion",
    "ReplicateWALEntry",
    "Replay",
    "RollWALWriter",
    "GetServerInfo",
    "StopServer",
    "UpdateFavoredNodes",
    "UpdateConfiguration",
    "GetRegionLoad",
    "ClearCompactionQueues",
    "ClearRegionBlockCache",
    "GetSpaceQuotaSnapshots",
    "ExecuteProcedures",
    "GetSlowLogResponses",
    "GetLargeLogResponses",
    "ClearSlowLogsResponses",
    "GetLogEntries",
    "GetCachedFilesList",
];

/// Methods that wait for a disk, or take long. GetRegionInfo reads an index block for the row at
/// which to split.
const WAITS: [&str; 6] = [
    "GetRegionInfo",
    "FlushRegion",
    "RollWALWriter",
    "UpdateConfiguration",
    "ClearRegionBlockCache",
    "GetCachedFilesList",
];

/// The class whose message GetLogEntries answers with.
const LOG_RESPONSES_CLASS: &str =
    "org.apache.hadoop.hbase.shaded.protobuf.generated.AdminProtos$SlowLogResponses";

/// See the module's documentation.
pub struct AdminService {
    server: Arc<RegionServer>,
    executor: Arc<Executor>,
}

impl AdminService {
    /// The service of a server.
    pub fn new(server: Arc<RegionServer>, executor: Arc<Executor>) -> Self {
        Self { server, executor }
    }
}

impl Service for AdminService {
    fn name(&self) -> &'static str {
        "AdminService"
    }

    fn methods(&self) -> &'static [&'static str] {
        METHODS
    }

    fn call(&self, call: Call, reply: Responder) {
        let server = self.server.clone();
        let class = if WAITS.contains(&call.method) { CallClass::Admin } else { CallClass::Priority };
        self.executor.submit(class, call, reply, move |call, reply| run(&server, &call, reply));
    }
}

fn run(server: &Arc<RegionServer>, call: &Call, reply: DetachedResponder) {
    if let Err(error) = server.check_open() {
        return reply.send_error(&error);
    }
    match call.method {
        "GetRegionInfo" => reply.send_result(call.decode().and_then(|request| region_info(server, &request))),
        "GetStoreFile" => reply.send_result(call.decode().and_then(|request| store_files(server, &request))),
        "GetOnlineRegion" => reply.send(&online_regions(server)),
        "WarmupRegion" => reply.send(&pb::WarmupRegionResponse {}),
        "FlushRegion" => reply.send_result(call.decode().and_then(|request| flush(server, &request))),
        "CompactionSwitch" => reply.send_result(call.decode().map(|request| switch(server, request))),
        "CompactRegion" => reply.send_result(call.decode().and_then(|request| compact(server, &request))),
        "RollWALWriter" => reply.send_result(roll_wal(server)),
        "GetServerInfo" => reply.send(&server_info(server)),
        "StopServer" => stop(server, call, reply),
        "UpdateFavoredNodes" => reply.send(&pb::UpdateFavoredNodesResponse { response: Some(0) }),
        "UpdateConfiguration" => {
            let updated = server.hooks.update_configuration();
            reply.send_result(updated.map(|()| pb::UpdateConfigurationResponse {}));
        }
        "GetRegionLoad" => {
            reply.send_result(call.decode().and_then(|request| region_loads(server, &request)))
        }
        "ClearCompactionQueues" => {
            server.background.clear_compactions();
            reply.send(&pb::ClearCompactionQueuesResponse {});
        }
        "ClearRegionBlockCache" => {
            reply.send_result(call.decode().map(|request| clear_cache(server, &request)))
        }
        "GetSpaceQuotaSnapshots" => reply.send(&pb::GetSpaceQuotaSnapshotsResponse::default()),
        "GetSlowLogResponses" | "GetLargeLogResponses" => reply.send(&pb::SlowLogResponses::default()),
        "ClearSlowLogsResponses" => reply.send(&pb::ClearSlowLogResponses { is_cleaned: true }),
        "GetLogEntries" => reply.send(&log_entries()),
        "GetCachedFilesList" => reply.send(&cached_files(server)),
        method => reply.send_error(&client::not_supported(method)),
    }
}

fn region_info(
    server: &RegionServer,
    request: &pb::GetRegionInfoRequest,
) -> Result<pb::GetRegionInfoResponse> {
    let region = server.region(&request.region)?;
    let state = server.background.compaction_state(region.info().encoded_name());
    let splittable = is_splittable(&region);
    let split_row = request.best_split_row().then(|| region.best_split_row()).flatten();
    Ok(pb::GetRegionInfoResponse {
        region_info: region.info().into(),
        compaction_state: request.compaction_state().then_some(state as i32),
        splittable: Some(splittable),
        mergeable: Some(splittable),
        best_split_row: split_row.filter(|_| splittable),
    })
}

/// A region that still reads files of the region it came from must compact before it is cut or
/// joined again.
fn is_splittable(region: &Region) -> bool {
    !region.info().is_meta() && !region.stores().iter().any(|store| store.has_references())
}

fn store_files(server: &RegionServer, request: &pb::GetStoreFileRequest) -> Result<pb::GetStoreFileResponse> {
    let region = server.region(&request.region)?;
    let dir = layout::region_dir(&server.root, region.info());
    let wanted =
        |family: &[u8]| request.family.is_empty() || request.family.iter().any(|name| name == family);
    let stores = region.stores().iter().filter(|store| wanted(store.family().name()));
    let paths = stores.flat_map(|store| {
        let dir = dir.join(store.family().name_text());
        store.files().into_iter().map(move |file| dir.join(file.name).display().to_string())
    });
    Ok(pb::GetStoreFileResponse { store_file: paths.collect() })
}

fn online_regions(server: &RegionServer) -> pb::GetOnlineRegionResponse {
    let mut regions = server.regions.all();
    regions.sort_by(|a, b| a.info().name().cmp(b.info().name()));
    pb::GetOnlineRegionResponse { region_info: regions.iter().map(|region| region.info().into()).collect() }
}

fn flush(server: &RegionServer, request: &pb::FlushRegionRequest) -> Result<pb::FlushRegionResponse> {
    let region = server.region(&request.region)?;
    if let Some(family) = request.family.as_deref().filter(|family| region.table().family(family).is_none()) {
        let message = format!("Column family {} does not exist", family.escape_ascii());
        return Err(HBaseError::new(evenkeel_common::ErrorKind::NoSuchColumnFamily, message));
    }
    let outcome = server.background.flush(&region)?;
    let marked = !outcome.flushed && request.write_flush_wal_marker() && region.mark_cannot_flush();
    Ok(pb::FlushRegionResponse {
        last_flush_time: server.clock.now_ms() as u64,
        flushed: Some(outcome.flushed),
        wrote_flush_wal_marker: Some(marked),
    })
}

fn switch(server: &RegionServer, request: pb::CompactionSwitchRequest) -> pb::CompactionSwitchResponse {
    pb::CompactionSwitchResponse { prev_state: server.background.switch_compactions(request.enabled) }
}

fn compact(server: &RegionServer, request: &pb::CompactRegionRequest) -> Result<pb::CompactRegionResponse> {
    let region = server.region(&request.region)?;
    server.background.request_compaction(&region, request.family.as_deref(), request.major());
    Ok(pb::CompactRegionResponse {})
}

fn roll_wal(server: &RegionServer) -> Result<pb::RollWalWriterResponse> {
    let regions = server.hooks.roll_wal()?;
    Ok(pb::RollWalWriterResponse { region_to_flush: regions.into_iter().map(Into::into).collect() })
}

fn server_info(server: &RegionServer) -> pb::GetServerInfoResponse {
    let webui_port = (server.info_port > 0).then_some(u32::from(server.info_port));
    pb::GetServerInfoResponse {
        server_info: pb::ServerInfo { server_name: (&server.name).into(), webui_port },
    }
}

fn stop(server: &RegionServer, call: &Call, reply: DetachedResponder) {
    match call.decode::<pb::StopServerRequest>() {
        Err(error) => reply.send_error(&error),
        Ok(request) => {
            reply.send(&pb::StopServerResponse {});
            server.hooks.stop(&request.reason);
        }
    }
}

fn region_loads(
    server: &RegionServer,
    request: &pb::GetRegionLoadRequest,
) -> Result<pb::GetRegionLoadResponse> {
    let regions = match &request.table_name {
        Some(name) => server.regions.of_table(&TableName::try_from(name)?),
        None => server.regions.all(),
    };
    let state = |region: &Region| -> CompactionState {
        server.background.compaction_state(region.info().encoded_name())
    };
    let loads = regions.iter().map(|region| load::region_load(region, state(region)));
    Ok(pb::GetRegionLoadResponse { region_loads: loads.collect() })
}

/// Forgets the cached blocks of regions; those that are not here are named in the answer.
fn clear_cache(
    server: &RegionServer,
    request: &pb::ClearRegionBlockCacheRequest,
) -> pb::ClearRegionBlockCacheResponse {
    let mut stats = pb::CacheEvictionStats::default();
    let mut evicted = 0;
    for specifier in &request.region {
        match server.region(specifier) {
            Ok(region) => evicted += evict(server, &region),
            Err(error) => stats.exception.push(pb::RegionExceptionMessage {
                region: specifier.clone(),
                exception: result::exception(&error),
            }),
        }
    }
    stats.evicted_blocks = Some(evicted as i64);
    pb::ClearRegionBlockCacheResponse { stats }
}

/// The files of which every block is in the cache.
fn cached_files(server: &RegionServer) -> pb::GetCachedFilesListResponse {
    let regions = server.regions.all();
    let stores = regions.iter().flat_map(|region| region.stores());
    pb::GetCachedFilesListResponse {
        cached_files: stores.flat_map(|store| store.fully_cached_files()).collect(),
    }
}

fn evict(server: &RegionServer, region: &Region) -> usize {
    let files = region.stores().iter().flat_map(|store| store.files());
    // Blocks are kept under the name of the file that has them; a reference's name begins with it.
    let blocks_of =
        |name: &str| server.cache.evict_file(FileId::of_name(name.split('.').next().unwrap_or(name)));
    files.map(|file| blocks_of(&file.name)).sum::<usize>() + region.evict_rows()
}

fn log_entries() -> pb::LogEntry {
    use prost::Message;
    let log_message = pb::SlowLogResponses::default().encode_to_vec().into();
    pb::LogEntry { log_class_name: LOG_RESPONSES_CLASS.to_owned(), log_message }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use evenkeel_common::ErrorKind;

    use super::*;
    use crate::testing::{TestServer, cell, put, specifier};

    fn unknown() -> pb::RegionSpecifier {
        pb::RegionSpecifier { r#type: 2, value: Bytes::from_static(b"00000000000000000000000000000000") }
    }

    #[test]
    fn a_region_tells_what_it_is_asked() {
        let (server, region) = TestServer::with_region();
        let request = pb::GetRegionInfoRequest { region: specifier(&region), ..Default::default() };
        let plain = region_info(&server.server, &request).expect("here");
        assert_eq!(
            (plain.compaction_state, plain.splittable, plain.best_split_row),
            (None, Some(true), None)
        );
        assert_eq!(plain.region_info, pb::RegionInfo::from(region.info()));
        let request =
            pb::GetRegionInfoRequest { compaction_state: Some(true), best_split_row: Some(true), ..request };
        let asked = region_info(&server.server, &request).expect("here");
        assert_eq!(
            (asked.compaction_state, asked.best_split_row),
            (Some(0), None),
            "an empty region has no middle"
        );
    }

    #[test]
    fn flushing_makes_files_that_are_told_by_path() {
        let (server, region) = TestServer::with_region();
        put(&region, &[cell(b"a", b"q", b"v")]);
        let request = pb::FlushRegionRequest { region: specifier(&region), ..Default::default() };
        assert_eq!(flush(&server.server, &request).expect("flushed").flushed, Some(true));
        assert_eq!(flush(&server.server, &request).expect("nothing to do").flushed, Some(false));
        let files = |family: &[&'static [u8]]| {
            let family = family.iter().map(|name| Bytes::from_static(name)).collect();
            let request = pb::GetStoreFileRequest { region: specifier(&region), family };
            store_files(&server.server, &request).expect("here").store_file
        };
        let dir = format!("/hbase/data/default/t/{}/f/", region.info().encoded_name());
        assert_eq!(files(&[]).len(), 1);
        assert!(files(&[b"f"])[0].starts_with(&dir));
        assert!(files(&[b"other"]).is_empty());
        let family = Some(Bytes::from_static(b"none"));
        let error =
            flush(&server.server, &pb::FlushRegionRequest { family, ..request }).expect_err("no such family");
        assert_eq!(error.kind(), ErrorKind::NoSuchColumnFamily);
    }

    #[test]
    fn loads_are_told_by_table() {
        let (server, region) = TestServer::with_region();
        let loads = |table: Option<&str>| {
            let table: Option<TableName> = table.map(|name| name.parse().expect("legal"));
            let request = pb::GetRegionLoadRequest { table_name: table.as_ref().map(Into::into) };
            region_loads(&server.server, &request).expect("told").region_loads
        };
        assert_eq!((loads(None).len(), loads(Some("t")).len(), loads(Some("other")).len()), (1, 1, 0));
        assert_eq!(loads(None)[0].region_specifier, specifier(&region));
        assert_eq!(online_regions(&server.server).region_info, [pb::RegionInfo::from(region.info())]);
    }

    #[test]
    fn regions_that_are_not_here_are_named_in_the_answer() {
        let (server, region) = TestServer::with_region();
        let request = pb::ClearRegionBlockCacheRequest { region: vec![unknown(), specifier(&region)] };
        let stats = clear_cache(&server.server, &request).stats;
        assert_eq!((stats.evicted_blocks, stats.exception.len()), (Some(0), 1));
        assert_eq!(stats.exception[0].region, unknown());
        assert!(stats.exception[0].exception.name.ends_with("NotServingRegionException"));
    }
}
