//! hbase:meta: which regions exist, where they are, and which tables are enabled.
//!
//! A change of tables or regions is one atomic write here ([`MetaTable::commit`]). Everything on
//! disk that the write refers to is created before it, and everything that it drops is removed
//! after it. So a crash leaves a table either before or after the change; the next start finds
//! leftovers by comparing directories with these rows.
//!
//! **A write that fails** changes nothing here, but the log may hold it nonetheless, and a restart
//! would replay it. So its rows are in doubt until they are written again with their current values
//! ([`MetaTable::revert_failed_writes`]): before the next write, and before any step that relies on
//! the failed write having no effect.
//!
//! Rows and cells are those of HBase 2.6 (`MetaTableAccessor`, `RegionStateStore`):
//!
//! - region name: family:qualifier: `info:regioninfo`; value: PBUF RegionInfo
//! - : family:qualifier: `info:state`; value: name of the state
//! - : family:qualifier: `info:server`, `info:serverstartcode`, `info:seqnumDuringOpen`; value:
//!   `host:port`, i64, i64
//! - : family:qualifier: `info:server_0001`, `info:state_0001`...; value: the same of a secondary
//!   replica, with its id in hexadecimal digits
//! - : family:qualifier: `info:splitA`, `info:splitB`, `info:merge0000`...; value: PBUF RegionInfo
//!   of daughters or parents
//! - table name: family:qualifier: `table:state`; value: TableState, without PBUF
//!
//! HBase 1.x has neither `info:state`, by default, nor `table:state`, and `info:mergeA` and
//! `info:mergeB` for the parents of a merged region. [`reconcile`](super::reconcile) writes states
//! where there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bytes::Bytes;
use evenkeel_common::cell::LATEST_TIMESTAMP;
use evenkeel_common::clock::Clock;
use evenkeel_common::{
    CellBuffer, CellRef, CellType, Durability, HBaseError, KeyValue, RegionInfo, Result, ServerName,
    TableName, TryError,
};
use evenkeel_protocol::pb;
use evenkeel_region::operations::{Mutation, MutationKind, Scan};
use evenkeel_region::region::Region;
use evenkeel_region::scanner::ScannerContext;
use parking_lot::Mutex;
use prost::Message;

use super::tables::checks;

/// The catalog family.
pub const INFO: &[u8] = b"info";
/// The family of table states.
pub const TABLE: &[u8] = b"table";

/// State of a table (`TableState`).
pub type TableState = pb::table_state::State;

/// A region's row in hbase:meta.
#[derive(Clone, Debug)]
pub struct MetaRegion {
    /// The region.
    pub info: RegionInfo,
    /// `info:state`, such as `OPEN`.
    pub state: String,
    /// `info:state_0001` and so on, by replica id: the states of secondary replicas. A replica
    /// without a state that has a server has the state `OPEN`.
    pub replica_states: BTreeMap<i32, String>,
    /// Daughters, when it was split.
    pub daughters: Vec<RegionInfo>,
    /// Parents, when it was merged.
    pub merge_parents: Vec<RegionInfo>,
    /// The columns of the parents: `merge0000` and so on, or `mergeA` and `mergeB` of HBase 1.
    pub merge_columns: Vec<Vec<u8>>,
}

/// hbase:meta with its rows as typed values.
#[derive(Debug)]
pub struct MetaTable {
    region: Arc<Region>,
    clock: Arc<dyn Clock>,
    /// The timestamp of the last write. Every write has a later timestamp than all before, so that
    /// a delete never hides a later put.
    last_timestamp: AtomicI64,
    /// Rows of writes that failed. Locked throughout a write, so that the next write sees its
    /// failure.
    in_doubt_rows: Mutex<BTreeSet<Bytes>>,
}

impl MetaTable {
    /// Creates the table over its open region. Scans the region for the latest timestamp, since the
    /// clock may have gone back.
    ///
    /// # Errors
    /// Returns I/O errors of the region.
    pub fn new(region: Arc<Region>, clock: Arc<dyn Clock>) -> Result<Self> {
        let meta = Self { region, clock, last_timestamp: AtomicI64::new(0), in_doubt_rows: Mutex::default() };
        let mut latest = 0;
        meta.for_each_row(Scan { raw: true, max_versions: u32::MAX, ..Scan::default() }, |row| {
            let known = row.iter().map(|cell| cell.timestamp()).filter(|at| *at < LATEST_TIMESTAMP);
            latest = known.fold(latest, i64::max);
            Ok(())
        })?;
        meta.last_timestamp.store(latest, Ordering::Relaxed);
        Ok(meta)
    }

