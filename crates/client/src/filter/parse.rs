//! HBase's filter language (`ParseFilter`): `Name('bytes', 5, true, <=, 'binary:x')`, combined by
//! `SKIP`, `WHILE`, `AND` and `OR`, in this order of binding, and parentheses.
//!
//! The language is one of bytes, as in HBase, with HBase's rules: a quote within quotes is doubled,
//! the byte after a closing quote counts as the expected comma or parenthesis, and keywords need a
//! space or parenthesis on both sides. The parser has a stack of operators and one of filters.
//! Before it pushes an operator, it applies the operators on the stack that bind more tightly. It
//! does not recurse, and the nesting depth is bounded.

use bytes::Bytes;

use super::{Comparator, DOTALL, Filter, SingleColumnValue};
use crate::error::{Error, Result};
use crate::filter::CASE_INSENSITIVE;
use crate::operation::CompareOp;

/// The deepest nesting of operators, since filters are traversed recursively, here and in servers.
const DEPTH_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Parenthesis,
    Skip,
    While,
    And,
    Or,
}

impl Operator {
    /// A smaller number binds more tightly.
    fn rank(self) -> u8 {
        match self {
            Self::Parenthesis => 0,
            Self::Skip | Self::While => 1,
            Self::And => 2,
            Self::Or => 3,
        }
    }
}

/// The filter names of the language, in the order of HBase's `ParseFilter`.
pub fn supported() -> &'static [&'static str] {
    &[
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
        "ColumnRangeFilter",
        "SingleColumnValueFilter",
        "SingleColumnValueExcludeFilter",
        "DependentColumnFilter",
        "ColumnValueFilter",
    ]
}

/// Parses a filter in HBase's filter language.
///
/// # Errors
/// [`Error::InvalidArgument`] with HBase's message.
pub fn parse(text: &str) -> Result<Filter> {
    parse_bytes(text.as_bytes())
}

/// As [`parse`], for bytes, which need not be UTF-8 between quotes.
///
/// # Errors
/// As [`parse`].
pub fn parse_bytes(text: &[u8]) -> Result<Filter> {
    let mut parser = Parser { text, operators: Vec::new(), filters: Vec::new() };
    parser.run()?;
    parser.end()
}

struct Parser<'a> {
    text: &'a [u8],
    operators: Vec<Operator>,
    /// Filters with their nesting depth.
    filters: Vec<(Filter, usize)>,
}

