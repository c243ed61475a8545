//! Translates Java regular expressions for the `regex` crate.
//!
//! Only whether a pattern is found matters, so groups capture nothing. Case, dots, line ends and
//! classes are spelled out here instead of using the crate's flags, because their meanings differ.
//! In Java `\w`, `\d`, `\s`, `\p{Alpha}` and case folding are ASCII unless flags say otherwise, and
//! a line ends at `\r\n`, `\n`, `\r`, U+0085, U+2028 or U+2029.
//!
//! Rejected, because the crate searches in linear time and does not support them: look-around (but
//! see [`super::comparator`] for the one of quota filters),
//! back-references, atomic groups, possessive quantifiers. Also rejected: `\X`, `\N`, `\b{g}`,
//! canonical equivalence, Java-specific and block properties, and a `$` in the middle of a pattern.
//!
//! Known differences: with MULTILINE, `^` also matches after a line end that ends the text, and
//! lines end at `\r` and `\n` only.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::iter::Peekable;
use std::str::Chars;

const UNIX_LINES: i32 = 0x01;
const CASE_INSENSITIVE: i32 = 0x02;
const COMMENTS: i32 = 0x04;
const MULTILINE: i32 = 0x08;
const LITERAL: i32 = 0x10;
const DOTALL: i32 = 0x20;
const UNICODE_CASE: i32 = 0x40;
const CANON_EQ: i32 = 0x80;
const UNICODE_CHARACTER_CLASS: i32 = 0x100;
const ALL_FLAGS: i32 = 0x1ff;

/// The maximum depth of nested groups and classes.
const DEPTH_MAX: usize = 100;

/// Translates a pattern and flags of `java.util.regex.Pattern` to a pattern of the `regex` crate.
///
/// # Errors
/// The reason why the pattern is rejected.
pub fn translate(pattern: &str, flags: i32) -> Result<String, String> {
    if flags & !ALL_FLAGS != 0 {
        return Err(format!("Unknown flag {:#x}", flags & !ALL_FLAGS));
    }
    if flags & CANON_EQ != 0 {
        return Err("canonical equivalence is not supported".into());
    }
    let mut translator =
        Translator { input: pattern.chars().peekable(), out: String::new(), flags, depth: 0 };
    if flags & LITERAL != 0 {
        pattern.chars().for_each(|c| translator.literal(c));
    } else {
        translator.alternatives()?;
        if translator.input.next().is_some() {
            return Err("unmatched closing )".into());
        }
    }
    Ok(translator.out)
}

struct Translator<'a> {
    input: Peekable<Chars<'a>>,
    out: String,
    flags: i32,
    depth: usize,
}

