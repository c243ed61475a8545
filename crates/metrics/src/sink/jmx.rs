//! The JSON of `/jmx`, as HBase's JMXJsonServlet writes it.
//!
//! Each record is a bean: `name`, `modelerType`, the tags as `tag.X`, then the metrics. Records of
//! one bean are merged; if an attribute occurs twice, the first one is shown.
//!
//! # Errors
//! The servlet sends its status before it detects an error, so it answers 200 to everything and the
//! document contains the error. Verified with the servlet of 2.6.4 in Jetty:
//!
//! | request | document |
//! |---|---|
//! | `qry`, `excl` or the name of `get` is malformed | `{}` |
//! | `get` is not `name::attribute` | `result` is `ERROR`, with a message |
//! | a bean lacks the attribute of `get` | the same within that bean, which is the last one |
//! | no bean matches | `beans` is empty |
//!
//! # The attribute of `get`
//! Without a `*` it is a name. With one it is a list of regular expressions, one of which must
//! match a part of the attribute's name. An expression that does not compile is taken as a name, so
//! no bean has it.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::borrow::Cow;
use std::collections::HashSet;

use regex::bytes::{Regex, RegexBuilder};

use crate::record::{Aggregate, Metric, Origin, Record, Value};
use crate::sink::PIECE_BYTES;
use crate::sink::json::JsonWriter;
use crate::sink::number::value_text;
use crate::sink::object_name::ObjectPattern;

/// Limit of regular expressions per request.
const EXPRESSIONS_MAX: usize = 16;
/// Memory limit of a compiled expression, and of its matcher.
const EXPRESSION_BYTES_MAX: usize = 1 << 18;
/// About the memory of a metric with its name.
const METRIC_BYTES: usize = 2 * size_of::<Metric>();

/// The parameters of a request, percent-decoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct JmxQuery<'a> {
    /// The beans to show; `None`: all of them.
    pub qry: Option<&'a str>,
    /// The beans to omit.
    pub excl: Option<&'a str>,
    /// `<ObjectName>::<attribute>`, instead of `qry` and `excl`.
    pub get: Option<&'a str>,
    /// Whether attributes have descriptions.
    pub description: bool,
}

/// The attributes of a bean to show.
enum Attributes {
    All,
    Named(String),
    Matching(Vec<Regex>),
}

/// One attribute of a bean.
struct Attribute<'a> {
    /// The beginning of its name; often empty.
    prefix: &'a str,
    /// The rest of it.
    rest: &'a str,
    description: &'a str,
    value: Shown<'a>,
}

