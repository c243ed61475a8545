//! Changes the store file tracker of a table or of a family (`ModifyStoreFileTrackerProcedure`).
//!
//! ```text
//! DEFAULT --> MIGRATION from DEFAULT to FILE --> FILE
//! ```
//! Each arrow is a change of the descriptor, for which the regions are closed and opened again. The
//! open with MIGRATION writes the lists that FILE needs. All steps are one procedure, under the
//! table's lock. If the process ends between two of them, the table is served with MIGRATION; the
//! same request then makes the rest of the change. In HBase the procedure continues by itself.
//!
//! A change from MIGRATION is refused while a region is not served with it, however it is
//! requested.

use std::sync::Arc;

use evenkeel_common::{
    Binary, ColumnFamilyDescriptor, ErrorKind, HBaseError, RegionInfo, Result, TableDescriptor, TableName,
};
use evenkeel_region::store_file_tracker::{
    MIGRATION_DST_IMPL, MIGRATION_SRC_IMPL, TRACKER_IMPL, TrackerImpl, TrackerKind, TrackerSettings,
    check_for_modify_table,
};

use super::{Nonce, checks};
use crate::meta::MetaRegion;
use crate::{Master, is_built_in};

impl Master {
    /// Changes the store file tracker of a table, or of a family of it.
    ///
    /// # Errors
    /// `TableNotFoundException`, `TableNotEnabledException`, `NoSuchColumnFamilyException`;
    /// `DoNotRetryIOException` for MIGRATION; `IOException` for a class that does not exist.
    pub fn modify_tracker(
        self: &Arc<Self>,
        name: TableName,
        family: Option<Vec<u8>>,
        tracker: &str,
        nonce: Nonce,
    ) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        if TrackerImpl::parse(tracker)? == TrackerImpl::Migration {
            return Err(HBaseError::do_not_retry(format!("Do not need to transfer to {tracker}")));
        }
        self.check_enabled(&name)?;
        let (master, tracker) = (Arc::clone(self), tracker.to_owned());
        let kind = match family {
            Some(_) => "ModifyColumnFamilyStoreFileTrackerProcedure",
            None => "ModifyTableStoreFileTrackerProcedure",
        };
        let bytes = family.as_ref().map_or(0, Vec::len) + tracker.len();
        self.procedures.submit_holding(bytes, kind, nonce, Some(&name.clone()), move || {
            let _lock = master.lock_table(&name)?;
            master.migrate_tracker(&name, family.as_deref(), &tracker)
        })
    }

    /// Checks, before a family's MIGRATION ends, that each live region is served with it: only
    /// such an open has written the list that FILE needs, or archived the files that DEFAULT would
    /// serve.
    ///
    /// # Errors
    /// `DoNotRetryIOException` that names the region. Nothing is changed then.
    pub(super) fn check_migrated(
        &self,
        before: &TableDescriptor,
        changed: &TableDescriptor,
        regions: &[MetaRegion],
    ) -> Result<()> {
        for family in changed.families() {
            let Some(of_before) = before.family(family.name()) else { continue };
            let settings = TrackerSettings::of(before, of_before);
            let next = TrackerSettings::of(changed, family).tracker()?;
            if settings.tracker()? != TrackerImpl::Migration || next == TrackerImpl::Migration {
                continue;
            }
            let kind = TrackerKind::of(&settings)?;
            for info in regions.iter().map(|region| &region.info).filter(|info| !info.is_split_parent()) {
                self.check_served_with(info, family, kind)?;
            }
        }
        Ok(())
    }

    fn check_served_with(
        &self,
        info: &RegionInfo,
        family: &ColumnFamilyDescriptor,
        kind: TrackerKind,
    ) -> Result<()> {
        let region = self.parts.regionserver.regions().find(info.encoded_name());
        let is_migrated = region.is_some_and(|region| {
            let mut stores = region.stores().iter();
            stores.any(|store| store.family().name() == family.name() && store.tracker_kind() == kind)
        });
        if is_migrated {
            return Ok(());
        }
        Err(HBaseError::do_not_retry(format!(
            "The migration of the store file tracker of family {} cannot end yet: region {} is not \
             served with MIGRATION",
            family.name_text(),
            info.name_text()
        )))
    }

    fn migrate_tracker(&self, name: &TableName, family: Option<&[u8]>, tracker: &str) -> Result<Vec<u8>> {
        loop {
            let table = self.check_enabled(name)?;
            let Some(changed) = next_step(&table.descriptor, family, tracker)? else { return Ok(Vec::new()) };
            if is_built_in(name) {
                return Err(HBaseError::do_not_retry(format!("{name} cannot be altered here")));
            }
            checks::check_size(&changed)?;
            check_for_modify_table(&table.descriptor, &changed, false)?;
            self.change_now(&table, Arc::new(changed))?;
        }
    }
}

