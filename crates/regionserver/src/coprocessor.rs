//! [`Coprocessors`]: the built-in coprocessors of each region, and the handling of other classes.
//!
//! HBase loads coprocessor classes by name: for every region (`hbase.coprocessor.region.classes`),
//! for regions of user tables (`hbase.coprocessor.user.region.classes`), and for tables that name
//! them in an attribute. Two of HBase's classes are built in here ([`BuiltIn`]). No Java class runs
//! here, so every other class cannot be loaded, and is handled as HBase handles that:
//!
//! - in a setting: the server does not start; with `hbase.coprocessor.abortonerror=false` it starts
//!   and logs an error
//! - in a setting, a class of HBase's security: the server never starts, because it would run
//!   without access control
//! - in a table that is created or altered: `DoNotRetryIOException`, unless
//!   `hbase.table.sanity.checks` is off
//! - in a table that exists already: its regions are not opened, and the error gives the reason;
//!   with `abortonerror=false` they are opened
//!
//! In the last case HBase stops the whole RegionServer; here the other tables are served.
//!
//! `hbase.coprocessor.enabled=false` switches off all of them except those of hbase:meta, and
//! `hbase.coprocessor.user.enabled=false` those of user tables.
//!
//! | module | contents |
//! |---|---|
//! | [`endpoint`], [`aggregate`] | coprocessor services that are built in |
//! | [`decimal`] | decimal numbers of aggregations |

pub mod aggregate;
pub mod decimal;
pub mod endpoint;

use evenkeel_common::config::ConfigError;
use evenkeel_common::{Configuration, HBaseError, Result, TableDescriptor};

/// The package of HBase's coprocessor classes.
const PACKAGE: &str = "org.apache.hadoop.hbase.coprocessor.";
/// The package of HBase's classes for security.
const SECURITY_PACKAGE: &str = "org.apache.hadoop.hbase.security.";
const EVERYWHERE: &str = "hbase.coprocessor.region.classes";
const OF_USERS: &str = "hbase.coprocessor.user.region.classes";
/// Settings for coprocessors of other kinds than regions; none of these is built in.
const OTHERS: [&str; 3] = [
    "hbase.coprocessor.regionserver.classes",
    "hbase.coprocessor.master.classes",
    "hbase.coprocessor.wal.classes",
];

/// A coprocessor that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltIn {
    /// `MultiRowMutationEndpoint`: atomic writes to several rows of a region.
    MultiRowMutation,
    /// `AggregateImplementation`: sums and other aggregates of a region's cells.
    Aggregate,
}

impl BuiltIn {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::MultiRowMutation, Self::Aggregate];

    /// The simple name of the Java class.
    pub fn simple_name(self) -> &'static str {
        match self {
            Self::MultiRowMutation => "MultiRowMutationEndpoint",
            Self::Aggregate => "AggregateImplementation",
        }
    }

    /// Returns the built-in coprocessor of a Java class.
    pub fn of_class(class: &str) -> Option<Self> {
        let name = class.strip_prefix(PACKAGE)?;
        Self::ALL.into_iter().find(|built_in| built_in.simple_name() == name)
    }
}

/// The coprocessors of regions, by settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coprocessors {
    everywhere: Vec<BuiltIn>,
    of_users: Vec<BuiltIn>,
    /// True if the attributes of tables count.
    of_tables: bool,
    /// `hbase.coprocessor.abortonerror`: a class that cannot be loaded is an error.
    abort_on_error: bool,
}

impl Default for Coprocessors {
    /// Only the coprocessors that tables name.
    fn default() -> Self {
        Self { everywhere: Vec::new(), of_users: Vec::new(), of_tables: true, abort_on_error: true }
    }
}

