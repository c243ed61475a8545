//! [`WalEntry`]: a key and the cells of one atomic change of one region.

use bytes::Bytes;
use evenkeel_common::{KeyValue, TableName};

use crate::metrics::TableAppends;

/// The family of marker edits (`WALEdit.METAFAMILY`), which belongs to no store.
pub const META_FAMILY: &[u8] = b"METAFAMILY";

/// The replication scope of a family (`ScopeType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Not replicated. This scope is not written: a family without a scope is local.
    Local = 0,
    /// Replicated to the peers, in no particular order.
    Global = 1,
    /// Replicated to the peers, in the order of sequence ids.
    Serial = 2,
}

impl Scope {
    /// The scope of a number on the wire; unknown numbers count as [`Scope::Local`].
    pub fn from_number(number: i32) -> Self {
        match number {
            1 => Self::Global,
            2 => Self::Serial,
            _ => Self::Local,
        }
    }
}

/// A family with a replication scope other than local.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FamilyScope {
    /// The family's name.
    pub family: Bytes,
    /// Its scope.
    pub scope: Scope,
}

/// The UUID of a cluster that has applied an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterUuid {
    /// The high 64 bits.
    pub most: u64,
    /// The low 64 bits.
    pub least: u64,
}

/// An owned entry, as returned by a reader and as written by tests and tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalEntry {
    /// The region's encoded name: 32 hexadecimal digits, or `1588230740` for hbase:meta.
    pub region: Bytes,
    /// The region's table.
    pub table: TableName,
    /// The sequence id; also the write number of every cell.
    pub seq_id: u64,
    /// The write time in milliseconds since 1970.
    pub write_time_ms: i64,
    /// The client's nonce group; 0 is none.
    pub nonce_group: u64,
    /// The client's nonce; 0 is none.
    pub nonce: u64,
    /// The replicated families.
    pub scopes: Vec<FamilyScope>,
    /// The clusters that have applied this edit, for replicated edits.
    pub cluster_ids: Vec<ClusterUuid>,
    /// The sequence id at the originating cluster, or 0.
    pub orig_seq_id: u64,
    /// Extended attributes by name.
    pub attributes: Vec<(String, Bytes)>,
    /// The cells. Their sequence ids equal that of the entry.
    pub cells: Vec<KeyValue>,
}

impl WalEntry {
    /// An entry without nonce, scopes and other optional fields.
    pub fn new(
        region: Bytes,
        table: TableName,
        seq_id: u64,
        write_time_ms: i64,
        cells: Vec<KeyValue>,
    ) -> Self {
        Self {
            region,
            table,
            seq_id,
            write_time_ms,
            nonce_group: 0,
            nonce: 0,
            scopes: Vec::new(),
            cluster_ids: Vec::new(),
            orig_seq_id: 0,
            attributes: Vec::new(),
            cells,
        }
    }

    /// The key, borrowed.
    pub fn key(&self) -> WalKey<'_> {
        WalKey {
            region: &self.region,
            table: &self.table,
            seq_id: self.seq_id,
            write_time_ms: self.write_time_ms,
            nonce_group: self.nonce_group,
            nonce: self.nonce,
            scopes: &self.scopes,
            cluster_ids: &self.cluster_ids,
            orig_seq_id: self.orig_seq_id,
            attributes: &self.attributes,
            appends: None,
        }
    }

    /// Returns true if this is a marker edit: its first cell is of [`META_FAMILY`].
    pub fn is_marker(&self) -> bool {
        self.cells.first().is_some_and(|cell| cell.as_cell().family() == META_FAMILY)
    }
}

/// The fields of an entry other than its cells, borrowed: the write path fills them in without
/// allocating. The fields are those of [`WalEntry`], and the counters of the entry's table.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct WalKey<'a> {
    pub region: &'a Bytes,
    pub table: &'a TableName,
    pub seq_id: u64,
    pub write_time_ms: i64,
    pub nonce_group: u64,
    pub nonce: u64,
    pub scopes: &'a [FamilyScope],
    pub cluster_ids: &'a [ClusterUuid],
    pub orig_seq_id: u64,
    pub attributes: &'a [(String, Bytes)],
    /// The counts of the entry's table ([`Wal::table_appends`](crate::Wal::table_appends)).
    pub appends: Option<&'a TableAppends>,
}

impl<'a> WalKey<'a> {
    /// A key without nonce, scopes and other optional fields.
    pub fn new(region: &'a Bytes, table: &'a TableName, seq_id: u64, write_time_ms: i64) -> Self {
        Self {
            region,
            table,
            seq_id,
            write_time_ms,
            nonce_group: 0,
            nonce: 0,
            scopes: &[],
            cluster_ids: &[],
            orig_seq_id: 0,
            attributes: &[],
            appends: None,
        }
    }
}