impl Translator<'_> {
    fn has(&self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    fn enter(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(format!("nested more than {DEPTH_MAX} deep")) } else { Ok(()) }
    }

    /// Parses up to the end, or up to a `)`, which is not consumed.
    fn alternatives(&mut self) -> Result<(), String> {
        while let Some(c) = self.input.next_if(|c| *c != ')') {
            match c {
                '|' => self.out.push('|'),
                _ if self.has(COMMENTS) && (c == '#' || c.is_ascii_whitespace() || c == '\x0b') => {
                    self.comment(c)
                }
                '*' | '+' | '?' => return Err(format!("Dangling meta character '{c}'")),
                '{' => return Err("Illegal repetition".into()),
                _ => {
                    self.atom(c)?;
                    self.quantifier()?;
                }
            }
        }
        Ok(())
    }

    fn comment(&mut self, first: char) {
        while first == '#' && self.input.next().is_some_and(|c| c != '\n') {}
    }

    fn atom(&mut self, c: char) -> Result<(), String> {
        match c {
            '(' => return self.group(),
            '[' if self.folds_unicode() => {
                self.out.push_str("(?i:");
                self.class()?;
                self.out.push(')');
            }
            '[' => return self.class(),
            '\\' => return self.escape(),
            '.' => self.out.push_str(self.dot()),
            '^' if self.has(MULTILINE) => {
                self.out.push_str(if self.has(UNIX_LINES) { "(?m:^)" } else { "(?mR:^)" })
            }
            '^' => self.out.push_str(r"\A"),
            '$' if self.has(MULTILINE) => {
                self.out.push_str(if self.has(UNIX_LINES) { "(?m:$)" } else { "(?mR:$)" })
            }
            '$' => return self.end_of_text(),
            _ => self.literal(c),
        }
        Ok(())
    }

    fn dot(&self) -> &'static str {
        match (self.has(DOTALL), self.has(UNIX_LINES)) {
            (true, _) => "(?s:.)",
            (false, true) => r"[^\n]",
            (false, false) => r"[^\n\r\x{85}\x{2028}\x{2029}]",
        }
    }

    /// Translates an end of the text, which may be before a final line end. The line end is
    /// consumed, so nothing may follow.
    fn end_of_text(&mut self) -> Result<(), String> {
        if self.input.peek().is_some_and(|c| !matches!(c, ')' | '|')) {
            return Err("$ or \\Z in the middle is not supported".into());
        }
        self.out.push_str(if self.has(UNIX_LINES) {
            r"(?:\n?\z)"
        } else {
            r"(?:(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z)"
        });
        Ok(())
    }

    fn folds_ascii(&self, c: char) -> bool {
        self.has(CASE_INSENSITIVE) && !self.has(UNICODE_CASE) && c.is_ascii_alphabetic()
    }

    fn folds_unicode(&self) -> bool {
        self.has(CASE_INSENSITIVE) && self.has(UNICODE_CASE)
    }

    fn literal(&mut self, c: char) {
        if self.folds_ascii(c) {
            self.out.extend(['[', c.to_ascii_lowercase(), c.to_ascii_uppercase(), ']']);
        } else if self.folds_unicode() && c.is_alphabetic() {
            self.out.push_str(&format!("(?i:{c})"));
        } else {
            push_escaped(&mut self.out, c);
        }
    }

    fn quantifier(&mut self) -> Result<(), String> {
        while self.has(COMMENTS) && self.input.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        match self.input.next_if(|c| matches!(c, '*' | '+' | '?' | '{')) {
            None => return Ok(()),
            Some('{') => self.repetition()?,
            Some(c) => self.out.push(c),
        }
        match self.input.next_if(|c| matches!(c, '+' | '?' | '*' | '{')) {
            Some('?') => self.out.push('?'),
            Some('+') => return Err("possessive quantifiers are not supported".into()),
            Some(c) => return Err(format!("Dangling meta character '{c}'")),
            None => {}
        }
        Ok(())
    }

    fn repetition(&mut self) -> Result<(), String> {
        let counts = self.until('}').ok_or("Unclosed counted closure")?;
        let (min, max) = counts.split_once(',').unwrap_or((&counts, ""));
        let is_number = |n: &str| n.bytes().all(|b| b.is_ascii_digit());
        if min.is_empty() || !is_number(min) || !is_number(max) {
            return Err("Illegal repetition".into());
        }
        self.out.push_str(&format!("{{{counts}}}"));
        Ok(())
    }

    /// Returns the text before the next `end`, which is consumed; `None` if there is none.
    fn until(&mut self, end: char) -> Option<String> {
        let mut text = String::new();
        loop {
            match self.input.next()? {
                c if c == end => return Some(text),
                c => text.push(c),
            }
        }
    }

    fn group(&mut self) -> Result<(), String> {
        self.enter()?;
        let outer_flags = self.flags;
        if self.input.next_if_eq(&'?').is_some() && !self.special_group()? {
            self.depth -= 1;
            return Ok(());
        }
        self.out.push_str("(?:");
        self.alternatives()?;
        self.input.next().ok_or("Unclosed group")?;
        self.out.push(')');
        self.flags = outer_flags;
        self.depth -= 1;
        Ok(())
    }

    /// Parses after `(?`. Returns true if a group's content follows; flags alone apply from here
    /// on.
    fn special_group(&mut self) -> Result<bool, String> {
        match self.input.peek() {
            Some(':') => drop(self.input.next()),
            Some('=' | '!') => return Err("look-ahead is not supported".into()),
            Some('>') => return Err("atomic groups are not supported".into()),
            Some('<') => {
                self.input.next();
                if self.input.peek().is_some_and(|c| matches!(c, '=' | '!')) {
                    return Err("look-behind is not supported".into());
                }
                let name = self.until('>').ok_or("named capturing group is missing trailing '>'")?;
                if !name.starts_with(|c: char| c.is_ascii_alphabetic())
                    || !name.chars().all(|c| c.is_ascii_alphanumeric())
                {
                    return Err("Illegal name of a group".into());
                }
            }
            _ => return self.inline_flags(),
        }
        Ok(true)
    }

    fn inline_flags(&mut self) -> Result<bool, String> {
        let mut on = true;
        loop {
            let flag = match self.input.next() {
                Some('-') if on => {
                    on = false;
                    continue;
                }
                Some(':') => return Ok(true),
                Some(')') => return Ok(false),
                Some('i') => CASE_INSENSITIVE,
                Some('m') => MULTILINE,
                Some('s') => DOTALL,
                Some('d') => UNIX_LINES,
                Some('u') => UNICODE_CASE,
                Some('x') => COMMENTS,
                Some('U') => UNICODE_CHARACTER_CLASS | UNICODE_CASE,
                _ => return Err("Unknown inline modifier".into()),
            };
            self.flags = if on { self.flags | flag } else { self.flags & !flag };
        }
    }

    /// Parses after a `\` outside a class.
    fn escape(&mut self) -> Result<(), String> {
        let c = self.input.next().ok_or("pattern ends with \\")?;
        match c {
            '1'..='9' | 'k' => return Err("back-references are not supported".into()),
            'A' | 'G' => self.out.push_str(r"\A"),
            'z' => self.out.push_str(r"\z"),
            'Z' => return self.end_of_text(),
            'b' if self.input.peek() == Some(&'{') => return Err("\\b{g} is not supported".into()),
            'b' => self.out.push_str(r"\b"),
            'B' => self.out.push_str(r"\B"),
            'R' => self.out.push_str(r"(?:\r\n|[\n\x0B\f\r\x{85}\x{2028}\x{2029}])"),
            'Q' => self.quoted(),
            _ => match self.class_escape(c)? {
                Some(class) => self.out.push_str(&class),
                None => {
                    let c = self.character_escape(c)?;
                    self.literal(c);
                }
            },
        }
        Ok(())
    }

    /// Parses the characters of `\Q..\E` except the last, to which a quantifier would belong.
    fn quoted(&mut self) {
        while let Some(c) = self.input.next() {
            if c == '\\' && self.input.next_if_eq(&'E').is_some() {
                return;
            }
            self.literal(c);
        }
    }

    /// Returns the class for an escape, in brackets; `None` if the escape is one character.
    fn class_escape(&mut self, c: char) -> Result<Option<String>, String> {
        let unicode = self.has(UNICODE_CHARACTER_CLASS);
        let set = match c.to_ascii_lowercase() {
            'w' | 'd' | 's' if unicode => return Ok(Some(format!("\\{c}"))),
            'w' => "0-9A-Z_a-z",
            'd' => "0-9",
            's' => r"\t\n\x0B\f\r\x20",
            'h' => r"\x20\t\x{A0}\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}",
            'v' => r"\n\x0B\f\r\x{85}\x{2028}\x{2029}",
            'p' => return self.property(c == 'P').map(Some),
            _ => return Ok(None),
        };
        Ok(Some(in_brackets(set, c.is_ascii_uppercase())))
    }

    fn property(&mut self, negated: bool) -> Result<String, String> {
        let name = match self.input.next() {
            Some('{') => self.until('}').ok_or("Unclosed character family")?,
            Some(c) => c.to_string(),
            None => return Err("Unknown character property".into()),
        };
        if let Some(set) = posix_class(&name).filter(|_| !self.has(UNICODE_CHARACTER_CLASS)) {
            let either_case = self.has(CASE_INSENSITIVE) && matches!(&name[..], "Lower" | "Upper");
            return Ok(in_brackets(if either_case { "a-zA-Z" } else { set }, negated));
        }
        let known = name.strip_prefix("Is").unwrap_or(&name);
        if known.is_empty() || name.starts_with("java") || name.starts_with("In") {
            return Err(format!("\\p{{{name}}} is not supported"));
        }
        if !known.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'=') {
            return Err(format!("Unknown character property {name}"));
        }
        Ok(format!("\\{}{{{known}}}", if negated { 'P' } else { 'p' }))
    }

    /// Parses after a `\`: returns the one character that an escape stands for.
    fn character_escape(&mut self, c: char) -> Result<char, String> {
        Ok(match c {
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'f' => '\x0c',
            'a' => '\x07',
            'e' => '\x1b',
            'c' => match self.input.next() {
                Some(c) if c.is_ascii() => char::from(c as u8 ^ 0x40),
                _ => return Err("Illegal control escape sequence".into()),
            },
            '0' => self.octal()?,
            'x' if self.input.next_if_eq(&'{').is_some() => {
                let digits = self.until('}').ok_or("Unclosed hexadecimal escape sequence")?;
                hex(&digits)?
            }
            'x' => self.hex_digits(2)?,
            'u' => self.hex_digits(4)?,
            c if c.is_ascii_alphanumeric() => {
                return Err(format!("Illegal/unsupported escape sequence \\{c}"));
            }
            c => c,
        })
    }

    fn hex_digits(&mut self, count: usize) -> Result<char, String> {
        let digits: String = self.input.by_ref().take(count).collect();
        if digits.len() == count { hex(&digits) } else { Err("Illegal hexadecimal escape sequence".into()) }
    }

    fn octal(&mut self) -> Result<char, String> {
        let mut value = None;
        for _ in 0..3 {
            let next = |c: char| c.to_digit(8).map(|d| value.unwrap_or(0) * 8 + d).filter(|v| *v <= 0o377);
            let Some(now) = self.input.peek().and_then(|c| next(*c)) else { break };
            self.input.next();
            value = Some(now);
        }
        value.and_then(char::from_u32).ok_or("Illegal octal escape sequence".into())
    }

    /// Parses after a `[`.
    fn class(&mut self) -> Result<(), String> {
        self.enter()?;
        self.out.push('[');
        if self.input.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            match self.input.next().ok_or("Unclosed character class")? {
                ']' if !first => break,
                '[' => self.class()?,
                '&' if self.input.next_if_eq(&'&').is_some() => self.out.push_str("&&"),
                c if self.has(COMMENTS) && (c == '#' || c.is_ascii_whitespace()) => self.comment(c),
                c => self.class_item(c)?,
            }
            first = false;
        }
        self.out.push(']');
        self.depth -= 1;
        Ok(())
    }

    fn class_item(&mut self, c: char) -> Result<(), String> {
        let start = match c {
            '\\' => match self.class_character()? {
                Some(c) => c,
                None => return Ok(()),
            },
            c => c,
        };
        let mut ahead = self.input.clone();
        let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|c| !matches!(c, ']' | '['));
        if !is_range {
            self.class_range(start, start);
            return Ok(());
        }
        self.input.next();
        let end = match self.input.next() {
            Some('\\') => self.class_character()?.ok_or("Illegal character range")?,
            Some(c) => c,
            None => return Err("Unclosed character class".into()),
        };
        if end < start {
            return Err("Illegal character range".into());
        }
        self.class_range(start, end);
        Ok(())
    }

    /// Parses after a `\` within a class; `None` if the escape was a class, which is then written.
    fn class_character(&mut self) -> Result<Option<char>, String> {
        let c = self.input.next().ok_or("Unclosed character class")?;
        if c == 'Q' {
            let mut last = None;
            while let Some(c) = self.input.next() {
                if c == '\\' && self.input.next_if_eq(&'E').is_some() {
                    break;
                }
                last.replace(c).into_iter().for_each(|c| self.class_range(c, c));
            }
            last.into_iter().for_each(|c| self.class_range(c, c));
            return Ok(None);
        }
        match self.class_escape(c)? {
            Some(class) => {
                self.out.push_str(&class);
                Ok(None)
            }
            None => self.character_escape(c).map(Some),
        }
    }

    /// Writes a range within a class, and its letters in the other case if case is ignored.
    fn class_range(&mut self, start: char, end: char) {
        push_range(&mut self.out, start, end);
        if !self.has(CASE_INSENSITIVE) || self.has(UNICODE_CASE) {
            return;
        }
        for (first, last, flip) in
            [('a', 'z', char::to_ascii_uppercase as fn(&char) -> char), ('A', 'Z', char::to_ascii_lowercase)]
        {
            let (from, to) = (start.max(first), end.min(last));
            if from <= to {
                push_range(&mut self.out, flip(&from), flip(&to));
            }
        }
    }
}

