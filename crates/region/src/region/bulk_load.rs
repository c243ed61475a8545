//! Bulk loads: HFiles that another program wrote become store files, of several families at once.
//!
//! ```text
//! check every file; copy those whose source      no lock is held, and nothing has changed yet
//! stays into .tmp, sync the others               the files of the manifest survive a power loss
//!                                                (a file of another file system is always copied)
//! flush lock:   flush, for a sequence id between the edits before and those after
//!               write the manifest (`manifest`)  the load is committed
//!               rename every file into place, open it, commit it to the stores' trackers
//! epoch odd:    swap the file lists of all families
//!               BULK_LOAD into the log, delete the manifest
//! ```
//! Readers see all files of a load or none. An error before the manifest exists leaves the region
//! unchanged. A later error is undone; if that fails, too, the next open of the region finishes the
//! load.
//!
//! **Repeated requests.** A client that got no reply repeats the request, for the same files with
//! the same token. The name of a loaded file is derived from token, region, family and path. So the
//! region recognises a file that is served or archived, and loads only the rest of the request,
//! which is usually empty.
//!
//! HBase gives the same replies, but differs in three ways after a failure: it leaves an
//! interrupted load incomplete; it makes families visible in turn; and a client cannot request a
//! file again if it was moved before its reply was lost.
//!
//! **Claims of a file.** A file's info may name files that it replaces, and a sequence id up to
//! which all edits are in files. Both are true only in the store that wrote the file. In another
//! store they would remove served files, or edits of the log. So every loaded file has a sequence
//! id in its name, and a store ignores the claims of such a file. Without an assigned id the name
//! has 0. HBase omits the id then, and believes the claims.

pub(super) mod manifest;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{HBaseError, Result, clock};
use evenkeel_fs::FileSystem;
use evenkeel_protocol::pb;
use evenkeel_wal::markers::Marker;
use md5::{Digest, Md5};
use parking_lot::MutexGuard;

use self::manifest::{FileMove, Manifest};
use super::replica_stream::FileChange;
use super::{Phase, Region, RegionCount};
use crate::layout;
use crate::store::{Store, StoreFile};

/// One file to load.
#[derive(Clone, Debug)]
pub struct BulkFile {
    /// Its family.
    pub family: Bytes,
    /// The client's name of the file. With the token, it identifies the file.
    pub path: PathBuf,
    /// The file's location in its file system.
    pub source: PathBuf,
    /// The file system from which it is copied; `None` for that of the region.
    pub source_fs: Option<Arc<dyn FileSystem>>,
    /// True to copy the file, false to move it. A file of another file system is always copied.
    pub keep_source: bool,
}

/// Files to load together.
#[derive(Clone, Debug, Default)]
pub struct BulkLoad {
    /// The files.
    pub files: Vec<BulkFile>,
    /// True if their cells are newer than all earlier edits; otherwise they are older than all
    /// edits.
    pub assign_seq_id: bool,
    /// Identifies this load. Without a token, a repeated request loads the files again.
    pub token: Option<String>,
    /// Clusters that have loaded these files; for the log.
    pub cluster_ids: Vec<String>,
    /// True if peer clusters should load them, too; for the log.
    pub replicate: bool,
}

/// The result of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkLoadOutcome {
    /// The files are served.
    Loaded,
    /// Nothing was done: these files have rows of other regions, usually since a split.
    DoesNotFit(Vec<PathBuf>),
}

/// The unfinished part of the last load.
#[derive(Debug, Default)]
pub(super) enum UnfinishedLoad {
    #[default]
    Nothing,
    /// The load failed and could not be undone.
    Undo(Manifest),
    /// The load is done and its manifest still exists.
    DeleteManifest(Manifest),
}

/// A file that is ready to be moved, and its store.
struct PreparedFile<'a> {
    store: &'a Arc<Store>,
    from: PathBuf,
    loaded_file_prefix: String,
    is_copy: bool,
}

