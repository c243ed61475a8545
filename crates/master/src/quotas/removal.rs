//! Changes of quotas: what a removed quota of space leaves to do.
//!
//! The policy of a quota of space ends with it. A table that it has disabled is enabled before
//! anything is written, so that the quota stays if that fails.

use std::sync::Arc;

use evenkeel_common::quota::QuotaTarget;
use evenkeel_common::quota::space::{self, SpaceUse};
use evenkeel_common::{ErrorKind, Result, TableName};
use evenkeel_protocol::pb;

use super::disable::{Freeing, REMOVAL_TIMEOUT};
use super::merge::merge;
use super::rows::Column;
use super::space::is_of_quota;
use crate::Master;

/// What a request to set a quota changes.
struct Change {
    /// The new quotas; `None` removes all.
    merged: Option<pb::Quotas>,
    /// The quota of space that the target had. The default if the quotas cannot be decoded.
    space: Option<pb::SpaceQuota>,
    /// Whether the policies of the quota of space end.
    frees_space: bool,
}

impl Master {
    /// Applies a request to set a quota. Returns true if policies of quotas of space have ended.
    ///
    /// # Errors
    /// Errors of the request, of hbase:quota, and of the procedure that enables a table.
    pub(super) fn change_quota(
        self: &Arc<Self>,
        target: &QuotaTarget,
        request: &pb::SetQuotaRequest,
    ) -> Result<bool> {
        let mut freeing = None;
        loop {
            let mut last_ms = self.quotas.last_write_ms.lock();
            let change = self.change_of(target, request)?;
            if let QuotaTarget::Table(table) = target
                && change.frees_space
                && freeing.is_none()
                && self.is_stored_as_disabled(table)?
            {
                freeing = Some(Freeing::begin(&self.quotas.space, table.clone()));
                drop(last_ms);
                self.enable_for_quota(table, REMOVAL_TIMEOUT)?;
                continue;
            }
            let is_freed = self.apply(target, &change, &mut last_ms)?;
            tracing::info!(?target, is_set = change.merged.is_some(), "quotas changed");
            return Ok(is_freed);
        }
    }

