//! The regions online here, their files and load; flush, warm-up.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::mob::mob_region;
use evenkeel_common::{ErrorKind, HBaseError, Result, TableName};
use evenkeel_protocol::pb;
use evenkeel_region::layout;
use evenkeel_region::region::Region;

use crate::background::CompactionState;
use crate::services::method_table::Method;
use crate::{RegionServer, convert, methods};

pub(super) const METHODS: &[Method<RegionServer>] = methods![
    waits "FlushRegion" => flush,
    "GetOnlineRegion" => online_regions,
    // Reads an index block to find the split row, and flushes if there is none.
    waits "GetRegionInfo" => region_info,
    "GetRegionLoad" => region_loads,
    "GetStoreFile" => store_files,
    "WarmupRegion" => |_: &Arc<RegionServer>, _: pb::WarmupRegionRequest| Ok(pb::WarmupRegionResponse {}),
];

fn region_info(
    server: &Arc<RegionServer>,
    request: pb::GetRegionInfoRequest,
) -> Result<pb::GetRegionInfoResponse> {
    if let Some(table) = convert::region::mob_region_table(&request.region) {
        return Ok(mob_region_info(server, &table));
    }
    let region = server.region(&request.region)?;
    let state = server.background.compaction_state(region.info().encoded_name());
    let splittable = region.is_splittable();
    let split_row = match request.best_split_row() && splittable {
        true => best_split_row(server, &region)?,
        false => None,
    };
    Ok(pb::GetRegionInfoResponse {
        region_info: region.info().into(),
        compaction_state: request.compaction_state().then_some(state as i32),
        splittable: Some(splittable),
        mergeable: Some(is_mergeable(&region)),
        best_split_row: split_row,
    })
}

/// Returns the row at which a split cuts. If the region's files have none, because its data is in
/// the MemStore, it is flushed first, as by HBase (`RSRpcServices.getRegionInfo`).
fn best_split_row(server: &RegionServer, region: &Arc<Region>) -> Result<Option<Bytes>> {
    if let Some(row) = region.best_split_row() {
        return Ok(Some(row));
    }
    server.background.flush_for_client(region, &[])?;
    Ok(region.best_split_row())
}

/// Returns the MOB region of a table, with the state of the compactions of its regions
/// (`CompactType.MOB`).
fn mob_region_info(server: &RegionServer, table: &TableName) -> pb::GetRegionInfoResponse {
    let regions = server.regions().of_table(table);
    let is_compacting = regions.iter().any(|region| {
        server.background.compaction_state(region.info().encoded_name()) != CompactionState::None
    });
    let state = if is_compacting { CompactionState::Major } else { CompactionState::None };
    pb::GetRegionInfoResponse {
        region_info: (&mob_region(table)).into(),
        compaction_state: Some(state as i32),
        splittable: Some(false),
        mergeable: Some(false),
        best_split_row: None,
    }
}

/// Returns true if the region may be merged: it must have compacted and archived all references to
/// files of its parent regions.
fn is_mergeable(region: &Region) -> bool {
    !region.info().is_meta() && !region.stores().iter().any(|store| store.has_references_on_disk())
}

