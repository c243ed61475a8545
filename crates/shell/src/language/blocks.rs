//! Blocks, conditions and loops, which end with `end` or `}`.

use super::ast::{Block, Expr};
use super::parser::{Parsed, Parser, sequence};
use super::token::{Token, TokenKind};
use crate::value::Value;

impl Parser {
    pub(super) fn block(&mut self, braces: bool) -> Parsed<Option<Block>> {
        if braces && self.accept("{") {
            return self.nested(|p| p.block_body("}")).map(Some);
        }
        if self.is_word("do") && !self.loop_takes_do {
            self.step();
            return self.nested(|p| p.block_body("end")).map(Some);
        }
        Ok(None)
    }

    pub(super) fn block_body(&mut self, close: &'static str) -> Parsed<Block> {
        self.skip_breaks();
        let names = if self.accept("|") { self.block_names()? } else { Vec::new() };
        self.variables.extend(names.iter().cloned());
        let body = self.statements(if close == "end" { &["end"] } else { &[] })?;
        match close {
            "end" => self.end()?,
            _ => self.expect("}")?,
        }
        Ok(Block { names, body: sequence(body) })
    }

    pub(super) fn block_names(&mut self) -> Parsed<Vec<String>> {
        let mut names = Vec::new();
        loop {
            match self.step() {
                Token { kind: TokenKind::Word(name), .. } => names.push(name),
                _ => {
                    self.next -= 1;
                    return Err(self.unexpected());
                }
            }
            if self.accept("|") {
                return Ok(names);
            }
            self.expect(",")?;
        }
    }

    pub(super) fn end(&mut self) -> Parsed<()> {
        match self.accept_word("end") {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    pub(super) fn condition(&mut self, negated: bool) -> Parsed {
        let condition = self.conjunction()?;
        self.accept_word("then");
        let then = sequence(self.statements(&["else", "elsif", "end"])?);
        let other = match self.peek().clone() {
            TokenKind::Word(word) if word == "elsif" => {
                self.step();
                self.nested(|p| p.condition(false))?
            }
            TokenKind::Word(word) if word == "else" => {
                self.step();
                let other = sequence(self.statements(&["end"])?);
                self.end()?;
                other
            }
            _ => {
                self.end()?;
                Expr::Literal(Value::Nil)
            }
        };
        let (then, other) = if negated { (other, then) } else { (then, other) };
        Ok(Expr::If(Box::new(condition), Box::new(then), Box::new(other)))
    }

    /// The condition of a loop, and the `do` after it.
    pub(super) fn loop_condition(&mut self) -> Parsed {
        let outer = std::mem::replace(&mut self.loop_takes_do, true);
        let condition = self.conjunction();
        self.loop_takes_do = outer;
        self.accept_word("do");
        condition
    }

    pub(super) fn while_loop(&mut self, negated: bool) -> Parsed {
        let condition = self.loop_condition()?;
        let condition = if negated { Expr::Not(Box::new(condition)) } else { condition };
        let body = sequence(self.statements(&["end"])?);
        self.end()?;
        Ok(Expr::While(Box::new(condition), Box::new(body)))
    }

    pub(super) fn for_loop(&mut self) -> Parsed {
        let TokenKind::Word(name) = self.peek().clone() else { return Err(self.unexpected()) };
        self.step();
        self.variables.insert(name.clone());
        if !self.accept_word("in") {
            return Err(self.unexpected());
        }
        let over = self.loop_condition()?;
        let body = sequence(self.statements(&["end"])?);
        self.end()?;
        Ok(Expr::For(name, Box::new(over), Box::new(body)))
    }

    pub(super) fn begin(&mut self) -> Parsed {
        let body = sequence(self.statements(&["rescue", "end"])?);
        if !self.accept_word("rescue") {
            self.end()?;
            return Ok(body);
        }
        while matches!(self.peek(), TokenKind::Constant(_) | TokenKind::Mark("::" | "," | ".")) {
            self.step();
        }
        let mut name = None;
        if self.accept("=>") {
            let TokenKind::Word(word) = self.peek().clone() else { return Err(self.unexpected()) };
            self.step();
            self.variables.insert(word.clone());
            name = Some(word);
        }
        let rescue = sequence(self.statements(&["end"])?);
        self.end()?;
        Ok(Expr::Rescue(Box::new(body), name, Box::new(rescue)))
    }
}