impl Parser<'_> {
    fn run(&mut self) -> Result<()> {
        let mut at = 0;
        while let Some(&byte) = self.text.get(at) {
            at += match byte {
                b'(' => {
                    self.operators.push(Operator::Parenthesis);
                    1
                }
                b' ' | b'\t' => 1,
                b')' => {
                    self.close()?;
                    1
                }
                _ => match self.keyword(at) {
                    Some((operator, len)) => {
                        self.push(operator)?;
                        len
                    }
                    None => self.simple(at)?,
                },
            };
        }
        Ok(())
    }

    /// Reads an operator at this position: between spaces or parentheses; `SKIP` and `WHILE` also
    /// at the start.
    fn keyword(&self, at: usize) -> Option<(Operator, usize)> {
        let words = [
            ("OR", Operator::Or),
            ("AND", Operator::And),
            ("SKIP", Operator::Skip),
            ("WHILE", Operator::While),
        ];
        let rest = self.text.get(at..)?;
        let (word, operator) = words.into_iter().find(|(word, _)| rest.starts_with(word.as_bytes()))?;
        let prefix = matches!(operator, Operator::Skip | Operator::While);
        let before = match at.checked_sub(1).and_then(|i| self.text.get(i)) {
            None => prefix,
            Some(b'(') => prefix,
            Some(byte) => matches!(byte, b' ' | b')'),
        };
        let after = matches!(rest.get(word.len()), Some(b' ' | b'('));
        (before && after).then_some((operator, word.len()))
    }

    fn push(&mut self, operator: Operator) -> Result<()> {
        while let Some(&top) = self.operators.last() {
            if top == Operator::Parenthesis || top.rank() >= operator.rank() {
                break;
            }
            self.apply()?;
        }
        self.operators.push(operator);
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        loop {
            match self.operators.last() {
                None => return Err(bad("Mismatched parenthesis")),
                Some(Operator::Parenthesis) => {
                    self.operators.pop();
                    return Ok(());
                }
                Some(_) => self.apply()?,
            }
        }
    }

    /// Applies the operator on top of the stack, together with equal ones below it.
    fn apply(&mut self) -> Result<()> {
        let Some(&operator) = self.operators.last() else { return Err(bad("Incorrect Filter String")) };
        let (words, wrap): (_, fn(Vec<Filter>) -> Filter) = match operator {
            Operator::Or => ("Incorrect input string - an OR needs two filters", |f| Filter::one_of(f)),
            Operator::And => ("Incorrect input string - an AND needs two filters", |f| Filter::all_of(f)),
            Operator::Skip => ("Incorrect input string - a SKIP wraps a filter", skip),
            Operator::While => ("Incorrect input string - a WHILE wraps a filter", while_match),
            Operator::Parenthesis => return Err(bad("Incorrect Filter String")),
        };
        let mut operands = Vec::new();
        while self.operators.last() == Some(&operator) {
            self.operators.pop();
            operands.push(self.filters.pop().ok_or_else(|| bad(words))?);
            if matches!(operator, Operator::Skip | Operator::While) {
                break;
            }
        }
        if matches!(operator, Operator::Or | Operator::And) {
            operands.push(self.filters.pop().ok_or_else(|| bad(words))?);
        }
        let depth = 1 + operands.iter().map(|(_, depth)| *depth).max().unwrap_or_default();
        if depth > DEPTH_MAX {
            return Err(bad("filters nested too deep"));
        }
        let operands = operands.into_iter().rev().map(|(filter, _)| filter).collect();
        self.filters.push((wrap(operands), depth));
        Ok(())
    }

    /// Reads `Name(arguments)`; returns its length.
    fn simple(&mut self, at: usize) -> Result<usize> {
        let rest = self.text.get(at..).unwrap_or_default();
        let expression = rest.get(..simple_len(rest)?).unwrap_or_default();
        self.filters.push((filter(expression)?, 1));
        Ok(expression.len())
    }

    fn end(mut self) -> Result<Filter> {
        while let Some(operator) = self.operators.last() {
            match operator {
                // HBase accepts a missing closing parenthesis.
                Operator::Parenthesis if !self.filters.is_empty() => drop(self.operators.pop()),
                _ => self.apply()?,
            }
        }
        match (self.filters.pop(), self.filters.is_empty()) {
            (Some((filter, _)), true) => Ok(filter),
            _ => Err(bad("Incorrect Filter String")),
        }
    }
}

fn skip(filters: Vec<Filter>) -> Filter {
    filters.into_iter().next().map_or(Filter::FilterAll, Filter::skip)
}

fn while_match(filters: Vec<Filter>) -> Filter {
    filters.into_iter().next().map_or(Filter::FilterAll, Filter::while_match)
}

/// Up to the first closing parenthesis outside quotes, included.
fn simple_len(text: &[u8]) -> Result<usize> {
    let (mut at, mut quoted) = (0, false);
    while let Some(&byte) = text.get(at) {
        if byte == b'\'' {
            match text.get(at + 1) {
                Some(b'\'') => at += 1,
                _ => quoted = !quoted,
            }
        }
        if byte == b')' && !quoted {
            return Ok(at + 1);
        }
        at += 1;
    }
    Err(bad("Incorrect Filter String"))
}

