//! Quotas: limits on requests by user, table, namespace and RegionServer, and on the space of
//! tables and namespaces.

use evenkeel_common::quota::space::{SpaceUse, UsageCell, decode_size};
use evenkeel_common::quota::{self, QuotaTarget};
use evenkeel_common::{ServerName, TableName};
use evenkeel_protocol::pb;

use super::Admin;
use crate::error::{Error, Result};
use crate::filter::{Comparator, Filter};
use crate::operation::{CompareOp, Scan};

/// A quota and what it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaSettings {
    /// What it is for.
    pub target: QuotaTarget,
    /// The quota.
    pub quota: Quota,
}

/// A quota.
#[derive(Clone, Debug, PartialEq)]
pub enum Quota {
    /// A limit on requests of a kind.
    Throttle(pb::ThrottleType, pb::TimedQuota),
    /// Whether a user is exempt from the limits of tables, namespaces and RegionServers.
    GlobalBypass(bool),
    /// A limit on the space of files.
    Space(pb::SpaceQuota),
}

/// The use of space of tables and namespaces with quotas of space.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpaceQuotaStates {
    /// The use of tables with quotas of their own.
    pub tables: Vec<(TableName, SpaceUse)>,
    /// The use of namespaces.
    pub namespaces: Vec<(String, SpaceUse)>,
}

/// Selects quotas by regular expressions, which must match the whole names. Without any, all quotas
/// are selected.
#[derive(Clone, Debug, Default)]
pub struct QuotaFilter {
    /// Quotas of users.
    pub user: Option<String>,
    /// Quotas of tables; with `user`, those of users on tables.
    pub table: Option<String>,
    /// Quotas of namespaces; with `user`, those of users on namespaces.
    pub namespace: Option<String>,
}

impl QuotaFilter {
    /// Returns the filter of a scan of hbase:quota, as HBase's client builds it.
    fn to_filter(&self) -> Option<Filter> {
        let matching = |pattern: String| Comparator::Regex { pattern, flags: 0, charset: "UTF-8".to_owned() };
        let row = |prefix: &str, regex: &str| {
            Filter::row(CompareOp::Equal, matching(format!("^\\Q{prefix}\\E{regex}$")))
        };
        let qualifier = |regex: String| Filter::qualifier(CompareOp::Equal, matching(regex));
        let set = |regex: &Option<String>| regex.clone().filter(|regex| !regex.is_empty());
        let (user, table, namespace) = (set(&self.user), set(&self.table), set(&self.namespace));
        let Some(user) = user else {
            let on_namespace = || namespace.as_ref().map(|namespace| row("n.", namespace));
            return table.as_ref().map(|table| row("t.", table)).or_else(on_namespace);
        };
        let on_namespace = namespace.map(|name| format!("^\\Qs.\\E{name}\\Q:\\E$"));
        let on_table = table.map(|name| format!("^\\Qs.\\E{name}(?<!\\Q:\\E)$"));
        let both = |regex| Filter::all_of([row("u.", &user), qualifier(regex)]);
        let filters: Vec<_> = on_namespace.into_iter().chain(on_table).map(both).collect();
        match filters.is_empty() {
            true => Some(row("u.", &user)),
            false => Some(Filter::one_of(filters)),
        }
    }
}

