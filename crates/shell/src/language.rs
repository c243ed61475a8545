//! The part of Ruby that HBase shell scripts use, parsed into a tree.
//!
//! | module | contents |
//! |---|---|
//! | [`token`] | words, literals and operators |
//! | [`ast`] | the tree, and how it is printed |
//! | [`parser`] | tokens to tree |
//! | `calls`, `blocks` | the parser's parts for calls, and for blocks and loops |
//! | `escape` | escapes in strings |
//!
//! Supported: literals (strings with escapes and `#{}`, numbers, symbols, arrays, hashes, ranges,
//! `%w[]`), calls with and without parentheses, with a receiver and with a block, constants and
//! paths of them, operators, assignments, indexing, `if`, `unless`, `while`, `until`, `for`,
//! `begin`/`rescue`, and trailing conditions. Definitions (`def`, `class`), `case`, regular
//! expressions, here-documents and backquotes are refused, with their position.
//!
//! No input makes it panic or recurse without bound.

pub mod ast;
mod blocks;
mod calls;
mod escape;
pub mod parser;
pub mod token;

pub use ast::Expr;
pub use parser::{parse, parse_with};

/// A syntax error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Byte offset in the source.
    pub at: usize,
    /// The message.
    pub message: String,
    /// True if more lines may complete the source.
    pub incomplete: bool,
}

impl SyntaxError {
    /// An error that more input cannot fix.
    pub fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), incomplete: false }
    }

    /// A source that is incomplete.
    pub fn incomplete(at: usize) -> Self {
        Self { at, message: "unexpected end of input".to_owned(), incomplete: true }
    }

    /// The line number from 0, the line, and the column in characters.
    pub fn position<'a>(&self, source: &'a str) -> (usize, &'a str, usize) {
        let at = (0..=self.at.min(source.len())).rev().find(|at| source.is_char_boundary(*at)).unwrap_or(0);
        let begin = source[..at].rfind('\n').map_or(0, |line_end| line_end + 1);
        let line = source[begin..].lines().next().unwrap_or_default();
        (source[..begin].matches('\n').count(), line, source[begin..at].chars().count())
    }
}
