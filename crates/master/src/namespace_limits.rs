//! The limits of namespaces on the numbers of their tables and regions, `hbase.namespace.quota.*`
//! (HBase's `NamespaceAuditor`). They apply with `hbase.quota.enabled`.
//!
//! HBase keeps the numbers in memory, and they drift when a change fails. Here hbase:meta is
//! counted when a change begins, if its namespace has a limit. A change in progress counts with the
//! number of regions that its table will have ([`PlannedRegions`]), so that concurrent changes
//! cannot exceed a limit together. hbase:meta is read without a lock, and again if a change has
//! ended in the meantime.

use std::collections::HashMap;

use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, TableName};
use evenkeel_protocol::pb;
use parking_lot::Mutex;

use crate::Master;

/// The limit on tables (`TableNamespaceManager.KEY_MAX_TABLES`).
const MAX_TABLES: &str = "hbase.namespace.quota.maxtables";
/// The limit on regions (`TableNamespaceManager.KEY_MAX_REGIONS`).
const MAX_REGIONS: &str = "hbase.namespace.quota.maxregions";

/// The limits of a namespace; without a setting, the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NamespaceLimits {
    tables: i64,
    regions: i64,
}

impl NamespaceLimits {
    const NONE: Self = Self { tables: i64::MAX, regions: i64::MAX };

    /// Parses the properties of a namespace.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if one is no number.
    fn of(namespace: &pb::NamespaceDescriptor) -> Result<Self> {
        let limit = |key: &str, what: &str| {
            let value = namespace.configuration.iter().find(|pair| pair.name == key);
            match value.map(|pair| pair.value.as_str()).filter(|value| !value.is_empty()) {
                None => Ok(i64::MAX),
                Some(value) => value.parse().map_err(|_| {
                    HBaseError::do_not_retry(format!("NumberFormatException while getting max {what}."))
                }),
            }
        };
        Ok(Self { regions: limit(MAX_REGIONS, "regions")?, tables: limit(MAX_TABLES, "tables")? })
    }
}

/// Checks the limits of a namespace that is created or modified, whether quotas are enabled or not.
///
/// # Errors
/// `ConstraintException` for a limit below 1; `DoNotRetryIOException` for one that is no number.
pub(crate) fn check_limits(namespace: &pb::NamespaceDescriptor) -> Result<()> {
    let limits = NamespaceLimits::of(namespace)?;
    let name = String::from_utf8_lossy(&namespace.name);
    for (limit, what) in [(limits.regions, "region"), (limits.tables, "tables")] {
        if limit <= 0 {
            let message = format!("The max {what} quota for {name} is less than or equal to zero.");
            return Err(HBaseError::new(ErrorKind::Constraint, message));
        }
    }
    Ok(())
}

/// The changes in progress.
#[derive(Debug, Default)]
pub(crate) struct NamespaceUsage(Mutex<Planned>);

#[derive(Debug, Default)]
struct Planned {
    /// The numbers of regions that tables will have. A table has at most one: its lock is held.
    regions: HashMap<TableName, usize>,
    /// The number of changes that have ended.
    ended: u64,
}

/// Counts a table's future regions until it is dropped: hbase:meta counts them then, or the change
/// has failed.
#[derive(Debug)]
pub(crate) struct PlannedRegions<'a> {
    usage: &'a NamespaceUsage,
    table: TableName,
}

impl Drop for PlannedRegions<'_> {
    fn drop(&mut self) {
        let mut planned = self.usage.0.lock();
        planned.regions.remove(&self.table);
        planned.ended += 1;
    }
}

/// The tables of a namespace with their numbers of regions.
#[derive(Debug, Default)]
struct Counts(HashMap<TableName, usize>);

impl Counts {
    /// Counts changes in progress.
    fn add_planned(&mut self, namespace: &str, planned: &HashMap<TableName, usize>) {
        for (table, regions) in planned.iter().filter(|(table, _)| table.namespace() == namespace) {
            let count = self.0.entry(table.clone()).or_default();
            *count = (*count).max(*regions);
        }
    }

    fn tables(&self) -> i64 {
        signed(self.0.len())
    }

    fn regions(&self) -> i64 {
        signed(self.0.values().sum())
    }

