//! Splits a region in two, merges several into one, and archives the parents.
//!
//! Neither copies data. The new regions get *references*: small files that stand for their part of
//! a parent's file (`<hfile>.<parent's encoded name>`, `Reference`). The new regions are opened,
//! one write to hbase:meta is the commit point, and then they are served ([`crate::assignment`]
//! describes the error handling). Compactions later rewrite the references into files of the new
//! regions; when no reference is left, [`Master::run_catalog_janitor`] archives the parents.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use evenkeel_common::{ErrorKind, HBaseError, KeyBuf, RegionInfo, Result, TableName, clock};
use evenkeel_metrics::activity::{self, ActivityKind};
use evenkeel_protocol::pb;
use evenkeel_region::region::{Region, write_seq_id_file};
use evenkeel_region::store_file_tracker::{ListedFile, StoreFileTracker, TrackerKind};

use crate::meta::{MetaChange, MetaRegion, TableState};
use crate::replicas::check_primary;
use crate::tables::checks;
use crate::tables::{Nonce, with_merge_parents};
use crate::{Master, is_in_use, reconcile};

impl Master {
    /// Splits a region at a row, or at its best split row.
    ///
    /// # Errors
    /// Returns `UnknownRegionException`, or `DoNotRetryIOException` if it cannot be split there.
    pub fn split_region(self: &Arc<Self>, encoded: &str, row: Option<Bytes>, nonce: Nonce) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        let region = self.online(encoded)?;
        check_primary(
            region.info(),
            ErrorKind::IllegalArgument,
            "Can't invoke split on non-default regions directly",
        )?;
        if region.info().table().is_system() {
            return Err(HBaseError::do_not_retry(format!(
                "{} is a system region",
                region.info().name_text()
            )));
        }
        self.check_splittable(&region)?;
        // The copy does not share the bytes of the request, which the infos of the daughters would
        // keep.
        let row = Bytes::copy_from_slice(&split_row(&region, row)?);
        let master = Arc::clone(self);
        let encoded = encoded.to_owned();
        let table = region.info().table().clone();
        self.procedures.submit_holding(
            row.len(),
            "SplitTableRegionProcedure",
            nonce,
            Some(&table),
            move || {
                let _lock = master.lock_table(region.info().table())?;
                let region = master.online(&encoded)?;
                master.check_splittable(&region)?;
                let _planned = master.plan_split(region.info())?;
                let started = clock::monotonic();
                let _activity = activity::begin(ActivityKind::Split, region.info().name_text());
                let daughters = master.split_now(&region, row)?;
                region.store_metrics().split_done(region.info().table(), clock::since(started));
                Ok(daughters)
            },
        )
    }

    /// Checks the switches and the policy, which may change while a split is queued.
    fn check_splittable(&self, region: &Region) -> Result<()> {
        let name = region.info().name_text();
        if !self.switches.split.load(Ordering::Relaxed) {
            return Err(HBaseError::do_not_retry(format!(
                "Split region {name} failed due to split switch off"
            )));
        }
        if !checks::is_on(&self.table(region.info().table())?.descriptor, "SPLIT_ENABLED") {
            return Err(HBaseError::do_not_retry(format!(
                "Split region {name} failed as region split is disabled for the table"
            )));
        }
        if !region.policy_permits_split() {
            let encoded = region.info().encoded_name();
            return Err(HBaseError::do_not_retry(format!("{encoded} NOT splittable")));
        }
        Ok(())
    }

    fn online(&self, encoded: &str) -> Result<Arc<Region>> {
        let unknown = || HBaseError::new(ErrorKind::UnknownRegion, encoded);
        self.parts.regionserver.regions().find(encoded).ok_or_else(unknown)
    }

    fn split_now(self: &Arc<Self>, parent: &Arc<Region>, row: Bytes) -> Result<Vec<u8>> {
        let info = parent.info();
        let id = self.new_region_ids(1);
        let (start, end) = (info.start_key().clone(), info.end_key().clone());
        let a = RegionInfo::new(info.table().clone(), start, row.clone(), id);
        let b = RegionInfo::new(info.table().clone(), row.clone(), end, id);
        checks::check_region_names([&a, &b])?;
        compact_to_own_files(parent)?;
        let closed = self.close_regions(std::iter::once(info))?;
        let seq_id = parent.read_point();
        let prepared = self.prepared_dirs(info.table(), vec![self.region_dir(&a), self.region_dir(&b)]);
        self.prepare_child(&a, std::iter::once((parent, &row, pb::reference::Range::Bottom)), seq_id)?;
        self.prepare_child(&b, std::iter::once((parent, &row, pb::reference::Range::Top)), seq_id)?;
        let daughters = self.open_regions(parent.table(), vec![a.clone(), b.clone()])?;
        let mut changes = vec![MetaChange::SplitParent(info.clone(), vec![a, b])];
        changes.extend(daughters.changes());
        self.parts.meta.commit(changes)?;
        closed.commit();
        prepared.commit();
        tracing::info!(region = %info.name_text(), row = %row.escape_ascii(), "region split");
        let daughters = daughters.serve();
        self.update_replicas(info.table());
        self.compact_references(&daughters);
        Ok(Vec::new())
    }

    /// Creates a new region's directory with references to its parents' files, lists of them where
    /// the stores keep lists, and the sequence id that it continues from.
    fn prepare_child<'a>(
        &self,
        child: &RegionInfo,
        parents: impl Iterator<Item = (&'a Arc<Region>, &'a Bytes, pb::reference::Range)>,
        seq_id: u64,
    ) -> Result<()> {
        let dir = self.region_dir(child);
        self.fs().delete(&dir)?;
        self.fs().mkdirs(&dir)?;
        let mut created: BTreeMap<String, (TrackerKind, Vec<ListedFile>)> = BTreeMap::new();
        for (parent, row, range) in parents {
            let splitkey = Bytes::copy_from_slice(KeyBuf::first_on_row(row).bytes());
            let reference = evenkeel_protocol::with_magic(&pb::Reference { splitkey, range: range.into() });
            for store in parent.stores() {
                let family = dir.join(store.family().name_text());
                self.fs().mkdirs(&family)?;
                let (_, listed) =
                    created.entry(store.family().name_text()).or_insert((store.tracker_kind(), Vec::new()));
                for file in store.files() {
                    let name = format!("{}.{}", file.name, parent.info().encoded_name());
                    self.fs().write_atomically(&family.join(&name), &reference)?;
                    listed.push(ListedFile { name, bytes: 0 });
                }
            }
        }
        for (family, (kind, files)) in created {
            self.track_files(&dir.join(family), kind, files)?;
        }
        write_seq_id_file(&self.parts.region_env, child, seq_id)
    }

    /// Lists the files of a new region's family.
    fn track_files(&self, family_dir: &Path, kind: TrackerKind, files: Vec<ListedFile>) -> Result<()> {
        let env = &self.parts.region_env.stores;
        StoreFileTracker::new(Arc::clone(&env.fs), Arc::clone(&env.clock), family_dir, kind).begin(files)
    }

    /// Merges adjacent regions. In HBase `forcible` also merges non-adjacent regions and all
    /// between them; here they are rejected.
    ///
    /// # Errors
    /// `UnknownRegionException`, `MergeRegionException`.
    pub fn merge_regions(
        self: &Arc<Self>,
        encoded: Vec<String>,
        forcible: bool,
        nonce: Nonce,
    ) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        let mut regions = encoded.iter().map(|e| self.online(e)).collect::<Result<Vec<_>>>()?;
        for region in &regions {
            let message = format!("Can't merge non-default replicas; {}", region.info().name_text());
            check_primary(region.info(), ErrorKind::MergeRegion, &message)?;
        }
        regions.sort_by(|a, b| a.info().start_key().cmp(b.info().start_key()));
        check_mergeable(&regions, forcible)?;
        let merge_of = || {
            let names: Vec<_> = regions.iter().map(|region| region.info().encoded_name()).collect();
            format!("Merge of [{}] failed", names.join(", "))
        };
        if !self.switches.merge.load(Ordering::Relaxed) {
            return Err(HBaseError::do_not_retry(format!("{} because merge switch is off", merge_of())));
        }
        let table = regions.first().map(|region| region.info().table().clone());
        if let Some(name) = &table
            && !checks::is_on(&self.table(name)?.descriptor, "MERGE_ENABLED")
        {
            let reason = "as region merge is disabled for the table";
            return Err(HBaseError::do_not_retry(format!("{} {reason}", merge_of())));
        }
        let master = Arc::clone(self);
        self.procedures.submit("MergeTableRegionsProcedure", nonce, table.as_ref(), move || {
            let Some(first) = regions.first() else { return Ok(Vec::new()) };
            let _lock = master.lock_table(first.info().table())?;
            // They may have been closed and reopened meanwhile.
            let now = regions.iter().map(|r| master.online(r.info().encoded_name()));
            master.merge_now(&now.collect::<Result<Vec<_>>>()?)
        })
    }

    fn merge_now(self: &Arc<Self>, parents: &[Arc<Region>]) -> Result<Vec<u8>> {
        let (Some(first), Some(last)) = (parents.first(), parents.last()) else { return Ok(Vec::new()) };
        let (start, end) = (first.info().start_key().clone(), last.info().end_key().clone());
        let table = first.info().table();
        let _activity = activity::begin(ActivityKind::Merge, first.info().name_text());
        let merged = RegionInfo::new(table.clone(), start, end, self.new_region_ids(1));
        parents.iter().try_for_each(compact_to_own_files)?;
        let ancestors = self.ancestors(parents)?;
        let closed = self.close_regions(parents.iter().map(|parent| parent.info()))?;
        let seq_id = parents.iter().map(|parent| parent.read_point()).max().unwrap_or(0);
        let prepared = self.prepared_dirs(table, vec![self.region_dir(&merged)]);
        let whole = parents.iter().map(|p| (p, p.info().start_key(), pb::reference::Range::Top));
        self.prepare_child(&merged, whole, seq_id)?;
        let opened = self.open_regions(first.table(), vec![merged.clone()])?;
        let infos: Vec<_> = parents.iter().map(|p| p.info().clone()).collect();
        let mut changes: Vec<_> = infos.iter().cloned().map(MetaChange::Delete).collect();
        changes.push(MetaChange::MergeParents(merged, infos.into_iter().chain(ancestors).collect()));
        changes.extend(opened.changes());
        self.parts.meta.commit(changes)?;
        closed.commit();
        prepared.commit();
        tracing::info!(%table, parents = parents.len(), "regions merged");
        let opened = opened.serve();
        self.update_replicas(table);
        self.compact_references(&opened);
        Ok(Vec::new())
    }

    /// Requests compactions that rewrite references into the regions' files, as HBase does when it
    /// opens the regions; does not wait for them. The janitor archives the parents later. A
    /// compaction that fails or is switched off is due again later, since a store with references
    /// needs a compaction.
    pub(crate) fn compact_references(&self, regions: &[Arc<Region>]) {
        let background = self.parts.regionserver.background();
        for region in regions.iter().filter(|region| !region.is_secondary() && has_references(region)) {
            background.request_reference_compaction(region);
        }
    }

    /// Archives split and merge parents without remaining references; returns their number.
    ///
    /// # Errors
    /// Returns errors of hbase:meta or the file system.
    pub fn run_catalog_janitor(&self) -> Result<usize> {
        let regions = self.parts.meta.regions(None)?;
        let mut archived = 0;
        for region in regions {
            // Skip a table with a change or snapshot in progress until the next run.
            let Some(_lock) = self.locks.try_lock(region.info.table()) else { continue };
            if region.info.is_split_parent() && self.are_free_of_references(&region.daughters)? {
                // Delete the row last: a directory without a row would be taken for a lost region.
                for parent in with_merge_parents(std::slice::from_ref(&region)) {
                    reconcile::archive_region(self.fs(), self.root(), parent)?;
                }
                self.parts.meta.commit(vec![MetaChange::Delete(region.info.clone())])?;
                archived += 1;
            } else if !region.merge_parents.is_empty()
                && self.are_free_of_references(std::slice::from_ref(&region.info))?
            {
                archived += self.forget_merge_parents(&region)?;
            }
        }
        self.remove_unused_wal_dirs()?;
        Ok(archived)
    }

    /// Returns true if no directory of these regions holds a reference. Reads the directories
    /// rather than the open regions: a reference that a compaction replaced stays in the directory
    /// while a scanner reads it, and the next start opens it.
    fn are_free_of_references(&self, regions: &[RegionInfo]) -> Result<bool> {
        for region in regions {
            if reconcile::has_references(self.fs(), self.root(), region)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the regions that these were merged from and that the janitor has not archived. Only
    /// replaced references read them, and their rows must stay until those references are deleted.
    fn ancestors(&self, regions: &[Arc<Region>]) -> Result<Vec<RegionInfo>> {
        let Some(first) = regions.first() else { return Ok(Vec::new()) };
        let mut known = self.parts.meta.regions(Some(first.info().table()))?;
        known.retain(|known| regions.iter().any(|region| *region.info() == known.info));
        Ok(known.into_iter().flat_map(|region| region.merge_parents).collect())
    }

    fn forget_merge_parents(&self, region: &MetaRegion) -> Result<usize> {
        for parent in &region.merge_parents {
            reconcile::archive_region(self.fs(), self.root(), parent)?;
        }
        self.parts
            .meta
            .commit(vec![MetaChange::DeleteColumns(region.info.clone(), region.merge_columns.clone())])?;
        Ok(region.merge_parents.len())
    }

    /// Closes a region and opens it again: the effect of a move with one server.
    ///
    /// # Errors
    /// Returns `UnknownRegionException`, or errors of the open.
    pub fn reopen_region(&self, encoded: &str) -> Result<()> {
        let region = self.online(encoded)?;
        if is_in_use(region.info()) {
            return Ok(());
        }
        let _lock = self.lock_table(region.info().table())?;
        let region = self.online(encoded)?;
        let table = self.table(region.info().table())?;
        let closed = self.close_regions(std::iter::once(region.info()))?;
        let opened = self.open_regions(&table.descriptor, vec![region.info().clone()])?;
        self.commit_regions(region.info().table(), opened.changes())?;
        closed.commit();
        drop(opened.serve());
        Ok(())
    }

    /// Stops serving a region until it is assigned again.
    ///
    /// # Errors
    /// Returns `UnknownRegionException`, or errors of the close.
    pub fn unassign_region(&self, encoded: &str) -> Result<()> {
        let region = self.online(encoded)?;
        if is_in_use(region.info()) {
            return Err(HBaseError::do_not_retry(format!("{} must be served", region.info().name_text())));
        }
        let _lock = self.lock_table(region.info().table())?;
        let region = self.online(encoded)?;
        let closed = self.close_regions(std::iter::once(region.info()))?;
        let table = region.info().table();
        self.commit_regions(table, vec![MetaChange::Put(region.info().clone(), "CLOSED")])?;
        self.assignment.set_unassigned(region.info(), true);
        closed.commit();
        self.publish_replicas(table)
    }

    /// Serves a region of an enabled table; a region that is already served is unchanged.
    ///
    /// # Errors
    /// Returns `UnknownRegionException`, `TableNotEnabledException`, or errors of the open.
    pub fn assign_region(&self, encoded: &str) -> Result<()> {
        if self.online(encoded).is_ok() {
            return Ok(());
        }
        let table = self.region_in_meta(encoded)?.table().clone();
        let _lock = self.lock_table(&table)?;
        // Another change may have opened or removed it before this thread took the lock.
        if self.online(encoded).is_ok() {
            return Ok(());
        }
        let info = self.region_in_meta(encoded)?;
        let table = self.table(&table)?;
        if table.state != TableState::Enabled {
            return Err(HBaseError::new(ErrorKind::TableNotEnabled, info.table().to_string()));
        }
        let opened = self.open_regions(&table.descriptor, vec![info])?;
        self.commit_regions(table.descriptor.name(), opened.changes())?;
        drop(opened.serve());
        self.publish_replicas(table.descriptor.name())
    }

    /// Submits a change of one region as a procedure of its table, and returns the procedure's id.
    /// A thread that waited for the table's earlier procedures would keep other tables waiting.
    ///
    /// # Errors
    /// Returns `UnknownRegionException`, or errors of hbase:meta and of
    /// [`ProcedureExecutor::submit`](crate::procedures::ProcedureExecutor::submit).
    pub(crate) fn submit_transit(
        self: &Arc<Self>,
        encoded: &str,
        change: fn(&Self, &str) -> Result<()>,
    ) -> Result<u64> {
        let table = match self.online(encoded) {
            Ok(region) => region.info().table().clone(),
            Err(_) => self.region_in_meta(encoded)?.table().clone(),
        };
        self.submit_transit_of(&table, encoded, change)
    }

    /// As [`Master::submit_transit`], for several regions. Returns the procedure's id of each
    /// region that hbase:meta has; `None` if the procedure could not be submitted.
    ///
    /// # Errors
    /// Errors of hbase:meta.
    pub(crate) fn submit_transits(
        self: &Arc<Self>,
        encoded: &[String],
        change: fn(&Self, &str) -> Result<()>,
    ) -> Result<Vec<Option<u64>>> {
        let regions = self.parts.meta.regions(None)?.into_iter().map(|region| region.info);
        let regions = regions.filter(|info| !info.is_split_parent());
        let tables: HashMap<_, _> =
            regions.map(|info| (info.encoded_name().to_owned(), info.table().clone())).collect();
        let known = encoded.iter().filter_map(|name| Some((name, tables.get(name)?)));
        Ok(known.map(|(name, table)| self.submit_transit_of(table, name, change).ok()).collect())
    }

    fn submit_transit_of(
        self: &Arc<Self>,
        table: &TableName,
        encoded: &str,
        change: fn(&Self, &str) -> Result<()>,
    ) -> Result<u64> {
        const NO_NONCE: (u64, u64) = (0, 0);
        let (this, encoded) = (Arc::clone(self), encoded.to_owned());
        let work = move || change(&this, &encoded).map(|()| Vec::new());
        self.procedures.submit("TransitRegionStateProcedure", NO_NONCE, Some(table), work)
    }

    fn region_in_meta(&self, encoded: &str) -> Result<RegionInfo> {
        let mut regions = self.parts.meta.regions(None)?.into_iter().map(|region| region.info);
        let found = regions.find(|info| info.encoded_name() == encoded && !info.is_split_parent());
        let found = match found {
            None => self.replica_in_meta(encoded)?,
            found => found,
        };
        found.ok_or_else(|| HBaseError::new(ErrorKind::UnknownRegion, encoded))
    }

    /// Returns the number of served regions of a table, with their secondary replicas.
    pub(crate) fn served_region_count(&self, table: &TableName) -> usize {
        self.parts.regionserver.regions().of_table(table).len()
    }
}

fn has_references(region: &Region) -> bool {
    region.stores().iter().any(|store| store.has_references())
}

/// Compacts references into files of the region: HBase cannot read a reference to a reference.
fn compact_to_own_files(region: &Arc<Region>) -> Result<()> {
    if !has_references(region) {
        return Ok(());
    }
    region.compact_references()?;
    if has_references(region) {
        let name = region.info().name_text();
        return Err(HBaseError::do_not_retry(format!("{name} still reads files of its parent region")));
    }
    Ok(())
}

fn split_row(region: &Arc<Region>, row: Option<Bytes>) -> Result<Bytes> {
    let reject = |message: String| Err(HBaseError::do_not_retry(message));
    let Some(row) = row.filter(|row| !row.is_empty()) else {
        region.flush()?;
        let name = region.info().name_text();
        return region.best_split_row().map_or_else(
            || {
                reject(format!(
                    "Region not splittable because bestSplitPoint = null, maybe table is too small for auto split. For \
                     force split, try specifying split row: {name}"
                ))
            },
            Ok,
        );
    };
    let row = region.restricted_split_row(row);
    if row == *region.info().start_key() {
        return reject(format!("Split row is equal to startkey: {}", row.escape_ascii()));
    }
    if !region.info().contains_row(&row) {
        let name = region.info().name_text();
        return reject(format!(
            "Split row is not inside region key range splitKey:{}, region: {name}",
            row.escape_ascii()
        ));
    }
    Ok(row)
}

fn check_mergeable(regions: &[Arc<Region>], forcible: bool) -> Result<()> {
    let reject = |message: String| Err(HBaseError::new(ErrorKind::MergeRegion, message));
    if regions.len() < 2 {
        return reject(format!("Need two Regions at least to run a Merge, {} given", regions.len()));
    }
    for (a, b) in regions.iter().zip(regions.iter().skip(1)) {
        let (a, b) = (a.info(), b.info());
        if a.table() != b.table() || a.table().is_system() {
            return reject(format!(
                "Can't merge regions of different or system tables: {}, {}",
                a.name_text(),
                b.name_text()
            ));
        }
        if a == b {
            return reject(format!("Can't merge a region with itself: {}", a.name_text()));
        }
        if a.end_key() != b.start_key() {
            let advice = if forcible { "also when forced" } else { "not adjacent" };
            return reject(format!(
                "Unable to merge non-adjacent regions ({advice}): {}, {}",
                a.name_text(),
                b.name_text()
            ));
        }
    }
    Ok(())
}
