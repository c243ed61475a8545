//! Takes a snapshot.
//!
//! The table's lock is held, so its regions do not change. The cleaners are held off, so that a
//! file that goes to the archive meanwhile stays there until the snapshot names it. Writes continue
//! throughout: every cell whose write is acknowledged before its region is flushed is in the
//! snapshot; later cells may be.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::mob::mob_region;
use evenkeel_common::{ColumnFamilyDescriptor, ErrorKind, HBaseError, RegionInfo, Result, TableName};
use evenkeel_metrics::activity::{self, ActivityKind, RunningActivity};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::snapshot_description::Type;
use evenkeel_region::region::has_recovered_edits;
use evenkeel_region::store::{Store, StoreEnv};
use evenkeel_region::{layout, snapshot_manifest};
use prost::Message;

use super::store::{LAYOUT_VERSION, NEW_INFO_BYTES_MAX, Snapshot};
use super::{TTL_SECONDS_MAX, check_name, check_not_expired, is_running, table_of, text_of, timed};
use crate::meta::TableState;
use crate::mob::files_of_mob_region;
use crate::tables::checks::check_directory_name;
use crate::tables::{Nonce, state_name};
use crate::{Master, Table};

/// The default TTL, if the client gives none.
const DEFAULT_TTL: &str = "hbase.master.snapshot.ttl";

impl Master {
    /// Takes a snapshot of a table, enabled or disabled.
    ///
    /// # Errors
    /// Returns `SnapshotExistsException`, `SnapshotCreationException`, or
    /// `UnsupportedOperationException` if snapshots are off.
    pub fn take_snapshot(self: &Arc<Self>, wanted: pb::SnapshotDescription, nonce: Nonce) -> Result<u64> {
        self.check_snapshot_support()?;
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        check_name(&wanted.name)?;
        check_directory_name(&wanted.name)?;
        let table = table_of(&wanted)?;
        if table.is_system() {
            return Err(HBaseError::do_not_retry("System table snapshots are not allowed"));
        }
        let snapshot = self.complete(wanted)?;
        let mut taking = self.snapshot_procedures.taking.lock();
        self.check_may_take(&snapshot, &table)?;
        if is_running(&mut taking, &snapshot.name, &self.procedures) {
            return Err(creation_error(format!(
                "Rejected taking {} because we are already running another snapshot on the same table or with the same name",
                text_of(&snapshot)
            )));
        }
        let (master, key, name) = (Arc::clone(self), snapshot.name.clone(), snapshot.name.clone());
        let (bytes, kind) = (snapshot.encoded_len(), "SnapshotProcedure");
        let id = self.procedures.submit_holding(bytes, kind, nonce, Some(&table.clone()), move || {
            let _lock = master.lock_table(&table)?;
            let _files_stay = master.cleaners.pause();
            let activity = activity::begin(ActivityKind::Snapshot, format!("{name} of {table}"));
            let taken = timed(&master.snapshot_procedures.times.taken, || {
                master.take_now(snapshot, &table, &activity)
            });
            taken.inspect_err(|error| {
                activity.fail(error);
                master.discard_snapshot(&name);
            })
        })?;
        taking.insert(key, id);
        Ok(id)
    }

    /// Fills in fields that a client omits (`SnapshotDescriptionUtils.validate`), and checks the
    /// size of the description.
    fn complete(&self, mut snapshot: pb::SnapshotDescription) -> Result<pb::SnapshotDescription> {
        if snapshot.creation_time() == 0 {
            snapshot.creation_time = Some(self.clock().now_ms());
        }
        if !(1..=TTL_SECONDS_MAX).contains(&snapshot.ttl()) {
            let default =
                self.parts.conf.get_i64_or(DEFAULT_TTL, 0).map_err(|e| HBaseError::io(e.to_string()))?;
            snapshot.ttl = Some(default);
        }
        snapshot.version.get_or_insert(LAYOUT_VERSION);
        let encoded = snapshot.encode_to_vec();
        if encoded.len() > NEW_INFO_BYTES_MAX {
            let (name, bytes) = (&snapshot.name, encoded.len());
            return Err(creation_error(format!(
                "The description of snapshot {name} takes {bytes} bytes, more than {NEW_INFO_BYTES_MAX}"
            )));
        }
        // The copy does not share the bytes of the request, which the procedure would keep.
        pb::SnapshotDescription::decode(Bytes::from(encoded)).map_err(|e| HBaseError::io(e.to_string()))
    }

    fn check_may_take(&self, snapshot: &pb::SnapshotDescription, table: &TableName) -> Result<()> {
        if self.snapshots().exists(&snapshot.name)? {
            let message = format!("Snapshot '{}' already stored on the filesystem.", snapshot.name);
            return Err(HBaseError::new(ErrorKind::SnapshotExists, message));
        }
        if is_running(&mut self.snapshot_procedures.restoring.lock(), table, &self.procedures) {
            return Err(creation_error(format!(
                "Rejected taking {} because we are already have a restore in progress on the same snapshot.",
                text_of(snapshot)
            )));
        }
        self.table(table)
            .map(drop)
            .map_err(|_| creation_error(format!("Table '{table}' doesn't exist, can't take snapshot.")))
    }

