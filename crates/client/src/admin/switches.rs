//! The master's background chores: switched on and off, or run immediately.

use evenkeel_common::TableName;
use evenkeel_protocol::pb;

use super::Admin;
use crate::error::Result;

/// The outcome of a run of the balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Whether it ran.
    pub ran: bool,
    /// Moves that it calculated.
    pub moves_calculated: u32,
    /// Moves that it executed.
    pub moves_executed: u32,
}

impl Admin {
    /// Runs the balancer. With `dry_run` it only calculates; with `ignore_transitions` it also runs
    /// while regions are in transition.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn balance(&self, dry_run: bool, ignore_transitions: bool) -> Result<Balance> {
        let request = pb::BalanceRequest { ignore_rit: Some(ignore_transitions), dry_run: Some(dry_run) };
        let response: pb::BalanceResponse = self.call("Balance", &request).await?;
        let (moves_calculated, moves_executed) = (response.moves_calculated(), response.moves_executed());
        Ok(Balance { ran: response.balancer_ran, moves_calculated, moves_executed })
    }

    /// Switches the balancer; returns the previous state. Waits for a run in progress.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn set_balancer(&self, on: bool) -> Result<bool> {
        let request = pb::SetBalancerRunningRequest { on, synchronous: Some(true) };
        let response: pb::SetBalancerRunningResponse = self.call("SetBalancerRunning", &request).await?;
        Ok(response.prev_balance_value())
    }

    /// Returns true if the balancer is on.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn is_balancer_enabled(&self) -> Result<bool> {
        let request = pb::IsBalancerEnabledRequest {};
        let response: pb::IsBalancerEnabledResponse = self.call("IsBalancerEnabled", &request).await?;
        Ok(response.enabled)
    }

    /// Runs the normalizer on some tables, or on all if none is named; returns whether it ran.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn normalize(&self, tables: &[TableName]) -> Result<bool> {
        let table_names = tables.iter().map(Into::into).collect();
        let request = pb::NormalizeRequest { table_names, regex: None, namespace: None };
        let response: pb::NormalizeResponse = self.call("Normalize", &request).await?;
        Ok(response.normalizer_ran)
    }

    /// Switches the normalizer; returns the previous state.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn set_normalizer(&self, on: bool) -> Result<bool> {
        let request = pb::SetNormalizerRunningRequest { on };
        let response: pb::SetNormalizerRunningResponse = self.call("SetNormalizerRunning", &request).await?;
        Ok(response.prev_normalizer_value())
    }

    /// Returns true if the normalizer is on.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn is_normalizer_enabled(&self) -> Result<bool> {
        let request = pb::IsNormalizerEnabledRequest {};
        let response: pb::IsNormalizerEnabledResponse = self.call("IsNormalizerEnabled", &request).await?;
        Ok(response.enabled)
    }

    /// Runs the catalog janitor; returns the number of entries it cleaned, -1 if it did not run.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn run_catalog_janitor(&self) -> Result<i32> {
        let response: pb::RunCatalogScanResponse =
            self.call("RunCatalogScan", &pb::RunCatalogScanRequest {}).await?;
        Ok(response.scan_result())
    }

    /// Switches the catalog janitor; returns the previous state.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn set_catalog_janitor(&self, enable: bool) -> Result<bool> {
        let request = pb::EnableCatalogJanitorRequest { enable };
        let response: pb::EnableCatalogJanitorResponse = self.call("EnableCatalogJanitor", &request).await?;
        Ok(response.prev_value())
    }

    /// Returns true if the catalog janitor is on.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn is_catalog_janitor_enabled(&self) -> Result<bool> {
        let request = pb::IsCatalogJanitorEnabledRequest {};
        let response: pb::IsCatalogJanitorEnabledResponse =
            self.call("IsCatalogJanitorEnabled", &request).await?;
        Ok(response.value)
    }

    /// Runs the cleaner of old files; returns whether it ran.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn run_cleaner_chore(&self) -> Result<bool> {
        let response: pb::RunCleanerChoreResponse =
            self.call("RunCleanerChore", &pb::RunCleanerChoreRequest {}).await?;
        Ok(response.cleaner_chore_ran)
    }

    /// Switches the cleaner of old files; returns the previous state.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn set_cleaner_chore(&self, on: bool) -> Result<bool> {
        let request = pb::SetCleanerChoreRunningRequest { on };
        let response: pb::SetCleanerChoreRunningResponse =
            self.call("SetCleanerChoreRunning", &request).await?;
        Ok(response.prev_value())
    }

    /// Returns true if the cleaner of old files is on.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn is_cleaner_chore_enabled(&self) -> Result<bool> {
        let request = pb::IsCleanerChoreEnabledRequest {};
        let response: pb::IsCleanerChoreEnabledResponse =
            self.call("IsCleanerChoreEnabled", &request).await?;
        Ok(response.value)
    }

    /// Switches splits of regions; returns the previous state.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn set_split(&self, on: bool) -> Result<bool> {
        self.set_split_or_merge(on, pb::MasterSwitchType::Split).await
    }

    /// Switches merges of regions; returns the previous state.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn set_merge(&self, on: bool) -> Result<bool> {
        self.set_split_or_merge(on, pb::MasterSwitchType::Merge).await
    }

    /// Returns true if regions may split.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn is_split_enabled(&self) -> Result<bool> {
        self.is_split_or_merge_enabled(pb::MasterSwitchType::Split).await
    }

    /// Returns true if regions may be merged.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn is_merge_enabled(&self) -> Result<bool> {
        self.is_split_or_merge_enabled(pb::MasterSwitchType::Merge).await
    }

    async fn set_split_or_merge(&self, enabled: bool, which: pb::MasterSwitchType) -> Result<bool> {
        let switch_types = vec![which as i32];
        let request = pb::SetSplitOrMergeEnabledRequest { enabled, synchronous: Some(true), switch_types };
        let response: pb::SetSplitOrMergeEnabledResponse =
            self.call("SetSplitOrMergeEnabled", &request).await?;
        Ok(response.prev_value.first().copied().unwrap_or_default())
    }

    async fn is_split_or_merge_enabled(&self, which: pb::MasterSwitchType) -> Result<bool> {
        let request = pb::IsSplitOrMergeEnabledRequest { switch_type: which as i32 };
        let response: pb::IsSplitOrMergeEnabledResponse =
            self.call("IsSplitOrMergeEnabled", &request).await?;
        Ok(response.enabled)
    }

    /// Switches the deletion of snapshots past their time to live; returns the previous state.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn set_snapshot_cleanup(&self, enabled: bool) -> Result<bool> {
        let request = pb::SetSnapshotCleanupRequest { enabled, synchronous: Some(true) };
        let response: pb::SetSnapshotCleanupResponse = self.call("SwitchSnapshotCleanup", &request).await?;
        Ok(response.prev_snapshot_cleanup)
    }

    /// Returns true if snapshots past their time to live are deleted.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn is_snapshot_cleanup_enabled(&self) -> Result<bool> {
        let request = pb::IsSnapshotCleanupEnabledRequest {};
        let response: pb::IsSnapshotCleanupEnabledResponse =
            self.call("IsSnapshotCleanupEnabled", &request).await?;
        Ok(response.enabled)
    }

    /// Returns true if the master is in maintenance mode.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn is_master_in_maintenance_mode(&self) -> Result<bool> {
        let request = pb::IsInMaintenanceModeRequest {};
        let response: pb::IsInMaintenanceModeResponse =
            self.call("IsMasterInMaintenanceMode", &request).await?;
        Ok(response.in_maintenance_mode)
    }
}
