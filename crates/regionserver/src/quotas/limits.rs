//! [`Limits`]: the limiters of all quotas, built from the cells of hbase:quota and never changed.
//!
//! A new version takes over the limiters whose limits are the same, so that reading the table
//! again refills nothing.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::quota::{self, ALL_SERVERS, QuotaTarget};
use evenkeel_common::{CellRef, TableName, quoted};
use evenkeel_protocol::pb;

use super::limiter::Limiter;
use super::rate_limiter::Refill;

/// The maximum number of targets with quotas. Further quotas are ignored: the table is read into
/// memory as a whole.
pub const TARGETS_MAX: usize = 100_000;

/// The maximum bytes of the cells that are read. Further quotas are ignored.
pub const TABLE_BYTES_MAX: usize = 64 << 20;

/// The maximum number of cells of the family that are no quotas; after more, reading ends.
const OTHER_CELLS_MAX: usize = 1_000_000;

/// A cell of the family `q` of hbase:quota.
#[derive(Clone, Debug)]
pub struct QuotaCell {
    /// Its row.
    pub row: Bytes,
    /// Its qualifier.
    pub qualifier: Bytes,
    /// Its value.
    pub value: Bytes,
}

impl QuotaCell {
    /// Returns its bytes.
    pub fn bytes(&self) -> usize {
        self.row.len() + self.qualifier.len() + self.value.len()
    }
}

/// Collects the cells of hbase:quota that hold quotas. Cells of other rows or columns are skipped,
/// and the number of all cells is limited: any client may write them.
#[derive(Debug, Default)]
pub struct QuotaCells {
    cells: Vec<QuotaCell>,
    bytes: usize,
    others: usize,
    /// A row of `others`.
    other_row: Bytes,
    is_cut_off: bool,
}

impl QuotaCells {
    /// Adds a cell of the family `q`. Returns false if it and those after it are ignored, because
    /// there are too many.
    pub fn push(&mut self, cell: CellRef<'_>) -> bool {
        let (row, qualifier) = (cell.row(), cell.qualifier());
        if row != quota::EXCEED_ROW && QuotaTarget::parse(row, qualifier).is_none() {
            self.others += 1;
            self.other_row = Bytes::copy_from_slice(row);
            self.is_cut_off |= self.others > OTHER_CELLS_MAX;
            return !self.is_cut_off;
        }
        let copy = Bytes::copy_from_slice;
        let cell = QuotaCell { row: copy(row), qualifier: copy(qualifier), value: copy(cell.value()) };
        self.is_cut_off |=
            self.cells.len() >= TARGETS_MAX || self.bytes.saturating_add(cell.bytes()) > TABLE_BYTES_MAX;
        if !self.is_cut_off {
            self.bytes += cell.bytes();
            self.cells.push(cell);
        }
        !self.is_cut_off
    }

    /// Returns true if cells were ignored, because there are too many.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// Returns the cells. Logs what was skipped.
    pub fn finish(self) -> Vec<QuotaCell> {
        if self.others > 0 {
            let row = quoted(&self.other_row);
            tracing::warn!(cells = self.others, %row, "cells of hbase:quota that are no quotas are ignored");
        }
        if self.is_cut_off {
            tracing::error!(read = self.cells.len(), "hbase:quota has too many cells: the rest is ignored");
        }
        self.cells
    }
}

/// The quotas that cells hold.
#[derive(Debug, Default)]
pub struct ParsedQuotas {
    quotas: Vec<(QuotaTarget, pb::Quotas)>,
    may_exceed: bool,
    /// The number of cells that could not be parsed.
    failed: usize,
}