impl Region {
    /// Serves files that another program wrote; see the module. Blocks on the disk.
    /// # Errors
    /// `NotServingRegionException`, `RegionTooBusyException` if too many store files are open,
    /// `DoNotRetryIOException` for an unknown family, and for a secondary replica,
    /// `CorruptHFileException` or `IOException` for a bad file, and `IOException` from the file
    /// system or the log. No file is loaded then; but if undoing the load fails, too, the next open
    /// of the region loads all of them.
    pub fn bulk_load(self: &Arc<Self>, load: &BulkLoad) -> Result<BulkLoadOutcome> {
        if !self.info.is_primary() {
            return Err(HBaseError::do_not_retry("region is read only"));
        }
        let _one = self.bulk_loading.lock();
        self.finish_pending_load(&self.flushing.lock())?;
        self.check_serving()?;
        self.counts.add(RegionCount::Writes, 1);
        let stores = load.files.iter().map(|file| self.bulk_store(&file.family));
        let stores = stores.collect::<Result<Vec<_>>>()?;
        let mut left = Vec::new();
        for (file, store) in load.files.iter().zip(stores) {
            let stem = self.loaded_file_prefix(load.token.as_deref(), file);
            if load.token.is_none() || !store.was_loaded(&stem)? {
                left.push((file, store, stem));
            }
        }
        let misfits = files_outside_region(&left)?;
        if !misfits.is_empty() {
            return Ok(BulkLoadOutcome::DoesNotFit(misfits));
        }
        if left.is_empty() {
            return Ok(BulkLoadOutcome::Loaded);
        }
        let _admitted = self.env.stores.open_files.admit(left.len())?;
        let (mut prepared, began_at) = (Vec::new(), clock::monotonic());
        let outcome = prepare(&left, &mut prepared).and_then(|()| self.commit_load(load, &mut prepared));
        if outcome.is_err() && matches!(*self.unfinished.lock(), UnfinishedLoad::Nothing) {
            discard_copies(&prepared);
        }
        outcome.map(|()| {
            self.env.stores.metrics.bulk_loaded(clock::since(began_at));
            BulkLoadOutcome::Loaded
        })
    }

    /// Returns true if a load with a token has loaded a file, so that a repeated one would not.
    ///
    /// # Errors
    /// As [`Region::bulk_load`].
    pub fn has_loaded(&self, token: &str, file: &BulkFile) -> Result<bool> {
        self.bulk_store(&file.family)?.was_loaded(&self.loaded_file_prefix(Some(token), file))
    }

    pub(super) fn check_serving(&self) -> Result<()> {
        if *self.updates.read() == Phase::Closed { Err(self.not_serving()) } else { Ok(()) }
    }

    /// Finishes or undoes the last load, if it is incomplete. The caller holds the flush lock.
    pub(super) fn finish_pending_load(&self, _no_flush: &MutexGuard<'_, ()>) -> Result<()> {
        let fs = &*self.env.stores.fs;
        let mut unfinished = self.unfinished.lock();
        match &*unfinished {
            UnfinishedLoad::Nothing => {}
            UnfinishedLoad::Undo(manifest) => self.untrack(manifest).and_then(|()| manifest.undo(fs))?,
            UnfinishedLoad::DeleteManifest(manifest) => manifest.delete(fs)?,
        }
        *unfinished = UnfinishedLoad::Nothing;
        Ok(())
    }

    fn bulk_store(&self, family: &[u8]) -> Result<&Arc<Store>> {
        self.store_of(family).ok_or_else(|| {
            HBaseError::do_not_retry(format!("No such column family {}", family.escape_ascii()))
        })
    }

