//! The write-ahead log, in HBase's format: HBase reads what Evenkeel writes, and the reverse.
//!
//! | module | contents |
//! |---|---|
//! | [`config`] | [`WalConfig`], [`WalListener`] |
//! | [`entry`] | [`WalEntry`] and its key |
//! | `format` | the layout of a file: encoding, dictionaries, compression |
//! | [`metrics`] | what a WAL counts, by HBase's names |
//! | [`markers`] | marker edits: flush, compaction, open and close of a region, bulk load |
//! | [`names`] | directories and file names |
//! | [`reader`] | [`WalReader`]: the entries of one file, plain or compressed |
//! | [`split`] | splitting of a dead server's file into recovered edits by region |
//! | [`wal`] | [`Wal`]: appends, group commit, rolling, archiving |
//!
//! `docs/formats/wal.md` draws every byte.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod config;
pub mod entry;
mod format;
pub mod markers;
pub mod metrics;
pub mod names;
pub mod reader;
pub mod split;
pub mod wal;

pub use config::{NoListener, WalCompression, WalConfig, WalListener};
pub use entry::{ClusterUuid, FamilyScope, META_FAMILY, Scope, WalEntry, WalKey};
pub use evenkeel_compression::Compression;
pub use metrics::{TableAppends, WalMetrics};
pub use reader::{EntryName, Gap, ReadError, TORN_ZEROS_MIN, WalEnd, WalReader};
pub use split::{SplitOptions, SplitOutcome, StoreSeqIds, split_wal};
pub use wal::{OnSynced, RollReason, SyncLevel, Txid, WakeBatch, Wal, WalOptions, WalStats, wake_deferred};