impl ParsedQuotas {
    /// Parses the cells of a table. Cells that cannot be parsed are skipped; the first is logged.
    pub fn of(cells: Vec<QuotaCell>) -> Self {
        let mut parsed = Self::default();
        let mut failed = Vec::new();
        for QuotaCell { row, qualifier, value } in cells {
            if row == quota::EXCEED_ROW {
                parsed.may_exceed |= qualifier == quota::SETTINGS && value.first().is_some_and(|on| *on != 0);
                continue;
            }
            let Some(target) = QuotaTarget::parse(&row, &qualifier) else { continue };
            match quota::decode(&value) {
                Ok(quotas) => parsed.quotas.push((target, quotas)),
                Err(error) => failed.push((row, error)),
            }
        }
        if let Some((row, error)) = failed.first() {
            let row = quoted(row);
            tracing::error!(cells = failed.len(), %row, %error, "quotas that cannot be decoded are ignored");
        }
        parsed.failed = failed.len();
        parsed
    }

    /// Returns the number of cells that could not be parsed.
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// Returns the quotas of all targets.
    pub fn into_quotas(self) -> Vec<(QuotaTarget, pb::Quotas)> {
        self.quotas
    }

    /// Returns true if a table has a limit that all servers share.
    pub fn shares_tables(&self) -> bool {
        let is_shared = |quotas: &pb::Quotas| {
            let throttle = quotas.throttle.as_ref().map(quota::throttles).unwrap_or_default();
            throttle.iter().any(|(_, limit)| limit.scope() == pb::QuotaScope::Cluster)
        };
        let is_of_table =
            |target: &QuotaTarget| matches!(target, QuotaTarget::Table(_) | QuotaTarget::UserTable(..));
        self.quotas.iter().any(|(target, quotas)| is_of_table(target) && is_shared(quotas))
    }
}

/// The limiters of a user.
#[derive(Debug, Default)]
struct UserLimits {
    all: Option<Arc<Limiter>>,
    tables: HashMap<TableName, Arc<Limiter>>,
    namespaces: HashMap<String, Arc<Limiter>>,
    bypasses_globals: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Limits {
    users: HashMap<String, UserLimits>,
    tables: HashMap<TableName, Arc<Limiter>>,
    namespaces: HashMap<String, Arc<Limiter>>,
    servers: Option<Arc<Limiter>>,
    may_exceed: bool,
}

impl Limits {
    /// Builds the limiters. `share` returns the part of this server in the limits of all servers.
    pub fn new(
        parsed: &ParsedQuotas,
        share: impl Fn(&QuotaTarget) -> f64,
        refill: Refill,
        before: &Self,
    ) -> Self {
        let mut limits = Self { may_exceed: parsed.may_exceed, ..Self::default() };
        for (target, quotas) in &parsed.quotas {
            let old = before.find(target);
            let throttle = quotas.throttle.as_ref();
            let new = throttle.and_then(|t| Limiter::new(t, share(target), refill, old.map(|old| &**old)));
            let limiter = match (new, old) {
                (Some(new), Some(old)) if new.is_alike(old) => Some(Arc::clone(old)),
                (new, _) => new.map(Arc::new),
            };
            limits.insert(target, quotas.bypass_globals(), limiter);
        }
        limits
    }

    fn find(&self, target: &QuotaTarget) -> Option<&Arc<Limiter>> {
        match target {
            QuotaTarget::User(user) => self.users.get(user)?.all.as_ref(),
            QuotaTarget::UserTable(user, table) => self.users.get(user)?.tables.get(table),
            QuotaTarget::UserNamespace(user, namespace) => self.users.get(user)?.namespaces.get(namespace),
            QuotaTarget::Table(table) => self.tables.get(table),
            QuotaTarget::Namespace(namespace) => self.namespaces.get(namespace),
            QuotaTarget::RegionServer(server) if server == ALL_SERVERS => self.servers.as_ref(),
            QuotaTarget::RegionServer(_) => None,
        }
    }

