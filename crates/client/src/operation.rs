//! What a table is asked to do: [`Get`], [`Scan`], and the mutations [`Put`], [`Delete`], [`Increment`] and [`Append`].
//!
//! All are built by value: `Put::new("row").column("f", "q", "v")`. Timestamps are milliseconds since 1970; a cell without
//! one gets the server's clock.

use bytes::Bytes;
use evenkeel_common::cell::{FAMILY_BYTES_MAX, LATEST_TIMESTAMP, ROW_BYTES_MAX};
use evenkeel_common::{CellType, Durability, KeyValue};
use evenkeel_protocol::pb;
use prost::Message;

use crate::cells;
use crate::error::{Error, Result};
use crate::filter::Filter;

/// Which columns and versions are read: what [`Get`] and [`Scan`] have in common.
#[derive(Clone, Debug, Default, PartialEq)]
struct Selection {
    columns: Vec<pb::Column>,
    time_range: Option<pb::TimeRange>,
    max_versions: Option<u32>,
    filter: Option<pb::Filter>,
    cache_blocks: Option<bool>,
    attributes: Vec<pb::NameBytesPair>,
}

impl Selection {
    fn family(&mut self, family: &[u8]) -> &mut pb::Column {
        let at = self.columns.iter().position(|c| c.family == family).unwrap_or(self.columns.len());
        if at == self.columns.len() {
            self.columns.push(pb::Column { family: Bytes::copy_from_slice(family), qualifier: Vec::new() });
        }
        &mut self.columns[at]
    }
}

macro_rules! selects {
    ($name:ident) => {
        impl $name {
            /// Adds a whole family.
            pub fn family(mut self, family: impl AsRef<[u8]>) -> Self {
                self.selection.family(family.as_ref()).qualifier.clear();
                self
            }

            /// Adds one column.
            pub fn column(mut self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Self {
                let qualifier = Bytes::copy_from_slice(qualifier.as_ref());
                self.selection.family(family.as_ref()).qualifier.push(qualifier);
                self
            }

            /// Only cells with `from_ms <= timestamp < to_ms`.
            pub fn time_range(mut self, from_ms: u64, to_ms: u64) -> Self {
                self.selection.time_range = Some(pb::TimeRange { from: Some(from_ms), to: Some(to_ms) });
                self
            }

            /// Up to this many versions of each column; 1 unless said.
            pub fn max_versions(mut self, versions: u32) -> Self {
                self.selection.max_versions = Some(versions);
                self
            }

            /// Leaves out what the filter says.
            pub fn filter(mut self, filter: impl Into<Filter>) -> Self {
                self.selection.filter = Some(filter.into().message());
                self
            }

            /// Whether blocks that are read go into the block cache; they do unless said.
            pub fn cache_blocks(mut self, cache: bool) -> Self {
                self.selection.cache_blocks = Some(cache);
                self
            }

            /// An attribute of the operation.
            pub fn attribute(mut self, name: &str, value: impl Into<Bytes>) -> Self {
                self.selection
                    .attributes
                    .push(pb::NameBytesPair { name: name.to_owned(), value: Some(value.into()) });
                self
            }
        }
    };
}

/// Reads one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Get {
    row: Bytes,
    existence_only: bool,
    selection: Selection,
}

selects!(Get);

impl Get {
    /// Of all families, the newest version.
    pub fn new(row: impl AsRef<[u8]>) -> Self {
        let row = Bytes::copy_from_slice(row.as_ref());
        Self { row, existence_only: false, selection: Selection::default() }
    }

    /// Asks only whether there is a cell; see [`crate::RowResult::exists`].
    pub fn existence_only(mut self) -> Self {
        self.existence_only = true;
        self
    }

    /// The row.
    pub fn row(&self) -> &[u8] {
        &self.row
    }

    pub(crate) fn message(&self) -> pb::Get {
        let selection = self.selection.clone();
        pb::Get {
            row: self.row.clone(),
            column: selection.columns,
            attribute: selection.attributes,
            filter: selection.filter,
            time_range: selection.time_range,
            max_versions: selection.max_versions,
            cache_blocks: selection.cache_blocks,
            existence_only: self.existence_only.then_some(true),
            ..Default::default()
        }
    }
}

