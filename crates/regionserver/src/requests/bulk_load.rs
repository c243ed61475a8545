//! Bulk load: PrepareBulkLoad, BulkLoadHFile and CleanupBulkLoad, as stock's BulkLoadHFilesTool
//! calls them.
//!
//! Prepare creates `<root>/staging/<user>__<table>__<64 random characters>`. The path is the token
//! of the load. The tool sends it in every call and has the directory removed at the end. HBase
//! stages files there; here files move from their source directly into the region
//! ([`evenkeel_region::region::bulk_load`]), so the directory contains only files that a client put
//! there.
//!
//! A file is moved if its client put it below the token, and copied otherwise, on HDFS too. HBase
//! also copies local files in that case and keeps the source, because it treats two paths of a
//! local file system as two file systems (`FSUtils.isSameHdfs`).
//!
//! A file of another file system, `file:` or another name service, is copied. As in HBase, those of
//! a request are of one file system. If the server's own is named in another way, such as by the
//! address of a NameNode, it is still the server's own ([`ServerHooks::is_own_file_system`]).
//!
//! # Which files a client may name
//! A client can name any path that this process can read. `Sources` accepts files below the staging
//! directory, files outside the root directory and files of other file systems. Everything else
//! below the root belongs to this server: live store files, logs, the archive, snapshots. A token
//! below the root must name a directory directly in the staging directory. Paths are compared with
//! all symbolic links resolved, and a file is read or moved by its resolved path. A path with `..`
//! is rejected first.
//!
//! If the request has a token, any problem with a file is answered with `loaded: false`, as HBase
//! does. The tool then checks the files and regions again, splits files where needed, and gives up
//! after a number of rounds.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use evenkeel_common::{ErrorKind, HBaseError, Result};
use evenkeel_fs::{FileSystem, Location};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::bulk_load_h_file_request::FamilyPath;
use evenkeel_region::layout;
use evenkeel_region::region::Region;
use evenkeel_region::region::bulk_load::{BulkFile, BulkLoad, BulkLoadOutcome};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::quotas::space::LoadedFile;
use crate::{RegionServer, RequestKind, ServerHooks};

/// The directory in which HDFS gives each file other paths (`FSDirectory.DOT_RESERVED_STRING`).
const RESERVED_DIR: &str = "/.reserved";
/// The maximum of concurrent lookups of files in other file systems.
const ELSEWHERE_LOOKUPS_MAX: usize = 4;
/// Random characters in the name of a staging directory: 320 bits, 5 bits each.
const RANDOM_CHARACTERS: usize = 64;
/// The digits of base 32, as Java writes them.
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Creates a staging directory for a user's load. Its path is the token.
///
/// # Errors
/// As [`RegionServer::region`]; I/O errors of the file system.
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
    dir.to_str().ok_or_else(|| HBaseError::io("the root directory is not UTF-8"))?;
    Ok(pb::PrepareBulkLoadResponse { bulk_token: region.file_system().uri_of(&dir) })
}

/// Removes the staging directory of a load, if it exists.
///
/// # Errors
/// `DoNotRetryIOException` for a path that is no staging directory; as [`RegionServer::region`];
/// I/O errors of the file system.
pub fn clean_up(
    server: &RegionServer,
    request: &pb::CleanupBulkLoadRequest,
) -> Result<pb::CleanupBulkLoadResponse> {
    let region = region(server, request.region.as_ref())?;
    let dir = path_of(&**region.file_system(), &request.bulk_token)?;
    if dir.parent() != Some(&*staging_dir(server)?) || dir.file_name().is_none() {
        return Err(not_staging(&request.bulk_token));
    }
    region.file_system().delete(&dir)?;
    Ok(pb::CleanupBulkLoadResponse {})
}

