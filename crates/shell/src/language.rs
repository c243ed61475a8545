//! The part of Ruby that people type into the HBase shell, read into a tree.
//!
//! | module | noun |
//! |---|---|
//! | [`token`] | words, literals and marks |
//! | [`ast`] | the tree, and how it is printed |
//! | [`parser`] | tokens to tree |
//! | `calls`, `blocks` | its parts for calls, and for blocks and loops |
//! | `escape` | escapes in strings |
//!
//! Read are: literals (strings with escapes and `#{}`, numbers, symbols, arrays, hashes, ranges, `%w[]`), calls with and
//! without parentheses, with a receiver and with a block, constants and paths of them, operators, assignments, indexing,
//! `if`, `unless`, `while`, `until`, `for`, `begin`/`rescue`, and the forms with a condition behind. Not read are
//! definitions (`def`, `class`), `case`, regular expressions, here-documents and backquotes; they are refused with their
//! place.
//!
//! Nothing here panics or recurses without bound, whatever it is given.

pub mod ast;
mod blocks;
mod calls;
mod escape;
pub mod parser;
pub mod token;

pub use ast::Expr;
pub use parser::{parse, parse_with};

/// Why a source cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Byte offset in the source.
    pub at: usize,
    /// What is wrong there.
    pub message: String,
    /// Whether more lines may make it right.
    pub incomplete: bool,
}

impl SyntaxError {
    /// An error that no more input can mend.
    pub fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into(), incomplete: false }
    }

    /// A source that ends too early.
    pub fn incomplete(at: usize) -> Self {
        Self { at, message: "unexpected end of input".to_owned(), incomplete: true }
    }

    /// The number of the line it is in, from 0, the line, and the column in characters.
    pub fn place<'a>(&self, source: &'a str) -> (usize, &'a str, usize) {
        let at = (0..=self.at.min(source.len())).rev().find(|at| source.is_char_boundary(*at)).unwrap_or(0);
        let begin = source[..at].rfind('\n').map_or(0, |line_end| line_end + 1);
        let line = source[begin..].lines().next().unwrap_or_default();
        (source[..begin].matches('\n').count(), line, source[begin..at].chars().count())
    }
}
