//! [`Expr`]: the tree of a source. Its printed form parses to the same tree.

use std::fmt;

use crate::value::{Value, inspect_bytes};

/// An expression; in Ruby, everything is one.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A literal.
    Literal(Value),
    /// A double-quoted string with interpolation.
    Text(Vec<StringPart>),
    /// `[a, b]`
    Array(Vec<Expr>),
    /// `{a => b}`
    Hash(Vec<(Expr, Expr)>),
    /// `a..b` or `a...b`
    Range(Box<Expr>, Box<Expr>, bool),
    /// A variable.
    Variable(String),
    /// A constant, or a path of packages and constants, written with dots and `::`.
    Constant(Vec<String>),
    /// A call: of a command, or of a method of the receiver.
    Call(Box<Call>),
    /// `a[b]`
    Index(Box<Expr>, Box<Expr>),
    /// An operator between two operands.
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// `-a`
    Negative(Box<Expr>),
    /// `!a`
    Not(Box<Expr>),
    /// `name = a`
    Assign(String, Box<Expr>),
    /// `a[b] = c`
    AssignIndex(String, Box<Expr>, Box<Expr>),
    /// `if a then b else c end` and equivalent forms.
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `while a do b end`
    While(Box<Expr>, Box<Expr>),
    /// `for name in a do b end`
    For(String, Box<Expr>, Box<Expr>),
    /// `begin a rescue => name b end`
    Rescue(Box<Expr>, Option<String>, Box<Expr>),
    /// `break` or `next`
    Jump(Jump),
    /// A sequence; its value is that of the last expression.
    Sequence(Vec<Expr>),
}

/// A part of a double-quoted string.
#[derive(Clone, Debug, PartialEq)]
pub enum StringPart {
    /// Literal bytes.
    Text(Vec<u8>),
    /// `#{...}`
    Code(Expr),
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The receiver; none for commands.
    pub receiver: Option<Expr>,
    /// The command or method.
    pub name: String,
    /// The arguments, among them a hash without braces.
    pub args: Vec<Expr>,
    /// `{ |a, b| ... }` or `do |a, b| ... end`
    pub block: Option<Block>,
}

/// A block.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// The parameters.
    pub names: Vec<String>,
    /// The body.
    pub body: Expr,
}

/// Leaving a loop or block early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// Ends the loop.
    Break,
    /// Continues with the next round.
    Next,
}

/// An operator with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Power,
}

impl Operator {
    /// All operators.
    pub const ALL: &'static [Operator] = {
        use Operator::*;
        &[
            Or,
            And,
            Equal,
            NotEqual,
            Less,
            LessEqual,
            Greater,
            GreaterEqual,
            ShiftLeft,
            ShiftRight,
            Add,
            Subtract,
            Multiply,
            Divide,
            Remainder,
            Power,
        ]
    };

    /// Its symbol.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Or => "||",
            Self::And => "&&",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
            Self::Power => "**",
        }
    }

    /// The operator with a symbol.
    pub fn from_symbol(mark: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|operator| operator.symbol() == mark)
    }

    /// Its precedence; 1 is the lowest.
    pub fn precedence(self) -> u8 {
        match self {
            Self::Or => 1,
            Self::And => 2,
            Self::Equal | Self::NotEqual => 3,
            Self::Less | Self::LessEqual | Self::Greater | Self::GreaterEqual => 4,
            Self::ShiftLeft | Self::ShiftRight => 5,
            Self::Add | Self::Subtract => 6,
            Self::Multiply | Self::Divide | Self::Remainder => 7,
            Self::Power => 8,
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(value) => f.write_str(&value.inspect()),
            Self::Text(pieces) => write_text(f, pieces),
            Self::Array(items) => write!(f, "[{}]", list(items)),
            Self::Hash(pairs) => write_hash(f, pairs),
            Self::Range(from, to, exclusive) => {
                write!(f, "(({from}){}({to}))", if *exclusive { "..." } else { ".." })
            }
            Self::Variable(name) => f.write_str(name),
            Self::Constant(path) => write_path(f, path),
            Self::Call(call) => call.fmt(f),
            Self::Index(of, key) => write!(f, "({of})[{key}]"),
            Self::Binary(operator, left, right) => write!(f, "(({left}) {} ({right}))", operator.symbol()),
            Self::Negative(of) => write!(f, "(-({of}))"),
            Self::Not(of) => write!(f, "(!({of}))"),
            Self::Assign(name, value) => write!(f, "({name} = ({value}))"),
            Self::AssignIndex(name, key, value) => write!(f, "({name}[{key}] = ({value}))"),
            Self::If(condition, then, other) => write!(f, "if ({condition})\n{then}\nelse\n{other}\nend"),
            Self::While(condition, body) => write!(f, "while ({condition})\n{body}\nend"),
            Self::For(name, over, body) => write!(f, "for {name} in ({over})\n{body}\nend"),
            Self::Rescue(body, Some(name), rescue) => {
                write!(f, "begin\n{body}\nrescue => {name}\n{rescue}\nend")
            }
            Self::Rescue(body, None, rescue) => write!(f, "begin\n{body}\nrescue\n{rescue}\nend"),
            Self::Jump(Jump::Break) => f.write_str("break"),
            Self::Jump(Jump::Next) => f.write_str("next"),
            Self::Sequence(all) => {
                f.write_str(&all.iter().map(Self::to_string).collect::<Vec<_>>().join("\n"))
            }
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(receiver) = &self.receiver {
            write!(f, "({receiver}).")?;
        }
        write!(f, "{}({})", self.name, list(&self.args))?;
        let Some(block) = &self.block else { return Ok(()) };
        match block.names.as_slice() {
            [] => write!(f, " {{\n{}\n}}", block.body),
            names => write!(f, " {{ |{}|\n{}\n}}", names.join(", "), block.body),
        }
    }
}

fn list(items: &[Expr]) -> String {
    items.iter().map(Expr::to_string).collect::<Vec<_>>().join(", ")
}

fn write_hash(f: &mut fmt::Formatter<'_>, pairs: &[(Expr, Expr)]) -> fmt::Result {
    let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key} => {value}")).collect();
    write!(f, "{{{}}}", pairs.join(", "))
}

/// Packages are lower case, constants are not: `a.b.C::D`.
fn write_path(f: &mut fmt::Formatter<'_>, path: &[String]) -> fmt::Result {
    for (i, part) in path.iter().enumerate() {
        let after_class = i > 0 && path[i - 1].starts_with(char::is_uppercase);
        f.write_str(if i == 0 {
            ""
        } else if after_class {
            "::"
        } else {
            "."
        })?;
        f.write_str(part)?;
    }
    Ok(())
}

fn write_text(f: &mut fmt::Formatter<'_>, pieces: &[StringPart]) -> fmt::Result {
    f.write_str("\"")?;
    for piece in pieces {
        match piece {
            StringPart::Text(text) => {
                let quoted = inspect_bytes(text);
                f.write_str(&quoted[1..quoted.len() - 1])?;
            }
            StringPart::Code(code) => write!(f, "#{{{code}}}")?,
        }
    }
    f.write_str("\"")
}
