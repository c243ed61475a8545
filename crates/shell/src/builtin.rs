//! Methods and operators of plain values, and Ruby's functions (`puts`, `sleep`, ...) that shell
//! scripts use.

use evenkeel_common::length;

use crate::error::{Flow, RubyError};
use crate::interpreter::Host;
use crate::language::ast::Operator;
use crate::value::Value;

/// The largest number of items in a loop over a range or number.
const ITEMS_MAX: i64 = 100_000_000;

type EvalResult = Result<Value, Flow>;

/// Calls a function of Ruby; `None` if there is none of that name.
pub fn call_function(host: &mut dyn Host, name: &str, args: &[Value]) -> Option<EvalResult> {
    Some(match (name, args) {
        ("puts", []) => host.print(b"\n").map(|()| Value::Nil),
        ("puts", args) => args.iter().try_for_each(|arg| puts(host, arg)).map(|()| Value::Nil),
        ("print", args) => args.iter().try_for_each(|arg| host.print(&arg.to_bytes())).map(|()| Value::Nil),
        ("p", args) => inspect_all(host, args),
        ("sleep", [Value::Int(seconds)]) => host.sleep(*seconds as f64).map(|()| Value::Int(*seconds)),
        ("sleep", [Value::Float(seconds)]) => {
            host.sleep(*seconds).map(|()| Value::Int(length::integer_part(seconds.round())))
        }
        ("exit" | "quit", []) => Err(Flow::Exit(0)),
        ("exit" | "quit", [Value::Int(status)]) => exit(*status),
        ("exit" | "quit", [Value::Bool(ok)]) => Err(Flow::Exit(i32::from(!ok))),
        ("raise", [Value::Exception(failure)]) => Err(failure.clone().into()),
        ("raise", [message]) => Err(RubyError::runtime(message.to_text()).into()),
        ("raise", []) => Err(RubyError::runtime("unhandled exception").into()),
        ("require" | "java_import" | "import" | "include", _) => Ok(Value::Bool(true)),
        ("format" | "sprintf", [Value::Str(pattern), args @ ..]) => format(pattern, args).map(Value::Str),
        ("printf", [Value::Str(pattern), args @ ..]) => {
            format(pattern, args).and_then(|text| host.print(&text)).map(|()| Value::Nil)
        }
        ("rand", [Value::Int(below)]) if *below > 0 => Ok(Value::Int(pseudo_random() % below)),
        ("Integer", [value]) => integer(value),
        _ => return None,
    })
}

/// Ends the shell, if the status is an `int` of JRuby.
fn exit(status: i64) -> EvalResult {
    let out_of_range = |_| {
        let size = if status < 0 { "small" } else { "big" };
        RubyError::new("RangeError", format!("integer {status} too {size} to convert to `int'"))
    };
    Err(i32::try_from(status).map_or_else(|e| out_of_range(e).into(), Flow::Exit))
}

/// The string of one byte.
fn chr(number: i64) -> EvalResult {
    let out_of_range = |_| RubyError::new("RangeError", format!("{number} out of char range"));
    Ok(Value::text([u8::try_from(number).map_err(out_of_range)?]))
}

fn puts(host: &mut dyn Host, value: &Value) -> Result<(), Flow> {
    if let Value::Array(items) = value {
        return items.iter().try_for_each(|item| puts(host, item));
    }
    let mut line = value.to_bytes();
    if !line.ends_with(b"\n") {
        line.push(b'\n');
    }
    host.print(&line)
}

fn inspect_all(host: &mut dyn Host, args: &[Value]) -> EvalResult {
    for arg in args {
        host.print(format!("{}\n", arg.inspect()).as_bytes())?;
    }
    Ok(match args {
        [] => Value::Nil,
        [one] => one.clone(),
        many => Value::Array(many.to_vec()),
    })
}

/// Not for secrets: scripts only need a different number each time.
fn pseudo_random() -> i64 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(0u8) >> 1) as i64
}

