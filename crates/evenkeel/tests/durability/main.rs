//! Nothing acknowledged is lost: kills, faults of disks and files, panics, interrupted changes of
//! tables, and stops.

#[path = "../common/mod.rs"]
mod common;
mod ddl_crash;
mod ddl_faults;
mod deploys;
mod disk_faults;
mod faults;
mod kill9;
mod panics;
mod stop;
mod wal_dir;
