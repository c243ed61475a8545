//! [`Value`]: a value of the shell's language, and Ruby's two printed forms of it.
//!
//! Strings are bytes, like row keys and cell values.

use std::fmt::Write;

use evenkeel_common::TableName;

use crate::error::RubyError;
use crate::filter::FilterText;

/// A value of the shell's language.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Value {
    /// `nil`
    #[default]
    Nil,
    /// `true` or `false`
    Bool(bool),
    /// A whole number. 64 bits, unlike Ruby's; overflow is an error.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A string of bytes.
    Str(Vec<u8>),
    /// `:name`
    Symbol(String),
    /// `[a, b]`
    Array(Vec<Value>),
    /// `{a => b}`, in the order written.
    Hash(Hash),
    /// `from..to`, or `from...to` without its end.
    Range {
        /// The first number.
        from: i64,
        /// The last number, or the one after it.
        to: i64,
        /// True if `to` is excluded.
        exclusive: bool,
    },
    /// A table, from `get_table` or `create`.
    Table(TableName),
    /// A filter, from its constructor.
    Filter(FilterText),
    /// An exception, from `rescue => e`.
    Exception(RubyError),
    /// A Java object that commands return and no command accepts; only its text is kept.
    Java(String),
}

/// A Ruby hash: pairs in the order written, each key once.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Hash(Vec<(Value, Value)>);

impl Hash {
    /// The pairs in order.
    pub fn pairs(&self) -> &[(Value, Value)] {
        &self.0
    }

    /// Sets a key; an existing one keeps its position.
    pub fn insert(&mut self, key: Value, value: Value) {
        match self.0.iter_mut().find(|(k, _)| *k == key) {
            Some(pair) => pair.1 = value,
            None => self.0.push((key, value)),
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &Value) -> Option<&Value> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// The value of a constant's key, which may be a constant, a string or a symbol.
    pub fn option(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(k, _)| k.is_named(key)).map(|(_, v)| v)
    }

    /// Removes and returns the value of a constant's key.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        let at = self.0.iter().position(|(k, _)| k.is_named(key))?;
        Some(self.0.remove(at).1)
    }
}

impl FromIterator<(Value, Value)> for Hash {
    fn from_iter<I: IntoIterator<Item = (Value, Value)>>(pairs: I) -> Self {
        let mut hash = Self::default();
        pairs.into_iter().for_each(|(key, value)| hash.insert(key, value));
        hash
    }
}

impl Value {
    /// A string.
    pub fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Str(text.as_ref().to_vec())
    }

    /// An array of strings.
    pub fn texts<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::Array(texts.into_iter().map(Self::text).collect())
    }

    /// Returns true for every value but `nil` and `false`.
    pub fn is_true(&self) -> bool {
        !matches!(self, Self::Nil | Self::Bool(false))
    }

    /// Returns true for a string or symbol with this text.
    pub fn is_named(&self, name: &str) -> bool {
        match self {
            Self::Str(text) => text == name.as_bytes(),
            Self::Symbol(symbol) => symbol == name,
            _ => false,
        }
    }

    /// The name of its Ruby class, for messages.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Nil => "NilClass",
            Self::Bool(true) => "TrueClass",
            Self::Bool(false) => "FalseClass",
            Self::Int(_) => "Integer",
            Self::Float(_) => "Float",
            Self::Str(_) => "String",
            Self::Symbol(_) => "Symbol",
            Self::Array(_) => "Array",
            Self::Hash(_) => "Hash",
            Self::Range { .. } => "Range",
            Self::Table(_) => "Hbase::Table",
            Self::Exception(failure) => failure.class,
            Self::Filter(_) | Self::Java(_) => "Java::JavaObject",
        }
    }

    /// Ruby's `to_s`: the text that `puts` and `"#{...}"` show.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Nil => Vec::new(),
            Self::Str(text) => text.clone(),
            Self::Symbol(name) => name.clone().into_bytes(),
            Self::Exception(failure) => failure.message.clone().into_bytes(),
            other => other.inspect().into_bytes(),
        }
    }

    /// [`Value::to_bytes`] as text, for names and messages.
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.to_bytes()).into_owned()
    }

    /// Ruby's `inspect`, printed after `=>`. It parses to the same value.
    pub fn inspect(&self) -> String {
        match self {
            Self::Nil => "nil".to_owned(),
            Self::Bool(flag) => flag.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => inspect_float(*number),
            Self::Str(text) => inspect_bytes(text),
            Self::Symbol(name) if is_plain_symbol(name) => format!(":{name}"),
            Self::Symbol(name) => format!(":{}", inspect_bytes(name.as_bytes())),
            Self::Array(items) => format!("[{}]", joined(items.iter().map(Value::inspect))),
            Self::Hash(hash) => format!("{{{}}}", joined(hash.0.iter().map(inspect_pair))),
            Self::Range { from, to, exclusive } => {
                format!("{from}{}{to}", if *exclusive { "..." } else { ".." })
            }
            Self::Table(name) => format!("Hbase::Table - {name}"),
            Self::Filter(filter) => filter.to_string(),
            Self::Exception(failure) => format!("#<{}: {}>", failure.class, failure.message),
            Self::Java(text) => text.clone(),
        }
    }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