/// `format`: `%d %i %s %f %x %X %o %b %%`, with flags `-`, `0`, width and precision.
fn format(pattern: &[u8], args: &[Value]) -> Result<Vec<u8>, Flow> {
    let mut args = args.iter();
    let mut text = Vec::new();
    let mut rest = pattern;
    while let Some(at) = rest.iter().position(|b| *b == b'%') {
        text.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let digits = rest.iter().position(|b| !b"-0123456789.+ ".contains(b));
        let (spec, kind) = digits.map(|at| (&rest[..at], rest[at])).ok_or_else(incomplete_format)?;
        rest = &rest[spec.len() + 1..];
        match kind {
            b'%' => text.push(b'%'),
            kind => {
                let arg = args.next().ok_or_else(|| RubyError::argument("too few arguments"))?;
                text.extend(format_one(spec, kind, arg)?);
            }
        }
    }
    text.extend_from_slice(rest);
    Ok(text)
}

fn incomplete_format() -> Flow {
    RubyError::argument("incomplete format specifier; use %% (double %) instead").into()
}

fn format_one(spec: &[u8], kind: u8, arg: &Value) -> Result<Vec<u8>, Flow> {
    let spec = String::from_utf8_lossy(spec);
    let flags = spec.find(|c: char| !"-0+ ".contains(c)).unwrap_or(spec.len());
    let (flags, size) = spec.split_at(flags);
    let (width, precision) = size.split_once('.').map_or((size, None), |(w, p)| (w, p.parse::<usize>().ok()));
    let width: usize = width.parse().unwrap_or(0).min(10_000);
    let number = || match arg {
        Value::Float(float) => Ok(length::integer_part(*float)),
        other => integer(other).map(|n| if let Value::Int(n) = n { n } else { 0 }),
    };
    let mut body = match kind {
        b'd' | b'i' | b'u' => number()?.to_string().into_bytes(),
        b'x' => format!("{:x}", number()?).into_bytes(),
        b'X' => format!("{:X}", number()?).into_bytes(),
        b'o' => format!("{:o}", number()?).into_bytes(),
        b'b' => format!("{:b}", number()?).into_bytes(),
        b'f' => format!("{:.*}", precision.unwrap_or(6).min(1000), float(arg)?).into_bytes(),
        b's' => arg.to_bytes(),
        b'p' => arg.inspect().into_bytes(),
        other => {
            let other = char::from(other);
            return Err(RubyError::argument(format!("malformed format string - %{other}")).into());
        }
    };
    let missing = width.saturating_sub(body.len());
    let zeros = flags.contains('0') && kind != b's' && !flags.contains('-');
    match (flags.contains('-'), zeros) {
        (true, _) => body.extend(std::iter::repeat_n(b' ', missing)),
        (false, true) => {
            let at = body.starts_with(b"-") as usize;
            body.splice(at..at, std::iter::repeat_n(b'0', missing));
        }
        (false, false) => body.splice(0..0, std::iter::repeat_n(b' ', missing)).for_each(drop),
    }
    Ok(body)
}

fn float(value: &Value) -> Result<f64, Flow> {
    match value {
        Value::Int(number) => Ok(*number as f64),
        Value::Float(number) => Ok(*number),
        other => Err(convert_error(other, "Float")),
    }
}

fn integer(value: &Value) -> EvalResult {
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Float(number) => Ok(Value::Int(length::integer_part(*number))),
        Value::Str(text) => {
            let text = String::from_utf8_lossy(text);
            let number = text.trim().replace('_', "").parse().map(Value::Int);
            number.map_err(|_| RubyError::argument(format!("invalid value for Integer(): {text:?}")).into())
        }
        other => Err(convert_error(other, "Integer")),
    }
}

fn convert_error(value: &Value, into: &str) -> Flow {
    RubyError::new("TypeError", format!("can't convert {} into {into}", value.class())).into()
}

