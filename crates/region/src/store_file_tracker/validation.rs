//! Which changes of a table's trackers are legal (`StoreFileTrackerValidationUtils`).
//!
//! The tracker of a family with files changes in two steps, each of which opens the regions: to
//! MIGRATION, and then to the tracker that MIGRATION prepared. All errors have HBase's classes and
//! messages.

use evenkeel_common::{ColumnFamilyDescriptor, ErrorKind, HBaseError, Result, TableDescriptor};

use super::settings::{TrackerImpl, TrackerKind, TrackerSettings};

/// Checks the trackers of a new table.
///
/// # Errors
/// `DoNotRetryIOException` if a family has MIGRATION; `IOException` for an unknown tracker.
pub fn check_for_create_table(table: &TableDescriptor) -> Result<()> {
    table.families().try_for_each(|family| check_new_family(table, family))
}

fn check_new_family(table: &TableDescriptor, family: &ColumnFamilyDescriptor) -> Result<()> {
    if TrackerSettings::of(table, family).tracker()? != TrackerImpl::Migration {
        return Ok(());
    }
    Err(HBaseError::do_not_retry(format!(
        "Should not use MIGRATION as store file tracker for new family {} of table {}",
        family.name_text(),
        table.name()
    )))
}

/// Checks the trackers of a changed table.
///
/// # Errors
/// `DoNotRetryIOException` for a change that would lose files, `TableNotEnabledException` if it
/// needs open regions and the table is disabled; `IOException` for an unknown tracker.
pub fn check_for_modify_table(old: &TableDescriptor, new: &TableDescriptor, is_disabled: bool) -> Result<()> {
    for family in new.families() {
        match old.family(family.name()) {
            None => check_new_family(new, family)?,
            Some(before) => {
                let place = format!("for family {} of table {}", family.name_text(), new.name());
                let settings = TrackerSettings::of(new, family);
                let change = Change { old: TrackerSettings::of(old, before), new: &settings, place: &place };
                change.check(new, is_disabled)?;
                // HBase finds these when it opens the regions.
                TrackerKind::of(&settings).map_err(|error| match error.kind() {
                    ErrorKind::DoNotRetry => HBaseError::do_not_retry(format!("{} {place}", error.message())),
                    _ => error,
                })?;
            }
        }
    }
    Ok(())
}

/// A change of a family's tracker.
struct Change<'a> {
    old: TrackerSettings,
    new: &'a TrackerSettings,
    /// The family and the table, for messages.
    place: &'a str,
}

impl Change<'_> {
    fn check(&self, table: &TableDescriptor, is_disabled: bool) -> Result<()> {
        let (old, new) = (self.old.tracker()?, self.new.tracker()?);
        match (old, new) {
            (TrackerImpl::Migration, TrackerImpl::Migration) => self.check_same_migration(),
            (TrackerImpl::Migration, _) => {
                let prepared = self.old.dst()?;
                if is_disabled {
                    return Err(HBaseError::new(
                        ErrorKind::TableNotEnabled,
                        format!(
                            "Should not change store file tracker implementation from MIGRATION while table {} is disabled",
                            table.name()
                        ),
                    ));
                }
                if new != prepared {
                    return self.refuse(format!(
                        "Should migrate tracker to {} but got {}",
                        prepared.name(),
                        new.name()
                    ));
                }
                Ok(())
            }
            (_, TrackerImpl::Migration) => self.check_begin(old),
            _ if old != new => {
                self.refuse(format!("Should change to MIGRATION first when migrating from {}", old.name()))
            }
            _ => Ok(()),
        }
    }

    fn check_same_migration(&self) -> Result<()> {
        let parts = [("src", self.old.src()?, self.new.src()?), ("dst", self.old.dst()?, self.new.dst()?)];
        match parts.into_iter().find(|(_, old, new)| old != new) {
            None => Ok(()),
            Some((part, old, new)) => self.refuse(format!(
                "The {part} tracker has been changed from {} to {}",
                old.name(),
                new.name()
            )),
        }
    }

    fn check_begin(&self, old: TrackerImpl) -> Result<()> {
        let src = self.new.src()?;
        if src != old {
            return self.refuse(format!(
                "Should use src tracker {} first but got {} when migrating from {}",
                old.name(),
                src.name(),
                old.name()
            ));
        }
        if self.new.dst()? == src {
            return self.refuse(format!("The src tracker and dst tracker are both {}", src.name()));
        }
        Ok(())
    }

    fn refuse(&self, message: String) -> Result<()> {
        Err(HBaseError::do_not_retry(format!("{message} {}", self.place)))
    }
}

