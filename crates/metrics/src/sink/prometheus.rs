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
use std::rc::Rc;

use crate::record::{Metric, Record, Value};
use crate::sink::number::value_text;

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
    name: Rc<str>,
    metric: &'a Metric,
    /// The index of the labels, and the value.
    samples: Vec<(usize, Value)>,
}

/// All families, with the labels of each record.
#[derive(Default)]
struct Families<'a> {
    families: Vec<Family<'a>>,
    numbers: HashMap<Rc<str>, usize>,
    labels: Vec<String>,
    label_numbers: HashMap<String, usize>,
}

impl PrometheusQuery<'_> {
    /// Returns the text for these records. `hostname` is a label of every sample.
    pub fn answer(&self, records: &[Record], hostname: &str) -> String {
        let mut families = Families::default();
        for record in records.iter().filter(|record| record.is_metrics2()) {
            let labels = families.number_of_labels(labels_of(record, hostname));
            for metric in &record.metrics {
                let name = prometheus_name(&record.name, &metric.name);
                if self.qry.is_none_or(|wanted| name.contains(wanted)) {
                    families.add(name, metric, labels);
                }
            }
        }
        families.text(self.description)
    }
}

impl<'a> Families<'a> {
    fn number_of_labels(&mut self, labels: String) -> usize {
        let next = self.labels.len();
        let number = *self.label_numbers.entry(labels.clone()).or_insert(next);
        if number == next {
            self.labels.push(labels);
        }
        number
    }

    fn add(&mut self, name: String, metric: &'a Metric, labels: usize) {
        let (next, name) = (self.families.len(), Rc::<str>::from(name));
        let number = *self.numbers.entry(Rc::clone(&name)).or_insert(next);
        if number == next {
            self.families.push(Family { name, metric, samples: Vec::with_capacity(1) });
        }
        // A name has one sample per record that contains it, usually one.
        if let Some(family) = self.families.get_mut(number)
            && family.samples.iter().all(|(known, _)| *known != labels)
        {
            family.samples.push((labels, metric.value));
        }
    }

    fn text(&self, has_help: bool) -> String {
        let mut text = String::new();
        for family in &self.families {
            family.write_header(has_help, &mut text);
            for (labels, value) in &family.samples {
                let labels = self.labels.get(*labels).map_or("", String::as_str);
                for part in [&family.name, "{", labels, "} ", &sample_text(*value), "\n"] {
                    text.push_str(part);
                }
            }
        }
        text
    }
}

impl Family<'_> {
    fn write_header(&self, has_help: bool, text: &mut String) {
        let description = self.metric.description.trim();
        if has_help && !description.is_empty() {
            let help = description.replace('\\', "\\\\").replace('\n', "\\n");
            for part in ["# HELP ", &self.name, " ", &help, "\n"] {
                text.push_str(part);
            }
        }
        let kind = if matches!(self.metric.value, Value::Counter(_)) { "counter" } else { "gauge" };
        for part in ["# TYPE ", &self.name, " ", kind, "\n"] {
            text.push_str(part);
        }
    }
}

fn sample_text(value: Value) -> String {
    match value {
        Value::Real(real) if real == f64::INFINITY => "+Inf".to_owned(),
        Value::Real(real) if real == f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value_text(value),
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
    let mut name = String::with_capacity(record.len() + metric.len() + 16);
    let (first, rest) = metric.as_bytes().split_at(metric.len().min(1));
    let mut before = b' ';
    let record = record.as_bytes();
    let after_first = rest.first().copied();
    let first = first.first().map(u8::to_ascii_uppercase);
    push_words(record, first, &mut before, &mut name);
    push_words(first.as_slice(), after_first, &mut before, &mut name);
    push_words(rest, None, &mut before, &mut name);
    name.truncate(name.trim_end_matches('_').len());
    legal_name(name)
}

/// Appends the words of a part of a name; `before` is the byte before the part, `after` the one
/// after it.
fn push_words(part: &[u8], after: Option<u8>, before: &mut u8, name: &mut String) {
    let following = part.iter().skip(1).copied().map(Some).chain([after]);
    for (&byte, next) in part.iter().zip(following) {
        // The first byte of a non-ASCII letter represents the whole letter.
        if byte & 0xc0 == 0x80 {
            continue;
        }
        let is_before_lower = next.is_some_and(|next| next.is_ascii_lowercase());
        let begins_word = byte.is_ascii_uppercase()
            && (before.is_ascii_lowercase() || (before.is_ascii_uppercase() && is_before_lower));
        if begins_word {
            name.push('_');
        }
        // A run of `_` separates once.
        if byte != b'_' || *before != b'_' {
            name.push(word_char(char::from(byte)));
        }
        *before = byte;
    }
}
