//! The files that a tool reads: local ones, or those of an `hdfs:` URI.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use evenkeel_common::Configuration;
use evenkeel_fs::{FileSystem, LocalFileSystem, Location};

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
}