/// Checks that a snapshot has the trackers of the table that it is restored to.
///
/// # Errors
/// `RestoreSnapshotException` if a family has another one; `IOException` for an unknown tracker.
pub fn validate_pre_restore_snapshot(current: &TableDescriptor, snapshot: &TableDescriptor) -> Result<()> {
    for family in current.families() {
        let Some(in_snapshot) = snapshot.family(family.name()) else { continue };
        let now = TrackerSettings::of(current, family).tracker()?;
        let then = TrackerSettings::of(snapshot, in_snapshot).tracker()?;
        if now != then {
            return Err(HBaseError::new(
                ErrorKind::RestoreSnapshot,
                format!(
                    "Restoring Snapshot is not possible because  the config for column family {} has incompatible \
                     configuration. Current SFT: class {} SFT from snapshot: class {}",
                    family.name_text(),
                    now.class(),
                    then.class()
                ),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::settings::{MIGRATION_DST_IMPL, MIGRATION_SRC_IMPL, TRACKER_IMPL};
    use super::*;

    /// A table with the family f, with these attributes of the table.
    fn table(attributes: &[(&str, &str)]) -> TableDescriptor {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let table = TableDescriptor::new("t".parse().expect("legal")).with_family(family);
        attributes.iter().fold(table, |table, (key, value)| table.with(key, value))
    }

    fn plain(tracker: &str) -> TableDescriptor {
        table(&[(TRACKER_IMPL, tracker)])
    }

    fn migration(src: &str, dst: &str) -> TableDescriptor {
        table(&[(TRACKER_IMPL, "MIGRATION"), (MIGRATION_SRC_IMPL, src), (MIGRATION_DST_IMPL, dst)])
    }

    fn refused(old: &TableDescriptor, new: &TableDescriptor, is_disabled: bool) -> (ErrorKind, String) {
        let error = check_for_modify_table(old, new, is_disabled).expect_err("refused");
        (error.kind(), error.message().to_owned())
    }

    #[test]
    fn a_migration_takes_two_steps() {
        let default_class = TrackerImpl::Default.class();
        let steps = [
            (table(&[]), plain("default")),
            (plain("DEFAULT"), plain(&default_class)),
            (plain("DEFAULT"), migration("DEFAULT", "FILE")),
            (migration("DEFAULT", "FILE"), migration("default", "file")),
            (migration("DEFAULT", "FILE"), plain("FILE")),
            (plain("FILE"), migration("FILE", "DEFAULT")),
            (migration("FILE", "DEFAULT"), plain("DEFAULT")),
        ];
        for (old, new) in steps {
            check_for_modify_table(&old, &new, false)
                .unwrap_or_else(|error| panic!("{old:?} {new:?}: {error}"));
        }
        check_for_modify_table(&plain("DEFAULT"), &migration("DEFAULT", "FILE"), true).expect("legal");
    }

    /// The messages of `StoreFileTrackerValidationUtils` 2.6.4.
    #[test]
    fn other_changes_have_the_errors_of_stock() {
        let (default, file) = (plain("DEFAULT"), plain("FILE"));
        let to_file = migration("DEFAULT", "FILE");
        let cases = [
            (
                &default,
                &file,
                "Should change to MIGRATION first when migrating from DEFAULT for family f of table t",
            ),
            (
                &file,
                &default,
                "Should change to MIGRATION first when migrating from FILE for family f of table t",
            ),
            (
                &default,
                &migration("FILE", "DEFAULT"),
                "Should use src tracker DEFAULT first but got FILE when migrating from DEFAULT for family f of table t",
            ),
            (
                &default,
                &migration("DEFAULT", "DEFAULT"),
                "The src tracker and dst tracker are both DEFAULT for family f of table t",
            ),
            (
                &to_file,
                &migration("FILE", "FILE"),
                "The src tracker has been changed from DEFAULT to FILE for family f of table t",
            ),
            (
                &to_file,
                &migration("DEFAULT", "DEFAULT"),
                "The dst tracker has been changed from FILE to DEFAULT for family f of table t",
            ),
            (&to_file, &default, "Should migrate tracker to FILE but got DEFAULT for family f of table t"),
            (&default, &plain("MIGRATION"), "config hbase.store.file-tracker.migration.src.impl is not set"),
        ];
        for (old, new, message) in cases {
            assert_eq!(refused(old, new, false), (ErrorKind::DoNotRetry, message.to_owned()));
        }
        assert_eq!(
            refused(&to_file, &file, true),
            (
                ErrorKind::TableNotEnabled,
                "Should not change store file tracker implementation from MIGRATION while table t is disabled"
                    .to_owned()
            )
        );
        let unknown = check_for_modify_table(&default, &plain("a.b.C"), false).expect_err("unknown");
        assert_eq!(unknown.message(), "java.lang.ClassNotFoundException: a.b.C");
        let (kind, message) = refused(&default, &migration("DEFAULT", "MIGRATION"), false);
        assert_eq!(kind, ErrorKind::DoNotRetry);
        assert!(message.contains("can not be nested"), "{message}");
    }

    #[test]
    fn new_families_have_no_migration() {
        check_for_create_table(&plain("FILE")).expect("legal");
        let error = check_for_create_table(&migration("DEFAULT", "FILE")).expect_err("refused");
        let message = "Should not use MIGRATION as store file tracker for new family f of table t";
        assert_eq!((error.kind(), error.message()), (ErrorKind::DoNotRetry, message));
        let added = ColumnFamilyDescriptor::new(b"g").expect("legal").with(TRACKER_IMPL, "MIGRATION");
        let error =
            check_for_modify_table(&table(&[]), &table(&[]).with_family(added), false).expect_err("refused");
        assert!(error.message().ends_with("for new family g of table t"), "{error}");
    }

    #[test]
    fn a_family_overrides_its_table() {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with(TRACKER_IMPL, "FILE");
        let table = plain("DEFAULT").with_family(family);
        let settings = TrackerSettings::of(&table, table.family(b"f").expect("there"));
        assert_eq!(TrackerKind::of(&settings).expect("known"), TrackerKind::File);
    }

    #[test]
    fn a_restore_keeps_the_tracker() {
        validate_pre_restore_snapshot(&plain("FILE"), &plain("file")).expect("the same");
        let error = validate_pre_restore_snapshot(&plain("FILE"), &table(&[])).expect_err("another");
        let package = "org.apache.hadoop.hbase.regionserver.storefiletracker";
        assert_eq!(error.kind(), ErrorKind::RestoreSnapshot);
        assert_eq!(
            error.message(),
            format!(
                "Restoring Snapshot is not possible because  the config for column family f has incompatible \
                 configuration. Current SFT: class {package}.FileBasedStoreFileTracker SFT from snapshot: class \
                 {package}.DefaultStoreFileTracker"
            )
        );
    }
}
