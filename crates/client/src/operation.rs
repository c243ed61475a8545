//! What a table is asked to do: [`Get`], [`Scan`], and the mutations [`Put`], [`Delete`], [`Increment`] and [`Append`].
//!
//! All are built by value: `Put::new("row").column("f", "q", "v")`. Timestamps are milliseconds since 1970; a cell without
//! one gets the server's clock.

use bytes::Bytes;
use evenkeel_common::cell::{FAMILY_BYTES_MAX, LATEST_TIMESTAMP, ROW_BYTES_MAX};
use evenkeel_common::{CellType, Durability, KeyValue};
use evenkeel_protocol::pb;

use crate::cells;
use crate::error::{Error, Result};
use crate::filter::{Comparator, Filter, SingleColumnValue};

/// Which columns and versions are read: what [`Get`] and [`Scan`] have in common.
#[derive(Clone, Debug, Default, PartialEq)]
struct Selection {
    columns: Vec<pb::Column>,
    time_range: Option<pb::TimeRange>,
    max_versions: Option<u32>,
    filter: Option<pb::Filter>,
    cache_blocks: Option<bool>,
    store_limit: Option<u32>,
    store_offset: Option<u32>,
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

            /// Every version of each column.
            pub fn all_versions(self) -> Self {
                self.max_versions(i32::MAX as u32)
            }

            /// At most so many cells of each family of a row.
            pub fn family_limit(mut self, cells: u32) -> Self {
                self.selection.store_limit = Some(cells);
                self
            }

            /// Without the first so many cells of each family of a row.
            pub fn family_offset(mut self, cells: u32) -> Self {
                self.selection.store_offset = Some(cells);
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
        self.clone().into_message()
    }

    pub(crate) fn into_message(self) -> pb::Get {
        let selection = self.selection;
        pb::Get {
            row: self.row,
            column: selection.columns,
            attribute: selection.attributes,
            filter: selection.filter,
            time_range: selection.time_range,
            max_versions: selection.max_versions,
            cache_blocks: selection.cache_blocks,
            store_limit: selection.store_limit,
            store_offset: selection.store_offset,
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
    pub(crate) bytes_max: Option<u64>,
    pub(crate) batch: Option<u32>,
    pub(crate) partial: bool,
    pub(crate) cursor: bool,
    on_demand: Option<bool>,
    read_type: Option<pb::scan::ReadType>,
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
            bytes_max: None,
            batch: None,
            partial: false,
            cursor: false,
            on_demand: None,
            read_type: None,
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

    /// The rows that start so.
    pub fn prefix(self, prefix: impl AsRef<[u8]>) -> Self {
        let prefix = prefix.as_ref();
        let mut stop = prefix.to_vec();
        // The first row after all that start so: the last byte that can grow by one does.
        while stop.last() == Some(&u8::MAX) {
            stop.pop();
        }
        if let Some(last) = stop.last_mut() {
            *last += 1;
        }
        self.from(prefix).to(stop)
    }

    /// Asks for at most about this many bytes in one call.
    pub fn max_result_bytes(mut self, bytes: u64) -> Self {
        self.bytes_max = Some(bytes);
        self
    }

    /// Gives rows in pieces of at most so many cells; see [`crate::RowResult::is_partial`].
    pub fn batch(mut self, cells: u32) -> Self {
        self.batch = Some(cells.max(1));
        self.allow_partial()
    }

    /// Gives rows in the pieces that servers send them in, so that no row need fit in memory.
    pub fn allow_partial(mut self) -> Self {
        self.partial = true;
        self
    }

    /// Has servers that find nothing for long say how far they are; see [`crate::Scanner::cursor`].
    pub fn cursor(mut self) -> Self {
        self.cursor = true;
        self
    }

    /// Whether families that a filter does not need are read only for rows that it passes.
    pub fn load_families_on_demand(mut self, on_demand: bool) -> Self {
        self.on_demand = Some(on_demand);
        self
    }

    /// Delete markers and deleted cells too.
    pub fn raw(self) -> Self {
        self.attribute("_raw_", Bytes::from_static(&[0xff]))
    }

    /// Reads by position rather than as a stream, for short scans.
    pub fn preads(mut self) -> Self {
        self.read_type = Some(pb::scan::ReadType::Pread);
        self
    }

    /// Reads as a stream from the first block on, for long scans. Unless said, the server decides.
    pub fn streams(mut self) -> Self {
        self.read_type = Some(pb::scan::ReadType::Stream);
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
            store_limit: selection.store_limit,
            store_offset: selection.store_offset,
            batch_size: self.batch,
            need_cursor_result: self.cursor.then_some(true),
            load_column_families_on_demand: self.on_demand,
            start_row: Some(self.start.clone()),
            stop_row: Some(self.stop.clone()),
            include_start_row: Some(self.start_included),
            include_stop_row: Some(self.stop_included),
            reversed: self.reverse.then_some(true),
            caching: self.caching,
            read_type: self.read_type.map(|kind| kind as i32),
            ..Default::default()
        }
    }
}

/// The row, cells and settings of a mutation.
#[derive(Clone, Debug, PartialEq)]
struct Body {
    row: Bytes,
    cells: Vec<KeyValue>,
    timestamp: i64,
    time_range: Option<pb::TimeRange>,
    durability: Durability,
    attributes: Vec<pb::NameBytesPair>,
}

impl Body {
    fn new(row: &[u8]) -> Self {
        let row = Bytes::copy_from_slice(row);
        Self {
            row,
            cells: Vec::new(),
            timestamp: LATEST_TIMESTAMP,
            time_range: None,
            durability: Durability::UseDefault,
            attributes: Vec::new(),
        }
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
        let same_row = |c: &KeyValue| c.as_cell().row() == self.row;
        if !self.cells.iter().all(same_row) {
            return Err(Error::InvalidArgument("a cell of another row than its operation".to_owned()));
        }
        match self.cells.iter().any(|c| c.as_cell().family().is_empty()) {
            true => Err(Error::InvalidArgument("a family that is empty or too long".to_owned())),
            false => Ok(()),
        }
    }