impl Admin {
    /// Sets a limit; `None` removes the limit of this kind, or without a kind all limits of the
    /// target.
    ///
    /// # Errors
    /// As [`Admin::create_table`]; `DoNotRetryIOException` if quotas are not enabled.
    pub async fn set_throttle(
        &self,
        target: &QuotaTarget,
        kind: Option<pb::ThrottleType>,
        limit: Option<pb::TimedQuota>,
    ) -> Result<()> {
        let throttle = pb::ThrottleRequest { r#type: kind.map(Into::into), timed_quota: limit };
        let request = pb::SetQuotaRequest { throttle: Some(throttle), ..request_for(target) };
        self.call("SetQuota", &request).await.map(|_: pb::SetQuotaResponse| ())
    }

    /// Exempts a user's requests from the limits of tables, namespaces and RegionServers, or not.
    ///
    /// # Errors
    /// As [`Admin::set_throttle`].
    pub async fn set_global_bypass(&self, user: &str, bypass: bool) -> Result<()> {
        let target = QuotaTarget::User(user.to_owned());
        let request = pb::SetQuotaRequest { bypass_globals: Some(bypass), ..request_for(&target) };
        self.call("SetQuota", &request).await.map(|_: pb::SetQuotaResponse| ())
    }

    /// Sets the limit on the space of a table or namespace; `None` removes it.
    ///
    /// # Errors
    /// As [`Admin::set_throttle`].
    pub async fn set_space_quota(&self, target: &QuotaTarget, limit: Option<pb::SpaceQuota>) -> Result<()> {
        let remove = pb::SpaceQuota { remove: Some(true), ..Default::default() };
        let space_limit = pb::SpaceLimitRequest { quota: Some(limit.unwrap_or(remove)) };
        let request = pb::SetQuotaRequest { space_limit: Some(space_limit), ..request_for(target) };
        self.call("SetQuota", &request).await.map(|_: pb::SetQuotaResponse| ())
    }

    /// Returns quotas, in the order of hbase:quota.
    ///
    /// # Errors
    /// As [`Table::scan`](crate::Table::scan); [`Error::TableNotFound`] if quotas were never
    /// enabled.
    pub async fn quotas(&self, filter: &QuotaFilter) -> Result<Vec<QuotaSettings>> {
        let scan = Scan::new().family(quota::FAMILY);
        let scan = match filter.to_filter() {
            Some(filter) => scan.filter(filter),
            None => scan,
        };
        let mut rows = self.connection.table(quota_table()?).scan(scan);
        let mut all = Vec::new();
        while let Some(row) = rows.next().await? {
            for cell in row.cells() {
                let cell = cell.as_cell();
                if let Some(target) = QuotaTarget::parse(cell.row(), cell.qualifier()) {
                    let quotas = quota::decode(cell.value()).map_err(Error::from)?;
                    all.extend(settings(&target, quotas));
                }
            }
        }
        Ok(all)
    }

    /// Returns the sizes of tables by which the master decides about quotas of space, in bytes:
    /// those that servers have reported.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn space_quota_table_sizes(&self) -> Result<Vec<(TableName, u64)>> {
        let request = pb::GetSpaceQuotaRegionSizesRequest {};
        let response: pb::GetSpaceQuotaRegionSizesResponse =
            self.call("GetSpaceQuotaRegionSizes", &request).await?;
        let size = |size: pb::get_space_quota_region_sizes_response::RegionSizes| {
            Some((size.table_name.as_ref().map(TableName::try_from)?.map_err(Error::from), size.size()))
        };
        response.sizes.into_iter().filter_map(size).map(|(table, size)| Ok((table?, size))).collect()
    }

