//! [`Engine`]: how a store arranges its files, by HBase's class names.
//!
//! All engines read alike: a store is a list of files in the order of their sequence ids, and each
//! file records its rows and times. So a table may change its engine at any time, and the files of
//! any engine, including HBase's, work with every other.

use evenkeel_common::TableDescriptor;

use super::policy::date_tiered::DateTieredSettings;
use super::policy::stripe::StripeSettings;

/// `hbase.hstore.engine.class`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Neighbours in age are merged (`DefaultStoreEngine`).
    #[default]
    Default,
    /// Ranges of rows are compacted separately (`StripeStoreEngine`).
    Stripe,
    /// Ranges of time are compacted separately (`DateTieredStoreEngine`).
    DateTiered,
}

/// The engine of a store, and the settings of the engines.
#[derive(Clone, Debug, Default)]
pub struct EngineSettings {
    pub(in crate::store) engine: Engine,
    pub(in crate::store) stripe: StripeSettings,
    pub(in crate::store) date_tiered: DateTieredSettings,
}

/// The package of HBase's engines.
const PACKAGE: &str = "org.apache.hadoop.hbase.regionserver.";
const ENGINE: &str = "hbase.hstore.engine.class";
/// Settings that name a class, and the supported classes within `PACKAGE`.
/// `RatioBasedCompactionPolicy` selects like the exploring policy, which is an improvement of it.
const CLASSES: [(&str, &[&str]); 6] = [
    (ENGINE, &["DefaultStoreEngine", "StripeStoreEngine", "DateTieredStoreEngine"]),
    ("hbase.hstore.defaultengine.compactionpolicy.class", POLICIES),
    ("hbase.hstore.defaultengine.compactor.class", &["compactions.DefaultCompactor"]),
    ("hbase.hstore.defaultengine.storeflusher.class", &["DefaultStoreFlusher"]),
    ("hbase.hstore.compaction.date.tiered.window.policy.class", POLICIES),
    (
        "hbase.hstore.compaction.date.tiered.window.factory.class",
        &["compactions.ExponentialCompactionWindowFactory"],
    ),
];
const POLICIES: &[&str] =
    &["compactions.ExploringCompactionPolicy", "compactions.RatioBasedCompactionPolicy"];

impl EngineSettings {
    /// Applies a setting. Returns true if the key belongs to an engine.
    pub(in crate::store) fn set(&mut self, key: &str, value: &str) -> bool {
        if let Some((_, known)) = CLASSES.iter().find(|(name, _)| *name == key) {
            if let Err(message) = check_class(key, value, known) {
                tracing::warn!("{message}; the default is used");
            } else if key == ENGINE {
                self.engine = Engine::of_class(value);
            }
            return true;
        }
        self.stripe.set(key, value) || self.date_tiered.set(key, value)
    }

    /// The keys of [`EngineSettings::keys`] that do not name a class.
    pub(in crate::store) fn number_keys() -> impl Iterator<Item = &'static str> {
        StripeSettings::KEYS.into_iter().chain(DateTieredSettings::KEYS)
    }

    /// The engines' keys in a server's configuration.
    pub(in crate::store) fn keys() -> impl Iterator<Item = &'static str> {
        let classes = CLASSES.iter().map(|(key, _)| *key);
        classes.chain(StripeSettings::KEYS).chain(DateTieredSettings::KEYS)
    }
}

impl Engine {
    fn of_class(class: &str) -> Self {
        match class.strip_prefix(PACKAGE) {
            Some("StripeStoreEngine") => Self::Stripe,
            Some("DateTieredStoreEngine") => Self::DateTiered,
            _ => Self::Default,
        }
    }
}

/// Rejects a table whose attributes name an unsupported class of flushes or compactions, because
/// its compactions would differ from what its owner expects.
///
/// # Errors
/// One line with the setting, the class and the supported classes.
pub fn check_classes(table: &TableDescriptor) -> Result<(), String> {
    for (key, known) in CLASSES {
        let of_families = table
            .families()
            .filter_map(|family| family.configuration().get(key).map(String::as_str).or(family.text(key)));
        table
            .text(key)
            .into_iter()
            .chain(of_families)
            .try_for_each(|class| check_class(key, class.trim(), known))?;
    }
    Ok(())
}

fn check_class(key: &str, class: &str, known: &[&str]) -> Result<(), String> {
    if class.strip_prefix(PACKAGE).is_some_and(|name| known.contains(&name)) {
        return Ok(());
    }
    let known: Vec<_> = known.iter().map(|name| format!("{PACKAGE}{name}")).collect();
    Err(format!("{key}: class {class} is not supported; these are: {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use evenkeel_common::ColumnFamilyDescriptor;

    use super::*;

    #[test]
    fn an_engine_is_named_by_its_class() {
        let engine = |class: &str| {
            let mut settings = EngineSettings::default();
            assert!(settings.set(ENGINE, class));
            settings.engine
        };
        assert_eq!(engine("org.apache.hadoop.hbase.regionserver.StripeStoreEngine"), Engine::Stripe);
        assert_eq!(engine("org.apache.hadoop.hbase.regionserver.DateTieredStoreEngine"), Engine::DateTiered);
        assert_eq!(engine("org.apache.hadoop.hbase.regionserver.DefaultStoreEngine"), Engine::Default);
        assert_eq!(engine("StripeStoreEngine"), Engine::Default, "not the name of a class");
        assert!(!EngineSettings::default().set("hbase.hstore.blockingStoreFiles", "3"));
    }

    #[test]
    fn unsupported_engine_classes_are_refused_by_name() {
        let family = || ColumnFamilyDescriptor::new(b"f").expect("legal");
        let table = || TableDescriptor::new("t".parse().expect("legal"));
        assert_eq!(check_classes(&table().with_family(family())), Ok(()));
        let stripes = "org.apache.hadoop.hbase.regionserver.StripeStoreEngine";
        assert_eq!(check_classes(&table().with(ENGINE, stripes)), Ok(()));
        let error = check_classes(&table().with(ENGINE, "org.example.Engine")).expect_err("unknown");
        assert!(error.contains(ENGINE) && error.contains("org.example.Engine") && error.contains(stripes));
        let fifo = "org.apache.hadoop.hbase.regionserver.compactions.FIFOCompactionPolicy";
        let family = family().with("hbase.hstore.defaultengine.compactionpolicy.class", fifo);
        assert!(check_classes(&table().with_family(family)).is_err());
    }
}