    fn of_table(&self, table: &TableName) -> i64 {
        self.0.get(table).copied().map_or(0, signed)
    }
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn exceeded(message: String) -> HBaseError {
    HBaseError::new(ErrorKind::QuotaExceeded, message)
}

fn check_new_table(table: &TableName, new: i64, counts: &Counts, limits: NamespaceLimits) -> Result<()> {
    if counts.tables() >= limits.tables {
        return Err(exceeded(format!(
            "The table {table} cannot be created as it would exceed maximum number of tables allowed  in the \
             namespace.  The total number of tables permitted is {}",
            limits.tables
        )));
    }
    if counts.regions().saturating_add(new) > limits.regions {
        return Err(exceeded(format!(
            "The table {table} is not allowed to have {new} regions. The total number of regions permitted is only \
             {}, while current region count is {}. This may be transient, please retry later if there are any \
             ongoing split operations in the namespace.",
            limits.regions,
            counts.regions()
        )));
    }
    Ok(())
}

fn check_restored(table: &TableName, restored: i64, counts: &Counts, limits: NamespaceLimits) -> Result<()> {
    let (present, others) = (counts.of_table(table), counts.regions() - counts.of_table(table));
    if restored == 0 || present == restored || others.saturating_add(restored) <= limits.regions {
        return Ok(());
    }
    Err(exceeded(format!(
        "The table {table} region count cannot be updated as it would exceed maximum number of regions allowed in the \
         namespace.  The total number of regions permitted is {}",
        limits.regions
    )))
}

fn check_split(region: &RegionInfo, counts: &Counts, limits: NamespaceLimits) -> Result<()> {
    if counts.regions() < limits.regions {
        return Ok(());
    }
    // The message ends with a space, as HBase's does.
    let encoded = region.encoded_name();
    Err(exceeded(format!("Region split not possible for :{encoded} as quota limits are exceeded ")))
}

impl Master {
    /// Checks the limits before a table is created. They count it as long as the result lives.
    ///
    /// # Errors
    /// `QuotaExceededException`; errors of hbase:meta and hbase:namespace.
    pub(crate) fn plan_new_table(
        &self,
        table: &TableName,
        regions: usize,
    ) -> Result<Option<PlannedRegions<'_>>> {
        self.plan(
            table,
            |_| regions,
            |counts, limits| check_new_table(table, signed(regions), counts, limits),
        )
    }