/// The value of an attribute.
enum Shown<'a> {
    Text(&'a str),
    Number(Value),
    Members(Vec<(&'a str, Value)>),
}

impl<'a> Attribute<'a> {
    fn new(rest: &'a str, description: &'a str, value: Shown<'a>) -> Self {
        Self { prefix: "", rest, description, value }
    }

    fn name(&self) -> Cow<'a, str> {
        match self.prefix {
            "" => Cow::Borrowed(self.rest),
            prefix => Cow::Owned([prefix, self.rest].concat()),
        }
    }
}

/// A bean: its name, and the numbers of its records, at least one.
struct Bean {
    name: String,
    records: Vec<usize>,
}

/// The bean that is being written: its own attributes are, those of its aggregate follow.
struct Open {
    /// The number of the record with the aggregate.
    record: usize,
    /// The next part of the aggregate.
    next: usize,
    /// Whether an attribute was wanted.
    is_found: bool,
}

/// The document, in pieces of [`PIECE_BYTES`] or little more. The attributes of an aggregate become
/// text when their piece is needed: those of 10,000 regions have 32 MB.
pub struct JmxDocument {
    records: Vec<Record>,
    hostname: String,
    wanted: Attributes,
    has_descriptions: bool,
    beans: std::vec::IntoIter<Bean>,
    open: Option<Open>,
    json: JsonWriter,
    is_complete: bool,
}

impl JmxQuery<'_> {
    /// Returns the document for these records. `hostname` is a tag of every record.
    pub fn answer(&self, records: Vec<Record>, hostname: &str) -> JmxDocument {
        let mut json = JsonWriter::default();
        json.begin_object();
        let beans = match self.get {
            Some(get) => beans_of_get(get, &records, &mut json),
            None => self.beans_of_qry(&records).map(|beans| (beans, Attributes::All)),
        };
        let is_complete = beans.is_none();
        match is_complete {
            true => json.end_object(),
            false => {
                json.name("beans");
                json.begin_array();
            }
        }
        let (beans, wanted) = beans.unwrap_or((Vec::new(), Attributes::All));
        JmxDocument {
            records,
            hostname: hostname.to_owned(),
            wanted,
            has_descriptions: self.description,
            beans: beans.into_iter(),
            open: None,
            json,
            is_complete,
        }
    }

    /// Returns `None` if a pattern is malformed.
    fn beans_of_qry(&self, records: &[Record]) -> Option<Vec<Bean>> {
        let pattern = ObjectPattern::parse(self.qry.unwrap_or_default())?;
        let excluded = match self.excl {
            Some(excluded) => Some(ObjectPattern::parse(excluded)?),
            None => None,
        };
        let is_excluded = |name: &str| excluded.as_ref().is_some_and(|excluded| excluded.matches(name));
        Some(beans_of(records, |name| pattern.matches(name) && !is_excluded(name)))
    }
}

/// Returns the beans and the attributes of a `get`. Returns `None` if it is malformed; then the
/// document may have got a message.
fn beans_of_get(get: &str, records: &[Record], json: &mut JsonWriter) -> Option<(Vec<Bean>, Attributes)> {
    let parts: Vec<&str> = get.split("::").collect();
    let &[name, attribute] = parts.as_slice() else {
        json.member("result", "ERROR");
        json.member("message", "query format is not as expected.");
        return None;
    };
    let pattern = ObjectPattern::parse(name)?;
    Some((beans_of(records, |name| pattern.matches(name)), Attributes::parse(attribute)))
}

impl Iterator for JmxDocument {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        while !self.is_complete && self.json.len() < PIECE_BYTES {
            if let Some(open) = self.open.take() {
                self.write_parts(open);
            } else if let Some(bean) = self.beans.next() {
                self.begin_bean(bean);
            } else {
                self.json.end_array();
                self.json.end_object();
                self.is_complete = true;
            }
        }
        Some(self.json.take()).filter(|piece| !piece.is_empty())
    }
}

impl JmxDocument {
    /// Returns about how many bytes of memory the records hold.
    pub fn held_bytes(&self) -> usize {
        let metrics: usize = self.records.iter().map(|record| record.metrics.len()).sum();
        let of_parts: usize =
            self.records.iter().flat_map(|record| &record.aggregate).map(Aggregate::bytes).sum();
        metrics * METRIC_BYTES + of_parts
    }

    fn begin_bean(&mut self, bean: Bean) {
        let json = &mut self.json;
        json.begin_object();
        let records: Vec<&Record> = bean.records.iter().filter_map(|at| self.records.get(*at)).collect();
        json.member("name", &bean.name);
        json.member("modelerType", records.first().map_or("", |record| record.modeler_type()));
        let (attributes, has_aggregate) = attributes_of(&bean.name, &records, &self.hostname);
        let mut is_found = false;
        for attribute in attributes.iter().filter(|attribute| self.wanted.has(attribute)) {
            is_found = true;
            write_attribute(attribute, self.has_descriptions, json);
        }
        let record = bean.records.first().copied().filter(|_| has_aggregate).unwrap_or(usize::MAX);
        self.open = Some(Open { record, next: 0, is_found });
    }

