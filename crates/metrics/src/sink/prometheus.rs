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

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use foldhash::fast::RandomState;

use crate::record::{Metric, Record, Value};
use crate::sink::number::push_value;

/// Bytes that a sample takes beside its names and labels, about.
const SAMPLE_BYTES: usize = 40;

/// The parameters of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrometheusQuery<'a> {
    /// Selects names that contain this text.
    pub qry: Option<&'a str>,
    /// Whether to write `# HELP`.
    pub description: bool,
}

/// One metric of a record that is shown.
struct Named<'a> {
    /// Its name, in the text of all names.
    name: Range<usize>,
    metric: &'a Metric,
    /// The number of its record's labels.
    labels: usize,
}

/// The samples of one name: the first, which defines the type of the name, and those of other
/// records.
struct Family<'a> {
    first: Named<'a>,
    others: Vec<(usize, Value)>,
}

/// All metrics, with the labels of each record.
///
/// A server with 10,000 regions has 300,000 of them. So names are parts of one text, and each is
/// made of the name before it.
#[derive(Default)]
struct Samples<'a> {
    named: Vec<Named<'a>>,
    names: String,
    labels: Vec<String>,
    label_numbers: HashMap<String, usize>,
}

impl PrometheusQuery<'_> {
    /// Returns the text for these records. `hostname` is a label of every sample.
    pub fn answer(&self, records: &[Record], hostname: &str) -> String {
        let mut samples = Samples::default();
        for record in records.iter().filter(|record| record.is_metrics2()) {
            let labels = samples.number_of_labels(labels_of(record, hostname));
            samples.add(record, labels, self.qry);
        }
        samples.text(self.description)
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
        let mut words = Words::of(&record.name);
        self.named.reserve(record.metrics.len());
        for metric in &record.metrics {
            let start = self.names.len();
            words.append_name(&metric.name, &mut self.names);
            let name = start..self.names.len();
            let is_wanted = |wanted: &str| self.names.get(name.clone()).is_some_and(|n| n.contains(wanted));
            if wanted.is_none_or(is_wanted) {
                self.named.push(Named { name, metric, labels });
            }
        }
    }

    fn text(self, has_help: bool) -> String {
        let Self { named, names, labels, .. } = self;
        let text_of = |name: &Range<usize>| names.get(name.clone()).unwrap_or("");
        let families = families(named, text_of);
        let longest = labels.iter().map(String::len).max().unwrap_or(0);
        let mut text = String::with_capacity(2 * names.len() + families.len() * (longest + SAMPLE_BYTES));
        for Family { first, others } in &families {
            let name = text_of(&first.name);
            write_header(name, first.metric, has_help, &mut text);
            let all = [(first.labels, first.metric.value)];
            for (number, value) in all.iter().chain(others) {
                let labels = labels.get(*number).map_or("", String::as_str);
                for part in [name, "{", labels, "} "] {
                    text.push_str(part);
                }
                push_sample(*value, &mut text);
                text.push('\n');
            }
        }
        text
    }
}

/// Metrics by name, in the order of the first of each.
fn families<'a, 'n>(named: Vec<Named<'a>>, text_of: impl Fn(&Range<usize>) -> &'n str) -> Vec<Family<'a>> {
    let mut families: Vec<Family<'a>> = Vec::with_capacity(named.len());
    let mut numbers = HashMap::with_capacity_and_hasher(named.len(), RandomState::default());
    for one in named {
        let next = families.len();
        let number = *numbers.entry(text_of(&one.name)).or_insert(next);
        // A name has as many samples as records have it: one, mostly.
        match families.get_mut(number) {
            None => families.push(Family { first: one, others: Vec::new() }),
            Some(family) if family.has(one.labels) => {}
            Some(family) => family.others.push((one.labels, one.metric.value)),
        }
    }
    families
}

impl Family<'_> {
    fn has(&self, labels: usize) -> bool {
        self.first.labels == labels || self.others.iter().any(|(known, _)| *known == labels)
    }
}

