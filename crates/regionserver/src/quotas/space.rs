//! [`SpaceQuotas`]: the tables that have quotas of space, and what the policies of those that
//! exceed them refuse (HBase's `RegionServerSpaceQuotaManager` and `ActivePolicyEnforcement`).
//!
//! The master compares the sizes of regions that servers report with the quotas, and writes the
//! result to hbase:quota. This server reads it there, at intervals, on a thread of its own. A read
//! that fails leaves the policies as they were, and delays nothing else.
//!
//! | policy | refused |
//! |---|---|
//! | any, also if the quota is observed | bulk loads that are larger than the free space |
//! | `NO_INSERTS` | Put, Append, Increment |
//! | `NO_WRITES` | these, and Delete |
//! | `NO_WRITES_COMPACTIONS` | these, and compactions that users request |
//! | `DISABLE` | all writes; the master disables the table |
//!
//! A write to a server without a violated quota pays one relaxed load.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use evenkeel_common::quota::space::{Policy, SpaceUse, UsageCell};
use evenkeel_common::{CellRef, ErrorKind, HBaseError, RegionInfo, Result, TableName};
use evenkeel_fs::FileSystem;
use evenkeel_protocol::pb;
use evenkeel_region::operations::MutationKind;
use evenkeel_region::region::Region;

use super::limits::{TABLE_BYTES_MAX, TARGETS_MAX};
use crate::RegionServer;

/// The name by which HBase refers to the check of bulk loads to a table within its quota.
const WITHIN_QUOTA: &str = "BulkLoadVerifying";

/// The use of space of tables with quotas.
pub type TableUses = HashMap<TableName, SpaceUse>;

/// Collects the use of space of tables from the cells of the family `u`. Other cells are skipped.
#[derive(Debug, Default)]
pub struct TableUseCells {
    uses: TableUses,
    /// The bytes of the rows of `uses`.
    bytes: usize,
    failed: Option<(TableName, HBaseError)>,
    is_cut_off: bool,
}

impl TableUseCells {
    /// Adds a cell of the family `u`. Returns false if it and those after it are ignored, because
    /// there are too many.
    pub fn push(&mut self, cell: CellRef<'_>) -> bool {
        let Some(UsageCell::Table(table)) = UsageCell::parse(cell.row(), cell.qualifier()) else {
            return true;
        };
        let bytes = self.bytes.saturating_add(cell.row().len());
        self.is_cut_off |= self.uses.len() >= TARGETS_MAX || bytes > TABLE_BYTES_MAX;
        if !self.is_cut_off {
            self.bytes = bytes;
            match SpaceUse::decode(cell.value()) {
                Ok(found) => drop(self.uses.insert(table, found)),
                Err(error) => self.failed = Some((table, error)),
            }
        }
        !self.is_cut_off
    }

