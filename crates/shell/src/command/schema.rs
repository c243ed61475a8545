//! Builds descriptors of tables and families from options.

use evenkeel_common::descriptor::{Attributes, FAMILY_DEFAULTS, TTL_FOREVER};
use evenkeel_common::length;
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor};

use crate::args;
use crate::error::{CommandResult, RubyError};
use crate::output::Output;
use crate::text;
use crate::value::{Hash, Value};

/// The type of an attribute: how its value is checked and stored.
enum AttributeType {
    Flag,
    Number,
    /// Seconds, or a time such as `1 DAY 2 HOURS`.
    Time,
    /// Bytes, or a size such as `128 MB`.
    Size,
    /// One of these names, in upper or lower case.
    OneOf(&'static [&'static str]),
    Text,
}

const COMPRESSIONS: &[&str] = &["LZO", "GZ", "NONE", "SNAPPY", "LZ4", "BZIP2", "ZSTD", "LZMA", "BROTLI"];
const BLOOM_TYPES: &[&str] = &["NONE", "ROW", "ROWCOL", "ROWPREFIX_FIXED_LENGTH"];
const ENCODINGS: &[&str] = &["NONE", "PREFIX", "DIFF", "FAST_DIFF", "ROW_INDEX_V1"];
const INDEX_ENCODINGS: &[&str] = &["NONE", "PREFIX_TREE"];
const KEEP_DELETED: &[&str] = &["FALSE", "TRUE", "TTL"];
const MEMORY_COMPACTIONS: &[&str] = &["NONE", "BASIC", "EAGER", "ADAPTIVE"];
const DURABILITIES: &[&str] = &["USE_DEFAULT", "SKIP_WAL", "ASYNC_WAL", "SYNC_WAL", "FSYNC_WAL"];

const FAMILY_ATTRIBUTES: &[(&str, AttributeType)] = &[
    ("BLOCKCACHE", AttributeType::Flag),
    ("REPLICATION_SCOPE", AttributeType::Number),
    ("CACHE_DATA_ON_WRITE", AttributeType::Flag),
    ("CACHE_INDEX_ON_WRITE", AttributeType::Flag),
    ("CACHE_BLOOMS_ON_WRITE", AttributeType::Flag),
    ("EVICT_BLOCKS_ON_CLOSE", AttributeType::Flag),
    ("IN_MEMORY", AttributeType::Flag),
    ("IN_MEMORY_COMPACTION", AttributeType::OneOf(MEMORY_COMPACTIONS)),
    ("TTL", AttributeType::Time),
    ("DATA_BLOCK_ENCODING", AttributeType::OneOf(ENCODINGS)),
    ("INDEX_BLOCK_ENCODING", AttributeType::OneOf(INDEX_ENCODINGS)),
    ("BLOCKSIZE", AttributeType::Size),
    ("VERSIONS", AttributeType::Number),
    ("MIN_VERSIONS", AttributeType::Number),
    ("KEEP_DELETED_CELLS", AttributeType::OneOf(KEEP_DELETED)),
    ("COMPRESS_TAGS", AttributeType::Flag),
    ("PREFETCH_BLOCKS_ON_OPEN", AttributeType::Flag),
    ("IS_MOB", AttributeType::Flag),
    ("MOB_THRESHOLD", AttributeType::Number),
    ("MOB_COMPACT_PARTITION_POLICY", AttributeType::OneOf(&["DAILY", "WEEKLY", "MONTHLY"])),
    ("NEW_VERSION_BEHAVIOR", AttributeType::Flag),
    ("BLOOMFILTER", AttributeType::OneOf(BLOOM_TYPES)),
    ("COMPRESSION", AttributeType::OneOf(COMPRESSIONS)),
    ("COMPRESSION_COMPACT", AttributeType::OneOf(COMPRESSIONS)),
    ("COMPRESSION_COMPACT_MAJOR", AttributeType::OneOf(COMPRESSIONS)),
    ("COMPRESSION_COMPACT_MINOR", AttributeType::OneOf(COMPRESSIONS)),
    ("STORAGE_POLICY", AttributeType::Text),
    ("DFS_REPLICATION", AttributeType::Number),
];