    /// Returns true if a requested snapshot exists.
    ///
    /// # Errors
    /// Returns `UnknownSnapshotException`, or `HBaseSnapshotException` if it could not be taken.
    pub fn is_snapshot_done(&self, snapshot: &pb::SnapshotDescription) -> Result<bool> {
        check_name(&snapshot.name)?;
        let id = self.snapshot_procedures.taking.lock().get(&snapshot.name).copied();
        match id.and_then(|id| self.procedures.state(id)).map(|state| state.outcome) {
            Some(None) => return Ok(false),
            Some(Some(Err(error))) => {
                let message = format!("Snapshot {} had an error.  {error}", text_of(snapshot));
                return Err(HBaseError::new(ErrorKind::HBaseSnapshot, message));
            }
            Some(Some(Ok(_))) | None => {}
        }
        if self.snapshots().exists(&snapshot.name)? {
            return Ok(true);
        }
        let message = format!(
            "Snapshot {} is not currently running or one of the known completed snapshots.",
            text_of(snapshot)
        );
        Err(HBaseError::new(ErrorKind::UnknownSnapshot, message))
    }

    /// Takes a snapshot, whose fields are complete, under the table's lock.
    pub(super) fn take_now(
        &self,
        mut snapshot: pb::SnapshotDescription,
        name: &TableName,
        activity: &RunningActivity,
    ) -> Result<Vec<u8>> {
        let table = self.table(name)?;
        match table.state {
            TableState::Enabled => {}
            TableState::Disabled => snapshot.r#type = Some(Type::Disabled.into()),
            other => {
                let state = state_name(other);
                return Err(creation_error(format!(
                    "Table is not entirely open or closed: {name} is {state}"
                )));
            }
        }
        let flush = snapshot.r#type() == Type::Flush;
        let all = self.parts.meta.regions(Some(name))?;
        let mut regions = Vec::with_capacity(all.len());
        for region in &all {
            activity.set_parts(regions.len(), all.len());
            regions.push(self.region_manifest(&table, &region.info, flush)?);
        }
        // After the regions, whose flushes write MOB files.
        let mut mob_files = files_of_mob_region(self.fs(), self.root(), name)?;
        mob_files.retain(|(family, _)| table.descriptor.family(family.as_bytes()).is_some());
        // A family whose IS_MOB was switched off has its references until they are compacted.
        let has_mob_files = mob_files.iter().any(|(_, files)| !files.is_empty());
        if has_mob_files || table.descriptor.families().any(ColumnFamilyDescriptor::is_mob) {
            regions.push(snapshot_manifest::build(self.fs(), self.root(), &mob_region(name), mob_files)?);
        }
        check_not_expired(&snapshot, self.clock().now_ms())?;
        let mut descriptor = (*table.descriptor).clone();
        if descriptor.text("MAX_FILESIZE").is_none() && snapshot.max_file_size() > 0 {
            descriptor = descriptor.with("MAX_FILESIZE", &snapshot.max_file_size().to_string());
        }
        let whole = Snapshot { description: snapshot, table: descriptor, regions };
        self.snapshots().prepare(&whole)?;
        self.snapshots().publish(&whole.description.name)?;
        tracing::info!(snapshot = whole.description.name, table = %name, regions = whole.regions.len(), "snapshot taken");
        Ok(Vec::new())
    }

    /// Removes what an attempt left. What cannot be removed stays until the next start.
    pub(super) fn discard_snapshot(&self, name: &str) {
        if let Err(error) = self.snapshots().discard(name) {
            tracing::warn!(snapshot = name, %error, "an unfinished snapshot stays until the next start");
        }
    }

    fn region_manifest(
        &self,
        table: &Table,
        info: &RegionInfo,
        flush: bool,
    ) -> Result<pb::SnapshotRegionManifest> {
        let files = self.store_files(table, info, flush)?;
        snapshot_manifest::build(self.fs(), self.root(), info, files)
    }

    /// Returns the names of a region's files, by family.
    fn store_files(
        &self,
        table: &Table,
        info: &RegionInfo,
        flush: bool,
    ) -> Result<Vec<(String, Vec<String>)>> {
        let of_store = |store: &Arc<Store>| {
            (store.family().name_text(), store.files().into_iter().map(|f| f.name).collect())
        };
        if let Some(region) = self.parts.regionserver.regions().find(info.encoded_name()) {
            if flush {
                region.flush()?;
            }
            return Ok(region.stores().iter().map(of_store).collect());
        }
        self.replay_edits(table, info)?;
        let stores = &self.parts.region_env.stores;
        let config = stores.config.for_table(&table.descriptor);
        let stores = &StoreEnv { config, ..stores.clone() };
        let families = table.descriptor.families();
        families.map(|family| Ok(of_store(&Store::open(stores, family.clone(), info)?))).collect()
    }

    /// Replays edits from a dead server's logs into store files, and finishes bulk loads, for a
    /// region that has not been opened since.
    pub(crate) fn replay_edits(&self, table: &Table, info: &RegionInfo) -> Result<()> {
        let dir = self.region_dir(info).join(layout::TMP_DIR);
        let is_load = |name: &str| name.starts_with(layout::BULK_LOAD_MANIFEST_PREFIX);
        if has_recovered_edits(&self.parts.region_env, info)? || self.has_file(&dir, is_load)? {
            // Replayed edits are in store files once the region is open, and nothing else was
            // written to it.
            drop(self.open_regions(&table.descriptor, vec![info.clone()])?);
        }
        Ok(())
    }

    fn has_file(&self, dir: &std::path::Path, is_wanted: impl Fn(&str) -> bool) -> Result<bool> {
        Ok(self.fs().exists(dir)? && self.fs().list(dir)?.iter().any(|file| is_wanted(file.name())))
    }
}

fn creation_error(message: String) -> HBaseError {
    HBaseError::new(ErrorKind::SnapshotCreation, message)
}