    /// As [`Master::plan_new_table`], for a table that a snapshot with `regions` replaces.
    pub(crate) fn plan_restored_table(
        &self,
        table: &TableName,
        regions: usize,
    ) -> Result<Option<PlannedRegions<'_>>> {
        self.plan(table, |_| regions, |counts, limits| check_restored(table, signed(regions), counts, limits))
    }

    /// As [`Master::plan_new_table`], for a region that is split in two.
    pub(crate) fn plan_split(&self, region: &RegionInfo) -> Result<Option<PlannedRegions<'_>>> {
        self.plan(region.table(), |present| present + 1, |counts, limits| check_split(region, counts, limits))
    }

    fn plan(
        &self,
        table: &TableName,
        planned: impl Fn(usize) -> usize,
        check: impl Fn(&Counts, NamespaceLimits) -> Result<()>,
    ) -> Result<Option<PlannedRegions<'_>>> {
        if !self.has_quotas() || table.is_system() {
            return Ok(None);
        }
        let namespace = self.namespaces().get(table.namespace())?;
        let limits = NamespaceLimits::of(&namespace)?;
        let usage = &self.namespace_usage;
        if limits == NamespaceLimits::NONE {
            let present = self.live_regions(table)?.len();
            usage.0.lock().regions.insert(table.clone(), planned(present));
            return Ok(Some(PlannedRegions { usage, table: table.clone() }));
        }
        loop {
            let ended = usage.0.lock().ended;
            let mut counts = self.count_namespace(table.namespace())?;
            let mut all = usage.0.lock();
            // What has ended may be in neither.
            if all.ended != ended {
                continue;
            }
            let present = counts.0.get(table).copied().unwrap_or(0);
            counts.add_planned(table.namespace(), &all.regions);
            check(&counts, limits)?;
            all.regions.insert(table.clone(), planned(present));
            return Ok(Some(PlannedRegions { usage, table: table.clone() }));
        }
    }

    /// Counts the regions of a namespace's tables in hbase:meta, which is read once.
    fn count_namespace(&self, namespace: &str) -> Result<Counts> {
        let tables = self.tables().into_iter().map(|table| table.descriptor.name().clone());
        let of_namespace = tables.filter(|table| table.namespace() == namespace);
        let mut counts = Counts(of_namespace.map(|table| (table, 0)).collect());
        for region in self.parts.meta.regions(None)?.into_iter().map(|region| region.info) {
            if !region.is_split_parent()
                && let Some(count) = counts.0.get_mut(region.table())
            {
                *count += 1;
            }
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn namespace(pairs: &[(&str, &str)]) -> pb::NamespaceDescriptor {
        let pair = |(name, value): &(&str, &str)| pb::NameStringPair {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        };
        pb::NamespaceDescriptor {
            name: Bytes::from_static(b"ns"),
            configuration: pairs.iter().map(pair).collect(),
        }
    }

    #[test]
    fn limits_are_positive_numbers() {
        let check = |pairs: &[(&str, &str)]| check_limits(&namespace(pairs));
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[(MAX_TABLES, ""), (MAX_REGIONS, "1"), ("other", "x")]), Ok(()));
        let error = |pairs: &[(&str, &str)]| {
            let error = check(pairs).expect_err("refused");
            (error.kind(), error.message().to_owned())
        };
        let regions = "The max region quota for ns is less than or equal to zero.".to_owned();
        let tables = "The max tables quota for ns is less than or equal to zero.".to_owned();
        assert_eq!(error(&[(MAX_TABLES, "0"), (MAX_REGIONS, "-1")]), (ErrorKind::Constraint, regions));
        assert_eq!(error(&[(MAX_TABLES, "0"), (MAX_REGIONS, "1")]), (ErrorKind::Constraint, tables));
        let number = |what: &str| format!("NumberFormatException while getting max {what}.");
        assert_eq!(error(&[(MAX_TABLES, "five")]), (ErrorKind::DoNotRetry, number("tables")));
        assert_eq!(
            error(&[(MAX_TABLES, "1"), (MAX_REGIONS, "99999999999999999999")]),
            (ErrorKind::DoNotRetry, number("regions"))
        );
    }

    #[test]
    fn messages_are_hbases() {
        let name = |name: &str| name.parse::<TableName>().expect("legal");
        let counts = Counts(HashMap::from([(name("ns:a"), 2), (name("ns:b"), 1)]));
        let limits = |tables, regions| NamespaceLimits { tables, regions };
        let text = |outcome: Result<()>| {
            let error = outcome.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
            error.message().to_owned()
        };
        let c = name("ns:c");
        assert_eq!(check_new_table(&c, 1, &counts, limits(3, 4)), Ok(()));
        assert_eq!(
            text(check_new_table(&c, 1, &counts, limits(2, 4))),
            "The table ns:c cannot be created as it would exceed maximum number of tables allowed  in the namespace.  \
             The total number of tables permitted is 2"
        );
        assert_eq!(
            text(check_new_table(&c, 2, &counts, limits(3, 4))),
            "The table ns:c is not allowed to have 2 regions. The total number of regions permitted is only 4, while \
             current region count is 3. This may be transient, please retry later if there are any ongoing split \
             operations in the namespace."
        );
        let region = RegionInfo::new(c, Bytes::new(), Bytes::new(), 1);
        assert_eq!(check_split(&region, &counts, limits(1, 4)), Ok(()));
        assert_eq!(
            text(check_split(&region, &counts, limits(9, 3))),
            format!("Region split not possible for :{} as quota limits are exceeded ", region.encoded_name())
        );
        let a = name("ns:a");
        assert_eq!(check_restored(&a, 2, &counts, limits(1, 1)), Ok(()), "the number stays");
        assert_eq!(check_restored(&a, 3, &counts, limits(9, 4)), Ok(()));
        assert_eq!(
            text(check_restored(&a, 4, &counts, limits(9, 4))),
            "The table ns:a region count cannot be updated as it would exceed maximum number of regions allowed in the \
             namespace.  The total number of regions permitted is 4"
        );
    }
}