const TABLE_ATTRIBUTES: &[(&str, AttributeType)] = &[
    ("OWNER", AttributeType::Text),
    ("MAX_FILESIZE", AttributeType::Size),
    ("READONLY", AttributeType::Flag),
    ("COMPACTION_ENABLED", AttributeType::Flag),
    ("SPLIT_ENABLED", AttributeType::Flag),
    ("MERGE_ENABLED", AttributeType::Flag),
    ("NORMALIZATION_ENABLED", AttributeType::Flag),
    ("NORMALIZER_TARGET_REGION_COUNT", AttributeType::Number),
    ("NORMALIZER_TARGET_REGION_SIZE", AttributeType::Number),
    ("MEMSTORE_FLUSHSIZE", AttributeType::Size),
    ("DURABILITY", AttributeType::OneOf(DURABILITIES)),
    ("PRIORITY", AttributeType::Number),
    ("FLUSH_POLICY", AttributeType::Text),
    ("REGION_MEMSTORE_REPLICATION", AttributeType::Flag),
    ("SPLIT_POLICY", AttributeType::Text),
    ("REGION_REPLICATION", AttributeType::Number),
    ("ERASURE_CODING_POLICY", AttributeType::Text),
];

/// The names of all attributes.
#[cfg(test)]
pub(super) fn attributes() -> impl Iterator<Item = &'static str> {
    FAMILY_ATTRIBUTES.iter().chain(TABLE_ATTRIBUTES).map(|(name, _)| *name)
}

impl AttributeType {
    /// A value as it is stored.
    fn write(&self, name: &str, value: &Value) -> CommandResult<String> {
        let given = value.to_text();
        match self {
            Self::Flag => Ok(args::flag(value).to_string()),
            Self::Number => Ok(args::number(name, value)?.to_string()),
            Self::Time => seconds(&given).map(|n| n.to_string()).ok_or_else(|| unusable(name, &given)),
            Self::Size => bytes(&given).map(|n| n.to_string()).ok_or_else(|| unusable(name, &given)),
            Self::OneOf(all) => {
                let upper = given.to_uppercase();
                let found = all.iter().find(|one| **one == upper).map(|one| (*one).to_owned());
                found.ok_or_else(|| not_one_of(name, &upper, all))
            }
            Self::Text => Ok(given),
        }
    }
}

fn unusable(name: &str, value: &str) -> crate::error::CommandError {
    RubyError::argument(format!("{name} cannot be {value:?}")).into()
}

fn not_one_of(name: &str, value: &str, all: &[&str]) -> crate::error::CommandError {
    let what = match name {
        "BLOOMFILTER" => "BloomFilter type",
        "COMPRESSION" | "COMPRESSION_COMPACT" => "Compression",
        other => other,
    };
    RubyError::argument(format!("{what} {value} is not supported. Use one of {}", all.join(" "))).into()
}

/// Parses seconds: `FOREVER`, a number, or parts such as `1 DAY 2 HOURS`; also in the format of
/// `describe`: `90000 SECONDS (1 DAY 1 HOUR)`.
fn seconds(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("FOREVER") {
        return Some(i64::from(TTL_FOREVER));
    }
    parts(text, |unit| match unit.trim_end_matches('S') {
        "DAY" => Some(86_400),
        "HOUR" => Some(3_600),
        "MINUTE" => Some(60),
        "SECOND" => Some(1),
        _ => None,
    })
}

/// Parses bytes: a number, or parts such as `1GB 512MB`; also in the format of `describe`.
fn bytes(text: &str) -> Option<i64> {
    parts(text, |unit| match unit {
        "TB" | "T" => Some(1 << 40),
        "GB" | "G" => Some(1 << 30),
        "MB" | "M" => Some(1 << 20),
        "KB" | "K" => Some(1 << 10),
        "B" => Some(1),
        _ => None,
    })
}

/// Parses an integer or a sum of numbers with units. Text in parentheses repeats the value and must
/// agree.
fn parts(text: &str, unit: impl Fn(&str) -> Option<i64>) -> Option<i64> {
    let upper = text.trim().to_uppercase();
    if let Ok(number) = upper.parse() {
        return Some(number);
    }
    if let Some((outer, inner)) = upper.strip_suffix(')').and_then(|rest| rest.split_once('(')) {
        let (outer, inner) = (sum(outer, &unit)?, sum(inner, &unit)?);
        return (outer == inner).then_some(outer);
    }
    sum(&upper, &unit)
}

