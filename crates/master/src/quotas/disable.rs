//! The policy `DISABLE` of quotas of space: disables tables, and enables them when no quota
//! disables them any more.
//!
//! A state `DISABLE` in hbase:quota is replaced or removed only when the table is no longer
//! disabled. So an enabling that fails, or that a crash prevents, is tried again.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::quota::space::{self, Policy, SpaceUse};
use evenkeel_common::quota::{self, QuotaTarget};
use evenkeel_common::{ErrorKind, HBaseError, Result, TableName};

use super::rows::Column;
use super::space::SpaceObserver;
use crate::Master;
use crate::meta::TableState;

/// How long a removal of a quota waits until the table that it had disabled is enabled.
pub(super) const REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a comparison of quotas waits for that. The next one finds the table enabled.
const OBSERVER_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps quotas from disabling a table until it is dropped.
pub(super) struct Freeing<'a> {
    observer: &'a SpaceObserver,
    table: TableName,
}

impl<'a> Freeing<'a> {
    /// The caller holds the lock of writes.
    pub(super) fn begin(observer: &'a SpaceObserver, table: TableName) -> Self {
        observer.states.lock().freeing.insert(table.clone());
        Self { observer, table }
    }
}

impl Drop for Freeing<'_> {
    fn drop(&mut self) {
        self.observer.states.lock().freeing.remove(&self.table);
    }
}

impl Master {
    /// Disables a table that exceeds its quota, if it is enabled. System tables stay enabled, as
    /// in HBase, whose master refuses to disable them. The caller holds the lock of writes.
    pub(super) fn disable_for_quota(self: &Arc<Self>, table: &TableName) {
        let is_enabled = self.table(table).is_ok_and(|table| table.state == TableState::Enabled);
        if !is_enabled || table.is_system() || self.is_changed_by_quota(table) {
            return;
        }
        match self.submit_disable(table.clone(), (0, 0)) {
            Ok(id) => {
                self.quotas.space.states.lock().procedures.insert(table.clone(), id);
                tracing::warn!(%table, "the table exceeds its quota of space: it is disabled");
            }
            Err(error) => tracing::error!(%table, %error, "a table that exceeds its quota is not disabled"),
        }
    }

    /// Returns true if the procedure that disables or enables a table for a quota has not ended.
    fn is_changed_by_quota(&self, table: &TableName) -> bool {
        let mut states = self.quotas.space.states.lock();
        let Some(id) = states.procedures.get(table).copied() else { return false };
        let runs = self.procedures.state(id).is_some_and(|state| state.outcome.is_none());
        if !runs {
            states.procedures.remove(table);
        }
        runs
    }

    /// Returns true if a table that a quota had disabled is enabled, or does not exist. Otherwise
    /// enables it; the next comparison tries again if that fails.
    pub(super) fn is_enabled_again(self: &Arc<Self>, table: &TableName) -> bool {
        if self.is_changed_by_quota(table) {
            return false;
        }
        if self.table(table).is_ok_and(|table| table.state == TableState::Enabled) {
            return true;
        }
        match self.enable_for_quota(table, OBSERVER_TIMEOUT) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%table, %error, "a table that no quota disables is not enabled yet");
                false
            }
        }
    }

    /// Enables a table that a quota had disabled, after procedures of the table that were submitted
    /// before. A table that is enabled already, or does not exist, is no error.
    ///
    /// # Errors
    /// Errors of the procedure; `IOException` if it has not ended by the timeout.
    pub(super) fn enable_for_quota(self: &Arc<Self>, table: &TableName, timeout: Duration) -> Result<()> {
        let procedure = self.submit_enable(table.clone(), (0, 0))?;
        self.quotas.space.states.lock().procedures.insert(table.clone(), procedure);
        let (done, ended) = crossbeam_channel::bounded(1);
        self.procedures.on_outcome(procedure, move |outcome| done.send(outcome).unwrap_or_default());
        let ended = ended.recv_timeout(timeout);
        match ended.map_err(|_| HBaseError::io(format!("enabling the table '{table}' takes too long")))? {
            Ok(_) => tracing::info!(%table, "no quota of space disables the table: it is enabled"),
            Err(error) if matches!(error.kind(), ErrorKind::TableNotDisabled | ErrorKind::TableNotFound) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns true if hbase:quota has the state `DISABLE` for a table.
    ///
    /// # Errors
    /// Errors of the table's regions.
    pub(super) fn is_stored_as_disabled(&self, table: &TableName) -> Result<bool> {
        let row = QuotaTarget::Table(table.clone()).row();
        let stored = self.read_cell(Column::of_usage(&row, space::POLICY))?;
        let state = stored.and_then(|value| SpaceUse::decode(&value).ok());
        Ok(state.and_then(|state| state.violated) == Some(Policy::Disable))
    }

    /// Checks that no quota of space has disabled a table that a client enables.
    ///
    /// # Errors
    /// `AccessDeniedException`; errors of the regions of hbase:quota.
    pub(super) fn check_enable_by_client(&self, table: &TableName) -> Result<()> {
        let is_limited = self.has_quotas() && !table.is_system() && self.table(&quota::table_name()?).is_ok();
        if !is_limited || !self.is_stored_as_disabled(table)? {
            return Ok(());
        }
        let message = format!("Enabling the table '{table}' is disallowed due to a violated space quota.");
        Err(HBaseError::new(ErrorKind::AccessDenied, message))
    }

    /// Serves a disabled table again, as a client requests.
    ///
    /// # Errors
    /// As [`Master::enable_table`]; `AccessDeniedException` if a quota of space has disabled it.
    pub(crate) fn enable_table_by_client(
        self: &Arc<Self>,
        table: TableName,
        nonce: (u64, u64),
    ) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        self.check_enable_by_client(&table)?;
        self.enable_table(table, nonce)
    }
}
