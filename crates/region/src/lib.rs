//! Regions: the rows of one key range of one table, from the MemStore down to store files.
//!
//! Each folder uses only the folders below it (`layers.rs` checks that):
//!
//! ```text
//! region      the region itself: writes, reads, flushes, compactions, bulk loads
//!   store         one family: its MemStore, its files, flush and compaction
//!     memstore        the cells that are not in a file yet
//!       scanner           sorted cells to visible ones: the heap, the matcher, the leaf trait
//!         operations          requests to a region: scans, mutations, conditions
//!           filter                HBase's filters and comparators
//!     layout          paths below the root directory
//!     descriptors     table descriptors on disk
//!     store_file_tracker   which files a store has: its directory's, or those of a list
//!     snapshot_manifest    the files of a region in a snapshot
//!     links           store files that belong to another table
//!     metrics         flushes, compactions and splits of each table
//!     archive         moves files that are no longer served to the archive
//! ```
//!
//! MemStore segments and store files implement [`scanner::LeafScanner`]. The code that merges them
//! depends only on that trait.

#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]

pub mod archive;
pub mod descriptors;
pub mod filter;
#[cfg(test)]
mod layers;
pub mod layout;
pub mod links;
pub mod memstore;
pub mod metrics;
pub mod operations;
pub mod region;
pub mod scanner;
pub mod snapshot_manifest;
pub mod store;
pub mod store_file_tracker;
