//! [`MobFileCache`]: the open MOB files of a server (`MobFileCache`).
//!
//! A table may have many MOB files, and only a read opens one. An open file holds a descriptor and
//! its root index. So at most `hbase.mob.file.cache.size` files stay open. If one more is opened,
//! those that were used last stay, as many as `hbase.mob.cache.evict.remain.ratio` of the limit.
//! HBase evicts in a thread of its own, too; here every opening evicts, so the limit always holds.
//!
//! These files are not among the store files that [`OpenFiles`](crate::store::OpenFiles) counts, so
//! that they never cause a flush to be refused. The server's limit of open files caps their number
//! ([`MobFileCacheConfig::at_most`]). Compactions open files for themselves.
//!
//! Files are opened without the lock. If two threads open a file at once, one of the two readers is
//! dropped. A reader of a file that is archived or deleted meanwhile stays usable on a local file
//! system; if a read fails, the caller [closes](MobFileCache::close) it and looks elsewhere. A file
//! that is archived is closed here, so that its space is free once it is deleted.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use evenkeel_common::length;
use evenkeel_common::{ConfigError, Configuration, Result, TryError, TryResult, Wait};
use evenkeel_hfile::HFileReader;
use parking_lot::Mutex;

use super::MobMetrics;

const FILES_MAX: &str = "hbase.mob.file.cache.size";
const REMAIN_RATIO: &str = "hbase.mob.cache.evict.remain.ratio";

/// Limits of the open MOB files of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MobFileCacheConfig {
    /// `hbase.mob.file.cache.size`: open files; 0 to open a file for each read.
    pub files_max: usize,
    /// `hbase.mob.cache.evict.remain.ratio`: the fraction of them that an eviction leaves.
    pub remain_ratio: f64,
}

impl Default for MobFileCacheConfig {
    fn default() -> Self {
        Self { files_max: 1000, remain_ratio: 0.5 }
    }
}

impl MobFileCacheConfig {
    /// Reads the server's configuration.
    ///
    /// # Errors
    /// A value that cannot be parsed.
    pub fn from_configuration(conf: &Configuration) -> Result<Self, ConfigError> {
        let default = Self::default();
        let files_max = conf.get_i64_or(FILES_MAX, default.files_max as i64)?;
        let remain_ratio = conf.get_f64_or(REMAIN_RATIO, default.remain_ratio)?;
        Ok(Self {
            files_max: usize::try_from(files_max).unwrap_or(0),
            remain_ratio: remain_ratio.clamp(0.0, 1.0),
        })
    }

    /// The same, with no more open files than `files_max`.
    #[must_use]
    pub fn at_most(self, files_max: usize) -> Self {
        if self.files_max > files_max {
            tracing::info!(
                limit = files_max,
                wanted = self.files_max,
                "fewer MOB files stay open than {FILES_MAX} permits, because of the limit of open files"
            );
        }
        Self { files_max: self.files_max.min(files_max), ..self }
    }
}

/// The open MOB files of a server, and its counts. See the module.
#[derive(Debug, Default)]
pub struct MobFileCache {
    config: MobFileCacheConfig,
    files: Mutex<HashMap<PathBuf, OpenMobFile>>,
    accesses: AtomicU64,
    misses: AtomicU64,
    evicted: AtomicU64,
    metrics: MobMetrics,
}

#[derive(Debug)]
struct OpenMobFile {
    reader: Arc<HFileReader>,
    /// The number of the last access.
    used: u64,
}