impl Coprocessors {
    /// Reads HBase's keys.
    ///
    /// # Errors
    /// [`ConfigError`] if a setting names a class that is not built in.
    pub fn from(conf: &Configuration) -> Result<Self, ConfigError> {
        let enabled = conf.get_bool_or("hbase.coprocessor.enabled", true)?;
        let of_tables = enabled && conf.get_bool_or("hbase.coprocessor.user.enabled", true)?;
        let abort_on_error = conf.get_bool_or("hbase.coprocessor.abortonerror", true)?;
        let list = |key, on| read(conf, key, on, abort_on_error);
        let (everywhere, of_users) = (list(EVERYWHERE, enabled)?, list(OF_USERS, of_tables)?);
        for key in OTHERS {
            list(key, enabled)?;
        }
        Ok(Self { everywhere, of_users, of_tables, abort_on_error })
    }

    /// Gives every region this coprocessor, beside those that tables name.
    #[cfg(test)]
    pub fn everywhere(built_in: BuiltIn) -> Self {
        Self { everywhere: vec![built_in], ..Self::default() }
    }

    /// Returns true if regions of a table have a coprocessor.
    pub fn has(&self, table: &TableDescriptor, built_in: BuiltIn) -> bool {
        let is_of_table = || {
            let mut named = table.coprocessors();
            named.any(|class| BuiltIn::of_class(class) == Some(built_in))
        };
        table.name().is_meta() && built_in == BuiltIn::MultiRowMutation
            || self.everywhere.contains(&built_in)
            || !table.name().is_system() && self.of_users.contains(&built_in)
            || self.of_tables && is_of_table()
    }

    /// Checks a table whose regions will be opened.
    ///
    /// # Errors
    /// `IOException` for a class that is not built in, unless `hbase.coprocessor.abortonerror` is
    /// off and the class is none of HBase's for security: the table would be open to everyone.
    pub fn check(&self, table: &TableDescriptor) -> Result<()> {
        let Some(class) = unknown_class(table).filter(|_| self.of_tables) else { return Ok(()) };
        let security = table.coprocessors().find(|class| class.starts_with(SECURITY_PACKAGE));
        match (self.abort_on_error, security) {
            (true, _) => Err(HBaseError::io(cannot_be_loaded(class))),
            (false, Some(security)) => Err(HBaseError::io(cannot_be_loaded(security))),
            (false, None) => {
                tracing::error!(table = %table.name(), class, "a coprocessor cannot be loaded; the table is served without it");
                Ok(())
            }
        }
    }
}

/// Reads the coprocessors that a setting names; none if `on` is false.
fn read(conf: &Configuration, key: &str, on: bool, abort: bool) -> Result<Vec<BuiltIn>, ConfigError> {
    let mut all = Vec::new();
    for entry in conf.get_list(key)?.iter().filter(|_| on) {
        // A priority and the path of a jar may follow the class.
        let class = entry.split('|').next().unwrap_or(entry).trim();
        match BuiltIn::of_class(class) {
            Some(built_in) => all.push(built_in),
            None if abort || class.starts_with(SECURITY_PACKAGE) => {
                return Err(
                    conf.unusable(key, "classes that are built in, since Java classes are not supported")
                );
            }
            None => tracing::error!(key, class, "a coprocessor cannot be loaded; the server runs without it"),
        }
    }
    Ok(all)
}

/// Returns the first class that a table names and that is not built in.
pub fn unknown_class(table: &TableDescriptor) -> Option<&str> {
    table.coprocessors().find(|class| BuiltIn::of_class(class).is_none())
}