/// Returns the table after the next step towards a tracker; `None` if it has that.
fn next_step(
    table: &TableDescriptor,
    family: Option<&[u8]>,
    tracker: &str,
) -> Result<Option<TableDescriptor>> {
    let settings = settings_of(table, family)?;
    let (now, wanted) = (settings.tracker()?, TrackerImpl::parse(tracker)?);
    if now == wanted {
        return Ok(None);
    }
    let set = |changes: &[(&str, Option<&str>)]| Ok(Some(changed(table, family, changes)?));
    if now != TrackerImpl::Migration {
        return set(&[
            (TRACKER_IMPL, Some(TrackerImpl::Migration.name())),
            (MIGRATION_SRC_IMPL, Some(now.name())),
            (MIGRATION_DST_IMPL, Some(tracker)),
        ]);
    }
    let prepared = settings.dst()?;
    if prepared != wanted {
        // The earlier migration is completed first.
        return set(&[(TRACKER_IMPL, Some(prepared.name()))]);
    }
    set(&[(TRACKER_IMPL, Some(tracker)), (MIGRATION_SRC_IMPL, None), (MIGRATION_DST_IMPL, None)])
}

fn settings_of(table: &TableDescriptor, family: Option<&[u8]>) -> Result<TrackerSettings> {
    let Some(name) = family else { return Ok(TrackerSettings::of_table(table)) };
    match table.family(name) {
        Some(family) => Ok(TrackerSettings::of(table, family)),
        None => {
            let message = format!("{} does not exist for table {}", Binary(name), table.name());
            Err(HBaseError::new(ErrorKind::NoSuchColumnFamily, message))
        }
    }
}

/// Sets attributes of a table, or configuration of a family; `None` removes one.
///
/// # Errors
/// None in practice: the family's name is that of a family.
pub(crate) fn changed(
    table: &TableDescriptor,
    family: Option<&[u8]>,
    changes: &[(&str, Option<&str>)],
) -> Result<TableDescriptor> {
    let Some(family) = family.and_then(|name| table.family(name)) else {
        let mut attributes = table.attributes().clone();
        for (key, value) in changes {
            match value {
                Some(value) => attributes.insert((*key).into(), (*value).into()),
                None => attributes.remove(key.as_bytes()),
            };
        }
        return Ok(table.clone().with_attributes(attributes));
    };
    let (mut attributes, mut configuration) = (family.attributes().clone(), family.configuration().clone());
    for (key, value) in changes {
        // An attribute would hide the configuration.
        attributes.remove(key.as_bytes());
        match value {
            Some(value) => configuration.insert((*key).to_owned(), (*value).to_owned()),
            None => configuration.remove(*key),
        };
    }
    let family = ColumnFamilyDescriptor::from_parts(family.name().to_vec(), attributes, configuration)?;
    Ok(table.clone().with_family(family))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TableDescriptor {
        let family = |name: &[u8]| ColumnFamilyDescriptor::new(name).expect("legal");
        let table = TableDescriptor::new("t".parse().expect("legal"));
        table.with_family(family(b"f")).with_family(family(b"g")).with(TRACKER_IMPL, "DEFAULT")
    }

    /// The trackers of f and g after each step.
    fn steps(mut table: TableDescriptor, family: Option<&[u8]>, tracker: &str) -> Vec<String> {
        let mut seen = Vec::new();
        while let Some(next) = next_step(&table, family, tracker).expect("legal") {
            check_for_modify_table(&table, &next, false).expect("legal");
            let of = |family: &[u8]| {
                let settings = TrackerSettings::of(&next, next.family(family).expect("there"));
                let tracker = settings.tracker().expect("known");
                let parts = settings.src().ok().zip(settings.dst().ok());
                parts.map_or(tracker.name().to_owned(), |(src, dst)| {
                    format!("{} {}>{}", tracker.name(), src.name(), dst.name())
                })
            };
            seen.push(format!("{}, {}", of(b"f"), of(b"g")));
            table = next;
        }
        seen
    }

    #[test]
    fn a_change_goes_through_a_migration() {
        let both = ["MIGRATION DEFAULT>FILE, MIGRATION DEFAULT>FILE", "FILE, FILE"];
        assert_eq!(steps(table(), None, "FILE"), both);
        assert_eq!(steps(table(), None, "file"), both);
        assert_eq!(steps(table(), Some(b"f"), "FILE"), ["MIGRATION DEFAULT>FILE, DEFAULT", "FILE, DEFAULT"]);
        assert!(steps(table(), None, "default").is_empty());
        let file = table().with(TRACKER_IMPL, "FILE");
        assert_eq!(steps(file, Some(b"g"), "DEFAULT"), ["FILE, MIGRATION FILE>DEFAULT", "FILE, DEFAULT"]);
    }

    #[test]
    fn an_interrupted_change_is_completed_or_turned() {
        let half = next_step(&table(), None, "FILE").expect("legal").expect("a step");
        assert_eq!(steps(half.clone(), None, "FILE"), ["FILE, FILE"]);
        assert_eq!(
            steps(half, None, "DEFAULT"),
            [
                "FILE DEFAULT>FILE, FILE DEFAULT>FILE",
                "MIGRATION FILE>DEFAULT, MIGRATION FILE>DEFAULT",
                "DEFAULT, DEFAULT"
            ]
        );
    }

    #[test]
    fn an_unknown_family_is_refused() {
        let error = next_step(&table(), Some(b"nope"), "FILE").expect_err("unknown");
        assert_eq!(error.kind(), ErrorKind::NoSuchColumnFamily);
    }
}