    fn insert(&mut self, target: &QuotaTarget, bypasses: bool, limiter: Option<Arc<Limiter>>) {
        match (target, limiter) {
            (QuotaTarget::User(user), limiter) => {
                let user = self.user_mut(user);
                (user.all, user.bypasses_globals) = (limiter, bypasses);
            }
            (QuotaTarget::UserTable(user, table), limiter) => {
                self.user_mut(user).tables.extend(limiter.map(|limiter| (table.clone(), limiter)));
            }
            (QuotaTarget::UserNamespace(user, namespace), limiter) => {
                let limiter = limiter.map(|limiter| (namespace.clone(), limiter));
                self.user_mut(user).namespaces.extend(limiter);
            }
            (QuotaTarget::Table(table), Some(limiter)) => {
                self.tables.insert(table.clone(), limiter);
            }
            (QuotaTarget::Namespace(namespace), Some(limiter)) => {
                self.namespaces.insert(namespace.clone(), limiter);
            }
            (QuotaTarget::RegionServer(server), limiter) if server == ALL_SERVERS => self.servers = limiter,
            _ => {}
        }
    }

    fn user_mut(&mut self, user: &str) -> &mut UserLimits {
        self.users.entry(user.to_owned()).or_default()
    }

    /// Returns true if no request is limited.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
            && self.tables.is_empty()
            && self.namespaces.is_empty()
            && self.servers.is_none()
    }

    /// Returns true if a user has quotas, also if none limits anything: the limits of users
    /// without quotas do not apply then.
    pub fn has_user(&self, user: &str) -> bool {
        self.users.contains_key(user)
    }

    /// Returns the limiter of a user's requests to a table: that of the user on the table, on the
    /// namespace or of the user alone, whichever is found first.
    pub fn of_user(&self, user: &str, table: &TableName) -> Option<&Arc<Limiter>> {
        let limits = self.users.get(user)?;
        let on_table = || limits.tables.get(table);
        on_table().or_else(|| limits.namespaces.get(table.namespace())).or(limits.all.as_ref())
    }

    /// Returns true if no limit but those of the user applies to a user's requests.
    pub fn bypasses_globals(&self, user: &str) -> bool {
        self.users.get(user).is_some_and(|limits| limits.bypasses_globals)
    }

    /// Returns the limiters of a table and of its namespace.
    pub fn of_table(&self, table: &TableName) -> impl Iterator<Item = &Arc<Limiter>> {
        self.tables.get(table).into_iter().chain(self.namespaces.get(table.namespace()))
    }

    /// Returns the limiter of this server.
    pub fn of_server(&self) -> Option<&Arc<Limiter>> {
        self.servers.as_ref()
    }

    /// Returns true if requests may exceed other limits while that of the server has free units.
    pub fn may_exceed(&self) -> bool {
        self.may_exceed
    }
}

#[cfg(test)]
mod tests {
    use super::super::limiter::Cost;
    use super::*;

    fn table(name: &str) -> TableName {
        name.parse().expect("legal")
    }

    fn limit(units: u64, scope: pb::QuotaScope) -> pb::Quotas {
        let limit = pb::TimedQuota {
            time_unit: pb::TimeUnit::Seconds.into(),
            soft_limit: Some(units),
            scope: Some(scope.into()),
            share: None,
        };
        let throttle = pb::Throttle { req_num: Some(limit), ..Default::default() };
        pb::Quotas { throttle: Some(throttle), ..Default::default() }
    }

    fn cell(target: &QuotaTarget, quotas: &pb::Quotas) -> QuotaCell {
        QuotaCell { row: target.row(), qualifier: target.qualifier(), value: quota::encode(quotas) }
    }

    fn limits(cells: Vec<QuotaCell>, before: &Limits) -> Limits {
        Limits::new(&ParsedQuotas::of(cells), |_| 1.0, Refill::Average, before)
    }

    const ONE: Cost = Cost {
        reads: 1,
        read_bytes: 1,
        writes: 0,
        write_bytes: 0,
        write_units: 0,
        read_units: 0,
        is_atomic: false,
        handler_ms: 0,
    };