fn sum(text: &str, unit: &impl Fn(&str) -> Option<i64>) -> Option<i64> {
    let mut rest = text.trim();
    let mut total: Option<i64> = None;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let amount = number.checked_mul(unit(&rest[..letters])?)?;
        total = Some(total.unwrap_or(0).checked_add(amount)?);
        rest = rest[letters..].trim_start();
    }
    total
}

/// Builds a family from a name, or from options with `NAME`; `old` is the current family. Warns of
/// unknown options.
pub fn family(
    out: &mut Output,
    arg: &Value,
    old: Option<&ColumnFamilyDescriptor>,
) -> CommandResult<ColumnFamilyDescriptor> {
    let Value::Hash(options) = arg else { return default_family(&arg.to_bytes()) };
    let mut options = options.clone();
    let name = options.take("NAME").unwrap_or_default().to_bytes();
    let base = old.cloned().map_or_else(|| default_family(&name), Ok)?;
    let mut attributes = base.attributes().clone();
    let mut configuration = base.configuration().clone();
    set_known(&mut attributes, &mut options, FAMILY_ATTRIBUTES)?;
    for (key, value) in pairs(&mut options, "METADATA")? {
        set(&mut attributes, &key, value);
    }
    for (key, value) in pairs(&mut options, "CONFIGURATION")? {
        match value {
            Some(value) => drop(configuration.insert(key, value)),
            None => drop(configuration.remove(&key)),
        }
    }
    for (key, _) in options.pairs() {
        let name = String::from_utf8_lossy(&name);
        out.line(format!("Unknown argument ignored for column family {name}: {}", key.to_text()))?;
    }
    Ok(ColumnFamilyDescriptor::from_parts(name, attributes, configuration)?)
}

/// A family with the attributes that are always set.
fn default_family(name: &[u8]) -> CommandResult<ColumnFamilyDescriptor> {
    let family = ColumnFamilyDescriptor::new(name)?;
    Ok(FAMILY_DEFAULTS.iter().fold(family, |family, (key, value)| family.with(key, value)))
}

fn set_known(
    attributes: &mut Attributes,
    options: &mut Hash,
    known: &[(&str, AttributeType)],
) -> CommandResult<()> {
    for (name, form) in known {
        if let Some(value) = options.take(name) {
            set(attributes, name, Some(form.write(name, &value)?));
        }
    }
    Ok(())
}

fn set(attributes: &mut Attributes, key: &str, value: Option<String>) {
    match value {
        Some(value) => drop(attributes.insert(key.into(), value.into())),
        None => drop(attributes.remove(key.as_bytes())),
    }
}

/// The pairs of an option that is a hash; the value `nil` removes an entry.
fn pairs(options: &mut Hash, name: &str) -> CommandResult<Vec<(String, Option<String>)>> {
    match options.take(name) {
        None | Some(Value::Nil) => Ok(Vec::new()),
        Some(Value::Hash(hash)) => {
            let value = |value: &Value| (*value != Value::Nil).then(|| value.to_text());
            Ok(hash.pairs().iter().map(|(key, v)| (key.to_text(), value(v))).collect())
        }
        Some(_) => Err(RubyError::argument(format!("{name} must be a Hash type")).into()),
    }
}

/// Removes the options that concern the table as a whole, and applies them.
pub fn table_attributes(table: TableDescriptor, options: &mut Hash) -> CommandResult<TableDescriptor> {
    let mut attributes = table.attributes().clone();
    set_known(&mut attributes, options, TABLE_ATTRIBUTES)?;
    for name in ["METADATA", "CONFIGURATION"] {
        for (key, value) in pairs(options, name)? {
            set(&mut attributes, &key, value);
        }
    }
    Ok(table.with_attributes(attributes))
}

