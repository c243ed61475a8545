//! Replacement of `${x}` in values by the value of `x`. The references of that value are replaced,
//! too, and `${a${b}}` is replaced from the inside out. An unbound reference is left unchanged, as
//! in Hadoop. A circular reference is an error. (Hadoop leaves such a value unchanged, and even one
//! in which a name merely occurs twice, which is replaced here.)

use std::collections::HashMap;

/// How deep references may be nested, as in Hadoop.
const DEPTH_MAX: usize = 20;

/// The maximum number of references that one value may contain after expansion.
const REFERENCES_MAX: usize = 4_096;

/// The longest expanded value, in bytes.
const LENGTH_MAX: usize = 1 << 20;

/// The Java system properties that HBase's defaults refer to, for this process.
pub(super) fn process_properties() -> HashMap<String, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let user = variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_else(|| "hbase".to_owned());
    let home = variable("HOME").unwrap_or_else(|| "/".to_owned());
    let cwd = std::env::current_dir().map_or_else(|_| "/".to_owned(), |dir| dir.display().to_string());
    let pairs =
        [("java.io.tmpdir", "/tmp".to_owned()), ("user.name", user), ("user.home", home), ("user.dir", cwd)];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// An environment variable: `NAME`, `NAME-default` (default if unset) or `NAME:-default` (default
/// if unset or empty).
pub(super) fn environment(expression: &str) -> Option<String> {
    let Some((name, fallback)) = expression.split_once('-') else {
        return std::env::var(expression).ok();
    };
    match name.strip_suffix(':') {
        Some(name) => std::env::var(name).ok().filter(|value| !value.is_empty()),
        None => std::env::var(name).ok(),
    }
    .or_else(|| Some(fallback.to_owned()))
}

/// Replaces every reference in `text`, the value of `key`, that `look_up` resolves.
pub(super) fn expand(
    key: &str,
    text: &str,
    look_up: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut expansion = Expansion { look_up, chain: vec![key.to_owned()], references: 0 };
    let mut out = String::with_capacity(text.len() * 2);
    expansion.expand_into(text, 0, &mut out)?;
    Ok(out)
}

struct Expansion<'a> {
    look_up: &'a dyn Fn(&str) -> Option<String>,
    /// The keys that are being expanded, the outermost first.
    chain: Vec<String>,
    references: usize,
}

impl Expansion<'_> {
    fn expand_into(&mut self, mut text: &str, depth: usize, out: &mut String) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("references more than {DEPTH_MAX} deep"));
        }
        while let Some((before, inner, after)) = next_reference(text) {
            out.push_str(before);
            self.replace(inner, depth, out)?;
            text = after;
        }
        out.push_str(text);
        if out.len() > LENGTH_MAX {
            Err(format!("longer than {LENGTH_MAX} bytes when expanded"))
        } else {
            Ok(())
        }
    }

    fn replace(&mut self, inner: &str, depth: usize, out: &mut String) -> Result<(), String> {
        self.references += 1;
        if self.references > REFERENCES_MAX {
            return Err(format!("more than {REFERENCES_MAX} references"));
        }
        let mut name = String::new();
        self.expand_into(inner, depth + 1, &mut name)?;
        let Some(value) = (self.look_up)(&name) else {
            out.extend(["${", &name, "}"]);
            return Ok(());
        };
        if self.chain.contains(&name) {
            return Err(format!("circular references: {} -> {name}", self.chain.join(" -> ")));
        }
        self.chain.push(name);
        self.expand_into(&value, depth + 1, out)?;
        self.chain.pop();
        Ok(())
    }
}

/// The first `${...}` with its matching brace: the text before, inside and after it.
fn next_reference(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.find("${")?;
    let inside = text.get(start + 2..)?;
    let mut open = 1_usize;
    let mut previous = ' ';
    for (at, c) in inside.char_indices() {
        match c {
            '{' if previous == '$' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some((text.get(..start)?, inside.get(..at)?, inside.get(at + 1..)?));
        }
        previous = c;
    }
    None
}