fn inspect_pair((key, value): &(Value, Value)) -> String {
    format!("{}=>{}", key.inspect(), value.inspect())
}

fn is_plain_symbol(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn inspect_float(number: f64) -> String {
    match number {
        n if n.is_nan() => "NaN".to_owned(),
        n if n.is_infinite() => if n > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        n if n != 0.0 && !(1e-4..1e16).contains(&n.abs()) => scientific(n),
        n => format!("{n:?}"),
    }
}

/// Ruby writes `1.0e+20` where Rust writes `1e20`.
fn scientific(number: f64) -> String {
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let point = if mantissa.contains('.') { "" } else { ".0" };
    let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |digits| ("-", digits));
    format!("{mantissa}{point}e{sign}{digits:0>2}")
}

/// A string in double quotes: text unchanged, control characters as escapes (`\u0000`), bytes that
/// are not UTF-8 as `\xFF`.
pub fn inspect_bytes(text: &[u8]) -> String {
    let mut shown = String::with_capacity(text.len() + 2);
    shown.push('"');
    for chunk in text.utf8_chunks() {
        chunk.valid().chars().for_each(|c| inspect_char(&mut shown, c));
        chunk.invalid().iter().for_each(|byte| push(&mut shown, format_args!("\\x{byte:02X}")));
    }
    shown.push('"');
    escape_interpolation(&shown)
}

/// `#` before `{`, `$` or `@` would start an interpolation.
fn escape_interpolation(shown: &str) -> String {
    shown.replace("#{", "\\#{").replace("#$", "\\#$").replace("#@", "\\#@")
}

fn inspect_char(shown: &mut String, c: char) {
    match c {
        '"' => shown.push_str("\\\""),
        '\\' => shown.push_str("\\\\"),
        '\n' => shown.push_str("\\n"),
        '\t' => shown.push_str("\\t"),
        '\r' => shown.push_str("\\r"),
        '\x1b' => shown.push_str("\\e"),
        '\x07' => shown.push_str("\\a"),
        '\x08' => shown.push_str("\\b"),
        '\x0b' => shown.push_str("\\v"),
        '\x0c' => shown.push_str("\\f"),
        '\x7f' => shown.push_str("\\x7F"),
        c if c.is_control() => push(shown, format_args!("\\u{:04X}", u32::from(c))),
        c => shown.push(c),
    }
}

/// Writing to a `String` cannot fail.
fn push(shown: &mut String, args: std::fmt::Arguments<'_>) {
    let _ = shown.write_fmt(args);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_ruby_prints_them() {
        for (value, shown) in [
            (Value::text("it's \"q\""), r#""it's \"q\"""#),
            (Value::text(b"a\x00\xff\n'"), r#""a\u0000\xFF\n'""#),
            (Value::text("\0"), r#""\u0000""#),
            (Value::text("#{x} é"), r##""\#{x} é""##),
            (Value::Float(1.5), "1.5"),
            (Value::Float(1e20), "1.0e+20"),
            (Value::Float(2.5e-7), "2.5e-07"),
            (Value::Symbol("a b".into()), ":\"a b\""),
            (Value::Array(vec![Value::Int(1), Value::Nil, Value::Bool(true)]), "[1, nil, true]"),
            (Value::Range { from: 1, to: 3, exclusive: true }, "1...3"),
        ] {
            assert_eq!(value.inspect(), shown);
        }
        let pairs = [(Value::text("NAME"), Value::text("x")), (Value::Symbol("a".into()), Value::Int(2))];
        assert_eq!(Value::Hash(pairs.into_iter().collect()).inspect(), r#"{"NAME"=>"x", :a=>2}"#);
    }

    #[test]
    fn a_hash_keeps_one_value_per_key() {
        let mut hash: Hash =
            [(Value::text("a"), Value::Int(1)), (Value::text("a"), Value::Int(2))].into_iter().collect();
        assert_eq!(hash.pairs().len(), 1);
        assert_eq!(hash.take("a"), Some(Value::Int(2)));
        assert_eq!(hash.option("a"), None);
    }
}
