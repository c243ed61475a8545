//! Directories that stock HBase and Evenkeel serve in turns. Each server reads every cell that the
//! other one left, writes, and changes the layout of the files.
//!
//! - [`engines`]: store files in stripes of rows, or in windows of time
//! - [`mob`]: MOB files
//! - [`trackers`]: store files that are tracked by lists, and tables on the way to lists and back
//! - [`wal_dir`]: logs in another directory than the data
//! - [`turn`]: the sides, and the client of all of them
//!
//! The tests need both servers. With `EVENKEEL_INTEROP_TARGET=stock`, every turn is of stock HBase,
//! but for those whose subject is one server's refusal or files.

#![forbid(unsafe_code)]

mod engines;
mod mob;
mod trackers;
mod turn;
mod wal_dir;