/// `-a`
pub fn negative(of: &Value) -> EvalResult {
    match of {
        Value::Int(number) => number.checked_neg().map(Value::Int).ok_or_else(too_large),
        Value::Float(number) => Ok(Value::Float(-number)),
        other => {
            Err(RubyError::new("NoMethodError", format!("undefined method `-@' for {}", other.inspect()))
                .into())
        }
    }
}

fn too_large() -> Flow {
    RubyError::new("RangeError", "integers of more than 64 bits are not supported").into()
}

/// `a[b]`
pub fn index(of: &Value, key: &Value) -> EvalResult {
    let within = |length: usize, at: i64| {
        let at = if at < 0 { at + length as i64 } else { at };
        usize::try_from(at).ok().filter(|at| *at < length)
    };
    Ok(match (of, key) {
        (Value::Array(items), Value::Int(at)) => within(items.len(), *at).map(|at| items[at].clone()),
        (Value::Str(text), Value::Int(at)) => within(text.len(), *at).map(|at| Value::text([text[at]])),
        (Value::Str(text), Value::Range { from, to, exclusive }) => {
            let to = if *to < 0 { to + text.len() as i64 } else { *to } + i64::from(!exclusive);
            let from = if *from < 0 { from + text.len() as i64 } else { *from };
            let clamp = |at: i64| length::index(at.clamp(0, text.len() as i64).unsigned_abs());
            text.get(clamp(from)..clamp(to).max(clamp(from))).map(Value::text)
        }
        (Value::Hash(hash), key) => hash.get(key).cloned(),
        (other, key) => {
            let message = format!("no element {} of a {}", key.inspect(), other.class());
            return Err(RubyError::new("TypeError", message).into());
        }
    }
    .unwrap_or_default())
}

/// `a[b] = c`
pub fn set_index(of: &mut Value, key: Value, value: Value) -> Result<(), Flow> {
    match (of, &key) {
        (Value::Hash(hash), _) => hash.insert(key, value),
        (Value::Array(items), Value::Int(at)) if (0..=items.len() as i64).contains(at) => {
            match items.get_mut(length::index(at.unsigned_abs())) {
                Some(item) => *item = value,
                None => items.push(value),
            }
        }
        (other, _) => {
            let message = format!("cannot set element {} of a {}", key.inspect(), other.class());
            return Err(RubyError::new("IndexError", message).into());
        }
    }
    Ok(())
}

/// `a + b` and other binary operators.
pub fn binary(operator: Operator, left: &Value, right: &Value) -> EvalResult {
    use Operator as O;
    match (operator, left, right) {
        (O::Equal, a, b) => Ok(Value::Bool(equal(a, b))),
        (O::NotEqual, a, b) => Ok(Value::Bool(!equal(a, b))),
        (O::Less | O::LessEqual | O::Greater | O::GreaterEqual, a, b) => compare(operator, a, b),
        (O::Add, Value::Str(a), Value::Str(b)) => Ok(Value::Str([a.as_slice(), b].concat())),
        (O::Add, Value::Array(a), Value::Array(b)) => Ok(Value::Array([a.as_slice(), b].concat())),
        (O::ShiftLeft, Value::Array(a), b) => {
            Ok(Value::Array(a.iter().chain(std::iter::once(b)).cloned().collect()))
        }
        (O::ShiftLeft, Value::Str(a), Value::Str(b)) => Ok(Value::Str([a.as_slice(), b].concat())),
        (O::Multiply, Value::Str(text), Value::Int(times)) => repeat(text, *times),
        (O::Remainder, Value::Str(pattern), Value::Array(args)) => format(pattern, args).map(Value::Str),
        (O::Remainder, Value::Str(pattern), arg) => {
            format(pattern, std::slice::from_ref(arg)).map(Value::Str)
        }
        (operator, Value::Int(a), Value::Int(b)) => integer_operation(operator, *a, *b),
        (operator, Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
            real(operator, float(left)?, float(right)?)
        }
        (operator, a, b) => {
            let message =
                format!("no operator {} between {} and {}", operator.symbol(), a.class(), b.class());
            Err(RubyError::new("TypeError", message).into())
        }
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(a), Value::Float(b)) | (Value::Float(b), Value::Int(a)) => *a as f64 == *b,
        (a, b) => a == b,
    }
}

