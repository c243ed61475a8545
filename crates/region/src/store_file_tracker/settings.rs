//! The settings of a store's tracker, and how HBase names trackers.

use evenkeel_common::{ColumnFamilyDescriptor, ErrorKind, HBaseError, Result, TableDescriptor};

/// The attribute of a table or a family that names its tracker, by name or class. The setting of a
/// server with this name is that of new tables.
pub const TRACKER_IMPL: &str = "hbase.store.file-tracker.impl";
/// The tracker from which MIGRATION takes the files.
pub const MIGRATION_SRC_IMPL: &str = "hbase.store.file-tracker.migration.src.impl";
/// The tracker that MIGRATION prepares.
pub const MIGRATION_DST_IMPL: &str = "hbase.store.file-tracker.migration.dst.impl";

/// The package of HBase's trackers, and the end of their classes' names.
const PACKAGE: &str = "org.apache.hadoop.hbase.regionserver.storefiletracker.";
const CLASS_SUFFIX: &str = "StoreFileTracker";

/// HBase's trackers (`StoreFileTrackerFactory.Trackers`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrackerImpl {
    /// The files of a store are those in its directory.
    Default,
    /// They are those that a list names.
    File,
    /// On the way from one of these to the other.
    Migration,
}

impl TrackerImpl {
    /// Returns the tracker of a name, in upper or lower case, or of a class.
    ///
    /// # Errors
    /// `IOException` for a class that does not exist.
    pub fn parse(text: &str) -> Result<Self> {
        let class = text.strip_prefix(PACKAGE).and_then(|class| class.strip_suffix(CLASS_SUFFIX));
        match (text.to_uppercase().as_str(), class) {
            ("DEFAULT", _) | (_, Some("Default")) => Ok(Self::Default),
            ("FILE", _) | (_, Some("FileBased")) => Ok(Self::File),
            ("MIGRATION", _) | (_, Some("Migration")) => Ok(Self::Migration),
            _ => Err(HBaseError::io(format!("java.lang.ClassNotFoundException: {text}"))),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "DEFAULT",
            Self::File => "FILE",
            Self::Migration => "MIGRATION",
        }
    }

    /// The name of its class in HBase.
    pub fn class(self) -> String {
        let class = match self {
            Self::Default => "Default",
            Self::File => "FileBased",
            Self::Migration => "Migration",
        };
        format!("{PACKAGE}{class}{CLASS_SUFFIX}")
    }
}

/// The trackers that a table's and a family's settings name; unset ones are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackerSettings {
    tracker: Option<String>,
    src: Option<String>,
    dst: Option<String>,
}

impl TrackerSettings {
    /// Returns the settings of a family of a table. Those of the family override the table's
    /// (`StoreUtils.createStoreConfiguration`).
    pub fn of(table: &TableDescriptor, family: &ColumnFamilyDescriptor) -> Self {
        let mut settings = Self::of_table(table);
        settings.apply_family(family);
        settings
    }

    /// Returns the settings of a table.
    pub fn of_table(table: &TableDescriptor) -> Self {
        let text = |key| table.text(key).map(str::to_owned);
        Self { tracker: text(TRACKER_IMPL), src: text(MIGRATION_SRC_IMPL), dst: text(MIGRATION_DST_IMPL) }
    }

    /// Applies the settings of a family. Its attributes override its configuration. As in HBase, a
    /// value is not trimmed.
    pub(crate) fn apply_family(&mut self, family: &ColumnFamilyDescriptor) {
        let settings = [
            (TRACKER_IMPL, &mut self.tracker),
            (MIGRATION_SRC_IMPL, &mut self.src),
            (MIGRATION_DST_IMPL, &mut self.dst),
        ];
        for (key, setting) in settings {
            let of_family = family.text(key).or(family.configuration().get(key).map(String::as_str));
            if let Some(value) = of_family {
                *setting = Some(value.to_owned());
            }
        }
    }

    /// Returns the tracker. A table without one is older than trackers, so it has DEFAULT, whatever
    /// the server's setting (`InitializeStoreFileTrackerProcedure`).
    ///
    /// # Errors
    /// As [`TrackerImpl::parse`].
    pub fn tracker(&self) -> Result<TrackerImpl> {
        self.tracker
            .as_deref()
            .filter(|name| !name.is_empty())
            .map_or(Ok(TrackerImpl::Default), TrackerImpl::parse)
    }

    /// Returns the tracker from which MIGRATION takes the files.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if it is not set, and as [`TrackerImpl::parse`].
    pub fn src(&self) -> Result<TrackerImpl> {
        part_of_migration(MIGRATION_SRC_IMPL, self.src.as_deref())
    }

    /// Returns the tracker that MIGRATION prepares.
    ///
    /// # Errors
    /// As [`TrackerSettings::src`].
    pub fn dst(&self) -> Result<TrackerImpl> {
        part_of_migration(MIGRATION_DST_IMPL, self.dst.as_deref())
    }
}

fn part_of_migration(key: &str, value: Option<&str>) -> Result<TrackerImpl> {
    let unset = || HBaseError::do_not_retry(format!("config {key} is not set"));
    TrackerImpl::parse(value.ok_or_else(unset)?)
}

/// The tracker of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackerKind {
    /// [`TrackerImpl::Default`]
    #[default]
    Default,
    /// [`TrackerImpl::File`]
    File,
    /// [`TrackerImpl::Migration`] from DEFAULT to FILE.
    DefaultToFile,
    /// [`TrackerImpl::Migration`] from FILE to DEFAULT.
    FileToDefault,
}

impl TrackerKind {
    /// Returns the tracker that settings name.
    ///
    /// # Errors
    /// As [`TrackerSettings::tracker`] and [`TrackerSettings::src`]; `DoNotRetryIOException`, with
    /// HBase's message, for a migration from or to MIGRATION, or to the same tracker.
    pub fn of(settings: &TrackerSettings) -> Result<Self> {
        let (src, dst) = match settings.tracker()? {
            TrackerImpl::Default => return Ok(Self::Default),
            TrackerImpl::File => return Ok(Self::File),
            TrackerImpl::Migration => (settings.src()?, settings.dst()?),
        };
        let illegal = |message: String| Err(HBaseError::new(ErrorKind::DoNotRetry, message));
        let nested = |key: &str| {
            illegal(format!("Should not specify {key} as MIGRATION because it can not be nested"))
        };
        match (src, dst) {
            (TrackerImpl::Migration, _) => nested(MIGRATION_SRC_IMPL),
            (_, TrackerImpl::Migration) => nested(MIGRATION_DST_IMPL),
            (TrackerImpl::Default, TrackerImpl::File) => Ok(Self::DefaultToFile),
            (TrackerImpl::File, TrackerImpl::Default) => Ok(Self::FileToDefault),
            _ => illegal(format!("src and dst is the same: class {}", src.class())),
        }
    }

    /// Returns true if the files are those that a list names.
    pub fn reads_list(self) -> bool {
        matches!(self, Self::File | Self::FileToDefault)
    }

    /// Returns true if a list of the files is kept.
    pub(super) fn writes_list(self) -> bool {
        self != Self::Default
    }

    /// Returns true if new files are written to another directory first, because a file in the
    /// store's directory may take effect by being there (`requireWritingToTmpDirFirst`).
    pub fn requires_writing_to_tmp_dir_first(self) -> bool {
        self != Self::File
    }
}
