//! Tokens: words, literals and operators.
//!
//! Spaces matter in Ruby (`put [1]` calls, `put[1]` indexes), so every token records whether a
//! space precedes it. Input that ends within a literal is *incomplete*, not invalid: the reader
//! requests another line.

use super::{SyntaxError, escape};

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenKind {
    /// A line end or `;`.
    Break,
    /// A word, or keyword, that begins with a lower-case letter or `_`. May end with `?` or `!`.
    Word(String),
    /// A word that begins with a capital letter.
    Constant(String),
    /// `name:` before a value in a hash.
    Label(String),
    /// A whole number.
    Int(i64),
    /// A number with a decimal point or exponent.
    Float(f64),
    /// A string.
    Str(Vec<Part>),
    /// `:name`
    Symbol(String),
    /// `%w[a b]`
    Words(Vec<String>),
    /// An operator, bracket or comma.
    Mark(&'static str),
    /// The end of the input.
    End,
}

/// A part of a double-quoted string.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Literal bytes.
    Text(Vec<u8>),
    /// The source between `#{` and `}`, and its offset.
    Code(String, usize),
}

/// A token and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// Its kind.
    pub kind: TokenKind,
    /// Byte offset of its first character.
    pub at: usize,
    /// True if a space or the start of a line precedes it.
    pub spaced: bool,
}

/// Longest first, so that `<=>` is not read as `<=`.
const MARKS: &[&str] = &[
    "...", "<=>", "===", "**=", "||=", "&&=", "=>", "==", "=~", "!=", "!~", "<=", ">=", "<<", ">>", "&&",
    "||", "..", "::", "**", "+=", "-=", "*=", "/=", "%=", "&.", "->", "+", "-", "*", "/", "%", "=", "<", ">",
    "!", "?", ":", ",", ".", "(", ")", "[", "]", "{", "}", "|", "&", "^", "~",
];