/// Removes the options for split keys and returns the keys; `None` if there are none.
pub fn splits(options: &mut Hash) -> CommandResult<Option<Vec<Vec<u8>>>> {
    if let Some(file) = options.take("SPLITS_FILE") {
        let path = file.to_text();
        let text = std::fs::read(&path)
            .map_err(|_| RubyError::argument(format!("Splits file {path} doesn't exist")))?;
        let lines = text.strip_suffix(b"\n").unwrap_or(&text).split(|byte| *byte == b'\n');
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        return Ok(Some(lines.map(text::from_binary).collect()));
    }
    if let Some(splits) = options.take("SPLITS") {
        let Value::Array(splits) = splits else {
            return Err(RubyError::argument("SPLITS must be an Array").into());
        };
        return Ok(Some(splits.iter().map(|split| text::from_binary(&split.to_bytes())).collect()));
    }
    let (regions, algorithm) = (options.take("NUMREGIONS"), options.take("SPLITALGO"));
    let missing = |what: &str| RubyError::argument(format!("{what} must be specified"));
    match (regions, algorithm) {
        (None, None) => Ok(None),
        (None, _) => Err(missing("Number of regions").into()),
        (_, None) => Err(missing("Split algorithm").into()),
        (Some(regions), Some(algorithm)) => {
            let regions = args::number("NUMREGIONS", &regions)?;
            if !(2..=1_000_000).contains(&regions) {
                return Err(RubyError::argument("Number of regions must be greater than 1").into());
            }
            even_splits(regions as u128, &algorithm.to_text()).map(Some)
        }
    }
}

/// The algorithms of `RegionSplitter`, which divide the key space evenly.
fn even_splits(regions: u128, algorithm: &str) -> CommandResult<Vec<Vec<u8>>> {
    let name = algorithm.rsplit('.').next().unwrap_or(algorithm);
    let keys =
        |space: u128, key: fn(u128) -> Vec<u8>| (1..regions).map(|i| key(space / regions * i)).collect();
    Ok(match name {
        "HexStringSplit" => keys(1 << 32, |n| format!("{n:08x}").into_bytes()),
        "DecimalStringSplit" => keys(100_000_000, |n| format!("{n:08}").into_bytes()),
        "UniformSplit" => keys(1 << 64, |n| length::low_u64(n).to_be_bytes().to_vec()),
        other => {
            let known = "HexStringSplit, DecimalStringSplit and UniformSplit";
            return Err(
                RubyError::argument(format!("unknown split algorithm {other}; known are {known}")).into()
            );
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, Value)]) -> Hash {
        pairs.iter().map(|(key, value)| (Value::text(key), value.clone())).collect()
    }

    #[test]
    fn times_and_sizes_are_read_as_they_are_shown() {
        assert_eq!(seconds("FOREVER"), Some(2_147_483_647));
        assert_eq!(seconds("90000 SECONDS (1 DAY 1 HOUR)"), Some(90_000));
        assert_eq!(seconds("1 day 2 minutes"), Some(86_520));
        assert_eq!((seconds("100 SECONDS (1 DAY)"), seconds("soon"), seconds("")), (None, None, None));
        assert_eq!(
            (bytes("128MB"), bytes("134217728 B (128MB)"), bytes("7")),
            (Some(128 << 20), Some(128 << 20), Some(7))
        );
        assert_eq!(bytes("99999999999999999999 TB"), None);
    }

    #[test]
    fn key_spaces_are_split_as_region_splitter_does() {
        let hex = even_splits(4, "HexStringSplit").expect("known");
        assert_eq!(hex, [b"40000000", b"80000000", b"c0000000"]);
        let uniform =
            even_splits(3, "org.apache.hadoop.hbase.util.RegionSplitter.UniformSplit").expect("known");
        assert_eq!(uniform, [[0x55; 8], [0xaa; 8]]);
        assert_eq!(even_splits(10, "DecimalStringSplit").expect("known")[0], b"10000000");
        assert!(even_splits(2, "Other").is_err());
    }

    #[test]
    fn families_of_options() {
        let mut out = Output::to(std::io::sink());
        let arg = options(&[
            ("NAME", Value::text("f")),
            ("VERSIONS", Value::text("3")),
            ("TTL", Value::text("1 DAY")),
            ("BLOOMFILTER", Value::text("rowcol")),
            ("CONFIGURATION", Value::Hash(options(&[("a", Value::Int(1))]))),
        ]);
        let family = family(&mut out, &Value::Hash(arg), None).expect("legal");
        assert_eq!((family.text("VERSIONS"), family.text("TTL")), (Some("3"), Some("86400")));
        assert_eq!((family.text("BLOOMFILTER"), family.text("BLOCKSIZE")), (Some("ROWCOL"), Some("65536")));
        assert_eq!(family.configuration()["a"], "1");
        let wrong = options(&[("NAME", Value::text("f")), ("COMPRESSION", Value::text("x"))]);
        assert!(super::family(&mut out, &Value::Hash(wrong), None).is_err());
    }
}