fn in_brackets(set: &str, negated: bool) -> String {
    format!("[{}{set}]", if negated { "^" } else { "" })
}

fn posix_class(name: &str) -> Option<&'static str> {
    Some(match name {
        "Lower" => "a-z",
        "Upper" => "A-Z",
        "ASCII" => r"\x00-\x7F",
        "Alpha" => "a-zA-Z",
        "Digit" => "0-9",
        "Alnum" => "0-9a-zA-Z",
        "Punct" => r"!-/:-@\[-`{-~",
        "Graph" => "!-~",
        "Print" => r"\x20-\x7E",
        "Blank" => r"\x20\t",
        "Cntrl" => r"\x00-\x1F\x7F",
        "XDigit" => "0-9a-fA-F",
        "Space" => r"\x20\t\n\x0B\f\r",
        _ => return None,
    })
}

fn hex(digits: &str) -> Result<char, String> {
    let code = if digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        u32::from_str_radix(digits, 16).ok()
    } else {
        None
    };
    code.and_then(char::from_u32).ok_or("Illegal hexadecimal escape sequence".into())
}

fn push_range(out: &mut String, start: char, end: char) {
    push_escaped(out, start);
    if start != end {
        out.push('-');
        push_escaped(out, end);
    }
}

/// Appends a literal character, inside or outside of a class.
fn push_escaped(out: &mut String, c: char) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        out.push_str(&format!("\\x{:02X}", c as u32));
    } else {
        out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &str, flags: i32, text: &str) -> bool {
        let translated = translate(pattern, flags).unwrap_or_else(|e| panic!("{pattern}: {e}"));
        regex::Regex::new(&translated)
            .unwrap_or_else(|e| panic!("{pattern} -> {translated}: {e}"))
            .is_match(text)
    }

    /// A pattern, its flags, a text, and whether Java finds the pattern in the text.
    type Match = (&'static str, i32, &'static str, bool);

    /// What `.`, `^` and `$` match at the ends of lines.
    const LINE_ENDS: &[Match] = &[
        ("b", 0, "abc", true),
        ("^b", 0, "abc", false),
        ("^a.c$", 0, "abc", true),
        ("a.c", 0, "a\nc", false),
        ("a.c", DOTALL, "a\nc", true),
        ("a.c", 0, "a\u{2028}c", false),
        ("a.c", UNIX_LINES, "a\u{2028}c", true),
        ("abc$", 0, "abc\n", true),
        ("abc$", 0, "abc\r\n", true),
        ("abc$", 0, "abc\n\n", false),
        (r"abc\z", 0, "abc\n", false),
        (r"abc\Z", 0, "abc\r", true),
        ("abc$", UNIX_LINES, "abc\r", false),
        ("^b$", MULTILINE, "a\nb\nc", true),
        ("^b$", 0, "a\nb\nc", false),
        ("^b$", MULTILINE | UNIX_LINES, "a\r\nb\r\nc", false),
        ("^b$", MULTILINE, "a\r\nb\r\nc", true),
        ("(a|b)$|c", 0, "xb", true),
    ];

    /// Letters of either case.
    const CASE: &[Match] = &[
        ("ABC", CASE_INSENSITIVE, "xabcx", true),
        ("k", CASE_INSENSITIVE, "\u{212a}", false),
        ("k", CASE_INSENSITIVE | UNICODE_CASE, "\u{212a}", true),
        ("É", CASE_INSENSITIVE, "é", false),
        ("É", CASE_INSENSITIVE | UNICODE_CASE, "é", true),
        ("[a-c]+z", CASE_INSENSITIVE, "AbCZ", true),
        ("[^a-c]", CASE_INSENSITIVE, "ABC", false),
        ("[X-b]", CASE_INSENSITIVE, "A", true),
        ("[X-b]", CASE_INSENSITIVE, "y", true),
        ("[X-b]", CASE_INSENSITIVE, "d", false),
        ("[É]", CASE_INSENSITIVE | UNICODE_CASE, "é", true),
        ("a(?i)B", 0, "ab", true),
        ("a(?i)B", 0, "Ab", false),
        ("(?i:a)b", 0, "Ab", true),
        ("(?i:a)b", 0, "AB", false),
        ("((?i)a)b", 0, "AB", false),
        ("(?i-s:a.)", DOTALL, "A\n", false),
    ];

    /// Classes by escape and by name.
    const CLASS_ESCAPES: &[Match] = &[
        (r"\w", 0, "é", false),
        (r"\w", UNICODE_CHARACTER_CLASS, "é", true),
        (r"\d", 0, "\u{663}", false),
        (r"^[\w.-]+$", 0, "a-b.c_1", true),
        (r"^[\w.-]+$", 0, "a b", false),
        (r"[\W]", 0, "é", true),
        (r"\s\S", 0, "\tx", true),
        (r"\p{Alpha}\p{Lu}\P{L}", 0, "aB1", true),
        (r"\p{IsLatin}\pL", 0, "éé", true),
        (r"\p{Lower}", CASE_INSENSITIVE, "A", true),
    ];

    /// Classes in brackets: intersections, unions, and characters that are special elsewhere.
    const BRACKETS: &[Match] = &[
        (r"[\p{Punct}&&[^!]]", 0, "!", false),
        (r"[\p{Punct}&&[^!]]", 0, "[", true),
        ("[a-d&&[c-f]]", 0, "b", false),
        ("[a-d&&[c-f]]", 0, "c", true),
        ("[a[0-9]]", 0, "7", true),
        ("[a~~b+--c]", 0, "~", true),
        ("[a~~b+--c]", 0, ",", true),
        ("[a[É]]", CASE_INSENSITIVE | UNICODE_CASE, "é", true),
        ("[]a]", 0, "]", true),
        ("[^]a]", 0, "]", false),
        ("[a-]", 0, "-", true),
        ("[a^]", 0, "^", true),
        ("[&]", 0, "&", true),
    ];

    /// Quoted parts, literal patterns and escaped characters.
    const LITERALS: &[Match] = &[
        ("}]", 0, "}]", true),
        (r"\Qa.b*\E", 0, "a.b*", true),
        (r"\Qa.b", 0, "axb", false),
        (r"\Qa.b*\E+$", 0, "a.b**", true),
        (r"[\Q^]\E]", 0, "]", true),
        ("a.b", LITERAL, "a.b", true),
        ("a.b", LITERAL, "axb", false),
        ("a.B", LITERAL | CASE_INSENSITIVE, "A.b", true),
        (r"\x41\u0042\x{43}\0104\t", 0, "ABCD\t", true),
        (r"\cA\e\a", 0, "\x01\x1b\x07", true),
        (r"a\.b\-c\/d", 0, "a.b-c/d", true),
    ];

    /// Comments, groups, quantifiers and boundaries.
    const OTHERS: &[Match] = &[
        ("a b # comment\nc", COMMENTS, "abc", true),
        (r"a\ b", COMMENTS, "a b", true),
        ("[a b]", COMMENTS, " ", false),
        ("(?<year>[0-9]{4})-(?:x|y){1,2}?", 0, "2024-x", true),
        ("a{2,}", 0, "a", false),
        (r"\bfoo\b", 0, "a foo b", true),
        (r"\bfoo\b", 0, "afoo", false),
        (r"a\Rb", 0, "a\r\nb", true),
        (r"\h\v", 0, "\u{3000}\u{2029}", true),
        ("", 0, "", true),
        ("a||b", 0, "x", true),
    ];

    #[test]
    fn matches_are_those_of_java() {
        for (pattern, flags, text, found) in
            [LINE_ENDS, CASE, CLASS_ESCAPES, BRACKETS, LITERALS, OTHERS].into_iter().flatten()
        {
            assert_eq!(find(pattern, *flags, text), *found, "{pattern:?} {flags:#x} in {text:?}");
        }
    }

    #[test]
    fn unsupported_syntax_is_refused() {
        for (pattern, flags) in [
            ("(?=a)", 0),
            ("(?!a)", 0),
            ("(?<=a)", 0),
            ("(?<!a)", 0),
            ("(?>a)", 0),
            (r"(a)\1", 0),
            (r"(?<n>a)\k<n>", 0),
            ("a*+", 0),
            ("a?+", 0),
            ("a{1,2}+", 0),
            ("a**", 0),
            ("*a", 0),
            ("{", 0),
            ("a{x}", 0),
            ("a$b", 0),
            (r"\Za", 0),
            ("(a", 0),
            ("a)", 0),
            ("[a", 0),
            ("[z-a]", 0),
            (r"\", 0),
            (r"\j", 0),
            (r"\x4", 0),
            (r"\08", 0),
            (r"\p{javaLowerCase}", 0),
            (r"\p{InGreek}", 0),
            (r"\p{x}y}", UNICODE_CHARACTER_CLASS | 0x400),
            ("(?q)", 0),
            ("a", CANON_EQ),
            ("a", 0x200),
        ] {
            assert!(translate(pattern, flags).is_err(), "{pattern}");
        }
        assert!(translate(&"(".repeat(100_000), 0).is_err());
        assert!(translate(&"[".repeat(100_000), 0).is_err());
    }
}
