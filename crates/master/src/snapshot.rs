//! Snapshots: the state of a table at a point in time, without copying its files.
//!
//! A snapshot names files; it holds none. The files stay where they are. When the table no longer
//! needs them they go to the archive, where the cleaner keeps files that a snapshot names
//! ([`super::cleaner`]). A table cloned or restored from a snapshot has links to the files
//! ([`super::links`]).
//!
//! | module | contents |
//! |---|---|
//! | [`store`] | snapshots on disk |
//! | `manifest_v1` | snapshots of HBase 0.98 on disk |
//! | `take` | takes a snapshot of a table |
//! | `verify` | checks that all files of a snapshot exist |
//! | `layout` | creates the directories of new regions from a snapshot |
//! | `restore` | clones a snapshot to a new table, or restores its table |
//! | `recovery` | takes a snapshot before a change that removes data |

mod layout;
mod manifest_v1;
mod recovery;
mod restore;
pub mod store;
mod take;
mod verify;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use evenkeel_common::{ErrorKind, HBaseError, Result, TableName, clock};
use evenkeel_metrics::Histogram;
use evenkeel_protocol::pb;
use parking_lot::Mutex;

pub(crate) use self::recovery::RecoverySnapshotSettings;
use self::store::SnapshotStore;
use super::Master;
use super::procedures::ProcedureExecutor;

const ENABLED: &str = "hbase.snapshot.enabled";
/// Seconds must be below this for their milliseconds to fit
/// (`TimeUnit.MILLISECONDS.toSeconds(Long.MAX_VALUE)`).
const TTL_SECONDS_MAX: i64 = i64::MAX / 1000;

/// Procedures of snapshots that run, or whose outcome is still kept.
#[derive(Debug, Default)]
pub struct SnapshotProcedures {
    /// By the snapshot's name.
    taking: Mutex<HashMap<String, u64>>,
    /// By the table that is created or restored.
    restoring: Mutex<HashMap<TableName, u64>>,
    /// Names of recovery snapshots that are being taken.
    recovery_names: Mutex<HashSet<String>>,
    pub(crate) times: SnapshotTimes,
}

/// The times of procedures that succeeded (`MetricsSnapshot`).
#[derive(Debug, Default)]
pub(crate) struct SnapshotTimes {
    pub(crate) taken: Histogram,
    pub(crate) restored: Histogram,
    pub(crate) cloned: Histogram,
}

/// Runs a procedure, and records its time if it succeeds.
fn timed<T>(times: &Histogram, procedure: impl FnOnce() -> Result<T>) -> Result<T> {
    let began = clock::monotonic();
    let outcome = procedure()?;
    times.record_time(clock::since(began));
    Ok(outcome)
}

/// Returns true if a procedure of `key` is still running; removes procedures from `known` that the
/// executor has dropped.
fn is_running<K: std::hash::Hash + Eq>(
    known: &mut HashMap<K, u64>,
    key: &K,
    procedures: &ProcedureExecutor,
) -> bool {
    known.retain(|_, id| procedures.state(*id).is_some());
    known.get(key).and_then(|id| procedures.state(*id)).is_some_and(|state| state.outcome.is_none())
}

impl Master {
    pub(crate) fn snapshots(&self) -> SnapshotStore<'_> {
        SnapshotStore::new(self.fs(), self.root(), self.cleaner_settings.manifest_bytes_max)
    }

    /// Checks that snapshots are switched on (`hbase.snapshot.enabled`).
    ///
    /// # Errors
    /// Returns `UnsupportedOperationException` if they are off.
    pub fn check_snapshot_support(&self) -> Result<()> {
        match self.parts.conf.get_bool_or(ENABLED, true) {
            Ok(true) => Ok(()),
            _ => Err(HBaseError::new(
                ErrorKind::UnsupportedOperation,
                format!(
                    "To use snapshots, You must add to the hbase-site.xml of the HBase Master: '{ENABLED}' property with \
                     value 'true'."
                ),
            )),
        }
    }

    /// Returns every snapshot, ordered by name.
    ///
    /// # Errors
    /// `IOException` from the file system; `CallQueueTooBigException` if the reply finds no space
    /// beside the replies that clients have not read yet.
    pub fn completed_snapshots(&self) -> Result<Vec<pb::SnapshotDescription>> {
        let mut found = self.reply_list();
        self.snapshots().visit(|snapshot| found.push(snapshot))?;
        Ok(found.into_messages())
    }

    /// Deletes a snapshot: completely or not at all.
    ///
    /// # Errors
    /// Returns `SnapshotDoesNotExistException`, or errors of the file system.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        self.check_snapshot_support()?;
        check_name(name)?;
        self.snapshots().delete(name)?;
        tracing::info!(snapshot = name, "snapshot deleted");
        Ok(())
    }

    /// Deletes snapshots whose time to live has expired; returns their number.
    ///
    /// # Errors
    /// Returns I/O errors of the file system, after it has tried every expired snapshot.
    pub fn delete_expired_snapshots(&self) -> Result<usize> {
        let now_ms = self.clock().now_ms();
        let mut expired = Vec::new();
        self.snapshots().visit(|snapshot| {
            expired.extend(is_expired(&snapshot, now_ms).then_some(snapshot.name));
            Ok(())
        })?;
        let outcomes: Vec<_> = expired.iter().map(|name| self.delete_snapshot(name)).collect();
        outcomes.into_iter().collect::<Result<Vec<()>>>().map(|deleted| deleted.len())
    }

    /// Removes snapshots that an earlier process did not finish.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn discard_unfinished_snapshots(&self) -> Result<()> {
        self.snapshots().discard_unfinished()
    }
}

/// Returns true if a snapshot's TTL has expired (`SnapshotDescriptionUtils.isExpiredSnapshot`).
fn is_expired(snapshot: &pb::SnapshotDescription, now_ms: i64) -> bool {
    let (ttl, created_ms) = (snapshot.ttl(), snapshot.creation_time());
    created_ms > 0
        && ttl > 0
        && ttl < TTL_SECONDS_MAX
        && created_ms.saturating_add(ttl.saturating_mul(1000)) < now_ms
}

fn check_not_expired(snapshot: &pb::SnapshotDescription, now_ms: i64) -> Result<()> {
    if !is_expired(snapshot, now_ms) {
        return Ok(());
    }
    let message = format!("TTL for snapshot '{}' has already expired.", snapshot.name);
    Err(HBaseError::new(ErrorKind::SnapshotTtlExpired, message))
}

/// Checks a snapshot's name, which is a directory name: it must be a legal qualifier. HBase's
/// clients check this too.
fn check_name(name: &str) -> Result<()> {
    evenkeel_common::names::check_qualifier(name).map_err(|e| HBaseError::do_not_retry(e.message()))
}

/// The table that a snapshot was taken of, or that it is cloned or restored to.
fn table_of(snapshot: &pb::SnapshotDescription) -> Result<TableName> {
    let name = snapshot.table.as_deref().filter(|name| !name.is_empty()).ok_or_else(|| {
        HBaseError::do_not_retry("Descriptor doesn't apply to a table, so we can't build it.")
    })?;
    name.parse().map_err(|e: HBaseError| HBaseError::do_not_retry(e.message()))
}

/// Formats a description as HBase does.
fn text_of(snapshot: &pb::SnapshotDescription) -> String {
    let (table, kind) = (snapshot.table.as_deref().unwrap_or_default(), snapshot.r#type().as_str_name());
    format!("{{ ss={} table={table} type={kind} ttl={} }}", snapshot.name, snapshot.ttl())
}