    /// Writes parts of the aggregate until the piece is complete. Ends the bean after the last one.
    fn write_parts(&mut self, mut open: Open) {
        let record = self.records.get(open.record);
        let parts = record.and_then(|record| record.aggregate.as_ref());
        let first = open.next;
        for (prefix, values) in parts.into_iter().flat_map(|aggregate| aggregate.parts_from(first)) {
            if self.json.len() >= PIECE_BYTES {
                self.open = Some(open);
                return;
            }
            open.next += 1;
            let metrics = parts.map_or(&[][..], Aggregate::metrics);
            for attribute in part_attributes(metrics, prefix, values) {
                if self.wanted.has(&attribute) {
                    open.is_found = true;
                    write_attribute(&attribute, self.has_descriptions, &mut self.json);
                }
            }
        }
        self.end_bean(&open);
    }

    /// A bean that lacks the named attribute is the last one.
    fn end_bean(&mut self, open: &Open) {
        if let Attributes::Named(name) = &self.wanted
            && !open.is_found
        {
            self.json.member("result", "ERROR");
            self.json.member("message", &format!("No attribute with name {name} was found."));
            self.beans = Vec::new().into_iter();
        }
        self.json.end_object();
        if let Some(record) = self.records.get_mut(open.record) {
            record.aggregate = None;
        }
    }
}

fn write_attribute(attribute: &Attribute<'_>, has_description: bool, json: &mut JsonWriter) {
    json.name_of([attribute.prefix, attribute.rest]);
    let description = attribute.description;
    if !has_description || description.is_empty() || description == attribute.name() {
        attribute.value.write(json);
        return;
    }
    json.begin_object();
    json.member("description", description);
    json.name("value");
    attribute.value.write(json);
    json.end_object();
}

impl Attributes {
    fn parse(text: &str) -> Self {
        let named = || Self::Named(text.to_owned());
        if !text.contains('*') {
            return named();
        }
        // Empty items at the end are dropped, as in Java's `split`.
        let items: Vec<&str> = text.trim_end_matches(',').split(',').collect();
        if items.len() > EXPRESSIONS_MAX {
            return named();
        }
        let expressions: Result<Vec<Regex>, _> = items.into_iter().map(compile).collect();
        expressions.map_or_else(|_| named(), Self::Matching)
    }

    fn has(&self, attribute: &Attribute<'_>) -> bool {
        match self {
            Self::All => true,
            Self::Named(wanted) => *wanted == attribute.name(),
            Self::Matching(expressions) => {
                let name = attribute.name();
                expressions.iter().any(|expression| expression.is_match(name.as_bytes()))
            }
        }
    }
}

/// Compiles an expression. Classes such as `\w` are ASCII, as in Java.
fn compile(expression: &str) -> Result<Regex, regex::Error> {
    let mut builder = RegexBuilder::new(expression);
    builder.unicode(false);
    builder.size_limit(EXPRESSION_BYTES_MAX).dfa_size_limit(EXPRESSION_BYTES_MAX).build()
}

impl Shown<'_> {
    fn write(&self, json: &mut JsonWriter) {
        match self {
            Self::Text(text) => json.string(text),
            Self::Number(value) => write_number(*value, json),
            Self::Members(members) => {
                json.begin_object();
                for (name, value) in members {
                    json.name(name);
                    write_number(*value, json);
                }
                json.end_object();
            }
        }
    }
}

/// Writes a number. JSON has no number for values that are not finite; they are strings.
fn write_number(value: Value, json: &mut JsonWriter) {
    match value {
        Value::Real(real) if !real.is_finite() => json.string(&value_text(value)),
        _ => json.number(value),
    }
}

/// Returns the beans whose names are wanted, in the order of their first records.
fn beans_of(records: &[Record], is_wanted: impl Fn(&str) -> bool) -> Vec<Bean> {
    let mut beans: Vec<Bean> = Vec::new();
    let mut numbers = std::collections::HashMap::new();
    for (record, name) in records.iter().map(Record::object_name).enumerate() {
        if !is_wanted(&name) {
            continue;
        }
        let number = *numbers.entry(name.clone()).or_insert(beans.len());
        match beans.get_mut(number) {
            Some(bean) => bean.records.push(record),
            None => beans.push(Bean { name, records: vec![record] }),
        }
    }
    beans
}

