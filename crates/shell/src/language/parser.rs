//! Tokens to tree, by recursive descent.
//!
//! The meaning of a word depends on its context, as in Ruby: a variable if it was assigned before,
//! otherwise a call, whose arguments begin after a space. The caller keeps the variables between
//! sources and passes them in.

use std::collections::HashSet;

use super::SyntaxError;
use super::ast::{Expr, Jump, Operator, StringPart};
use super::token::{Part, Token, TokenKind, tokens};
use crate::value::Value;

/// The deepest nesting of expressions.
const DEPTH_MAX: usize = 40;

/// The longest chain of operators, calls or conditions, since each makes the tree deeper by one.
const CHAIN_MAX: usize = 100;

/// Reserved words.
pub(super) const KEYWORDS: &[&str] = &[
    "if", "unless", "while", "until", "for", "in", "do", "end", "then", "else", "elsif", "true", "false",
    "nil", "and", "or", "not", "def", "begin", "rescue", "ensure", "class", "module", "return", "break",
    "next", "case", "when", "yield", "self", "lambda", "proc", "undef", "alias", "retry", "redo", "super",
];

/// The first parts of Java package names; they begin a path.
const PACKAGES: &[&str] = &["org", "java", "javax", "com"];

/// Parses a source without variables of earlier ones.
///
/// # Errors
/// As [`parse_with`].
pub fn parse(source: &str) -> Result<Vec<Expr>, SyntaxError> {
    parse_with(source, &mut HashSet::new())
}

/// Parses a source into statements; adds the variables that it assigns to `variables`.
///
/// # Errors
/// If the source is invalid or incomplete.
pub fn parse_with(source: &str, variables: &mut HashSet<String>) -> Result<Vec<Expr>, SyntaxError> {
    parse_at(source, variables, 0, 0)
}

fn parse_at(
    source: &str,
    variables: &mut HashSet<String>,
    offset: usize,
    depth: usize,
) -> Result<Vec<Expr>, SyntaxError> {
    let moved = |e: SyntaxError| SyntaxError { at: e.at + offset, ..e };
    let tokens = tokens(source).map_err(moved)?;
    let mut parser = Parser { tokens, next: 0, variables: variables.clone(), depth, loop_takes_do: false };
    let statements = parser.statements(&[]).map_err(moved)?;
    if !matches!(parser.peek(), TokenKind::End) {
        return Err(moved(parser.unexpected()));
    }
    *variables = parser.variables;
    Ok(statements)
}

pub(super) type Parsed<T = Expr> = Result<T, SyntaxError>;

pub(super) struct Parser {
    pub(super) tokens: Vec<Token>,
    pub(super) next: usize,
    pub(super) variables: HashSet<String>,
    depth: usize,
    /// True if a `do` belongs to the enclosing loop, and not to a call in its condition.
    pub(super) loop_takes_do: bool,
}