fn store_files(
    server: &Arc<RegionServer>,
    request: pb::GetStoreFileRequest,
) -> Result<pb::GetStoreFileResponse> {
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

fn online_regions(
    server: &Arc<RegionServer>,
    _: pb::GetOnlineRegionRequest,
) -> Result<pb::GetOnlineRegionResponse> {
    let mut regions = server.regions.all();
    regions.sort_by(|a, b| a.info().name().cmp(b.info().name()));
    let region_info = regions.iter().map(|region| region.info().into()).collect();
    Ok(pb::GetOnlineRegionResponse { region_info })
}

fn region_loads(
    server: &Arc<RegionServer>,
    request: pb::GetRegionLoadRequest,
) -> Result<pb::GetRegionLoadResponse> {
    let regions = match &request.table_name {
        Some(name) => server.regions.of_table(&TableName::try_from(name)?),
        None => server.regions.all(),
    };
    let cached = server.cached_bytes();
    let loads = regions.iter().map(|region| server.region_load(region, &cached));
    Ok(pb::GetRegionLoadResponse { region_loads: loads.collect() })
}

fn flush(server: &Arc<RegionServer>, request: pb::FlushRegionRequest) -> Result<pb::FlushRegionResponse> {
    let region = server.region(&request.region)?;
    if let Some(family) = request.family.as_deref().filter(|family| region.table().family(family).is_none()) {
        let message = format!("Column family {} does not exist", family.escape_ascii());
        return Err(HBaseError::new(ErrorKind::NoSuchColumnFamily, message));
    }
    let outcome = server.background.flush_for_client(&region, request.family.as_slice())?;
    let marked = !outcome.flushed && request.write_flush_wal_marker() && region.mark_cannot_flush();
    Ok(pb::FlushRegionResponse {
        last_flush_time: server.clock.now_ms() as u64,
        flushed: Some(outcome.flushed),
        wrote_flush_wal_marker: Some(marked),
    })
}

#[cfg(test)]
mod tests {
    use evenkeel_common::{ColumnFamilyDescriptor, KeyValue};
    use evenkeel_fs::{Fault, FaultyFileSystem, Latch, MemoryFileSystem, Op};
    use evenkeel_wal::WalConfig;

    use super::*;
    use crate::config::RegionServerConfig;
    use crate::testing::{TestServer, cell, put, specifier, table};

    #[test]
    fn the_mob_region_has_the_state_of_the_compactions_of_its_table() {
        let fs = FaultyFileSystem::new(MemoryFileSystem::new());
        let server =
            TestServer::over(Arc::new(fs.clone()), RegionServerConfig::default(), WalConfig::default());
        let region = server.open_with_mob_file();
        let mob = mob_region(region.info().table());
        let request = pb::GetRegionInfoRequest {
            region: convert::region::specifier(&mob),
            compaction_state: Some(true),
            ..Default::default()
        };
        let info = || region_info(&server.server, request.clone()).expect("accepted");
        assert_eq!((info().region_info, info().splittable), (pb::RegionInfo::from(&mob), Some(false)));
        assert_eq!(info().compaction_state, Some(CompactionState::None as i32));
        let latch = Latch::new();
        fs.inject(Fault::on(Op::Create, ".tmp").waits_for(&latch));
        server.server.background().request_compaction(&region, None, true);
        latch.wait_for_arrival();
        assert_eq!(info().compaction_state, Some(CompactionState::Major as i32));
        latch.open();
        while info().compaction_state != Some(CompactionState::None as i32) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn region_info_returns_the_requested_fields() {
        let (server, region) = TestServer::with_region();
        let request = pb::GetRegionInfoRequest { region: specifier(&region), ..Default::default() };
        let plain = region_info(&server.server, request.clone()).expect("here");
        assert_eq!(
            (plain.compaction_state, plain.splittable, plain.best_split_row),
            (None, Some(true), None)
        );
        assert_eq!(plain.region_info, pb::RegionInfo::from(region.info()));
        let request =
            pb::GetRegionInfoRequest { compaction_state: Some(true), best_split_row: Some(true), ..request };
        let asked = region_info(&server.server, request.clone()).expect("here");
        assert_eq!(
            (asked.compaction_state, asked.best_split_row),
            (Some(0), None),
            "an empty region has no middle"
        );
    }

    /// The shell's `split 'table'` names no row.
    #[test]
    fn a_region_whose_data_is_in_memory_has_a_split_row() {
        let (server, region) = TestServer::with_region();
        let value = vec![b'v'; 10_000];
        (b'a'..=b'z').for_each(|row| put(&region, &[cell(&[row], b"q", &value)]));
        let request = pb::GetRegionInfoRequest { region: specifier(&region), ..Default::default() };
        region_info(&server.server, request.clone()).expect("here");
        assert_eq!(region.load().store_files, 0, "nobody asked for a row");
        let request = pb::GetRegionInfoRequest { best_split_row: Some(true), ..request };
        let row = region_info(&server.server, request).expect("here").best_split_row.expect("a row");
        assert!(row > Bytes::from_static(b"a") && row < Bytes::from_static(b"z"), "{row:?}");
        assert_eq!(region.load().store_files, 1);
    }

    #[test]
    fn a_flush_creates_files_that_are_listed() {
        let (server, region) = TestServer::with_region();
        put(&region, &[cell(b"a", b"q", b"v")]);
        let request = pb::FlushRegionRequest { region: specifier(&region), ..Default::default() };
        assert_eq!(flush(&server.server, request.clone()).expect("flushed").flushed, Some(true));
        assert_eq!(flush(&server.server, request.clone()).expect("nothing to do").flushed, Some(false));
        let files = |family: &[&'static [u8]]| {
            let family = family.iter().map(|name| Bytes::from_static(name)).collect();
            let request = pb::GetStoreFileRequest { region: specifier(&region), family };
            store_files(&server.server, request).expect("here").store_file
        };
        let dir = format!("/hbase/data/default/t/{}/f/", region.info().encoded_name());
        assert_eq!(files(&[]).len(), 1);
        assert!(files(&[b"f"])[0].starts_with(&dir));
        assert!(files(&[b"other"]).is_empty());
        let family = Some(Bytes::from_static(b"none"));
        let error =
            flush(&server.server, pb::FlushRegionRequest { family, ..request }).expect_err("no such family");
        assert_eq!(error.kind(), ErrorKind::NoSuchColumnFamily);
    }

    #[test]
    fn a_flush_of_a_family_writes_no_other() {
        let server = TestServer::new(RegionServerConfig::default());
        let family = |name: &[u8]| ColumnFamilyDescriptor::new(name).expect("legal");
        let region = server.open(b"", b"", table().with_family(family(b"g")));
        let cells = [b"f", b"g"].map(|family| KeyValue::put(b"a", family, b"q", 1, b"v"));
        put(&region, &cells);
        let request = pb::FlushRegionRequest { region: specifier(&region), ..Default::default() };
        let request = pb::FlushRegionRequest { family: Some(Bytes::from_static(b"g")), ..request };
        let files = || region.stores().iter().map(|store| store.files().len()).collect::<Vec<_>>();
        assert_eq!(flush(&server.server, request.clone()).expect("flushed").flushed, Some(true));
        assert_eq!(files(), [0, 1]);
        assert_eq!(flush(&server.server, request.clone()).expect("nothing to do").flushed, Some(false));
        flush(&server.server, pb::FlushRegionRequest { family: None, ..request }).expect("flushed");
        assert_eq!(files(), [1, 1]);
    }

    #[test]
    fn region_loads_are_filtered_by_table() {
        let (server, region) = TestServer::with_region();
        let loads = |table: Option<&str>| {
            let table: Option<TableName> = table.map(|name| name.parse().expect("legal"));
            let request = pb::GetRegionLoadRequest { table_name: table.as_ref().map(Into::into) };
            region_loads(&server.server, request).expect("told").region_loads
        };
        assert_eq!((loads(None).len(), loads(Some("t")).len(), loads(Some("other")).len()), (1, 1, 0));
        assert_eq!(loads(None)[0].region_specifier, specifier(&region));
        assert_eq!(
            online_regions(&server.server, pb::GetOnlineRegionRequest {}).expect("told").region_info,
            [pb::RegionInfo::from(region.info())]
        );
    }
}