    /// The region itself.
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Makes all the changes or none. They are durable on return (FSYNC_WAL), because the next
    /// steps rely on them: directories are removed, clients get responses.
    ///
    /// # Errors
    /// Returns errors of the region; nothing was changed then, but the rows are in doubt. Returns
    /// `DoNotRetryIOException` for a region whose name is too long for a row.
    pub fn commit(&self, changes: Vec<MetaChange>) -> Result<()> {
        checks::check_region_names(changes.iter().flat_map(MetaChange::regions))?;
        let mut doubtful = self.in_doubt_rows.lock();
        self.revert_rows(&mut doubtful)?;
        let timestamp = self.next_timestamp();
        let mutations: Vec<_> =
            changes.into_iter().flat_map(|change| change.into_mutations(timestamp)).collect();
        self.write(mutations, &mut doubtful)
    }

    /// Makes the log agree with the rows served: reverts writes that failed.
    ///
    /// # Errors
    /// `NotServingRegionException`, `RegionTooBusyException`, or `IOException` from the log. Then
    /// the rows stay in doubt.
    pub fn revert_failed_writes(&self) -> Result<()> {
        self.revert_rows(&mut self.in_doubt_rows.lock())
    }

    fn revert_rows(&self, doubtful: &mut BTreeSet<Bytes>) -> Result<()> {
        if doubtful.is_empty() {
            return Ok(());
        }
        let (deleted, written) = (self.next_timestamp(), self.next_timestamp());
        let mut mutations = Vec::new();
        for row in doubtful.iter() {
            mutations.push(delete_row(row, deleted));
            let cells = self.region.get(Scan::get(row.clone()))?;
            let again = |c: CellRef<'_>| KeyValue::put(row, c.family(), c.qualifier(), written, c.value());
            let cells: Vec<_> = cells.iter().map(again).collect();
            if !cells.is_empty() {
                mutations.push(Mutation::new(MutationKind::Put, row.clone(), cells));
            }
        }
        let count = doubtful.len();
        self.write(mutations, doubtful)?;
        doubtful.clear();
        tracing::info!(rows = count, "hbase:meta: rows of failed writes were reverted");
        Ok(())
    }

    fn write(&self, mut mutations: Vec<Mutation>, doubtful: &mut BTreeSet<Bytes>) -> Result<()> {
        if mutations.is_empty() {
            return Ok(());
        }
        mutations.iter_mut().for_each(|mutation| mutation.durability = Durability::FsyncWal);
        let rows: Vec<Bytes> = mutations.iter().map(|mutation| mutation.row.clone()).collect();
        let written = self.region.mutate_rows_wait(mutations, Vec::new());
        written.map(drop).inspect_err(|_| doubtful.extend(rows))
    }

    fn next_timestamp(&self) -> i64 {
        let now = self.clock.now_ms();
        let next = |last: i64| Some(now.max(last.saturating_add(1)));
        self.last_timestamp
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .map_or(now, |last| now.max(last.saturating_add(1)))
    }

    /// Returns every region, of one table or of all, in row order, split parents included. A row
    /// that cannot be parsed is logged and skipped.
    ///
    /// # Errors
    /// Returns I/O errors of the region.
    pub fn regions(&self, table: Option<&TableName>) -> Result<Vec<MetaRegion>> {
        let mut scan = Scan::default();
        if let Some(table) = table {
            scan.start_row = format!("{table},").into();
            scan.stop_row = format!("{table}-").into();
        }
        let mut regions = Vec::new();
        self.for_each_row(scan, |row| {
            match region_of(row) {
                Ok(region) => regions.extend(region),
                Err(error) => tracing::error!(%error, "a row of hbase:meta cannot be read; it is skipped"),
            }
            Ok(())
        })?;
        regions.retain(|region: &MetaRegion| table.is_none_or(|table| region.info.table() == table));
        Ok(regions)
    }

    /// Returns every table and its state.
    ///
    /// # Errors
    /// As [`MetaTable::regions`].
    pub fn table_states(&self) -> Result<Vec<(TableName, TableState)>> {
        let mut states = Vec::new();
        self.for_each_row(Scan::default(), |row| {
            if let Some(cell) = row.iter().find(|c| c.family() == TABLE && c.qualifier() == b"state") {
                match pb::TableState::decode(cell.value()) {
                    Ok(state) => states.push((TableName::from_bytes(cell.row())?, state.state())),
                    Err(error) => {
                        let error = bad_row(cell.row(), &error);
                        tracing::error!(%error, "a table's state cannot be read; it is skipped");
                    }
                }
            }
            Ok(())
        })?;
        Ok(states)
    }

