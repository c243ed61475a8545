//! Configuration: HBase's keys, from `hbase-site.xml` and the command line, and Hadoop's.
//!
//! A value is looked up in this order; the first hit wins:
//!
//! 1. overlays, the last one added first (table and family settings, see
//!    [`Configuration::overlay`]);
//! 2. values given on the command line (`-Dkey=value`, [`Configuration::set`]);
//! 3. resources: `core-site.xml`, `hdfs-site.xml` and `hbase-site.xml`, in this order. A later
//!    property overrides an earlier one unless the earlier one is `<final>true</final>`. As in
//!    Hadoop, `final` protects against later *resources*; the command line still wins;
//! 4. 1 to 3 again under the key's older name, if HBase renamed it ([`defaults::RENAMED`]);
//! 5. the built-in table of defaults ([`defaults::DEFAULTS`]).
//!
//! `${x}` in a value of 2, 3 or 5 is replaced by the system property, environment variable
//! (`${env.X}`) or key `x`. An unbound reference is left unchanged. Overlays are literal, as in
//! HBase's `CompoundConfiguration`.
//!
//! | module | contents |
//! |---|---|
//! | `getters` | the typed getters |
//! | `current` | [`CurrentConfiguration`]: the settings in force |
//! | `values` | parsing of numbers, sizes and times, as by Java's and Hadoop's parsers |
//! | [`defaults`] | the keys known to Evenkeel and their defaults; known prefixes; renamed keys |
//! | `site` | the XML format of a site file |
//! | `substitute` | replacement of `${x}` |
//! | `error` | [`ConfigError`], which prints as one line |
//!
//! An empty value (`<value/>`) means "not set" to every typed getter except those of strings and
//! lists, so that the empty placeholders common in HBase's own files yield the default.
//!
//! A `Configuration` consists of `Arc`s: cloning and overlaying copy no values. A lookup hashes the
//! key once per layer and allocates; lookups belong in constructors and reload hooks, never on the
//! data path.

mod current;
pub mod defaults;
mod error;
mod getters;
mod site;
mod substitute;
pub mod values;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use current::CurrentConfiguration;
pub use error::ConfigError;
pub use values::TimeUnit;

/// `Result` with [`ConfigError`].
pub type Result<T> = std::result::Result<T, ConfigError>;

/// The site file in a configuration directory.
pub const SITE_FILE: &str = "hbase-site.xml";

/// The files in that directory in which Hadoop's settings may be; they are read before it.
pub const HADOOP_SITE_FILES: [&str; 2] = ["core-site.xml", "hdfs-site.xml"];

/// The environment variable that names the configuration directory when the command line does not.
pub const CONF_DIR_VARIABLE: &str = "HBASE_CONF_DIR";

/// Source name of values given as `-Dkey=value`.
const COMMAND_LINE: &str = "command line";

/// Source name of values from the built-in table.
const BUILT_IN: &str = "built-in default";

/// HBase's settings in layers. The module documentation has the order of the layers.
#[derive(Clone, Debug)]
pub struct Configuration {
    sources: Arc<Sources>,
    /// Later ones win.
    overlays: Vec<Arc<Overlay>>,
}

/// The layers shared by all tables.
#[derive(Clone, Debug, Default)]
struct Sources {
    command_line: HashMap<String, String>,
    resources: HashMap<String, Property>,
    system_properties: HashMap<String, String>,
    directory: Option<PathBuf>,
}

/// One property of a resource.
#[derive(Clone, Debug)]
struct Property {
    value: String,
    source: Arc<str>,
    is_final: bool,
}

/// Settings of one table or one family.
#[derive(Debug)]
struct Overlay {
    source: String,
    values: HashMap<String, String>,
}

/// A value with `${x}` resolved, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolvedValue {
    pub(crate) value: String,
    pub(crate) source: String,
}

/// A value before `${x}` is resolved.
#[derive(Clone, Copy)]
struct RawValue<'a> {
    value: &'a str,
    source: &'a str,
    literal: bool,
}

impl RawValue<'_> {
    fn is_blank(self) -> bool {
        self.value.trim().is_empty()
    }
}

impl Default for Configuration {
    fn default() -> Self {
        Self::new()
    }
}

impl Configuration {
    /// The built-in defaults, with the system properties of this process (`user.name`, `user.home`,
    /// `user.dir`, `java.io.tmpdir`).
    pub fn new() -> Self {
        Self::with_system_properties(substitute::process_properties())
    }