/// Loads files into a region. Blocks on disk I/O.
///
/// # Errors
/// As [`RegionServer::region`]; `DoNotRetryIOException` for a token that is no staging directory;
/// `SpaceLimitingException` if the files are larger than the free space of the table's quota;
/// `RegionTooBusyException` while many requests wait for other file systems;
/// without a token, also the errors of the load.
pub fn bulk_load(
    server: &RegionServer,
    request: &pb::BulkLoadHFileRequest,
) -> Result<pb::BulkLoadHFileResponse> {
    server.check_open()?;
    server.counters.count(RequestKind::BulkLoad);
    let own = server.cluster_view().cluster_id.clone();
    if request.cluster_ids.contains(&own) {
        return Ok(pb::BulkLoadHFileResponse { loaded: true });
    }
    let region = server.region(&request.region)?;
    let sources = Sources::new(server, &**region.file_system())?;
    let own_dir = request.bulk_token.as_deref().map(|token| sources.own_dir(token)).transpose()?.flatten();
    // Unlike other problems with a file, refusals by limits and quotas are errors also if there is
    // a token.
    let files = match sources.files(request, own_dir.as_deref()) {
        Err(error) if error.kind() == ErrorKind::RegionTooBusy => return Err(error),
        files => files,
    };
    files.iter().try_for_each(|files| check_space(server, &region, request, files))?;
    let outcome = files.and_then(|files| {
        let cluster_ids = request.cluster_ids.iter().cloned().chain([own]).collect();
        region.bulk_load(&BulkLoad {
            files,
            assign_seq_id: request.assign_seq_num(),
            token: request.bulk_token.clone(),
            cluster_ids,
            replicate: request.replicate(),
        })
    });
    if matches!(outcome, Ok(BulkLoadOutcome::Loaded)) {
        server.schedule.check_soon();
        if server.config.compaction_after_bulk_load {
            compact_if_due(server, &region);
        }
    }
    response(&region, outcome, request.bulk_token.is_some())
}

/// Checks the files against the quota of space of the table. A file that an earlier request with
/// the token has loaded takes no space, and may have been moved.
fn check_space(
    server: &RegionServer,
    region: &Region,
    request: &pb::BulkLoadHFileRequest,
    files: &[BulkFile],
) -> Result<()> {
    let given = request.family_path.iter().map(|file| file.path.as_str());
    if !server.is_space_limited(region) {
        return Ok(());
    }
    let is_loaded = |file: &BulkFile| {
        let token = request.bulk_token.as_deref();
        token.is_some_and(|token| region.has_loaded(token, file).unwrap_or(false))
    };
    let files = files.iter().zip(given).filter(|(file, _)| !is_loaded(file));
    let files = files.map(|(file, given)| LoadedFile {
        path: file.source.clone(),
        fs: file.source_fs.clone(),
        given,
    });
    server.check_bulk_load_space(region, &files.collect::<Vec<_>>())
}

fn response(
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

fn compact_if_due(server: &RegionServer, region: &Arc<Region>) {
    if region.needs_compaction() {
        server.background.request_compaction(region, None, false);
    }
}

/// The places where files of a load may be; see the module. Both paths are resolved.
struct Sources<'a> {
    fs: &'a dyn FileSystem,
    /// Finds other file systems.
    hooks: &'a dyn ServerHooks,
    lookups: &'a ElsewhereLookups,
    root: PathBuf,
    staging: PathBuf,
}

/// Counts the requests that look for their files in another file system. It may not answer for a
/// long time, and must not hold all handlers meanwhile. The copies of files are not limited.
#[derive(Debug, Default)]
pub struct ElsewhereLookups(AtomicUsize);

impl ElsewhereLookups {
    /// Begins a lookup, which ends when the result is dropped.
    ///
    /// # Errors
    /// `RegionTooBusyException` while there are [`ELSEWHERE_LOOKUPS_MAX`].
    fn begin(&self) -> Result<ElsewhereLookup<'_>> {
        let one_more = |count| (count < ELSEWHERE_LOOKUPS_MAX).then_some(count + 1);
        let begun = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        begun.map(|_| ElsewhereLookup(&self.0)).map_err(|count| {
            let message = format!("{count} bulk loads wait for other file systems");
            HBaseError::new(ErrorKind::RegionTooBusy, message)
        })
    }
}

struct ElsewhereLookup<'a>(&'a AtomicUsize);

impl Drop for ElsewhereLookup<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A file system other than the regions', with a location in it.
type Elsewhere = (Location, Arc<dyn FileSystem>);

impl<'a> Sources<'a> {
    fn new(server: &'a RegionServer, fs: &'a dyn FileSystem) -> Result<Self> {
        let root = resolved(fs, &std::path::absolute(&server.root)?)?;
        let staging = resolved(fs, &staging_dir(server)?)?;
        Ok(Self { fs, hooks: &*server.hooks, lookups: &server.elsewhere_lookups, root, staging })
    }

