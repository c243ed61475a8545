//! [`Catalog`]: the content of hbase:meta's files, read without opening the region.
//!
//! Opening a region writes: it replays, flushes and archives. A tool that must not write reads the
//! cells of hbase:meta's store files and of the WAL entries after them, and applies deletes and
//! versions itself. Unreadable parts are skipped with a warning, so a damaged file affects only its
//! cells.
//!
//! Memory: all cells of hbase:meta, about 1 KiB per region.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_block_cache::NoCache;
use evenkeel_common::{CellComparator, CellType, KeyValue, RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_hfile::{HFileReader, OpenOptions, StoreFileName};
use evenkeel_master::descriptors;
use evenkeel_master::meta::{INFO, TABLE};
use evenkeel_protocol::pb;
use evenkeel_region::layout;
use evenkeel_region::region::WalRoot;
use evenkeel_region::store_file_tracker::{self, TrackerKind, TrackerSettings};
use evenkeel_wal::WalReader;

/// A region in hbase:meta.
#[derive(Clone, Debug)]
pub struct CatalogRegion {
    /// The region.
    pub info: RegionInfo,
    /// The regions that were merged into it and may still have files.
    pub merge_parents: Vec<RegionInfo>,
}

/// The content of hbase:meta.
#[derive(Debug, Default)]
pub struct Catalog {
    /// Regions in the order of their rows, with split parents.
    pub regions: Vec<CatalogRegion>,
    /// The states of tables.
    pub tables: HashSet<TableName>,
    /// Warnings of unreadable parts.
    pub warnings: Vec<String>,
}

impl Catalog {
    /// Encoded names of replaced regions (parents of splits and merges) whose files may still
    /// exist.
    pub fn parents(&self) -> HashSet<&str> {
        let split = self.regions.iter().map(|region| &region.info).filter(|info| info.is_split_parent());
        let merged = self.regions.iter().flat_map(|region| &region.merge_parents);
        split.chain(merged).map(RegionInfo::encoded_name).collect()
    }

    /// The regions that serve a table, in order.
    pub fn serving<'a>(&'a self, table: &'a TableName) -> impl Iterator<Item = &'a RegionInfo> {
        let infos = self.regions.iter().map(|region| &region.info);
        infos.filter(move |info| info.table() == table && !info.is_split_parent() && info.replica_id() == 0)
    }
}

/// Reads hbase:meta below a root directory; `None` if there is none. `log_roots` are all
/// directories below which its logs and recovered edits may be.
///
/// # Errors
/// I/O errors of a directory.
pub fn read(fs: &dyn FileSystem, root: &Path, log_roots: &[WalRoot]) -> Result<Option<Catalog>> {
    let dir = layout::region_dir(root, &RegionInfo::meta());
    if !fs.exists(&dir)? {
        return Ok(None);
    }
    let descriptor = dir.parent().map_or(Ok(None), |table_dir| descriptors::read(fs, table_dir))?;
    let mut reading =
        CatalogReader { fs, descriptor, cells: Vec::new(), flushed: HashMap::new(), warnings: Vec::new() };
    for family in [INFO, TABLE] {
        reading.store(&dir, family)?;
    }
    for WalRoot { fs, path: root } in log_roots {
        let dir = layout::region_dir(root, &RegionInfo::meta());
        let mut wals = list(&**fs, &dir.join(layout::RECOVERED_EDITS_DIR))?;
        for server in list(&**fs, &root.join(layout::WALS_DIR))? {
            wals.extend(list(&**fs, &server.path)?);
        }
        wals.iter().filter(|wal| !wal.is_dir && wal.len > 0).for_each(|wal| reading.wal(&**fs, wal));
    }
    Ok(Some(reading.finish()))
}

/// Returns the entries of a directory; none if it does not exist.
///
/// # Errors
/// Other I/O errors.
pub fn list(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<FileStatus>> {
    match fs.list(dir) {
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        listed => Ok(listed?),
    }
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

struct CatalogReader<'a> {
    fs: &'a dyn FileSystem,
    /// The descriptor of hbase:meta; `None` if the directory has none.
    descriptor: Option<TableDescriptor>,
    cells: Vec<KeyValue>,
    /// The sequence id up to which a family's edits are in store files.
    flushed: HashMap<Vec<u8>, u64>,
    warnings: Vec<String>,
}

impl CatalogReader<'_> {
    fn store(&mut self, region: &Path, family: &[u8]) -> Result<()> {
        let dir = region.join(String::from_utf8_lossy(family).as_ref());
        let mut readers = Vec::new();
        let listed = self.listed_names(&dir, family)?;
        for file in list(self.fs, &dir)? {
            if listed.as_ref().is_some_and(|listed| !listed.contains(file.name())) {
                continue;
            }
            if file.len > 0 && matches!(StoreFileName::parse(file.name()), Some(StoreFileName::HFile { .. }))
            {
                readers.extend(self.open(&file.path).map(|reader| (file.name().to_owned(), reader)));
            }
        }
        let replaced: HashSet<String> =
            readers.iter().flat_map(|(_, reader)| reader.compacted_files()).collect();
        for (_, reader) in readers.iter().filter(|(name, _)| !replaced.contains(name)) {
            let flushed = self.flushed.entry(family.to_vec()).or_default();
            *flushed = reader.max_seq_id().unwrap_or(0).max(*flushed);
            if let Err(error) = self.cells_of(reader) {
                self.warnings.push(error.message().to_owned());
            }
        }
        Ok(())
    }

    /// Returns the names in the list of a family of hbase:meta; `None` if all its files count.
    fn listed_names(&self, dir: &Path, family: &[u8]) -> Result<Option<BTreeSet<String>>> {
        let Some(table) = &self.descriptor else { return Ok(None) };
        let Some(of_family) = table.family(family) else { return Ok(None) };
        let kind = TrackerKind::of(&TrackerSettings::of(table, of_family))?;
        store_file_tracker::listed_names(self.fs, dir, kind)
    }

    fn open(&mut self, path: &Path) -> Option<Arc<HFileReader>> {
        let opened = HFileReader::open_path(self.fs, path, Arc::new(NoCache), &OpenOptions::default());
        opened.map_err(|error| self.warnings.push(error.message().to_owned())).ok()
    }

    fn cells_of(&mut self, reader: &HFileReader) -> Result<()> {
        let mut offset = 0;
        while offset < reader.trailer().load_on_open_offset {
            let block = reader.block_at(offset)?;
            if block.kind().is_data() {
                reader.for_each_cell(&block, |cell| self.cells.push(KeyValue::copy_of(cell)))?;
            }
            offset += u64::from(block.on_disk_bytes());
        }
        Ok(())
    }

    fn wal(&mut self, fs: &dyn FileSystem, file: &FileStatus) {
        let meta = RegionInfo::meta();
        let mut reader = match WalReader::open(fs, &file.path) {
            Ok(reader) => reader,
            Err(error) => return self.warnings.push(error.to_string()),
        };
        loop {
            match reader.next() {
                Ok(Some(entry)) if entry.region == meta.encoded_name().as_bytes() => {
                    let flushed = |cell: &KeyValue| self.flushed.get(cell.as_cell().family()).copied();
                    let fresh = |cell: &KeyValue| entry.seq_id > flushed(cell).unwrap_or(0);
                    let fresh: Vec<_> = entry.cells.iter().filter(|cell| fresh(cell)).cloned().collect();
                    self.cells.extend(fresh);
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => {
                    self.warnings.push(error.to_string());
                    if !matches!(reader.skip_damage(), Ok(Some(_))) {
                        return;
                    }
                }
            }
        }
    }

    fn finish(mut self) -> Catalog {
        self.cells.sort_by(|a, b| CellComparator::Meta.compare(&a.as_cell(), &b.as_cell()));
        let mut catalog = Catalog { warnings: self.warnings, ..Catalog::default() };
        let live = live_cells(&self.cells);
        for row in live.chunk_by(|a, b| a.as_cell().row() == b.as_cell().row()) {
            catalog.add_row(row);
        }
        catalog
    }
}

impl Catalog {
    fn add_row(&mut self, row: &[&KeyValue]) {
        let (mut info, mut merge_parents) = (None, Vec::new());
        for cell in row.iter().map(|cell| cell.as_cell()) {
            let qualifier = cell.qualifier();
            let is_info = cell.family() == INFO;
            if cell.family() == TABLE && qualifier == b"state" {
                self.tables.extend(TableName::from_bytes(cell.row()).ok());
            } else if is_info && (qualifier == b"regioninfo" || qualifier.starts_with(b"merge")) {
                match region_info(cell.value()) {
                    Ok(region) if qualifier == b"regioninfo" => info = Some(region),
                    Ok(region) => merge_parents.push(region),
                    Err(error) => self.warnings.push(format!(
                        "hbase:meta row {}: {}",
                        cell.row().escape_ascii(),
                        error.message()
                    )),
                }
            }
        }
        self.regions.extend(info.map(|info| CatalogRegion { info, merge_parents }));
    }
}

fn region_info(value: &[u8]) -> Result<RegionInfo> {
    let info: pb::RegionInfo = evenkeel_protocol::from_magic(value)
        .map_err(|e| evenkeel_common::HBaseError::io(format!("not a region info: {e}")))?;
    RegionInfo::try_from(&info)
}

/// The newest visible put of each column. `cells` are sorted.
fn live_cells(cells: &[KeyValue]) -> Vec<&KeyValue> {
    let mut live = Vec::new();
    let same_family = |a: &KeyValue, b: &KeyValue| {
        let (a, b) = (a.as_cell(), b.as_cell());
        a.row() == b.row() && a.family() == b.family()
    };
    for family in cells.chunk_by(same_family) {
        let in_family = DeleteMarkers::of(family, CellType::DeleteFamily, CellType::DeleteFamilyVersion);
        for column in family.chunk_by(|a, b| a.as_cell().qualifier() == b.as_cell().qualifier()) {
            let in_column = DeleteMarkers::of(column, CellType::DeleteColumn, CellType::Delete);
            live.extend(column.iter().find(|cell| {
                let timestamp = cell.as_cell().timestamp();
                let is_put = cell.as_cell().cell_type() == Some(CellType::Put);
                is_put && !in_family.hides(timestamp) && !in_column.hides(timestamp)
            }));
        }
    }
    live
}

/// The puts that delete markers hide.
#[derive(Default)]
struct DeleteMarkers {
    /// Puts up to this timestamp.
    to: Option<i64>,
    /// Puts with exactly these timestamps.
    versions: HashSet<i64>,
}

impl DeleteMarkers {
    fn of(cells: &[KeyValue], up_to: CellType, version: CellType) -> Self {
        let mut hiding = Self::default();
        for cell in cells.iter().map(KeyValue::as_cell) {
            if cell.cell_type() == Some(up_to) {
                hiding.to = hiding.to.max(Some(cell.timestamp()));
            } else if cell.cell_type() == Some(version) {
                hiding.versions.insert(cell.timestamp());
            }
        }
        hiding
    }

    fn hides(&self, timestamp: i64) -> bool {
        self.to.is_some_and(|to| timestamp <= to) || self.versions.contains(&timestamp)
    }
}

/// WALs to replay, in the region directory of a stock master's store, like `recovered.edits`.
pub const RECOVERED_WALS_DIR: &str = "recovered.wals";

/// Returns the directories of a table's regions, or of a region's families: those whose names have
/// no leading dot.
///
/// # Errors
/// I/O errors.
pub fn visible_dirs(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<FileStatus>> {
    let is_edits = |name: &str| [layout::RECOVERED_EDITS_DIR, RECOVERED_WALS_DIR].contains(&name);
    let mut dirs = list(fs, dir)?;
    dirs.retain(|dir| dir.is_dir && !dir.name().starts_with('.') && !is_edits(dir.name()));
    Ok(dirs)
}

/// Returns every table directory below the root, with the table's name.
///
/// # Errors
/// I/O errors.
pub fn table_dirs(fs: &dyn FileSystem, root: &Path) -> Result<Vec<(TableName, PathBuf)>> {
    let mut tables = Vec::new();
    for namespace in visible_dirs(fs, &root.join("data"))? {
        for table in visible_dirs(fs, &namespace.path)? {
            tables.extend(TableName::new(namespace.name(), table.name()).ok().map(|name| (name, table.path)));
        }
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(cells: &[(&str, i64, CellType)]) -> Vec<String> {
        let mut cells: Vec<_> = cells
            .iter()
            .map(|(q, timestamp, kind)| KeyValue::new(b"r", INFO, q.as_bytes(), *timestamp, *kind, b""))
            .collect();
        cells.sort_by(|a, b| CellComparator::Meta.compare(&a.as_cell(), &b.as_cell()));
        let name =
            |c: &&KeyValue| format!("{}@{}", c.as_cell().qualifier().escape_ascii(), c.as_cell().timestamp());
        live_cells(&cells).iter().map(name).collect()
    }

    #[test]
    fn the_newest_version_is_live_and_markers_hide() {
        use CellType::{Delete, DeleteColumn, DeleteFamily, DeleteFamilyVersion, Put};
        assert_eq!(live(&[("a", 1, Put), ("a", 2, Put), ("b", 1, Put)]), ["a@2", "b@1"]);
        assert_eq!(live(&[("a", 1, Put), ("a", 2, Put), ("a", 2, Delete)]), ["a@1"]);
        assert_eq!(
            live(&[("a", 1, Put), ("a", 3, Put), ("a", 2, DeleteColumn), ("b", 1, Put)]),
            ["a@3", "b@1"]
        );
        assert_eq!(live(&[("a", 1, Put), ("b", 3, Put), ("", 2, DeleteFamily)]), ["b@3"]);
        assert_eq!(live(&[("a", 1, Put), ("a", 2, Put), ("", 2, DeleteFamilyVersion)]), ["a@1"]);
    }
}
