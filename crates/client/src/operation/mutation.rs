//! Writes of one row: [`Put`], [`Delete`], [`Increment`], [`Append`], and [`Mutation`], which is
//! any of them.
//!
//! Builders return no errors: an invalid mutation is refused when it is sent.

use bytes::Bytes;
use evenkeel_common::cell::{FAMILY_BYTES_MAX, KeyValueBuilder, LATEST_TIMESTAMP, ROW_BYTES_MAX};
use evenkeel_common::length;
use evenkeel_common::{CellType, Durability, KeyValue};
use evenkeel_protocol::pb;

use super::Action;
use crate::cells;
use crate::error::{Error, Result};

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

    /// Adds a cell. An invalid one is remembered and refused when the mutation is sent.
    fn cell(&mut self, family: &[u8], qualifier: &[u8], timestamp: i64, kind: CellType, value: &[u8]) {
        let row = self.row.get(..ROW_BYTES_MAX).unwrap_or(&self.row);
        let (family, kind) = match family.len() > FAMILY_BYTES_MAX {
            true => (&b""[..], kind),
            false => (family, kind),
        };
        let parts = KeyValueBuilder { row, family, qualifier, timestamp, kind, value, tags: &[] };
        let refused = || KeyValue::new(row, b"", b"", timestamp, kind, b"");
        self.cells.push(parts.try_build().unwrap_or_else(|_| refused()));
    }

    fn check(&self) -> Result<()> {
        check_row(&self.row)?;
        let same_row = |c: &KeyValue| c.as_cell().row() == self.row;
        if !self.cells.iter().all(same_row) {
            return Err(Error::InvalidArgument("a cell of another row than its operation".to_owned()));
        }
        match self.cells.iter().any(|c| c.as_cell().family().is_empty()) {
            true => Err(Error::InvalidArgument(
                "a family that is empty or too long, or a cell that is".to_owned(),
            )),
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
            associated_cell_count: Some(length::must_i32(self.cells.len())),
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
                /// A mutation of a row, without cells.
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

                /// When it is acknowledged; by default the table decides.
                pub fn durability(mut self, durability: Durability) -> Self {
                    self.0.durability = durability;
                    self
                }

                /// The time to live of its cells in ms, sent as a tag.
                pub fn ttl_ms(self, ttl_ms: u64) -> Self {
                    self.attribute("_ttl", Bytes::copy_from_slice(&ttl_ms.to_be_bytes()))
                }

                /// Adds a cell unchanged, tags included (tags are sent with
                /// [`crate::ClientConfig::tags`]). Its row must be the operation's.
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
    /// Deletes cells of one row; the whole row if no family is named.
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

    /// Returns true if the mutation is not idempotent and needs a nonce.
    pub(crate) fn needs_nonce(&self) -> bool {
        matches!(self, Self::Increment(_) | Self::Append(_))
    }

    /// Appends its cells to a cell block.
    pub(crate) fn write_cells(&self, out: &mut Vec<u8>, with_tags: bool) {
        self.body().cells.iter().for_each(|cell| cells::write(out, cell, with_tags));
    }

    /// Refuses a cell of more than `max` bytes; 0 allows any.
    pub(crate) fn check_size(&self, bytes_max: usize) -> Result<()> {
        match self.body().cells.iter().map(|c| c.bytes_len()).find(|n| bytes_max > 0 && *n > bytes_max) {
            Some(n) => Err(Error::InvalidArgument(format!("a cell of {n} bytes, more than {bytes_max}"))),
            None => Ok(()),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.body().cells.iter().map(|cell| cell.bytes_len() + 4).sum::<usize>() + self.body().row.len()
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

    /// Adds a value with the given timestamp.
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

    /// Without a family: deletes the cells of the row that are not newer than a time.
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
    /// Reads only versions with `from_ms <= timestamp < to_ms` as the previous values.
    pub fn time_range(mut self, from_ms: u64, to_ms: u64) -> Self {
        self.0.time_range = Some(pb::TimeRange { from: Some(from_ms), to: Some(to_ms) });
        self
    }

    /// Does not request the new values.
    pub fn without_result(self) -> Self {
        self.attribute("_rr_", Bytes::from_static(&[0]))
    }

    /// Adds to a counter; an absent counter starts at 0.
    pub fn column(mut self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>, amount: i64) -> Self {
        let amount = amount.to_be_bytes();
        self.0.cell(family.as_ref(), qualifier.as_ref(), LATEST_TIMESTAMP, CellType::Put, &amount);
        self
    }
}

impl Append {
    /// Reads only versions with `from_ms <= timestamp < to_ms` as the previous values.
    pub fn time_range(mut self, from_ms: u64, to_ms: u64) -> Self {
        self.0.time_range = Some(pb::TimeRange { from: Some(from_ms), to: Some(to_ms) });
        self
    }

    /// Does not request the new values.
    pub fn without_result(self) -> Self {
        self.attribute("_rr_", Bytes::from_static(&[0]))
    }

    /// Appends to a value; an absent value starts empty.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::RowMutations;

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
    fn cells_of_another_row_are_refused() {
        let other = KeyValue::put(b"s", b"f", b"q", 1, b"v");
        assert!(Mutation::from(Put::new("r").cell(other)).check().is_err());
        let large = Mutation::from(Put::new("r").column("f", "q", [0; 100]));
        assert!(large.check_size(50).is_err() && large.check_size(0).is_ok());
    }
}