/// Reads rows in order, forwards or backwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    pub(crate) start: Bytes,
    pub(crate) start_included: bool,
    pub(crate) stop: Bytes,
    pub(crate) stop_included: bool,
    pub(crate) reverse: bool,
    pub(crate) limit: Option<u64>,
    pub(crate) caching: Option<u32>,
    preads: bool,
    selection: Selection,
}

selects!(Scan);

impl Default for Scan {
    fn default() -> Self {
        Self::new()
    }
}

impl Scan {
    /// The whole table, all families, the newest version.
    pub fn new() -> Self {
        let (start, stop, selection) = Default::default();
        Self {
            start,
            start_included: true,
            stop,
            stop_included: false,
            reverse: false,
            limit: None,
            caching: None,
            preads: false,
            selection,
        }
    }

    /// Starts at a row.
    pub fn from(mut self, row: impl AsRef<[u8]>) -> Self {
        (self.start, self.start_included) = (Bytes::copy_from_slice(row.as_ref()), true);
        self
    }

    /// Starts after a row (before it, backwards).
    pub fn from_exclusive(mut self, row: impl AsRef<[u8]>) -> Self {
        (self.start, self.start_included) = (Bytes::copy_from_slice(row.as_ref()), false);
        self
    }

    /// Stops before a row (after it, backwards). The stop row is the smaller one when the scan is reversed.
    pub fn to(mut self, row: impl AsRef<[u8]>) -> Self {
        (self.stop, self.stop_included) = (Bytes::copy_from_slice(row.as_ref()), false);
        self
    }

    /// Stops with a row.
    pub fn to_inclusive(mut self, row: impl AsRef<[u8]>) -> Self {
        (self.stop, self.stop_included) = (Bytes::copy_from_slice(row.as_ref()), true);
        self
    }

    /// Backwards, from the start row (the larger one; the table's last when none is given).
    pub fn reversed(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// Ends after this many rows.
    pub fn limit(mut self, rows: u64) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Asks for at most this many rows in one call. Without it, only bytes limit a call.
    pub fn caching(mut self, rows: u32) -> Self {
        self.caching = Some(rows.max(1));
        self
    }

    /// Reads by position rather than as a stream, for short scans.
    pub fn preads(mut self) -> Self {
        self.preads = true;
        self
    }

    pub(crate) fn message(&self) -> pb::Scan {
        let selection = self.selection.clone();
        pb::Scan {
            column: selection.columns,
            attribute: selection.attributes,
            filter: selection.filter,
            time_range: selection.time_range,
            max_versions: selection.max_versions,
            cache_blocks: selection.cache_blocks,
            start_row: Some(self.start.clone()),
            stop_row: Some(self.stop.clone()),
            include_start_row: Some(self.start_included),
            include_stop_row: Some(self.stop_included),
            reversed: self.reverse.then_some(true),
            caching: self.caching,
            read_type: self.preads.then_some(pb::scan::ReadType::Pread as i32),
            ..Default::default()
        }
    }
}

/// The row, cells and settings of a mutation.
#[derive(Clone, Debug, PartialEq)]
struct Body {
    row: Bytes,
    cells: Vec<KeyValue>,
    durability: Durability,
    attributes: Vec<pb::NameBytesPair>,
}

impl Body {
    fn new(row: &[u8]) -> Self {
        let row = Bytes::copy_from_slice(row);
        Self { row, cells: Vec::new(), durability: Durability::UseDefault, attributes: Vec::new() }
    }

    /// Adds a cell. What HBase forbids is kept to be refused when the mutation is sent, for builders return no errors.
    fn cell(&mut self, family: &[u8], qualifier: &[u8], timestamp: i64, kind: CellType, value: &[u8]) {
        let row = self.row.get(..ROW_BYTES_MAX).unwrap_or(&self.row);
        let (family, kind) = match family.len() > FAMILY_BYTES_MAX {
            true => (&b""[..], kind),
            false => (family, kind),
        };
        self.cells.push(KeyValue::new(row, family, qualifier, timestamp, kind, value));
    }

    fn check(&self) -> Result<()> {
        check_row(&self.row)?;
        match self.cells.iter().any(|c| c.as_cell().family().is_empty()) {
            true => Err(Error::InvalidArgument("a family that is empty or too long".to_owned())),
            false => Ok(()),
        }
    }

