//! `describe`: tables and families in the format of HBase's descriptors.
//!
//! A family's attributes are printed in the iteration order of the Java hash map that holds them,
//! which is computed here, so that the lines equal those of the stock shell.

use std::collections::BTreeMap;

use evenkeel_client::TableState;
use evenkeel_client::admin::QuotaFilter;
use evenkeel_common::descriptor::FAMILY_DEFAULTS;
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

use super::{Command, ddl, quotas};
use crate::args::Args;
use crate::error::CommandResult;
use crate::shell::Shell;
use crate::text;
use crate::value::Value;

pub(super) const COMMANDS: &[Command] = &[Command::new(
    "describe",
    (1, 1),
    describe,
    "Prints a table's attributes and families; desc is the same.\n\n  hbase> describe 't1'\n  hbase> desc 'ns1:t1'",
)
.alias(&["desc"])];

/// The family attributes that HBase defines; others are printed as metadata.
const FAMILY_OWN: &[&str] =
    &["ENCRYPTION", "ENCRYPTION_KEY", "IS_MOB", "MOB_THRESHOLD", "MOB_COMPACT_PARTITION_POLICY"];

/// The table attributes that HBase defines, besides coprocessors.
const TABLE_OWN: &[&str] = &[
    "MAX_FILESIZE",
    "READONLY",
    "MEMSTORE_FLUSHSIZE",
    "DURABILITY",
    "REGION_REPLICATION",
    "PRIORITY",
    "ERASURE_CODING_POLICY",
    "IS_META",
];

fn describe(shell: &mut Shell, args: Args) -> CommandResult {
    let name = args.table(0)?;
    let state = ddl::known_state(shell, &name)?;
    let admin = shell.cluster.admin()?;
    let table = shell.wait(admin.describe(&name))?;
    let has_quotas = shell.wait(admin.table_state(&quota_table()))?.is_some();
    let shown = if state == TableState::Enabled { "ENABLED" } else { "DISABLED" };
    shell.out.header(&[&format!("Table {name} is {shown}")])?;
    shell.out.row(&[&format!("{name}{}", table_text(&table))])?;
    shell.out.header(&["COLUMN FAMILIES DESCRIPTION"])?;
    for family in table.families() {
        shell.out.row(&[&family_text(family)])?;
        shell.out.line("")?;
    }
    shell.out.footer(table.families().len())?;
    if !has_quotas {
        shell.out.line("Quota is disabled")?;
    } else if !name.is_meta() {
        let filter = QuotaFilter { table: Some(name.to_string()), ..QuotaFilter::default() };
        quotas::list_of(shell, &filter, &["", "QUOTAS"])?;
    }
    Ok(Value::Nil)
}

/// The table of quotas.
pub(super) fn quota_table() -> TableName {
    TableName::new("hbase", "quota").unwrap_or_else(|_| TableName::meta())
}

/// `, {TABLE_ATTRIBUTES => {...}}`; empty if there are none.
fn table_text(table: &TableDescriptor) -> String {
    let shown = |(key, value): (&Vec<u8>, &Vec<u8>)| {
        let (key, value) = (String::from_utf8_lossy(key).into_owned(), text::binary(value));
        let value =
            if matches!(key.as_str(), "MAX_FILESIZE" | "MEMSTORE_FLUSHSIZE") { size(&value) } else { value };
        (key, value)
    };
    let all: BTreeMap<String, String> = table.attributes().iter().map(shown).collect();
    let is_own = |key: &str| TABLE_OWN.contains(&key) || key.starts_with("coprocessor$");
    let hidden = |key: &str, value: &str| key == "IS_META" && !value.eq_ignore_ascii_case("true");
    let mut parts: Vec<String> = all
        .iter()
        .filter(|(key, value)| is_own(key) && !hidden(key, value))
        .map(|(key, value)| format!("{key} => '{value}'"))
        .collect();
    let others: Vec<String> = all
        .iter()
        .filter(|(key, _)| !is_own(key))
        .map(|(key, value)| format!("'{key}' => '{value}'"))
        .collect();
    if !others.is_empty() {
        parts.push(format!("METADATA => {{{}}}", others.join(", ")));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!(", {{TABLE_ATTRIBUTES => {{{}}}}}", parts.join(", ")),
    }
}

