//! [`Wals`]: the WALs of this process, and the reaction to their failure.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};

use evenkeel_common::clock::Clock;
use evenkeel_common::length;
use evenkeel_common::{Configuration, Result, ServerName};
use evenkeel_fs::FileSystem;
use evenkeel_region::layout;
use evenkeel_region::region::WalRoot;
use evenkeel_regionserver::RegionServer;
use evenkeel_wal::{Wal, WalConfig, WalListener, WalOptions};

use crate::settings::{self, Settings};
use crate::{FailureReason, StopRequest};

/// The two WALs: hbase:meta has a separate one, so that it can be recovered first.
#[derive(Clone)]
pub struct Wals {
    /// The WAL of all regions except hbase:meta.
    pub user: Arc<Wal>,
    /// The WAL of hbase:meta.
    pub meta: Arc<Wal>,
    /// The directory of both.
    pub dir: PathBuf,
    /// The file system of that directory.
    pub fs: Arc<dyn FileSystem>,
}

impl Wals {
    /// Creates the directory of this run and opens both.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn open(
        root: &WalRoot,
        (settings, conf): (&Settings, &Configuration),
        name: &ServerName,
        clock: &Arc<dyn Clock>,
        listener: WalEvents,
    ) -> Result<Self> {
        let WalRoot { fs, path: root } = root;
        let dir = root.join(layout::WALS_DIR).join(name.to_string());
        fs.mkdirs(&dir)?;
        let listener: Arc<dyn WalListener> = Arc::new(listener);
        let open = |prefix: String, suffix: &str, queue_bytes_max: u64, hsync: bool| {
            let config = settings::wal_config(conf, settings.memory.memstore)?;
            let hsync = hsync || config.hsync;
            Wal::open(WalOptions {
                fs: Arc::clone(fs),
                wal_dir: dir.clone(),
                old_dir: root.join(layout::OLD_WALS_DIR),
                prefix,
                suffix: suffix.to_owned(),
                config: WalConfig { queue_bytes_max: length::index(queue_bytes_max), hsync, ..config },
                clock: Arc::clone(clock),
                listener: Arc::clone(&listener),
            })
        };
        let (plan, names) =
            (&settings.memory, (evenkeel_wal::names::prefix(name), evenkeel_wal::names::meta_prefix(name)));
        let user = open(names.0, "", plan.log_buffer, false)?;
        // Writes to hbase:meta are synced to the disk regardless of their durability, because
        // directories of regions are created and deleted according to them.
        let meta = open(names.1, evenkeel_wal::names::META_SUFFIX, plan.meta_log_buffer, true)?;
        Ok(Self { user, meta, dir, fs: Arc::clone(fs) })
    }
}

/// The RegionServer, once it exists: the WALs are opened before it.
pub type RegionServerCell = Arc<OnceLock<Weak<RegionServer>>>;

/// Reacts to events of the WALs.
pub struct WalEvents {
    /// The RegionServer, once it exists.
    pub regionserver: RegionServerCell,
    /// Receives the reason of a failure.
    pub failure: FailureReason,
    /// Requests that this process stops.
    pub stop: StopRequest,
}

impl WalListener for WalEvents {
    fn abort(&self, reason: &str) {
        tracing::error!(reason, "the WAL failed; stopping");
        drop(self.failure.set(format!("the WAL failed: {reason}")));
        if let Some(server) = self.regionserver.get().and_then(Weak::upgrade) {
            server.report_fatal_error(&format!("the WAL failed: {reason}"));
        }
        (self.stop)(reason);
    }

    fn request_flush(&self, stores: &[(bytes::Bytes, Vec<bytes::Bytes>)]) {
        let Some(server) = self.regionserver.get().and_then(Weak::upgrade) else { return };
        for (region, families) in stores {
            if let Some(region) = server.regions().find(&String::from_utf8_lossy(region)) {
                region.require_flush(families);
                server.background().request_flush(&region);
            }
        }
    }
}
