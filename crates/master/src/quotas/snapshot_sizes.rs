//! The sizes of snapshots, which count against quotas of space (HBase's
//! `SnapshotQuotaObserverChore` and `FileArchiverNotifierImpl`).
//!
//! Snapshots of tables that have a quota, or whose namespace has one, have a size: the bytes of
//! their files that the table no longer has and that no earlier snapshot has, by the order of the
//! snapshots' names. Those files are in the archive. A snapshot that cannot be read keeps the size
//! that it had. HBase also adds a file when it is archived,
//! until the next time all sizes are computed; here sizes change only then.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use evenkeel_common::quota::{QuotaTarget, space};
use evenkeel_common::{RegionInfo, Result, TableName};
use evenkeel_protocol::pb;
use evenkeel_region::layout;

use super::chore::Stop;
use super::rows::Column;
use super::space::SpaceUsage;
use crate::{Master, reconcile};

/// The snapshots of each table.
type Snapshots = BTreeMap<TableName, BTreeSet<String>>;

impl Master {
    /// Computes and writes the sizes of snapshots, unless it is stopped. A failure is logged; the
    /// next time computes all again.
    pub(crate) fn measure_snapshots(&self, stop: &Stop) {
        if let Err(error) = self.measure_snapshots_now(stop) {
            tracing::warn!(%error, "the sizes of snapshots could not be computed");
        }
    }

    fn measure_snapshots_now(&self, stop: &Stop) -> Result<()> {
        let snapshots = self.limited_snapshots()?;
        let usage = self.read_space_usage()?;
        self.delete_sizes_of_others(&snapshots, &usage)?;
        let mut of_namespaces = BTreeMap::<_, u64>::new();
        for (table, names) in &snapshots {
            let mut total: u64 = 0;
            let row = QuotaTarget::Table(table.clone()).row();
            let mut counted = self.files_of(table)?;
            for name in names {
                if stop.is_requested() {
                    return Ok(());
                }
                let known = usage.snapshots.get(table).and_then(|sizes| sizes.get(name));
                match self.size_of(table, name, &mut counted) {
                    Ok(bytes) => {
                        total = total.saturating_add(bytes);
                        self.write_size(&row, &space::size_qualifier(name), known, bytes)?;
                    }
                    Err(error) => {
                        tracing::warn!(snapshot = name, %error, "the size of a snapshot cannot be computed");
                        total = total.saturating_add(known.copied().unwrap_or(0));
                    }
                }
            }
            let sum = of_namespaces.entry(table.namespace()).or_default();
            *sum = sum.saturating_add(total);
        }
        for (name, bytes) in of_namespaces {
            let row = QuotaTarget::Namespace(name.to_owned()).row();
            self.write_size(&row, space::SNAPSHOT_SIZE, usage.namespaces.get(name), bytes)?;
        }
        Ok(())
    }

    /// Returns the snapshots of tables that have a quota, or whose namespace has one.
    fn limited_snapshots(&self) -> Result<Snapshots> {
        let quotas = self.read_space_quotas()?;
        let mut snapshots = Snapshots::new();
        if quotas.tables.is_empty() && quotas.namespaces.is_empty() {
            return Ok(snapshots);
        }
        self.snapshots().visit(|snapshot| {
            let Some(table) = snapshot.table.as_deref().and_then(|name| name.parse::<TableName>().ok())
            else {
                return Ok(());
            };
            let in_namespace =
                quotas.namespaces.contains_key(table.namespace()) && self.table(&table).is_ok();
            if quotas.tables.contains_key(&table) || in_namespace {
                snapshots.entry(table).or_default().insert(snapshot.name);
            }
            Ok(())
        })?;
        Ok(snapshots)
    }

    fn delete_sizes_of_others(&self, snapshots: &Snapshots, usage: &SpaceUsage) -> Result<()> {
        for (table, sizes) in &usage.snapshots {
            let row = QuotaTarget::Table(table.clone()).row();
            let is_gone = |name: &&String| !snapshots.get(table).is_some_and(|names| names.contains(*name));
            for name in sizes.keys().filter(is_gone) {
                self.delete_size(&row, &space::size_qualifier(name))?;
            }
        }
        let namespaces: BTreeSet<_> = snapshots.keys().map(TableName::namespace).collect();
        for name in usage.namespaces.keys().filter(|name| !namespaces.contains(name.as_str())) {
            self.delete_size(&QuotaTarget::Namespace(name.clone()).row(), space::SNAPSHOT_SIZE)?;
        }
        Ok(())
    }

    fn delete_size(&self, row: &[u8], qualifier: &[u8]) -> Result<()> {
        let mut last_ms = self.quotas.last_write_ms.lock();
        self.delete_column(Column::of_usage(row, qualifier), &mut last_ms)
    }

    fn write_size(&self, row: &[u8], qualifier: &[u8], known: Option<&u64>, bytes: u64) -> Result<()> {
        if known == Some(&bytes) {
            return Ok(());
        }
        let mut last_ms = self.quotas.last_write_ms.lock();
        self.write_cell(Column::of_usage(row, qualifier), &space::encode_size(bytes), &mut last_ms)
    }

    /// Returns the size of a snapshot of a table: the bytes of its files that are not counted yet.
    fn size_of(&self, table: &TableName, name: &str, counted: &mut HashSet<String>) -> Result<u64> {
        let regions = self.snapshots().read(name)?.regions;
        let sizes = regions.iter().map(|region| self.archived_bytes(table, region, counted));
        Ok(sizes.fold(0, u64::saturating_add))
    }

    /// Returns the names of a table's store files.
    fn files_of(&self, table: &TableName) -> Result<HashSet<String>> {
        let mut names = HashSet::new();
        let dir = self.table_dir(table);
        if !self.fs().exists(&dir)? {
            return Ok(names);
        }
        for region in reconcile::region_dirs(self.fs(), &dir)? {
            for family in reconcile::family_dirs(self.fs(), &region.path)? {
                let files = self.fs().list(&family.path)?;
                names.extend(files.iter().map(|file| file.name().to_owned()));
            }
        }
        Ok(names)
    }

    /// Returns the bytes of the files of a region in a snapshot that are not counted yet, and
    /// counts them. A file that is not in the archive has none.
    fn archived_bytes(
        &self,
        table: &TableName,
        region: &pb::SnapshotRegionManifest,
        counted: &mut HashSet<String>,
    ) -> u64 {
        let Ok(info) = RegionInfo::try_from(&region.region_info) else { return 0 };
        let dir = layout::archive_table_dir(self.root(), table).join(info.encoded_name());
        let mut bytes: u64 = 0;
        for family in &region.family_files {
            let dir = dir.join(&*String::from_utf8_lossy(&family.family_name));
            for file in &family.store_files {
                if is_plain(&file.name) && counted.insert(file.name.clone()) {
                    let status = self.fs().status(&dir.join(&file.name));
                    bytes = bytes.saturating_add(status.map_or(0, |status| status.len));
                }
            }
        }
        bytes
    }
}

/// Returns true for a name that is one component of a path.
fn is_plain(name: &str) -> bool {
    Path::new(name).file_name().is_some_and(|file| file == name)
}