fn compare(operator: Operator, a: &Value, b: &Value) -> EvalResult {
    let order = match (a, b) {
        (Value::Str(a), Value::Str(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
            float(a)?.partial_cmp(&float(b)?)
        }
        _ => None,
    };
    let order = order.ok_or_else(|| {
        RubyError::argument(format!("comparison of {} with {} failed", a.class(), b.inspect()))
    })?;
    Ok(Value::Bool(match operator {
        Operator::Less => order.is_lt(),
        Operator::LessEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        _ => order.is_ge(),
    }))
}

fn repeat(text: &[u8], times: i64) -> EvalResult {
    let times = usize::try_from(times).map_err(|_| RubyError::argument("argument must be non-negative"))?;
    match times.checked_mul(text.len()) {
        Some(bytes) if bytes <= 64 << 20 => Ok(Value::Str(text.repeat(times))),
        _ => Err(RubyError::argument("argument too big").into()),
    }
}

fn integer_operation(operator: Operator, a: i64, b: i64) -> EvalResult {
    use Operator as O;
    if b == 0 && matches!(operator, O::Divide | O::Remainder) {
        return Err(RubyError::new("ZeroDivisionError", "divided by 0").into());
    }
    let number = match operator {
        O::Add => a.checked_add(b),
        O::Subtract => a.checked_sub(b),
        O::Multiply => a.checked_mul(b),
        // Ruby rounds down, Rust toward zero.
        O::Divide => a.checked_div(b).map(|q| q - i64::from(a % b != 0 && (a < 0) != (b < 0))),
        O::Remainder => a.checked_rem(b).map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r }),
        O::Power => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        O::ShiftLeft => u32::try_from(b).ok().filter(|b| *b < 63).and_then(|b| a.checked_mul(1 << b)),
        O::ShiftRight => u32::try_from(b).ok().map(|b| a >> b.min(63)),
        _ => None,
    };
    number.map(Value::Int).ok_or_else(too_large)
}

fn real(operator: Operator, a: f64, b: f64) -> EvalResult {
    use Operator as O;
    Ok(Value::Float(match operator {
        O::Add => a + b,
        O::Subtract => a - b,
        O::Multiply => a * b,
        O::Divide => a / b,
        O::Remainder => a - b * (a / b).floor(),
        O::Power => a.powf(b),
        _ => {
            let message = format!("no operator {} between numbers with a point", operator.symbol());
            return Err(RubyError::new("TypeError", message).into());
        }
    }))
}

/// The items of a loop.
pub fn items(of: &Value) -> Result<Vec<Value>, Flow> {
    match of {
        Value::Array(items) => Ok(items.clone()),
        Value::Hash(hash) => {
            let pair = |(key, value): &(Value, Value)| Value::Array(vec![key.clone(), value.clone()]);
            Ok(hash.pairs().iter().map(pair).collect())
        }
        Value::Range { from, to, exclusive } => {
            let to = if *exclusive { *to } else { to.saturating_add(1) };
            match to.saturating_sub(*from) {
                n if n > ITEMS_MAX => Err(RubyError::argument("a loop of too many rounds").into()),
                _ => Ok((*from..to).map(Value::Int).collect()),
            }
        }
        other => {
            Err(RubyError::new("NoMethodError", format!("undefined method `each' for {}", other.inspect()))
                .into())
        }
    }
}

/// The rounds of a method with a block, and the kind of its result.
pub struct Iteration {
    /// The block's arguments, round by round.
    pub rounds: Vec<Vec<Value>>,
    /// The kind of the result.
    pub keep: IterationResult,
}

/// The kind of result of a method with a block.
#[derive(Clone, Copy, PartialEq)]
pub enum IterationResult {
    /// The receiver.
    Receiver,
    /// The block's values.
    Values,
    /// The items for which the block was true.
    Select,
    /// The items for which the block was false.
    Reject,
}

