//! Operations on a table: [`Get`], [`Scan`], and the mutations [`Put`], [`Delete`], [`Increment`]
//! and [`Append`].
//!
//! They are built by value: `Put::new("row").column("f", "q", "v")`. Timestamps are milliseconds
//! since 1970; a cell without one gets the server's clock.
//!
//! | module | contents |
//! |---|---|
//! | `read` | [`Get`], [`Scan`], [`Consistency`] and what both select |
//! | `mutation` | [`Put`], [`Delete`], [`Increment`], [`Append`], [`Mutation`] |
//! | `check` | [`CompareOp`], [`CheckAndMutate`] |
//! | `action` | [`Action`] of a batch, [`RowMutations`] |

mod action;
mod check;
mod mutation;
mod read;

pub use action::{Action, RowMutations};
pub use check::{CheckAndMutate, CompareOp};
pub(crate) use mutation::check_row;
pub use mutation::{Append, Delete, Increment, Mutation, Put};
pub(crate) use read::Replicas;
pub use read::{Consistency, Get, Scan};
