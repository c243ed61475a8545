//! Regions: the rows of one key range of one table, from the MemStore down to store files.
//!
//! | module | noun |
//! |---|---|
//! | [`ops`] | what a region is asked: scans, mutations, conditions |
//! | [`filter`] | HBase's filters and comparators |

pub mod filter;
pub mod ops;
