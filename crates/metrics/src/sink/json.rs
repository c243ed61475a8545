//! [`JsonWriter`]: JSON in the layout of Gson's `JsonWriter` with an indent of two spaces, which is
//! the layout of HBase's `/jmx`. Empty objects and arrays are on one line.

use std::fmt::Write;

use crate::record::Value;
use crate::sink::number::push_value;

/// Writes one document. The caller balances begins and ends, and writes a name before each member.
#[derive(Debug, Default)]
pub struct JsonWriter {
    text: String,
    /// The number of elements of each open object or array.
    levels: Vec<usize>,
    is_after_name: bool,
}

impl JsonWriter {
    /// Opens an object.
    pub fn begin_object(&mut self) {
        self.begin('{');
    }

    /// Closes an object.
    pub fn end_object(&mut self) {
        self.end('}');
    }

    /// Opens an array.
    pub fn begin_array(&mut self) {
        self.begin('[');
    }

    /// Closes an array.
    pub fn end_array(&mut self) {
        self.end(']');
    }

    /// Writes the name of the next member.
    pub fn name(&mut self, name: &str) {
        self.name_of([name]);
    }

    /// Writes the name of the next member, which consists of these parts.
    pub fn name_of<const N: usize>(&mut self, parts: [&str; N]) {
        self.separate();
        self.text.push('"');
        parts.into_iter().for_each(|part| push_quoted(part, &mut self.text));
        self.text.push('"');
        self.text.push_str(": ");
        self.is_after_name = true;
    }

    /// Writes a string.
    pub fn string(&mut self, value: &str) {
        self.separate();
        quote(value, &mut self.text);
    }

    /// Writes a number, or another value that is valid JSON.
    pub fn literal(&mut self, value: &str) {
        self.separate();
        self.text.push_str(value);
    }

    /// Writes a number; one that is not finite is not valid JSON.
    pub fn number(&mut self, value: Value) {
        self.separate();
        push_value(value, &mut self.text);
    }

    /// Writes a member with a string value.
    pub fn member(&mut self, name: &str, value: &str) {
        self.name(name);
        self.string(value);
    }

    /// Returns the number of bytes that are written and not taken.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Returns true if nothing is written that is not taken.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Takes what is written; the document goes on.
    pub fn take(&mut self) -> String {
        let capacity = self.text.capacity();
        std::mem::replace(&mut self.text, String::with_capacity(capacity))
    }

    /// Returns the document, or the rest of it.
    pub fn finish(self) -> String {
        self.text
    }

    fn begin(&mut self, bracket: char) {
        self.separate();
        self.text.push(bracket);
        self.levels.push(0);
    }

    fn end(&mut self, bracket: char) {
        if self.levels.pop().is_some_and(|elements| elements > 0) {
            self.new_line();
        }
        self.text.push(bracket);
    }

    /// Writes the separator before the next element.
    fn separate(&mut self) {
        if std::mem::take(&mut self.is_after_name) {
            return;
        }
        let Some(elements) = self.levels.last_mut() else { return };
        *elements += 1;
        if *elements > 1 {
            self.text.push(',');
        }
        self.new_line();
    }

    fn new_line(&mut self) {
        const SPACES: &str = "\n                ";
        self.text.push_str(SPACES.get(..1 + 2 * self.levels.len()).unwrap_or(SPACES));
    }
}

/// Appends a JSON string, escaped as Gson does without its HTML escapes.
pub fn quote(value: &str, to: &mut String) {
    to.push('"');
    push_quoted(value, to);
    to.push('"');
}

fn push_quoted(value: &str, to: &mut String) {
    // Without an early return, so that the compiler compares many bytes at once.
    match value.bytes().fold(false, |found, byte| found | may_need_escape(byte)) {
        false => to.push_str(value),
        true => push_escaped(value, to),
    }
}

/// The first byte of the line separators that are escaped is that of others, too.
fn may_need_escape(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\' || byte == 0xe2
}

fn push_escaped(value: &str, to: &mut String) {
    for c in value.chars() {
        match c {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            '\u{8}' => to.push_str("\\b"),
            '\u{c}' => to.push_str("\\f"),
            c if c < ' ' || c == '\u{2028}' || c == '\u{2029}' => {
                // Writing to a `String` cannot fail.
                let _ok = write!(to, "\\u{:04x}", u32::from(c));
            }
            c => to.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_gson() {
        let mut json = JsonWriter::default();
        json.begin_object();
        json.member("a", "x\"\\\n\u{1}<>\u{2028}é");
        json.name("b");
        json.begin_array();
        json.literal("1");
        json.begin_object();
        json.end_object();
        json.end_array();
        json.name("c");
        json.begin_array();
        json.end_array();
        json.end_object();
        let expected = "{\n  \"a\": \"x\\\"\\\\\\n\\u0001<>\\u2028é\",\n  \"b\": [\n    1,\n    {}\n  ],\n  \"c\": []\n}";
        assert_eq!(json.finish(), expected);
    }
}