    #[test]
    fn the_closest_limit_of_a_user_applies() {
        let user = || "bob".to_owned();
        let targets = [
            QuotaTarget::User(user()),
            QuotaTarget::UserTable(user(), table("ns:t")),
            QuotaTarget::UserNamespace(user(), "ns".to_owned()),
        ];
        let cells = targets.iter().map(|target| cell(target, &limit(1, pb::QuotaScope::Machine)));
        let limits = limits(cells.collect(), &Limits::default());
        let [all, of_table, of_namespace] = targets.map(|t| limits.find(&t).cloned().expect("found"));
        for (name, wanted) in [("ns:t", of_table), ("ns:u", of_namespace), ("t", all)] {
            assert!(limits.of_user("bob", &table(name)).is_some_and(|found| Arc::ptr_eq(found, &wanted)));
        }
        assert!(limits.of_user("eve", &table("t")).is_none() && !limits.has_user("eve"));
        assert!(limits.of_table(&table("ns:t")).next().is_none() && !limits.is_empty());
    }

    #[test]
    fn reading_the_table_again_refills_nothing() {
        let target = QuotaTarget::Table(table("t"));
        let of = |units, before: &Limits| {
            limits(vec![cell(&target, &limit(units, pb::QuotaScope::Machine))], before)
        };
        let first = of(1, &Limits::default());
        let limiter = Arc::clone(first.of_table(&table("t")).next().expect("found"));
        assert_eq!(limiter.check(&ONE, 0), Ok(()));
        limiter.grab(&ONE);
        let second = of(1, &first);
        assert!(Arc::ptr_eq(second.of_table(&table("t")).next().expect("found"), &limiter));
        let third = of(2, &second);
        let larger = third.of_table(&table("t")).next().expect("found");
        assert_eq!(larger.check(&ONE, 0), Ok(()));
        larger.grab(&ONE);
        assert!(larger.check(&ONE, 0).is_err());
    }

    #[test]
    fn damaged_rows_do_not_disturb_the_others() {
        let target = QuotaTarget::Namespace("ns".to_owned());
        let odd = |row: &'static [u8], value: &'static [u8]| QuotaCell {
            row: Bytes::from_static(row),
            qualifier: Bytes::from_static(b"s"),
            value: Bytes::from_static(value),
        };
        let mut cells = vec![odd(b"t.t", b"nonsense"), odd(b"?", b""), odd(b"exceedThrottleQuota", b"\xff")];
        cells.push(cell(&target, &limit(1, pb::QuotaScope::Machine)));
        let limits = limits(cells, &Limits::default());
        assert!(limits.may_exceed());
        assert_eq!(limits.of_table(&table("ns:any")).count(), 1);
        assert!(limits.of_table(&table("t")).next().is_none());
        assert!(!ParsedQuotas::of(vec![odd(b"exceedThrottleQuota", b"\0")]).may_exceed);
    }

    #[test]
    fn tables_with_limits_of_all_servers_are_known() {
        let (cluster, machine) = (pb::QuotaScope::Cluster, pb::QuotaScope::Machine);
        let all = [
            (QuotaTarget::Table(table("a")), cluster, true),
            (QuotaTarget::Table(table("b")), machine, false),
            (QuotaTarget::UserTable("bob".to_owned(), table("c")), cluster, true),
            (QuotaTarget::Namespace("ns".to_owned()), cluster, false),
        ];
        for (target, scope, is_shared) in all {
            let parsed = ParsedQuotas::of(vec![cell(&target, &limit(1, scope))]);
            assert_eq!(parsed.shares_tables(), is_shared, "{target:?}");
        }
    }

    #[test]
    fn a_user_may_bypass_the_limits_of_others() {
        let target = QuotaTarget::User("bob".to_owned());
        let quotas = pb::Quotas { bypass_globals: Some(true), ..Default::default() };
        let limits = limits(vec![cell(&target, &quotas)], &Limits::default());
        assert!(limits.bypasses_globals("bob") && !limits.bypasses_globals("eve"));
        assert!(limits.has_user("bob") && limits.of_user("bob", &table("t")).is_none());
    }
}
