//! [`Location`]: the file system that a path or URI names, and the path in it.
//!
//! | text | file system |
//! |---|---|
//! | `hdfs://host:port/path`, `hdfs://nameservice/path` | HDFS |
//! | `file:/path`, `file:///path` | local |
//! | `/path`, when `fs.defaultFS` is set to an `hdfs:` URI ([`Location::of_setting`]) | HDFS |
//! | any other path without a scheme | local |

use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::Configuration;
use evenkeel_hdfs::settings::path_of;
use evenkeel_hdfs::{HdfsClient, Settings};

use crate::{FileSystem, HdfsFileSystem, LocalFileSystem};

/// The setting that names the file system of paths without a scheme.
const DEFAULT_FS: &str = "fs.defaultFS";

/// The setting by which blocks of store files are compared with HBase's checksums only, and not
/// with those of HDFS.
const CHECKSUM_VERIFY: &str = "hbase.regionserver.checksum.verify";

/// Where files are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A path of this machine.
    Local(PathBuf),
    /// A path of a name service.
    Hdfs {
        /// The URI, which names the name service or a NameNode.
        uri: String,
        /// The path in it.
        path: PathBuf,
    },
}

impl Location {
    /// The location that a path or URI names.
    ///
    /// # Errors
    /// `InvalidInput` if it is empty or has another scheme.
    pub fn parse(text: &str) -> io::Result<Self> {
        let local = match text.strip_prefix("file:") {
            Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
            None if text.starts_with("hdfs:") => return Self::hdfs(text),
            None if text.contains("://") => return Err(unusable(text)),
            None => text,
        };
        if local.is_empty() { Err(unusable(text)) } else { Ok(Self::Local(local.into())) }
    }

    /// The location that a setting names: a path without a scheme belongs to `fs.defaultFS`.
    ///
    /// # Errors
    /// As [`Location::parse`].
    pub fn of_setting(conf: &Configuration, text: &str) -> io::Result<Self> {
        let default = conf.get_trimmed(DEFAULT_FS).ok().flatten().unwrap_or_default();
        match text.starts_with('/') && default.starts_with("hdfs:") {
            true => Self::hdfs(&format!("{}{text}", default.trim_end_matches('/'))),
            false => Self::parse(text),
        }
    }

    fn hdfs(uri: &str) -> io::Result<Self> {
        if !uri.starts_with("hdfs://") {
            return Err(unusable(uri));
        }
        let path = path_of(uri);
        let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
        Ok(Self::Hdfs { uri: uri.to_owned(), path: path.into() })
    }

    /// The path in its file system.
    pub fn path(&self) -> &Path {
        match self {
            Self::Local(path) | Self::Hdfs { path, .. } => path,
        }
    }

    /// True if both are in one file system.
    pub fn is_beside(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Local(_), Self::Local(_)) => true,
            (Self::Hdfs { .. }, Self::Hdfs { .. }) => self.authority() == other.authority(),
            _ => false,
        }
    }

    /// The settings of a client of the name service. `None` for a local path.
    ///
    /// # Errors
    /// `InvalidInput` for a name service without NameNodes, or a setting that cannot be used.
    pub fn hdfs_settings(&self, conf: &Configuration) -> io::Result<Option<Settings>> {
        match self {
            Self::Local(_) => Ok(None),
            Self::Hdfs { uri, .. } => Ok(Some(Settings::for_uri(conf, uri)?)),
        }
    }

    /// The file system. Connects to nothing yet.
    ///
    /// # Errors
    /// As [`Location::hdfs_settings`]; the system's error if no thread can be started.
    pub fn file_system(&self, conf: &Configuration) -> io::Result<Arc<dyn FileSystem>> {
        match self.hdfs_settings(conf)? {
            None => Ok(Arc::new(LocalFileSystem::new().with_bulk_permission(bulk_permission(conf)?))),
            Some(settings) => Ok(Arc::new(self.hdfs_file_system(conf, HdfsClient::new(settings)?)?)),
        }
    }

    /// Returns the file system of a client of the name service. It compares the bytes of store
    /// files with the checksums that the configuration requires.
    ///
    /// # Errors
    /// `InvalidInput` for a setting that cannot be used.
    pub fn hdfs_file_system(&self, conf: &Configuration, client: HdfsClient) -> io::Result<HdfsFileSystem> {
        let fs = HdfsFileSystem::new(client, self.authority()).with_bulk_permission(bulk_permission(conf)?);
        let trusts = conf.get_bool_or(CHECKSUM_VERIFY, true);
        let trusts = trusts.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        Ok(if trusts { fs } else { fs.verify_all() })
    }

    /// Returns the authority of the URI, which names the name service; empty for a local path.
    pub fn authority(&self) -> &str {
        match self {
            Self::Local(_) => "",
            Self::Hdfs { uri, .. } => authority(uri),
        }
    }
}

impl Display for Location {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => Display::fmt(&path.display(), f),
            Self::Hdfs { uri, .. } => f.write_str(uri),
        }
    }
}

fn authority(uri: &str) -> &str {
    let rest = uri.strip_prefix("hdfs://").unwrap_or(uri);
    rest.split('/').next().unwrap_or_default()
}