fn filter(expression: &[u8]) -> Result<Filter> {
    let name_len = expression.iter().position(|b| *b == b'(' || *b == b' ').filter(|len| *len > 0);
    let name = name_len.and_then(|len| expression.get(..len));
    let name = String::from_utf8_lossy(name.ok_or_else(|| bad("Incorrect Filter Name"))?);
    let arguments = arguments(expression)?;
    if !supported().contains(&&*name) {
        return Err(bad(&format!("Filter Name {name} not supported")));
    }
    let refused = || bad(&format!("Incorrect filter string {}", String::from_utf8_lossy(expression)));
    build(&name, &Arguments(&arguments)).ok_or_else(refused)
}

/// The arguments, with their quotes.
fn arguments(expression: &[u8]) -> Result<Vec<Vec<u8>>> {
    let none = || bad("Incorrect argument list");
    let open = expression.iter().position(|b| *b == b'(').ok_or_else(none)?;
    let mut arguments = Vec::new();
    let mut at = open + 1;
    while let Some(&byte) = expression.get(at) {
        match byte {
            b' ' | b',' | b')' => at += 1,
            b'\'' => {
                let end = quote_end(expression, at + 1).ok_or_else(none)?;
                arguments.push(unescaped(expression.get(at..=end).ok_or_else(none)?));
                at = end + 2;
            }
            _ => {
                let rest = expression.get(at..).unwrap_or_default();
                let len = rest.iter().position(|b| matches!(b, b' ' | b',' | b')')).ok_or_else(none)?;
                arguments.push(rest.get(..len).unwrap_or_default().to_vec());
                at += len + 1;
            }
        }
    }
    Ok(arguments)
}

/// The first quote that is not doubled.
fn quote_end(text: &[u8], mut at: usize) -> Option<usize> {
    while let Some(&byte) = text.get(at) {
        match (byte, text.get(at + 1)) {
            (b'\'', Some(b'\'')) => at += 2,
            (b'\'', _) => return Some(at),
            _ => at += 1,
        }
    }
    None
}

/// Replaces doubled quotes, except the outer ones, by single ones.
fn unescaped(quoted: &[u8]) -> Vec<u8> {
    let inner = quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default();
    let mut out = vec![b'\''];
    let mut at = 0;
    while let Some(&byte) = inner.get(at) {
        out.push(byte);
        at += if byte == b'\'' && inner.get(at + 1) == Some(&b'\'') { 2 } else { 1 };
    }
    out.push(b'\'');
    out
}

struct Arguments<'a>(&'a [Vec<u8>]);

