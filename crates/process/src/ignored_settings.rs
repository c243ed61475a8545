//! HBase's settings that have no effect here. At start, the log names each one that is set, with
//! what the server does instead.
//!
//! A setting that is silently ignored is worse than a rejected one: its user assumes that it is in
//! force. [`Configuration::unknown_keys`] covers keys that Evenkeel does not know at all. This
//! module covers known keys without effect, and keys with values that have none.
//!
//! Every known key is in one of three places: it is read, it has an entry in `table.rs`, or it
//! belongs to other components (clients, HDFS, a cluster of several servers). `tests.rs` verifies
//! that against the code: a new key must be put into one of them, and an entry is removed when its
//! key takes effect.

#[cfg(test)]
mod compatibility;
mod table;
#[cfg(test)]
mod tests;

use evenkeel_common::Configuration;

use table::IGNORED;

/// Keys without an effect that share a reason.
struct Ignored {
    keys: &'static [&'static str],
    /// Values that agree with what the server does; of a class name, the part after the last dot.
    equivalent_values: &'static [&'static str],
    /// What the server does, and which setting to use instead.
    instead: &'static str,
}

impl Ignored {
    const fn new(
        keys: &'static [&'static str],
        equivalent_values: &'static [&'static str],
        instead: &'static str,
    ) -> Self {
        Self { keys, equivalent_values, instead }
    }

    fn is_same(&self, value: &str) -> bool {
        let class = value.rsplit('.').next().unwrap_or(value);
        let number = |text: &str| text.parse::<f64>().ok();
        self.equivalent_values.iter().any(|same| match (number(same), number(value)) {
            (Some(same), Some(value)) => same == value,
            _ => same.eq_ignore_ascii_case(value) || *same == class,
        })
    }

    /// Returns those of its keys that are set to a value without an effect, with the value.
    fn set_in(&self, conf: &Configuration) -> impl Iterator<Item = (&'static str, String)> {
        let value = |key| conf.is_set(key).then(|| conf.get_trimmed(key).ok().flatten()).flatten();
        self.keys.iter().filter_map(move |key| Some((*key, value(key).filter(|value| !self.is_same(value))?)))
    }
}

/// Returns the settings whose values have no effect: key, value, and what the server does instead.
pub fn lines(conf: &Configuration) -> Vec<(&'static str, String, &'static str)> {
    let lines = |one: &'static Ignored| one.set_in(conf).map(|(key, value)| (key, value, one.instead));
    IGNORED.iter().flat_map(lines).collect()
}

/// Logs them for a standalone server.
pub fn warn(conf: &Configuration) {
    warn_of(lines(conf));
}

/// Logs them for a RegionServer of a cluster.
pub fn warn_in_cluster(conf: &Configuration) {
    warn_of(lines_in_cluster(conf));
}

/// Settings that have their effect in a RegionServer of a cluster only.
const IN_CLUSTER: [&str; 1] = ["hbase.cluster.distributed"];

/// Returns the settings without an effect for a RegionServer of a cluster.
pub fn lines_in_cluster(conf: &Configuration) -> Vec<(&'static str, String, &'static str)> {
    let mut lines = lines(conf);
    lines.retain(|(key, ..)| !IN_CLUSTER.contains(key));
    lines
}

fn warn_of(lines: Vec<(&'static str, String, &'static str)>) {
    for (key, value, instead) in lines {
        tracing::warn!(key, value, instead, "a setting has no effect");
    }
}
