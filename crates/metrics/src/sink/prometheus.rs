//! The text of `/prometheus`: HBase's names and labels in the format of Prometheus, version 0.0.4.
//!
//! # Names
//! The name of a record and that of a metric, whose first letter is made upper case, are split into
//! words, and the words are joined by `_` in lower case: `Server` and `regionCount` become
//! `server_region_count`. If HBase's name is not valid in Prometheus (it begins with a digit, or is
//! empty), `_` is prepended.
//!
//! # Differences from HBase
//! HBase writes `# HELP` without a name, a `# TYPE` for each sample, and label values without
//! escapes; parsers reject each of these. Here all samples of a name follow one `# TYPE`, no two of
//! them have the same labels, and special characters are escaped. Otherwise the lines and their
//! order are HBase's.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::record::{Aggregate, NamedValue, Record, Value};
use crate::sink::PIECE_BYTES;
use crate::sink::number::push_value;

/// About how many words a name has.
const WORDS: usize = 8;

/// The parameters of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrometheusQuery<'a> {
    /// Selects names that contain this text.
    pub qry: Option<&'a str>,
    /// Whether to write `# HELP`.
    pub description: bool,
}

/// The samples of one name.
struct Family<'a> {
    name: String,
    /// The metric that defines the type and the description.
    first: NamedValue<'a>,
    /// The number of the labels, and the value, of each sample.
    samples: Vec<(usize, Value)>,
}

/// The names of the metrics of many parts, which no other metric has.
struct TableNames {
    /// The beginning of the names of each part.
    prefixes: Vec<String>,
    /// The rest of the name of each metric.
    suffixes: Vec<String>,
}

/// The metrics of many parts that are not written yet.
struct Table {
    /// The number of the aggregate, which is that of its record.
    aggregate: usize,
    labels: String,
    names: TableNames,
    /// The next part to write.
    next: usize,
}

/// What is written, in its order.
enum Item<'a> {
    Family(Family<'a>),
    /// A table, and the number of its labels.
    Table(Table, usize),
}

/// The next piece of the text, or the source of several.
enum Piece {
    Text(String),
    Table(Table),
}

/// The text, in pieces of [`PIECE_BYTES`] or little more. The metrics of parts become text when
/// their piece is needed: the text of 10,000 regions has 80 MB, and is never in memory as a whole.
pub struct PrometheusText {
    pieces: VecDeque<Piece>,
    aggregates: Vec<Option<Aggregate>>,
    wanted: Option<String>,
    has_help: bool,
}

/// All metrics, with the labels of each record.
#[derive(Default)]
struct Samples<'a> {
    items: Vec<Item<'a>>,
    /// The item of each name.
    families: HashMap<String, usize>,
    labels: Vec<String>,
    label_numbers: HashMap<String, usize>,
}

impl PrometheusQuery<'_> {
    /// Returns the text for these records. `hostname` is a label of every sample.
    pub fn answer(&self, mut records: Vec<Record>, hostname: &str) -> PrometheusText {
        records.retain(Record::is_metrics2);
        let mut samples = Samples::default();
        for (aggregate, (record, names)) in records.iter().zip(tables(&records)).enumerate() {
            let labels = samples.number_of_labels(labels_of(record, hostname));
            match names {
                None => samples.add(record, labels, self.qry),
                Some(names) => {
                    let table = Table { aggregate, labels: String::new(), names, next: 0 };
                    samples.items.push(Item::Table(table, labels));
                }
            }
        }
        PrometheusText {
            pieces: samples.pieces(self.description),
            aggregates: records.into_iter().map(|record| record.aggregate).collect(),
            wanted: self.qry.map(str::to_owned),
            has_help: self.description,
        }
    }
}

impl PrometheusText {
    /// Returns about how many bytes of memory the metrics of parts hold.
    pub fn held_bytes(&self) -> usize {
        self.aggregates.iter().flatten().map(Aggregate::bytes).sum()
    }
}

impl Iterator for PrometheusText {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        while let Some(piece) = self.pieces.front_mut() {
            let text = match piece {
                Piece::Text(text) => std::mem::take(text),
                Piece::Table(table) => {
                    let aggregate = self.aggregates.get(table.aggregate).and_then(Option::as_ref);
                    let wanted = self.wanted.as_deref();
                    aggregate.map(|of| table.next_piece(of, wanted, self.has_help)).unwrap_or_default()
                }
            };
            if !text.is_empty() {
                return Some(text);
            }
            if let Some(Piece::Table(table)) = self.pieces.pop_front()
                && let Some(aggregate) = self.aggregates.get_mut(table.aggregate)
            {
                *aggregate = None;
            }
        }
        None
    }
}