    fn message(&self, kind: pb::mutation_proto::MutationType, nonce: u64) -> pb::MutationProto {
        pb::MutationProto {
            row: Some(self.row.clone()),
            mutate_type: Some(kind as i32),
            timestamp: Some(LATEST_TIMESTAMP as u64),
            attribute: self.attributes.clone(),
            durability: Some(self.durability as i32),
            associated_cell_count: Some(self.cells.len() as i32),
            nonce: (nonce != 0).then_some(nonce),
            ..Default::default()
        }
    }
}

/// Refuses rows that HBase refuses.
pub(crate) fn check_row(row: &[u8]) -> Result<()> {
    match row.len() {
        0 => Err(Error::InvalidArgument("an empty row".to_owned())),
        n if n > ROW_BYTES_MAX => Err(Error::InvalidArgument(format!("a row of {n} bytes"))),
        _ => Ok(()),
    }
}

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident = $kind:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq)]
            pub struct $name(Body);

            impl $name {
                /// Of a row, with no cells yet.
                pub fn new(row: impl AsRef<[u8]>) -> Self {
                    Self(Body::new(row.as_ref()))
                }

                /// The row.
                pub fn row(&self) -> &[u8] {
                    &self.0.row
                }

                /// The cells as they are sent.
                pub fn cells(&self) -> &[KeyValue] {
                    &self.0.cells
                }

                /// When it is acknowledged; the table's setting unless said.
                pub fn durability(mut self, durability: Durability) -> Self {
                    self.0.durability = durability;
                    self
                }

                /// An attribute of the operation.
                pub fn attribute(mut self, name: &str, value: impl Into<Bytes>) -> Self {
                    self.0.attributes.push(pb::NameBytesPair { name: name.to_owned(), value: Some(value.into()) });
                    self
                }
            }

            impl From<$name> for Mutation {
                fn from(mutation: $name) -> Self {
                    Self::$name(mutation)
                }
            }

            impl From<$name> for Action {
                fn from(mutation: $name) -> Self {
                    Self::Mutation(mutation.into())
                }
            }
        )*

        /// Any mutation.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Mutation { $($(#[$doc])* $name($name),)* }

        impl Mutation {
            fn body(&self) -> &Body {
                match self { $(Self::$name(mutation) => &mutation.0,)* }
            }

            /// The message; its cells go into the cell block.
            pub(crate) fn message(&self, nonce: u64) -> pb::MutationProto {
                use pb::mutation_proto::MutationType;
                match self { $(Self::$name(mutation) => mutation.0.message(MutationType::$kind, nonce),)* }
            }
        }
    };
}

mutations! {
    /// Writes cells of one row, all or none.
    Put = Put;
    /// Deletes cells of one row; without any family, the whole row.
    Delete = Delete;
    /// Adds to counters of one row.
    Increment = Increment;
    /// Appends to values of one row.
    Append = Append;
}

impl Mutation {
    /// The row.
    pub fn row(&self) -> &[u8] {
        &self.body().row
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Delete(_) => {}
            other if other.body().cells.is_empty() => {
                return Err(Error::InvalidArgument("a mutation without columns".to_owned()));
            }
            _ => {}
        }
        self.body().check()
    }

    /// Whether making it twice differs from making it once, so that it needs a nonce.
    pub(crate) fn needs_nonce(&self) -> bool {
        matches!(self, Self::Increment(_) | Self::Append(_))
    }

    pub(crate) fn write_cells(&self, out: &mut Vec<u8>) {
        self.body().cells.iter().for_each(|cell| cells::write(out, cell));
    }

    pub(crate) fn bytes(&self) -> usize {
        self.body().cells.iter().map(|cell| cell.bytes().len() + 4).sum::<usize>() + self.body().row.len()
    }
}