    /// The built-in defaults, with the given system properties: for tests and simulation.
    pub fn with_system_properties(properties: HashMap<String, String>) -> Self {
        let sources = Sources { system_properties: properties, ..Sources::default() };
        Self { sources: Arc::new(sources), overlays: Vec::new() }
    }

    /// Loads `hbase-site.xml` from `config_dir`, or else from the directory that `HBASE_CONF_DIR`
    /// names, over Hadoop's files there, and sets `defines` over it. Without either directory only
    /// the defaults apply.
    ///
    /// # Errors
    /// [`ConfigError::File`] if the file cannot be read or parsed, or if the directory lacks it:
    /// starting on defaults would silently place the data elsewhere.
    pub fn load(config_dir: Option<&Path>, defines: &[(String, String)]) -> Result<Self> {
        let mut conf = Self::new();
        let from_environment =
            || std::env::var_os(CONF_DIR_VARIABLE).filter(|d| !d.is_empty()).map(PathBuf::from);
        if let Some(dir) = config_dir.map(Path::to_path_buf).or_else(from_environment) {
            let of_hadoop = HADOOP_SITE_FILES.iter().map(|name| dir.join(name));
            of_hadoop.filter(|path| path.is_file()).try_for_each(|path| conf.add_resource(&path))?;
            conf.add_resource(&dir.join(SITE_FILE))?;
            conf.set_directory(dir);
        }
        for (key, value) in defines {
            conf.set(key, value);
        }
        Ok(conf)
    }

    /// The directory of the configuration's files, which may have others than `hbase-site.xml`;
    /// `None` if only defaults and the command line apply.
    pub fn directory(&self) -> Option<&Path> {
        self.sources.directory.as_deref()
    }

    /// Sets the directory of the configuration's files. Reads nothing.
    pub fn set_directory(&mut self, directory: impl Into<PathBuf>) {
        Arc::make_mut(&mut self.sources).directory = Some(directory.into());
    }

    /// Adds the properties of a file in Hadoop's XML format. The module documentation explains
    /// `final`.
    ///
    /// # Errors
    /// [`ConfigError::File`] if the file cannot be read or parsed.
    pub fn add_resource(&mut self, path: &Path) -> Result<()> {
        let properties = site::read_file(path)?;
        self.add_properties(properties);
        Ok(())
    }

    /// Adds the properties of an XML text; `source` names it in errors.
    ///
    /// # Errors
    /// [`ConfigError::File`] if the text cannot be parsed.
    pub fn add_xml(&mut self, source: &str, text: &str) -> Result<()> {
        let properties = site::parse(text, Path::new(source))?;
        self.add_properties(properties);
        Ok(())
    }

    fn add_properties(&mut self, properties: Vec<site::SiteProperty>) {
        let resources = &mut Arc::make_mut(&mut self.sources).resources;
        for property in properties {
            let site::SiteProperty { name, value, source, is_final } = property;
            match resources.get(&name) {
                Some(old) if old.is_final => {
                    if old.value != value {
                        tracing::warn!(key = %name, final_in = %old.source, ignored_in = %source, "final property not overridden");
                    }
                }
                _ => {
                    resources.insert(name, Property { value, source, is_final });
                }
            }
        }
    }