    fn message(&self, kind: pb::mutation_proto::MutationType, nonce: u64) -> pb::MutationProto {
        pb::MutationProto {
            row: Some(self.row.clone()),
            mutate_type: Some(kind as i32),
            timestamp: Some(self.timestamp as u64),
            time_range: self.time_range,
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

                /// How long its cells live, in ms; a tag of theirs then says so.
                pub fn ttl_ms(self, ttl_ms: u64) -> Self {
                    self.attribute("_ttl", Bytes::copy_from_slice(&ttl_ms.to_be_bytes()))
                }

                /// Adds a cell as it is, tags and all (tags go out with [`crate::ClientConfig::tags`]). Its row must be
                /// the operation's.
                pub fn cell(mut self, cell: KeyValue) -> Self {
                    self.0.cells.push(cell);
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

    /// Appends its cells to a cell block.
    pub(crate) fn write_cells(&self, out: &mut Vec<u8>, with_tags: bool) {
        self.body().cells.iter().for_each(|cell| cells::write(out, cell, with_tags));
    }

    /// Refuses a cell of more bytes than are allowed; 0 allows any.
    pub(crate) fn check_size(&self, bytes_max: usize) -> Result<()> {
        match self.body().cells.iter().map(|c| c.bytes().len()).find(|n| bytes_max > 0 && *n > bytes_max) {
            Some(n) => Err(Error::InvalidArgument(format!("a cell of {n} bytes, more than {bytes_max}"))),
            None => Ok(()),
        }
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

    /// Deletes the version of a column at a time.
    pub fn version(
        mut self,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        timestamp_ms: i64,
    ) -> Self {
        self.0.cell(family.as_ref(), qualifier.as_ref(), timestamp_ms, CellType::Delete, b"");
        self
    }

    /// Deletes the cells of a family that are not newer than a time.
    pub fn family_up_to(mut self, family: impl AsRef<[u8]>, timestamp_ms: i64) -> Self {
        self.0.cell(family.as_ref(), b"", timestamp_ms, CellType::DeleteFamily, b"");
        self
    }

    /// Deletes the cells of a family at a time.
    pub fn family_version(mut self, family: impl AsRef<[u8]>, timestamp_ms: i64) -> Self {
        self.0.cell(family.as_ref(), b"", timestamp_ms, CellType::DeleteFamilyVersion, b"");
        self
    }

    /// When no family is named: deletes the cells of the row that are not newer than a time.
    pub fn up_to(mut self, timestamp_ms: i64) -> Self {
        self.0.timestamp = timestamp_ms;
        self
    }

    /// Deletes a family.
    pub fn family(mut self, family: impl AsRef<[u8]>) -> Self {
        self.0.cell(family.as_ref(), b"", LATEST_TIMESTAMP, CellType::DeleteFamily, b"");
        self
    }
}

impl Increment {
    /// Reads only versions with `from_ms <= timestamp < to_ms` for what it builds upon.
    pub fn time_range(mut self, from_ms: u64, to_ms: u64) -> Self {
        self.0.time_range = Some(pb::TimeRange { from: Some(from_ms), to: Some(to_ms) });
        self
    }

    /// Does not ask for the new values.
    pub fn without_result(self) -> Self {
        self.attribute("_rr_", Bytes::from_static(&[0]))
    }

    /// Adds to a counter; one that is absent starts at 0.
    pub fn column(mut self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>, amount: i64) -> Self {
        let amount = amount.to_be_bytes();
        self.0.cell(family.as_ref(), qualifier.as_ref(), LATEST_TIMESTAMP, CellType::Put, &amount);
        self
    }
}

impl Append {
    /// Reads only versions with `from_ms <= timestamp < to_ms` for what it builds upon.
    pub fn time_range(mut self, from_ms: u64, to_ms: u64) -> Self {
        self.0.time_range = Some(pb::TimeRange { from: Some(from_ms), to: Some(to_ms) });
        self
    }

    /// Does not ask for the new values.
    pub fn without_result(self) -> Self {
        self.attribute("_rr_", Bytes::from_static(&[0]))
    }

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
    pub(crate) fn message(&self, index: u32, nonce: u64, cells: &mut Vec<u8>, with_tags: bool) -> pb::Action {
        let mut action = pb::Action { index: Some(index), ..Default::default() };
        match self {
            Self::Get(get) => action.get = Some(get.message()),
            Self::Mutation(mutation) => {
                action.mutation = Some(mutation.message(nonce));
                mutation.write_cells(cells, with_tags);
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

/// What must hold of a row.
#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Column { family: Bytes, qualifier: Bytes, op: CompareOp, comparator: Comparator },
    Filter(Filter),
}

/// Mutations of one row that are made only if the row is as expected.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckAndMutate {
    condition: Condition,
    time_range: Option<pb::TimeRange>,
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
        let [family, qualifier] = [family.as_ref(), qualifier.as_ref()].map(Bytes::copy_from_slice);
        Self::of(row, Condition::Column { family, qualifier, op, comparator: Comparator::binary(value) })
    }

    /// If there is such a column and its newest value compares so with a comparator. Servers take a check's own comparator
    /// for plain bytes whatever its class, so another one than those goes out as a filter.
    pub fn matching(
        row: impl AsRef<[u8]>,
        family: impl AsRef<[u8]>,
        qualifier: impl AsRef<[u8]>,
        op: CompareOp,
        comparator: Comparator,
    ) -> Self {
        let [family, qualifier] = [family.as_ref(), qualifier.as_ref()].map(Bytes::copy_from_slice);
        let (filter_if_missing, latest_version_only) = (true, true);
        let test =
            SingleColumnValue { family, qualifier, op, comparator, filter_if_missing, latest_version_only };
        Self::if_filter(row, Filter::SingleColumnValue(test))
    }

    /// If a filter leaves any cell of the row.
    pub fn if_filter(row: impl AsRef<[u8]>, filter: Filter) -> Self {
        Self::of(row, Condition::Filter(filter))
    }

    /// If the row has no such column.
    pub fn if_absent(row: impl AsRef<[u8]>, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Self {
        Self::new(row, family, qualifier, CompareOp::Equal, b"")
    }

    fn of(row: impl AsRef<[u8]>, condition: Condition) -> Self {
        Self { condition, time_range: None, mutations: RowMutations::new(row) }
    }

    /// Looks only at cells with `from_ms <= timestamp < to_ms`.
    pub fn time_range(mut self, from_ms: u64, to_ms: u64) -> Self {
        self.time_range = Some(pb::TimeRange { from: Some(from_ms), to: Some(to_ms) });
        self
    }

    /// Then make this mutation, with those before it.
    pub fn then(mut self, mutation: impl Into<Mutation>) -> Self {
        self.mutations = self.mutations.with(mutation);
        self
    }

    pub(crate) fn condition(&self) -> pb::Condition {
        let (row, time_range) = (self.mutations.row.clone(), self.time_range);
        let condition = pb::Condition { row, time_range, ..Default::default() };
        match &self.condition {
            Condition::Filter(filter) => pb::Condition { filter: Some(filter.message()), ..condition },
            Condition::Column { family, qualifier, op, comparator } => pb::Condition {
                family: Some(family.clone()),
                qualifier: Some(qualifier.clone()),
                compare_type: Some(op.on_wire() as i32),
                comparator: Some(comparator.message()),
                ..condition
            },
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
    fn a_prefix_stops_before_the_next_one() {
        let stop = |prefix: &[u8]| Scan::new().prefix(prefix).stop.to_vec();
        assert_eq!(stop(b"ab"), b"ac");
        assert_eq!(stop(b"a\xff\xff"), b"b");
        assert_eq!(stop(b"\xff"), b"");
        assert_eq!(stop(b""), b"");
    }

    #[test]
    fn cells_of_another_row_are_refused() {
        let other = KeyValue::put(b"s", b"f", b"q", 1, b"v");
        assert!(Mutation::from(Put::new("r").cell(other)).check().is_err());
        let large = Mutation::from(Put::new("r").column("f", "q", [0; 100]));
        assert!(large.check_size(50).is_err() && large.check_size(0).is_ok());
    }

    #[test]
    fn cells_go_into_the_block_in_order() {
        let mut block = Vec::new();
        let put = Action::from(Put::new("r").column("f", "a", "1").column_at("f", "b", 5, "2"));
        let message = put.message(3, 0, &mut block, false);
        let mutation = message.mutation.expect("a mutation");
        assert_eq!((message.index, mutation.associated_cell_count, mutation.nonce), (Some(3), Some(2), None));
        let cells = cells::CellBlock::new(block.into()).take(2).expect("two cells");
        assert_eq!(cells[1].as_cell().timestamp(), 5);
    }
}
