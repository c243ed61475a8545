//! Checks a root's directories against descriptors and hbase:meta, and lists the files to read.
//!
//! A region directory that hbase:meta does not name is a fault if it has store files. Without store
//! files it is a leftover: the server died after a split, a merge or a table creation had prepared
//! it. That is a note, and the next start removes the directory.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::mob::MOB_DIR;
use evenkeel_common::{HBaseError, RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_hfile::{Half, StoreFileName};
use evenkeel_master::descriptors;
use evenkeel_protocol::{PB_MAGIC, pb};
use evenkeel_region::layout;
use evenkeel_region::store_file_tracker::{self, TrackerKind, TrackerSettings};
use evenkeel_wal::names::is_wal_name;
use prost::Message;

use super::super::catalog::{Catalog, RECOVERED_WALS_DIR, list, table_dirs, visible_dirs};
use super::regions::{RegionSource, check_coverage};
use super::{FileKind, FileToRead, Report};

/// A separate tree within the root: the stock master's region, which hbase:meta does not name.
const MASTER_DATA_DIR: &str = "MasterData";
/// The size limit of small files.
const SMALL_FILE_BYTES_MAX: u64 = 1 << 20;

/// Checks the structure of a root directory, and lists the files to read.
///
/// # Errors
/// I/O errors of a directory.
pub fn plan(
    fs: &dyn FileSystem,
    root: &Path,
    catalog: Option<&Catalog>,
    report: &mut Report<'_>,
) -> Result<Vec<FileToRead>> {
    check_root_files(fs, root, report)?;
    let mut items = plan_tree(fs, root, catalog, report)?;
    let master = root.join(MASTER_DATA_DIR);
    if fs.exists(&master)? {
        items.extend(plan_tree(fs, &master, None, report)?);
    }
    Ok(items)
}

/// Plans one tree of tables, archive and WALs.
fn plan_tree(
    fs: &dyn FileSystem,
    root: &Path,
    catalog: Option<&Catalog>,
    report: &mut Report<'_>,
) -> Result<Vec<FileToRead>> {
    let mut plan = Plan { fs, root, catalog, items: Vec::new() };
    for (table, dir) in table_dirs(fs, root)? {
        plan.table(&table, &dir, report)?;
    }
    plan.missing_tables(report)?;
    for tree in ["archive", MOB_DIR] {
        for (_, dir) in table_dirs(fs, &root.join(tree))? {
            plan.archived(&dir)?;
        }
    }
    plan.all_wals()?;
    Ok(plan.items)
}

/// Lists the logs and recovered edits of a directory of logs (`hbase.wal.dir`).
///
/// # Errors
/// I/O errors of a directory.
pub fn plan_logs(fs: &dyn FileSystem, root: &Path) -> Result<Vec<FileToRead>> {
    let mut items = Vec::new();
    for root in [root.to_owned(), root.join(MASTER_DATA_DIR)] {
        let mut plan = Plan { fs, root: &root, catalog: None, items: Vec::new() };
        for (_, table) in table_dirs(fs, &root)? {
            for region in visible_dirs(fs, &table)? {
                plan.edits(&region.path)?;
            }
        }
        plan.all_wals()?;
        items.extend(plan.items);
    }
    Ok(items)
}

/// Checks `hbase.version` and `hbase.id`.
fn check_root_files(fs: &dyn FileSystem, root: &Path, report: &mut Report<'_>) -> Result<()> {
    let read = |name: &str| fs.read_all(&root.join(name), SMALL_FILE_BYTES_MAX);
    let version = |bytes: &[u8]| {
        evenkeel_protocol::from_magic::<pb::HBaseVersionFileContent>(bytes)
            .map(drop)
            .map_err(|e| e.to_string())
    };
    let id = |bytes: &[u8]| match bytes.starts_with(PB_MAGIC) {
        true => evenkeel_protocol::from_magic::<pb::ClusterId>(bytes).map(drop).map_err(|e| e.to_string()),
        false => std::str::from_utf8(bytes).map(drop).map_err(|e| e.to_string()),
    };
    type Parse<'a> = &'a dyn Fn(&[u8]) -> Result<(), String>;
    for (name, parse) in [("hbase.version", &version as Parse<'_>), ("hbase.id", &id as Parse<'_>)] {
        let path = root.join(name);
        match read(name) {
            Ok(bytes) => {
                if let Err(what) = parse(&bytes) {
                    report.fault_at(&path, 0, what);
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                report.note(format_args!("{}: missing", path.display()));
            }
            Err(e) => report.fault(e),
        }
    }
    Ok(())
}

/// The content of one region's directory.
#[derive(Default)]
struct RegionContents {
    /// Store files and links, not references.
    own_files: usize,
}

struct Plan<'a> {
    fs: &'a dyn FileSystem,
    root: &'a Path,
    catalog: Option<&'a Catalog>,
    items: Vec<FileToRead>,
}

impl Plan<'_> {
    fn table(&mut self, table: &TableName, dir: &Path, report: &mut Report<'_>) -> Result<()> {
        let descriptor = self.descriptor(table, dir, report)?;
        if !table.is_meta() && self.catalog.is_some_and(|catalog| !catalog.tables.contains(table)) {
            report.note(format_args!("{}: table {table} has no state in hbase:meta", dir.display()));
        }
        let by_name: HashMap<&str, &RegionInfo> = self.catalog.map_or_else(HashMap::new, by_encoded_name);
        let parents = self.catalog.map(Catalog::parents);
        let (mut told, mut referred) = (Vec::new(), HashSet::new());
        for region in visible_dirs(self.fs, dir)? {
            let info = self.region_info(table, &region, report)?;
            let found = self.region(&region, info.clone(), descriptor.as_ref(), &mut referred, report)?;
            let Some(info) = info else { continue };
            compare_with_catalog(&info, &region.path, by_name.get(region.name()).copied(), report);
            let is_known = table.is_meta()
                || by_name.contains_key(region.name())
                || parents.as_ref().is_some_and(|parents| parents.contains(region.name()));
            if self.catalog.is_some() && !is_known {
                unknown_region(&region.path, &found, report);
            }
            let serves = is_known || self.catalog.is_none() || found.own_files > 0;
            if serves && info.replica_id() == 0 && !info.is_split_parent() {
                told.push(RegionSource { info: (*info).clone(), by: region.path.display().to_string() });
            }
        }
        // Without hbase:meta, a region that reference files point to counts as a parent.
        let is_parent = |name: &str| parents.as_ref().map_or(referred.contains(name), |p| p.contains(name));
        told.retain(|told| !is_parent(told.info.encoded_name()));
        self.chains(table, told, report)
    }

    fn chains(&self, table: &TableName, told: Vec<RegionSource>, report: &mut Report<'_>) -> Result<()> {
        check_coverage(table, layout::REGION_INFO_FILE, told, report);
        let Some(catalog) = self.catalog.filter(|_| !table.is_meta()) else { return Ok(()) };
        let told = |info: &RegionInfo| RegionSource { info: info.clone(), by: info.name_text() };
        check_coverage(table, "hbase:meta", catalog.serving(table).map(told).collect(), report);
        for info in catalog.serving(table) {
            let dir = layout::region_dir(self.root, info);
            if !self.fs.exists(&dir)? {
                report.fault(format_args!("{}: missing, and a region in hbase:meta", dir.display()));
            }
        }
        Ok(())
    }

    /// Reports tables of hbase:meta without a directory.
    fn missing_tables(&self, report: &mut Report<'_>) -> Result<()> {
        let Some(catalog) = self.catalog else { return Ok(()) };
        let mut tables: Vec<_> = catalog.tables.iter().collect();
        tables.sort();
        for table in tables.into_iter().filter(|table| !table.is_meta()) {
            let dir = layout::table_dir(self.root, table);
            if !self.fs.exists(&dir)? {
                report.fault(format_args!("{}: missing, and a table in hbase:meta", dir.display()));
            }
        }
        Ok(())
    }

    fn descriptor(
        &self,
        table: &TableName,
        dir: &Path,
        report: &mut Report<'_>,
    ) -> Result<Option<TableDescriptor>> {
        for file in list(self.fs, &dir.join(".tabledesc"))? {
            let parts = file.name().strip_prefix(".tableinfo.").and_then(|rest| rest.split_once('.'));
            let told = parts.and_then(|(_, bytes)| bytes.parse::<u64>().ok());
            if told.is_some_and(|told| told != file.len) {
                let (path, told) = (file.path.display(), told.unwrap_or(0));
                report.fault(format_args!("{path} at offset {}: its name says {told} bytes", file.len));
            }
        }
        match descriptors::read(self.fs, dir) {
            Ok(Some(descriptor)) if descriptor.name() != table => {
                report.fault(format_args!(
                    "{}: the descriptor is of table {}",
                    dir.display(),
                    descriptor.name()
                ));
                Ok(None)
            }
            Ok(None) if !table.is_meta() => {
                report.fault(format_args!("{}: no table descriptor", dir.join(".tabledesc").display()));
                Ok(None)
            }
            Ok(descriptor) => Ok(descriptor),
            Err(error) => {
                report.fault(error.message());
                Ok(None)
            }
        }
    }

    fn region_info(
        &self,
        table: &TableName,
        dir: &FileStatus,
        report: &mut Report<'_>,
    ) -> Result<Option<Arc<RegionInfo>>> {
        let path = dir.path.join(layout::REGION_INFO_FILE);
        match read_region_info(self.fs, &path) {
            Ok(info) if info.table() != table || info.encoded_name() != dir.name() => {
                let name = info.name_text();
                report.fault_at(&path, 0, format_args!("it is of region {name}, not of this directory"));
                Ok(None)
            }
            Ok(info) => Ok(Some(Arc::new(info))),
            Err(error) => {
                report.fault(error.message());
                Ok(None)
            }
        }
    }

    fn region(
        &mut self,
        dir: &FileStatus,
        info: Option<Arc<RegionInfo>>,
        descriptor: Option<&TableDescriptor>,
        referred: &mut HashSet<String>,
        report: &mut Report<'_>,
    ) -> Result<RegionContents> {
        let mut found = RegionContents::default();
        for family in visible_dirs(self.fs, &dir.path)? {
            let name = family.name();
            if descriptor.is_some_and(|table| table.family(name.as_bytes()).is_none()) {
                report.note(format_args!("{}: a family that the table does not have", family.path.display()));
            }
            let listed = self.listed_names(&family, descriptor, report);
            let mut unseen = listed.clone().unwrap_or_default();
            for file in list(self.fs, &family.path)?.into_iter().filter(|file| !file.is_dir) {
                unseen.remove(file.name());
                if listed.as_ref().is_some_and(|listed| !listed.contains(file.name())) {
                    report.note(format_args!("{}: not in the list of store files", file.path.display()));
                    continue;
                }
                match StoreFileName::parse(file.name()) {
                    Some(kind) => {
                        let parent = self.store_file(&file, &kind, name, info.as_ref(), report);
                        found.own_files += usize::from(parent.is_none());
                        referred.extend(parent);
                    }
                    None => report.note(format_args!("{}: not a store file's name", file.path.display())),
                }
            }
            for name in unseen {
                let path = family.path.join(name);
                report.fault(format_args!("{}: missing, and in the list of store files", path.display()));
            }
        }
        self.edits(&dir.path)?;
        Ok(found)
    }

    /// Returns the names in a family's list; `None` if all its files count, or if the list cannot
    /// be read, which is a fault.
    fn listed_names(
        &self,
        family: &FileStatus,
        descriptor: Option<&TableDescriptor>,
        report: &mut Report<'_>,
    ) -> Option<BTreeSet<String>> {
        let table = descriptor?;
        let kind = TrackerKind::of(&TrackerSettings::of(table, table.family(family.name().as_bytes())?));
        match kind.and_then(|kind| store_file_tracker::listed_names(self.fs, &family.path, kind)) {
            Ok(listed) => listed,
            Err(error) => {
                report.fault(format_args!("{}: {}", family.path.display(), error.message()));
                None
            }
        }
    }

    /// Lists a store file, or checks a reference or link; returns the region that a reference
    /// points to.
    fn store_file(
        &mut self,
        file: &FileStatus,
        kind: &StoreFileName,
        family: &str,
        region: Option<&Arc<RegionInfo>>,
        report: &mut Report<'_>,
    ) -> Option<String> {
        match kind {
            StoreFileName::HFile { .. } if file.len == 0 => {
                report.fault_at(&file.path, 0, "an empty store file");
            }
            StoreFileName::HFile { .. } => {
                let work = FileKind::StoreFile { region: region.cloned(), family: family.to_owned() };
                self.items.push(FileToRead { path: file.path.clone(), bytes: file.len, work });
            }
            StoreFileName::Link(link) => {
                let name =
                    format!("{}/{}/{}/{family}/{}", link.namespace, link.table, link.region, link.hfile);
                self.check_target(&file.path, &candidate_link_paths(self.root, &name), report);
            }
            StoreFileName::Reference { target, region: parent } => {
                self.check_half(&file.path, report);
                self.check_target(
                    &file.path,
                    &self.candidate_reference_paths(&file.path, target, parent, family),
                    report,
                );
                return Some(parent.clone());
            }
        }
        None
    }

    fn check_half(&self, path: &Path, report: &mut Report<'_>) {
        let half = self.fs.read_all(path, SMALL_FILE_BYTES_MAX).map_err(HBaseError::from);
        if let Err(error) = half.and_then(|bytes| Half::parse(&bytes)) {
            report.fault_at(path, 0, error.message());
        }
    }

    /// The possible paths of a reference's target.
    fn candidate_reference_paths(
        &self,
        path: &Path,
        target: &str,
        parent: &str,
        family: &str,
    ) -> Vec<PathBuf> {
        if let Some(StoreFileName::Link(link)) = StoreFileName::parse(target) {
            let name = format!("{}/{}/{}/{family}/{}", link.namespace, link.table, link.region, link.hfile);
            return candidate_link_paths(self.root, &name);
        }
        // <table>/<region>/<family>/<reference>
        let table = path.ancestors().nth(3).unwrap_or(self.root);
        let below = table.strip_prefix(self.root).unwrap_or(table);
        let tables = [table.to_owned(), self.root.join("archive").join(below)];
        tables.map(|table| table.join(parent).join(family).join(target)).to_vec()
    }

    fn check_target(&self, path: &Path, places: &[PathBuf], report: &mut Report<'_>) {
        if places.iter().any(|place| self.fs.exists(place).unwrap_or(false)) {
            return;
        }
        let wanted = places.first().map(|place| place.display().to_string()).unwrap_or_default();
        report.fault_at(
            path,
            0,
            format_args!("the file that it refers to, {wanted}, does not exist and is not archived"),
        );
    }

    /// Files of the archive, and MOB files.
    fn archived(&mut self, dir: &Path) -> Result<()> {
        for region in visible_dirs(self.fs, dir)? {
            for family in visible_dirs(self.fs, &region.path)? {
                for file in list(self.fs, &family.path)? {
                    let kind = StoreFileName::parse(file.name());
                    if file.len > 0 && matches!(kind, Some(StoreFileName::HFile { .. })) {
                        let work = FileKind::StoreFile { region: None, family: family.name().to_owned() };
                        self.items.push(FileToRead { path: file.path, bytes: file.len, work });
                    }
                }
            }
        }
        Ok(())
    }

    /// The recovered edits of a region.
    fn edits(&mut self, region: &Path) -> Result<()> {
        for edits in list(self.fs, &region.join(layout::RECOVERED_EDITS_DIR))? {
            let is_edits = !edits.is_dir && edits.name().bytes().all(|b| b.is_ascii_digit());
            if is_edits {
                self.items.push(FileToRead { path: edits.path, bytes: edits.len, work: FileKind::Wal });
            }
        }
        self.wals(&region.join(RECOVERED_WALS_DIR))
    }

    /// The logs of all servers, and the old ones.
    fn all_wals(&mut self) -> Result<()> {
        for server in list(self.fs, &self.root.join(layout::WALS_DIR))? {
            self.wals(&server.path)?;
        }
        self.wals(&self.root.join(layout::OLD_WALS_DIR))
    }

    fn wals(&mut self, dir: &Path) -> Result<()> {
        for file in list(self.fs, dir)?.into_iter().filter(|file| !file.is_dir && is_wal_name(file.name())) {
            self.items.push(FileToRead { path: file.path, bytes: file.len, work: FileKind::Wal });
        }
        Ok(())
    }
}

