//! [`FilterText`]: filters built by the constructors of HBase's Java classes, and the other classes
//! that scripts use with them.
//!
//! A constructor becomes text in the filter language: `PrefixFilter.new('a')` becomes
//! `PrefixFilter('a')`, so that there is one parser of filters. Filters that this language cannot
//! express are refused.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_common::length;

use crate::error::{Flow, RubyError};
use crate::text;
use crate::value::Value;

type EvalResult = Result<Value, Flow>;

/// A filter or comparator in the filter language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterText(Vec<u8>);

impl FilterText {
    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for FilterText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#<{}>", text::binary(&self.0))
    }
}

/// Comparison operators, and their form in the filter language.
const OPERATORS: &[(&str, &str)] = &[
    ("EQUAL", "="),
    ("NOT_EQUAL", "!="),
    ("LESS", "<"),
    ("LESS_OR_EQUAL", "<="),
    ("GREATER", ">"),
    ("GREATER_OR_EQUAL", ">="),
];

/// The operators that combine the filters of a list.
const LIST_OPERATORS: &[&str] = &["MUST_PASS_ALL", "MUST_PASS_ONE"];

/// Filters whose arguments are the same in Java and in the filter language.
const PLAIN: &[&str] = &[
    "KeyOnlyFilter",
    "FirstKeyOnlyFilter",
    "PrefixFilter",
    "ColumnPrefixFilter",
    "MultipleColumnPrefixFilter",
    "ColumnCountGetFilter",
    "PageFilter",
    "ColumnPaginationFilter",
    "InclusiveStopFilter",
    "TimestampsFilter",
    "RowFilter",
    "FamilyFilter",
    "QualifierFilter",
    "ValueFilter",
    "SingleColumnValueFilter",
    "SingleColumnValueExcludeFilter",
    "ColumnValueFilter",
    "ColumnRangeFilter",
    "DependentColumnFilter",
];

/// Comparators and their names in the filter language.
const COMPARATORS: &[(&str, &str)] = &[
    ("BinaryComparator", "binary"),
    ("BinaryPrefixComparator", "binaryprefix"),
    ("SubstringComparator", "substring"),
    ("RegexStringComparator", "regexstring"),
];

/// Known classes besides filters.
const CLASSES: &[&str] = &[
    "Bytes",
    "FilterList",
    "SkipFilter",
    "WhileMatchFilter",
    "CompareOp",
    "CompareOperator",
    "Time",
    "TableName",
];

/// A constant of a Java class, or the class itself; `None` if it is unknown.
pub fn constant(path: &[String]) -> Option<EvalResult> {
    let name = path.last()?.as_str();
    let is_operator = OPERATORS.iter().any(|(known, _)| *known == name) || LIST_OPERATORS.contains(&name);
    if path.len() > 1 && is_operator {
        return Some(Ok(Value::Symbol(name.to_owned())));
    }
    let is_class = CLASSES.contains(&name)
        || PLAIN.contains(&name)
        || COMPARATORS.iter().any(|(known, _)| *known == name);
    is_class.then(|| Ok(Value::Java(path.join("::"))))
}

/// A call on a class: a constructor or a static method.
pub fn call(path: &[String], method: &str, args: &[Value]) -> EvalResult {
    let class = path.last().map_or("", String::as_str);
    match (class, method, args) {
        ("Bytes", method, [value]) => bytes_method(method, value),
        ("CompareOp" | "CompareOperator" | "Operator", "valueOf", [name]) => {
            Ok(Value::Symbol(name.to_text()))
        }
        ("TableName", "valueOf", [name]) => Ok(Value::text(name.to_bytes())),
        ("Time", "now", []) => Ok(Value::Float(now())),
        ("System", "currentTimeMillis", []) => Ok(Value::Int(length::integer_part(now() * 1000.0))),
        (class, "new", args) => construct(class, args),
        _ => Err(unknown(path, method)),
    }
}

fn unknown(path: &[String], method: &str) -> Flow {
    let message = format!("{}.{method} is not supported by this shell", path.join("."));
    RubyError::new("NameError", message).into()
}

/// Seconds since 1970.
#[allow(clippy::disallowed_methods, reason = "a value of the shell's language, with its fraction")]
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// The first bytes of a string, for a number.
fn head<const N: usize>(bytes: &[u8]) -> Result<[u8; N], RubyError> {
    let too_few = || RubyError::argument(format!("{} bytes are too few for a number", bytes.len()));
    bytes.first_chunk().copied().ok_or_else(too_few)
}

fn bytes_method(method: &str, value: &Value) -> EvalResult {
    let bytes = value.to_bytes();
    Ok(match (method, value) {
        ("toBytes", Value::Int(number)) => Value::text(number.to_be_bytes()),
        ("toBytes", Value::Float(number)) => Value::text(number.to_be_bytes()),
        ("toBytes", Value::Bool(flag)) => Value::text([if *flag { 0xff } else { 0 }]),
        ("toBytes" | "toString", _) => Value::Str(bytes),
        ("toBytesBinary", _) => Value::Str(text::from_binary(&bytes)),
        ("toStringBinary", _) => Value::text(text::binary(&bytes)),
        ("toLong", _) => Value::Int(i64::from_be_bytes(head(&bytes)?)),
        ("toInt", _) => Value::Int(i64::from(i32::from_be_bytes(head(&bytes)?))),
        ("toShort", _) => Value::Int(i64::from(i16::from_be_bytes(head(&bytes)?))),
        _ => {
            let message = format!("Bytes.{method} is not supported by this shell");
            return Err(RubyError::new("NameError", message).into());
        }
    })
}

