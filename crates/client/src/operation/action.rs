//! [`Action`], an element of a batch, and [`RowMutations`], an atomic group of one row's mutations.

use bytes::Bytes;
use evenkeel_protocol::pb;

use super::mutation::check_row;
use super::{Get, Mutation};
use crate::error::{Error, Result};

/// An element of a batch.
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
            Self::Get(get) => get.row().len() + 64,
            Self::Mutation(mutation) => mutation.bytes(),
        }
    }
}

/// Several mutations of one row, applied atomically.
#[derive(Clone, Debug, PartialEq)]
pub struct RowMutations {
    pub(super) row: Bytes,
    pub(crate) mutations: Vec<Mutation>,
}

impl RowMutations {
    /// An empty group for a row.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells;
    use crate::operation::Put;

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