/// Splits a source into tokens; the last one is [`TokenKind::End`].
///
/// # Errors
/// If a literal is invalid or does not end.
pub fn tokens(source: &str) -> Result<Vec<Token>, SyntaxError> {
    let mut lexer = Lexer { source, at: 0, tokens: Vec::new() };
    while lexer.step()? {}
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn peek_at(&self, offset: usize) -> Option<u8> {
        self.source.as_bytes().get(self.at + offset).copied()
    }

    /// Reads one token; returns false after the last.
    fn step(&mut self) -> Result<bool, SyntaxError> {
        let spaced = self.skip_space() || self.tokens.is_empty();
        let at = self.at;
        let Some(c) = self.peek() else {
            self.tokens.push(Token { kind: TokenKind::End, at, spaced });
            return Ok(false);
        };
        let kind = match c {
            '\n' | ';' => {
                self.at += 1;
                TokenKind::Break
            }
            '"' | '`' | '\'' => self.string(c)?,
            '0'..='9' => self.number()?,
            '%' if self.begins_words(spaced) => self.words()?,
            ':' if self.begins_symbol() => self.symbol()?,
            c if c.is_alphabetic() || matches!(c, '_' | '@' | '$') => self.word(),
            _ => self.mark()?,
        };
        self.tokens.push(Token { kind, at, spaced });
        Ok(true)
    }

    /// Skips blanks, comments and escaped line ends. Returns true if there were any.
    fn skip_space(&mut self) -> bool {
        let start = self.at;
        loop {
            let rest = self.rest();
            if rest.starts_with([' ', '\t', '\r']) {
                self.at += 1;
            } else if rest.starts_with("\\\n") {
                self.at += 2;
            } else if rest.starts_with("\\\r\n") {
                self.at += 3;
            } else if rest.starts_with('#') {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else {
                return self.at > start;
            }
        }
    }

    fn mark(&mut self) -> Result<TokenKind, SyntaxError> {
        if self.rest() == "\\" {
            return Err(SyntaxError::incomplete(self.at));
        }
        let found = MARKS.iter().find(|mark| self.rest().starts_with(**mark));
        let Some(mark) = found else {
            let c = self.peek().unwrap_or(' ');
            return Err(SyntaxError::new(self.at, format!("unexpected character '{c}'")));
        };
        self.at += mark.len();
        Ok(TokenKind::Mark(mark))
    }

    fn word(&mut self) -> TokenKind {
        let start = self.at;
        let sigil = self.rest().starts_with(['@', '$']) as usize;
        let rest = &self.rest()[sigil..];
        let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        self.at += sigil + length;
        self.at += self.question_mark();
        let text = self.source[start..self.at].to_owned();
        let label = self.peek_at(0) == Some(b':') && self.peek_at(1) != Some(b':');
        if label && !self.after_question() {
            self.at += 1;
            return TokenKind::Label(text);
        }
        match text.chars().next() {
            Some(c) if c.is_uppercase() => TokenKind::Constant(text),
            _ => TokenKind::Word(text),
        }
    }

    /// The length of a `?` or `!` that belongs to the word before it.
    fn question_mark(&self) -> usize {
        let ends = matches!(self.peek_at(0), Some(b'?' | b'!'));
        (ends && !matches!(self.peek_at(1), Some(b'=' | b':'))) as usize
    }

    /// Returns true if a `?` of a condition is open, so that a `:` does not end a label.
    fn after_question(&self) -> bool {
        let line = self.tokens.iter().rev().take_while(|t| t.kind != TokenKind::Break);
        let mut depth = 0;
        for token in line {
            match token.kind {
                TokenKind::Mark("?") if depth == 0 => return true,
                TokenKind::Mark(":") => depth += 1,
                TokenKind::Mark("?") => depth -= 1,
                TokenKind::Mark("," | "{" | "(" | "[") => return false,
                _ => {}
            }
        }
        false
    }

    fn begins_symbol(&self) -> bool {
        let next = self.rest()[1..].chars().next();
        let after_word = self.tokens.last().is_some_and(|t| matches!(t.kind, TokenKind::Mark("?")));
        next.is_some_and(|c| c.is_alphabetic() || matches!(c, '_' | '"')) && !after_word
    }

    fn symbol(&mut self) -> Result<TokenKind, SyntaxError> {
        self.at += 1;
        if self.rest().starts_with('"') {
            return match self.string('"')? {
                TokenKind::Str(parts) => plain_symbol(parts, self.at),
                other => Ok(other),
            };
        }
        let rest = self.rest();
        let length = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let name = rest[..length].to_owned();
        self.at += length;
        Ok(TokenKind::Symbol(name))
    }

    fn number(&mut self) -> Result<TokenKind, SyntaxError> {
        let start = self.at;
        for (prefix, radix) in [("0x", 16), ("0b", 2), ("0o", 8)] {
            if self.rest().get(..2).is_some_and(|head| head.eq_ignore_ascii_case(prefix)) {
                self.at += 2;
                let digits = self.digits(|c| c.is_digit(radix));
                return self.integer(start, &digits, radix);
            }
        }
        let mut text = self.digits(|c| c.is_ascii_digit());
        let mut float = false;
        if self.peek_at(0) == Some(b'.') && self.peek_at(1).is_some_and(|b| b.is_ascii_digit()) {
            self.at += 1;
            text = format!("{text}.{}", self.digits(|c| c.is_ascii_digit()));
            float = true;
        }
        if let Some(exponent) = self.exponent() {
            text.push_str(&exponent);
            float = true;
        }
        match float {
            true => text.parse().map(TokenKind::Float).map_err(|_| SyntaxError::new(start, "not a number")),
            false if text.len() > 1 && text.starts_with('0') => self.integer(start, &text, 8),
            false => self.integer(start, &text, 10),
        }
    }

    fn digits(&mut self, is_digit: impl Fn(char) -> bool) -> String {
        let rest = self.rest();
        let length = rest.find(|c| !(is_digit(c) || c == '_')).unwrap_or(rest.len());
        let digits = rest[..length].replace('_', "");
        self.at += length;
        digits
    }

    fn exponent(&mut self) -> Option<String> {
        let rest = self.rest().strip_prefix(['e', 'E'])?;
        let sign = rest.starts_with(['+', '-']) as usize;
        let digits = rest[sign..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - sign);
        if digits == 0 {
            return None;
        }
        let text = format!("e{}", &rest[..sign + digits]);
        self.at += text.len();
        Some(text)
    }

    fn integer(&self, start: usize, digits: &str, radix: u32) -> Result<TokenKind, SyntaxError> {
        let number = i64::from_str_radix(digits, radix);
        number
            .map(TokenKind::Int)
            .map_err(|_| SyntaxError::new(start, "a number that does not fit in 64 bits"))
    }

    /// `%w[` where a value may begin; elsewhere `%` is the remainder.
    fn begins_words(&self, spaced: bool) -> bool {
        let opens = matches!(self.peek_at(1), Some(b'w' | b'W'))
            && matches!(self.peek_at(2), Some(b'[' | b'(' | b'{' | b'<' | b'|'));
        opens && (spaced || self.tokens.last().is_some_and(|t| matches!(t.kind, TokenKind::Mark(_))))
    }

    fn words(&mut self) -> Result<TokenKind, SyntaxError> {
        let start = self.at;
        let close = match self.peek_at(2) {
            Some(b'[') => ']',
            Some(b'(') => ')',
            Some(b'{') => '}',
            Some(b'<') => '>',
            _ => '|',
        };
        self.at += 3;
        let length = self.rest().find(close).ok_or_else(|| SyntaxError::incomplete(start))?;
        let words = self.rest()[..length].split_whitespace().map(str::to_owned).collect();
        self.at += length + 1;
        Ok(TokenKind::Words(words))
    }

    fn string(&mut self, quote: char) -> Result<TokenKind, SyntaxError> {
        let start = self.at;
        if quote == '`' {
            return Err(SyntaxError::new(start, "shell commands in backquotes are not supported"));
        }
        self.at += 1;
        let mut parts = vec![];
        let mut text = Vec::new();
        loop {
            let Some(c) = self.peek() else { return Err(SyntaxError::incomplete(start)) };
            match c {
                c if c == quote => break,
                '\\' => {
                    self.at += escape::read(self.rest(), quote, &mut text)
                        .map_err(|why| why.into_error(self.at, start))?
                }
                '#' if quote == '"' && self.rest().starts_with("#{") => {
                    parts.push(Part::Text(std::mem::take(&mut text)));
                    parts.push(self.interpolation(start)?);
                }
                c => {
                    text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                    self.at += c.len_utf8();
                }
            }
        }
        self.at += 1;
        parts.push(Part::Text(text));
        parts.retain(|part| *part != Part::Text(Vec::new()));
        Ok(self.string_or_label(parts))
    }

    /// `"key": value` in a hash.
    fn string_or_label(&mut self, parts: Vec<Part>) -> TokenKind {
        let label = self.peek_at(0) == Some(b':') && matches!(self.peek_at(1), Some(b' ' | b'\t'));
        let text = match parts.as_slice() {
            [Part::Text(text)] if label && !self.after_question() => std::str::from_utf8(text).ok(),
            _ => None,
        };
        let Some(label) = text.map(str::to_owned) else { return TokenKind::Str(parts) };
        self.at += 1;
        TokenKind::Label(label)
    }

    /// The code up to the brace that closes `#{`. Strings in it may contain braces and nested code.
    fn interpolation(&mut self, start: usize) -> Result<Part, SyntaxError> {
        self.at += 2;
        let begin = self.at;
        let mut open = vec!['}'];
        while let (Some(c), Some(&closes)) = (self.peek(), open.last()) {
            let in_code = closes == '}';
            let enters_code = closes == '"' && self.rest().starts_with("#{");
            match c {
                '\\' if !in_code => self.at += 1,
                _ if c == closes => drop(open.pop()),
                '\'' | '"' if in_code => open.push(c),
                '{' if in_code => open.push('}'),
                '#' if enters_code => {
                    self.at += 1;
                    open.push('}');
                }
                _ => {}
            }
            if open.is_empty() {
                let code = self.source[begin..self.at].to_owned();
                self.at += 1;
                return Ok(Part::Code(code, begin));
            }
            self.at += self.peek().map_or(0, char::len_utf8);
        }
        Err(SyntaxError::incomplete(start))
    }
}

fn plain_symbol(parts: Vec<Part>, at: usize) -> Result<TokenKind, SyntaxError> {
    let text = match parts.as_slice() {
        [] => Some(String::new()),
        [Part::Text(text)] => String::from_utf8(text.clone()).ok(),
        _ => None,
    };
    text.map(TokenKind::Symbol).ok_or_else(|| SyntaxError::new(at, "a symbol must be plain text"))
}
