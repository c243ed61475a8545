//! Quotas: the rows of hbase:quota ([`evenkeel_common::quota`] has their format), as HBase's
//! `MasterQuotaManager` writes them.
//!
//! With `hbase.quota.enabled` the table is created at start. A change reads the present quotas of
//! its target, merges the request, and writes the row durably. Then the RegionServer of this
//! process reads the table again, so the change applies when its client gets the response. The
//! quotas of a table or namespace that is deleted are removed, unless
//! `hbase.quota.remove.on.table.delete` is false.
//!
//! The switch of all throttles is in memory, like the other switches, and in a znode as in HBase.
//!
//! | module | contents |
//! |---|---|
//! | [`chore`] | the threads of the periodic work of quotas of space |
//! | `disable` | disables and enables tables for quotas of space |
//! | `merge` | what a request to set a quota makes of the present ones |
//! | `removal` | changes of quotas, and what a removed quota of space leaves to do |
//! | `rows` | reads and writes rows of hbase:quota |
//! | [`snapshot_sizes`] | the sizes of snapshots, which count against quotas of space |
//! | [`space`] | decides which tables exceed their quotas of space |

pub(crate) mod chore;
mod disable;
mod merge;
mod removal;
mod rows;
pub(crate) mod snapshot_sizes;
pub(crate) mod space;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use evenkeel_common::config::ConfigError;
use evenkeel_common::quota::{self, ALL_SERVERS, QuotaTarget};
use evenkeel_common::{HBaseError, Result, TableName};
use evenkeel_protocol::pb;
use evenkeel_regionserver::quotas::settings::ENABLED;
use evenkeel_regionserver::quotas::table::LocalQuotaTable;
use parking_lot::Mutex;

use self::merge::{target_of, unsupported};
use self::rows::Column;
use self::space::{SpaceObserver, SpaceSettings};
use super::Master;

/// Whether the quotas of a deleted table or namespace are removed.
const REMOVE_ON_DELETE: &str = "hbase.quota.remove.on.table.delete";

/// The quotas of a master.
#[derive(Debug)]
pub(crate) struct Quotas {
    is_enabled: bool,
    removes_on_delete: bool,
    /// Held during a change, and before the locks of `space`. The timestamp of the last write:
    /// every write has a later one, so that a delete never hides a later put.
    last_write_ms: Mutex<i64>,
    space: SpaceObserver,
}

impl Quotas {
    /// Reads the settings.
    ///
    /// # Errors
    /// `IOException` about a malformed setting.
    pub(crate) fn from(conf: &evenkeel_common::Configuration) -> Result<Self> {
        let bad = |error: ConfigError| HBaseError::io(error.to_string());
        Ok(Self {
            is_enabled: conf.get_bool_or(ENABLED, false).map_err(bad)?,
            removes_on_delete: conf.get_bool_or(REMOVE_ON_DELETE, true).map_err(bad)?,
            last_write_ms: Mutex::new(0),
            space: SpaceObserver::new(SpaceSettings::from(conf).map_err(bad)?),
        })
    }
}

impl Quotas {
    /// Forgets the sizes of a table's regions, which were replaced.
    pub(crate) fn forget_sizes(&self, table: &TableName) {
        self.space.forget_sizes(table);
    }
}

impl Master {
    /// Lets the RegionServer read hbase:quota, now and after changes.
    pub fn connect_quotas(self: &Arc<Self>) {
        let server = &self.parts.regionserver;
        let Some(quotas) = server.quotas() else { return };
        quotas.connect(Arc::new(self.quota_table()));
        self.reload_quotas();
        self.reload_space_quotas();
    }

    fn quota_table(self: &Arc<Self>) -> LocalQuotaTable {
        let of_master = Arc::downgrade(self);
        let exists = move || {
            let master = of_master.upgrade();
            master.is_some_and(|master| quota::table_name().and_then(|name| master.table(&name)).is_ok())
        };
        LocalQuotaTable { server: Arc::downgrade(&self.parts.regionserver), exists: Box::new(exists) }
    }

    /// Makes the RegionServer read hbase:quota. If it fails, the limits stay as they are, and
    /// [`Master::retry_reload_of_quotas`] tries again.
    pub(crate) fn reload_quotas(&self) {
        if let Err(error) = self.parts.regionserver.reload_quotas() {
            tracing::error!(%error, "the quotas could not be read");
        }
    }

    /// Makes the RegionServer read hbase:quota if the last read failed.
    pub(crate) fn retry_reload_of_quotas(&self) {
        let server = &self.parts.regionserver;
        if !server.quotas().is_some_and(|quotas| quotas.is_stale()) {
            return;
        }
        match server.reload_quotas() {
            Ok(()) => tracing::info!("the quotas were read"),
            Err(error) => tracing::debug!(%error, "the quotas could still not be read"),
        }
    }

    /// Creates hbase:quota if quotas are enabled and it does not exist.
    ///
    /// # Errors
    /// As [`create_table`](Self::create_table).
    pub fn ensure_quota_table(self: &Arc<Self>) -> Result<()> {
        if !self.quotas.is_enabled || self.table(&quota::table_name()?).is_ok() {
            return Ok(());
        }
        tracing::info!("creating the table hbase:quota");
        self.create_table(quota::descriptor()?, Vec::new(), (0, 0)).map(drop)
    }

    /// Returns true if quotas are enabled.
    pub(crate) fn has_quotas(&self) -> bool {
        self.quotas.is_enabled
    }

