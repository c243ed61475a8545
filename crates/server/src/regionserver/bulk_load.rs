//! Bulk load: PrepareBulkLoad, BulkLoadHFile and CleanupBulkLoad, as stock's BulkLoadHFilesTool calls them.
//!
//! Prepare makes `<root>/staging/<user>__<table>__<64 random characters>`, whose path is the token of the load; the tool
//! names it in every call and has it removed in the end. HBase stages files there; here they go from their source into the
//! region at once ([`evenkeel_region::region::bulk_load`]), so the directory holds only what a client itself put there.
//!
//! A file is moved when its client put it below the token, and copied otherwise: two paths of a local file system are two
//! file systems to HBase (`FSUtils.isSameHdfs`), so its source stays, and stays here.
//!
//! With a token, whatever is wrong with a file is answered with `loaded: false`, as HBase does: the tool then looks at
//! the files and the regions again, splits what has to be split, and gives up by itself after some rounds.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use evenkeel_common::{ErrorKind, HBaseError, Result};
use evenkeel_protocol::pb;
use evenkeel_region::layout;
use evenkeel_region::region::Region;
use evenkeel_region::region::bulk_load::{BulkFile, BulkLoad, BulkLoadOutcome};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{RegionServer, load};

/// Random characters in the name of a staging directory: 320 bits, as 5 bits each.
const RANDOM_CHARACTERS: usize = 64;
/// The digits of a number to the base 32, as Java writes them.
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Makes a staging directory for the load of a user. Its path is the token.
///
/// # Errors
/// What finding the region or the file system says.
pub fn prepare(
    server: &RegionServer,
    request: &pb::PrepareBulkLoadRequest,
    user: Option<&str>,
) -> Result<pb::PrepareBulkLoadResponse> {
    let region = region(server, request.region.as_ref())?;
    let table = region.info().table().to_string().replace(':', "_");
    let name = format!("{}__{table}__{}", user_name(user), random_text());
    let dir = staging_dir(server)?.join(name);
    region.file_system().mkdirs(&dir)?;
    let path = dir.to_str().ok_or_else(|| HBaseError::io("the root directory is not UTF-8"))?;
    Ok(pb::PrepareBulkLoadResponse { bulk_token: format!("file:{path}") })
}

/// Removes the staging directory of a load. Whether it was there does not matter.
///
/// # Errors
/// `DoNotRetryIOException` for a path that is no staging directory; what the file system says.
pub fn clean_up(
    server: &RegionServer,
    request: &pb::CleanupBulkLoadRequest,
) -> Result<pb::CleanupBulkLoadResponse> {
    let region = region(server, request.region.as_ref())?;
    let dir = local_path(&request.bulk_token)?;
    if dir.parent() != Some(&*staging_dir(server)?) || dir.file_name().is_none() {
        return Err(HBaseError::do_not_retry(format!("{} is not a staging directory", request.bulk_token)));
    }
    region.file_system().delete(&dir)?;
    Ok(pb::CleanupBulkLoadResponse {})
}

/// Loads files into a region. Waits for the disk.
///
/// # Errors
/// What finding the region says; without a token, also what is wrong with the load.
pub fn bulk_load(
    server: &RegionServer,
    request: &pb::BulkLoadHFileRequest,
) -> Result<pb::BulkLoadHFileResponse> {
    server.check_open()?;
    load::count(&server.counters.bulk_loads);
    let own = server.cluster_view().cluster_id.clone();
    if request.cluster_ids.contains(&own) {
        return Ok(pb::BulkLoadHFileResponse { loaded: true });
    }
    let region = server.region(&request.region)?;
    let outcome = files(request).and_then(|files| {
        let cluster_ids = request.cluster_ids.iter().cloned().chain([own]).collect();
        region.bulk_load(&BulkLoad {
            files,
            assign_seq_id: request.assign_seq_num(),
            token: request.bulk_token.clone(),
            cluster_ids,
            replicate: request.replicate(),
        })
    });
    if matches!(outcome, Ok(BulkLoadOutcome::Loaded)) && server.config.compaction_after_bulk_load {
        compact_if_due(server, &region);
    }
    answer(&region, outcome, request.bulk_token.is_some())
}

