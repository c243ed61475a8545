//! [`Interpreter`]: evaluates the tree of a source.
//!
//! It holds the variables, and implements operators, loops and the methods of plain values. The
//! [`Host`] implements commands and output.

use std::collections::{HashMap, HashSet};

use crate::builtin;
use crate::error::{Flow, RubyError};
use crate::filter;
use crate::language::ast::{Block, Call, Expr, Jump, Operator, StringPart};
use crate::language::{SyntaxError, parse_with};
use crate::value::Value;

/// The deepest nesting of calls and blocks at run time.
const DEPTH_MAX: usize = 200;

/// The environment of the language: commands and output.
pub trait Host {
    /// Runs a command; `None` if there is none of that name.
    fn command(&mut self, name: &str, args: Vec<Value>) -> Option<Result<Value, Flow>>;

    /// Writes bytes to the output.
    fn print(&mut self, bytes: &[u8]) -> Result<(), Flow>;

    /// Fails if the user pressed Ctrl-C.
    fn check_interrupt(&mut self) -> Result<(), Flow>;

    /// Waits.
    fn sleep(&mut self, seconds: f64) -> Result<(), Flow>;

    /// The names of commands, for suggestions.
    fn names(&self) -> Vec<String>;
}

/// Variables and imported constants.
#[derive(Default)]
pub struct Interpreter {
    variables: HashMap<String, Value>,
    names: HashSet<String>,
    imports: HashMap<String, Vec<String>>,
    depth: usize,
}

type Evaluated = Result<Value, Flow>;

impl Interpreter {
    /// Parses a source.
    ///
    /// # Errors
    /// As [`parse_with`].
    pub fn parse(&mut self, source: &str) -> Result<Vec<Expr>, SyntaxError> {
        parse_with(source, &mut self.names)
    }

    /// The names of variables, for completion.
    pub fn variable_names(&self) -> impl Iterator<Item = &String> {
        self.variables.keys()
    }

    /// The value of an expression.
    ///
    /// # Errors
    /// A failure, exit, interrupt or jump.
    pub fn evaluate(&mut self, host: &mut dyn Host, expr: &Expr) -> Evaluated {
        if self.depth >= DEPTH_MAX {
            return Err(RubyError::new("SystemStackError", "stack level too deep").into());
        }
        self.depth += 1;
        let value = self.expression(host, expr);
        self.depth -= 1;
        value
    }

    fn expression(&mut self, host: &mut dyn Host, expr: &Expr) -> Evaluated {
        match expr {
            Expr::Literal(value) => Ok(value.clone()),
            Expr::Text(pieces) => self.text(host, pieces),
            Expr::Array(items) => self.all(host, items).map(Value::Array),
            Expr::Hash(pairs) => self.hash(host, pairs),
            Expr::Range(from, to, exclusive) => {
                let (from, to) = (self.evaluate(host, from)?, self.evaluate(host, to)?);
                match (from, to) {
                    (Value::Int(from), Value::Int(to)) => {
                        Ok(Value::Range { from, to, exclusive: *exclusive })
                    }
                    _ => Err(RubyError::argument("only ranges of integers are supported").into()),
                }
            }
            Expr::Variable(name) => Ok(self.variables.get(name).cloned().unwrap_or_default()),
            Expr::Constant(path) => self.constant(path),
            Expr::Call(call) => self.call(host, call),
            Expr::Index(of, key) => {
                let (of, key) = (self.evaluate(host, of)?, self.evaluate(host, key)?);
                builtin::index(&of, &key)
            }
            Expr::Binary(operator, left, right) => self.binary(host, *operator, left, right),
            Expr::Negative(of) => builtin::negative(&self.evaluate(host, of)?),
            Expr::Not(of) => Ok(Value::Bool(!self.evaluate(host, of)?.is_true())),
            Expr::Assign(name, value) => {
                let value = self.evaluate(host, value)?;
                self.assign(name, value.clone());
                Ok(value)
            }
            Expr::AssignIndex(name, key, value) => self.assign_index(host, name, key, value),
            Expr::If(condition, then, other) => match self.evaluate(host, condition)?.is_true() {
                true => self.evaluate(host, then),
                false => self.evaluate(host, other),
            },
            Expr::While(condition, body) => self.while_loop(host, condition, body),
            Expr::For(name, over, body) => self.for_loop(host, name, over, body),
            Expr::Rescue(body, name, rescue) => self.rescue(host, body, name.as_deref(), rescue),
            Expr::Jump(Jump::Break) => Err(Flow::Break),
            Expr::Jump(Jump::Next) => Err(Flow::Next),
            Expr::Sequence(all) => {
                let mut last = Value::Nil;
                for expr in all {
                    last = self.evaluate(host, expr)?;
                }
                Ok(last)
            }
        }
    }