    /// Sets or removes quotas of a user, table, namespace or of the RegionServers. Waits until the
    /// change is durable.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if quotas are not enabled, or the request is invalid; `IOException`
    /// before the table was created; errors of the table's region, and those of enabling a table
    /// that the removed quota had disabled.
    pub fn set_quota(self: &Arc<Self>, request: &pb::SetQuotaRequest) -> Result<()> {
        if !self.quotas.is_enabled {
            return Err(unsupported("quota support disabled"));
        }
        let target = target_of(request)?;
        let is_freed = self.change_quota(&target, request)?;
        self.reload_quotas();
        if is_freed {
            self.reload_space_quotas();
        }
        Ok(())
    }

    /// Switches all throttles on or off; returns the previous state. Without quotas nothing is
    /// switched, and the state is off.
    pub(crate) fn switch_rpc_throttle(&self, on: bool) -> bool {
        let Some(quotas) = self.parts.regionserver.quotas() else { return false };
        let before = self.switches.rpc_throttle.swap(on, Ordering::Relaxed);
        quotas.set_on(on);
        if let Err(error) = self.parts.znodes.set_rpc_throttle(on) {
            tracing::warn!(%error, "the switch of throttles is not mirrored");
        }
        before
    }

    /// Returns true if throttles are enabled and switched on.
    pub(crate) fn is_rpc_throttle_on(&self) -> bool {
        self.has_quotas() && self.switches.rpc_throttle.load(Ordering::Relaxed)
    }

    /// Lets requests exceed their quotas while that of the RegionServer has free units, or not;
    /// returns the previous state.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if the RegionServers have no limits of reads and writes by the
    /// second; errors of the table's region.
    pub(crate) fn switch_exceed_throttle_quota(&self, on: bool) -> Result<bool> {
        if !self.has_quotas() {
            return Ok(false);
        }
        let mut last_ms = self.quotas.last_write_ms.lock();
        let exceed = Column::of_quotas(quota::EXCEED_ROW, quota::SETTINGS);
        let before = self.read_cell(exceed)?;
        let before = before.and_then(|value| value.first().copied()).is_some_and(|value| value != 0);
        if before == on {
            return Ok(before);
        }
        if on {
            let servers = QuotaTarget::RegionServer(ALL_SERVERS.to_owned());
            check_exceedable(self.read_quotas(&servers)?.and_then(|quotas| quotas.throttle))?;
        }
        // HBase's `Bytes.toBytes(boolean)`.
        let value: &[u8] = if on { &[0xff] } else { &[0] };
        self.write_cell(exceed, value, &mut last_ms)?;
        drop(last_ms);
        self.reload_quotas();
        Ok(before)
    }
}

/// Checks that requests may exceed other quotas at the expense of those of the RegionServers.
fn check_exceedable(servers: Option<pb::Throttle>) -> Result<()> {
    use pb::ThrottleType as T;
    let throttle = servers.ok_or_else(|| {
        HBaseError::do_not_retry("Please set region server quota before enable exceed throttle quota")
    })?;
    let limits = quota::throttles(&throttle);
    let has_any = |kinds: [T; 3]| limits.iter().any(|(kind, _)| kinds.contains(kind));
    let of_both = has_any([T::RequestNumber, T::RequestSize, T::RequestCapacityUnit]);
    if !of_both && !has_any([T::ReadNumber, T::ReadSize, T::ReadCapacityUnit]) {
        return Err(HBaseError::do_not_retry(
            "Please set at least one read region server quota before enable exceed throttle quota",
        ));
    }
    if !of_both && !has_any([T::WriteNumber, T::WriteSize, T::WriteCapacityUnit]) {
        return Err(HBaseError::do_not_retry(
            "Please set at least one write region server quota before enable exceed throttle quota",
        ));
    }
    let others = [T::AtomicReadSize, T::AtomicWriteSize, T::AtomicRequestNumber, T::RequestHandlerUsageMs];
    let mut checked = limits.iter().filter(|(kind, _)| !others.contains(kind));
    match checked.all(|(_, limit)| limit.time_unit() == pb::TimeUnit::Seconds) {
        true => Ok(()),
        false => Err(HBaseError::do_not_retry(
            "All region server quota must be in seconds time unit if enable exceed throttle quota",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(units: u64) -> pb::TimedQuota {
        pb::TimedQuota {
            time_unit: pb::TimeUnit::Seconds.into(),
            soft_limit: Some(units),
            ..Default::default()
        }
    }

    #[test]
    fn only_limits_by_the_second_of_reads_and_writes_can_be_exceeded() {
        let minute = pb::TimedQuota { time_unit: pb::TimeUnit::Minutes.into(), ..limit(1) };
        let message = |throttle| check_exceedable(throttle).expect_err("rejected").message().to_owned();
        let reads = pb::Throttle { read_num: Some(limit(1)), ..Default::default() };
        let writes = pb::Throttle { write_size: Some(limit(1)), ..Default::default() };
        let both = pb::Throttle { read_num: Some(limit(1)), ..writes };
        assert!(message(None).starts_with("Please set region server quota before"));
        assert!(message(Some(writes)).starts_with("Please set at least one read region server quota"));
        assert!(message(Some(reads)).starts_with("Please set at least one write region server quota"));
        let by_minute = pb::Throttle { req_num: Some(minute), ..Default::default() };
        assert!(message(Some(by_minute)).starts_with("All region server quota must be in seconds"));
        let requests = pb::Throttle { req_num: Some(limit(1)), ..Default::default() };
        assert_eq!([both, requests].map(|throttle| check_exceedable(Some(throttle))), [Ok(()), Ok(())]);
    }
}