fn write_header(name: &str, metric: &Metric, has_help: bool, text: &mut String) {
    let description = metric.description.trim();
    if has_help && !description.is_empty() {
        let help = description.replace('\\', "\\\\").replace('\n', "\\n");
        for part in ["# HELP ", name, " ", &help, "\n"] {
            text.push_str(part);
        }
    }
    let kind = if matches!(metric.value, Value::Counter(_)) { "counter" } else { "gauge" };
    for part in ["# TYPE ", name, " ", kind, "\n"] {
        text.push_str(part);
    }
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
    if is_legal { name } else { format!("_{name}") }
}

/// Returns the name of a metric in Prometheus; see the module's documentation. Letters are ASCII,
/// as in HBase's pattern; other letters separate words.
pub fn prometheus_name(record: &str, metric: &str) -> String {
    let mut name = String::new();
    Words::of(record).append_name(metric, &mut name);
    name
}

/// Creates the names of a record's metrics. Neighbours share a prefix, the name of a region, so
/// only the rest is split into words again.
struct Words {
    /// The bytes of the record's name.
    record_bytes: usize,
    /// The name before, as HBase writes it: the record's and the metric's.
    bytes: Vec<u8>,
    /// The same in words.
    words: String,
    /// For each of these bytes: the length of the words before it.
    lengths: Vec<usize>,
}

impl Words {
    fn of(record: &str) -> Self {
        let bytes = record.as_bytes().to_vec();
        Self { record_bytes: bytes.len(), bytes, words: String::new(), lengths: Vec::new() }
    }

    fn append_name(&mut self, metric: &str, names: &mut String) {
        self.set(metric);
        let name = self.words.trim_end_matches('_');
        if !name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') {
            names.push('_');
        }
        names.push_str(name);
    }

    fn set(&mut self, metric: &str) {
        let old = self.bytes.get(self.record_bytes..).unwrap_or_default();
        let Some((first, rest)) = metric.as_bytes().split_first() else { return self.clear_metric() };
        let first = first.to_ascii_uppercase();
        let alike = match old.split_first() {
            Some((old_first, old_rest)) if *old_first == first => 1 + common_prefix(old_rest, rest),
            _ => 0,
        };
        let alike = self.record_bytes + alike;
        self.bytes.truncate(alike);
        if alike == self.record_bytes {
            self.bytes.push(first);
        }
        self.bytes
            .extend_from_slice(rest.get(self.bytes.len() - self.record_bytes - 1..).unwrap_or_default());
        // The encoding of a byte depends on the next one, too.
        self.divide(alike.saturating_sub(1).min(self.lengths.len()));
    }

    /// Sets the name to that of the record.
    fn clear_metric(&mut self) {
        self.bytes.truncate(self.record_bytes);
        self.divide(self.record_bytes.saturating_sub(1).min(self.lengths.len()));
    }

    /// Divides the bytes from a place on into words.
    fn divide(&mut self, from: usize) {
        let length = self.lengths.get(from).copied().unwrap_or(self.words.len());
        self.words.truncate(length);
        self.lengths.truncate(from);
        let (done, rest) = self.bytes.split_at(from.min(self.bytes.len()));
        let mut before = done.iter().rfind(|byte| !continues(**byte)).copied().unwrap_or(b' ');
        for (at, &byte) in rest.iter().enumerate() {
            self.lengths.push(self.words.len());
            // The first byte of a letter that is not ASCII stands for all of it.
            if continues(byte) {
                continue;
            }
            push_byte(byte, before, rest.get(at + 1).copied(), &mut self.words);
            before = byte;
        }
    }
}

/// Returns the number of equal bytes at the beginning of both, comparing eight at a time.
fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let ((a_words, _), (b_words, _)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let whole = 8 * a_words.iter().zip(b_words).take_while(|(a, b)| a == b).count();
    let (a_rest, b_rest) = (a.get(whole..).unwrap_or_default(), b.get(whole..).unwrap_or_default());
    whole + a_rest.iter().zip(b_rest).take_while(|(a, b)| a == b).count()
}

fn continues(byte: u8) -> bool {
    byte & 0xc0 == 0x80
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
