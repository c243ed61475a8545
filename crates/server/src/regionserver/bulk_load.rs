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
    use evenkeel_hfile::{HFileContext, HFileWriter, StoreFileMeta};

    use super::super::RegionServerConfig;
    use super::super::testing::{TestServer, cell, specifier, table};
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

    /// Writes an HFile of one row for the family `f`.
    fn hfile(region: &Region, path: &str, row: &[u8]) -> pb::bulk_load_h_file_request::FamilyPath {
        let fs = &**region.file_system();
        let mut writer =
            HFileWriter::create(fs, Path::new(path), HFileContext::default()).expect("a new file");
        writer.append(&cell(row, b"q", b"v").as_cell()).expect("in order");
        writer.finish(StoreFileMeta::default()).expect("written");
        pb::bulk_load_h_file_request::FamilyPath {
            family: Bytes::from_static(b"f"),
            path: format!("file:{path}"),
        }
    }

    fn request(
        region: &Region,
        files: &[pb::bulk_load_h_file_request::FamilyPath],
    ) -> pb::BulkLoadHFileRequest {
        pb::BulkLoadHFileRequest {
            region: specifier(region),
            family_path: files.to_vec(),
            assign_seq_num: Some(true),
            ..Default::default()
        }
    }

    fn exists(region: &Region, path: &str) -> bool {
        region.file_system().exists(Path::new(path)).expect("looked")
    }

    #[test]
    fn a_load_has_a_directory_of_its_own_until_it_is_cleaned_up() {
        let (server, region) = TestServer::with_region();
        let server = &server.server;
        let prepare_request =
            pb::PrepareBulkLoadRequest { region: Some(specifier(&region)), ..Default::default() };
        let token = prepare(server, &prepare_request, Some("ann")).expect("made").bulk_token;
        assert!(token.starts_with("file:/hbase/staging/ann__t__"), "{token}");
        let dir = token.trim_start_matches("file:").to_owned();
        let outside = hfile(&region, "/in/1", b"a");
        let staged = hfile(&region, &format!("{dir}/f/2"), b"b");
        let load = pb::BulkLoadHFileRequest {
            bulk_token: Some(token.clone()),
            ..request(&region, &[outside, staged])
        };
        for _ in 0..2 {
            assert!(bulk_load(server, &load).expect("answered").loaded, "asking twice loads once");
            assert_eq!(region.load().store_files, 2);
        }
        assert!(exists(&region, "/in/1") && !exists(&region, &format!("{dir}/f/2")));

        let clean = |bulk_token: &str| {
            let region = Some(specifier(&region));
            clean_up(server, &pb::CleanupBulkLoadRequest { bulk_token: bulk_token.to_owned(), region })
        };
        for other in
            ["file:/hbase/data", "/hbase/staging", "/hbase/staging/x/../../data", "/hbase/staging/a/b"]
        {
            assert_eq!(clean(other).expect_err("refused").kind(), ErrorKind::DoNotRetry, "{other}");
        }
        clean(&token).expect("removed");
        assert!(!exists(&region, &dir));
        clean(&token).expect("gone already");
    }

    #[test]
    fn what_is_wrong_is_told_to_those_without_a_token() {
        let server = TestServer::new(RegionServerConfig::default());
        let region = server.open(b"g", b"p", table());
        let server = &server.server;
        let outside = request(&region, &[hfile(&region, "/in/1", b"a")]);
        assert!(!bulk_load(server, &outside).expect("answered").loaded);
        let mut missing = request(&region, &[hfile(&region, "/in/2", b"h")]);
        missing.family_path[0].path = "/in/none".to_owned();
        bulk_load(server, &missing).expect_err("there is no file");
        missing.bulk_token = Some("file:/hbase/staging/x".to_owned());
        assert!(!bulk_load(server, &missing).expect("answered").loaded);
        let seen = pb::BulkLoadHFileRequest { cluster_ids: vec![String::new()], ..outside };
        assert!(bulk_load(server, &seen).expect("answered").loaded, "this cluster, of no id, has had it");
        assert_eq!(region.load().store_files, 0);
    }
}