impl<'a> Samples<'a> {
    fn number_of_labels(&mut self, labels: String) -> usize {
        let next = self.labels.len();
        let number = *self.label_numbers.entry(labels.clone()).or_insert(next);
        if number == next {
            self.labels.push(labels);
        }
        number
    }

    fn add(&mut self, record: &'a Record, labels: usize, wanted: Option<&str>) {
        for metric in record.all_metrics() {
            let name = prometheus_name(&record.name, &metric.name());
            if wanted.is_some_and(|wanted| !name.contains(wanted)) {
                continue;
            }
            let next = self.items.len();
            let at = *self.families.entry(name.clone()).or_insert(next);
            match self.items.get_mut(at) {
                Some(Item::Family(family)) => family.add(labels, metric.value),
                _ => {
                    let samples = vec![(labels, metric.value)];
                    self.items.push(Item::Family(Family { name, first: metric, samples }));
                }
            }
        }
    }

    /// Returns the text of the families between tables, and the tables.
    fn pieces(self, has_help: bool) -> VecDeque<Piece> {
        let labels = |number: usize| self.labels.get(number).map_or("", String::as_str);
        let mut pieces = VecDeque::new();
        let mut text = String::new();
        for item in self.items {
            match item {
                Item::Family(family) => family.write(labels, has_help, &mut text),
                Item::Table(table, of_table) => {
                    pieces.push_back(Piece::Text(std::mem::take(&mut text)));
                    pieces.push_back(Piece::Table(Table { labels: labels(of_table).to_owned(), ..table }));
                }
            }
        }
        pieces.push_back(Piece::Text(text));
        pieces
    }
}

impl Family<'_> {
    /// Adds a sample, unless one has the same labels.
    fn add(&mut self, labels: usize, value: Value) {
        if self.samples.iter().all(|(known, _)| *known != labels) {
            self.samples.push((labels, value));
        }
    }

    fn write<'l>(&self, labels: impl Fn(usize) -> &'l str, has_help: bool, text: &mut String) {
        let name = [&*self.name];
        write_header(name, self.first.description, self.first.value, has_help, text);
        for (number, value) in &self.samples {
            write_sample(name, labels(*number), *value, text);
        }
    }
}

impl Table {
    /// Returns the text of the next parts; none of them may be wanted.
    fn next_piece(&mut self, aggregate: &Aggregate, wanted: Option<&str>, has_help: bool) -> String {
        let mut text = String::with_capacity(PIECE_BYTES + PIECE_BYTES / 4);
        while text.len() < PIECE_BYTES
            && let (Some(prefix), Some(values)) =
                (self.names.prefixes.get(self.next), aggregate.part(self.next))
        {
            let metrics = self.names.suffixes.iter().zip(aggregate.metrics()).zip(values);
            for ((suffix, (_, description)), value) in metrics {
                let name = [&**prefix, suffix];
                if wanted.is_none_or(|wanted| name.concat().contains(wanted)) {
                    write_header(name, description, *value, has_help, &mut text);
                    write_sample(name, &self.labels, *value, &mut text);
                }
            }
            self.next += 1;
        }
        text
    }
}

/// Returns the names of the table of each record that consists of an aggregate, if no other name
/// begins like the names of a part of it. A server with 10,000 regions has 300,000 of these names,
/// so they are neither created nor compared one by one.
fn tables(records: &[Record]) -> Vec<Option<TableNames>> {
    let mut tables: Vec<_> = records.iter().map(TableNames::of).collect();
    let of_tables = tables.iter().flatten().flat_map(|table| &table.prefixes);
    let mut prefixes: Vec<&str> = of_tables.map(String::as_str).collect();
    prefixes.sort_unstable();
    // In sorted order a text comes directly after one of its prefixes, if the list has any.
    let is_free = prefixes.iter().zip(prefixes.iter().skip(1)).all(|(one, next)| !next.starts_with(one));
    let begins_like_a_part = |name: &str| {
        let before = prefixes.partition_point(|prefix| *prefix <= name).checked_sub(1);
        before.and_then(|at| prefixes.get(at)).is_some_and(|prefix| name.starts_with(prefix))
    };
    let names = records.iter().zip(&tables).filter(|(_, table)| table.is_none());
    let mut names = names.flat_map(|(record, _)| {
        record.all_metrics().map(|metric| prometheus_name(&record.name, &metric.name()))
    });
    if !is_free || names.any(|name| begins_like_a_part(&name)) {
        tables.iter_mut().for_each(|table| *table = None);
    }
    tables
}

