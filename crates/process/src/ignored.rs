//! Settings of HBase that have no effect here: each that is set is named in the log once, at start,
//! with what is done instead.
//!
//! A setting that nobody reads is worse than one that is refused: its user takes it to be in force.
//! A key that Evenkeel does not know at all is named by [`Configuration::unknown_keys`]; here are
//! those that it knows and does not obey, or of which it obeys some values only.
//!
//! Every known key is in one of three places: it is read, it has a line in `table.rs`, or it
//! belongs to others (clients, HDFS, a cluster of several servers). `tests.rs` holds that against
//! the code, so that a new key must be put somewhere, and a line goes when its key comes into
//! force.

mod table;
#[cfg(test)]
mod tests;

use evenkeel_common::Configuration;

use table::IGNORED;

/// Keys without an effect, for one reason.
struct Ignored {
    keys: &'static [&'static str],
    /// Values that ask for what is done anyway; of a class name, the part behind the last dot.
    same: &'static [&'static str],
    /// What is done, and what to set in its place.
    instead: &'static str,
}

impl Ignored {
    const fn new(
        keys: &'static [&'static str],
        same: &'static [&'static str],
        instead: &'static str,
    ) -> Self {
        Self { keys, same, instead }
    }

    fn is_same(&self, value: &str) -> bool {
        let class = value.rsplit('.').next().unwrap_or(value);
        let number = |text: &str| text.parse::<f64>().ok();
        self.same.iter().any(|same| match (number(same), number(value)) {
            (Some(same), Some(value)) => same == value,
            _ => same.eq_ignore_ascii_case(value) || *same == class,
        })
    }

    /// Those of its keys that are set to something that has no effect, with the value.
    fn set_in(&self, conf: &Configuration) -> impl Iterator<Item = (&'static str, String)> {
        let value = |key| conf.is_set(key).then(|| conf.get_trimmed(key).ok().flatten()).flatten();
        self.keys.iter().filter_map(move |key| Some((*key, value(key).filter(|value| !self.is_same(value))?)))
    }
}

/// The settings that are set to something that has no effect: key, value, and what is done instead.
pub fn lines(conf: &Configuration) -> Vec<(&'static str, String, &'static str)> {
    let lines_of =
        |ignored: &'static Ignored| ignored.set_in(conf).map(|(key, value)| (key, value, ignored.instead));
    IGNORED.iter().flat_map(lines_of).collect()
}

/// Names them in the log of a standalone server.
pub fn warn(conf: &Configuration) {
    warn_of(lines(conf));
}

/// Names them in the log of a RegionServer of a cluster.
pub fn warn_in_cluster(conf: &Configuration) {
    warn_of(lines_in_cluster(conf));
}

/// The settings that are set and have no effect in a RegionServer of a cluster: it does what
/// `hbase.cluster.distributed` asks for.
fn lines_in_cluster(conf: &Configuration) -> Vec<(&'static str, String, &'static str)> {
    let mut lines = lines(conf);
    lines.retain(|(key, ..)| *key != "hbase.cluster.distributed");
    lines
}

fn warn_of(lines: Vec<(&'static str, String, &'static str)>) {
    for (key, value, instead) in lines {
        tracing::warn!(key, value, instead, "a setting has no effect");
    }
}