impl Put {
    /// Adds a value at the server's time.
    pub fn column(
        self,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Self {
        self.column_at(family, qualifier, LATEST_TIMESTAMP, value)
    }

    /// Adds a value at a time of its own.
    pub fn column_at(
        mut self,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        timestamp_ms: i64,
        value: impl AsRef<[u8]>,
    ) -> Self {
        self.0.cell(family.as_ref(), qualifier.as_ref(), timestamp_ms, CellType::Put, value.as_ref());
        self
    }
}

impl Delete {
    /// Deletes the newest version of a column.
    pub fn newest(mut self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Self {
        self.0.cell(family.as_ref(), qualifier.as_ref(), LATEST_TIMESTAMP, CellType::Delete, b"");
        self
    }

    /// Deletes all versions of a column.
    pub fn column(self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Self {
        self.column_up_to(family, qualifier, LATEST_TIMESTAMP)
    }

    /// Deletes the versions of a column that are not newer than a time.
    pub fn column_up_to(
        mut self,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        timestamp_ms: i64,
    ) -> Self {
        self.0.cell(family.as_ref(), qualifier.as_ref(), timestamp_ms, CellType::DeleteColumn, b"");
        self
    }

    /// Deletes a family.
    pub fn family(mut self, family: impl AsRef<[u8]>) -> Self {
        self.0.cell(family.as_ref(), b"", LATEST_TIMESTAMP, CellType::DeleteFamily, b"");
        self
    }
}

impl Increment {
    /// Adds to a counter; one that is absent starts at 0.
    pub fn column(mut self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>, amount: i64) -> Self {
        let amount = amount.to_be_bytes();
        self.0.cell(family.as_ref(), qualifier.as_ref(), LATEST_TIMESTAMP, CellType::Put, &amount);
        self
    }
}

impl Append {
    /// Appends to a value; one that is absent starts empty.
    pub fn column(
        mut self,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        suffix: impl AsRef<[u8]>,
    ) -> Self {
        self.0.cell(family.as_ref(), qualifier.as_ref(), LATEST_TIMESTAMP, CellType::Put, suffix.as_ref());
        self
    }
}

/// One of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A read of a row.
    Get(Get),
    /// A mutation.
    Mutation(Mutation),
}

impl From<Get> for Action {
    fn from(get: Get) -> Self {
        Self::Get(get)
    }
}

impl From<Mutation> for Action {
    fn from(mutation: Mutation) -> Self {
        Self::Mutation(mutation)
    }
}

impl Action {
    /// The row.
    pub fn row(&self) -> &[u8] {
        match self {
            Self::Get(get) => get.row(),
            Self::Mutation(mutation) => mutation.row(),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Get(get) => check_row(get.row()),
            Self::Mutation(mutation) => mutation.check(),
        }
    }

    /// The message, with a mutation's cells added to the cell block.
    pub(crate) fn message(&self, index: u32, nonce: u64, cells: &mut Vec<u8>) -> pb::Action {
        let mut action = pb::Action { index: Some(index), ..Default::default() };
        match self {
            Self::Get(get) => action.get = Some(get.message()),
            Self::Mutation(mutation) => {
                action.mutation = Some(mutation.message(nonce));
                mutation.write_cells(cells);
            }
        }
        action
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Get(get) => get.row.len() + 64,
            Self::Mutation(mutation) => mutation.bytes(),
        }
    }
}

/// Several mutations of one row, made all or none.
#[derive(Clone, Debug, PartialEq)]
pub struct RowMutations {
    row: Bytes,
    pub(crate) mutations: Vec<Mutation>,
}

impl RowMutations {
    /// Of a row, with none yet.
    pub fn new(row: impl AsRef<[u8]>) -> Self {
        Self { row: Bytes::copy_from_slice(row.as_ref()), mutations: Vec::new() }
    }

    /// Adds a mutation of the same row.
    pub fn with(mut self, mutation: impl Into<Mutation>) -> Self {
        self.mutations.push(mutation.into());
        self
    }

    /// The row.
    pub fn row(&self) -> &[u8] {
        &self.row
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_row(&self.row)?;
        if self.mutations.is_empty() {
            return Err(Error::InvalidArgument("no mutations".to_owned()));
        }
        if self.mutations.iter().any(|m| m.row() != self.row) {
            return Err(Error::InvalidArgument("mutations of more than one row".to_owned()));
        }
        self.mutations.iter().try_for_each(Mutation::check)
    }
}

/// How a check compares: `cell OP value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// The cell is less than the value.
    Less,
    /// The cell is less than or equal to the value.
    LessOrEqual,
    /// The cell equals the value.
    Equal,
    /// The cell differs from the value.
    NotEqual,
    /// The cell is greater than or equal to the value.
    GreaterOrEqual,
    /// The cell is greater than the value.
    Greater,
}

