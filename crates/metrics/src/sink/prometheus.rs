//! The text of `/prometheus`: HBase's names and labels in the format of Prometheus, version 0.0.4.
//!
//! # Names
//! The name of a record and that of a metric with its first letter in upper case, divided where a
//! word ends, and joined by `_` in lower case: `Server` and `regionCount` are
//! `server_region_count`. Where HBase's name would not be one in Prometheus (it begins with a
//! digit, or is empty), it begins with `_`.
//!
//! # What differs from HBase's text
//! HBase writes `# HELP` without a name, a `# TYPE` for each sample, and label values without
//! escapes; parsers refuse each. Here all samples of a name follow one `# TYPE`, no two of them
//! have the same labels, and what has a special meaning is escaped. The lines are otherwise those
//! that HBase writes, and in its order.

use std::collections::{HashMap, HashSet};

use crate::record::{Metric, Record, Value};
use crate::sink::number::value_text;

/// The parameters of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrometheusQuery<'a> {
    /// Only names that contain this text.
    pub qry: Option<&'a str>,
    /// Whether to write `# HELP`.
    pub description: bool,
}

/// The samples of one name.
struct Family<'a> {
    name: String,
    metric: &'a Metric,
    /// The number of the labels, and the value.
    samples: Vec<(usize, Value)>,
}

/// All families, with the labels of each record.
#[derive(Default)]
struct Families<'a> {
    families: Vec<Family<'a>>,
    numbers: HashMap<String, usize>,
    labels: Vec<String>,
    label_numbers: HashMap<String, usize>,
    /// The family and the labels of each sample.
    seen: HashSet<(usize, usize)>,
}

impl PrometheusQuery<'_> {
    /// The text for these records. `hostname` is a label of every sample.
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
        let next = self.families.len();
        let number = *self.numbers.entry(name.clone()).or_insert(next);
        if number == next {
            self.families.push(Family { name, metric, samples: Vec::new() });
        }
        if self.seen.insert((number, labels))
            && let Some(family) = self.families.get_mut(number)
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

/// The labels of a record: its tags, then the two that every record has. Of two with one name the
/// first counts.
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

/// `name` with `_` before it unless it begins as names do.
fn legal_name(name: String) -> String {
    let is_legal = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if is_legal { name } else { format!("_{name}") }
}

/// The name of a metric in Prometheus; the module documentation has the rule. Letters are ASCII, as
/// in HBase's pattern; others divide.
pub fn prometheus_name(record: &str, metric: &str) -> String {
    let mut letters = metric.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let mut chars = record.chars().chain(first).chain(letters).peekable();
    let mut name = String::with_capacity(record.len() + metric.len() + 16);
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let mut is_before_lower = || chars.peek().is_some_and(char::is_ascii_lowercase);
        let begins_word = c.is_ascii_uppercase()
            && (before.is_ascii_lowercase() || (before.is_ascii_uppercase() && is_before_lower()));
        if begins_word {
            name.push('_');
        }
        // A run of `_` divides once.
        if c != '_' || before != '_' {
            name.push(word_char(c));
        }
        before = c;
    }
    legal_name(name.trim_end_matches('_').to_owned())
}