fn construct(class: &str, args: &[Value]) -> EvalResult {
    if let Some((_, name)) = COMPARATORS.iter().find(|(known, _)| *known == class) {
        let [value] = args else { return Err(wrong_arguments(class)) };
        return Ok(text_of(quoted(&[name.as_bytes(), b":", &value.to_bytes()].concat())));
    }
    match (class, args) {
        ("FilterList", args) => list(args),
        ("SkipFilter", [Value::Filter(filter)]) => Ok(text_of([b"(SKIP ", filter.as_bytes(), b")"].concat())),
        ("WhileMatchFilter", [Value::Filter(filter)]) => {
            Ok(text_of([b"(WHILE ", filter.as_bytes(), b")"].concat()))
        }
        (class, args) if PLAIN.contains(&class) => plain(class, args),
        _ => Err(RubyError::new("NameError", format!("{class}.new is not supported by this shell")).into()),
    }
}

fn wrong_arguments(class: &str) -> Flow {
    RubyError::argument(format!("wrong arguments for {class}.new")).into()
}

fn text_of(text: Vec<u8>) -> Value {
    Value::Filter(FilterText(text))
}

/// A string of the filter language: a quote in it is written twice.
fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut text = vec![b'\''];
    for byte in bytes {
        text.push(*byte);
        if *byte == b'\'' {
            text.push(*byte);
        }
    }
    text.push(b'\'');
    text
}

fn plain(class: &str, args: &[Value]) -> EvalResult {
    let args = crate::builtin::flatten(args.to_vec());
    let mut text = [class.as_bytes(), b"("].concat();
    for (i, arg) in args.iter().enumerate() {
        if i > 0 {
            text.extend_from_slice(b", ");
        }
        text.extend(argument(class, i, arg)?);
    }
    text.push(b')');
    Ok(text_of(text))
}

fn argument(class: &str, at: usize, arg: &Value) -> Result<Vec<u8>, Flow> {
    Ok(match arg {
        Value::Symbol(name) => {
            let found = OPERATORS.iter().find(|(known, _)| known == name);
            found.ok_or_else(|| wrong_arguments(class))?.1.as_bytes().to_vec()
        }
        Value::Filter(comparator) => comparator.as_bytes().to_vec(),
        Value::Int(number) => number.to_string().into_bytes(),
        Value::Bool(flag) => flag.to_string().into_bytes(),
        // A value in place of a comparator is compared as bytes.
        Value::Str(bytes) if at == 3 && class.contains("Value") => {
            quoted(&[b"binary:", bytes.as_slice()].concat())
        }
        Value::Str(bytes) => quoted(bytes),
        _ => return Err(wrong_arguments(class)),
    })
}

fn list(args: &[Value]) -> EvalResult {
    let args = crate::builtin::flatten(args.to_vec());
    let (word, filters) = match args.split_first() {
        Some((Value::Symbol(name), rest)) if name == "MUST_PASS_ONE" => (&b" OR "[..], rest),
        Some((Value::Symbol(name), rest)) if name == "MUST_PASS_ALL" => (&b" AND "[..], rest),
        _ => (&b" AND "[..], args.as_slice()),
    };
    let mut texts = Vec::new();
    for filter in filters {
        let Value::Filter(filter) = filter else { return Err(wrong_arguments("FilterList")) };
        texts.push(filter.as_bytes().to_vec());
    }
    match texts.is_empty() {
        true => Err(RubyError::argument("a FilterList needs a filter").into()),
        false => Ok(text_of([b"(", texts.join(word).as_slice(), b")"].concat())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(class: &str, args: &[Value]) -> Value {
        call(&[class.to_owned()], "new", args).expect("known")
    }

    #[test]
    fn numbers_are_read_from_the_first_bytes() {
        let number = |method, bytes: &[u8]| bytes_method(method, &Value::text(bytes));
        assert_eq!(number("toInt", &[0xff, 0xff, 0xff, 0xfe, 7]).expect("long enough"), Value::Int(-2));
        assert_eq!(number("toShort", &[0x80, 0]).expect("long enough"), Value::Int(-32_768));
        assert_eq!(number("toLong", &[0, 0, 0, 0, 0, 0, 1, 0]).expect("long enough"), Value::Int(256));
        assert!(number("toLong", &[0; 7]).is_err());
    }

    fn shown(value: &Value) -> String {
        match value {
            Value::Filter(filter) => String::from_utf8_lossy(filter.as_bytes()).into_owned(),
            other => other.inspect(),
        }
    }

    #[test]
    fn constructors_become_the_filter_language() {
        let prefix = built("PrefixFilter", &[Value::text("it's")]);
        assert_eq!(shown(&prefix), "PrefixFilter('it''s')");
        let value = built("BinaryComparator", &[Value::text("v")]);
        let op = call(&["CompareFilter".into(), "CompareOp".into()], "valueOf", &[Value::text("EQUAL")])
            .expect("known");
        let args = [Value::text("f"), Value::text("q"), op, value];
        let single = built("SingleColumnValueFilter", &args);
        assert_eq!(shown(&single), "SingleColumnValueFilter('f', 'q', =, 'binary:v')");
        let one = constant(&["FilterList".into(), "Operator".into(), "MUST_PASS_ONE".into()])
            .expect("known")
            .expect("known");
        let both = built("FilterList", &[one, Value::Array(vec![prefix, single])]);
        assert!(shown(&both).contains(" OR "));
        let Value::Filter(text) = &both else { panic!("a filter") };
        evenkeel_client::filter::parse_bytes(text.as_bytes()).expect("the filter language");
        assert!(call(&["Unknown".into()], "new", &[]).is_err());
    }
}