fn answer(
    region: &Region,
    outcome: Result<BulkLoadOutcome>,
    has_token: bool,
) -> Result<pb::BulkLoadHFileResponse> {
    match outcome {
        Ok(BulkLoadOutcome::Loaded) => Ok(pb::BulkLoadHFileResponse { loaded: true }),
        Ok(BulkLoadOutcome::DoesNotFit(files)) => {
            tracing::warn!(region = %region.info().name_text(), ?files, "not bulk loaded: rows of other regions");
            Ok(pb::BulkLoadHFileResponse { loaded: false })
        }
        Err(error) if has_token && error.kind() != ErrorKind::NotServingRegion => {
            tracing::error!(region = %region.info().name_text(), %error, "not bulk loaded");
            Ok(pb::BulkLoadHFileResponse { loaded: false })
        }
        Err(error) => Err(error),
    }
}

fn compact_if_due(server: &RegionServer, region: &std::sync::Arc<Region>) {
    if region.needs_compaction() {
        server.background.request_compaction(region, None, false);
    }
}

fn files(request: &pb::BulkLoadHFileRequest) -> Result<Vec<BulkFile>> {
    let staged = request.bulk_token.as_deref().map(local_path).transpose()?;
    let file = |given: &pb::bulk_load_h_file_request::FamilyPath| -> Result<BulkFile> {
        let path = local_path(&given.path)?;
        let is_staged = staged.as_deref().is_some_and(|dir| path != dir && path.starts_with(dir));
        let family: Bytes = given.family.clone();
        Ok(BulkFile { family, path, keep_source: request.copy_file() || !is_staged })
    };
    request.family_path.iter().map(file).collect()
}

fn region(server: &RegionServer, specifier: Option<&pb::RegionSpecifier>) -> Result<std::sync::Arc<Region>> {
    let missing = || HBaseError::new(ErrorKind::NotServingRegion, "no region named");
    server.region(specifier.ok_or_else(missing)?)
}

fn staging_dir(server: &RegionServer) -> Result<PathBuf> {
    Ok(std::path::absolute(&server.root)?.join(layout::STAGING_DIR))
}

/// A path as Hadoop writes it, with or without `file:`.
fn local_path(text: &str) -> Result<PathBuf> {
    let unusable = || HBaseError::do_not_retry(format!("{text}: not a path of this server's file system"));
    let path = match text.strip_prefix("file:") {
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
        None => text,
    };
    let path = Path::new(path);
    let climbs = path.components().any(|part| part == std::path::Component::ParentDir);
    if path.is_absolute() && !climbs { Ok(path.components().collect()) } else { Err(unusable()) }
}

/// A user's short name, as far as it can be part of a file's name.
fn user_name(user: Option<&str>) -> String {
    let own = || std::env::var("USER").unwrap_or_else(|_| "hbase".to_owned());
    let name = user.map_or_else(own, str::to_owned);
    let short = name.split(['/', '@']).next().unwrap_or_default();
    short.chars().map(|c| if c.is_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' }).collect()
}

fn random_text() -> String {
    let mut rng = StdRng::from_os_rng();
    (0..RANDOM_CHARACTERS).map(|_| char::from(DIGITS[rng.random_range(0..DIGITS.len())])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_hadoops() {
        for text in ["/a/b", "file:/a/b", "file:///a/b", "file:/a//b/"] {
            assert_eq!(local_path(text).expect("legal"), PathBuf::from("/a/b"), "{text}");
        }
        for text in ["a/b", "hdfs://nn/a", "file:a", "/a/../b", "file://host/a", ""] {
            assert!(local_path(text).is_err(), "{text}");
        }
    }

    #[test]
    fn users_and_random_parts_are_file_names() {
        assert_eq!(user_name(Some("ann/host@REALM")), "ann");
        assert_eq!(user_name(Some("../x y")), "..");
        assert_eq!(random_text().len(), 64);
        assert_ne!(random_text(), random_text());
    }
}
