//! Every known key is in its place, and settings without an effect are named.

use std::collections::BTreeSet;
use std::path::Path;

use evenkeel_common::config::defaults::{DEFAULTS, is_known};

use super::table::{KEYS_BY_PREFIX, KEYS_OF_OTHER_COMPONENTS};
use super::*;

#[test]
fn settings_without_effect_are_named() {
    let mut conf = Configuration::new();
    assert_eq!(lines(&conf), []);
    conf.set("hbase.wal.provider", "asyncfs");
    conf.set("hbase.regionserver.flush.policy", "org.apache.hadoop.hbase.regionserver.FlushAllStoresPolicy");
    assert_eq!(lines(&conf), []);
    conf.set("hbase.wal.provider", "multiwal");
    conf.set("hbase.hstore.blockingWaitTime", "5");
    conf.set("hbase.regionserver.flush.policy", "org.example.MyFlushPolicy");
    let keys: Vec<_> = lines(&conf).iter().map(|(key, value, _)| format!("{key} {value}")).collect();
    let policy = "hbase.regionserver.flush.policy org.example.MyFlushPolicy";
    assert_eq!(keys, [policy, "hbase.hstore.blockingWaitTime 5", "hbase.wal.provider multiwal"]);

    let mut conf = Configuration::new();
    conf.set("hbase.hfile.prefetch.delay.variation", "1.0");
    conf.set("hbase.regionserver.handler.abort.on.error.percent", "-1.0");
    let keys: Vec<_> = lines(&conf).iter().map(|(key, ..)| *key).collect();
    assert_eq!(keys, ["hbase.hfile.prefetch.delay.variation"], "numbers are compared as numbers");
}

#[test]
fn cluster_mode_omits_the_standalone_warnings() {
    let mut conf = Configuration::new();
    conf.set("hbase.cluster.distributed", "true");
    conf.set("hbase.regionserver.rpc.startup.waittime", "5");
    let standalone: Vec<_> = lines(&conf).iter().map(|(key, ..)| *key).collect();
    let cluster: Vec<_> = lines_in_cluster(&conf).iter().map(|(key, ..)| *key).collect();
    assert_eq!(standalone, ["hbase.cluster.distributed", "hbase.regionserver.rpc.startup.waittime"]);
    assert_eq!(cluster, ["hbase.regionserver.rpc.startup.waittime"]);
}

#[test]
fn keys_without_an_effect_are_known_and_listed_once() {
    let mut conf = Configuration::new();
    let keys: Vec<_> = IGNORED.iter().flat_map(|ignored| ignored.keys).collect();
    keys.iter().for_each(|key| conf.set(**key, "unheard of"));
    assert_eq!(conf.unknown_keys(), [""; 0], "a key that is not known is named by another line already");
    assert_eq!(lines(&conf).len(), keys.len());
    assert_eq!(conf.set_properties().len(), keys.len());
}

/// Returns the quoted strings in the code of all crates that look like keys, without tests, the
/// list of defaults and the tables here.
fn quoted_in_the_code() -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut quoted = BTreeSet::new();
    for entry in std::fs::read_dir(crates).expect("the crates") {
        collect(&entry.expect("a crate").path().join("src"), &mut quoted);
    }
    quoted
}

fn collect(dir: &Path, quoted: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        let is_apart =
            ["tests", "tests.rs", "testing.rs", "ignored_settings", "ignored_settings.rs", "defaults.rs"];
        if is_apart.contains(&name) || name.ends_with("_tests.rs") {
            continue;
        }
        if path.is_dir() {
            collect(&path, quoted);
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(&path).expect("read");
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            quoted.extend(lines.flat_map(keys_of).map(str::to_owned));
        }
    }
}

/// Returns the quoted strings of a line that look like keys; for a composed name, the part before
/// the first brace.
fn keys_of(line: &str) -> impl Iterator<Item = &str> {
    let is_of_keys = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    line.split('"')
        .skip(1)
        .map(move |text| text.split('{').next().unwrap_or(text))
        .filter(move |text| text.contains('.') && text.chars().all(is_of_keys))
}

/// Strings that look like keys of settings and are none.
const NO_SETTINGS: [&str; 10] = [
    // Files of the root directory.
    "hbase.id",
    "hbase.version",
    // The package of HBase's messages.
    "hbase.pb.",
    // Attributes of a scan.
    "hbase.mob.cache.blocks",
    "hbase.mob.scan.raw",
    "hbase.mob.scan.ref.only",
    // An entry of the master's reply to a RegionServer that starts.
    "hbase.regionserver.hostname.seen.by.master",
    // Properties of namespaces.
    "hbase.namespace.quota.maxregions",
    "hbase.namespace.quota.maxtables",
    // A setting of a client.
    "hbase.shell.timestamp.format.epoch",
];

/// Attributes of tables and families. A server's settings with these names have no effect.
const ATTRIBUTES: [&str; 2] =
    ["hbase.store.file-tracker.migration.src.impl", "hbase.store.file-tracker.migration.dst.impl"];

#[test]
fn every_key_that_is_read_is_known() {
    let is_key = |text: &&String| ["hbase.", "evenkeel."].iter().any(|start| text.starts_with(start));
    let is_composed = |text: &str| {
        KEYS_BY_PREFIX.iter().any(|(begins, _)| *begins == text)
            || DEFAULTS.iter().any(|(key, _)| key.starts_with(text))
    };
    let unknown: Vec<_> = quoted_in_the_code()
        .iter()
        .filter(is_key)
        .filter(|key| !NO_SETTINGS.contains(&key.as_str()) && !is_known(key) && !is_composed(key))
        .cloned()
        .collect();
    assert_eq!(unknown, [""; 0], "a user who sets it would be told that it is ignored");
}

#[test]
fn every_known_key_is_read_or_listed() {
    let quoted = quoted_in_the_code();
    for (begins, _) in KEYS_BY_PREFIX {
        assert!(quoted.contains(*begins), "no code puts a key together from {begins}");
    }
    let composed: BTreeSet<_> = KEYS_BY_PREFIX
        .iter()
        .flat_map(|(begins, ends)| ends.iter().map(move |end| format!("{begins}{end}")))
        .collect();
    let others: BTreeSet<_> = KEYS_OF_OTHER_COMPONENTS.iter().flat_map(|(_, keys)| *keys).copied().collect();
    for key in composed.iter().map(String::as_str).chain(others.iter().copied()) {
        assert!(DEFAULTS.iter().any(|(known, _)| *known == key), "{key} is not a known key");
    }
    let mut misplaced = Vec::new();
    for (key, _) in DEFAULTS {
        let is_quoted = quoted.contains(*key) && !ATTRIBUTES.contains(key);
        let is_read = is_quoted || composed.contains(*key);
        let ignored = IGNORED.iter().find(|ignored| ignored.keys.contains(key));
        // Some values of a key that is read may have no effect.
        let is_named = ignored.is_some_and(|ignored| !is_read || !ignored.equivalent_values.is_empty());
        let is_misnamed = ignored.is_some() && !is_named;
        let places = usize::from(is_read || is_named) + usize::from(others.contains(key));
        if places != 1 || is_misnamed {
            misplaced.push(*key);
        }
    }
    assert_eq!(misplaced, [""; 0], "each is read, or has a line in table.rs, or is of others: one of these");
}