/// Returns the attributes of a bean, without those of the aggregate of its only record, and whether
/// it has those: they have names that no others have, and a server with 10,000 regions has 300,000
/// of them, so they are not collected.
fn attributes_of<'a>(bean: &'a str, records: &[&'a Record], hostname: &'a str) -> (Vec<Attribute<'a>>, bool) {
    let has_aggregate = matches!(records, [record] if record.is_metrics2() && record.aggregate.is_some());
    let mut attributes = Vec::new();
    for record in records {
        match record.origin {
            Origin::Metrics2 => metrics2_attributes(record, hostname, &mut attributes),
            Origin::Platform { .. } => platform_attributes(bean, record, &mut attributes),
        }
        if !has_aggregate && record.is_metrics2() {
            attributes.extend(record.aggregate.iter().flat_map(aggregate_attributes));
        }
    }
    if records.len() > 1 {
        let mut seen = HashSet::new();
        attributes.retain(|attribute| seen.insert(attribute.name()));
    }
    // The servlet omits these.
    attributes.retain(|attribute| !is_omitted(attribute.prefix) && !is_omitted(attribute.rest));
    (attributes, has_aggregate)
}

/// Returns the attributes of an aggregate that the servlet does not omit.
fn aggregate_attributes(aggregate: &Aggregate) -> impl Iterator<Item = Attribute<'_>> {
    let parts = aggregate.parts_from(0);
    parts.flat_map(|(prefix, values)| part_attributes(aggregate.metrics(), prefix, values))
}

/// Returns the attributes of a part of an aggregate that the servlet does not omit.
fn part_attributes<'a>(
    metrics: &'static [(&'static str, &'static str)],
    prefix: &'a str,
    values: &'a [Value],
) -> impl Iterator<Item = Attribute<'a>> {
    let metrics = metrics.iter().take(if is_omitted(prefix) { 0 } else { usize::MAX });
    metrics.zip(values).filter(|((rest, _), _)| !is_omitted(rest)).map(move |((rest, description), value)| {
        Attribute { prefix, rest, description, value: Shown::Number(*value) }
    })
}

fn is_omitted(name: &str) -> bool {
    // Without an early return, so that the compiler compares many bytes at once.
    name.bytes().fold(false, |found, byte| found | (byte == b'=') | (byte == b' '))
}

fn metrics2_attributes<'a>(record: &'a Record, hostname: &'a str, to: &mut Vec<Attribute<'a>>) {
    let mut tag = |rest: &'a str, description: &'a str, value: &'a str| {
        to.push(Attribute { prefix: "tag.", rest, description, value: Shown::Text(value) });
    };
    record.tags.iter().for_each(|(name, value)| tag(name, "", value));
    tag("Context", "Metrics context", record.context);
    tag("Hostname", "Local hostname", hostname);
    let metrics = record.metrics.iter();
    to.extend(
        metrics.map(|metric| Attribute::new(&metric.name, &metric.description, Shown::Number(metric.value))),
    );
}

fn platform_attributes<'a>(bean: &'a str, record: &'a Record, to: &mut Vec<Attribute<'a>>) {
    for metric in &record.metrics {
        let Some((name, member)) = metric.name.split_once('.') else {
            to.push(Attribute::new(&metric.name, &metric.description, Shown::Number(metric.value)));
            continue;
        };
        match to.last_mut() {
            Some(Attribute { rest: last, value: Shown::Members(members), .. }) if *last == name => {
                members.push((member, metric.value));
            }
            _ => {
                to.push(Attribute::new(name, "", Shown::Members(vec![(member, metric.value)])));
            }
        }
    }
    let texts = record.tags.iter().map(|(name, value)| (&**name, &**value)).chain([("ObjectName", bean)]);
    to.extend(texts.map(|(name, value)| Attribute::new(name, "", Shown::Text(value))));
}