    fn all(&mut self, host: &mut dyn Host, exprs: &[Expr]) -> Result<Vec<Value>, Flow> {
        exprs.iter().map(|expr| self.evaluate(host, expr)).collect()
    }

    fn text(&mut self, host: &mut dyn Host, pieces: &[StringPart]) -> Evaluated {
        let mut text = Vec::new();
        for piece in pieces {
            match piece {
                StringPart::Text(bytes) => text.extend_from_slice(bytes),
                StringPart::Code(code) => text.extend(self.evaluate(host, code)?.to_bytes()),
            }
        }
        Ok(Value::Str(text))
    }

    fn hash(&mut self, host: &mut dyn Host, pairs: &[(Expr, Expr)]) -> Evaluated {
        let mut hash = crate::value::Hash::default();
        for (key, value) in pairs {
            let key = self.evaluate(host, key)?;
            hash.insert(key, self.evaluate(host, value)?);
        }
        Ok(Value::Hash(hash))
    }

    fn assign(&mut self, name: &str, value: Value) {
        self.names.insert(name.to_owned());
        self.variables.insert(name.to_owned(), value);
    }

    fn assign_index(&mut self, host: &mut dyn Host, name: &str, key: &Expr, value: &Expr) -> Evaluated {
        let (key, value) = (self.evaluate(host, key)?, self.evaluate(host, value)?);
        let target = self.variables.get_mut(name).ok_or_else(|| undefined(name))?;
        builtin::set_index(target, key, value.clone())?;
        Ok(value)
    }

    /// Evaluates a constant: of the shell, or a path to a Java class.
    fn constant(&self, path: &[String]) -> Evaluated {
        if let [name] = path
            && let Some(value) = crate::constant::value_of(name)
        {
            return Ok(Value::text(value));
        }
        filter::constant(&self.resolved(path)).unwrap_or_else(|| {
            let shown = path.join("::");
            Err(RubyError::new("NameError", format!("uninitialized constant HBaseReceiver::{shown}")).into())
        })
    }

    fn resolved(&self, path: &[String]) -> Vec<String> {
        let imported = path.first().and_then(|first| self.imports.get(first));
        let Some(imported) = imported else { return path.to_vec() };
        imported.iter().chain(&path[1..]).cloned().collect()
    }

    fn call(&mut self, host: &mut dyn Host, call: &Call) -> Evaluated {
        host.check_interrupt()?;
        match &call.receiver {
            None => self.plain_call(host, call),
            Some(Expr::Constant(path)) => {
                let args = self.all(host, &call.args)?;
                filter::call(&self.resolved(path), &call.name, &args)
            }
            Some(receiver) => self.method(host, receiver, call),
        }
    }

    /// Calls a command, or a function of Ruby.
    fn plain_call(&mut self, host: &mut dyn Host, call: &Call) -> Evaluated {
        if let ("import" | "java_import" | "include_class", [Expr::Constant(path)]) =
            (call.name.as_str(), call.args.as_slice())
        {
            let short = path.last().cloned().unwrap_or_default();
            self.imports.insert(short, path.clone());
            return Ok(Value::Nil);
        }
        let args = self.all(host, &call.args)?;
        if call.name == "loop"
            && let Some(block) = &call.block
        {
            return self.endless(host, block);
        }
        if let Some(value) = builtin::call_function(host, &call.name, &args) {
            return value;
        }
        if call.block.is_some() {
            return Err(RubyError::argument(format!("{} takes no block", call.name)).into());
        }
        let outcome = host.command(&call.name, args);
        outcome.unwrap_or_else(|| Err(no_command(host, &call.name, call.args.is_empty()).into()))
    }

    fn method(&mut self, host: &mut dyn Host, receiver: &Expr, call: &Call) -> Evaluated {
        let of = self.evaluate(host, receiver)?;
        let args = self.all(host, &call.args)?;
        if let Value::Table(table) = &of {
            let mut with_table = vec![Value::text(table.to_string())];
            with_table.extend(args);
            let name = if call.name == "help" { "table_help" } else { &call.name };
            let outcome = match name {
                "name" | "to_s" | "inspect" => builtin::method(&of, name, &with_table[1..]),
                "table_help" => host.command(name, with_table.split_off(1)),
                _ => host.command(name, with_table),
            };
            return outcome.unwrap_or_else(|| Err(no_method(&call.name, &of).into()));
        }
        if let Some(block) = &call.block {
            return self.iterate(host, &of, &call.name, &args, block);
        }
        if let (Expr::Variable(name), "push" | "concat" | "delete" | "merge!") =
            (receiver, call.name.as_str())
        {
            let target = self.variables.entry(name.clone()).or_default();
            return builtin::call_mutating(target, &call.name, &args);
        }
        builtin::method(&of, &call.name, &args).unwrap_or_else(|| Err(no_method(&call.name, &of).into()))
    }