    /// Returns the name of a loaded file, up to its sequence id.
    fn loaded_file_prefix(&self, token: Option<&str>, file: &BulkFile) -> String {
        let Some(token) = token else { return uuid::Uuid::new_v4().simple().to_string() };
        let path = file.path.as_os_str().as_encoded_bytes();
        let mut hash = Md5::new();
        for part in [token.as_bytes(), &self.encoded_name, &file.family, path] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn commit_load(self: &Arc<Self>, load: &BulkLoad, prepared: &mut [PreparedFile<'_>]) -> Result<()> {
        let _no_flush = self.flushing.lock();
        self.check_serving()?;
        let seq_id = load.assign_seq_id.then(|| self.flush_at_barrier()).transpose()?;
        // In the order of families, like the log's marker.
        prepared.sort_by(|a, b| a.store.family().name().cmp(b.store.family().name()));
        let manifest = self.manifest(load, prepared, seq_id)?;
        let fs = &*self.env.stores.fs;
        let placed = (manifest.write(fs).and_then(|()| manifest.apply(fs)))
            .and_then(|()| open_all(prepared, &manifest))
            .and_then(|opened| track_all(prepared, opened));
        let opened = match placed {
            Ok(opened) => opened,
            Err(error) => return Err(self.undo(manifest, error)),
        };
        let swap = || {
            for (one, file) in prepared.iter().zip(opened) {
                one.store.add_files(vec![file]);
            }
            self.invalidate_row_cache();
        };
        let seq_id_of_cells = seq_id.unwrap_or(0);
        self.with_new_epoch_then(swap, |()| {
            self.stream_files(seq_id_of_cells, || vec![loaded(&manifest, seq_id_of_cells)]);
        });
        self.announce_files();
        tracing::info!(region = %self.info.name_text(), files = prepared.len(), seq_id, "bulk loaded");
        let logged = self.log_marker(|_| Marker::BulkLoad(manifest.marker.clone()));
        if let Err(error) = manifest.delete(fs) {
            tracing::warn!(region = %self.info.name_text(), %error, "the manifest of a finished bulk load could not be deleted yet");
            *self.unfinished.lock() = UnfinishedLoad::DeleteManifest(manifest);
        }
        logged.map_err(|error| error.context("the files are loaded, but their marker is not in the log"))
    }

    fn undo(&self, manifest: Manifest, error: HBaseError) -> HBaseError {
        tracing::error!(region = %self.info.name_text(), %error, "a bulk load failed");
        if let Err(undo) = self.untrack(&manifest).and_then(|()| manifest.undo(&*self.env.stores.fs)) {
            tracing::error!(region = %self.info.name_text(), error = %undo, "a bulk load cannot be undone yet");
            *self.unfinished.lock() = UnfinishedLoad::Undo(manifest);
        }
        error
    }

    /// Makes the stores forget the files of a load, before they are moved back.
    fn untrack(&self, manifest: &Manifest) -> Result<()> {
        self.stores.iter().try_for_each(|store| {
            let names: Vec<_> = manifest.names_of(store.family().name()).map(str::to_owned).collect();
            store.untrack_loaded(&names)
        })
    }

    fn manifest(
        &self,
        load: &BulkLoad,
        prepared: &[PreparedFile<'_>],
        seq_id: Option<u64>,
    ) -> Result<Manifest> {
        let name =
            |one: &PreparedFile<'_>| format!("{}_SeqId_{}_", one.loaded_file_prefix, seq_id.unwrap_or(0));
        let to_move = |one: &PreparedFile<'_>| FileMove {
            family: one.store.family().name().to_vec().into(),
            from: one.from.clone(),
            name: name(one),
        };
        let moves: Vec<FileMove> = prepared.iter().map(to_move).collect();
        let marker = pb::BulkLoadDescriptor {
            table_name: self.info.table().into(),
            encoded_region_name: self.encoded_name.clone(),
            stores: self.store_descriptors(&moves)?,
            bulkload_seq_num: seq_id.map_or(-1, |seq_id| seq_id as i64),
            cluster_ids: load.cluster_ids.clone(),
            replicate: Some(load.replicate),
        };
        Ok(Manifest::new(layout::region_dir(&self.env.stores.root, &self.info), moves, marker))
    }

    fn store_descriptors(&self, moves: &[FileMove]) -> Result<Vec<pb::StoreDescriptor>> {
        let of_family = |moves: &[FileMove]| -> Result<pb::StoreDescriptor> {
            // One size for all files of a family: HBase logs the size of the last one.
            let last = moves.last().map(|one| self.env.stores.fs.status(&one.from)).transpose()?;
            let family = moves.first().map(|one| one.family.clone()).unwrap_or_default();
            Ok(pb::StoreDescriptor {
                store_home_dir: String::from_utf8_lossy(&family).into_owned(),
                store_file: moves.iter().map(|one| one.name.clone()).collect(),
                family_name: family,
                store_file_size_bytes: last.map(|status| status.len),
            })
        };
        moves.chunk_by(|a, b| a.family == b.family).map(of_family).collect()
    }

    /// Logs the loads that an earlier server committed and this open has finished.
    pub(super) fn log_finished_loads(&self, finished: Vec<Manifest>) -> Result<()> {
        for manifest in finished {
            self.log_marker(|_| Marker::BulkLoad(manifest.marker.clone()))?;
            manifest.delete(&*self.env.stores.fs)?;
        }
        Ok(())
    }
}

/// The change of store files by a load.
fn loaded(manifest: &Manifest, seq_id: u64) -> FileChange {
    let of_family = |store: &pb::StoreDescriptor| (store.family_name.clone(), store.store_file.clone());
    FileChange::Loaded { seq_id, files: manifest.marker.stores.iter().map(of_family).collect() }
}

/// Returns the files with rows of other regions.
fn files_outside_region(files: &[(&BulkFile, &Arc<Store>, String)]) -> Result<Vec<PathBuf>> {
    let mut misfits = Vec::new();
    for (file, store, _) in files {
        let is_legal = match &file.source_fs {
            Some(fs) => store.check_bulk_file_of(&**fs, &file.source)?,
            None => store.check_bulk_file(&file.source)?,
        };
        if !is_legal {
            misfits.push(file.path.clone());
        }
    }
    Ok(misfits)
}

/// Copies files that must keep their source, and syncs files that their writer may not have synced.
/// Adds the results to `prepared`, also after an error.
fn prepare<'a>(
    files: &[(&BulkFile, &'a Arc<Store>, String)],
    prepared: &mut Vec<PreparedFile<'a>>,
) -> Result<()> {
    for (file, store, stem) in files {
        let is_copy = file.keep_source || file.source_fs.is_some();
        let from = match is_copy {
            true => store.copy_to_tmp(file.source_fs.as_deref(), &file.source, stem)?,
            false => store.sync_staged(&file.source).map(|()| file.source.clone())?,
        };
        prepared.push(PreparedFile { store, from, loaded_file_prefix: stem.clone(), is_copy });
    }
    Ok(())
}

fn discard_copies(prepared: &[PreparedFile<'_>]) {
    prepared.iter().filter(|one| one.is_copy).for_each(|one| one.store.discard_copy(&one.from));
}

fn open_all(prepared: &[PreparedFile<'_>], manifest: &Manifest) -> Result<Vec<Arc<StoreFile>>> {
    let open = |(one, to): (&PreparedFile<'_>, &FileMove)| one.store.open_file(&to.name);
    prepared.iter().zip(&manifest.moves).map(open).collect()
}

/// Makes the files a part of their stores.
fn track_all(prepared: &[PreparedFile<'_>], opened: Vec<Arc<StoreFile>>) -> Result<Vec<Arc<StoreFile>>> {
    let mut left = &opened[..];
    for of_store in prepared.chunk_by(|a, b| Arc::ptr_eq(a.store, b.store)) {
        let (files, rest) = left.split_at_checked(of_store.len()).unwrap_or((left, &[]));
        of_store.iter().take(1).try_for_each(|one| one.store.track_loaded(files))?;
        left = rest;
    }
    Ok(opened)
}

/// Serves the files of loads that this open has finished, where a tracker did not list them yet.
///
/// # Errors
/// `IOException` or `CorruptHFileException`.
pub(super) fn adopt_loads(stores: &[Arc<Store>], loads: &[Manifest]) -> Result<()> {
    for load in loads {
        stores.iter().try_for_each(|store| store.adopt_loaded(load.names_of(store.family().name())))?;
    }
    Ok(())
}
