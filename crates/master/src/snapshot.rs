//! Snapshots: what a table was at a moment, without copying its files.
//!
//! A snapshot names files; it keeps none. They stay where they are, and when the table is done with
//! them they go to the archive, where the cleaner leaves alone what a snapshot names
//! ([`super::cleaner`]). A table made of a snapshot has links to the files ([`super::links`]).
//!
//! | module | contents |
//! |---|---|
//! | [`store`] | snapshots on disk |
//! | `take` | a table to a snapshot |
//! | `verify` | whether all files of a snapshot are there |
//! | `layout` | a snapshot to the directories of new regions |
//! | `restore` | a snapshot to a new table, or to the table it is of |

mod layout;
mod restore;
pub mod store;
mod take;
mod verify;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use evenkeel_common::{ErrorKind, HBaseError, Result, TableName};
use evenkeel_protocol::pb;
use parking_lot::Mutex;

use self::store::SnapshotStore;
use super::Master;
use super::procedures::ProcedureExecutor;

const ENABLED: &str = "hbase.snapshot.enabled";
/// What seconds must stay below for their milliseconds to be a number
/// (`TimeUnit.MILLISECONDS.toSeconds(Long.MAX_VALUE)`).
const TTL_SECONDS_MAX: i64 = i64::MAX / 1000;

/// Procedures of snapshots that run, or that ended a while ago.
#[derive(Debug, Default)]
pub struct SnapshotProcedures {
    /// By the snapshot's name.
    taking: Mutex<HashMap<String, u64>>,
    /// By the table that is made or restored.
    restoring: Mutex<HashMap<TableName, u64>>,
}

/// Whether a procedure that was begun for `key` has not ended; drops from `known` what the executor
/// has forgotten.
fn is_running<K: std::hash::Hash + Eq>(
    known: &mut HashMap<K, u64>,
    key: &K,
    procedures: &ProcedureExecutor,
) -> bool {
    known.retain(|_, id| procedures.state(*id).is_some());
    known.get(key).and_then(|id| procedures.state(*id)).is_some_and(|state| state.outcome.is_none())
}

impl Master {
    fn snapshots(&self) -> SnapshotStore<'_> {
        SnapshotStore::new(self.fs(), self.root(), self.cleaner_settings.manifest_bytes_max)
    }

    /// Checks that snapshots are switched on (`hbase.snapshot.enabled`).
    ///
    /// # Errors
    /// `UnsupportedOperationException`.
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

    /// Every snapshot, ordered by name.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn completed_snapshots(&self) -> Result<Vec<pb::SnapshotDescription>> {
        self.snapshots().list()
    }

    /// Removes a snapshot: whole, or not at all.
    ///
    /// # Errors
    /// `SnapshotDoesNotExistException`, or what the file system says.
    pub fn delete_snapshot(&self, name: &str) -> Result<()> {
        self.check_snapshot_support()?;
        check_name(name)?;
        self.snapshots().delete(name)?;
        tracing::info!(snapshot = name, "snapshot deleted");
        Ok(())
    }

    /// Removes snapshots whose time to live is over; says how many.
    ///
    /// # Errors
    /// `IOException` from the file system; the others are removed.
    pub fn delete_expired_snapshots(&self) -> Result<usize> {
        let now_ms = self.clock().now_ms();
        let mut expired = self.completed_snapshots()?;
        expired.retain(|snapshot| is_expired(snapshot, now_ms));
        let outcomes: Vec<_> = expired.iter().map(|snapshot| self.delete_snapshot(&snapshot.name)).collect();
        outcomes.into_iter().collect::<Result<Vec<()>>>().map(|deleted| deleted.len())
    }

    /// Removes what an earlier life was making.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn discard_unfinished_snapshots(&self) -> Result<()> {
        self.snapshots().discard_unfinished()
    }
}

/// Whether a snapshot's time to live is over (`SnapshotDescriptionUtils.isExpiredSnapshot`).
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

/// A snapshot's name is a directory's: it must be a legal qualifier, as HBase's clients check too.
fn check_name(name: &str) -> Result<()> {
    evenkeel_common::names::check_qualifier(name).map_err(|e| HBaseError::do_not_retry(e.message()))
}

/// The table a snapshot is of, or is to become.
fn table_of(snapshot: &pb::SnapshotDescription) -> Result<TableName> {
    let name = snapshot.table.as_deref().filter(|name| !name.is_empty()).ok_or_else(|| {
        HBaseError::do_not_retry("Descriptor doesn't apply to a table, so we can't build it.")
    })?;
    name.parse().map_err(|e: HBaseError| HBaseError::do_not_retry(e.message()))
}

/// As HBase prints a description.
fn text_of(snapshot: &pb::SnapshotDescription) -> String {
    let (table, kind) = (snapshot.table.as_deref().unwrap_or_default(), snapshot.r#type().as_str_name());
    format!("{{ ss={} table={table} type={kind} ttl={} }}", snapshot.name, snapshot.ttl())
}