    /// Returns the use of each table. Logs what was skipped.
    pub fn finish(self) -> TableUses {
        if let Some((table, error)) = self.failed {
            tracing::error!(%table, %error, "the use of space of a table cannot be decoded: it is ignored");
        }
        if self.is_cut_off {
            tracing::error!(read = self.uses.len(), "hbase:quota has too many tables: the rest is ignored");
        }
        self.uses
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct SpaceQuotas {
    /// Whether a table violates its quota.
    is_enforcing: AtomicBool,
    uses: ArcSwap<TableUses>,
}

impl SpaceQuotas {
    /// Replaces the use of all tables.
    pub fn install(&self, uses: TableUses) {
        let before = self.uses.load();
        let violated = |uses: &TableUses, table: &TableName| uses.get(table).and_then(|found| found.violated);
        for table in before.keys().filter(|table| violated(&before, table).is_some()) {
            if violated(&uses, table).is_none() {
                tracing::info!(%table, "the table is within its quota of space again");
            }
        }
        for (table, SpaceUse { violated: policy, used_bytes, limit_bytes }) in &uses {
            if let Some(policy) = policy.filter(|policy| violated(&before, table) != Some(*policy)) {
                let policy = policy.as_str_name();
                tracing::warn!(%table, policy, used_bytes, limit_bytes, "the table exceeds its quota of space");
            }
        }
        let is_enforcing = uses.values().any(|found| found.violated.is_some());
        self.uses.store(Arc::new(uses));
        self.is_enforcing.store(is_enforcing, Ordering::Relaxed);
    }

    /// Returns the use of all tables.
    pub fn uses(&self) -> Arc<TableUses> {
        self.uses.load_full()
    }

    /// Returns true if a table violates its quota.
    #[inline]
    pub fn is_enforcing(&self) -> bool {
        self.is_enforcing.load(Ordering::Relaxed)
    }

    /// Returns the policy that is in force for a table.
    pub fn policy_of(&self, table: &TableName) -> Option<Policy> {
        self.uses.load().get(table).and_then(|found| found.violated)
    }

    /// Checks a write to a table.
    ///
    /// # Errors
    /// `SpaceLimitingException`.
    pub fn check(&self, table: &TableName, kind: MutationKind) -> Result<()> {
        match self.policy_of(table) {
            Some(policy) if is_refused(policy, kind) => Err(refusal(policy, kind)),
            _ => Ok(()),
        }
    }

    /// Checks the size of files that are loaded into a table.
    ///
    /// # Errors
    /// `SpaceLimitingException`, also if the size of a file cannot be read.
    fn check_bulk_load(
        &self,
        fs: &dyn FileSystem,
        table: &TableName,
        files: &[LoadedFile<'_>],
    ) -> Result<()> {
        let uses = self.uses.load();
        let Some(found) = uses.get(table) else { return Ok(()) };
        let name = found.violated.map_or(WITHIN_QUOTA, |policy| policy.as_str_name());
        let free = found.limit_bytes.saturating_sub(found.used_bytes);
        let mut size: u64 = 0;
        for file in files {
            let fs = file.fs.as_deref().unwrap_or(fs);
            let status = fs.status(&file.path).map_err(|error| {
                tracing::warn!(path = file.given, %error, "the size of a file to load cannot be read");
                limiting(name, format!("Could not verify length of file to bulk load: {}", file.given))
            })?;
            size = size.saturating_add(status.len);
            if size > free {
                let given: Vec<_> = files.iter().map(|file| file.given).collect();
                return Err(limiting(
                    name,
                    format!(
                        "Bulk load of [{}] is disallowed because the file(s) exceed the limits of a space quota.",
                        given.join(", ")
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// A file that is loaded.
pub(crate) struct LoadedFile<'a> {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Its file system; `None` for that of the region.
    pub(crate) fs: Option<Arc<dyn FileSystem>>,
    /// Its path as the client wrote it.
    pub(crate) given: &'a str,
}

fn is_refused(policy: Policy, kind: MutationKind) -> bool {
    match policy {
        Policy::NoInserts => kind != MutationKind::Delete,
        Policy::NoWrites | Policy::NoWritesCompactions | Policy::Disable => true,
    }
}

fn refusal(policy: Policy, kind: MutationKind) -> HBaseError {
    let kind = match kind {
        MutationKind::Put => "Put",
        MutationKind::Delete => "Delete",
        MutationKind::Increment => "Increment",
        MutationKind::Append => "Append",
    };
    let message = match policy {
        Policy::Disable => "This table is disabled due to violating a space quota.".to_owned(),
        _ => format!("{kind}s are disallowed due to a space quota."),
    };
    limiting(policy.as_str_name(), message)
}

/// `SpaceLimitingException`: its message begins with the name of the policy.
fn limiting(policy: &str, message: String) -> HBaseError {
    HBaseError::new(ErrorKind::SpaceLimiting, format!("{policy} {message}"))
}

impl RegionServer {
    /// Checks a write against the quota of space of the region's table.
    ///
    /// # Errors
    /// `SpaceLimitingException`.
    #[inline]
    pub(crate) fn check_space(&self, region: &Region, kind: MutationKind) -> Result<()> {
        match self.space_quotas() {
            Some(space) if space.is_enforcing() => space.check(region.info().table(), kind),
            _ => Ok(()),
        }
    }

    /// Checks files that are loaded into a region.
    ///
    /// # Errors
    /// As [`SpaceQuotas::check`].
    pub(crate) fn check_bulk_load_space(&self, region: &Region, files: &[LoadedFile<'_>]) -> Result<()> {
        self.space_quotas().map_or(Ok(()), |space| {
            space.check_bulk_load(&**region.file_system(), region.info().table(), files)
        })
    }

    /// Returns true if the table of a region has a quota of space, or its namespace.
    pub(crate) fn is_space_limited(&self, region: &Region) -> bool {
        self.space_quotas().is_some_and(|space| space.uses.load().contains_key(region.info().table()))
    }

    /// Checks a compaction that a user requests. As in HBase, superusers may always request one,
    /// and compactions that the server itself starts are never refused.
    ///
    /// # Errors
    /// `DoNotRetryIOException`.
    pub(crate) fn check_compaction_space(&self, region: &Region, user: Option<&str>) -> Result<()> {
        let Some(space) = self.space_quotas().filter(|space| space.is_enforcing()) else { return Ok(()) };
        let is_refused = space.policy_of(region.info().table()) == Some(Policy::NoWritesCompactions);
        let user = user.and_then(|user| user.split(['/', '@']).next());
        if !is_refused || user.is_some_and(|user| self.is_superuser(user)) {
            return Ok(());
        }
        Err(HBaseError::do_not_retry(
            "Compactions on this region are disabled due to a space quota violation.",
        ))
    }

    fn is_superuser(&self, user: &str) -> bool {
        self.config.quotas.as_ref().is_some_and(|quotas| quotas.superusers.iter().any(|name| name == user))
    }

    /// Returns the quotas of space; `None` if quotas are not enabled.
    #[inline]
    pub fn space_quotas(&self) -> Option<&SpaceQuotas> {
        self.quotas.as_ref().map(|quotas| quotas.space())
    }

    /// Returns the reply to GetSpaceQuotaSnapshots.
    pub(crate) fn space_quota_snapshots(&self) -> pb::GetSpaceQuotaSnapshotsResponse {
        let uses = self.space_quotas().map(SpaceQuotas::uses).unwrap_or_default();
        let snapshot = |(table, found): (&TableName, &SpaceUse)| {
            pb::get_space_quota_snapshots_response::TableQuotaSnapshot {
                table_name: Some(table.into()),
                snapshot: Some(found.to_message()),
            }
        };
        pb::GetSpaceQuotaSnapshotsResponse { snapshots: uses.iter().map(snapshot).collect() }
    }

    /// Returns the regions that are open here, without secondary replicas, and the bytes of their
    /// store files, without references and links. Reads no file.
    pub fn region_sizes(&self) -> Vec<(RegionInfo, u64)> {
        let regions = self.regions.all().into_iter().filter(|region| !region.is_secondary());
        regions.map(|region| (region.info().clone(), region.own_file_bytes())).collect()
    }

    /// Reads the use of space of tables again, if quotas are enabled. May wait for the table.
    ///
    /// # Errors
    /// Errors of [`QuotaTable`](super::QuotaTable); the policies stay as they are then.
    pub fn reload_space_quotas(&self) -> Result<()> {
        let Some(quotas) = &self.quotas else { return Ok(()) };
        let Some(table) = quotas.table.get() else { return Ok(()) };
        let uses = table.table_uses()?;
        quotas.space().install(uses);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::KeyValue;

    use super::*;

    fn table(name: &str) -> TableName {
        name.parse().expect("legal")
    }

    fn used(policy: Option<Policy>) -> SpaceUse {
        SpaceUse { violated: policy, used_bytes: 5, limit_bytes: 10 }
    }

    #[test]
    fn each_policy_refuses_what_hbases_refuses() {
        let quotas = SpaceQuotas::default();
        let kinds = [MutationKind::Put, MutationKind::Delete, MutationKind::Increment, MutationKind::Append];
        let outcome = |policy| {
            quotas.install(HashMap::from([(table("t"), used(policy)), (table("other"), used(None))]));
            assert_eq!(quotas.is_enforcing(), policy.is_some());
            kinds.iter().for_each(|kind| quotas.check(&table("other"), *kind).expect("within its quota"));
            kinds.map(|kind| quotas.check(&table("t"), kind).map_err(|error| error.message().to_owned()))
        };
        let text = |text: &str| Err(format!("{text} are disallowed due to a space quota."));
        assert_eq!(outcome(None), [const { Ok(()) }; 4]);
        assert_eq!(
            outcome(Some(Policy::NoInserts)),
            [text("NO_INSERTS Puts"), Ok(()), text("NO_INSERTS Increments"), text("NO_INSERTS Appends")]
        );
        assert_eq!(outcome(Some(Policy::NoWrites))[..2], [text("NO_WRITES Puts"), text("NO_WRITES Deletes")]);
        let compactions = outcome(Some(Policy::NoWritesCompactions));
        assert_eq!(
            compactions[1..3],
            ["Deletes", "Increments"].map(|of| text(&format!("NO_WRITES_COMPACTIONS {of}")))
        );
        let disabled = "DISABLE This table is disabled due to violating a space quota.";
        assert_eq!(outcome(Some(Policy::Disable)), kinds.map(|_| Err(disabled.to_owned())));
        quotas.install(HashMap::new());
        assert!(!quotas.is_enforcing());
        quotas.check(&table("t"), MutationKind::Put).expect("no quota");
    }

    #[test]
    fn the_bytes_of_names_are_limited() {
        let (mut cells, value) = (TableUseCells::default(), used(None).encode());
        let row = [b"t.", &[b'a'; 30_000][..]].concat();
        let cell = KeyValue::put(&row, b"u", b"p", 1, &value);
        let limit = TABLE_BYTES_MAX / row.len();
        assert!((0..limit).all(|_| cells.push(cell.as_cell())));
        assert!(!cells.push(cell.as_cell()));
        assert_eq!(cells.finish().len(), 1);
    }

    #[test]
    fn only_the_use_of_tables_is_collected() {
        let mut cells = TableUseCells::default();
        let mut push = |row: &str, qualifier: &str, value: &[u8]| {
            let cell = KeyValue::put(row.as_bytes(), b"u", qualifier.as_bytes(), 1, value);
            cells.push(cell.as_cell())
        };
        let value = used(Some(Policy::NoWrites)).encode();
        assert!(push("t.t", "p", &value) && push("t.t", "sss", b"\x10\x05"));
        assert!(push("t.bad", "p", b"\xff") && push("n.n", "ss", b"\x10\x05") && push("x", "p", &value));
        assert_eq!(cells.finish(), HashMap::from([(table("t"), used(Some(Policy::NoWrites)))]));
    }
}