    fn for_each_row(&self, scan: Scan, mut each: impl FnMut(&CellBuffer) -> Result<()>) -> Result<()> {
        let mut scanner = self.region.scanner(scan)?;
        let mut row = CellBuffer::new();
        loop {
            row.clear();
            let state =
                scanner.next(&mut row, &mut ScannerContext::unlimited()).map_err(TryError::into_failure)?;
            if !row.is_empty() {
                each(&row)?;
            }
            if !state.has_more() {
                return Ok(());
            }
        }
    }
}

fn bad_row(row: &[u8], why: &dyn std::fmt::Display) -> HBaseError {
    HBaseError::io(format!("hbase:meta row {}: {why}", row.escape_ascii()))
}

fn region_of(row: &CellBuffer) -> Result<Option<MetaRegion>> {
    let mut region = None;
    let (mut state, mut daughters) = (String::new(), Vec::new());
    let (mut merge_parents, mut merge_columns) = (Vec::new(), Vec::new());
    let mut replica_states = BTreeMap::new();
    for cell in row.iter().filter(|c| c.family() == INFO) {
        match cell.qualifier() {
            b"regioninfo" => region = Some(region_info(cell.row(), cell.value())?),
            b"state" => state = String::from_utf8_lossy(cell.value()).into_owned(),
            b"splitA" | b"splitB" => daughters.push(region_info(cell.row(), cell.value())?),
            q if q.starts_with(b"merge") => {
                merge_parents.push(region_info(cell.row(), cell.value())?);
                merge_columns.push(q.to_vec());
            }
            q => match replica_column(q) {
                Some((b"state", id)) => {
                    replica_states.insert(id, String::from_utf8_lossy(cell.value()).into_owned());
                }
                Some((_, id)) => drop(replica_states.entry(id).or_insert_with(|| "OPEN".to_owned())),
                None => {}
            },
        }
    }
    Ok(region.map(|info| MetaRegion { info, state, replica_states, daughters, merge_parents, merge_columns }))
}

fn region_info(row: &[u8], value: &[u8]) -> Result<RegionInfo> {
    let info: pb::RegionInfo = evenkeel_protocol::from_magic(value).map_err(|e| bad_row(row, &e))?;
    RegionInfo::try_from(&info)
}

/// One row's part of a change.
#[derive(Clone, Debug)]
pub enum MetaChange {
    /// A region and its state, not on any server.
    Put(RegionInfo, &'static str),
    /// A region that a server opened at a sequence number.
    Opened(RegionInfo, ServerName, u64),
    /// A region that was split, not on any server, and the regions that still read its files.
    SplitParent(RegionInfo, Vec<RegionInfo>),
    /// The regions that a region was merged from.
    MergeParents(RegionInfo, Vec<RegionInfo>),
    /// A region that no longer exists.
    Delete(RegionInfo),
    /// A secondary replica that no longer exists: its columns of the region's row.
    DeleteReplica(RegionInfo),
    /// Columns of a region's daughters or parents, which are no longer needed.
    DeleteColumns(RegionInfo, Vec<Vec<u8>>),
    /// A table's state.
    State(TableName, TableState),
    /// A table that no longer exists.
    DeleteState(TableName),
}

impl MetaChange {
    /// Returns the regions whose rows it changes.
    fn regions(&self) -> &[RegionInfo] {
        match self {
            Self::Put(region, _)
            | Self::Opened(region, ..)
            | Self::SplitParent(region, _)
            | Self::MergeParents(region, _)
            | Self::Delete(region)
            | Self::DeleteReplica(region)
            | Self::DeleteColumns(region, _) => std::slice::from_ref(region),
            Self::State(..) | Self::DeleteState(_) => &[],
        }
    }