impl Parser {
    pub(super) fn token(&self) -> &Token {
        // The last token is `End`, and is never consumed.
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    pub(super) fn peek(&self) -> &TokenKind {
        &self.token().kind
    }

    pub(super) fn after(&self, steps: usize) -> Option<&Token> {
        self.tokens.get(self.next + steps)
    }

    pub(super) fn step(&mut self) -> Token {
        let token = self.token().clone();
        if token.kind != TokenKind::End {
            self.next += 1;
        }
        token
    }

    pub(super) fn is(&self, mark: &str) -> bool {
        matches!(self.peek(), TokenKind::Mark(m) if *m == mark)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), TokenKind::Word(w) if w == word)
    }

    pub(super) fn accept(&mut self, mark: &str) -> bool {
        let found = self.is(mark);
        self.next += found as usize;
        found
    }

    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.next += found as usize;
        found
    }

    pub(super) fn expect(&mut self, mark: &'static str) -> Parsed<()> {
        match self.accept(mark) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    pub(super) fn skip_breaks(&mut self) {
        while matches!(self.peek(), TokenKind::Break) {
            self.next += 1;
        }
    }

    pub(super) fn unexpected(&self) -> SyntaxError {
        let token = self.token();
        let what = match &token.kind {
            TokenKind::End => return SyntaxError::incomplete(token.at),
            TokenKind::Break => "end of line".to_owned(),
            TokenKind::Word(word) if KEYWORDS.contains(&word.as_str()) => format!("`{word}'"),
            TokenKind::Word(_) => "local variable or method".to_owned(),
            TokenKind::Constant(_) => "constant".to_owned(),
            TokenKind::Label(_) => "label".to_owned(),
            TokenKind::Int(_) => "integer literal".to_owned(),
            TokenKind::Float(_) => "float literal".to_owned(),
            TokenKind::Str(_) | TokenKind::Words(_) => "string literal".to_owned(),
            TokenKind::Symbol(_) => "symbol literal".to_owned(),
            TokenKind::Mark(mark) => format!("'{mark}'"),
        };
        SyntaxError::new(token.at, format!("unexpected {what}"))
    }

    /// Statements up to one of these words, which is not consumed, or to a token that cannot begin
    /// one.
    pub(super) fn statements(&mut self, ends: &[&str]) -> Parsed<Vec<Expr>> {
        let mut all = Vec::new();
        loop {
            self.skip_breaks();
            let ended = match self.peek() {
                TokenKind::End => true,
                TokenKind::Mark("}") => true,
                TokenKind::Word(word) => ends.contains(&word.as_str()),
                _ => false,
            };
            if ended {
                return Ok(all);
            }
            all.push(self.statement()?);
            let closed = match self.peek() {
                TokenKind::Break | TokenKind::End | TokenKind::Mark("}") => true,
                TokenKind::Word(word) => ends.contains(&word.as_str()),
                _ => false,
            };
            if !closed {
                return Err(self.unexpected());
            }
        }
    }

    /// An expression with trailing conditions.
    pub(super) fn statement(&mut self) -> Parsed {
        let mut expr = self.conjunction()?;
        let mut links = 0;
        loop {
            self.link(&mut links)?;
            let nothing = || Box::new(Expr::Literal(Value::Nil));
            if self.accept_word("if") {
                expr = Expr::If(Box::new(self.conjunction()?), Box::new(expr), nothing());
            } else if self.accept_word("unless") {
                expr = Expr::If(Box::new(self.conjunction()?), nothing(), Box::new(expr));
            } else if self.accept_word("while") {
                expr = Expr::While(Box::new(self.conjunction()?), Box::new(expr));
            } else if self.accept_word("until") {
                expr = Expr::While(Box::new(Expr::Not(Box::new(self.conjunction()?))), Box::new(expr));
            } else if self.accept_word("rescue") {
                expr = Expr::Rescue(Box::new(expr), None, Box::new(self.conjunction()?));
            } else {
                return Ok(expr);
            }
        }
    }

    /// `and` and `or` have the lowest precedence.
    pub(super) fn conjunction(&mut self) -> Parsed {
        let mut left = self.expression()?;
        let mut links = 0;
        loop {
            self.link(&mut links)?;
            let operator = match self.peek() {
                TokenKind::Word(word) if word == "and" => Operator::And,
                TokenKind::Word(word) if word == "or" => Operator::Or,
                _ => return Ok(left),
            };
            self.next += 1;
            self.skip_breaks();
            left = Expr::Binary(operator, Box::new(left), Box::new(self.expression()?));
        }
    }

    /// Counts the elements of a chain.
    pub(super) fn link(&self, links: &mut usize) -> Parsed<()> {
        *links += 1;
        match *links > CHAIN_MAX {
            true => Err(SyntaxError::new(self.token().at, "too many operators or calls in one expression")),
            false => Ok(()),
        }
    }

    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= DEPTH_MAX {
            return Err(SyntaxError::new(self.token().at, "nested too deep"));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    pub(super) fn expression(&mut self) -> Parsed {
        self.nested(Self::assignment)
    }

    pub(super) fn assignment(&mut self) -> Parsed {
        if self.accept_word("not") {
            return Ok(Expr::Not(Box::new(self.expression()?)));
        }
        if let Some(assignment) = self.variable_assignment()? {
            return Ok(assignment);
        }
        let target = self.ternary()?;
        match (target, self.is("=")) {
            (Expr::Index(of, key), true) => {
                let Expr::Variable(name) = *of else {
                    return Err(SyntaxError::new(
                        self.token().at,
                        "only elements of variables can be assigned",
                    ));
                };
                self.step();
                self.skip_breaks();
                Ok(Expr::AssignIndex(name, key, Box::new(self.expression()?)))
            }
            (_, true) => Err(self.unexpected()),
            (target, false) => Ok(target),
        }
    }

    /// `name = value`, `name += value`; `None` for anything else.
    pub(super) fn variable_assignment(&mut self) -> Parsed<Option<Expr>> {
        let TokenKind::Word(name) = self.peek().clone() else { return Ok(None) };
        let Some(Token { kind: TokenKind::Mark(mark), .. }) = self.after(1) else { return Ok(None) };
        let assigns = *mark == "=" || (mark.len() >= 2 && mark.ends_with('=') && !is_comparison(mark));
        if !assigns || KEYWORDS.contains(&name.as_str()) {
            return Ok(None);
        }
        let operator = Operator::from_symbol(&mark[..mark.len() - 1]);
        self.next += 2;
        self.skip_breaks();
        let value = self.expression()?;
        self.variables.insert(name.clone());
        let value = match operator {
            Some(operator) => Expr::Binary(operator, Box::new(Expr::Variable(name.clone())), Box::new(value)),
            None => value,
        };
        Ok(Some(Expr::Assign(name, Box::new(value))))
    }

    pub(super) fn ternary(&mut self) -> Parsed {
        let condition = self.range()?;
        if !self.accept("?") {
            return Ok(condition);
        }
        self.skip_breaks();
        let then = self.expression()?;
        self.skip_breaks();
        self.expect(":")?;
        self.skip_breaks();
        let other = self.expression()?;
        Ok(Expr::If(Box::new(condition), Box::new(then), Box::new(other)))
    }

    pub(super) fn range(&mut self) -> Parsed {
        let from = self.binary(1)?;
        let exclusive = self.is("...");
        if !exclusive && !self.is("..") {
            return Ok(from);
        }
        self.step();
        let to = self.binary(1)?;
        Ok(Expr::Range(Box::new(from), Box::new(to), exclusive))
    }

    pub(super) fn binary(&mut self, strength: u8) -> Parsed {
        let mut left = self.unary()?;
        let mut links = 0;
        loop {
            self.link(&mut links)?;
            let TokenKind::Mark(mark) = self.peek() else { return Ok(left) };
            let operator = Operator::from_symbol(mark).filter(|o| o.precedence() >= strength);
            let Some(operator) = operator else { return Ok(left) };
            self.step();
            self.skip_breaks();
            let right =
                if operator == Operator::Power { operator.precedence() } else { operator.precedence() + 1 };
            let right = self.nested(|p| p.binary(right))?;
            left = Expr::Binary(operator, Box::new(left), Box::new(right));
        }
    }

    pub(super) fn unary(&mut self) -> Parsed {
        if self.accept("!") {
            return self.nested(|p| Ok(Expr::Not(Box::new(p.unary()?))));
        }
        if self.is("-") {
            let next = self.after(1).map(|t| (t.kind.clone(), t.spaced));
            self.step();
            return match next {
                Some((TokenKind::Int(number), false)) => {
                    self.step();
                    self.postfix(Expr::Literal(Value::Int(-number)))
                }
                Some((TokenKind::Float(number), false)) => {
                    self.step();
                    self.postfix(Expr::Literal(Value::Float(-number)))
                }
                _ => self.nested(|p| Ok(Expr::Negative(Box::new(p.unary()?)))),
            };
        }
        let primary = self.primary()?;
        self.postfix(primary)
    }

    pub(super) fn primary(&mut self) -> Parsed {
        let token = self.token().clone();
        match token.kind {
            TokenKind::Int(number) => self.literal(Value::Int(number)),
            TokenKind::Float(number) => self.literal(Value::Float(number)),
            TokenKind::Symbol(name) => self.literal(Value::Symbol(name)),
            TokenKind::Words(words) => {
                self.step();
                Ok(Expr::Array(words.into_iter().map(|word| Expr::Literal(Value::text(word))).collect()))
            }
            TokenKind::Str(parts) => self.string(parts),
            TokenKind::Constant(name) => self.constant(name),
            TokenKind::Word(word) => self.word(word),
            TokenKind::Mark("[") => {
                self.step();
                let items = self.nested(|p| p.list("]"))?;
                self.expect("]")?;
                Ok(Expr::Array(items))
            }
            TokenKind::Mark("{") => self.nested(Self::hash),
            TokenKind::Mark("(") => {
                self.step();
                self.skip_breaks();
                let inner = self.nested(Self::statement)?;
                self.skip_breaks();
                self.expect(")")?;
                Ok(inner)
            }
            _ => Err(self.unexpected()),
        }
    }

    pub(super) fn literal(&mut self, value: Value) -> Parsed {
        self.step();
        Ok(Expr::Literal(value))
    }

    /// Adjacent strings are concatenated.
    pub(super) fn string(&mut self, mut parts: Vec<Part>) -> Parsed {
        self.step();
        while let TokenKind::Str(more) = self.peek().clone() {
            self.step();
            parts.extend(more);
        }
        let mut pieces: Vec<StringPart> = Vec::new();
        for part in parts {
            match (part, pieces.last_mut()) {
                (Part::Text(more), Some(StringPart::Text(text))) => text.extend(more),
                (Part::Text(text), _) => pieces.push(StringPart::Text(text)),
                (Part::Code(code, at), _) => {
                    let inner = self.nested(|p| parse_at(&code, &mut p.variables, at, p.depth));
                    // The string is closed, so no later line can complete the code in it.
                    let inner = inner.map_err(|e| SyntaxError { incomplete: false, ..e })?;
                    pieces.push(StringPart::Code(sequence(inner)));
                }
            }
        }
        Ok(match pieces.as_mut_slice() {
            [] => Expr::Literal(Value::Str(Vec::new())),
            [StringPart::Text(text)] => Expr::Literal(Value::Str(std::mem::take(text))),
            _ => Expr::Text(pieces),
        })
    }

    pub(super) fn hash(&mut self) -> Parsed {
        self.step();
        let mut pairs = Vec::new();
        loop {
            self.skip_breaks();
            if self.accept("}") {
                return Ok(Expr::Hash(pairs));
            }
            let (key, Some(value)) = self.pair()? else { return Err(self.unexpected()) };
            pairs.push((key, value));
            self.skip_breaks();
            if !self.accept(",") {
                self.expect("}")?;
                return Ok(Expr::Hash(pairs));
            }
        }
    }

    pub(super) fn constant(&mut self, name: String) -> Parsed {
        self.step();
        if self.is("(") && !self.token().spaced {
            return Err(self.unexpected());
        }
        Ok(Expr::Constant(vec![name]))
    }

    pub(super) fn word(&mut self, word: String) -> Parsed {
        if KEYWORDS.contains(&word.as_str()) {
            return self.keyword(&word);
        }
        let leads_path = PACKAGES.contains(&word.as_str()) && !self.variables.contains(&word);
        self.step();
        if leads_path && self.is(".") {
            return Ok(Expr::Constant(vec![word]));
        }
        let called = self.is("(") && !self.token().spaced;
        if self.variables.contains(&word) && !called {
            return Ok(Expr::Variable(word));
        }
        if word.starts_with(['@', '$']) {
            return Ok(Expr::Variable(word));
        }
        self.call(None, word)
    }

    pub(super) fn keyword(&mut self, word: &str) -> Parsed {
        let at = self.step().at;
        match word {
            "true" => Ok(Expr::Literal(Value::Bool(true))),
            "false" => Ok(Expr::Literal(Value::Bool(false))),
            "nil" => Ok(Expr::Literal(Value::Nil)),
            "if" => self.nested(|p| p.condition(false)),
            "unless" => self.nested(|p| p.condition(true)),
            "while" => self.nested(|p| p.while_loop(false)),
            "until" => self.nested(|p| p.while_loop(true)),
            "for" => self.nested(Self::for_loop),
            "begin" => self.nested(Self::begin),
            "break" => Ok(Expr::Jump(Jump::Break)),
            "next" => Ok(Expr::Jump(Jump::Next)),
            "def" | "class" | "module" | "case" | "lambda" | "proc" | "yield" | "return" | "self"
            | "alias" | "undef" | "super" | "retry" | "redo" => {
                Err(SyntaxError::new(at, format!("`{word}' is not supported by this shell")))
            }
            _ => {
                self.next -= 1;
                Err(self.unexpected())
            }
        }
    }
}

fn is_comparison(mark: &str) -> bool {
    matches!(mark, "==" | "!=" | "<=" | ">=" | "===")
}

/// An expression from a list.
pub(super) fn sequence(mut all: Vec<Expr>) -> Expr {
    match all.len() {
        0 => Expr::Literal(Value::Nil),
        1 => all.remove(0),
        _ => Expr::Sequence(all),
    }
}
