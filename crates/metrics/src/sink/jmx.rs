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

use crate::record::{NamedValue, Origin, Record, Value};
use crate::sink::json::JsonWriter;
use crate::sink::number::value_text;
use crate::sink::object_name::ObjectPattern;

/// Limit of regular expressions per request.
const EXPRESSIONS_MAX: usize = 16;
/// Memory limit of a compiled expression, and of its matcher.
const EXPRESSION_BYTES_MAX: usize = 1 << 18;

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
enum Attributes<'a> {
    All,
    Named(&'a str),
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

/// The records of one bean, at least one.
type Bean<'a> = (String, Vec<&'a Record>);

impl JmxQuery<'_> {
    /// Returns the document for these records. `hostname` is a tag of every record.
    pub fn answer(&self, records: &[Record], hostname: &str) -> String {
        let mut json = JsonWriter::default();
        json.begin_object();
        match self.get {
            Some(get) => self.answer_get(get, records, hostname, &mut json),
            None => self.answer_qry(records, hostname, &mut json),
        }
        json.end_object();
        json.finish()
    }

    fn answer_get(&self, get: &str, records: &[Record], hostname: &str, json: &mut JsonWriter) {
        let parts: Vec<&str> = get.split("::").collect();
        let &[name, attribute] = parts.as_slice() else {
            json.member("result", "ERROR");
            json.member("message", "query format is not as expected.");
            return;
        };
        let Some(pattern) = ObjectPattern::parse(name) else { return };
        let beans = beans_of(records, |name| pattern.matches(name));
        self.write_beans(&beans, &Attributes::parse(attribute), hostname, json);
    }

    fn answer_qry(&self, records: &[Record], hostname: &str, json: &mut JsonWriter) {
        let Some(pattern) = ObjectPattern::parse(self.qry.unwrap_or_default()) else { return };
        let excluded = self.excl.map(ObjectPattern::parse);
        if matches!(excluded, Some(None)) {
            return;
        }
        let excluded = excluded.flatten();
        let is_excluded = |name: &str| excluded.as_ref().is_some_and(|excluded| excluded.matches(name));
        let beans = beans_of(records, |name| pattern.matches(name) && !is_excluded(name));
        self.write_beans(&beans, &Attributes::All, hostname, json);
    }

    fn write_beans(
        &self,
        beans: &[Bean<'_>],
        wanted: &Attributes<'_>,
        hostname: &str,
        json: &mut JsonWriter,
    ) {
        json.name("beans");
        json.begin_array();
        for bean in beans {
            json.begin_object();
            let is_found = self.write_bean(bean, wanted, hostname, json);
            json.end_object();
            if !is_found {
                break;
            }
        }
        json.end_array();
    }

    /// Returns false if the bean lacks the named attribute.
    fn write_bean(
        &self,
        (name, records): &Bean<'_>,
        wanted: &Attributes<'_>,
        hostname: &str,
        json: &mut JsonWriter,
    ) -> bool {
        json.member("name", name);
        json.member("modelerType", records.first().map_or("", |record| record.modeler_type()));
        let attributes = attributes_of(name, records, hostname);
        let mut shown = attributes.iter().filter(|attribute| wanted.has(attribute)).peekable();
        if let Attributes::Named(name) = wanted
            && shown.peek().is_none()
        {
            json.member("result", "ERROR");
            json.member("message", &format!("No attribute with name {name} was found."));
            return false;
        }
        shown.for_each(|attribute| self.write_attribute(attribute, json));
        true
    }

    fn write_attribute(&self, attribute: &Attribute<'_>, json: &mut JsonWriter) {
        json.name_of([attribute.prefix, attribute.rest]);
        let description = attribute.description;
        if !self.description || description.is_empty() || description == attribute.name() {
            attribute.value.write(json);
            return;
        }
        json.begin_object();
        json.member("description", description);
        json.name("value");
        attribute.value.write(json);
        json.end_object();
    }
}

impl<'a> Attributes<'a> {
    fn parse(text: &'a str) -> Self {
        if !text.contains('*') {
            return Self::Named(text);
        }
        // Empty items at the end are dropped, as in Java's `split`.
        let items: Vec<&str> = text.trim_end_matches(',').split(',').collect();
        if items.len() > EXPRESSIONS_MAX {
            return Self::Named(text);
        }
        let expressions: Result<Vec<Regex>, _> = items.into_iter().map(compile).collect();
        expressions.map_or(Self::Named(text), Self::Matching)
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
fn beans_of(records: &[Record], is_wanted: impl Fn(&str) -> bool) -> Vec<Bean<'_>> {
    let mut beans: Vec<Bean<'_>> = Vec::new();
    let mut numbers = std::collections::HashMap::new();
    for record in records {
        let name = record.object_name();
        if !is_wanted(&name) {
            continue;
        }
        let number = *numbers.entry(name.clone()).or_insert(beans.len());
        match beans.get_mut(number) {
            Some((_, of_bean)) => of_bean.push(record),
            None => beans.push((name, vec![record])),
        }
    }
    beans
}

fn attributes_of<'a>(bean: &'a str, records: &[&'a Record], hostname: &'a str) -> Vec<Attribute<'a>> {
    let sum = records.iter().map(|record| record.tags.len() + record.metric_count() + 2).sum();
    let mut attributes = Vec::with_capacity(sum);
    for record in records {
        match record.origin {
            Origin::Metrics2 => metrics2_attributes(record, hostname, &mut attributes),
            Origin::Platform { .. } => platform_attributes(bean, record, &mut attributes),
        }
    }
    if records.len() > 1 {
        let mut seen = HashSet::new();
        attributes.retain(|attribute| seen.insert(attribute.name()));
    }
    // The servlet omits these.
    attributes.retain(|attribute| !is_omitted(attribute.prefix) && !is_omitted(attribute.rest));
    attributes
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
    to.extend(record.all_metrics().map(|NamedValue { prefix, rest, description, value }| Attribute {
        prefix,
        rest,
        description,
        value: Shown::Number(value),
    }));
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