    /// Returns the directory whose files the load may move. `None` for a token outside the root,
    /// which is only a name.
    fn own_dir(&self, token: &str) -> Result<Option<PathBuf>> {
        let dir = resolved(self.fs, &path_of(self.fs, token)?)?;
        if dir.parent() == Some(&*self.staging) {
            return Ok(Some(dir));
        }
        if dir.starts_with(&self.root) || self.root.starts_with(&dir) {
            return Err(not_staging(token));
        }
        Ok(None)
    }

    fn files(&self, request: &pb::BulkLoadHFileRequest, own_dir: Option<&Path>) -> Result<Vec<BulkFile>> {
        let (mut elsewhere, mut lookup) = (None, None);
        let file = |given: &FamilyPath| -> Result<BulkFile> {
            let path = match self.fs.path_of(&given.path) {
                Some(_) => path_of(self.fs, &given.path)?,
                None => {
                    let location = location_of(&given.path)?;
                    if lookup.is_none() {
                        lookup = Some(self.lookups.begin()?);
                    }
                    let is_known = elsewhere.as_ref().is_some_and(|(known, _)| location.is_beside(known));
                    if is_known || !self.hooks.is_own_file_system(&location)? {
                        return self.file_elsewhere(given, location, &mut elsewhere);
                    }
                    location.path().components().collect()
                }
            };
            self.own_file(given, path, (own_dir, request.copy_file()))
        };
        request.family_path.iter().map(file).collect()
    }

    /// Finds a file of the regions' file system.
    fn own_file(
        &self,
        given: &FamilyPath,
        path: PathBuf,
        (own_dir, copy): (Option<&Path>, bool),
    ) -> Result<BulkFile> {
        if self.fs.is_remote() && path.starts_with(RESERVED_DIR) {
            return Err(unusable(&given.path));
        }
        let source = resolved(self.fs, &path)?;
        if source.starts_with(&self.root) && !source.starts_with(&self.staging) {
            return Err(HBaseError::do_not_retry(format!("{}: a file of the server's own", given.path)));
        }
        let is_staged = own_dir.is_some_and(|dir| source != dir && source.starts_with(dir));
        let (family, keep_source) = (given.family.clone(), copy || !is_staged);
        Ok(BulkFile { family, path, source, source_fs: None, keep_source })
    }

    /// Finds a file of another file system: the one of the request's earlier files, if there are.
    fn file_elsewhere(
        &self,
        given: &FamilyPath,
        location: Location,
        known: &mut Option<Elsewhere>,
    ) -> Result<BulkFile> {
        let (first, fs) = match known {
            Some(known) => known,
            None => known.insert((location.clone(), self.hooks.file_system(&location)?)),
        };
        if !location.is_beside(first) {
            return Err(HBaseError::do_not_retry(format!("{location} and {first}: two file systems")));
        }
        let source = resolved(&**fs, location.path())?;
        let (family, path) = (given.family.clone(), PathBuf::from(&given.path));
        Ok(BulkFile { family, path, source, source_fs: Some(Arc::clone(fs)), keep_source: true })
    }
}

/// Resolves the symbolic links in the part of a path that exists.
fn resolved(fs: &dyn FileSystem, path: &Path) -> Result<PathBuf> {
    match fs.resolve(path) {
        Ok(resolved) => Ok(resolved),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok(resolved(fs, parent)?.join(name)),
            _ => Ok(path.to_owned()),
        },
        Err(error) => Err(error.into()),
    }
}

fn not_staging(token: &str) -> HBaseError {
    HBaseError::do_not_retry(format!("{token} is not a staging directory"))
}

fn region(server: &RegionServer, specifier: Option<&pb::RegionSpecifier>) -> Result<Arc<Region>> {
    let missing = || HBaseError::new(ErrorKind::NotServingRegion, "no region named");
    server.region(specifier.ok_or_else(missing)?)
}

fn staging_dir(server: &RegionServer) -> Result<PathBuf> {
    Ok(std::path::absolute(&server.root)?.join(layout::STAGING_DIR))
}

/// Parses a path as Hadoop writes it, with or without the scheme of this server's file system.
fn path_of(fs: &dyn FileSystem, text: &str) -> Result<PathBuf> {
    let path = fs.path_of(text).filter(|path| !climbs(path)).ok_or_else(|| unusable(text))?;
    Ok(path.components().collect())
}

/// Parses the location of a file that may be in another file system.
fn location_of(text: &str) -> Result<Location> {
    let location = Location::parse(text).ok();
    let location = location.filter(|at| at.path().is_absolute() && !climbs(at.path()));
    location.ok_or_else(|| unusable(text))
}