    fn into_mutations(self, timestamp: i64) -> Vec<Mutation> {
        match self {
            Self::Put(region, state) => {
                let cells = vec![(b"regioninfo".to_vec(), info_value(&region)), state_cell(&region, state)];
                vec![put(&row_of(&region), INFO, cells, timestamp)]
            }
            Self::Opened(region, server, seq_num) => {
                vec![put(&row_of(&region), INFO, opened(&region, &server, seq_num), timestamp)]
            }
            Self::SplitParent(parent, daughters) => {
                let mut cells = parent_cells(&parent);
                let qualifiers = [b"splitA", b"splitB"].into_iter().map(|name| name.to_vec());
                cells.extend(qualifiers.zip(daughters.iter().map(info_value)));
                vec![put(parent.name(), INFO, cells, timestamp)]
            }
            Self::MergeParents(region, parents) => {
                let cell = |(at, parent)| (format!("merge{at:04}").into_bytes(), info_value(parent));
                vec![put(region.name(), INFO, parents.iter().enumerate().map(cell).collect(), timestamp)]
            }
            Self::Delete(region) => vec![delete_row(region.name(), timestamp)],
            Self::DeleteReplica(region) => {
                let qualifiers = REPLICA_COLUMNS.iter().map(|name| column_of(&region, name));
                vec![delete_columns(&row_of(&region), qualifiers, timestamp)]
            }
            Self::DeleteColumns(region, qualifiers) => {
                vec![delete_columns(region.name(), qualifiers, timestamp)]
            }
            Self::State(table, state) => {
                let value = pb::TableState { state: state.into() }.encode_to_vec();
                vec![put(&table.to_string().into(), TABLE, vec![(b"state".to_vec(), value)], timestamp)]
            }
            Self::DeleteState(table) => vec![delete_row(&table.to_string().into(), timestamp)],
        }
    }
}

/// The columns that a secondary replica has with its id.
const REPLICA_COLUMNS: [&str; 5] = ["server", "seqnumDuringOpen", "serverstartcode", "sn", "state"];

/// Returns the row of a region, or of the region of a secondary replica.
fn row_of(region: &RegionInfo) -> Bytes {
    if region.is_primary() { region.name().clone() } else { region.replica(0).name().clone() }
}

/// Returns the qualifier of a region's column: with the replica's id for a secondary replica.
fn column_of(region: &RegionInfo, name: &str) -> Vec<u8> {
    match region.replica_id() {
        0 => name.as_bytes().to_vec(),
        id => format!("{name}_{id:04X}").into_bytes(),
    }
}

/// Returns the name and the replica id of a secondary replica's column.
fn replica_column(qualifier: &[u8]) -> Option<(&[u8], i32)> {
    let (name, id) = qualifier.split_at_checked(qualifier.len().checked_sub(5)?)?;
    let id = i32::from_str_radix(std::str::from_utf8(id).ok()?.strip_prefix('_')?, 16).ok()?;
    let is_known = REPLICA_COLUMNS.iter().any(|known| known.as_bytes() == name);
    (is_known && id > 0).then_some((name, id))
}

/// Returns the RegionInfo of the default replica, which the row of all replicas has.
fn info_value(region: &RegionInfo) -> Vec<u8> {
    let mut info = pb::RegionInfo::from(region);
    info.replica_id = Some(0);
    evenkeel_protocol::with_magic(&info)
}

fn state_cell(region: &RegionInfo, state: &str) -> (Vec<u8>, Vec<u8>) {
    (column_of(region, "state"), state.as_bytes().to_vec())
}

fn opened(region: &RegionInfo, server: &ServerName, seq_num: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    vec![
        (b"regioninfo".to_vec(), info_value(region)),
        (column_of(region, "server"), server.host_port().into_bytes()),
        (column_of(region, "serverstartcode"), server.start_code.to_be_bytes().to_vec()),
        (column_of(region, "seqnumDuringOpen"), seq_num.to_be_bytes().to_vec()),
        (column_of(region, "sn"), server.to_string().into_bytes()),
        state_cell(region, "OPEN"),
    ]
}

fn parent_cells(parent: &RegionInfo) -> Vec<(Vec<u8>, Vec<u8>)> {
    let offline = parent.clone().with_flags(true, true);
    vec![(b"regioninfo".to_vec(), info_value(&offline)), state_cell(parent, "CLOSED")]
}

fn put(row: &Bytes, family: &[u8], cells: Vec<(Vec<u8>, Vec<u8>)>, timestamp: i64) -> Mutation {
    debug_assert_ne!(timestamp, LATEST_TIMESTAMP);
    let cell =
        |(qualifier, value): (Vec<u8>, Vec<u8>)| KeyValue::put(row, family, &qualifier, timestamp, &value);
    Mutation::new(MutationKind::Put, row.clone(), cells.into_iter().map(cell).collect())
}

fn delete_columns(row: &Bytes, qualifiers: impl IntoIterator<Item = Vec<u8>>, timestamp: i64) -> Mutation {
    let marker = |q: Vec<u8>| KeyValue::new(row, INFO, &q, timestamp, CellType::DeleteColumn, b"");
    Mutation::new(MutationKind::Delete, row.clone(), qualifiers.into_iter().map(marker).collect())
}

fn delete_row(row: &Bytes, timestamp: i64) -> Mutation {
    Mutation { timestamp, ..Mutation::new(MutationKind::Delete, row.clone(), Vec::new()) }
}
