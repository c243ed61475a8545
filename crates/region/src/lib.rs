//! Regions: the rows of one key range of one table, from the MemStore down to store files.
//!
//! Each folder uses only those below it (`layers.rs` holds it to that):
//!
//! ```text
//! region      the region itself: writes, reads, flushes, compactions, bulk loads
//!   store         one family: its MemStore, its files, flush and compaction
//!     memstore        the cells that are not in a file yet
//!       scanner           from sorted cells to visible ones: the heap, the matcher, the trait of what they merge
//!         ops                 what a region is asked: scans, mutations, conditions
//!           filter                HBase's filters and comparators
//!     layout          where things are below the root directory
//!     archive         how files leave it
//! ```
//!
//! MemStore segments and store files implement [`scanner::LeafScanner`]; what merges them knows neither.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod archive;
pub mod filter;
#[cfg(test)]
mod layers;
pub mod layout;
pub mod memstore;
pub mod ops;
pub mod region;
pub mod scanner;
pub mod store;