impl IterationResult {
    /// Adds the result of one round.
    pub fn collect(self, kept: &mut Vec<Value>, mut given: Vec<Value>, value: Value) {
        match self {
            Self::Receiver => {}
            Self::Values => kept.push(value),
            Self::Select | Self::Reject if value.is_true() == (self == Self::Select) => {
                kept.push(given.swap_remove(0));
            }
            Self::Select | Self::Reject => {}
        }
    }

    /// Returns the result of the method.
    pub fn result(self, kept: Vec<Value>, of: &Value) -> Value {
        match self {
            Self::Receiver => of.clone(),
            _ => Value::Array(kept),
        }
    }
}

/// Calls a method that takes a block; `None` if there is none of that name.
pub fn iteration(of: &Value, method: &str, args: &[Value]) -> Option<Result<Iteration, Flow>> {
    let span = |from: i64, to: i64| items(&Value::Range { from, to, exclusive: false });
    let found = match (of, method, args) {
        (Value::Int(times), "times", []) => span(0, times - 1),
        (Value::Int(from), "upto", [Value::Int(to)]) => span(*from, *to),
        (Value::Int(from), "downto", [Value::Int(to)]) => span(*to, *from).map(|mut all| {
            all.reverse();
            all
        }),
        (Value::Range { .. }, "step", [Value::Int(step)]) if *step > 0 => {
            items(of).map(|all| all.into_iter().step_by(length::index(step.unsigned_abs())).collect())
        }
        (
            _,
            "each" | "map" | "collect" | "select" | "filter" | "reject" | "each_with_index" | "each_pair",
            [],
        ) => items(of),
        _ => return None,
    };
    let keep = match method {
        "map" | "collect" => IterationResult::Values,
        "select" | "filter" => IterationResult::Select,
        "reject" => IterationResult::Reject,
        _ => IterationResult::Receiver,
    };
    let numbered = method == "each_with_index";
    let given = |(i, item)| if numbered { vec![item, Value::Int(i)] } else { vec![item] };
    Some(found.map(|all| Iteration { rounds: (0..).zip(all).map(given).collect(), keep }))
}

/// Calls a method that changes a variable's value.
pub fn call_mutating(of: &mut Value, method: &str, args: &[Value]) -> EvalResult {
    match (of, method, args) {
        (Value::Array(items), "push", args) => {
            items.extend_from_slice(args);
            Ok(Value::Array(items.clone()))
        }
        (Value::Array(items), "concat", [Value::Array(more)]) => {
            items.extend_from_slice(more);
            Ok(Value::Array(items.clone()))
        }
        (Value::Array(items), "delete", [gone]) => {
            items.retain(|item| item != gone);
            Ok(gone.clone())
        }
        (Value::Hash(hash), "delete", [key]) => {
            let value = hash.get(key).cloned().unwrap_or_default();
            *hash = hash.pairs().iter().filter(|(k, _)| k != key).cloned().collect();
            Ok(value)
        }
        (Value::Hash(hash), "merge!", [Value::Hash(more)]) => {
            more.pairs().iter().cloned().for_each(|(key, value)| hash.insert(key, value));
            Ok(Value::Hash(hash.clone()))
        }
        (other, method, _) => {
            let message = format!("undefined method `{method}' for {}:{}", other.inspect(), other.class());
            Err(RubyError::new("NoMethodError", message).into())
        }
    }
}

