//! [`Args`]: the arguments of a command, with typed accessors.

use evenkeel_common::TableName;
use evenkeel_common::length;

use crate::error::{CommandResult, RubyError};
use crate::value::{Hash, Value};

/// The arguments of a command. Absent ones are `nil`.
pub struct Args(Vec<Value>);

impl Args {
    /// Arguments in order.
    pub fn new(values: Vec<Value>) -> Self {
        Self(values)
    }

    /// The number of arguments.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The argument at an index.
    pub fn get(&self, at: usize) -> &Value {
        self.0.get(at).unwrap_or(&Value::Nil)
    }

    /// The arguments from an index on.
    pub fn from(&self, at: usize) -> &[Value] {
        self.0.get(at..).unwrap_or_default()
    }

    /// The argument at an index as text.
    pub fn text(&self, at: usize) -> String {
        self.get(at).to_text()
    }

    /// The argument at an index as bytes; numbers and symbols as printed.
    pub fn bytes(&self, at: usize) -> Vec<u8> {
        self.get(at).to_bytes()
    }

    /// The argument at an index as text, if it is given.
    pub fn optional_text(&self, at: usize) -> Option<String> {
        (*self.get(at) != Value::Nil).then(|| self.text(at))
    }

    /// The argument at an index as a table's name.
    pub fn table(&self, at: usize) -> CommandResult<TableName> {
        table_name(self.get(at))
    }

    /// The argument at an index as a hash; an empty one if it is not given.
    pub fn hash(&self, at: usize) -> CommandResult<Hash> {
        match self.get(at) {
            Value::Nil => Ok(Hash::default()),
            Value::Hash(hash) => Ok(hash.clone()),
            _ => Err(RubyError::argument("Arguments should be a Hash").into()),
        }
    }

    /// The argument at an index as a flag. Accepts the strings `true` and `false`, as the stock
    /// shell's switches do.
    pub fn flag(&self, at: usize) -> bool {
        flag(self.get(at))
    }
}

/// A value as a table's name.
pub fn table_name(value: &Value) -> CommandResult<TableName> {
    match value {
        Value::Table(name) => Ok(name.clone()),
        Value::Str(name) => Ok(TableName::from_bytes(name)?),
        Value::Symbol(name) => Ok(name.parse()?),
        _ => Err(RubyError::argument("Table name must be of type String").into()),
    }
}

/// A value as a flag.
pub fn flag(value: &Value) -> bool {
    match value {
        Value::Str(text) => text.eq_ignore_ascii_case(b"true"),
        other => *other == Value::Bool(true),
    }
}

/// A value as a number, also if it is a string. Errors are those of `Long.parseLong`.
pub fn number(name: &str, value: &Value) -> CommandResult<i64> {
    let number = match value {
        Value::Int(number) => Some(*number),
        Value::Float(number) => Some(length::integer_part(*number)),
        Value::Str(text) => std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok()),
        _ => None,
    };
    let why = || match value {
        Value::Str(_) => format!("For input string: {}", value.inspect()),
        other => format!("{name} must be a number, not {}", other.inspect()),
    };
    number.ok_or_else(|| RubyError::argument(why()).into())
}

/// A value as a number of 0 or more.
pub fn natural(name: &str, value: &Value) -> CommandResult<u64> {
    let number = u64::try_from(number(name, value)?);
    number.map_err(|_| RubyError::argument(format!("{name} must not be negative")).into())
}
