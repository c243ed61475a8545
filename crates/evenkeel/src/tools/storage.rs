//! The files that a tool reads: local ones, or those of an `hdfs:` URI; and the logs of a root
//! directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use evenkeel_common::Configuration;
use evenkeel_fs::{DirLock, FileSystem, LocalFileSystem, Location};
use evenkeel_region::region::WalRoot;
use evenkeel_standalone::recorded_wal_dir;

use super::ErrorText;

/// Options of every tool that reads files.
#[derive(Args, Debug)]
pub struct StorageArgs {
    /// The directory that holds hbase-site.xml, core-site.xml and hdfs-site.xml; otherwise
    /// HBASE_CONF_DIR, otherwise defaults
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
}

impl StorageArgs {
    /// The settings of that directory.
    ///
    /// # Errors
    /// If a file there cannot be read.
    pub fn configuration(&self) -> Result<Configuration, ErrorText> {
        Configuration::load(self.config.as_deref(), &[]).map_err(|e| e.to_string())
    }

    /// The file system of a path or URI, and the path in it. Settings are read for HDFS only.
    ///
    /// # Errors
    /// If the URI has another scheme or names no NameNode; as [`StorageArgs::configuration`].
    pub fn locate(&self, path: &Path) -> Result<(Arc<dyn FileSystem>, PathBuf), ErrorText> {
        let Some(text) = path.to_str() else { return Ok((Arc::new(LocalFileSystem::new()), path.into())) };
        let location = Location::parse(text).map_err(|e| e.to_string())?;
        let conf = match &location {
            Location::Local(_) => Configuration::new(),
            Location::Hdfs { .. } => self.configuration()?,
        };
        let fs = location.file_system(&conf).map_err(|e| e.to_string())?;
        Ok((fs, location.path().to_owned()))
    }

    /// Returns every directory below which logs of a root directory may be: itself first, then
    /// `wal_dir` (`hbase.wal.dir`), or else the one that the last start of a server recorded. The
    /// record of a copied root directory names the directory of the original, and a server may be
    /// running on that.
    ///
    /// # Errors
    /// If that directory does not exist, or, being recorded, is in use by another process than the
    /// root directory; as [`StorageArgs::locate`].
    pub fn log_roots(
        &self,
        (fs, root): (&Arc<dyn FileSystem>, &Path),
        wal_dir: Option<&Path>,
    ) -> Result<Vec<WalRoot>, ErrorText> {
        let mut roots = vec![WalRoot { fs: Arc::clone(fs), path: root.to_owned() }];
        let recorded = recorded_wal_dir(&**fs, root).map_err(|e| e.message().to_owned())?;
        if let Some(dir) = wal_dir.map(Path::to_owned).or(recorded.map(PathBuf::from)) {
            let (log_fs, path) = self.locate(&dir)?;
            log_fs.list(&path).map_err(|e| e.to_string())?;
            let of_logs = holder(&*log_fs, &path)?;
            if let Some(process) = of_logs.filter(|_| wal_dir.is_none())
                && holder(&**fs, root)? != Some(process)
            {
                return Err(format!(
                    "{} is in use by process {process}, which does not run on {}: is this a copy? --wal-dir DIR \
                     names the directory of its logs",
                    path.display(),
                    root.display()
                ));
            }
            roots.push(WalRoot { fs: log_fs, path });
        }
        Ok(roots)
    }
}

/// The process that has locked a local directory.
fn holder(fs: &dyn FileSystem, dir: &Path) -> Result<Option<u32>, ErrorText> {
    if fs.is_remote() { Ok(None) } else { DirLock::holder(dir).map_err(|e| e.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_does_not_read_the_logs_of_a_running_server() {
        let folder = tempfile::tempdir().expect("made");
        let [root, copy, logs] = ["root", "copy", "wals"].map(|name| folder.path().join(name));
        for dir in [&root, &copy, &logs] {
            std::fs::create_dir(dir).expect("made");
        }
        for dir in [&root, &copy] {
            std::fs::write(dir.join(".evenkeel.wal.dir"), format!("file:{}\n", logs.display()))
                .expect("written");
        }
        let fs: Arc<dyn FileSystem> = Arc::new(LocalFileSystem::new());
        let args = StorageArgs { config: None };
        let roots = |root: &Path, wal_dir: Option<&Path>| {
            let roots = args.log_roots((&fs, root), wal_dir)?;
            Ok::<Vec<PathBuf>, ErrorText>(roots.into_iter().map(|root| root.path).collect())
        };
        assert_eq!(roots(&copy, None), Ok(vec![copy.clone(), logs.clone()]), "the server has ended");
        let _locks = [&root, &logs].map(|dir| DirLock::acquire(dir).expect("free"));
        assert_eq!(roots(&root, None), Ok(vec![root.clone(), logs.clone()]));
        let error = roots(&copy, None).expect_err("in use");
        assert!(error.contains("is in use by process") && error.contains("--wal-dir"), "{error}");
        assert_eq!(roots(&copy, Some(&logs)), Ok(vec![copy.clone(), logs.clone()]));
    }
}
