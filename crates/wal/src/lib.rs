//! The write-ahead log, in HBase's format: written here and read by HBase, written by HBase and read here.
//!
//! | module | noun |
//! |---|---|
//! | [`log`] | [`Wal`]: appends, group commit, rolling, archiving |
//! | [`reader`] | [`WalReader`]: the entries of one file, plain or compressed |
//! | [`split`] | edits of a dead server's file, sorted by region into files to replay |
//! | [`markers`] | edits about a region rather than in it: flush, compaction, open and close, bulk load |
//! | [`entry`] | [`WalEntry`] and its key |
//! | [`names`] | directories and file names |
//!
//! `docs/formats/wal.md` draws every byte.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod config;
pub mod entry;
mod format;
pub mod log;
pub mod markers;
pub mod names;
pub mod reader;
pub mod split;

pub use config::{NoListener, WalCompression, WalConfig, WalListener};
pub use entry::{ClusterUuid, FamilyScope, META_FAMILY, Scope, WalEntry, WalKey};
pub use evenkeel_compression::Compression;
pub use log::{OnSynced, SyncLevel, Txid, WakeBatch, Wal, WalOptions, WalStats, wake_deferred};
pub use reader::{EntryName, Gap, ReadError, WalEnd, WalReader};
pub use split::{SplitOptions, SplitOutcome, StoreSeqIds, split_wal};
