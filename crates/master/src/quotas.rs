//! Quotas: the rows of hbase:quota ([`evenkeel_common::quota`] has their format), as HBase's
//! `MasterQuotaManager` writes them.
//!
//! With `hbase.quota.enabled` the table is created at start. A change reads the present quotas of
//! its target, merges the request, and writes the row durably. Then the RegionServer of this
//! process reads the table again, so the change applies when its client gets the response. The
//! quotas of a table or namespace that is deleted are removed, unless
//! `hbase.quota.remove.on.table.delete` is false.
//!
//! Quotas of space are not implemented: they cannot be set. Those that another master has set stay
//! in the table, and are not enforced.
//!
//! The switch of all throttles is in memory, like the other switches, and in a znode as in HBase.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::config::ConfigError;
use evenkeel_common::quota::{self, ALL_SERVERS, QuotaTarget};
use evenkeel_common::{CellType, Durability, ErrorKind, HBaseError, Result, TableName};
use evenkeel_protocol::pb;
use evenkeel_region::operations::{Mutation, MutationKind, Scan};
use evenkeel_region::region::Region;
use evenkeel_regionserver::quotas::settings::ENABLED;
use evenkeel_regionserver::quotas::table::LocalQuotaTable;
use parking_lot::Mutex;

use super::Master;

/// Whether the quotas of a deleted table or namespace are removed.
const REMOVE_ON_DELETE: &str = "hbase.quota.remove.on.table.delete";

/// The quotas of a master.
#[derive(Debug)]
pub(crate) struct Quotas {
    is_enabled: bool,
    removes_on_delete: bool,
    /// Held during a change. The timestamp of the last write: every write has a later one, so that
    /// a delete never hides a later put.
    last_write_ms: Mutex<i64>,
}

impl Quotas {
    /// Reads the settings.
    ///
    /// # Errors
    /// `IOException` about a setting that is no boolean.
    pub(crate) fn from(conf: &evenkeel_common::Configuration) -> Result<Self> {
        let bad = |error: ConfigError| HBaseError::io(error.to_string());
        Ok(Self {
            is_enabled: conf.get_bool_or(ENABLED, false).map_err(bad)?,
            removes_on_delete: conf.get_bool_or(REMOVE_ON_DELETE, true).map_err(bad)?,
            last_write_ms: Mutex::new(0),
        })
    }
}

