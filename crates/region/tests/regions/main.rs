//! Whole regions: from a write to the log, through flushes, compactions and crashes, to what is
//! read back.

mod bulk_load;
mod cells;
mod concurrency;
mod durability;
mod filters;
mod flush_policy;
mod foreign_files;
mod harness;
mod memstore_limits;
mod model;
mod power_cut;
mod read_back;
mod replay;
mod row_cache;
mod secondary;
mod store_file_tracker;
mod wal_root;
mod watched;
