//! What every Evenkeel crate agrees on: cells and their order, the names of tables, regions and servers, table
//! descriptors, errors that map one to one to HBase's exception classes, configuration, and the clock.
//!
//! | module | noun |
//! |---|---|
//! | [`allocator`] | the process's allocator, and the time that it takes |
//! | [`cell`] | [`CellRef`], a view of one cell; [`KeyValue`], an owned one; [`KeyBuf`], a key to seek to; [`CellBuffer`], a run of cells in wire form |
//! | [`comparator`] | the one order of cells, and the other one that hbase:meta uses |
//! | [`names`] | [`TableName`], [`ServerName`] |
//! | [`region_info`] | [`RegionInfo`] and the names made from it |
//! | [`descriptor`] | [`TableDescriptor`], [`ColumnFamilyDescriptor`] |
//! | [`error`] | [`HBaseError`] |
//! | [`config`] | [`Configuration`]: `hbase-site.xml`, defaults, overlays |
//! | [`clock`] | the only place that reads the wall clock |
//! | [`proto`] | the nouns above to and from HBase's protobuf messages |
//! | [`console`] | what tools print |
//! | [`varint`] | variable-length integers of Hadoop and protobuf |
//! | [`length`] | lengths in narrower fields, never cut |
//! | [`buffer_pool`] | large buffers that are used again |
//! | [`cache_line`] | hints that memory will be read soon |
//! | [`priority`] | threads that yield the processors to others |
//! | [`search`] | searches among sorted things |
//! | [`thread`] | where threads are started, and what the death of one means |
//! | [`turns`] | where long work gives way to other work of its kind |

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod cell;
pub mod comparator;
pub mod config;
pub mod console;
pub mod descriptor;
pub mod error;
pub mod length;
pub mod names;
pub mod proto;
pub mod region_info;
mod runtime;
pub mod search;
pub mod varint;

pub use cell::{CellBuffer, CellRef, CellType, KeyBuf, KeyValue};
pub use comparator::CellComparator;
pub use config::{ConfigError, Configuration, TimeUnit};
pub use descriptor::{ColumnFamilyDescriptor, Durability, KeepDeletedCells, TableDescriptor};
pub use error::{ErrorKind, HBaseError, Result, quoted};
pub use names::{ServerName, TableName};
pub use region_info::RegionInfo;
pub use runtime::{allocator, buffer_pool, cache_line, clock, priority, thread, turns};