/// `{NAME => 'f', ...}`
fn family_text(family: &ColumnFamilyDescriptor) -> String {
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = FAMILY_DEFAULTS
        .iter()
        .map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect();
    for (key, value) in family.attributes() {
        match entries.iter_mut().find(|(known, _)| known == key) {
            Some(entry) => entry.1 = value.clone(),
            None => entries.push((key.clone(), value.clone())),
        }
    }
    let is_own =
        |key: &str| FAMILY_OWN.contains(&key) || FAMILY_DEFAULTS.iter().any(|(name, _)| *name == key);
    let ordered = java_order(entries, bytes_hash);
    let (mut own, mut others) = (String::new(), Vec::new());
    for (key, value) in &ordered {
        let (key, value) = (String::from_utf8_lossy(key), text::binary(value));
        match is_own(&key) {
            true => own.push_str(&format!(", {key} => '{}'", pretty(&key, &value))),
            false => others.push(format!("'{key}' => '{value}'")),
        }
    }
    if !others.is_empty() {
        own.push_str(&format!(", METADATA => {{{}}}", others.join(", ")));
    }
    let settings: Vec<_> = family
        .configuration()
        .iter()
        .map(|(k, v)| (k.clone().into_bytes(), v.clone().into_bytes()))
        .collect();
    if !settings.is_empty() {
        let ordered = java_order(settings, |bytes| string_hash(&String::from_utf8_lossy(bytes)));
        let shown = |(key, value): &(Vec<u8>, Vec<u8>)| {
            let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
            format!("'{key}' => '{}'", pretty(&key, &value))
        };
        let shown: Vec<_> = ordered.iter().map(shown).collect();
        own.push_str(&format!(", CONFIGURATION => {{{}}}", shown.join(", ")));
    }
    format!("{{NAME => '{}'{own}}}", text::binary(family.name()))
}

fn pretty(key: &str, value: &str) -> String {
    match key {
        "TTL" => time(value),
        "BLOCKSIZE" => size(value),
        _ => value.to_owned(),
    }
}

/// `Bytes.hashCode`
fn bytes_hash(bytes: &[u8]) -> i32 {
    bytes.iter().fold(1, |hash: i32, byte| hash.wrapping_mul(31).wrapping_add(i32::from(*byte as i8)))
}

/// `String.hashCode`
fn string_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// Entries in the iteration order of a `java.util.HashMap` that was copied from another one: by
/// bucket, with a load factor of at most 3/4, and in insertion order within a bucket.
fn java_order(mut entries: Vec<(Vec<u8>, Vec<u8>)>, hash: impl Fn(&[u8]) -> i32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let buckets = (entries.len() * 4 / 3 + 1).next_power_of_two().max(16);
    entries.sort_by_key(|(key, _)| {
        let hash = hash(key) as u32;
        (hash ^ (hash >> 16)) as usize & (buckets - 1)
    });
    entries
}

/// Names in the iteration order of a `java.util.HashMap`.
pub(super) fn java_map_order<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let entries = names.into_iter().map(|name| (name.as_bytes().to_vec(), Vec::new())).collect();
    let ordered = java_order(entries, |name| string_hash(&String::from_utf8_lossy(name)));
    ordered.into_iter().map(|(name, _)| String::from_utf8_lossy(&name).into_owned()).collect()
}

/// A number in units, the largest first: `90061` as `1 DAY 1 HOUR 1 MINUTE 1 SECOND`.
fn in_units(mut number: i64, units: &[(i64, &str)], show: impl Fn(i64, &str) -> String) -> String {
    let mut parts = Vec::new();
    for (unit, name) in units {
        if number >= *unit {
            parts.push(show(number / unit, name));
        }
        number %= unit;
    }
    parts.join(" ")
}

