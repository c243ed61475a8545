//! Regions: the rows of one key range of one table, from the MemStore down to store files.
//!
//! | module | noun |
//! |---|---|
//! | [`ops`] | what a region is asked: scans, mutations, conditions |
//! | [`filter`] | HBase's filters and comparators |
//! | [`store`] | one family: its MemStore, its files, flush and compaction |
//! | [`memstore`] | what is not in a file yet |
//! | [`scanner`] | from sorted cells to rows |

pub mod filter;
pub mod memstore;
pub mod ops;
pub mod scanner;
pub mod store;
