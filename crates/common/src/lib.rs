//! The types that all Evenkeel crates share, and the runtime parts beneath them.
//!
//! The data model: cells and their order, the names of tables, regions and servers, descriptors,
//! errors that map one to one to HBase's exception classes, and the configuration.
//!
//! | module | contents |
//! |---|---|
//! | [`binary`] | [`Binary`]: bytes as HBase prints them |
//! | [`caller_state`] | [`CallerState`]: whether a client still waits for a reply |
//! | [`cell`] | [`CellRef`], a view of a cell; [`KeyValue`], owned; [`KeyBuf`]; [`CellBuffer`] |
//! | [`comparator`] | the order of cells, and that of hbase:meta |
//! | [`config`] | [`Configuration`]: `hbase-site.xml`, defaults, overlays |
//! | [`console`] | output of command-line tools |
//! | [`descriptor`] | [`TableDescriptor`], [`ColumnFamilyDescriptor`] |
//! | [`error`] | [`HBaseError`] |
//! | [`jenkins`] | a hash function: Bob Jenkins' lookup3 |
//! | [`length`] | conversions of lengths to narrower integers, never truncated |
//! | [`mob`] | names, references and directories of MOB files |
//! | [`names`] | [`TableName`], [`ServerName`] |
//! | [`proto`] | conversions to and from HBase's protobuf messages |
//! | [`quota`] | the rows of hbase:quota |
//! | [`region_info`] | [`RegionInfo`] and the names derived from it |
//! | `runtime` | the runtime parts, listed below |
//! | [`search`] | binary and galloping search by index |
//! | [`varint`] | variable-length integers of Hadoop and protobuf |
//! | [`wait`] | [`Wait`] and [`TryError`]: work that must not wait on some threads |
//!
//! The runtime parts, which are independent of the data model:
//!
//! | module of `runtime` | contents |
//! |---|---|
//! | [`allocator`] | the process's allocator, and the time it takes |
//! | `budget` | [`Budget`] and [`Charge`]: a limit that the whole server shares |
//! | [`buffer_pool`] | a pool of large buffers |
//! | [`cache_line`] | prefetch hints |
//! | [`clock`] | the wall clock behind a trait, and the monotonic clock |
//! | [`priority`] | thread priorities |
//! | [`thread`] | the start of threads, and the handling of their failures |
//! | [`cpu_slot`] | cooperative scheduling of long computations |

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![deny(unsafe_code)]

pub mod binary;
pub mod caller_state;
pub mod cell;
pub mod comparator;
pub mod config;
pub mod console;
pub mod descriptor;
pub mod error;
pub mod jenkins;
pub mod length;
pub mod mob;
pub mod names;
pub mod proto;
pub mod quota;
pub mod region_info;
mod runtime;
pub mod search;
pub mod varint;
pub mod wait;

pub use binary::Binary;
pub use caller_state::{CallerConnection, CallerState};
pub use cell::{CellBuffer, CellRef, CellType, KeyBuf, KeyValue};
pub use comparator::CellComparator;
pub use config::{ConfigError, Configuration, CurrentConfiguration, TimeUnit};
pub use descriptor::{ColumnFamilyDescriptor, Durability, KeepDeletedCells, TableDescriptor};
pub use error::{ErrorKind, HBaseError, Result, quoted};
pub use names::{ServerName, TableName};
pub use region_info::RegionInfo;
pub use runtime::budget::{Budget, Charge};
pub use runtime::{allocator, buffer_pool, cache_line, clock, cpu_slot, priority, thread};
pub use wait::{TryError, TryResult, Wait};