/// Calls a method without a block; `None` if there is none of that name.
pub fn method(of: &Value, name: &str, args: &[Value]) -> Option<EvalResult> {
    Some(Ok(match (of, name, args) {
        (of, "to_s", []) => Value::Str(of.to_bytes()),
        (of, "inspect", []) => Value::text(of.inspect()),
        (of, "nil?", []) => Value::Bool(*of == Value::Nil),
        (of, "class", []) => Value::text(of.class()),
        (Value::Exception(failure), "message", []) => Value::text(&failure.message),
        (Value::Table(table), "name", []) => Value::text(table.to_string()),
        (Value::Str(text), name, args) => return string_method(text, name, args),
        (Value::Int(number), "to_i", []) => Value::Int(*number),
        (Value::Int(number), "to_f", []) => Value::Float(*number as f64),
        (Value::Int(number), "abs", []) => Value::Int(number.saturating_abs()),
        (Value::Int(number), "chr", []) => return Some(chr(*number)),
        (Value::Int(number), "even?", []) => Value::Bool(number % 2 == 0),
        (Value::Int(number), "odd?", []) => Value::Bool(number % 2 != 0),
        (Value::Float(number), "to_i" | "round", []) => Value::Int(length::integer_part(number.round())),
        (Value::Symbol(_) | Value::Nil, "to_sym", []) => of.clone(),
        (Value::Array(items), name, args) => return array_method(items, name, args),
        (Value::Hash(hash), "size" | "length" | "count", []) => Value::Int(hash.pairs().len() as i64),
        (Value::Hash(hash), "keys", []) => {
            Value::Array(hash.pairs().iter().map(|(k, _)| k.clone()).collect())
        }
        (Value::Hash(hash), "values", []) => {
            Value::Array(hash.pairs().iter().map(|(_, v)| v.clone()).collect())
        }
        (Value::Hash(hash), "key?" | "has_key?" | "include?", [key]) => Value::Bool(hash.get(key).is_some()),
        (Value::Hash(hash), "empty?", []) => Value::Bool(hash.pairs().is_empty()),
        (Value::Hash(hash), "merge", [Value::Hash(more)]) => {
            Value::Hash(hash.pairs().iter().chain(more.pairs()).cloned().collect())
        }
        (Value::Range { .. }, "to_a", []) => return Some(items(of).map(Value::Array)),
        (Value::Range { .. }, "size" | "count", []) => {
            return Some(items(of).map(|all| Value::Int(all.len() as i64)));
        }
        _ => return None,
    }))
}

fn string_method(text: &[u8], name: &str, args: &[Value]) -> Option<EvalResult> {
    let string = String::from_utf8_lossy(text);
    let number =
        || string.trim().split(|c: char| !(c.is_ascii_digit() || c == '-')).next().unwrap_or_default();
    Some(Ok(match (name, args) {
        ("to_i", []) => Value::Int(number().parse().unwrap_or(0)),
        ("to_f", []) => Value::Float(string.trim().parse().unwrap_or(0.0)),
        ("to_sym", []) => Value::Symbol(string.into_owned()),
        ("size" | "length", []) => Value::Int(string.chars().count() as i64),
        ("bytesize", []) => Value::Int(text.len() as i64),
        ("upcase", []) => Value::text(string.to_uppercase()),
        ("downcase", []) => Value::text(string.to_lowercase()),
        ("capitalize", []) => {
            let mut chars = string.chars();
            let first: String = chars.next().into_iter().flat_map(char::to_uppercase).collect();
            Value::text(first + &chars.as_str().to_lowercase())
        }
        ("reverse", []) => Value::text(string.chars().rev().collect::<String>()),
        ("strip" | "chomp", []) => Value::text(string.trim()),
        ("empty?", []) => Value::Bool(text.is_empty()),
        ("to_java_bytes" | "dup" | "freeze" | "force_encoding", _) => Value::text(text),
        ("start_with?", [Value::Str(head)]) => Value::Bool(text.starts_with(head)),
        ("end_with?", [Value::Str(tail)]) => Value::Bool(text.ends_with(tail)),
        ("include?", [Value::Str(part)]) => {
            Value::Bool(part.is_empty() || text.windows(part.len()).any(|window| window == part))
        }
        ("split", [Value::Str(by)]) if !by.is_empty() => {
            Value::texts(string.split(&*String::from_utf8_lossy(by)))
        }
        ("split", []) => Value::texts(string.split_whitespace()),
        ("concat", [Value::Str(more)]) => Value::Str([text, more].concat()),
        ("gsub" | "sub", [Value::Str(from), Value::Str(to)]) if !from.is_empty() => {
            let (from, to) = (String::from_utf8_lossy(from), String::from_utf8_lossy(to));
            let times = if name == "gsub" { usize::MAX } else { 1 };
            Value::text(string.replacen(&*from, &to, times))
        }
        ("rjust" | "ljust", [Value::Int(width), pad @ ..]) => {
            let pad = pad.first().map_or_else(|| b" ".to_vec(), Value::to_bytes);
            let missing = usize::try_from(*width).unwrap_or(0).min(1 << 20).saturating_sub(text.len());
            let fill: Vec<u8> = pad.into_iter().cycle().take(missing).collect();
            let parts = if name == "rjust" { [&fill[..], text] } else { [text, &fill[..]] };
            Value::Str(parts.concat())
        }
        _ => return None,
    }))
}