impl Arguments<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, at: usize) -> Option<&[u8]> {
        self.0.get(at).map(Vec::as_slice)
    }

    /// The bytes between quotes.
    fn bytes(&self, at: usize) -> Option<Bytes> {
        let inner = self.get(at)?.strip_prefix(b"'")?.strip_suffix(b"'")?;
        Some(Bytes::copy_from_slice(inner))
    }

    fn long(&self, at: usize) -> Option<i64> {
        let text = self.get(at)?;
        let (digits, negative) = match text.strip_prefix(b"-") {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        let mut number = 0i64;
        for digit in digits {
            let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
            number = number.checked_mul(10)?.checked_add(digit)?;
        }
        Some(if negative { -number } else { number })
    }

    fn int(&self, at: usize) -> Option<i32> {
        i32::try_from(self.long(at)?).ok()
    }

    /// A number that may not be negative.
    fn count(&self, at: usize) -> Option<i32> {
        self.int(at).filter(|n| *n >= 0)
    }

    fn boolean(&self, at: usize) -> Option<bool> {
        let text = self.get(at)?;
        match (text.eq_ignore_ascii_case(b"true"), text.eq_ignore_ascii_case(b"false")) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    }

    fn op(&self, at: usize) -> Option<CompareOp> {
        Some(match self.get(at)? {
            b"<" => CompareOp::Less,
            b"<=" => CompareOp::LessOrEqual,
            b"=" => CompareOp::Equal,
            b"!=" => CompareOp::NotEqual,
            b">=" => CompareOp::GreaterOrEqual,
            b">" => CompareOp::Greater,
            _ => return None,
        })
    }

    /// `kind:bytes` between quotes.
    fn comparator(&self, at: usize) -> Option<Comparator> {
        let bytes = self.bytes(at)?;
        let colon = bytes.iter().position(|b| *b == b':')?;
        let value = bytes.slice(colon + 1..);
        let text = || String::from_utf8_lossy(&value).into_owned();
        let regex = |flags| Comparator::Regex { pattern: text(), flags, charset: "UTF-8".to_owned() };
        Some(match bytes.get(..colon)? {
            b"binary" => Comparator::Binary(value),
            b"binaryprefix" => Comparator::BinaryPrefix(value),
            b"regexstring" => regex(DOTALL),
            b"regexstringnocase" => regex(CASE_INSENSITIVE | DOTALL),
            b"substring" => Comparator::Substring(text()),
            _ => return None,
        })
    }

    /// An operator and a comparator.
    fn comparison(&self, at: usize) -> Option<(CompareOp, Comparator)> {
        let (op, comparator) = (self.op(at)?, self.comparator(at + 1)?);
        let unordered = matches!(op, CompareOp::Equal | CompareOp::NotEqual);
        (unordered || !comparator.only_matches()).then_some((op, comparator))
    }

    fn all<T>(&self, of: impl Fn(&Self, usize) -> Option<T>) -> Option<Vec<T>> {
        (0..self.len()).map(|at| of(self, at)).collect()
    }
}

/// The filter; `None` if its class refuses the arguments.
fn build(name: &str, arguments: &Arguments<'_>) -> Option<Filter> {
    let a = arguments;
    let exactly = |n: usize| (a.len() == n).then_some(());
    let compared = || exactly(2).and_then(|()| a.comparison(0));
    Some(match name {
        "RowFilter" => compared().map(|(op, with)| Filter::Row(op, with))?,
        "FamilyFilter" => compared().map(|(op, with)| Filter::Family(op, with))?,
        "QualifierFilter" => compared().map(|(op, with)| Filter::Qualifier(op, with))?,
        "ValueFilter" => compared().map(|(op, with)| Filter::Value(op, with))?,
        "FirstKeyOnlyFilter" => exactly(0).map(|()| Filter::FirstKeyOnly)?,
        "KeyOnlyFilter" => match a.len() {
            0 => Filter::key_only(),
            1 => Filter::KeyOnly { length_as_value: a.boolean(0)? },
            _ => return None,
        },
        "PrefixFilter" => exactly(1).and_then(|()| a.bytes(0)).map(Filter::Prefix)?,
        "InclusiveStopFilter" => exactly(1).and_then(|()| a.bytes(0)).map(Filter::InclusiveStop)?,
        "ColumnPrefixFilter" => exactly(1).and_then(|()| a.bytes(0)).map(Filter::ColumnPrefix)?,
        "PageFilter" => exactly(1).and_then(|()| a.long(0)).filter(|n| *n >= 0).map(Filter::Page)?,
        "ColumnCountGetFilter" => exactly(1).and_then(|()| a.count(0)).map(Filter::ColumnCountGet)?,
        "ColumnPaginationFilter" => {
            exactly(2)?;
            Filter::ColumnPagination { limit: a.count(0)?, offset: a.count(1)? }
        }
        "MultipleColumnPrefixFilter" => prefixes(a.all(|a, at| a.bytes(at))?)?,
        "TimestampsFilter" => Filter::timestamps(a.all(|a, at| a.long(at).filter(|n| *n >= 0))?),
        "ColumnRangeFilter" => {
            exactly(4)?;
            let bound = |at| a.bytes(at).map(|bytes| Some(bytes).filter(|b| !b.is_empty()));
            let (min, max) = (bound(0)?, bound(2)?);
            Filter::ColumnRange { min, min_included: a.boolean(1)?, max, max_included: a.boolean(3)? }
        }
        "SingleColumnValueFilter" => Filter::SingleColumnValue(single(a)?),
        "SingleColumnValueExcludeFilter" => Filter::SingleColumnValueExclude(single(a)?),
        "ColumnValueFilter" => {
            exactly(4)?;
            let (op, comparator) = a.comparison(2)?;
            Filter::ColumnValue { family: a.bytes(0)?, qualifier: a.bytes(1)?, op, comparator }
        }
        "DependentColumnFilter" => dependent(a)?,
        _ => return None,
    })
}