/// Returns HBase's error message for a class that it does not find.
pub fn cannot_be_loaded(class: &str) -> String {
    format!("Class {class} cannot be loaded")
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGGREGATE: &str = "org.apache.hadoop.hbase.coprocessor.AggregateImplementation";
    const MULTI: &str = "org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint";

    fn table(name: &str, attribute: &str) -> TableDescriptor {
        TableDescriptor::new(name.parse().expect("legal")).with("coprocessor$1", attribute)
    }

    fn with(settings: &[(&str, &str)]) -> Result<Coprocessors, String> {
        let mut conf = Configuration::new();
        settings.iter().for_each(|(key, value)| conf.set(*key, *value));
        Coprocessors::from(&conf).map_err(|e| e.to_string())
    }

    #[test]
    fn settings_and_tables_enable_built_in_coprocessors() {
        let (plain, user) =
            (TableDescriptor::new("t".parse().expect("legal")), table("t", &format!("|{AGGREGATE}|1|")));
        let system = TableDescriptor::new("hbase:quota".parse().expect("legal"));
        let meta = TableDescriptor::new(evenkeel_common::TableName::meta());
        let none = with(&[]).expect("nothing");
        assert_eq!(none, Coprocessors::default());
        assert!(none.has(&meta, BuiltIn::MultiRowMutation) && !none.has(&meta, BuiltIn::Aggregate));
        assert!(none.has(&user, BuiltIn::Aggregate) && !none.has(&user, BuiltIn::MultiRowMutation));
        assert!(!none.has(&plain, BuiltIn::Aggregate));
        let all = with(&[(EVERYWHERE, &format!("{AGGREGATE}|7, {MULTI}"))]).expect("built in");
        assert!(BuiltIn::ALL.into_iter().all(|b| all.has(&plain, b) && all.has(&system, b)));
        let users = with(&[(OF_USERS, MULTI)]).expect("built in");
        assert!(
            users.has(&plain, BuiltIn::MultiRowMutation) && !users.has(&system, BuiltIn::MultiRowMutation)
        );
        let off = with(&[(EVERYWHERE, AGGREGATE), ("hbase.coprocessor.enabled", "false")]).expect("off");
        assert!(!off.has(&user, BuiltIn::Aggregate) && off.has(&meta, BuiltIn::MultiRowMutation));
        let off = with(&[(OF_USERS, MULTI), ("hbase.coprocessor.user.enabled", "false")]).expect("off");
        assert!(!off.has(&plain, BuiltIn::MultiRowMutation) && !off.has(&user, BuiltIn::Aggregate));
    }

    #[test]
    fn classes_that_are_not_built_in_are_refused() {
        for key in [EVERYWHERE, OF_USERS].iter().chain(&OTHERS) {
            let said = with(&[(key, "com.example.Observer")]).expect_err("refused");
            assert!(said.contains(key) && said.contains("com.example.Observer"), "{said}");
            let lenient = ("hbase.coprocessor.abortonerror", "false");
            assert!(with(&[(key, "com.example.Observer"), lenient]).is_ok(), "{key}");
            let security = "org.apache.hadoop.hbase.security.access.AccessController";
            assert!(with(&[(key, security), lenient]).is_err(), "{key} does not run open");
            assert!(with(&[(key, security), ("hbase.coprocessor.enabled", "false")]).is_ok(), "as HBase");
        }
    }

    #[test]
    fn tables_with_other_classes_are_not_opened() {
        let foreign = table("t", "hdfs:///a.jar|com.example.Observer|1001|k=v");
        let error = Coprocessors::default().check(&foreign).expect_err("refused");
        assert_eq!(error.message(), "Class com.example.Observer cannot be loaded");
        assert_eq!(Coprocessors::default().check(&table("t", &format!("|{MULTI}||"))), Ok(()));
        let lenient = with(&[("hbase.coprocessor.abortonerror", "false")]).expect("read");
        assert_eq!(lenient.check(&foreign), Ok(()));
        let access = "org.apache.hadoop.hbase.security.access.AccessController";
        let both = foreign.with("coprocessor$2", &format!("|{access}|1001|"));
        let error = lenient.check(&both).expect_err("would be open");
        assert_eq!(error.message(), format!("Class {access} cannot be loaded"));
        assert_eq!(unknown_class(&table("t", "no pattern of HBase's")), None);
    }
}
