//! Calls, and lists of arguments.

use super::ast::{Call, Expr, Operator};
use super::parser::{KEYWORDS, Parsed, Parser};
use super::token::TokenKind;
use crate::value::Value;

impl Parser {
    /// Calls, indexes and paths after an expression.
    pub(super) fn postfix(&mut self, mut expr: Expr) -> Parsed {
        let mut links = 0;
        loop {
            self.link(&mut links)?;
            if self.leads_method() {
                self.skip_breaks();
                self.step();
                self.skip_breaks();
                expr = self.method(expr)?;
            } else if self.is("::") && !self.token().spaced {
                self.step();
                expr = self.path_or_method(expr)?;
            } else if self.is("[") && !self.token().spaced {
                self.step();
                self.skip_breaks();
                let key = self.expression()?;
                self.skip_breaks();
                self.expect("]")?;
                expr = Expr::Index(Box::new(expr), Box::new(key));
            } else {
                return Ok(expr);
            }
        }
    }

    /// Returns true if a `.` follows, also on the next line.
    pub(super) fn leads_method(&self) -> bool {
        let mut kinds = self.tokens[self.next.min(self.tokens.len() - 1)..].iter().map(|t| &t.kind);
        let first = kinds.find(|kind| !matches!(kind, TokenKind::Break));
        matches!(first, Some(TokenKind::Mark("." | "&.")))
    }

    pub(super) fn path_or_method(&mut self, expr: Expr) -> Parsed {
        match (expr, self.peek().clone()) {
            (Expr::Constant(mut path), TokenKind::Constant(name)) => {
                self.step();
                path.push(name);
                Ok(Expr::Constant(path))
            }
            (expr, _) => self.method(expr),
        }
    }

    pub(super) fn method(&mut self, receiver: Expr) -> Parsed {
        let name = match self.peek().clone() {
            TokenKind::Word(name) => name,
            TokenKind::Constant(name) => {
                if let Expr::Constant(mut path) = receiver {
                    self.step();
                    path.push(name);
                    return Ok(Expr::Constant(path));
                }
                name
            }
            _ => return Err(self.unexpected()),
        };
        self.step();
        if let Expr::Constant(path) = &receiver
            && path.iter().all(|part| part.starts_with(char::is_lowercase))
        {
            let path = path.iter().cloned().chain([name]).collect();
            return Ok(Expr::Constant(path));
        }
        self.call(Some(receiver), name)
    }

    /// The arguments and the block of a call.
    pub(super) fn call(&mut self, receiver: Option<Expr>, name: String) -> Parsed {
        let (args, closed) = self.call_args(receiver.is_some())?;
        let block = self.block(closed || receiver.is_some())?;
        Ok(Expr::Call(Box::new(Call { receiver, name, args, block })))
    }

    /// The arguments, and true if they are in parentheses.
    pub(super) fn call_args(&mut self, method: bool) -> Parsed<(Vec<Expr>, bool)> {
        if self.is("(") && !(self.token().spaced && self.goes_on_after_parentheses()) {
            return Ok((self.closed_args()?, true));
        }
        if self.is("(") {
            return Ok((self.open_args()?, false));
        }
        match self.begins_argument(method) {
            true => Ok((self.open_args()?, false)),
            false => Ok((Vec::new(), false)),
        }
    }

    /// Returns true if the parentheses that start here belong to the first argument only, as in
    /// `puts (1 + 2) * 3`.
    fn goes_on_after_parentheses(&self) -> bool {
        let mut depth = 0;
        for (i, token) in self.tokens[self.next..].iter().enumerate() {
            match token.kind {
                TokenKind::Mark("(" | "[" | "{") => depth += 1,
                TokenKind::Mark(")" | "]" | "}") => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let after = self.after(i + 1).map(|token| &token.kind);
                return matches!(after, Some(TokenKind::Mark(m)) if matches!(*m, "," | "." | "?" | "=>") || Operator::from_symbol(m).is_some());
            }
        }
        false
    }

    pub(super) fn closed_args(&mut self) -> Parsed<Vec<Expr>> {
        self.expect("(")?;
        let args = self.list(")")?;
        self.expect(")")?;
        Ok(args)
    }

    pub(super) fn open_args(&mut self) -> Parsed<Vec<Expr>> {
        let mut items = Items::default();
        loop {
            self.item(&mut items)?;
            if !self.accept(",") {
                return Ok(items.done());
            }
            self.skip_breaks();
        }
    }

    /// Expressions and pairs, separated by commas, up to a closing symbol, which is not consumed.
    pub(super) fn list(&mut self, close: &str) -> Parsed<Vec<Expr>> {
        let mut items = Items::default();
        loop {
            self.skip_breaks();
            if self.is(close) {
                return Ok(items.done());
            }
            self.item(&mut items)?;
            self.skip_breaks();
            if !self.accept(",") {
                return Ok(items.done());
            }
        }
    }

    pub(super) fn item(&mut self, items: &mut Items) -> Parsed<()> {
        match self.pair()? {
            (key, Some(value)) => items.pairs.push((key, value)),
            (item, None) => {
                items.close();
                items.all.push(item);
            }
        }
        Ok(())
    }

    /// `key => value`, `key: value`, or one expression.
    pub(super) fn pair(&mut self) -> Parsed<(Expr, Option<Expr>)> {
        if let TokenKind::Label(name) = self.peek().clone() {
            self.step();
            self.skip_breaks();
            return Ok((Expr::Literal(Value::Symbol(name)), Some(self.expression()?)));
        }
        let key = self.expression()?;
        if !self.accept("=>") {
            return Ok((key, None));
        }
        self.skip_breaks();
        Ok((key, Some(self.expression()?)))
    }

    /// Returns true if the token after a name begins its first argument.
    pub(super) fn begins_argument(&self, method: bool) -> bool {
        let token = self.token();
        let tight = self.after(1).is_some_and(|next| !next.spaced);
        token.spaced
            && match &token.kind {
                TokenKind::Word(word) => {
                    !KEYWORDS.contains(&word.as_str())
                        || matches!(word.as_str(), "true" | "false" | "nil" | "not" | "self")
                }
                TokenKind::Mark("[" | "!") => true,
                TokenKind::Mark("-" | "::") => tight && !method,
                TokenKind::Mark(_) | TokenKind::Break | TokenKind::End => false,
                _ => true,
            }
    }
}

/// The items of a list; adjacent pairs become one hash.
#[derive(Default)]
pub(super) struct Items {
    all: Vec<Expr>,
    pairs: Vec<(Expr, Expr)>,
}

impl Items {
    fn close(&mut self) {
        if !self.pairs.is_empty() {
            self.all.push(Expr::Hash(std::mem::take(&mut self.pairs)));
        }
    }

    fn done(mut self) -> Vec<Expr> {
        self.close();
        self.all
    }
}