impl MobFileCache {
    /// An empty cache.
    pub fn new(config: MobFileCacheConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// What the server has done with MOB files.
    pub fn metrics(&self) -> &MobMetrics {
        &self.metrics
    }

    /// The number of files that stay open (`mobFileCacheCount`).
    pub fn len(&self) -> usize {
        self.files.lock().len()
    }

    /// Returns true if no file is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads of a MOB file so far (`mobFileCacheAccessCount`).
    pub fn accesses(&self) -> u64 {
        self.accesses.load(Relaxed)
    }

    /// Those among them that opened it (`mobFileCacheMissCount`).
    pub fn misses(&self) -> u64 {
        self.misses.load(Relaxed)
    }

    /// Files that were closed for others so far, or after an error (`mobFileCacheEvictedCount`).
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// Returns an open file, or opens it.
    ///
    /// # Errors
    /// Errors of `open`, and `WouldWait` if the file is not open and waiting is forbidden.
    pub(super) fn open(
        &self,
        path: &Path,
        wait: Wait,
        open: impl FnOnce() -> Result<Arc<HFileReader>>,
    ) -> TryResult<Arc<HFileReader>> {
        if let Some(reader) = self.get(path) {
            return Ok(reader);
        }
        if wait == Wait::Never {
            return Err(TryError::WouldWait);
        }
        let reader = open()?;
        let used = self.accesses.fetch_add(1, Relaxed);
        self.misses.fetch_add(1, Relaxed);
        if self.config.files_max > 0 {
            let file = OpenMobFile { reader: Arc::clone(&reader), used };
            drop(self.insert(path, file));
        }
        Ok(reader)
    }

    /// Returns an open file.
    pub(super) fn get(&self, path: &Path) -> Option<Arc<HFileReader>> {
        let mut files = self.files.lock();
        let file = files.get_mut(path)?;
        file.used = self.accesses.fetch_add(1, Relaxed);
        Some(Arc::clone(&file.reader))
    }

    /// Adds a file. Returns the files that it displaces, which the caller closes.
    fn insert(&self, path: &Path, file: OpenMobFile) -> Vec<OpenMobFile> {
        let mut files = self.files.lock();
        let mut displaced = Vec::new();
        if files.len() >= self.config.files_max {
            let keep = length::whole(self.config.files_max as f64 * self.config.remain_ratio);
            let keep = length::index(keep).min(self.config.files_max - 1);
            let mut used: Vec<_> = files.values().map(|file| file.used).collect();
            used.sort_unstable_by(|a, b| b.cmp(a));
            let oldest_kept = keep.checked_sub(1).and_then(|last| used.get(last).copied());
            displaced = files
                .extract_if(|_, file| oldest_kept.is_none_or(|oldest| file.used < oldest))
                .map(|(_, file)| file)
                .collect();
            self.evicted.fetch_add(displaced.len() as u64, Relaxed);
        }
        displaced.extend(files.insert(path.to_owned(), file));
        displaced
    }

    /// Closes a file: after an error, so that the next read opens it again, or because it is
    /// archived.
    pub fn close(&self, path: &Path) {
        let removed = self.files.lock().remove(path);
        if removed.is_some() {
            self.evicted.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_block_cache::NoCache;
    use evenkeel_common::{ErrorKind, HBaseError};
    use evenkeel_fs::MemoryFileSystem;
    use evenkeel_hfile::{HFileContext, HFileWriter, OpenOptions, StoreFileMeta};

    use super::*;
    #[test]
    fn at_most_as_many_files_stay_open_as_allowed() {
        let fs = MemoryFileSystem::new();
        let paths: Vec<_> = (0..9).map(|i| PathBuf::from(format!("/mob/{i}"))).collect();
        for path in &paths {
            let writer = HFileWriter::create(&fs, path, HFileContext::default()).expect("created");
            writer.finish(StoreFileMeta::default()).expect("written");
        }
        let cache = MobFileCache::new(MobFileCacheConfig { files_max: 4, remain_ratio: 0.5 });
        let open = |i: usize, wait| {
            cache.open(&paths[i], wait, || {
                HFileReader::open_path(&fs, &paths[i], Arc::new(NoCache), &OpenOptions::default())
            })
        };
        assert!(matches!(open(0, Wait::Never), Err(TryError::WouldWait)));
        for i in 0..4 {
            open(i, Wait::Allowed).expect("opened");
        }
        open(0, Wait::Never).expect("is open");
        assert_eq!((cache.len(), cache.accesses(), cache.misses(), cache.evicted()), (4, 5, 4, 0));
        open(4, Wait::Allowed).expect("opened");
        assert_eq!((cache.len(), cache.evicted()), (3, 2));
        for i in [0, 3, 4] {
            open(i, Wait::Never).expect("the last used stay open");
        }
        for i in 5..9 {
            open(i, Wait::Allowed).expect("opened");
            assert!(cache.len() <= 4);
        }
        cache.close(&paths[8]);
        assert!(matches!(open(8, Wait::Never), Err(TryError::WouldWait)));
        let lost = cache.open(Path::new("/mob/x"), Wait::Allowed, || {
            Err(HBaseError::new(ErrorKind::FileNotFound, "lost"))
        });
        assert!(matches!(lost, Err(TryError::Failed(_))));
        let none = MobFileCache::new(MobFileCacheConfig { files_max: 0, remain_ratio: 0.5 });
        let reader = open(0, Wait::Allowed).expect("opened");
        none.open(&paths[0], Wait::Allowed, || Ok(reader)).expect("opened");
        assert!(none.is_empty());
    }

    #[test]
    fn the_limit_of_open_files_caps_the_cache() {
        let config = MobFileCacheConfig::default();
        assert_eq!((config.at_most(128).files_max, config.at_most(5000).files_max), (128, 1000));
    }
}