fn by_encoded_name(catalog: &Catalog) -> HashMap<&str, &RegionInfo> {
    catalog.regions.iter().map(|region| (region.info.encoded_name(), &region.info)).collect()
}

/// Reads `.regioninfo`: PBUF, and a length-delimited RegionInfo.
///
/// # Errors
/// Prefixes an error with the file.
pub fn read_region_info(fs: &dyn FileSystem, path: &Path) -> Result<RegionInfo> {
    let bytes = fs.read_all(path, SMALL_FILE_BYTES_MAX)?;
    let bad = |what: &dyn std::fmt::Display| {
        HBaseError::io(format!("{} at offset 0: not a region info: {what}", path.display()))
    };
    let message = bytes.strip_prefix(PB_MAGIC).ok_or_else(|| bad(&"no PBUF magic"))?;
    let info = pb::RegionInfo::decode_length_delimited(message).map_err(|e| bad(&e))?;
    RegionInfo::try_from(&info).map_err(|e| bad(&e.message()))
}

/// Compares the ends: a region's name does not contain its end, so the sources can disagree.
fn compare_with_catalog(info: &RegionInfo, dir: &Path, meta: Option<&RegionInfo>, report: &mut Report<'_>) {
    if meta.is_some_and(|meta| meta.end_key() != info.end_key()) {
        let path = dir.join(layout::REGION_INFO_FILE);
        report.fault_at(&path, 0, "the region's end differs from that in hbase:meta");
    }
}

fn unknown_region(dir: &Path, found: &RegionContents, report: &mut Report<'_>) {
    let dir = dir.display();
    match found.own_files {
        0 => report.note(format_args!("{dir}: left by an interrupted change, without data of its own")),
        n => report.fault(format_args!("{dir}: not in hbase:meta, with {n} files of its own")),
    }
}

/// The possible paths of a link's target.
fn candidate_link_paths(root: &Path, name: &str) -> Vec<PathBuf> {
    ["data", ".tmp/data", "mobdir/data", "archive/data"].map(|dir| root.join(dir).join(name)).to_vec()
}