    fn binary(&mut self, host: &mut dyn Host, operator: Operator, left: &Expr, right: &Expr) -> Evaluated {
        let first = self.evaluate(host, left)?;
        match operator {
            Operator::And if !first.is_true() => return Ok(first),
            Operator::Or if first.is_true() => return Ok(first),
            Operator::And | Operator::Or => return self.evaluate(host, right),
            _ => {}
        }
        let second = self.evaluate(host, right)?;
        let value = builtin::binary(operator, &first, &second)?;
        if let (Operator::ShiftLeft, Expr::Variable(name)) = (operator, left) {
            self.assign(name, value.clone());
        }
        Ok(value)
    }

    /// Runs a loop's body once; returns false if a `break` ended the loop.
    fn round(&mut self, host: &mut dyn Host, body: &Expr) -> Result<bool, Flow> {
        host.check_interrupt()?;
        match self.evaluate(host, body) {
            Err(Flow::Break) => Ok(false),
            Ok(_) | Err(Flow::Next) => Ok(true),
            Err(other) => Err(other),
        }
    }

    fn while_loop(&mut self, host: &mut dyn Host, condition: &Expr, body: &Expr) -> Evaluated {
        while self.evaluate(host, condition)?.is_true() && self.round(host, body)? {}
        Ok(Value::Nil)
    }

    fn endless(&mut self, host: &mut dyn Host, block: &Block) -> Evaluated {
        while self.round(host, &block.body)? {}
        Ok(Value::Nil)
    }

    fn for_loop(&mut self, host: &mut dyn Host, name: &str, over: &Expr, body: &Expr) -> Evaluated {
        let over = self.evaluate(host, over)?;
        for item in builtin::items(&over)? {
            self.assign(name, item);
            if !self.round(host, body)? {
                break;
            }
        }
        Ok(over)
    }

    fn rescue(&mut self, host: &mut dyn Host, body: &Expr, name: Option<&str>, rescue: &Expr) -> Evaluated {
        match self.evaluate(host, body) {
            Err(Flow::RubyError(failure)) => {
                if let Some(name) = name {
                    self.assign(name, Value::Exception(failure));
                }
                self.evaluate(host, rescue)
            }
            other => other,
        }
    }

    /// Calls a method with a block, such as `each`.
    fn iterate(
        &mut self,
        host: &mut dyn Host,
        of: &Value,
        method: &str,
        args: &[Value],
        block: &Block,
    ) -> Evaluated {
        let plan = builtin::iteration(of, method, args).ok_or_else(|| no_method(method, of))??;
        let mut kept = Vec::new();
        for given in plan.rounds {
            host.check_interrupt()?;
            self.bind_parameters(block, &given);
            let value = match self.evaluate(host, &block.body) {
                Err(Flow::Break) => return Ok(Value::Nil),
                Err(Flow::Next) => Value::Nil,
                other => other?,
            };
            plan.keep.collect(&mut kept, given, value);
        }
        Ok(plan.keep.result(kept, of))
    }

    /// Sets a block's parameters; a lone array is spread over several parameters.
    fn bind_parameters(&mut self, block: &Block, given: &[Value]) {
        let spread = match given {
            [Value::Array(items)] if block.names.len() > 1 => items.as_slice(),
            other => other,
        };
        for (i, name) in block.names.iter().enumerate() {
            self.assign(name, spread.get(i).cloned().unwrap_or_default());
        }
    }
}

fn undefined(name: &str) -> RubyError {
    RubyError::new("NameError", format!("undefined local variable or method `{name}' for HBaseReceiver"))
}

fn no_method(name: &str, of: &Value) -> RubyError {
    RubyError::new("NoMethodError", format!("undefined method `{name}' for {}:{}", of.inspect(), of.class()))
}

fn no_command(host: &dyn Host, name: &str, bare: bool) -> RubyError {
    let mut failure = match bare {
        true => undefined(name),
        false => RubyError::new("NoMethodError", format!("undefined method `{name}' for HBaseReceiver")),
    };
    let names = host.names();
    let near = names.iter().map(|known| (distance(known, name), known)).min();
    if let Some((_, near)) = near.filter(|(edits, _)| *edits <= 1 + name.len() / 4) {
        failure.message.push_str(&format!("\nDid you mean?  {near}"));
    }
    failure
}

/// The edit distance of two words.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = corner + (x != *y) as usize;
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