fn unusable(text: &str) -> io::Error {
    let what = format!("{text} is neither a local path nor a URI with file: or hdfs:");
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Returns the permission bits of store files (`CommonFSUtils.getFilePermissions`). With
/// `hbase.data.umask.enable` they are 777 without `hbase.data.umask`, and Hadoop's file systems
/// remove the bits of `fs.permissions.umask-mode`, too. `None` without that setting: store files
/// have the permissions of other files.
///
/// # Errors
/// `InvalidInput` for a setting that cannot be used.
pub fn bulk_permission(conf: &Configuration) -> io::Result<Option<u32>> {
    let invalid = |e| io::Error::new(io::ErrorKind::InvalidInput, e);
    if !conf.get_bool_or("hbase.data.umask.enable", false).map_err(invalid)? {
        return Ok(None);
    }
    let of_data = conf.get_umask_or("hbase.data.umask", 0).map_err(invalid)?;
    let of_all = conf.get_umask_or("fs.permissions.umask-mode", 0o022).map_err(invalid)?;
    Ok(Some(0o777 & !of_data & !of_all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hdfs(uri: &str, path: &str) -> Location {
        Location::Hdfs { uri: uri.into(), path: path.into() }
    }

    #[test]
    fn a_scheme_names_the_file_system() {
        for (text, path) in [("/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("file:/a/b", "/a/b"), ("a", "a")] {
            assert_eq!(Location::parse(text).expect("local"), Location::Local(path.into()));
        }
        let uri = "hdfs://nn:8020/hbase/";
        assert_eq!(Location::parse(uri).expect("hdfs"), hdfs(uri, "/hbase"));
        assert_eq!(Location::parse("hdfs://ns").expect("hdfs").path(), Path::new("/"));
        for bad in ["", "file:", "s3://bucket/x", "hdfs:/x"] {
            let error = Location::parse(bad).expect_err(bad);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn a_path_without_a_scheme_is_of_the_default_file_system() {
        let mut conf = Configuration::new();
        let of = |conf: &Configuration, text| Location::of_setting(conf, text).expect("usable");
        assert_eq!(of(&conf, "/hbase"), Location::Local("/hbase".into()));
        conf.set(DEFAULT_FS, "hdfs://ns/");
        assert_eq!(of(&conf, "/hbase"), hdfs("hdfs://ns/hbase", "/hbase"));
        assert_eq!(of(&conf, "./data"), Location::Local("./data".into()));
        assert_eq!(of(&conf, "file:///hbase"), Location::Local("/hbase".into()));
    }

    #[test]
    fn uris_of_one_file_system_are_paths_of_it() {
        let location = Location::parse("hdfs://nn:8020/hbase").expect("usable");
        let fs = location.file_system(&Configuration::new()).expect("threads");
        let path = Path::new("/hbase/staging");
        assert_eq!(fs.uri_of(path), "hdfs://nn:8020/hbase/staging");
        for text in ["hdfs://nn:8020/hbase/staging", "/hbase/staging"] {
            assert_eq!(fs.path_of(text).as_deref(), Some(path), "{text}");
        }
        for other in ["hdfs://nn:80201/hbase", "hdfs://other/hbase", "file:/hbase", "hbase", ""] {
            assert_eq!(fs.path_of(other), None, "{other}");
        }
        let local = LocalFileSystem::new();
        assert_eq!(local.path_of("file:///a/b"), Some("/a/b".into()));
        assert_eq!(local.path_of("hdfs://nn:8020/a"), None);
        assert_eq!(local.uri_of(Path::new("/a/b")), "file:/a/b");
    }

    #[test]
    fn locations_share_a_file_system_by_its_authority() {
        let of = |text| Location::parse(text).expect("usable");
        assert!(of("hdfs://a/x").is_beside(&of("hdfs://a/y")));
        assert!(!of("hdfs://a/x").is_beside(&of("hdfs://b/x")));
        assert!(!of("hdfs://a/x").is_beside(&of("/x")));
        assert!(of("/x").is_beside(&of("file:///y")));
    }

    #[test]
    fn store_files_have_the_permissions_of_their_umask() {
        use std::os::unix::fs::PermissionsExt;

        use crate::CreateOptions;
        let of = |settings: &[(&str, &str)]| {
            let mut conf = Configuration::new();
            settings.iter().for_each(|(key, value)| conf.set(*key, *value));
            bulk_permission(&conf)
        };
        let enabled = ("hbase.data.umask.enable", "true");
        assert_eq!(of(&[("hbase.data.umask", "077")]).expect("off"), None);
        assert_eq!(of(&[enabled]).expect("legal"), Some(0o755));
        assert_eq!(of(&[enabled, ("hbase.data.umask", "077")]).expect("legal"), Some(0o700));
        let both = [enabled, ("hbase.data.umask", "007"), ("fs.permissions.umask-mode", "u=rwx,g=rw,o=")];
        assert_eq!(of(&both).expect("legal"), Some(0o760));
        assert!(of(&[enabled, ("hbase.data.umask", "x")]).is_err());

        let dir = tempfile::tempdir().expect("a directory");
        let mode = |name: &str, fs: LocalFileSystem, options: CreateOptions| {
            let path = dir.path().join(name);
            fs.create(&path, options).expect("created").close().expect("closed");
            std::fs::metadata(&path).expect("there").permissions().mode() & 0o777
        };
        let fs = LocalFileSystem::new().with_bulk_permission(Some(0o750));
        let usual = mode("usual", LocalFileSystem::new(), CreateOptions::BULK);
        assert_eq!(mode("store-file", fs, CreateOptions::BULK), 0o750);
        assert_eq!(mode("log", fs, CreateOptions::LOG), usual);
    }
}
