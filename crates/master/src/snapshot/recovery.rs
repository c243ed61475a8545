//! Recovery snapshots: a snapshot of a table before a change that removes its data
//! (`hbase.snapshot.before.destructive.action.enabled`, HBase's `RecoverySnapshotUtils`).
//!
//! A table that is deleted or truncated, a region that is truncated, and a family that is removed
//! can be brought back by `clone_snapshot` until the snapshot's time to live has expired. The
//! change is not made if the snapshot cannot be taken. The snapshot stays if the change fails after
//! it.

use std::collections::HashSet;

use evenkeel_common::config::{ConfigError, Configuration};
use evenkeel_common::{Result, TableDescriptor, TableName};
use evenkeel_metrics::activity::{self, ActivityKind};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::snapshot_description::Type;
use parking_lot::Mutex;

use super::ENABLED;
use super::store::LAYOUT_VERSION;
use crate::Master;

/// `HConstants.SNAPSHOT_BEFORE_DESTRUCTIVE_ACTION_ENABLED_KEY`.
const BEFORE_REMOVAL: &str = "hbase.snapshot.before.destructive.action.enabled";
/// Seconds (`HConstants.SNAPSHOT_BEFORE_DESTRUCTIVE_ACTION_TTL_KEY`).
const TTL: &str = "hbase.snapshot.before.destructive.action.ttl";
/// One day.
const DEFAULT_TTL_SECONDS: i64 = 86_400;
/// A table's own number of seconds (`HConstants.TABLE_RECOVERY_SNAPSHOT_TTL_KEY`).
const TABLE_TTL: &str = "RECOVERY_SNAPSHOT_TTL";

/// Whether recovery snapshots are taken, and for how long they stay.
#[derive(Clone, Copy, Debug)]
pub struct RecoverySnapshotSettings {
    enabled: bool,
    ttl_seconds: i64,
}

impl RecoverySnapshotSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// The setting that cannot be parsed.
    pub fn from(conf: &Configuration) -> Result<Self, ConfigError> {
        let enabled = conf.get_bool_or(BEFORE_REMOVAL, false)? && conf.get_bool_or(ENABLED, true)?;
        Ok(Self { enabled, ttl_seconds: conf.get_i64_or(TTL, DEFAULT_TTL_SECONDS)? })
    }

    /// The time to live of a table's snapshots; 0 is for ever.
    fn ttl_of(self, table: &TableDescriptor) -> i64 {
        let Some(own) = table.text(TABLE_TTL) else { return self.ttl_seconds };
        own.parse().unwrap_or_else(|_| {
            tracing::warn!(table = %table.name(), value = %own, "{TABLE_TTL} is not a number; {TTL} is used");
            self.ttl_seconds
        })
    }
}

impl Master {
    /// Takes a snapshot of a table before a change that removes data, if the settings ask for it.
    /// The caller holds the table's lock.
    ///
    /// # Errors
    /// As [`Master::take_snapshot`]'s procedure. The change must not be made then.
    pub(crate) fn take_recovery_snapshot(&self, name: &TableName) -> Result<()> {
        if !self.recovery_snapshots.enabled {
            return Ok(());
        }
        let descriptor = self.table(name)?.descriptor;
        let now_ms = self.clock().now_ms();
        let reserved = self.unused_name(name, now_ms)?;
        let snapshot = pb::SnapshotDescription {
            name: reserved.name.clone(),
            table: Some(name.to_string()),
            creation_time: Some(now_ms),
            r#type: Some(Type::Flush.into()),
            version: Some(LAYOUT_VERSION),
            ttl: Some(self.recovery_snapshots.ttl_of(&descriptor)),
            ..pb::SnapshotDescription::default()
        };
        let text = &reserved.name;
        let _files_stay = self.cleaners.pause();
        let activity = activity::begin(ActivityKind::Snapshot, format!("{text} of {name}"));
        let taken = self.take_now(snapshot, name, &activity);
        taken.map(drop).inspect_err(|error| {
            activity.fail(error);
            self.discard_snapshot(text);
        })
    }

    /// Returns HBase's name, `auto_{table}_{milliseconds}`, with an underscore in the place of the
    /// colon behind a namespace, which a directory on HDFS cannot have. Changes within one
    /// millisecond get later ones, also those of `ns:t` and `ns_t`.
    pub(crate) fn unused_name(&self, table: &TableName, now_ms: i64) -> Result<ReservedName<'_>> {
        let table = table.to_string().replace(':', "_");
        let reserved = &self.snapshot_procedures.recovery_names;
        let mut ms = now_ms;
        loop {
            let name = format!("auto_{table}_{ms}");
            // The name is reserved before the look: an earlier holder publishes before it lets go.
            if reserved.lock().insert(name.clone()) {
                let name = ReservedName { name, reserved };
                if !self.snapshots().exists(&name.name)? {
                    return Ok(name);
                }
            }
            ms += 1;
        }
    }
}

/// The name of a recovery snapshot, which no other one gets until this is dropped.
pub(crate) struct ReservedName<'a> {
    pub(crate) name: String,
    reserved: &'a Mutex<HashSet<String>>,
}

impl Drop for ReservedName<'_> {
    fn drop(&mut self) {
        self.reserved.lock().remove(&self.name);
    }
}
