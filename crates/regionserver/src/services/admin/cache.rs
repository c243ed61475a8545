//! The block cache.

use std::collections::HashSet;
use std::sync::Arc;

use evenkeel_block_cache::FileId;
use evenkeel_common::Result;
use evenkeel_protocol::pb;
use evenkeel_region::region::Region;

use crate::convert::result;
use crate::services::method_table::Method;
use crate::{RegionServer, methods};

pub(super) const METHODS: &[Method<RegionServer>] = methods![
    waits "ClearRegionBlockCache" => clear_cache,
    waits "GetCachedFilesList" => cached_files,
    "EvenkeelHotBlocks" => hot_blocks,
];

/// The number of regions that are not online here for which a reply has an exception. Each
/// exception takes several times the bytes of the region's name in the request.
const EXCEPTIONS_MAX: usize = 4096;

/// Evicts the cached blocks of regions. The reply lists the regions that are not online here, each
/// once and at most [`EXCEPTIONS_MAX`] of them.
fn clear_cache(
    server: &Arc<RegionServer>,
    request: pb::ClearRegionBlockCacheRequest,
) -> Result<pb::ClearRegionBlockCacheResponse> {
    let mut stats = pb::CacheEvictionStats::default();
    let mut evicted = 0;
    let mut seen = HashSet::new();
    for specifier in &request.region {
        if !seen.insert((specifier.r#type, &specifier.value)) {
            continue;
        }
        match server.region(specifier) {
            Ok(region) => evicted += evict(server, &region),
            Err(error) if stats.exception.len() < EXCEPTIONS_MAX => {
                stats.exception.push(pb::RegionExceptionMessage {
                    region: specifier.clone(),
                    exception: result::exception(&error),
                })
            }
            Err(_) => {}
        }
    }
    stats.evicted_blocks = Some(evicted as i64);
    Ok(pb::ClearRegionBlockCacheResponse { stats })
}

fn evict(server: &RegionServer, region: &Region) -> usize {
    let files = region.stores().iter().flat_map(|store| store.files());
    // The cache has blocks under the name of the file that contains them; a reference's name begins
    // with it.
    let blocks_of =
        |name: &str| server.cache.evict_file(FileId::of_name(name.split('.').next().unwrap_or(name)));
    files.map(|file| blocks_of(&file.name)).sum::<usize>() + region.evict_rows()
}

/// Returns the files of which every block is in the cache.
fn cached_files(
    server: &Arc<RegionServer>,
    _: pb::GetCachedFilesListRequest,
) -> Result<pb::GetCachedFilesListResponse> {
    let regions = server.regions.all();
    let stores = regions.iter().flat_map(|region| region.stores());
    Ok(pb::GetCachedFilesListResponse {
        cached_files: stores.flat_map(|store| store.fully_cached_files()).collect(),
    })
}

/// Another Evenkeel server tells the hot blocks of a region that moves here. HBase has no such
/// call.
fn hot_blocks(server: &Arc<RegionServer>, request: pb::HotBlocksRequest) -> Result<pb::HotBlocksResponse> {
    server.hooks.hot_blocks(request)?;
    Ok(pb::HotBlocksResponse {})
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::testing::{TestServer, specifier};

    fn unknown() -> pb::RegionSpecifier {
        pb::RegionSpecifier { r#type: 2, value: Bytes::from_static(b"00000000000000000000000000000000") }
    }

    #[test]
    fn regions_that_are_not_here_are_named_in_the_reply() {
        let (server, region) = TestServer::with_region();
        let request = pb::ClearRegionBlockCacheRequest { region: vec![unknown(), specifier(&region)] };
        let stats = clear_cache(&server.server, request).expect("answered").stats;
        assert_eq!((stats.evicted_blocks, stats.exception.len()), (Some(0), 1));
        assert_eq!(stats.exception[0].region, unknown());
        assert!(stats.exception[0].exception.name.ends_with("NotServingRegionException"));
    }

    #[test]
    fn the_exceptions_of_one_reply_are_bounded() {
        let (server, region) = TestServer::with_region();
        let repeated = pb::ClearRegionBlockCacheRequest { region: vec![unknown(); 1000] };
        let stats = clear_cache(&server.server, repeated).expect("answered").stats;
        assert_eq!(stats.exception.len(), 1, "a region is listed once");
        let other = |at: usize| pb::RegionSpecifier { r#type: 2, value: format!("{at:032x}").into() };
        let regions = (0..2 * EXCEPTIONS_MAX).map(other).chain([specifier(&region)]).collect();
        let stats = clear_cache(&server.server, pb::ClearRegionBlockCacheRequest { region: regions })
            .expect("answered");
        assert_eq!(stats.stats.exception.len(), EXCEPTIONS_MAX);
    }
}