fn array_method(items: &[Value], name: &str, args: &[Value]) -> Option<EvalResult> {
    Some(Ok(match (name, args) {
        ("size" | "length" | "count", []) => Value::Int(items.len() as i64),
        ("empty?", []) => Value::Bool(items.is_empty()),
        ("first", []) => items.first().cloned().unwrap_or_default(),
        ("last", []) => items.last().cloned().unwrap_or_default(),
        ("first" | "take", [Value::Int(n)]) => {
            Value::Array(items.iter().take(usize::try_from(*n).unwrap_or(0)).cloned().collect())
        }
        ("include?", [item]) => Value::Bool(items.contains(item)),
        ("reverse", []) => Value::Array(items.iter().rev().cloned().collect()),
        ("to_a", []) => Value::Array(items.to_vec()),
        ("join", separator) => {
            let separator = separator.first().map(Value::to_bytes).unwrap_or_default();
            let parts: Vec<_> = items.iter().map(Value::to_bytes).collect();
            Value::Str(parts.join(&separator[..]))
        }
        ("compact", []) => Value::Array(items.iter().filter(|item| **item != Value::Nil).cloned().collect()),
        ("sort", []) => {
            let mut sorted = items.to_vec();
            sorted.sort_by(|a, b| match (a, b) {
                (Value::Int(a), Value::Int(b)) => a.cmp(b),
                (a, b) => a.to_bytes().cmp(&b.to_bytes()),
            });
            Value::Array(sorted)
        }
        ("uniq", []) => {
            let mut seen: Vec<Value> = Vec::new();
            items.iter().for_each(|item| {
                if !seen.contains(item) {
                    seen.push(item.clone());
                }
            });
            Value::Array(seen)
        }
        ("flatten", []) => Value::Array(flatten(items.to_vec())),
        _ => return None,
    }))
}

/// Flattens nested arrays.
pub fn flatten(items: Vec<Value>) -> Vec<Value> {
    let inner = |item| match item {
        Value::Array(inner) => flatten(inner),
        other => vec![other],
    };
    items.into_iter().flat_map(inner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(answer: EvalResult) -> String {
        match answer {
            Err(Flow::RubyError(failure)) => format!("{}: {}", failure.class, failure.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn chr_refuses_numbers_beyond_a_byte() {
        let chr = |number| method(&Value::Int(number), "chr", &[]).expect("a method");
        assert_eq!(chr(0xe9).expect("a byte"), Value::text([0xe9]));
        assert_eq!(failure(chr(256)), "RangeError: 256 out of char range");
        assert_eq!(failure(chr(-1)), "RangeError: -1 out of char range");
    }

    #[test]
    fn an_exit_status_is_an_int() {
        assert!(matches!(exit(-3), Err(Flow::Exit(-3))));
        let (big, small) = (i64::from(i32::MAX) + 1, i64::from(i32::MIN) - 1);
        assert_eq!(failure(exit(big)), format!("RangeError: integer {big} too big to convert to `int'"));
        assert_eq!(
            failure(exit(small)),
            format!("RangeError: integer {small} too small to convert to `int'")
        );
    }
}
