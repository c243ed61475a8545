//! [`ConfigError`]: a faulty setting, described in one line that names the key, the value, its
//! source and the expected form.

use std::fmt;

/// The maximum number of characters of a value that an error shows.
const SHOWN_CHARS: usize = 120;

/// A setting that cannot be used, or a file that cannot be read. Every variant prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// The value does not parse, or is outside the range of the key. The user corrects it in the
    /// named source.
    Value {
        /// The key.
        key: String,
        /// Its value, after substitution.
        value: String,
        /// Where the value was set.
        source: String,
        /// The form that the key accepts.
        expected: String,
    },
    /// The key is required but has no value and no default.
    Missing {
        /// The key.
        key: String,
        /// The form that the key accepts.
        expected: String,
    },
    /// `${x}` in the value refers to itself, or references are nested too deep.
    Substitution {
        /// The key.
        key: String,
        /// Its value before substitution.
        value: String,
        /// Where the value was set.
        source: String,
        /// The chain of references.
        reason: String,
    },
    /// The file cannot be read or is not a configuration.
    File {
        /// The file.
        path: String,
        /// The fault, with line and column if known.
        reason: String,
    },
}

impl ConfigError {
    /// An error for a value that parses but is not usable.
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