/// HBase refuses a prefix that is given twice.
fn prefixes(prefixes: Vec<Bytes>) -> Option<Filter> {
    let mut sorted = prefixes.clone();
    sorted.sort_unstable();
    sorted.dedup();
    (sorted.len() == prefixes.len()).then_some(Filter::MultipleColumnPrefix(sorted))
}

fn single(a: &Arguments<'_>) -> Option<SingleColumnValue> {
    let (filter_if_missing, latest_version_only) = match a.len() {
        4 => (false, true),
        6 => (a.boolean(4)?, a.boolean(5)?),
        _ => return None,
    };
    let (family, qualifier) = (a.bytes(0)?, a.bytes(1)?);
    let (op, comparator) = a.comparison(2)?;
    Some(SingleColumnValue { family, qualifier, op, comparator, filter_if_missing, latest_version_only })
}

fn dependent(a: &Arguments<'_>) -> Option<Filter> {
    let (family, qualifier) = (a.bytes(0)?, a.bytes(1)?);
    let drop_column = if a.len() > 2 { a.boolean(2)? } else { false };
    let comparison = match a.len() {
        2 | 3 => None,
        // HBase allows any operator here.
        5 => Some((a.op(3)?, a.comparator(4)?)),
        _ => return None,
    };
    Some(Filter::DependentColumn { family, qualifier, drop_column, comparison })
}

