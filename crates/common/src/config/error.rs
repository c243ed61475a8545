//! What can be wrong with a setting, told in one line that names the key, the value, where it was written and what was
//! expected there.

use std::fmt;

/// Longest part of a value that an error shows, in characters.
const SHOWN_CHARS: usize = 120;

/// A setting that cannot be used, or a file that cannot be read. Every form prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The value does not parse, or lies outside what the key allows. Correct it in the source named.
    Value {
        /// The key.
        key: String,
        /// Its value, after substitution.
        value: String,
        /// Where it was written.
        source: String,
        /// What the key takes.
        expected: String,
    },
    /// The key has no value and no default, and is needed.
    Missing {
        /// The key.
        key: String,
        /// What the key takes.
        expected: String,
    },
    /// `${x}` in the value refers to itself, or too deep.
    Substitution {
        /// The key.
        key: String,
        /// Its value, as written.
        value: String,
        /// Where it was written.
        source: String,
        /// The chain of references.
        reason: String,
    },
    /// The file cannot be read or is not a configuration.
    File {
        /// The file.
        path: String,
        /// What is wrong with it, with line and column where known.
        reason: String,
    },
}

impl ConfigError {
    /// An error for a value that parses but that the caller cannot use.
    pub fn unusable(
        key: impl Into<String>,
        value: impl Into<String>,
        source: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        Self::Value { key: key.into(), value: value.into(), source: source.into(), expected: expected.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { key, value, source, expected } => {
                write!(f, "{} = {} ({}): expected {expected}", line(key), shown(value), line(source))
            }
            Self::Missing { key, expected } => write!(f, "{} is not set: expected {expected}", line(key)),
            Self::Substitution { key, value, source, reason } => {
                write!(f, "{} = {} ({}): {}", line(key), shown(value), line(source), line(reason))
            }
            Self::File { path, reason } => write!(f, "{}: {}", line(path), line(reason)),
        }
    }
}

impl std::error::Error for ConfigError {}

/// A quoted, escaped and shortened value.
fn shown(value: &str) -> String {
    match value.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{:?}...", value.get(..end).unwrap_or_default()),
        None => format!("{value:?}"),
    }
}

/// Text without line breaks or other control characters.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