    /// Returns the use of space of tables with quotas of space, as a RegionServer has it.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn space_uses_of_server(&self, server: &ServerName) -> Result<Vec<(TableName, SpaceUse)>> {
        let request = pb::GetSpaceQuotaSnapshotsRequest {};
        let response: pb::GetSpaceQuotaSnapshotsResponse =
            self.call_server(server, "GetSpaceQuotaSnapshots", &request).await?;
        response.snapshots.into_iter().filter_map(|of| table_use(of.table_name, of.snapshot)).collect()
    }

    /// Returns the use of space of tables and of namespaces with quotas of space, as the master
    /// has it.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn space_quota_states(&self) -> Result<SpaceQuotaStates> {
        let response: pb::GetQuotaStatesResponse =
            self.call("GetQuotaStates", &pb::GetQuotaStatesRequest {}).await?;
        let tables = response.table_snapshots.into_iter();
        let namespaces = response.ns_snapshots.into_iter();
        Ok(SpaceQuotaStates {
            tables: tables.filter_map(|of| table_use(of.table_name, of.snapshot)).collect::<Result<_>>()?,
            namespaces: namespaces
                .filter_map(|of| Some((of.namespace?, SpaceUse::from_message(&of.snapshot?))))
                .collect(),
        })
    }

    /// Returns the use of space of tables with quotas of space, from hbase:quota.
    ///
    /// # Errors
    /// As [`Admin::quotas`].
    pub async fn stored_space_uses(&self) -> Result<Vec<(TableName, SpaceUse)>> {
        let found = self.usage_cells().await?.into_iter().filter_map(|(cell, value)| match cell {
            UsageCell::Table(table) => Some(SpaceUse::decode(&value).map(|found| (table, found))),
            _ => None,
        });
        found.map(|found| found.map_err(Error::from)).collect()
    }

    /// Returns the names and sizes of the snapshots that count against quotas of space, with their
    /// tables.
    ///
    /// # Errors
    /// As [`Admin::quotas`].
    pub async fn snapshot_sizes(&self) -> Result<Vec<(TableName, String, u64)>> {
        let found = self.usage_cells().await?.into_iter().filter_map(|(cell, value)| match cell {
            UsageCell::Snapshot(table, name) => Some(decode_size(&value).map(|size| (table, name, size))),
            _ => None,
        });
        found.map(|found| found.map_err(Error::from)).collect()
    }

    /// Returns the cells of the use of space of tables.
    async fn usage_cells(&self) -> Result<Vec<(UsageCell, Vec<u8>)>> {
        let scan = Scan::new().family(quota::USAGE_FAMILY).prefix("t.");
        let mut rows = self.connection.table(quota_table()?).scan(scan);
        let mut cells = Vec::new();
        while let Some(row) = rows.next().await? {
            let found = row.cells().iter().map(|cell| cell.as_cell()).filter_map(|cell| {
                Some((UsageCell::parse(cell.row(), cell.qualifier())?, cell.value().to_vec()))
            });
            cells.extend(found);
        }
        Ok(cells)
    }

    /// Switches all throttles on or off; returns the previous state: false if quotas are not
    /// enabled.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn switch_rpc_throttle(&self, on: bool) -> Result<bool> {
        let request = pb::SwitchRpcThrottleRequest { rpc_throttle_enabled: on };
        let response: pb::SwitchRpcThrottleResponse = self.call("SwitchRpcThrottle", &request).await?;
        Ok(response.previous_rpc_throttle_enabled)
    }

    /// Returns true if throttles are switched on.
    ///
    /// # Errors
    /// As [`Admin::create_table`].
    pub async fn is_rpc_throttle_enabled(&self) -> Result<bool> {
        let request = pb::IsRpcThrottleEnabledRequest {};
        let response: pb::IsRpcThrottleEnabledResponse = self.call("IsRpcThrottleEnabled", &request).await?;
        Ok(response.rpc_throttle_enabled)
    }

    /// Lets requests exceed other limits while that of the RegionServer has free units, or not;
    /// returns the previous state.
    ///
    /// # Errors
    /// As [`Admin::create_table`]; `DoNotRetryIOException` if the RegionServers have no limits of
    /// reads and writes by the second.
    pub async fn switch_exceed_throttle_quota(&self, on: bool) -> Result<bool> {
        let request = pb::SwitchExceedThrottleQuotaRequest { exceed_throttle_quota_enabled: on };
        let response: pb::SwitchExceedThrottleQuotaResponse =
            self.call("SwitchExceedThrottleQuota", &request).await?;
        Ok(response.previous_exceed_throttle_quota_enabled)
    }
}

/// Reads the use of space of a table from a message that has both.
fn table_use(
    table: Option<pb::TableName>,
    found: Option<pb::SpaceQuotaSnapshot>,
) -> Option<Result<(TableName, SpaceUse)>> {
    let (table, found) = (TableName::try_from(&table?), SpaceUse::from_message(&found?));
    Some(table.map(|table| (table, found)).map_err(Error::from))
}

fn quota_table() -> Result<TableName> {
    Ok(quota::table_name()?)
}

fn request_for(target: &QuotaTarget) -> pb::SetQuotaRequest {
    let mut request = pb::SetQuotaRequest::default();
    match target.clone() {
        QuotaTarget::User(user) => request.user_name = Some(user),
        QuotaTarget::UserTable(user, table) => {
            (request.user_name, request.table_name) = (Some(user), Some((&table).into()));
        }
        QuotaTarget::UserNamespace(user, namespace) => {
            (request.user_name, request.namespace) = (Some(user), Some(namespace));
        }
        QuotaTarget::Table(table) => request.table_name = Some((&table).into()),
        QuotaTarget::Namespace(namespace) => request.namespace = Some(namespace),
        QuotaTarget::RegionServer(server) => request.region_server = Some(server),
    }
    request
}

/// Returns the quotas of a cell, in the order in which HBase lists them.
fn settings(target: &QuotaTarget, quotas: pb::Quotas) -> impl Iterator<Item = QuotaSettings> {
    let throttle = quotas.throttle.unwrap_or_default();
    let limits = quota::throttles(&throttle).into_iter();
    let throttles: Vec<_> = limits.map(|(kind, limit)| Quota::Throttle(kind, *limit)).collect();
    let bypass = quotas.bypass_globals.filter(|bypass| *bypass).map(Quota::GlobalBypass);
    let all = throttles.into_iter().chain(bypass).chain(quotas.space.map(Quota::Space));
    let target = target.clone();
    all.map(move |quota| QuotaSettings { target: target.clone(), quota })
}