fn bad(message: &str) -> Error {
    Error::InvalidArgument(message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(text: &str) -> Filter {
        parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn err(text: &str) -> String {
        match parse(text) {
            Err(Error::InvalidArgument(message)) => message,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn operators_bind_as_in_hbase() {
        let p = |name: &str| Filter::prefix(name);
        assert_eq!(
            ok("PrefixFilter('a') OR PrefixFilter('b') AND PrefixFilter('c')"),
            Filter::one_of([p("a"), Filter::all_of([p("b"), p("c")])])
        );
        assert_eq!(
            ok("PrefixFilter('a') AND PrefixFilter('b') AND PrefixFilter('c')"),
            Filter::all_of([p("a"), p("b"), p("c")])
        );
        assert_eq!(
            ok("(PrefixFilter('a') OR PrefixFilter('b')) AND SKIP PrefixFilter('c')"),
            Filter::all_of([Filter::one_of([p("a"), p("b")]), p("c").skip()])
        );
        assert_eq!(ok("WHILE (PrefixFilter('a'))"), p("a").while_match());
        assert_eq!(ok("SKIP WHILE PrefixFilter('a')"), p("a").while_match().skip());
        assert_eq!(ok("((PrefixFilter('a')))"), p("a"));
    }

    #[test]
    fn quotes_keep_everything_and_double_for_one() {
        assert_eq!(ok("PrefixFilter('a)(, AND b')"), Filter::prefix("a)(, AND b"));
        assert_eq!(ok("PrefixFilter('it''s')"), Filter::prefix("it's"));
        assert_eq!(ok("PrefixFilter('')"), Filter::prefix(""));
        assert_eq!(ok(" PrefixFilter ( 'a' ) "), Filter::prefix("a"));
        assert_eq!(parse_bytes(b"PrefixFilter('\xff\0')").expect("bytes"), Filter::prefix(b"\xff\0"));
    }

    #[test]
    fn every_filter_parses_its_arguments() {
        let bin = Comparator::binary("x");
        for (text, filter) in [
            ("RowFilter(<=, 'binary:x')", Filter::Row(CompareOp::LessOrEqual, bin.clone())),
            ("FamilyFilter(=,'binaryprefix:x')", Filter::Family(CompareOp::Equal, Comparator::prefix("x"))),
            (
                "QualifierFilter(!=,'substring:X')",
                Filter::Qualifier(CompareOp::NotEqual, Comparator::substring("X")),
            ),
            ("ValueFilter(=,'regexstring:a:b')", Filter::Value(CompareOp::Equal, Comparator::regex("a:b"))),
            ("PageFilter(10)", Filter::Page(10)),
            ("ColumnCountGetFilter(4)", Filter::ColumnCountGet(4)),
            ("ColumnPaginationFilter(3, 5)", Filter::ColumnPagination { limit: 3, offset: 5 }),
            ("KeyOnlyFilter(TRUE)", Filter::KeyOnly { length_as_value: true }),
            ("TimestampsFilter(5, 6)", Filter::timestamps([5, 6])),
            (
                "ColumnRangeFilter('', true, 'z', false)",
                Filter::ColumnRange {
                    min: None,
                    min_included: true,
                    max: Some("z".into()),
                    max_included: false,
                },
            ),
            (
                "SingleColumnValueFilter('f','q',>,'binary:x')",
                Filter::single_column_value("f", "q", CompareOp::Greater, bin.clone()),
            ),
            ("ColumnValueFilter('f','q',<,'binary:x')", Filter::column_value("f", "q", CompareOp::Less, bin)),
            (
                "DependentColumnFilter('f','q',true)",
                Filter::DependentColumn {
                    family: "f".into(),
                    qualifier: "q".into(),
                    drop_column: true,
                    comparison: None,
                },
            ),
        ] {
            assert_eq!(ok(text), filter, "{text}");
        }
    }

    #[test]
    fn what_hbase_refuses_is_refused_in_its_words() {
        for (text, says) in [
            ("", "Incorrect Filter String"),
            ("PrefixFilter('a'", "Incorrect Filter String"),
            ("PrefixFilter('a'))", "Mismatched parenthesis"),
            ("PrefixFilter('a') PrefixFilter('b')", "Incorrect Filter String"),
            ("PrefixFilter('a') AND ", "an AND needs two filters"),
            ("NoFilter('a')", "Filter Name NoFilter not supported"),
            ("RowFilter(<, 'substring:a')", "Incorrect filter string RowFilter"),
            ("RowFilter(=, 'nothing:a')", "Incorrect filter string RowFilter"),
            ("PageFilter(-1)", "Incorrect filter string"),
            ("PageFilter(99999999999999999999)", "Incorrect filter string"),
            ("PageFilter()", "Incorrect filter string"),
            ("MultipleColumnPrefixFilter('a','a')", "Incorrect filter string"),
            ("SKIP ", "SKIP wraps a filter"),
            ("AND PrefixFilter('a')", "not supported"),
        ] {
            assert!(err(text).contains(says), "{text}: {}", err(text));
        }
    }

    #[test]
    fn hostile_filter_text_does_not_panic() {
        assert!(parse(&"(".repeat(1 << 20)).is_err());
        assert!(err(&format!("{}PageFilter(1)", "SKIP ".repeat(100_000))).contains("deep"));
        let mut state = 9u32;
        let alphabet = b"()', ANDORSKIPWHILEPageFilter<=!:1-";
        for len in 0..3000 {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                alphabet[(state >> 16) as usize % alphabet.len()]
            };
            let text: Vec<u8> = (0..len % 60).map(|_| next()).collect();
            let _ = parse_bytes(&text);
        }
    }
}