impl Master {
    /// Lets the RegionServer read hbase:quota, now and after changes.
    pub fn connect_quotas(self: &Arc<Self>) {
        let server = &self.parts.regionserver;
        let Some(quotas) = server.quotas() else { return };
        let of_master = Arc::downgrade(self);
        let exists = move || {
            let master = of_master.upgrade();
            master.is_some_and(|master| quota::table_name().and_then(|name| master.table(&name)).is_ok())
        };
        let table = LocalQuotaTable { server: Arc::downgrade(server), exists: Box::new(exists) };
        quotas.connect(Arc::new(table));
        self.reload_quotas();
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
    /// before the table was created; errors of the table's region.
    pub fn set_quota(&self, request: &pb::SetQuotaRequest) -> Result<()> {
        if !self.quotas.is_enabled {
            return Err(unsupported("quota support disabled"));
        }
        let target = target_of(request)?;
        let mut last_ms = self.quotas.last_write_ms.lock();
        let removes_throttle = request.throttle.as_ref().is_some_and(|throttle| throttle.r#type.is_none());
        let present = match self.read_quotas(&target) {
            Err(error) if removes_throttle && error.kind() == ErrorKind::Deserialization => {
                tracing::warn!(?target, %error, "quotas that cannot be decoded are removed");
                Ok(None)
            }
            present => present,
        };
        let merged = match request.remove_all() {
            true => None,
            false => merge(present?, request)?,
        };
        self.write_quotas(&target, merged.as_ref(), &mut last_ms)?;
        drop(last_ms);
        tracing::info!(?target, is_set = merged.is_some(), "quotas changed");
        self.reload_quotas();
        Ok(())
    }

    /// Removes the quotas of a table or namespace that was deleted: those of users on it stay, as
    /// in HBase. A failure is logged: nobody waits for it.
    pub(crate) fn remove_quotas_of_deleted(&self, target: &QuotaTarget) {
        if !self.quotas.is_enabled || !self.quotas.removes_on_delete {
            return;
        }
        if let Err(error) = self.remove_quotas(target) {
            tracing::warn!(?target, %error, "the quotas of what was deleted are not removed");
        }
    }

    fn remove_quotas(&self, target: &QuotaTarget) -> Result<()> {
        let mut last_ms = self.quotas.last_write_ms.lock();
        let Some(mut quotas) = self.read_quotas(target)? else { return Ok(()) };
        (quotas.throttle, quotas.space) = (None, None);
        let left = quotas.bypass_globals.is_some().then_some(&quotas);
        self.write_quotas(target, left, &mut last_ms)?;
        drop(last_ms);
        self.reload_quotas();
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
        let before = self.read_cell(quota::EXCEED_ROW, quota::SETTINGS)?;
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
        self.write_cell(quota::EXCEED_ROW, quota::SETTINGS, value, &mut last_ms)?;
        drop(last_ms);
        self.reload_quotas();
        Ok(before)
    }

    fn quota_region(&self, row: &[u8]) -> Result<Arc<Region>> {
        let regions = self.parts.regionserver.regions().primaries_of_table(&quota::table_name()?);
        let is_in = |region: &Arc<Region>| {
            let (start, end) = (region.info().start_key(), region.info().end_key());
            row >= &start[..] && (end.is_empty() || row < &end[..])
        };
        let found = regions.into_iter().find(is_in);
        found.ok_or_else(|| HBaseError::io("Quota manager is uninitialized, please retry later."))
    }

    fn read_cell(&self, row: &[u8], qualifier: &[u8]) -> Result<Option<Bytes>> {
        let cells = self.quota_region(row)?.get(Scan::get(row.to_vec()))?;
        let wanted = cells.iter().find(|c| c.family() == quota::FAMILY && c.qualifier() == qualifier);
        Ok(wanted.map(|cell| Bytes::copy_from_slice(cell.value())))
    }

    fn read_quotas(&self, target: &QuotaTarget) -> Result<Option<pb::Quotas>> {
        let value = self.read_cell(&target.row(), &target.qualifier())?;
        value.map(|value| quota::decode(&value)).transpose()
    }

    /// Writes the quotas of a target. `None` deletes them: as in HBase, the whole row of a user
    /// without further quotas of its own, with those on tables and namespaces.
    fn write_quotas(
        &self,
        target: &QuotaTarget,
        quotas: Option<&pb::Quotas>,
        last_ms: &mut i64,
    ) -> Result<()> {
        let (row, qualifier) = (target.row(), target.qualifier());
        if let Some(quotas) = quotas {
            return self.write_cell(&row, &qualifier, &quota::encode(quotas), last_ms);
        }
        let timestamp = self.next_write_ms(last_ms);
        let is_column = matches!(target, QuotaTarget::UserTable(..) | QuotaTarget::UserNamespace(..));
        let cells = match is_column {
            true => vec![cell(&row, &qualifier, (timestamp, CellType::DeleteColumn), &[])?],
            false => Vec::new(),
        };
        self.write(Mutation { timestamp, ..Mutation::new(MutationKind::Delete, row, cells) })
    }

    fn write_cell(&self, row: &[u8], qualifier: &[u8], value: &[u8], last_ms: &mut i64) -> Result<()> {
        let cell = cell(row, qualifier, (self.next_write_ms(last_ms), CellType::Put), value)?;
        self.write(Mutation::new(MutationKind::Put, row.to_vec(), vec![cell]))
    }

    fn write(&self, mutation: Mutation) -> Result<()> {
        let region = self.quota_region(&mutation.row)?;
        region.mutate_wait(Mutation { durability: Durability::FsyncWal, ..mutation }).map(drop)
    }

    fn next_write_ms(&self, last_ms: &mut i64) -> i64 {
        *last_ms = self.clock().now_ms().max(last_ms.saturating_add(1));
        *last_ms
    }
}

fn cell(
    row: &[u8],
    qualifier: &[u8],
    (timestamp, kind): (i64, CellType),
    value: &[u8],
) -> Result<evenkeel_common::KeyValue> {
    KeyValueBuilder { row, family: quota::FAMILY, qualifier, timestamp, kind, value, tags: &[] }.try_build()
}

/// `DoNotRetryIOException` around an `UnsupportedOperationException`, as Java prints it.
fn unsupported(what: &str) -> HBaseError {
    HBaseError::do_not_retry(format!("java.lang.UnsupportedOperationException: {what}"))
}

/// An unchecked exception of HBase.
fn illegal(what: &str) -> HBaseError {
    HBaseError::new(ErrorKind::IllegalArgument, what)
}

fn target_of(request: &pb::SetQuotaRequest) -> Result<QuotaTarget> {
    let table = request.table_name.as_ref().map(TableName::try_from).transpose();
    let table = table.map_err(|error| illegal(error.message()))?;
    let pb::SetQuotaRequest { user_name, namespace, region_server, .. } = request;
    match (user_name.clone(), table, namespace.clone(), region_server.clone()) {
        (Some(user), Some(table), ..) => Ok(QuotaTarget::UserTable(user, table)),
        (Some(user), None, Some(namespace), _) => Ok(QuotaTarget::UserNamespace(user, namespace)),
        (Some(user), ..) => Ok(QuotaTarget::User(user)),
        (None, Some(table), ..) => Ok(QuotaTarget::Table(table)),
        (None, None, Some(namespace), _) => Ok(QuotaTarget::Namespace(namespace)),
        (None, None, None, Some(server)) => Ok(QuotaTarget::RegionServer(server)),
        (None, None, None, None) => {
            Err(unsupported("a user, a table, a namespace or region server must be specified"))
        }
    }
}

/// Merges a request into the quotas of its target. `None` if no quota is left.
fn merge(present: Option<pb::Quotas>, request: &pb::SetQuotaRequest) -> Result<Option<pb::Quotas>> {
    let kinds = [request.bypass_globals.is_some(), request.space_limit.is_some(), request.throttle.is_some()];
    match kinds.iter().filter(|is_set| **is_set).count() {
        0 => return Err(illegal("Unhandled SetRequestRequest state")),
        1 => {}
        _ => return Err(illegal("SetQuotaRequest has multiple limits")),
    }
    let mut quotas = present.unwrap_or_default();
    if let Some(bypass) = request.bypass_globals {
        quotas.bypass_globals = Some(bypass);
    }
    if let Some(space) = &request.space_limit {
        let space = space.quota.as_ref();
        let space = space.ok_or_else(|| illegal("SpaceLimitRequest is missing the expected SpaceQuota."))?;
        if !space.remove() {
            return Err(unsupported("quotas of space are not supported"));
        }
        quotas.space = None;
    }
    if let Some(change) = &request.throttle {
        quotas.throttle = merge_throttle(quotas.throttle.take(), change)?;
    }
    let is_empty = quotas.throttle.is_none() && quotas.space.is_none() && quotas.bypass_globals.is_none();
    Ok((!is_empty).then_some(quotas))
}

/// Merges a change of a throttle: without a kind it removes all limits, without a limit it removes
/// that of its kind.
fn merge_throttle(
    present: Option<pb::Throttle>,
    change: &pb::ThrottleRequest,
) -> Result<Option<pb::Throttle>> {
    let Some(kind) = change.r#type else { return Ok(None) };
    let kind = pb::ThrottleType::try_from(kind)
        .map_err(|_| unsupported(&format!("the type of throttle {kind} is unknown")))?;
    let mut throttle = present.unwrap_or_default();
    if let Some(limit) = &change.timed_quota {
        check_limit(limit)?;
    }
    *quota::throttle_mut(&mut throttle, kind) = change.timed_quota;
    Ok((!quota::throttles(&throttle).is_empty()).then_some(throttle))
}

fn check_limit(limit: &pb::TimedQuota) -> Result<()> {
    // HBase compares it as a signed number.
    let units = limit.soft_limit();
    if units < 1 || i64::try_from(units).is_err() {
        return Err(unsupported(&format!("The throttle limit must be greater then 0, got {}", units as i64)));
    }
    match quota::unit_ms(limit.time_unit()) {
        Some(_) => Ok(()),
        // HBase stores it, and its RegionServers can read no quota then.
        None => Err(unsupported(&format!("Unsupported {} TimeUnit.", limit.time_unit().as_str_name()))),
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

    fn throttle(kind: Option<pb::ThrottleType>, limit: Option<pb::TimedQuota>) -> pb::SetQuotaRequest {
        let throttle = pb::ThrottleRequest { r#type: kind.map(Into::into), timed_quota: limit };
        pb::SetQuotaRequest { throttle: Some(throttle), ..Default::default() }
    }

    #[test]
    fn each_combination_of_names_is_a_target() {
        let request =
            |user: Option<&str>, table: Option<&str>, namespace: Option<&str>, server: Option<&str>| {
                let table = table.map(|name| name.parse::<TableName>().expect("legal"));
                let request = pb::SetQuotaRequest {
                    user_name: user.map(str::to_owned),
                    table_name: table.as_ref().map(Into::into),
                    namespace: namespace.map(str::to_owned),
                    region_server: server.map(str::to_owned),
                    ..Default::default()
                };
                target_of(&request).map(|target| format!("{target:?}"))
            };
        let is =
            |target: Result<String>, kind: &str| assert!(target.is_ok_and(|t| t.starts_with(kind)), "{kind}");
        is(request(Some("u"), Some("t"), Some("n"), None), "UserTable(");
        is(request(Some("u"), None, Some("n"), None), "UserNamespace(");
        is(request(Some("u"), None, None, Some("r")), "User(");
        is(request(None, Some("t"), Some("n"), None), "Table(");
        is(request(None, None, Some("n"), Some("r")), "Namespace(");
        is(request(None, None, None, Some("all")), "RegionServer(");
        let error = request(None, None, None, None).expect_err("no target");
        assert_eq!(
            error.message(),
            "java.lang.UnsupportedOperationException: \
             a user, a table, a namespace or region server must be specified"
        );
    }

    #[test]
    fn limits_are_added_replaced_and_removed_one_by_one() {
        use pb::ThrottleType::{ReadNumber, WriteSize};
        let set = |present, kind, units| {
            merge(present, &throttle(Some(kind), Some(limit(units)))).expect("valid").expect("set")
        };
        let of = |quotas: &pb::Quotas| {
            let throttle = quotas.throttle.expect("set");
            quota::throttles(&throttle)
                .iter()
                .map(|(kind, limit)| (*kind, limit.soft_limit()))
                .collect::<Vec<_>>()
        };
        let quotas = set(Some(set(None, ReadNumber, 1)), WriteSize, 2);
        assert_eq!(of(&quotas), [(WriteSize, 2), (ReadNumber, 1)]);
        assert_eq!(of(&set(Some(quotas), ReadNumber, 9)), [(WriteSize, 2), (ReadNumber, 9)]);
        let one = merge(Some(quotas), &throttle(Some(ReadNumber), None)).expect("valid");
        assert_eq!(of(one.as_ref().expect("set")), [(WriteSize, 2)]);
        assert_eq!(merge(one, &throttle(Some(WriteSize), None)), Ok(None));
        assert_eq!(merge(Some(quotas), &throttle(None, None)), Ok(None));
        assert_eq!(merge(None, &throttle(Some(ReadNumber), None)), Ok(None));
    }

    #[test]
    fn quotas_of_different_kinds_stay_beside_each_other() {
        let bypass = |on| pb::SetQuotaRequest { bypass_globals: Some(on), ..Default::default() };
        let quotas = merge(None, &throttle(Some(pb::ThrottleType::ReadSize), Some(limit(1)))).expect("valid");
        let quotas = merge(quotas, &bypass(true)).expect("valid").expect("set");
        assert!(quotas.bypass_globals() && quotas.throttle.is_some());
        let left = merge(Some(quotas), &throttle(None, None)).expect("valid").expect("it bypasses");
        assert_eq!(left, pb::Quotas { bypass_globals: Some(true), ..Default::default() });
        // As in HBase, a quota that bypasses nothing is kept.
        assert!(merge(Some(left), &bypass(false)).expect("valid").is_some());
    }

    #[test]
    fn requests_that_hbase_rejects_are_rejected() {
        use pb::ThrottleType::ReadNumber;
        let message = |request| merge(None, &request).expect_err("rejected").message().to_owned();
        let nothing =
            "java.lang.UnsupportedOperationException: The throttle limit must be greater then 0, got 0";
        assert_eq!(message(throttle(Some(ReadNumber), Some(limit(0)))), nothing);
        assert!(message(throttle(Some(ReadNumber), Some(limit(u64::MAX)))).ends_with("got -1"));
        let odd = pb::TimedQuota { time_unit: pb::TimeUnit::Nanoseconds.into(), ..limit(1) };
        assert!(
            message(throttle(Some(ReadNumber), Some(odd))).ends_with("Unsupported NANOSECONDS TimeUnit.")
        );
        assert_eq!(message(pb::SetQuotaRequest::default()), "Unhandled SetRequestRequest state");
        let both = pb::SetQuotaRequest { bypass_globals: Some(true), ..throttle(None, None) };
        assert_eq!(message(both), "SetQuotaRequest has multiple limits");
        let space = |quota| pb::SetQuotaRequest {
            space_limit: Some(pb::SpaceLimitRequest { quota }),
            ..Default::default()
        };
        assert_eq!(message(space(None)), "SpaceLimitRequest is missing the expected SpaceQuota.");
        assert!(
            message(space(Some(pb::SpaceQuota::default()))).ends_with("quotas of space are not supported")
        );
        let remove = pb::SpaceQuota { remove: Some(true), ..Default::default() };
        assert_eq!(merge(None, &space(Some(remove))), Ok(None));
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