    /// Sets one value over every resource, as `-Dkey=value` does. Other clones keep their value.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        Arc::make_mut(&mut self.sources).command_line.insert(key.into(), value.into());
    }

    /// Removes a value set by [`Configuration::set`].
    pub fn unset(&mut self, key: &str) {
        Arc::make_mut(&mut self.sources).command_line.remove(key);
    }

    /// A view of this configuration with the settings of a table or a family as the top layer;
    /// `source` (`table t1`, `family cf`) names them in errors. This is HBase's
    /// `CompoundConfiguration`: for a store, overlay the table's values, then the family's
    /// configuration, then the family's values. Copies `values` and shares everything else.
    pub fn overlay<K, V>(&self, source: &str, values: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: Into<String>,
        V: Into<String>,
    {
        let values: HashMap<String, String> = values.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        let mut view = self.clone();
        if !values.is_empty() {
            view.overlays.push(Arc::new(Overlay { source: source.to_owned(), values }));
        }
        view
    }

    /// [`Configuration::overlay`] for attributes stored as bytes, such as those of tables and
    /// families. Pairs that are not UTF-8 are ignored.
    pub fn overlay_bytes<K, V>(&self, source: &str, values: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
        self.overlay(
            source,
            values.into_iter().filter_map(|(k, v)| Some((text(k.as_ref())?, text(v.as_ref())?))),
        )
    }

    /// The source of the value of `key` (`built-in default`, a file, `command line`, an overlay's
    /// name), or `None` if it has no value.
    pub fn source_of(&self, key: &str) -> Option<String> {
        self.raw(key).map(|raw| raw.source.to_owned())
    }

    /// Returns true if the key has a value other than the built-in default, under its present or
    /// its older name.
    pub fn is_set(&self, key: &str) -> bool {
        self.explicit(key).is_some()
    }

    /// Returns true if a resource has made the value of `key` final.
    pub fn is_final(&self, key: &str) -> bool {
        self.sources.resources.get(key).is_some_and(|property| property.is_final)
    }

    /// Every key that is set, in order, with its value before substitution and its source. Built-in
    /// defaults are not included.
    pub fn set_properties(&self) -> Vec<(&str, &str, &str)> {
        let base = self.sources.command_line.keys().chain(self.sources.resources.keys());
        let overlaid = self.overlays.iter().flat_map(|o| o.values.keys());
        let keys: BTreeSet<&str> = base.chain(overlaid).map(String::as_str).collect();
        keys.into_iter().filter_map(|key| self.given(key).map(|raw| (key, raw.value, raw.source))).collect()
    }

    /// The keys of resources and of the command line that Evenkeel does not know, in order. The
    /// server logs them at start, because each is a typo or a setting without effect.
    pub fn unknown_keys(&self) -> Vec<&str> {
        let keys = self.sources.resources.keys().chain(self.sources.command_line.keys());
        let unknown: BTreeSet<&str> =
            keys.map(String::as_str).filter(|key| !defaults::is_known(key)).collect();
        unknown.into_iter().collect()
    }

    /// The value of `key` with `${x}` resolved, and its source.
    pub(crate) fn find(&self, key: &str) -> Result<Option<ResolvedValue>> {
        self.raw(key).map(|raw| self.resolve(key, raw)).transpose()
    }

    /// The built-in default of `key` with `${x}` resolved.
    pub(crate) fn find_default(&self, key: &str) -> Result<Option<ResolvedValue>> {
        Self::built_in(key).map(|raw| self.resolve(key, raw)).transpose()
    }

    fn resolve(&self, key: &str, raw: RawValue<'_>) -> Result<ResolvedValue> {
        let found = |value: String| ResolvedValue { value, source: raw.source.to_owned() };
        if raw.literal || !raw.value.contains("${") {
            return Ok(found(raw.value.to_owned()));
        }
        let look_up = |name: &str| self.variable(name);
        substitute::expand(key, raw.value, &look_up).map(found).map_err(|reason| ConfigError::Substitution {
            key: key.to_owned(),
            value: raw.value.to_owned(),
            source: raw.source.to_owned(),
            reason,
        })
    }

    /// The value of `${name}`, not yet expanded.
    fn variable(&self, name: &str) -> Option<String> {
        if let Some(variable) = name.strip_prefix("env.") {
            return substitute::environment(variable);
        }
        let property = self.sources.system_properties.get(name).map(String::as_str);
        property.or_else(|| self.raw(name).map(|raw| raw.value)).map(str::to_owned)
    }

    fn raw(&self, key: &str) -> Option<RawValue<'_>> {
        self.explicit(key).or_else(|| Self::built_in(key))
    }

    fn explicit(&self, key: &str) -> Option<RawValue<'_>> {
        let present = self.given(key);
        match defaults::older_name(key) {
            Some(older) if present.is_none_or(RawValue::is_blank) => self.given(older).or(present),
            _ => present,
        }
    }

    fn given(&self, key: &str) -> Option<RawValue<'_>> {
        let overlaid = self.overlays.iter().rev().find_map(|overlay| {
            let value = overlay.values.get(key)?;
            Some(RawValue { value, source: &overlay.source, literal: true })
        });
        overlaid.or_else(|| self.sources.given(key))
    }

    fn built_in(key: &str) -> Option<RawValue<'static>> {
        defaults::default_of(key).map(|value| RawValue { value, source: BUILT_IN, literal: false })
    }
}

impl Sources {
    fn given(&self, key: &str) -> Option<RawValue<'_>> {
        if let Some(value) = self.command_line.get(key) {
            return Some(RawValue { value, source: COMMAND_LINE, literal: false });
        }
        let property = self.resources.get(key)?;
        Some(RawValue { value: &property.value, source: &property.source, literal: false })
    }
}