fn climbs(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

fn unusable(text: &str) -> HBaseError {
    HBaseError::do_not_retry(format!("{text}: not a path of a file system that this server can read"))
}

/// Returns a user's short name, with characters replaced that a file name may not have.
fn user_name(user: Option<&str>) -> String {
    let own = || std::env::var("USER").unwrap_or_else(|_| "hbase".to_owned());
    let name = user.map_or_else(own, str::to_owned);
    let short = name.split(['/', '@']).next().unwrap_or_default();
    short.chars().map(|c| if c.is_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' }).collect()
}

fn random_text() -> String {
    let mut rng = StdRng::from_os_rng();
    (0..RANDOM_CHARACTERS).filter_map(|_| DIGITS.choose(&mut rng).copied().map(char::from)).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use evenkeel_fs::LocalFileSystem;
    use evenkeel_hfile::{HFileContext, HFileWriter, StoreFileMeta};

    use super::*;
    use crate::RegionServerConfig;
    use crate::testing::{NoHooks, TestServer, cell, specifier, table};

    #[test]
    fn paths_are_hadoops() {
        for text in ["/a/b", "file:/a/b", "file:///a/b", "file:/a//b/"] {
            assert_eq!(
                path_of(&LocalFileSystem::new(), text).expect("legal"),
                PathBuf::from("/a/b"),
                "{text}"
            );
        }
        for text in ["a/b", "hdfs://nn/a", "file:a", "/a/../b", "file://host/a", ""] {
            assert!(path_of(&LocalFileSystem::new(), text).is_err(), "{text}");
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
    fn hfile(region: &Region, path: &str, row: &[u8]) -> FamilyPath {
        let fs = &**region.file_system();
        let mut writer =
            HFileWriter::create(fs, Path::new(path), HFileContext::default()).expect("a new file");
        writer.append(&cell(row, b"q", b"v").as_cell()).expect("in order");
        writer.finish(StoreFileMeta::default()).expect("written");
        FamilyPath { family: Bytes::from_static(b"f"), path: format!("file:{path}") }
    }

    fn request(region: &Region, files: &[FamilyPath]) -> pb::BulkLoadHFileRequest {
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
    fn a_failed_load_without_a_token_is_an_error() {
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

    /// Moves a file to the test's other file system. Returns its name there.
    fn move_elsewhere(server: &TestServer, region: &Region, file: &FamilyPath) -> FamilyPath {
        let path = PathBuf::from(file.path.trim_start_matches("file:"));
        let bytes = region.file_system().read_all(&path, 1 << 20).expect("read");
        server.elsewhere.mkdirs(path.parent().expect("a folder")).expect("created");
        server.elsewhere.write_atomically(&path, &bytes).expect("written");
        region.file_system().delete(&path).expect("deleted");
        let path = format!("hdfs://elsewhere{}", path.display());
        FamilyPath { family: file.family.clone(), path }
    }

    #[test]
    fn files_of_another_file_system_are_copied() {
        let (server, region) = TestServer::with_region();
        server.server.background().switch_compactions(false);
        let [one, two, three] =
            [("/in/1", b"a"), ("/in/2", b"b"), ("/in/3", b"c")].map(|(path, row)| hfile(&region, path, row));
        let one = move_elsewhere(&server, &region, &one);
        let load = |files: &[&FamilyPath], copy_file| {
            let files: Vec<_> = files.iter().copied().cloned().collect();
            let load = pb::BulkLoadHFileRequest { copy_file: Some(copy_file), ..request(&region, &files) };
            bulk_load(&server.server, &load)
        };
        // Beside files of the server's own file system; whether the client asks for a copy or not.
        assert!(load(&[&one, &two], false).expect("answered").loaded);
        assert!(load(&[&one], true).expect("answered").loaded);
        assert_eq!(region.load().store_files, 3);
        let rows = region.get(evenkeel_region::operations::Scan::get("a")).expect("read");
        assert_eq!(rows.len(), 1);
        assert!(server.elsewhere.exists(Path::new("/in/1")).expect("looked"), "the source stays");

        let at = |path: &str| FamilyPath { family: Bytes::from_static(b"f"), path: path.to_owned() };
        let refused = [
            ("hdfs://unknown/in/1", "no NameNodes"),
            ("hdfs://elsewhere/in/../in/1", "not a path"),
            ("file://host/in/1", "not a path"),
            ("in/1", "not a path"),
            ("s3://bucket/in/1", "not a path"),
            ("hdfs://elsewhere/in/none", "/in/none"),
        ];
        for (path, why) in refused {
            let error = load(&[&three, &at(path)], false).expect_err(path);
            assert!(error.message().contains(why), "{path}: {error}");
        }
        let error = load(&[&one, &at("hdfs://unknown/in/1")], false).expect_err("two others");
        assert!(error.message().contains("two file systems"), "{error}");
        assert_eq!(region.load().store_files, 3);
        assert!(exists(&region, "/in/3"));
        assert!(load(&[&one, &at("hdfs://alias/in/3")], false).expect("answered").loaded);
        assert_eq!(region.load().store_files, 5, "the file system of the regions by another name");
    }

    #[test]
    fn few_requests_wait_for_other_file_systems() {
        let (server, region) = TestServer::with_region();
        server.server.background().switch_compactions(false);
        let [one, two] = [("/in/1", b"a"), ("/in/2", b"b")].map(|(path, row)| hfile(&region, path, row));
        let one = move_elsewhere(&server, &region, &one);
        let load = |file: &FamilyPath| {
            let bulk_token = Some("file:/hbase/staging/x".to_owned());
            let load =
                pb::BulkLoadHFileRequest { bulk_token, ..request(&region, std::slice::from_ref(file)) };
            bulk_load(&server.server, &load)
        };
        let begin = || server.server.elsewhere_lookups.begin();
        let mut waiting: Vec<_> = (0..ELSEWHERE_LOOKUPS_MAX).map(|_| begin().expect("few")).collect();
        assert_eq!(load(&one).expect_err("many wait").kind(), ErrorKind::RegionTooBusy);
        assert!(load(&two).expect("answered").loaded, "a file of the server's own file system");
        waiting.pop();
        for _ in 0..2 {
            assert!(load(&one).expect("answered").loaded, "each lookup ends");
        }
        assert_eq!(region.load().store_files, 2);
    }

    #[test]
    fn reserved_paths_of_hdfs_are_refused() {
        let location = Location::parse("hdfs://127.0.0.1:1/hbase").expect("usable");
        let fs = location.file_system(&evenkeel_common::Configuration::new()).expect("not connected yet");
        let (hooks, lookups) = (NoHooks::default(), ElsewhereLookups::default());
        let (root, staging) = ("/hbase".into(), "/hbase/staging".into());
        let sources = Sources { fs: &*fs, hooks: &hooks, lookups: &lookups, root, staging };
        for path in ["/.reserved/.inodes/16400", "//./.reserved/raw/in/1", "hdfs:///.reserved/raw/in/1"] {
            let path = FamilyPath { family: Bytes::from_static(b"f"), path: path.into() };
            let request = pb::BulkLoadHFileRequest { family_path: vec![path], ..Default::default() };
            let error = sources.files(&request, None).expect_err("refused");
            assert!(error.message().contains("not a path"), "{error}");
        }
    }

    /// Every file of the file system outside the staging directory, with its length.
    fn all_files(fs: &dyn FileSystem, dir: &Path) -> Vec<(PathBuf, u64)> {
        let listed = fs.list(dir).expect("listed").into_iter();
        let of = |found: evenkeel_fs::FileStatus| match found.is_dir {
            true => all_files(fs, &found.path),
            false => vec![(found.path, found.len)],
        };
        listed.flat_map(of).collect()
    }

    #[test]
    fn no_load_reads_or_moves_a_file_of_the_servers_own() {
        let (server, region) = TestServer::with_region();
        let victim = server.open(b"", b"", {
            let family = evenkeel_common::ColumnFamilyDescriptor::new(b"f").expect("legal");
            evenkeel_common::TableDescriptor::new("victim".parse().expect("legal")).with_family(family)
        });
        crate::testing::put(&victim, &[cell(b"a", b"q", b"v")]);
        victim.flush().expect("flushed");
        let server = &server.server;
        let dir = format!("/hbase/data/default/victim/{}/f", victim.info().encoded_name());
        let live = format!("{dir}/{}", victim.stores()[0].files()[0].name);
        let elsewhere = ["/hbase/archive/data/x/y/f/1", "/hbase/.hbase-snapshot/s/f/1", "/hbase/WALs/h/1"];
        elsewhere.iter().for_each(|path| drop(hfile(&region, path, b"a")));
        let staged = hfile(&region, "/hbase/staging/mine/f/1", b"c");
        let before = all_files(&**region.file_system(), Path::new("/hbase"));
        let family = Bytes::from_static(b"f");
        let parent = Path::new(&dir).parent().expect("a region").display().to_string();
        let tokens = ["/hbase/staging/mine", "/hbase/staging", "/hbase", "/", &dir, &parent, "/elsewhere"];
        let tokens = tokens.into_iter().map(|token| Some(format!("file:{token}"))).chain([None]);
        for bulk_token in tokens {
            let by_other_names = ["hdfs://alias", "hdfs://"].map(|authority| format!("{authority}{live}"));
            for path in elsewhere.into_iter().chain([&*live]).chain(by_other_names.iter().map(|path| &**path))
            {
                let path = FamilyPath { family: family.clone(), path: path.into() };
                let load =
                    pb::BulkLoadHFileRequest { bulk_token: bulk_token.clone(), ..request(&region, &[path]) };
                let is_loaded = bulk_load(server, &load).is_ok_and(|response| response.loaded);
                assert!(!is_loaded, "{load:?}");
                assert_eq!(all_files(&**region.file_system(), Path::new("/hbase")), before, "{load:?}");
            }
        }
        let others = pb::BulkLoadHFileRequest {
            bulk_token: Some("file:/hbase/staging/another".to_owned()),
            ..request(&region, std::slice::from_ref(&staged))
        };
        assert!(bulk_load(server, &others).expect("answered").loaded);
        assert!(exists(&region, "/hbase/staging/mine/f/1"), "another load's file stays where it is");
        assert_eq!(victim.get(evenkeel_region::operations::Scan::get("a")).expect("read").len(), 1);
    }

    #[test]
    fn links_pipes_and_path_traversals_are_refused() {
        let base = std::env::temp_dir().join(format!("evenkeel-bulk-sources-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        let (root, outside) = (base.join("root"), base.join("outside"));
        let (live, own) = (root.join("data/t/r/f"), root.join("staging/mine"));
        for dir in [&live, &own.join("f"), &outside] {
            std::fs::create_dir_all(dir).expect("made");
        }
        for file in [live.join("1"), own.join("f/1"), outside.join("1")] {
            std::fs::write(file, b"x").expect("written");
        }
        let link = |to: &Path, at: &Path| std::os::unix::fs::symlink(to, at).expect("linked");
        link(&live, &own.join("dir"));
        link(&live.join("1"), &own.join("f/file"));
        link(&live, &outside.join("dir"));
        link(&root, &base.join("same"));
        link(&live, &root.join("staging/false"));
        let made = std::process::Command::new("mkfifo").arg(outside.join("pipe")).status().expect("mkfifo");
        assert!(made.success());
        let fs = LocalFileSystem::new();
        let of = |path: &Path| resolved(&fs, path).expect("resolved");
        let (root_dir, staging) = (of(&root), of(&root.join("staging")));
        let (hooks, lookups) = (NoHooks::default(), ElsewhereLookups::default());
        let sources = Sources { fs: &fs, hooks: &hooks, lookups: &lookups, root: root_dir, staging };
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let file = |path: &Path, own_dir: Option<&Path>| {
            let path = FamilyPath { family: Bytes::from_static(b"f"), path: text(path) };
            let request = pb::BulkLoadHFileRequest { family_path: vec![path], ..Default::default() };
            sources.files(&request, own_dir).map(|files| (files[0].source.clone(), files[0].keep_source))
        };
        let own_dir = sources.own_dir(&text(&own)).expect("a staging directory").expect("below the root");
        assert_eq!(own_dir, of(&own));
        for token in [&live, &root, &base, &own.join("f"), &root.join("staging"), &root.join("staging/false")]
        {
            assert!(sources.own_dir(&text(token)).is_err(), "{}", token.display());
        }
        assert_eq!(sources.own_dir(&text(&outside)), Ok(None));
        let refused = [
            live.join("1"),
            own.join("dir/1"),
            own.join("f/file"),
            outside.join("dir/1"),
            outside.join("pipe"),
            base.join("same/data/t/r/f/1"),
            own.join("../../data/t/r/f/1"),
        ];
        for path in refused {
            assert!(file(&path, Some(&own_dir)).is_err(), "{}", path.display());
        }
        let same = base.join("same/staging/mine/f/1");
        assert_eq!(file(&same, Some(&own_dir)), Ok((own_dir.join("f/1"), false)));
        assert_eq!(file(&outside.join("1"), Some(&own_dir)), Ok((of(&outside).join("1"), true)));
        std::fs::remove_dir_all(&base).expect("removed");
    }
}