impl CompareOp {
    /// The wire compares the value with the cell, so `cell < value` goes out as `GREATER`, as from HBase's client.
    fn on_wire(self) -> pb::CompareType {
        match self {
            Self::Less => pb::CompareType::Greater,
            Self::LessOrEqual => pb::CompareType::GreaterOrEqual,
            Self::Equal => pb::CompareType::Equal,
            Self::NotEqual => pb::CompareType::NotEqual,
            Self::GreaterOrEqual => pb::CompareType::LessOrEqual,
            Self::Greater => pb::CompareType::Less,
        }
    }
}

const BINARY_COMPARATOR: &str = "org.apache.hadoop.hbase.filter.BinaryComparator";

/// Mutations of one row that are made only if one of its columns is as expected.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckAndMutate {
    family: Bytes,
    qualifier: Bytes,
    op: CompareOp,
    value: Bytes,
    pub(crate) mutations: RowMutations,
}

impl CheckAndMutate {
    /// If a column's newest value compares so with a value. With an empty value, [`CompareOp::Equal`] asks that there be
    /// no such cell (or an empty one) and [`CompareOp::NotEqual`] that there be one.
    pub fn new(
        row: impl AsRef<[u8]>,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        op: CompareOp,
        value: impl AsRef<[u8]>,
    ) -> Self {
        let [family, qualifier, value] =
            [family.as_ref(), qualifier.as_ref(), value.as_ref()].map(Bytes::copy_from_slice);
        Self { family, qualifier, op, value, mutations: RowMutations::new(row) }
    }

    /// If the row has no such column.
    pub fn if_absent(row: impl AsRef<[u8]>, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Self {
        Self::new(row, family, qualifier, CompareOp::Equal, b"")
    }

    /// Then make this mutation, with those before it.
    pub fn then(mut self, mutation: impl Into<Mutation>) -> Self {
        self.mutations = self.mutations.with(mutation);
        self
    }

    pub(crate) fn condition(&self) -> pb::Condition {
        let comparable = pb::ByteArrayComparable { value: Some(self.value.clone()) };
        let comparator = pb::BinaryComparator { comparable };
        pb::Condition {
            row: self.mutations.row.clone(),
            family: Some(self.family.clone()),
            qualifier: Some(self.qualifier.clone()),
            compare_type: Some(self.op.on_wire() as i32),
            comparator: Some(pb::Comparator {
                name: BINARY_COMPARATOR.to_owned(),
                serialized_comparator: Some(comparator.encode_to_vec().into()),
            }),
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hbase_refuses_is_not_sent() {
        let put = |row: &[u8], family: &[u8]| Mutation::from(Put::new(row).column(family, "q", "v")).check();
        assert!(put(b"r", b"f").is_ok());
        assert!(put(b"", b"f").is_err());
        assert!(put(&[b'r'; ROW_BYTES_MAX], b"f").is_ok());
        assert!(put(&[b'r'; ROW_BYTES_MAX + 1], b"f").is_err());
        assert!(put(b"r", &[b'f'; FAMILY_BYTES_MAX]).is_ok());
        assert!(put(b"r", &[b'f'; FAMILY_BYTES_MAX + 1]).is_err());
        assert!(Mutation::from(Put::new("r")).check().is_err(), "no columns");
        assert!(Mutation::from(Delete::new("r")).check().is_ok(), "the whole row");
        let two_rows = RowMutations::new("r").with(Put::new("s").column("f", "q", "v"));
        assert!(two_rows.check().is_err());
    }

    #[test]
    fn a_family_takes_the_place_of_its_columns() {
        let get = Get::new("r").column("f", "a").column("g", "b").column("f", "c").family("g").message();
        let columns: Vec<_> = get.column.iter().map(|c| (&c.family[..], c.qualifier.len())).collect();
        assert_eq!(columns, [(&b"f"[..], 2), (b"g", 0)]);
    }

    #[test]
    fn cells_go_into_the_block_in_order() {
        let mut block = Vec::new();
        let put = Action::from(Put::new("r").column("f", "a", "1").column_at("f", "b", 5, "2"));
        let message = put.message(3, 0, &mut block);
        let mutation = message.mutation.expect("a mutation");
        assert_eq!((message.index, mutation.associated_cell_count, mutation.nonce), (Some(3), Some(2), None));
        let cells = cells::CellBlock::new(block.into()).take(2).expect("two cells");
        assert_eq!(cells[1].as_cell().timestamp(), 5);
    }
}