    fn change_of(&self, target: &QuotaTarget, request: &pb::SetQuotaRequest) -> Result<Change> {
        let removes_throttle = request.throttle.as_ref().is_some_and(|throttle| throttle.r#type.is_none());
        let (present, space) = match self.read_quotas(target) {
            Err(error) if removes_throttle && error.kind() == ErrorKind::Deserialization => {
                tracing::warn!(?target, %error, "quotas that cannot be decoded are removed");
                (Ok(None), Some(pb::SpaceQuota::default()))
            }
            Ok(quotas) => (Ok(quotas), quotas.and_then(|quotas| quotas.space)),
            Err(error) => (Err(error), None),
        };
        let merged = match request.remove_all() {
            true => None,
            false => merge(present?, request)?,
        };
        let keeps_space = merged.as_ref().is_some_and(|quotas| quotas.space.is_some());
        let frees_space = match target {
            // Without quotas, the state is one that HBase has left.
            QuotaTarget::Table(table) if space.is_none() && merged.is_none() => {
                self.space_quota_of(&QuotaTarget::Namespace(table.namespace().to_owned()))?.is_none()
            }
            _ => space.is_some() && !keeps_space,
        };
        Ok(Change { merged, space, frees_space })
    }

    /// Returns the quota of space of a table or namespace alone.
    ///
    /// # Errors
    /// Errors of the table's regions; `DeserializationException`.
    pub(super) fn space_quota_of(&self, target: &QuotaTarget) -> Result<Option<pb::SpaceQuota>> {
        Ok(self.read_quotas(target)?.and_then(|quotas| quotas.space))
    }

    fn apply(&self, target: &QuotaTarget, change: &Change, last_ms: &mut i64) -> Result<bool> {
        let quotas = change.merged.as_ref();
        match target {
            QuotaTarget::Table(table) if change.frees_space => {
                self.write_quotas(target, quotas, last_ms)?;
                self.quotas.space.forget_state(table);
                if quotas.is_some() {
                    self.delete_use(table, last_ms)?;
                }
            }
            // The state in its row is that of the namespace.
            QuotaTarget::Table(_) if quotas.is_none() => {
                self.delete_column(Column::of_quotas(&target.row(), &target.qualifier()), last_ms)?;
            }
            QuotaTarget::Namespace(name) if change.frees_space => {
                self.free_namespace(name, &change.space.unwrap_or_default(), last_ms)?;
                self.quotas.space.states.lock().namespaces.remove(name);
                self.write_quotas(target, quotas, last_ms)?;
            }
            _ => self.write_quotas(target, quotas, last_ms)?,
        }
        Ok(change.frees_space)
    }

    /// Deletes the state of a table, if hbase:quota has one. The caller holds the lock of writes.
    pub(super) fn delete_use(&self, table: &TableName, last_ms: &mut i64) -> Result<bool> {
        let row = QuotaTarget::Table(table.clone()).row();
        let column = Column::of_usage(&row, space::POLICY);
        let is_there = self.read_cell(column)?.is_some();
        if is_there {
            self.delete_column(column, last_ms)?;
        }
        Ok(is_there)
    }

    /// Ends the policy of a namespace's quota for its tables. Those with a quota of their own get
    /// the state of that.
    fn free_namespace(&self, name: &str, quota: &pb::SpaceQuota, last_ms: &mut i64) -> Result<()> {
        for table in self.tables().iter().map(|table| table.descriptor.name()) {
            if table.namespace() != name {
                continue;
            }
            let target = QuotaTarget::Table(table.clone());
            match (self.space_quota_of(&target)?, self.quotas.space.state_of(table)) {
                (Some(_), Some(own)) => self.write_use(table, own, last_ms)?,
                // The state may be one of the table's own, of before a restart.
                (Some(_), None) if !self.is_stored_of_quota(&target, quota)? => {}
                _ => drop(self.delete_use(table, last_ms)?),
            }
        }
        Ok(())
    }

    fn is_stored_of_quota(&self, target: &QuotaTarget, quota: &pb::SpaceQuota) -> Result<bool> {
        let stored = self.read_cell(Column::of_usage(&target.row(), space::POLICY))?;
        let state = stored.and_then(|value| SpaceUse::decode(&value).ok());
        Ok(state.is_none_or(|state| is_of_quota(state, quota)))
    }

    /// Removes the quotas of a table or namespace that was deleted: those of users on it stay, as
    /// in HBase. A failure is logged: nobody waits for it.
    pub(crate) fn remove_quotas_of_deleted(&self, target: &QuotaTarget) {
        if !self.quotas.is_enabled {
            return;
        }
        if let QuotaTarget::Table(table) = target {
            let _changing = self.quotas.last_write_ms.lock();
            self.quotas.space.forget_sizes(table);
            self.quotas.space.forget_state(table);
        }
        if !self.quotas.removes_on_delete {
            return;
        }
        if let Err(error) = self.remove_quotas(target) {
            tracing::warn!(?target, %error, "the quotas of what was deleted are not removed");
        }
    }

    fn remove_quotas(&self, target: &QuotaTarget) -> Result<()> {
        let mut last_ms = self.quotas.last_write_ms.lock();
        let present = self.read_quotas(target)?;
        if let Some(mut quotas) = present {
            (quotas.throttle, quotas.space) = (None, None);
            let left = quotas.bypass_globals.is_some().then_some(&quotas);
            self.write_quotas(target, left, &mut last_ms)?;
        }
        match target {
            // It is there also if only the namespace has a quota.
            QuotaTarget::Table(table) => {
                self.quotas.space.forget_state(table);
                self.delete_use(table, &mut last_ms)?;
            }
            QuotaTarget::Namespace(name) => drop(self.quotas.space.states.lock().namespaces.remove(name)),
            _ => {}
        }
        drop(last_ms);
        if present.is_some() {
            self.reload_quotas();
        }
        self.reload_space_quotas();
        Ok(())
    }
}