impl TableNames {
    /// Returns the names of a record that has only an aggregate, if each name is the prefix of its
    /// part in words, and then the rest in words.
    fn of(record: &Record) -> Option<Self> {
        let aggregate = record.aggregate.as_ref().filter(|_| record.metrics.is_empty())?;
        let name_of = |(prefix, _): (&str, _)| {
            let divided = prefix.strip_suffix('_')?;
            let ends_a_word = divided.ends_with(|c: char| c.is_ascii_alphanumeric());
            ends_a_word.then(|| prometheus_name(&record.name, divided) + "_")
        };
        let prefixes: Vec<String> = aggregate.parts().map(name_of).collect::<Option<_>>()?;
        let suffix_of = |(name, _): &(&str, _)| {
            let is_word = name.starts_with(|c: char| c.is_ascii_alphanumeric());
            is_word.then(|| prometheus_name("", &["_", name].concat()).split_off(1))
        };
        let suffixes: Vec<String> = aggregate.metrics().iter().map(suffix_of).collect::<Option<_>>()?;
        let mut seen = HashSet::new();
        let are_unique = suffixes.iter().all(|suffix| !suffix.is_empty() && seen.insert(suffix));
        are_unique.then_some(Self { prefixes, suffixes })
    }
}

fn write_header<const N: usize>(
    name: [&str; N],
    description: &str,
    value: Value,
    has_help: bool,
    text: &mut String,
) {
    let description = description.trim();
    if has_help && !description.is_empty() {
        text.push_str("# HELP ");
        name.iter().for_each(|part| text.push_str(part));
        for part in [" ", &description.replace('\\', "\\\\").replace('\n', "\\n"), "\n"] {
            text.push_str(part);
        }
    }
    text.push_str("# TYPE ");
    name.iter().for_each(|part| text.push_str(part));
    text.push_str(if matches!(value, Value::Counter(_)) { " counter\n" } else { " gauge\n" });
}

fn write_sample<const N: usize>(name: [&str; N], labels: &str, value: Value, text: &mut String) {
    name.iter().for_each(|part| text.push_str(part));
    for part in ["{", labels, "} "] {
        text.push_str(part);
    }
    push_sample(value, text);
    text.push('\n');
}

fn push_sample(value: Value, text: &mut String) {
    match value {
        Value::Real(real) if real == f64::INFINITY => text.push_str("+Inf"),
        Value::Real(real) if real == f64::NEG_INFINITY => text.push_str("-Inf"),
        value => push_value(value, text),
    }
}

/// Returns the labels of a record: its tags, then the two of every record. The first of equal names
/// wins.
fn labels_of(record: &Record, hostname: &str) -> String {
    let own = record.tags.iter().map(|(name, value)| (&**name, value.as_str()));
    let (mut text, mut seen) = (String::new(), HashSet::new());
    for (name, value) in own.chain([("Context", record.context), ("Hostname", hostname)]) {
        let name = legal_name(name.chars().map(word_char).collect());
        if !seen.insert(name.clone()) {
            continue;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        for part in [comma, &name, "=\"", &value, "\""] {
            text.push_str(part);
        }
    }
    text
}

fn word_char(c: char) -> char {
    if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }
}

/// Prepends `_` to `name` unless its first character is valid there.
fn legal_name(name: String) -> String {
    let is_legal = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if is_legal { name } else { ["_", &name].concat() }
}

/// Returns the name of a metric in Prometheus; see the module's documentation. Letters are ASCII,
/// as in HBase's pattern; other letters separate words.
pub fn prometheus_name(record: &str, metric: &str) -> String {
    let name = with_upper_first(record, metric);
    let mut words = String::with_capacity(name.len() + WORDS);
    // The first byte of a letter that is not ASCII stands for all of it.
    let continues = |byte: &u8| byte & 0xc0 == 0x80;
    let mut before = b' ';
    for (at, byte) in name.bytes().enumerate().filter(|(_, byte)| !continues(byte)) {
        push_byte(byte, before, name.as_bytes().get(at + 1).copied(), &mut words);
        before = byte;
    }
    words.truncate(words.trim_end_matches('_').len());
    legal_name(words)
}

/// Joins a record's name and that of a metric, whose first letter is made upper case.
fn with_upper_first(record: &str, metric: &str) -> String {
    let mut name = String::with_capacity(record.len() + metric.len());
    name.push_str(record);
    name.push_str(metric);
    if let Some(first) = name.get_mut(record.len()..).and_then(|metric| metric.get_mut(..1)) {
        first.make_ascii_uppercase();
    }
    name
}

/// Appends a byte of a name, with `_` before it if it begins a word.
fn push_byte(byte: u8, before: u8, next: Option<u8>, words: &mut String) {
    let is_before_lower = next.is_some_and(|next| next.is_ascii_lowercase());
    let begins_word = byte.is_ascii_uppercase()
        && (before.is_ascii_lowercase() || (before.is_ascii_uppercase() && is_before_lower));
    if begins_word {
        words.push('_');
    }
    // A run of `_` divides once.
    if byte != b'_' || before != b'_' {
        words.push(word_char(char::from(byte)));
    }
}
