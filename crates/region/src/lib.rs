//! Regions: the rows of one key range of one table, from the MemStore down to store files.
//!
//! | module | noun |
//! |---|---|
//! | [`region`] | the region itself: writes, reads, flushes |
//! | [`ops`] | what a region is asked: scans, mutations, conditions |
//! | [`filter`] | HBase's filters and comparators |
//! | [`store`] | one family: its MemStore, its files, flush and compaction |
//! | [`memstore`] | what is not in a file yet |
//! | [`scanner`] | from sorted cells to rows |
//! | [`layout`] | where things are below the root directory |
//! | [`archive`] | how files leave it |

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod archive;
pub mod filter;
pub mod layout;
pub mod memstore;
pub mod ops;
pub mod region;
pub mod scanner;
pub mod store;
