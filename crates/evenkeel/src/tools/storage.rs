//! The files that a tool reads: local ones, or those of an `hdfs:` URI; and the logs of a root
//! directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use evenkeel_common::Configuration;
use evenkeel_fs::{FileSystem, LocalFileSystem, Location};
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
    /// `wal_dir` (`hbase.wal.dir`), or else the one that the last start of a server recorded.
    ///
    /// # Errors
    /// If that directory does not exist; as [`StorageArgs::locate`].
    pub fn log_roots(
        &self,
        (fs, root): (&Arc<dyn FileSystem>, &Path),
        wal_dir: Option<&Path>,
    ) -> Result<Vec<WalRoot>, ErrorText> {
        let mut roots = vec![WalRoot { fs: Arc::clone(fs), path: root.to_owned() }];
        let recorded = recorded_wal_dir(&**fs, root).map_err(|e| e.message().to_owned())?;
        if let Some(dir) = wal_dir.map(Path::to_owned).or(recorded.map(PathBuf::from)) {
            let (fs, path) = self.locate(&dir)?;
            fs.list(&path).map_err(|e| e.to_string())?;
            roots.push(WalRoot { fs, path });
        }
        Ok(roots)
    }
}