/// Seconds as `PrettyPrinter` prints a time to live.
fn time(value: &str) -> String {
    let Ok(seconds) = value.parse::<i64>() else { return value.to_owned() };
    let plural = |n: i64, unit: &str| format!("{n} {unit}{}", if n == 1 { "" } else { "S" });
    match seconds {
        n if n == i64::from(i32::MAX) => "FOREVER".to_owned(),
        n if n < 60 => plural(n, "SECOND"),
        n => {
            let units = [(86_400, "DAY"), (3_600, "HOUR"), (60, "MINUTE"), (1, "SECOND")];
            // HBase prints the number of minutes as that of the seconds here.
            let minutes = n % 3_600 / 60;
            let show = |n: i64, unit: &str| match unit {
                "SECOND" => format!("{n} SECOND{}", if minutes == 1 { "" } else { "S" }),
                unit => plural(n, unit),
            };
            format!("{n} SECONDS ({})", in_units(n, &units, show))
        }
    }
}

/// Bytes as `PrettyPrinter` prints a size.
fn size(value: &str) -> String {
    let Ok(bytes) = value.parse::<i64>() else { return value.to_owned() };
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let units = [(1 << 40, "TB"), (1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"), (1, "B")];
    format!("{bytes} B ({})", in_units(bytes, &units, |n, unit| format!("{n}{unit}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_reads_as_in_the_stock_shell() {
        let family = ColumnFamilyDescriptor::new(b"g").expect("legal");
        let family = family.with("TTL", "86400").with("BLOOMFILTER", "ROWCOL");
        assert_eq!(
            family_text(&family),
            "{NAME => 'g', INDEX_BLOCK_ENCODING => 'NONE', VERSIONS => '1', KEEP_DELETED_CELLS => 'FALSE', \
             DATA_BLOCK_ENCODING => 'NONE', TTL => '86400 SECONDS (1 DAY)', MIN_VERSIONS => '0', REPLICATION_SCOPE => '0', \
             BLOOMFILTER => 'ROWCOL', IN_MEMORY => 'false', COMPRESSION => 'NONE', BLOCKCACHE => 'true', \
             BLOCKSIZE => '65536 B (64KB)'}"
        );
    }

    #[test]
    fn a_table_reads_as_in_the_stock_shell() {
        let table = TableDescriptor::new("t".parse().expect("legal"));
        assert_eq!(table_text(&table), "");
        let table = table.with("MAX_FILESIZE", "134217728").with("a.b", "c");
        assert_eq!(
            table_text(&table),
            ", {TABLE_ATTRIBUTES => {MAX_FILESIZE => '134217728 B (128MB)', METADATA => {'a.b' => 'c'}}}"
        );
    }

    #[test]
    fn names_stand_in_the_order_of_a_java_map() {
        // FirstKeyOnlyFilter and ColumnRangeFilter share a bucket, so insertion order decides.
        let shown = java_map_order(evenkeel_client::filter::supported().iter().copied());
        assert_eq!(shown[..3], ["DependentColumnFilter", "KeyOnlyFilter", "ColumnCountGetFilter"]);
        let at = |name: &str| shown.iter().position(|shown| shown == name).expect("it is supported");
        assert_eq!(at("FirstKeyOnlyFilter") + 1, at("ColumnRangeFilter"));
    }

    #[test]
    fn times_and_sizes_are_spelt_out() {
        assert_eq!(
            (time("59"), time("1"), time("2147483647")),
            ("59 SECONDS".into(), "1 SECOND".into(), "FOREVER".into())
        );
        assert_eq!(time("93784"), "93784 SECONDS (1 DAY 2 HOURS 3 MINUTES 4 SECONDS)");
        assert_eq!((size("1"), size("1025")), ("1 B".into(), "1025 B (1KB 1B)".into()));
    }
}
